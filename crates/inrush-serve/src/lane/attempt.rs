//! One attempt to commit a unit.

use super::careful::Care;
use super::nodes::{LaneNodes, first_for_nodes, no_session};
use super::{Lane, Sent};
use crate::origin::Kind;
use crate::part::{Batch, LaneWork};
use crate::session::Session;
use bytes::Bytes;
use inrush_cluster::LOCK_TIMEOUT;
use inrush_core::{Code, Error, Reject};
use inrush_encode::copy_binary;
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::{CopyStream, WireFormat};
use inrush_sink::failure::{Failure, of_commit};
use inrush_sink::ledger::stream::{DeadLetter, Move, Progress, RequestMove};
use std::collections::BTreeMap;
use std::sync::atomic::Ordering::Relaxed;
use tokio_postgres::Client;

/// What an attempt has stored.
pub(super) struct Committed {
    /// Rows, for each work.
    pub rows: Vec<u64>,
    /// Rows that the server refused: the work, its batch, and why.
    pub refused: Vec<(usize, usize, Reject)>,
}

impl Committed {
    /// Forgets the works that are not kept: what is said of the others goes by their numbers.
    pub fn keep(&mut self, kept: &[bool]) {
        let is_kept = |at: usize| kept.get(at).copied().unwrap_or_default();
        let before = |at: usize| kept.iter().take(at).filter(|kept| **kept).count();
        self.refused.retain(|(at, ..)| is_kept(*at));
        self.refused.iter_mut().for_each(|(at, ..)| *at = before(*at));
        let mut number = 0;
        self.rows.retain(|_| {
            number += 1;
            is_kept(number - 1)
        });
    }

    /// All rows of these.
    pub fn all(works: &[LaneWork]) -> Committed {
        Committed { rows: works.iter().map(LaneWork::rows).collect(), refused: Vec::new() }
    }
}

/// Why an attempt failed, and with which work, where one is known.
pub(super) struct Failed {
    pub failure: Failure,
    pub work: Option<usize>,
}

impl From<Failure> for Failed {
    fn from(failure: Failure) -> Failed {
        Failed { failure, work: None }
    }
}

impl Lane {
    /// Begins a transaction, stores everything in it and commits it.
    pub(super) async fn attempt(
        &mut self,
        works: &[LaneWork],
        care: Care,
        sent: &mut Sent,
    ) -> Result<Committed, Failed> {
        let of_nodes = |failure| Failed { failure, work: first_for_nodes(works) };
        self.begin_nodes(works).await.map_err(of_nodes)?;
        let session = self.session.as_mut().ok_or_else(no_session)?;
        let at_nodes = self.nodes.as_ref().is_some_and(LaneNodes::is_at_work);
        begin(session, works, sent, at_nodes).await?;
        let (offsets, requests) = moves(works);
        for unlogged in [false, true] {
            let client = &session.connected.client;
            let requests: Vec<RequestMove> = of_class(&requests, unlogged);
            if !session.stream.move_requests(client, &requests, unlogged).await? {
                return Err(self.void(works).await);
            }
        }
        let mut committed = Committed::all(works);
        let mut refused_now: Vec<(bool, DeadLetter)> = Vec::new();
        match care {
            Care::No => {
                for group in groups(works) {
                    let first = *group.first().ok_or_else(no_session)?;
                    let stored = self.store_group(works, &group).await;
                    stored.map_err(|failure| Failed { failure, work: Some(first.0) })?;
                }
            }
            Care::Rows { immediate } => {
                for (at, work) in works.iter().enumerate() {
                    for (number, batch) in work.batches.iter().enumerate() {
                        let refused = self.copy_carefully(work, batch, immediate).await;
                        let refused = refused.map_err(|failure| Failed { failure, work: Some(at) })?;
                        committed.rows[at] -= refused.len() as u64;
                        for letter in refused {
                            committed.refused.push((at, number, letter.reject.clone()));
                            refused_now.push((work.body.origin.unlogged, letter));
                        }
                    }
                }
            }
        }
        self.prepare_nodes().await.map_err(of_nodes)?;
        let session = self.session.as_ref().ok_or_else(no_session)?;
        if !session.types_hold(works.iter().flat_map(|work| &work.batches)).await? {
            for (at, work) in works.iter().enumerate() {
                if !session.types_hold(work.batches.iter()).await? {
                    let fact = "a table has columns of other types than when the rows were encoded";
                    // As for a lost connection: whoever has the rows sends them again, and they are encoded anew.
                    let failure = Failure::Fatal(Error::new(Code::ConnectionLost, fact));
                    return Err(Failed { failure, work: Some(at) });
                }
            }
        }
        let client = &session.connected.client;
        for unlogged in [false, true] {
            let offsets: Vec<Move> = of_class(&offsets, unlogged);
            if !session.stream.move_offsets(client, &offsets, unlogged).await? {
                return Err(self.void(works).await);
            }
            session.stream.progress(client, &progress(works, &committed, unlogged), unlogged).await?;
            let of_works = works.iter().filter(|work| work.body.origin.unlogged == unlogged);
            let now = refused_now.iter().filter(|(class, _)| *class == unlogged).map(|(_, letter)| letter);
            let letters: Vec<&DeadLetter> = of_works.flat_map(|work| &work.letters).chain(now).collect();
            session.stream.dead_letters(client, &letters, unlogged).await?;
        }
        sent.commit = Some(committed);
        let answered = session.connected.client.batch_execute("COMMIT").await;
        answered.map_err(|e| match session.connected.ended() {
            Some(ended) if e.is_closed() => of_commit(ended),
            _ => of_commit(&e),
        })?;
        let bytes: usize = works.iter().map(LaneWork::bytes).sum();
        self.metrics.bytes_sent.fetch_add(bytes as u64, Relaxed);
        self.tell_nodes().await;
        Ok(sent.commit.take().ok_or_else(no_session)?)
    }

    /// Stores the batches of a group where they belong.
    async fn store_group(&mut self, works: &[LaneWork], group: &[(usize, usize)]) -> Result<(), Failure> {
        let batches: Vec<&Batch> = group.iter().map(|(at, number)| &works[*at].batches[*number]).collect();
        if self.scatter_group(&batches).await? {
            return Ok(());
        }
        match &mut self.session {
            Some(session) => copy_group(session, &batches).await,
            None => Err(no_session()),
        }
    }

    /// Offsets are not where the unit begins: finds out whose, and has those origins begin again.
    async fn void(&self, works: &[LaneWork]) -> Failed {
        let retry = || {
            let fact = "an offset is not where this unit begins";
            Failed::from(Failure::Retry(Error::new(Code::Fenced, fact)))
        };
        let Some(session) = &self.session else { return retry() };
        if session.execute("ROLLBACK").await.is_err() {
            let fact = "the connection was lost";
            return Failure::Lost(Error::new(Code::ConnectionLost, fact)).into();
        }
        let mut seen: Vec<(usize, usize)> = Vec::new();
        for work in works {
            let origin = &work.body.origin;
            let key = (std::sync::Arc::as_ptr(origin).addr(), work.lane);
            let Some((from, _)) = work.span else { continue };
            if seen.contains(&key) {
                continue;
            }
            seen.push(key);
            match is_at(session, work, from).await {
                Ok(true) => {}
                Ok(false) => origin.spoil(),
                Err(failure) => return failure.into(),
            }
        }
        retry()
    }
}

/// Whether the ledger has the offset of a work where the work begins.
async fn is_at(session: &Session, work: &LaneWork, from: i64) -> Result<bool, Failure> {
    let origin = &work.body.origin;
    let client: &Client = &session.connected.client;
    let lane = i32::try_from(work.lane).unwrap_or(i32::MAX);
    match &origin.kind {
        Kind::Untraced => Ok(true),
        Kind::Partition { epoch } => {
            let found = session.ledger.offset(client, &origin.name, lane, origin.unlogged).await;
            Ok(found.map_err(|e| session.failure(&e))? == Some((*epoch, from)))
        }
        Kind::Request { .. } => {
            let name = &origin.name;
            let found = session.ledger.request(client, &name.source, &name.partition, origin.unlogged).await;
            let state = found.map_err(|e| session.failure(&e))?.unwrap_or_default();
            let next = state.next.iter().find(|(l, _)| usize::try_from(*l) == Ok(work.lane));
            Ok(next.map_or(0, |(_, next)| *next) == from)
        }
    }
}

fn of_class<T: Clone>(all: &[(bool, T)], unlogged: bool) -> Vec<T> {
    all.iter().filter(|(class, _)| *class == unlogged).map(|(_, one)| one.clone()).collect()
}

async fn begin(
    session: &Session,
    works: &[LaneWork],
    sent: &mut Sent,
    at_nodes: bool,
) -> Result<(), Failure> {
    let client = &session.connected.client;
    // An earlier attempt's says nothing of this one.
    sent.xid = None;
    if at_nodes {
        // Whoever waits for the guard must not have this session wait behind him, and nodes take their time.
        let begin = format!(
            "BEGIN; SET LOCAL lock_timeout = '{LOCK_TIMEOUT}'; SET LOCAL idle_in_transaction_session_timeout = 0"
        );
        session.execute(&begin).await?;
    }
    // Where no offset tells, the transaction's number does, should the answer to COMMIT get lost.
    if works.iter().all(|work| work.span.is_some()) {
        return if at_nodes { Ok(()) } else { session.execute("BEGIN").await };
    }
    let number = "SELECT pg_catalog.pg_current_xact_id()::text, pg_catalog.pg_postmaster_start_time()::text";
    let begin = if at_nodes { "" } else { "BEGIN" };
    let (begun, row) = tokio::join!(client.batch_execute(begin), client.query_one(number, &[]));
    begun.map_err(|e| session.failure(&e))?;
    let row = row.map_err(|e| session.failure(&e))?;
    sent.xid = Some((row.get(0), row.get(1)));
    Ok(())
}

/// The offsets and requests that a unit moves, each once, in the order of their keys.
#[allow(clippy::type_complexity)]
fn moves(works: &[LaneWork]) -> (Vec<(bool, Move)>, Vec<(bool, RequestMove)>) {
    let mut offsets: BTreeMap<(bool, &str, &str, usize), Move> = BTreeMap::new();
    let mut requests: BTreeMap<(bool, &str, &str, usize), RequestMove> = BTreeMap::new();
    for work in works {
        let Some((from, to)) = work.span else { continue };
        let origin = &work.body.origin;
        let name = &origin.name;
        let key = (origin.unlogged, name.source.as_str(), name.partition.as_str(), work.lane);
        let lane = i32::try_from(work.lane).unwrap_or(i32::MAX);
        match &origin.kind {
            Kind::Untraced => {}
            Kind::Partition { epoch } => {
                // Works of one origin come in order, each from where the last one ended.
                let new = || Move { name: name.clone(), lane, epoch: *epoch, from, to };
                offsets.entry(key).or_insert_with(new).to = to;
            }
            Kind::Request { head } => {
                let new = || RequestMove {
                    source: name.source.clone(),
                    key: name.partition.clone(),
                    lane,
                    lanes: i32::try_from(origin.lanes()).unwrap_or(i32::MAX),
                    head: head.clone(),
                    from,
                    to,
                };
                requests.entry(key).or_insert_with(new).to = to;
            }
        }
    }
    let offsets = offsets.into_iter().map(|((class, ..), one)| (class, one)).collect();
    (offsets, requests.into_iter().map(|((class, ..), one)| (class, one)).collect())
}

/// How far the rows reach, by table, source and lane.
fn progress(works: &[LaneWork], committed: &Committed, unlogged: bool) -> Vec<Progress> {
    let mut all: BTreeMap<(u32, &str, usize), Progress> = BTreeMap::new();
    for (at, work) in works.iter().enumerate() {
        for (number, batch) in work.batches.iter().enumerate() {
            let Some(up_to) = batch.up_to else { continue };
            let refused = committed.refused.iter().filter(|(of, batch, _)| (*of, *batch) == (at, number));
            let rows = batch.rows - refused.count() as u64;
            if batch.leaf.unlogged != unlogged || rows == 0 {
                continue;
            }
            let source = work.body.source.name.as_str();
            let key = (batch.target.root.relid, source, work.lane);
            let entry = all.entry(key).or_insert_with(|| Progress {
                relid: key.0,
                source: source.to_owned(),
                lane: i32::try_from(work.lane).unwrap_or(i32::MAX),
                up_to,
                rows: 0,
            });
            entry.up_to = entry.up_to.max(up_to);
            entry.rows += i64::try_from(rows).unwrap_or(i64::MAX);
        }
    }
    all.into_values().collect()
}

/// Leaf, shape, format, whether the rows go to nodes, layout of frames.
type GroupKey = (u32, u64, u8, bool, u64);

/// Batches that go in one COPY: (work, batch).
fn groups(works: &[LaneWork]) -> Vec<Vec<(usize, usize)>> {
    let mut groups: BTreeMap<GroupKey, Vec<(usize, usize)>> = BTreeMap::new();
    for (at, work) in works.iter().enumerate() {
        for (number, batch) in work.batches.iter().enumerate() {
            // Frames for nodes are not those for a table here, and blocks have one layout.
            let to_nodes = batch.target.way.nodes().is_some();
            let layout = batch.blocks.as_ref().map_or(0, BlockWriter::fingerprint);
            let key = (batch.leaf.relid, batch.shape.id, batch.wire as u8, to_nodes, layout);
            groups.entry(key).or_default().push((at, number));
        }
    }
    groups.into_values().collect()
}

/// One COPY for the batches of a group, and one of text for the rows beside it.
async fn copy_group(session: &mut Session, batches: &[&Batch]) -> Result<(), Failure> {
    let Some(first) = batches.first() else { return Ok(()) };
    if batches.iter().any(|batch| !batch.messages.is_empty()) {
        let mut copy = session.start_copy(first, first.wire).await?;
        let sent = send(&mut copy, first.wire, batches).await;
        sent.map_err(|e| session.copy_failure(first, first.wire, &e))?;
        copy.finish().await.map_err(|e| session.copy_failure(first, first.wire, &e))?;
    }
    if batches.iter().any(|batch| !batch.side.is_empty()) {
        let mut copy = session.start_copy(first, WireFormat::Text).await?;
        for batch in batches {
            let sent = copy.send(batch.side.clone()).await;
            sent.map_err(|e| session.copy_failure(first, WireFormat::Text, &e))?;
        }
        copy.finish().await.map_err(|e| session.copy_failure(first, WireFormat::Text, &e))?;
    }
    Ok(())
}

/// Sends the main rows of some batches.
pub(super) async fn send(
    copy: &mut CopyStream,
    wire: WireFormat,
    batches: &[&Batch],
) -> Result<(), tokio_postgres::Error> {
    if wire == WireFormat::Binary {
        copy.send(Bytes::from_static(copy_binary::HEADER)).await?;
    }
    for message in batches.iter().flat_map(|batch| &batch.messages) {
        match wire {
            WireFormat::Direct => copy.send_whole(message.clone()).await?,
            WireFormat::Text | WireFormat::Binary => copy.send(message.clone()).await?,
        }
    }
    if wire == WireFormat::Binary {
        copy.send(Bytes::from_static(copy_binary::TRAILER)).await?;
    }
    Ok(())
}
