//! What a splitter makes of a part, by lane.

use crate::ack::Share;
use crate::buffers::Buffers;
use crate::lane::Lanes;
use crate::origin::Kind;
use crate::part::{Batch, Body, LaneWork};
use inrush_core::Reject;
use inrush_sink::ledger::stream::DeadLetter;
use std::sync::Arc;

/// What a splitter makes of a part.
pub(super) struct Out {
    lanes: Vec<LaneOut>,
    /// Rows that an earlier attempt has stored.
    pub known: u64,
    /// Late rows that are dropped.
    pub dropped: u64,
}

/// What one lane is given.
#[derive(Default)]
pub(super) struct LaneOut {
    pub batches: Vec<Batch>,
    /// Where the batch was that took the last row.
    pub last: usize,
    letters: Vec<DeadLetter>,
}

impl LaneOut {
    /// Keeps a refused row.
    pub fn refuse(&mut self, body: &Body, position: i64, table: &str, reject: Reject) {
        self.letters.push(DeadLetter {
            from: body.origin.name.clone(),
            position,
            target: table.to_owned(),
            reject,
        });
    }
}

impl Out {
    pub fn new(lanes: usize) -> Out {
        Out { lanes: (0..lanes).map(|_| LaneOut::default()).collect(), known: 0, dropped: 0 }
    }

    pub fn lane(&mut self, lane: usize) -> &mut LaneOut {
        &mut self.lanes[lane]
    }

    pub fn rejects(&self) -> u64 {
        self.lanes.iter().map(|lane| lane.letters.len() as u64).sum()
    }

    /// Gives the lanes their work. Lanes without rows are told as well, where offsets are kept: theirs must not stay
    /// behind.
    pub fn give(self, body: &Arc<Body>, next: i64, share: &Share, lanes: &Lanes, blocks: &Buffers) {
        for (lane, out) in self.lanes.into_iter().enumerate() {
            let empty = out.batches.is_empty() && out.letters.is_empty();
            let span = match body.origin.kind {
                Kind::Untraced => None,
                Kind::Request { .. } if empty => None,
                Kind::Request { .. } | Kind::Partition { .. } => {
                    body.origin.give(lane, next).map(|from| (from, next))
                }
            };
            if empty && span.is_none() {
                continue;
            }
            for letter in &out.letters {
                share.refuse(&letter.reject);
            }
            let batches = out.batches.into_iter().map(|batch| super::reader::sealed(batch, blocks)).collect();
            lanes.give(LaneWork {
                body: Arc::clone(body),
                lane,
                span,
                batches,
                letters: out.letters,
                share: (!empty).then(|| share.another()),
            });
        }
    }
}
