//! A commit unit while it is being sent: what it holds, what it has sent, what it will record.

use crate::job::Work;
use crate::queue::Permit;
use inrush_cluster::{Lacking, Partial};
use inrush_core::{Chunk, Reject};
use inrush_sink::ledger::{RangeDone, UnitRecord};
use std::time::{Duration, Instant};

/// What a unit needs to send a piece of input again.
pub(crate) enum Held {
    /// The bytes themselves, and the memory they count for.
    Bytes { work: Work, _permit: Option<Permit> },
    /// Where to read them again.
    Range { input: u32, start: u64, end: u64, first_line: u64, first_record: u64, records: u64, lines: u64 },
}

/// A commit unit: some batches and their ledger rows, in one transaction.
pub(crate) struct Unit {
    pub held: Vec<Held>,
    pub input_bytes: u64,
    pub deadline: Option<Instant>,
    /// Results of the current attempt.
    pub record: UnitRecord,
    /// Rows sent and rows the server said it stored, in the current attempt.
    pub sent: u64,
    pub stored: u64,
    pub side_rows: u64,
    /// Records and bytes read, of chunks that were sent whole.
    pub records: u64,
    pub bytes: u64,
    /// Rejects counted against the limit, also those of a chunk that was not sent whole.
    pub counted: u64,
    /// COMMIT has been sent and its answer has not come.
    pub commit_sent: bool,
    /// The ledger has the unit, and these nodes lack it: its rows for others are passed over.
    pub mends: Option<Mends>,
}

/// What is mended of a unit on several nodes.
#[derive(Debug, Clone)]
pub(crate) struct Mends {
    pub lacking: Lacking,
    /// It is of an earlier run.
    pub earlier: bool,
}

impl Unit {
    pub fn new(work: Work, permit: Permit, age: Option<Duration>) -> Unit {
        let mut unit = Unit {
            held: Vec::new(),
            input_bytes: 0,
            deadline: age.map(|age| Instant::now() + age),
            record: UnitRecord::default(),
            sent: 0,
            stored: 0,
            side_rows: 0,
            records: 0,
            bytes: 0,
            counted: 0,
            commit_sent: false,
            mends: None,
        };
        unit.hold(work, permit);
        unit
    }

    /// A unit of an earlier run that some nodes lack.
    pub fn mending(partial: &Partial) -> Unit {
        let ranges = partial.unit.ranges.iter().flatten();
        Unit {
            held: ranges
                .map(|range| Held::Range {
                    input: range.input,
                    start: range.start,
                    end: range.end,
                    // Only rejects tell it, and those the ledger has.
                    first_line: 1,
                    first_record: 1,
                    records: range.records,
                    lines: range.lines,
                })
                .collect(),
            input_bytes: u64::MAX,
            deadline: None,
            record: UnitRecord::default(),
            sent: 0,
            stored: 0,
            side_rows: 0,
            records: 0,
            bytes: 0,
            counted: 0,
            commit_sent: false,
            mends: Some(Mends {
                lacking: Lacking { gid: partial.unit.gid.clone(), nodes: partial.missing.clone() },
                earlier: true,
            }),
        }
    }

    /// Takes responsibility for a piece of input: it is in the table or among the rejects when the unit has
    /// committed, and nowhere before.
    pub fn hold(&mut self, work: Work, permit: Permit) {
        self.input_bytes += match &work {
            Work::Chunk(chunk) => chunk.bytes.len() as u64,
            Work::Rows(rows) => rows.bytes,
            Work::TooLong { reject, .. } => reject.raw.len() as u64,
        };
        // A unit without a deadline waits until all input has come: the head of a record that is too long, which
        // is held to the end, must not keep it from coming. Such inputs are small.
        let kept = self.deadline.is_some() || !matches!(work, Work::TooLong { .. });
        self.held.push(Held::Bytes { work, _permit: kept.then_some(permit) });
    }

    /// Forgets the results of an attempt that did not commit.
    pub fn forget_attempt(&mut self) {
        self.record = UnitRecord::default();
        self.sent = 0;
        self.stored = 0;
        self.side_rows = 0;
        self.records = 0;
        self.bytes = 0;
        self.counted = 0;
        self.commit_sent = false;
    }

    /// Notes a range as dealt with.
    pub fn done(&mut self, chunk: &Chunk, records: u64, rows: u64, rejects: Vec<Reject>) {
        if chunk.bytes.is_empty() {
            return;
        }
        self.records += records;
        self.bytes += chunk.bytes.len() as u64;
        self.record.add(RangeDone {
            input: chunk.input,
            start: chunk.start,
            end: chunk.end(),
            rows,
            rejects: rejects.len() as u64,
            records,
            lines: chunk.lines,
        });
        self.record.rejects.extend(rejects);
    }

    /// Rows a trigger left out are not rows of the load: takes them off the ranges, last first.
    pub fn settle_left_out(&mut self) -> u64 {
        let left_out = self.sent.saturating_sub(self.stored);
        let mut rest = left_out;
        for range in self.record.ranges.iter_mut().rev() {
            let off = rest.min(range.rows);
            range.rows -= off;
            rest -= off;
        }
        left_out
    }
}
