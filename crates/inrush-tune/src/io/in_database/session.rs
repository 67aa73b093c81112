//! The session that reads: what it is doing can be cancelled at any time.

use inrush_core::Result;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::failure::server_error;
use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio_postgres::{Client, SimpleQueryMessage};

/// How often it is asked whether a statement that runs is still wanted.
const LOOK: Duration = Duration::from_millis(50);

/// How long a statement may go on that was cancelled.
const PATIENCE: Duration = Duration::from_secs(10);

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

    /// The rows of some statements: one answer for all.
    pub(super) async fn texts(&self, sql: &str) -> Result<Vec<String>> {
        let messages = self.wait(self.client().simple_query(sql)).await?;
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

    /// Waits for a statement, and cancels it when the user has had enough: what comes then is the server's
    /// error.
    async fn wait<T>(&self, statement: impl Future<Output = Result<T, tokio_postgres::Error>>) -> Result<T> {
        tokio::pin!(statement);
        let mut cancelled = false;
        loop {
            if self.ended() && !cancelled {
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
