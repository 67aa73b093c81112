//! A file system that is another directory, but for the time that reads take.
//!
//! It is the only client of that directory, so the kernel may keep what it knows of names and sizes for as
//! long as it likes, and pages in its cache: reads and read-ahead come here as they would go to a disk.
//! Nothing is delayed but reads. Rights are judged by the kernel (default_permissions).

use super::delay::{Counters, Delay, Read};
use super::nodes::{Nodes, kind_of, path_of};
use fuser::{
    BsdFileFlags, Errno, FileAttr, FileHandle, FileType, Filesystem, FopenFlags, Generation, INodeNo,
    InitFlags, KernelConfig, LockOwner, OpenFlags, RenameFlags, ReplyAttr, ReplyCreate, ReplyData,
    ReplyDirectory, ReplyEmpty, ReplyEntry, ReplyOpen, ReplyStatfs, ReplyWrite, Request, TimeOrNow,
    WriteFlags,
};
use rustix::fs::{
    self as sys, AtFlags, CWD, Dir, FallocateFlags, Gid, Mode, OFlags, Timespec, Timestamps, UTIME_NOW,
    UTIME_OMIT, Uid,
};
use rustix::io::Errno as SysErrno;
use std::collections::HashMap;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

/// How long the kernel may believe what it was told: nobody else changes anything.
const BELIEVED: Duration = Duration::from_secs(86_400);

/// The kernel's default for disks, and what a file system like this one is given at most.
const READ_AHEAD: u32 = 128 << 10;

/// Bytes of a request, which are also 256 pages: the most that the kernel gives without being asked for more.
const REQUEST: u32 = 1 << 20;

/// Requests in flight that nobody waits for: read-ahead, and direct I/O of io_submit.
const BACKGROUND: u16 = 1024;

/// An entry of a directory: its number, its kind, its name.
type Entry = (u64, FileType, OsString);

/// The file system.
#[derive(Debug)]
pub struct Passthrough {
    nodes: Nodes,
    delay: Delay,
    files: Handles<File>,
    /// As they were when they were opened.
    directories: Handles<Vec<Entry>>,
}

/// What is open, by numbers that the kernel is told.
#[derive(Debug)]
struct Handles<T> {
    next: AtomicU64,
    open: Mutex<HashMap<u64, Arc<T>>>,
}

impl<T> Handles<T> {
    fn new() -> Handles<T> {
        Handles { next: AtomicU64::new(1), open: Mutex::default() }
    }

    fn add(&self, it: T) -> FileHandle {
        let number = self.next.fetch_add(1, Relaxed);
        self.open.lock().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(it));
        FileHandle(number)
    }

    fn get(&self, handle: FileHandle) -> Result<Arc<T>, Errno> {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.get(&handle.0).map(Arc::clone).ok_or(Errno::EBADF)
    }

    fn remove(&self, handle: FileHandle) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).remove(&handle.0);
    }
}

impl Passthrough {
    /// Of a directory, reads of which take so long.
    pub fn new(backing: &Path, delay: Duration, counters: &Arc<Counters>) -> io::Result<Passthrough> {
        Ok(Passthrough {
            nodes: Nodes::new(backing)?,
            delay: Delay::start(delay, counters)?,
            files: Handles::new(),
            directories: Handles::new(),
        })
    }

    /// What was just made belongs to who made it, and has the mode that the kernel said, whatever this
    /// process's umask.
    fn made(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: Option<u32>,
    ) -> Result<FileAttr, Errno> {
        let directory = self.nodes.get(parent).map_err(failed)?;
        let (uid, gid) = (Uid::from_raw(req.uid()), Gid::from_raw(req.gid()));
        sys::chownat(&*directory, name, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW).map_err(failed)?;
        if let Some(mode) = mode {
            sys::chmodat(&*directory, name, Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())
                .map_err(failed)?;
        }
        self.nodes.enter(parent, name).map_err(failed)
    }

    fn list(&self, number: INodeNo) -> Result<Vec<Entry>, SysErrno> {
        let directory = self.nodes.get(number)?;
        let mut entries = Vec::new();
        for entry in Dir::read_from(sys::openat(
            &*directory,
            ".",
            OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC,
            Mode::empty(),
        )?)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes()).to_owned();
            entries.push((entry.ino(), kind_of(entry.file_type()), name));
        }
        Ok(entries)
    }
}

fn failed(e: SysErrno) -> Errno {
    Errno::from_i32(e.raw_os_error())
}

/// How a file is opened for the kernel's requests: the kernel has judged the rest, and minds appending
/// itself. Not past the page cache, for that of the backing directory stands for the memory of a device.
fn opening(flags: i32) -> OFlags {
    let kept = OFlags::ACCMODE | OFlags::DSYNC | OFlags::SYNC | OFlags::TRUNC | OFlags::NOATIME;
    (OFlags::from_bits_retain(flags.cast_unsigned()) & kept) | OFlags::CLOEXEC
}

fn moment(time: Option<TimeOrNow>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(TimeOrNow::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(TimeOrNow::SpecificTime(time)) => {
            let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
            let seconds = i64::try_from(since.as_secs()).unwrap_or(i64::MAX);
            Timespec { tv_sec: seconds, tv_nsec: i64::from(since.subsec_nanos()) }
        }
    }
}

/// Answers with `$do`, or with the error of `$result`.
macro_rules! answer {
    ($reply:ident, $result:expr, $value:pat => $do:expr) => {
        match $result {
            Ok($value) => $do,
            Err(e) => $reply.error(e),
        }
    };
}

impl Filesystem for Passthrough {
    fn init(&mut self, _req: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Kernels without one of these are older than the servers that are tested; then reads are less
        // parallel.
        for wanted in [InitFlags::FUSE_ASYNC_READ, InitFlags::FUSE_ASYNC_DIO, InitFlags::FUSE_PARALLEL_DIROPS]
        {
            let _ = config.add_capabilities(wanted);
        }
        let refused = |what: &str| io::Error::other(format!("the kernel does not take {what}"));
        config.set_max_write(REQUEST).map_err(|_| refused("requests of 1 MiB"))?;
        if let Err(most) = config.set_max_readahead(READ_AHEAD) {
            let _ = config.set_max_readahead(most);
        }
        config.set_max_background(BACKGROUND).map_err(|_| refused("so many requests"))?;
        config.set_congestion_threshold(BACKGROUND).map_err(|_| refused("so many requests"))?;
        Ok(())
    }

    fn lookup(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let found = self.nodes.enter(parent, name).map_err(failed);
        answer!(reply, found, attr => reply.entry(&BELIEVED, &attr, Generation(0)));
    }

    fn forget(&self, _req: &Request, ino: INodeNo, nlookup: u64) {
        self.nodes.forget(ino, nlookup);
    }

    fn getattr(&self, _req: &Request, ino: INodeNo, _fh: Option<FileHandle>, reply: ReplyAttr) {
        answer!(reply, self.nodes.stat(ino).map_err(failed), attr => reply.attr(&BELIEVED, &attr));
    }

    fn setattr(
        &self,
        _req: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let change = || {
            let file = self.nodes.get(ino)?;
            if let Some(mode) = mode {
                sys::chmodat(CWD, path_of(&file), Mode::from_raw_mode(mode & 0o7777), AtFlags::empty())?;
            }
            if uid.is_some() || gid.is_some() {
                let (uid, gid) = (uid.map(Uid::from_raw), gid.map(Gid::from_raw));
                sys::chownat(&*file, "", uid, gid, AtFlags::EMPTY_PATH)?;
            }
            if let Some(size) = size {
                let writing =
                    sys::openat(CWD, path_of(&file), OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
                sys::ftruncate(writing, size)?;
            }
            if atime.is_some() || mtime.is_some() {
                let times = Timestamps { last_access: moment(atime), last_modification: moment(mtime) };
                sys::utimensat(CWD, path_of(&file), &times, AtFlags::empty())?;
            }
            self.nodes.stat(ino)
        };
        answer!(reply, change().map_err(failed), attr => reply.attr(&BELIEVED, &attr));
    }

    fn readlink(&self, _req: &Request, ino: INodeNo, reply: ReplyData) {
        let read = || sys::readlinkat(&*self.nodes.get(ino)?, "", Vec::new());
        answer!(reply, read().map_err(failed), target => reply.data(target.as_bytes()));
    }

    fn mkdir(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32, _umask: u32, reply: ReplyEntry) {
        let make = || sys::mkdirat(&*self.nodes.get(parent)?, name, Mode::from_raw_mode(mode & 0o7777));
        let made = make().map_err(failed).and_then(|()| self.made(req, parent, name, Some(mode)));
        answer!(reply, made, attr => reply.entry(&BELIEVED, &attr, Generation(0)));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        // Devices are not for a layer like this one.
        let kind = sys::FileType::from_raw_mode(mode);
        let make = || {
            if !matches!(kind, sys::FileType::RegularFile | sys::FileType::Fifo | sys::FileType::Socket) {
                return Err(SysErrno::PERM);
            }
            sys::mknodat(&*self.nodes.get(parent)?, name, kind, Mode::from_raw_mode(mode & 0o7777), 0)
        };
        let made = make().map_err(failed).and_then(|()| self.made(req, parent, name, Some(mode)));
        answer!(reply, made, attr => reply.entry(&BELIEVED, &attr, Generation(0)));
    }

    fn unlink(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || sys::unlinkat(&*self.nodes.get(parent)?, name, AtFlags::empty());
        answer!(reply, remove().map_err(failed), () => reply.ok());
    }

    fn rmdir(&self, _req: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let remove = || sys::unlinkat(&*self.nodes.get(parent)?, name, AtFlags::REMOVEDIR);
        answer!(reply, remove().map_err(failed), () => reply.ok());
    }

    fn symlink(&self, req: &Request, parent: INodeNo, link_name: &OsStr, target: &Path, reply: ReplyEntry) {
        let make = || sys::symlinkat(target, &*self.nodes.get(parent)?, link_name);
        let made = make().map_err(failed).and_then(|()| self.made(req, parent, link_name, None));
        answer!(reply, made, attr => reply.entry(&BELIEVED, &attr, Generation(0)));
    }

    fn rename(
        &self,
        _req: &Request,
        parent: INodeNo,
        name: &OsStr,
        newparent: INodeNo,
        newname: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        let flags = sys::RenameFlags::from_bits_retain(flags.bits());
        let rename = || {
            let (from, to) = (self.nodes.get(parent)?, self.nodes.get(newparent)?);
            sys::renameat_with(&*from, name, &*to, newname, flags)
        };
        answer!(reply, rename().map_err(failed), () => reply.ok());
    }

    fn link(&self, _req: &Request, ino: INodeNo, newparent: INodeNo, newname: &OsStr, reply: ReplyEntry) {
        let make = || {
            let (file, directory) = (self.nodes.get(ino)?, self.nodes.get(newparent)?);
            sys::linkat(CWD, path_of(&file), &*directory, newname, AtFlags::SYMLINK_FOLLOW)?;
            self.nodes.enter(newparent, newname)
        };
        answer!(reply, make().map_err(failed), attr => reply.entry(&BELIEVED, &attr, Generation(0)));
    }

    fn open(&self, _req: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let open = || {
            let file = self.nodes.get(ino)?;
            sys::openat(CWD, path_of(&file), opening(flags.0), Mode::empty())
        };
        answer!(reply, open().map_err(failed), file => {
            reply.opened(self.files.add(File::from(file)), FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        _umask: u32,
        flags: i32,
        reply: ReplyCreate,
    ) {
        // The kernel has looked, and there was no such name.
        let flags = opening(flags) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
        let create = || {
            let directory = self.nodes.get(parent)?;
            sys::openat(&*directory, name, flags, Mode::from_raw_mode(mode & 0o7777))
        };
        let made =
            create().map_err(failed).and_then(|file| Ok((file, self.made(req, parent, name, Some(mode))?)));
        answer!(reply, made, (file, attr) => {
            let handle = self.files.add(File::from(file));
            reply.created(&BELIEVED, &attr, Generation(0), handle, FopenFlags::FOPEN_KEEP_CACHE);
        });
    }

    fn read(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        size: u32,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        answer!(reply, self.files.get(fh), file => {
            self.delay.push(Read { file, offset, size: size as usize, reply });
        });
    }

    fn write(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let write = || self.files.get(fh)?.write_all_at(data, offset).map_err(Errno::from);
        // No more than a request has.
        answer!(reply, write(), () => reply.written(u32::try_from(data.len()).unwrap_or(u32::MAX)));
    }

    fn release(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _lock_owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        self.files.remove(fh);
        reply.ok();
    }

    fn fsync(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, datasync: bool, reply: ReplyEmpty) {
        let sync = || {
            let file = self.files.get(fh)?;
            if datasync { file.sync_data() } else { file.sync_all() }.map_err(Errno::from)
        };
        answer!(reply, sync(), () => reply.ok());
    }

    fn fallocate(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        offset: u64,
        length: u64,
        mode: i32,
        reply: ReplyEmpty,
    ) {
        let flags = FallocateFlags::from_bits_retain(mode.cast_unsigned());
        let allocate = || sys::fallocate(&*self.files.get(fh)?, flags, offset, length).map_err(failed);
        answer!(reply, allocate(), () => reply.ok());
    }

    fn opendir(&self, _req: &Request, ino: INodeNo, _flags: OpenFlags, reply: ReplyOpen) {
        answer!(reply, self.list(ino).map_err(failed), entries => {
            reply.opened(self.directories.add(entries), FopenFlags::empty());
        });
    }

    fn readdir(&self, _req: &Request, _ino: INodeNo, fh: FileHandle, offset: u64, mut reply: ReplyDirectory) {
        answer!(reply, self.directories.get(fh), entries => {
            let first = usize::try_from(offset).unwrap_or(usize::MAX);
            for (place, (number, kind, name)) in entries.iter().enumerate().skip(first) {
                // The place of the next one, from which the kernel goes on.
                if reply.add(INodeNo(*number), place as u64 + 1, *kind, name) {
                    break;
                }
            }
            reply.ok();
        });
    }

    fn releasedir(
        &self,
        _req: &Request,
        _ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        reply: ReplyEmpty,
    ) {
        self.directories.remove(fh);
        reply.ok();
    }

    fn fsyncdir(&self, _req: &Request, ino: INodeNo, _fh: FileHandle, _datasync: bool, reply: ReplyEmpty) {
        let sync = || {
            let directory = self.nodes.get(ino)?;
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
            sys::fsync(sys::openat(&*directory, ".", flags, Mode::empty())?)
        };
        answer!(reply, sync().map_err(failed), () => reply.ok());
    }

    fn statfs(&self, _req: &Request, _ino: INodeNo, reply: ReplyStatfs) {
        let stat = || sys::fstatvfs(&*self.nodes.get(INodeNo::ROOT)?);
        answer!(reply, stat().map_err(failed), found => {
            let size = |bytes: u64| u32::try_from(bytes).unwrap_or(4096);
            reply.statfs(
                found.f_blocks,
                found.f_bfree,
                found.f_bavail,
                found.f_files,
                found.f_ffree,
                size(found.f_bsize),
                size(found.f_namemax),
                size(found.f_frsize),
            );
        });
    }
}
