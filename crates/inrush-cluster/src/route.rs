//! Where a key lives, and how it is known.
//!
//! What is computed here is compared with what the server says: a difference is an error, for a row that follows it would
//! be where no query finds it.

mod citus;
mod partitions;
mod value;

pub use value::KeyValue;

use crate::layout::Spread;
use crate::node::Node;
use crate::{Found, find};
use inrush_core::{Code, Error, RelKind, Result, Table};
use serde::Serialize;
use tokio_postgres::Client;

/// Where a key lives.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Route {
    /// Version of this form: 1.
    pub version: u32,
    /// The table, with its schema.
    pub table: String,
    /// What spreads it.
    pub spread: Spread,
    /// What it is spread by: `hash of id`; `None`: it has no key.
    pub by: Option<String>,
    /// The columns that decide, with their values.
    pub key: Vec<KeyValue>,
    /// From the table down to what stores the row; more than one where partitions are partitioned.
    pub steps: Vec<Step>,
    /// Where it is stored: several copies of a reference table or of a replicated shard, none where no place takes the key.
    pub placements: Vec<Placement>,
    /// Whether `inrush load` sends the row straight there. Options of a load may be against it.
    pub direct: bool,
    /// Why not, or why no place takes the key.
    pub why: Option<String>,
}

/// One choice of a shard or a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Step {
    /// What was chosen by: `hash of id`, `range of at`.
    pub by: String,
    /// The hash, if it goes by one and it is known here.
    pub hash: Option<Hash>,
    /// How many shards or partitions there are.
    pub of: usize,
    /// What was chosen; `None`: none of them takes the key.
    pub chosen: Option<Chosen>,
    /// How it was found.
    pub found: String,
    /// Functions of the server that were asked, and agree.
    pub checked: Vec<String>,
}

/// A shard or a partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Chosen {
    /// pg_dist_shard.shardid, or the OID of a partition on the server that was asked.
    pub id: u64,
    /// A partition's name on the server that was asked, quoted where SQL needs it; a shard's on its node.
    pub name: String,
    /// Which keys it takes: `hashes -402653184 to -268435457`, or `FOR VALUES ...` as PostgreSQL has it.
    pub takes: Option<String>,
}

/// A hash of a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Hash {
    /// 32: of Citus, with a sign. 64: of a row for partitions by hash, without.
    pub bits: u32,
    /// The number, as text: 64 bits are more than every reader of JSON keeps.
    pub value: String,
}

/// A copy of a row.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Placement {
    /// Its node: `host:port` for Citus, the foreign server for `postgres_fdw`, `coordinator` for the server that was asked.
    pub node: String,
    /// Host of the node as the coordinator has it; `None`: it is the server that was asked.
    pub host: Option<String>,
    /// Port of the node.
    pub port: Option<u16>,
    /// The table's name there, quoted where SQL needs it.
    pub relation: String,
}

impl Placement {
    fn new(node: &Node, relation: &str) -> Placement {
        Placement {
            node: node.name.clone(),
            host: node.address.as_ref().map(|address| address.host.clone()),
            port: node.address.as_ref().map(|address| address.port),
            relation: relation.to_owned(),
        }
    }
}

impl Route {
    fn of(table: &Table, spread: Spread) -> Route {
        Route {
            version: 1,
            table: table.qualified(),
            spread,
            by: None,
            key: Vec::new(),
            steps: Vec::new(),
            placements: Vec::new(),
            direct: false,
            why: None,
        }
    }
}

/// Looks where a key of a table lives. The values are in the order of the key's columns, as text that the server reads as
/// it would in an INSERT; `None` is NULL.
///
/// # Errors
/// `usage`: too few values or too many, or one that is no value of its column. `internal`: the server says otherwise than
/// what was computed here.
pub async fn route(client: &Client, table: &Table, values: &[Option<String>]) -> Result<Route> {
    match look(client, table, values).await {
        // Somebody may have moved or split it between two looks.
        Err(error) if error.code() == Code::Internal => look(client, table, values).await,
        found => found,
    }
}

async fn look(client: &Client, table: &Table, values: &[Option<String>]) -> Result<Route> {
    if inrush_sink::catalog::citus::is_there(client).await?
        && let Some(layout) = crate::layout::read(client, &table.qualified()).await?
    {
        return citus::route(client, table, &layout, values).await;
    }
    if table.kind == RelKind::Partitioned {
        return partitions::route(client, table, values).await;
    }
    let mut route = Route::of(table, Spread::None);
    need(table, values, &[])?;
    let here = Node::coordinator();
    route.placements.push(Placement::new(&here, &table.qualified()));
    route.why = Some(match table.kind {
        RelKind::View => "it is a view".into(),
        RelKind::Foreign => "it is a foreign table, and no partition".into(),
        _ => HERE.into(),
    });
    Ok(route)
}

/// Why there is nothing to go straight to.
const HERE: &str = "it is on this server as a whole";

/// How loads go, as [`find`] has it: `None` is straight.
async fn against(client: &Client, table: &Table, key: &[KeyValue]) -> Result<Option<String>> {
    Ok(match find(client, table).await? {
        Found::Here => Some(HERE.into()),
        Found::Coordinator(why) => Some(why),
        Found::Direct(_) => match key.iter().find_map(|key| key.unhashed.clone()) {
            Some(why) => Some(why),
            None => not_utf8(client, key).await?,
        },
    })
}

/// Text is hashed in the encoding of the database, and sent in UTF-8.
async fn not_utf8(client: &Client, key: &[KeyValue]) -> Result<Option<String>> {
    use inrush_route::HashKind::{Bpchar, Text, Varchar};
    if !key.iter().any(|key| matches!(key.kind, Some(Text | Varchar { .. } | Bpchar))) {
        return Ok(None);
    }
    let sql = "SELECT pg_catalog.current_setting('server_encoding')";
    let row = client.query_typed_one(sql, &[]).await.map_err(inrush_sink::failure::server_error)?;
    let encoding: &str = row.get(0);
    Ok((!matches!(encoding, "UTF8" | "SQL_ASCII"))
        .then(|| format!("its key is text, and the database is in {encoding}")))
}

/// Whether there is a value for each column of the key.
fn need(table: &Table, values: &[Option<String>], columns: &[String]) -> Result<()> {
    // A table without a key takes every row.
    if columns.is_empty() || values.len() == columns.len() {
        return Ok(());
    }
    let named = columns.join(", ");
    Err(Error::new(
        Code::Usage,
        format!(
            "the key of {} is ({named}), and {} given",
            table.qualified(),
            match values.len() {
                0 => "no value is".into(),
                1 => "1 value is".into(),
                n => format!("{n} values are"),
            }
        ),
    )
    .hint(match columns.len() {
        1 => "Give one value for it.".to_owned(),
        n => format!("Give {n} values, in this order."),
    }))
}

fn disagreement(what: &str, here: &str, server: &str) -> Error {
    Error::new(
        Code::Internal,
        format!("the server has another {what} for this key: {server}, and not {here}"),
    )
    .hint("Load with --no-bypass into this table, and report this with the type of the key and the value.")
}
