//! What is accepted while the server cannot take it: kept on disk, and drained in order when it can.
//!
//! A thread owns the log. Appends that wait together are synced together, and acknowledged after that. A task drains:
//! the log is a partition like any other, whose offsets move with the rows. Bodies that came with a key are drained under
//! their key, and the log's offset moves when they are stored: whichever part of them the server has, it has once.

use crate::config::SpillConfig;
use crate::inputs::replay::Replay;
use crate::inputs::{Feeder, Piece, outcome};
use crate::metrics::SpillFigures;
use crate::origin::Origin;
use crate::part::{Positions, Reading};
use inrush_core::{Code, CsvDialect, Eol, Error, Result};
use inrush_decode::line::Precision;
use inrush_sink::ledger::stream::PartitionName;
use inrush_spill::{Entry, Options, Reader, Spill};
use serde::{Deserialize, Serialize};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// Entries that are drained at once at most.
const DRAINING: usize = 256;

/// Keys of drained entries that are remembered at most.
const KEYS: usize = 16 << 10;

/// How often an empty log, or a server that is away, is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// What is kept beside the bytes of a piece.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Meta {
    /// The input, as `http:gateway`.
    pub input: String,
    pub table: Option<String>,
    pub reading: KeptReading,
    pub first_line: u64,
    /// Position of its first byte in the body.
    pub start: i64,
    /// Idempotency-Key of the body and hash of its head, if it came with one.
    pub key: Option<(String, Vec<u8>)>,
}

/// How a piece is read.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(tag = "format", rename_all = "kebab-case")]
pub(crate) enum KeptReading {
    Ndjson,
    Csv { header: Vec<String>, crlf: bool },
    Line { precision: String },
}

impl KeptReading {
    pub fn of(reading: &Reading) -> KeptReading {
        match reading {
            Reading::Ndjson => KeptReading::Ndjson,
            Reading::Csv { dialect, header } => {
                KeptReading::Csv { header: header.to_vec(), crlf: dialect.eol == Eol::CrLf }
            }
            Reading::Line { precision } => {
                let name = match precision {
                    Precision::Ns => "ns",
                    Precision::Us => "us",
                    Precision::Ms => "ms",
                    Precision::S => "s",
                    Precision::M => "m",
                    Precision::H => "h",
                };
                KeptReading::Line { precision: name.to_owned() }
            }
        }
    }

    fn reading(&self) -> Reading {
        match self {
            KeptReading::Ndjson => Reading::Ndjson,
            KeptReading::Csv { header, crlf } => {
                let eol = if *crlf { Eol::CrLf } else { Eol::Lf };
                let dialect = CsvDialect { eol, ..CsvDialect::default() };
                Reading::Csv { dialect, header: Arc::new(header.clone()) }
            }
            KeptReading::Line { precision } => {
                Reading::Line { precision: Precision::parse(precision).unwrap_or(Precision::Ns) }
            }
        }
    }
}

enum Order {
    Append { meta: Vec<u8>, bytes: bytes::Bytes, done: oneshot::Sender<Result<()>> },
    Read { from: u64, done: oneshot::Sender<Result<Reader>> },
    Trim { upto: u64 },
}

/// The log, as inputs see it.
#[derive(Clone)]
pub(crate) struct SpillLog {
    orders: mpsc::Sender<Order>,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    id: String,
    bytes: AtomicU64,
    oldest: AtomicU64,
    synced: AtomicU64,
    /// When the oldest entry was appended, microseconds since 1970; 0: there is none.
    oldest_time: AtomicU64,
    /// Where everything has been drained to.
    drained: AtomicU64,
    held: AtomicBool,
    why: Mutex<String>,
}

impl SpillLog {
    /// Opens the log and gives it a thread.
    ///
    /// # Errors
    /// Code `spill`, where it is in use, damaged, or cannot be written.
    pub fn open(config: &SpillConfig) -> Result<(SpillLog, std::thread::JoinHandle<()>)> {
        let options = Options { max_bytes: config.max.0, segment_bytes: config.segment.0 };
        let (spill, found) = Spill::open(&config.dir, &options)?;
        if let Some(cut) = found.cut {
            tracing::warn!(
                position = cut.position,
                bytes = cut.bytes,
                "a torn end of the spill was cut off: it was never acknowledged"
            );
        }
        let waiting = found.end - found.oldest;
        tracing::info!(dir = %config.dir.display(), waiting, "the spill is open");
        let shared = Shared { id: spill.id(), drained: AtomicU64::new(found.oldest), ..Shared::default() };
        let log = SpillLog { orders: mpsc::channel().0, shared: Arc::new(shared) };
        log.shared.look(&spill);
        let (orders, receiver) = mpsc::channel();
        let shared = Arc::clone(&log.shared);
        let thread = std::thread::Builder::new()
            .name("inrush-spill".to_owned())
            .spawn(move || keep(spill, &receiver, &shared))
            .map_err(|e| Error::new(Code::Internal, format!("no thread for the spill: {e}")))?;
        Ok((SpillLog { orders, ..log }, thread))
    }

    /// Keeps a piece; it is on disk when this returns.
    pub async fn append(&self, meta: &Meta, bytes: bytes::Bytes) -> Result<()> {
        let meta = serde_json::to_vec(meta).map_err(|e| {
            Error::new(Code::Internal, format!("what is to be spilled has no JSON form: {e}"))
        })?;
        let (done, told) = oneshot::channel();
        let gone = || Error::new(Code::Spill, "the spill is closed");
        self.orders.send(Order::Append { meta, bytes, done }).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    async fn reader(&self, from: u64) -> Result<Reader> {
        let (done, told) = oneshot::channel();
        let gone = || Error::new(Code::Spill, "the spill is closed");
        self.orders.send(Order::Read { from, done }).map_err(|_| gone())?;
        told.await.map_err(|_| gone())?
    }

    /// Whether there is something to drain.
    pub fn is_empty(&self) -> bool {
        self.shared.drained.load(SeqCst) >= self.shared.synced.load(SeqCst)
    }

    pub fn figures(&self) -> SpillFigures {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_micros();
        let oldest = u128::from(self.shared.oldest_time.load(SeqCst));
        let age = if self.is_empty() || oldest == 0 { 0 } else { now.saturating_sub(oldest) / 1_000_000 };
        let waiting = self.shared.synced.load(SeqCst).saturating_sub(self.shared.drained.load(SeqCst));
        SpillFigures {
            bytes: waiting,
            disk: self.shared.bytes.load(SeqCst),
            age: u64::try_from(age).unwrap_or(u64::MAX),
        }
    }

    /// Why it is not drained, if something has to be done about it.
    pub fn held(&self) -> Option<String> {
        let why = || self.shared.why.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.shared.held.load(SeqCst).then(why)
    }

    fn hold(&self, why: Option<String>) {
        self.shared.held.store(why.is_some(), SeqCst);
        *self.shared.why.lock().unwrap_or_else(PoisonError::into_inner) = why.unwrap_or_default();
    }
}

impl Shared {
    fn look(&self, spill: &Spill) {
        self.bytes.store(spill.usage(), SeqCst);
        self.oldest.store(spill.oldest(), SeqCst);
        self.synced.store(spill.synced(), SeqCst);
        let oldest = spill.oldest_time().ok().flatten().and_then(|time| u64::try_from(time).ok());
        self.oldest_time.store(oldest.unwrap_or(0), SeqCst);
    }
}

/// Carries out orders until nobody can give any.
fn keep(mut spill: Spill, orders: &mpsc::Receiver<Order>, shared: &Shared) {
    while let Ok(first) = orders.recv() {
        let mut appended = Vec::new();
        let mut next = Some(first);
        while let Some(order) = next {
            match order {
                Order::Append { meta, bytes, done } => match spill.append(&meta, &bytes) {
                    Ok(_) => appended.push(done),
                    Err(refused) => {
                        // A sender that has gone is not to be told.
                        let _ = done.send(Err(refused.into()));
                    }
                },
                Order::Read { from, done } => {
                    let _ = done.send(spill.reader(from));
                }
                Order::Trim { upto } => {
                    if let Err(error) = spill.trim(upto) {
                        tracing::warn!(error = error.fact(), "the spill could not be trimmed");
                    }
                }
            }
            next = orders.try_recv().ok();
        }
        if !appended.is_empty() {
            let synced = spill.sync();
            for done in appended {
                let _ = done.send(match &synced {
                    Ok(_) => Ok(()),
                    Err(error) => Err(Error::new(error.code(), error.fact())),
                });
            }
        }
        shared.look(&spill);
    }
    if let Err(error) = spill.close() {
        tracing::warn!(error = error.fact(), "the spill was not closed in order");
    }
}

/// Drains until it is dropped.
pub(crate) async fn drain(log: SpillLog, feeder: Feeder) {
    loop {
        while log.is_empty() || feeder.metrics.is_down() {
            tokio::time::sleep(LOOK).await;
        }
        match drain_once(&log, &feeder).await {
            Ok(()) => log.hold(None),
            Err(error) => {
                feeder.metrics.note_error(&error);
                tracing::warn!(error = error.fact(), "the spill is not drained");
                log.hold(Some(error.fact().to_owned()));
                tokio::time::sleep(LOOK * 10).await;
            }
        }
    }
}

/// What waits for its outcome.
type Pending = VecDeque<(u64, oneshot::Receiver<crate::ack::Outcome>)>;

/// Drains what there is, once for each class of tables.
async fn drain_once(log: &SpillLog, feeder: &Feeder) -> Result<()> {
    let mut position = log.shared.drained.load(SeqCst).max(log.shared.oldest.load(SeqCst));
    let mut reader = log.reader(position).await?;
    // One claim for logged tables and one for unlogged ones: their offsets are in different tables.
    let mut claims: [Option<Arc<Origin>>; 2] = [None, None];
    let mut pending = Pending::new();
    let mut keyed = Keyed::default();
    let not_stored = || Error::new(Code::Spill, "what was spilled could not be stored; it is tried again");
    loop {
        let seen = log.shared.synced.load(SeqCst);
        let (entry, rest) = read_on_a_thread(reader).await?;
        reader = rest;
        let Some(entry) = entry else {
            if !settle(log, &mut pending, 0).await {
                return Err(not_stored());
            }
            keyed.pass(feeder).await;
            // What lies between entries is no entry: the heads of segments.
            log.shared.drained.fetch_max(seen, SeqCst);
            if log.is_empty() {
                return Ok(());
            }
            continue;
        };
        let meta: Meta = serde_json::from_slice(&entry.meta).map_err(|e| {
            Error::new(Code::Spill, format!("an entry at {} is not one of ours: {e}", entry.position))
        })?;
        let source = feeder.metrics.source(&meta.input).ok_or_else(|| {
            Error::new(
                Code::Spill,
                format!(
                    "the spill has rows of input {:?}, which the configuration does not have",
                    meta.input
                ),
            )
        })?;
        let unlogged = source.into.unlogged;
        let claim = match &claims[usize::from(unlogged)] {
            Some(claim) if claim.is_stale() => {
                settle(log, &mut pending, 0).await;
                return Err(not_stored());
            }
            Some(claim) => Arc::clone(claim),
            None => {
                let name =
                    PartitionName { source: format!("spill:{}", log.shared.id), partition: "0".to_owned() };
                let first = i64::try_from(position).unwrap_or(i64::MAX);
                let replay = Replay { feeder: feeder.clone(), source: Arc::clone(&source), name, first };
                let claimed =
                    replay.claim().await.ok_or_else(|| Error::new(Code::Interrupted, "stopping"))?;
                claims[usize::from(unlogged)] = Some(Arc::clone(&claimed.origin));
                claimed.origin
            }
        };
        let next = entry.next;
        match &meta.key {
            None => {
                // Its rows move the offset of the log: not over entries that are under way.
                if keyed.any() && !settle(log, &mut pending, 0).await {
                    return Err(not_stored());
                }
                keyed.pass(feeder).await;
                pending.push_back((next, feed(feeder, &source, &claim, &meta, entry, true).await));
            }
            Some((key, head)) => {
                // What the server has of a body is known when what came before of it is settled.
                if !keyed.is_new(&source.name, key) || keyed.under_way.len() >= KEYS {
                    if !settle(log, &mut pending, 0).await {
                        return Err(not_stored());
                    }
                    keyed.under_way.clear();
                }
                let known = {
                    let control = feeder.registry.control().await?;
                    let client = &control.connected.client;
                    let known = control.ledger.request(client, &source.name, key, unlogged).await;
                    known.map_err(inrush_sink::failure::server_error)?
                };
                let name = PartitionName { source: source.name.clone(), partition: key.clone() };
                let origin =
                    Arc::new(Origin::request(name, head.clone(), known.as_ref(), feeder.lanes, unlogged));
                pending.push_back((next, feed(feeder, &source, &origin, &meta, entry, false).await));
                keyed.under_way.insert((source.name.clone(), key.clone()));
                keyed.behind = Some((source, claim, next));
            }
        }
        position = next;
        if !settle(log, &mut pending, DRAINING).await {
            // What comes behind it is void, or will be read again.
            while settle_one(&mut pending).await {}
            return Err(not_stored());
        }
    }
}

/// Entries with keys. Each is stored once under its key, in whatever order; that they move the offset of the log saves
/// only reading them again.
#[derive(Default)]
struct Keyed {
    /// Input and key of those that may not be settled yet.
    under_way: HashSet<(String, String)>,
    /// The last one, as long as the offset has not moved behind it.
    behind: Option<(Arc<crate::part::Source>, Arc<Origin>, u64)>,
}

impl Keyed {
    fn any(&self) -> bool {
        self.behind.is_some()
    }

    fn is_new(&self, input: &str, key: &str) -> bool {
        !self.under_way.contains(&(input.to_owned(), key.to_owned()))
    }

    /// All are settled: the offset moves behind them.
    async fn pass(&mut self, feeder: &Feeder) {
        self.under_way.clear();
        if let Some((source, claim, next)) = self.behind.take() {
            moved(feeder, &source, &claim, next).await;
        }
    }
}

/// Reading blocks.
async fn read_on_a_thread(mut reader: Reader) -> Result<(Option<Entry>, Reader)> {
    let read = tokio::task::spawn_blocking(move || reader.next().map(|entry| (entry, reader))).await;
    read.unwrap_or_else(|e| Err(Error::new(Code::Internal, format!("reading the spill broke: {e}"))))
}

/// Hands an entry on. With `whole`, all of it has the position of the entry in the log; otherwise each byte has its own
/// in the body it came from.
async fn feed(
    feeder: &Feeder,
    source: &Arc<crate::part::Source>,
    origin: &Arc<Origin>,
    meta: &Meta,
    entry: Entry,
    whole: bool,
) -> oneshot::Receiver<crate::ack::Outcome> {
    let signed = |position: u64| i64::try_from(position).unwrap_or(i64::MAX);
    let length = entry.bytes.len();
    let (positions, next) = if whole {
        let end = u32::try_from(length).unwrap_or(u32::MAX);
        (Positions::Marks(vec![(end, signed(entry.position))]), signed(entry.next))
    } else {
        (Positions::Bytes(meta.start), meta.start + signed(length as u64))
    };
    let memory = feeder.memory.take(length).await;
    let (share, told) = crate::ack::Share::new();
    let piece = Piece {
        table: meta.table.clone(),
        reading: meta.reading.reading(),
        bytes: entry.bytes.into(),
        first_line: meta.first_line,
        positions,
        next,
        memory,
    };
    feeder.feed(source, origin, piece, share);
    told
}

/// Moves the log's offset behind an entry that was stored under its key.
async fn moved(feeder: &Feeder, source: &Arc<crate::part::Source>, claim: &Arc<Origin>, next: u64) {
    let (share, told) = crate::ack::Share::new();
    let memory = feeder.memory.take(0).await;
    let next = i64::try_from(next).unwrap_or(i64::MAX);
    let piece = Piece {
        table: None,
        reading: Reading::Ndjson,
        bytes: bytes::Bytes::new(),
        first_line: 1,
        positions: Positions::Bytes(next),
        next,
        memory,
    };
    feeder.feed(source, claim, piece, share);
    outcome(told).await;
}

/// Waits for one outcome, whatever it is. `false` if there is none.
async fn settle_one(pending: &mut Pending) -> bool {
    match pending.pop_front() {
        Some((_, told)) => {
            outcome(told).await;
            true
        }
        None => false,
    }
}

/// Waits until at most so many outcomes are pending; gives back the space of what is stored. `false` if something was
/// not.
async fn settle(log: &SpillLog, pending: &mut Pending, most: usize) -> bool {
    while pending.len() > most {
        let Some((next, told)) = pending.pop_front() else { break };
        if outcome(told).await.failed.is_some() {
            return false;
        }
        log.shared.drained.fetch_max(next, SeqCst);
        // Whoever keeps the log has gone only when the process ends.
        let _ = log.orders.send(Order::Trim { upto: next });
    }
    true
}
