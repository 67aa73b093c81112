//! What nodes are asked before rows are sent to them.

use crate::{Kind, Map, Node, NodeMap, NodeSession, Place, Topology};
use futures_util::future::join_all;
use inrush_core::{Code, Column, Error, Result, Table, TypeKind};
use inrush_encode::frames::FrameLayout;
use inrush_sink::catalog::direct::{IS_THERE, LOAD_LIBRARY, plans_of};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use tokio_postgres::Client;

/// Sessions on the nodes of a topology, opened when they are asked something for the first time.
#[derive(Debug)]
pub struct Visits<'a> {
    coordinator: &'a ConnInfo,
    map: &'a NodeMap,
    application: &'a str,
    topology: &'a Topology,
    sessions: Vec<Option<NodeSession>>,
}

/// What the nodes of a table say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Said {
    /// The least number of transactions that one of them prepares; `None`: as many as are wanted.
    pub prepares: Option<usize>,
    /// Whether columns are of the same types there: COPY binary has values as their own type has them.
    pub same_types: bool,
}

impl<'a> Visits<'a> {
    /// No node is visited yet.
    pub fn new(
        coordinator: &'a ConnInfo,
        map: &'a NodeMap,
        application: &'a str,
        topology: &'a Topology,
    ) -> Visits<'a> {
        let sessions = topology.nodes.iter().map(|_| None).collect();
        Visits { coordinator, map, application, topology, sessions }
    }

    /// Has sessions on all nodes.
    pub async fn connect(&mut self) -> Result<()> {
        let Visits { coordinator, map, application, topology, .. } = *self;
        let missing = self.sessions.iter_mut().zip(&topology.nodes).filter(|(session, _)| session.is_none());
        let connecting = missing.map(|(session, node)| async move {
            *session = Some(node.connect(coordinator, map, application, &[]).await?);
            Ok(())
        });
        join_all(connecting).await.into_iter().collect()
    }

    /// The session of a node, by its number in the topology.
    fn node(&self, number: usize) -> Result<&Client> {
        let session = self.sessions[number].as_ref();
        session
            .map(|session| &session.connected.client)
            .ok_or_else(|| Error::new(Code::Internal, "a session of a node is not there"))
    }

    /// Asks what has to be known before rows of a table are sent. Citus sees to it that its nodes have the same types, and
    /// prepare as many transactions as there may be.
    ///
    /// # Errors
    /// Where a place is not there, or a crash of its node would empty it while the ledger keeps what it has of it.
    pub async fn ask(&mut self, table: &Table) -> Result<Said> {
        let topology = self.topology;
        if topology.kind == Kind::Citus {
            return Ok(Said { prepares: None, same_types: true });
        }
        self.connect().await?;
        let (mut least, mut same_types) = (usize::MAX, true);
        for (number, node) in topology.nodes.iter().enumerate() {
            let client = self.node(number)?;
            let sql = "SELECT pg_catalog.current_setting('max_prepared_transactions')::int4";
            let most: i32 = client.query_one(sql, &[]).await.map_err(server_error)?.get(0);
            least = least.min(usize::try_from(most).unwrap_or(0));
            for place in topology.places.iter().filter(|place| place.node == number) {
                check(client, node, place).await?;
                same_types &= has_types(client, place, table).await?;
            }
        }
        Ok(Said { prepares: Some(least), same_types })
    }
}

impl Visits<'_> {
    /// How the nodes want rows with these columns in frames, the same for all places. `None`: a node has no extension. The
    /// inner error says why rows cannot go in frames.
    pub async fn layout(
        &mut self,
        columns: &[&str],
    ) -> Result<std::result::Result<Option<FrameLayout>, String>> {
        let topology = self.topology;
        if matches!(topology.map, Map::Ranges(_)) {
            return Ok(Err("partitions are by range".into()));
        }
        if topology.places.iter().any(|place| !place.renamed.is_empty()) {
            return Ok(Err("columns have other names on some nodes".into()));
        }
        self.connect().await?;
        let mut first: Option<FrameLayout> = None;
        for number in 0..topology.nodes.len() {
            let client = self.node(number)?;
            let there = client.query_one(&format!("SELECT {IS_THERE}"), &[]).await.map_err(server_error)?;
            if !there.get::<_, bool>(0) {
                return Ok(Ok(None));
            }
            client.batch_execute(LOAD_LIBRARY).await.map_err(server_error)?;
            let places: Vec<String> =
                topology.places.iter().filter(|place| place.node == number).map(Place::qualified).collect();
            for (place, plan) in places.iter().zip(plans_of(client, &places, columns).await?) {
                let layout = FrameLayout::parse(&plan)?;
                if let Some(refusal) = layout.refusal {
                    return Ok(Err(format!("{} ({})", refusal.code, refusal.detail)));
                }
                if !layout.enums().is_empty() {
                    return Ok(Err("enums differ from node to node".into()));
                }
                match &first {
                    None => first = Some(layout),
                    Some(first) if first.fingerprint == layout.fingerprint => {}
                    Some(_) => {
                        return Ok(Err(format!("{place} is laid out otherwise than others")));
                    }
                }
            }
        }
        Ok(Ok(first))
    }
}

/// Whether columns are of the same types there.
async fn has_types(client: &Client, place: &Place, table: &Table) -> Result<bool> {
    let sql = "SELECT a.attname::text, n.nspname::text, pg_catalog.format_type(a.atttypid, NULL)
                 FROM pg_catalog.pg_attribute a JOIN pg_catalog.pg_type t ON t.oid = a.atttypid
                 JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
                WHERE a.attrelid = pg_catalog.to_regclass($1) AND a.attnum > 0 AND NOT a.attisdropped";
    let there = client.query(sql, &[&place.qualified()]).await.map_err(server_error)?;
    Ok(table.columns.iter().all(|column| {
        let name = place.column(&column.name);
        // What is not there at all the node says, if it is sent.
        there.iter().find(|row| row.get::<_, &str>(0) == name).is_none_or(|row| {
            // The types of users have names only, and may mean something else.
            row.get::<_, &str>(1) == "pg_catalog" && row.get::<_, &str>(2) == column.ty.name
        })
    }))
}

/// Refuses a place that is not there, or that a crash of its node would empty while the ledger keeps what it has of it.
async fn check(client: &Client, node: &Node, place: &Place) -> Result<()> {
    let name = place.qualified();
    let sql =
        "SELECT c.relpersistence = 'u' FROM pg_catalog.pg_class c WHERE c.oid = pg_catalog.to_regclass($1)";
    let (fact, hint) =
        match client.query_opt(sql, &[&name]).await.map_err(server_error)?.map(|row| row.get(0)) {
            Some(false) => return Ok(()),
            Some(true) => (
                format!("{name} on node {node} is unlogged"),
                "After a crash of the node nobody could say which rows are left. Make it logged.",
            ),
            None => (
                format!("there is no table {name} on node {node}"),
                "The options schema_name and table_name of the foreign table say what it is called there.",
            ),
        };
    Err(Error::new(Code::Table, fact).hint(hint))
}

impl Said {
    /// Why rows with these columns have to go as text, if they have to.
    pub fn why_text(&self, columns: &[Column]) -> Option<&'static str> {
        // Their values carry the number of a type that each server has made for itself.
        let names_its_element = |column: &Column| match &column.ty.under_domains(-1).0.kind {
            TypeKind::Array { element } => !matches!(element.kind, TypeKind::Base(_)),
            _ => false,
        };
        if !self.same_types {
            Some("columns have other types on the nodes, which read text")
        } else if columns.iter().any(names_its_element) {
            Some(
                "arrays in COPY binary name the type of their elements, which has another number on each node",
            )
        } else {
            None
        }
    }
}
