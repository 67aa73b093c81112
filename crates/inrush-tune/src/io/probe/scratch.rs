//! The file that is read: random bytes in a file without a name, so that nothing is left whatever happens.

use super::MOST_SCRATCH_BYTES;
use super::budget::{Budget, Halt, LEAST_SCRATCH_BYTES};
use super::order::Random;
use crate::files;
use crate::io::measured::PAGE;
use inrush_core::{Code, Error, Result};
use rustix::fs::{Advice, FallocateFlags, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// Names of scratch files where a file must have one begin with this: PostgreSQL removes such files from pgsql_tmp when it
/// starts, and base backups leave them out (PG_TEMP_FILE_PREFIX, storage/file/fd.c, backup/basebackup.c).
const PREFIX: &str = "pgsql_tmp_inrush_";

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// Alignment of memory that storage writes into: what any device asks for.
const ALIGNMENT: usize = 4096;

/// Random bytes on the storage, and not in the page cache.
#[derive(Debug)]
pub(super) struct Scratch {
    /// Through the page cache.
    file: File,
    /// Past it.
    direct: File,
    pages: u32,
}

impl Scratch {
    /// Writes the file, in the seconds it may take; fewer bytes than asked for where those end first. `wrote` hears the
    /// share that is written, after each MiB, and may end it.
    pub(super) fn create(
        directory: &Path,
        bytes: u64,
        seconds: f64,
        budget: &Budget<'_>,
        wrote: &mut dyn FnMut(f64) -> Result<(), Halt>,
    ) -> Result<Scratch, Halt> {
        // First whether anything can be written at all: room is not what a file system lacks that is read-only.
        let file = open(directory)?;
        let bytes = affordable(directory, bytes)?;
        let direct = reopen(&file, OFlags::DIRECT).map_err(|error| no_direct(directory, &error))?;
        // Known before anything is written whether there is room, and in one piece where it can be.
        match rustix::fs::fallocate(&file, FallocateFlags::empty(), 0, bytes) {
            Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {}
            Err(error) => return Err(unwritable(directory, &error.into()).into()),
        }
        let written = write(directory, &direct, bytes, seconds, budget, wrote)?;
        let failed = |error: io::Error| unwritable(directory, &error);
        file.set_len(written).map_err(failed)?;
        file.sync_all().map_err(failed)?;
        #[allow(clippy::cast_possible_truncation)] // at most 512 MiB
        let scratch = Scratch { file, direct, pages: (written / PAGE) as u32 };
        scratch.drop_cached()?;
        Ok(scratch)
    }

    /// Its size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        u64::from(self.pages) * PAGE
    }

    /// Its size in pages.
    pub(super) fn pages(&self) -> u32 {
        self.pages
    }

    /// For reads past the page cache.
    pub(super) fn direct(&self) -> &File {
        &self.direct
    }

    /// For reads through the page cache, with the state of read-ahead that a file has when it has just been opened.
    pub(super) fn fresh(&self) -> Result<File> {
        reopen(&self.file, OFlags::empty()).map_err(|error| {
            Error::new(Code::SourceOpen, format!("the scratch file cannot be opened again: {error}"))
                .hint("The probe needs /proc; and a file system that lets a removed file be used.")
        })
    }

    /// Drops its pages from the page cache and sees that they are gone.
    pub(super) fn drop_cached(&self) -> Result<()> {
        let began = Instant::now();
        let mut clean = 0;
        loop {
            rustix::fs::fadvise(&self.file, 0, None, Advice::DontNeed).map_err(|error| {
                Error::new(Code::SourceRead, format!("the page cache of a file cannot be dropped: {error}"))
                    .hint("Measure on another file system.")
            })?;
            let resident = self.resident()?;
            // Reads that were on their way hold their pages for as long as they take.
            if resident <= u64::from(self.pages) / 500 {
                clean += 1;
                // An old kernel does not tell of reads that are on their way: look again when they should have come.
                if clean > 1 || cachestat(&self.file, self.bytes()).is_some() {
                    return Ok(());
                }
                std::thread::sleep(Duration::from_millis(5));
                continue;
            }
            if began.elapsed() > Duration::from_secs(1) {
                return Err(Error::new(
                    Code::SourceRead,
                    format!("{resident} of {} pages stay in the page cache", self.pages),
                )
                .hint(
                    "This file system keeps what it was asked to drop, so its storage cannot be measured.",
                ));
            }
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// How many of its pages are in the page cache, with those that are on their way there where the kernel tells
    /// (cachestat(2), since 6.5).
    pub(super) fn resident(&self) -> Result<u64> {
        match cachestat(&self.file, self.bytes()) {
            Some(bytes) => Ok(bytes.div_ceil(PAGE)),
            None => self.mincore(),
        }
    }

    /// The same without those that are on their way.
    fn mincore(&self) -> Result<u64> {
        let (resident, pages) = files::resident_of(&self.file).map_err(|error| {
            Error::new(Code::SourceRead, format!("what is in the page cache cannot be seen: {error}"))
                .hint("Measure on another file system.")
        })?;
        // The kernel's pages may be of another size.
        Ok(resident * u64::from(self.pages) / pages.max(1))
    }
}

/// Bytes of a file in the page cache; `None` where the kernel does not tell.
fn cachestat(file: &File, length: u64) -> Option<u64> {
    /// The number of the call, the same on all processors but Alpha; libc has none for some of them.
    const CACHESTAT: libc::c_long = 451;
    // struct cachestat_range: from where, how long. struct cachestat: pages cached, dirty, being written, evicted, and
    // evicted lately.
    let (range, mut seen) = ([0u64, length], [0u64; 5]);
    // SAFETY: the kernel reads two numbers and writes five, in the form above (linux/mman.h).
    let answer = unsafe {
        libc::syscall(CACHESTAT, file.as_raw_fd(), range.as_ptr(), seen.as_mut_ptr(), 0 as libc::c_uint)
    };
    (answer == 0).then(|| seen[0].saturating_mul(rustix::param::page_size() as u64))
}

/// Memory that storage can write into directly.
#[derive(Debug)]
pub(super) struct Aligned {
    bytes: Vec<u8>,
    from: usize,
    length: usize,
}

impl Aligned {
    /// Of so many bytes, zeroed.
    pub(super) fn new(length: usize) -> Aligned {
        let bytes = vec![0u8; length + ALIGNMENT];
        // Never usize::MAX for bytes outside of const evaluation.
        let from = bytes.as_ptr().align_offset(ALIGNMENT).min(ALIGNMENT);
        Aligned { bytes, from, length }
    }

    /// The bytes.
    pub(super) fn slice(&mut self) -> &mut [u8] {
        &mut self.bytes[self.from..self.from + self.length]
    }
}

/// Bytes that a scratch file may have: one hundredth of what is free.
fn affordable(directory: &Path, wanted: u64) -> Result<u64> {
    let stat = rustix::fs::statvfs(directory).map_err(|error| unwritable(directory, &error.into()))?;
    if stat.f_blocks == 0 {
        let fact = format!("the file system of {} does not tell how much of it is free", directory.display());
        return Err(Error::new(Code::Output, fact).hint(
            "At most one hundredth of the free space is used: name a directory of a file system that tells it.",
        ));
    }
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    let most = wanted.min(MOST_SCRATCH_BYTES).min(free / 100);
    if most < LEAST_SCRATCH_BYTES {
        let fact = format!(
            "a scratch file in {} may have {} of {} free bytes, too few to measure with",
            directory.display(),
            most,
            free
        );
        return Err(Error::new(Code::Output, fact).hint(format!(
            "At most one hundredth of the free space is used, and {} MiB are needed: have at least {} MiB free.",
            LEAST_SCRATCH_BYTES >> 20,
            (LEAST_SCRATCH_BYTES * 100) >> 20
        )));
    }
    Ok(most / CHUNK as u64 * CHUNK as u64)
}

/// A file that goes when its last descriptor does: without a name, or with one that is removed at once.
fn open(directory: &Path) -> Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    match rustix::fs::open(directory, OFlags::TMPFILE | OFlags::RDWR | OFlags::CLOEXEC, mode) {
        Ok(file) => return Ok(file.into()),
        // Kernels that do not know the flag see a directory opened for writing (open(2)).
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL | Errno::NOENT | Errno::NOSYS) => {}
        Err(error) => return Err(unwritable(directory, &error.into())),
    }
    named(directory)
}

/// A file whose name is removed as soon as it is open.
fn named(directory: &Path) -> Result<File> {
    let mode = Mode::RUSR | Mode::WUSR;
    let path = directory.join(name());
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let file: File = match rustix::fs::open(&path, flags, mode) {
        Ok(file) => file.into(),
        Err(error) => return Err(unwritable(directory, &error.into())),
    };
    // Held until the process ends: a leftover is one whose lock is free. Where there are no locks, none is ever taken
    // for a leftover.
    let _ = rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive);
    match fs::remove_file(&path) {
        Ok(()) => Ok(file),
        // Another start took it for a leftover in between, and has done the same.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(file),
        Err(error) => Err(unwritable(directory, &error)),
    }
}

/// Who made it and when that process began: no other has this name.
fn name() -> String {
    let pid = std::process::id();
    // Field 22, counted behind the name of the program, which may contain anything (proc(5), /proc/pid/stat).
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let start = stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().nth(19)).unwrap_or("0");
    format!("{PREFIX}{pid}_{start}")
}

/// Removes what a process has left that died between opening its scratch file and removing the name. What cannot be
/// looked at is left alone.
pub(super) fn clean(directory: &Path) {
    let Ok(entries) = fs::read_dir(directory) else { return };
    for path in entries.flatten().map(|entry| entry.path()).filter(|path| is_name(path)) {
        let flags = OFlags::RDWR | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
        let Ok(file) = rustix::fs::open(&path, flags, Mode::empty()).map(File::from) else { continue };
        let ours = file.metadata().is_ok_and(|metadata| {
            metadata.is_file()
                && metadata.uid() == rustix::process::geteuid().as_raw()
                && metadata.nlink() == 1
        });
        if ours && rustix::fs::flock(&file, FlockOperation::NonBlockingLockExclusive).is_ok() {
            let _ = fs::remove_file(&path);
        }
    }
}

/// Whether a path ends with a name of ours: the prefix, a process and a start.
fn is_name(path: &Path) -> bool {
    let name = path.file_name().and_then(|name| name.to_str());
    let numbers = name.and_then(|name| name.strip_prefix(PREFIX)).and_then(|rest| rest.split_once('_'));
    let digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    numbers.is_some_and(|(pid, start)| digits(pid) && digits(start))
}

/// Another descriptor of the same file with a state of its own, whether the file has a name or not.
fn reopen(file: &File, flags: OFlags) -> io::Result<File> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_raw_fd()));
    Ok(rustix::fs::open(&path, OFlags::RDWR | OFlags::CLOEXEC | flags, Mode::empty())?.into())
}

/// Writes past the page cache: no dirty page is left for others to wait for, and each write is as long as the storage
/// takes for it. Returns how many bytes there are now.
fn write(
    directory: &Path,
    direct: &File,
    bytes: u64,
    seconds: f64,
    budget: &Budget<'_>,
    wrote: &mut dyn FnMut(f64) -> Result<(), Halt>,
) -> Result<u64, Halt> {
    let until = Instant::now() + Duration::from_secs_f64(seconds.clamp(0.0, budget.left_seconds()));
    let mut random = Random::fresh();
    let mut buffer = Aligned::new(CHUNK);
    let mut written = 0;
    while written < bytes && (Instant::now() < until || written < LEAST_SCRATCH_BYTES) {
        budget.check()?;
        random.fill(buffer.slice());
        direct.write_all_at(buffer.slice(), written).map_err(|error| {
            if written == 0 && error.raw_os_error() == Some(libc::EINVAL) {
                no_direct(directory, &error)
            } else {
                unwritable(directory, &error)
            }
        })?;
        written += CHUNK as u64;
        #[allow(clippy::cast_precision_loss)] // a share
        wrote(written as f64 / bytes as f64)?;
    }
    Ok(written)
}

fn unwritable(directory: &Path, error: &io::Error) -> Error {
    let hint = match error.raw_os_error() {
        Some(libc::EACCES | libc::EPERM) => {
            "Run it as the server's account, or name a directory of the same file system that you may write into."
        }
        Some(libc::EROFS) => {
            "The probe writes a scratch file: name a directory of a file system that can be written."
        }
        Some(libc::ENOSPC | libc::EDQUOT | libc::EFBIG) => {
            "The probe writes a scratch file: make room, or name another directory of the same storage."
        }
        _ => "Name a directory of the same storage that a scratch file can be written into.",
    };
    Error::new(Code::Output, format!("no scratch file can be written in {}: {error}", directory.display()))
        .hint(hint)
}

fn no_direct(directory: &Path, error: &io::Error) -> Error {
    let fact =
        format!("the file system of {} has no reads past the page cache: {error}", directory.display());
    Error::new(Code::Output, fact)
        .hint("What its storage can do cannot be told from here: measure inside the database instead.")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::probe::Plan;
    use std::sync::atomic::AtomicBool;

    /// On a disk: what is under target, whichever file system that is.
    fn directory() -> tempfile::TempDir {
        tempfile::Builder::new().prefix("scratch-").tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap()
    }

    fn create(directory: &Path, bytes: u64) -> Result<Scratch, Halt> {
        let ended = AtomicBool::new(false);
        let budget = Budget::new(&Plan::new(directory), 0, &ended);
        Scratch::create(directory, bytes, 10.0, &budget, &mut |_| Ok(()))
    }

    #[test]
    fn the_file_is_random_cold_and_has_no_name() {
        let directory = directory();
        let scratch = create(directory.path(), 9 << 20).unwrap();
        assert_eq!((scratch.bytes(), scratch.pages()), (9 << 20, 9 << 7));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        assert_eq!(scratch.resident().unwrap(), 0);
        let mut bytes = vec![0; 1 << 20];
        let file = scratch.fresh().unwrap();
        file.read_exact_at(&mut bytes, 3 << 20).unwrap();
        assert!(scratch.resident().unwrap() >= 128 && scratch.mincore().unwrap() >= 128);
        // Every value about as often as the others: nothing to compress.
        let mut counts = [0u32; 256];
        bytes.iter().for_each(|byte| counts[usize::from(*byte)] += 1);
        assert!(counts.iter().all(|count| (3500..4700).contains(count)), "{counts:?}");
        scratch.drop_cached().unwrap();
        assert_eq!((scratch.resident().unwrap(), scratch.mincore().unwrap()), (0, 0));
        // Direct reads leave nothing behind.
        let mut page = Aligned::new(8192);
        scratch.direct().read_exact_at(page.slice(), 8192).unwrap();
        assert!(page.slice().iter().any(|byte| *byte != 0));
        assert_eq!(scratch.resident().unwrap(), 0);
    }

    #[test]
    fn leftovers_are_removed_if_they_are_ours_and_nobody_holds_them() {
        let directory = directory();
        let path = |name: &str| directory.path().join(name);
        for name in
            ["pgsql_tmp_inrush_999999_5", "pgsql_tmp_inrush_1_2x", "pgsql_tmp1.1", "pgsql_tmp_inrush_7_7"]
        {
            fs::write(path(name), "left").unwrap();
        }
        fs::create_dir(path("pgsql_tmp_inrush_3_3")).unwrap();
        fs::write(path("linked"), "twice").unwrap();
        fs::hard_link(path("linked"), path("pgsql_tmp_inrush_5_5")).unwrap();
        let pipe = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, path("pgsql_tmp_inrush_6_6"), pipe, Mode::RUSR | Mode::WUSR, 0)
            .unwrap();
        std::os::unix::fs::symlink(path("pgsql_tmp1.1"), path("pgsql_tmp_inrush_4_4")).unwrap();
        let held = File::open(path("pgsql_tmp_inrush_7_7")).unwrap();
        rustix::fs::flock(&held, FlockOperation::NonBlockingLockExclusive).unwrap();
        clean(directory.path());
        let mut left: Vec<String> = fs::read_dir(directory.path())
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        left.sort();
        assert_eq!(
            left,
            [
                "linked",
                "pgsql_tmp1.1",
                "pgsql_tmp_inrush_1_2x",
                "pgsql_tmp_inrush_3_3",
                "pgsql_tmp_inrush_4_4",
                "pgsql_tmp_inrush_5_5",
                "pgsql_tmp_inrush_6_6",
                "pgsql_tmp_inrush_7_7"
            ]
        );
        drop(held);
        clean(directory.path());
        assert!(!path("pgsql_tmp_inrush_7_7").exists());
    }

    #[test]
    fn a_file_that_had_a_name_works_without_it() {
        let directory = directory();
        let file = named(directory.path()).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
        file.write_all_at(b"abc", 0).unwrap();
        let mut again = [0; 3];
        reopen(&file, OFlags::empty()).unwrap().read_exact_at(&mut again, 0).unwrap();
        assert_eq!(&again, b"abc");
        // Held as long as the process lives: what another one sees.
        let other = reopen(&file, OFlags::empty()).unwrap();
        assert!(rustix::fs::flock(&other, FlockOperation::NonBlockingLockExclusive).is_err());
    }

    #[test]
    fn our_names_are_known() {
        assert!(is_name(Path::new("/x").join(name()).as_path()), "{}", name());
        assert!(!is_name(Path::new("/x/pgsql_tmp_inrush_1_")));
        assert!(!is_name(Path::new("/x/pgsql_tmp12.0")));
    }

    #[test]
    fn what_cannot_be_written_is_said_with_advice() {
        let error = match create(Path::new("/proc"), 9 << 20) {
            Err(Halt::Failed(error)) => error,
            other => panic!("{other:?}"),
        };
        assert_eq!(error.code(), Code::Output);
        assert!(error.hint_text().is_some());
        // One hundredth of the free space, never more than asked for.
        let directory = directory();
        assert_eq!(affordable(directory.path(), (9 << 20) + 5).unwrap(), 9 << 20);
        assert!(affordable(directory.path(), 1 << 20).unwrap_err().hint_text().is_some());
    }
}
