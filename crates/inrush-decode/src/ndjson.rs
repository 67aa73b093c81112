//! One JSON object per line.
//!
//! Fields come out in the order of the keys asked for: a string as its text, a number, `true` and `false` as
//! they stand, `null` and a missing key as NULL, objects and arrays as JSON text. Columns of type json or
//! jsonb take every value as JSON text, array columns take JSON arrays as array literals.
//!
//! JSON is taken strictly (RFC 8259), in one pass and without a tree.

mod array;
mod json;
mod keys;

pub use keys::{ObservedKey, ObservedKeys, keys_of};

use crate::{Decoder, Step, encoding};
use array::NoArray;
use inrush_core::{BadRecord, Excerpt, Fields};
use json::{Cursor, Fault, Kind, NoText, unescape};
use std::collections::HashMap;
use std::ops::Range;

/// A key that becomes a field, and how its values are written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Key {
    /// The key, unescaped.
    pub name: Vec<u8>,
    /// The column is json or jsonb: values stay JSON text, strings with their quotes.
    pub json: bool,
    /// The column is an array: JSON arrays become array literals. With `json` too, the elements are JSON.
    pub array: bool,
}

impl Key {
    /// A key for a column that is neither json nor an array.
    pub fn new(name: impl Into<Vec<u8>>) -> Key {
        Key { name: name.into(), json: false, array: false }
    }
}

/// What to do with a key nobody asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// Leave it out.
    #[default]
    Ignore,
    /// Refuse the record.
    Reject,
}

/// Places of a record for which a guess is kept: objects with ever more keys must not make it grow.
const MAX_GUESSES: usize = 1024;

/// Decodes NDJSON. A line of white space only is no record; it belongs to the range of the next record, at
/// the end of a chunk to that of the last.
pub struct NdjsonDecoder {
    keys: Vec<Key>,
    unknown: Unknown,
    by_name: HashMap<Vec<u8>, usize>,
    /// Which key came at which place of the last record; `None`: an unknown one. Records of one input
    /// mostly have the same keys in the same order, so this is right more often than not and saves hashing.
    guesses: Vec<Option<usize>>,
    at: usize,
    /// Where the last line that is not blank ends, without its line end.
    content_end: usize,
    /// The whole chunk is valid UTF-8; if not, every line is looked at.
    valid: bool,
}

impl NdjsonDecoder {
    /// Fields come in the order of `keys`.
    pub fn new(keys: Vec<Key>) -> NdjsonDecoder {
        let by_name = keys.iter().enumerate().rev().map(|(i, key)| (key.name.clone(), i)).collect();
        NdjsonDecoder {
            keys,
            unknown: Unknown::default(),
            by_name,
            guesses: Vec::new(),
            at: 0,
            content_end: 0,
            valid: false,
        }
    }

    /// What to do with keys that are not among the fields.
    #[must_use]
    pub fn unknown(mut self, unknown: Unknown) -> NdjsonDecoder {
        self.unknown = unknown;
        self
    }

    fn record(&mut self, chunk: &[u8], line: Range<usize>, fields: &mut Fields) -> Result<(), BadRecord> {
        if !self.valid
            && let Err(offset) = encoding::check_utf8(&chunk[line.clone()])
        {
            return Err(encoding::invalid_at(&chunk[line], offset));
        }
        fields.reset_nulls(self.keys.len());
        let mut place = 0;
        walk_object(chunk, line, |key, escaped, kind, value| {
            let found = self.find(chunk, key.clone(), escaped, place)?;
            place += 1;
            match found {
                Some(field) => self.set(chunk, fields, field, kind, value),
                None if self.unknown == Unknown::Reject => {
                    Err(BadRecord::format(format!("no column for the key \"{}\"", Excerpt(&chunk[key]))))
                }
                None => Ok(()),
            }
        })
    }

    /// The field a key stands for.
    #[inline]
    fn find(
        &mut self,
        chunk: &[u8],
        key: Range<usize>,
        escaped: bool,
        place: usize,
    ) -> Result<Option<usize>, BadRecord> {
        let name = &chunk[key];
        if !escaped
            && let Some(&Some(guess)) = self.guesses.get(place)
            && self.keys[guess].name == name
        {
            return Ok(Some(guess));
        }
        let found = if escaped {
            let mut unescaped = Vec::with_capacity(name.len());
            unescape(name, &mut unescaped).map_err(|why| no_text(&why, None))?;
            self.by_name.get(&unescaped)
        } else {
            self.by_name.get(name)
        };
        let found = found.copied();
        if place < self.guesses.len() {
            self.guesses[place] = found;
        } else if place == self.guesses.len() && place < MAX_GUESSES {
            self.guesses.push(found);
        }
        Ok(found)
    }

    #[inline]
    fn set(
        &self,
        chunk: &[u8],
        fields: &mut Fields,
        field: usize,
        kind: Kind,
        value: Range<usize>,
    ) -> Result<(), BadRecord> {
        let Key { json, array, .. } = self.keys[field];
        let inner = || value.start + 1..value.end - 1;
        match kind {
            Kind::Null => fields.set_null(field),
            Kind::Array if array => {
                let start = fields.scratch().len();
                array::literal(&chunk[value], json, fields.scratch()).map_err(|why| no_array(&why, field))?;
                fields.set_scratch(field, start);
            }
            Kind::String { .. } if json => fields.set_input(field, value),
            Kind::String { escaped: false } => fields.set_input(field, inner()),
            Kind::String { escaped: true } => {
                let start = fields.scratch().len();
                unescape(&chunk[inner()], fields.scratch()).map_err(|why| no_text(&why, Some(field)))?;
                fields.set_scratch(field, start);
            }
            Kind::Number | Kind::Bool | Kind::Object | Kind::Array => fields.set_input(field, value),
        }
        Ok(())
    }
}

impl Decoder for NdjsonDecoder {
    fn begin(&mut self, chunk: &[u8]) {
        self.at = 0;
        self.content_end = chunk.iter().rposition(|&b| !is_space(b)).map_or(0, |last| last + 1);
        self.valid = encoding::check_utf8(chunk).is_ok();
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        if self.at >= self.content_end {
            return None;
        }
        let start = self.at;
        // Blank lines in front are passed as any other space is.
        let first = start + chunk[start..].iter().position(|&b| !is_space(b)).unwrap_or(0);
        let end = memchr::memchr(b'\n', &chunk[first..]).map_or(chunk.len(), |found| first + found);
        self.at = if end >= self.content_end { chunk.len() } else { end + 1 };
        let result = self.record(chunk, first..end, fields);
        Some(Step { range: start..self.at, result })
    }
}

/// Whether `text` is one JSON object or array from end to end.
pub(crate) fn is_json_container(text: &[u8]) -> bool {
    let mut cursor = Cursor::new(text, 0);
    cursor.skip_space();
    let is_container = matches!(cursor.value(), Ok((Kind::Object | Kind::Array, _)));
    cursor.skip_space();
    is_container && cursor.peek().is_none()
}

/// White space as JSON has it (RFC 8259, section 2).
fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\r' | b'\n')
}

/// The lines of a text, without their `\n`.
fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&b| b == b'\n')
}

/// Walks through a line that must be one object and calls `pair` with each key (the bytes between its
/// quotes, and whether there are escapes among them), the kind and the bytes of its value.
#[inline]
fn walk_object(
    chunk: &[u8],
    line: Range<usize>,
    mut pair: impl FnMut(Range<usize>, bool, Kind, Range<usize>) -> Result<(), BadRecord>,
) -> Result<(), BadRecord> {
    let mut cursor = Cursor::new(&chunk[..line.end], line.start);
    let not_json = |cursor: &Cursor<'_>, fault: &Fault| not_json(cursor, fault, line.start);
    let mut more = begin_object(&mut cursor).map_err(|fault| not_json(&cursor, &fault))?;
    while more {
        let token = cursor.key().and_then(|key| cursor.value().map(|value| (key, value)));
        let ((key, escaped), (kind, value)) = token.map_err(|fault| not_json(&cursor, &fault))?;
        more = next_pair(&mut cursor).map_err(|fault| not_json(&cursor, &fault))?;
        pair(key, escaped, kind, value)?;
    }
    cursor.skip_space();
    match cursor.peek() {
        None => Ok(()),
        Some(_) => Err(not_json(&cursor, &Fault { at: cursor.at, what: "text behind the object" })),
    }
}

/// Passes the opening brace; whether a pair follows.
#[inline]
fn begin_object(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    cursor.skip_space();
    cursor.expect(b'{', "expected an object")?;
    cursor.skip_space();
    let empty = cursor.peek() == Some(b'}');
    cursor.at += usize::from(empty);
    Ok(!empty)
}

/// Passes what stands behind a pair; whether another follows.
#[inline]
fn next_pair(cursor: &mut Cursor<'_>) -> Result<bool, Fault> {
    cursor.skip_space();
    let more = match cursor.peek() {
        Some(b',') => true,
        Some(b'}') => false,
        _ => return cursor.fault("expected a comma or a closing brace"),
    };
    cursor.at += 1;
    if more {
        cursor.skip_space();
    }
    Ok(more)
}

/// A line that is not JSON, in the words and with the SQLSTATE of the server's json input, and where.
#[cold]
fn not_json(cursor: &Cursor<'_>, fault: &Fault, line_start: usize) -> BadRecord {
    let Fault { at, what } = fault;
    let rest = cursor.rest(*at);
    let shown = if rest.is_empty() { "the end of the line".into() } else { format!("\"{}\"", Excerpt(rest)) };
    let fact =
        format!("invalid input syntax for type json: {what} at byte {}, found {shown}", at - line_start);
    BadRecord { sqlstate: "22P02", fact, field: None }
}

/// A string that is JSON and yet no text (jsonapi.c).
#[cold]
fn no_text(why: &NoText, field: Option<usize>) -> BadRecord {
    let (sqlstate, fact) = match why {
        NoText::Nul => ("22P05", "unsupported Unicode escape sequence: \\u0000 cannot be converted to text"),
        NoText::Surrogate => {
            ("22P02", "invalid input syntax for type json: half of a Unicode surrogate pair")
        }
    };
    BadRecord { sqlstate, fact: fact.into(), field }
}

#[cold]
fn no_array(why: &NoArray, field: usize) -> BadRecord {
    match why {
        NoArray::Text(why) => no_text(why, Some(field)),
        NoArray::TooManyDimensions => BadRecord {
            sqlstate: "54000",
            fact: "number of array dimensions (7) exceeds the maximum allowed (6)".into(),
            field: Some(field),
        },
    }
}
