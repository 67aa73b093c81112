//! Where lines end. A newline ends a line except between the quotes of a string field value; everything else
//! (which section, what is escaped) is asked only where a quote stands.

use memchr::{memchr, memchr2};
use std::ops::Range;

/// One point of a chunk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Its share of the chunk: ranges follow each other without gap and end at the end of the chunk, so they
    /// have the line end and the blank and comment lines behind it, in the first range also those in front.
    pub range: Range<usize>,
    /// The point alone: without line end, without white space around it.
    pub content: Range<usize>,
    /// Number of the line it begins on, from 1.
    pub number: usize,
}

/// The points of a chunk; lines that are blank or comments are none. A chunk without points has no lines.
pub fn lines(chunk: &[u8]) -> Lines<'_> {
    Lines { chunk, next: None, number: 1, begun: false }
}

/// See [`lines`].
#[derive(Debug, Clone)]
pub struct Lines<'a> {
    chunk: &'a [u8],
    /// Where the next line and its content begin.
    next: Option<(usize, usize)>,
    number: usize,
    begun: bool,
}

impl Iterator for Lines<'_> {
    type Item = Line;

    fn next(&mut self) -> Option<Line> {
        let first = !self.begun;
        if first {
            self.begun = true;
            self.next = self.skip(0);
        }
        let (start, content) = self.next?;
        let number = self.number;
        let end = line_end(self.chunk, content);
        self.number += newlines(&self.chunk[content..end]);
        self.next = match end < self.chunk.len() {
            true => {
                self.number += 1;
                self.skip(end + 1)
            }
            false => None,
        };
        let range = if first { 0 } else { start }..self.next.map_or(self.chunk.len(), |(start, _)| start);
        Some(Line { range, content: trimmed(self.chunk, content..end), number })
    }
}

impl Lines<'_> {
    fn skip(&mut self, from: usize) -> Option<(usize, usize)> {
        let (found, passed) = skip_blank(self.chunk, from);
        self.number += passed;
        found
    }
}

/// A string's newlines are rare, and so are lines that need this count.
fn newlines(text: &[u8]) -> usize {
    memchr::memchr_iter(b'\n', text).count()
}

/// White space around a point. Between its parts only spaces count.
pub(super) fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r')
}

/// Passes blank lines and comments: where the line of the next point begins and where the point does, and how
/// many lines were passed.
pub(super) fn skip_blank(chunk: &[u8], from: usize) -> (Option<(usize, usize)>, usize) {
    let (mut line, mut at, mut passed) = (from, from, 0);
    loop {
        match chunk.get(at) {
            None => return (None, passed),
            Some(&byte) if is_blank(byte) => {
                at += 1;
                continue;
            }
            Some(b'\n') => at += 1,
            Some(b'#') => match memchr(b'\n', &chunk[at..]) {
                Some(end) => at += end + 1,
                None => return (None, passed),
            },
            Some(_) => return (Some((line, at)), passed),
        }
        passed += 1;
        line = at;
    }
}

/// The range without white space at its end. A string value ends with its quote, so nothing of it is lost.
pub(super) fn trimmed(chunk: &[u8], range: Range<usize>) -> Range<usize> {
    let kept = chunk[range.clone()].iter().rposition(|&byte| !is_blank(byte)).map_or(0, |last| last + 1);
    range.start..range.start + kept
}

/// Where the line ends whose first byte that is not blank is at `start`: at its newline or at the end of the
/// chunk. A string that never ends is no string: its line ends at the first newline, so that one bad point
/// does not take all that follow with it.
pub(super) fn line_end(chunk: &[u8], start: usize) -> usize {
    let mut at = start;
    let mut section = Section { at: start, fields: false };
    while let Some(found) = memchr2(b'\n', b'"', &chunk[at..]) {
        let found = at + found;
        if chunk[found] == b'\n' {
            return found;
        }
        at = found + 1;
        if opens_string(chunk, start, found) && section.is_fields(chunk, found) {
            match string_end(chunk, at) {
                Some(close) => at = close + 1,
                None => return memchr(b'\n', &chunk[at..]).map_or(chunk.len(), |end| at + end),
            }
        }
    }
    chunk.len()
}

/// Whether the quote stands where a field's value would begin: behind an `=` that is not escaped.
fn opens_string(chunk: &[u8], start: usize, quote: usize) -> bool {
    let before = &chunk[start..quote];
    before.ends_with(b"=") && !before.ends_with(b"\\=")
}

/// The quote that ends a string; `from` is behind the one that begins it.
pub(super) fn string_end(chunk: &[u8], from: usize) -> Option<usize> {
    let mut at = from;
    while let Some(found) = memchr2(b'"', b'\\', &chunk[at..]) {
        let found = at + found;
        if chunk[found] == b'"' {
            return Some(found);
        }
        // What is behind a backslash ends nothing, whether it is escaped or not.
        at = (found + 2).min(chunk.len());
    }
    None
}

/// Looks for the space that ends measurement and tags, each byte once.
struct Section {
    at: usize,
    fields: bool,
}

impl Section {
    /// Whether a space that is not escaped stands before `end`.
    fn is_fields(&mut self, chunk: &[u8], end: usize) -> bool {
        while !self.fields && self.at < end {
            match memchr(b' ', &chunk[self.at..end]) {
                Some(found) => {
                    self.fields = chunk[self.at + found - 1] != b'\\';
                    self.at += found + 1;
                }
                None => self.at = end,
            }
        }
        self.fields
    }
}
