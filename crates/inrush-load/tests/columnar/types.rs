//! Every type, with NULL, from every kind of file, by both paths.

use crate::{arrow_file, arrow_stream, load_well, parquet};
use arrow_array::builder::{Int32Builder, ListBuilder, MapBuilder, StringBuilder};
use arrow_array::types::Int8Type;
use arrow_array::*;
use arrow_buffer::{IntervalMonthDayNano, i256};
use arrow_schema::{DataType, Field, Schema};
use inrush_load::Via;
use inrush_testkit::{Database, Postgres, Version, require_server};
use parquet::basic::Compression;
use parquet::file::properties::WriterProperties;
use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;
use std::sync::Arc;

/// A column of the test: its type in the table, its values in the file, and the same values as SQL literals.
struct Case {
    ty: &'static str,
    field: Field,
    values: ArrayRef,
    literals: Vec<&'static str>,
    /// The format cannot hold it (as the crate writes it).
    only_arrow: bool,
}

fn case(ty: &'static str, values: impl Array + 'static, literals: &[&'static str]) -> Case {
    let field = Field::new("", values.data_type().clone(), true);
    Case { ty, field, values: Arc::new(values), literals: literals.to_vec(), only_arrow: false }
}

fn arrow_only(case: Case) -> Case {
    Case { only_arrow: true, ..case }
}

fn strings() -> Vec<Option<&'static str>> {
    vec![Some("a\tb\\c\n\"ü\u{1F600}"), None, Some("")]
}

const STRINGS: &[&str] = &["E'a\\tb\\\\c\\n\"ü😀'", "NULL", "''"];

fn numbers() -> Vec<Case> {
    let decimals = Decimal128Array::from(vec![Some(-1_234_567), None, Some(10i128.pow(37) - 1)]);
    let long = Decimal256Array::from(vec![Some(i256::from_i128(-5)), None, Some(i256::from_i128(i128::MAX))]);
    vec![
        case("boolean", BooleanArray::from(vec![Some(true), None, Some(false)]), &["true", "NULL", "false"]),
        case("smallint", Int8Array::from(vec![Some(-128), None, Some(127)]), &["-128", "NULL", "127"]),
        case("smallint", Int16Array::from(vec![Some(i16::MIN), None, Some(0)]), &["'-32768'", "NULL", "0"]),
        case(
            "integer",
            Int32Array::from(vec![Some(i32::MIN), None, Some(7)]),
            &["'-2147483648'", "NULL", "7"],
        ),
        case(
            "bigint",
            Int64Array::from(vec![Some(i64::MIN), None, Some(7)]),
            &["'-9223372036854775808'", "NULL", "7"],
        ),
        case("integer", UInt8Array::from(vec![Some(255), None, Some(0)]), &["255", "NULL", "0"]),
        case("integer", UInt16Array::from(vec![Some(65535), None, Some(0)]), &["65535", "NULL", "0"]),
        case("bigint", UInt32Array::from(vec![Some(u32::MAX), None, Some(0)]), &["4294967295", "NULL", "0"]),
        case(
            "numeric",
            UInt64Array::from(vec![Some(u64::MAX), None, Some(0)]),
            &["18446744073709551615", "NULL", "0"],
        ),
        case("smallint", Int64Array::from(vec![Some(12), None, Some(-12)]), &["12", "NULL", "-12"]),
        case("text", Int64Array::from(vec![Some(12), None, Some(-12)]), &["'12'", "NULL", "'-12'"]),
        case(
            "double precision",
            Int64Array::from(vec![Some(1 << 60), None, Some(3)]),
            &["1152921504606846976", "NULL", "3"],
        ),
        case("real", Float32Array::from(vec![Some(0.1), None, Some(f32::NAN)]), &["0.1", "NULL", "'NaN'"]),
        case(
            "double precision",
            Float32Array::from(vec![Some(0.1), None, Some(-0.0)]),
            &["0.1::real::float8", "NULL", "'-0'"],
        ),
        case(
            "double precision",
            Float64Array::from(vec![Some(1e-310), None, Some(f64::INFINITY)]),
            &["'1e-310'", "NULL", "'Infinity'"],
        ),
        case(
            "text",
            Float64Array::from(vec![Some(1.5e20), None, Some(0.1)]),
            &["1.5e20::float8::text", "NULL", "'0.1'"],
        ),
        case(
            "text",
            Float32Array::from(vec![Some(1e6), None, Some(123456.0)]),
            &["1e6::real::text", "NULL", "123456::real::text"],
        ),
        case("numeric", Float64Array::from(vec![Some(0.1), None, Some(f64::NAN)]), &["0.1", "NULL", "'NaN'"]),
        case("real", Float64Array::from(vec![Some(0.1), None, Some(1e30)]), &["0.1", "NULL", "'1e30'"]),
        case(
            "numeric(38,5)",
            decimals.clone().with_precision_and_scale(38, 5).expect("fits"),
            &["-12.34567", "NULL", "99999999999999999999999999999999.99999"],
        ),
        case(
            "numeric",
            decimals.clone().with_precision_and_scale(38, 38).expect("fits"),
            &[
                "-0.00000000000000000000000000000001234567",
                "NULL",
                "0.09999999999999999999999999999999999999",
            ],
        ),
        case(
            "numeric(10,1)",
            Decimal128Array::from(vec![Some(-1_234_567), None, Some(25)])
                .with_precision_and_scale(12, 2)
                .expect("fits"),
            &["-12345.7", "NULL", "0.3"],
        ),
        case(
            "double precision",
            Decimal128Array::from(vec![Some(-125), None, Some(25)])
                .with_precision_and_scale(12, 2)
                .expect("fits"),
            &["'-1.25'", "NULL", "0.25"],
        ),
        case(
            "numeric",
            long.with_precision_and_scale(76, 3).expect("fits"),
            &["-0.005", "NULL", "170141183460469231731687303715884105.727"],
        ),
    ]
}

fn texts() -> Vec<Case> {
    let bytes = || vec![Some(&b"\0\xff'\\"[..]), None, Some(&b""[..])];
    const BYTES: &[&str] = &["'\\x00ff275c'", "NULL", "'\\x'"];
    let uuid = FixedSizeBinaryArray::try_from_sparse_iter_with_size(
        vec![Some((0..16).collect::<Vec<u8>>()), None, Some(vec![255; 16])].into_iter(),
        16,
    )
    .expect("sixteen bytes");
    const UUIDS: &[&str] =
        &["'00010203-0405-0607-0809-0a0b0c0d0e0f'", "NULL", "'ffffffff-ffff-ffff-ffff-ffffffffffff'"];
    let mut extension = case("text", uuid.clone(), UUIDS);
    extension.field = extension
        .field
        .with_metadata(HashMap::from([("ARROW:extension:name".to_owned(), "arrow.uuid".to_owned())]));
    let words: DictionaryArray<Int8Type> = vec![Some("happy"), None, Some("sad")].into_iter().collect();
    vec![
        case("text", StringArray::from(strings()), STRINGS),
        case("varchar(20)", LargeStringArray::from(strings()), STRINGS),
        case("text", StringViewArray::from(strings()), STRINGS),
        case("mood", words.clone(), &["'happy'", "NULL", "'sad'"]),
        case("text", words, &["'happy'", "NULL", "'sad'"]),
        case("integer", StringArray::from(vec![Some("12"), None, Some(" 7 ")]), &["12", "NULL", "7"]),
        case(
            "json",
            StringArray::from(vec![Some("{\"a\": [1]}"), None, Some("1")]),
            &["'{\"a\": [1]}'", "NULL", "'1'"],
        ),
        case(
            "jsonb",
            StringArray::from(vec![Some("{\"a\": [1]}"), None, Some("1")]),
            &["'{\"a\": [1]}'", "NULL", "'1'"],
        ),
        case(
            "point",
            StringArray::from(vec![Some("(1,2)"), None, Some("(3,4)")]),
            &["'(1,2)'", "NULL", "'(3,4)'"],
        ),
        case("bytea", BinaryArray::from(bytes()), BYTES),
        case("bytea", LargeBinaryArray::from(bytes()), BYTES),
        case("bytea", BinaryViewArray::from(bytes()), BYTES),
        case("text", BinaryArray::from(vec![Some("ä".as_bytes()), None, Some(b"")]), &["'ä'", "NULL", "''"]),
        case(
            "bytea",
            uuid.clone(),
            &["'\\x000102030405060708090a0b0c0d0e0f'", "NULL", "'\\xffffffffffffffffffffffffffffffff'"],
        ),
        case("uuid", uuid, UUIDS),
        extension,
        case("text", NullArray::new(3), &["NULL", "NULL", "NULL"]),
    ]
}

fn times() -> Vec<Case> {
    const NOON: i64 = 1_709_208_000; // 2024-02-29 12:00:00
    vec![
        case(
            "date",
            Date32Array::from(vec![Some(19_782), None, Some(-800_000)]),
            &["'2024-02-29'", "NULL", "'1970-01-01'::date - 800000"],
        ),
        arrow_only(case(
            "timestamp",
            Date64Array::from(vec![Some(86_400_000), None, Some(1)]),
            &["'1970-01-02'", "NULL", "'1970-01-01 00:00:00.001'"],
        )),
        case(
            "timestamp",
            Date32Array::from(vec![Some(0), None, Some(1)]),
            &["'1970-01-01'", "NULL", "'1970-01-02'"],
        ),
        case(
            "time",
            Time32SecondArray::from(vec![Some(86_399), None, Some(0)]),
            &["'23:59:59'", "NULL", "'00:00'"],
        ),
        case(
            "time",
            Time32MillisecondArray::from(vec![Some(86_399_999), None, Some(0)]),
            &["'23:59:59.999'", "NULL", "'00:00'"],
        ),
        case(
            "time",
            Time64MicrosecondArray::from(vec![Some(86_400_000_000), None, Some(1)]),
            &["'24:00:00'", "NULL", "'00:00:00.000001'"],
        ),
        case(
            "time",
            Time64NanosecondArray::from(vec![Some(1_500), None, Some(2_499)]),
            &["'00:00:00.0000015'", "NULL", "'00:00:00.000002499'"],
        ),
        case(
            "timestamp",
            TimestampSecondArray::from(vec![Some(NOON), None, Some(-1)]),
            &["'2024-02-29 12:00'", "NULL", "'1969-12-31 23:59:59'"],
        ),
        case(
            "timestamp",
            TimestampMillisecondArray::from(vec![Some(NOON * 1000 + 1), None, Some(253_402_300_800_000)]),
            &["'2024-02-29 12:00:00.001'", "NULL", "'10000-01-01 00:00'"],
        ),
        case(
            "timestamp",
            TimestampMicrosecondArray::from(vec![Some(i64::MAX), None, Some(-99_999_999_999_999_999)]),
            &[
                "'294247-01-10 04:00:54.775807'",
                "NULL",
                "'1970-01-01'::timestamp - interval '99999999999 s' - interval '0.999999 s'",
            ],
        ),
        case(
            "timestamp",
            TimestampNanosecondArray::from(vec![Some(NOON * 1_000_000_000 + 1_500), None, Some(-1)]),
            &["'2024-02-29 12:00:00.0000015'", "NULL", "'1969-12-31 23:59:59.999999999'"],
        ),
        case(
            "timestamptz",
            TimestampMicrosecondArray::from(vec![Some(NOON * 1_000_000), None, Some(0)]),
            &["'2024-02-29 12:00'", "NULL", "'1970-01-01 00:00'"],
        ),
        case(
            "timestamptz",
            TimestampMicrosecondArray::from(vec![Some(NOON * 1_000_000), None, Some(0)])
                .with_timezone("Europe/Berlin"),
            &["'2024-02-29 12:00+00'", "NULL", "'1970-01-01 00:00+00'"],
        ),
        case(
            "timestamp",
            TimestampMillisecondArray::from(vec![Some(NOON * 1_000), None, Some(0)]).with_timezone("+02:00"),
            &["'2024-02-29 12:00'", "NULL", "'1970-01-01 00:00'"],
        ),
        case(
            "date",
            TimestampMicrosecondArray::from(vec![Some(NOON * 1_000_000), None, Some(-1)]),
            &["'2024-02-29'", "NULL", "'1969-12-31'"],
        ),
        case(
            "text",
            TimestampMicrosecondArray::from(vec![Some(NOON * 1_000_000), None, Some(-1)])
                .with_timezone("UTC"),
            &["'2024-02-29 12:00:00+00'", "NULL", "'1969-12-31 23:59:59.999999+00'"],
        ),
        arrow_only(case(
            "interval",
            DurationMillisecondArray::from(vec![Some(-1_500), None, Some(90_000_000)]),
            &["'-1.5 s'", "NULL", "'25:00:00'"],
        )),
        arrow_only(case(
            "interval",
            IntervalMonthDayNanoArray::from(vec![
                Some(IntervalMonthDayNano::new(-14, 3, 1_000)),
                None,
                Some(IntervalMonthDayNano::new(0, 0, 1_500)),
            ]),
            &["'-14 mons 3 days 0.000001 s'", "NULL", "'00:00:00.0000015'"],
        )),
        arrow_only(case(
            "interval",
            IntervalYearMonthArray::from(vec![Some(14), None, Some(-1)]),
            &["'14 mons'", "NULL", "'-1 mons'"],
        )),
    ]
}

fn nested() -> Vec<Case> {
    let mut list = ListBuilder::new(Int32Builder::new());
    list.append_value([Some(1), None, Some(3)]);
    list.append_null();
    list.append_value([]);
    let list = list.finish();
    let mut words = ListBuilder::new(StringBuilder::new());
    words.append_value([Some("a,\"b\\"), Some("NULL"), None]);
    words.append_null();
    words.append_value([Some("")]);
    let words = words.finish();
    let mut square = ListBuilder::new(ListBuilder::new(Int32Builder::new()));
    for row in [[1, 2], [3, 4]] {
        square.values().append_value(row.map(Some));
    }
    square.append(true);
    square.append(false);
    square.append(true);
    let square = square.finish();
    let person = StructArray::from(vec![
        (
            Arc::new(Field::new("n", DataType::Int32, true)),
            Arc::new(Int32Array::from(vec![Some(1), Some(2), None])) as ArrayRef,
        ),
        (
            Arc::new(Field::new("s", DataType::Utf8, true)),
            Arc::new(StringArray::from(vec![Some("\"\u{1}ä"), None, Some("x")])) as ArrayRef,
        ),
    ]);
    let mut map = MapBuilder::new(None, StringBuilder::new(), Int32Builder::new());
    map.keys().append_value("k");
    map.values().append_value(1);
    map.append(true).expect("entry");
    map.append(false).expect("null");
    map.append(true).expect("empty");
    vec![
        case("integer[]", list.clone(), &["'{1,NULL,3}'", "NULL", "'{}'"]),
        case("bigint[]", list.clone(), &["'{1,NULL,3}'", "NULL", "'{}'"]),
        case("text[]", list.clone(), &["'{1,NULL,3}'", "NULL", "'{}'"]),
        case("jsonb", list.clone(), &["'[1,null,3]'", "NULL", "'[]'"]),
        case("text", list, &["'[1,null,3]'", "NULL", "'[]'"]),
        case("text[]", words, &["ARRAY['a,\"b\\', 'NULL', NULL]", "NULL", "ARRAY['']"]),
        case("integer[]", square, &["'{{1,2},{3,4}}'", "NULL", "'{}'"]),
        case(
            "jsonb",
            person,
            &["'{\"n\":1,\"s\":\"\\\"\\u0001ä\"}'", "'{\"n\":2,\"s\":null}'", "'{\"n\":null,\"s\":\"x\"}'"],
        ),
        case("jsonb", map.finish(), &["'{\"k\":1}'", "NULL", "'{}'"]),
    ]
}

fn cases() -> Vec<Case> {
    let all = [numbers(), texts(), times(), nested()];
    all.into_iter()
        .flatten()
        .enumerate()
        .map(|(i, mut case)| {
            case.field = case.field.with_name(format!("c{i}"));
            case
        })
        .collect()
}

fn batch(cases: &[&Case]) -> RecordBatch {
    let schema = Schema::new(cases.iter().map(|case| case.field.clone()).collect::<Vec<_>>());
    let columns = cases.iter().map(|case| Arc::clone(&case.values)).collect();
    RecordBatch::try_new(Arc::new(schema), columns).expect("columns of equal length")
}

/// Tables `t` to load and `e` with what is expected of `times` copies of the batch.
fn tables(database: &Database<'_>, cases: &[&Case], times: usize) {
    let mut sql = "DROP TABLE IF EXISTS t, e; CREATE TABLE t (".to_owned();
    for (i, case) in cases.iter().enumerate() {
        let comma = if i > 0 { ", " } else { "" };
        write!(sql, "{comma}{} {}", case.field.name(), case.ty).expect("string");
    }
    sql.push_str("); CREATE TABLE e (LIKE t); INSERT INTO e VALUES ");
    for row in 0..3 {
        let row: Vec<&str> = cases.iter().map(|case| case.literals[row]).collect();
        write!(sql, "({}),", row.join(", ")).expect("string");
    }
    sql.pop();
    write!(sql, "; INSERT INTO e SELECT e.* FROM e, generate_series(2, {times})").expect("string");
    database.psql(&sql);
}

#[track_caller]
fn compare(database: &Database<'_>, cases: &[&Case], what: &str) {
    for case in cases {
        let name = case.field.name();
        let of = |table: &str| {
            database.psql(&format!(
                "SELECT coalesce({name}::text, 'is null'), count(*) FROM {table} GROUP BY 1 ORDER BY 1"
            ))
        };
        assert_eq!(of("t"), of("e"), "{what}: {name} {} from {}", case.ty, case.field.data_type());
    }
}

fn check(version: Version, timezone: &str) {
    let server = Postgres::shared(version);
    let database = server.fresh_database();
    database.psql("CREATE TYPE mood AS ENUM ('sad', 'happy')");
    let name = database.psql("SELECT current_database()");
    database.psql(&format!("ALTER DATABASE \"{name}\" SET timezone = '{timezone}'"));
    let dir = tempfile::tempdir().expect("directory");
    let all = cases();
    let every: Vec<&Case> = all.iter().collect();
    // `point` has no client encoder: with it the whole table goes as text.
    let encodable: Vec<&Case> = all.iter().filter(|case| case.ty != "point").collect();
    let path = |name: &str| dir.path().join(name);
    let load = |file: &Path, via: Via| {
        load_well(&database, &[file], |options| options.via = via);
    };
    for (cases, via) in [(&encodable, Via::CopyBinary), (&every, Via::CopyText)] {
        let one = batch(cases);
        let batches = vec![one.clone(), one.clone(), one];
        tables(&database, cases, 3);
        arrow_file(&path("a.arrow"), &batches, arrow_ipc::writer::IpcWriteOptions::default());
        load(&path("a.arrow"), via);
        compare(&database, cases, &format!("arrow file, {via:?}"));
        tables(&database, cases, 3);
        arrow_stream(&path("a.arrows"), &batches);
        load(&path("a.arrows"), via);
        compare(&database, cases, &format!("arrow stream, {via:?}"));
        let cases: Vec<&Case> = cases.iter().copied().filter(|case| !case.only_arrow).collect();
        let one = batch(&cases);
        let batches = vec![one.clone(), one.clone(), one];
        tables(&database, &cases, 3);
        parquet(
            &path("p.parquet"),
            &batches,
            WriterProperties::builder().set_max_row_group_row_count(Some(2)).build(),
        );
        load(&path("p.parquet"), via);
        compare(&database, &cases, &format!("parquet, {via:?}"));
    }
}

#[test]
fn every_type_is_what_its_text_would_be() {
    require_server!(Version::Any);
    check(Version::Any, "UTC");
}

#[test]
fn every_type_in_another_time_zone() {
    require_server!(Version::Any);
    check(Version::Any, "Asia/Kolkata");
}

#[test]
fn every_codec() {
    require_server!(Version::Any);
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql("CREATE TYPE mood AS ENUM ('sad', 'happy')");
    let dir = tempfile::tempdir().expect("directory");
    let all = cases();
    let cases: Vec<&Case> = all.iter().filter(|case| !case.only_arrow && case.ty != "point").collect();
    let codecs = [
        Compression::UNCOMPRESSED,
        Compression::SNAPPY,
        Compression::GZIP(Default::default()),
        Compression::BROTLI(Default::default()),
        Compression::LZ4,
        Compression::LZ4_RAW,
        Compression::ZSTD(Default::default()),
    ];
    let one = batch(&cases);
    for codec in codecs {
        for version in [1, 2] {
            let properties =
                WriterProperties::builder().set_compression(codec).set_writer_version(match version {
                    1 => parquet::file::properties::WriterVersion::PARQUET_1_0,
                    _ => parquet::file::properties::WriterVersion::PARQUET_2_0,
                });
            let path = dir.path().join(format!("{codec}-{version}.parquet"));
            parquet(&path, std::slice::from_ref(&one), properties.build());
            tables(&database, &cases, 1);
            load_well(&database, &[&path], |_| ());
            compare(&database, &cases, &format!("{codec} {version}"));
        }
    }
    for codec in [arrow_ipc::CompressionType::LZ4_FRAME, arrow_ipc::CompressionType::ZSTD] {
        let options = arrow_ipc::writer::IpcWriteOptions::default();
        let path = dir.path().join(format!("{codec:?}.arrow"));
        arrow_file(
            &path,
            std::slice::from_ref(&one),
            options.try_with_compression(Some(codec)).expect("codec"),
        );
        tables(&database, &cases, 1);
        load_well(&database, &[&path], |_| ());
        compare(&database, &cases, &format!("{codec:?}"));
    }
}
