//! Where Citus has a table, of whatever kind: what [`find`](crate::find()) leaves out, too.

use crate::citus::{PLACEMENTS, node};
use crate::node::Node;
use inrush_core::{Result, quote_ident};
use inrush_sink::failure::server_error;
use serde::Serialize;
use tokio_postgres::GenericClient;
use tokio_postgres::types::Type;

/// What spreads a table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Spread {
    /// Citus, by ranges of the hash of a column.
    CitusHash,
    /// Citus, by ranges of a column.
    CitusRange,
    /// Citus, by what was appended.
    CitusAppend,
    /// Citus: one shard, as the tables of a distributed schema have.
    CitusSingle,
    /// Citus: one shard, with a copy on every node.
    CitusReference,
    /// Citus knows it, and it is on the coordinator.
    CitusLocal,
    /// PostgreSQL: partitions, on this server or, with `postgres_fdw`, on others.
    Partitions,
    /// Nothing does.
    None,
}

impl Spread {
    fn of(method: &str, replication: &str, colocation: i32) -> Spread {
        match (method, replication) {
            ("h", _) => Spread::CitusHash,
            ("r", _) => Spread::CitusRange,
            ("a", _) => Spread::CitusAppend,
            (_, "t") => Spread::CitusReference,
            _ if colocation > 0 => Spread::CitusSingle,
            _ => Spread::CitusLocal,
        }
    }
}

/// A table that Citus knows.
#[derive(Debug)]
pub(crate) struct Layout {
    pub spread: Spread,
    /// The distribution column.
    pub key: Option<String>,
    /// By their ranges of hashes.
    pub shards: Vec<ShardCopies>,
}

/// A shard, with its copies.
#[derive(Debug)]
pub(crate) struct ShardCopies {
    pub id: u64,
    /// Ends of its range as text.
    pub range: Option<(String, String)>,
    /// Its name on the nodes, quoted.
    pub relation: String,
    /// The nodes, as far as they are active.
    pub nodes: Vec<Node>,
}

/// Where Citus has a table; `None` if it does not know it. The database has Citus.
pub(crate) async fn read<C: GenericClient>(client: &C, table: &str) -> Result<Option<Layout>> {
    let rows = client.query_typed(PLACEMENTS, &[(&table, Type::TEXT)]).await.map_err(server_error)?;
    let Some(first) = rows.first() else { return Ok(None) };
    let local: i32 = first.get(4);
    let mut layout = Layout {
        spread: Spread::of(first.get(0), first.get(1), first.get(2)),
        key: first.get(3),
        shards: Vec::new(),
    };
    for row in &rows {
        let Some(id) = row.get::<_, Option<i64>>(5) else { continue };
        let id = u64::try_from(id).unwrap_or_default();
        if layout.shards.last().is_none_or(|shard| shard.id != id) {
            layout.shards.push(ShardCopies {
                id,
                range: row.get::<_, Option<String>>(6).zip(row.get(7)),
                relation: format!("{}.{}", quote_ident(row.get(8)), quote_ident(row.get(9))),
                nodes: Vec::new(),
            });
        }
        let at: Option<(&str, i32)> = row.get::<_, Option<&str>>(11).zip(row.get(12));
        if let (Some((name, port)), Some(shard)) = (at, layout.shards.last_mut()) {
            shard.nodes.push(node(name, port, row.get(10), local));
        }
    }
    Ok(Some(layout))
}
