//! The part of a lane that sends rows straight to nodes.
//!
//! The ledger's commit decides here as everywhere: offsets move in the transaction that records the unit, once every node
//! has prepared its rows and the guard is prepared, too. What a dead process has left is ended by whoever settles next,
//! by that record; see [`inrush_cluster::Scatter`].

use super::{GONE, Lane, LaneSettings};
use crate::part::{Batch, LaneWork};
use crate::session::Session;
use crate::target::{Nodes, Way};
use inrush_cluster::{
    Begun, CarefulPart, Drive, Ending, NodeSession, Reach, Refused, RowShape, Scatter, Watch, Writer,
};
use inrush_core::{Code, Error};
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::WireFormat;
use inrush_sink::failure::Failure;
use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;
use tokio_postgres::Client;

/// Shapes that are kept at most: columns come from outside.
const SHAPES: usize = 512;

/// A node that has to be told of a unit is waited for until the process stops: its rows are safe, and what comes behind
/// them waits where it is.
const PATIENCE: Duration = Duration::from_secs(365 * 86_400);

/// OID of the table, shape of the rows, their format, and the layout of their frames.
type ShapeKey = (u32, u64, WireFormat, u64);

fn shape_key(batch: &Batch) -> ShapeKey {
    let layout = batch.blocks.as_ref().map_or(0, BlockWriter::fingerprint);
    (batch.target.root.relid, batch.shape.id, batch.wire, layout)
}

/// What a lane knows of nodes.
pub(crate) struct LaneNodes {
    scatter: Scatter,
    /// Tables by OID, with their number in the scatter; none where rows cannot go to nodes any more: until the table is
    /// looked at again, they go into it.
    tables: HashMap<u32, (Arc<Nodes>, Option<usize>)>,
    /// The number in the scatter; none where its rows cannot go to nodes.
    shapes: HashMap<ShapeKey, Option<usize>>,
    /// Whether the unit under way has rows for nodes.
    at_work: bool,
}

/// What a lane's nodes are told and asked of it.
struct Looks<'a> {
    aborted: &'a AtomicBool,
    /// Whether it has been said that somebody is waited for.
    said: AtomicBool,
}

impl Watch for Looks<'_> {
    fn waits(&self) {
        if !self.said.swap(true, Relaxed) {
            tracing::info!(
                "somebody moves or alters a table, or waits for it: its rows wait until he is done"
            );
        }
    }

    fn is_stopped(&self) -> bool {
        self.aborted.load(Relaxed)
    }

    // Bytes are counted with the unit.
    fn sent(&self, _bytes: u64) {}
}

fn looks(aborted: &AtomicBool) -> Looks<'_> {
    Looks { aborted, said: AtomicBool::new(false) }
}

/// The tables of a unit whose rows go to nodes, by OID: the same order for all. Of one that was looked at anew
/// meanwhile, what was found last.
fn tables_of(works: &[LaneWork]) -> BTreeMap<u32, Arc<Nodes>> {
    let mut tables: BTreeMap<u32, (u64, Arc<Nodes>)> = BTreeMap::new();
    for batch in works.iter().flat_map(|work| &work.batches) {
        let Way::Nodes(nodes) = &batch.target.way else { continue };
        let entry = tables.entry(batch.target.root.relid).or_insert_with(|| (0, Arc::clone(nodes)));
        if batch.target.version > entry.0 {
            *entry = (batch.target.version, Arc::clone(nodes));
        }
    }
    tables.into_iter().map(|(relid, (_, nodes))| (relid, nodes)).collect()
}

impl LaneNodes {
    /// Whether the unit under way has rows for nodes.
    pub(super) fn is_at_work(&self) -> bool {
        self.at_work
    }

    async fn new(settings: &LaneSettings, session: &Session, writer: Writer) -> Result<LaneNodes, Failure> {
        let client = &session.connected.client;
        let reach = Reach {
            coordinator: settings.conninfo.clone(),
            map: settings.nodes.clone(),
            ledger: session.ledger.clone(),
            ending: Ending::TwoPhase,
            settings: NodeSession::settings(client).await.map_err(Failure::of_error)?,
            direct: settings.extension,
            nudges: false,
            patience: PATIENCE,
            gone: GONE,
        };
        Ok(LaneNodes {
            scatter: Scatter::new(reach, writer, Drive::shared()),
            tables: HashMap::new(),
            shapes: HashMap::new(),
            at_work: false,
        })
    }

    /// Makes the tables of a unit known. Gives the numbers of those whose rows go to nodes.
    fn learn(&mut self, tables: &BTreeMap<u32, Arc<Nodes>>) -> Vec<usize> {
        let is_other = |(relid, nodes): (&u32, &Arc<Nodes>)| match self.tables.get(relid) {
            // One that was left out is tried again when it has been looked at.
            Some((known, None)) => !Arc::ptr_eq(known, nodes),
            Some((known, Some(_))) => known != nodes,
            None => false,
        };
        if self.shapes.len() > SHAPES || tables.iter().any(is_other) {
            self.scatter.forget_tables();
            self.tables.clear();
            self.shapes.clear();
        }
        let mut numbers = Vec::new();
        for (relid, nodes) in tables {
            let known = self.tables.entry(*relid);
            let (_, number) =
                known.or_insert_with(|| (Arc::clone(nodes), Some(self.scatter.add_table(&nodes.aim))));
            numbers.extend(*number);
        }
        numbers
    }

    /// Makes the shapes of a unit known, behind the guard: what the coordinator fills may have become another.
    async fn learn_shapes(&mut self, works: &[LaneWork]) -> Result<(), Failure> {
        let mut seen: Vec<ShapeKey> = Vec::new();
        for batch in works.iter().flat_map(|work| &work.batches) {
            let key = shape_key(batch);
            let Some((nodes, Some(table))) = self.tables.get(&key.0).filter(|_| !seen.contains(&key)) else {
                continue;
            };
            seen.push(key);
            let columns = &batch.shape.columns;
            let filled = self.scatter.ask_fills(*table, columns).await?;
            let must_be_text = nodes.text.is_some() && batch.wire != WireFormat::Text;
            if must_be_text || batch.wire == WireFormat::Direct && !filled.is_empty() {
                // Nodes would not take them for what they are; frames have no room for what is filled.
                self.shapes.insert(key, None);
                continue;
            }
            let learned = match self.shapes.get(&key).copied().flatten() {
                Some(shape) => self.scatter.fill(shape, filled).map(|()| shape),
                None => {
                    let (columns, fills) = (columns.clone(), Arc::new(filled));
                    let blocks = batch.blocks.clone();
                    let shape = RowShape { columns, fills, wire: batch.wire, blocks };
                    self.scatter.add_shape(*table, shape)
                }
            };
            if let Err(why) = &learned {
                let table = batch.target.table.qualified();
                tracing::debug!(table, why, "rows go through the coordinator");
            }
            self.shapes.insert(key, learned.ok());
        }
        Ok(())
    }

    /// Takes the guard. A table whose rows cannot go to nodes any more is left out from now on; gives those.
    async fn begin(
        &mut self,
        looks: &Looks<'_>,
        client: &Client,
        tables: &BTreeMap<u32, Arc<Nodes>>,
    ) -> Result<Vec<u32>, Failure> {
        let mut left_out = Vec::new();
        loop {
            let numbers = self.learn(tables);
            if numbers.is_empty() {
                return Ok(left_out);
            }
            self.at_work = true;
            match self.scatter.begin(looks, &numbers, None).await.map_err(|f| here(client, f))? {
                Begun::Ready => {
                    let mut other = None;
                    for number in numbers {
                        if !self.scatter.is_same(number).await? {
                            other = Some((number, "there is another table of its name now".to_owned()));
                        }
                    }
                    let Some((number, why)) = other else { return Ok(left_out) };
                    self.leave_out(number, &why, &mut left_out).await;
                }
                Begun::Otherwise(number, why) => self.leave_out(number, &why, &mut left_out).await,
            }
        }
    }

    /// Lets go of the guard, and leaves a table out from now on.
    async fn leave_out(&mut self, number: usize, why: &str, left_out: &mut Vec<u32>) {
        self.scatter.roll_back().await;
        self.at_work = false;
        for (relid, (nodes, known)) in &mut self.tables {
            if *known == Some(number) {
                let table = nodes.aim.table.qualified();
                tracing::info!(table, why, "rows cannot go straight to nodes any more");
                *known = None;
                left_out.push(*relid);
            }
        }
    }

    /// The shape of a batch, if its rows go to nodes.
    fn shape(&self, batch: &Batch) -> Option<usize> {
        let relid = batch.target.root.relid;
        batch.target.way.nodes()?;
        self.tables.get(&relid)?.1?;
        *self.shapes.get(&shape_key(batch))?
    }
}

impl Lane {
    /// Takes the guard for the tables of a unit whose rows go to nodes, if there are any.
    pub(super) async fn begin_nodes(&mut self, works: &[LaneWork]) -> Result<(), Failure> {
        self.resolve_nodes().await?;
        let tables = tables_of(works);
        if tables.is_empty() {
            return Ok(());
        }
        let Some(session) = &mut self.session else { return Err(no_session()) };
        let load = session.writer().await?;
        let client = &session.connected.client;
        let nodes = match &mut self.nodes {
            Some(nodes) if nodes.scatter.writer().load == load => nodes,
            known => {
                let origin = session.ledger.origin(client).await.map_err(Failure::of_error)?;
                let writer = Writer { origin, load, epoch: 0, lane: self.number };
                match known {
                    Some(nodes) => {
                        nodes.scatter.write_as(writer);
                        nodes
                    }
                    none => none.insert(LaneNodes::new(&self.settings, session, writer).await?),
                }
            }
        };
        for relid in nodes.begin(&looks(&self.aborted), client, &tables).await? {
            let batches = works.iter().flat_map(|work| &work.batches);
            if let Some(batch) = batches.into_iter().find(|batch| batch.target.root.relid == relid) {
                // It is looked at again.
                self.registry.forget(&batch.target, relid);
            }
        }
        nodes.learn_shapes(works).await
    }

    /// Stores the batches of a group on their nodes. `false`: they do not go there.
    pub(super) async fn scatter_group(&mut self, batches: &[&Batch]) -> Result<bool, Failure> {
        let (Some(nodes), Some(session)) = (&mut self.nodes, &self.session) else { return Ok(false) };
        let Some(first) = batches.first() else { return Ok(false) };
        let Some(shape) = nodes.shape(first) else {
            if first.wire == WireFormat::Direct && first.target.way.nodes().is_some() {
                // They have the hash of their key in front. Whoever has the rows sends them again, and they are encoded for
                // where they go now.
                let fact = "rows were encoded for nodes that do not take them any more";
                return Err(Failure::Fatal(Error::new(Code::ConnectionLost, fact)));
            }
            return Ok(false);
        };
        let (client, looks) = (&session.connected.client, looks(&self.aborted));
        for batch in batches {
            for message in &batch.messages {
                let taken = nodes.scatter.take(&looks, shape, batch.wire, message).await;
                taken.map_err(|failure| here(client, failure))?;
            }
            let taken = nodes.scatter.take(&looks, shape, WireFormat::Text, &batch.side).await;
            taken.map_err(|failure| here(client, failure))?;
        }
        Ok(true)
    }

    /// Waits until nodes have stored and prepared all rows of the unit, and records in the transaction of the lane's session
    /// that it decides.
    pub(super) async fn prepare_nodes(&mut self) -> Result<(), Failure> {
        let (Some(nodes), Some(session)) = (&mut self.nodes, &self.session) else { return Ok(()) };
        if !nodes.at_work {
            return Ok(());
        }
        let client = &session.connected.client;
        nodes.scatter.finish(&looks(&self.aborted)).await.map_err(|failure| here(client, failure))?;
        let prepared = match nodes.scatter.prepare(&[]).await {
            // A trigger there has done what PREPARE TRANSACTION forbids (NOTIFY, a temporary table): the coordinator, whose
            // nodes then do without, takes the rows.
            Err(Failure::Fatal(error)) if error.sqlstate_text() == Some("0A000") => {
                tracing::warn!(
                    error = error.fact(),
                    "rows cannot go straight to nodes: these cannot prepare them"
                );
                nodes.tables.values_mut().for_each(|(_, number)| *number = None);
                return Err(Failure::Retry(error));
            }
            prepared => prepared.map_err(|failure| here(client, failure))?,
        };
        let Some(unit) = prepared else { return Ok(()) };
        let Writer { origin, load, .. } = nodes.scatter.writer();
        if !session.ledger.holds_stream(client, origin, *load).await.map_err(Failure::of_error)? {
            let fact = "the lock by which others know that this session lives is not its own: is there a pooler between?";
            return Err(Failure::Lost(Error::new(Code::ConnectionLost, fact)));
        }
        session.ledger.decide(client, &unit, nodes.scatter.to_forget()).await?;
        // What is prepared is flushed, whatever the setting: so must be what says that it is to be committed.
        let flush = "SELECT pg_catalog.set_config('synchronous_commit', 'local', true)
                      WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";
        client.query(flush, &[]).await.map(drop).map_err(|e| session.failure(&e))
    }

    /// Has every node told of a unit that the ledger has. A node that is away is waited for, until the process gives up: then
    /// whoever settles next tells it.
    pub(super) async fn tell_nodes(&mut self) {
        let Some(nodes) = self.nodes.as_mut().filter(|nodes| nodes.at_work) else { return };
        nodes.at_work = false;
        nodes.scatter.committed();
        if let Err(failure) = nodes.scatter.tell(&looks(&self.aborted)).await {
            tracing::warn!(lane = self.number, error = %failure.error(), "the next start, or `inrush recover`, tells it");
        }
    }

    /// Ends a unit on its nodes of which it is not known whether it was committed, by what the ledger says, and gives that.
    /// Once the session is gone that was to decide: nothing else tells, not even that its offsets have moved, which another
    /// attempt may have done.
    pub(super) async fn resolve_nodes(&mut self) -> Result<bool, Failure> {
        let (Some(nodes), Some(session)) = (&self.nodes, &self.session) else { return Ok(false) };
        let Some(unit) = nodes.scatter.unit().filter(|_| nodes.at_work) else { return Ok(false) };
        let asked = session.ledger.is_decided(&session.connected.client, &unit).await;
        // Whoever has settled meanwhile has told the nodes before the ledger forgot: then there is nothing to undo.
        let decided = asked.map_err(Failure::of_error)?;
        if decided {
            self.tell_nodes().await;
        } else {
            self.roll_back_nodes().await;
        }
        Ok(decided)
    }

    /// Undoes a unit on its nodes.
    pub(super) async fn roll_back_nodes(&mut self) {
        if let Some(nodes) = self.nodes.as_mut().filter(|nodes| nodes.at_work) {
            nodes.scatter.roll_back().await;
            nodes.at_work = false;
        }
    }

    /// The lane ends: the ledger may forget what every node was told of.
    pub(super) async fn end_nodes(&mut self) {
        if let (Some(nodes), Some(session)) = (&mut self.nodes, &self.session) {
            nodes.scatter.end(&session.connected.client).await;
        }
    }
}

/// The rows of one batch on their nodes, sent carefully.
pub(super) struct Carefully<'a> {
    scatter: &'a mut Scatter,
    /// Of the lane's session.
    client: &'a Client,
    looks: Looks<'a>,
    shape: usize,
}

impl<'a> Carefully<'a> {
    /// `None`: the rows of this batch do not go to nodes.
    pub fn of(
        nodes: &'a mut Option<LaneNodes>,
        client: &'a Client,
        aborted: &'a AtomicBool,
        batch: &Batch,
    ) -> Option<Carefully<'a>> {
        let nodes = nodes.as_mut()?;
        let shape = nodes.shape(batch)?;
        Some(Carefully { scatter: &mut nodes.scatter, client, looks: looks(aborted), shape })
    }

    /// All rows of the batch, as they were encoded.
    pub async fn whole(&mut self, batch: &Batch, immediate: bool) -> Result<Result<(), Refused>, Failure> {
        let main = CarefulPart { bytes: batch.messages.concat(), rows: Vec::new() };
        let side = CarefulPart { bytes: batch.side.to_vec(), rows: Vec::new() };
        self.rows(batch.wire, &main, &side, immediate).await
    }

    /// Some rows, as COPY text.
    pub async fn text(
        &mut self,
        text: Vec<u8>,
        rows: usize,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        let part = CarefulPart { bytes: text, rows: (0..rows).collect() };
        self.rows(WireFormat::Text, &CarefulPart::default(), &part, immediate).await
    }

    async fn rows(
        &mut self,
        wire: WireFormat,
        main: &CarefulPart,
        text: &CarefulPart,
        immediate: bool,
    ) -> Result<Result<(), Refused>, Failure> {
        let tried = self.scatter.try_rows(&self.looks, self.shape, wire, main, text, immediate).await;
        let tried = tried.map_err(|failure| here(self.client, failure));
        Ok(tried?.map(drop))
    }
}

pub(super) fn no_session() -> Failure {
    Failure::Lost(Error::new(Code::ConnectionLost, "there is no connection"))
}

/// A node that is lost is no reason to give up the lane's own session.
fn here(client: &Client, failure: Failure) -> Failure {
    match failure {
        Failure::Lost(error) if !client.is_closed() => Failure::Retry(error),
        failure => failure,
    }
}

/// The first work of a unit with rows for nodes: whose tables an error of these is about, as far as that is known.
pub(super) fn first_for_nodes(works: &[LaneWork]) -> Option<usize> {
    works.iter().position(|work| work.batches.iter().any(|batch| batch.target.way.nodes().is_some()))
}
