//! Tables whose rows Citus keeps in shards, perhaps on other servers.

use crate::failure::server_error;
use inrush_core::Result;
use tokio_postgres::GenericClient;

/// Whether the database has Citus.
pub async fn is_there<C: GenericClient>(client: &C) -> Result<bool> {
    let sql = "SELECT pg_catalog.to_regclass('pg_catalog.pg_dist_partition') IS NOT NULL";
    Ok(client.query_typed(sql, &[]).await.map_err(server_error)?.first().is_some_and(|row| row.get(0)))
}

/// Whether Citus has the rows of this table: distributed, reference and local tables of Citus alike are listed in its
/// pg_dist_partition. Their rows carry the transaction IDs of the server that a shard is on, and a crash of that server
/// is none of this one.
pub async fn is_sharded<C: GenericClient>(client: &C, table: u32) -> Result<bool> {
    if !is_there(client).await? {
        return Ok(false);
    }
    let listed =
        "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_dist_partition WHERE logicalrelid::pg_catalog.oid = $1)";
    Ok(client.query_one(listed, &[&table]).await.map_err(server_error)?.get(0))
}
