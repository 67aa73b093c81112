//! What `inrush recover` needs to know: who still works on a load.

use super::Ledger;
use crate::failure::server_error;
use inrush_core::Result;
use serde::Serialize;
use tokio_postgres::Client;

/// A connection of a load that the server still has.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct LoadConnection {
    /// Process ID of the backend.
    pub pid: i32,
    /// Address of the client as text; `None` for a Unix socket, or where this role may not see it.
    pub client: Option<String>,
    /// pg_stat_activity.state; `None` where this role may not see it.
    pub state: Option<String>,
    /// Seconds for which it has waited for its client: since its last statement ended, or, during COPY, since the
    /// transaction began. `None` while it works or where this role may not see it.
    pub waiting: Option<f64>,
    /// Bytes its COPY has processed, if it is in one. A second look that finds the same has seen a silent client.
    pub copied: Option<i64>,
}

impl Ledger {
    /// The connections of a load that are still there.
    pub async fn connections(&self, client: &Client, load: i64) -> Result<Vec<LoadConnection>> {
        let rows = client
            .query(
                &format!(
                    "SELECT a.pid, a.client_addr::text, a.state,
                            CASE WHEN a.wait_event_type = 'Client' THEN
                                 extract(epoch FROM pg_catalog.clock_timestamp()
                                     - CASE WHEN a.state = 'active' THEN a.xact_start ELSE a.state_change END)::float8
                            END,
                            p.bytes_processed
                       FROM {}.backends b
                       JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.backend_start
                       LEFT JOIN pg_catalog.pg_stat_progress_copy p ON p.pid = a.pid
                      WHERE b.load_id = $1 ORDER BY a.pid",
                    self.sql
                ),
                &[&load],
            )
            .await
            .map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|row| LoadConnection {
                pid: row.get(0),
                client: row.get(1),
                state: row.get(2),
                waiting: row.get(3),
                copied: row.get(4),
            })
            .collect())
    }

    /// Ends these connections of a load; how many of them there were. A client that is alive after all sends the
    /// unit again on a new connection: nothing is lost or doubled by it.
    pub async fn end_connections(&self, client: &Client, load: i64, pids: &[i32]) -> Result<u64> {
        client
            .execute(
                &format!(
                    "SELECT pg_catalog.pg_terminate_backend(a.pid)
                       FROM {}.backends b
                       JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid AND a.backend_start = b.backend_start
                      WHERE b.load_id = $1 AND a.pid = ANY($2)",
                    self.sql
                ),
                &[&load, &pids],
            )
            .await
            .map_err(server_error)
    }
}
