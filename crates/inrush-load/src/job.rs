//! What the reader, the lanes and the controller of one load share.

use crate::columnar::Rows;
use crate::levers::Pulled;
use crate::options::MaxRejects;
use crate::plan::Plan;
use crate::progress::{Progress, Stop};
use crate::queue::Queue;
use crate::walwriter::Nudges;
use inrush_cluster::Partial;
use inrush_core::{Chunk, Code, Error, Reject, Result};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::{Ledger, StoredLoad};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// One load while it runs.
pub(crate) struct Job {
    pub plan: Plan,
    pub progress: Arc<Progress>,
    pub queue: Queue<Work>,
    pub rejects: RejectGauge,
    pub conninfo: ConnInfo,
    /// The ledger and this load in it; `None` with `--no-ledger`.
    pub ledger: Option<(Ledger, StoredLoad)>,
    pub nudges: Nudges,
    failure: Mutex<Option<Error>>,
    /// An index could not be made again because of rows of the load.
    pub duplicates: AtomicBool,
    /// Lanes that are to end after their unit.
    surplus: AtomicUsize,
    /// Levers pulled while the load ran.
    pulled: Mutex<Vec<Pulled>>,
    /// Units of earlier runs that some nodes lack.
    partial: Mutex<Vec<Partial>>,
    /// What lanes have to tell the user.
    told: Mutex<Vec<String>>,
}

/// What the reader hands to a lane.
pub(crate) enum Work {
    /// Whole records.
    Chunk(Chunk),
    /// Rows of an input with columns.
    Rows(Rows),
    /// A record longer than `--max-record`: it is a reject.
    TooLong { reject: Reject, end: u64, lines: u64 },
}

impl Job {
    pub fn new(
        plan: Plan,
        progress: Arc<Progress>,
        conninfo: ConnInfo,
        ledger: Option<(Ledger, StoredLoad)>,
    ) -> Job {
        Job {
            queue: Queue::new(plan.limits.in_flight),
            rejects: RejectGauge::new(plan.max_rejects, plan.atomic),
            plan,
            progress,
            conninfo,
            ledger,
            nudges: Nudges::default(),
            failure: Mutex::new(None),
            duplicates: AtomicBool::new(false),
            surplus: AtomicUsize::new(0),
            pulled: Mutex::new(Vec::new()),
            partial: Mutex::new(Vec::new()),
            told: Mutex::new(Vec::new()),
        }
    }

    /// Has the lanes send what some nodes lack of these units.
    pub fn mend(&self, partial: Vec<Partial>) {
        lock(&self.partial).extend(partial);
    }

    /// Has the user told something, once however many lanes say so.
    pub fn tell(&self, what: &str) {
        let mut told = lock(&self.told);
        if !told.iter().any(|known| known == what) {
            told.push(what.to_owned());
        }
    }

    /// What there is to tell from the `from`th on.
    pub fn told(&self, from: usize) -> Vec<String> {
        lock(&self.told).get(from..).unwrap_or_default().to_vec()
    }

    /// The next unit that some nodes lack.
    pub fn next_partial(&self) -> Option<Partial> {
        lock(&self.partial).pop()
    }

    /// Memory between reader and lanes: a chunk for each lane, one being read and two that wait. More would
    /// only fall out of the processor's cache before it is encoded.
    pub fn fit_queue(&self, lanes: usize) {
        // What cannot be read again stays in memory until its unit commits; `Plan::unit_bytes` counts on it.
        if self.plan.inputs.iter().any(|input| !input.can_reread) {
            return;
        }
        let wanted = self.plan.limits.chunk.saturating_mul(lanes + 3);
        self.queue.set_limit(wanted.min(self.plan.limits.in_flight));
    }

    /// Ends the load for this reason; the first reason is the one reported.
    pub fn fail(&self, error: Error) {
        let mut failure = lock(&self.failure);
        if failure.is_none() {
            *failure = Some(error);
        }
        drop(failure);
        self.progress.stop(Stop::Abort);
        self.queue.abandon();
    }

    /// Whether the load ended because an index could not be made over duplicates, and can be done again to find their
    /// records: rejects are allowed, and the input is still there.
    pub fn wants_another_try(&self) -> bool {
        let allowed = !matches!(self.plan.max_rejects, MaxRejects::Count(0));
        self.duplicates.load(Relaxed) && allowed && self.plan.inputs.iter().all(|input| input.is_file())
    }

    /// Asks one lane to end after its unit.
    pub fn retire_a_lane(&self) {
        self.surplus.fetch_add(1, Relaxed);
    }

    /// Whether the lane that asks is to end.
    pub fn is_surplus(&self) -> bool {
        self.surplus.fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1)).is_ok()
    }

    /// Notes levers for the report.
    pub fn keep_pulled(&self, pulled: Vec<Pulled>) {
        lock(&self.pulled).extend(pulled);
    }

    /// Levers that were pulled while the load ran.
    pub fn take_pulled(&self) -> Vec<Pulled> {
        std::mem::take(&mut lock(&self.pulled))
    }

    /// Why the load ended, if something failed.
    pub fn take_failure(&self) -> Option<Error> {
        lock(&self.failure).take()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Counts rejects against the limit and keeps the first ones for the report.
pub(crate) struct RejectGauge {
    limit: MaxRejects,
    at_end: bool,
    found: AtomicU64,
    /// Records that earlier runs of this load have dealt with.
    records_before: AtomicU64,
    /// Rejects of units that did not commit, for the report of a load that stops on them.
    stopped_on: Mutex<Vec<Reject>>,
    /// Rejects of committed units where there is no ledger to keep them.
    kept: Mutex<Vec<Reject>>,
}

impl RejectGauge {
    fn new(limit: MaxRejects, atomic: bool) -> RejectGauge {
        RejectGauge {
            limit,
            at_end: atomic && matches!(limit, MaxRejects::Percent(_)),
            found: AtomicU64::new(0),
            records_before: AtomicU64::new(0),
            stopped_on: Mutex::new(Vec::new()),
            kept: Mutex::new(Vec::new()),
        }
    }

    /// Counts rejects, and the records they were among, that earlier runs of this load committed.
    pub fn found_before(&self, rejects: u64, records: u64) {
        self.found.fetch_add(rejects, Relaxed);
        self.records_before.fetch_add(records, Relaxed);
    }

    /// Counts a reject. `Err` when it is one too many; `records` is how many have been read so far.
    pub fn add(&self, reject: &Reject, records: u64) -> Result<()> {
        let records = records + self.records_before.load(Relaxed);
        let found = self.found.fetch_add(1, Relaxed) + 1;
        let over = match self.limit {
            MaxRejects::Count(limit) => found > limit,
            MaxRejects::Percent(p) => {
                !self.at_end && records >= MaxRejects::MINIMUM && share(found, records) > p
            }
        };
        if !over {
            return Ok(());
        }
        lock(&self.stopped_on).push(reject.clone());
        Err(self.too_many(reject, found))
    }

    /// Takes back rejects of a unit that is sent again.
    pub fn take_back(&self, n: u64) {
        self.found.fetch_sub(n, Relaxed);
    }

    /// Judges a percentage at the end.
    pub fn judge(&self, records: u64) -> Result<()> {
        let records = records + self.records_before.load(Relaxed);
        let found = self.found.load(Relaxed);
        match self.limit {
            MaxRejects::Percent(p) if found > 0 && share(found, records) > p => Err(Error::new(
                Code::Rejects,
                format!("{found} of {records} records were refused, more than the {p} % of --max-rejects"),
            )
            .hint("The rejects say why each was refused; raise --max-rejects to load the rest.")),
            _ => Ok(()),
        }
    }

    /// The rejects the load stopped on.
    pub fn stopped_on(&self) -> Vec<Reject> {
        lock(&self.stopped_on).clone()
    }

    /// Keeps rejects that no ledger keeps.
    pub fn keep(&self, rejects: Vec<Reject>) {
        lock(&self.kept).extend(rejects);
    }

    /// Rejects kept because there is no ledger.
    pub fn kept(&self) -> Vec<Reject> {
        std::mem::take(&mut *lock(&self.kept))
    }

    fn too_many(&self, reject: &Reject, found: u64) -> Error {
        let hint = match self.limit {
            MaxRejects::Count(0) => {
                "Repair the record, or let bad rows pass with --max-rejects N and keep them \
                                     with --rejects FILE."
                    .to_owned()
            }
            MaxRejects::Count(n) => format!(
                "This is reject {found}, --max-rejects allows {n}: raise it, or repair the records; --rejects \
                 FILE keeps them."
            ),
            MaxRejects::Percent(p) => {
                format!(
                    "{found} rejects are more than the {p} % of --max-rejects; --rejects FILE keeps them."
                )
            }
        };
        Error::new(Code::Rejects, reject.reason.clone())
            .sqlstate(reject.sqlstate.clone())
            .at(reject.position.clone())
            .hint(hint)
    }
}

// A share for comparison with a limit the user gave in percent: rounding does not matter.
#[allow(clippy::cast_precision_loss)]
fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 * 100.0 / whole as f64 }
}
