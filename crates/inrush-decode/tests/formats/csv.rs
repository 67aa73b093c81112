use crate::decodes;
use crate::runner::{decode, decode_all_ways};
use inrush_core::{CsvDialect, Eol};
use inrush_decode::csv::{CsvDecoder, check_dialect, plain::PlainCsv};
use proptest::prelude::*;

/// A dialect and the number of fields, from which both decoders are made.
#[derive(Debug, Clone)]
struct Csv {
    dialect: CsvDialect,
    expected: Option<usize>,
}

impl Csv {
    fn fast(&self) -> CsvDecoder {
        CsvDecoder::new(&self.dialect, self.expected)
    }

    fn plain(&self) -> PlainCsv {
        PlainCsv::new(&self.dialect, self.expected)
    }

    fn with(mut self, change: impl FnOnce(&mut CsvDialect)) -> Csv {
        change(&mut self.dialect);
        self
    }
}

fn csv(expected: usize) -> Csv {
    Csv { dialect: CsvDialect::default(), expected: Some(expected) }
}

fn any_number() -> Csv {
    Csv { dialect: CsvDialect::default(), expected: None }
}

decodes!(plain_fields_and_null, "a,b\n,\"\"\n", csv(2) => ["a|b", "∅|"]);
decodes!(last_line_needs_no_end, "a,b\nc,d", csv(2) => ["a|b", "c|d"]);
decodes!(no_bytes_no_record, "", csv(2) => []);
decodes!(quotes_open_and_close_anywhere, "a\"b,c\"d,x\"\"y\n", csv(2) => ["ab,cd|xy"]);
decodes!(doubled_quote_is_a_quote, "\"a\"\"b\",\"\"\"\"\n", csv(2) => ["a\"b|\""]);
decodes!(quoted_line_ends_are_data, "\"a\nb\r\nc\",d\n", csv(2) => ["a\\nb\\r\\nc|d"]);
decodes!(text_behind_the_closing_quote_is_kept, "\"a\"b,\"c\" \n", csv(2) => ["ab|c "]);
decodes!(end_of_data_marker_is_data, "\\.\na\n", csv(1) => ["\\.", "a"]);

decodes!(escape_other_than_the_quote, r#""a\"b","c\\","d\e""#, csv(3).with(|d| d.escape = b'\\') => [r#"a"b|c\|d\e"#]);
decodes!(escape_outside_quotes_is_data, r#"a\,\"b\"c""#, csv(2).with(|d| d.escape = b'\\') => [r#"a\|\b"c"#]);
decodes!(escape_that_is_the_delimiter, "\"a,\"b\",c\n", csv(2).with(|d| d.escape = b',') => ["a\"b|c"]);
decodes!(other_quote, "'a,''b',\"\n", csv(2).with(|d| { d.quote = b'\''; d.escape = b'\''; }) => ["a,'b|\""]);
decodes!(tab_delimiter, "a,b\tc\n", csv(2).with(|d| d.delimiter = b'\t') => ["a,b|c"]);

decodes!(null_text_unquoted_only, "NULL,\"NULL\",NU\"LL\",\n", csv(4).with(|d| d.null = "NULL".into()) => ["∅|NULL|NULL|"]);
decodes!(force_null_takes_quoted_null, "\"\",\"\",\"x\"\n", csv(3).with(|d| d.force_null = vec![1, 2]) => ["|∅|x"]);
decodes!(force_null_takes_an_escaped_null, "\"a\"\"b\"\n", csv(1).with(|d| { d.force_null = vec![0]; d.null = "a\"b".into(); }) => ["∅"]);
decodes!(force_not_null_keeps_the_text, "NULL,NULL\n", csv(2).with(|d| { d.null = "NULL".into(); d.force_not_null = vec![1]; }) => ["∅|NULL"]);
decodes!(forced_both_ways_swaps, ",\"\"\n", csv(2).with(|d| { d.force_null = vec![0, 1]; d.force_not_null = vec![0, 1]; }) => ["|∅"]);

decodes!(empty_line_of_one_column_is_null, "\na\n\n", csv(1) => ["∅", "a", "∅"]);
decodes!(empty_line_of_two_columns_misses_one, "\na,b\n", csv(2) => ["!22P04 missing data for column 2", "a|b"]);
decodes!(empty_line_of_no_column_is_a_row, "\na\n", csv(0) => ["", "!22P04 extra data after last expected column"]);
decodes!(too_few_and_too_many, "a\na,b,c\na,b\n", csv(2) => ["!22P04 missing data for column 2", "!22P04 extra data after last expected column", "a|b"]);
decodes!(any_number_of_fields, "a\na,b,c\n", any_number() => ["a", "a|b|c"]);

decodes!(carriage_return_in_a_line_feed_file, "a\rb\nc\n", csv(1) => ["!22P04 unquoted carriage return found in data", "c"]);
decodes!(windows_line_in_a_line_feed_file, "a,b\r\nc,\"d\"\r\ne,f\n", csv(2) => ["!22P04 unquoted carriage return found in data", "!22P04 unquoted carriage return found in data", "e|f"]);
decodes!(windows_lines, "a,\"b\"\r\n\"c\r\n\",\r\n", csv(2).with(|d| d.eol = Eol::CrLf) => ["a|b", "c\\r\\n|∅"]);
decodes!(lone_newline_in_a_windows_file, "a,b\nc,d\r\n", csv(2).with(|d| d.eol = Eol::CrLf) => ["!22P04 unquoted newline found in data", "c|d"]);
decodes!(lone_return_in_a_windows_file, "a\rb\r\n\"c\"\rd\r\ne\r", csv(1).with(|d| d.eol = Eol::CrLf) => ["!22P04 unquoted carriage return found in data", "!22P04 unquoted carriage return found in data", "!22P04 unquoted carriage return found in data"]);
decodes!(old_mac_lines, "a,\"b\r\"\rc,d\r", csv(2).with(|d| d.eol = Eol::Cr) => ["a|b\\r", "c|d"]);
decodes!(newline_in_an_old_mac_file, "a\nb\rc\r", csv(1).with(|d| d.eol = Eol::Cr) => ["!22P04 unquoted newline found in data", "c"]);

decodes!(quote_left_open, "a\n\"b,c\nd\n", csv(1) => ["a", "!22P04 unterminated CSV quoted field"]);
decodes!(quote_left_open_by_an_escape, "\"a\\\"", csv(1).with(|d| d.escape = b'\\') => ["!22P04 unterminated CSV quoted field"]);
decodes!(fields_longer_than_a_window, format!("{},\"{}\"\n", "x".repeat(9000), ",".repeat(9000)), csv(2) => [format!("{}|{}", "x".repeat(9000), ",".repeat(9000))]);
decodes!(nul_bytes_are_left_to_the_encoding_check, "a\0b,c\n", csv(2) => ["a\\u{0}b|c"]);

#[test]
fn the_field_at_fault_is_named() {
    let field =
        |input: &str| decode(&mut csv(3).fast(), input.as_bytes())[0].result.clone().unwrap_err().field;
    assert_eq!(field("a\n"), Some(1));
    assert_eq!(field("a,b,c,d,e\n"), Some(3));
    assert_eq!(field("a\rb\n"), None);
}

#[test]
fn a_line_of_delimiters_does_not_fill_the_memory() {
    let line = vec![b','; 1 << 20];
    let mut fields = inrush_core::Fields::new();
    let mut decoder = csv(2).fast();
    inrush_decode::Decoder::begin(&mut decoder, &line);
    let step = inrush_decode::Decoder::next(&mut decoder, &line, &mut fields);
    assert!(step.is_some_and(|step| step.result.is_err() && step.range == (0..line.len())));
    assert_eq!(fields.len(), 3);
}

#[test]
fn dialects_copy_refuses_are_refused() {
    let refused = |change: fn(&mut CsvDialect)| check_dialect(&csv(1).with(change).dialect).is_err();
    assert!(check_dialect(&CsvDialect::default()).is_ok());
    assert!(refused(|d| d.delimiter = b'"'));
    assert!(refused(|d| d.delimiter = b'\n'));
    assert!(refused(|d| d.quote = 0xe9));
    assert!(refused(|d| d.null = "a,b".into()));
    assert!(refused(|d| d.null = "\"".into()));
    assert!(refused(|d| d.null = "a\rb".into()));
}

fn dialects() -> impl Strategy<Value = Csv> {
    let numbers = || proptest::collection::vec(0usize..4, 0..3);
    (
        prop_oneof![Just(b','), Just(b'\t'), Just(b'x'), Just(b'\\')],
        prop_oneof![Just(b'"'), Just(b'\'')],
        prop_oneof![3 => Just(b'"'), 1 => Just(b'\''), 1 => Just(b'\\'), 1 => Just(b',')],
        prop_oneof![2 => Just(""), 1 => Just("a"), 1 => Just("\\N"), 1 => Just("NULL")],
        prop_oneof![2 => Just(Eol::Lf), 1 => Just(Eol::CrLf), 1 => Just(Eol::Cr)],
        (numbers(), numbers(), proptest::option::of(0usize..5)),
    )
        .prop_map(|(delimiter, quote, escape, null, eol, (force_null, force_not_null, expected))| Csv {
            dialect: CsvDialect {
                delimiter,
                quote,
                escape,
                null: null.into(),
                header: false,
                eol,
                force_null,
                force_not_null,
            },
            expected,
        })
}

/// Bytes in which everything that matters to CSV is frequent, with longer stretches in between.
fn csv_like() -> impl Strategy<Value = Vec<u8>> {
    let piece = prop_oneof![
        6 => "[a-cNUL]{0,6}".prop_map(String::into_bytes),
        2 => "[a-z ]{20,90}".prop_map(String::into_bytes),
        5 => proptest::sample::select(&b",,,\t'\"\"\"\\\n\n\r"[..]).prop_map(|b| vec![b]),
        3 => proptest::sample::select(&["\r\n", "\"\"", "\",\"", "\"\n", "\"\r\n", "'", "\\\"", "\\N", "NULL"][..])
            .prop_map(|s| s.as_bytes().to_vec()),
    ];
    proptest::collection::vec(piece, 0..60).prop_map(|pieces| pieces.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4000))]

    #[test]
    fn fast_and_plain_agree_on_csv(csv in dialects(), input in csv_like()) {
        let fast = decode_all_ways(&mut csv.fast(), &input);
        prop_assert_eq!(fast, decode_all_ways(&mut csv.plain(), &input));
    }

    #[test]
    fn fast_and_plain_agree_on_any_bytes(csv in dialects(), input in proptest::collection::vec(any::<u8>(), 0..300)) {
        prop_assert_eq!(decode(&mut csv.fast(), &input), decode(&mut csv.plain(), &input));
    }
}
