//! A lane whose rows go straight to the nodes that they belong on.
//!
//! The lane encodes as always. Then each row is looked at once more, for its key, and goes into the buffer of its place;
//! a buffer of a megabyte is one COPY there. Sessions of nodes work on their own meanwhile: while one stores, the lane
//! encodes for another.
//!
//! A unit ends in five steps; inrush-cluster says why it holds. 1. Every node prepares what it has. 2. The guard is
//! prepared. 3. The ledger commits: this decides. 4. Every node is told. 5. The guard ends.

mod careful;
mod choose;
mod ending;
mod extension;
mod fill;
mod frames;
mod router;
mod session;
mod settle;

pub(crate) use choose::choose;
use ending::Doubt;
pub(crate) use frames::KeyedFrames;
pub(crate) use settle::{audit, misplaced, settle};

use crate::job::Job;
use crate::plan::{Plan, WirePath};
use crate::progress::Stop;
use crate::unit::{Mends, Unit};
use fill::{Fill, Pool};
use inrush_cluster::{Found, Gid, Guard, Node, NodeMap, Place, Topology, application};
use inrush_core::{Code, Error, Result};
use inrush_encode::frames::{BlockWriter, append_frame};
use inrush_sink::catalog::direct::LOAD_LIBRARY;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::{Failure, RowFailure};
use inrush_sink::ledger::Ledger;
use router::{Router, Spot, binary_row};
use session::{Send, Session, Stand};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio::runtime::Runtime;
use tokio::sync::mpsc::Sender;
use tokio::task::JoinHandle;

/// Bytes gathered for a place before they are sent, at least and at most: smaller COPYs cost a node more than they carry,
/// and in larger ones rows are nearer to each other in its indexes.
const BUFFER: std::ops::RangeInclusive<usize> = 1 << 20..=4 << 20;

/// Bytes that a lane gathers for all places together, as long as each has its least.
const BUFFERS: usize = 64 << 20;

/// How a unit ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Prepared on every node, then decided, then committed: on all or on none.
    TwoPhase,
    /// Nodes prepare nothing (max_prepared_transactions is 0). Decided, then each node commits its rows with a mark in its
    /// own ledger; a node without the mark is sent its rows again. Exactly once, but whoever reads meanwhile may see some
    /// nodes' rows of a unit and not others'.
    Marks,
}

/// Of a plan, what rows that are sent to nodes need.
pub(crate) struct SpreadPlan {
    pub topology: Arc<Topology>,
    /// Settings that decide what text means, for sessions on nodes.
    pub settings: Vec<(String, String)>,
    /// A column that the role may fill, to lock the table by.
    pub column: String,
    /// By shape, the columns that the coordinator fills.
    pub fills: Vec<Arc<Vec<Fill>>>,
    pub map: NodeMap,
    /// Whether text is in the database as it is sent.
    pub utf8: bool,
    pub ending: Ending,
}

/// A thread that drives the sessions of nodes of one lane.
struct NodesRun(Option<Runtime>);

impl NodesRun {
    fn start() -> Result<NodesRun> {
        let built = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let built = built.map_err(|e| {
            Error::new(Code::Internal, format!("cannot start what drives the sessions of nodes: {e}"))
        })?;
        Ok(NodesRun(Some(built)))
    }

    fn spawn<F>(&self, work: F) -> JoinHandle<F::Output>
    where
        F: Future<Output: std::marker::Send> + std::marker::Send + 'static,
    {
        match &self.0 {
            Some(runtime) => runtime.spawn(work),
            // Only while it is dropped.
            None => tokio::spawn(work),
        }
    }
}

impl Drop for NodesRun {
    fn drop(&mut self) {
        // A lane is driven by a runtime itself, in which nothing may wait for another to end.
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// Rows gathered for a place.
#[derive(Default)]
struct Gathered {
    main: Vec<u8>,
    text: Vec<u8>,
}

/// A session of a node: here, or at work.
enum Slot {
    Absent,
    Here(Box<Session>),
    Working(Working),
}

/// A session that sends one COPY after another, until nothing comes any more, or one fails.
struct Working {
    queue: Sender<Send>,
    work: JoinHandle<(Box<Session>, Result<u64, Failure>)>,
}

/// COPYs that wait for a node to be done with another: while one node stores, a lane need not wait before it encodes for
/// the next.
const WAITING: usize = 2;

/// The part of a lane that knows nodes.
pub(crate) struct Spread {
    plan: Arc<SpreadPlan>,
    /// As of the guard that is held.
    topology: Arc<Topology>,
    places: Vec<Arc<Place>>,
    origin: String,
    /// What sessions on nodes are called.
    application: String,
    guard: Option<Guard>,
    guard_prepared: bool,
    slots: Vec<Slot>,
    gathered: Vec<Gathered>,
    /// Bytes gathered for a place before they are sent.
    buffer: usize,
    /// By shape.
    routers: Vec<Router>,
    pools: Vec<Pool>,
    columns: Vec<Arc<Vec<String>>>,
    /// By shape, what makes blocks of frames, where rows go to the extension.
    blocks: Vec<BlockWriter>,
    /// The shape of what is gathered.
    shape: usize,
    lane: usize,
    units: u64,
    gid: Option<Gid>,
    /// The ledger has the unit: nothing of it may be rolled back any more.
    decided: bool,
    /// Nodes that rows are for; `None`: all.
    only: Option<Vec<bool>>,
    /// Units that every node has been told of, and that the ledger may forget.
    told: Vec<String>,
    /// Units that the ledger has forgotten, by the name of a node that still has a mark of them.
    marked: BTreeMap<String, Vec<String>>,
    /// Nodes that have the unit's rows.
    nodes: Vec<String>,
    doubts: Vec<Doubt>,
    /// Rows that nodes have stored, of the unit.
    pub stored: u64,
    /// Drives sessions of nodes, which go on while the lane encodes. Ends when they have.
    nodes_run: NodesRun,
}

impl Spread {
    /// For a lane, if rows of the load are sent to nodes.
    pub async fn of(job: &Job, lane: usize, client: &tokio_postgres::Client) -> Result<Option<Spread>> {
        let (Some(plan), Some((ledger, load))) = (&job.plan.spread, &job.ledger) else { return Ok(None) };
        let origin = ledger.origin(client).await?;
        let mut spread = Spread {
            nodes_run: NodesRun::start()?,
            plan: Arc::clone(plan),
            topology: Arc::clone(&plan.topology),
            places: Vec::new(),
            application: application(load.id, load.epoch, &origin),
            origin,
            guard: None,
            guard_prepared: false,
            slots: Vec::new(),
            gathered: Vec::new(),
            buffer: *BUFFER.start(),
            routers: Vec::new(),
            pools: job.plan.shapes.iter().map(|_| Pool::default()).collect(),
            columns: Vec::new(),
            blocks: job.plan.layouts.iter().map(|layout| BlockWriter::new(layout)).collect(),
            shape: 0,
            lane,
            units: 0,
            gid: None,
            decided: false,
            only: None,
            told: Vec::new(),
            marked: BTreeMap::new(),
            nodes: Vec::new(),
            doubts: Vec::new(),
            stored: 0,
        };
        for (shape, fills) in job.plan.shapes.iter().zip(&plan.fills) {
            let filled = fills.iter().map(|fill| fill.column.name.clone());
            spread
                .columns
                .push(Arc::new(shape.columns.iter().map(|c| c.name.clone()).chain(filled).collect()));
        }
        spread.adopt(&job.plan, Arc::clone(&plan.topology))?;
        Ok(Some(spread))
    }

    /// Goes by this topology from now on. Sessions of nodes that are still part of it stay.
    fn adopt(&mut self, plan: &Plan, topology: Arc<Topology>) -> Result<()> {
        let mut routers = Vec::new();
        for (shape, fills) in plan.shapes.iter().zip(&self.plan.fills) {
            routers.push(Router::new(plan, shape, fills, &topology, self.plan.utf8).map_err(|why| {
                Error::new(
                    Code::Table,
                    format!("{} has changed while it was loaded: {why}", plan.table.qualified()),
                )
                .hint("Give the same command again.")
            })?);
        }
        let mut old: Vec<(Node, Slot)> =
            self.topology.nodes.iter().cloned().zip(std::mem::take(&mut self.slots)).collect();
        for node in &topology.nodes {
            let kept = old.iter().position(|(known, _)| known == node);
            self.slots.push(kept.map_or(Slot::Absent, |at| old.swap_remove(at).1));
        }
        self.places = topology.places.iter().cloned().map(Arc::new).collect();
        self.gathered = topology.places.iter().map(|_| Gathered::default()).collect();
        self.buffer = (BUFFERS / topology.places.len().max(1)).clamp(*BUFFER.start(), *BUFFER.end());
        self.routers = routers;
        self.topology = topology;
        Ok(())
    }

    /// Takes the guard, and reads behind it where rows belong.
    pub async fn begin(&mut self, job: &Job, unit: &mut Unit) -> Result<(), Failure> {
        self.stored = 0;
        self.decided = false;
        self.clear_doubts(job).await?;
        let Some((_, load)) = &job.ledger else { return Ok(()) };
        if self.guard.is_none() {
            let kind = self.topology.kind;
            let guard =
                Guard::connect(&job.conninfo, &self.application, &job.plan.table, &self.plan.column, kind);
            self.guard = Some(guard.await.map_err(lost)?);
        }
        let Some(guard) = &mut self.guard else { return Ok(()) };
        let waits = |_: Duration| {
            job.tell("somebody moves or alters the table, or waits for it: the load goes on when he is done");
            job.progress.stopping() != Stop::Abort
        };
        let found = guard.take(&waits).await?;
        let topology = match found {
            Found::Direct(topology) => *topology,
            Found::Here => return Err(changed(job, "its rows are on this server now")),
            Found::Coordinator(why) => return Err(changed(job, &why)),
        };
        if *self.topology != topology {
            self.adopt(&job.plan, Arc::new(topology)).map_err(Failure::Fatal)?;
        }
        self.units += 1;
        self.gid = Some(Gid {
            origin: self.origin.clone(),
            load: load.id,
            epoch: load.epoch,
            unit: format!("{}.{}", self.lane, self.units),
        });
        self.only = None;
        if let Some(mends) = &mut unit.mends {
            self.lacking(job, mends).await?;
        }
        Ok(())
    }

    /// Sends rows only to the nodes that lack the unit, as they say now.
    async fn lacking(&mut self, job: &Job, mends: &mut Mends) -> Result<(), Failure> {
        let Some((ledger, _)) = &job.ledger else { return Ok(()) };
        let mut only = vec![false; self.slots.len()];
        for name in std::mem::take(&mut mends.nodes) {
            let Some(number) = self.topology.nodes.iter().position(|node| node.name == name) else {
                let fact = format!("node {name} lacks rows of a unit, and has no part of the table any more");
                return Err(Failure::Fatal(Error::new(Code::Table, fact).hint(
                    "Its rows belong elsewhere now, and which of them are there cannot be told. Load into a new table.",
                )));
            };
            let session = self.session(job, number).await?;
            let marked = ledger.is_marked(&session.node.connected.client, &mends.gid).await;
            self.slots[number] = Slot::Here(session);
            if !marked.map_err(lost)? {
                only[number] = true;
                mends.nodes.push(name);
            }
        }
        self.only = Some(only);
        Ok(())
    }

    /// Takes encoded rows into the buffers of their places, and sends those that are full. Both vectors are empty
    /// afterwards. An error about a row says nothing of which: it is found carefully.
    pub async fn take(
        &mut self,
        job: &Job,
        shape: usize,
        format: WireFormat,
        main: &mut Vec<u8>,
        text: &mut Vec<u8>,
    ) -> Result<(), Failure> {
        if shape != self.shape {
            self.finish(job).await?;
            self.shape = shape;
        }
        for (rows, format) in [(main, format), (text, WireFormat::Text)] {
            let mut at = 0;
            while at < rows.len() {
                let length = row_length(&rows[at..], format)?;
                let row = &rows[at..at + length];
                at += length;
                let (row, spot) = self.place(row, format).await?;
                match spot {
                    Spot::At(place) if self.is_passed_over(place) => {}
                    Spot::At(place) => {
                        if self.gather(place, format, &row) {
                            self.send(job, place, format).await?;
                        }
                    }
                    nowhere => return Err(Failure::Row(Box::new(self.refusal(job, nowhere)))),
                }
            }
            rows.clear();
        }
        Ok(())
    }

    /// Whether rows for this place are there already.
    fn is_passed_over(&self, place: usize) -> bool {
        self.only.as_ref().is_some_and(|only| !only[self.places[place].node])
    }

    /// Where a row belongs, and the row with what the coordinator fills.
    async fn place<'r>(
        &mut self,
        row: &'r [u8],
        format: WireFormat,
    ) -> Result<(std::borrow::Cow<'r, [u8]>, Spot), Failure> {
        let row = if self.plan.fills[self.shape].is_empty() {
            std::borrow::Cow::Borrowed(row)
        } else {
            std::borrow::Cow::Owned(self.filled(row, format).await?)
        };
        let router = &mut self.routers[self.shape];
        let mut spot = match format {
            WireFormat::Text => router.of_text(&self.topology, &row),
            WireFormat::Direct => router.of_keyed(&self.topology, &row),
            _ => router.of_binary(&self.topology, &row),
        };
        if spot == Spot::Unsure {
            spot = self.ask(&row, format).await?;
        }
        Ok((row, spot))
    }

    /// Appends a row to the buffer of its place. Whether that is full.
    fn gather(&mut self, place: usize, format: WireFormat, row: &[u8]) -> bool {
        let gathered = &mut self.gathered[place];
        let buffer = if format == WireFormat::Text { &mut gathered.text } else { &mut gathered.main };
        match format {
            WireFormat::Direct => append_frame(buffer, frames::frame(row)),
            WireFormat::Binary if buffer.is_empty() => {
                buffer.extend_from_slice(inrush_encode::copy_binary::HEADER);
                buffer.extend_from_slice(row);
            }
            _ => buffer.extend_from_slice(row),
        }
        buffer.len() >= self.buffer
    }

    /// Has the place's node store what is gathered, once it is done with what it has.
    async fn send(&mut self, job: &Job, place: usize, format: WireFormat) -> Result<(), Failure> {
        let gathered = &mut self.gathered[place];
        let buffer = if format == WireFormat::Text { &mut gathered.text } else { &mut gathered.main };
        if buffer.is_empty() {
            return Ok(());
        }
        let mut bytes = std::mem::take(buffer);
        buffer.reserve(self.buffer + self.buffer / 8);
        if format == WireFormat::Binary {
            bytes.extend_from_slice(inrush_encode::copy_binary::TRAILER);
        }
        job.progress.bytes_out.fetch_add(bytes.len() as u64, Relaxed);
        let send = Send {
            place: Arc::clone(&self.places[place]),
            columns: Arc::clone(&self.columns[self.shape]),
            format,
            blocks: self.blocks.get(self.shape).cloned(),
            bytes,
        };
        let node = self.places[place].node;
        if let Slot::Working(working) = &self.slots[node] {
            return match working.queue.send(send).await {
                Ok(()) => Ok(()),
                // It has ended, for a reason.
                Err(_) => {
                    self.rest(node).await?;
                    Err(Failure::Fatal(Error::new(
                        Code::Internal,
                        "a session of a node takes nothing any more",
                    )))
                }
            };
        }
        let mut session = self.session(job, node).await?;
        let (queue, mut sends) = tokio::sync::mpsc::channel(WAITING);
        let work = self.nodes_run.spawn(async move {
            let mut stored = 0;
            let mut next = Some(send);
            while let Some(send) = next {
                match session.copy(send).await {
                    Ok(rows) => stored += rows,
                    Err(failure) => return (session, Err(failure)),
                }
                next = sends.recv().await;
            }
            (session, Ok(stored))
        });
        self.slots[node] = Slot::Working(Working { queue, work });
        Ok(())
    }

    /// The session of a node, taken out of its slot: connected, and not at work any more.
    async fn session(&mut self, job: &Job, node: usize) -> Result<Box<Session>, Failure> {
        self.rest(node).await?;
        match std::mem::replace(&mut self.slots[node], Slot::Absent) {
            Slot::Here(session)
                if session.stand != Stand::Idle || !session.node.connected.client.is_closed() =>
            {
                Ok(session)
            }
            _ => Ok(Box::new(Session::new(self.connect(job, node).await?))),
        }
    }

    async fn connect(&self, job: &Job, node: usize) -> Result<inrush_cluster::NodeSession, Failure> {
        let node = self.topology.nodes[node].clone();
        let (conninfo, plan) = (job.conninfo.clone(), Arc::clone(&self.plan));
        let application = self.application.clone();
        let connecting = self
            .nodes_run
            .spawn(async move { node.connect(&conninfo, &plan.map, &application, &plan.settings).await });
        let connected = connecting.await.map_err(|_| panicked())?;
        let mut session = connected.map_err(lost)?;
        if let (Ending::Marks, Some((ledger, _))) = (self.plan.ending, &job.ledger) {
            let client = &mut session.connected.client;
            Ledger::open(client, ledger.schema(), true).await.map_err(lost)?;
            // What is prepared is flushed whatever the setting (twophase.c, EndPrepare), a plain commit is not.
            crate::session::commit_for_good(client).await.map_err(lost)?;
        }
        if job.plan.path == WirePath::Direct {
            let loaded = session.connected.client.batch_execute(LOAD_LIBRARY).await;
            loaded.map_err(|error| session.connected.failure(&error))?;
        }
        Ok(session)
    }

    /// Waits until a session is done with what it was given.
    async fn rest(&mut self, node: usize) -> Result<(), Failure> {
        match std::mem::replace(&mut self.slots[node], Slot::Absent) {
            Slot::Working(Working { queue, work }) => {
                drop(queue);
                let (session, stored) = work.await.map_err(|_| panicked())?;
                self.slots[node] = Slot::Here(session);
                self.stored += stored?;
            }
            other => self.slots[node] = other,
        }
        Ok(())
    }

    /// Sends what is gathered and waits until all is stored.
    pub async fn finish(&mut self, job: &Job) -> Result<(), Failure> {
        for format in [job.plan.wire_of(self.shape), WireFormat::Text] {
            // Always in the same order: units that want the same keys then wait one behind the other.
            for place in 0..self.places.len() {
                self.send(job, place, format).await?;
            }
        }
        for node in 0..self.slots.len() {
            self.rest(node).await?;
        }
        Ok(())
    }

    /// What the server would say of a row that belongs nowhere.
    fn refusal(&self, job: &Job, spot: Spot) -> RowFailure {
        let table = job.plan.table.qualified();
        let (sqlstate, reason) = match spot {
            Spot::Null => ("22004", format!("the distribution column of {table} cannot be NULL")),
            Spot::Nowhere => ("23514", format!("no partition or shard of {table} takes rows of this key")),
            _ => ("22P02", "the key cannot be read".to_owned()),
        };
        self.refused(sqlstate, reason)
    }

    fn refused(&self, sqlstate: &str, reason: String) -> RowFailure {
        RowFailure {
            error: Error::new(Code::Server, reason.clone()).sqlstate(sqlstate),
            sqlstate: sqlstate.to_owned(),
            reason,
            line: None,
            line_exact: false,
            column: self.topology.keys.first().cloned(),
            constraint: None,
        }
    }

    /// Asks the coordinator what the key of a row means, and so where it belongs.
    async fn ask(&mut self, row: &[u8], format: WireFormat) -> Result<Spot, Failure> {
        // In COPY binary a key that has no hash is none of its type: the node says why.
        if format != WireFormat::Text {
            return Ok(Spot::At(0));
        }
        let Some(guard) = &mut self.guard else { return Ok(Spot::Nowhere) };
        let router = &self.routers[self.shape];
        let mut values = Vec::new();
        for (text, cast) in router.key_texts(row) {
            values.push(match text {
                None => None,
                Some(text) => match guard.value(cast, &text).await? {
                    Ok(value) => value,
                    Err((sqlstate, reason)) => {
                        return Err(Failure::Row(Box::new(self.refused(&sqlstate, reason))));
                    }
                },
            });
        }
        Ok(match router.of_values(&self.topology, &values) {
            Spot::Unsure => Spot::Nowhere,
            spot => spot,
        })
    }

    /// A row with the values behind it that the coordinator fills.
    async fn filled(&mut self, row: &[u8], format: WireFormat) -> Result<Vec<u8>, Failure> {
        let fills = Arc::clone(&self.plan.fills[self.shape]);
        let pool = &mut self.pools[self.shape];
        if pool.is_empty()
            && let Some(guard) = &mut self.guard
        {
            pool.fill(guard.defaults(&Pool::sql(&fills), Pool::ROWS, fills.len()).await?);
        }
        let Some((binary, text)) = pool.take() else {
            return Err(Failure::Fatal(Error::new(Code::Internal, "the coordinator gave no defaults")));
        };
        let mut full = Vec::with_capacity(row.len() + binary.len().max(text.len()));
        if format == WireFormat::Text {
            full.extend_from_slice(row.strip_suffix(b"\n").unwrap_or(row));
            full.extend_from_slice(&text);
            full.push(b'\n');
        } else {
            let count = row.first_chunk().map_or(0, |count| u16::from_be_bytes(*count));
            // A table has at most 1600 columns.
            #[allow(clippy::cast_possible_truncation)]
            full.extend_from_slice(&(count + fills.len() as u16).to_be_bytes());
            full.extend_from_slice(&row[2..]);
            full.extend_from_slice(&binary);
        }
        Ok(full)
    }
}

/// Bytes of the first row.
fn row_length(rows: &[u8], format: WireFormat) -> Result<usize, Failure> {
    let length = match format {
        // No line end stands inside a row: it is escaped.
        WireFormat::Text => memchr::memchr(b'\n', rows).map(|at| at + 1),
        WireFormat::Direct => frames::keyed_length(rows),
        _ => binary_row(rows),
    };
    length.ok_or_else(|| Failure::Fatal(Error::new(Code::Internal, "an encoded row has no end")))
}

fn panicked() -> Failure {
    Failure::Fatal(Error::new(Code::Internal, "a session of a node panicked"))
}

/// A session that cannot be had is tried for again, as a lost one.
fn lost(error: Error) -> Failure {
    if error.code() == Code::Connect || error.code() == Code::ConnectionLost {
        Failure::Lost(error)
    } else {
        Failure::Fatal(error)
    }
}

fn changed(job: &Job, why: &str) -> Failure {
    let table = job.plan.table.qualified();
    let fact = format!("{table} is not spread as it was when the load began: {why}");
    Failure::Fatal(
        Error::new(Code::Table, fact).hint("Give the same command again: what was committed is skipped."),
    )
}
