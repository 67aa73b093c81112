mod header;

use crate::scan::{Scanner, plain};
use crate::{Borders, BufferPool, Input};
use inrush_core::{Chunk, Code, Error, Limits, Result};
use serde::{Deserialize, Serialize};
use std::collections::VecDeque;

/// What the cutter gives next.
#[derive(Debug)]
pub enum Cut {
    /// Whole records, at least one.
    Chunk(Chunk),
    /// A record longer than [`Limits::max_record`]. Its bytes were read to find its end, and dropped.
    TooLong(TooLong),
}

/// A record longer than [`Limits::max_record`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TooLong {
    /// Which input of the load.
    pub input: u32,
    /// Offset of its first byte.
    pub start: u64,
    /// Its length in bytes, line end included.
    pub len: u64,
    /// Line it begins in, from 1.
    pub first_line: u64,
    /// Line ends in it; what a [`DoneRange`] over it must say.
    pub lines: u64,
    /// Its record number, from 1.
    pub record: u64,
    /// Its first bytes, at most 64 KiB.
    pub head: Vec<u8>,
}

/// Bytes of an input that an earlier run has loaded, from one record border to another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DoneRange {
    /// Offset of the first byte.
    pub start: u64,
    /// Offset one past the last byte.
    pub end: u64,
    /// Line ends in it.
    pub lines: u64,
    /// Records in it.
    pub records: u64,
}

/// What followed the marker `\.` that ends COPY text, and was not read as data.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ignored {
    /// Offset of the first ignored byte, after the marker's line end.
    pub start: u64,
    /// How many bytes were ignored.
    pub len: u64,
}

/// Bytes read and scanned at a time: they are still in the processor's cache when they are scanned.
const STEP: usize = 256 << 10;

/// Bytes of the longest marker that ends COPY text, `\.` and CR LF.
const END_MARKER: usize = 4;

/// Bytes kept of a record that is too long.
const HEAD: usize = 64 << 10;

/// Buffers that the cutter's own pool keeps.
const OWN_POOL: usize = 16;

/// Cuts an input into chunks of whole records. Not an iterator: it is not to be asked again after an error.
///
/// Holds one buffer of [`Limits::chunk`] bytes, which grows while a record does not fit, to at most
/// [`Limits::max_record`].
#[derive(Debug)]
pub struct Cutter {
    input: Input,
    number: u32,
    borders: Borders,
    chunk: usize,
    max_record: usize,
    pool: BufferPool,
    header: Option<Vec<u8>>,
    data_start: u64,
    /// Ranges not to deliver, those already passed removed.
    done: VecDeque<DoneRange>,
    scanner: Scanner,
    /// Its first `filled` bytes are input from `start` on; empty while there are none.
    buffer: Vec<u8>,
    filled: usize,
    start: u64,
    /// Line number and record number at `start`.
    line: u64,
    record: u64,
    pending: VecDeque<Cut>,
    ignored: Option<Ignored>,
    /// Whether something was delivered or passed over; too late for ranges then.
    begun: bool,
    finished: bool,
}

/// Why no more bytes go into the buffer.
enum Filled {
    Full,
    /// The next range that is done begins here.
    Range,
    EndOfInput,
    /// The marker came that ends the data.
    Stop,
}

impl Cutter {
    /// A cutter for `input`, which is number `number` of the load and must not have been read from yet.
    ///
    /// A UTF-8 byte order mark is passed over. With `header` the first record is taken off; the header of
    /// COPY binary always is. Fails if that cannot be: see [`Code::Format`], [`Code::Encoding`],
    /// [`Code::RecordTooLong`].
    pub fn new(input: Input, number: u32, borders: Borders, header: bool, limits: &Limits) -> Result<Cutter> {
        let chunk = limits.chunk.max(1);
        let max_record = limits.max_record.clamp(1, Limits::MAX_RECORD_CEILING);
        let mut cutter = Cutter {
            input,
            number,
            borders,
            chunk,
            max_record,
            pool: BufferPool::new(chunk, OWN_POOL),
            header: None,
            data_start: 0,
            done: VecDeque::new(),
            scanner: Scanner::new(borders, max_record < 64),
            buffer: Vec::new(),
            filled: 0,
            start: 0,
            line: 1,
            record: 1,
            pending: VecDeque::new(),
            ignored: None,
            begun: false,
            finished: false,
        };
        if borders == Borders::Binary {
            cutter.take_binary_header()?;
        } else {
            cutter.skip_byte_order_mark()?;
            if header {
                cutter.take_header()?;
            }
        }
        cutter.data_start = cutter.input.position();
        cutter.start = cutter.data_start;
        Ok(cutter)
    }

    /// Takes buffers from `pool` instead of an own one, so that several inputs share them. Chunks are cut to
    /// the pool's size.
    #[must_use]
    pub fn with_pool(mut self, pool: BufferPool) -> Cutter {
        self.chunk = pool.size();
        self.pool = pool;
        self
    }

    /// Where buffers come from, and where to give them back.
    pub fn pool(&self) -> &BufferPool {
        &self.pool
    }

    /// The input.
    pub fn input(&self) -> &Input {
        &self.input
    }

    /// The header as it stands in the input, line end included. `None` if none was asked for, or the input
    /// is empty.
    pub fn header(&self) -> Option<&[u8]> {
        self.header.as_deref()
    }

    /// Offset of the first byte that is data: after byte order mark and header.
    pub fn data_start(&self) -> u64 {
        self.data_start
    }

    /// Bytes after the marker that ended the input, once it came; known when [`Cutter::next`] has given
    /// `None`.
    pub fn ignored(&self) -> Option<Ignored> {
        self.ignored
    }

    /// Does not deliver `ranges`, which an earlier run has loaded: they are passed over in a plain file, and
    /// read and dropped in a stream. Lines and records in them count. To be called before [`Cutter::next`].
    ///
    /// Fails with [`Code::SourceChanged`] if a range ends beyond the end of a plain file; for a stream, and
    /// for a range that does not begin at a record border, [`Cutter::next`] does.
    pub fn skip(&mut self, ranges: Vec<DoneRange>) -> Result<()> {
        if self.begun {
            return Err(Error::new(Code::Internal, "ranges to skip came after the first chunk"));
        }
        let mut end = self.start;
        for range in &ranges {
            if range.start < end || range.end < range.start {
                return Err(Error::new(
                    Code::Internal,
                    format!("range {}..{} to skip is out of order", range.start, range.end),
                )
                .at(self.input.at(range.start)));
            }
            end = range.end;
        }
        if let (true, Some(len)) = (self.input.is_seekable(), self.input.len())
            && end > len
            && !ranges.is_empty()
        {
            return Err(changed(format!("{end} bytes of the input were loaded before, and it has {len}"))
                .at(self.input.at(len)));
        }
        self.done = ranges.into();
        Ok(())
    }

    /// The next chunk or record too long; `None` at the end.
    #[allow(clippy::should_implement_trait)]
    pub fn next(&mut self) -> Result<Option<Cut>> {
        self.begun = true;
        loop {
            if let Some(cut) = self.pending.pop_front() {
                return Ok(Some(cut));
            }
            if self.finished {
                return Ok(None);
            }
            self.pass_done_ranges()?;
            let filled = self.fill()?;
            match filled {
                Filled::Range => {
                    if self.scanner.found().last < self.filled {
                        return Err(changed("what was loaded before does not begin at a record border")
                            .at(self.input.at(self.start + self.filled as u64)));
                    }
                    self.cut(self.filled, false);
                }
                Filled::Full if self.scanner.found().records > 0 => {
                    self.cut(self.scanner.found().last, false);
                }
                Filled::Full => self.grow()?,
                Filled::EndOfInput => self.end()?,
                Filled::Stop => self.stop()?,
            }
        }
    }

    /// Moves over ranges that begin right here.
    fn pass_done_ranges(&mut self) -> Result<()> {
        while let Some(range) = self.done.front()
            && range.start == self.start
            && self.filled == 0
        {
            self.input.skip_to(range.end)?;
            self.start = range.end;
            self.line += range.lines;
            self.record += range.records;
            self.done.pop_front();
        }
        Ok(())
    }

    /// Reads and scans until the buffer is full or there is a reason to stop.
    fn fill(&mut self) -> Result<Filled> {
        if self.buffer.is_empty() {
            self.buffer = self.pool.take();
        }
        loop {
            if self.scanner.found().stop.is_some() {
                return Ok(Filled::Stop);
            }
            let end = self.start + self.filled as u64;
            let mut room = (self.buffer.len() - self.filled).min(STEP);
            if let Some(range) = self.done.front() {
                let before = usize::try_from(range.start - end).unwrap_or(usize::MAX);
                if before == 0 {
                    return Ok(Filled::Range);
                }
                room = room.min(before);
            }
            if room == 0 {
                return Ok(Filled::Full);
            }
            let n = self.input.read(&mut self.buffer[self.filled..self.filled + room])?;
            if n == 0 {
                return Ok(Filled::EndOfInput);
            }
            self.filled += n;
            self.scan()?;
        }
    }

    fn scan(&mut self) -> Result<()> {
        self.scanner.scan(&self.buffer[..self.filled]).map_err(|e| {
            let byte = e.position().and_then(|p| p.byte).unwrap_or(0);
            e.at(self.input.at(self.start + byte))
        })
    }

    /// Delivers the first `end` bytes, all of which are whole records (with `unfinished` the last of them
    /// lacks its end), and carries the rest over into a fresh buffer.
    fn cut(&mut self, end: usize, unfinished: bool) {
        if end == 0 {
            return;
        }
        let found = self.scanner.found();
        let records = found.records + u64::from(unfinished);
        let lines = found.lines + if unfinished { found.lines_after } else { 0 };
        let rest = self.filled - end;
        let mut next = Vec::new();
        if rest > 0 {
            next = self.pool.take();
            // After a record that made the buffer grow, the rest may be longer than a chunk.
            if next.len() < rest {
                next.resize(rest, 0);
            }
            next[..rest].copy_from_slice(&self.buffer[end..self.filled]);
        }
        let mut bytes = std::mem::replace(&mut self.buffer, next);
        bytes.truncate(end);
        self.filled = rest;
        let longest = found.longest.max(if unfinished { end - found.last } else { 0 });
        if longest > self.max_record {
            self.split(&bytes);
            self.pool.give(bytes);
        } else {
            self.pending.push_back(Cut::Chunk(Chunk {
                input: self.number,
                start: self.start,
                first_line: self.line,
                first_record: self.record,
                records,
                lines,
                bytes,
            }));
        }
        self.start += end as u64;
        self.line += lines;
        self.record += records;
        if unfinished {
            self.scanner = Scanner::new(self.borders, self.max_record < 64);
        } else {
            self.scanner.shift();
        }
    }

    /// Queues the records of `bytes` with those that are too long taken out. Rare: only when the chunk size
    /// is above the limit for one record.
    fn split(&mut self, bytes: &[u8]) {
        let (mut line, mut record) = (self.line, self.record);
        let mut at = 0;
        while at < bytes.len() {
            let (chunk_from, chunk_line, chunk_record) = (at, line, record);
            let mut too_long = None;
            while at < bytes.len() && too_long.is_none() {
                let len = plain::first_border(&bytes[at..], self.borders).unwrap_or(bytes.len() - at);
                if len > self.max_record {
                    too_long = Some(len);
                } else {
                    line += self.count_lines(&bytes[at..at + len]);
                    record += 1;
                    at += len;
                }
            }
            if at > chunk_from {
                self.pending.push_back(Cut::Chunk(Chunk {
                    input: self.number,
                    start: self.start + chunk_from as u64,
                    first_line: chunk_line,
                    first_record: chunk_record,
                    records: record - chunk_record,
                    lines: line - chunk_line,
                    bytes: bytes[chunk_from..at].to_vec(),
                }));
            }
            if let Some(len) = too_long {
                let bytes = &bytes[at..at + len];
                let lines = self.count_lines(bytes);
                self.pending.push_back(Cut::TooLong(TooLong {
                    input: self.number,
                    start: self.start + at as u64,
                    len: len as u64,
                    first_line: line,
                    lines,
                    record,
                    head: bytes[..len.min(HEAD)].to_vec(),
                }));
                line += lines;
                record += 1;
                at += len;
            }
        }
    }

    fn count_lines(&self, bytes: &[u8]) -> u64 {
        match self.borders {
            Borders::Binary => 0,
            borders => memchr::memchr_iter(borders.last_byte(), bytes).count() as u64,
        }
    }

    /// Makes room for a record that fills the buffer, or gives it up as too long.
    fn grow(&mut self) -> Result<()> {
        // One byte more than allowed tells a record that just fits from one that does not. A marker that ends
        // the data is none, however short records must be.
        let least = if matches!(self.borders, Borders::Text { .. }) { END_MARKER } else { 1 };
        let most = (self.max_record + 1).max(least);
        if self.filled >= most {
            return self.too_long();
        }
        let len = self.buffer.len().saturating_mul(2).max(64).min(most);
        self.buffer.resize(len.max(self.filled + 1), 0);
        Ok(())
    }

    /// The record that fills the whole buffer is too long: reads on to its end, keeping only its head.
    fn too_long(&mut self) -> Result<()> {
        let mut long = TooLong {
            input: self.number,
            start: self.start,
            len: 0,
            first_line: self.line,
            lines: 0,
            record: self.record,
            head: self.buffer[..self.filled.min(HEAD)].to_vec(),
        };
        // Room for the longest piece that framing needs whole, however small the limits are.
        self.buffer.resize(self.buffer.len().max(64), 0);
        let end = loop {
            let lines = self.scanner.found().lines_after;
            let gone = self.scanner.behead();
            self.buffer.copy_within(gone..self.filled, 0);
            self.filled -= gone;
            self.start += gone as u64;
            long.len += gone as u64;
            long.lines += lines;

            let range_ahead = self.done.front().map(|r| r.start);
            let mut room = self.buffer.len().min(self.filled + STEP) - self.filled;
            if let Some(range) = range_ahead {
                let before = range - self.start - self.filled as u64;
                room = room.min(usize::try_from(before).unwrap_or(usize::MAX));
                if room == 0 {
                    return Err(changed("what was loaded before does not begin at a record border")
                        .at(self.input.at(range)));
                }
            }
            let n = self.input.read(&mut self.buffer[self.filled..self.filled + room])?;
            if n == 0 {
                if self.borders == Borders::Binary {
                    return Err(self.cut_off());
                }
                self.finished = true;
                break self.filled;
            }
            self.filled += n;
            let bytes = &self.buffer[..self.filled];
            if let Some(end) = self.scanner.next_border(bytes) {
                break end;
            }
            self.scan()?;
        };
        long.lines += self.count_lines(&self.buffer[..end]);
        long.len += end as u64;
        self.start += end as u64;
        self.line += long.lines;
        self.record += 1;
        self.buffer.copy_within(end..self.filled, 0);
        self.filled -= end;
        self.scanner = Scanner::new(self.borders, self.max_record < 64);
        self.scan()?;
        self.pending.push_back(Cut::TooLong(long));
        Ok(())
    }

    /// The input is at its end: delivers what is left, the last record with or without its line end.
    fn end(&mut self) -> Result<()> {
        let found = self.scanner.found();
        if self.borders == Borders::Binary && found.last < self.filled {
            if found.records == 0 {
                return Err(self.cut_off());
            }
            // The whole rows first; the next call fails.
            self.cut(found.last, false);
            return Ok(());
        }
        if let Some(range) = self.done.front() {
            return Err(changed(format!(
                "the input ends before byte {}, up to which it was loaded before",
                range.end
            ))
            .at(self.input.at(self.start + self.filled as u64)));
        }
        self.finished = true;
        let tail = &self.buffer[found.last..self.filled];
        // COPY refuses a marker that lacks its line end ("end-of-copy marker corrupt"). There is nothing after
        // it that could be lost, so it is taken for what it is.
        if matches!(self.borders, Borders::Text { .. }) && tail == b"\\." {
            let end = self.start + self.filled as u64;
            self.filled = found.last;
            self.cut(found.last, false);
            self.ignored = Some(Ignored { start: end, len: 0 });
            return Ok(());
        }
        self.cut(self.filled, found.last < self.filled);
        Ok(())
    }

    /// The marker that ends the data came: delivers what is before it.
    fn stop(&mut self) -> Result<()> {
        let found = self.scanner.found();
        let after = self.start + found.stop.unwrap_or(self.filled) as u64;
        let buffered = self.start + self.filled as u64 - after;
        if let Some(range) = self.done.front() {
            return Err(changed(format!(
                "the data ends before byte {}, up to which it was loaded before",
                range.end
            ))
            .at(self.input.at(after)));
        }
        let len = buffered + self.input.drain()?;
        if self.borders == Borders::Binary {
            if len > 0 {
                return Err(Error::new(Code::Format, "received copy data after EOF marker")
                    .at(self.input.at(after))
                    .hint("The file goes on after its trailer; split it into the files it was made of."));
            }
        } else {
            self.ignored = Some(Ignored { start: after, len });
        }
        self.filled = found.last;
        self.cut(found.last, false);
        self.finished = true;
        Ok(())
    }

    fn cut_off(&self) -> Error {
        Error::new(Code::Format, "unexpected EOF in COPY data")
            .at(self.input.at(self.start + self.filled as u64))
            .hint("The file is cut off inside a row; copy or export it again.")
    }
}

fn changed(fact: impl Into<String>) -> Error {
    Error::new(Code::SourceChanged, fact)
        .hint("Resume with the same input, or load this one as a new load with --again.")
}
