//! PostgreSQL's COPY binary format (copyfromparse.c, ReceiveCopyBinaryHeader and the binary part of
//! NextCopyFrom): a header, tuples of length-prefixed fields in the types' send format, a trailer.
//!
//! Nothing in a tuple tells where the next one begins but its lengths, so after one wrong length or count
//! there is no way back: the rest of the chunk is one refused record, and says so.

use crate::{Decoder, Step};
use inrush_core::{BadRecord, Code, Error, Fields, Result};

/// The first bytes of every file. The odd ones show a transfer that changed line ends or the eighth bit.
pub const SIGNATURE: [u8; 11] = *b"PGCOPY\n\xff\r\n\0";

/// The field count that ends the tuples.
const TRAILER: [u8; 2] = (-1i16).to_be_bytes();

const LOST: &str = "; nothing behind this point of a binary file can be told apart";
const CUT_OFF: &str = "unexpected EOF in COPY data";

/// Reads the header of a COPY binary file. `Ok(Some(n))`: the tuples begin at byte `n`. `Ok(None)`: `head`
/// is too short to tell.
pub fn read_header(head: &[u8]) -> Result<Option<usize>> {
    let refuse = |fact: &str| Err(Error::new(Code::Format, fact));
    let known = head.len().min(SIGNATURE.len());
    if head[..known] != SIGNATURE[..known] {
        return refuse("COPY file signature not recognized");
    }
    let word = |at: usize| head.get(at..).and_then(|tail| tail.first_chunk()).map(|b| i32::from_be_bytes(*b));
    let Some(flags) = word(SIGNATURE.len()) else { return Ok(None) };
    if flags & (1 << 16) != 0 {
        return refuse("invalid COPY file header (WITH OIDS)");
    }
    if flags >> 16 != 0 {
        return refuse("unrecognized critical flags in COPY file header");
    }
    let Some(extension) = word(SIGNATURE.len() + 4) else { return Ok(None) };
    let Ok(extension) = usize::try_from(extension) else {
        return refuse("invalid COPY file header (missing length)");
    };
    let len = SIGNATURE.len() + 8 + extension;
    Ok((head.len() >= len).then_some(len))
}

/// Decodes the tuples of a COPY binary file, the header already taken off. Fields are the raw bytes of the
/// types' send format.
///
/// The trailer at the end of the last chunk belongs to the range of the last tuple. Its absence is not
/// noticed here, as the server does not mind it either.
pub struct BinaryDecoder {
    expected: Option<usize>,
    at: usize,
}

impl BinaryDecoder {
    /// `expected_fields` is the number of fields every tuple must have; `None` takes any number.
    pub fn new(expected_fields: Option<usize>) -> BinaryDecoder {
        BinaryDecoder { expected: expected_fields, at: 0 }
    }

    /// Reads the tuple at `self.at`; gives where it ends.
    fn tuple(&self, chunk: &[u8], fields: &mut Fields) -> Result<usize, BadRecord> {
        let tail = &chunk[self.at..];
        let Some((count, _)) = tail.split_first_chunk::<2>() else { return Err(lost(CUT_OFF, None)) };
        if *count == TRAILER {
            return Err(lost("received copy data after EOF marker", None));
        }
        let count = i16::from_be_bytes(*count);
        let fits =
            usize::try_from(count).is_ok_and(|count| self.expected.is_none_or(|expected| count == expected));
        if !fits {
            let expected = self.expected.map_or("at least 0".to_owned(), |expected| expected.to_string());
            return Err(lost(&format!("row field count is {count}, expected {expected}"), None));
        }
        let mut at = self.at + 2;
        for _ in 0..count {
            let cut_off = || lost(CUT_OFF, Some(fields.len()));
            let Some((len, _)) = chunk[at..].split_first_chunk::<4>() else { return Err(cut_off()) };
            at += 4;
            match (i32::from_be_bytes(*len), usize::try_from(i32::from_be_bytes(*len))) {
                (-1, _) => fields.push_null(),
                (_, Err(_)) => return Err(lost("invalid field size", Some(fields.len()))),
                (_, Ok(len)) if len > chunk.len() - at => return Err(cut_off()),
                (_, Ok(len)) => {
                    fields.push_input(at..at + len);
                    at += len;
                }
            }
        }
        Ok(at)
    }
}

fn lost(fact: &str, field: Option<usize>) -> BadRecord {
    BadRecord { field, ..BadRecord::format(format!("{fact}{LOST}")) }
}

impl Decoder for BinaryDecoder {
    fn begin(&mut self, chunk: &[u8]) {
        self.at = if chunk == TRAILER { chunk.len() } else { 0 };
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        if self.at >= chunk.len() {
            return None;
        }
        fields.clear();
        let start = self.at;
        let (end, result) = match self.tuple(chunk, fields) {
            Ok(end) if chunk[end..] == TRAILER => (chunk.len(), Ok(())),
            Ok(end) => (end, Ok(())),
            Err(bad) => (chunk.len(), Err(bad)),
        };
        self.at = end;
        Some(Step { range: start..end, result })
    }
}
