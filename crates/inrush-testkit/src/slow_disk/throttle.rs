//! Control groups whose processes read a device only so often a second, in either version of control groups.

use super::NAME;
use super::mounts::{lives, owner};
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// A control group. Dropping it moves its processes back to the root of its hierarchy and removes it.
#[derive(Debug)]
pub struct Throttle {
    group: PathBuf,
}

/// The hierarchy that can limit I/O.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Hierarchy {
    /// Of its own, for block I/O (version 1).
    Block(PathBuf),
    /// The one for everything (version 2).
    Unified(PathBuf),
}

impl Hierarchy {
    fn find() -> io::Result<Hierarchy> {
        let mounts = fs::read_to_string("/proc/self/mounts")?;
        Hierarchy::of(&mounts).ok_or_else(|| io::Error::other("no control groups for I/O are mounted"))
    }

    /// A controller is in one hierarchy only, and where version 1 has it, version 2 has not.
    fn of(mounts: &str) -> Option<Hierarchy> {
        let fields =
            || mounts.lines().map(|line| line.split(' ').collect::<Vec<_>>()).filter(|words| words.len() > 3);
        let block =
            fields().find(|words| words[2] == "cgroup" && words[3].split(',').any(|one| one == "blkio"));
        if let Some(words) = block {
            return Some(Hierarchy::Block(words[1].into()));
        }
        fields().find(|words| words[2] == "cgroup2").map(|words| Hierarchy::Unified(words[1].into()))
    }

    fn root(&self) -> &Path {
        match self {
            Hierarchy::Block(root) | Hierarchy::Unified(root) => root,
        }
    }
}

impl Throttle {
    /// A group of this name, in which a device (`7:0`) gives so many reads a second.
    pub fn new(name: &str, device: &str, iops: u32) -> io::Result<Throttle> {
        let hierarchy = Hierarchy::find()?;
        let group = hierarchy.root().join(name);
        fs::create_dir(&group).map_err(|e| told("make", &group, &e))?;
        // From here on it is removed, whatever fails.
        let throttle = Throttle { group };
        let (file, line) = match &hierarchy {
            Hierarchy::Block(_) => ("blkio.throttle.read_iops_device", format!("{device} {iops}")),
            Hierarchy::Unified(root) => {
                let control = root.join("cgroup.subtree_control");
                fs::write(&control, "+io").map_err(|e| told("write", &control, &e))?;
                ("io.max", format!("{device} riops={iops}"))
            }
        };
        let file = throttle.group.join(file);
        fs::write(&file, line).map_err(|e| told("write", &file, &e))?;
        Ok(throttle)
    }

    /// Its directory.
    pub fn group(&self) -> &Path {
        &self.group
    }

    /// Moves a process there, and with it what it starts from now on.
    pub fn add(&self, pid: u32) -> io::Result<()> {
        let file = self.group.join("cgroup.procs");
        fs::write(&file, pid.to_string()).map_err(|e| told("write", &file, &e))
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        // Left for the next one to remove.
        let _ = remove(&self.group);
    }
}

/// Removes groups of ours whose process has died.
pub fn clean_up() -> io::Result<()> {
    // Without control groups there are none of ours.
    let Ok(hierarchy) = Hierarchy::find() else { return Ok(()) };
    for entry in fs::read_dir(hierarchy.root())?.flatten() {
        let dead = entry.file_name().to_str().and_then(owner).is_some_and(|pid| !lives(pid));
        if dead {
            remove(&entry.path())?;
        }
    }
    Ok(())
}

/// Removes a group of ours, whose processes go where they came from or, in version 2, to the root.
fn remove(group: &Path) -> io::Result<()> {
    let Some(root) = group.parent() else { return Ok(()) };
    debug_assert!(group.file_name().is_some_and(|name| name.to_string_lossy().starts_with(NAME)));
    for pid in fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default().lines() {
        // One that has just ended is no process any more.
        let _ = fs::write(root.join("cgroup.procs"), pid);
    }
    match fs::remove_dir(group) {
        // Another process has just removed it.
        Err(e) if e.kind() != io::ErrorKind::NotFound => Err(told("remove", group, &e)),
        _ => Ok(()),
    }
}

fn told(what: &str, path: &Path, e: &io::Error) -> io::Error {
    io::Error::new(e.kind(), format!("cannot {what} {}: {e}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hierarchy_is_that_of_block_io() {
        let old = "cgroup /sys/fs/cgroup/unified cgroup2 rw 0 0\n\
            cgroup /sys/fs/cgroup/blkio cgroup rw,nosuid,blkio 0 0\n";
        assert_eq!(Hierarchy::of(old), Some(Hierarchy::Block("/sys/fs/cgroup/blkio".into())));
        let new = "cgroup2 /sys/fs/cgroup cgroup2 rw,nosuid 0 0\n";
        assert_eq!(Hierarchy::of(new), Some(Hierarchy::Unified("/sys/fs/cgroup".into())));
        assert_eq!(Hierarchy::of("/dev/vda / ext4 rw 0 0\n"), None);
    }
}
