//! What the kernel knows of the backing directory: files by their number, each held by a descriptor.
//!
//! A descriptor opened with O_PATH keeps the file whatever it is called by now, so renaming changes nothing
//! here, and a number is not given to another file while the kernel knows it. One for each file that the
//! kernel remembers.

use fuser::{FileAttr, FileType, INodeNo};
use rustix::fs::{AtFlags, CWD, FileType as Kind, Mode, OFlags, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// The files that the kernel knows.
#[derive(Debug)]
pub struct Nodes {
    root: Arc<OwnedFd>,
    /// The backing directory's own number, which the kernel calls [`INodeNo::ROOT`].
    root_number: u64,
    /// Everything is on one device: numbers of files are unique only there.
    device: u64,
    known: Mutex<HashMap<u64, Known>>,
}

#[derive(Debug)]
struct Known {
    file: Arc<OwnedFd>,
    /// How often the kernel was told of it; it forgets so many.
    lookups: u64,
}

impl Nodes {
    /// Of a directory.
    pub fn new(backing: &Path) -> Result<Nodes, Errno> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::openat(CWD, backing, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&root)?;
        let known = Mutex::default();
        Ok(Nodes { root: Arc::new(root), root_number: stat.st_ino, device: stat.st_dev, known })
    }

    /// The file of a number that the kernel was told.
    pub fn get(&self, number: INodeNo) -> Result<Arc<OwnedFd>, Errno> {
        if number == INodeNo::ROOT {
            return Ok(Arc::clone(&self.root));
        }
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.get(&number.0).map(|known| Arc::clone(&known.file)).ok_or(Errno::STALE)
    }

    /// A name in a directory, of which the kernel is told.
    pub fn enter(&self, parent: INodeNo, name: &OsStr) -> Result<FileAttr, Errno> {
        let parent = self.get(parent)?;
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::openat(&*parent, name, flags, Mode::empty())?;
        let stat = rustix::fs::fstat(&file)?;
        if stat.st_dev != self.device {
            return Err(Errno::XDEV);
        }
        let attributes = self.attributes(&stat);
        if attributes.ino != INodeNo::ROOT {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            let node =
                known.entry(attributes.ino.0).or_insert_with(|| Known { file: Arc::new(file), lookups: 0 });
            node.lookups += 1;
        }
        Ok(attributes)
    }

    /// The kernel has forgotten so many of its lookups.
    pub fn forget(&self, number: INodeNo, lookups: u64) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(node) = known.get_mut(&number.0) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 {
                known.remove(&number.0);
            }
        }
    }

    /// Size, owner and the rest of a file.
    pub fn stat(&self, number: INodeNo) -> Result<FileAttr, Errno> {
        let file = self.get(number)?;
        Ok(self.attributes(&rustix::fs::statat(&*file, "", AtFlags::EMPTY_PATH)?))
    }

    /// The same, of an answer of the backing file system.
    fn attributes(&self, stat: &Stat) -> FileAttr {
        let kind = Kind::from_raw_mode(stat.st_mode);
        let own = |number: u64| if number == self.root_number { INodeNo::ROOT } else { INodeNo(number) };
        FileAttr {
            ino: own(stat.st_ino),
            size: stat.st_size.cast_unsigned(),
            blocks: stat.st_blocks.cast_unsigned(),
            atime: time(stat.st_atime, stat.st_atime_nsec),
            mtime: time(stat.st_mtime, stat.st_mtime_nsec),
            ctime: time(stat.st_ctime, stat.st_ctime_nsec),
            crtime: SystemTime::UNIX_EPOCH,
            kind: kind_of(kind),
            #[allow(clippy::cast_possible_truncation)] // of twelve bits
            perm: (stat.st_mode & 0o7777) as u16,
            nlink: u32::try_from(stat.st_nlink).unwrap_or(u32::MAX),
            uid: stat.st_uid,
            gid: stat.st_gid,
            rdev: u32::try_from(stat.st_rdev).unwrap_or(0),
            blksize: 4096,
            flags: 0,
        }
    }
}

/// A path to the file of a descriptor, for calls that take no O_PATH descriptor. It follows no symbolic link
/// of the file's own: those are descriptors, too.
pub fn path_of(file: &OwnedFd) -> PathBuf {
    format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()).into()
}

/// The kind of a file, in the words of the layer.
pub fn kind_of(kind: Kind) -> FileType {
    match kind {
        Kind::Directory => FileType::Directory,
        Kind::Symlink => FileType::Symlink,
        Kind::Fifo => FileType::NamedPipe,
        Kind::Socket => FileType::Socket,
        Kind::CharacterDevice => FileType::CharDevice,
        Kind::BlockDevice => FileType::BlockDevice,
        _ => FileType::RegularFile,
    }
}

fn time(seconds: i64, nanoseconds: u64) -> SystemTime {
    let within = Duration::from_nanos(nanoseconds);
    match u64::try_from(seconds) {
        Ok(seconds) => SystemTime::UNIX_EPOCH + Duration::from_secs(seconds) + within,
        Err(_) => SystemTime::UNIX_EPOCH - Duration::from_secs(seconds.unsigned_abs()) + within,
    }
}
