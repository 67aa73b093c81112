//! What is accepted while the server cannot take it: kept on disk, and drained in order when it can.
//!
//! A thread owns the log. Appends that wait together are synced together, and acknowledged after that. A task drains
//! ([`drain()`]): bodies go under their keys, and the log's offset moves when they are stored: whichever part of them the
//! server has, it has once.

mod drain;

pub(crate) use drain::drain;

use crate::config::SpillConfig;
use crate::metrics::SpillFigures;
use crate::part::Reading;
use inrush_core::{Code, CsvDialect, Eol, Error, Result};
use inrush_decode::line::Precision;
use inrush_spill::{Options, Reader, Spill};
use serde::{Deserialize, Serialize};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::sync::oneshot;

/// How often an empty log, or a server that is away, is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// How long nothing is asked of a log that is drained before its last segment is given back, too.
const IDLE: Duration = Duration::from_secs(1);

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
        let oldest = spill.oldest_time();
        if let Ok(None) = oldest {
            // There is no entry, but perhaps the head of a segment: that is nothing to drain.
            self.drained.fetch_max(spill.synced(), SeqCst);
        }
        self.synced.store(spill.synced(), SeqCst);
        let oldest = oldest.ok().flatten().and_then(|time| u64::try_from(time).ok());
        self.oldest_time.store(oldest.unwrap_or(0), SeqCst);
    }
}

/// Carries out orders until nobody can give any.
fn keep(mut spill: Spill, orders: &mpsc::Receiver<Order>, shared: &Shared) {
    let mut renewed = false;
    loop {
        let first = match orders.recv_timeout(if renewed { Duration::MAX } else { IDLE }) {
            Ok(first) => first,
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                // What is drained is not to be found again by whoever opens the log after a crash.
                if let Err(error) = spill.renew() {
                    tracing::warn!(error = error.fact(), "the spill could not be trimmed");
                }
                shared.look(&spill);
                renewed = true;
                continue;
            }
        };
        renewed = false;
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
