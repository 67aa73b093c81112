//! The server process behind a connection.

use crate::failure::server_error;
use inrush_core::{Code, Error, Result};
use std::time::{Duration, Instant};
use tokio_postgres::GenericClient;

/// A server process: a process ID alone may be reused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Backend {
    /// pg_stat_activity.pid
    pub pid: i32,
    /// pg_stat_activity.backend_start, as text.
    pub start: String,
}

/// How long a server process of a lost connection is waited for.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// After so long it is told to end.
    pub grace: Duration,
    /// After so long it is given up.
    pub limit: Duration,
}

impl Backend {
    /// The one of a session.
    pub async fn own<C: GenericClient>(client: &C) -> Result<Backend> {
        // What pg_stat_activity is made of: the view costs a new session some milliseconds.
        let own = "SELECT pid, backend_start::text
                     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())";
        let rows = client.query_typed(own, &[]).await.map_err(server_error)?;
        let row =
            rows.first().ok_or_else(|| Error::new(Code::Server, "the server does not say who it is"))?;
        Ok(Backend { pid: row.get(0), start: row.get(1) })
    }

    /// Waits until it has ended, and ends it if it does not by itself: only then is it known whether a COMMIT it had
    /// received took place. `client` is another session of the same server.
    ///
    /// # Errors
    /// Code `connection-lost`, where it does not end.
    pub async fn wait_until_gone<C: GenericClient>(&self, client: &C, patience: Patience) -> Result<()> {
        let started = Instant::now();
        let mut terminated = false;
        loop {
            let there = client
                .query_opt(
                    "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND backend_start::text = $2",
                    &[&self.pid, &self.start],
                )
                .await
                .map_err(server_error)?;
            if there.is_none() {
                return Ok(());
            }
            if !terminated && started.elapsed() > patience.grace {
                let end = "SELECT pg_catalog.pg_terminate_backend($1)";
                client.execute(end, &[&self.pid]).await.map_err(server_error)?;
                terminated = true;
            }
            if started.elapsed() > patience.limit {
                return Err(Error::new(
                    Code::ConnectionLost,
                    format!("server process {} of a lost connection does not end", self.pid),
                ));
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}
