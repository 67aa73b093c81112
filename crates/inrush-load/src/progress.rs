//! Counters that the stages add to and that a progress display or the report reads at any time.

use inrush_profile::Recorder;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Counters of one load. All are totals since its start; reading them costs nothing that the lanes notice.
#[derive(Debug)]
pub struct Progress {
    /// When the load started.
    pub started: Instant,
    /// Bytes of the inputs as they are stored (compressed ones compressed); 0 if not known (standard input).
    pub bytes_total: AtomicU64,
    /// Of these, read so far.
    pub bytes_read: AtomicU64,
    /// Uncompressed input bytes handed to lanes.
    pub bytes_in: AtomicU64,
    /// Wire bytes sent.
    pub bytes_out: AtomicU64,
    /// Records read.
    pub records: AtomicU64,
    /// Rows committed.
    pub rows: AtomicU64,
    /// Rejects, of committed and running units.
    pub rejects: AtomicU64,
    /// Rows that earlier runs of this load had committed.
    pub rows_before: AtomicU64,
    /// Commit units of this run.
    pub units: AtomicU64,
    /// Units sent again, after a deadlock, a serialization failure or a lost connection.
    pub retries: AtomicU64,
    /// Row versions left dead in the table by units that the server refused.
    pub dead_rows: AtomicU64,
    /// Rows sent as text because the encoder was not sure of a value.
    pub rows_as_text: AtomicU64,
    /// Rows that the server took but did not store (a trigger left them out).
    pub rows_left_out: AtomicU64,
    /// Times the server's WAL writer was woken.
    pub wal_nudges: AtomicU64,
    /// Connections in use.
    pub lanes: AtomicUsize,
    /// Nanoseconds spent reading and cutting (reader thread).
    pub read_nanos: AtomicU64,
    /// Nanoseconds lanes spent decoding and encoding.
    pub encode_nanos: AtomicU64,
    /// Nanoseconds lanes spent sending and waiting for the server to take bytes.
    pub send_nanos: AtomicU64,
    /// Nanoseconds lanes waited for the reader.
    pub wait_nanos: AtomicU64,
    /// Nanoseconds lanes waited for statements other than COPY data: begin, record, commit.
    pub commit_nanos: AtomicU64,
    /// Nanoseconds at the end for taking levers back.
    pub put_back_nanos: AtomicU64,
    /// What the lanes do and what their backends wait for.
    pub recorder: Recorder,
    stop: AtomicU8,
    paused: AtomicBool,
    /// The lanes have ended.
    pub(crate) over: AtomicBool,
}

/// How a load is to end before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stop {
    /// It is not.
    No = 0,
    /// Finish the units in flight, start no others.
    Drain = 1,
    /// Drop the units in flight.
    Abort = 2,
}

impl Progress {
    /// Counters at zero.
    pub fn new() -> Progress {
        Progress {
            started: Instant::now(),
            bytes_total: AtomicU64::new(0),
            bytes_read: AtomicU64::new(0),
            bytes_in: AtomicU64::new(0),
            bytes_out: AtomicU64::new(0),
            records: AtomicU64::new(0),
            rows: AtomicU64::new(0),
            rejects: AtomicU64::new(0),
            rows_before: AtomicU64::new(0),
            units: AtomicU64::new(0),
            retries: AtomicU64::new(0),
            dead_rows: AtomicU64::new(0),
            rows_as_text: AtomicU64::new(0),
            rows_left_out: AtomicU64::new(0),
            wal_nudges: AtomicU64::new(0),
            lanes: AtomicUsize::new(0),
            read_nanos: AtomicU64::new(0),
            encode_nanos: AtomicU64::new(0),
            send_nanos: AtomicU64::new(0),
            wait_nanos: AtomicU64::new(0),
            commit_nanos: AtomicU64::new(0),
            put_back_nanos: AtomicU64::new(0),
            recorder: Recorder::default(),
            stop: AtomicU8::new(0),
            paused: AtomicBool::new(false),
            over: AtomicBool::new(false),
        }
    }

    /// Asks the load to stop; a stronger wish replaces a weaker one, never the other way.
    pub fn stop(&self, how: Stop) {
        self.stop.fetch_max(how as u8, Relaxed);
    }

    /// Counts input that a lane has dealt with.
    pub(crate) fn read(&self, bytes: u64, records: u64) {
        self.bytes_in.fetch_add(bytes, Relaxed);
        self.records.fetch_add(records, Relaxed);
    }

    /// Holds the reader back, or lets it go on.
    pub(crate) fn pause(&self, paused: bool) {
        self.paused.store(paused, Relaxed);
    }

    /// Whether the load waits for something that lags behind.
    pub fn is_paused(&self) -> bool {
        self.paused.load(Relaxed)
    }

    /// How the load is to stop, if it is.
    pub fn stopping(&self) -> Stop {
        match self.stop.load(Relaxed) {
            0 => Stop::No,
            1 => Stop::Drain,
            _ => Stop::Abort,
        }
    }
}

impl Default for Progress {
    fn default() -> Self {
        Progress::new()
    }
}

/// Adds to a counter of nanoseconds.
pub(crate) fn add_time(counter: &AtomicU64, time: Duration) {
    counter.fetch_add(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX), Relaxed);
}
