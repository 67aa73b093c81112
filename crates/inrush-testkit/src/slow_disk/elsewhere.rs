//! Where there is no FUSE and there are no control groups.

use super::Reads;
use std::io::{Error, ErrorKind, Result};
use std::path::Path;
use std::time::Duration;

/// There is none on this operating system.
#[derive(Debug)]
pub enum LatencyLayer {}

/// There is none on this operating system.
#[derive(Debug)]
pub enum IopsCap {}

fn linux_only<T>() -> Result<T> {
    Err(Error::new(ErrorKind::Unsupported, "slow disks are for Linux only"))
}

/// There is nothing to remove.
///
/// # Errors
/// Never.
pub fn clean_up() -> Result<()> {
    Ok(())
}

impl LatencyLayer {
    /// Linux only.
    ///
    /// # Errors
    /// Always.
    pub fn mount(_backing: &Path, _at: &Path, _delay: Duration) -> Result<LatencyLayer> {
        linux_only()
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        match *self {}
    }

    /// The reads that it has answered.
    pub fn reads(&self) -> Reads {
        match *self {}
    }
}

impl IopsCap {
    /// Linux only.
    ///
    /// # Errors
    /// Always.
    pub fn mount(_at: &Path, _bytes: u64, _iops: u32) -> Result<IopsCap> {
        linux_only()
    }

    /// Where it is.
    pub fn at(&self) -> &Path {
        match *self {}
    }

    /// The device and its number.
    ///
    /// # Errors
    /// Never.
    pub fn device(&self) -> Result<(String, String)> {
        match *self {}
    }

    /// The directory of the control group.
    pub fn group(&self) -> &Path {
        match *self {}
    }

    /// Makes a process slow.
    ///
    /// # Errors
    /// Never.
    pub fn add(&self, _pid: u32) -> Result<()> {
        match *self {}
    }
}
