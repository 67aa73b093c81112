//! Whether the rows of a table go straight to the nodes that they belong on.

use super::Shape;
use inrush_cluster::{Aim, Found, NodeMap, Router, Topology, Visits, fills, find};
use inrush_core::{Code, Generated, Result, Table};
use inrush_encode::frames::FrameLayout;
use inrush_sink::conninfo::ConnInfo;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use tokio_postgres::Client;

/// How long nodes are not asked again behind one that could not be reached.
const AGAIN: Duration = Duration::from_secs(60);

/// The way of the rows of a table.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Way {
    /// Into the table: it is here.
    Here,
    /// To the nodes that they belong on.
    Nodes(Arc<Nodes>),
    /// Into the table, which passes them on: why.
    Coordinator(String),
}

/// Of a table whose rows go to nodes, what does not change while it has the same columns and places.
#[derive(Debug, PartialEq)]
pub(crate) struct Nodes {
    pub aim: Arc<Aim>,
    /// Why rows go as text, if they have to.
    pub text: Option<&'static str>,
}

/// What the way depends on beside the table.
#[derive(Debug)]
pub(crate) struct Ways<'a> {
    pub conninfo: &'a ConnInfo,
    pub map: &'a NodeMap,
    /// Whether rows may go past the coordinator at all.
    pub bypass: bool,
    /// Encoding of the database.
    pub encoding: &'a str,
    pub session: inrush_encode::Session,
    /// When a node could not be reached.
    pub unreached: &'a Mutex<Option<Instant>>,
}

impl Way {
    pub fn nodes(&self) -> Option<&Arc<Nodes>> {
        match self {
            Way::Nodes(nodes) => Some(nodes),
            Way::Here | Way::Coordinator(_) => None,
        }
    }

    /// Whether rows that were encoded for the one may go the other.
    pub fn takes_the_same_rows(&self, other: &Way) -> bool {
        let text = |way: &Way| way.nodes().map(|nodes| nodes.text.is_some());
        text(self) == text(other)
    }

    /// As `--check` and the log have it.
    pub fn describe(&self) -> Option<String> {
        match self {
            Way::Here => None,
            Way::Nodes(nodes) => {
                let topology = &nodes.aim.topology;
                let what = match topology.kind {
                    inrush_cluster::Kind::Citus => "shards",
                    inrush_cluster::Kind::Partitions => "partitions",
                };
                let (places, nodes) = (topology.places.len(), topology.nodes.len());
                Some(format!("straight to {places} {what} on {nodes} nodes"))
            }
            Way::Coordinator(why) => Some(format!("through the coordinator: {why}")),
        }
    }
}

impl Nodes {
    /// How the nodes want rows of a shape; none if they do not take them in frames, or cannot be asked now.
    pub async fn layout(
        &self,
        client: &Client,
        conninfo: &ConnInfo,
        map: &NodeMap,
        shape: &Shape,
    ) -> Result<Option<Arc<FrameLayout>>> {
        let Aim { table, topology, .. } = &*self.aim;
        // Frames have their columns in the order of the table: what the coordinator fills cannot be put behind.
        if self.text.is_some() || !fills(client, table, &shape.columns, topology.kind).await?.is_empty() {
            return Ok(None);
        }
        let mut visits = Visits::new(conninfo, map, "inrush serve: look", topology);
        match visits.layout(&shape.column_names()).await {
            Ok(Ok(layout)) => Ok(layout.map(Arc::new)),
            Ok(Err(why)) => {
                tracing::info!(table = table.qualified(), why, "the extension does not take its rows");
                Ok(None)
            }
            Err(error) => {
                tracing::debug!(error = error.fact(), "nodes were not asked for layouts");
                Ok(None)
            }
        }
    }
}

impl Ways<'_> {
    /// The way of the rows of a table. `special` says why they cannot go to nodes, where the table itself has something
    /// against it; `known` is the way they have gone until now.
    pub async fn of(
        &self,
        client: &Client,
        table: &Table,
        special: Option<&str>,
        known: Option<&Way>,
    ) -> Result<Way> {
        let topology = match find(client, table).await? {
            Found::Here => return Ok(Way::Here),
            Found::Coordinator(why) => return Ok(Way::Coordinator(why)),
            Found::Direct(topology) => *topology,
        };
        if let Some(why) = special.or((!self.bypass).then_some("server.bypass is false")) {
            return Ok(Way::Coordinator(why.to_owned()));
        }
        if let Some(Way::Nodes(nodes)) = known
            && *nodes.aim.topology == topology
            && nodes.aim.table == *table
        {
            return Ok(Way::Nodes(Arc::clone(nodes)));
        }
        let mut stored = table.columns.iter().filter(|column| column.generated == Generated::No);
        let unreached = *self.unreached.lock().unwrap_or_else(PoisonError::into_inner);
        if unreached.is_some_and(|at| at.elapsed() < AGAIN) {
            return Ok(Way::Coordinator("a node could not be reached a moment ago".into()));
        }
        let column = topology.keys.first().or(stored.next().map(|column| &column.name));
        let Some(column) = column.cloned() else {
            return Ok(Way::Coordinator("it has no columns".into()));
        };
        let topology = Arc::new(topology);
        let aim = Aim::new(table.clone(), column, Arc::clone(&topology), self.encoding, self.session);
        if let Err(why) = Router::new(&aim, &table.columns, &[], &topology) {
            return Ok(Way::Coordinator(why));
        }
        self.visit(table, &topology, aim).await
    }

    /// Asks the nodes. One that cannot be reached from here may still be reached by the coordinator.
    async fn visit(&self, table: &Table, topology: &Topology, aim: Aim) -> Result<Way> {
        let mut visits = Visits::new(self.conninfo, self.map, "inrush serve: look", topology);
        let mut asked = visits.ask(table).await;
        if let Err(error) = visits.connect().await {
            asked = Err(error);
        }
        let said = match asked {
            Ok(said) => said,
            Err(error) if matches!(error.code(), Code::Connect | Code::ConnectionLost | Code::Table) => {
                if error.code() != Code::Table {
                    *self.unreached.lock().unwrap_or_else(PoisonError::into_inner) = Some(Instant::now());
                }
                return Ok(Way::Coordinator(error.fact().to_owned()));
            }
            Err(error) => return Err(error),
        };
        if said.prepares == Some(0) {
            let why = "a node prepares nothing (max_prepared_transactions is 0), and rows of a stream could not be sent again";
            return Ok(Way::Coordinator(why.into()));
        }
        let text = said.why_text(&table.columns);
        Ok(Way::Nodes(Arc::new(Nodes { aim: Arc::new(aim), text })))
    }
}
