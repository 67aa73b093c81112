//! Where bytes may be cut: behind a record.

use crate::part::Reading;
use inrush_decode::line;

/// The end of the last whole record. `bytes` begin with a record.
pub(crate) fn last_border(reading: &Reading, bytes: &[u8]) -> Option<usize> {
    match reading {
        Reading::Ndjson => memchr::memrchr(b'\n', bytes).map(|at| at + 1),
        Reading::Csv { dialect, .. } => last_csv_border(bytes, dialect.quote),
        Reading::Line { .. } => {
            let mut end = None;
            for found in line::lines(bytes) {
                // Its string may go on in what has not come yet; not for ever, for then it has no end.
                if is_open(&bytes[found.content.clone()]) && bytes.len() - found.range.start < OPEN {
                    break;
                }
                if bytes[..found.range.end].ends_with(b"\n") {
                    end = Some(found.range.end);
                }
            }
            end
        }
    }
}

/// How much may come before a string of line protocol counts as one without an end.
const OPEN: usize = 64 << 10;

/// Whether a line has a quote that has not been closed. One in a tag counts, too, and costs a little delay.
fn is_open(line: &[u8]) -> bool {
    let escaped = |at: &usize| line[..*at].iter().rev().take_while(|byte| **byte == b'\\').count() % 2 == 1;
    memchr::memchr_iter(b'"', line).filter(|at| !escaped(at)).count() % 2 == 1
}

/// Behind the last line end outside quotes. A quote inside quotes is written as two: both turn the state.
fn last_csv_border(bytes: &[u8], quote: u8) -> Option<usize> {
    if memchr::memchr(quote, bytes).is_none() {
        return memchr::memrchr(b'\n', bytes).map(|at| at + 1);
    }
    let (mut inside, mut end) = (false, None);
    for at in memchr::memchr2_iter(quote, b'\n', bytes) {
        if bytes[at] == quote {
            inside = !inside;
        } else if !inside {
            end = Some(at + 1);
        }
    }
    end
}

/// The end of the first line of CSV, its header.
pub(crate) fn first_csv_border(bytes: &[u8], quote: u8) -> Option<usize> {
    let mut inside = false;
    for at in memchr::memchr2_iter(quote, b'\n', bytes) {
        if bytes[at] == quote {
            inside = !inside;
        } else if !inside {
            return Some(at + 1);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_core::CsvDialect;
    use std::sync::Arc;

    #[test]
    fn borders_are_behind_records() {
        let csv = Reading::Csv { dialect: CsvDialect::default(), header: Arc::new(Vec::new()) };
        assert_eq!(last_border(&csv, b"a,\"x\ny\"\nb,\"z\n"), Some(8));
        assert_eq!(last_border(&csv, b"a,\"x\"\"\ny"), None);
        assert_eq!(last_border(&csv, b"a\nb"), Some(2));
        assert_eq!(last_border(&Reading::Ndjson, b"{}\n{}"), Some(3));
        let lines = Reading::Line { precision: line::Precision::Ns };
        assert_eq!(last_border(&lines, b"m f=\"a\nb\" 1\nm f=\"c\n"), Some(12));
        assert_eq!(first_csv_border(b"\"a\nb\",c\n1,2\n", b'"'), Some(8));
    }
}
