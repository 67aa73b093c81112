//! The cutter against a reading of the whole input at once.

use crate::choices::Choices;
use crate::reference::{self, Expected};
use inrush_core::{Code, Eol, Limits, Result};
use inrush_source::{Borders, Compression, Cut, Cutter, DoneRange, Input, detect_eol};
use std::io::{Cursor, Read};

/// Gives its bytes in pieces of at most `most`.
struct Pieces {
    bytes: Cursor<Vec<u8>>,
    most: usize,
}

impl Read for Pieces {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        let n = buf.len().min(self.most);
        self.bytes.read(&mut buf[..n])
    }
}

const EOLS: [Eol; 3] = [Eol::Lf, Eol::CrLf, Eol::Cr];

/// First bytes: quote, escape, line end, then [`text_like`]'s.
pub fn csv(input: &[u8]) {
    let mut choices = Choices::of(input);
    let quote = choices.pick(b"\"'a\\");
    let escape = choices.pick(&[quote, b'\\', b'"', b',']);
    text_like(Borders::Csv { quote, escape, eol: choices.pick(&EOLS) }, choices);
}

/// First byte: line end, then [`text_like`]'s.
pub fn text(input: &[u8]) {
    let mut choices = Choices::of(input);
    text_like(Borders::Text { eol: choices.pick(&EOLS) }, choices);
}

/// First bytes: [`text_like`]'s.
pub fn lines(input: &[u8]) {
    text_like(Borders::Lines, Choices::of(input));
}

/// First bytes: chunk size, longest record (two bytes each, 0: the default), pieces of the input, which
/// records were loaded before (two bytes, one bit for every 16th record), whether there is a header.
fn text_like(borders: Borders, mut choices: Choices<'_>) {
    let limits = limits(&mut choices);
    let most = piece(&mut choices);
    let picks = choices.number();
    let header = choices.yes();
    let bytes = choices.rest();
    if Compression::detect(bytes) != Compression::None {
        return;
    }
    let _ = detect_eol(bytes, borders);
    let max_record = limits.max_record;
    let mut cutter = match Cutter::new(open(bytes, most), 0, borders, header, &limits) {
        Ok(cutter) => cutter,
        Err(error) if error.code() == Code::Encoding => {
            assert!(matches!(bytes, [0xff, 0xfe, ..] | [0xfe, 0xff, ..] | [0, 0, 0xfe, 0xff, ..]));
            return;
        }
        Err(error) => {
            assert_eq!(error.code(), Code::RecordTooLong, "{error}");
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
            assert!(header && header_len(bytes, borders) > max_record);
            return;
        }
    };
    let mut base = if bytes.starts_with(b"\xef\xbb\xbf") { 3 } else { 0 };
    let mut line = 1;
    if header {
        let len = header_len(&bytes[base..], borders);
        assert!(len <= max_record);
        assert_eq!(cutter.header().unwrap_or_default(), &bytes[base..base + len]);
        line += reference::records(&bytes[base..base + len], borders).0.first().map_or(0, |r| r.lines);
        base += len;
    }
    assert_eq!(cutter.data_start() as usize, base);

    let bytes = &bytes[base..];
    let (mut records, marker) = reference::records(bytes, borders);
    for record in &mut records {
        record.line += line - 1;
    }
    let done = |i: usize| picks >> (i % 16) & 1 == 1;
    cutter.skip(ranges(&records, base, done)).expect("true ranges");
    let (cuts, end) = all(&mut cutter);
    end.expect("text has no faults");
    reference::check(bytes, base, &records, &cuts, max_record, done);
    let ignored = cutter.ignored().map(|i| (i.start as usize, i.len as usize));
    assert_eq!(ignored, marker.map(|after| (base + after, bytes.len() - after)));
}

/// Bytes the header takes.
fn header_len(bytes: &[u8], borders: Borders) -> usize {
    match reference::records(bytes, borders) {
        (records, _) if !records.is_empty() => records[0].end,
        // A marker ends the data at once, but for one that is cut off: that may be a name.
        (_, Some(2)) if bytes == b"\\." => 2,
        _ => 0,
    }
}

/// What was loaded before, some neighbours joined and some not.
fn ranges(records: &[Expected], base: usize, done: impl Fn(usize) -> bool) -> Vec<DoneRange> {
    let mut ranges: Vec<DoneRange> = Vec::new();
    for (_, r) in records.iter().enumerate().filter(|(i, _)| done(*i)) {
        let (start, end) = ((base + r.start) as u64, (base + r.end) as u64);
        match ranges.last_mut() {
            Some(last) if last.end == start && r.start % 2 == 0 => {
                last.end = end;
                last.lines += r.lines;
                last.records += 1;
            }
            _ => ranges.push(DoneRange { start, end, lines: r.lines, records: 1 }),
        }
    }
    ranges
}

/// How a COPY binary file ends.
#[derive(Debug, PartialEq)]
enum End {
    Whole,
    CutOff,
    /// A length or count that cannot be, here.
    Bad(usize),
    /// Bytes behind the trailer, from here on.
    After(usize),
}

/// Splits tuples by their lengths, with the whole file at hand.
fn tuples(bytes: &[u8]) -> (Vec<Expected>, End) {
    let word16 = |at: usize| Some(i16::from_be_bytes([*bytes.get(at)?, *bytes.get(at + 1)?]));
    let word32 = |at: usize| Some(i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let mut tuples = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let Some(count) = word16(at) else { return (tuples, End::CutOff) };
        match count {
            -1 if at + 2 == bytes.len() => return (tuples, End::Whole),
            -1 => return (tuples, End::After(at + 2)),
            ..-1 => return (tuples, End::Bad(at)),
            0.. => at += 2,
        }
        for _ in 0..count {
            match word32(at) {
                None => return (tuples, End::CutOff),
                Some(-1) => at += 4,
                Some(..-1) => return (tuples, End::Bad(at)),
                Some(len) => at += 4 + len as usize,
            }
        }
        if at > bytes.len() {
            return (tuples, End::CutOff);
        }
        tuples.push(Expected { start, end: at, line: 1, lines: 0 });
    }
    (tuples, End::Whole)
}

/// First bytes: chunk size, longest record (two bytes each, 0: the default), pieces of the input, which
/// tuples were loaded before (two bytes), whether the input has its own header.
pub fn binary(input: &[u8]) {
    const HEADER: &[u8] = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0";
    let mut choices = Choices::of(input);
    let limits = limits(&mut choices);
    let most = piece(&mut choices);
    let picks = choices.number();
    let bytes = if choices.yes() { choices.rest().into() } else { [HEADER, choices.rest()].concat() };
    if Compression::detect(&bytes) != Compression::None {
        return;
    }
    let mut cutter = match Cutter::new(open(&bytes, most), 0, Borders::Binary, false, &limits) {
        Ok(cutter) => cutter,
        Err(error) => {
            assert_eq!(error.code(), Code::Format, "{error}");
            assert!(!bytes.starts_with(HEADER));
            return;
        }
    };
    assert!(bytes.starts_with(&HEADER[..11]));
    let base = cutter.data_start() as usize;
    assert_eq!(cutter.header(), Some(&bytes[..base]));
    let (tuples, end) = tuples(&bytes[base..]);
    let done = |i: usize| picks >> (i % 16) & 1 == 1;
    cutter.skip(ranges(&tuples, base, done)).expect("true ranges");
    let (cuts, outcome) = all(&mut cutter);
    // Before what is wrong the cutter may hold whole tuples back, and none at all where the file ends.
    let mut left = tuples.len();
    if matches!(end, End::Bad(_) | End::After(_)) {
        let last = cuts.last().map_or(0, |cut| match cut {
            Cut::Chunk(chunk) => chunk.end() as usize,
            Cut::TooLong(long) => (long.start + long.len) as usize,
        });
        left = tuples.iter().take_while(|t| base + t.end <= last).count();
    }
    reference::check(&bytes[base..], base, &tuples[..left], &cuts, limits.max_record, done);
    let error = outcome.as_ref().err().map(|e| {
        assert_eq!(e.code(), Code::Format, "{e}");
        e.position().and_then(|p| p.byte).expect("a place") as usize - base
    });
    match end {
        End::Whole => assert_eq!(error, None),
        End::CutOff => assert_eq!(error, Some(bytes.len() - base)),
        End::Bad(at) | End::After(at) => assert_eq!(error, Some(at)),
    }
}

fn limits(choices: &mut Choices<'_>) -> Limits {
    let default = Limits::default();
    let or = |n: usize, default: usize| if n == 0 { default } else { n };
    Limits {
        chunk: or(choices.number(), 1 << 16),
        max_record: or(choices.number(), default.max_record),
        ..default
    }
}

/// Bytes the source gives at a time.
fn piece(choices: &mut Choices<'_>) -> usize {
    match choices.byte() {
        0 => usize::MAX,
        n => usize::from(n),
    }
}

fn open(bytes: &[u8], most: usize) -> Input {
    let pieces = Pieces { bytes: Cursor::new(bytes.to_vec()), most };
    Input::from_reader("fuzzed", Box::new(pieces), &Limits::default()).expect("in memory, and not compressed")
}

/// Everything the cutter gives, and how it ended.
fn all(cutter: &mut Cutter) -> (Vec<Cut>, Result<()>) {
    let mut cuts = Vec::new();
    loop {
        match cutter.next() {
            Ok(Some(cut)) => cuts.push(cut),
            Ok(None) => {
                assert!(matches!(cutter.next(), Ok(None)), "it goes on behind the end");
                return (cuts, Ok(()));
            }
            Err(error) => return (cuts, Err(error)),
        }
    }
}
