//! Running the variants, interleaved, and summing up what they took.

use super::cold::Freezer;
use super::device::{Counters, Reading};
use super::methods::{self, Scanned};
use super::plan::Explained;
use super::session::Session;
use super::target::Target;
use super::variants::{Planned, exact, of_variant, take_figures};
use super::{Hooks, Method, Options, Run, Timing, Variant};
use crate::io::measured::{median, spread};
use inrush_core::Result;

/// EXPLAIN that runs the query. Without TIMING: reading the clock twice for each row costs more than many a
/// scan.
const ANALYZE: &str = "ANALYZE, BUFFERS, TIMING OFF, SETTINGS, VERBOSE";

/// Share of the pages visited, in percent, that a cold run has read.
const LEAST_READ: u64 = 95;

/// How far the bytes that the device read may be off those that the query had read, as a share: beyond that,
/// others read.
const MOST_FOREIGN: f64 = 0.2;

/// The same where others read for the query, and only blocks tell how much: the kernel's read-ahead comes on
/// top.
const MOST_FOREIGN_OF_WORKERS: f64 = 0.5;

/// Blocks that are met again whatever was taken out: roots of indexes, pages of the visibility map.
const ROOTS: u64 = 4;

/// Runs variants on one session.
pub(super) struct Runner<'a> {
    pub(super) session: &'a Session,
    pub(super) options: &'a Options,
    pub(super) hooks: &'a Hooks<'a>,
    pub(super) target: &'a Target,
    pub(super) counters: Counters,
    /// Whether the process that runs the query reads itself: with io_method = worker it has others do it.
    pub(super) own_reads: bool,
}

/// Who reads for a scan, and how much a block is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Reader {
    /// The process that runs the query, and no other one.
    pub(super) itself: bool,
    pub(super) page_bytes: u64,
}

impl Runner<'_> {
    fn reader(&self, variant: &Variant) -> Reader {
        Reader { itself: self.own_reads && variant.workers == 0, page_bytes: self.target.page_bytes }
    }

    /// One run of one variant. `None`: it failed for reasons of its own, which it then says.
    async fn once(&self, planned: &mut Planned) -> Result<Option<(Run, Explained)>> {
        let before = self.counters.read();
        let query = &self.options.query;
        match self.session.explain(&planned.setup, ANALYZE, query, self.options.timeout).await {
            Ok(explained) => {
                let read = self.counters.read().since(&before);
                Ok(Some((run_of(&explained, &read), explained)))
            }
            Err(error) => match of_variant(&error, self.options, &planned.setup) {
                Some(why) => {
                    planned.variant.failed = Some(why);
                    Ok(None)
                }
                None => Err(error),
            },
        }
    }

    /// Runs every variant once, which fills the caches and shows what it reads; adds to a lossy bitmap the
    /// same with more memory.
    ///
    /// # Errors
    /// `server`, `interrupted`.
    pub(super) async fn warm_up(&self, planned: &mut Vec<Planned>) -> Result<()> {
        let mut next = 0;
        while next < planned.len() {
            (self.hooks.note)(&format!("first run: {}", planned[next].variant.label));
            if let Some((_, explained)) = self.once(&mut planned[next]).await? {
                take_figures(&mut planned[next], &explained, self.target);
                if let Some(more) = exact(&planned[next]) {
                    planned.insert(next + 1, more);
                }
            }
            next += 1;
        }
        Ok(())
    }

    /// The warm runs.
    ///
    /// # Errors
    /// As above.
    pub(super) async fn warm(&self, planned: &mut [Planned]) -> Result<()> {
        let mut runs = vec![Vec::new(); planned.len()];
        for round in 0..self.options.runs {
            (self.hooks.note)(&format!("warm: round {} of {}", round + 1, self.options.runs));
            for i in order(planned.len(), round) {
                if planned[i].variant.failed.is_none() {
                    let run = self.once(&mut planned[i]).await?;
                    runs[i].extend(run.map(|(run, _)| run));
                }
            }
        }
        for (planned, runs) in planned.iter_mut().zip(runs) {
            planned.variant.warm = summary(runs, self.reader(&planned.variant));
        }
        Ok(())
    }

    /// The cold runs: the caches are dropped before each. Why it ended before all were done, if it did.
    ///
    /// # Errors
    /// As above.
    pub(super) async fn cold(
        &self,
        planned: &mut [Planned],
        freezer: &mut Freezer,
    ) -> Result<Option<String>> {
        let mut runs = vec![Vec::new(); planned.len()];
        for round in 0..self.options.runs {
            for i in order(planned.len(), round) {
                if planned[i].variant.failed.is_some() {
                    continue;
                }
                let label = &planned[i].variant.label;
                (self.hooks.note)(&format!("cold: round {} of {}, {label}", round + 1, self.options.runs));
                if let Err(why) = freezer.freeze().await? {
                    return Ok(Some(why));
                }
                let Some((run, explained)) = self.once(&mut planned[i]).await? else { continue };
                let scanned = methods::scanned(&explained.top, self.target);
                let (found, read) = (scanned.found, scanned.read);
                if let Some(pages) = visited(planned, i, &scanned, self.target.pages())
                    && !was_cold(pages, found, read)
                {
                    let label = &planned[i].variant.label;
                    return Ok(Some(format!(
                        "a run of {label} had {read} pages read and found {found} in shared buffers, though \
                         it visits {pages} that had been taken out of them: others use the table"
                    )));
                }
                runs[i].push(run);
            }
        }
        for (planned, runs) in planned.iter_mut().zip(runs) {
            // One that failed at some time has too few.
            let runs = if planned.variant.failed.is_some() { Vec::new() } else { runs };
            planned.variant.cold = summary(runs, self.reader(&planned.variant));
        }
        Ok(None)
    }
}

/// Pages of the table that a run has visited, each counted once, or may have visited at most. Those of an
/// index scan are those that a bitmap of the same indexes names.
fn visited(planned: &[Planned], i: usize, scanned: &Scanned, table_pages: u64) -> Option<u64> {
    let variant = &planned[i].variant;
    match variant.method {
        Method::Sequential => Some(table_pages),
        Method::Bitmap | Method::Brin if !scanned.repeated => Some(scanned.exact? + scanned.lossy?),
        Method::Index if !scanned.stops_early => {
            let bitmap = |one: &&Variant| one.method == Method::Bitmap && one.indexes == variant.indexes;
            planned.iter().map(|one| &one.variant).find(bitmap)?.heap_pages
        }
        _ => None,
    }
}

/// Whether a run that visits so many pages had nearly all of them read. Up to PostgreSQL 17 a bitmap heap
/// scan that needs no column counts pages that it does not look at: then there are fewer blocks than pages,
/// and the blocks count.
fn was_cold(pages: u64, found: u64, read: u64) -> bool {
    let met = pages.min(found + read);
    read * 100 >= met * LEAST_READ || met - read <= ROOTS
}

/// Forward and backward in turns (ABBA): what drifts hits all alike.
fn order(n: usize, round: u32) -> Vec<usize> {
    if round.is_multiple_of(2) { (0..n).collect() } else { (0..n).rev().collect() }
}

fn run_of(explained: &Explained, read: &Reading) -> Run {
    let (shared_hit, shared_read) = explained.top.shared();
    Run {
        seconds: explained.execution_seconds.unwrap_or(explained.wall_seconds),
        wall_seconds: explained.wall_seconds,
        device_reads: read.reads,
        device_bytes: read.bytes,
        backend_bytes: read.backend_bytes,
        shared_hit,
        shared_read,
    }
}

/// Whether what the device read during a run is near to what the run had read: by its process, or where
/// others read for it into shared buffers.
fn was_own(run: &Run, reader: Reader) -> bool {
    let near = |own: u64, most: f64| {
        run.device_bytes.is_some_and(|all| {
            let (own, all) = (float(own), float(all));
            all <= own * (1.0 + most) && own <= all * (1.0 + most)
        })
    };
    run.backend_bytes.is_some_and(|own| near(own, MOST_FOREIGN))
        || !reader.itself && near(run.shared_read * reader.page_bytes, MOST_FOREIGN_OF_WORKERS)
}

/// The medians of runs; `None` without any.
pub(super) fn summary(runs: Vec<Run>, reader: Reader) -> Option<Timing> {
    let seconds: Vec<f64> = runs.iter().map(|run| run.seconds).collect();
    let counts = |count: &dyn Fn(&Run) -> Option<u64>| {
        let all: Option<Vec<f64>> = runs.iter().map(|run| count(run).map(float)).collect();
        median(&all?).map(whole)
    };
    let everybodys = counts(&|run| run.device_bytes);
    let own = counts(&|run| run.backend_bytes).filter(|_| reader.itself);
    Some(Timing {
        seconds: median(&seconds)?,
        least: seconds.iter().copied().fold(f64::INFINITY, f64::min),
        most: seconds.iter().copied().fold(0.0, f64::max),
        spread: spread(&seconds),
        device_reads: counts(&|run| run.device_reads),
        device_reads_own: runs.iter().all(|run| was_own(run, reader)),
        device_bytes: own.or(everybodys),
        shared_hit: counts(&|run| Some(run.shared_hit)).unwrap_or_default(),
        shared_read: counts(&|run| Some(run.shared_read)).unwrap_or_default(),
        runs,
    })
}

#[allow(clippy::cast_precision_loss)] // counts of reads
fn float(n: u64) -> f64 {
    n as f64
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // a median of counts
fn whole(n: f64) -> u64 {
    n.round() as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_interleaved() {
        assert_eq!((order(3, 0), order(3, 1), order(3, 2)), (vec![0, 1, 2], vec![2, 1, 0], vec![0, 1, 2]));
    }

    #[test]
    fn a_cold_run_has_read_what_it_visits() {
        // 9757 blocks found and none read, as of a role that could not empty shared buffers.
        assert!(!was_cold(9000, 9757, 0));
        assert!(!was_cold(1000, 60, 940) && was_cold(1000, 40, 960));
        // An index scan finds again what it has read before.
        assert!(was_cold(1000, 20_000, 1003));
        // A scan of few pages of an index, and of none of the table.
        assert!(was_cold(1000, 3, 8) && !was_cold(1000, 11, 0));
    }

    #[test]
    fn medians_of_runs() {
        let run = |seconds, reads, own| Run {
            seconds,
            device_reads: Some(reads),
            device_bytes: Some(reads * 10),
            backend_bytes: own,
            ..Run::default()
        };
        let runs = vec![run(1.2, 10, Some(7)), run(1.0, 30, Some(8)), run(1.1, 20, Some(9))];
        let reader = |itself| Reader { itself, page_bytes: 8192 };
        let timing = summary(runs.clone(), reader(true)).expect("runs");
        assert!((timing.seconds - 1.1).abs() < 1e-9 && timing.least < 1.01 && timing.most > 1.19);
        assert_eq!((timing.device_reads, timing.device_bytes), (Some(20), Some(8)));
        assert_eq!(summary(runs, reader(false)).expect("runs").device_bytes, Some(200));
        assert!(summary(vec![run(1.0, 1, None)], reader(true)).expect("a run").spread.is_none());
        assert!(summary(Vec::new(), reader(true)).is_none());
    }
    #[test]
    fn reads_of_the_device_are_the_querys_where_bytes_agree() {
        let run = |all: Option<u64>, own, shared_read| Run {
            device_bytes: all,
            backend_bytes: own,
            shared_read,
            ..Run::default()
        };
        let itself = Reader { itself: true, page_bytes: 8192 };
        assert!(was_own(&run(Some(115), Some(100), 0), itself) && was_own(&run(Some(0), Some(0), 9), itself));
        assert!(
            !was_own(&run(Some(130), Some(100), 0), itself) && !was_own(&run(Some(80), Some(100), 0), itself)
        );
        assert!(!was_own(&run(None, Some(100), 0), itself) && !was_own(&run(Some(100), None, 0), itself));
        // By workers: the blocks tell.
        let others = Reader { itself: false, ..itself };
        assert!(was_own(&run(Some(140 * 8192), Some(0), 100), others));
        assert!(!was_own(&run(Some(160 * 8192), Some(0), 100), others));
        // One disturbed run is enough.
        let runs = vec![run(Some(100), Some(100), 0), run(Some(900), Some(100), 0)];
        assert!(!summary(runs, itself).expect("runs").device_reads_own);
    }
}
