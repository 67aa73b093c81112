//! Who holds the lock that a backend of ours waits for.

use inrush_core::Result;
use inrush_sink::failure::server_error;
use serde::Serialize;
use std::fmt;
use tokio_postgres::Client;

/// Somebody whose lock the load waited for.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Blocker {
    /// Process id of the backend that held the lock; 0 for a prepared transaction.
    pub pid: i32,
    /// Its application_name, where this role may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<String>,
    /// `active`, `idle in transaction` ..., where this role may see it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// How long its transaction had been open when it was first seen.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub open_seconds: Option<f64>,
    /// The relation, where the lock is on one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub relation: Option<String>,
    /// It was a connection of the same load: equal keys in different chunks.
    pub own: bool,
    /// Seconds for which backends of the load were seen waiting for it.
    pub waited_seconds: f64,
}

impl fmt::Display for Blocker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.relation {
            Some(relation) => write!(f, "a lock on {relation} held by ")?,
            None => f.write_str("a lock held by ")?,
        }
        match self.pid {
            _ if self.own => f.write_str("another connection of this load")?,
            0 => f.write_str("a prepared transaction")?,
            pid => write!(f, "process {pid}")?,
        }
        let known: Vec<&str> = [self.application.as_deref(), self.state.as_deref()]
            .into_iter()
            .flatten()
            .filter(|s| !s.is_empty())
            .collect();
        if !known.is_empty() && !self.own {
            write!(f, " ({})", known.join(", "))?;
        }
        Ok(())
    }
}

/// Who blocks these backends now: each of them that waits, with somebody it waits for.
pub(crate) async fn look(client: &Client, waiting: &[i32], own: &[i32]) -> Result<Vec<(i32, Blocker)>> {
    let rows = client
        .query(
            "SELECT b.pid, a.application_name, a.state,
                    extract(epoch FROM pg_catalog.clock_timestamp() - a.xact_start)::float8,
                    (SELECT l.relation::pg_catalog.regclass::text FROM pg_catalog.pg_locks l
                      WHERE l.pid = w.pid AND NOT l.granted AND l.relation IS NOT NULL
                        AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d
                                           WHERE d.datname = pg_catalog.current_database())
                      LIMIT 1), w.pid
               FROM pg_catalog.unnest($1::int4[]) AS w (pid),
                    LATERAL pg_catalog.unnest(pg_catalog.pg_blocking_pids(w.pid)) AS b (pid)
                    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = b.pid",
            &[&waiting],
        )
        .await
        .map_err(server_error)?;
    Ok(rows
        .iter()
        .map(|row| {
            let pid = row.get(0);
            let blocker = Blocker {
                pid,
                application: row.get(1),
                state: row.get(2),
                open_seconds: row.get(3),
                relation: row.get(4),
                own: own.contains(&pid),
                waited_seconds: 0.0,
            };
            (row.get(5), blocker)
        })
        .collect())
}
