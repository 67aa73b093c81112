//! How much room windows take, and how much there is.

use crate::read::{Windowed, get};
use inrush_core::{Code, Error, Result};
use inrush_sink::failure::server_error;
use serde::Serialize;
use std::path::PathBuf;
use tokio_postgres::GenericClient;

/// The room a leaf takes, with its indexes and its TOAST table.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct LeafSize {
    /// The leaf.
    pub relid: u32,
    /// Bytes.
    pub bytes: i64,
    /// The tablespace of the leaf.
    pub tablespace: String,
}

/// The room that the leaves of a table take: those that stand. One that goes away meanwhile is left out.
pub async fn sizes(client: &impl GenericClient, table: &Windowed) -> Result<Vec<LeafSize>> {
    let leaves: Vec<u32> =
        table.windows.iter().flat_map(|w| w.leaves.iter().map(|leaf| leaf.relid)).collect();
    let rows = client
        .query(
            "SELECT c.oid, coalesce(pg_catalog.pg_total_relation_size(c.oid::pg_catalog.regclass), 0),
                    coalesce(s.spcname, ds.spcname)::pg_catalog.text
               FROM pg_catalog.pg_class c
               JOIN pg_catalog.pg_database d ON d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()
               JOIN pg_catalog.pg_tablespace ds ON ds.oid OPERATOR(pg_catalog.=) d.dattablespace
               LEFT JOIN pg_catalog.pg_tablespace s ON s.oid OPERATOR(pg_catalog.=) c.reltablespace
              WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1)",
            &[&leaves],
        )
        .await
        .map_err(server_error)?;
    rows.iter()
        .map(|row| Ok(LeafSize { relid: get(row, 0)?, bytes: get(row, 1)?, tablespace: get(row, 2)? }))
        .collect()
}

/// Where a tablespace is on this machine.
///
/// # Errors
/// Where that cannot be proven: the session came through a socket of the network, the role may not know the data
/// directory, or there is no such directory here.
pub(crate) async fn directory(client: &impl GenericClient, tablespace: &str) -> Result<PathBuf> {
    let unknown = |why: &str| {
        Error::new(Code::Usage, format!("the free space of tablespace \"{tablespace}\" cannot be looked at: {why}"))
            .hint(
                "--min-free needs a server on this machine, reached through its Unix socket, and a role that may read \
                 data_directory (pg_read_all_settings); --max-size works everywhere.",
            )
    };
    let row = client
        .query_opt(
            "SELECT pg_catalog.inet_server_addr() IS NULL,
                    nullif(pg_catalog.pg_tablespace_location(s.oid), ''),
                    (SELECT setting FROM pg_catalog.pg_settings WHERE name OPERATOR(pg_catalog.=) 'data_directory'),
                    pg_catalog.pg_backend_pid()
               FROM pg_catalog.pg_tablespace s WHERE s.spcname OPERATOR(pg_catalog.=) $1",
            &[&tablespace],
        )
        .await
        .map_err(server_error)?;
    let Some(row) = row else { return Err(unknown("it does not exist")) };
    if !get::<bool>(&row, 0)? {
        return Err(unknown("the server may be on another machine"));
    }
    let Some(data) = get::<Option<String>>(&row, 2)? else {
        return Err(unknown("this role may not read data_directory"));
    };
    // A socket can be passed on from another machine or a container, where the same names mean other devices.
    if !is_here(&data, get(&row, 3)?) {
        return Err(unknown("the server is not on this machine"));
    }
    let directory = PathBuf::from(get::<Option<String>>(&row, 1)?.unwrap_or(data));
    if !directory.is_dir() {
        return Err(unknown("its directory is not here"));
    }
    Ok(directory)
}

/// Whether the server with this data directory and this process of the session runs here: its directory can be read,
/// or its process is one of ours and calls itself as PostgreSQL's do.
fn is_here(data: &str, pid: i32) -> bool {
    let readable = PathBuf::from(data).join("PG_VERSION").exists();
    let process = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    readable || process.starts_with(b"postgres: ")
}

/// Free bytes on the device of a tablespace, for those who are not root.
pub(crate) async fn free(client: &impl GenericClient, tablespace: &str) -> Result<u64> {
    let directory = directory(client, tablespace).await?;
    let found = rustix::fs::statvfs(&directory).map_err(|e| {
        Error::new(Code::Usage, format!("the free space of {} cannot be looked at: {e}", directory.display()))
    })?;
    Ok(found.f_bavail.saturating_mul(found.f_frsize))
}

/// The tablespaces that leaves of this table go to: those chosen, else the database's.
pub(crate) async fn tablespaces(client: &impl GenericClient, chosen: &[String]) -> Result<Vec<String>> {
    if !chosen.is_empty() {
        return Ok(chosen.to_vec());
    }
    let row = client
        .query_one(
            "SELECT s.spcname::pg_catalog.text FROM pg_catalog.pg_database d
               JOIN pg_catalog.pg_tablespace s ON s.oid OPERATOR(pg_catalog.=) d.dattablespace
              WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()",
            &[],
        )
        .await
        .map_err(server_error)?;
    Ok(vec![get(&row, 0)?])
}
