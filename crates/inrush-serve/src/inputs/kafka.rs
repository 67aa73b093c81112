//! Kafka: exactly once. The group decides who reads a partition, the ledger from where.
//!
//! What the group gives us is claimed in the ledger first; only then does the client fetch it, from the smallest offset of
//! its lanes. What brokers have as committed offsets is for people to look at: nothing is read from there.

mod context;
mod gather;
mod wanted;

use super::replay::{Claimed, Replay};
use super::{Feeder, Piece, reading};
use crate::config::{Kafka, Start};
use crate::part::{Positions, Reading, Source};
use context::{Context, Reached, table_of};
use gather::{Gathered, Gathering};
use inrush_core::{Code, Error, Result};
use inrush_sink::ledger::stream::PartitionName;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::{KafkaError, KafkaResult, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::{Offset, TopicPartitionList};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, mpsc};
use std::time::{Duration, Instant};
use tokio::sync::Semaphore;
use wanted::Wanted;

/// How long one poll waits.
const POLL: Duration = Duration::from_millis(20);

/// How long messages are taken without a look at anything else.
const ROUND: Duration = Duration::from_millis(5);

/// How long messages gather before they are handed on, if there are not enough for a part.
const GATHER: Duration = Duration::from_millis(20);

/// How long a broker is asked.
const ASK: Duration = Duration::from_secs(10);

/// How long brokers may take for the end: to be told how far we are, and to let the partitions go.
const CLOSE: Duration = Duration::from_secs(5);

/// How often brokers are told how far we are.
const TELL: Duration = Duration::from_secs(1);

/// First and longest pause before a partition is claimed again whose rows could not be stored.
const AGAIN: (Duration, Duration) = (Duration::from_millis(200), Duration::from_secs(5));

/// Partitions that are claimed at a time: each claim is a connection.
const CLAIMS: usize = 4;

/// What the input needs as it is: settings of the user that would change it are refused.
const OURS: [&str; 6] = [
    "enable.auto.commit",
    "enable.auto.offset.store",
    "group.id",
    "auto.offset.reset",
    "partition.assignment.strategy",
    "group.protocol",
];

/// Topic and number.
type PartitionKey = (String, i32);

/// One partition that is read.
struct Active {
    /// The assignment it was claimed under.
    assignment: u64,
    claimed: Claimed,
    replay: Arc<Replay>,
    table: Option<String>,
    /// The offset that comes next.
    expected: i64,
    gathering: Gathering,
    /// What brokers were told last.
    told: i64,
    /// Whether the client knows of it as [`Reached::all`].
    known_as_all: bool,
}

impl Active {
    fn reached(&self) -> Reached {
        let position = self.claimed.origin.settled().unwrap_or(0).max(self.claimed.restart);
        Reached { position, all: position >= self.expected }
    }
}

/// When a partition may be claimed again, and the pause after that.
#[derive(Debug, Clone, Copy)]
struct Again {
    at: Instant,
    pause: Duration,
}

/// What a claim has found.
struct Found {
    key: PartitionKey,
    assignment: u64,
    claimed: Option<(Arc<Replay>, Claimed, (i64, i64))>,
}

/// One Kafka input.
struct Reader {
    config: Kafka,
    source: Arc<Source>,
    feeder: Feeder,
    reading: Reading,
    handle: tokio::runtime::Handle,
    consumer: Arc<BaseConsumer<Context>>,
    active: HashMap<PartitionKey, Active>,
    /// Partitions whose claim is under way.
    claiming: HashSet<PartitionKey>,
    claims: (mpsc::Sender<Found>, mpsc::Receiver<Found>),
    at_a_time: Arc<Semaphore>,
    again: HashMap<PartitionKey, Again>,
    /// There is no memory, or there are too many refused rows: nothing is taken from the broker.
    full: bool,
    wanted: Option<Wanted>,
    told: Instant,
}

/// Reads until the process stops. Polling blocks: it has a thread of its own.
///
/// # Errors
/// Code `usage`, for settings that librdkafka does not take.
pub(crate) async fn run(config: Kafka, source: Arc<Source>, feeder: Feeder) -> Result<()> {
    let handle = tokio::runtime::Handle::current();
    let reader = Reader::new(config, source, feeder, handle)?;
    let (done, ended) = tokio::sync::oneshot::channel();
    std::thread::Builder::new()
        .name("inrush-kafka".to_owned())
        .spawn(move || {
            // Nobody waits if the process has given up.
            let _ = done.send(reader.run());
        })
        .map_err(|e| Error::new(Code::Internal, format!("no thread for Kafka: {e}")))?;
    ended.await.unwrap_or_else(|_| Err(Error::new(Code::Internal, "the Kafka input broke")))
}

impl Reader {
    fn new(
        config: Kafka,
        source: Arc<Source>,
        feeder: Feeder,
        handle: tokio::runtime::Handle,
    ) -> Result<Reader> {
        let bad = |e: &KafkaError| {
            Error::new(Code::Usage, format!("input {:?}: {e}", config.name))
                .hint("Settings are those of librdkafka (CONFIGURATION.md).")
        };
        let reading = reading(config.format, &config.csv_columns, &config.name)?;
        let mut settings = ClientConfig::new();
        settings
            .set("bootstrap.servers", &config.brokers)
            .set("group.id", &config.group)
            .set("enable.auto.commit", "false")
            .set("enable.auto.offset.store", "false")
            // A position that is not there any more is looked into, not passed over: see `check`.
            .set("auto.offset.reset", "error")
            .set("isolation.level", "read_committed")
            .set("statistics.interval.ms", "5000")
            .set("partition.assignment.strategy", "range,roundrobin")
            .set("session.timeout.ms", "15000")
            .set("queued.max.messages.kbytes", "16384")
            .set("client.id", "inrush");
        for (name, value) in &config.settings {
            if OURS.contains(&name.as_str()) {
                return Err(Error::new(
                    Code::Usage,
                    format!(
                        "input {:?}: {name} is not to be set: offsets are kept in the database",
                        config.name
                    ),
                ));
            }
            settings.set(name, value);
        }
        source.counters.lag.store(-1, Relaxed);
        let context = Context::new(Arc::clone(&source), config.format);
        let consumer: BaseConsumer<Context> = settings.create_with_context(context).map_err(|e| bad(&e))?;
        let topics: Vec<&str> = config.topics.iter().map(String::as_str).collect();
        consumer.subscribe(&topics).map_err(|e| bad(&e))?;
        Ok(Reader {
            config,
            source,
            feeder,
            reading,
            handle,
            consumer: Arc::new(consumer),
            active: HashMap::new(),
            claiming: HashSet::new(),
            claims: mpsc::channel(),
            at_a_time: Arc::new(Semaphore::new(CLAIMS)),
            again: HashMap::new(),
            full: false,
            wanted: None,
            told: Instant::now(),
        })
    }

    fn run(mut self) -> Result<()> {
        let ended = self.read();
        self.close();
        ended
    }

    /// Reads until the process stops, and waits until all of it is stored.
    fn read(&mut self) -> Result<()> {
        let consumer = Arc::clone(&self.consumer);
        while !self.feeder.is_stopping() {
            self.settle_assignment();
            let until = Instant::now() + ROUND;
            let mut wait = POLL;
            while let Some(polled) = consumer.poll(wait) {
                match polled {
                    Ok(message) => self.take(&message),
                    Err(error) => self.polled_error(&error)?,
                }
                if Instant::now() >= until {
                    break;
                }
                wait = Duration::ZERO;
            }
            self.hand_on(false);
            if self.told.elapsed() > TELL {
                let list = self.tell();
                commit(&consumer, &self.source.name, &list, CommitMode::Async);
            }
        }
        self.hand_on(true);
        for active in self.active.values_mut() {
            self.handle.block_on(active.claimed.settled());
        }
        Ok(())
    }

    /// Tells the brokers where we end, and leaves the group, so that others have the partitions at once.
    ///
    /// Nothing depends on it: the offsets that count are in the database, and brokers that hear nothing give the
    /// partitions to others when the session ends. But librdkafka closes no consumer before each commit under way has its
    /// answer, which of brokers that are away may take minutes. Then it is left behind, with its threads.
    fn close(mut self) {
        let list = self.tell();
        let Reader { consumer, source, feeder, .. } = self;
        let (closed, wait) = mpsc::channel();
        let name = source.name.clone();
        let begun = std::thread::Builder::new().name("inrush-kafka-end".to_owned()).spawn(move || {
            commit(&consumer, &name, &list, CommitMode::Sync);
            drop(consumer);
            // Nobody waits if it took too long.
            let _ = closed.send(());
        });
        let patience = CLOSE.min(feeder.limits.stop.0 / 4);
        if begun.is_err() || wait.recv_timeout(patience).is_err() {
            tracing::warn!(
                input = source.name,
                "brokers do not answer: they may show an older offset until this group reads again; the ledger has the right one"
            );
        }
    }

    fn polled_error(&self, error: &KafkaError) -> Result<()> {
        match error {
            // Which partition it is of is not told. A claim looks at what there is.
            KafkaError::MessageConsumption(RDKafkaErrorCode::AutoOffsetReset) => {
                tracing::debug!(input = self.source.name, %error, "a position is not there");
                self.active.values().for_each(|active| active.claimed.origin.spoil());
            }
            KafkaError::MessageConsumptionFatal(_) => {
                return Err(Error::new(Code::SourceRead, format!("{}: {error}", self.source.name)));
            }
            _ => tracing::debug!(input = self.source.name, %error, "poll"),
        }
        Ok(())
    }

    /// Drops what is not ours any more, and gives what is. What is under way of the others may still be committed, until
    /// the next reader claims them.
    fn drop_revoked(&mut self) -> HashMap<PartitionKey, u64> {
        let assigned = self.consumer.context().assigned().1.clone();
        self.active.retain(|key, active| assigned.get(key) == Some(&active.assignment));
        assigned
    }

    /// Claims what has been assigned, drops what is not ours any more, and begins again what has become void.
    fn settle_assignment(&mut self) {
        let assigned = self.drop_revoked();
        let stale: Vec<PartitionKey> = self
            .active
            .iter()
            .filter(|(_, active)| active.claimed.origin.is_stale())
            .map(|(key, _)| key.clone())
            .collect();
        for key in stale {
            self.pause(&key, true);
            let had_success =
                self.active.remove(&key).is_some_and(|active| active.claimed.origin.settled().is_some());
            if had_success {
                self.again.remove(&key);
            }
            self.later(key);
        }
        self.again.retain(|key, _| assigned.contains_key(key));
        for (key, assignment) in &assigned {
            let now = self.again.get(key).is_none_or(|again| again.at <= Instant::now());
            if now && !self.active.contains_key(key) && self.claiming.insert(key.clone()) {
                self.start_claim(key.clone(), *assignment);
            }
        }
        let mut begun = Vec::new();
        while let Ok(found) = self.claims.1.try_recv() {
            self.claiming.remove(&found.key);
            if assigned.get(&found.key) != Some(&found.assignment) {
                // Of an assignment that has gone: claimed again.
            } else if self.begin(&found.key, found.assignment, found.claimed) {
                begun.push(found.key);
            } else {
                self.later(found.key);
            }
        }
        self.fetch(&begun);
    }

    /// The next claim of a partition waits, longer each time.
    fn later(&mut self, key: PartitionKey) {
        let again = self.again.entry(key).or_insert(Again { at: Instant::now(), pause: AGAIN.0 });
        again.at = Instant::now() + again.pause;
        again.pause = (again.pause * 2).min(AGAIN.1);
    }

    /// Begins to read what has been claimed. `false` if it cannot be read now.
    fn begin(
        &mut self,
        key: &PartitionKey,
        assignment: u64,
        claimed: Option<(Arc<Replay>, Claimed, (i64, i64))>,
    ) -> bool {
        let Some((replay, claimed, there)) = claimed else { return false };
        let Some(expected) = self.check(&replay, claimed.restart, there) else { return false };
        tracing::info!(
            input = self.source.name,
            partition = replay.name.partition,
            offset = expected,
            "reading"
        );
        let table = table_of(&self.source.into, self.config.format, &key.0);
        let gathering = Gathering::new(self.config.format, self.feeder.part_bytes());
        let active =
            Active { assignment, claimed, replay, table, expected, gathering, told: 0, known_as_all: false };
        self.active.insert(key.clone(), active);
        true
    }

    /// Has the client fetch partitions that are read, each from what comes next of it.
    ///
    /// A seek leaves the other partitions alone, but it does not start a partition: neither one that is not assigned, nor one
    /// that librdkafka has stopped because its position was not there (in `rd_kafka_offset_reset`). That may have happened
    /// to one that was paused without a word: pausing removes the messages that wait, and the error among them. What
    /// starts a partition is an assignment.
    fn fetch(&mut self, keys: &[PartitionKey]) {
        // After a revocation the client takes any assignment as the group's next one: there must not be one of ours.
        self.drop_revoked();
        let ours = || keys.iter().filter_map(|key| Some((key, self.active.get(key)?)));
        if ours().next().is_none() {
            return;
        }
        let sought = ours().try_for_each(|(key, active)| {
            self.consumer.seek(&key.0, key.1, Offset::Offset(active.expected), ASK)
        });
        if let Err(error) = sought {
            tracing::debug!(input = self.source.name, %error, "assigned anew");
            if let Err(error) = self.assign() {
                tracing::warn!(input = self.source.name, %error, "partitions cannot be fetched");
                self.active.values().for_each(|active| active.claimed.origin.spoil());
            }
        }
        ours().for_each(|(key, _)| self.pause(key, self.full));
    }

    /// Assigns to the client what is read, as a whole: the group's protocol is eager, which has nothing else. Partitions
    /// that are fetched already go on where they are; what the client had fetched ahead of them it fetches again.
    fn assign(&self) -> KafkaResult<()> {
        let mut list = TopicPartitionList::new();
        for (key, active) in &self.active {
            list.add_partition_offset(&key.0, key.1, Offset::Offset(active.expected))?;
        }
        self.consumer.assign(&list)?;
        // Fetchers that stop answer the client's thread, which then starts the new ones. An assignment that came before
        // such an answer would stop the same fetcher again, and end the process (librdkafka issue 5573). Each question
        // is answered behind what was under way before it: after the first, fetchers have stopped; after the second,
        // they have been started.
        self.consumer.assignment()?;
        self.consumer.assignment()?;
        Ok(())
    }

    /// Where to read from, between what brokers have. `None` if the offset is not theirs.
    fn check(&self, replay: &Replay, restart: i64, (low, high): (i64, i64)) -> Option<i64> {
        let partition = &replay.name.partition;
        if restart > high {
            let fact = format!(
                "{} {partition} ends at {high}, but {restart} is to be read: it was made anew, or has lost messages",
                self.source.name
            );
            tracing::error!("{fact}; nothing is read of it");
            self.feeder.metrics.note_error(&Error::new(Code::SourceRead, fact));
            return None;
        }
        if restart < low {
            let fact = format!(
                "{} {partition} begins at {low}, but {restart} is to be read: {} offsets are gone",
                self.source.name,
                low - restart
            );
            tracing::error!("{fact}; the rest is read");
            self.feeder.metrics.note_error(&Error::new(Code::SourceRead, fact));
        }
        Some(restart.max(low))
    }

    fn start_claim(&self, key: PartitionKey, assignment: u64) {
        let name =
            PartitionName { source: self.source.name.clone(), partition: format!("{}/{}", key.0, key.1) };
        let (consumer, start) = (Arc::clone(&self.consumer), self.config.start);
        let (feeder, source, done) = (self.feeder.clone(), Arc::clone(&self.source), self.claims.0.clone());
        let at_a_time = Arc::clone(&self.at_a_time);
        self.handle.spawn(async move {
            // It is never closed.
            let _turn = at_a_time.acquire().await;
            let of = key.clone();
            let there = tokio::task::spawn_blocking(move || consumer.fetch_watermarks(&of.0, of.1, ASK));
            let claimed = match there.await {
                Ok(Ok((low, high))) => {
                    let first = if start == Start::Earliest { low } else { high };
                    let replay = Arc::new(Replay { feeder, source, name, first });
                    replay.claim().await.map(|claimed| (replay, claimed, (low, high)))
                }
                Ok(Err(error)) => {
                    tracing::debug!(input = source.name, partition = name.partition, %error, "brokers do not tell");
                    None
                }
                Err(_) => None,
            };
            // A reader that has gone claims nothing.
            let _ = done.send(Found { key, assignment, claimed });
        });
    }

    fn pause(&self, key: &PartitionKey, pause: bool) {
        let mut list = TopicPartitionList::new();
        list.add_partition(&key.0, key.1);
        let done = if pause { self.consumer.pause(&list) } else { self.consumer.resume(&list) };
        if let Err(error) = done {
            tracing::debug!(input = self.source.name, %error, "pause or resume");
        }
    }

    /// Adds a message to what is gathered of its partition.
    fn take(&mut self, message: &impl Message) {
        let key = (message.topic().to_owned(), message.partition());
        let Some(active) = self.active.get_mut(&key) else { return };
        let offset = message.offset();
        if offset < active.expected {
            return;
        }
        active.expected = offset + 1;
        // At once: the client's position is behind this message, and its statistics may come with the next poll.
        if std::mem::take(&mut active.known_as_all)
            && let Some(reached) = self.consumer.context().reached().get_mut(&key)
        {
            reached.all = false;
        }
        // A message without a value is a position all the same.
        active.gathering.add(message.payload().unwrap_or_default(), offset);
    }

    /// Hands on what has gathered, if it is enough or has waited long enough.
    fn hand_on(&mut self, all: bool) {
        let limit = self.feeder.limits.rejects_per_minute;
        let mut full = self.source.counters.poisoned(limit).is_some();
        for active in self.active.values_mut() {
            active.gathering.close(if all { Duration::ZERO } else { GATHER });
        }
        // What has been waited for is taken at once, or given back.
        self.wanted = self.wanted.take().filter(|wanted| {
            let active = self.active.get(&wanted.key).filter(|_| !full);
            active.is_some_and(|active| active.gathering.ready() == Some(wanted.bytes))
        });
        let waits = self.wanted.as_ref().map(|wanted| wanted.key.clone());
        let keys: Vec<PartitionKey> = waits.into_iter().chain(self.active.keys().cloned()).collect();
        for key in keys {
            let Some(active) = self.active.get_mut(&key) else { continue };
            while let Some(bytes) = active.gathering.ready().filter(|_| !full) {
                let mut wanted = self
                    .wanted
                    .take()
                    .unwrap_or_else(|| Wanted::new(&self.feeder.memory, key.clone(), bytes));
                let Some(memory) = wanted.look() else {
                    self.wanted = Some(wanted);
                    full = true;
                    break;
                };
                let Some(Gathered { bytes, marks, next, .. }) = active.gathering.take() else { break };
                let piece = Piece {
                    table: active.table.clone(),
                    reading: self.reading.clone(),
                    bytes: bytes.into(),
                    first_line: 1,
                    positions: Positions::Marks(marks),
                    next,
                    memory,
                };
                // Watchers are tasks.
                let _inside = self.handle.enter();
                active.replay.feed(&mut active.claimed, piece);
            }
        }
        if full != self.full {
            self.full = full;
            let keys: Vec<PartitionKey> = self.active.keys().cloned().collect();
            if full {
                keys.iter().for_each(|key| self.pause(key, true));
            } else {
                self.fetch(&keys);
            }
        }
    }

    /// How far we are, for brokers and those who look at them: of each partition that has come further than they were told.
    fn tell(&mut self) -> TopicPartitionList {
        self.told = Instant::now();
        let mut list = TopicPartitionList::new();
        let mut all = HashMap::new();
        for (key, active) in &mut self.active {
            let reached = active.reached();
            active.known_as_all = reached.all;
            all.insert(key.clone(), reached);
            if reached.position == active.told {
                continue;
            }
            active.told = reached.position;
            if let Err(error) = list.add_partition_offset(&key.0, key.1, Offset::Offset(reached.position)) {
                tracing::debug!(input = self.source.name, %error, "an offset was not told");
            }
        }
        *self.consumer.context().reached() = all;
        list
    }
}

/// Has the brokers know positions.
fn commit(consumer: &BaseConsumer<Context>, input: &str, list: &TopicPartitionList, mode: CommitMode) {
    if list.count() > 0
        && let Err(error) = consumer.commit(list, mode)
    {
        tracing::debug!(input, %error, "offsets were not told");
    }
}
