//! What the server knows about the target of a load, in one round trip, and whether COPY would take it.
//!
//! Every name in the queries is qualified, operators included: a search_path that puts somebody's schema before
//! pg_catalog changes nothing. Nothing here needs more than the right to connect: the catalogs read are public.

mod access;
pub mod citus;
pub mod direct;
mod name;
mod rows;
mod state;

pub use access::{Access, Foreign, Leaf, Trigger};
pub use name::TableName;
pub use state::{EMPTY_PATH, ForeignKey, Index, TableState, table_state};

use crate::failure::server_error;
use inrush_core::{Code, Error, Result, Table};
use tokio_postgres::Client;
use tokio_postgres::types::Type;

/// The target of a load: its columns, and what decides whether COPY takes rows for it.
#[derive(Debug, Clone)]
pub struct Target {
    /// The table as the encoders need it.
    pub table: Table,
    /// Privileges, triggers, partitions.
    pub access: Access,
}

/// The server and the session, as far as a load depends on them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Facts {
    /// server_version_num: 150004 for 15.4.
    pub server_version_num: u32,
    /// The version as the server prints it.
    pub server_version: String,
    /// Encoding of the database.
    pub server_encoding: String,
    /// TimeZone of the session: what a timestamptz without zone means.
    pub time_zone: String,
    /// DateStyle of the session: what 01/02/2003 means.
    pub date_style: String,
    /// IntervalStyle of the session.
    pub interval_style: String,
    /// wal_level.
    pub wal_level: String,
    /// Whether the current role is a superuser.
    pub is_superuser: bool,
    /// Whether the server is a standby.
    pub in_recovery: bool,
    /// Whether transactions of the session are read-only unless they say otherwise.
    pub read_only: bool,
    /// Name of the database.
    pub database: String,
    /// OID of the database.
    pub database_oid: u32,
    /// The current role.
    pub role: String,
    /// max_connections.
    pub max_connections: u32,
    /// Whether the database has the extension of the direct path.
    pub has_extension: bool,
}

/// Reads [`Facts`] of the session.
pub async fn facts(client: &Client) -> Result<Facts> {
    let row = client
        .query_typed_one(
            &format!(
                "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
                        pg_catalog.current_setting('server_version'), \
                        pg_catalog.current_setting('server_encoding'), \
                        pg_catalog.current_setting('TimeZone'), \
                        pg_catalog.current_setting('DateStyle'), \
                        pg_catalog.current_setting('IntervalStyle'), \
                        pg_catalog.current_setting('wal_level'), \
                        pg_catalog.current_setting('is_superuser')::pg_catalog.bool, \
                        pg_catalog.pg_is_in_recovery(), \
                        pg_catalog.current_setting('default_transaction_read_only')::pg_catalog.bool, \
                        d.datname::pg_catalog.text, d.oid, current_user::pg_catalog.text, \
                        pg_catalog.current_setting('max_connections')::pg_catalog.int4, \
                        {} \
                 FROM pg_catalog.pg_database d \
                 WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()",
                direct::IS_THERE
            ),
            &[],
        )
        .await
        .map_err(server_error)?;
    let field = |i| row.try_get::<_, String>(i).map_err(server_error);
    let number = |i| row.try_get::<_, i32>(i).map(i32::unsigned_abs).map_err(server_error);
    let flag = |i| row.try_get::<_, bool>(i).map_err(server_error);
    Ok(Facts {
        server_version_num: number(0)?,
        server_version: field(1)?,
        server_encoding: field(2)?,
        time_zone: field(3)?,
        date_style: field(4)?,
        interval_style: field(5)?,
        wal_level: field(6)?,
        is_superuser: flag(7)?,
        in_recovery: flag(8)?,
        read_only: flag(9)?,
        database: field(10)?,
        database_oid: row.try_get(11).map_err(server_error)?,
        role: field(12)?,
        max_connections: number(13)?,
        has_extension: flag(14)?,
    })
}

/// The table of this name; an error with code `table` and a hint with similar names if there is none, or if it is
/// something no COPY can fill (a sequence, an index, a materialized view, a composite type).
pub async fn table(client: &Client, name: &TableName) -> Result<Table> {
    Ok(describe(client, name).await?.table)
}

/// [`table`] with what decides whether COPY takes rows for it. One round trip if the table is there.
pub async fn describe(client: &Client, name: &TableName) -> Result<Target> {
    match find(client, name).await? {
        Some(target) => Ok(target),
        None => Err(not_found(client, name).await),
    }
}

/// [`describe`], with `None` where no relation of this name exists: the load may create it.
pub async fn find(client: &Client, name: &TableName) -> Result<Option<Target>> {
    let rows = client
        .query_typed(rows::TARGET, &[(&name.to_string(), Type::TEXT)])
        .await
        .map_err(|e| table_error(name, e))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text: &str = row.try_get(0).map_err(server_error)?;
    rows::read(text).map(Some)
}

/// A failed look-up, most often for want of a privilege on the schema.
fn table_error(name: &TableName, e: tokio_postgres::Error) -> Error {
    let denied = e.code().is_some_and(|state| state.code() == "42501");
    let error = server_error(e);
    if !denied {
        return error;
    }
    let said = error.sqlstate_text().unwrap_or("42501").to_owned();
    Error::new(Code::Table, format!("table {name} cannot be looked up: {}", error.fact()))
        .sqlstate(said)
        .hint("Ask the schema's owner for GRANT USAGE ON SCHEMA.")
}

/// The error for a missing table. Costs a second round trip; a failure in it only costs the hint.
async fn not_found(client: &Client, name: &TableName) -> Error {
    let error = Error::new(Code::Table, format!("table {name} does not exist"));
    let known = client.query_typed(rows::NAMES, &[]).await.unwrap_or_default();
    let known: Vec<TableName> = known
        .iter()
        .filter_map(|row| {
            let schema = row.try_get(0).ok()?;
            Some(TableName { schema: Some(schema), name: row.try_get(1).ok()? })
        })
        .collect();
    let similar = name::similar(name, &known);
    if similar.is_empty() {
        return match &name.schema {
            None => error.hint("Tables without a schema are looked up along the search_path; check the schema, the database and the spelling."),
            Some(_) => error.hint("Check the schema, the database and the spelling; names are case-sensitive within double quotes only."),
        };
    }
    let list: Vec<_> = similar.iter().map(ToString::to_string).collect();
    error.hint(format!("Similar names here: {}.", list.join(", ")))
}
