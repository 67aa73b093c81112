//! Draining: entries are stored under their keys, many at once, and the offset of the log follows what is settled.
//!
//! The log is a partition in the ledger. Its offset moves, in a transaction of its own, behind entries that are settled,
//! and only behind those; the log is trimmed up to where the offset is. Between an entry's rows and the offset the key
//! tells that the entry is stored; once the offset is behind it nobody asks for the key, which may be forgotten.

use super::{LOOK, Meta, Order, SpillLog};
use crate::ack::{Outcome, Share};
use crate::inputs::borders::last_border;
use crate::inputs::{Feeder, PART, Piece, outcome};
use crate::origin::Origin;
use crate::part::{Positions, Reading, Source};
use crate::session::Session;
use inrush_core::{Code, Error, Position, Reject, RejectOrigin, Result};
use inrush_sink::failure::{Failure, server_error};
use inrush_sink::ledger::stream::{Claim, DeadLetter, Move, PartitionName, RequestState, Wanted};
use inrush_spill::{Entry, Reader};
use std::collections::{HashSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, SeqCst};
use std::time::{Duration, Instant};
use tokio::sync::oneshot;
use tokio::sync::oneshot::error::TryRecvError;

/// Entries that are drained at once at most; their bytes are bounded by the memory for rows.
const DRAINING: usize = 1024;

/// How long the offset may stay behind entries that are settled.
const BEHIND: Duration = Duration::from_millis(500);

/// Drains until it is dropped.
pub(crate) async fn drain(log: SpillLog, feeder: Feeder) {
    loop {
        while log.is_empty() || feeder.metrics.is_down() {
            tokio::time::sleep(LOOK).await;
        }
        let drained = match Drain::begin(&log, &feeder).await {
            Ok(mut drain) => drain.run().await,
            Err(error) => {
                note(&log, &feeder, &error);
                Err(error)
            }
        };
        if drained.is_err() {
            tokio::time::sleep(LOOK * 10).await;
        }
    }
}

fn note(log: &SpillLog, feeder: &Feeder, error: &Error) {
    feeder.metrics.note_error(error);
    tracing::warn!(error = error.fact(), hint = error.hint_text(), "the spill is not drained");
    log.hold(Some(error.fact().to_owned()));
}

/// An entry that is under way.
struct UnderWay {
    source: Arc<Source>,
    key: String,
    position: u64,
    /// Position behind it.
    next: u64,
}

/// One claim of the log.
struct Drain<'d> {
    log: &'d SpillLog,
    feeder: &'d Feeder,
    session: Session,
    name: PartitionName,
    claim: Claim,
    /// In the order of the log.
    pending: VecDeque<(UnderWay, oneshot::Receiver<Outcome>)>,
    /// Their inputs and keys.
    keys: HashSet<(String, String)>,
    /// Everything before it is stored or refused.
    settled: u64,
    /// When the offset was moved.
    moved: Instant,
}

impl<'d> Drain<'d> {
    /// Claims the log.
    async fn begin(log: &'d SpillLog, feeder: &'d Feeder) -> Result<Drain<'d>> {
        let settings = &feeder.registry.settings;
        let mut session = Session::open(&settings.conninfo, &settings.ledger, None, false).await?;
        let client = &mut session.connected.client;
        if session.asynchronous {
            // What the offset has passed is deleted here: it must not come back there.
            client.batch_execute("SET synchronous_commit = on").await.map_err(server_error)?;
        }
        let name = PartitionName { source: format!("spill:{}", log.shared.id), partition: "0".to_owned() };
        let oldest = log.shared.drained.load(SeqCst).max(log.shared.oldest.load(SeqCst));
        let process = format!("process {}", std::process::id());
        // One offset for all of it, wherever its rows go: it says how far the log is done with. Rows of unlogged tables
        // that a crash takes are lost, as their senders were told.
        let wanted =
            Wanted { name: &name, lanes: 1, first: signed(oldest), unlogged: false, process: &process };
        let claim = session.ledger.claim(client, &wanted).await?;
        let restart = u64::try_from(claim.restart()).unwrap_or_default();
        if restart < oldest && log.shared.drained.load(SeqCst) == log.shared.oldest.load(SeqCst) {
            tracing::warn!(
                restart,
                oldest,
                "the database has not seen all that was drained: does it come from a backup?"
            );
        }
        Ok(Drain {
            log,
            feeder,
            session,
            name,
            claim,
            pending: VecDeque::new(),
            keys: HashSet::new(),
            settled: restart.max(oldest),
            moved: Instant::now(),
        })
    }

    /// Drains what there is.
    async fn run(&mut self) -> Result<()> {
        let done = self.all().await;
        if let Err(error) = &done {
            note(self.log, self.feeder, error);
            // What is settled is not asked for again. The server may be away.
            let _ = self.pass().await;
        }
        // Whatever went wrong: what is still under way is not begun a second time beside it.
        while let Some((_, told)) = self.pending.pop_front() {
            outcome(told).await;
        }
        done
    }

    async fn all(&mut self) -> Result<()> {
        let mut reader = self.log.reader(self.settled).await?;
        // An earlier life may have drained it.
        self.give_back();
        loop {
            let seen = self.log.shared.synced.load(SeqCst);
            let (entry, rest) = read_on_a_thread(reader).await?;
            reader = rest;
            let Some(entry) = entry else {
                self.settle(0).await?;
                self.pass().await?;
                self.log.hold(None);
                // What lies between entries is no entry: the heads of segments.
                self.log.shared.drained.fetch_max(seen, SeqCst);
                if self.log.is_empty() {
                    return Ok(());
                }
                continue;
            };
            self.entry(entry).await?;
            self.settle(DRAINING).await?;
        }
    }

    /// Hands an entry on.
    async fn entry(&mut self, entry: Entry) -> Result<()> {
        let meta = Meta::of(&entry)?;
        let source = self.source(&meta)?;
        let unlogged = source.into.unlogged;
        let (key, head) = match meta.key.clone() {
            Some(key) => key,
            // Of a version that kept them without one.
            None => (format!("~{}@{}", self.log.shared.id, entry.position), Vec::new()),
        };
        // What the server has of a body is known when what came before of it is settled.
        let of = (source.name.clone(), key.clone());
        while self.keys.contains(&of) {
            self.settle(self.pending.len() - 1).await?;
        }
        let client = &self.session.connected.client;
        let known = self.session.ledger.request(client, &source.name, &key, unlogged).await;
        let mut known = known.map_err(server_error)?;
        if known.is_none() && meta.key.is_none() {
            known = self.known_by_offset(&entry, &meta);
        }
        let name = PartitionName { source: source.name.clone(), partition: key.clone() };
        let origin = Arc::new(Origin::request(name, head, known.as_ref(), self.feeder.lanes, unlogged));
        let (position, next) = (entry.position, entry.next);
        let told = feed(self.feeder, &source, &origin, &meta, entry).await;
        self.pending.push_back((UnderWay { source, key, position, next }, told));
        self.keys.insert(of);
        Ok(())
    }

    fn source(&self, meta: &Meta) -> Result<Arc<Source>> {
        self.feeder.metrics.source(&meta.input).ok_or_else(|| {
            let input = &meta.input;
            Error::new(
                Code::Spill,
                format!("the spill has rows of input {input:?}, which the configuration does not have"),
            )
        })
    }

    /// Which lanes have an entry without a key: the version that kept it moved an offset for each.
    fn known_by_offset(&self, entry: &Entry, meta: &Meta) -> Option<RequestState> {
        let end = meta.start + signed(entry.bytes.len() as u64);
        let lanes = (0u32..).zip(&self.claim.next);
        let next: Vec<(u32, i64)> =
            lanes.filter(|(_, next)| **next >= signed(entry.next)).map(|(lane, _)| (lane, end)).collect();
        let all = u32::try_from(self.claim.next.len()).unwrap_or(u32::MAX);
        (!next.is_empty()).then(|| RequestState { lanes: all, head: Vec::new(), next })
    }

    /// Takes the outcomes that are there, and waits for others until at most so many are under way.
    async fn settle(&mut self, most: usize) -> Result<()> {
        while let Some((entry, mut told)) = self.pending.pop_front() {
            let outcome = match told.try_recv() {
                Ok(outcome) => outcome,
                Err(TryRecvError::Empty) if self.pending.len() < most => {
                    self.pending.push_front((entry, told));
                    break;
                }
                Err(_) => outcome(told).await,
            };
            self.keys.remove(&(entry.source.name.clone(), entry.key.clone()));
            match outcome.failed {
                None => self.settled = entry.next,
                Some(error) if is_for_good(&error) => self.bury(&entry, &error).await?,
                Some(error) => {
                    let what = format!("rows of {} at {} are not stored", entry.source.name, entry.position);
                    return Err(error.about(&what));
                }
            }
            if self.moved.elapsed() >= BEHIND {
                self.pass().await?;
                self.log.hold(None);
            }
        }
        Ok(())
    }

    /// Keeps the bytes of an entry that no table takes as dead letters, in the transaction that moves the offset behind
    /// it: as with a server that is there, where its sender would have been told.
    async fn bury(&mut self, entry: &UnderWay, error: &Error) -> Result<()> {
        // Its bytes were not kept in memory.
        let reader = self.log.reader(entry.position).await?;
        let (Some(kept), _) = read_on_a_thread(reader).await? else {
            return Err(Error::new(Code::Internal, "an entry of the spill is not where it was"));
        };
        let meta = Meta::of(&kept)?;
        let name = PartitionName { source: entry.source.name.clone(), partition: entry.key.clone() };
        let letters = letters(&name, &meta, &kept.bytes, error);
        let client = &self.session.connected.client;
        client.batch_execute("BEGIN").await.map_err(server_error)?;
        if let Err(error) = self.move_with(entry.next, &letters, entry.source.into.unlogged).await {
            // So that the connection can be used for what is settled; or it is lost.
            let _ = client.batch_execute("ROLLBACK").await;
            return Err(error);
        }
        client.batch_execute("COMMIT").await.map_err(server_error)?;
        self.passed(entry.next);
        let rows = lines(&kept.bytes);
        // They do not stop the input, as such bodies do not when the server is there.
        entry.source.counters.rejects.fetch_add(rows, Relaxed);
        tracing::warn!(
            input = entry.source.name,
            table = meta.table,
            position = entry.position,
            rows,
            reason = error.fact(),
            "what was spilled cannot be stored; it is kept as dead letters"
        );
        Ok(())
    }

    /// Moves the offset behind what is settled.
    async fn pass(&mut self) -> Result<()> {
        self.move_with(self.settled, &[], false).await?;
        self.passed(self.settled);
        Ok(())
    }

    /// Moves the offset, and keeps these letters.
    async fn move_with(&self, to: u64, letters: &[DeadLetter], unlogged: bool) -> Result<()> {
        let (to, epoch) = (signed(to), self.claim.epoch);
        let behind = (0i32..).zip(&self.claim.next).filter(|(_, from)| **from < to);
        let moves: Vec<Move> = behind
            .map(|(lane, from)| Move { name: self.name.clone(), lane, epoch, from: *from, to })
            .collect();
        let Session { connected, stream, .. } = &self.session;
        let moved = stream.move_offsets(&connected.client, &moves, false).await;
        if !moved.map_err(Failure::into_error)? {
            return Err(Error::new(Code::Fenced, "another process has claimed the spill"));
        }
        let letters: Vec<&DeadLetter> = letters.iter().collect();
        let kept = stream.dead_letters(&connected.client, &letters, unlogged).await;
        kept.map_err(Failure::into_error)
    }

    /// The offset is there.
    fn passed(&mut self, to: u64) {
        self.moved = Instant::now();
        self.settled = to;
        self.claim.next.iter_mut().for_each(|next| *next = signed(to).max(*next));
        self.give_back();
    }

    /// Gives back the space of what the offset has passed.
    fn give_back(&self) {
        self.log.shared.drained.fetch_max(self.settled, SeqCst);
        // Whoever keeps the log has gone only when the process ends.
        let _ = self.log.orders.send(Order::Trim { upto: self.settled });
    }
}

impl Meta {
    fn of(entry: &Entry) -> Result<Meta> {
        serde_json::from_slice(&entry.meta).map_err(|e| {
            Error::new(Code::Spill, format!("an entry at {} is not one of ours: {e}", entry.position))
        })
    }
}

/// Whether nothing that passes by itself will have a body stored: its table is missing, or does not take it.
fn is_for_good(error: &Error) -> bool {
    let for_good = matches!(error.code(), Code::Table | Code::Columns | Code::Clash | Code::Usage);
    // Class 25: the server is a standby.
    for_good && !error.sqlstate_text().is_some_and(|sqlstate| sqlstate.starts_with("25"))
}

/// Lines that are not empty.
fn lines(bytes: &[u8]) -> u64 {
    bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty()).count() as u64
}

/// All of an entry, in pieces of at most [`PART`] bytes that end with a record where there is an end.
fn letters(name: &PartitionName, meta: &Meta, bytes: &[u8], error: &Error) -> Vec<DeadLetter> {
    let reading = meta.reading.reading();
    let sqlstate = error.sqlstate_text().unwrap_or(match error.code() {
        Code::Table => "42P01",
        Code::Columns => "42703",
        Code::Clash => "42809",
        _ => "42602",
    });
    let mut reason = error.fact().to_owned();
    if let Reading::Csv { header, .. } = &reading {
        // It is not among the bytes.
        let names: String = header.join(",").chars().take(1000).collect();
        reason += &format!("; the header was {names}");
    }
    // The server takes no such character in text.
    let plain = |text: &str| text.replace('\0', "\u{fffd}");
    let (mut letters, mut at, mut line) = (Vec::new(), 0, meta.first_line);
    while at < bytes.len() {
        let rest = &bytes[at..];
        let end = match rest.len() {
            all @ ..=PART => all,
            _ => last_border(&reading, &rest[..PART]).unwrap_or(PART),
        };
        let raw = &rest[..end];
        letters.push(DeadLetter {
            from: name.clone(),
            position: meta.start + signed(at as u64),
            target: plain(meta.table.as_deref().unwrap_or_default()),
            reject: Reject {
                input: 0,
                position: Position {
                    source: name.source.clone(),
                    byte: Some(at as u64),
                    line: Some(line),
                    record: None,
                    column: None,
                },
                sqlstate: sqlstate.to_owned(),
                reason: plain(&reason),
                origin: RejectOrigin::Client,
                raw: raw.to_vec(),
                full_len: None,
            },
        });
        line += memchr::memchr_iter(b'\n', raw).count() as u64;
        at += end;
    }
    letters
}

/// A position as the ledger has it.
fn signed(position: u64) -> i64 {
    i64::try_from(position).unwrap_or(i64::MAX)
}

/// Reading blocks.
async fn read_on_a_thread(mut reader: Reader) -> Result<(Option<Entry>, Reader)> {
    let read = tokio::task::spawn_blocking(move || reader.next().map(|entry| (entry, reader))).await;
    read.unwrap_or_else(|e| Err(Error::new(Code::Internal, format!("reading the spill broke: {e}"))))
}

/// Hands the bytes of an entry on. Each has its position in the body it came from.
async fn feed(
    feeder: &Feeder,
    source: &Arc<Source>,
    origin: &Arc<Origin>,
    meta: &Meta,
    entry: Entry,
) -> oneshot::Receiver<Outcome> {
    let length = entry.bytes.len();
    let memory = feeder.memory.take(length).await;
    let (share, told) = Share::new();
    let piece = Piece {
        table: meta.table.clone(),
        reading: meta.reading.reading(),
        bytes: entry.bytes.into(),
        first_line: meta.first_line,
        positions: Positions::Bytes(meta.start),
        next: meta.start + signed(length as u64),
        memory,
    };
    feeder.feed(source, origin, piece, share);
    told
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spill::KeptReading;

    #[test]
    fn all_of_a_body_goes_into_letters() {
        let name = PartitionName { source: "http:in".to_owned(), partition: "k".to_owned() };
        let meta = Meta {
            input: "http:in".to_owned(),
            table: Some("a\0b".to_owned()),
            reading: KeptReading::Ndjson,
            first_line: 3,
            start: 100,
            key: None,
        };
        let error = Error::new(Code::Table, "no table \"a\0b\"");
        let mut body = "{\"id\":1}\n".repeat(200_000).into_bytes();
        // A record that is longer than a piece.
        body.extend(vec![b' '; 3 * PART]);
        let letters = letters(&name, &meta, &body, &error);
        let raw: Vec<u8> = letters.iter().flat_map(|letter| letter.reject.raw.clone()).collect();
        assert_eq!(raw, body);
        assert!(letters.iter().all(|letter| letter.reject.raw.len() <= PART));
        assert!(letters[0].reject.raw.ends_with(b"}\n"));
        let second = &letters[1];
        assert_eq!(second.position, 100 + letters[0].reject.raw.len() as i64);
        assert_eq!(second.reject.position.line, Some(3 + letters[0].reject.raw.len() as u64 / 9));
        assert_eq!((second.target.as_str(), second.reject.sqlstate.as_str()), ("a\u{fffd}b", "42P01"));
        assert!(!second.reject.reason.contains('\0'));
        assert_eq!(lines(&body), 200_000);
    }
}
