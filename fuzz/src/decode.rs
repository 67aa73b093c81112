//! The decoders against the plain state machines, and against other people's JSON.

use crate::choices::Choices;
use crate::dialects::{EXPECTED, csv_dialect, text_dialect};
use crate::runner::{Row, decode as rows, decode_all_ways};
use inrush_decode::binary::{BinaryDecoder, read_header};
use inrush_decode::csv::{self as csv_format, CsvDecoder, plain::PlainCsv};
use inrush_decode::ndjson::{Key, NdjsonDecoder, Unknown, keys_of};
use inrush_decode::text::{self as text_format, TextDecoder, plain::PlainText};
use serde_json::value::RawValue;
use std::collections::HashMap;

/// The input, with the highest bit set behind a long field: what is found must not depend on where in the
/// scanner's windows it lies, and a fuzzer does not grow inputs to the length of one.
fn behind(filler: usize, bytes: &[u8]) -> Vec<u8> {
    let mut long = vec![b'x'; if filler >> 15 == 1 { filler & 0x3fff } else { 0 }];
    long.extend_from_slice(bytes);
    long
}

/// First bytes: [`csv_dialect`]'s, length of a filler in front (two bytes).
pub fn csv(input: &[u8]) {
    let mut choices = Choices::of(input);
    let (dialect, expected) = csv_dialect(&mut choices);
    let bytes = behind(choices.number(), choices.rest());
    let mut fast = CsvDecoder::new(&dialect, expected);
    if csv_format::check_dialect(&dialect).is_err() {
        rows(&mut fast, &bytes);
        return;
    }
    let fast = decode_all_ways(&mut fast, &bytes);
    same(&fast, &decode_all_ways(&mut PlainCsv::new(&dialect, expected), &bytes));
}

/// First bytes: [`text_dialect`]'s, length of a filler in front (two bytes).
pub fn text(input: &[u8]) {
    let mut choices = Choices::of(input);
    let (dialect, expected) = text_dialect(&mut choices);
    let bytes = behind(choices.number(), choices.rest());
    let mut fast = TextDecoder::new(&dialect, expected);
    if text_format::check_dialect(&dialect).is_err() {
        rows(&mut fast, &bytes);
        return;
    }
    let fast = decode_all_ways(&mut fast, &bytes);
    same(&fast, &decode_all_ways(&mut PlainText::new(&dialect, expected), &bytes));
}

/// The first row that differs says more than all of them.
fn same(fast: &[Row], plain: &[Row]) {
    for (fast, plain) in fast.iter().zip(plain) {
        assert_eq!(fast, plain);
    }
    assert_eq!(fast.len(), plain.len());
}

/// First byte: number of fields expected. What follows is tuples without a header, and read as a header too.
pub fn binary(input: &[u8]) {
    let mut choices = Choices::of(input);
    let expected = choices.pick(&EXPECTED);
    let bytes = choices.rest();
    if let Ok(Some(n)) = read_header(bytes) {
        assert!((19..=bytes.len()).contains(&n));
        assert_eq!(read_header(&bytes[..n]).ok(), Some(Some(n)));
        assert_eq!(read_header(&bytes[..n - 1]).ok(), Some(None));
    }
    let rows = decode_all_ways(&mut BinaryDecoder::new(expected), bytes);
    let mut at = 0;
    for (i, row) in rows.iter().enumerate() {
        match (&row.result, binary_tuple(&bytes[at..], expected)) {
            (Ok(values), Some((fields, len))) => {
                assert_eq!(*values, fields);
                at += len;
                let trailer = usize::from(bytes[at..] == [0xff, 0xff]) * 2;
                at += trailer;
                assert_eq!(row.range.end, at);
            }
            (Err(bad), None) => {
                assert_eq!((i + 1, row.range.end), (rows.len(), bytes.len()));
                assert_eq!(bad.sqlstate, "22P04");
                at = bytes.len();
            }
            (found, judged) => panic!("row {i} is {found:?} and should be {judged:?}"),
        }
    }
    assert!(at == bytes.len() || bytes == [0xff, 0xff]);
}

type Values = Vec<Option<Vec<u8>>>;

/// The fields of the tuple `bytes` begins with, and its length.
fn binary_tuple(bytes: &[u8], expected: Option<usize>) -> Option<(Values, usize)> {
    let count = usize::try_from(i16::from_be_bytes(bytes.get(..2)?.try_into().ok()?)).ok()?;
    if expected.is_some_and(|expected| expected != count) {
        return None;
    }
    let mut at = 2;
    let mut values = Vec::new();
    for _ in 0..count {
        let len = i32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?);
        at += 4;
        if len == -1 {
            values.push(None);
        } else {
            let value = bytes.get(at..at.checked_add(usize::try_from(len).ok()?)?)?;
            at += value.len();
            values.push(Some(value.to_vec()));
        }
    }
    Some((values, at))
}

/// First byte: what the columns of the keys `a` and `b` are (json, array), and whether other keys are
/// refused.
pub fn ndjson(input: &[u8]) {
    let mut choices = Choices::of(input);
    let bits = choices.byte();
    let bytes = choices.rest();
    let key = |name: &str, bits: u8| Key { name: name.into(), json: bits & 1 != 0, array: bits & 2 != 0 };
    let keys = vec![key("a", bits), key("b", bits >> 2)];
    let unknown = if bits & 16 == 0 { Unknown::Ignore } else { Unknown::Reject };
    let found = decode_all_ways(&mut NdjsonDecoder::new(keys.clone()).unknown(unknown), bytes);
    let is_space = |b: &u8| matches!(b, b' ' | b'\t' | b'\r' | b'\n');
    let lines: Vec<&[u8]> = bytes.split(|b| *b == b'\n').filter(|line| !line.iter().all(is_space)).collect();
    assert_eq!(found.len(), lines.len());
    for (row, line) in found.iter().zip(&lines) {
        let judged = json_line(line, &keys, unknown);
        match &row.result {
            Ok(values) => assert_eq!(Some(values), judged.as_ref(), "{}", line.escape_ascii()),
            Err(bad) => assert!(
                judged.is_none() || stricter(line, &bad.fact),
                "{} is refused: {}",
                line.escape_ascii(),
                bad.fact
            ),
        }
    }
    let seen = keys_of(bytes);
    assert_eq!(seen.objects + seen.others, lines.len());
}

/// What the decoder may refuse and serde_json does not: text without a meaning under keys that come again
/// or that it does not look at, nesting deeper than the limit, and a seventh dimension.
fn stricter(line: &[u8], fact: &str) -> bool {
    let text = String::from_utf8_lossy(line).to_ascii_lowercase();
    let no_text = fact.contains("surrogate") && text.contains("\\ud")
        || fact.contains("\\u0000") && text.contains("\\u0000");
    no_text || fact.contains("nested too deep") || fact.contains("dimensions (7)")
}

/// What serde_json makes of a line; `None`: refused.
fn json_line(line: &[u8], keys: &[Key], unknown: Unknown) -> Option<Values> {
    if line.contains(&0) {
        return None;
    }
    let object: HashMap<String, Box<RawValue>> = serde_json::from_slice(line).ok()?;
    let known = |name: &String| keys.iter().any(|key| key.name == name.as_bytes());
    if unknown == Unknown::Reject && !object.keys().all(known) {
        return None;
    }
    keys.iter()
        .map(|key| match object.get(std::str::from_utf8(&key.name).ok()?).map(|raw| raw.get()) {
            None | Some("null") => Some(None),
            Some(raw) if raw.starts_with('[') && key.array => array_literal(raw, key.json, 1).map(Some),
            Some(raw) if raw.starts_with('"') && !key.json => json_text(raw).map(Some),
            Some(raw) => Some(Some(raw.as_bytes().to_vec())),
        })
        .collect()
}

fn json_text(raw: &str) -> Option<Vec<u8>> {
    let text: String = serde_json::from_str(raw).ok()?;
    (!text.contains('\0')).then(|| text.into_bytes())
}

/// The array literal for a JSON array; `None`: there is none.
fn array_literal(raw: &str, elements_are_json: bool, depth: usize) -> Option<Vec<u8>> {
    let elements: Vec<Box<RawValue>> = serde_json::from_str(raw).ok()?;
    let elements: Option<Vec<Vec<u8>>> = elements
        .iter()
        .map(|element| match element.get() {
            "null" => Some(b"NULL".to_vec()),
            raw if elements_are_json || raw.starts_with('{') => Some(quoted(raw.as_bytes())),
            raw if raw.starts_with('[') && depth == 6 => None,
            raw if raw.starts_with('[') => array_literal(raw, false, depth + 1),
            raw if raw.starts_with('"') => json_text(raw).map(|text| quoted(&text)),
            raw => Some(raw.as_bytes().to_vec()),
        })
        .collect();
    Some([b"{", &elements?.join(&b',')[..], b"}"].concat())
}

fn quoted(text: &[u8]) -> Vec<u8> {
    let escaped = text.iter().flat_map(|&b| if matches!(b, b'"' | b'\\') { vec![b'\\', b] } else { vec![b] });
    [vec![b'"'], escaped.collect(), vec![b'"']].concat()
}
