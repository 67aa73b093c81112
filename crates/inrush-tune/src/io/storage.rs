//! What is known of a directory's storage without reading from it: what is mounted there, and what the kernel says of
//! the device and of the limits of this process.

use super::measured::Storage;
use crate::advise::platform;
use inrush_core::{Code, Error, Result};
use std::path::Path;

/// Looks at the storage of a directory. What cannot be seen is `None`; only a directory that is none, or that may not
/// be looked at, is an error.
pub fn look(directory: &Path) -> Result<Storage> {
    let seen = directory.canonicalize().and_then(|path| Ok((path.metadata()?, path)));
    let (metadata, path) = seen.map_err(|error| {
        Error::new(Code::Usage, format!("{}: {error}", directory.display()))
            .hint("Name a directory of the storage to measure, such as the tablespace's.")
    })?;
    if !metadata.is_dir() {
        return Err(Error::new(Code::Usage, format!("{} is not a directory", directory.display()))
            .hint("Name a directory of the storage to measure, such as the tablespace's."));
    }
    let mount = platform::mount(&path);
    let device = device::of(&metadata, mount.as_ref().map(|mount| mount.source.as_str()));
    let file_system = mount.as_ref().map(|mount| mount.file_system.clone());
    Ok(Storage {
        directory: path.display().to_string(),
        device_number: Some(device.number),
        device: mount.map(|mount| mount.source),
        file_system_note: file_system.as_deref().and_then(note).map(str::to_owned),
        file_system,
        read_ahead_kb: device.read_ahead_kb,
        scheduler: device.scheduler,
        queue_requests: device.queue_requests,
        group_limit: device.group_limit,
        space: platform::space(&path).map(|space| (space.free, space.total)),
        kernel: kernel(),
    })
}

/// Whether files of this file system are in memory only.
pub(crate) fn is_memory(file_system: &str) -> bool {
    matches!(file_system, "tmpfs" | "ramfs" | "devtmpfs" | "hugetlbfs")
}

/// What has to be known of a file system to read the figures.
fn note(file_system: &str) -> Option<&'static str> {
    Some(match file_system {
        _ if is_memory(file_system) => "files are in memory: there is no storage to measure",
        "nfs" | "nfs4" => {
            "over the network: the server's memory answers what it has, and others share the way to it"
        }
        "cifs" | "smb3" | "ceph" | "glusterfs" | "fuse.glusterfs" | "lustre" | "9p" | "virtiofs"
        | "vboxsf" => "of another machine or of the host: its memory answers what it has",
        "overlay" => "layers of a container: what is measured is the storage of the upper layer",
        "zfs" => {
            "ZFS reads whole records of its own size and keeps a cache of its own: reads of a page cost a record, and \
             what is in that cache is not read"
        }
        "btrfs" | "bcachefs" => {
            "copy on write: pages that were written again lie elsewhere, and compressed ones are read in larger pieces"
        }
        _ if file_system == "fuse" || file_system == "fuseblk" || file_system.starts_with("fuse.") => {
            "a process serves it (FUSE): what that process keeps in memory is not read"
        }
        _ => return None,
    })
}

#[cfg(unix)]
fn kernel() -> Option<String> {
    Some(rustix::system::uname().release().to_string_lossy().into_owned())
}

#[cfg(not(unix))]
fn kernel() -> Option<String> {
    None
}

/// What the kernel says of a device.
#[derive(Debug, Default)]
struct Device {
    number: String,
    read_ahead_kb: Option<u64>,
    scheduler: Option<String>,
    queue_requests: Option<u64>,
    group_limit: Option<String>,
}

#[cfg(not(target_os = "linux"))]
mod device {
    use super::Device;

    /// Known on Linux only.
    pub(super) fn of(_directory: &std::fs::Metadata, _source: Option<&str>) -> Device {
        Device::default()
    }
}

#[cfg(target_os = "linux")]
mod device {
    use super::Device;
    use std::fs;
    use std::os::unix::fs::{FileTypeExt, MetadataExt};
    use std::path::{Path, PathBuf};

    pub(super) fn of(directory: &fs::Metadata, source: Option<&str>) -> Device {
        let mut number = numbered(directory.dev());
        let mut path = block(&number);
        // Some file systems (btrfs) have a number of their own; what is mounted tells the device.
        if path.is_none()
            && let Some(found) = source.and_then(|source| fs::metadata(source).ok())
            && found.file_type().is_block_device()
        {
            number = numbered(found.rdev());
            path = block(&number);
        }
        let queue = path.as_ref().map(|path| path.join("queue"));
        let asked = |name: &str| trimmed(&queue.as_ref()?.join(name));
        // Limits and read-ahead are of the whole disk, whichever part of it is mounted.
        let disk =
            path.as_ref().and_then(|path| trimmed(&path.join("dev"))).unwrap_or_else(|| number.clone());
        let info = |suffix: &str| trimmed(Path::new(&format!("/sys/class/bdi/{disk}{suffix}/read_ahead_kb")));
        let read_ahead = info("").or_else(|| info("-fuseblk")).or_else(|| asked("read_ahead_kb"));
        Device {
            read_ahead_kb: read_ahead.and_then(|text| text.parse().ok()),
            scheduler: asked("scheduler").map(|text| chosen(&text)),
            queue_requests: asked("nr_requests").and_then(|text| text.parse().ok()),
            group_limit: group_limit(&disk),
            number,
        }
    }

    fn numbered(device: u64) -> String {
        format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device))
    }

    /// The disk of a block device under /sys: of a partition, what it is a part of.
    fn block(number: &str) -> Option<PathBuf> {
        let device = Path::new("/sys/dev/block").join(number).canonicalize().ok()?;
        if device.join("queue").is_dir() { Some(device) } else { Some(device.parent()?.to_owned()) }
    }

    fn trimmed(path: &Path) -> Option<String> {
        Some(fs::read_to_string(path).ok()?.trim().to_owned())
    }

    /// Of `none [mq-deadline] kyber` the one in brackets; the text itself where it has none.
    fn chosen(text: &str) -> String {
        let inner = text.split_once('[').and_then(|(_, rest)| rest.split_once(']'));
        inner.map_or(text, |(name, _)| name).to_owned()
    }

    /// Limits of the control groups of this process for a disk, in words; those of both generations.
    fn group_limit(disk: &str) -> Option<String> {
        let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
        let mut found = Vec::new();
        for line in groups.lines() {
            let mut fields = line.splitn(3, ':').skip(1);
            let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
            let group = group.trim_start_matches('/');
            let mounted: &[&str] = match controllers {
                "" => &["/sys/fs/cgroup", "/sys/fs/cgroup/unified"],
                list if list.split(',').any(|one| one == "blkio") => &["/sys/fs/cgroup/blkio"],
                _ => continue,
            };
            for root in mounted {
                // In a group's namespace the path begins above what is mounted: then the mount is all there is to see.
                let inside = Path::new(root).join(group);
                for group in inside.ancestors().take_while(|group| group.starts_with(root)) {
                    let limits = if controllers.is_empty() {
                        trimmed(&group.join("io.max")).map(|text| words(&text, disk)).unwrap_or_default()
                    } else {
                        throttled(group, disk)
                    };
                    if !limits.is_empty() {
                        found.push(format!("{} ({})", limits.join(", "), group.display()));
                    }
                }
            }
        }
        (!found.is_empty()).then(|| found.join("; "))
    }

    /// io.max (cgroup v2): `254:0 rbps=max wbps=max riops=3000 wiops=max`.
    pub(super) fn words(io_max: &str, disk: &str) -> Vec<String> {
        let of_disk = |line: &str| line.split_once(' ').is_some_and(|(number, _)| number == disk);
        let Some(line) = io_max.lines().find(|line| of_disk(line)) else { return Vec::new() };
        let limit = |pair: &str| {
            let (key, value) = pair.split_once('=')?;
            worded(key, value.parse().ok()?)
        };
        line.split(' ').skip(1).filter_map(limit).collect()
    }

    /// blkio.throttle (cgroup v1): a file for each kind, in each a line for each device.
    fn throttled(group: &Path, disk: &str) -> Vec<String> {
        let files = [
            ("rbps", "blkio.throttle.read_bps_device"),
            ("wbps", "blkio.throttle.write_bps_device"),
            ("riops", "blkio.throttle.read_iops_device"),
            ("wiops", "blkio.throttle.write_iops_device"),
        ];
        let limit = |(key, file): &(&str, &str)| {
            let text = trimmed(&group.join(file))?;
            let pairs = text.lines().filter_map(|line| line.split_once(' '));
            let (_, value) = pairs.into_iter().find(|(number, _)| *number == disk)?;
            worded(key, value.trim().parse().ok()?)
        };
        files.iter().filter_map(limit).collect()
    }

    fn worded(key: &str, value: u64) -> Option<String> {
        #[allow(clippy::cast_precision_loss)] // a limit, printed with one digit
        let megabytes = || format!("{:.1} MB/s", value as f64 / 1e6);
        Some(match key {
            "rbps" => format!("reads {}", megabytes()),
            "wbps" => format!("writes {}", megabytes()),
            "riops" => format!("{value} reads a second"),
            "wiops" => format!("{value} writes a second"),
            _ => return None,
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_scheduler_in_use_is_named() {
            assert_eq!(chosen("none [mq-deadline] kyber bfq"), "mq-deadline");
            assert_eq!(chosen("none"), "none");
        }

        #[test]
        fn limits_of_the_disk_are_said_in_words() {
            let text =
                "8:0 rbps=1 wbps=max riops=max wiops=max\n254:0 rbps=125000000 wbps=max riops=3000 wiops=max";
            assert_eq!(words(text, "254:0"), ["reads 125.0 MB/s", "3000 reads a second"]);
            assert_eq!(words(text, "8:0"), ["reads 0.0 MB/s"]);
            assert!(words(text, "254:16").is_empty());
            assert!(words("", "254:0").is_empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_systems_that_change_the_figures_are_noted() {
        assert!(note("nfs4").unwrap().contains("network"));
        assert!(note("fuse.sshfs").unwrap().contains("FUSE"));
        assert!(note("tmpfs").unwrap().contains("memory"));
        assert!(["zfs", "btrfs", "overlay"].iter().all(|one| note(one).is_some()));
        assert_eq!(note("ext4").or(note("xfs")), None);
    }

    #[test]
    fn the_storage_of_a_directory_is_seen() {
        let here = look(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap();
        let (free, total) = here.space.unwrap();
        assert!(free <= total && total > 0);
        assert!(here.file_system.is_some() || !cfg!(target_os = "linux"));
        assert!(here.kernel.is_some());
        // A block device says how far it reads ahead.
        if let Some(number) = here.device_number
            && Path::new("/sys/dev/block").join(&number).exists()
        {
            assert!(here.read_ahead_kb.is_some() && here.scheduler.is_some(), "{number}");
        }
    }

    #[test]
    fn what_is_no_directory_is_refused() {
        for path in ["/no/such/directory", "/proc/self/stat"] {
            let error = look(Path::new(path)).unwrap_err();
            assert_eq!(error.code(), Code::Usage);
            assert!(error.fact().contains(path) && error.hint_text().is_some());
        }
    }
}
