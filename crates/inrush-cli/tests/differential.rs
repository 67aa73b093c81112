//! psql's COPY is the oracle: generated tables and values of every supported type, loaded by it and by every
//! path of `inrush`, are the same rows.
//!
//! `INRUSH_ROUNDS` says how many tables are made (8 unless told otherwise), `INRUSH_SEED` which random numbers.

mod harness;

use harness::{Random, inrush, run};
use inrush_testkit::{Installation, Postgres, Version, require_server};
use std::path::Path;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
const ROWS: u64 = 80;

/// A type, whether the client encodes it, and values that COPY takes.
struct Type {
    name: &'static str,
    encoded: bool,
    values: &'static [&'static str],
}

const fn encoded(name: &'static str, values: &'static [&'static str]) -> Type {
    Type { name, encoded: true, values }
}

/// `*` among the values stands for random text.
const TYPES: &[Type] = &[
    encoded("boolean", &["t", "f", "true", "FALSE", "yes", "n", "on", "off", "1", "0", " tru ", "of"]),
    encoded("smallint", &["0", "-32768", "32767", "+7", " 42 ", "007", "-0"]),
    encoded("integer", &["0", "-2147483648", "2147483647", "+7", "  42", "0000000000000000012", "-1"]),
    encoded(
        "bigint",
        &["0", "-9223372036854775808", "9223372036854775807", "+7", "42 ", "000000000000000000000001"],
    ),
    encoded("oid", &["0", "4294967295", "42", "-1"]),
    encoded(
        "real",
        &[
            "0",
            "-0",
            "1.5",
            "3.4028235e38",
            "1e-45",
            "NaN",
            "inf",
            "-Infinity",
            "+Inf",
            ".5",
            "5.",
            "1e10",
            " 7 ",
            "0x1p3",
            "16777217",
            "1.17549435e-38",
        ],
    ),
    encoded(
        "double precision",
        &[
            "0",
            "-0",
            "1.7976931348623157e308",
            "4.9e-324",
            "nan",
            "Infinity",
            "-inf",
            ".5",
            "5.",
            "1E+2",
            "0.1",
            "123456789012345678901234567890",
            "2.2250738585072011e-308",
            "9007199254740993",
            " 1 ",
        ],
    ),
    encoded(
        "numeric",
        &[
            "0",
            "-0.00",
            "1.50",
            "1e400",
            "NaN",
            "Infinity",
            "-infinity",
            "1e-20",
            "123456789012345678901234567890.1234567890",
            ".5",
            "5.",
            "+5",
            " 7 ",
            "1E3",
            "0.0000000000000000000000001",
            "99999999",
            "10000",
            "0e10",
            "1e-16383",
        ],
    ),
    encoded("numeric(10,2)", &["1.005", "99999999.99", "-0.001", "NaN", "1e3", ".995", "0", "-12345678.9"]),
    encoded("text", &["*"]),
    encoded("varchar(5)", &["", "abcde", "äöüßé", "abc       ", "abcde    ", "a\tb", "\\", "\"", "'"]),
    encoded("char(4)", &["", "ab", "ab  ", "äöü", "abcd    ", "\\n", "a\nb"]),
    encoded("name", &["", "x", "Größe", "a b"]),
    encoded(
        "bytea",
        &["", "\\x", "\\x00ff", "\\xDEADbeef", "\\x de ad ", "abc\\000\\\\", "\\377", "text", "\u{1}"],
    ),
    encoded(
        "date",
        &[
            "2024-02-29",
            "infinity",
            "-infinity",
            "epoch",
            "0044-03-15 BC",
            "4713-01-01 BC",
            "5874897-12-31",
            "Jan 5, 2024",
            "20240105",
            "J2451187",
            "05-Jan-2024",
            "01/02/2003",
            "1999-1-8",
            "2024-01-05 12:00",
            "0001-01-01",
            "January 8, 99 BC",
        ],
    ),
    encoded(
        "time",
        &[
            "12:34",
            "12:34:56.789",
            "24:00:00",
            "040506",
            "04:05 PM",
            "23:59:60",
            "00:00:00.0000005",
            "12:34:56.123456789",
            "04:05:06+02",
            "allballs",
        ],
    ),
    encoded(
        "time with time zone",
        &[
            "12:34:56+02",
            "12:00 PST",
            "24:00:00-12:30",
            "04:05:06.789-8",
            "2003-04-12 04:05:06 America/New_York",
            "00:00Z",
            "12:00:00+15:59:59",
            "1:2:3",
        ],
    ),
    encoded(
        "timestamp",
        &[
            "2024-01-01T12:00:00",
            "294276-12-31 23:59:59.999999",
            "4713-01-01 00:00:00 BC",
            "2024-01-01 24:00:00",
            "infinity",
            "-infinity",
            "epoch",
            "Sat Nov 21 02:00:00 2026",
            "2024-02-29 23:59:60",
            "1999-12-31 23:59:59.9999995",
            "2024-01-01",
            "20240101T010203",
            "2024-01-01 00:00:00+05",
            "0001-01-01 00:00:00",
            "2024-1-1 1:2:3.4",
        ],
    ),
    encoded("timestamp(2)", &["2024-01-01 12:00:00.125", "1999-12-31 23:59:59.999", "infinity"]),
    encoded(
        "timestamptz",
        &[
            "2024-01-01 12:00:00+02",
            "2024-01-01T12:00:00Z",
            "2024-07-01 12:00 Europe/Paris",
            "2024-03-10 02:30 America/New_York",
            "infinity",
            "-infinity",
            "epoch",
            "1800-01-01 00:00:00",
            "0044-03-15 12:00 BC",
            "2024-01-01 12:00:00.123456-03:30",
            "2024-01-01 12:00 PST",
            "294276-12-31 23:59:59.999999+00",
        ],
    ),
    encoded(
        "interval",
        &[
            "1 day",
            "1 year 2 mons -3 days 04:05:06.789",
            "P1Y2M3DT4H5M6S",
            "@ 1 day ago",
            "-00:00:00.000001",
            "1-2",
            "1.5 weeks",
            "00:00",
            "178000000 years",
            "-1 mon +1 day",
            "1:30",
            "P0001-02-03T04:05:06",
            "3 4:05:06",
            "1 hour 90 min",
        ],
    ),
    encoded(
        "uuid",
        &[
            "a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11",
            "A0EEBC999C0B4EF8BB6D6BB9BD380A11",
            "{a0eebc99-9c0b4ef8-bb6d6bb9-bd380a11}",
            "a0ee-bc99-9c0b-4ef8-bb6d-6bb9-bd38-0a11",
            "00000000-0000-0000-0000-000000000000",
        ],
    ),
    encoded(
        "json",
        &[
            "{\"a\": 1,  \"b\":[true,null]}",
            "[]",
            " \"x\" ",
            "1e400",
            "null",
            "{\"a\":1,\"a\":2}",
            "\"\\u00e9\"",
        ],
    ),
    encoded(
        "jsonb",
        &[
            "{\"a\": 1,  \"b\":[true,null]}",
            "[]",
            " \"x\" ",
            "1e40",
            "null",
            "{\"a\":1,\"a\":2}",
            "\"\\u00e9\\n\"",
        ],
    ),
    encoded(
        "inet",
        &[
            "192.168.0.1/24",
            "10.0.0.1",
            "::1",
            "2001:db8::/32",
            "::ffff:1.2.3.4",
            "0.0.0.0/0",
            "255.255.255.255",
            "2001:DB8::1",
            "fe80::1/64",
            "127.0.0.1/32",
            "10.1/16",
        ],
    ),
    encoded(
        "cidr",
        &["10/8", "192.168.1", "2001:db8::/32", "0.0.0.0/0", "192.168.100.128/25", "10.1.2.3", "::/0"],
    ),
    encoded(
        "macaddr",
        &[
            "08:00:2b:01:02:03",
            "08-00-2b-01-02-03",
            "08002b:010203",
            "08002b-010203",
            "0800.2b01.0203",
            "0800-2b01-0203",
            "08002B010203",
        ],
    ),
    encoded(
        "macaddr8",
        &[
            "08:00:2b:01:02:03:04:05",
            "08-00-2b-01-02-03-04-05",
            "08002b:0102030405",
            "0800.2b01.0203.0405",
            "08002b0102030405",
            "08:00:2b:01:02:03",
        ],
    ),
    encoded("mood", &["ok", "so so", "größer", "a,b"]),
    encoded("even", &["0", "2", "-4", "+6"]),
    encoded("short", &["", "abc", "äöü"]),
    encoded(
        "integer[]",
        &[
            "{}",
            "{1,2,3}",
            "{NULL,1}",
            "{{1,2},{3,4}}",
            "[2:3]={7,8}",
            " { 1 , 2 } ",
            "{\"5\"}",
            "{-2147483648,null}",
        ],
    ),
    encoded(
        "text[]",
        &[
            "{}",
            "{a,b}",
            "{\"a,b\",\"c\\\"d\",\"e\\\\f\"}",
            "{NULL,\"NULL\",null}",
            "{\"\",\" x \"}",
            "{{a,b},{c,d}}",
            "{größe,\"zwei\nzeilen\"}",
            "{a b,c\\,d}",
        ],
    ),
    encoded("timestamptz[]", &["{2024-01-01,infinity,NULL}", "{\"2024-01-01 12:00:00+02\"}", "{}"]),
    encoded("numeric[]", &["{1.50,NaN,1e400}", "{}", "{{0},{-0.1}}"]),
    encoded("mood[]", &["{ok,\"so so\",NULL}", "{}", "{\"a,b\"}"]),
    encoded("boolean[]", &["{t,f,NULL,yes}", "{}"]),
    encoded("bytea[]", &["{\"\\\\x00ff\",\"abc\"}", "{}"]),
    Type { name: "int4range", encoded: false, values: &["[1,5)", "empty", "(,3]", "[1,1]"] },
    Type { name: "point", encoded: false, values: &["(1,2)", "3.5,-1e3"] },
    Type { name: "tsvector", encoded: false, values: &["b a", "'x y':3A"] },
    Type { name: "bit(3)", encoded: false, values: &["101", "000"] },
    Type { name: "pair", encoded: false, values: &["(1,\"a b\")", "(,)"] },
];

const DEFINITIONS: &str = "
    CREATE TYPE mood AS ENUM ('ok', 'so so', 'größer', 'a,b');
    CREATE DOMAIN even AS integer CHECK (VALUE % 2 = 0);
    CREATE DOMAIN short AS varchar(3);
    CREATE TYPE pair AS (x int, y text);";

/// Pieces of random text: everything some format gives a meaning to.
const PIECES: &[&str] = &[
    "a", "Zz", " ", ",", ";", "\"", "\"\"", "'", "\\", "\\\\", "\\N", "\\.", "\\n", "\\x41", "\n", "\r",
    "\r\n", "\t", "\u{b}", "\u{1}", "\u{7f}", "é", "漢字", "😀", "\u{feff}", "NULL", "{}", "123", "x,y",
    "\u{2028}",
];

/// How a file is written.
#[derive(Debug, Clone, Copy)]
struct Form {
    csv: bool,
    end: &'static str,
}

#[test]
fn every_type_on_15_or_what_there_is() {
    let direct = Installation::have_or_say_skipped(Version::WithExtension(15));
    compare(if direct { Version::WithExtension(15) } else { Version::Any }, direct);
}

#[test]
fn every_type_on_18() {
    require_server!(18);
    let direct = Installation::have_or_say_skipped(Version::WithExtension(18));
    compare(if direct { Version::WithExtension(18) } else { Version::Major(18) }, direct);
}

/// `direct` if the server has the extension: then it is what `--via auto` takes.
fn compare(version: Version, direct: bool) {
    let rounds: u64 = std::env::var("INRUSH_ROUNDS").map_or(8, |n| n.parse().expect("INRUSH_ROUNDS"));
    let mut random = Random::from_environment("differential");
    let server = Postgres::shared(version);
    for round in 0..rounds {
        let database = server.fresh_database();
        let dir = tempfile::tempdir().expect("a directory");
        // Every type comes up, however few the rounds; some tables hold only what the client encodes.
        let only_encoded = round % 2 == 0;
        let pool: Vec<&Type> = TYPES.iter().filter(|t| t.encoded || !only_encoded).collect();
        let mut columns: Vec<&Type> = pool
            .iter()
            .enumerate()
            .filter(|(i, _)| *i as u64 % 4 == round / 2 % 4)
            .map(|(_, t)| *t)
            .collect();
        for _ in 0..random.below(4) {
            columns.push(random.pick(&pool));
        }
        let list: Vec<String> =
            columns.iter().enumerate().map(|(i, t)| format!("\"c {i}\" {}", t.name)).collect();
        let list = list.join(", ");
        let extension = if direct { "CREATE EXTENSION inrush;" } else { "" };
        database.psql(&format!(
            "{DEFINITIONS} {extension} CREATE TABLE expected ({list}); CREATE TABLE t (LIKE expected)"
        ));
        let rows = make_rows(&mut random, &columns);
        for csv in [true, false] {
            let form = Form { csv, end: random.pick(&["\n", "\n", "\r\n", "\r"]) };
            let path = dir.path().join(if csv { "t.csv" } else { "t.txt" });
            std::fs::write(&path, write_file(&mut random, &rows, form)).expect("to write the file");
            let format = if csv { "csv" } else { "text" };
            database.psql(&format!(
                "TRUNCATE expected;\n\\copy expected FROM '{}' (FORMAT {format})",
                path.display()
            ));
            for via in ["auto", "copy-text", "copy-binary"] {
                if via == "copy-binary" && columns.iter().any(|t| !t.encoded) {
                    continue;
                }
                // Where it must be possible: a load that fell back would prove nothing.
                let encoded = columns.iter().all(|t| t.encoded);
                let via = if via == "auto" && direct && encoded { "direct" } else { via };
                database.psql("TRUNCATE t");
                let chunk = random.pick(&["1", "7", "64", "4MiB"]);
                let jobs = random.pick(&["1", "2", "3"]);
                let about = format!("{form:?} --via {via} --chunk {chunk} --jobs {jobs} ({list})");
                load(
                    dir.path(),
                    &database.url(),
                    &path,
                    format,
                    &["--via", via, "--chunk", chunk, "--jobs", jobs],
                    &about,
                );
                let differences = database.psql(
                    "(SELECT 'lost', x FROM (SELECT e::text FROM expected e EXCEPT ALL SELECT t::text FROM t) d (x) LIMIT 5)
                     UNION ALL (SELECT 'other', x FROM (SELECT t::text FROM t EXCEPT ALL SELECT e::text FROM expected e) d (x) LIMIT 5)",
                );
                assert_eq!(differences, "", "{about}");
            }
        }
    }
}

fn load(dir: &Path, url: &str, path: &Path, format: &str, how: &[&str], about: &str) {
    let mut command = inrush(dir);
    command
        .arg("load")
        .arg(path)
        .args(["--table", "t", "--no-header", "--again", "--to", url, "--format", format])
        .args(how);
    // What is not said is found from a sample; psql does not look at one.
    if format == "csv" {
        command.args(["--delimiter", ",", "--quote", "\"", "--null", ""]);
    }
    command.args(["--report", "r.json"]);
    let outcome = run(&mut command, None, PATIENCE);
    assert_eq!(outcome.code, Some(0), "{about}\n{outcome:#?}");
    let report = std::fs::read_to_string(dir.join("r.json")).expect("a report");
    let report: serde_json::Value = serde_json::from_str(&report).expect("JSON");
    // What the server refuses goes again another way, and would hide what is wrong with this one.
    assert_eq!(report["totals"]["retries"], 0, "{about}\n{report}");
}

type Row = Vec<Option<String>>;

fn make_rows(random: &mut Random, columns: &[&Type]) -> Vec<Row> {
    let longest = columns.iter().map(|t| t.values.len()).max().unwrap_or(0) as u64;
    (0..ROWS.max(longest))
        .map(|row| {
            columns
                .iter()
                .map(|ty| {
                    // Each value once for sure, then at random.
                    let value = match ty.values.get(row as usize) {
                        Some(value) => *value,
                        None if random.one_in(6) => return None,
                        None => random.pick(ty.values),
                    };
                    Some(if value == "*" { random_text(random) } else { value.to_owned() })
                })
                .collect()
        })
        .collect()
}

fn random_text(random: &mut Random) -> String {
    let text: String = (0..random.below(7)).map(|_| random.pick(PIECES)).collect();
    // psql takes a line of nothing but \. for the end of the file, even inside quotes.
    if text.split(['\n', '\r']).any(|line| line == "\\.") { text.replace("\\.", ".") } else { text }
}

fn write_file(random: &mut Random, rows: &[Row], form: Form) -> String {
    let mut file = String::new();
    for (i, row) in rows.iter().enumerate() {
        for (j, value) in row.iter().enumerate() {
            if j > 0 {
                file.push(if form.csv { ',' } else { '\t' });
            }
            if form.csv {
                csv(random, value.as_deref(), row.len() == 1, &mut file);
            } else {
                text(random, value.as_deref(), &mut file);
            }
        }
        // The last line end may be missing.
        if i + 1 < rows.len() || random.one_in(2) {
            file.push_str(form.end);
        }
    }
    file
}

/// A CSV field: quoted where it must be, else now and then, as a whole or in part.
fn csv(random: &mut Random, value: Option<&str>, alone: bool, out: &mut String) {
    let Some(value) = value else { return };
    let must = value.is_empty() || value.contains([',', '"', '\n', '\r']) || (alone && value == "\\.");
    if !must && random.one_in(8) {
        // A quote may open and close anywhere.
        let middle = value.char_indices().map(|(at, _)| at).nth(value.chars().count() / 2).unwrap_or(0);
        out.push_str(&value[..middle]);
        out.push('"');
        out.push_str(&value[middle..]);
        out.push('"');
    } else if must || random.one_in(3) {
        out.push('"');
        out.push_str(&value.replace('"', "\"\""));
        out.push('"');
    } else {
        out.push_str(value);
    }
}

/// A field of COPY text, with more escapes than needed now and then.
fn text(random: &mut Random, value: Option<&str>, out: &mut String) {
    let Some(value) = value else { return out.push_str("\\N") };
    for c in value.chars() {
        match c {
            '\\' => out.push_str(if random.one_in(4) { "\\134" } else { "\\\\" }),
            '\n' => out.push_str(random.pick(&["\\n", "\\012", "\\x0a"])),
            '\r' => out.push_str(random.pick(&["\\r", "\\015", "\\x0D"])),
            '\t' => out.push_str(random.pick(&["\\t", "\\\t", "\\x09"])),
            'a' if random.one_in(4) => out.push_str("\\141"),
            'Z' if random.one_in(4) => out.push_str("\\Z"),
            _ => out.push(c),
        }
    }
}
