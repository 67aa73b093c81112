//! What a probe may take: seconds, bytes, and the patience of whoever wants it to end.

use super::{MOST_READ_BYTES, MOST_SECONDS, Plan};
use crate::io::measured::{Stop, StopReason};
use inrush_core::Error;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Fewest bytes of a scratch file that say something: a thousand pages.
pub(super) const LEAST_SCRATCH_BYTES: u64 = 8 << 20;

/// Why a probe does not go on.
#[derive(Debug)]
pub(super) enum Halt {
    /// A limit: what was measured holds.
    Stop(Stop),
    /// Something failed.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Halt {
        Halt::Failed(error)
    }
}

impl Halt {
    /// A limit that was reached.
    pub(super) fn stop(reason: StopReason, text: impl Into<String>) -> Halt {
        Halt::Stop(Stop { reason, text: text.into() })
    }
}

/// Where one measurement ends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limit {
    /// Not later.
    pub(super) until: Instant,
    /// Not more bytes delivered by the storage.
    pub(super) bytes: u64,
}

/// What has been used of what a probe may take.
#[derive(Debug)]
pub(super) struct Budget<'a> {
    began: Instant,
    seconds: f64,
    bytes: u64,
    /// What the kernel had counted before.
    counted_before: Option<u64>,
    /// What was asked for: the least that was delivered.
    asked: u64,
    ended: &'a AtomicBool,
}

impl<'a> Budget<'a> {
    /// Begins now, with the plan's limits or the most there may be. `read_ahead`: bytes that the kernel reads ahead in
    /// one go. It may be at that, and have the next in mind, when enough was read: the most there may be has room for it.
    pub(super) fn new(plan: &Plan, read_ahead: u64, ended: &'a AtomicBool) -> Budget<'a> {
        let seconds =
            if plan.seconds.is_finite() { plan.seconds.clamp(0.0, MOST_SECONDS) } else { MOST_SECONDS };
        Budget {
            began: Instant::now(),
            seconds,
            bytes: plan.read_bytes.min(MOST_READ_BYTES.saturating_sub(read_ahead.saturating_mul(2))),
            counted_before: counted(),
            asked: 0,
            ended,
        }
    }

    /// Seconds it may take in all.
    pub(super) fn seconds(&self) -> f64 {
        self.seconds
    }

    /// Bytes it may read in all.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Seconds since it began.
    pub(super) fn used_seconds(&self) -> f64 {
        self.began.elapsed().as_secs_f64()
    }

    /// Seconds that are left.
    pub(super) fn left_seconds(&self) -> f64 {
        (self.seconds - self.used_seconds()).max(0.0)
    }

    /// Bytes that the storage has delivered: what the kernel has counted for this process, read-ahead included, or what
    /// was asked for where it does not count (FUSE) or may not be asked.
    pub(super) fn used_bytes(&self) -> u64 {
        let counted = self.counted_before.and_then(|before| Some(counted()?.saturating_sub(before)));
        counted.unwrap_or(0).max(self.asked)
    }

    /// Bytes that are left.
    pub(super) fn left_bytes(&self) -> u64 {
        self.bytes.saturating_sub(self.used_bytes())
    }

    /// Reads that cannot have come from memory have been asked for.
    pub(super) fn asked(&mut self, bytes: u64) {
        self.asked = self.asked.saturating_add(bytes);
    }

    /// Whether somebody wants the probe to end.
    pub(super) fn is_ended(&self) -> bool {
        self.ended.load(Relaxed)
    }

    /// The limit of a measurement: at most so many seconds and bytes, and not more than is left.
    pub(super) fn limit(&self, seconds: f64, bytes: u64) -> Limit {
        let seconds = seconds.clamp(0.0, self.left_seconds());
        Limit {
            until: Instant::now() + Duration::from_secs_f64(seconds),
            bytes: bytes.min(self.left_bytes()),
        }
    }

    /// Whether another measurement may begin.
    pub(super) fn check(&self) -> Result<(), Halt> {
        if self.is_ended() {
            return Err(Halt::stop(StopReason::Interrupted, "it was interrupted"));
        }
        if self.left_seconds() <= 0.0 {
            let text = format!("the {:.0} seconds that it may take were over", self.seconds);
            return Err(Halt::stop(StopReason::Time, text));
        }
        // Less than this makes no measurement.
        if self.left_bytes() < 1 << 20 {
            let text = format!("it had read the {} MB that it may read", self.bytes / 1_000_000);
            return Err(Halt::stop(StopReason::Bytes, text));
        }
        Ok(())
    }

    /// Waits, but not for longer than there is time, nor when somebody wants it to end.
    pub(super) fn pause(&self, seconds: f64) -> Result<(), Halt> {
        let until = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, self.left_seconds()));
        while Instant::now() < until && !self.is_ended() {
            std::thread::sleep(
                until.saturating_duration_since(Instant::now()).min(Duration::from_millis(20)),
            );
        }
        self.check()
    }
}

/// Bytes that storage has delivered for this process (proc(5), /proc/pid/io). The kernel counts where a read is sent to
/// a device, in whichever thread, so read-ahead is in it.
pub(super) fn counted() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/io").ok()?;
    text.lines().find_map(|line| line.strip_prefix("read_bytes: "))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(seconds: f64, read_bytes: u64) -> Plan {
        Plan { seconds, read_bytes, ..Plan::new("/nowhere") }
    }

    #[test]
    fn nobody_gets_more_than_the_most() {
        let ended = AtomicBool::new(false);
        let budget = Budget::new(&plan(1e9, u64::MAX), 0, &ended);
        assert!(budget.left_seconds() <= MOST_SECONDS && budget.left_bytes() <= MOST_READ_BYTES);
        assert_eq!((Budget::new(&plan(f64::NAN, 1), 0, &ended).seconds(), MOST_SECONDS), (60.0, 60.0));
        assert_eq!(Budget::new(&plan(-3.0, 1), 0, &ended).seconds(), 0.0);
        assert_eq!(Budget::new(&plan(1.0, u64::MAX), 8 << 20, &ended).bytes(), MOST_READ_BYTES - (16 << 20));
        let limit = budget.limit(1e9, u64::MAX);
        assert!(limit.until <= Instant::now() + Duration::from_secs(60) && limit.bytes <= MOST_READ_BYTES);
    }

    #[test]
    fn each_limit_says_which_it_was() {
        let reason = |budget: &Budget<'_>| match budget.check() {
            Err(Halt::Stop(stop)) => Some(stop.reason),
            Err(Halt::Failed(error)) => panic!("{error}"),
            Ok(()) => None,
        };
        let ended = AtomicBool::new(false);
        let mut budget = Budget::new(&plan(10.0, 50 << 20), 0, &ended);
        assert_eq!(reason(&budget), None);
        budget.asked(50 << 20);
        assert_eq!(reason(&budget), Some(StopReason::Bytes));
        assert_eq!(reason(&Budget::new(&plan(0.0, 50 << 20), 0, &ended)), Some(StopReason::Time));
        ended.store(true, Relaxed);
        assert_eq!(reason(&budget), Some(StopReason::Interrupted));
    }
}
