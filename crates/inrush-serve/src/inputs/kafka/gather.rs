//! Messages become parts. A record never reaches over the end of its message, whatever is in it: where parts end depends
//! on the moment, and a message must be read the same way whenever it is read.

use crate::config::FormatName;
use inrush_decode::line;
use serde::de::IgnoredAny;
use std::collections::VecDeque;
use std::time::{Duration, Instant};

/// Messages of one partition, as bytes of its format.
#[derive(Debug)]
pub(super) struct Gathered {
    pub bytes: Vec<u8>,
    /// One past the last byte of each message, and its offset.
    pub marks: Vec<(u32, i64)>,
    /// The offset behind them.
    pub next: i64,
    since: Instant,
}

/// What has been gathered of one partition.
#[derive(Debug)]
pub(super) struct Gathering {
    format: FormatName,
    /// Bytes that are enough for a part.
    enough: usize,
    closed: VecDeque<Gathered>,
    open: Option<Gathered>,
}

impl Gathering {
    pub fn new(format: FormatName, enough: usize) -> Gathering {
        Gathering { format, enough, closed: VecDeque::new(), open: None }
    }

    /// Adds a message; an empty value has no record.
    pub fn add(&mut self, value: &[u8], offset: i64) {
        let value = without_line_end(value);
        let swallows = swallows(self.format, value);
        if swallows {
            self.closed.extend(self.open.take());
        }
        let open = self.open.get_or_insert_with(|| Gathered {
            bytes: Vec::new(),
            marks: Vec::new(),
            next: offset,
            since: Instant::now(),
        });
        if !value.is_empty() {
            append(self.format, &mut open.bytes, value);
        }
        open.marks.push((u32::try_from(open.bytes.len()).unwrap_or(u32::MAX), offset));
        open.next = offset + 1;
        if swallows || open.bytes.len() >= self.enough {
            self.closed.extend(self.open.take());
        }
    }

    /// Makes a part of what has waited for so long.
    pub fn close(&mut self, waited: Duration) {
        if self.open.as_ref().is_some_and(|open| open.since.elapsed() >= waited) {
            self.closed.extend(self.open.take());
        }
    }

    /// Bytes of the next part.
    pub fn ready(&self) -> Option<usize> {
        self.closed.front().map(|part| part.bytes.len())
    }

    /// The next part.
    pub fn take(&mut self) -> Option<Gathered> {
        self.closed.pop_front()
    }
}

fn without_line_end(value: &[u8]) -> &[u8] {
    let value = value.strip_suffix(b"\n").unwrap_or(value);
    value.strip_suffix(b"\r").unwrap_or(value)
}

/// Whether a quote is left open, so that what comes behind the message would belong to its last record. Such a message
/// becomes a part alone.
fn swallows(format: FormatName, value: &[u8]) -> bool {
    match format {
        FormatName::Ndjson => false,
        // A quote inside quotes is written as two: both turn the state.
        FormatName::Csv => memchr::memchr_iter(b'"', value).count() % 2 == 1,
        FormatName::Line if memchr::memchr(b'"', value).is_none() => false,
        FormatName::Line => {
            // An open quote is closed by that of a later line, if there is one.
            let probe = [value, b"\nx\""].concat();
            line::lines(&probe).last().is_none_or(|last| last.content.start != value.len() + 1)
        }
    }
}

fn append(format: FormatName, bytes: &mut Vec<u8>, value: &[u8]) {
    let start = bytes.len();
    match format {
        FormatName::Ndjson => {
            bytes.extend_from_slice(value);
            if is_one_object(value) {
                // White space between tokens, and refused inside a string, as a newline is.
                for byte in &mut bytes[start..] {
                    if *byte == b'\n' {
                        *byte = b'\r';
                    }
                }
            }
        }
        FormatName::Csv if memchr::memmem::find(value, b"\r\n").is_some() => {
            let mut inside = false;
            for (at, &byte) in value.iter().enumerate() {
                inside ^= byte == b'"';
                if inside || byte != b'\r' || value.get(at + 1) != Some(&b'\n') {
                    bytes.push(byte);
                }
            }
        }
        FormatName::Csv | FormatName::Line => bytes.extend_from_slice(value),
    }
    bytes.push(b'\n');
}

/// Whether a value is one JSON object over several lines, and not several objects: then its first line is not JSON.
fn is_one_object(value: &[u8]) -> bool {
    let value = value.trim_ascii_start();
    let Some(end) = memchr::memchr(b'\n', value) else { return false };
    serde_json::from_slice::<IgnoredAny>(&value[..end]).is_err()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text, marks and next offset of each part.
    type Parts = Vec<(String, Vec<(u32, i64)>, i64)>;

    fn parts(format: FormatName, values: &[&str]) -> Parts {
        let mut gathering = Gathering::new(format, 1 << 20);
        for (offset, value) in (10..).zip(values) {
            gathering.add(value.as_bytes(), offset);
        }
        gathering.close(Duration::ZERO);
        let part = |part: Gathered| (String::from_utf8(part.bytes).expect("text"), part.marks, part.next);
        std::iter::from_fn(|| gathering.take()).map(part).collect()
    }

    #[test]
    fn objects_over_several_lines_are_told_from_several_objects() {
        let values = ["{\n \"a\": {}\n}\n", "{\"a\":1}\r\n{\"a\":2}", "", "{}", "{\"a\":{}\n,\"b\":1}"];
        let marks = vec![(13, 10), (30, 11), (30, 12), (33, 13), (49, 14)];
        let text = "{\r \"a\": {}\r}\n{\"a\":1}\r\n{\"a\":2}\n{}\n{\"a\":{}\r,\"b\":1}\n";
        assert_eq!(parts(FormatName::Ndjson, &values), [(text.to_owned(), marks, 15)]);
    }

    #[test]
    fn an_open_quote_ends_with_its_message() {
        let csv = parts(FormatName::Csv, &["1,a\r\n2,\"b\r\n\"", "3,\"c", "4,\"d\"\"\"", "\n"]);
        assert_eq!(csv.len(), 3);
        assert_eq!(csv[0], ("1,a\n2,\"b\r\n\"\n".to_owned(), vec![(12, 10)], 11));
        assert_eq!(csv[1], ("3,\"c\n".to_owned(), vec![(5, 11)], 12));
        assert_eq!(csv[2], ("4,\"d\"\"\"\n".to_owned(), vec![(8, 12), (8, 13)], 14));
        let line = parts(FormatName::Line, &["m f=\"a\nb\"", "m f=\"c", "m,t=\" f=1", "# \"", "m f=2"]);
        let texts: Vec<&str> = line.iter().map(|(text, ..)| text.as_str()).collect();
        assert_eq!(texts, ["m f=\"a\nb\"\n", "m f=\"c\n", "m,t=\" f=1\n# \"\nm f=2\n"]);
    }

    #[test]
    fn a_part_is_closed_when_it_is_large_or_old_enough() {
        let mut gathering = Gathering::new(FormatName::Csv, 10);
        gathering.add(b"123456", 1);
        gathering.close(Duration::from_secs(60));
        assert_eq!(gathering.ready(), None);
        gathering.add(b"78", 2);
        assert_eq!(gathering.ready(), Some(10));
        gathering.add(b"9", 3);
        assert_eq!(gathering.take().map(|part| part.next), Some(3));
        assert_eq!(gathering.ready(), None);
        gathering.close(Duration::ZERO);
        assert_eq!(gathering.ready(), Some(2));
    }
}
