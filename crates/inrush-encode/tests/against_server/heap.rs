//! Frames against the heap: the server stores rows that it was sent as COPY text, pageinspect shows their
//! tuples, and the frames of the same rows must have the same bytes.

use crate::values::{self, Random, values_for};
use crate::{SESSIONS, Value, catalog, copy, in_fields, plan, seed_of};
use inrush_core::{BaseType, FieldSource, PgType, Record};
use inrush_encode::copy_text::CopyText;
use inrush_encode::frames::{Class, FrameEncoder, FrameLayout, frames};
use inrush_encode::{EncodeColumn, RowEncoder, Session};
use inrush_testkit::{Installation, Postgres, Version, require_server};
use std::collections::BTreeMap;
use std::fmt::Write;
use tokio_postgres::{Client, Config, NoTls};

#[test]
fn frames_are_what_the_heap_has_on_the_oldest_server() {
    require_server!(Version::Any);
    run(Version::Any);
}

#[test]
fn frames_are_what_the_heap_has_on_16() {
    require_server!(16);
    run(Version::Major(16));
}

#[test]
fn frames_are_what_the_heap_has_on_18() {
    require_server!(18);
    run(Version::Major(18));
}

fn run(version: Version) {
    let server = Postgres::shared(version);
    let which = Installation::find(version).map_or("?", |one| one.version());
    if server.psql("SELECT count(*) FROM pg_available_extensions WHERE name = 'pageinspect'") == "0" {
        // Servers that are fetched for the tests come without it.
        eprintln!("SKIPPED: PostgreSQL {which} has no pageinspect");
        return;
    }
    let seed = seed_of();
    println!("INRUSH_SEED={seed}, PostgreSQL {which}");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let database = server.fresh_database();
    let mut config: Config = database.url().parse().expect("a connection URL");
    let mut complaints = runtime.block_on(run_database(&config, true, seed));
    // There only ASCII is certain.
    server.psql("CREATE DATABASE latin ENCODING LATIN1 LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
    config.dbname("latin");
    complaints += &runtime.block_on(run_database(&config, false, seed));
    server.psql("DROP DATABASE latin");
    assert!(complaints.is_empty(), "INRUSH_SEED={seed}, PostgreSQL {which}\n{complaints}");
}

async fn run_database(config: &Config, is_utf8: bool, seed: u64) -> String {
    let (client, connection) = config.connect(NoTls).await.expect("connects");
    let driver = tokio::spawn(connection);
    client
        .batch_execute("SET client_encoding = 'UTF8'; CREATE EXTENSION pageinspect")
        .await
        .expect("prepares");
    client.batch_execute(crate::TYPES).await.expect("types");
    client.batch_execute(SESSIONS[0]).await.expect("settings");
    let session = catalog::session(&client).await;
    let mut random = Random::new(seed);
    let mut complaints = String::new();
    for column in values::COLUMNS {
        complaints += &check_column(&client, column, &session, &mut random).await;
    }
    complaints += &check_table(&client, &session, &mut random).await;
    if is_utf8 {
        complaints += &check_golden(&client, &session).await;
    }
    drop(client);
    driver.await.expect("joins").expect("the connection ends well");
    complaints
}

/// What the server says when a value is no valid text, or against a constraint. It says the same of frames. All
/// else an encoder of stored forms must leave to it.
const JUDGED_OF_FRAMES: &[&str] = &["22021", "23514", "23502"];

async fn check_column(client: &Client, column: &str, session: &Session, random: &mut Random) -> String {
    client
        .batch_execute(&format!("DROP TABLE IF EXISTS a; CREATE TABLE a (n integer, v {column})"))
        .await
        .unwrap_or_else(|error| panic!("{column}: {error:?}"));
    let layout = plan::layout(client, "a", &["n", "v"]).await;
    if layout.columns[1].class != Class::Native {
        return String::new();
    }
    let (ty, typmod) = catalog::column(client, "a", "v").await;
    let columns = [
        EncodeColumn { source: FieldSource::Field(0), ty: PgType::base(BaseType::Int4), typmod: -1 },
        EncodeColumn { source: FieldSource::Field(1), ty, typmod },
    ];
    let mut encoder = FrameEncoder::new(&layout, &["n", "v"], &columns, session).expect("native types");
    let mut all = values_for(column, random);
    if all.iter().any(|value| value == b"a") {
        // Texts: every length around that of the short header, and some up to what the heap keeps in a row.
        all.extend((120..135).chain([200, 1000, 1995]).map(|length| vec![b'x'; length]));
    }
    let (mut sure, mut rows) = (Vec::new(), BTreeMap::new());
    for (number, bytes) in all.into_iter().map(Some).chain([None]).enumerate() {
        let value = Value { number, bytes };
        let text = number.to_string();
        if let Some(frame) = one_frame(&mut encoder, &[Some(text.as_bytes()), value.bytes.as_deref()]) {
            rows.insert(i32::try_from(number).expect("few"), frame);
            sure.push(value);
        }
    }
    let mut as_text = CopyText::new(&columns);
    let refused = copy(client, "COPY a FROM STDIN", &[], &[], &mut as_text, &sure).await;
    let mut complaints = String::new();
    for (number, code) in &refused {
        let frame = rows.remove(&i32::try_from(*number).expect("few"));
        if !JUDGED_OF_FRAMES.contains(&code.as_str()) {
            writeln!(complaints, "{column}: the server refuses ({code}) {frame:02x?}").expect("a string");
        }
    }
    println!("{column}: {} frames, {} refused", rows.len(), refused.len());
    assert!(!rows.is_empty(), "{column} has frames");
    complaints + &compare(client, column, &rows).await
}

/// A frame of these fields; `None` if unsure.
fn one_frame(encoder: &mut dyn RowEncoder, values: &[Option<&[u8]>]) -> Option<Vec<u8>> {
    let fields = in_fields(values);
    let mut out = Vec::new();
    encoder.row(&Record { input: b"", fields: &fields }, &mut out).ok()?;
    let range = frames(&out).next().expect("one");
    assert_eq!(range.end, out.len());
    Some(out[range].to_vec())
}

/// Compares the tuples of table `a`, found by their number `n`, with frames.
async fn compare(client: &Client, what: &str, rows: &BTreeMap<i32, Vec<u8>>) -> String {
    let tuples = client
        .query(
            "SELECT a.n, t_infomask2, t_infomask, t_hoff, t_bits, t_data
             FROM generate_series(0, pg_relation_size('a') / 8192 - 1) AS block,
                 heap_page_items(get_raw_page('a', 'main', block)) JOIN a ON a.ctid = t_ctid",
            &[],
        )
        .await
        .expect("tuples");
    assert_eq!(tuples.len(), rows.len(), "{what}");
    let mut complaints = String::new();
    for tuple in &tuples {
        let number: i32 = tuple.get(0);
        let frame = &rows[&number];
        let datalen = u16::from_le_bytes([frame[0], frame[1]]);
        assert_eq!(usize::from(datalen), frame.len() - 7);
        if 23 + datalen > 2032 {
            // The server has compressed it.
            continue;
        }
        let stored = heap_frame(tuple);
        if *frame != stored {
            writeln!(complaints, "{what}: row {number}\n  frame {frame:02x?}\n  heap  {stored:02x?}")
                .expect("a string");
        }
    }
    complaints
}

/// The frame of a tuple as pageinspect shows it.
fn heap_frame(tuple: &tokio_postgres::Row) -> Vec<u8> {
    /// HEAP_XMIN_COMMITTED and HEAP_XMIN_INVALID: hints.
    const HINTS: i32 = 0x0300;
    let (infomask2, infomask, hoff): (i32, i32, i16) = (tuple.get(1), tuple.get(2), tuple.get(3));
    let (bits, data): (Option<String>, Vec<u8>) = (tuple.get(4), tuple.get(5));
    let two = |number: i32| u16::try_from(number).expect("16 bits").to_le_bytes();
    let hoff = u8::try_from(hoff).expect("a byte");
    let mut frame = [&[0; 2][..], &two(infomask2), &two(infomask & !HINTS), &[hoff]].concat();
    for eight in bits.as_deref().unwrap_or_default().as_bytes().chunks(8) {
        frame.push(eight.iter().rev().fold(0, |byte, bit| byte << 1 | (bit & 1)));
    }
    frame.resize(7 + usize::from(hoff) - 23, 0);
    frame.extend_from_slice(&data);
    let datalen = two(i32::try_from(frame.len() - 7).expect("a page"));
    frame[..2].copy_from_slice(&datalen);
    frame
}

/// Dropped columns, columns that are not sent, every alignment behind every other, storage `plain`.
const TABLE: &str = "
    DROP TABLE a;
    CREATE TABLE a (gone_1 integer, b boolean, n integer, i2 smallint, t text, i8 bigint, gone_2 text,
        v varchar(5), b2 boolean, ts timestamp(3), nu numeric(10,2), na name, unsent_1 text, b3 boolean, tz timetz,
        t2 text, iv interval, u uuid, m mood, p text, f8 float8, c char(5), ma macaddr, d date, price price,
        i4 integer, by bytea, f4 real, ma8 macaddr8, unsent_2 bigint, o oid, nu2 numeric, tstz timestamptz, ti time(2));
    ALTER TABLE a ALTER p SET STORAGE PLAIN, DROP gone_1, DROP gone_2;
";

/// Its columns in the order they are sent, with the family of their values.
const SENT: &[(&str, &str)] = &[
    ("n", "integer"),
    ("ti", "time"),
    ("tstz", "timestamptz"),
    ("nu2", "numeric"),
    ("b", "boolean"),
    ("i2", "smallint"),
    ("t", "text"),
    ("i8", "bigint"),
    ("v", "varchar(5)"),
    ("b2", "boolean"),
    ("ts", "timestamp(3)"),
    ("nu", "numeric(10,2)"),
    ("na", "name"),
    ("b3", "boolean"),
    ("tz", "timetz"),
    ("t2", "text"),
    ("iv", "interval"),
    ("u", "uuid"),
    ("m", "mood"),
    ("p", "text"),
    ("f8", "double precision"),
    ("c", "char(5)"),
    ("ma", "macaddr"),
    ("d", "date"),
    ("price", "price"),
    ("i4", "integer"),
    ("by", "bytea"),
    ("f4", "real"),
    ("ma8", "macaddr8"),
    ("o", "oid"),
];

async fn columns_of(client: &Client, names: &[&str]) -> Vec<EncodeColumn> {
    let mut columns = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let (ty, typmod) = catalog::column(client, "a", name).await;
        columns.push(EncodeColumn { source: FieldSource::Field(i), ty, typmod });
    }
    columns
}

/// Random rows of the whole table.
async fn check_table(client: &Client, session: &Session, random: &mut Random) -> String {
    client.batch_execute(TABLE).await.expect("the table");
    let names: Vec<&str> = SENT.iter().map(|(name, _)| *name).collect();
    let columns = columns_of(client, &names).await;
    let layout = plan::layout(client, "a", &names).await;
    let mut encoder = FrameEncoder::new(&layout, &names, &columns, session).expect("native types");
    let mut as_text = CopyText::new(&columns);

    // Values that the server takes: a frame of each alone, and a row in the table.
    let mut good: Vec<Vec<Vec<u8>>> = Vec::new();
    for (i, (_, family)) in SENT.iter().enumerate() {
        let mut kept = Vec::new();
        for value in values_for(family, random) {
            let mut row = vec![None; SENT.len()];
            row[i] = Some(value.as_slice());
            if one_frame(&mut encoder, &row).is_some()
                && std::str::from_utf8(&value).is_ok_and(|v| !v.contains('\0'))
            {
                kept.push(value);
            }
        }
        assert!(!kept.is_empty(), "{family}");
        good.push(kept);
    }
    let (mut rows, mut wire) = (BTreeMap::new(), Vec::new());
    for number in 0..400 {
        let text = i32::to_string(&number);
        let most = [3, 3, 30, 200][random.below(4)];
        let long = "lorem ".repeat(random.below(most));
        let nulls = random.below(4);
        let row: Vec<Option<&[u8]>> = SENT
            .iter()
            .zip(&good)
            .map(|((name, _), good)| match *name {
                "n" => Some(text.as_bytes()),
                "t" if random.below(2) == 0 => Some(long.as_bytes()),
                _ if random.below(8) < nulls => None,
                _ => Some(good[random.below(good.len())].as_slice()),
            })
            .collect();
        let frame = one_frame(&mut encoder, &row).expect("sure of each value");
        let fields = in_fields(&row);
        as_text.row(&Record { input: b"", fields: &fields }, &mut wire).expect("always sure");
        rows.insert(number, frame);
    }
    crate::copy_once(client, &format!("COPY a ({}) FROM STDIN", names.join(", ")), wire)
        .await
        .expect("all are taken");
    println!("a table: {} frames", rows.len());
    compare(client, "the table", &rows).await
}

/// The golden frames that the extension is tested with: of those without columns of class `receive` the heap
/// is the judge.
async fn check_golden(client: &Client, session: &Session) -> String {
    let mut complaints = String::new();
    for case in crate::golden::cases() {
        client.batch_execute("DROP TABLE IF EXISTS a").await.expect("dropped");
        client.batch_execute(&case.table).await.unwrap_or_else(|error| panic!("{}: {error:?}", case.name));
        let names: Vec<&str> = case.columns.iter().map(String::as_str).collect();
        let layout = plan::layout(client, "a", &names).await;
        assert_eq!(described(&layout), described(&case.layout), "{}: the plan of the server", case.name);
        let columns = columns_of(client, &names).await;
        assert!(FrameEncoder::new(&layout, &names, &columns, session).is_ok());
        let long = case.frames().iter().any(|frame| frame.len() - 7 + 23 > 2032);
        if long || layout.columns.iter().any(|column| column.class == Class::Receive) {
            continue;
        }
        let wire = case.rows.iter().flat_map(|row| format!("{row}\n").into_bytes()).collect();
        crate::copy_once(client, &format!("COPY a ({}) FROM STDIN", names.join(", ")), wire)
            .await
            .expect("is taken");
        let tuples = client
            .query(
                "SELECT 0, t_infomask2, t_infomask, t_hoff, t_bits, t_data FROM heap_page_items(get_raw_page('a', 0))
                 ORDER BY lp",
                &[],
            )
            .await
            .expect("tuples");
        let stored: Vec<Vec<u8>> = tuples.iter().map(heap_frame).collect();
        if stored != case.frames() {
            writeln!(complaints, "golden {}\n  heap {stored:02x?}", case.name).expect("a string");
        }
    }
    complaints
}

/// The columns, without what differs from one database to the next.
fn described(layout: &FrameLayout) -> String {
    format!("{:?}", layout.columns)
}
