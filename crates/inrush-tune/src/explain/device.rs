//! What the device of a table reads meanwhile, where it is a device of this machine.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes of a sector in the kernel's counters, whatever the device's are
/// (Documentation/admin-guide/iostats.rst).
const SECTOR: u64 = 512;

/// Where the counters are.
#[derive(Debug, Clone, Default)]
pub(super) struct Counters {
    /// The counters of the block device.
    device: Option<PathBuf>,
    /// Those of the process that runs the query.
    backend: Option<PathBuf>,
}

/// Counters at a moment.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) reads: Option<u64>,
    pub(super) bytes: Option<u64>,
    pub(super) backend_bytes: Option<u64>,
}

impl Counters {
    /// The counters of the device of a file and of a process of this machine, as far as they may be read. Of
    /// a file that is on no block device (FUSE, NFS) the process's say nothing either: they would stay at 0
    /// whatever is read.
    pub(super) fn of(file: &Path, backend: i32) -> Counters {
        let device = device_number(file).map(|number| Path::new("/sys/dev/block").join(number).join("stat"));
        let device = device.filter(|path| fs::read_to_string(path).is_ok());
        let backend = device.is_some().then(|| PathBuf::from(format!("/proc/{backend}/io")));
        Counters { device, backend: backend.filter(|path| fs::read_to_string(path).is_ok()) }
    }

    pub(super) fn read(&self) -> Reading {
        let text = |path: &Option<PathBuf>| fs::read_to_string(path.as_ref()?).ok();
        let (reads, bytes) = text(&self.device).and_then(|text| device_stat(&text)).unzip();
        Reading { reads, bytes, backend_bytes: text(&self.backend).and_then(|text| process_io(&text)) }
    }

    pub(super) fn has_device(&self) -> bool {
        self.device.is_some()
    }
}

impl Reading {
    /// What has been counted since an earlier reading.
    pub(super) fn since(&self, before: &Reading) -> Reading {
        let minus = |now: Option<u64>, before: Option<u64>| Some(now?.saturating_sub(before?));
        Reading {
            reads: minus(self.reads, before.reads),
            bytes: minus(self.bytes, before.bytes),
            backend_bytes: minus(self.backend_bytes, before.backend_bytes),
        }
    }
}

/// Major and minor number of the device that a file is on.
#[cfg(target_os = "linux")]
fn device_number(file: &Path) -> Option<String> {
    use std::os::unix::fs::MetadataExt;
    let device = fs::metadata(file).ok()?.dev();
    Some(format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device)))
}

#[cfg(not(target_os = "linux"))]
fn device_number(_file: &Path) -> Option<String> {
    None
}

/// Reads completed and bytes read, of a device's `stat`: the first and the third number.
fn device_stat(text: &str) -> Option<(u64, u64)> {
    let mut numbers = text.split_whitespace().map(|word| word.parse::<u64>().ok());
    let reads = numbers.next()??;
    let sectors = numbers.nth(1)??;
    Some((reads, sectors * SECTOR))
}

/// Bytes that a process has had read from storage (proc_pid_io(5)).
fn process_io(text: &str) -> Option<u64> {
    text.lines().find_map(|line| line.strip_prefix("read_bytes:"))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// /proc is on no device, as are FUSE and NFS.
    #[cfg(target_os = "linux")]
    #[test]
    fn without_a_device_nothing_is_counted() {
        let own = i32::try_from(std::process::id()).expect("a process");
        let counters = Counters::of(Path::new("/proc/self/stat"), own);
        assert!(!counters.has_device());
        assert_eq!(counters.read(), Reading::default());
    }

    #[test]
    fn counters_are_read() {
        let stat = " 20150  7 2000 1500 1 2 3 4 0 5 6 0 0 0 0 0 0\n";
        assert_eq!(device_stat(stat), Some((20150, 1_024_000)));
        assert_eq!(device_stat(""), None);
        assert_eq!(process_io("rchar: 1\nread_bytes: 8192\nwrite_bytes: 0\n"), Some(8192));
        let before = Reading { reads: Some(5), bytes: None, backend_bytes: Some(9) };
        let now = Reading { reads: Some(7), bytes: Some(1), backend_bytes: Some(9) };
        assert_eq!(now.since(&before), Reading { reads: Some(2), bytes: None, backend_bytes: Some(0) });
    }
}
