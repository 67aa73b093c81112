//! What the servers of a cluster have: shards, rows, bytes, and transactions that were prepared and not ended.
//!
//! Looks, and changes nothing. A node that does not answer is told, and the others are looked at all the same.

mod nodes;
mod prepared;
mod tables;

pub use nodes::NodeStatus;
pub use prepared::{OtherPrepared, PreparedPart, Recover, UnitStatus};
pub use tables::{Largest, NodeShare, Skew, SkewOf, TableStatus};

use crate::NodeMap;
use inrush_core::{Code, Error, Result, Table};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::ledger::Ledger;
use serde::Serialize;
use std::time::Duration;
use tokio_postgres::Client;

/// What the servers of a cluster have.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Status {
    /// Version of this form: 1.
    pub version: u32,
    /// Whether there is a cluster: Citus, or partitions on other servers.
    pub cluster: bool,
    /// The servers; the first one is the one that was asked.
    pub nodes: Vec<NodeStatus>,
    /// Tables whose rows are on several servers.
    pub tables: Vec<TableStatus>,
    /// What loads of the ledger have prepared and not ended.
    pub prepared: Vec<UnitStatus>,
    /// What others prepared some time ago ([`Look::others_older_than`]): it holds locks.
    pub others: Vec<OtherPrepared>,
    /// What else one should know, a sentence each.
    pub notes: Vec<String>,
}

/// What to look at.
#[derive(Debug, Clone, Copy)]
pub struct Look<'a> {
    /// Only this table.
    pub table: Option<&'a Table>,
    /// Count the rows, which reads all of them; else what the nodes estimate.
    pub exact: bool,
    /// Whose prepared transactions are ours.
    pub ledger: Option<&'a Ledger>,
    /// What others have prepared is told of when it is older. Citus itself has some for a moment with each write.
    pub others_older_than: Duration,
}

impl Default for Look<'_> {
    fn default() -> Self {
        Look { table: None, exact: false, ledger: None, others_older_than: Duration::from_secs(60) }
    }
}

/// Looks at a cluster. `client` is a session of the coordinator, which `coordinator` and `map` lead to.
///
/// # Errors
/// `table`: the table asked for is on one server.
pub async fn status(
    client: &Client,
    coordinator: &ConnInfo,
    map: &NodeMap,
    look: Look<'_>,
) -> Result<Status> {
    let mut notes = Vec::new();
    let mut nodes = nodes::open(client, coordinator, map, &mut notes).await?;
    let specs = tables::specs(client, &nodes, look.table).await?;
    if let (Some(table), true) = (look.table, specs.is_empty()) {
        return Err(Error::new(
            Code::Table,
            format!("{} is on one server: Citus does not distribute it, and it has no partition on another", table.qualified()),
        )
        .hint("`inrush cluster status` lists the tables that are on several; `inrush route` finds the partition of a key."));
    }
    let tables = tables::measure(&nodes, &specs, look.exact, &mut notes).await;
    let (prepared, others) =
        prepared::read(client, &mut nodes, look.ledger, look.others_older_than, &mut notes).await?;
    let citus = inrush_sink::catalog::citus::is_there(client).await?;
    Ok(Status {
        version: 1,
        cluster: citus || nodes.len() > 1 || !tables.is_empty(),
        nodes: nodes.into_iter().map(|node| node.status).collect(),
        tables,
        prepared,
        others,
        notes,
    })
}
