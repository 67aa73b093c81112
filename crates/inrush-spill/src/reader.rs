use crate::directory::{damaged, failed, open_segment, segments};
use crate::scan::{CUT_OFF, NO_CONTENT, NO_HEADER};
use crate::segment::{HEADER, RECORD, Record, Segment, body_crc};
use inrush_core::{Code, Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// One record of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Where it begins.
    pub position: u64,
    /// Where to go on: with this stored as its offset, the record is never read again.
    pub next: u64,
    /// When it was appended, in microseconds since 1970.
    pub time: i64,
    /// What the caller said of it.
    pub meta: Vec<u8>,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

/// Reads the log in order, as far as it is on disk; see [`crate::Spill::reader`]. May live in another thread
/// than the log.
#[derive(Debug)]
pub struct Reader {
    dir: PathBuf,
    synced: Arc<AtomicU64>,
    at: u64,
    open: Option<(File, Segment)>,
}

impl Reader {
    pub(crate) fn new(dir: PathBuf, synced: Arc<AtomicU64>, from: u64) -> Reader {
        Reader { dir, synced, at: from, open: None }
    }

    /// Where the next record begins, or the end of a segment before it.
    pub fn position(&self) -> u64 {
        self.at
    }

    /// The next record, or `None` as long as nothing more is on disk.
    ///
    /// Named as it is used: there is always more to come, so this is no iterator.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Entry>> {
        let Some(record) = self.head()? else { return Ok(None) };
        let Some((file, segment)) = &self.open else { return Ok(None) };
        let entry = self.content(file, segment, &record)?;
        self.at = entry.next;
        Ok(Some(entry))
    }

    /// When the next record was appended.
    pub(crate) fn next_time(&mut self) -> Result<Option<i64>> {
        Ok(self.head()?.map(|record| record.time))
    }

    /// The header of the next record, whose segment is open then.
    fn head(&mut self) -> Result<Option<Record>> {
        loop {
            // What is below was written before: Release in Spill.
            let synced = self.synced.load(Ordering::Acquire);
            if self.at >= synced {
                return Ok(None);
            }
            let Some((file, segment)) = &self.open else {
                self.enter()?;
                continue;
            };
            let len = file.metadata().map_err(|error| failed("read", &self.dir, &error))?.len();
            if self.at - segment.first == len {
                self.open = None;
                self.enter_exactly()?;
                continue;
            }
            return self.header(file, segment, len.min(synced - segment.first)).map(Some);
        }
    }

    /// Opens the segment that has the position.
    fn enter(&mut self) -> Result<()> {
        let first = segments(&self.dir)?.into_iter().rfind(|first| *first <= self.at);
        match first {
            Some(first) => self.enter_at(first),
            None => Err(gone(&self.dir, self.at)),
        }
    }

    /// Opens the segment that begins at the position.
    fn enter_exactly(&mut self) -> Result<()> {
        if !segments(&self.dir)?.contains(&self.at) {
            return Err(damaged(&self.dir, self.at, "a segment is missing"));
        }
        self.enter_at(self.at)
    }

    fn enter_at(&mut self, first: u64) -> Result<()> {
        let (file, segment, _) = open_segment(&self.dir, first, false)?;
        if self.at == first {
            self.at += HEADER;
        }
        if self.at - first < HEADER {
            return Err(no_record(&self.dir, self.at));
        }
        self.open = Some((file, segment));
        Ok(())
    }

    /// Reads the header here; `len` bytes of the file are on disk.
    fn header(&self, file: &File, segment: &Segment, len: u64) -> Result<Record> {
        let offset = self.at - segment.first;
        let mut header = [0; RECORD];
        if offset + RECORD as u64 > len {
            return Err(damaged(&self.dir, self.at, CUT_OFF));
        }
        file.read_exact_at(&mut header, offset).map_err(|error| failed("read", &self.dir, &error))?;
        let record = Record::decode(&header, segment.salt, self.at)
            .ok_or_else(|| damaged(&self.dir, self.at, NO_HEADER))?;
        // Before memory is asked for: a length is not believed beyond the file.
        if offset + record.len() > len {
            return Err(damaged(&self.dir, self.at, CUT_OFF));
        }
        Ok(record)
    }

    fn content(&self, file: &File, segment: &Segment, record: &Record) -> Result<Entry> {
        let body = self.at - segment.first + RECORD as u64;
        let (mut meta, mut bytes) = (vec![0; record.meta as usize], vec![0; record.bytes as usize]);
        file.read_exact_at(&mut meta, body)
            .and_then(|()| file.read_exact_at(&mut bytes, body + u64::from(record.meta)))
            .map_err(|error| failed("read", &self.dir, &error))?;
        if body_crc(&meta, &bytes) != record.body {
            return Err(damaged(&self.dir, self.at, NO_CONTENT));
        }
        Ok(Entry { position: self.at, next: self.at + record.len(), time: record.time, meta, bytes })
    }
}

pub(crate) fn gone(dir: &std::path::Path, position: u64) -> Error {
    Error::new(
        Code::Spill,
        format!("position {position} of the spill log {} has been given back already", dir.display()),
    )
    .hint("The offset in the database is older than the log: was the database restored from a backup?")
}

fn no_record(dir: &std::path::Path, position: u64) -> Error {
    Error::new(Code::Spill, format!("no record of the spill log {} begins at {position}", dir.display()))
}
