//! What a scan takes on a measured storage.
//!
//! The time of a page comes from a replay on that storage: the same calls in the same order, by density of the pages
//! and by how far ahead they are asked for. It has the kernel's read-ahead in it, and what makes it fail. What a query
//! computes comes from its warm run.

use super::measured::{Measured, Mechanism, Replay};
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;

/// How a scan reads its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// Every page, from front to back.
    Sequential,
    /// The pages of matching tuples in the order of the index.
    Index,
    /// The pages of matching tuples in ascending order, from a bitmap of a btree, hash, GIN ... index.
    Bitmap,
    /// The same from a BRIN index: whole ranges of pages.
    Brin,
}

/// A scan, as far as it decides about I/O.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Scan {
    /// How it reads.
    pub method: Method,
    /// Pages of the table.
    pub table_pages: u64,
    /// Pages of the table that it visits, each counted once.
    pub heap_pages: u64,
    /// Pages of the index that it reads.
    pub index_pages: u64,
    /// Of an index scan: how often it goes through the table in ascending order, once for each key where the rows of a
    /// key lie in the order of the table. `None`: in no order.
    pub sweeps: Option<u64>,
    /// Seconds that it takes if all of that is in memory.
    pub warm_seconds: f64,
}

/// What decides how a scan reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReadAhead {
    /// How the server does it.
    pub mechanism: Mechanism,
    /// effective_io_concurrency.
    pub concurrency: u32,
}

impl ReadAhead {
    /// How a server reads ahead for bitmap heap scans, with so much concurrency: see [`Mechanism::of`].
    pub fn of(
        version_num: u32,
        io_method: Option<&str>,
        io_workers: Option<u32>,
        concurrency: u32,
    ) -> ReadAhead {
        ReadAhead { mechanism: Mechanism::of(version_num, io_method, io_workers), concurrency }
    }
}

/// io_workers at most (PostgreSQL 18, MAX_IO_WORKERS).
pub const MOST_WORKERS: u32 = 32;

/// A share of the pages from which on a bitmap is read as the whole table is.
const NEARLY_ALL: f64 = 0.95;

/// What a scan is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Seconds in all, cold.
    pub seconds: f64,
    /// Seconds that the storage needs.
    pub io_seconds: f64,
}

/// What the replays say of a storage.
#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    measured: &'a Measured,
}

#[allow(clippy::cast_precision_loss)] // pages of a table
impl<'a> Model<'a> {
    /// The model of a storage.
    pub fn new(measured: &'a Measured) -> Model<'a> {
        Model { measured }
    }

    /// What a cold scan takes; `None` where too little was measured to say.
    pub fn predict(&self, scan: &Scan, ahead: ReadAhead) -> Option<Prediction> {
        let table = scan.table_pages.max(1) as f64;
        let heap = scan.heap_pages as f64;
        let (heap_us, overlapped) = match scan.method {
            Method::Sequential => (table * self.whole_us(ahead)?, true),
            // Of all pages the kernel reads ahead by itself.
            Method::Bitmap => {
                let density = heap / table;
                (self.bitmap_us(heap, density, ahead)?, ahead.concurrency > 0 || density > NEARLY_ALL)
            }
            // Ranges are read whole: neighbours, which the kernel reads ahead, or which are combined.
            Method::Brin => (heap * self.neighbour_us(ahead)?, true),
            Method::Index => match scan.sweeps {
                Some(sweeps) => {
                    let sweeps = sweeps.max(1) as f64;
                    let none = ReadAhead { mechanism: Mechanism::Advice, concurrency: 0 };
                    (heap * self.page_us(heap / sweeps / table, none)?, false)
                }
                None => (heap * self.measured.latency_us()?, false),
            },
        };
        // The pages of an index are read one after the other: its order is that of its pages where it was built at once.
        let index_us = match scan.method {
            Method::Sequential => 0.0,
            _ => scan.index_pages as f64 * self.sequential_us()?.max(0.0) + self.descent_us(scan)?,
        };
        let io_seconds = (heap_us + index_us) / 1e6;
        let computed = (scan.warm_seconds - self.copied_seconds(scan)).max(0.0);
        let seconds = if overlapped {
            // What is computed while reads are in flight costs nothing until both take as long.
            io_seconds.hypot(computed)
        } else {
            io_seconds + computed
        };
        Some(Prediction { seconds, io_seconds })
    }

    /// Microseconds of a bitmap's pages. A scan begins with one page and asks for twice as many ahead with each that it
    /// gets (nodeBitmapHeapscan.c, BitmapAdjustPrefetchTarget; read_stream.c doubles its distance): until as many are in
    /// flight as may be, each doubling takes the latency of a read, or what its pages take where that is more.
    fn bitmap_us(&self, heap: f64, density: f64, ahead: ReadAhead) -> Option<f64> {
        let page = match ahead.mechanism {
            Mechanism::Workers { .. } | Mechanism::IoUring if density > NEARLY_ALL => self.whole_us(ahead)?,
            // Advice page by page keeps the kernel from reading ahead by itself.
            _ => self.page_us(density, ahead)?,
        };
        let most = match ahead.mechanism {
            Mechanism::Workers { workers } => ahead.concurrency.min(workers),
            _ => ahead.concurrency,
        };
        let flight = f64::from(most).min(heap);
        if flight < 2.0 {
            return Some(heap * page);
        }
        let latency = self.measured.latency_us()?;
        // One page, then as many as all before it.
        let (mut begins, mut begun) = (latency, 1.0);
        while begun < flight {
            let next = f64::min(begun, flight - begun);
            begins += latency.max(next * page);
            begun += next;
        }
        // Where the kernel's own read-ahead has the pages already, nothing waits for them.
        Some((begins + (heap - flight) * page).min(heap * latency))
    }

    /// Microseconds of a page of which such a share is read, in ascending order. Between the densities and distances
    /// that were measured, by their logarithms; beyond them as at the nearest.
    pub fn page_us(&self, density: f64, ahead: ReadAhead) -> Option<f64> {
        let replays: Vec<&Replay> = self.replays(ahead.mechanism);
        let densities: BTreeSet<Ordered> = replays.iter().map(|one| Ordered(one.density)).collect();
        let points: Vec<(f64, f64)> = densities
            .iter()
            .filter_map(|at| {
                let of: Vec<(f64, f64)> = replays
                    .iter()
                    .filter(|one| (one.density - at.0).abs() < 1e-9)
                    .map(|one| (distance(one.ahead), one.page_us))
                    .collect();
                let least = of.iter().map(|(distance, _)| *distance).fold(f64::MAX, f64::min);
                let wanted = distance(ahead.concurrency);
                let page_us = if wanted < least {
                    // Too slow to be replayed: one by one each page takes the latency, unless they lie so near to each
                    // other that the kernel reads ahead, which is not known then.
                    self.measured.latency_us().filter(|_| at.0 <= 0.2)?
                } else {
                    between(of, wanted)?
                };
                Some((at.0.ln(), page_us))
            })
            .collect();
        // A scan of nearly all pages is a sequential one where nothing is asked for ahead.
        between(points, density.clamp(1e-6, 1.0).ln())
    }

    /// The replays of a mechanism, or of the one that comes nearest to it.
    fn replays(&self, wanted: Mechanism) -> Vec<&'a Replay> {
        let nearest = self.measured.nearest(wanted);
        self.measured.replays.iter().filter(|one| Some(one.mechanism) == nearest).collect()
    }

    fn sequential_us(&self) -> Option<f64> {
        self.measured.sequential_page_us()
    }

    /// A page of a scan of all pages. The kernel reads ahead; so do workers and io_uring for sequential scans, too
    /// (read_stream.c), and whoever is farther ahead is what the scan waits for.
    fn whole_us(&self, ahead: ReadAhead) -> Option<f64> {
        match ahead.mechanism {
            Mechanism::Workers { .. } | Mechanism::IoUring
                if ahead.concurrency > 0 && self.knows_all_pages(ahead.mechanism) =>
            {
                let (ours, kernel) = (self.page_us(1.0, ahead)?, self.sequential_us());
                Some(kernel.map_or(ours, |kernel| kernel.min(ours)))
            }
            _ => self.sequential_us(),
        }
    }

    fn knows_all_pages(&self, mechanism: Mechanism) -> bool {
        self.replays(mechanism).iter().any(|one| one.density > 0.99)
    }

    /// A page among neighbours that are all read.
    fn neighbour_us(&self, ahead: ReadAhead) -> Option<f64> {
        let sequential = self.sequential_us()?;
        match ahead.mechanism {
            // Advice page by page keeps the kernel from reading ahead by itself.
            Mechanism::Advice if ahead.concurrency > 0 => {
                Some(self.page_us(0.5, ahead).map_or(sequential, |page| page.max(sequential)))
            }
            _ => Some(sequential),
        }
    }

    /// From the root of an index to its first leaf, and into the table: read one after the other.
    fn descent_us(&self, scan: &Scan) -> Option<f64> {
        let levels = if scan.index_pages > 2 { 3.0 } else { scan.index_pages as f64 };
        Some(levels * self.measured.latency_us()?)
    }

    /// Seconds of a warm run that a replay has in it as well: pages copied out of the page cache.
    fn copied_seconds(&self, scan: &Scan) -> f64 {
        let pages = match scan.method {
            Method::Sequential => scan.table_pages,
            _ => scan.heap_pages + scan.index_pages,
        };
        pages as f64 * self.measured.cached_page_us.unwrap_or(0.0) / 1e6
    }
}

/// Where a distance stands between others: 0, 1, 2, 4, 8 ... are equally far apart.
fn distance(ahead: u32) -> f64 {
    f64::from(ahead + 1).log2()
}

/// A value between measured points; beyond them that of the nearest. Their logarithms are taken as straight lines.
fn between(mut points: Vec<(f64, f64)>, at: f64) -> Option<f64> {
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let after = points.iter().position(|(x, _)| *x >= at);
    let (from, to) = match after {
        None => return points.last().map(|(_, y)| *y),
        Some(0) => return points.first().map(|(_, y)| *y),
        Some(n) => (points[n - 1], points[n]),
    };
    let share = (at - from.0) / (to.0 - from.0);
    Some((from.1.max(1e-9).ln() * (1.0 - share) + to.1.max(1e-9).ln() * share).exp())
}

/// A density as a key: none is NaN.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Ordered(f64);

impl Eq for Ordered {}

impl PartialOrd for Ordered {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Ordered {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.0.total_cmp(&other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::super::made_up::{capped, local, slow};
    use super::*;

    fn bitmap(heap_pages: u64, warm_seconds: f64) -> Scan {
        Scan {
            method: Method::Bitmap,
            table_pages: 128_866,
            heap_pages,
            index_pages: 100,
            sweeps: None,
            warm_seconds,
        }
    }

    fn advice(concurrency: u32) -> ReadAhead {
        ReadAhead { mechanism: Mechanism::Advice, concurrency }
    }

    #[test]
    fn scans_take_about_what_they_took() {
        let (local, slow, capped) = (local(), slow(), capped());
        let half = bitmap(68_300, 0.4);
        // scan-io.md, 3a and 3d: measured seconds.
        for (storage, scan, concurrency, measured) in [
            (&local, half, 1, 4.516),
            (&local, half, 16, 1.227),
            (&local, half, 64, 1.023),
            (&local, bitmap(1_290, 0.002), 32, 0.026),
            (&capped, half, 16, 22.1),
            (&capped, half, 0, 2.84),
        ] {
            let predicted = Model::new(storage).predict(&scan, advice(concurrency)).unwrap().seconds;
            assert!((predicted / measured - 1.0).abs() < 0.3, "{concurrency}: {predicted} for {measured}");
        }
        let model = Model::new(&slow);
        let of = |ahead| model.predict(&half, ahead).unwrap().seconds;
        assert!(of(advice(1)) > 20.0 * of(advice(64)));
        let workers = |workers| ReadAhead { mechanism: Mechanism::Workers { workers }, concurrency: 64 };
        assert!(of(workers(3)) > 5.0 * of(workers(32)));
    }

    #[test]
    fn the_first_pages_take_the_latency_or_what_the_storage_gives() {
        let us = |storage: &Measured, most: u32| {
            let page = Model::new(storage).page_us(600.0 / 128_866.0, advice(most)).unwrap();
            let heap = Model::new(storage).bitmap_us(600.0, 600.0 / 128_866.0, advice(most)).unwrap();
            (page, storage.latency_us().unwrap(), heap)
        };
        // 600 pages: 1, 1, 2, 4 and 8 of them until 16 are in flight.
        let (page, latency, heap) = us(&slow(), 16);
        assert!(8.0 * page < latency, "{page} {latency}");
        assert!((heap - (5.0 * latency + 584.0 * page)).abs() < 1.0, "{heap}");
        // On storage that gives no more, the last doublings take as long as any other pages.
        let (page, latency, heap) = us(&local(), 256);
        assert!(heap > 600.0 * page && heap < 600.0 * page + 9.0 * latency, "{page} {latency} {heap}");
    }

    #[test]
    fn all_pages_are_read_as_the_server_reads_them() {
        let mut slow = slow();
        let scan = Scan { method: Method::Sequential, ..bitmap(128_866, 0.4) };
        let of = |storage: &Measured, mechanism, concurrency| {
            let ahead = ReadAhead { mechanism, concurrency };
            Model::new(storage).predict(&scan, ahead).unwrap().seconds
        };
        let workers = Mechanism::Workers { workers: 32 };
        let kernel = of(&slow, Mechanism::Advice, 64);
        // Not known of workers: as the kernel does it.
        slow.replays.retain(|one| one.density < 0.99);
        assert!((of(&slow, workers, 64) - kernel).abs() < 1e-9);
        let (mechanism, passes) = (workers, vec![10.0]);
        slow.replays.push(Replay { mechanism, density: 1.0, ahead: 64, page_us: 10.0, passes });
        assert!((of(&slow, workers, 64) - 1.289_f64.hypot(0.4)).abs() < 0.1);
        // Workers that are slower than the kernel's read-ahead find the pages there.
        slow.replays.last_mut().unwrap().page_us = 100.0;
        assert!(100e-6 * 128_866.0 > kernel && (of(&slow, workers, 64) - kernel).abs() < 1e-9);
        slow.replays.last_mut().unwrap().page_us = 10.0;
        assert!((of(&slow, workers, 0) - kernel).abs() < 1e-9);
        assert!((of(&slow, Mechanism::Advice, 64) - kernel).abs() < 1e-9);
    }

    #[test]
    fn between_what_was_measured_it_is_a_line_of_logarithms() {
        let model_of = local();
        let model = Model::new(&model_of);
        let at = |density, concurrency| model.page_us(density, advice(concurrency)).unwrap();
        assert!((at(0.5, 16) - 18.4).abs() < 1e-9);
        assert!((18.0..18.4).contains(&at(0.25, 16)));
        assert!(at(0.5, 3) < at(0.5, 2) && at(0.5, 3) > at(0.5, 4));
        assert!((at(0.0, 16) - 18.0).abs() < 1e-9 && (at(1.0, 500) - 12.4).abs() < 1e-9);
        assert_eq!(
            model.page_us(0.5, ReadAhead { mechanism: Mechanism::CombinedAdvice, concurrency: 1 }),
            None
        );
        assert_eq!(Model::new(&Measured::default()).predict(&bitmap(1, 0.0), advice(1)), None);
    }

    #[test]
    fn each_server_reads_ahead_in_its_way() {
        let of = |version, method| ReadAhead::of(version, method, Some(3), 16).mechanism;
        assert_eq!(of(170_002, None), Mechanism::Advice);
        assert_eq!(of(180_000, Some("worker")), Mechanism::Workers { workers: 3 });
        assert_eq!(of(180_000, Some("io_uring")), Mechanism::IoUring);
        assert_eq!(of(180_000, Some("sync")), Mechanism::CombinedAdvice);
    }
}
