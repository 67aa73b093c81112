//! What people are told: metrics, and the offsets that brokers have.

use crate::client::get;
use crate::process::{Serve, wait_until};
use crate::stream::{ASK, Config, Lock, Sender, create_topic, observer, watermarks};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rdkafka::Offset;
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::TopicPartitionList;

/// A figure of the metrics.
fn figure<T: std::str::FromStr>(port: u16, name: &str) -> Option<T> {
    let text = get(port, "/metrics").ok()?.body;
    text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '))?.parse().ok()
}

/// How far the input is behind, as its metrics say.
pub fn lag(port: u16) -> Option<i64> {
    figure(port, "inrush_input_lag{input=\"kafka:events\"}")
}

/// Memory taken by rows that are not committed.
pub fn memory_used(port: u16) -> Option<u64> {
    figure(port, "inrush_memory_used_bytes")
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
    let lock = Lock::of(&database, "t");
    send(1000..1400);
    wait_for_lag(config.admin, 400);
    lock.release();
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
