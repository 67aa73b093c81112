//! CSV byte by byte, in the two passes of the server: find the line, then take it apart. Slow, and so plain
//! that it can be compared with copyfromparse.c line by line; the fast path is tested against it.

use super::{Rules, UNQUOTED_NEWLINE, UNQUOTED_RETURN, UNTERMINATED};
use crate::{Decoder, Step, check_count};
use inrush_core::{BadRecord, CsvDialect, Eol, Fields};

/// The plain counterpart of [`CsvDecoder`](super::CsvDecoder). Every field is copied.
pub struct PlainCsv {
    rules: Rules,
    at: usize,
}

/// A line as the first pass finds it.
struct Line {
    /// One past its last byte of data.
    content: usize,
    /// One past its line end.
    end: usize,
    bad: Option<&'static str>,
}

impl PlainCsv {
    /// As [`CsvDecoder::new`](super::CsvDecoder::new).
    pub fn new(dialect: &CsvDialect, expected_fields: Option<usize>) -> PlainCsv {
        PlainCsv { rules: Rules::new(dialect, expected_fields), at: 0 }
    }

    /// First pass (CopyReadLineText).
    fn line(&self, chunk: &[u8]) -> Line {
        let Rules { quote, escape, eol, .. } = self.rules;
        let mut bad = None;
        let mut in_quotes = false;
        let mut last_was_escape = false;
        let mut at = self.at;
        while at < chunk.len() {
            let byte = chunk[at];
            if escape != quote && in_quotes && byte == escape {
                last_was_escape = !last_was_escape;
            }
            if byte == quote && !last_was_escape {
                in_quotes = !in_quotes;
            }
            if escape == quote || byte != escape {
                last_was_escape = false;
            }
            if !in_quotes {
                match (eol, byte) {
                    (Eol::Lf, b'\n') | (Eol::Cr, b'\r') => return Line { content: at, end: at + 1, bad },
                    (Eol::CrLf, b'\r') if chunk.get(at + 1) == Some(&b'\n') => {
                        return Line { content: at, end: at + 2, bad };
                    }
                    (Eol::CrLf, b'\n') => {
                        return Line { content: at, end: at + 1, bad: bad.or(Some(UNQUOTED_NEWLINE)) };
                    }
                    (Eol::Cr, b'\n') => bad = bad.or(Some(UNQUOTED_NEWLINE)),
                    (_, b'\r') => bad = bad.or(Some(UNQUOTED_RETURN)),
                    _ => {}
                }
            }
            at += 1;
        }
        Line { content: at, end: at, bad }
    }

    /// Second pass (CopyReadAttributesCSV).
    fn fields(&self, line: &[u8], fields: &mut Fields) -> Result<(), BadRecord> {
        let Rules { delimiter, quote, escape, ref null, .. } = self.rules;
        let mut at = 0;
        let mut number = 0;
        loop {
            let (start, mut value, mut saw_quote, mut in_quotes) = (at, Vec::new(), false, false);
            let found_delimiter = loop {
                let Some(&byte) = line.get(at) else {
                    if in_quotes {
                        return Err(BadRecord::format(UNTERMINATED));
                    }
                    break false;
                };
                at += 1;
                if !in_quotes {
                    if byte == delimiter {
                        break true;
                    } else if byte == quote {
                        (saw_quote, in_quotes) = (true, true);
                    } else {
                        value.push(byte);
                    }
                } else if byte == escape && line.get(at).is_some_and(|&b| b == escape || b == quote) {
                    value.push(line[at]);
                    at += 1;
                } else if byte == quote {
                    in_quotes = false;
                } else {
                    value.push(byte);
                }
            };
            let raw = &line[start..at - usize::from(found_delimiter)];
            let mut is_null = !saw_quote && raw == null;
            if is_null && self.rules.forces_not_null(number) {
                is_null = false;
            } else if self.rules.forces_null(number) && value == *null {
                is_null = true;
            }
            if is_null {
                fields.push_null();
            } else {
                let from = fields.scratch().len();
                fields.scratch().extend_from_slice(&value);
                fields.push_scratch(from);
            }
            number += 1;
            if !found_delimiter {
                return Ok(());
            }
        }
    }
}

impl Decoder for PlainCsv {
    fn begin(&mut self, _chunk: &[u8]) {
        self.at = 0;
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        if self.at >= chunk.len() {
            return None;
        }
        fields.clear();
        let start = self.at;
        let line = self.line(chunk);
        self.at = line.end;
        let content = &chunk[start..line.content];
        let result = match line.bad {
            Some(fact) => Err(BadRecord::format(fact)),
            None if self.rules.expected == Some(0) => check_count(1, Some(0), content.is_empty()),
            None => self
                .fields(content, fields)
                .and_then(|()| check_count(fields.len(), self.rules.expected, content.is_empty())),
        };
        Some(Step { range: start..line.end, result })
    }
}
