//! A source that is not what it was, or not there.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Sender, admin, create_topic, observer, runtime, watermarks};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rdkafka::Offset;
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::Consumer;
use rdkafka::topic_partition_list::TopicPartitionList;

#[test]
fn what_retention_has_taken_is_said_and_the_rest_is_read() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(kafka, "retained", 1);
    let sender = Sender::new(kafka, &[]);
    let send = |ids: std::ops::Range<i32>| {
        ids.for_each(|id| sender.send("retained", 0, Some(format!("{{\"id\":{id}}}").as_bytes())));
        sender.flush();
    };
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "retained", &["retained"]).with("into.table = \"t\"").text();
    let serve = Serve::start(dir.path(), &config);
    send(0..10);
    wait_until("10 rows", || database.psql("SELECT count(*) FROM t") == "10");
    assert_eq!(serve.stop(), 0);
    send(10..30);
    let mut gone = TopicPartitionList::new();
    gone.add_partition_offset("retained", 0, Offset::Offset(25)).expect("an offset");
    runtime().block_on(admin(kafka).delete_records(&gone, &AdminOptions::new())).expect("deleted");
    let serve = Serve::start(dir.path(), &config);
    wait_until("15 rows", || database.psql("SELECT count(*) FROM t") == "15");
    let log = serve.log();
    assert!(log.contains("begins at 25, but 10 is to be read: 15 offsets are gone"), "{log}");
    assert_eq!(
        database.psql("SELECT count(DISTINCT id), count(*) FILTER (WHERE id BETWEEN 10 AND 24) FROM t"),
        "15|0"
    );
    assert_eq!(serve.stop(), 0);
}

#[test]
fn a_topic_that_was_made_anew_is_not_mistaken_for_the_old_one() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(kafka, "anew", 1);
    let send = |ids: std::ops::Range<i32>| {
        let sender = Sender::new(kafka, &[]);
        ids.for_each(|id| sender.send("anew", 0, Some(format!("{{\"id\":{id}}}").as_bytes())));
        sender.flush();
    };
    send(0..10);
    let dir = tempfile::tempdir().expect("a directory");
    let config = |name: &str| {
        let config = Config::new(kafka, &database, name, &["anew"]).with("into.table = \"t\"");
        config.text().replace("\"events\"", &format!("\"{name}\""))
    };
    let serve = Serve::start(dir.path(), &config("anew"));
    wait_until("10 rows", || database.psql("SELECT count(*) FROM t") == "10");
    assert_eq!(serve.stop(), 0);
    runtime().block_on(admin(kafka).delete_topics(&["anew"], &AdminOptions::new())).expect("an answer");
    let observer = observer(kafka, "nobody");
    wait_until("no topic", || {
        observer.fetch_watermarks("anew", 0, std::time::Duration::from_secs(1)).is_err()
    });
    create_topic(kafka, "anew", 1);
    send(100..105);
    let serve = Serve::start(dir.path(), &config("anew"));
    wait_until("a complaint", || serve.log().contains("ends at 5, but 10 is to be read"));
    assert_eq!(serve.stop(), 0);
    // A new name is a new input: it begins with what there is.
    let serve = Serve::start(dir.path(), &config("later"));
    wait_until("15 rows", || database.psql("SELECT count(*), count(DISTINCT id) FROM t") == "15|15");
    assert_eq!(serve.stop(), 0);
    assert_eq!(watermarks(&observer, "anew", 0), (0, 5));
}

#[test]
fn a_table_that_is_missing_is_waited_for_without_haste() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    create_topic(kafka, "waiting", 1);
    let sender = Sender::new(kafka, &[]);
    (0..10).for_each(|id| sender.send("waiting", 0, Some(format!("{{\"id\":{id}}}").as_bytes())));
    sender.flush();
    let dir = tempfile::tempdir().expect("a directory");
    let serve = Serve::start(dir.path(), &Config::new(kafka, &database, "waiting", &["waiting"]).text());
    wait_until("a second attempt", || serve.log().matches("will be read again").count() >= 2);
    database.psql("CREATE TABLE waiting (id int)");
    wait_until("10 rows", || database.psql("SELECT count(*), count(DISTINCT id) FROM waiting") == "10|10");
    let epoch: u32 = database.psql("SELECT epoch FROM inrush_ledger.partitions").parse().expect("a number");
    assert!(epoch < 20, "claimed {epoch} times");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn without_a_broker_the_process_waits_and_stops() {
    require_kafka!();
    let (kafka, database) = (Kafka::start(1), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(&kafka, "away", 1);
    let sender = Sender::new(&kafka, &[]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(&kafka, &database, "away", &["away"]).with("into.table = \"t\"").text();
    kafka.kill9();
    let serve = Serve::start(dir.path(), &config);
    sender.send("away", 0, Some(b"{\"id\":1}"));
    kafka.restart();
    wait_until("a row", || database.psql("SELECT count(*) FROM t") == "1");
    sender.send("away", 0, Some(b"{\"id\":2}"));
    wait_until("a row", || database.psql("SELECT count(*) FROM t") == "2");
    kafka.kill9();
    assert_eq!(serve.stop(), 0);
    assert_eq!(database.psql("SELECT next FROM inrush_ledger.offsets LIMIT 1"), "2");
}
