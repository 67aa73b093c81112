//! A source that is not what it was, or not there.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Lock, Sender, admin, create_topic, delete_until, observer, runtime, watermarks};
use crate::told::{memory_used, wait_for_lag};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rdkafka::admin::AdminOptions;
use rdkafka::consumer::Consumer;
use std::time::{Duration, Instant};

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
    delete_until(kafka, &[("retained", 0)], 25);
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

/// librdkafka stops a partition whose position is gone, and does not seek in it any more.
#[test]
fn what_retention_takes_from_a_reader_that_waits_is_said_and_the_rest_is_read() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int, info text)");
    create_topic(kafka, "overtaken", 1);
    let sender = Sender::new(kafka, &[]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "overtaken", &["overtaken"]).with("into.table = \"t\"");
    let mut serve = Serve::start(dir.path(), &config.text().replace("8MiB", "1MiB"));
    serve.wait_for(config.admin);
    let lock = Lock::of(&database, "t");
    // More than memory takes: the partition is paused.
    let messages = 3000;
    let send = |id: i32| {
        let text = format!("{{\"id\":{id},\"info\":\"{id:02000}\"}}");
        sender.send("overtaken", 0, Some(text.as_bytes()));
    };
    (0..messages).for_each(send);
    sender.flush();
    let mut seen = (None, Instant::now());
    wait_until("no more memory is taken", || {
        let now = memory_used(config.admin).filter(|used| *used > 0);
        if seen.0 != now {
            seen = (now, Instant::now());
        }
        now.is_some() && seen.1.elapsed() > Duration::from_secs(1)
    });
    delete_until(kafka, &[("overtaken", 0)], messages - 10);
    lock.release();
    let last = format!("SELECT count(*), count(DISTINCT id) FROM t WHERE id >= {messages} - 10");
    wait_until("the last rows", || database.psql(&last) == "10|10");
    let log = serve.log();
    assert!(log.contains(&format!("begins at {}, but", messages - 10)), "{log}");
    // What was in memory is there.
    let before = format!(
        "SELECT count(*) = max(id) + 1, count(DISTINCT id) = count(*) FROM t WHERE id < {messages} - 10"
    );
    assert_eq!(database.psql(&before), "t|t");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn partitions_without_their_first_offsets_are_read_after_every_rebalance() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    let partitions = 24;
    create_topic(kafka, "worn", partitions);
    let sender = Sender::new(kafka, &[]);
    let mut sent = 0;
    let mut send = |rounds: i32| {
        for _ in 0..rounds * partitions {
            sender.send("worn", sent % partitions, Some(format!("{{\"id\":{sent}}}").as_bytes()));
            sent += 1;
        }
        sender.flush();
        sent
    };
    let gone = send(10);
    let all: Vec<_> = (0..partitions).map(|partition| ("worn", partition)).collect();
    delete_until(kafka, &all, 10);
    let dir = tempfile::tempdir().expect("a directory");
    let config = || Config::new(kafka, &database, "worn", &["worn"]).with("into.table = \"t\"").text();
    let mut read = |what: &str| {
        let rows = send(5) - gone;
        wait_until(what, || database.psql("SELECT count(*) FROM t") == rows.to_string());
    };
    let first = Serve::start_named(dir.path(), "first", &config());
    read("rows of one process");
    let readers = "SELECT count(DISTINCT claimed_by) FROM inrush_ledger.partitions";
    for round in 0..3 {
        let second = Serve::start_named(dir.path(), &format!("second{round}"), &config());
        wait_until("two readers", || database.psql(readers) == "2");
        read("rows of two processes");
        assert_eq!(second.stop(), 0);
        wait_until("one reader", || database.psql(readers) == "1");
        read("rows of the one that stays");
    }
    let log = first.log();
    assert!(!log.contains("is to be read"), "nothing that was to be read is gone: {log}");
    assert_eq!(first.stop(), 0);
    assert_eq!(database.psql("SELECT count(*) - count(DISTINCT id) FROM t"), "0");
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

/// What the brokers have not acknowledged of what they were told is no reason to wait: the database knows.
#[test]
fn a_broker_that_answers_nothing_does_not_hold_up_a_stop() {
    require_kafka!();
    let (kafka, database) = (Kafka::start(1), Postgres::shared(15).fresh_database());
    database.psql(
        "CREATE TABLE t (id int);
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM pg_sleep(1); RETURN NULL; END';
         CREATE TRIGGER slow AFTER INSERT ON t FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    );
    create_topic(&kafka, "mute", 1);
    let sender = Sender::new(&kafka, &[]);
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(&kafka, &database, "mute", &["mute"]).with("into.table = \"t\"").text();
    let serve = Serve::start(dir.path(), &config.replace("[limits]\n", "[limits]\nstop = \"10s\"\n"));
    sender.send("mute", 0, Some(b"{\"id\":1}"));
    sender.flush();
    wait_until("an insert", || {
        let sleeps = "datname = current_database() AND wait_event = 'PgSleep'";
        database.psql(&format!("SELECT count(*) FROM pg_stat_activity WHERE {sleeps}")) == "1"
    });
    kafka.freeze();
    wait_until("a row", || database.psql("SELECT count(*) FROM t") == "1");
    // Brokers are told every second: what they are told now is never answered.
    std::thread::sleep(Duration::from_millis(1500));
    assert_eq!(serve.stop(), 0);
    assert_eq!(database.psql("SELECT next FROM inrush_ledger.offsets LIMIT 1"), "1");
}

#[test]
fn a_topic_whose_table_may_not_be_named_is_not_read() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    let topics = ["named_a", "named_b", "named_c"];
    let sender = Sender::new(kafka, &[]);
    for topic in topics {
        database.psql(&format!("CREATE TABLE {topic} (id int)"));
        create_topic(kafka, topic, 1);
        (0..10).for_each(|id| sender.send(topic, 0, Some(format!("{{\"id\":{id}}}").as_bytes())));
    }
    sender.flush();
    let dir = tempfile::tempdir().expect("a directory");
    let config = |into: &str| Config::new(kafka, &database, "named", &["^named_.*"]).with(into);
    let counts = || {
        let of = |topic: &str| database.psql(&format!("SELECT count(*) FROM {topic}"));
        topics.map(of).join("|")
    };
    let first = config("into.tables = [\"named_a\"]");
    let serve = Serve::start(dir.path(), &first.text());
    wait_until("10 rows", || counts() == "10|0|0");
    wait_until("a complaint", || {
        serve.log().contains("table \"named_b\" is not among those that this input")
    });
    // What is not read is not behind.
    wait_for_lag(first.admin, 0);
    assert_eq!(serve.stop(), 0);
    // It is there when it may be read.
    let serve = Serve::start(dir.path(), &config("into.tables = [\"named_c\"]").text());
    wait_until("20 rows", || counts() == "10|0|10");
    assert_eq!(serve.stop(), 0);
    let more = "into.table = \"{topic}\"\ninto.tables = [\"*_b\"]";
    let serve = Serve::start(dir.path(), &config(more).text());
    wait_until("30 rows", || counts() == "10|10|10");
    assert_eq!(serve.stop(), 0);
    assert_eq!(database.psql("SELECT count(*) FROM inrush_ledger.dead_letters"), "0");
}

/// Files are read as fast as memory becomes free, and there is never any left.
#[test]
fn memory_comes_around_to_everybody_who_waits_for_it() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql(
        "CREATE TABLE t (id int); CREATE TABLE files (id int, info text);
         CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS
           'BEGIN PERFORM pg_sleep(0.5); RETURN NULL; END';
         CREATE TRIGGER slow AFTER INSERT ON files FOR EACH STATEMENT EXECUTE FUNCTION slow()",
    );
    create_topic(kafka, "waits", 1);
    let sender = Sender::new(kafka, &[]);
    let send = |id: i32| {
        sender.send("waits", 0, Some(format!("{{\"id\":{id}}}").as_bytes()));
        sender.flush();
    };
    send(1);
    let dir = tempfile::tempdir().expect("a directory");
    let tail = format!(
        "[[tail]]\nname = \"files\"\nfiles = \"{}/*.ndjson\"\nformat = \"ndjson\"\ninto.table = \"files\"\n",
        dir.path().display()
    );
    let config = Config::new(kafka, &database, "waits", &["waits"]).with("into.table = \"t\"").with(&tail);
    let serve = Serve::start(dir.path(), &config.text().replace("8MiB", "1MiB"));
    wait_until("a row", || database.psql("SELECT count(*) FROM t") == "1");
    let rows = 20_000;
    for file in 0..10 {
        let text: String =
            (0..rows).map(|id| format!("{{\"id\":{id},\"info\":\"{file:0150}\"}}\n")).collect();
        std::fs::write(dir.path().join(format!("{file}.ndjson")), text).expect("to write");
    }
    let of_files = || database.psql("SELECT count(*) FROM files").parse::<i32>().expect("a number");
    wait_until("rows of files", || of_files() > 0);
    send(2);
    wait_until("another row", || database.psql("SELECT count(*) FROM t") == "2");
    let found = of_files();
    assert!(found < 5 * rows, "{found} rows of files came first");
    serve.kill9();
}
