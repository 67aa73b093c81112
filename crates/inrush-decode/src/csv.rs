//! CSV as PostgreSQL's COPY reads it (copyfromparse.c, CopyReadLineText and CopyReadAttributesCSV).
//!
//! A quote may open and close anywhere in a field. Inside quotes the escape takes away the meaning of a
//! following quote or escape and is an ordinary byte before anything else. A field without any quote that
//! equals the dialect's `null` is NULL. `\.` is ordinary data, as since PostgreSQL 18.
//!
//! [`CsvDecoder`] is the fast path, [`plain::PlainCsv`] the state machine it must agree with.

pub mod plain;

use crate::scan::Scanner;
use crate::{Decoder, MAX_FIELDS, Step, push_unless_null};
use inrush_core::{BadRecord, Code, CsvDialect, Eol, Error, Fields, Result};
use std::ops::Range;

const UNQUOTED_RETURN: &str = "unquoted carriage return found in data";
const UNQUOTED_NEWLINE: &str = "unquoted newline found in data";
const UNTERMINATED: &str = "unterminated CSV quoted field";

/// Refuses dialects COPY refuses (copy.c, ProcessCopyOptions). The decoders take any dialect without
/// panicking, but only these mean something.
pub fn check_dialect(dialect: &CsvDialect) -> Result<()> {
    let CsvDialect { delimiter, quote, escape, null, .. } = dialect;
    let refuse = |fact: &str| Err(Error::new(Code::Usage, fact));
    for (name, byte) in [("delimiter", delimiter), ("quote", quote), ("escape", escape)] {
        if !byte.is_ascii() || matches!(byte, 0 | b'\r' | b'\n') {
            return refuse(&format!("the {name} must be one ASCII character other than a line end"));
        }
    }
    if null.contains(['\r', '\n']) {
        return refuse("the null text must not contain a line end");
    }
    if delimiter == quote {
        return refuse("delimiter and quote must be different");
    }
    if null.as_bytes().contains(delimiter) {
        return refuse("the delimiter must not appear in the null text");
    }
    if null.as_bytes().contains(quote) {
        return refuse("the quote must not appear in the null text");
    }
    Ok(())
}

/// The dialect, laid out for the decoders.
#[derive(Debug, Clone)]
struct Rules {
    delimiter: u8,
    quote: u8,
    escape: u8,
    null: Vec<u8>,
    eol: Eol,
    /// Whether any field is in `force_null` or `force_not_null`; both are looked at only then.
    forced: bool,
    force_null: Vec<bool>,
    force_not_null: Vec<bool>,
    expected: Option<usize>,
}

impl Rules {
    fn new(dialect: &CsvDialect, expected: Option<usize>) -> Rules {
        Rules {
            delimiter: dialect.delimiter,
            quote: dialect.quote,
            escape: dialect.escape,
            null: dialect.null.as_bytes().to_vec(),
            eol: dialect.eol,
            forced: !(dialect.force_null.is_empty() && dialect.force_not_null.is_empty()),
            force_null: flags(&dialect.force_null),
            force_not_null: flags(&dialect.force_not_null),
            expected,
        }
    }

    fn forces_null(&self, field: usize) -> bool {
        self.force_null.get(field).copied().unwrap_or(false)
    }

    fn forces_not_null(&self, field: usize) -> bool {
        self.force_not_null.get(field).copied().unwrap_or(false)
    }
}

fn flags(numbers: &[usize]) -> Vec<bool> {
    let mut flags = vec![false; numbers.iter().filter(|&&n| n < MAX_FIELDS).max().map_or(0, |max| max + 1)];
    for &n in numbers.iter().filter(|&&n| n < MAX_FIELDS) {
        flags[n] = true;
    }
    flags
}

/// Decodes CSV. Fields are slices of the chunk wherever their bytes stand there as they are; only fields
/// with escapes, or with quotes elsewhere than around the whole, are copied.
///
/// A record ends at the line end's last byte outside quotes, whatever else is wrong with it: with
/// [`Eol::CrLf`] a lone `\n` ends the (refused) record, a lone `\r` does not.
pub struct CsvDecoder {
    rules: Rules,
    scan: Scanner,
    at: usize,
    limit: usize,
    /// Fields of a record that may be read in one go; `None` if the rules do not allow it.
    simple: Option<usize>,
    /// First thing found wrong with the lines of this record.
    bad: Option<&'static str>,
}

/// What stands behind a field.
enum After {
    Delimiter { next: usize },
    Record { content: usize, next: usize },
    Unterminated,
}

impl CsvDecoder {
    /// `expected_fields` is the number of fields every record must have; `None` takes any number (for a
    /// header, or a look at the file). The header record is not skipped: whoever cuts the input knows
    /// which chunk begins with it.
    pub fn new(dialect: &CsvDialect, expected_fields: Option<usize>) -> CsvDecoder {
        let rules = Rules::new(dialect, expected_fields);
        // An escape other than the quote only matters inside quotes, but must be seen there.
        let scan = Scanner::new([rules.delimiter, rules.quote, b'\n', b'\r', rules.escape]);
        let simple = expected_fields.filter(|_| rules.eol == Eol::Lf && !rules.forced);
        CsvDecoder { limit: expected_fields.unwrap_or(MAX_FIELDS), simple, rules, scan, at: 0, bad: None }
    }

    /// Whether one more field is kept. One beyond the limit shows that there are too many; the others are
    /// not kept, or a record of nothing but delimiters would take many times its own size.
    #[inline(always)]
    fn has_room(&self, fields: &Fields) -> bool {
        fields.len() <= self.limit
    }

    /// Adds a field without quotes.
    #[inline(always)]
    fn push_bare(&self, chunk: &[u8], fields: &mut Fields, range: Range<usize>) {
        if self.rules.forced {
            return self.push_forced(chunk, fields, range, false);
        }
        if !self.has_room(fields) {
            return;
        }
        push_unless_null(chunk, fields, range, &self.rules.null);
    }

    /// Adds a field with regard to `force_null` and `force_not_null` (copyfromparse.c, NextCopyFrom).
    fn push_forced(&self, chunk: &[u8], fields: &mut Fields, range: Range<usize>, quoted: bool) {
        if !self.has_room(fields) {
            return;
        }
        let field = fields.len();
        let is_null = chunk[range.clone()] == self.rules.null[..]
            && if quoted { self.rules.forces_null(field) } else { !self.rules.forces_not_null(field) };
        if is_null { fields.push_null() } else { fields.push_input(range) }
    }

    /// What a line-end byte at `p`, outside quotes, means; `None`: it is refused and the record goes on.
    #[inline]
    fn line_end(&mut self, chunk: &[u8], p: usize) -> Option<After> {
        match (self.rules.eol, chunk[p]) {
            (Eol::Lf, b'\n') | (Eol::Cr, b'\r') => Some(After::Record { content: p, next: p + 1 }),
            (Eol::CrLf, b'\r') if chunk.get(p + 1) == Some(&b'\n') => {
                self.scan.next(chunk);
                Some(After::Record { content: p, next: p + 2 })
            }
            (Eol::CrLf, b'\n') => {
                self.bad.get_or_insert(UNQUOTED_NEWLINE);
                Some(After::Record { content: p, next: p + 1 })
            }
            (Eol::Lf | Eol::CrLf, _) => {
                self.bad.get_or_insert(UNQUOTED_RETURN);
                None
            }
            (Eol::Cr, _) => {
                self.bad.get_or_insert(UNQUOTED_NEWLINE);
                None
            }
        }
    }

    /// The rest of a field that begins at `start` and has its first quote at `open`.
    fn quoted(&mut self, chunk: &[u8], fields: &mut Fields, start: usize, open: usize) -> After {
        let (quote, escape) = (self.rules.quote, self.rules.escape);
        if open == start {
            // The common case first: quotes around the whole field and nothing special inside.
            let mut close = self.scan.next(chunk);
            while close < chunk.len() && chunk[close] != quote && chunk[close] != escape {
                close = self.scan.next(chunk);
            }
            if chunk.get(close) == Some(&quote) {
                let ends = match chunk.get(close + 1) {
                    None => Some(After::Record { content: close + 1, next: close + 1 }),
                    Some(&b) if b == self.rules.delimiter => {
                        self.scan.next(chunk);
                        Some(After::Delimiter { next: close + 2 })
                    }
                    // Behind the last field, where the lines end as they should.
                    Some(b'\n') if self.rules.eol == Eol::Lf => {
                        self.scan.next(chunk);
                        Some(After::Record { content: close + 1, next: close + 2 })
                    }
                    Some(b'\r') if self.rules.eol == Eol::CrLf && chunk.get(close + 2) == Some(&b'\n') => {
                        self.scan.next(chunk);
                        self.scan.next(chunk);
                        Some(After::Record { content: close + 1, next: close + 3 })
                    }
                    Some(_) => None,
                };
                if let Some(after) = ends {
                    if self.rules.forced {
                        self.push_forced(chunk, fields, open + 1..close, true);
                    } else if self.has_room(fields) {
                        fields.push_input(open + 1..close);
                    }
                    return after;
                }
            }
            return self.unescape(chunk, fields, start, open, close);
        }
        let first = self.scan.next(chunk);
        self.unescape(chunk, fields, start, open, first)
    }

    /// The general case: copies the field to the scratch space without its quotes and escapes. `p` is the
    /// first byte behind `open` that may matter; everything before is data.
    #[inline(never)]
    fn unescape(
        &mut self,
        chunk: &[u8],
        fields: &mut Fields,
        start: usize,
        open: usize,
        mut p: usize,
    ) -> After {
        let Rules { delimiter, quote, escape, .. } = self.rules;
        let scratch_start = fields.scratch().len();
        fields.scratch().extend_from_slice(&chunk[start..open]);
        let mut run = open + 1;
        let mut in_quotes = true;
        let after = loop {
            let Some(&byte) = chunk.get(p) else {
                if in_quotes {
                    return After::Unterminated;
                }
                break After::Record { content: p, next: p };
            };
            if in_quotes {
                let escaped = chunk.get(p + 1).copied().filter(|&b| b == escape || b == quote);
                if let (true, Some(next)) = (byte == escape, escaped) {
                    fields.scratch().extend_from_slice(&chunk[run..p]);
                    fields.scratch().push(next);
                    run = p + 2;
                    self.scan.next(chunk);
                } else if byte == quote {
                    fields.scratch().extend_from_slice(&chunk[run..p]);
                    run = p + 1;
                    in_quotes = false;
                }
            } else if byte == delimiter {
                break After::Delimiter { next: p + 1 };
            } else if byte == quote {
                fields.scratch().extend_from_slice(&chunk[run..p]);
                run = p + 1;
                in_quotes = true;
            } else if (byte == b'\n' || byte == b'\r')
                && let Some(after) = self.line_end(chunk, p)
            {
                break after;
            }
            p = self.scan.next(chunk);
        };
        fields.scratch().extend_from_slice(&chunk[run..p]);
        let is_null =
            self.rules.forces_null(fields.len()) && fields.scratch()[scratch_start..] == self.rules.null[..];
        if is_null || !self.has_room(fields) {
            fields.scratch().truncate(scratch_start);
        }
        if self.has_room(fields) {
            if is_null { fields.push_null() } else { fields.push_scratch(scratch_start) }
        }
        after
    }

    /// Checks the number of fields, with the server's words for what is wrong, in its order: the lines,
    /// then the quotes, then the number.
    #[inline]
    fn judge(&mut self, fields: &Fields, empty: bool, unterminated: bool) -> Result<(), BadRecord> {
        match self.bad.take() {
            Some(fact) => Err(BadRecord::format(fact)),
            None if unterminated && self.limit > 0 => Err(BadRecord::format(UNTERMINATED)),
            None => crate::check_count(fields.len(), self.rules.expected, empty),
        }
    }
}

impl Decoder for CsvDecoder {
    fn begin(&mut self, _chunk: &[u8]) {
        self.at = 0;
        self.bad = None;
        self.scan.begin();
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        if self.at >= chunk.len() {
            return None;
        }
        fields.clear();
        let record = self.at;
        let mut start = record;
        let (content, end, unterminated) = loop {
            let p = self.scan.next(chunk);
            let after = match chunk.get(p) {
                Some(&byte) if byte == self.rules.delimiter => {
                    self.push_bare(chunk, fields, start..p);
                    start = p + 1;
                    continue;
                }
                Some(&byte) if byte == self.rules.quote => self.quoted(chunk, fields, start, p),
                Some(b'\n' | b'\r') => {
                    let Some(after) = self.line_end(chunk, p) else { continue };
                    self.push_bare(chunk, fields, start..p);
                    after
                }
                Some(_) => continue,
                None => {
                    self.push_bare(chunk, fields, start..p);
                    After::Record { content: p, next: p }
                }
            };
            match after {
                After::Delimiter { next } => start = next,
                After::Record { content, next } => break (content, next, false),
                After::Unterminated => break (chunk.len(), chunk.len(), true),
            }
        };
        self.at = end;
        let result = self.judge(fields, content == record, unterminated);
        if self.limit == 0 {
            fields.clear();
        }
        Some(Step { range: record..end, result })
    }

    #[inline(always)]
    fn simple(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Range<usize>> {
        let record = self.at;
        let (delimiter, null) = (self.rules.delimiter, &self.rules.null);
        self.at = self.scan.simple_record(chunk, record, self.simple?, delimiter, null, fields)?;
        Some(record..self.at)
    }

    fn is_plain(&self) -> bool {
        self.scan.is_plain()
    }
}
