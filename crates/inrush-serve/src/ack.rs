//! What becomes of what an input took in.

use inrush_core::{Code, Error, Reject};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::oneshot;

/// Rejects that are told to the sender one by one.
pub(crate) const TOLD: usize = 20;

/// A refused row, for the sender.
#[derive(Debug, Clone)]
pub(crate) struct Refused {
    /// Line of the body, from 1.
    pub line: Option<u64>,
    pub sqlstate: String,
    pub reason: String,
}

/// What became of it.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// Rows that are stored.
    pub rows: u64,
    /// Rows that were stored before, by an earlier attempt.
    pub known: u64,
    /// Rows that were refused; they are dead letters.
    pub rejects: u64,
    /// Late rows that were dropped and counted, as their table says.
    pub dropped: u64,
    /// The first of them.
    pub refused: Vec<Refused>,
    /// Why not everything is stored or refused; it may be sent again.
    pub failed: Option<Error>,
}

/// One share of the answer: when all are settled, the input is told.
pub(crate) struct Share {
    inner: Arc<Inner>,
    settled: bool,
}

struct Inner {
    outcome: Mutex<Outcome>,
    tell: Mutex<Option<oneshot::Sender<Outcome>>>,
}

impl Drop for Inner {
    fn drop(&mut self) {
        let tell = self.tell.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        let outcome = std::mem::take(self.outcome.get_mut().unwrap_or_else(PoisonError::into_inner));
        if let Some(tell) = tell {
            // An input that has gone is not to be told.
            let _ = tell.send(outcome);
        }
    }
}

impl Share {
    /// The first share, and where the outcome will be told.
    pub fn new() -> (Share, oneshot::Receiver<Outcome>) {
        let (tell, told) = oneshot::channel();
        let inner = Inner { outcome: Mutex::default(), tell: Mutex::new(Some(tell)) };
        (Share { inner: Arc::new(inner), settled: false }, told)
    }

    /// Another share of the same answer.
    pub fn another(&self) -> Share {
        Share { inner: Arc::clone(&self.inner), settled: false }
    }

    fn with(&self, change: impl FnOnce(&mut Outcome)) {
        change(&mut self.inner.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// These rows are safe, or there were none.
    pub fn settle(mut self, rows: u64) {
        self.settled = true;
        self.with(|outcome| outcome.rows += rows);
    }

    /// Rows of an earlier attempt, and late ones that were dropped.
    pub fn count(&self, known: u64, dropped: u64) {
        self.with(|outcome| {
            outcome.known += known;
            outcome.dropped += dropped;
        });
    }

    /// A row was refused.
    pub fn refuse(&self, reject: &Reject) {
        self.with(|outcome| {
            outcome.rejects += 1;
            if outcome.refused.len() < TOLD {
                outcome.refused.push(Refused {
                    line: reject.position.line,
                    sqlstate: reject.sqlstate.clone(),
                    reason: reject.reason.clone(),
                });
            }
        });
    }

    /// It is not stored.
    pub fn fail(mut self, error: &Error) {
        self.settled = true;
        self.note_failure(error);
    }

    fn note_failure(&self, error: &Error) {
        self.with(|outcome| {
            // That another attempt took over says least of why.
            let told = outcome.failed.as_ref().is_some_and(|known| known.code() != Code::Fenced);
            if !told {
                let mut copy = Error::new(error.code(), error.fact());
                if let Some(sqlstate) = error.sqlstate_text() {
                    copy = copy.sqlstate(sqlstate);
                }
                if let Some(hint) = error.hint_text() {
                    copy = copy.hint(hint);
                }
                outcome.failed = Some(copy);
            }
        });
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if !self.settled {
            let stopped = Error::new(Code::Interrupted, "it was given up before it was stored");
            self.note_failure(&stopped);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_share_tells() {
        let (share, mut told) = Share::new();
        let other = share.another();
        share.settle(3);
        assert!(told.try_recv().is_err());
        other.settle(4);
        let outcome = told.try_recv().expect("told");
        assert_eq!((outcome.rows, outcome.failed.is_none()), (7, true));
    }

    #[test]
    fn a_share_that_is_forgotten_is_a_failure() {
        let (share, mut told) = Share::new();
        let other = share.another();
        other.settle(1);
        drop(share);
        let outcome = told.try_recv().expect("told");
        assert_eq!(outcome.failed.map(|e| e.code()), Some(Code::Interrupted));
    }
}
