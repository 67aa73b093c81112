//! Runs a decoder over an input in several chunkings and checks what every decoder promises.

use inrush_core::{BadRecord, Fields, Record};
use inrush_decode::Decoder;
use std::ops::Range;

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
        let record = Record { input: chunk, fields: &fields };
        let values = || (0..fields.len()).map(|i| record.get(i).map(<[u8]>::to_vec)).collect();
        rows.push(Row { range: step.range, result: step.result.map(|()| values()) });
    }
    if let Some(last) = rows.last() {
        assert_eq!(last.range.end, chunk.len(), "the steps end early");
    }
    assert!(decoder.next(chunk, &mut fields).is_none(), "a step after the end");
    rows
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
