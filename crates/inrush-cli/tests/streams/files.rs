//! Files that grow, and standard input.

use crate::client::get;
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::{Database, Postgres, ServerOptions};
use rustix::process::Signal;
use std::fs::{self, File};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

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

/// Follows `*.ndjson` of a directory into a table.
fn tail(url: &str, dir: &Path, more: &str) -> String {
    format!(
        "[server]\nto = \"{url}\"\nlanes = 2\n[batch]\nlinger = \"20ms\"\n{more}\n[[tail]]\nname = \"logs\"\n\
         files = \"{}/*.ndjson\"\nformat = \"ndjson\"\ninto.table = \"t\"\n",
        dir.display()
    )
}

fn lines(ids: std::ops::Range<u32>) -> String {
    ids.map(|id| format!("{{\"id\":{id},\"info\":\"{id:0100}\"}}\n")).collect()
}

fn count(database: &Database<'_>) -> String {
    database.psql("SELECT count(*), count(DISTINCT id) FROM t")
}

/// As logrotate's `copytruncate` does it: the file keeps its inode.
#[test]
fn a_file_that_is_emptied_and_begun_again_is_read_once() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.ndjson");
    let mut file = File::options().create(true).append(true).open(&path).expect("a file");
    file.write_all(lines(0..2000).as_bytes()).expect("to write");
    let serve = Serve::start(dir.path(), &tail(&database.url(), dir.path(), ""));
    wait_until("2000 rows", || count(&database) == "2000|2000");
    // It grows slowly at first, and then beyond where it was read before.
    file.set_len(0).expect("to empty it");
    for first in (2000..4800).step_by(100) {
        file.write_all(lines(first..first + 100).as_bytes()).expect("to write");
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until("4800 rows", || count(&database).ends_with("|4800"));
    // At once: nobody sees it shorter than it was.
    file.set_len(0).expect("to empty it");
    file.write_all(lines(4800..12_000).as_bytes()).expect("to write");
    wait_until("12000 rows", || count(&database).ends_with("|12000"));
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(count(&database), "12000|12000");
    assert_eq!(database.psql("SELECT count(*) FROM inrush_ledger.dead_letters"), "0");
    assert_eq!(serve.log().matches("was emptied and begun again").count(), 2, "{}", serve.log());
    assert_eq!(serve.stop(), 0);
}

#[test]
fn what_is_written_after_a_file_was_renamed_is_read() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("a.ndjson");
    let mut file = File::create(&path).expect("a file");
    file.write_all(lines(0..10).as_bytes()).expect("to write");
    let serve = Serve::start(dir.path(), &tail(&database.url(), dir.path(), ""));
    wait_until("10 rows", || count(&database) == "10|10");
    fs::rename(&path, dir.path().join("a.1")).expect("to rename");
    // Who writes it has not been told yet.
    std::thread::sleep(Duration::from_secs(2));
    file.write_all(lines(10..15).as_bytes()).expect("to write");
    let mut next = File::create(&path).expect("a file");
    next.write_all(lines(15..20).as_bytes()).expect("to write");
    wait_until("20 rows", || count(&database) == "20|20");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn the_lag_of_several_files_is_that_of_all() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let admin = free_port();
    for (name, open) in [("a", 1000), ("b", 500), ("c", 0)] {
        let text = lines(0..10) + &"x".repeat(open);
        fs::write(dir.path().join(format!("{name}.ndjson")), text).expect("to write");
    }
    let more = format!("[admin]\nlisten = \"127.0.0.1:{admin}\"");
    let serve = Serve::start(dir.path(), &tail(&database.url(), dir.path(), &more));
    let lag = || {
        let metrics = get(admin, "/metrics").ok()?.body;
        let lag =
            metrics.lines().find_map(|line| line.strip_prefix("inrush_input_lag{input=\"tail:logs\"} "))?;
        lag.parse::<i64>().ok()
    };
    wait_until("a lag of 1500", || lag() == Some(1500));
    fs::remove_file(dir.path().join("c.ndjson")).expect("to remove");
    for _ in 0..10 {
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(lag(), Some(1500));
    }
    assert_eq!(count(&database), "30|10");
    assert_eq!(serve.stop(), 0);
}

/// A transaction that holds a lock until its standard input is closed.
fn lock(database: &Database<'_>, table: &str) -> (Child, ChildStdin) {
    let mut psql = database.server().psql_command(database.name());
    let mut psql = psql.args(["-qAt"]).stdin(Stdio::piped()).spawn().expect("psql");
    let mut stdin = psql.stdin.take().expect("piped");
    writeln!(stdin, "BEGIN; LOCK TABLE {table} IN SHARE MODE;").expect("to write");
    let locked = format!(
        "SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'ShareLock' AND granted"
    );
    wait_until("a lock", || database.psql(&locked) == "1");
    (psql, stdin)
}

#[test]
fn a_reader_that_hangs_is_ended_whatever_its_connections_are_called() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let mut file = File::create(dir.path().join("a.ndjson")).expect("a file");
    file.write_all(lines(0..1).as_bytes()).expect("to write");
    let url = database.url();
    let named = format!("{url}{}application_name=mine", if url.contains('?') { '&' } else { '?' });
    let before = Serve::start_named(dir.path(), "before", &tail(&named, dir.path(), ""));
    wait_until("a row", || count(&database) == "1|1");
    // It has moved its offset and waits to write a dead letter when it is stopped.
    let (mut psql, stdin) = lock(&database, "inrush_ledger.dead_letters");
    file.write_all(format!("nope\n{}", lines(1..2)).as_bytes()).expect("to write");
    let waiting = "SELECT application_name FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait_until("a reader that waits", || database.psql(waiting).ends_with("mine"));
    before.signal(Signal::STOP);
    let next = Serve::start_named(dir.path(), "next", &tail(&url, dir.path(), ""));
    let epoch = "SELECT max(epoch) FROM inrush_ledger.partitions";
    wait_until("another reader", || database.psql(epoch) == "2");
    assert!(next.log().contains("ending the connections of an earlier reader"), "{}", next.log());
    drop(stdin);
    psql.wait().expect("psql");
    wait_until("both rows", || count(&database) == "2|2");
    before.kill9();
    // It may be of another lane.
    wait_until("a letter", || database.psql("SELECT count(*) FROM inrush_ledger.dead_letters") == "1");
    assert_eq!(next.stop(), 1, "a row was refused");
}

#[test]
fn who_asks_for_metrics_all_the_time_does_not_hold_up_a_stop() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let admin = free_port();
    let more = format!(
        "[admin]\nlisten = \"127.0.0.1:{admin}\"\n[limits]\nstop = \"5s\"\n[spill]\ndir = \"{}/spill\"",
        dir.path().display()
    );
    let mut serve = Serve::start(dir.path(), &tail(&database.url(), dir.path(), &more));
    serve.wait_for(admin);
    let mut socket = TcpStream::connect(("127.0.0.1", admin)).expect("to connect");
    let answered = Arc::new(AtomicU64::new(0));
    let answers = Arc::clone(&answered);
    let asking = std::thread::spawn(move || {
        while socket.write_all(b"GET /health HTTP/1.1\r\nHost: here\r\n\r\n").is_ok() {
            if !socket.read(&mut [0; 1000]).is_ok_and(|read| read > 0) {
                return;
            }
            answers.fetch_add(1, SeqCst);
            std::thread::sleep(Duration::from_millis(100));
        }
    });
    wait_until("several answers", || answered.load(SeqCst) > 2);
    let began = Instant::now();
    serve.signal(Signal::TERM);
    assert_eq!(serve.wait(), 0, "{}", serve.log());
    assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
    asking.join().expect("who asks");
}

#[test]
fn what_was_read_of_standard_input_is_stored_before_it_stops() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!(
        "[server]\nto = \"{}\"\n[batch]\nlinger = \"20ms\"\n[limits]\nmemory = \"1MiB\"\n[stdin]\nformat = \"ndjson\"\n\
         into.table = \"t\"\n",
        database.url()
    );
    let (mut psql, stdin) = lock(&database, "t");
    let (theirs, ours) = std::io::pipe().expect("a pipe");
    let mut serve = Serve::with_input(dir.path(), "serve", &config, Stdio::from(theirs));
    let row = |id: u64| format!("{{\"id\":{id:>7},\"info\":\"{id:080}\"}}\n").into_bytes();
    let length = row(0).len() as u64;
    let written = Arc::new(AtomicU64::new(0));
    let (ours, rows) = (Arc::new(ours), Arc::clone(&written));
    let pipe = Arc::clone(&ours);
    // Rows are smaller than what a pipe takes as a whole or not at all.
    let writing = std::thread::spawn(move || {
        while (&*pipe).write_all(&row(rows.load(SeqCst))).is_ok() {
            rows.fetch_add(1, SeqCst);
        }
    });
    // Until there is no more room anywhere.
    let mut before = 0;
    wait_until("everything is full", || {
        std::thread::sleep(Duration::from_millis(500));
        let now = written.load(SeqCst);
        now > 10_000 && std::mem::replace(&mut before, now) == now
    });
    serve.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    drop(stdin);
    psql.wait().expect("psql");
    assert_eq!(serve.wait(), 0, "{}", serve.log());
    writing.join().expect("who writes");
    let unread = rustix::io::ioctl_fionread(&*ours).expect("a pipe");
    let read = (written.load(SeqCst) * length - unread) / length;
    assert!(unread > 0 && read > 1000, "{read} rows were read, {unread} bytes were not");
    assert_eq!(
        database.psql("SELECT count(*), count(DISTINCT id), max(id) + 1 FROM t"),
        format!("{read}|{read}|{read}")
    );
}

#[test]
fn rows_of_standard_input_that_a_crash_has_taken_are_sent_again() {
    // Nobody but the commits themselves has WAL flushed.
    let conf = [("wal_writer_delay", "10s"), ("autovacuum", "off")];
    let server = Postgres::start(&ServerOptions { conf: &conf, ..ServerOptions::default() });
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!(
        "[server]\nto = \"{}\"\nsynchronous_commit = \"off\"\n[batch]\nlinger = \"20ms\"\n[stdin]\n\
         format = \"ndjson\"\ninto.table = \"t\"\n",
        database.url()
    );
    let mut serve = Serve::with_input(dir.path(), "serve", &config, Stdio::piped());
    let mut pipe = serve.stdin();
    pipe.write_all(lines(0..1000).as_bytes()).expect("to write");
    wait_until("1000 rows", || count(&database) == "1000|1000");
    server.kill9();
    server.restart();
    wait_until("1000 rows", || count(&database).ends_with("|1000"));
    pipe.write_all(lines(1000..1010).as_bytes()).expect("to write");
    drop(pipe);
    assert_eq!(serve.wait(), 0, "{}", serve.log());
    assert!(count(&database).ends_with("|1010"), "{}", count(&database));
}

#[test]
fn rows_of_standard_input_that_cannot_be_stored_are_not_forgotten_when_it_stops() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let config = format!(
        "[server]\nto = \"{}\"\n[batch]\nlinger = \"20ms\"\n[stdin]\nformat = \"ndjson\"\ninto.table = \"t\"\n",
        database.url()
    );
    let mut serve = Serve::with_input(dir.path(), "serve", &config, Stdio::piped());
    let mut pipe = serve.stdin();
    pipe.write_all(lines(0..10).as_bytes()).expect("to write");
    wait_until("10 rows", || count(&database) == "10|10");
    let (mut psql, mut stdin) = lock(&database, "t");
    pipe.write_all(lines(10..20).as_bytes()).expect("to write");
    let waiting = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait_until("a lane that waits", || database.psql(waiting) == "1");
    serve.signal(Signal::TERM);
    std::thread::sleep(Duration::from_millis(300));
    writeln!(stdin, "DROP TABLE t; COMMIT;").expect("to write");
    drop(stdin);
    psql.wait().expect("psql");
    assert!(serve.wait() >= 2, "{}", serve.log());
}
