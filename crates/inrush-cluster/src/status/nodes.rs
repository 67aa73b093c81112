//! The servers, and what they are.

use crate::NodeMap;
use crate::find::known_nodes;
use crate::foreign::{address, options};
use crate::node::Node;
use futures_util::future::join_all;
use inrush_core::Result;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use serde::Serialize;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio_postgres::Client;

/// How long a node may take to answer, unless the user said so.
const PATIENCE: Duration = Duration::from_secs(10);

/// A server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct NodeStatus {
    /// `coordinator` for the one that was asked, `host:port` for Citus, the foreign server for `postgres_fdw`.
    pub name: String,
    /// Where it listens, as the coordinator has it; `None` for the one that was asked.
    pub host: Option<String>,
    /// Its port.
    pub port: Option<u16>,
    /// Why it cannot be reached; what follows is not known then.
    pub error: Option<String>,
    /// server_version: `15.4`.
    pub server_version: Option<String>,
    /// Version of the extension `citus`, if it is there.
    pub citus: Option<String>,
    /// Version of the extension `inrush`, if it is there.
    pub extension: Option<String>,
    /// max_prepared_transactions; 0: it takes none.
    pub max_prepared_transactions: Option<i32>,
    /// Transactions that are prepared there in this database, whoever did.
    pub prepared: Option<u64>,
    /// Whether Citus puts shards there; `None` without Citus.
    pub takes_shards: Option<bool>,
}

/// A server, and the way to it.
#[derive(Debug)]
pub(super) struct OpenNode {
    pub node: Node,
    pub status: NodeStatus,
    pub session: Option<Connected>,
}

const FACTS: &str = "
    SELECT pg_catalog.split_part(pg_catalog.current_setting('server_version'), ' ', 1),
           (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'citus'),
           (SELECT extversion FROM pg_catalog.pg_extension WHERE extname = 'inrush'),
           pg_catalog.current_setting('max_prepared_transactions')::int,
           -- Who waits for a lock here is of no use; shards are hidden from those who look at pg_class.
           pg_catalog.set_config('lock_timeout', '5s', false),
           CASE WHEN pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL
                THEN pg_catalog.set_config('citus.override_table_visibility', 'off', false) END";

/// Whether Citus puts shards there, for all its nodes; and whether it uses them at all.
const CITUS_NODES: &str = "
    SELECT n.nodename || ':' || n.nodeport, n.shouldhaveshards, n.isactive,
           n.groupid = (SELECT l.groupid FROM pg_catalog.pg_dist_local_group l), n.groupid, n.noderole::text
      FROM pg_catalog.pg_dist_node n ORDER BY n.groupid, n.nodeid";

/// Servers that partitions are on, whether or not this role may know how to log in there.
const SERVERS: &str = "
    SELECT DISTINCT s.srvname::text, s.srvoptions
      FROM pg_catalog.pg_foreign_table f
      JOIN pg_catalog.pg_class c ON c.oid = f.ftrelid AND c.relispartition
      JOIN pg_catalog.pg_foreign_server s ON s.oid = f.ftserver
      JOIN pg_catalog.pg_foreign_data_wrapper w ON w.oid = s.srvfdw AND w.fdwname = 'postgres_fdw'
     ORDER BY 1";

/// Connects to all servers at once.
pub(super) async fn open(
    client: &Client,
    coordinator: &ConnInfo,
    map: &NodeMap,
    notes: &mut Vec<String>,
) -> Result<Vec<OpenNode>> {
    // The one that was asked comes first, and has no second name here.
    let mut known = known_nodes(client).await?;
    let mut first = true;
    known.retain(|node| node.address.is_some() || std::mem::take(&mut first));
    let mut nodes = join_all(known.into_iter().map(|node| look(node, coordinator, map))).await;
    if inrush_sink::catalog::citus::is_there(client).await? {
        of_citus(client, &mut nodes, notes).await?;
    }
    for row in client.query_typed(SERVERS, &[]).await.map_err(server_error)? {
        let name: String = row.get(0);
        if nodes.iter().any(|open| open.node.name == name) {
            continue;
        }
        let node = Node { name, address: Some(address(&options(&row, 1), &[])) };
        let mut open = OpenNode { status: status_of(&node), node, session: None };
        open.status.error = Some("this role has no user mapping for it".into());
        nodes.push(open);
    }
    for open in &nodes {
        if open.status.max_prepared_transactions == Some(0) && nodes.len() > 1 {
            notes.push(format!(
                "{} prepares no transactions (max_prepared_transactions = 0): rows there are not committed together with those on other nodes",
                open.node.name
            ));
        }
    }
    Ok(nodes)
}

fn status_of(node: &Node) -> NodeStatus {
    NodeStatus {
        name: node.name.clone(),
        host: node.address.as_ref().map(|address| address.host.clone()),
        port: node.address.as_ref().map(|address| address.port),
        ..NodeStatus::default()
    }
}

async fn look(node: Node, coordinator: &ConnInfo, map: &NodeMap) -> OpenNode {
    let mut status = status_of(&node);
    let session = match session(&node, coordinator, map, &mut status).await {
        Ok(session) => Some(session),
        Err(error) => {
            status.error = Some(error.fact().to_owned());
            None
        }
    };
    OpenNode { node, status, session }
}

async fn session(
    node: &Node,
    coordinator: &ConnInfo,
    map: &NodeMap,
    status: &mut NodeStatus,
) -> Result<Connected> {
    let mut conninfo = node.conninfo(coordinator, map)?;
    conninfo.connect_timeout.get_or_insert(PATIENCE);
    let connected = connect(&conninfo, "inrush cluster").await?;
    let facts = connected.client.query_typed_one(FACTS, &[]).await.map_err(server_error)?;
    status.server_version = Some(facts.get(0));
    status.citus = facts.get(1);
    status.extension = facts.get(2);
    status.max_prepared_transactions = Some(facts.get(3));
    Ok(connected)
}

async fn of_citus(client: &Client, nodes: &mut [OpenNode], notes: &mut Vec<String>) -> Result<()> {
    let mut idle = BTreeSet::new();
    for row in client.query_typed(CITUS_NODES, &[]).await.map_err(server_error)? {
        let (name, takes, active, own): (String, bool, bool, Option<bool>) =
            (row.get(0), row.get(1), row.get(2), row.get(3));
        let own = own == Some(true);
        if own && row.get::<_, i32>(4) != 0 {
            notes.push(format!(
                "the server that was asked is a worker of Citus ({name}): what changes shards is the coordinator's"
            ));
            if let Some(open) = nodes.first_mut() {
                open.status.name.clone_from(&name);
            }
        }
        if row.get::<_, &str>(5) != "primary" {
            continue;
        }
        if !active {
            idle.insert(name);
            continue;
        }
        let of = |open: &&mut OpenNode| match own {
            true => open.node.address.is_none(),
            false => open.node.address.is_some() && open.node.name == name,
        };
        if let Some(open) = nodes.iter_mut().find(of) {
            open.status.takes_shards = Some(takes);
        }
    }
    notes.extend(idle.into_iter().map(|name| format!("{name} is not active (pg_dist_node.isactive)")));
    Ok(())
}
