//! InfluxDB line protocol: one point a line, `measurement,tag=value field=value timestamp`.
//!
//! Fields come out in the order of the columns asked for, as text: integers without their suffix, booleans as
//! `true` and `false`, strings without quotes and escapes, timestamps as ISO text. What a point does not have
//! is NULL. A measurement, a tag or a string stays a slice of the chunk unless there are escapes in it.
//!
//! What is taken is what InfluxDB takes ("Line protocol reference" of its documentation, and `models/points.go`
//! of 1.8 where that is silent); docs/line-protocol.md has the rules.

mod cursor;
mod json;
mod names;
mod peek;
pub mod plain;
mod split;
mod time;

pub use peek::{keys, measurement, tag};
pub use split::{Line, Lines, lines};
pub use time::Precision;

use crate::{Decoder, Step, encoding};
use cursor::{Cursor, Fault, IN_KEY, IN_MEASUREMENT, OUT_OF_RANGE, Token, Value, unescape, unescape_string};
use inrush_core::{BadRecord, Excerpt, Fields};
use json::Object;
use names::Names;
use std::collections::HashMap;
use std::ops::Range;

/// What a column of the target takes from a point.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Key {
    /// The measurement.
    Measurement,
    /// The tag of this name.
    Tag(Vec<u8>),
    /// The field of this name.
    Field(Vec<u8>),
    /// The field of this name or else the tag.
    Any(Vec<u8>),
    /// The timestamp, see [`TimeForm`].
    Time,
    /// All tags as a JSON object. No tag is unknown then.
    TagsJson {
        /// Only those that no other column takes.
        rest: bool,
    },
    /// All fields as a JSON object. No field is unknown then.
    FieldsJson {
        /// Only those that no other column takes.
        rest: bool,
    },
}

/// How timestamps are written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TimeForm {
    /// As text in UTC with its offset, `2019-05-02 16:12:41.098000+00`. What is below a microsecond is cut off
    /// towards the past.
    #[default]
    Timestamp,
    /// As the number that it is on the line.
    Number,
}

/// What to do with a tag or field that no column takes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Unknown {
    /// Leave it out.
    #[default]
    Ignore,
    /// Refuse the line.
    Reject,
    /// Leave it out and remember it, see [`LineDecoder::drift`].
    Report,
}

/// The type of a field on a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FieldKind {
    /// `1.5`, `1`.
    Float,
    /// `1i`.
    Int,
    /// `1u`.
    Unsigned,
    /// `t`.
    Bool,
    /// `"text"`, and every tag.
    String,
}

impl FieldKind {
    fn of(value: &Value) -> FieldKind {
        match value {
            Value::Float(_) => FieldKind::Float,
            Value::Int(_) => FieldKind::Int,
            Value::Unsigned(_) => FieldKind::Unsigned,
            Value::Bool(_) => FieldKind::Bool,
            Value::String(_) => FieldKind::String,
        }
    }

    /// A kind that has the values of both.
    fn or(self, other: FieldKind) -> FieldKind {
        use FieldKind::{Float, Int, Unsigned};
        match (self, other) {
            _ if self == other => self,
            (Float | Int | Unsigned, Float | Int | Unsigned) => Float,
            _ => FieldKind::String,
        }
    }
}

/// A tag or field that no column takes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Drift {
    /// Its name, unescaped.
    pub name: Vec<u8>,
    /// Whether it is a tag.
    pub is_tag: bool,
    /// A kind that has all values seen.
    pub kind: FieldKind,
}

/// Names that [`LineDecoder::drift`] remembers: a table has at most 1600 columns, and lines with ever new names
/// must not fill the memory.
pub const MAX_DRIFT: usize = 1600;

/// Decodes line protocol. Blank lines and comments are no records; they belong to the range of the record
/// before them, at the start of a chunk to that of the first.
#[derive(Debug)]
pub struct LineDecoder {
    columns: usize,
    measurement: Vec<usize>,
    time: Vec<usize>,
    tags: Names,
    fields: Names,
    tag_objects: Vec<Object>,
    field_objects: Vec<Object>,
    precision: Precision,
    time_form: TimeForm,
    received: Option<i64>,
    unknown: Unknown,
    drift: Vec<Drift>,
    by_name: [HashMap<Vec<u8>, usize>; 2],
    clock: time::Clock,
    /// A name of the line without its escapes.
    name: Vec<u8>,
    /// What a line has that is unknown, until the line is known to be good.
    news: Vec<(Token, FieldKind, bool)>,
    /// The keys of the tags of a line.
    tag_keys: Vec<Range<usize>>,
    /// Where the next line and its point begin.
    next: Option<(usize, usize)>,
    begun: bool,
    valid: bool,
    plain: bool,
}

impl LineDecoder {
    /// Fields come in the order of `keys`.
    pub fn new(keys: &[Key], precision: Precision, time_form: TimeForm) -> LineDecoder {
        let (mut measurement, mut time) = (Vec::new(), Vec::new());
        let (mut tags, mut fields) = (Names::default(), Names::default());
        let (mut tag_objects, mut field_objects) = (Vec::new(), Vec::new());
        for (column, key) in keys.iter().enumerate() {
            match key {
                Key::Measurement => measurement.push(column),
                Key::Time => time.push(column),
                Key::Tag(name) => tags.add(name, column),
                Key::Field(name) => fields.add(name, column),
                Key::Any(name) => {
                    tags.add(name, column);
                    fields.add(name, column);
                }
                Key::TagsJson { rest } => tag_objects.push(Object::new(column, *rest)),
                Key::FieldsJson { rest } => field_objects.push(Object::new(column, *rest)),
            }
        }
        LineDecoder {
            columns: keys.len(),
            measurement,
            time,
            tags,
            fields,
            tag_objects,
            field_objects,
            precision,
            time_form,
            received: None,
            unknown: Unknown::default(),
            drift: Vec::new(),
            by_name: Default::default(),
            clock: time::Clock::default(),
            name: Vec::new(),
            news: Vec::new(),
            tag_keys: Vec::new(),
            next: None,
            begun: false,
            valid: false,
            plain: false,
        }
    }

    /// What to do with tags and fields that no column takes.
    #[must_use]
    pub fn unknown(mut self, unknown: Unknown) -> LineDecoder {
        self.unknown = unknown;
        self
    }

    /// The time of lines without a timestamp, in microseconds since 1970. Without it their time is NULL.
    pub fn received(&mut self, micros: i64) {
        self.received = Some(micros);
    }

    /// The unit of the timestamps from here on.
    pub fn set_precision(&mut self, precision: Precision) {
        self.precision = precision;
    }

    /// The unknown tags and fields of all good lines since [`LineDecoder::clear_drift`], each once, at most
    /// [`MAX_DRIFT`] of them. Collected under [`Unknown::Report`].
    pub fn drift(&self) -> &[Drift] {
        &self.drift
    }

    /// Forgets the drift.
    pub fn clear_drift(&mut self) {
        self.drift.clear();
        self.by_name.iter_mut().for_each(HashMap::clear);
    }

    /// Decodes one line: `line` is its range of the chunk as [`lines`] gives it, the whole or the content.
    /// For a caller that groups the lines of a chunk first; [`Decoder::begin`] is not needed.
    pub fn line(&mut self, chunk: &[u8], line: Range<usize>, fields: &mut Fields) -> Result<(), BadRecord> {
        let bytes = &chunk[..line.end];
        let Some((_, start)) = split::skip_blank(bytes, line.start).0 else {
            return Err(BadRecord::format("invalid line protocol: expected a point, found nothing"));
        };
        let content = split::trimmed(bytes, start..split::line_end(bytes, start));
        self.record(chunk, content, false, fields)
    }

    fn record(
        &mut self,
        chunk: &[u8],
        content: Range<usize>,
        checked: bool,
        fields: &mut Fields,
    ) -> Result<(), BadRecord> {
        if !checked && let Err(offset) = encoding::check_utf8(&chunk[content.clone()]) {
            return Err(encoding::invalid_at(&chunk[content], offset));
        }
        fields.reset_nulls(self.columns);
        self.news.clear();
        let start = content.start;
        let bytes = &chunk[..content.end];
        let mut cursor = Cursor::new(bytes, start);
        match self.parts(&mut cursor, bytes, fields) {
            Ok(()) => {}
            Err(Refusal::Fault(fault)) => return Err(invalid(bytes, &fault, start)),
            Err(Refusal::Bad(bad)) => return Err(*bad),
        }
        if !self.news.is_empty() {
            self.note(bytes);
        }
        Ok(())
    }

    fn parts(&mut self, cursor: &mut Cursor<'_>, bytes: &[u8], fields: &mut Fields) -> Result<(), Refusal> {
        self.tag_objects.iter_mut().for_each(Object::clear);
        self.field_objects.iter_mut().for_each(Object::clear);
        let measurement = cursor.measurement()?;
        set_token(bytes, &measurement, IN_MEASUREMENT, &self.measurement, fields);
        self.tag_set(cursor, bytes, fields)?;
        if !cursor.spaces() {
            return Err(cursor.fault("expected a space and fields").into());
        }
        self.field_set(cursor, bytes, fields)?;
        let behind = cursor.spaces();
        let time = match cursor.peek() {
            None => None,
            Some(_) if behind => {
                let at = cursor.at;
                let number = cursor.timestamp()?;
                cursor.spaces();
                if cursor.peek().is_some() {
                    return Err(cursor.fault("expected the end of the line").into());
                }
                Some((at, number))
            }
            Some(_) => {
                return Err(cursor.fault("expected a comma, a space or the end of the line").into());
            }
        };
        self.set_time(time, cursor.at, fields)?;
        for object in self.tag_objects.iter().chain(&self.field_objects) {
            let start = fields.scratch().len();
            object.write(fields.scratch());
            for &column in &object.columns {
                fields.set_scratch(column, start);
            }
        }
        Ok(())
    }

    #[inline]
    fn tag_set(&mut self, cursor: &mut Cursor<'_>, bytes: &[u8], fields: &mut Fields) -> Result<(), Refusal> {
        self.tag_keys.clear();
        let mut ascending = true;
        while cursor.pass(b',') {
            let place = self.tag_keys.len();
            let key = cursor.key("expected a tag key", self.tags.expected(cursor.rest(), place))?;
            let value = cursor.tag_value()?;
            if let Some(last) = self.tag_keys.last() {
                // Escaping is one to one, so names can be compared as they stand.
                ascending &= bytes[last.clone()] < bytes[key.range.clone()];
            }
            self.tag_keys.push(key.range.clone());
            let name = name_of(bytes, &key, &mut self.name);
            let columns = self.tags.find(name, place);
            if let Some(columns) = columns {
                set_token(bytes, &value, IN_KEY, columns, fields);
            }
            if self.tag_objects.is_empty() {
                if columns.is_none() && self.unknown != Unknown::Ignore {
                    unknown(self.unknown, &mut self.news, bytes, key, FieldKind::String, true)?;
                }
            } else {
                let known = columns.is_some();
                let start = fields.scratch().len();
                unescape(&bytes[value.range], IN_KEY, fields.scratch());
                for object in &mut self.tag_objects {
                    if !(object.rest && known) {
                        object.string(name, &fields.scratch()[start..]);
                    }
                }
                fields.scratch().truncate(start);
            }
        }
        if !ascending { self.no_tag_twice(bytes) } else { Ok(()) }
    }

    /// InfluxDB refuses a tag key that comes twice (models/points.go, scanKey).
    fn no_tag_twice(&mut self, bytes: &[u8]) -> Result<(), Refusal> {
        let keys = &mut self.tag_keys;
        keys.sort_unstable_by(|a, b| bytes[a.clone()].cmp(&bytes[b.clone()]).then(a.start.cmp(&b.start)));
        match keys.windows(2).find(|pair| bytes[pair[0].clone()] == bytes[pair[1].clone()]) {
            Some(pair) => {
                Err(Fault { at: pair[1].start, what: "expected each tag key once", sqlstate: "22P04" }.into())
            }
            None => Ok(()),
        }
    }

    #[inline]
    fn field_set(
        &mut self,
        cursor: &mut Cursor<'_>,
        bytes: &[u8],
        fields: &mut Fields,
    ) -> Result<(), Refusal> {
        let mut place = 0;
        loop {
            let key = cursor.key("expected a field key", self.fields.expected(cursor.rest(), place))?;
            let value = cursor.value()?;
            let name = name_of(bytes, &key, &mut self.name);
            let columns = self.fields.find(name, place);
            place += 1;
            if let Some(columns) = columns {
                set_value(bytes, &value, columns, fields);
            }
            if self.field_objects.is_empty() {
                if columns.is_none() && self.unknown != Unknown::Ignore {
                    let kind = FieldKind::of(&value);
                    unknown(self.unknown, &mut self.news, bytes, key, kind, false)?;
                }
            } else {
                let known = columns.is_some();
                for object in &mut self.field_objects {
                    if !(object.rest && known) {
                        object.value(name, bytes, &value);
                    }
                }
            }
            if !cursor.pass(b',') {
                return Ok(());
            }
        }
    }

    #[inline]
    fn set_time(
        &mut self,
        time: Option<(usize, i64)>,
        end: usize,
        fields: &mut Fields,
    ) -> Result<(), Refusal> {
        if self.time.is_empty() {
            return Ok(());
        }
        let at = time.map_or(end, |(at, _)| at);
        let out_of_range = Fault { at, what: OUT_OF_RANGE, sqlstate: "22008" };
        let start = fields.scratch().len();
        match self.time_form {
            TimeForm::Timestamp => {
                let micros = match time {
                    Some((_, number)) => self.precision.micros(number).ok_or(out_of_range)?,
                    None => match self.received {
                        Some(micros) => micros,
                        None => return Ok(()),
                    },
                };
                self.clock.write(micros, fields.scratch());
            }
            TimeForm::Number => {
                let number = match (time, self.received) {
                    (Some((_, number)), _) => number,
                    (None, Some(micros)) => self.precision.of_micros(micros).ok_or(out_of_range)?,
                    (None, None) => return Ok(()),
                };
                fields.scratch().extend_from_slice(number.to_string().as_bytes());
            }
        }
        for &column in &self.time {
            fields.set_scratch(column, start);
        }
        Ok(())
    }

    /// Remembers what is unknown of a good line.
    #[cold]
    fn note(&mut self, bytes: &[u8]) {
        for (key, kind, is_tag) in self.news.drain(..) {
            let name = name_of(bytes, &key, &mut self.name);
            let by_name = &mut self.by_name[usize::from(is_tag)];
            if let Some(&known) = by_name.get(name) {
                self.drift[known].kind = self.drift[known].kind.or(kind);
            } else if self.drift.len() < MAX_DRIFT {
                by_name.insert(name.to_vec(), self.drift.len());
                self.drift.push(Drift { name: name.to_vec(), is_tag, kind });
            }
        }
    }
}

impl Decoder for LineDecoder {
    fn begin(&mut self, chunk: &[u8]) {
        self.next = split::skip_blank(chunk, 0).0;
        self.begun = false;
        self.plain = encoding::is_plain(chunk);
        self.valid = self.plain || encoding::check_utf8(chunk).is_ok();
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        let (line, start) = self.next?;
        let end = split::line_end(chunk, start);
        self.next = (end < chunk.len()).then(|| split::skip_blank(chunk, end + 1).0).flatten();
        let range = if self.begun { line } else { 0 }..self.next.map_or(chunk.len(), |(line, _)| line);
        self.begun = true;
        let result = self.record(chunk, split::trimmed(chunk, start..end), self.valid, fields);
        Some(Step { range, result })
    }

    fn is_plain(&self) -> bool {
        self.plain
    }
}

/// Why the rest of a line is not looked at.
enum Refusal {
    Fault(Fault),
    Bad(Box<BadRecord>),
}

impl From<Fault> for Refusal {
    fn from(fault: Fault) -> Refusal {
        Refusal::Fault(fault)
    }
}

/// A name without its escapes.
#[inline]
fn name_of<'a>(bytes: &'a [u8], key: &Token, scratch: &'a mut Vec<u8>) -> &'a [u8] {
    let raw = &bytes[key.range.clone()];
    if !key.escaped {
        return raw;
    }
    scratch.clear();
    unescape(raw, IN_KEY, scratch);
    scratch
}

#[inline]
fn set_token(bytes: &[u8], token: &Token, specials: u8, columns: &[usize], fields: &mut Fields) {
    if columns.is_empty() {
        return;
    }
    let start = fields.scratch().len();
    if token.escaped {
        unescape(&bytes[token.range.clone()], specials, fields.scratch());
    }
    for &column in columns {
        if token.escaped {
            fields.set_scratch(column, start);
        } else {
            fields.set_input(column, token.range.clone());
        }
    }
}

#[inline]
fn set_value(bytes: &[u8], value: &Value, columns: &[usize], fields: &mut Fields) {
    let start = fields.scratch().len();
    let range = match value {
        Value::Float(range) | Value::Int(range) | Value::Unsigned(range) => Some(range),
        Value::String(token) if !token.escaped => Some(&token.range),
        Value::String(token) => {
            unescape_string(&bytes[token.range.clone()], fields.scratch());
            None
        }
        Value::Bool(truth) => {
            fields.scratch().extend_from_slice(if *truth { b"true" } else { b"false" });
            None
        }
    };
    for &column in columns {
        match range {
            Some(range) => fields.set_input(column, range.clone()),
            None => fields.set_scratch(column, start),
        }
    }
}

/// A tag or field that no column takes: refused, or kept until the line is known to be good.
#[cold]
fn unknown(
    policy: Unknown,
    news: &mut Vec<(Token, FieldKind, bool)>,
    bytes: &[u8],
    key: Token,
    kind: FieldKind,
    is_tag: bool,
) -> Result<(), Refusal> {
    if policy == Unknown::Reject {
        let what = if is_tag { "tag" } else { "field" };
        let fact = format!("no column for the {what} \"{}\"", Excerpt(&bytes[key.range]));
        return Err(Refusal::Bad(Box::new(BadRecord::format(fact))));
    }
    // More are not remembered anyway.
    if news.len() < MAX_DRIFT {
        news.push((key, kind, is_tag));
    }
    Ok(())
}

/// A line that is not line protocol, and where; `start` is where it begins.
#[cold]
fn invalid(bytes: &[u8], fault: &Fault, start: usize) -> BadRecord {
    let Fault { at, what, sqlstate } = *fault;
    let rest = &bytes[at.min(bytes.len())..];
    let shown = if rest.is_empty() { "the end of the line".into() } else { format!("\"{}\"", Excerpt(rest)) };
    let fact = format!("invalid line protocol: {what} at byte {}, found {shown}", at - start);
    BadRecord { sqlstate, fact, field: None }
}
