//! Dialects a fuzzed input chooses.

use crate::choices::Choices;
use inrush_core::{CsvDialect, Eol, TextDialect};

const EOLS: [Eol; 3] = [Eol::Lf, Eol::CrLf, Eol::Cr];
const NULLS: [&str; 5] = ["", "\\N", "NULL", "a", "a b"];
/// Numbers of fields records are expected to have.
pub const EXPECTED: [Option<usize>; 8] =
    [None, Some(0), Some(1), Some(2), Some(3), Some(4), Some(7), Some(1600)];

/// First bytes: delimiter, quote, escape, NULL text, line end, fields that are forced to be NULL and not to
/// be (one bit each), number of fields expected.
pub fn csv_dialect(choices: &mut Choices<'_>) -> (CsvDialect, Option<usize>) {
    let numbers = |bits: u8| (0..8).filter(|i| bits >> i & 1 == 1).collect();
    let delimiter = match choices.byte() {
        n @ 0..8 => b",\t;|:x\\\""[usize::from(n)],
        other => other,
    };
    let quote = choices.pick(b"\"'\\a");
    let escape = choices.pick(&[quote, b'\\', b'"', delimiter, b'a']);
    let dialect = CsvDialect {
        delimiter,
        quote,
        escape,
        null: choices.pick(&NULLS).into(),
        header: false,
        eol: choices.pick(&EOLS),
        force_null: numbers(choices.byte()),
        force_not_null: numbers(choices.byte()),
    };
    (dialect, choices.pick(&EXPECTED))
}

/// First bytes: delimiter, NULL text, line end, number of fields expected.
pub fn text_dialect(choices: &mut Choices<'_>) -> (TextDialect, Option<usize>) {
    let delimiter = match choices.byte() {
        n @ 0..8 => b"\t,;|:AN\""[usize::from(n)],
        other => other,
    };
    let null = choices.pick(&["\\N", "", "NULL", "a", "a b"]).into();
    (TextDialect { delimiter, null, header: false, eol: choices.pick(&EOLS) }, choices.pick(&EXPECTED))
}
