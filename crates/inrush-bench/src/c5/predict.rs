//! What the model says of the scans that were measured, from what `inrush tune io` had measured before them.

use crate::c5::{Method, Query, Record, Rung, Scan, Setup, Turn};
use inrush_tune::io::measured::{Mechanism, PAGE};
use inrush_tune::io::model::{self, Model, ReadAhead};
use serde::{Deserialize, Serialize};

/// How far a prediction may be from what was measured.
pub const WITHIN: f64 = 0.25;

/// A scan, predicted and measured.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Predicted {
    /// Name of the rung.
    pub rung: String,
    /// Name of the server.
    pub server: String,
    /// Name of the scan.
    pub scan: String,
    /// effective_io_concurrency.
    pub concurrency: u32,
    /// The median of the turns.
    pub seconds: f64,
    /// What the model says; `None` where it says nothing.
    pub predicted: Option<f64>,
}

impl Predicted {
    /// Whether it is near enough.
    pub fn within(&self) -> Option<bool> {
        self.predicted.map(|predicted| (predicted / self.seconds - 1.0).abs() <= WITHIN)
    }
}

/// Every scan that was measured, the planner's own choices aside, and what a limit could not limit.
pub fn all(record: &Record) -> Vec<Predicted> {
    let mut all = Vec::new();
    for rung in &record.case.rungs {
        for setup in rung.servers.iter().filter_map(|name| record.case.server(name)) {
            for scan in record.case.scans.iter().filter(|scan| scan.method != Method::Planner) {
                for concurrency in record.values(&rung.name, &setup.name, &scan.name) {
                    let seconds = record.seconds(&rung.name, &setup.name, &scan.name, Some(concurrency));
                    let Some(seconds) = seconds else { continue };
                    let turns = record.of(&rung.name, &setup.name, &scan.name, Some(concurrency));
                    if turns.clone().any(|turn| unlimited(rung, turn)) {
                        continue;
                    }
                    all.push(Predicted {
                        rung: rung.name.clone(),
                        server: setup.name.clone(),
                        scan: scan.name.clone(),
                        concurrency,
                        seconds,
                        predicted: predict(record, &rung.name, setup, scan, concurrency),
                    });
                }
            }
        }
    }
    all
}

fn predict(record: &Record, rung: &str, setup: &Setup, scan: &Scan, concurrency: u32) -> Option<f64> {
    let stored = record.storage_of(rung, &setup.name)?;
    let measured = stored.asked.measured()?;
    let table = match scan.query {
        Query::Dense | Query::Sparse => "tbx",
        Query::Events => "events",
        Query::Q6 => "lineitem",
    };
    let table_pages = stored.bytes.get(&format!("{table}_{rung}"))? / PAGE;
    let turn = record
        .of(rung, &setup.name, &scan.name, Some(concurrency))
        .find(|turn| turn.warm_seconds.is_some())?;
    let heap_pages = match scan.method {
        Method::Sequential => table_pages,
        Method::Bitmap | Method::Brin => turn.exact_pages? + turn.lossy_pages.unwrap_or(0),
        Method::Index | Method::Planner => visited(record, rung, scan, table_pages)?,
    };
    let index_pages = match scan.method {
        Method::Index => turn.pages_read.saturating_sub(heap_pages),
        _ => turn.index_pages.unwrap_or(0),
    };
    let scan = model::Scan {
        method: match scan.method {
            Method::Sequential => model::Method::Sequential,
            Method::Index => model::Method::Index,
            Method::Brin => model::Method::Brin,
            Method::Bitmap | Method::Planner => model::Method::Bitmap,
        },
        // To an index scan of a range of times, the range is the table: its pages are neighbours.
        table_pages: match (scan.method, scan.query) {
            (Method::Index, Query::Events) => heap_pages,
            _ => table_pages,
        },
        heap_pages,
        index_pages,
        // The rows of one key, or of a range of times, lie in the order of the table.
        sweeps: Some(1),
        warm_seconds: turn.warm_seconds?,
    };
    let ahead = ReadAhead { mechanism: mechanism(setup), concurrency };
    Model::new(&measured).predict(&scan, ahead).map(|prediction| prediction.seconds)
}

/// Whether a limit could not slow a turn as it should. The kernel gives a group the reads of a tenth of a
/// second at once (block/blk-throttle.c, `tg_within_iops_limit()` rounds up to a slice), so with a few
/// slices' reads the time is of the slices.
fn unlimited(rung: &Rung, turn: &Turn) -> bool {
    const SLICES: u64 = 10;
    let Some(iops) = rung.iops else { return false };
    turn.device_reads.is_none_or(|reads| reads < u64::from(iops) / 10 * SLICES)
}

/// Pages of the table that an index scan visits: those of the bitmap scan for the same rows; of events, which
/// are in order, their share.
fn visited(record: &Record, rung: &str, scan: &Scan, table_pages: u64) -> Option<u64> {
    if scan.query == Query::Events {
        return Some(table_pages.div_ceil(100));
    }
    let same = |turn: &&Turn| {
        let found = record.case.scan(&turn.scan);
        turn.rung == rung
            && turn.failure.is_none()
            && found.is_some_and(|one| {
                one.query == scan.query && one.method == Method::Bitmap && one.work_mem.is_none()
            })
    };
    record.turns.iter().find(same)?.exact_pages
}

/// How a server reads ahead.
fn mechanism(setup: &Setup) -> Mechanism {
    let setting = |name: &str| setup.settings.get(name).map(String::as_str);
    // What a server has that says nothing.
    let method = setting("io_method").unwrap_or("worker");
    Mechanism::of(setup.version * 10_000, Some(method), setting("io_workers").and_then(|n| n.parse().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::c5::goals::tests::{asked, record, turn};

    #[test]
    fn what_is_shorter_than_slices_of_a_limit_is_not_compared() {
        let few = turn("capped", "15", "sparse bitmap", 1, 0.002);
        let mut many = turn("capped", "15", "dense bitmap", 1, 2.7);
        many.device_reads = Some(8159);
        let same = turn("latency", "15", "sparse bitmap", 1, 0.15);
        let all =
            all(&record(vec![few, many, same, turn("latency", "15", "dense planner", 1, 9.0)], &asked()));
        let names: Vec<_> = all.iter().map(|it| (it.rung.as_str(), it.scan.as_str(), it.predicted)).collect();
        assert_eq!(names, [("latency", "sparse bitmap", None), ("capped", "dense bitmap", None)]);
        let near =
            |predicted| Predicted { predicted: Some(predicted), seconds: 1.0, ..all[0].clone() }.within();
        assert_eq!(
            (near(1.24), near(0.76), near(1.3), near(0.7)),
            (Some(true), Some(true), Some(false), Some(false))
        );
        assert_eq!(all[0].within(), None);
    }

    #[test]
    fn servers_read_ahead_as_their_settings_say() {
        let case = crate::c5::Case::built_in().unwrap();
        let of = |name: &str| mechanism(case.server(name).unwrap());
        assert_eq!((of("15"), of("18 sync")), (Mechanism::Advice, Mechanism::CombinedAdvice));
        assert_eq!(of("18 worker 3"), Mechanism::Workers { workers: 3 });
        assert_eq!(of("18 io_uring"), Mechanism::IoUring);
    }
}
