use crate::directory::{self, damaged, failed, open_segment};
use crate::reader::{Reader, gone};
use crate::scan::{Window, walk, was_synced};
use crate::segment::{HEADER, MAX_PART, RECORD, Record, Segment, body_crc};
use crate::{Cut, Options, Recovery};
use inrush_core::{Code, Error, Result};
use std::collections::VecDeque;
use std::fs::File;
use std::io::ErrorKind;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::SystemTime;

/// Records up to this are written with one system call, for the price of copying them.
const COPIED: usize = 256 * 1024;

/// Why a record was not appended. The log is as it was.
#[derive(Debug)]
pub enum Refused {
    /// There is no room, by `max_bytes` or on the disk, until something is read and given back.
    Full(Error),
    /// Anything else.
    Failed(Error),
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Error {
        match refused {
            Refused::Full(error) | Refused::Failed(error) => error,
        }
    }
}

/// A log, open for appending. Only one process has it.
#[derive(Debug)]
pub struct Spill {
    dir: PathBuf,
    _lock: File,
    id: [u8; 16],
    max_bytes: u64,
    segment_bytes: u64,
    /// First position and bytes of every segment; the last is written to.
    segments: VecDeque<(u64, u64)>,
    file: File,
    salt: u64,
    synced: Arc<AtomicU64>,
    /// What is below has been given back, or may be.
    trimmed: u64,
    /// A sync failed: what is on disk is not known any more.
    failed: Option<String>,
    buffer: Vec<u8>,
}

impl Spill {
    /// Opens the log in `dir`, which is made if it is not there.
    ///
    /// The torn end that a crash leaves is cut off. Damage of anything that was on disk once is an error, and
    /// nothing is changed then; of older segments only the frame is looked at here, the rest when it is read.
    pub fn open(dir: &Path, options: &Options) -> Result<(Spill, Recovery)> {
        directory::create(dir)?;
        let lock = directory::lock(dir)?;
        let mut firsts = directory::segments(dir)?;
        let known_id = directory::read_id(dir)?;
        let is_new = firsts.is_empty();
        if is_new {
            if known_id.is_some() {
                return Err(Error::new(Code::Spill, format!("the segments of the spill log {} are gone", dir.display()))
                    .hint("Positions would begin anew under an old name. Use another directory, or delete what is left of this one."));
            }
            let segment = Segment { first: 0, salt: salt()?, id: directory::new_id()? };
            directory::create_segment(dir, &segment).map_err(|error| failed("write to", dir, &error))?;
            firsts.push(0);
        }
        let (mut segments, mut id, mut last) = (VecDeque::new(), None, None);
        for &first in &firsts {
            if let Some((first, len)) = segments.back().filter(|(f, len)| f + len != first) {
                return Err(damaged(dir, first + len, "the next segment does not begin here"));
            }
            let (file, segment, len) = open_segment(dir, first, true)?;
            if *id.get_or_insert(segment.id) != segment.id {
                return Err(damaged(dir, first, "a segment is of another log"));
            }
            segments.push_back((first, len));
            last = Some((file, segment, len));
        }
        let (Some(id), Some((file, segment, len))) = (id, last) else {
            return Err(Error::new(Code::Internal, "a spill log without segments"));
        };
        match known_id {
            None => directory::write_id(dir, &id)?,
            Some(known) if known != directory::id_text(&id) => {
                return Err(damaged(
                    dir,
                    segments[0].0,
                    "the segments are of another log than the file id says",
                ));
            }
            Some(_) => {}
        }
        let closed = directory::read_closed(dir)?;
        let (end, cut) = settle(dir, &file, &segment, len, closed)?;
        if let Some(cut) = cut
            && let Some((_, len)) = segments.back_mut()
        {
            *len -= cut.bytes;
        }
        directory::delete_marks(dir)?;
        let oldest = segments[0].0;
        let recovery = Recovery { oldest, end, closed: is_new || closed.is_some(), cut };
        let spill = Spill {
            dir: dir.to_owned(),
            _lock: lock,
            id,
            max_bytes: options.max_bytes,
            segment_bytes: options.segment_bytes.min(options.max_bytes / 4),
            segments,
            file,
            salt: segment.salt,
            synced: Arc::new(AtomicU64::new(end)),
            trimmed: oldest,
            failed: None,
            buffer: Vec::new(),
        };
        Ok((spill, recovery))
    }

    /// The log's name, a UUID: together with a position it says which record is meant, for ever.
    pub fn id(&self) -> String {
        directory::id_text(&self.id)
    }

    /// Position of the oldest byte that is still there.
    pub fn oldest(&self) -> u64 {
        self.segments[0].0
    }

    /// Position behind the last record.
    pub fn end(&self) -> u64 {
        let (first, len) = self.active();
        first + len
    }

    /// Position up to which everything is on disk, and may be acknowledged.
    pub fn synced(&self) -> u64 {
        self.synced.load(Ordering::Acquire)
    }

    /// Bytes of disk taken.
    pub fn usage(&self) -> u64 {
        self.segments.iter().map(|(_, len)| len).sum()
    }

    /// When the oldest record was appended that has not been given back ([`Spill::trim`]), in microseconds
    /// since 1970. `None`: there is none.
    pub fn oldest_time(&self) -> Result<Option<i64>> {
        Reader::new(self.dir.clone(), Arc::clone(&self.synced), self.trimmed).next_time()
    }

    /// Appends a record and gives its positions; the second is where reading goes on behind it. It is not safe
    /// before [`Spill::sync`]: only then may it be acknowledged.
    pub fn append(&mut self, meta: &[u8], bytes: &[u8]) -> Result<Range<u64>, Refused> {
        self.usable().map_err(Refused::Failed)?;
        let size = (RECORD + meta.len() + bytes.len()) as u64;
        let (Ok(meta_len), Ok(bytes_len)) = (part(meta), part(bytes)) else {
            return Err(Refused::Failed(too_long(size)));
        };
        if HEADER + size > self.max_bytes {
            return Err(Refused::Failed(too_long(size)));
        }
        self.make_room(size)?;
        let (first, len) = self.active();
        let position = first + len;
        let record = Record {
            meta: meta_len,
            bytes: bytes_len,
            time: now(),
            synced: self.synced(),
            body: body_crc(meta, bytes),
        };
        let mut buffer = std::mem::take(&mut self.buffer);
        buffer.clear();
        buffer.extend_from_slice(&record.encode(self.salt, position));
        buffer.extend_from_slice(meta);
        let written = if bytes.len() <= COPIED {
            buffer.extend_from_slice(bytes);
            self.file.write_all_at(&buffer, len)
        } else {
            let behind = len + buffer.len() as u64;
            self.file.write_all_at(&buffer, len).and_then(|()| self.file.write_all_at(bytes, behind))
        };
        buffer.shrink_to(2 * COPIED);
        self.buffer = buffer;
        if let Err(error) = written {
            // What was written of it must not be taken for a record, or stand in front of one.
            if let Err(worse) = self.file.set_len(len) {
                self.failed = Some(format!("a half-written record could not be cut off: {worse}"));
            }
            return Err(self.refused("append to", &error));
        }
        self.add(size);
        Ok(position..position + size)
    }

    /// Puts everything that was appended on disk, and says up to where. After an error nothing more can be
    /// appended: the system may have dropped the pages it could not write, and a sync that succeeds later
    /// would say nothing of them.
    pub fn sync(&mut self) -> Result<u64> {
        self.usable()?;
        let end = self.end();
        if self.synced() < end {
            if let Err(error) = self.file.sync_data() {
                self.failed = Some(error.to_string());
                return self.usable().map(|()| end);
            }
            self.synced.store(end, Ordering::Release);
        }
        Ok(end)
    }

    /// Reads from a position on: one where a record begins, or that [`crate::Entry::next`] gave, or
    /// [`Spill::oldest`] for all there is.
    pub fn reader(&self, from: u64) -> Result<Reader> {
        if from < self.oldest() {
            return Err(gone(&self.dir, from));
        }
        if from > self.synced() {
            return Err(Error::new(
                Code::Spill,
                format!(
                    "the spill log {} ends at {}, before position {from}",
                    self.dir.display(),
                    self.synced()
                ),
            )
            .hint(
                "The log is older than the offset in the database: was the directory restored from a backup?",
            ));
        }
        Ok(Reader::new(self.dir.clone(), Arc::clone(&self.synced), from))
    }

    /// Gives back what is below `upto`, by whole segments. To be called when that position is committed in the
    /// database, and nothing below is ever wanted again.
    pub fn trim(&mut self, upto: u64) -> Result<()> {
        if upto > self.synced() {
            let fact = format!("position {upto} of the spill log {} is not there yet", self.dir.display());
            return Err(Error::new(Code::Spill, fact));
        }
        self.trimmed = self.trimmed.max(upto);
        // Half a segment that nobody needs is worth another file.
        if self.active().1 >= self.segment_bytes / 2 {
            return self.renew();
        }
        self.delete()
    }

    /// If all there is has been given back: begins another segment and deletes the last one, however short it is, so
    /// that whoever opens the log does not find again what is done. It costs a few syncs, which is why
    /// [`Spill::trim`] leaves a short one alone; it is for when nothing else is to be done.
    pub fn renew(&mut self) -> Result<()> {
        if self.is_drained() && self.failed.is_none() {
            self.roll().map_err(Error::from)?;
        }
        self.delete()
    }

    /// Closes the log in order: the next to open it then knows where it must end. What was given back is gone then.
    pub fn close(mut self) -> Result<()> {
        self.sync()?;
        let renewed = self.renew();
        // Where a new segment could not be made, the log ends where it did.
        directory::write_closed(&self.dir, self.end())?;
        renewed
    }

    fn active(&self) -> (u64, u64) {
        self.segments[self.segments.len() - 1]
    }

    fn add(&mut self, bytes: u64) {
        if let Some((_, len)) = self.segments.back_mut() {
            *len += bytes;
        }
    }

    fn is_drained(&self) -> bool {
        self.trimmed == self.end() && self.active().1 > HEADER
    }

    fn usable(&self) -> Result<()> {
        match &self.failed {
            None => Ok(()),
            Some(why) => Err(Error::new(
                Code::Spill,
                format!(
                    "the spill log {} takes no more records, as writing failed: {why}",
                    self.dir.display()
                ),
            )
            .hint("What was acknowledged before is kept. See to the disk, then start again.")),
        }
    }

    /// Sees to it that a record of `size` bytes can go into the last segment.
    fn make_room(&mut self, size: u64) -> Result<(), Refused> {
        let (_, len) = self.active();
        let roll = len > HEADER && len + size > self.segment_bytes;
        let needed = size + if roll { HEADER } else { 0 };
        if self.usage() + needed <= self.max_bytes {
            return if roll { self.roll() } else { Ok(()) };
        }
        if !self.is_drained() {
            return Err(self.full());
        }
        // Nothing of it is wanted any more, and yet it takes the room.
        self.roll()?;
        self.delete().map_err(Refused::Failed)?;
        if self.usage() + size <= self.max_bytes { Ok(()) } else { Err(self.full()) }
    }

    fn full(&self) -> Refused {
        Refused::Full(
            Error::new(
                Code::Spill,
                format!(
                    "the spill log {} is full: {} of {} bytes",
                    self.dir.display(),
                    self.usage(),
                    self.max_bytes
                ),
            )
            .hint("It is emptied as soon as the server takes rows again."),
        )
    }

    /// Begins another segment. The last one is on disk before, so that a torn end is only ever in the last.
    fn roll(&mut self) -> Result<(), Refused> {
        let first = self.sync().map_err(Refused::Failed)?;
        let segment = Segment { first, salt: salt().map_err(Refused::Failed)?, id: self.id };
        let file = match directory::create_segment(&self.dir, &segment) {
            Ok(file) => file,
            Err(error) => {
                // It has its name, perhaps for good: appending to the one before would write what it begins with.
                if directory::segment_path(&self.dir, first).exists() {
                    self.failed = Some(format!("a new segment may not be on disk: {error}"));
                }
                return Err(self.refused("add a segment to", &error));
            }
        };
        (self.file, self.salt) = (file, segment.salt);
        self.segments.push_back((first, HEADER));
        self.synced.store(first + HEADER, Ordering::Release);
        Ok(())
    }

    /// Deletes segments of which nothing is wanted, the oldest first.
    fn delete(&mut self) -> Result<()> {
        while self.segments.len() > 1 && self.segments[0].0 + self.segments[0].1 <= self.trimmed {
            directory::delete_segment(&self.dir, self.segments[0].0)?;
            self.segments.pop_front();
        }
        Ok(())
    }

    fn refused(&self, what: &str, error: &std::io::Error) -> Refused {
        let shown = failed(what, &self.dir, error);
        match error.kind() {
            ErrorKind::StorageFull | ErrorKind::QuotaExceeded | ErrorKind::FileTooLarge => {
                Refused::Full(shown)
            }
            _ => Refused::Failed(shown),
        }
    }
}

/// Finds the end of the last segment, cuts off what is torn and puts the rest on disk: it may never have been
/// synced, and is whole all the same.
fn settle(
    dir: &Path,
    file: &File,
    segment: &Segment,
    len: u64,
    closed: Option<u64>,
) -> Result<(u64, Option<Cut>)> {
    let io = |error: std::io::Error| failed("read", dir, &error);
    let mut window = Window::new(file, len);
    let found = walk(&mut window, segment).map_err(io)?;
    let end = segment.first + found.offset;
    if let Some(closed) = closed.filter(|closed| end < *closed) {
        let why =
            found.why.map_or_else(|| format!("it went on to {closed} when it was closed"), str::to_owned);
        return Err(damaged(dir, end, &why));
    }
    if let Some(why) = found.why
        && was_synced(&mut window, segment, found.offset).map_err(io)?
    {
        return Err(damaged(dir, end, why));
    }
    let cut = found.why.map(|_| Cut { position: end, bytes: len - found.offset });
    if cut.is_some() {
        file.set_len(found.offset).map_err(|error| failed("cut", dir, &error))?;
    }
    file.sync_all().map_err(|error| failed("sync", dir, &error))?;
    Ok((end, cut))
}

/// The length of a part of a record.
fn part(bytes: &[u8]) -> Result<u32, ()> {
    if bytes.len() > MAX_PART { Err(()) } else { u32::try_from(bytes.len()).map_err(|_| ()) }
}

fn too_long(size: u64) -> Error {
    Error::new(Code::RecordTooLong, format!("a record of {size} bytes is longer than the spill log may be"))
}

fn salt() -> Result<u64> {
    directory::random().map(u64::from_le_bytes)
}

/// Microseconds since 1970.
fn now() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.map_or(0, |since| i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_a_failed_sync_nothing_is_appended() {
        let dir = tempfile::tempdir().expect("a directory");
        let (mut spill, _) = Spill::open(dir.path(), &Options::default()).expect("a new log");
        let first = spill.append(b"1", b"kept").expect("room");
        spill.sync().expect("a disk");
        spill.append(b"2", b"lost").expect("room");
        // A pipe cannot be synced.
        let (pipe, _other) = std::io::pipe().expect("a pipe");
        let file = std::mem::replace(&mut spill.file, File::from(std::os::fd::OwnedFd::from(pipe)));
        assert!(spill.sync().is_err());
        spill.file = file;
        // The next one would succeed, and must not.
        let error = spill.sync().expect_err("a log that has failed");
        assert!(error.fact().contains("takes no more records"), "{error}");
        assert!(matches!(spill.append(b"3", b""), Err(Refused::Failed(_))));
        assert_eq!(spill.synced(), first.end);
        let mut reader = spill.reader(0).expect("a reader");
        assert_eq!(reader.next().expect("no damage").expect("a record").bytes, b"kept");
        assert_eq!(reader.next().expect("no damage"), None);
    }
}
