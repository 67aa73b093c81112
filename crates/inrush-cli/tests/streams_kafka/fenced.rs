//! A reader that believes that it still is one.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Sender, create_topic};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rustix::process::Signal;
use std::io::Write;
use std::process::Stdio;

/// Eight tables, so that three lanes have rows, and two spread them another way.
const TABLES: u32 = 8;

#[test]
fn a_unit_of_the_reader_before_is_void() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    let tables: Vec<String> = (0..TABLES).map(|number| format!("m{number}")).collect();
    tables.iter().for_each(|table| drop(database.psql(&format!("CREATE TABLE {table} (f float8)"))));
    create_topic(kafka, "fenced", 1);
    let sender = Sender::new(kafka, &[]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = |lanes| {
        let mut config = Config::new(kafka, &database, "fenced", &["fenced"]).with("format = \"line\"");
        config.lanes = lanes;
        config.text()
    };
    let epoch = |wanted: &str| {
        wait_until(&format!("epoch {wanted}"), || {
            database.try_psql("SELECT epoch FROM inrush_ledger.partitions").is_ok_and(|found| found == wanted)
        });
    };
    let before = Serve::start_named(dir.path(), "before", &config(3));
    epoch("1");
    // The first reader's rows are under way, and its offsets have not moved, when it is stopped.
    let mut lock = database.server().psql_command(database.name());
    let mut lock = lock.args(["-qAt"]).stdin(Stdio::piped()).spawn().expect("psql");
    let mut stdin = lock.stdin.take().expect("piped");
    writeln!(stdin, "BEGIN; LOCK TABLE {} IN SHARE MODE;", tables.join(", ")).expect("to write");
    let locked = "SELECT count(*) FROM pg_locks WHERE database = (SELECT oid FROM pg_database
                   WHERE datname = current_database()) AND mode = 'ShareLock' AND granted";
    wait_until("the lock", || database.psql(locked) == TABLES.to_string());
    let lines: String = tables.iter().map(|table| format!("{table} f=1\n").repeat(10)).collect();
    sender.send("fenced", 0, Some(lines.as_bytes()));
    sender.flush();
    let waiting = "SELECT count(DISTINCT pid) FROM pg_stat_activity
                    WHERE datname = current_database() AND wait_event_type = 'Lock'";
    wait_until("three lanes", || database.psql(waiting) == "3");
    before.signal(Signal::STOP);
    // Another one takes the partition, with lanes that spread the rows differently, and is stopped in turn.
    let behind = Serve::start_named(dir.path(), "behind", &config(2));
    epoch("2");
    behind.signal(Signal::STOP);
    drop(stdin);
    lock.wait().expect("psql");
    // What the first one commits now would move offsets that mean something else.
    before.signal(Signal::CONT);
    let counts: Vec<String> = tables.iter().map(|table| format!("SELECT count(*) FROM {table}")).collect();
    let rows = || database.psql(&format!("SELECT sum(count) FROM ({}) x", counts.join(" UNION ALL ")));
    wait_until("all rows", || rows() == "80");
    behind.signal(Signal::CONT);
    assert_eq!(behind.stop(), 0);
    assert_eq!(before.stop(), 0);
    assert_eq!(rows(), "80");
}
