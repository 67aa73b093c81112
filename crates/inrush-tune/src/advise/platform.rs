//! The only module that differs between operating systems: which device a directory is on, how much is free there,
//! and how much memory there is. What an operating system does not tell is `None`.

use super::machine::Space;
use std::path::Path;

/// Free and total bytes of the file system a directory is on; free is what an ordinary account may use.
#[cfg(unix)]
pub(crate) fn space(directory: &Path) -> Option<Space> {
    let stat = rustix::fs::statvfs(directory).ok()?;
    Some(Space {
        free: stat.f_bavail.saturating_mul(stat.f_frsize),
        total: stat.f_blocks.saturating_mul(stat.f_frsize),
    })
}

/// Not asked for here.
#[cfg(not(unix))]
pub(crate) fn space(_directory: &Path) -> Option<Space> {
    None
}

/// What is mounted where a directory is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Mount {
    /// Where it is mounted.
    pub(crate) point: String,
    /// ext4, xfs ...
    pub(crate) file_system: String,
    /// What is mounted: /dev/sda1, or a name where it is no device.
    pub(crate) source: String,
    /// Whether it is a disk that turns, as far as the kernel knows.
    pub(crate) rotational: Option<bool>,
}

/// The mount of a directory, from the list the kernel keeps for this process (proc(5), mountinfo).
#[cfg(target_os = "linux")]
pub(crate) fn mount(directory: &Path) -> Option<Mount> {
    let directory = directory.canonicalize().ok()?;
    linux::mount_of(&directory, &std::fs::read_to_string("/proc/self/mountinfo").ok()?)
}

/// Known on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn mount(_directory: &Path) -> Option<Mount> {
    None
}

/// Bytes of memory that a process may use: the machine's, or less if its control group has a limit.
#[cfg(target_os = "linux")]
pub(crate) fn memory(pid: u32) -> Option<u64> {
    let meminfo = std::fs::read_to_string("/proc/meminfo").ok()?;
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    let total = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
    Some(linux::group_limit(pid).map_or(total, |limit| limit.min(total)))
}

/// Known on Linux only.
#[cfg(not(target_os = "linux"))]
pub(crate) fn memory(_pid: u32) -> Option<u64> {
    None
}

#[cfg(target_os = "linux")]
mod linux {
    use super::Mount;
    use std::fs;
    use std::path::Path;

    /// The last of the longest mount points above a directory: what is mounted later covers what was there.
    pub(super) fn mount_of(directory: &Path, mountinfo: &str) -> Option<Mount> {
        let mut best: Option<(String, &str, &str)> = None;
        for line in mountinfo.lines() {
            let Some((before, after)) = line.split_once(" - ") else { continue };
            let mut before = before.split(' ').skip(2);
            let (Some(device), Some(_root), Some(point)) = (before.next(), before.next(), before.next())
            else {
                continue;
            };
            let point = unescaped(point);
            let longer = best.as_ref().is_none_or(|(longest, _, _)| point.len() >= longest.len());
            if longer && directory.starts_with(&point) {
                best = Some((point, device, after));
            }
        }
        let (point, device, after) = best?;
        let mut after = after.split(' ');
        let (file_system, source) = (after.next()?.to_owned(), unescaped(after.next()?));
        Some(Mount { point, file_system, source, rotational: rotational(device) })
    }

    /// Whether a block device, or the disk that it is a part of, turns. `None` for what is no block device, and for the
    /// disk of a virtual machine: the kernel takes it for one that turns, whatever is behind it.
    fn rotational(device: &str) -> Option<bool> {
        let device = Path::new("/sys/dev/block").join(device).canonicalize().ok()?;
        let disk = if device.join("queue").is_dir() { &device } else { device.parent()? };
        let turns = fs::read_to_string(disk.join("queue/rotational")).ok()?.trim() == "1";
        // Volumes made of disks (LVM, RAID) say what those say.
        let below = fs::read_dir(disk.join("slaves")).into_iter().flatten().flatten();
        let mut all = below.filter_map(|entry| entry.path().canonicalize().ok()).chain([disk.to_owned()]);
        (!turns || !all.any(|disk| is_virtual(&disk))).then_some(turns)
    }

    /// Whether a disk is handed in by a hypervisor (virtio, Xen), by its path under /sys/devices.
    fn is_virtual(disk: &Path) -> bool {
        let path = disk.to_string_lossy();
        path.contains("/virtio") || path.contains("/vbd-")
    }

    /// A field of mountinfo: space, tab, line end and backslash are there as octal numbers.
    fn unescaped(field: &str) -> String {
        field.replace("\\040", " ").replace("\\011", "\t").replace("\\012", "\n").replace("\\134", "\\")
    }

    /// The least memory.max from a process's control group upwards (cgroup v2).
    pub(super) fn group_limit(pid: u32) -> Option<u64> {
        let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).ok()?;
        let path = groups.lines().find_map(|line| line.strip_prefix("0::/"))?;
        Path::new("/sys/fs/cgroup")
            .join(path)
            .ancestors()
            .take_while(|group| group.starts_with("/sys/fs/cgroup"))
            .filter_map(|group| fs::read_to_string(group.join("memory.max")).ok()?.trim().parse().ok())
            .min()
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_nearest_mount_counts() {
            let list = "22 1 999:1 / / rw shared:1 - ext4 /dev/vda rw\n\
                        30 22 999:2 / /data rw - xfs /dev/vdb rw\n\
                        31 22 999:3 / /data rw - xfs /dev/vdc rw\n\
                        32 22 999:4 / /my\\040disk rw shared:2 master:1 - btrfs /dev/vdd rw\n";
            let source = |path: &str| mount_of(Path::new(path), list).unwrap().source;
            assert_eq!(source("/data/pg"), "/dev/vdc");
            assert_eq!(source("/database"), "/dev/vda");
            assert_eq!(source("/my disk/pg"), "/dev/vdd");
            let mount = mount_of(Path::new("/data"), list).unwrap();
            assert_eq!((mount.point.as_str(), mount.file_system.as_str()), ("/data", "xfs"));
            assert_eq!(mount.rotational, None);
        }

        #[test]
        fn disks_of_virtual_machines_say_nothing() {
            assert!(is_virtual(Path::new("/sys/devices/pci0000:00/0000:00:01.0/virtio0/block/vda")));
            assert!(is_virtual(Path::new("/sys/devices/vbd-51712/block/xvda")));
            assert!(!is_virtual(Path::new("/sys/devices/pci0000:00/0000:00:17.0/ata1/host0/block/sda")));
        }
    }
}
