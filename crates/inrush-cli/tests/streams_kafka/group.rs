//! Several processes that share the partitions.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Sender, create_topic};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

#[test]
fn one_leaves_another_takes_over_and_one_joins() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(kafka, "shared", 4);
    let dir = tempfile::tempdir().expect("a directory");
    let stop = Arc::new(AtomicBool::new(false));
    let sent = {
        let (stop, sender) = (Arc::clone(&stop), Sender::new(kafka, &[]));
        std::thread::spawn(move || {
            let mut id = 0;
            while !stop.load(SeqCst) {
                for _ in 0..20 {
                    sender.send("shared", id % 4, Some(format!("{{\"id\":{id}}}").as_bytes()));
                    id += 1;
                }
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
            sender.flush();
            id
        })
    };
    let config = || Config::new(kafka, &database, "shared", &["shared"]).with("into.table = \"t\"").text();
    let readers = "SELECT count(DISTINCT claimed_by), count(*) FROM inrush_ledger.partitions";
    let rows = || database.psql("SELECT count(*) FROM t").parse::<u64>().expect("a number");
    let read_by = |processes: &str| {
        wait_until(processes, || database.try_psql(readers).is_ok_and(|found| found == processes));
        let before = rows();
        wait_until("rows", || rows() > before + 500);
    };
    let first = Serve::start_named(dir.path(), "first", &config());
    read_by("1|4");
    let second = Serve::start_named(dir.path(), "second", &config());
    read_by("2|4");
    assert_eq!(first.stop(), 0);
    read_by("1|4");
    let third = Serve::start_named(dir.path(), "third", &config());
    read_by("2|4");
    // Nobody is told of this one's end.
    second.kill9();
    read_by("1|4");
    stop.store(true, SeqCst);
    let sent = sent.join().expect("a sender");
    wait_until("all rows", || rows() >= sent as u64);
    assert_eq!(third.stop(), 0);
    assert_eq!(
        database.psql("SELECT count(*), count(DISTINCT id), max(id) FROM t"),
        format!("{sent}|{sent}|{}", sent - 1)
    );
}
