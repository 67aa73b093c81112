//! What people are told: metrics, and the offsets that brokers have.

use crate::client::get;
use crate::process::{Serve, wait_until};
use crate::stream::{ASK, Config, Sender, create_topic, observer, watermarks};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rdkafka::Offset;
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::TopicPartitionList;

/// How far the input is behind, as its metrics say.
pub fn lag(port: u16) -> Option<i64> {
    let text = get(port, "/metrics").ok()?.body;
    let mut lines =
        text.lines().filter_map(|line| line.strip_prefix("inrush_input_lag{input=\"kafka:events\"} "));
    lines.next()?.parse().ok()
}

#[track_caller]
pub fn wait_for_lag(port: u16, wanted: i64) {
    wait_until(&format!("a lag of {wanted}"), || lag(port) == Some(wanted));
}

#[test]
fn lag_and_committed_offsets_follow() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(kafka, "told", 4);
    let sender = Sender::new(kafka, &[]);
    let send = |ids: std::ops::Range<i32>| {
        ids.for_each(|id| sender.send("told", id % 4, Some(format!("{{\"id\":{id}}}").as_bytes())));
        sender.flush();
    };
    send(0..1000);
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "told", &["told"]).with("into.table = \"t\"");
    let mut serve = Serve::start(dir.path(), &config.text());
    serve.wait_for(config.admin);
    wait_for_lag(config.admin, 0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "1000");
    // What cannot be stored now is behind.
    let lock = database
        .server()
        .psql_command(database.name())
        .args(["-qAt"])
        .stdin(std::process::Stdio::piped())
        .spawn();
    let mut lock = lock.expect("psql");
    let mut stdin = lock.stdin.take().expect("piped");
    std::io::Write::write_all(&mut stdin, b"BEGIN; LOCK TABLE t IN SHARE MODE;\n").expect("to write");
    let locked =
        "SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND mode = 'ShareLock' AND granted";
    wait_until("a lock", || database.psql(locked) == "1");
    send(1000..1400);
    wait_for_lag(config.admin, 400);
    drop(stdin);
    lock.wait().expect("psql");
    wait_for_lag(config.admin, 0);
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), "1400|1400");
    let observer = observer(kafka, "told");
    wait_until("committed offsets", || {
        let mut list = TopicPartitionList::new();
        list.add_partition_range("told", 0, 3);
        let told = observer.committed_offsets(list, ASK).expect("an answer");
        told.elements().iter().all(|one| one.offset() == Offset::Offset(350))
    });
    assert_eq!(watermarks(&observer, "told", 0), (0, 350));
    // A lane without rows tells within a second.
    wait_until("every lane's offset", || {
        database.psql("SELECT DISTINCT next FROM inrush_ledger.offsets WHERE source = 'kafka:events'")
            == "350"
    });
    assert_eq!(serve.stop(), 0);
}
