//! The server's extension: whether it is there, and how it wants the rows of a table (docs/format-inrush.md).

use crate::catalog::Target;
use crate::failure::server_error;
use inrush_core::{Generated, RelKind, Result, Table};
use tokio_postgres::Client;

/// Loads the extension's library into a session: only then does it take `FORMAT inrush`.
pub const LOAD_LIBRARY: &str = "SELECT inrush.version()";

/// Whether the database has the extension.
pub const IS_THERE: &str =
    "EXISTS (SELECT FROM pg_catalog.pg_extension WHERE extname OPERATOR(pg_catalog.=) 'inrush')";

/// [`LOAD_LIBRARY`] in a database that has the extension.
pub async fn load_library_if_there(client: &Client) -> Result<(), tokio_postgres::Error> {
    match client.query_one(&format!("SELECT {IS_THERE}"), &[]).await?.get(0) {
        true => client.batch_execute(LOAD_LIBRARY).await,
        false => Ok(()),
    }
}

/// Whether the extension would take rows of the table, from what the catalog says of it: where it is not there nobody can
/// ask `inrush.plan()`. Of the refusals in docs/format-inrush.md those that tables commonly meet.
pub fn would_take(target: &Target) -> bool {
    let access = &target.access;
    target.table.kind == RelKind::Table
        && !access.row_security
        && access.foreign_keys.is_empty()
        && !access.triggers.iter().any(|trigger| trigger.enabled && trigger.on_insert())
        && target.table.columns.iter().all(|column| column.generated == Generated::No)
}

/// What `inrush.plan()` answers for a COPY of these columns: JSON.
pub async fn plan(client: &Client, table: &Table, columns: &[&str]) -> Result<String> {
    let row = client
        .query_one("SELECT inrush.plan($1::oid::regclass, $2)::text", &[&table.oid, &columns])
        .await
        .map_err(server_error)?;
    Ok(row.get(0))
}

/// [`plan`] for tables that only their names are known of, as SQL reads them; in their order.
pub async fn plans_of(client: &Client, tables: &[String], columns: &[&str]) -> Result<Vec<String>> {
    let sql = "SELECT inrush.plan(pg_catalog.to_regclass(t.name), $2)::text
                 FROM pg_catalog.unnest($1::text[]) WITH ORDINALITY t (name, number) ORDER BY t.number";
    let rows = client.query(sql, &[&tables, &columns]).await.map_err(server_error)?;
    Ok(rows.iter().map(|row| row.get(0)).collect())
}

/// The labels of an enum and their OIDs.
pub async fn labels(client: &Client, enum_type: u32) -> Result<Vec<(String, u32)>> {
    let sql = "SELECT enumlabel::text, oid FROM pg_catalog.pg_enum WHERE enumtypid OPERATOR(pg_catalog.=) $1";
    let rows = client.query(sql, &[&enum_type]).await.map_err(server_error)?;
    Ok(rows.iter().map(|row| (row.get(0), row.get(1))).collect())
}
