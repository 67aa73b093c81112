use inrush_core::{Code, Eol, Format};
use inrush_decode::sniff::{FormatName, Sample, Sniffed, Stated, sniff};
use proptest::prelude::*;

fn of(input: &str, name: &str, stated: &Stated) -> Sniffed {
    let sample = Sample { bytes: input.as_bytes(), complete: true, name_hint: Some(name) };
    sniff(&sample, stated).unwrap_or_else(|error| panic!("{input:?}: {error}"))
}

fn clash(input: &[u8], stated: &Stated) -> String {
    let error =
        sniff(&Sample { bytes: input, complete: true, name_hint: None }, stated).expect_err("a clash");
    assert_eq!(error.code(), Code::Clash);
    error.fact().to_owned()
}

/// Format, what is unusual about its dialect, whether there is a header, and the columns.
fn show(sniffed: &Sniffed) -> String {
    let mut shown = sniffed.format.name().to_owned();
    if let Format::Csv(dialect) = &sniffed.format {
        for (byte, usual) in
            [(dialect.delimiter, b",\t"), (dialect.quote, b"\"\""), (dialect.escape, b"\"\"")]
        {
            if !usual.contains(&byte) {
                shown.push_str(&format!(" {}", char::from(byte)));
            }
        }
        if dialect.eol != Eol::Lf {
            shown.push_str(&format!(" {:?}", dialect.eol));
        }
        if !dialect.null.is_empty() {
            shown.push_str(&format!(" null={}", dialect.null));
        }
    }
    let columns = sniffed
        .columns
        .iter()
        .map(|c| format!("{} {}{}", c.name, c.ty.sql(), if c.nullable { "?" } else { "" }));
    let header = if sniffed.header { "header: " } else { "" };
    format!("{shown}: {header}{}", columns.collect::<Vec<_>>().join(", "))
}

macro_rules! sniffs {
    ($test:ident, $input:expr, $name:expr => $shown:expr) => {
        sniffs!($test, $input, $name, Stated::default() => $shown);
    };
    ($test:ident, $input:expr, $name:expr, $stated:expr => $shown:expr) => {
        #[test]
        fn $test() {
            assert_eq!(show(&of($input, $name, &$stated)), $shown);
        }
    };
}

sniffs!(csv_with_header_and_types, "id,name,born,seen\n1,ann,2001-02-03,2024-01-01T00:00:00Z\n2,bob,,2024-01-02T00:00:00Z\n", "a.csv"
    => "csv: header: id integer, name text, born date?, seen timestamp with time zone");
sniffs!(csv_without_header, "1,ann,1.5\n2,bob,2\n", "a.csv" => "csv: column1 integer, column2 text, column3 numeric");
sniffs!(leading_zeros_stay_text, "zip,n\n01234,1\n99999,2\n", "a.csv" => "csv: header: zip text, n integer");
sniffs!(semicolons_with_decimal_commas, "a;b\n1,5;2,5\n3,5;4,5\n", "a.csv" => "csv ;: column1 text, column2 text");
sniffs!(tabs_are_tsv, "id\tv\n1\tx, y\n2\tz\n", "a.txt" => "tsv: header: id integer, v text");
sniffs!(pipes, "1|x\n2|y\n", "a" => "csv |: column1 integer, column2 text");
sniffs!(delimiters_in_quotes_do_not_count, "id,note\n1,\"a;b;c\nd;e\"\n2,\"f;g;h\"\n", "a.csv" => "csv: header: id integer, note text");
sniffs!(windows_lines, "id,note\r\n1,\"a\nb\"\r\n", "a.csv" => "csv CrLf: header: id integer, note text");
sniffs!(old_mac_lines, "id,n\r1,2\r", "a.csv" => "csv Cr: header: id integer, n integer");
sniffs!(backslash_escapes_in_quotes, "id,note\n1,\"say \\\"x, y\\\", z\"\n2,\"b\"\n3,\"\\\",\\\"\"\n", "a.csv" => "csv \\: header: id integer, note text");
sniffs!(single_quotes, "id,note\n1,'a,b'\n2,'c'\n", "a.csv" => "csv ' ': header: id integer, note text");
sniffs!(null_words, "id,n\n1,\\N\n2,5\n", "a.csv" => "csv null=\\N: header: id integer, n integer?");
sniffs!(one_column, "n\n1\n2\n", "n.csv" => "csv: header: n integer");
sniffs!(all_text_with_usual_names, "name,city\nann,berlin\nbob,rome\n", "a.csv" => "csv: header: name text, city text");
sniffs!(all_text_without, "ann,berlin\nbob,rome\n", "a.csv" => "csv: column1 text, column2 text");
sniffs!(names_are_made_different, "a,a_2,b,\n1,2,3,4\n", "a.csv", Stated { header: Some(true), ..Stated::default() } => "csv: header: a integer, a_2 integer, b integer, column4 integer");
sniffs!(stated_no_header_wins, "id,n\n1,2\n", "a.csv", Stated { header: Some(false), ..Stated::default() } => "csv: column1 text, column2 text");
sniffs!(stated_delimiter_wins, "1;2,3\n4;5,6\n", "a.csv", Stated { delimiter: Some(b','), ..Stated::default() } => "csv: column1 text, column2 integer");
sniffs!(stated_null_wins, "1,-\n2,3\n", "a.csv", Stated { null: Some("-".into()), ..Stated::default() } => "csv null=-: column1 integer, column2 integer?");
sniffs!(pg_text, "1\ta\\tb\t\\N\n2\tc\t2024-01-01\n", "a.sql" => "text: column1 integer, column2 text, column3 date?");
sniffs!(byte_order_mark_is_no_name, "\u{feff}id,n\n1,2\n", "a.csv" => "csv: header: id integer, n integer");
sniffs!(objects, "{\"id\":1,\"at\":\"2024-01-01\",\"n\":\"5\",\"x\":[1],\"ok\":true,\"v\":1}\n{\"id\":2,\"ok\":null,\"v\":1.5}\n", "a"
    => "ndjson: id integer, at date?, n text?, x json?, ok boolean?, v numeric");
sniffs!(nothing_at_all, "", "a.csv" => "csv: ");
sniffs!(header_only, "id,name\n", "a.csv" => "csv: header: id text, name text");

#[test]
fn signatures_are_known() {
    let format = |bytes: &[u8]| {
        let sample = Sample { bytes, complete: false, name_hint: None };
        sniff(&sample, &Stated::default()).map(|sniffed| sniffed.format.name()).map_err(|e| e.code())
    };
    assert_eq!(format(b"PAR1\x15\0"), Ok("parquet"));
    assert_eq!(format(b"ARROW1\0\0"), Ok("arrow"));
    assert_eq!(format(b"\xff\xff\xff\xff\x78\0\0\0"), Ok("arrow"));
    assert_eq!(format(b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02"), Ok("binary"));
    assert_eq!(format(b"\xff\xfea\0"), Err(Code::Encoding));
}

#[test]
fn binary_columns_are_counted() {
    let input = b"PGCOPY\n\xff\r\n\0\0\0\0\0\0\0\0\0\0\x02\0\0\0\x01a\xff\xff\xff\xff\xff\xff";
    let sniffed = sniff(&Sample { bytes: input, complete: true, name_hint: None }, &Stated::default());
    assert_eq!(sniffed.map(|s| show(&s)).ok().as_deref(), Some("binary: column1 bytea, column2 bytea?"));
}

#[test]
fn contradictions_name_both_sides() {
    let stated = |format| Stated { format: Some(format), ..Stated::default() };
    assert_eq!(
        clash(b"PAR1....", &stated(FormatName::Csv)),
        "the format csv was stated, but the input begins with the signature of parquet"
    );
    assert_eq!(
        clash(b"a,b\n", &stated(FormatName::Parquet)),
        "the format parquet was stated, but the input begins with no signature of it"
    );
    assert_eq!(
        clash(b"a,b\n1,2\n", &Stated { delimiter: Some(b';'), ..Stated::default() }),
        "the delimiter ';' was stated, but it occurs in none of the first 2 records; ',' splits them into 2 fields"
    );
}

#[test]
fn a_json_document_is_not_taken_for_csv() {
    let sample = Sample { bytes: b"[{\"a\":1},\n {\"a\":2}]\n", complete: true, name_hint: Some("a.json") };
    assert_eq!(sniff(&sample, &Stated::default()).map_err(|e| e.code()), Err(Code::Format));
}

#[test]
fn a_record_that_is_cut_off_does_not_count() {
    let sample = Sample { bytes: b"id,n\n1,2\n3,4\n5,\"x", complete: false, name_hint: None };
    let sniffed = sniff(&sample, &Stated::default()).expect("csv");
    assert_eq!(show(&sniffed), "csv: header: id integer, n integer");
    assert_eq!((sniffed.records, sniffed.misfits), (2, 0));
}

#[test]
fn misfits_are_counted() {
    let sniffed = of("id,n\n1,2\n3\n5,6\n7,8\n9,10\n", "a.csv", &Stated::default());
    assert_eq!((sniffed.records, sniffed.misfits), (5, 1));
}

proptest! {
    #[test]
    fn any_bytes_end_without_a_panic(
        bytes in proptest::collection::vec(prop_oneof![any::<u8>(), proptest::sample::select(&b",;\t\"\n\r{}:\\'1"[..])], 0..300),
        complete in any::<bool>(),
    ) {
        let _ = sniff(&Sample { bytes: &bytes, complete, name_hint: None }, &Stated::default());
    }
}

/// Samples that once took minutes: comparing each of many names with all others.
#[test]
fn many_names_take_no_longer_than_their_bytes() {
    let started = std::time::Instant::now();
    let stated = Stated { header: Some(true), ..Stated::default() };
    let alike = of(&["a"; 60_000].join(","), "a.csv", &stated);
    assert_eq!(alike.columns.len(), 60_000);
    assert_eq!((&alike.columns[1].name[..], &alike.columns[59_999].name[..]), ("a_2", "a_60000"));
    let keys: Vec<String> = (0..90_000).map(|i| format!("\"{i}\":0")).collect();
    let object = of(&format!("{{{}}}\n", keys.join(",")), "a.ndjson", &Stated::default());
    assert_eq!((object.columns.len(), object.records), (2000, 1));
    assert!(started.elapsed().as_secs() < 10, "it took {:?}", started.elapsed());
}
