//! Nodes that have the extension: rows go to it in frames, from loads and streams, and are the same as by COPY.

use crate::loads::{Files, Place, settled};
use crate::process::{Serve, wait_until};
use crate::streams::Stream;
use inrush_testkit::{Cluster, ClusterDatabase, Installation, Version};
use std::io::Write as _;
use std::process::Stdio;

fn with_extension() -> Option<ClusterDatabase<'static>> {
    if !Installation::have_or_say_skipped(Version::WithExtension(15)) {
        return None;
    }
    let database = Cluster::shared(Version::WithExtension(15)).fresh_database();
    database.everywhere("CREATE EXTENSION inrush");
    Some(database)
}

const COLUMNS: &str = "id bigint, info text, made timestamptz, share double precision, tags text[]";

fn row(id: u32) -> String {
    format!("{id},info {id},2024-02-29 12:00:00.{id:06}+01,{}.5,\"{{a,{id}}}\"\n", id % 7)
}

const EXPECTED: &str =
    "SELECT i, 'info ' || i, ('2024-02-29 12:00:00.' || lpad(i::text, 6, '0') || '+01')::timestamptz,
    i % 7 + 0.5, ARRAY['a', i::text]";

#[track_caller]
fn equals(database: &ClusterDatabase<'_>, rows: u32) {
    let expected = format!("{EXPECTED} FROM generate_series(1, {rows}) i");
    let differ = format!("(TABLE t EXCEPT ALL ({expected})) UNION ALL (({expected}) EXCEPT ALL TABLE t)");
    assert_eq!(database.psql(&format!("SELECT count(*) FROM ({differ}) x")), "0");
    assert_eq!(Place::misplaced(database, "t"), 0);
}

#[test]
fn a_load() {
    let Some(database) = with_extension() else { return };
    database.by_hash("t", COLUMNS, "id", 4, "UNIQUE (id)");
    let files = Files::new();
    files.write("t.csv", (1..=20_000).map(row).chain([row(7), "x,y,,,\n".into()]).collect::<String>());
    let more = ["--no-header", "--audit", "--max-rejects", "2", "--rejects", "bad.csv"];
    let report = files.report(1, "t.csv", "t", &database.url(), &more);
    report.bypassed().audited(20_000);
    assert_eq!(report.0["path"], "direct", "{:#}", report.0);
    equals(&database, 20_000);
    assert_eq!(files.read("bad.csv"), format!("{}x,y,,,\n", row(7)));
    settled(&database, "");
}

#[test]
fn a_stream() {
    let Some(database) = with_extension() else { return };
    database.by_hash("t", COLUMNS, "id", 4, "UNIQUE (id)");
    let files = Files::new();
    let config = format!(
        "[server]\nto = \"{}\"\n[batch]\nlinger = \"20ms\"\n[stdin]\nformat = \"csv\"\n\
         csv_columns = [\"id\", \"info\", \"made\", \"share\", \"tags\"]\ninto.table = \"t\"\n",
        database.url()
    );
    let mut serve = Serve::with_input(files.path(), "serve", &config, Stdio::piped());
    let rows: String = (1..=20_000).map(row).chain([row(7), "x,y,,,\n".into()]).collect();
    serve.stdin().write_all(rows.as_bytes()).expect("to write");
    assert_eq!(serve.wait(), 1, "{}", serve.log());
    equals(&database, 20_000);
    let letters = "SELECT sqlstate FROM inrush_ledger.dead_letters ORDER BY 1";
    assert_eq!(database.psql(letters), "22P02\n23505", "{}", serve.log());
    settled(&database, "");
}

/// A partition that is made anew with its columns laid out otherwise takes no frames: rows go on as COPY.
#[test]
fn a_layout_that_changes_under_a_stream() {
    let Some(database) = with_extension() else { return };
    database.by_hash("t", "id int, info text", "id", 2, "");
    let stream = Stream::new(&database, "");
    let serve = stream.start();
    stream.rows(1..501);
    stream.wait_for(500, "");
    let of_node = database.node(0).psql("SELECT string_agg(relname, '') FROM pg_class WHERE relkind = 'r' AND relnamespace = 'public'::regnamespace");
    database.node(0).psql(&format!(
        "BEGIN; ALTER TABLE {of_node} RENAME TO old; CREATE TABLE {of_node} (gone bigint, id int, info text);
         ALTER TABLE {of_node} DROP COLUMN gone; INSERT INTO {of_node} SELECT * FROM old; DROP TABLE old; COMMIT"
    ));
    stream.rows(501..1001);
    stream.wait_for(1000, &serve.log());
    // What was refused went as text; the next rows are looked at anew.
    stream.rows(1001..1501);
    stream.wait_for(1500, &serve.log());
    wait_until("it is said", || serve.log().contains("does not take its rows"));
    assert_eq!(serve.stop(), 0);
    stream.check(1500, "");
}
