//! Readers, the broker and the server are killed while messages come: every row exactly once, in a plain table and in one
//! with windows, and every poisoned message one dead letter.

use crate::harness::{Random, inrush, run};
use crate::process::{PATIENCE, Serve, free_port, wait_until};
use crate::stream::{Config, Sender, create_topic};
use inrush_testkit::{Database, Kafka, Postgres, ServerOptions, require_kafka};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::time::{Duration, SystemTime};

/// Kills of a run: INRUSH_KILLS, or a few.
fn kills() -> usize {
    std::env::var("INRUSH_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

/// What was sent to a topic.
#[derive(Debug, Clone, Copy, Default)]
struct Sent {
    rows: u64,
    poisoned: u64,
}

const TOPICS: [&str; 2] = ["plain", "calls"];

/// Sends to both topics until it is told to stop.
fn send(kafka: &Kafka, mut random: Random, stop: &AtomicBool) -> [Sent; 2] {
    let sender = Sender::new(kafka, &[]);
    let mut sent = [Sent::default(); 2];
    while !stop.load(SeqCst) {
        for _ in 0..1 + random.below(60) {
            let topic = usize::from(random.one_in(2));
            let partition = i32::try_from(random.below(4)).expect("0 to 3");
            let now =
                SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
            let of = &mut sent[topic];
            let value = match random.below(300) {
                // The server refuses one, and we the other.
                0 => format!("{{\"id\":\"no number {}\",\"at\":{now}}}", of.poisoned),
                1 => format!("broken {}", of.poisoned),
                _ => format!(
                    "{{\"id\":{},\"info\":\"{}\",\"at\":{now}}}",
                    of.rows,
                    "x".repeat(random.below(200) as usize)
                ),
            };
            match value.contains("no number") || value.starts_with("broken") {
                true => of.poisoned += 1,
                false => of.rows += 1,
            }
            sender.send(TOPICS[topic], partition, Some(value.as_bytes()));
        }
        std::thread::sleep(Duration::from_millis(random.below(20)));
    }
    sender.flush();
    sent
}

/// Two processes of one group.
struct Readers<'a> {
    kafka: &'a Kafka,
    database: &'a Database<'a>,
    dir: &'a Path,
    running: [Option<Serve>; 2],
}

impl Readers<'_> {
    fn config(&self, random: &mut Random) -> String {
        let mut config =
            Config::new(self.kafka, self.database, "killed", &TOPICS).with("into.table = \"{topic}\"");
        config.lanes = 1 + random.below(5);
        config.admin = free_port();
        config.server = format!("synchronous_commit = \"{}\"", random.pick(&["on", "off"]));
        let batch = format!(
            "linger = \"{}ms\"\nrows = {}",
            random.pick(&[1, 20, 200]),
            random.pick(&[50, 1000, 100_000])
        );
        config.text().replace("linger = \"20ms\"", &batch)
    }

    fn start(&mut self, which: usize, random: &mut Random) {
        let config = self.config(random);
        self.running[which] = Some(Serve::start_named(self.dir, ["one", "other"][which], &config));
    }

    fn kill(&mut self, which: usize) {
        if let Some(serve) = self.running[which].take() {
            serve.kill9();
        }
    }
}

#[test]
fn messages_arrive_once_whoever_is_killed() {
    require_kafka!();
    let mut random = Random::from_environment("messages_arrive_once");
    // With synchronous_commit off, a crash takes up to three times as much (src/backend/access/transam/README).
    let conf = &[("wal_writer_delay", "1s")];
    let options = ServerOptions { conf, ..ServerOptions::default() };
    let (kafka, server) = (Arc::new(Kafka::start(4)), Postgres::start(&options));
    let database = server.fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    database.psql("CREATE TABLE plain (id bigint, info text, at bigint)");
    let mut made = inrush(dir.path());
    made.args(["table", "create", "calls", "id bigint", "info text", "at bigint NOT NULL", "--time", "at"])
        .args(["--unit", "s", "--window", "30s", "--lanes", "3", "--key", "id", "--to", &database.url()]);
    run(&mut made, None, PATIENCE).expect_code(0);
    TOPICS.iter().for_each(|topic| create_topic(&kafka, topic, 4));

    let stop = Arc::new(AtomicBool::new(false));
    let sender = {
        let (kafka, stop, random) = (Arc::clone(&kafka), Arc::clone(&stop), Random::new(random.next()));
        std::thread::spawn(move || send(&kafka, random, &stop))
    };
    let mut readers = Readers { kafka: &kafka, database: &database, dir: dir.path(), running: [None, None] };
    readers.start(0, &mut random);
    readers.start(1, &mut random);
    let mut told = String::new();
    let mut done = 0;
    while done < kills() {
        std::thread::sleep(Duration::from_millis(200 + random.below(4000)));
        // Who dies together, and in which order they come back.
        let mut dead: Vec<usize> = (0..4).filter(|_| random.one_in(3)).collect();
        if dead.is_empty() {
            dead.push(usize::try_from(random.below(4)).expect("0 to 3"));
        }
        for victim in &dead {
            told += ["one ", "other ", "broker ", "server "][*victim];
            match victim {
                2 => kafka.kill9(),
                3 => server.kill9(),
                reader => readers.kill(*reader),
            }
            std::thread::sleep(Duration::from_millis(random.below(50)));
        }
        told += "| ";
        done += dead.len();
        while !dead.is_empty() {
            std::thread::sleep(Duration::from_millis(random.below(800)));
            let at = usize::try_from(random.below(dead.len() as u64)).expect("small");
            match dead.swap_remove(at) {
                2 => kafka.restart(),
                3 => server.restart(),
                reader => readers.start(reader, &mut random),
            }
        }
    }
    stop.store(true, SeqCst);
    let sent = sender.join().expect("a sender");
    // Killed last, it may take as long as a session does until the other one has everything.
    for (topic, sent) in TOPICS.iter().zip(&sent) {
        let rows = format!("SELECT count(*) >= {} FROM {topic}", sent.rows);
        wait_until(&format!("all rows of {topic}: {sent:?}"), || database.psql(&rows) == "t");
    }
    let poisoned = sent[0].poisoned + sent[1].poisoned;
    let letters = format!("SELECT count(*) >= {poisoned} FROM inrush_ledger.dead_letters");
    wait_until("all letters", || database.psql(&letters) == "t");
    for serve in readers.running.into_iter().flatten() {
        assert!(serve.stop() < 2);
    }
    for (topic, Sent { rows, .. }) in TOPICS.iter().zip(sent) {
        let found = format!("SELECT count(*), count(DISTINCT id), min(id), max(id) FROM {topic}");
        assert_eq!(database.psql(&found), format!("{rows}|{rows}|0|{}", rows - 1), "{topic}; killed: {told}");
    }
    assert_eq!(
        database
            .psql("SELECT count(*), count(DISTINCT (partition, position)) FROM inrush_ledger.dead_letters"),
        format!("{poisoned}|{poisoned}"),
        "refused rows are kept once; killed: {told}"
    );
    // Not eprintln!: what a long run did is worth to be seen when it went well.
    let said = format!("{done} kills, {sent:?}: {told}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), said.as_bytes());
}
