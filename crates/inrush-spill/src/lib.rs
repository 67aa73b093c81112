//! The spill: what was accepted while the server could not take it, on disk, in order.
//!
//! An append-only log of segments in a directory, bounded and checksummed. Plain blocking file access: callers
//! run it on a thread of their own. What was appended and synced may be acknowledged; it is read back whole and
//! in order, or its damage is an error. Positions are bytes since the log began. They only grow, also when all
//! has been read and over restarts, so that a position in the database is an offset that makes reading exactly
//! once. docs/spill.md has the format and what holds after a crash.

mod check;
mod directory;
mod log;
mod reader;
mod scan;
mod segment;

pub use check::{Damage, Report, check};
pub use log::{Refused, Spill};
pub use reader::{Entry, Reader};

/// Bounds of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// Bytes of disk it may take. What would go beyond is refused as [`Refused::Full`].
    pub max_bytes: u64,
    /// Bytes of a segment, after which another begins; a record that is longer has one alone. Space is given
    /// back by segment. At most a quarter of `max_bytes` counts.
    pub segment_bytes: u64,
}

impl Default for Options {
    fn default() -> Options {
        Options { max_bytes: 10 << 30, segment_bytes: 64 << 20 }
    }
}

/// What opening found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovery {
    /// Position of the oldest byte that is still there.
    pub oldest: u64,
    /// Position behind the last record.
    pub end: u64,
    /// It was closed in order the last time, or is new.
    pub closed: bool,
    /// What a crash left of appends that nobody was told are stored; it was cut off.
    pub cut: Option<Cut>,
}

/// The torn end of a log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Cut {
    /// Where it began.
    pub position: u64,
    /// How many bytes.
    pub bytes: u64,
}
