//! Bytes to fields: CSV, PostgreSQL's COPY text and binary, NDJSON. Pure and synchronous: a decoder takes a
//! slice and says how much it used; it opens nothing, waits for nothing and allocates nothing per record.
//!
//! A decoder is given whole chunks, cut at record borders by the source, and walks them record by record.
//! Beside every fast path stands the plain state machine it must agree with; the tests run both.

pub mod binary;
#[cfg(feature = "columnar")]
pub mod columnar;
pub mod csv;
pub mod encoding;
pub mod line;
pub mod ndjson;
mod scan;
pub mod sniff;
pub mod text;

use inrush_core::{BadRecord, Fields};
use std::ops::{ControlFlow, Range};

/// Fields a record may have where no number is expected. A table has at most 1600 columns
/// (MaxHeapAttributeNumber); the bound only keeps a line of nothing but delimiters from filling the memory.
pub const MAX_FIELDS: usize = 1 << 16;

/// One step of a decoder: the bytes of one record and whether its fields could be told apart.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// The record's bytes in the chunk, line end included.
    pub range: Range<usize>,
    /// `Ok`: the fields are filled. `Err`: the record is refused; the fields mean nothing.
    pub result: Result<(), BadRecord>,
}

/// Turns the chunks of one input into records.
///
/// The caller drives: `begin` once per chunk, then `next` with the same bytes until it gives `None`.
/// The ranges of the steps follow each other without gap or overlap and end at the end of the chunk, also
/// where records are bad: a decoder always finds its way to the next record. Bytes that belong to no record
/// (blank lines of NDJSON, the trailer of a binary file) are part of the range of a neighbour; a chunk of
/// nothing else gives no step at all. A bad record never makes a
/// decoder read beyond the chunk, loop or panic, whatever the bytes.
pub trait Decoder: Send {
    /// Starts on a new chunk and forgets the last one.
    fn begin(&mut self, chunk: &[u8]);

    /// Decodes the next record into `fields`, or gives `None` at the end of the chunk.
    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step>;

    /// Decodes record after record, as [`Decoder::next`] does, and gives the fields of each to `take` until it
    /// breaks, a record is refused or the chunk ends. With `watch` it ends before a record of which it does
    /// not know that all its bytes are ASCII, and none is NUL.
    ///
    /// What a record costs beside its fields is most of the time of narrow ones: this is one call for many.
    fn run(&mut self, chunk: &[u8], fields: &mut Fields, watch: bool, take: Take<'_>) -> Run {
        loop {
            // Two ways to the same: the simple one makes no step, of which narrow rows would feel the cost.
            if let Some(range) = self.simple(chunk, fields) {
                if watch && !self.is_plain() {
                    return Run::Unwatched(Step { range, result: Ok(()) });
                }
            } else {
                let Some(step) = self.next(chunk, fields) else { return Run::Ended };
                if watch && !self.is_plain() {
                    return Run::Unwatched(step);
                }
                if step.result.is_err() {
                    return Run::Refused(step);
                }
            }
            if take(fields).is_break() {
                return Run::Broken;
            }
        }
    }

    /// The next record, if it is one that this decoder tells apart faster than [`Decoder::next`] does; it is
    /// good then, and these are its bytes. Otherwise nothing is used up, and the fields mean nothing.
    fn simple(&mut self, _chunk: &[u8], _fields: &mut Fields) -> Option<Range<usize>> {
        None
    }

    /// Whether all bytes up to the end of the last record are known to be ASCII, and none is NUL.
    fn is_plain(&self) -> bool {
        false
    }
}

/// Takes the fields of a record, and says whether more are wanted.
pub type Take<'a> = &'a mut dyn FnMut(&Fields) -> ControlFlow<()>;

/// Why [`Decoder::run`] came to an end.
#[derive(Debug, PartialEq, Eq)]
pub enum Run {
    /// The chunk has no more records.
    Ended,
    /// `take` wanted no more.
    Broken,
    /// This record is refused.
    Refused(Step),
    /// This record was not taken, for there may be bytes in it that are not ASCII, or NUL.
    Unwatched(Step),
}

/// Adds a field that is this range of the chunk, or NULL where its bytes are those of `null`.
#[inline(always)]
fn push_unless_null(chunk: &[u8], fields: &mut Fields, range: Range<usize>, null: &[u8]) {
    if range.len() == null.len() && chunk[range.clone()] == *null {
        fields.push_null();
    } else {
        fields.push_input(range);
    }
}

/// Checks the number of fields of a record, in the words of copyfromparse.c (NextCopyFrom). `empty`: the
/// record has no bytes, which is how a record without any field is written.
fn check_count(found: usize, expected: Option<usize>, empty: bool) -> Result<(), BadRecord> {
    let limit = expected.unwrap_or(MAX_FIELDS);
    let (fact, field) = match expected {
        Some(0) if empty => return Ok(()),
        _ if found > limit || limit == 0 => ("extra data after last expected column".to_owned(), limit),
        Some(expected) if found < expected => (format!("missing data for column {}", found + 1), found),
        _ => return Ok(()),
    };
    Err(BadRecord { field: Some(field), ..BadRecord::format(fact) })
}
