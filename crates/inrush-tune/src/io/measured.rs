//! What a probe of a directory has measured. These types are kept as JSON, so that a later run has something to compare
//! with.

use serde::{Deserialize, Serialize};

/// Version of the JSON form of [`Measured`].
pub const VERSION: u32 = 1;

/// Bytes of a page: what a scan reads at a time. Servers with other pages are rare, and latency hardly depends on it.
pub const PAGE: u64 = 8192;

/// What the storage of a directory is and how fast it answers.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Measured {
    /// Version of this form.
    pub version: u32,
    /// When the probe began, in UTC: 2026-11-22T19:19:43Z.
    pub at: String,
    /// What was known without measuring.
    pub storage: Storage,
    /// How direct reads were kept in flight.
    pub engine: Engine,
    /// Bytes of the scratch file.
    pub scratch_bytes: u64,
    /// Bytes that the storage had to deliver for the probe, read-ahead included.
    pub read_bytes: u64,
    /// Seconds of the probe, from the first byte written to the last one read.
    pub seconds: f64,
    /// Reads of single pages in random order past the page cache, by depth, from 1 upwards.
    pub random: Vec<Depth>,
    /// Reads from front to back.
    pub sequential: Vec<Sequential>,
    /// Pages read in ascending order with gaps, as a bitmap heap scan reads them, through the page cache.
    pub replays: Vec<Replay>,
    /// Reads at the knee for longer: whether the storage keeps what it showed.
    pub tail: Option<Tail>,
    /// Reads through the page cache of a page that is in it: microseconds.
    pub cached_page_us: Option<f64>,
    /// How it was seen whether live queries suffer, and what could not be seen of them.
    #[serde(default)]
    pub watched: Option<String>,
    /// Why the probe ended before it had measured all.
    pub stopped: Option<Stop>,
}

/// Why a probe ended early.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stop {
    /// What the limit was.
    pub reason: StopReason,
    /// The same with figures, for people.
    pub text: String,
}

/// What ended a probe early.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// Queries of others became slower.
    LiveQueries,
    /// The time it may take.
    Time,
    /// The bytes it may read.
    Bytes,
    /// Somebody wanted it to end.
    Interrupted,
}

/// What is known of a directory's storage without reading from it.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Storage {
    /// The directory.
    pub directory: String,
    /// Major and minor number of the device, as in /sys/dev/block.
    pub device_number: Option<String>,
    /// What is mounted there: /dev/sda1, or a name.
    pub device: Option<String>,
    /// ext4, xfs, nfs4, fuse ...
    pub file_system: Option<String>,
    /// Whether that is a file system over the network, or one whose pages are not read as they are stored (ZFS, btrfs
    /// with compression, overlay): what that means for the figures.
    pub file_system_note: Option<String>,
    /// Read-ahead of the device in kB, as the kernel has it.
    pub read_ahead_kb: Option<u64>,
    /// The I/O scheduler of the device.
    pub scheduler: Option<String>,
    /// Requests that the device's queue takes.
    pub queue_requests: Option<u64>,
    /// Limits of the control group of this process for the device, in words.
    pub group_limit: Option<String>,
    /// Free and total bytes of the file system.
    pub space: Option<(u64, u64)>,
    /// Version of the kernel.
    pub kernel: Option<String>,
}

/// How direct reads are kept in flight.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Engine {
    /// The kernel's asynchronous I/O (io_submit).
    #[default]
    Aio,
    /// A thread for each read in flight.
    Threads,
    /// Scans of a server, from elsewhere.
    Server,
}

/// Single pages read in random order with so many reads in flight.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Depth {
    /// Reads in flight.
    pub depth: u32,
    /// Reads a second: the median of the passes.
    pub iops: f64,
    /// Median latency in microseconds, over all passes.
    pub p50_us: f64,
    /// 99th percentile of the latency in microseconds, over all passes.
    pub p99_us: f64,
    /// Reads a second of each pass.
    pub passes: Vec<f64>,
}

/// Reads from front to back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Sequential {
    /// Through the page cache with the kernel's read-ahead, as PostgreSQL reads; else past it, one read at a time.
    pub buffered: bool,
    /// Bytes of a read.
    pub request_bytes: u64,
    /// Bytes a second: the median of the passes.
    pub bytes_per_second: f64,
    /// Of each pass.
    pub passes: Vec<f64>,
}

/// How a scan has pages read ahead.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Mechanism {
    /// `posix_fadvise(WILLNEED)`, page by page: bitmap heap scans of PostgreSQL 17 and older.
    Advice,
    /// The same for runs of neighbouring pages: io_method = sync of PostgreSQL 18.
    CombinedAdvice,
    /// Reads of runs of neighbouring pages by so many other processes: io_method = worker of PostgreSQL 18.
    Workers {
        /// io_workers.
        workers: u32,
    },
    /// Reads of runs of neighbouring pages that the session itself keeps in flight: io_method = io_uring of PostgreSQL 18.
    IoUring,
}

impl Mechanism {
    /// That of a server for bitmap heap scans: pages one by one until 17, runs of them since 18, where `io_method` decides
    /// who reads them.
    pub fn of(version_num: u32, io_method: Option<&str>, io_workers: Option<u32>) -> Mechanism {
        match io_method {
            _ if version_num < 180_000 => Mechanism::Advice,
            Some("worker") => Mechanism::Workers { workers: io_workers.unwrap_or(3) },
            Some("io_uring") => Mechanism::IoUring,
            _ => Mechanism::CombinedAdvice,
        }
    }
}

/// Pages read in ascending order, a share of them left out at random.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Replay {
    /// How pages are read ahead.
    pub mechanism: Mechanism,
    /// Share of the pages that is read: 0.01, 0.1, 0.5.
    pub density: f64,
    /// Pages asked for ahead of the one that is waited for: effective_io_concurrency. 0: none.
    pub ahead: u32,
    /// Microseconds for each page that is read: the median of the passes.
    pub page_us: f64,
    /// Of each pass.
    pub passes: Vec<f64>,
}

/// Reads at one depth for a longer time.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Tail {
    /// Reads in flight.
    pub depth: u32,
    /// Seconds.
    pub seconds: f64,
    /// Reads a second of the first and of the last part.
    pub first_iops: f64,
    /// Of the last part.
    pub last_iops: f64,
}

impl Measured {
    /// The depths' reads a second at a depth, if that was measured.
    pub fn iops(&self, depth: u32) -> Option<f64> {
        self.random.iter().find(|one| one.depth == depth).map(|one| one.iops)
    }

    /// The mechanism of replays that comes nearest to one: of workers the nearest number, and for io_uring, where that
    /// could not be measured, the most workers.
    pub fn nearest(&self, wanted: Mechanism) -> Option<Mechanism> {
        let all = || self.replays.iter().map(|one| one.mechanism);
        let workers = all().filter_map(|one| match one {
            Mechanism::Workers { workers } => Some(workers),
            _ => None,
        });
        let nearest = match wanted {
            Mechanism::Workers { workers: wanted } => {
                let apart = |workers: u32| (f64::from(workers.max(1)) / f64::from(wanted.max(1))).ln().abs();
                workers.min_by(|a, b| apart(*a).total_cmp(&apart(*b)))
            }
            Mechanism::IoUring if all().all(|one| one != wanted) => workers.max(),
            _ => return all().find(|one| *one == wanted),
        };
        nearest.map(|workers| Mechanism::Workers { workers })
    }

    /// Microseconds of one random read with nothing else in flight.
    pub fn latency_us(&self) -> Option<f64> {
        self.iops(1).filter(|iops| *iops > 0.0).map(|iops| 1e6 / iops)
    }

    /// Microseconds of a page read from front to back through the page cache.
    pub fn sequential_page_us(&self) -> Option<f64> {
        let buffered = self.sequential.iter().filter(|one| one.buffered).map(|one| one.bytes_per_second);
        let best = buffered.fold(0.0, f64::max);
        #[allow(clippy::cast_precision_loss)] // 8192
        (best > 0.0).then(|| PAGE as f64 / best * 1e6)
    }
}

/// How far apart values are: the distance from the least to the most, as a share of the median. Of three or more one,
/// the farthest from the median, is forgiven: machines are shared. Of fewer than two nothing is known.
pub fn spread(values: &[f64]) -> Option<f64> {
    let median = median(values)?;
    if values.len() < 2 || median <= 0.0 {
        return None;
    }
    let mut near: Vec<f64> = values.to_vec();
    near.sort_by(|a, b| (a - median).abs().total_cmp(&(b - median).abs()));
    if near.len() > 2 {
        near.pop();
    }
    let most = near.iter().copied().fold(f64::MIN, f64::max);
    let least = near.iter().copied().fold(f64::MAX, f64::min);
    Some((most - least) / median)
}

/// The median; of an even number of values the mean of the two in the middle.
pub fn median(values: &[f64]) -> Option<f64> {
    let mut sorted: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    match sorted.len() {
        0 => None,
        n if n % 2 == 1 => Some(sorted[middle]),
        _ => Some(f64::midpoint(sorted[middle - 1], sorted[middle])),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nearest_mechanism_is_found() {
        let of = |mechanisms: &[Mechanism]| Measured {
            replays: mechanisms
                .iter()
                .map(|one| Replay { mechanism: *one, density: 0.5, ahead: 1, page_us: 1.0, passes: vec![] })
                .collect(),
            ..Measured::default()
        };
        let workers = |workers| Mechanism::Workers { workers };
        let both = of(&[Mechanism::Advice, workers(3), workers(32)]);
        assert_eq!(both.nearest(workers(8)), Some(workers(3)));
        assert_eq!(both.nearest(workers(20)), Some(workers(32)));
        assert_eq!(both.nearest(Mechanism::Advice), Some(Mechanism::Advice));
        assert_eq!(both.nearest(Mechanism::CombinedAdvice), None);
        assert_eq!(both.nearest(Mechanism::IoUring), Some(workers(32)));
        let ring = of(&[workers(32), Mechanism::IoUring]);
        assert_eq!(ring.nearest(Mechanism::IoUring), Some(Mechanism::IoUring));
        assert_eq!(of(&[Mechanism::Advice]).nearest(Mechanism::IoUring), None);
    }

    #[test]
    fn one_outlier_of_three_is_forgiven() {
        assert_eq!(spread(&[100.0]), None);
        assert!((spread(&[100.0, 150.0]).unwrap() - 0.4).abs() < 1e-9);
        assert!(spread(&[100.0, 102.0, 400.0]).unwrap() < 0.03);
        assert!(spread(&[100.0, 200.0, 400.0]).unwrap() > 0.25);
        assert_eq!(median(&[3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&[4.0, 1.0]), Some(2.5));
        assert_eq!(median(&[]), None);
    }
}
