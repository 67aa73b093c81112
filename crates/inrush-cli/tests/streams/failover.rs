//! A primary that dies, and a standby that takes its place.

use crate::killed::deliver;
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::{Postgres, ServerOptions};
use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::Duration;

/// What SQL says in a database of a server.
fn ask(server: &Postgres, database: &str, sql: &str) -> String {
    let output = server.psql_command(database).args(["-qAt", "-c", sql]).output().expect("psql");
    String::from_utf8_lossy(&output.stdout).trim().to_owned()
}

#[test]
fn what_was_acknowledged_is_on_the_promoted_standby_and_every_row_once() {
    let primary = Postgres::start(&ServerOptions::default());
    let database = primary.fresh_database();
    database.psql("CREATE TABLE t (id bigint); CREATE TABLE u (id bigint)");
    let standby = primary.standby();
    let streaming =
        |server: &Postgres| server.psql("SELECT count(*) FROM pg_stat_replication WHERE state = 'streaming'");
    wait_until("a standby", || streaming(&primary) == "1");
    let dir = tempfile::tempdir().expect("a directory");
    let http = free_port();
    let config = format!(
        "[server]\nto = \"postgresql://postgres@127.0.0.1:{},127.0.0.1:{}/{}?target_session_attrs=read-write\"\n\
         [batch]\nlinger = \"5ms\"\n[limits]\nwait = \"500ms\"\n\
         [[http]]\nname = \"in\"\nlisten = \"127.0.0.1:{http}\"\n\
         [[tail]]\nname = \"file\"\nfiles = \"{}/*.ndjson\"\nformat = \"ndjson\"\ninto.table = \"u\"\n",
        primary.port(),
        standby.port(),
        database.name(),
        dir.path().display(),
    );
    let mut file = std::fs::File::create(dir.path().join("rows.ndjson")).expect("a file");
    let mut serve = Serve::start(dir.path(), &config);
    serve.wait_for(http);

    let stop = Arc::new(AtomicBool::new(false));
    let senders: Vec<_> = (0..3u64)
        .map(|sender| {
            let stop = Arc::clone(&stop);
            std::thread::spawn(move || {
                let mut bodies = 0;
                while !stop.load(SeqCst) {
                    let first = sender << 40 | bodies << 20;
                    let body: String = (first..first + 500).map(|id| format!("{{\"id\":{id}}}\n")).collect();
                    deliver(http, "t", &format!("{sender}-{bodies}"), &body);
                    bodies += 1;
                }
                bodies * 500
            })
        })
        .collect();
    let mut in_file = 0;
    let mut write = |rounds: u32| {
        for _ in 0..rounds {
            let rows: String = (in_file..in_file + 100).map(|id| format!("{{\"id\":{id}}}\n")).collect();
            file.write_all(rows.as_bytes()).expect("to write");
            in_file += 100;
            std::thread::sleep(Duration::from_millis(10));
        }
        in_file
    };
    write(150);
    primary.kill9();
    write(20);
    assert_eq!(standby.psql("SELECT pg_promote()"), "t");
    // Answers wait for a standby again: the new primary gets one.
    let next = standby.standby();
    let in_file = write(150);
    stop.store(true, SeqCst);
    let sent: u64 = senders.into_iter().map(|sender| sender.join().expect("a sender")).sum();
    let name = database.name();
    let found = |server: &Postgres, table: &str| {
        ask(server, name, &format!("SELECT count(*), count(DISTINCT id) FROM {table}"))
    };
    wait_until("the rows of the file", || found(&standby, "u") == format!("{in_file}|{in_file}"));
    assert_eq!(found(&standby, "t"), format!("{sent}|{sent}"));
    assert!(serve.log().contains("a standby has them on disk"), "{}", serve.log());
    assert_eq!(streaming(&standby), "1");
    wait_until("the next standby", || found(&next, "t") == format!("{sent}|{sent}"));
    assert!(serve.stop() < 2);
}
