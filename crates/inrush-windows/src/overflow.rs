//! The table for late rows, beside the parent: as a partition it would need other bounds at each retirement.

use crate::leaf::{cut, identity_defaults};
use crate::read::{Windowed, get};
use inrush_core::Result;
use inrush_sink::catalog::TableName;
use inrush_sink::failure::server_error;
use inrush_sink::ledger::Ledger;
use std::time::Duration;
use tokio_postgres::{Client, Transaction};

/// Makes it, with the columns of the parent, and records it.
pub(crate) async fn make(tx: &Transaction<'_>, ledger: &Ledger, table: &Windowed) -> Result<()> {
    let name =
        TableName { schema: table.name.schema.clone(), name: format!("{}_late", cut(&table.name.name, 58)) };
    let unlogged = if table.policy.unlogged { "UNLOGGED " } else { "" };
    let sql = format!(
        "CREATE {unlogged}TABLE {name} (LIKE {} INCLUDING ALL EXCLUDING INDEXES EXCLUDING IDENTITY EXCLUDING STATISTICS)",
        table.name
    );
    tx.batch_execute(&sql).await.map_err(server_error)?;
    let defaults = identity_defaults(tx, table.relid, i32::MAX).await?;
    if !defaults.is_empty() {
        tx.batch_execute(&format!("ALTER TABLE {name} {defaults}")).await.map_err(server_error)?;
    }
    let sql = format!(
        "UPDATE {} SET overflow = pg_catalog.to_regclass($2)::pg_catalog.oid WHERE relid OPERATOR(pg_catalog.=) $1",
        ledger.table("windowed")
    );
    tx.execute(&sql, &[&table.relid, &name.to_string()]).await.map(|_| ()).map_err(server_error)
}

/// Adds the columns that the parent got since: it is no partition, so that ALTER TABLE passes it over. Waits no longer
/// than this for its lock, which late rows queue behind.
///
/// # Errors
/// What the server says, `lock_not_available` included.
pub async fn widen(client: &mut Client, table: &Windowed, timeout: Duration) -> Result<()> {
    let Some(overflow) = &table.overflow else { return Ok(()) };
    let rows = client
        .query(
            "SELECT pg_catalog.format('ADD COLUMN IF NOT EXISTS %I %s', a.attname,
                                      pg_catalog.format_type(a.atttypid, a.atttypmod))
               FROM pg_catalog.pg_attribute a
              WHERE a.attrelid OPERATOR(pg_catalog.=) $1 AND a.attnum OPERATOR(pg_catalog.>) 0::pg_catalog.int2
                AND NOT a.attisdropped
                AND NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute o
                                 WHERE o.attrelid OPERATOR(pg_catalog.=) $2 AND NOT o.attisdropped
                                   AND o.attname OPERATOR(pg_catalog.=) a.attname)
              ORDER BY a.attnum",
            &[&table.relid, &overflow.relid],
        )
        .await
        .map_err(server_error)?;
    if rows.is_empty() {
        return Ok(());
    }
    let columns = rows.iter().map(|row| get(row, 0)).collect::<Result<Vec<String>>>()?;
    let tx = client.transaction().await.map_err(server_error)?;
    let sql = format!(
        "SET LOCAL lock_timeout = {}; ALTER TABLE {} {}",
        timeout.as_millis().max(1),
        overflow.qualified(),
        columns.join(", ")
    );
    tx.batch_execute(&sql).await.map_err(server_error)?;
    tx.commit().await.map_err(server_error)
}
