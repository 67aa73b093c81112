use crate::decodes;
use crate::runner::{decode, decode_all_ways};
use inrush_core::{Eol, TextDialect};
use inrush_decode::text::{TextDecoder, check_dialect, plain::PlainText};
use proptest::prelude::*;

/// A dialect and the number of fields, from which both decoders are made.
#[derive(Debug, Clone)]
struct Text {
    dialect: TextDialect,
    expected: Option<usize>,
}

impl Text {
    fn fast(&self) -> TextDecoder {
        TextDecoder::new(&self.dialect, self.expected)
    }

    fn plain(&self) -> PlainText {
        PlainText::new(&self.dialect, self.expected)
    }

    fn with(mut self, change: impl FnOnce(&mut TextDialect)) -> Text {
        change(&mut self.dialect);
        self
    }
}

fn text(expected: usize) -> Text {
    Text { dialect: TextDialect::default(), expected: Some(expected) }
}

decodes!(fields_and_null, "a\tb\n\\N\t\n", text(2) => ["a|b", "∅|"]);
decodes!(null_is_compared_raw, "\\N\t\\NN\t\\\\N\tN\n", text(4) => ["∅|NN|\\N|N"]);
decodes!(letters_stand_for_control_characters, "\\b\\f\\n\\r\\t\\v\\a\\\\\n", text(1) => ["\\u{8}\\u{c}\\n\\r\\t\\u{b}a\\"]);
decodes!(octal_bytes, "\\101\\1018\\60\\7x\\303\\244\n", text(1) => ["AA80\\u{7}xä"]);
decodes!(octal_loses_its_ninth_bit, "\\501\n", text(1) => ["A"]);
decodes!(hexadecimal_bytes, "\\x41\\x4a1\\xg\\x\\xc3\\xA4\n", text(1) => ["AJ1xgxä"]);
decodes!(escaped_delimiter_is_data, "a\\\tb\tc\n", text(2) => ["a\\tb|c"]);
decodes!(escaped_newline_is_data, "a\\\nb\tc\\\\\nd\t\\\\\\\n\n", text(2) => ["a\\nb|c\\", "d|\\\\n"]);
decodes!(escaped_return_is_data, "a\\\rb\n", text(1) => ["a\\rb"]);
decodes!(backslash_at_the_very_end_stands_for_nothing, "a\tb\\", text(2) => ["a|b"]);
decodes!(other_null_text, "\t\\N\n", text(2).with(|d| d.null = String::new()) => ["∅|N"]);
decodes!(hex_digits_win_over_a_delimiter_among_them, "\\x4AxA1\n", text(2).with(|d| d.delimiter = b'A') => ["Jx|1"]);

decodes!(bytes_that_are_no_text, "\\xff\n\\0\ta\n\\303(\n", text(1) => [
    "!22021 invalid byte sequence for encoding \"UTF8\": 0xff",
    "!22021 invalid byte sequence for encoding \"UTF8\": 0x00",
    "!22021 invalid byte sequence for encoding \"UTF8\": 0xc3 0x28",
]);
decodes!(literal_return, "a\rb\nc\r\nd\n", text(1) => ["!22P04 literal carriage return found in data", "!22P04 literal carriage return found in data", "d"]);
decodes!(windows_lines, "a\tb\r\n\\N\t\\\r\n\\\n\r\n", text(2).with(|d| d.eol = Eol::CrLf) => ["a|b", "!22P04 literal newline found in data", "!22P04 missing data for column 2"]);
decodes!(old_mac_lines, "a\rb\\\rc\rd\ne\r", text(1).with(|d| d.eol = Eol::Cr) => ["a", "b\\rc", "!22P04 literal newline found in data"]);
decodes!(misplaced_end_marker, "a\\.\n\\.b\n\\\\.\n", text(1) => ["!22P04 end-of-copy marker is not alone on its line", "!22P04 end-of-copy marker corrupt", "\\."]);
decodes!(too_few_and_too_many, "a\na\tb\tc\n\n", text(2) => ["!22P04 missing data for column 2", "!22P04 extra data after last expected column", "!22P04 missing data for column 2"]);
decodes!(empty_line_of_one_column_is_empty_text, "\n", text(1) => [""]);
decodes!(empty_line_of_no_column_is_a_row, "\n\\N\n", text(0) => ["", "!22P04 extra data after last expected column"]);

#[test]
fn dialects_copy_refuses_are_refused() {
    let refused = |change: fn(&mut TextDialect)| check_dialect(&text(1).with(change).dialect).is_err();
    assert!(check_dialect(&TextDialect::default()).is_ok());
    assert!(refused(|d| d.delimiter = b'n'));
    assert!(refused(|d| d.delimiter = b'\\'));
    assert!(refused(|d| d.delimiter = b'N'));
    assert!(refused(|d| d.null = "a\nb".into()));
}

fn dialects() -> impl Strategy<Value = Text> {
    (
        prop_oneof![3 => Just(b'\t'), 1 => Just(b'|'), 1 => Just(b'A')],
        prop_oneof![2 => Just("\\N"), 1 => Just(""), 1 => Just("a"), 1 => Just("\\\\")],
        prop_oneof![2 => Just(Eol::Lf), 1 => Just(Eol::CrLf), 1 => Just(Eol::Cr)],
        proptest::option::of(0usize..5),
    )
        .prop_map(|(delimiter, null, eol, expected)| Text {
            dialect: TextDialect { delimiter, null: null.into(), header: false, eol },
            expected,
        })
}

fn text_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        5 => "[a-cxN0-9A]{0,6}".prop_map(String::into_bytes),
        1 => "[a-z ]{20,90}".prop_map(String::into_bytes),
        5 => proptest::sample::select(&b"\t\t|A\\\\\\\n\n\r."[..]).prop_map(|b| vec![b]),
        3 => proptest::sample::select(&["\r\n", "\\N", "\\.", "\\\n", "\\\r\n", "\\x41", "\\xc3\\xa4", "\\101", "\\0"][..])
            .prop_map(|s| s.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fast_and_plain_agree_on_text(text in dialects(), input in text_like()) {
        let fast = decode_all_ways(&mut text.fast(), &input);
        prop_assert_eq!(fast, decode_all_ways(&mut text.plain(), &input));
    }

    #[test]
    fn fast_and_plain_agree_on_any_bytes(text in dialects(), input in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(decode(&mut text.fast(), &input), decode(&mut text.plain(), &input));
    }
}
