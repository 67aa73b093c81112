//! Whether every row is where its key leads, by the servers' own functions.

use crate::topology::{Map, Topology};
use crate::{Kind, NodeMap};
use inrush_core::{Result, quote_ident};
use inrush_sink::connect::connect;
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use serde::Serialize;
use tokio_postgres::Client;

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Audit {
    /// Rows looked at.
    pub rows: u64,
    /// Rows in a place that their key does not lead to.
    pub misplaced: u64,
    /// The places that have such rows.
    pub places: Vec<Misplaced>,
}

/// A place with rows that do not belong there.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Misplaced {
    /// Its name.
    pub place: String,
    /// Its node.
    pub node: String,
    /// How many.
    pub rows: u64,
}

/// Looks at every row of a table. Rows that others have not committed are not seen. Costs a scan of the table: of shards
/// on their nodes, of partitions through the coordinator, which alone can judge them.
pub async fn audit(
    topology: &Topology,
    coordinator: &ConnInfo,
    map: &NodeMap,
    application: &str,
) -> Result<Audit> {
    let mut audit = Audit::default();
    match topology.kind {
        Kind::Citus => {
            for (number, node) in topology.nodes.iter().enumerate() {
                let session = node.connect(coordinator, map, application, &[]).await?;
                for (at, place) in
                    topology.places.iter().enumerate().filter(|(_, place)| place.node == number)
                {
                    let wrong = match (&topology.map, topology.keys.first()) {
                        (Map::Shards(shards), Some(key)) => {
                            let shard = shards.all()[at];
                            let key = quote_ident(key);
                            format!(
                                "pg_catalog.worker_hash({key}) NOT BETWEEN {} AND {}",
                                shard.min, shard.max
                            )
                        }
                        _ => "false".into(),
                    };
                    let name = place.qualified();
                    count(&mut audit, &session.connected.client, &name, &name, &node.to_string(), &wrong)
                        .await?;
                }
            }
        }
        Kind::Partitions => {
            let connected = connect(coordinator, application).await?;
            for place in &topology.places {
                let sql = "SELECT c.oid::regclass::text, pg_catalog.pg_get_partition_constraintdef(c.oid)
                             FROM pg_catalog.pg_class c WHERE c.oid = $1";
                let oid = u32::try_from(place.id).unwrap_or_default();
                let row = connected.client.query_one(sql, &[&oid]).await.map_err(server_error)?;
                let (leaf, constraint): (String, Option<String>) = (row.get(0), row.get(1));
                let wrong = constraint.map_or("false".into(), |constraint| format!("NOT ({constraint})"));
                let node = topology.nodes[place.node].to_string();
                // OFFSET keeps postgres_fdw from having the node judge: the OID of the parent is none there.
                let leaf = format!("(SELECT * FROM {leaf} OFFSET 0) leaf");
                count(&mut audit, &connected.client, &leaf, &place.qualified(), &node, &wrong).await?;
            }
        }
    }
    Ok(audit)
}

async fn count(
    audit: &mut Audit,
    client: &Client,
    from: &str,
    place: &str,
    node: &str,
    wrong: &str,
) -> Result<()> {
    // In the aggregate, not a WHERE: a planner that trusts the bound would find nothing.
    let sql = format!("SELECT count(*), count(*) FILTER (WHERE {wrong}) FROM {from}");
    let row = client.query_one(&sql, &[]).await.map_err(server_error)?;
    let of = |i: usize| u64::try_from(row.get::<_, i64>(i)).unwrap_or_default();
    audit.rows += of(0);
    audit.misplaced += of(1);
    if of(1) > 0 {
        audit.places.push(Misplaced { place: place.to_owned(), node: node.to_owned(), rows: of(1) });
    }
    Ok(())
}
