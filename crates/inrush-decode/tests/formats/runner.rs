//! Runs a decoder over an input in several chunkings and checks what every decoder promises.

use inrush_core::{BadRecord, Fields, Record};
use inrush_decode::{Decoder, Run};
use std::ops::{ControlFlow, Range};

/// A record with its place in the input, values copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    pub range: Range<usize>,
    pub result: Result<Vec<Option<Vec<u8>>>, BadRecord>,
}

/// As a test writes it: values separated by `|`, `∅` for NULL, `!SQLSTATE fact` for a refused record.
impl std::fmt::Display for Row {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.result {
            Err(bad) => write!(f, "!{} {}", bad.sqlstate, bad.fact),
            Ok(values) => {
                let show = |value: &Option<Vec<u8>>| {
                    value.as_ref().map_or("∅".to_owned(), |v| {
                        v.utf8_chunks().map(|chunk| show_chunk(&chunk)).collect()
                    })
                };
                f.write_str(&values.iter().map(show).collect::<Vec<_>>().join("|"))
            }
        }
    }
}

fn show_chunk(chunk: &std::str::Utf8Chunk<'_>) -> String {
    let valid =
        chunk.valid().chars().map(|c| if c.is_control() { c.escape_default().to_string() } else { c.into() });
    valid.chain(chunk.invalid().iter().map(|b| format!("\\x{b:02x}"))).collect()
}

/// Decodes one chunk and checks the ranges: in order, without gap or overlap, to the end.
pub fn decode(decoder: &mut dyn Decoder, chunk: &[u8]) -> Vec<Row> {
    let mut fields = Fields::new();
    let mut rows: Vec<Row> = Vec::new();
    decoder.begin(chunk);
    while let Some(step) = decoder.next(chunk, &mut fields) {
        assert_eq!(step.range.start, rows.last().map_or(0, |row| row.range.end), "the steps leave a gap");
        assert!(step.range.start < step.range.end, "an empty step");
        rows.push(Row { range: step.range, result: step.result.map(|()| values(chunk, &fields)) });
    }
    if let Some(last) = rows.last() {
        assert_eq!(last.range.end, chunk.len(), "the steps end early");
    }
    assert!(decoder.next(chunk, &mut fields).is_none(), "a step after the end");
    for at_a_time in [1, 3, usize::MAX] {
        runs(decoder, chunk, &rows, at_a_time);
    }
    rows
}

fn values(chunk: &[u8], fields: &Fields) -> Vec<Option<Vec<u8>>> {
    let record = Record { input: chunk, fields };
    (0..fields.len()).map(|i| record.get(i).map(<[u8]>::to_vec)).collect()
}

/// Decodes the chunk in runs, and demands the rows that single steps gave. It watches until it is told that a
/// record may have other characters than ASCII.
fn runs(decoder: &mut dyn Decoder, chunk: &[u8], rows: &[Row], at_a_time: usize) {
    let mut fields = Fields::new();
    let (mut at, mut watch) = (0, true);
    decoder.begin(chunk);
    loop {
        let first = at;
        let run = decoder.run(chunk, &mut fields, watch, &mut |fields| {
            let Row { range, result } = &rows[at];
            assert_eq!(Ok(values(chunk, fields)), *result, "a run gives another row at {range:?}");
            if watch {
                assert!(chunk[range.clone()].iter().all(|byte| (1..0x80).contains(byte)), "taken unwatched");
            }
            at += 1;
            if at - first == at_a_time { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
        });
        match run {
            Run::Ended => break,
            Run::Broken => assert_eq!(at - first, at_a_time, "a run ends early"),
            Run::Refused(step) => {
                assert_eq!(Row { range: step.range, result: step.result.map(|()| Vec::new()) }, rows[at]);
                at += 1;
            }
            Run::Unwatched(step) => {
                assert!(watch, "a run ends for want of watching");
                let result = step.result.map(|()| values(chunk, &fields));
                assert_eq!(Row { range: step.range, result }, rows[at]);
                (at, watch) = (at + 1, false);
            }
        }
    }
    assert_eq!(at, rows.len(), "the runs end early");
}

/// Decodes an input as one chunk, then one record per chunk, then two, and demands the same rows each time.
pub fn decode_all_ways(decoder: &mut dyn Decoder, input: &[u8]) -> Vec<Row> {
    let whole = decode(decoder, input);
    for per_chunk in [1, 2] {
        let mut rows = Vec::new();
        for records in whole.chunks(per_chunk) {
            let (start, end) = (records[0].range.start, records[records.len() - 1].range.end);
            rows.extend(decode(decoder, &input[start..end]).into_iter().map(|mut row| {
                row.range = row.range.start + start..row.range.end + start;
                row
            }));
        }
        assert_eq!(rows, whole, "{per_chunk} records per chunk");
    }
    whole
}

/// `decodes!(name, input, decoders => rows)`: a test that every decoder given finds these rows, written as
/// [`Row`] shows them, in every chunking.
#[macro_export]
macro_rules! decodes {
    ($name:ident, $input:expr, [$($decoder:expr),+ $(,)?] => [$($row:expr),* $(,)?]) => {
        #[test]
        fn $name() {
            let input = Vec::<u8>::from($input);
            let expected: Vec<String> = vec![$(String::from($row)),*];
            $(
                let rows = $crate::runner::decode_all_ways(&mut $decoder, &input);
                let shown: Vec<String> = rows.iter().map(ToString::to_string).collect();
                assert_eq!(shown, expected, "{}", stringify!($decoder));
            )+
        }
    };
    ($name:ident, $input:expr, $both:expr => [$($row:expr),* $(,)?]) => {
        $crate::decodes!($name, $input, [$both.fast(), $both.plain()] => [$($row),*]);
    };
}
