//! Measures what the storage of a directory can do, within limits: a scratch file of random bytes is read past the page
//! cache at growing depths, from front to back, and through the page cache as scans read.
//!
//! It needs no privilege but to write into the directory, and PostgreSQL need not be there. It leaves nothing: the
//! scratch file has no name. It ends early when live queries suffer, when its seconds or bytes are used up, and when it is
//! told to; what was measured by then is returned.

#[cfg(target_os = "linux")]
mod aio;
#[cfg(target_os = "linux")]
mod budget;
#[cfg(target_os = "linux")]
mod direct;
#[cfg(target_os = "linux")]
mod live;
#[cfg(target_os = "linux")]
mod order;
#[cfg(target_os = "linux")]
mod replay;
#[cfg(target_os = "linux")]
mod rounds;
#[cfg(target_os = "linux")]
mod scratch;
#[cfg(target_os = "linux")]
mod sessions;
#[cfg(target_os = "linux")]
mod steps;
#[cfg(target_os = "linux")]
mod stream;
#[cfg(target_os = "linux")]
mod threads;
#[cfg(target_os = "linux")]
mod uring;
#[cfg(target_os = "linux")]
mod workers;

#[cfg(target_os = "linux")]
use steps::Run;
#[cfg(target_os = "linux")]
pub use steps::run;

use super::measured::Mechanism;
use std::path::PathBuf;

/// Most seconds of a probe.
pub const MOST_SECONDS: f64 = 60.0;
/// Most bytes that a probe reads.
pub const MOST_READ_BYTES: u64 = 2_000_000_000;
/// Most bytes of a scratch file; never more than one hundredth of what is free.
pub const MOST_SCRATCH_BYTES: u64 = 512 << 20;

/// What to measure, and what that may take. More than the most there may be counts as that.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    /// Where the scratch file is made: a directory of the storage.
    pub directory: PathBuf,
    /// Seconds in all.
    pub seconds: f64,
    /// Bytes that the storage may have to deliver, read-ahead included. Where that is less
    /// than the most there may be, the last read may go beyond by two windows of the kernel's read-ahead.
    pub read_bytes: u64,
    /// Bytes of the scratch file.
    pub scratch_bytes: u64,
    /// How pages are read ahead in replays; none: no replays. Where this process may not use io_uring there are none of
    /// that.
    pub mechanisms: Vec<Mechanism>,
}

impl Plan {
    /// As much as there may be, with the replays of PostgreSQL 17 and older.
    pub fn new(directory: impl Into<PathBuf>) -> Plan {
        Plan {
            directory: directory.into(),
            seconds: MOST_SECONDS,
            read_bytes: MOST_READ_BYTES,
            scratch_bytes: MOST_SCRATCH_BYTES,
            mechanisms: vec![Mechanism::Advice],
        }
    }
}

/// Whether this process may use io_uring.
#[cfg(target_os = "linux")]
pub fn has_io_uring() -> bool {
    uring::Ring::new().is_ok()
}

/// Whether this process may use io_uring.
#[cfg(not(target_os = "linux"))]
pub fn has_io_uring() -> bool {
    false
}

/// How far a probe is.
#[derive(Debug, Clone, PartialEq)]
pub struct Progress {
    /// Share of its steps, from 0 to 1.
    pub done: f64,
    /// What is measured now, for people.
    pub text: String,
}

/// Only Linux tells what a probe needs to know: which pages are cached, and what was read.
///
/// # Errors
/// Always, with code `usage`.
#[cfg(not(target_os = "linux"))]
pub fn run(
    plan: &Plan,
    _live: Option<&inrush_sink::conninfo::ConnInfo>,
    _ended: &std::sync::atomic::AtomicBool,
    _progress: &mut dyn FnMut(Progress),
) -> inrush_core::Result<super::Measured> {
    let fact = format!("the storage of {} can be measured on Linux only", plan.directory.display());
    Err(inrush_core::Error::new(inrush_core::Code::Usage, fact).hint("Run it on the server's machine."))
}
