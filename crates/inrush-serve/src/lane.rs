//! A lane: one connection, and the task that feeds it.
//!
//! A lane gathers what it is given into units and sees each through to its commit: again after a deadlock or a lost
//! connection, and carefully (see `lane/careful.rs`) when the server refuses rows. It never gives up on a server that is
//! away; what it holds is bounded by the memory that parts take.

mod attempt;
mod careful;
mod nodes;

use crate::ack::Share;
use crate::config::{Batch as BatchLimits, SyncCommit};
use crate::gate::Waiting;
use crate::metrics::Metrics;
use crate::origin::Kind;
use crate::part::LaneWork;
use crate::pressure::Memory;
use crate::session::Session;
use crate::target::Registry;
use attempt::{Committed, Failed};
pub(crate) use careful::RowText;
use inrush_cluster::NodeMap;
use inrush_core::{Code, Error, Result};
use inrush_profile::Stage;
use inrush_sink::connect::{Backend, Patience};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, server_error};
pub(crate) use nodes::LaneNodes;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};
use tokio::sync::mpsc;

/// How often a lane that waits for more looks whether more can come.
const LOOK: Duration = Duration::from_millis(10);

/// How long the offsets of a lane without rows may stay behind.
const HEARTBEAT: Duration = Duration::from_secs(1);

/// First and longest pause before a server is asked again.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));

/// How long the server process of a lost connection is waited for.
const GONE: Patience = Patience { grace: Duration::from_secs(2), limit: Duration::from_secs(10) };

/// All lanes, as splitters see them.
#[derive(Clone)]
pub(crate) struct Lanes {
    senders: Arc<Vec<mpsc::UnboundedSender<LaneWork>>>,
    aborted: Arc<AtomicBool>,
}

impl Lanes {
    pub fn new(senders: Vec<mpsc::UnboundedSender<LaneWork>>, aborted: Arc<AtomicBool>) -> Lanes {
        Lanes { senders: Arc::new(senders), aborted }
    }

    /// Gives a lane its work. An origin may have more lanes than there are now: they take turns.
    pub fn give(&self, work: LaneWork) {
        let lane = work.lane % self.senders.len();
        // A lane that has gone fails the share as it drops it.
        let _ = self.senders[lane].send(work);
    }

    /// Whether nothing is to be waited for any more.
    pub fn is_aborted(&self) -> bool {
        self.aborted.load(Relaxed)
    }
}

/// What all lanes must know.
#[derive(Clone)]
pub(crate) struct LaneSettings {
    pub conninfo: ConnInfo,
    pub ledger: String,
    pub sync_commit: Option<SyncCommit>,
    pub extension: bool,
    /// Other ways to nodes.
    pub nodes: NodeMap,
    pub batch: BatchLimits,
    pub reject_limit: u64,
    pub memory: Memory,
    /// How long rows that can be sent again wait for a server that is away.
    pub patience: Duration,
    /// Whether answers may have to wait for a standby.
    pub standby: bool,
}

/// One lane.
pub(crate) struct Lane {
    pub number: usize,
    pub settings: LaneSettings,
    pub registry: Arc<Registry>,
    pub metrics: Arc<Metrics>,
    pub gate: mpsc::UnboundedSender<Waiting>,
    pub works: mpsc::UnboundedReceiver<LaneWork>,
    /// Work that could not go with an earlier unit: see [`Attempts`].
    pub held: VecDeque<LaneWork>,
    pub aborted: Arc<AtomicBool>,
    /// What the sampler knows of this lane.
    pub gauge: Arc<inrush_profile::Lane>,
    pub session: Option<Session>,
    /// What it knows of nodes, once rows have gone there.
    pub nodes: Option<LaneNodes>,
    /// The server process of the session that was lost last.
    pub lost: Option<Backend>,
}

/// The transaction of a unit, as far as it is known.
#[derive(Default)]
pub(super) struct Sent {
    /// Its number, and the life of the server that gave it.
    xid: Option<(String, String)>,
    /// What COMMIT makes true, once it was sent.
    commit: Option<Committed>,
}

impl Sent {
    /// Takes works out of a unit, and what would be said of them. Gives those, and the others.
    fn take_out(
        &mut self,
        works: Vec<LaneWork>,
        out: impl Fn(&LaneWork) -> bool,
    ) -> (Vec<LaneWork>, Vec<LaneWork>) {
        if let Some(committed) = &mut self.commit {
            committed.keep(&works.iter().map(|work| !out(work)).collect::<Vec<_>>());
        }
        works.into_iter().partition(out)
    }
}

/// The requests with keys that a unit has rows of. Two attempts of one must not be in one unit: their rows would be
/// stored together, and the ledger, which tells them apart, would be asked once.
#[derive(Default)]
struct Attempts(HashMap<(String, String), usize>);

impl Attempts {
    /// Whether a work may go with the others of the unit.
    fn suit(&mut self, work: &LaneWork) -> bool {
        let origin = &work.body.origin;
        if !matches!(origin.kind, Kind::Request { .. }) {
            return true;
        }
        let key = (origin.name.source.clone(), origin.name.partition.clone());
        let this = Arc::as_ptr(origin).addr();
        *self.0.entry(key).or_insert(this) == this
    }
}

impl Lane {
    /// Works until all splitters have gone and everything is committed, or the process gives up.
    pub async fn run(mut self) {
        self.metrics.lanes.fetch_add(1, Relaxed);
        self.metrics.lanes_down.fetch_add(1, Relaxed);
        // A lane that has nothing to do is ready all the same, or says that the server is away.
        let _ = self.connect().await;
        let mut idle: Vec<LaneWork> = Vec::new();
        let mut idle_since = Instant::now();
        loop {
            let since = if idle.is_empty() { Duration::ZERO } else { idle_since.elapsed() };
            let left = HEARTBEAT.saturating_sub(since);
            let next = async {
                match self.held.pop_front() {
                    Some(held) => Some(held),
                    None => self.works.recv().await,
                }
            };
            let first = match tokio::time::timeout(left, next).await {
                Ok(work) => work,
                Err(_) if idle.is_empty() => {
                    // A lane that has nothing to do comes back as soon as the server does.
                    if let Err(error) = self.connect().await {
                        self.metrics.note_error(&error);
                    }
                    continue;
                }
                Err(_) => {
                    self.unit(std::mem::take(&mut idle)).await;
                    continue;
                }
            };
            let Some(first) = first else { break };
            if first.is_empty() {
                if idle.is_empty() {
                    idle_since = Instant::now();
                }
                idle.push(first);
                continue;
            }
            let mut unit = std::mem::take(&mut idle);
            self.gather(&mut unit, first).await;
            self.gauge.enter(Stage::Send);
            self.unit(unit).await;
            self.gauge.enter(Stage::Input);
        }
        if !idle.is_empty() {
            self.unit(idle).await;
        }
        self.end_nodes().await;
    }

    /// Takes more work until the unit is full, or nothing more is there and it is large enough or has waited long enough.
    /// What comes while a unit is under way makes the next one larger: the busier the server, the larger the units.
    async fn gather(&mut self, unit: &mut Vec<LaneWork>, first: LaneWork) {
        let BatchLimits { rows: most_rows, bytes: most_bytes, enough, linger } = self.settings.batch;
        let deadline = tokio::time::Instant::now() + linger.0;
        let mut attempts = Attempts::default();
        let (mut rows, mut bytes) = (0, 0);
        // What is held back again comes before what was held back behind it.
        let mut before = std::mem::take(&mut self.held);
        let mut next = Some(first);
        while let Some(work) = next {
            if attempts.suit(&work) {
                let (more_rows, more_bytes) = work.load();
                (rows, bytes) = (rows + more_rows, bytes + more_bytes);
                unit.push(work);
            } else {
                self.held.push_back(work);
            }
            if rows >= most_rows || bytes >= most_bytes.0 {
                break;
            }
            next = match before.pop_front().or_else(|| self.works.try_recv().ok()) {
                None if bytes < enough.0 && self.held.is_empty() => self.more(deadline).await,
                there => there,
            };
        }
        self.held.append(&mut before);
    }

    /// Waits for more work. None comes where what has come fills the memory: that is looked at now and then.
    async fn more(&mut self, deadline: tokio::time::Instant) -> Option<LaneWork> {
        while !self.settings.memory.is_full() {
            let look = deadline.min(tokio::time::Instant::now() + LOOK);
            match tokio::time::timeout_at(look, self.works.recv()).await {
                Err(_) if look < deadline => {}
                received => return received.ok().flatten(),
            }
        }
        None
    }

    /// Sees a unit through.
    async fn unit(&mut self, mut works: Vec<LaneWork>) {
        let mut careful = careful::Care::No;
        let mut pause = BACKOFF.0;
        let mut sent = Sent::default();
        let began = Instant::now();
        loop {
            works = drop_stale(works, &mut sent);
            if works.is_empty() {
                if let Err(failure) = self.resolve_nodes().await {
                    self.metrics.note_error(failure.error());
                }
                return;
            }
            if self.aborted.load(Relaxed) {
                let stopped =
                    Error::new(Code::Interrupted, "the process stops, and the server does not answer");
                fail(works, &stopped);
                return;
            }
            if let Err(error) = self.connect().await {
                self.metrics.note_error(&error);
                if began.elapsed() > self.settings.patience {
                    works = hand_back(works, &mut sent, &error);
                }
                self.sleep(&mut pause).await;
                continue;
            }
            if sent.commit.is_some() {
                // Its answer was lost with the connection. Nodes are told by what the ledger has of the unit, whatever became
                // of those that wanted it.
                let committed = match self.resolve_nodes().await {
                    Ok(true) => Ok(Some(true)),
                    Ok(false) => self.has_committed(&works, &sent).await,
                    Err(failure) => Err(failure),
                };
                match committed {
                    Ok(Some(true)) => {
                        if let Some(committed) = sent.commit.take() {
                            self.settle(works, committed, began).await;
                        }
                        return;
                    }
                    Ok(Some(false)) => sent = Sent::default(),
                    // Some are void: what is left goes again.
                    Ok(None) => {
                        sent = Sent::default();
                        continue;
                    }
                    Err(failure) => {
                        self.lose(failure.error());
                        self.sleep(&mut pause).await;
                        continue;
                    }
                }
            }
            let Failed { failure, work } = match self.attempt(&works, careful, &mut sent).await {
                Ok(committed) => {
                    if careful != careful::Care::No && committed.refused.is_empty() {
                        self.forget_layouts(&works);
                    }
                    self.settle(works, committed, began).await;
                    return;
                }
                Err(failed) => failed,
            };
            self.metrics.retries.fetch_add(1, Relaxed);
            self.metrics.note_error(failure.error());
            tracing::debug!(lane = self.number, error = %failure.error(), "a unit failed");
            if !matches!(failure, Failure::Lost(_)) {
                sent.commit = None;
                self.roll_back().await;
            }
            if sent.commit.is_none() {
                self.roll_back_nodes().await;
            }
            match failure {
                Failure::Lost(error) => {
                    self.lose(&error);
                    self.sleep(&mut pause).await;
                }
                Failure::Retry(_) => self.sleep(&mut pause).await,
                Failure::Row(refusal) => match careful.more() {
                    Some(more) => careful = more,
                    None => works = self.give_up(works, work, &refusal.error),
                },
                Failure::Fatal(error) => {
                    let class = error.sqlstate_text().and_then(|state| state.get(..2)).unwrap_or("");
                    match class {
                        // No room, too many connections; an administrator is at work: that passes.
                        "53" | "55" | "57" | "58" => self.sleep(&mut pause).await,
                        // Read-only: it is not the primary any more.
                        "25" => {
                            self.lose(&error);
                            self.sleep(&mut pause).await;
                        }
                        _ => works = self.give_up(works, work, &error),
                    }
                }
            }
        }
    }

    /// Nothing was wrong with the rows of a unit that was refused: servers may want their frames otherwise by now.
    fn forget_layouts(&self, works: &[LaneWork]) {
        let batches = works.iter().flat_map(|work| &work.batches);
        for batch in batches.filter(|batch| batch.wire == WireFormat::Direct) {
            self.registry.forget(&batch.target, batch.leaf.relid);
        }
    }

    /// Fails what cannot be stored: the works that go where `work` goes, or all. The tables are looked at again.
    fn give_up(&mut self, works: Vec<LaneWork>, work: Option<usize>, error: &Error) -> Vec<LaneWork> {
        let Some(culprit) = work.and_then(|at| works.get(at)) else {
            tracing::error!(lane = self.number, %error, "a unit was given up");
            fail(works, error);
            return Vec::new();
        };
        let tables: Vec<u32> = culprit.batches.iter().map(|batch| batch.target.root.relid).collect();
        for batch in &culprit.batches {
            self.registry.forget(&batch.target, batch.leaf.relid);
            if let Some(session) = &mut self.session {
                session.forget(&batch.leaf);
            }
        }
        tracing::error!(lane = self.number, %error, "rows could not be stored");
        let goes =
            |work: &LaneWork| work.batches.iter().any(|batch| tables.contains(&batch.target.root.relid));
        let (gone, rest) = works.into_iter().partition(goes);
        fail(gone, error);
        rest
    }

    /// Tells everybody that waits for these rows, once they are as safe as they are going to be.
    async fn settle(&mut self, works: Vec<LaneWork>, committed: Committed, began: Instant) {
        let metrics = &self.metrics;
        metrics.units.fetch_add(1, Relaxed);
        metrics.unit.add(began.elapsed(), 1);
        let mut answers: Vec<(Share, u64)> = Vec::new();
        let mut unlogged = true;
        for (at, (work, stored)) in works.into_iter().zip(committed.rows).enumerate() {
            metrics.rows.fetch_add(stored, Relaxed);
            metrics.visible.add(work.body.received.elapsed().unwrap_or_default(), stored);
            work.body.source.counters.rows.fetch_add(stored, Relaxed);
            unlogged &= work.body.origin.unlogged;
            let refused = committed.refused.iter().filter(|(of, ..)| *of == at);
            let count = refused.clone().count() as u64;
            if count > 0 {
                work.body.source.counters.reject(count, self.settings.reject_limit);
            }
            if let Some(share) = work.share {
                refused.for_each(|(.., reject)| share.refuse(reject));
                answers.push((share, stored));
            }
        }
        // Rows of unlogged tables do not get any safer.
        let asynchronous = self.session.as_ref().is_some_and(|session| session.asynchronous);
        if (asynchronous || self.settings.standby) && !unlogged && !answers.is_empty() {
            match self.inserted().await {
                Ok((server_start, lsn)) => {
                    // The gate ends after all lanes.
                    let _ = self.gate.send(Waiting { lsn, asynchronous, server_start, answers });
                    return;
                }
                Err(error) => {
                    let error = server_error(error);
                    answers.into_iter().for_each(|(share, _)| share.fail(&error));
                    self.lose(&error);
                    return;
                }
            }
        }
        for (share, rows) in answers {
            share.settle(rows);
        }
    }

    async fn inserted(&self) -> Result<(String, u64), tokio_postgres::Error> {
        let Some(session) = &self.session else { return Ok((String::new(), u64::MAX)) };
        let row = session.connected.client.query_one(crate::gate::INSERTED, &[]).await?;
        Ok((row.get(0), crate::gate::lsn(row.get(1))))
    }

    /// Makes sure that there is a connection.
    async fn connect(&mut self) -> Result<()> {
        if self.session.as_ref().is_some_and(|session| !session.connected.client.is_closed()) {
            return Ok(());
        }
        if let Some(old) = self.session.take() {
            self.gauge.ended();
            self.lost = Some(old.backend);
            self.metrics.lanes_down.fetch_add(1, Relaxed);
        }
        let LaneSettings { conninfo, ledger, sync_commit, extension, .. } = &self.settings;
        let session = Session::open(conninfo, ledger, *sync_commit, *extension).await?;
        if let Some(old) = &self.lost {
            old.wait_until_gone(&session.connected.client, GONE).await?;
            self.metrics.reconnects.fetch_add(1, Relaxed);
        }
        self.lost = None;
        self.gauge.connected(session.backend.pid);
        self.session = Some(session);
        self.metrics.lanes_down.fetch_sub(1, Relaxed);
        Ok(())
    }

    /// The connection is of no use any more.
    fn lose(&mut self, error: &Error) {
        tracing::warn!(lane = self.number, error = error.fact(), "a connection was lost");
        self.metrics.note_error(error);
        if let Some(session) = self.session.take() {
            self.gauge.ended();
            self.lost = Some(session.backend);
            self.metrics.lanes_down.fetch_add(1, Relaxed);
        }
    }

    async fn roll_back(&mut self) {
        if let Some(session) = &self.session
            && let Err(failure) = session.execute("ROLLBACK").await
        {
            self.lose(failure.error());
        }
    }

    async fn sleep(&self, pause: &mut Duration) {
        tokio::time::sleep(*pause).await;
        *pause = (*pause * 2).min(BACKOFF.1);
    }

    /// Whether a unit whose COMMIT was not answered has been committed. `None`: an offset is neither where the unit began
    /// nor where it ends; the origins are void then.
    async fn has_committed(&self, works: &[LaneWork], sent: &Sent) -> Result<Option<bool>, Failure> {
        let Some(session) = &self.session else { return Ok(Some(false)) };
        let client = &session.connected.client;
        if let Some((xid, life)) = &sent.xid {
            let status = "SELECT CASE WHEN pg_catalog.pg_postmaster_start_time()::text = $2
                                      THEN pg_catalog.pg_xact_status($1::text::xid8) END";
            let row = client.query_one(status, &[xid, life]).await.map_err(|e| session.failure(&e))?;
            // Another life may have given the number to another transaction.
            if let Some(status) = row.get::<_, Option<&str>>(0) {
                return Ok(Some(status == "committed"));
            }
        }
        // All of the unit is one transaction: one offset speaks for it.
        for work in works {
            let Some((from, to)) = work.span else { continue };
            let origin = &work.body.origin;
            // A restart empties unlogged tables, rows and offsets alike.
            let lane = i32::try_from(work.lane).unwrap_or(i32::MAX);
            let next = match &origin.kind {
                Kind::Untraced => continue,
                Kind::Partition { epoch } => {
                    let found = session.ledger.offset(client, &origin.name, lane, origin.unlogged).await;
                    match found.map_err(|e| session.failure(&e))? {
                        Some((found, next)) if found == *epoch => Some(next),
                        _ => None,
                    }
                }
                Kind::Request { .. } => {
                    let name = &origin.name;
                    let found =
                        session.ledger.request(client, &name.source, &name.partition, origin.unlogged).await;
                    let state = found.map_err(|e| session.failure(&e))?.unwrap_or_default();
                    let next = state.next.iter().find(|(l, _)| usize::try_from(*l) == Ok(work.lane));
                    Some(next.map_or(0, |(_, next)| *next))
                }
            };
            return Ok(match next {
                // Several works of one origin move the offset together.
                Some(next) if next >= to => Some(true),
                Some(next) if next == from => Some(false),
                _ => {
                    origin.spoil();
                    None
                }
            });
        }
        Ok(Some(false))
    }
}

/// Takes out what an origin does not stand behind any more.
fn drop_stale(works: Vec<LaneWork>, sent: &mut Sent) -> Vec<LaneWork> {
    let (stale, rest) = sent.take_out(works, |work| work.body.origin.is_stale());
    if !stale.is_empty() {
        fail(stale, &Error::new(Code::Fenced, "another reader or attempt has taken over"));
    }
    rest
}

/// Gives back what its sender can send again, or keep on disk: the key tells what the server has of it.
fn hand_back(works: Vec<LaneWork>, sent: &mut Sent, error: &Error) -> Vec<LaneWork> {
    let again = |work: &LaneWork| matches!(work.body.origin.kind, Kind::Request { .. });
    let (gone, rest) = sent.take_out(works, again);
    if !gone.is_empty() {
        fail(gone, &Error::new(Code::ConnectionLost, error.fact()));
    }
    rest
}

/// What these wanted is not stored. What comes after it from the same origin must not be either.
fn fail(works: Vec<LaneWork>, error: &Error) {
    for work in works {
        if work.span.is_some() {
            work.body.origin.spoil();
        }
        if let Some(share) = work.share {
            share.fail(error);
        }
    }
}
