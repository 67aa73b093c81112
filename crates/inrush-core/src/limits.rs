use serde::{Deserialize, Serialize};

/// The named bounds of a load. A limit that is hit is reported under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of one chunk. Larger chunks cost memory (each lane holds one, the queue a few) and make the
    /// unit of work that a bad row repeats larger; smaller ones cost a hand-over per chunk.
    pub chunk: usize,
    /// Bytes of one record. A longer one is a reject. At most 1 GB: the server accepts no larger tuple.
    pub max_record: usize,
    /// Input bytes of one commit unit for inputs that can be read again.
    pub unit_bytes: u64,
    /// Input bytes of one commit unit for inputs that cannot be read again at an offset (standard input,
    /// compressed files): they stay in memory until the unit has committed.
    pub unit_bytes_kept: u64,
    /// Age in milliseconds at which a commit unit is committed; unless it is said, whoever plans chooses.
    pub unit_millis: Option<u64>,
    /// Bytes of chunks that may be in memory at once between reader and lanes.
    pub in_flight: usize,
    /// Connections of one load with `--jobs auto`.
    pub max_jobs: usize,
    /// Times a commit unit is sent again after a deadlock, a serialization failure or a lost connection.
    pub retries: u32,
    /// Seconds to wait for the server to come back after a lost connection.
    pub reconnect_secs: u64,
    /// Bytes an input may grow to under decompression, as a multiple of what was read. A higher ratio over
    /// more than 1 GiB is refused as a decompression bomb unless the user raises it.
    pub max_ratio: u64,
}

impl Limits {
    /// The largest record the server takes (MaxAllocSize, 1 GB - 1).
    pub const MAX_RECORD_CEILING: usize = 0x3fff_ffff;
}

impl Default for Limits {
    fn default() -> Self {
        Limits {
            chunk: 4 << 20,
            max_record: 64 << 20,
            unit_bytes: 256 << 20,
            unit_bytes_kept: 32 << 20,
            unit_millis: None,
            in_flight: 48 << 20,
            max_jobs: 16,
            retries: 5,
            reconnect_secs: 30,
            max_ratio: 1000,
        }
    }
}
