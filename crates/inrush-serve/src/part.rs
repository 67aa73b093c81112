//! What inputs hand over, and what lanes are given.

use crate::ack::Share;
use crate::config::Into;
use crate::origin::Origin;
use crate::target::{Leaf, Shape, Target};
use bytes::Bytes;
use inrush_core::CsvDialect;
use inrush_decode::line::Precision;
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::WireFormat;
use inrush_sink::ledger::stream::DeadLetter;
use std::sync::Arc;
use std::time::SystemTime;
use tokio::sync::OwnedSemaphorePermit;

/// An input, as rows know it.
#[derive(Debug)]
pub(crate) struct Source {
    /// Kind and name, as the ledger has it: `http:gateway`.
    pub name: String,
    pub into: Into,
    /// Counts what it takes in.
    pub counters: crate::metrics::InputCounters,
}

/// How the bytes of a part are read.
#[derive(Debug, Clone)]
pub(crate) enum Reading {
    Ndjson,
    Csv { dialect: CsvDialect, header: Arc<Vec<String>> },
    Line { precision: Precision },
}

/// Which position of its origin each byte of a part has.
#[derive(Debug)]
pub(crate) enum Positions {
    /// Each byte its own, from this one on.
    Bytes(i64),
    /// Messages: (one past the last byte, position), in order.
    Marks(Vec<(u32, i64)>),
}

impl Positions {
    /// The position of the row that begins with this byte. `at` is the mark that was found last: rows come in order.
    pub fn of(&self, byte: usize, at: &mut usize) -> i64 {
        match self {
            Positions::Bytes(start) => start + i64::try_from(byte).unwrap_or(i64::MAX),
            Positions::Marks(marks) => {
                while marks.get(*at).is_some_and(|(end, _)| *end as usize <= byte) {
                    *at += 1;
                }
                marks.get(*at).or(marks.last()).map_or(0, |(_, position)| *position)
            }
        }
    }
}

/// Bytes in memory, until all lanes are done with them.
pub(crate) struct Body {
    pub source: Arc<Source>,
    pub origin: Arc<Origin>,
    /// The table they are for, as the input names it; none where each line names its own.
    pub table: Option<String>,
    pub reading: Reading,
    pub bytes: Bytes,
    /// Line of the first byte, from 1.
    pub first_line: u64,
    pub positions: Positions,
    pub received: SystemTime,
    pub _memory: OwnedSemaphorePermit,
}

/// Whole records, and what is to become of them.
pub(crate) struct Part {
    pub body: Body,
    /// Position behind it.
    pub next: i64,
    pub share: Share,
}

/// The rows of a part for one leaf.
pub(crate) struct Batch {
    pub target: Arc<Target>,
    pub leaf: Arc<Leaf>,
    pub shape: Arc<Shape>,
    pub wire: WireFormat,
    /// Makes blocks of frames, on the direct path.
    pub blocks: Option<BlockWriter>,
    /// The message under way.
    pub open: Vec<u8>,
    /// Messages for the main COPY: whole blocks on the direct path, otherwise rows without header and trailer.
    pub messages: Vec<Bytes>,
    /// Rows for a COPY text beside it.
    pub side: Bytes,
    /// Those rows while they are added.
    pub open_side: Vec<u8>,
    pub rows: u64,
    /// Where each row begins in the part.
    pub starts: Vec<u32>,
    /// Largest event time.
    pub up_to: Option<i64>,
}

impl Batch {
    /// Bytes to send.
    pub fn bytes(&self) -> usize {
        self.side.len() + self.messages.iter().map(Bytes::len).sum::<usize>()
    }
}

/// Bytes of a dead letter beside those of the row: names, position, reason.
const LETTER: usize = 300;

/// What one lane has to do with a part.
pub(crate) struct LaneWork {
    pub body: Arc<Body>,
    /// Number of the lane among those of the origin.
    pub lane: usize,
    /// From where to where the lane's offset moves, where one is kept.
    pub span: Option<(i64, i64)>,
    pub batches: Vec<Batch>,
    pub letters: Vec<DeadLetter>,
    /// None where there is nothing to wait for.
    pub share: Option<Share>,
}

impl LaneWork {
    pub fn rows(&self) -> u64 {
        self.batches.iter().map(|batch| batch.rows).sum()
    }

    pub fn bytes(&self) -> usize {
        self.batches.iter().map(Batch::bytes).sum()
    }

    /// Rows and bytes that a unit is measured by: refused rows are stored, too.
    pub fn load(&self) -> (u64, u64) {
        let letters: usize = self.letters.iter().map(|letter| LETTER + letter.reject.raw.len()).sum();
        (self.rows() + self.letters.len() as u64, (self.bytes() + letters) as u64)
    }

    /// Whether it stores nothing: only an offset moves.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty() && self.letters.is_empty()
    }
}
