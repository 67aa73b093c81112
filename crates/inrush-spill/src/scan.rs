//! Walks the records of a segment, and says what the end of one means.

use crate::segment::{HEADER, RECORD, Record, Segment};
use crc32fast::Hasher;
use std::fs::File;
use std::io::Result;
use std::os::unix::fs::FileExt;

/// Why a record is not whole.
pub(crate) const NO_HEADER: &str = "there is no record's header";
pub(crate) const NO_CONTENT: &str = "a record's content is not what was written";
pub(crate) const CUT_OFF: &str = "a record is cut off";

/// A file read through a window, so that small records are not a system call each.
pub(crate) struct Window<'a> {
    file: &'a File,
    /// Bytes of the file that are looked at.
    len: u64,
    start: u64,
    bytes: Vec<u8>,
}

impl<'a> Window<'a> {
    const SIZE: u64 = 256 * 1024;

    pub(crate) fn new(file: &'a File, len: u64) -> Window<'a> {
        Window { file, len, start: 0, bytes: Vec::new() }
    }

    /// The bytes from `offset`, at least one and at most as many as fit; none at the end.
    fn from(&mut self, offset: u64, at_least: u64) -> Result<&[u8]> {
        let end = self.start + self.bytes.len() as u64;
        let wanted = (offset + at_least).min(self.len);
        if offset < self.start || wanted > end {
            let size = Self::SIZE.min(self.len.saturating_sub(offset));
            // At most SIZE.
            #[allow(clippy::cast_possible_truncation)]
            self.bytes.resize(size as usize, 0);
            self.start = offset;
            self.file.read_exact_at(&mut self.bytes, offset)?;
        }
        // Within the window, as was just seen to.
        #[allow(clippy::cast_possible_truncation)]
        Ok(&self.bytes[(offset - self.start) as usize..])
    }

    /// The whole record at `offset`, or why there is none. The offset is before the end.
    fn record(
        &mut self,
        segment: &Segment,
        offset: u64,
    ) -> Result<std::result::Result<Record, &'static str>> {
        let bytes = self.from(offset, RECORD as u64)?;
        let Some(header) = bytes.first_chunk() else { return Ok(Err(CUT_OFF)) };
        let Some(record) = Record::decode(header, segment.salt, segment.first + offset) else {
            return Ok(Err(NO_HEADER));
        };
        let end = offset + record.len();
        if end > self.len {
            return Ok(Err(CUT_OFF));
        }
        let mut at = offset + RECORD as u64;
        let mut hasher = Hasher::new();
        while at < end {
            let bytes = self.from(at, 1)?;
            let n = usize::try_from(end - at).map_or(bytes.len(), |left| left.min(bytes.len()));
            hasher.update(&bytes[..n]);
            at += n as u64;
        }
        Ok(if hasher.finalize() == record.body { Ok(record) } else { Err(NO_CONTENT) })
    }
}

/// Where the whole records of a segment end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct End {
    pub(crate) offset: u64,
    pub(crate) records: u64,
    /// What is there instead of another record, if the file goes on.
    pub(crate) why: Option<&'static str>,
}

/// Reads record after record until the end of the file, or to what is no record.
pub(crate) fn walk(window: &mut Window<'_>, segment: &Segment) -> Result<End> {
    let (mut offset, mut records) = (HEADER, 0);
    while offset < window.len {
        match window.record(segment, offset)? {
            Ok(record) => offset += record.len(),
            Err(why) => return Ok(End { offset, records, why: Some(why) }),
        }
        records += 1;
    }
    Ok(End { offset, records, why: None })
}

/// Whether what should be at `offset` of the last segment was on disk once: whether a record behind it knows
/// that. If none does, nobody was told that it was stored, and what is left of it is the trace of a crash; there
/// may be whole records in it, as pages go to disk in any order.
pub(crate) fn was_synced(window: &mut Window<'_>, segment: &Segment, offset: u64) -> Result<bool> {
    let lost = segment.first + offset;
    let mut at = offset + 1;
    while at + RECORD as u64 <= window.len {
        let header = window.from(at, RECORD as u64)?;
        let known = header.first_chunk().and_then(|h| Record::decode(h, segment.salt, segment.first + at));
        match known {
            None => at += 1,
            Some(_) => match window.record(segment, at)? {
                Ok(record) if record.synced > lost => return Ok(true),
                Ok(record) => at += record.len(),
                Err(_) => at += 1,
            },
        }
    }
    Ok(false)
}
