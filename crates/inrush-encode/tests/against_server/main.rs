//! The server is the judge: every value an encoder is sure of goes in twice, as COPY text and as COPY
//! binary. Both must be accepted and store the same bytes, or both must be refused.
//!
//! The seed is printed; `INRUSH_SEED=n` repeats a run, `INRUSH_VALUES=n` sets the number of random values per
//! column type and session (default 80), `INRUSH_ONLY=text` picks column types that contain the text.

mod catalog;
#[path = "../golden/mod.rs"]
mod golden;
mod heap;
mod plan;
mod seeds;
mod values;

use bytes::Bytes;
use futures_util::SinkExt;
use inrush_core::{BaseType, FieldSource, Fields, PgType, Record};
use inrush_encode::copy_binary::{self, CopyBinary};
use inrush_encode::copy_text::CopyText;
use inrush_encode::{EncodeColumn, RowEncoder, Session};
use inrush_testkit::{Installation, Postgres, Version, require_server};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use tokio_postgres::{Client, Config, NoTls};
use values::{Random, values_for};

/// What the column types in [`values::COLUMNS`] need.
const TYPES: &str = "
    CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy', 'Very Happy', 'ü', '', 'NULL', 'a,b');
    CREATE DOMAIN positive AS integer CHECK (VALUE > 0);
    CREATE DOMAIN code AS varchar(3) NOT NULL CHECK (VALUE <> 'bad');
    CREATE DOMAIN price AS numeric(6,2);
    CREATE DOMAIN long_price AS price CHECK (VALUE < 1000);
    CREATE DOMAIN tags AS text[] CHECK (array_length(VALUE, 1) < 3);
";

/// Settings under which text is read in different ways.
const SESSIONS: &[&str] = &[
    "SET TimeZone = 'UTC'; SET IntervalStyle = 'postgres'; SET DateStyle = 'ISO, MDY'; SET array_nulls = on",
    "SET TimeZone = 'America/New_York'; SET IntervalStyle = 'sql_standard'; SET DateStyle = 'SQL, DMY';
     SET array_nulls = off; SET timezone_abbreviations = 'Australia'",
    "SET TimeZone = 'Asia/Kolkata'; SET IntervalStyle = 'iso_8601'; SET DateStyle = 'German, YMD';
     SET array_nulls = on; SET timezone_abbreviations = 'India'",
];

#[test]
fn same_as_copy_text_on_the_oldest_server() {
    require_server!(Version::Any);
    run(Version::Any);
}

#[test]
fn same_as_copy_text_on_16() {
    require_server!(16);
    run(Version::Major(16));
}

#[test]
fn same_as_copy_text_on_18() {
    require_server!(18);
    run(Version::Major(18));
}

fn run(version: Version) {
    let seed = seed_of();
    let server = Postgres::shared(version);
    let which = Installation::find(version).map_or("?", |one| one.version());
    println!("INRUSH_SEED={seed}, PostgreSQL {which}");

    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let mut complaints = String::new();
    let database = server.fresh_database();
    let mut config: Config = database.url().parse().expect("a connection URL");
    complaints += &runtime.block_on(run_database(&config, SESSIONS, seed));

    // In another encoding what is stored is not what was sent.
    for encoding in ["LATIN1", "EUC_JP", "SQL_ASCII"] {
        println!("server_encoding {encoding}");
        server.psql("DROP DATABASE IF EXISTS other");
        server.psql(&format!(
            "CREATE DATABASE other ENCODING {encoding} LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0"
        ));
        config.dbname("other");
        complaints += &runtime.block_on(run_database(&config, &SESSIONS[..1], seed));
        server.psql("DROP DATABASE other");
    }
    assert!(complaints.is_empty(), "INRUSH_SEED={seed}, PostgreSQL {which}\n{complaints}");
}

/// The seed of this run.
fn seed_of() -> u64 {
    std::env::var("INRUSH_SEED").ok().and_then(|text| text.parse().ok()).unwrap_or_else(|| {
        let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        now.map_or(1, |since| since.as_secs())
    })
}

async fn run_database(config: &Config, sessions: &[&str], seed: u64) -> String {
    let (client, connection) = config.connect(NoTls).await.expect("connects");
    let driver = tokio::spawn(connection);
    client.batch_execute("SET client_encoding = 'UTF8'").await.expect("UTF-8");
    client.batch_execute(TYPES).await.expect("types");
    let mut random = Random::new(seed);
    let mut complaints = String::new();
    for settings in sessions {
        client.batch_execute(settings).await.expect("settings");
        let session = catalog::session(&client).await;
        for column in values::COLUMNS {
            let picked = std::env::var("INRUSH_ONLY").map_or(true, |only| column.contains(&only));
            if picked {
                complaints += &check_column(&client, column, &session, &mut random).await;
            }
        }
    }
    drop(client);
    driver.await.expect("joins").expect("the connection ends well");
    complaints
}

/// A value (`None` is NULL) under the number that stands for it in both tables.
struct Value {
    number: usize,
    bytes: Option<Vec<u8>>,
}

async fn check_column(client: &Client, column: &str, session: &Session, random: &mut Random) -> String {
    client
        .batch_execute(&format!(
            "DROP TABLE IF EXISTS a, b;
             CREATE TEMP TABLE a (n integer, v {column}); CREATE TEMP TABLE b (LIKE a)"
        ))
        .await
        .unwrap_or_else(|error| panic!("{column}: {error:?}"));
    let (ty, typmod) = catalog::column(client, "a", "v").await;
    let restricted = column.starts_with("interval ");
    assert_eq!(CopyBinary::supports_column(&ty, typmod), !restricted, "{column}");
    let columns = [
        EncodeColumn { source: FieldSource::Field(0), ty: PgType::base(BaseType::Int4), typmod: -1 },
        EncodeColumn { source: FieldSource::Field(1), ty, typmod },
    ];
    let mut as_text = CopyText::new(&columns);
    let mut as_binary = CopyBinary::new(&columns, session);

    let all = values_for(column, random);
    let total = all.len();
    let mut sure = Vec::new();
    for (number, bytes) in all.into_iter().map(Some).chain([None]).enumerate() {
        let value = Value { number, bytes };
        if encode(&mut as_binary, &value).is_some() {
            sure.push(value);
        }
    }
    let text_refused = copy(client, "COPY a FROM STDIN", &[], &[], &mut as_text, &sure).await;
    let (head, tail) = (copy_binary::HEADER, copy_binary::TRAILER);
    let binary = "COPY b FROM STDIN (FORMAT binary)";
    let binary_refused = copy(client, binary, head, tail, &mut as_binary, &sure).await;

    let mut complaints = String::new();
    let mut complain = |value: &Value, fact: &str| {
        let text = value.bytes.as_deref().map_or("NULL".into(), String::from_utf8_lossy);
        writeln!(complaints, "{column}: {:?}: {fact}", text.chars().take(300).collect::<String>())
            .expect("a string takes all");
    };
    let mut differing_codes = BTreeSet::new();
    for value in &sure {
        match (text_refused.get(&value.number), binary_refused.get(&value.number)) {
            (None, None) => {}
            (Some(text), Some(binary)) if text == binary => {}
            (Some(text), Some(binary)) => drop(differing_codes.insert((text, binary))),
            (Some(text), None) => complain(value, &format!("refused as text ({text}), accepted as binary")),
            (None, Some(binary)) => {
                complain(value, &format!("accepted as text, refused as binary ({binary})"));
            }
        }
    }
    let different = client
        .query(
            "SELECT n FROM a JOIN b USING (n) WHERE a *<> b
             OR record_send(a) <> record_send(b) OR a.v::text IS DISTINCT FROM b.v::text
             OR pg_column_size(a.v) IS DISTINCT FROM pg_column_size(b.v)",
            &[],
        )
        .await
        .expect("comparison");
    for row in &different {
        let number: i32 = row.get(0);
        if let Some(value) = sure.iter().find(|value| i32::try_from(value.number) == Ok(number)) {
            complain(value, "stored differently");
        }
    }
    println!(
        "{column}: {total} values, {} sure, {} refused both ways{}",
        sure.len(),
        text_refused.len(),
        differing_codes.iter().map(|(t, b)| format!(", SQLSTATE {t} as text is {b}")).collect::<String>()
    );
    complaints
}

/// Fields with these values.
fn in_fields(values: &[Option<&[u8]>]) -> Fields {
    let mut fields = Fields::new();
    for bytes in values {
        let Some(bytes) = bytes else {
            fields.push_null();
            continue;
        };
        let start = fields.scratch().len();
        fields.scratch().extend_from_slice(bytes);
        fields.push_scratch(start);
    }
    fields
}

fn encode(encoder: &mut dyn RowEncoder, value: &Value) -> Option<Vec<u8>> {
    let number = value.number.to_string();
    let fields = in_fields(&[Some(number.as_bytes()), value.bytes.as_deref()]);
    let mut out = Vec::new();
    encoder.row(&Record { input: b"", fields: &fields }, &mut out).ok().map(|()| out)
}

/// One whole COPY.
async fn copy_once(client: &Client, statement: &str, wire: Vec<u8>) -> Result<(), tokio_postgres::Error> {
    let sink = client.copy_in(statement).await.expect("COPY starts");
    let mut sink = std::pin::pin!(sink);
    // A refusal may come at any step; finish() has it in the end.
    let fed = sink.send(Bytes::from(wire)).await;
    let finished = sink.finish().await;
    fed.and(finished.map(drop))
}

/// Sends the values in batches and halves the batches that are refused; the refused values with SQLSTATE.
async fn copy(
    client: &Client,
    statement: &str,
    head: &[u8],
    tail: &[u8],
    encoder: &mut dyn RowEncoder,
    values: &[Value],
) -> BTreeMap<usize, String> {
    let mut refused = BTreeMap::new();
    let mut batches: Vec<&[Value]> = values.chunks(128).collect();
    while let Some(batch) = batches.pop() {
        let mut wire = head.to_vec();
        for value in batch {
            wire.extend(encode(encoder, value).expect("was sure before"));
        }
        wire.extend_from_slice(tail);
        let Err(error) = copy_once(client, statement, wire).await else { continue };
        match batch {
            [one] => {
                let code = error.code().unwrap_or_else(|| panic!("no answer of the server: {error:?}"));
                refused.insert(one.number, code.code().to_owned());
            }
            _ => {
                let (left, right) = batch.split_at(batch.len() / 2);
                batches.extend([left, right]);
            }
        }
    }
    refused
}
