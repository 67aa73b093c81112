//! A statement that waits for a lock: a short time, and then again.

use inrush_core::Error;
use serde::Serialize;
use std::time::{Duration, Instant};
use tokio::time::sleep;

/// The first pause between two tries; each is twice as long as the one before, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(20);
const LONGEST_PAUSE: Duration = Duration::from_millis(500);

/// A step that had to wait for a lock, or was tried more than once.
#[derive(Debug, Clone, Serialize)]
pub struct Wait {
    /// The step.
    pub what: String,
    /// Milliseconds of the longest try: nobody has queued behind it for longer.
    pub longest_try_ms: f64,
    /// How often it was tried.
    pub tries: u32,
    /// Whether it was done in the end.
    pub done: bool,
}

/// The tries of one step.
pub(crate) struct Turn {
    what: String,
    began: Instant,
    patience: Duration,
    this: Instant,
    longest: Duration,
    tries: u32,
    pause: Duration,
}

impl Turn {
    pub(crate) fn new(what: impl Into<String>, patience: Duration) -> Turn {
        let now = Instant::now();
        let what = what.into();
        Turn { what, began: now, patience, this: now, longest: Duration::ZERO, tries: 1, pause: FIRST_PAUSE }
    }

    /// Whether to try again after this error: it is about a lock, and there is patience left. Pauses first.
    pub(crate) async fn again(&mut self, error: &Error) -> bool {
        self.longest = self.longest.max(self.this.elapsed());
        if !is_about_a_lock(error) || self.began.elapsed() + self.pause > self.patience {
            return false;
        }
        sleep(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
        self.tries += 1;
        self.this = Instant::now();
        true
    }

    /// What there is to tell of it: nothing if the first try took no longer than a statement takes.
    pub(crate) fn told(mut self, done: bool) -> Option<Wait> {
        self.longest = self.longest.max(self.this.elapsed());
        let worth_it = self.tries > 1 || !done || self.longest >= Duration::from_millis(10);
        worth_it.then(|| Wait {
            what: self.what,
            longest_try_ms: (self.longest.as_secs_f64() * 10_000.0).round() / 10.0,
            tries: self.tries,
            done,
        })
    }
}

/// lock_not_available (lock_timeout), deadlock_detected.
pub(crate) fn is_about_a_lock(error: &Error) -> bool {
    matches!(error.sqlstate_text(), Some("55P03" | "40P01"))
}
