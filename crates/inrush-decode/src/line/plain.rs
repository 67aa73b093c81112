//! Line protocol read the plain way: the judge of [`super::LineDecoder`] and [`super::lines`]. It makes marks
//! of a line's bytes first, one at a time, and takes the marks apart then; it allocates as it likes.

use super::{Key, Line, Precision, TimeForm};
use crate::{Decoder, Step, encoding};
use inrush_core::{BadRecord, Fields};
use std::collections::BTreeSet;
use std::ops::Range;

/// A field's value.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// `1.5`, as it stands on the line.
    Float(String),
    /// `1i`, without the suffix.
    Int(String),
    /// `1u`, without the suffix.
    Unsigned(String),
    /// `t`
    Bool(bool),
    /// `"text"`
    String(Vec<u8>),
}

/// A point, everything unescaped and in the order of the line.
#[derive(Debug, Clone, PartialEq)]
#[allow(missing_docs)]
pub struct Point {
    pub measurement: Vec<u8>,
    pub tags: Vec<(Vec<u8>, Vec<u8>)>,
    pub fields: Vec<(Vec<u8>, Value)>,
    pub time: Option<i64>,
}

/// Where a byte stands.
#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Nothing but white space so far.
    Blank,
    Comment,
    /// Measurement and tags.
    Head,
    Fields,
    String,
}

/// The same as [`super::lines`].
pub fn lines(chunk: &[u8]) -> Vec<Line> {
    let mut found: Vec<Line> = Vec::new();
    let (mut at, mut number) = (0, 1);
    while at < chunk.len() {
        // A string that never ends is no string.
        let (content, end) = one_line(chunk, at, chunk.len())
            .or_else(|never_ends| one_line(chunk, at, never_ends))
            .unwrap_or((at..at, chunk.len()));
        if !content.is_empty() {
            let start = if found.is_empty() { 0 } else { at };
            if let Some(last) = found.last_mut() {
                last.range.end = start;
            }
            found.push(Line { range: start..chunk.len(), content, number });
        }
        number += chunk[at..end].iter().filter(|&&b| b == b'\n').count();
        at = end;
    }
    found
}

/// The content of the line at `start`, empty if it is blank or a comment, and where the next one begins. From
/// `no_strings` on no quote begins a string. If one never ends, the error is where it begins.
fn one_line(chunk: &[u8], start: usize, no_strings: usize) -> Result<(Range<usize>, usize), usize> {
    let (mut state, mut first, mut end, mut opened) = (State::Blank, start, chunk.len(), start);
    let mut at = start;
    let before = |at: usize, n: usize| at.checked_sub(n).filter(|&i| i >= start).map(|i| chunk[i]);
    while at < chunk.len() {
        let byte = chunk[at];
        match state {
            State::String if byte == b'\\' => at += 1,
            State::String if byte == b'"' => state = State::Fields,
            State::String => {}
            _ if byte == b'\n' => {
                end = at + 1;
                break;
            }
            State::Blank if matches!(byte, b' ' | b'\t' | b'\r') => {}
            State::Blank => {
                first = at;
                state = if byte == b'#' { State::Comment } else { State::Head };
            }
            State::Head if byte == b' ' && before(at, 1) != Some(b'\\') => state = State::Fields,
            State::Fields
                if byte == b'"'
                    && at < no_strings
                    && before(at, 1) == Some(b'=')
                    && before(at, 2) != Some(b'\\') =>
            {
                (state, opened) = (State::String, at);
            }
            _ => {}
        }
        at += 1;
    }
    if state == State::String {
        return Err(opened);
    }
    if matches!(state, State::Blank | State::Comment) {
        return Ok((first..first, end));
    }
    let mut last = end;
    while matches!(chunk[last - 1], b' ' | b'\t' | b'\r' | b'\n') {
        last -= 1;
    }
    Ok((first..last, end))
}

/// What a byte, or several, mean.
#[derive(Debug, Clone, PartialEq)]
enum Mark {
    Byte(u8),
    Comma,
    Equals,
    Space,
    Quoted(Vec<u8>),
}

/// The marks of a line; `None` if it has a string that does not end.
fn marks(line: &[u8]) -> Option<Vec<Mark>> {
    let mut marks: Vec<Mark> = Vec::new();
    let (mut in_measurement, mut in_fields) = (true, false);
    let mut bytes = line.iter().copied().peekable();
    while let Some(byte) = bytes.next() {
        let mark = match byte {
            b'\\' => match bytes.peek() {
                Some(&next @ (b',' | b' ')) => {
                    bytes.next();
                    Mark::Byte(next)
                }
                Some(b'=') if !in_measurement => {
                    bytes.next();
                    Mark::Byte(b'=')
                }
                _ => Mark::Byte(b'\\'),
            },
            b',' => Mark::Comma,
            b'=' if !in_measurement => Mark::Equals,
            b' ' => Mark::Space,
            b'"' if in_fields && marks.last() == Some(&Mark::Equals) => {
                let mut text = Vec::new();
                loop {
                    match bytes.next()? {
                        b'"' => break,
                        b'\\' if matches!(bytes.peek(), Some(b'"' | b'\\')) => text.extend(bytes.next()),
                        other => text.push(other),
                    }
                }
                Mark::Quoted(text)
            }
            other => Mark::Byte(other),
        };
        in_fields |= mark == Mark::Space;
        in_measurement &= !matches!(mark, Mark::Space | Mark::Comma);
        marks.push(mark);
    }
    Some(marks)
}

/// The bytes of a name or text that has no structure in it and is not empty.
fn text(marks: &[Mark]) -> Option<Vec<u8>> {
    let bytes: Option<Vec<u8>> = marks
        .iter()
        .map(|mark| match mark {
            Mark::Byte(byte) if *byte != b'\n' => Some(*byte),
            _ => None,
        })
        .collect();
    bytes.filter(|bytes| !bytes.is_empty())
}

fn key_and_value(marks: &[Mark]) -> Option<(Vec<u8>, &[Mark])> {
    let equals = marks.iter().position(|mark| *mark == Mark::Equals)?;
    Some((text(&marks[..equals])?, &marks[equals + 1..]))
}

fn value(marks: &[Mark]) -> Option<Value> {
    if let [Mark::Quoted(text)] = marks {
        return Some(Value::String(text.clone()));
    }
    let text = String::from_utf8(text(marks)?).ok()?;
    match text.as_str() {
        "t" | "T" | "true" | "True" | "TRUE" => return Some(Value::Bool(true)),
        "f" | "F" | "false" | "False" | "FALSE" => return Some(Value::Bool(false)),
        _ => {}
    }
    let plain = |digits: &str| !digits.starts_with('+');
    if let Some(digits) = text.strip_suffix('i').filter(|digits| plain(digits)) {
        return digits.parse::<i64>().is_ok().then(|| Value::Int(digits.into()));
    }
    if let Some(digits) = text.strip_suffix('u').filter(|digits| plain(digits)) {
        return digits.parse::<u64>().is_ok().then(|| Value::Unsigned(digits.into()));
    }
    let number = text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-'));
    (number && plain(&text) && text.parse::<f64>().is_ok()).then_some(Value::Float(text))
}

/// The point of one line, which is given without its line end; `None`: it is refused.
pub fn point(line: &[u8]) -> Option<Point> {
    std::str::from_utf8(line).ok().filter(|line| !line.contains('\0'))?;
    let marks = marks(line)?;
    let space = marks.iter().position(|mark| *mark == Mark::Space)?;
    let mut head = marks[..space].split(|mark| *mark == Mark::Comma);
    let measurement = text(head.next()?)?;
    let mut tags = Vec::new();
    for tag in head {
        let (key, value) = key_and_value(tag)?;
        tags.push((key, text(value)?));
    }
    if tags.iter().map(|(key, _)| key).collect::<BTreeSet<_>>().len() < tags.len() {
        return None;
    }
    let parts: Vec<&[Mark]> =
        marks[space..].split(|mark| *mark == Mark::Space).filter(|part| !part.is_empty()).collect();
    let (field_set, time) = match parts[..] {
        [field_set] => (field_set, None),
        [field_set, time] => (field_set, Some(time)),
        _ => return None,
    };
    let mut fields = Vec::new();
    for field in field_set.split(|mark| *mark == Mark::Comma) {
        let (key, marks) = key_and_value(field)?;
        fields.push((key, value(marks)?));
    }
    let time = match time {
        None => None,
        Some(marks) => {
            let digits = String::from_utf8(text(marks)?).ok()?;
            Some(digits.parse().ok().filter(|_| !digits.starts_with('+'))?)
        }
    };
    Some(Point { measurement, tags, fields, time })
}

/// Decodes the plain way. Lines without a timestamp have no time.
pub struct PlainLine {
    keys: Vec<Key>,
    precision: Precision,
    time_form: TimeForm,
    lines: Vec<Line>,
}

impl PlainLine {
    /// As [`super::LineDecoder::new`].
    pub fn new(keys: &[Key], precision: Precision, time_form: TimeForm) -> PlainLine {
        PlainLine { keys: keys.to_vec(), precision, time_form, lines: Vec::new() }
    }

    fn column(&self, key: &Key, point: &Point) -> Result<Option<Vec<u8>>, BadRecord> {
        let tag = |name: &Vec<u8>| point.tags.iter().find(|(key, _)| key == name).map(|(_, v)| v.clone());
        let field = |name: &Vec<u8>| {
            point.fields.iter().rev().find(|(key, _)| key == name).map(|(_, value)| shown(value))
        };
        Ok(match key {
            Key::Measurement => Some(point.measurement.clone()),
            Key::Tag(name) => tag(name),
            Key::Field(name) => field(name),
            Key::Any(name) => field(name).or_else(|| tag(name)),
            Key::Time => match (point.time, self.time_form) {
                (None, _) => None,
                (Some(time), TimeForm::Number) => Some(time.to_string().into_bytes()),
                (Some(time), TimeForm::Timestamp) => Some(self.moment(time)?),
            },
            Key::TagsJson { rest } => {
                Some(object(point.tags.iter().map(|(key, value)| (key, quoted(value))), |name| {
                    *rest && self.takes(name, true)
                }))
            }
            Key::FieldsJson { rest } => {
                Some(object(point.fields.iter().map(|(key, value)| (key, json(value))), |name| {
                    *rest && self.takes(name, false)
                }))
            }
        })
    }

    /// Whether a column takes the tag (or field) of this name.
    fn takes(&self, name: &[u8], tag: bool) -> bool {
        self.keys.iter().any(|key| match key {
            Key::Tag(known) => tag && known == name,
            Key::Field(known) => !tag && known == name,
            Key::Any(known) => known == name,
            _ => false,
        })
    }

    /// Counts the days of whole years, then of whole months.
    fn moment(&self, time: i64) -> Result<Vec<u8>, BadRecord> {
        let unit: i128 = match self.precision {
            Precision::Ns => 1,
            Precision::Us => 1_000,
            Precision::Ms => 1_000_000,
            Precision::S => 1_000_000_000,
            Precision::M => 60_000_000_000,
            Precision::H => 3_600_000_000_000,
        };
        let micros = (i128::from(time) * unit).div_euclid(1000);
        if i64::try_from(micros).is_err() {
            return Err(refused());
        }
        let (mut day, time) = (micros.div_euclid(86_400_000_000), micros.rem_euclid(86_400_000_000));
        let leap = |year: i128| year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
        // Every 400 years have as many days.
        let cycles = day.div_euclid(146_097);
        day -= cycles * 146_097;
        let mut year = 1970 + 400 * cycles;
        while day >= 365 + i128::from(leap(year)) {
            day -= 365 + i128::from(leap(year));
            year += 1;
        }
        let months = [31, 28 + i128::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while day >= months[month] {
            day -= months[month];
            month += 1;
        }
        let (shown_year, era) = if year > 0 { (year, "") } else { (1 - year, " BC") };
        let (hour, minute, second) = (time / 3_600_000_000, time / 60_000_000 % 60, time / 1_000_000 % 60);
        let fraction = match time % 1_000_000 {
            0 => String::new(),
            fraction => format!(".{fraction:06}"),
        };
        let (month, day) = (month + 1, day + 1);
        Ok(format!("{shown_year:04}-{month:02}-{day:02} {hour:02}:{minute:02}:{second:02}{fraction}+00{era}")
            .into_bytes())
    }
}

fn shown(value: &Value) -> Vec<u8> {
    match value {
        Value::Float(text) | Value::Int(text) | Value::Unsigned(text) => text.clone().into_bytes(),
        Value::Bool(truth) => truth.to_string().into_bytes(),
        Value::String(text) => text.clone(),
    }
}

fn json(value: &Value) -> Vec<u8> {
    match value {
        Value::String(text) => quoted(text),
        Value::Float(text) | Value::Int(text) | Value::Unsigned(text) => json_number(text),
        Value::Bool(_) => shown(value),
    }
}

fn json_number(text: &str) -> Vec<u8> {
    let sign = if text.starts_with('-') { "-" } else { "" };
    let text = text.trim_start_matches('-').trim_start_matches('0');
    let text = if text.starts_with(|c: char| c.is_ascii_digit()) { text.into() } else { format!("0{text}") };
    let text =
        if text.ends_with('.') { text.replace('.', "") } else { text.replace(".e", "e").replace(".E", "E") };
    format!("{sign}{text}").into_bytes()
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let mut out = String::from("\"");
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            c if c < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out.into_bytes()
}

fn object<'a>(
    pairs: impl Iterator<Item = (&'a Vec<u8>, Vec<u8>)>,
    left_out: impl Fn(&[u8]) -> bool,
) -> Vec<u8> {
    let pairs: Vec<Vec<u8>> = pairs
        .filter(|(key, _)| !left_out(key))
        .map(|(key, value)| [quoted(key), value].join(&b':'))
        .collect();
    [b"{", &pairs.join(&b',')[..], b"}"].concat()
}

fn refused() -> BadRecord {
    BadRecord::format("invalid line protocol")
}

impl Decoder for PlainLine {
    fn begin(&mut self, chunk: &[u8]) {
        self.lines = lines(chunk);
        self.lines.reverse();
    }

    fn next(&mut self, chunk: &[u8], fields: &mut Fields) -> Option<Step> {
        let line = self.lines.pop()?;
        let content = &chunk[line.content];
        fields.clear();
        let result = match (encoding::check_utf8(content), point(content)) {
            (Err(offset), _) => Err(encoding::invalid_at(content, offset)),
            (Ok(()), None) => Err(refused()),
            (Ok(()), Some(point)) => self.keys.iter().try_for_each(|key| {
                match self.column(key, &point)? {
                    None => fields.push_null(),
                    Some(value) => {
                        let start = fields.scratch().len();
                        fields.scratch().extend_from_slice(&value);
                        fields.push_scratch(start);
                    }
                }
                Ok(())
            }),
        };
        Some(Step { range: line.range, result })
    }
}
