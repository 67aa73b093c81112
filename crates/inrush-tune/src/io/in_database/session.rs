//! The session that reads: what it is doing can be cancelled at any time.

use inrush_core::Result;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, Row, SimpleQueryMessage};

/// How often it is asked whether a statement that runs is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// For the way to the server and back, on top of what a statement may take.
const GRACE: Duration = Duration::from_millis(500);

/// How long a statement may go on that was cancelled.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// A session of its own: a request to cancel needs the address that it was made with.
pub(super) struct Session<'a> {
    connected: Connected,
    ended: &'a AtomicBool,
}

impl<'a> Session<'a> {
    pub(super) async fn open(conninfo: &ConnInfo, ended: &'a AtomicBool) -> Result<Session<'a>> {
        Ok(Session { connected: connect(conninfo, "inrush tune").await?, ended })
    }

    pub(super) fn client(&self) -> &Client {
        &self.connected.client
    }

    /// Whether the user has had enough.
    pub(super) fn ended(&self) -> bool {
        self.ended.load(Ordering::Relaxed)
    }

    /// The rows of some statements: one answer for all, which are cancelled if they take longer than `limit`
    /// together (statement_timeout is for each of them).
    pub(super) async fn texts(&self, sql: &str, limit: Duration) -> Result<Vec<String>> {
        let messages = self.wait(self.client().simple_query(sql), limit).await?;
        let text = |message: &SimpleQueryMessage| match message {
            SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        };
        Ok(messages.iter().filter_map(text).collect())
    }

    /// Ends a transaction, and takes back what it has set.
    pub(super) async fn rollback(&self) -> Result<()> {
        let done = self.client().batch_execute("ROLLBACK");
        match tokio::time::timeout(PATIENCE, done).await {
            Ok(done) => done.map_err(server_error),
            // The server has not even noticed the request to cancel: it rolls back when it finds us gone.
            Err(_) => Ok(()),
        }
    }

    /// Rows of one statement.
    pub(super) async fn rows(
        &self,
        sql: &str,
        parameters: &[(&(dyn ToSql + Sync), Type)],
        limit: Duration,
    ) -> Result<Vec<Row>> {
        self.wait(self.client().query_typed(sql, parameters), limit).await
    }

    /// Waits for a statement, and cancels it when it is late or the user has had enough: what comes then is
    /// the server's error.
    async fn wait<T>(
        &self,
        statement: impl Future<Output = Result<T, tokio_postgres::Error>>,
        limit: Duration,
    ) -> Result<T> {
        tokio::pin!(statement);
        let late = Instant::now() + limit + GRACE;
        let mut cancelled = false;
        loop {
            if (self.ended() || Instant::now() > late) && !cancelled {
                // Whether the request arrives or not: the statement has a timeout, too.
                let _ = self.connected.cancel.cancel().await;
                cancelled = true;
            }
            if let Ok(ended) = tokio::time::timeout(LOOK, &mut statement).await {
                return ended.map_err(server_error);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use inrush_testkit::{Postgres, ServerOptions, require_server};

    #[tokio::test]
    async fn what_runs_is_cancelled_by_the_user_or_when_it_is_late() {
        require_server!(15);
        let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
        let conninfo = inrush_sink::conninfo::resolve(Some(&server.url()), &|_| None).expect("settings");
        let ended = AtomicBool::new(false);
        let session = Session::open(&conninfo.expect("a server"), &ended).await.expect("a session");
        // Each is within its time, and both together are not.
        let two = "BEGIN; SET LOCAL statement_timeout = 30000; \
                   SELECT pg_catalog.pg_sleep(0.4); SELECT pg_catalog.pg_sleep(20)";
        let done = session.texts(two, Duration::from_millis(300)).await;
        assert_eq!(done.expect_err("cancelled").sqlstate_text(), Some("57014"));
        session.rollback().await.expect("a session that is free");
        let one = session.texts("BEGIN; SELECT pg_catalog.pg_sleep(20)", Duration::from_secs(30));
        let (done, ()) = tokio::join!(one, async {
            tokio::time::sleep(LOOK * 2).await;
            ended.store(true, Ordering::Relaxed);
        });
        assert_eq!(done.expect_err("cancelled").sqlstate_text(), Some("57014"));
        session.rollback().await.expect("a session that is free");
    }
}
