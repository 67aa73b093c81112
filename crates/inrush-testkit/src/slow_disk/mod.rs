//! Storage that is slow on purpose, for whatever must be right on storage that this machine has not got: a
//! file system whose reads take a millisecond, however many wait at once ([`LatencyLayer`]), and a disk that
//! gives so many reads a second, however many are in flight ([`IopsCap`]). Both need root and Linux; without,
//! they say why not.
//!
//! What a killed process leaves is removed by [`clean_up`], which both begin with. Mounts, files, and control
//! groups have names that begin with [`NAME`], and nothing else is ever touched.

#[cfg(target_os = "linux")]
mod delay;
#[cfg(not(target_os = "linux"))]
mod elsewhere;
#[cfg(target_os = "linux")]
mod iops_cap;
#[cfg(target_os = "linux")]
mod latency;
#[cfg(target_os = "linux")]
mod mounts;
#[cfg(target_os = "linux")]
mod nodes;
#[cfg(target_os = "linux")]
mod passthrough;
#[cfg(target_os = "linux")]
mod throttle;

#[cfg(not(target_os = "linux"))]
pub use elsewhere::{IopsCap, LatencyLayer, clean_up};
#[cfg(target_os = "linux")]
pub use iops_cap::IopsCap;
#[cfg(target_os = "linux")]
pub use latency::LatencyLayer;
#[cfg(target_os = "linux")]
pub use mounts::clean_up;

/// What names of mounts, files of disks, and control groups begin with.
pub const NAME: &str = "inrush-slow-disk";

/// Reads that a layer has answered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Reads {
    /// Requests.
    pub count: u64,
    /// What they were given.
    pub bytes: u64,
}
