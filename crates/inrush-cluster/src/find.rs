//! Whether the rows of a table can be sent to where they belong.

use crate::{Kind, Node, Topology, citus, foreign};
use inrush_core::{RelKind, Result, Table};
use tokio_postgres::GenericClient;

/// Where the rows of a table are.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// On this server.
    Here,
    /// On others, and rows have to go through this one: why.
    Coordinator(String),
    /// They can be sent to where they belong.
    Direct(Box<Topology>),
}

/// Looks where the rows of a table are. The answer holds only as long as a [`Guard`](crate::Guard) is held in whose
/// transaction it was asked.
pub async fn find<C: GenericClient>(client: &C, table: &Table) -> Result<Found> {
    if inrush_sink::catalog::citus::is_there(client).await? {
        let found = citus::read(client, table).await?;
        if found != Found::Here {
            return Ok(found);
        }
    }
    match table.kind {
        RelKind::Partitioned => foreign::read(client, table).await,
        _ => Ok(Found::Here),
    }
}

/// [`find`] where it is known what spreads the table.
pub(crate) async fn find_again<C: GenericClient>(client: &C, table: &Table, kind: Kind) -> Result<Found> {
    match kind {
        Kind::Citus => citus::read(client, table).await,
        Kind::Partitions => foreign::read(client, table).await,
    }
}

/// The servers that something may have been prepared on, as far as this one knows them: itself, the nodes of Citus, and
/// those that partitions are on.
pub async fn known_nodes<C: GenericClient>(client: &C) -> Result<Vec<Node>> {
    let mut nodes = vec![Node::coordinator()];
    if inrush_sink::catalog::citus::is_there(client).await? {
        nodes.extend(citus::nodes(client).await?);
    }
    nodes.extend(foreign::nodes(client).await?);
    Ok(nodes)
}
