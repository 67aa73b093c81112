//! PostgreSQL's COPY text format (copyfromparse.c, CopyReadLineText and CopyReadAttributesText).
//!
//! A backslash makes something of the next byte: a control character, an octal or hexadecimal byte, or the
//! byte itself, also where that is a delimiter or a line end. A field whose raw bytes equal the dialect's
//! `null` is NULL. The line `\.` that ends the data is the business of whoever cuts the input; a `\.`
//! anywhere else is refused.
//!
//! [`TextDecoder`] is the fast path, [`plain::PlainText`] the state machine it must agree with.

pub mod plain;

use crate::scan::Scanner;
use crate::{Decoder, MAX_FIELDS, Step, check_count, encoding, push_unless_null};
use inrush_core::{BadRecord, Code, Eol, Error, Fields, Result, TextDialect};
use std::ops::Range;

const LITERAL_RETURN: &str = "literal carriage return found in data";
const LITERAL_NEWLINE: &str = "literal newline found in data";
const MARKER_CORRUPT: &str = "end-of-copy marker corrupt";
const MARKER_MISPLACED: &str = "end-of-copy marker is not alone on its line";

/// Refuses dialects COPY refuses (copy.c, ProcessCopyOptions). The decoders take any dialect without
/// panicking, but only these mean something.
pub fn check_dialect(dialect: &TextDialect) -> Result<()> {
    let TextDialect { delimiter, null, .. } = dialect;
    let refuse = |fact: &str| Err(Error::new(Code::Usage, fact));
    if !delimiter.is_ascii() || matches!(delimiter, 0 | b'\r' | b'\n') {
        return refuse("the delimiter must be one ASCII character other than a line end");
    }
    if null.contains(['\r', '\n']) {
        return refuse("the null text must not contain a line end");
    }
    // These would be taken for escapes behind a backslash.
    if matches!(delimiter, b'\\' | b'.' | b'a'..=b'z' | b'0'..=b'9') {
        return refuse(
            "the delimiter of the text format must not be a backslash, a dot, a lowercase letter or a digit",
        );
    }
    if null.as_bytes().contains(delimiter) {
        return refuse("the delimiter must not appear in the null text");
    }
    Ok(())
}

/// Decodes COPY text. Fields without a backslash are slices of the chunk; the others are copied.
///
/// A record ends at the line end's last byte that is not escaped, whatever else is wrong with it: with
/// [`Eol::CrLf`] a lone `\n` ends the (refused) record, a lone `\r` does not.
pub struct TextDecoder {
    delimiter: u8,
    null: Vec<u8>,
    eol: Eol,
    expected: Option<usize>,
    limit: usize,
    /// Fields of a record that may be read in one go; `None` if the lines do not allow it.
    simple: Option<usize>,
    scan: Scanner,
    at: usize,
    /// First thing found wrong with the lines of this record, and with what its escapes stand for.
    bad_line: Option<&'static str>,
    bad_bytes: Option<BadRecord>,
}

impl TextDecoder {
    /// `expected_fields` is the number of fields every record must have; `None` takes any number. The
    /// header record is not skipped: whoever cuts the input knows which chunk begins with it.
    pub fn new(dialect: &TextDialect, expected_fields: Option<usize>) -> TextDecoder {
        TextDecoder {
            delimiter: dialect.delimiter,
            null: dialect.null.as_bytes().to_vec(),
            eol: dialect.eol,
            expected: expected_fields,
            limit: expected_fields.unwrap_or(MAX_FIELDS),
            simple: expected_fields.filter(|_| dialect.eol == Eol::Lf),
            scan: Scanner::new([dialect.delimiter, b'\\', b'\n', b'\r', b'\r']),
            at: 0,
            bad_line: None,
            bad_bytes: None,
        }
    }

    /// Adds a field without a backslash. As in CSV, one field beyond the limit is kept and no more.
    #[inline(always)]
    fn push_bare(&self, chunk: &[u8], fields: &mut Fields, range: Range<usize>) {
        if fields.len() > self.limit {
            return;
        }
        push_unless_null(chunk, fields, range, &self.null);
    }

    /// What a line-end byte at `p` means; the next record's start, or `None`: it is refused and the record
    /// goes on.
    #[inline]
    fn line_end(&mut self, chunk: &[u8], p: usize) -> Option<usize> {
        match (self.eol, chunk[p]) {
            (Eol::Lf, b'\n') | (Eol::Cr, b'\r') => Some(p + 1),
            (Eol::CrLf, b'\r') if chunk.get(p + 1) == Some(&b'\n') => {
                self.scan.next(chunk);
                Some(p + 2)
            }
            (Eol::CrLf, b'\n') => {
                self.bad_line.get_or_insert(LITERAL_NEWLINE);
                Some(p + 1)
            }
            (Eol::Lf | Eol::CrLf, _) => {
                self.bad_line.get_or_insert(LITERAL_RETURN);
                None
            }
            (Eol::Cr, _) => {
                self.bad_line.get_or_insert(LITERAL_NEWLINE);
                None
            }
        }
    }

    /// The rest of a field that begins at `start` and has its first backslash at `p`. Gives where the field
    /// ends and, if it is the record's last, where the next record starts.
    fn escaped(
        &mut self,
        chunk: &[u8],
        fields: &mut Fields,
        start: usize,
        mut p: usize,
    ) -> (usize, Option<usize>) {
        let scratch_start = fields.scratch().len();
        let mut run = start;
        let mut check = false;
        let (end, next) = loop {
            match chunk.get(p) {
                None => break (p, Some(p)),
                Some(&byte) if byte == self.delimiter => break (p, None),
                Some(b'\\') => {
                    fields.scratch().extend_from_slice(&chunk[run..p]);
                    if p + 1 == chunk.len() {
                        // A lone backslash at the end of the data stands for nothing, and does not count
                        // for NULL either.
                        run = chunk.len();
                        break (p, Some(chunk.len()));
                    }
                    if chunk[p + 1] == b'.' {
                        self.bad_line.get_or_insert(marker_fact(chunk, p + 2));
                    }
                    let (byte, after, by_number) = unescape(chunk, p + 1);
                    check |= by_number && (byte == 0 || !byte.is_ascii());
                    fields.scratch().push(byte);
                    run = after;
                    self.scan.skip_to(chunk, after);
                }
                Some(b'\n' | b'\r') => {
                    if let Some(next) = self.line_end(chunk, p) {
                        break (p, Some(next));
                    }
                }
                Some(_) => {}
            }
            p = self.scan.next(chunk);
        };
        if run < end {
            fields.scratch().extend_from_slice(&chunk[run..end]);
        }
        let is_null = chunk[start..end] == self.null[..];
        if check && !is_null && self.bad_bytes.is_none() {
            let field = Some(fields.len()).filter(|&field| field < self.limit);
            let value = &fields.scratch()[scratch_start..];
            if let Err(offset) = encoding::check_utf8(value) {
                self.bad_bytes = Some(BadRecord { field, ..encoding::invalid_at(value, offset) });
            }
        }
        if is_null || fields.len() > self.limit {
            fields.scratch().truncate(scratch_start);
        }
        if fields.len() <= self.limit {
            if is_null { fields.push_null() } else { fields.push_scratch(scratch_start) }
        }
        (end, next)
    }
}

/// Says what is wrong with a `\.` that does not end the data; `after` is the byte behind it.
fn marker_fact(chunk: &[u8], after: usize) -> &'static str {
    if matches!(chunk.get(after), Some(b'\n' | b'\r')) { MARKER_MISPLACED } else { MARKER_CORRUPT }
}

/// The byte an escape stands for, where it ends, and whether it was given by its number; `at` is the byte
/// behind the backslash, which exists.
fn unescape(bytes: &[u8], at: usize) -> (u8, usize, bool) {
    let digit = |i: usize, radix: u32| bytes.get(i).and_then(|&b| char::from(b).to_digit(radix));
    let (radix, first, most) = match bytes[at] {
        b'0'..=b'7' => (8, at, 3),
        b'x' if digit(at + 1, 16).is_some() => (16, at + 1, 2),
        b'b' => return (0x08, at + 1, false),
        b'f' => return (0x0c, at + 1, false),
        b'n' => return (b'\n', at + 1, false),
        b'r' => return (b'\r', at + 1, false),
        b't' => return (b'\t', at + 1, false),
        b'v' => return (0x0b, at + 1, false),
        other => return (other, at + 1, false),
    };
    let mut value = 0;
    let mut end = first;
    while end < first + most
        && let Some(digit) = digit(end, radix)
    {
        value = value * radix + digit;
        end += 1;
    }
    // As in the server, the first bit of a three-digit octal number above 377 is lost.
    ((value & 0xff) as u8, end, true)
}

impl Decoder for TextDecoder {
    fn begin(&mut self, _chunk: &[u8]) {
        self.at = 0;
        (self.bad_line, self.bad_bytes) = (None, None);
        self.scan.begin();
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        if self.at >= chunk.len() {
            return None;
        }
        fields.clear();
        let record = self.at;
        let mut start = record;
        let (content, end) = loop {
            let p = self.scan.next(chunk);
            match chunk.get(p) {
                Some(&byte) if byte == self.delimiter => {
                    self.push_bare(chunk, fields, start..p);
                    start = p + 1;
                }
                Some(b'\\') => match self.escaped(chunk, fields, start, p) {
                    (content, Some(next)) => break (content, next),
                    (delimiter, None) => start = delimiter + 1,
                },
                Some(b'\n' | b'\r') => {
                    if let Some(next) = self.line_end(chunk, p) {
                        self.push_bare(chunk, fields, start..p);
                        break (p, next);
                    }
                }
                Some(_) => {}
                None => {
                    self.push_bare(chunk, fields, start..p);
                    break (p, p);
                }
            }
        };
        self.at = end;
        let result = match (self.bad_line.take(), self.bad_bytes.take()) {
            (Some(fact), _) => Err(BadRecord::format(fact)),
            (None, Some(bad)) if self.limit > 0 => Err(bad),
            // A backslash that stands for nothing is a byte nevertheless.
            _ => check_count(fields.len(), self.expected, content == record && chunk[record] != b'\\'),
        };
        if self.limit == 0 {
            fields.clear();
        }
        Some(Step { range: record..end, result })
    }

    #[inline(always)]
    fn simple(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Range<usize>> {
        let record = self.at;
        let (delimiter, null) = (self.delimiter, &self.null);
        self.at = self.scan.simple_record(chunk, record, self.simple?, delimiter, null, fields)?;
        Some(record..self.at)
    }

    fn is_plain(&self) -> bool {
        self.scan.is_plain()
    }
}
