//! Mounts of ours, and what is left of those whose process has died.

use super::{NAME, iops_cap, throttle};
use rustix::io::Errno;
use rustix::mount::UnmountFlags;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Something that is mounted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where.
    pub at: PathBuf,
    /// `fuse`, `ext4` ...
    pub file_system: String,
    /// What: a device, or the name that a layer has.
    pub source: String,
}

/// Removes what killed processes have left: layers that nobody answers for, disks with their mounts, files
/// and loop devices, and control groups.
///
/// # Errors
/// If something of that cannot be removed. Nothing happens without root.
pub fn clean_up() -> io::Result<()> {
    static ONE: Mutex<()> = Mutex::new(());
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    for mount in all()?.iter().filter(|one| one.source.starts_with(NAME)) {
        // Of a layer whose process has died: the kernel answers at once, for it has ended the connection.
        if matches!(rustix::fs::statvfs(&mount.at), Err(Errno::NOTCONN)) {
            detach(&mount.at)?;
        }
    }
    iops_cap::clean_up()?;
    throttle::clean_up()
}

/// Unmounts, at once for new callers, and for those inside when they have left.
pub fn detach(at: &Path) -> io::Result<()> {
    match rustix::mount::unmount(at, UnmountFlags::DETACH) {
        // Not mounted (any more).
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(e) => Err(io::Error::other(format!("cannot unmount {}: {e}", at.display()))),
    }
}

/// All that this process sees (proc(5), mounts).
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&fs::read_to_string("/proc/self/mounts")?))
}

fn parse(text: &str) -> Vec<Mount> {
    let line = |line: &str| {
        let mut words = line.split(' ');
        let (source, at, file_system) = (words.next()?, words.next()?, words.next()?);
        Some(Mount { at: plain(at).into(), file_system: file_system.to_owned(), source: source.to_owned() })
    };
    text.lines().filter_map(line).collect()
}

/// Without the octal escapes that the kernel writes for blanks and backslashes.
fn plain(text: &str) -> OsString {
    let (bytes, mut out, mut at) = (text.as_bytes(), Vec::new(), 0);
    while at < bytes.len() {
        let octal = text.get(at + 1..at + 4).and_then(|digits| u8::from_str_radix(digits, 8).ok());
        match octal.filter(|_| bytes[at] == b'\\') {
            Some(byte) => {
                out.push(byte);
                at += 4;
            }
            None => {
                out.push(bytes[at]);
                at += 1;
            }
        }
    }
    OsString::from_vec(out)
}

/// Whether a process of this number lives: a zombie, which nobody has waited for, does not.
pub fn lives(pid: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    // The name, in brackets, may hold anything; the state is behind it (proc(5)).
    let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
    state.is_some_and(|state| state != 'Z' && state != 'X')
}

/// The process that has a thing of this name: `inrush-slow-disk-PID-N`.
pub fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(NAME)?.strip_prefix('-')?.split('-').next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zombies_do_not_live() {
        assert!(lives(std::process::id()));
        let mut child = std::process::Command::new("true").spawn().unwrap();
        let began = std::time::Instant::now();
        while lives(child.id()) && began.elapsed() < std::time::Duration::from_secs(10) {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        assert!(!lives(child.id()));
        child.wait().unwrap();
        assert!(!lives(child.id()));
    }

    #[test]
    fn reads_what_the_kernel_writes() {
        let found = parse("/dev/vda / ext4 rw 0 0\ninrush-slow-disk-7-1 /tmp/a\\040b\\134 fuse rw 0 0\n");
        assert_eq!(found[1].at, Path::new("/tmp/a b\\"));
        assert_eq!((found[1].file_system.as_str(), owner(&found[1].source)), ("fuse", Some(7)));
        assert_eq!(
            (owner("inrush-slow-disk"), owner("/dev/vda"), owner("inrush-slow-disk-x-1")),
            (None, None, None)
        );
    }
}
