//! What a test sends, and how `inrush serve` is to read it.

use crate::process::wait_until;
use inrush_testkit::{Database, Kafka};
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseRecord, DefaultProducerContext, Producer, ThreadedProducer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};
use std::io::Write;
use std::process::{Child, ChildStdin};
use std::time::{Duration, Instant};

/// How long a broker may take to answer.
pub const ASK: Duration = Duration::from_secs(60);

/// Sends messages, each exactly once as far as brokers are concerned.
pub struct Sender {
    producer: ThreadedProducer<DefaultProducerContext>,
}

impl Sender {
    pub fn new(kafka: &Kafka, settings: &[(&str, &str)]) -> Sender {
        let mut config = ClientConfig::new();
        config
            .set("bootstrap.servers", kafka.address())
            .set("enable.idempotence", "true")
            .set("acks", "all")
            // For as long as it takes.
            .set("message.timeout.ms", "0")
            .set("linger.ms", "5")
            .set("reconnect.backoff.max.ms", "300");
        for (name, value) in settings {
            config.set(*name, *value);
        }
        Sender { producer: config.create().expect("a producer") }
    }

    pub fn producer(&self) -> &ThreadedProducer<DefaultProducerContext> {
        &self.producer
    }

    /// Sends a message; without a value it is a tombstone. Waits while the client has no room.
    pub fn send(&self, topic: &str, partition: i32, value: Option<&[u8]>) {
        let deadline = Instant::now() + ASK;
        let mut record = BaseRecord::<[u8], [u8]>::to(topic).partition(partition).key(b"key");
        record.payload = value;
        while let Err((error, back)) = self.producer.send(record) {
            let full = KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull);
            assert_eq!(error, full);
            assert!(Instant::now() < deadline, "the client's queue stays full");
            self.producer.poll(Duration::from_millis(10));
            record = back;
        }
    }

    /// Waits until brokers have everything.
    pub fn flush(&self) {
        self.producer.flush(ASK).expect("delivered");
    }
}

/// Makes a topic.
pub fn create_topic(kafka: &Kafka, topic: &str, partitions: i32) {
    let topic = NewTopic::new(topic, partitions, TopicReplication::Fixed(1));
    let made =
        runtime().block_on(admin(kafka).create_topics([&topic], &AdminOptions::new())).expect("an answer");
    made[0].as_ref().expect("a topic");
}

/// Takes what is before an offset from partitions, as retention does.
pub fn delete_until(kafka: &Kafka, partitions: &[(&str, i32)], offset: i32) {
    let mut gone = TopicPartitionList::new();
    for (topic, partition) in partitions {
        gone.add_partition_offset(topic, *partition, Offset::Offset(offset.into())).expect("an offset");
    }
    runtime().block_on(admin(kafka).delete_records(&gone, &AdminOptions::new())).expect("deleted");
}

/// Asks brokers to change something.
pub fn admin(kafka: &Kafka) -> AdminClient<DefaultClientContext> {
    ClientConfig::new().set("bootstrap.servers", kafka.address()).create().expect("an admin client")
}

/// A consumer that reads nothing: it asks.
pub fn observer(kafka: &Kafka, group: &str) -> BaseConsumer {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka.address()).set("group.id", group);
    config.create().expect("a consumer")
}

/// The first and the next offset of a partition.
pub fn watermarks(consumer: &BaseConsumer, topic: &str, partition: i32) -> (i64, i64) {
    consumer.fetch_watermarks(topic, partition, ASK).expect("watermarks")
}

/// A lock that keeps rows out of a table.
pub struct Lock {
    session: Child,
    stdin: ChildStdin,
}

impl Lock {
    pub fn of(database: &Database<'_>, table: &str) -> Lock {
        let session = database
            .server()
            .psql_command(database.name())
            .args(["-qAt"])
            .stdin(std::process::Stdio::piped())
            .spawn();
        let mut session = session.expect("psql");
        let mut stdin = session.stdin.take().expect("piped");
        writeln!(stdin, "BEGIN; LOCK TABLE {table} IN SHARE MODE;").expect("to write");
        let locked = format!(
            "SELECT count(*) FROM pg_locks WHERE relation = '{table}'::regclass AND mode = 'ShareLock' AND granted"
        );
        wait_until("a lock", || database.psql(&locked) == "1");
        Lock { session, stdin }
    }

    pub fn release(self) {
        let Lock { mut session, stdin } = self;
        drop(stdin);
        session.wait().expect("psql");
    }
}

pub fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A configuration with one Kafka input, which a test may change.
pub struct Config {
    pub to: String,
    pub lanes: u64,
    pub admin: u16,
    pub input: String,
    pub server: String,
}

impl Config {
    pub fn new(kafka: &Kafka, database: &Database<'_>, group: &str, topics: &[&str]) -> Config {
        // A process that is killed is missed after the session's timeout: tests do not wait for the default.
        let input = format!(
            "[[kafka]]\nname = \"events\"\nbrokers = \"{}\"\ntopics = {topics:?}\ngroup = \"{group}\"\n\
             settings = {{ \"session.timeout.ms\" = \"2000\", \"heartbeat.interval.ms\" = \"200\", \
             \"reconnect.backoff.max.ms\" = \"300\", \"topic.metadata.refresh.interval.ms\" = \"1000\", \
             \"statistics.interval.ms\" = \"200\" }}\n",
            kafka.address()
        );
        Config {
            to: database.url(),
            lanes: 3,
            admin: crate::process::free_port(),
            input,
            server: String::new(),
        }
    }

    pub fn with(mut self, line: &str) -> Config {
        self.input = format!("{}{line}\n", self.input);
        self
    }

    pub fn text(&self) -> String {
        format!(
            "[server]\nto = \"{}\"\nlanes = {}\n{}\n[batch]\nlinger = \"20ms\"\n[limits]\nmemory = \"8MiB\"\n\
             [admin]\nlisten = \"127.0.0.1:{}\"\n{}",
            self.to, self.lanes, self.server, self.admin, self.input
        )
    }
}
