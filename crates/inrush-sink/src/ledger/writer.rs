//! Streams that commit units on several servers. Each session that decides has a number, and lives as long as it holds a
//! lock by it: that nobody holds the lock says that the session is gone, and that nothing more is decided under its
//! number. A load has an epoch instead, which outlives its sessions.

use super::Ledger;
use crate::failure::server_error;
use inrush_core::Result;
use tokio_postgres::Client;

/// Whether somebody has the lock of what `$1` names; to be closed.
const LOCKS: &str = "
    SELECT EXISTS (
        SELECT 1 FROM pg_catalog.pg_locks l
          JOIN pg_catalog.pg_database d ON d.oid = l.database AND d.datname = pg_catalog.current_database()
         CROSS JOIN (SELECT pg_catalog.hashtextextended($1, 0) AS key) k
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
           AND l.classid::bigint = (k.key >> 32) & 4294967295 AND l.objid::bigint = k.key & 4294967295";

impl Ledger {
    /// Gives a session the number of a stream, and a lock by which others see that it lives. The session has it until it
    /// ends.
    pub async fn begin_stream(&self, client: &Client) -> Result<i64> {
        // Far from the numbers of loads, and exact in JSON.
        let number = "SELECT pg_catalog.hashtextextended(pg_catalog.gen_random_uuid()::text, 0)
                           & 4503599627370495 | 4503599627370496";
        let stream: i64 = client.query_one(number, &[]).await.map_err(server_error)?.get(0);
        let name = stream_name(&self.origin(client).await?, stream);
        client
            .query("SELECT pg_catalog.pg_advisory_lock(pg_catalog.hashtextextended($1, 0))", &[&name])
            .await
            .map_err(server_error)?;
        Ok(stream)
    }

    /// Whether the session of a stream is there.
    pub(super) async fn stream_lives(&self, client: &Client, stream: i64) -> Result<bool> {
        let name = stream_name(&self.origin(client).await?, stream);
        // Not by trying to take the lock: whoever asks may hold it.
        Ok(client.query_one(&format!("{LOCKS})"), &[&name]).await.map_err(server_error)?.get(0))
    }

    /// Whether this very session has the lock of a stream: to be asked in the transaction that decides for it. Behind a pooler
    /// it may be another session than the one that took it.
    pub async fn holds_stream(&self, client: &Client, origin: &str, stream: i64) -> Result<bool> {
        let name = stream_name(origin, stream);
        let sql = format!("{LOCKS} AND l.pid = pg_catalog.pg_backend_pid())");
        Ok(client.query_one(&sql, &[&name]).await.map_err(server_error)?.get(0))
    }
}

/// What is locked.
fn stream_name(origin: &str, stream: i64) -> String {
    format!("inrush stream {stream} {origin}")
}
