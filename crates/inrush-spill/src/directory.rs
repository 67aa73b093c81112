//! The directory of a log: names, lock, small files, and what must be synced when.

use crate::segment::{HEADER, Segment};
use inrush_core::{Code, Error, Result};
use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

const LOCK: &str = "LOCK";
const ID: &str = "id";
/// Where the log ended when it was closed in order. Not there while it is open.
const CLOSED: &str = "closed";
/// What is written before it gets its name.
const UNNAMED: &str = "unnamed";

/// An error of the file system.
pub(crate) fn failed(what: &str, path: &Path, error: &std::io::Error) -> Error {
    Error::new(Code::Spill, format!("cannot {what} {}: {error}", path.display()))
}

/// A log whose bytes are not what was written.
pub(crate) fn damaged(dir: &Path, position: u64, why: &str) -> Error {
    Error::new(
        Code::Spill,
        format!("the spill log {} is damaged at position {position}: {why}", dir.display()),
    )
    .hint(format!(
        "Nothing was changed. Keep a copy of {}; what is behind the damage is not read.",
        dir.display()
    ))
}

pub(crate) fn segment_path(dir: &Path, first: u64) -> PathBuf {
    dir.join(format!("{first:016x}.seg"))
}

/// First positions of the segments there are, in order.
pub(crate) fn segments(dir: &Path) -> Result<Vec<u64>> {
    let mut found = Vec::new();
    let entries = std::fs::read_dir(dir).map_err(|error| failed("read", dir, &error))?;
    for entry in entries {
        let name = entry.map_err(|error| failed("read", dir, &error))?.file_name();
        let Some(digits) = name.to_str().and_then(|name| name.strip_suffix(".seg")) else { continue };
        let ours = digits.len() == 16 && digits.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'));
        if let (true, Ok(first)) = (ours, u64::from_str_radix(digits, 16)) {
            found.push(first);
        }
    }
    found.sort_unstable();
    Ok(found)
}

/// A segment's file, what its header says, and its bytes.
pub(crate) type Opened = (File, Segment, u64);

/// Opens a segment and reads its header; the inner error says what is wrong with it.
pub(crate) fn look_at_segment(
    dir: &Path,
    first: u64,
    write: bool,
) -> Result<std::result::Result<Opened, &'static str>> {
    let path = segment_path(dir, first);
    let open = || {
        let file = OpenOptions::new().read(true).write(write).open(&path)?;
        let len = file.metadata()?.len();
        let mut header = [0; HEADER as usize];
        match file.read_exact_at(&mut header, 0) {
            Err(error) if error.kind() != ErrorKind::UnexpectedEof => return Err(error),
            // Not a header's magic: refused below.
            Err(_) => header = [0; HEADER as usize],
            Ok(()) => {}
        }
        Ok((file, header, len))
    };
    let (file, header, len) = open().map_err(|error| failed("open", &path, &error))?;
    Ok(match Segment::decode(&header) {
        Ok(segment) if segment.first != first => Err("a segment has the name of another"),
        Ok(segment) => Ok((file, segment, len)),
        Err(why) => Err(why),
    })
}

/// Opens a segment that must be in order.
pub(crate) fn open_segment(dir: &Path, first: u64, write: bool) -> Result<Opened> {
    look_at_segment(dir, first, write)?.map_err(|why| damaged(dir, first, why))
}

/// Makes a segment, on disk with its name when this returns.
pub(crate) fn create_segment(dir: &Path, segment: &Segment) -> std::io::Result<File> {
    // A file gets its name when its header is whole, so a header that is not is damage and no crash.
    let unnamed = dir.join(UNNAMED);
    let file =
        OpenOptions::new().read(true).write(true).create(true).truncate(true).mode(0o600).open(&unnamed)?;
    let write = || {
        file.write_all_at(&segment.encode(), 0)?;
        file.sync_all()
    };
    if let Err(error) = write() {
        // On a full disk it is in the way; if it stays, the next one overwrites it.
        let _ = std::fs::remove_file(&unnamed);
        return Err(error);
    }
    std::fs::rename(&unnamed, segment_path(dir, segment.first))?;
    sync(dir)?;
    Ok(file)
}

/// Deletes a segment, durably: were two deleted before either is on disk, a crash could bring back the older
/// one alone, and there would be a hole.
pub(crate) fn delete_segment(dir: &Path, first: u64) -> Result<()> {
    let path = segment_path(dir, first);
    std::fs::remove_file(&path).and_then(|()| sync(dir)).map_err(|error| failed("delete", &path, &error))
}

/// Makes names that were given or taken away durable.
pub(crate) fn sync(dir: &Path) -> std::io::Result<()> {
    File::open(dir)?.sync_all()
}

/// Makes the directory if there is none.
pub(crate) fn create(dir: &Path) -> Result<()> {
    match DirBuilder::new().mode(0o700).create(dir) {
        Ok(()) => {
            let parent = dir.parent().filter(|parent| !parent.as_os_str().is_empty());
            sync(parent.unwrap_or(Path::new("."))).map_err(|error| failed("create", dir, &error))
        }
        Err(error) if error.kind() == ErrorKind::AlreadyExists => Ok(()),
        Err(error) => Err(failed("create", dir, &error)),
    }
}

/// Takes the log for this process alone. The lock goes with the file.
pub(crate) fn lock(dir: &Path) -> Result<File> {
    let path = dir.join(LOCK);
    let open = || OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(&path);
    let file = open().map_err(|error| failed("open", &path, &error))?;
    for patience in (0..5).rev() {
        match file.try_lock() {
            Ok(()) => return Ok(file),
            // A check holds it for a moment.
            Err(TryLockError::WouldBlock) if patience > 0 => std::thread::sleep(Duration::from_millis(20)),
            Err(TryLockError::WouldBlock) => break,
            Err(TryLockError::Error(error)) => return Err(failed("lock", &path, &error)),
        }
    }
    Err(Error::new(Code::Spill, format!("the spill log {} is in use by another process", dir.display()))
        .hint("Each process needs a spill directory of its own."))
}

/// Whether a process has the log open.
pub(crate) fn in_use(dir: &Path) -> bool {
    let Ok(lock) = File::open(dir.join(LOCK)) else { return false };
    // A process that has just closed it may have forked: the child keeps the lock until it executes its program.
    (0..3).all(|tried| {
        if tried > 0 {
            std::thread::sleep(Duration::from_millis(5));
        }
        matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock))
    })
}

/// Random bytes of the operating system.
pub(crate) fn random<const N: usize>() -> Result<[u8; N]> {
    let path = Path::new("/dev/urandom");
    let mut bytes = [0; N];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut bytes));
    read.map_err(|error| failed("read", path, &error))?;
    Ok(bytes)
}

/// A random UUID (RFC 9562, version 4).
pub(crate) fn new_id() -> Result<[u8; 16]> {
    let mut id: [u8; 16] = random()?;
    id[6] = id[6] & 0x0f | 0x40;
    id[8] = id[8] & 0x3f | 0x80;
    Ok(id)
}

/// As a UUID is written.
pub(crate) fn id_text(id: &[u8; 16]) -> String {
    let number = u128::from_be_bytes(*id);
    let part = |from: u32, digits: u32| number >> (128 - 4 * (from + digits)) & ((1 << (4 * digits)) - 1);
    format!(
        "{:08x}-{:04x}-{:04x}-{:04x}-{:012x}",
        part(0, 8),
        part(8, 4),
        part(12, 4),
        part(16, 4),
        part(20, 12)
    )
}

/// The text of the file `id`, if there is one.
pub(crate) fn read_id(dir: &Path) -> Result<Option<String>> {
    Ok(read_small(dir, ID)?.map(|text| text.trim().to_owned()))
}

pub(crate) fn write_id(dir: &Path, id: &[u8; 16]) -> Result<()> {
    write_small(dir, ID, &format!("{}\n", id_text(id)))
}

/// Where the log ended, if it was closed in order.
pub(crate) fn read_closed(dir: &Path) -> Result<Option<u64>> {
    let Some(text) = read_small(dir, CLOSED)? else { return Ok(None) };
    let end = text.strip_suffix('\n').filter(|text| text.len() == 16);
    match end.and_then(|text| u64::from_str_radix(text, 16).ok()) {
        Some(end) => Ok(Some(end)),
        None => Err(Error::new(Code::Spill, format!("{} is damaged", dir.join(CLOSED).display()))
            .hint("Delete the file; the log is then read as after a crash.")),
    }
}

pub(crate) fn write_closed(dir: &Path, end: u64) -> Result<()> {
    write_small(dir, CLOSED, &format!("{end:016x}\n"))
}

/// Forgets what is there of an earlier life. Before the first append: a mark that says too little says nothing
/// wrong, but one day it would be read.
pub(crate) fn delete_marks(dir: &Path) -> Result<()> {
    for name in [CLOSED, UNNAMED] {
        let path = dir.join(name);
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed("delete", &path, &error)),
            _ => {}
        }
    }
    sync(dir).map_err(|error| failed("sync", dir, &error))
}

fn read_small(dir: &Path, name: &str) -> Result<Option<String>> {
    let path = dir.join(name);
    let mut text = String::new();
    match File::open(&path).and_then(|file| file.take(100).read_to_string(&mut text)) {
        Ok(_) => Ok(Some(text)),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed("read", &path, &error)),
    }
}

fn write_small(dir: &Path, name: &str, text: &str) -> Result<()> {
    let unnamed = dir.join(UNNAMED);
    let write = || {
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&unnamed)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        std::fs::rename(&unnamed, dir.join(name))?;
        sync(dir)
    };
    write().map_err(|error| failed("write", &dir.join(name), &error))
}
