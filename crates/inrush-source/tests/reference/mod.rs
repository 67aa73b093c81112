//! A simple-minded reading of the bytes the cutter is given, without any of the crate's code, and what the
//! cutter promises in its terms.

use inrush_core::Eol;
use inrush_source::{Borders, Cut, TooLong};

/// One record as this reader sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct Expected {
    pub start: usize,
    pub end: usize,
    pub line: u64,
    pub lines: u64,
}

/// Splits `bytes` into records, byte by byte. Returns the records, and where the data ends if a marker ends
/// it.
pub fn records(bytes: &[u8], borders: Borders) -> (Vec<Expected>, Option<usize>) {
    let nl = match borders {
        Borders::Csv { eol, .. } | Borders::Text { eol } => eol.last_byte(),
        _ => b'\n',
    };
    let (mut records, mut start, mut line) = (Vec::new(), 0, 1);
    while start < bytes.len() {
        let rest = &bytes[start..];
        let len = match borders {
            Borders::Csv { quote, escape, .. } => {
                let (mut quoted, mut last_was_esc) = (false, false);
                let mut end = rest.len();
                for (i, &c) in rest.iter().enumerate() {
                    if quote == escape {
                        quoted ^= c == quote;
                    } else {
                        if quoted && c == escape {
                            last_was_esc = !last_was_esc;
                        }
                        if c == quote && !last_was_esc {
                            quoted = !quoted;
                        }
                        if c != escape {
                            last_was_esc = false;
                        }
                    }
                    if c == nl && !quoted {
                        end = i + 1;
                        break;
                    }
                }
                end
            }
            Borders::Text { .. } => {
                let mut i = 0;
                loop {
                    match rest.get(i) {
                        None => break rest.len(),
                        Some(b'\\') => i += 2,
                        Some(c) if *c == nl => break i + 1,
                        Some(_) => i += 1,
                    }
                }
            }
            _ => rest.iter().position(|c| *c == nl).map_or(rest.len(), |i| i + 1),
        };
        let len = len.min(rest.len());
        let record = &rest[..len];
        let marker: &[u8] = match borders {
            Borders::Text { eol: Eol::Lf } => b"\\.\n",
            Borders::Text { eol: Eol::CrLf } => b"\\.\r\n",
            Borders::Text { eol: Eol::Cr } => b"\\.\r",
            _ => b"",
        };
        if matches!(borders, Borders::Text { .. }) && (record == marker || record == b"\\.") {
            return (records, Some(start + len));
        }
        let lines = record.iter().filter(|c| **c == nl).count() as u64;
        records.push(Expected { start, end: start + len, line, lines });
        line += lines;
        start += len;
    }
    (records, None)
}

/// Demands that `cuts` are `records` of `bytes` in their order, whole, none missing but those that are
/// `done`, and none longer than `max_record` other than as [`TooLong`]. Offsets of the records count from
/// `base` in the input.
pub fn check(
    bytes: &[u8],
    base: usize,
    records: &[Expected],
    cuts: &[Cut],
    max_record: usize,
    done: impl Fn(usize) -> bool,
) {
    let mut at = 0;
    let left = |at: usize| (at..records.len()).find(|i| !done(*i));
    for cut in cuts {
        let number = left(at).expect("a cut beyond the last record");
        let first = &records[number];
        match cut {
            Cut::Chunk(chunk) => {
                assert_eq!(chunk.start as usize, base + first.start);
                assert_eq!(chunk.first_line, first.line);
                assert_eq!(chunk.first_record, number as u64 + 1);
                let end = first.start + chunk.bytes.len();
                assert!(chunk.bytes == bytes[first.start..end], "not the bytes of the input");
                at = number;
                let mut lines = 0;
                while at < records.len() && records[at].end <= end {
                    let len = records[at].end - records[at].start;
                    assert!(len <= max_record, "a record of {len} bytes");
                    assert!(!done(at), "record {at} was loaded before");
                    lines += records[at].lines;
                    at += 1;
                }
                assert!(at > number, "no record");
                assert_eq!(records[at - 1].end, end, "not a border");
                assert_eq!((chunk.records, chunk.lines), ((at - number) as u64, lines));
            }
            Cut::TooLong(TooLong { start, len, first_line, lines, record, head, .. }) => {
                let len = *len as usize;
                assert_eq!((*start as usize, len), (base + first.start, first.end - first.start));
                assert_eq!((*first_line, *lines, *record), (first.line, first.lines, number as u64 + 1));
                assert!(len > max_record);
                assert!(head.len() <= len.min(64 << 10) && *head == bytes[first.start..][..head.len()]);
                assert!(head.len() >= len.min(max_record + 1).min(64 << 10));
                at = number + 1;
            }
        }
    }
    assert_eq!(left(at), None, "records are missing");
}
