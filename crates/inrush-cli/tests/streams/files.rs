//! Files that grow, and standard input.

use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::Postgres;
use std::fs::{self, File};
use std::io::Write;
use std::process::Stdio;

#[test]
fn a_file_is_followed_over_renames_and_restarts() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!(
        "[server]\nto = \"{}\"\nlanes = 2\n[batch]\nlinger = \"20ms\"\n[[tail]]\nname = \"logs\"\nfiles = \"{}/*.csv\"\n\
         format = \"csv\"\ninto.table = \"t\"\n",
        database.url(),
        dir.path().display()
    );
    let path = dir.path().join("a.csv");
    let mut file = File::create(&path).expect("a file");
    file.write_all(b"id,info\n1,\"two\nlines\"\n2,cut").expect("to write");
    let serve = Serve::start(dir.path(), &config);
    let rows = |count: &str| wait_until(count, || database.psql("SELECT count(*) FROM t") == count);
    rows("1");
    file.write_all(b" off\n3,c\n").expect("to write");
    rows("3");
    assert_eq!(serve.stop(), 0);
    file.write_all(b"4,d\n").expect("to write");
    // Renamed away, and begun again under the old name.
    fs::rename(&path, dir.path().join("b.csv")).expect("to rename");
    let mut next = File::create(&path).expect("a file");
    next.write_all(b"id,info\n10,x\n11,y\n").expect("to write");
    let serve = Serve::start(dir.path(), &config);
    rows("6");
    file.write_all(b"5,e\n").expect("to write");
    rows("7");
    assert_eq!(
        database.psql("SELECT string_agg(id::text, ',' ORDER BY id), count(DISTINCT info) FROM t"),
        "1,2,3,4,5,10,11|7"
    );
    serve.kill9();
    let serve = Serve::start(dir.path(), &config);
    next.write_all(b"12,z\n").expect("to write");
    rows("8");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn files_of_every_format_are_followed() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE n (id int); CREATE TABLE c (id int, info text); CREATE TABLE l (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let tail = |name: &str, more: &str| {
        format!("[[tail]]\nname = \"{name}\"\nfiles = \"{}/*.{name}\"\n{more}\n", dir.path().display())
    };
    let config = format!("[server]\nto = \"{}\"\n[batch]\nlinger = \"20ms\"\n", database.url())
        + &tail("ndjson", "format = \"ndjson\"\ninto.table = \"n\"")
        + &tail("csv", "format = \"csv\"\ncsv_columns = [\"id\", \"info\"]\ninto.table = \"c\"")
        + &tail("lp", "format = \"line\"");
    let open = |name: &str| File::create(dir.path().join(name)).expect("a file");
    let (mut json, mut csv, mut lines) = (open("a.ndjson"), open("a.csv"), open("a.lp"));
    // Larger than what is looked at to know a file by.
    for id in 0..10_000 {
        writeln!(json, "{{\"id\":{id}}}").expect("to write");
        writeln!(csv, "{id},\"two\nlines\"").expect("to write");
        writeln!(lines, "l id={id}i").expect("to write");
    }
    let serve = Serve::start(dir.path(), &config);
    let all = "SELECT (SELECT count(DISTINCT id) FROM n), (SELECT count(DISTINCT id) FROM c), (SELECT count(DISTINCT id) FROM l)";
    wait_until("all rows", || database.psql(all) == "10000|10000|10000");
    json.write_all(b"{\"id\":10000}\n").expect("to write");
    csv.write_all(b"10000,x\n").expect("to write");
    lines.write_all(b"l id=10000i\n").expect("to write");
    wait_until("the last rows", || database.psql(all) == "10001|10001|10001");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn standard_input_is_read_to_its_end() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!(
        "[server]\nto = \"{}\"\n[stdin]\nformat = \"csv\"\ninto.table = \"t\"\n[admin]\nlisten = \"127.0.0.1:{}\"\n",
        database.url(),
        free_port()
    );
    let mut serve = Serve::with_input(dir.path(), "serve", &config, Stdio::piped());
    let mut pipe = serve.stdin();
    pipe.write_all(b"info,id\n").expect("to write");
    for id in 0..100_000 {
        pipe.write_all(format!("\"row {id}\nof two lines\",{id}\n").as_bytes()).expect("to write");
    }
    pipe.write_all(b"last,100000").expect("to write");
    drop(pipe);
    assert_eq!(serve.wait(), 0, "{}", serve.log());
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id), max(id) FROM t"), "100001|100001|100000");
}
