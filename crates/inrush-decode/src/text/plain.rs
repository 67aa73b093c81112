//! COPY text byte by byte, in the two passes of the server: find the line, then take it apart. Slow, and so
//! plain that it can be compared with copyfromparse.c line by line; the fast path is tested against it.

use super::{LITERAL_NEWLINE, LITERAL_RETURN, MARKER_CORRUPT, MARKER_MISPLACED};
use crate::{Decoder, Step, check_count, encoding};
use inrush_core::{BadRecord, Eol, Fields, TextDialect};

/// The plain counterpart of [`TextDecoder`](super::TextDecoder). Every field is copied.
pub struct PlainText {
    dialect: TextDialect,
    expected: Option<usize>,
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

impl PlainText {
    /// As [`TextDecoder::new`](super::TextDecoder::new).
    pub fn new(dialect: &TextDialect, expected_fields: Option<usize>) -> PlainText {
        PlainText { dialect: dialect.clone(), expected: expected_fields, at: 0 }
    }

    /// First pass (CopyReadLineText).
    fn line(&self, chunk: &[u8]) -> Line {
        let mut bad = None;
        let mut at = self.at;
        while at < chunk.len() {
            match (self.dialect.eol, chunk[at]) {
                (Eol::Lf, b'\n') | (Eol::Cr, b'\r') => return Line { content: at, end: at + 1, bad },
                (Eol::CrLf, b'\r') if chunk.get(at + 1) == Some(&b'\n') => {
                    return Line { content: at, end: at + 2, bad };
                }
                (Eol::CrLf, b'\n') => {
                    return Line { content: at, end: at + 1, bad: bad.or(Some(LITERAL_NEWLINE)) };
                }
                (Eol::Cr, b'\n') => bad = bad.or(Some(LITERAL_NEWLINE)),
                (_, b'\r') => bad = bad.or(Some(LITERAL_RETURN)),
                (_, b'\\') => {
                    at += 1;
                    if chunk.get(at) == Some(&b'.') {
                        bad = bad.or(Some(match chunk.get(at + 1) {
                            Some(b'\n' | b'\r') => MARKER_MISPLACED,
                            _ => MARKER_CORRUPT,
                        }));
                    }
                }
                _ => {}
            }
            at += 1;
        }
        Line { content: chunk.len(), end: chunk.len(), bad }
    }

    /// Second pass (CopyReadAttributesText).
    fn fields(&self, line: &[u8], fields: &mut Fields) -> Result<(), BadRecord> {
        let mut at = 0;
        loop {
            let (start, mut value, mut check) = (at, Vec::new(), false);
            let mut end;
            let found_delimiter = loop {
                end = at;
                let Some(&byte) = line.get(at) else { break false };
                at += 1;
                if byte == self.dialect.delimiter {
                    break true;
                }
                if byte != b'\\' {
                    value.push(byte);
                    continue;
                }
                let Some(&escaped) = line.get(at) else { break false };
                at += 1;
                let mut number: Option<u32> = None;
                match escaped {
                    b'0'..=b'7' => {
                        let mut n = u32::from(escaped - b'0');
                        for _ in 0..2 {
                            let Some(digit @ b'0'..=b'7') = line.get(at).copied() else { break };
                            n = n * 8 + u32::from(digit - b'0');
                            at += 1;
                        }
                        number = Some(n);
                    }
                    b'x' => {
                        for _ in 0..2 {
                            let Some(digit) = line.get(at).and_then(|&b| (b as char).to_digit(16)) else {
                                break;
                            };
                            number = Some(number.unwrap_or(0) * 16 + digit);
                            at += 1;
                        }
                    }
                    _ => {}
                }
                value.push(match (number, escaped) {
                    (Some(n), _) => {
                        let [byte, ..] = n.to_le_bytes();
                        check |= byte == 0 || byte >= 0x80;
                        byte
                    }
                    (None, b'b') => 8,
                    (None, b'f') => 12,
                    (None, b'n') => 10,
                    (None, b'r') => 13,
                    (None, b't') => 9,
                    (None, b'v') => 11,
                    (None, other) => other,
                });
            };
            if line[start..end] == *self.dialect.null.as_bytes() {
                fields.push_null();
            } else {
                if check && let Err(offset) = encoding::check_utf8(&value) {
                    let field = Some(fields.len()).filter(|&field| self.expected.is_none_or(|n| field < n));
                    return Err(BadRecord { field, ..encoding::invalid_at(&value, offset) });
                }
                let from = fields.scratch().len();
                fields.scratch().extend_from_slice(&value);
                fields.push_scratch(from);
            }
            if !found_delimiter {
                return Ok(());
            }
        }
    }
}

impl Decoder for PlainText {
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
            None if self.expected == Some(0) => check_count(1, Some(0), content.is_empty()),
            None => self
                .fields(content, fields)
                .and_then(|()| check_count(fields.len(), self.expected, content.is_empty())),
        };
        Some(Step { range: start..line.end, result })
    }
}
