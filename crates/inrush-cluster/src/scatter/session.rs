//! One connection to a node: whole COPYs into places there.

use crate::{NodeSession, Place};
use bytes::Bytes;
use inrush_core::quote_literal;
use inrush_encode::frames::BlockWriter;
use inrush_sink::copy::{CopyStream, WireFormat, statement};
use inrush_sink::failure::{Failure, of_copy, of_direct_copy, of_statement};
use inrush_sink::ledger::Ledger;
use std::collections::HashMap;
use std::sync::Arc;
use tokio_postgres::Statement;

/// Prepared COPYs that a session keeps: places come and go.
const STATEMENTS: usize = 512;

/// What is sent in one COPY.
pub(super) struct Send {
    pub place: Arc<Place>,
    pub columns: Arc<Vec<String>>,
    pub format: WireFormat,
    /// For frames.
    pub blocks: Option<BlockWriter>,
    pub bytes: Vec<u8>,
}

/// How far the transaction on a node is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stand {
    /// There is none.
    Idle,
    Begun,
    /// It may be prepared, or is.
    Prepared,
}

pub(super) struct Session {
    pub node: NodeSession,
    pub stand: Stand,
    statements: HashMap<String, Statement>,
    /// It has prepared the transaction itself, and has had the answer.
    has_prepared: bool,
}

impl Session {
    pub fn new(node: NodeSession) -> Session {
        Session { node, stand: Stand::Idle, statements: HashMap::new(), has_prepared: false }
    }

    /// One whole COPY, in the transaction of the unit. Gives the number of rows stored.
    pub async fn copy(&mut self, send: Send) -> Result<u64, Failure> {
        if self.stand == Stand::Idle {
            self.execute("BEGIN").await?;
            self.stand = Stand::Begun;
        }
        let names: Vec<&str> = send.columns.iter().map(|name| send.place.column(name)).collect();
        let sql = statement(&send.place.qualified(), &names, send.format, None, false);
        let failed = |session: &Session, error: &tokio_postgres::Error| match session.node.connected.ended() {
            Some(ended) if error.is_closed() => of_statement(ended),
            // Somebody holds a lock for long; or units of two lanes wait for each other on different nodes, which no node
            // can see.
            _ if error.code().is_some_and(|state| state.code() == "55P03") => {
                Failure::Retry(of_statement(error).into_error())
            }
            _ if send.format == WireFormat::Direct => of_direct_copy(error, &send.place.name, &names),
            _ => of_copy(error, &send.place.name, &names),
        };
        if !self.statements.contains_key(&sql) {
            if self.statements.len() >= STATEMENTS {
                self.statements.clear();
            }
            let prepared = self.node.connected.client.prepare(&sql).await;
            let prepared = prepared.map_err(|e| failed(self, &e))?;
            self.statements.insert(sql.clone(), prepared);
        }
        let copy = CopyStream::start(&self.node.connected, &self.statements[&sql]).await;
        let mut copy = copy.map_err(|e| failed(self, &e))?;
        match &send.blocks {
            Some(blocks) if send.format == WireFormat::Direct => {
                for block in blocks.seal(send.bytes) {
                    copy.send_whole(Bytes::from(block)).await.map_err(|e| failed(self, &e))?;
                }
            }
            _ => copy.send(Bytes::from(send.bytes)).await.map_err(|e| failed(self, &e))?,
        }
        copy.finish().await.map_err(|e| failed(self, &e))
    }

    /// Deferred constraints are checked now: a row may be to blame, though none is named.
    pub async fn prepare(&mut self, gid: &str) -> Result<(), Failure> {
        self.stand = Stand::Prepared;
        let sql = format!("PREPARE TRANSACTION {}", quote_literal(gid));
        let prepared = self.node.connected.client.batch_execute(&sql).await;
        self.has_prepared = prepared.is_ok();
        prepared.map_err(|error| {
            if error.as_db_error().is_some() {
                // The server has rolled it back.
                self.stand = Stand::Idle;
            }
            match self.node.connected.ended() {
                Some(ended) if error.is_closed() => of_statement(ended),
                // As many as there may be are prepared already (twophase.c, MarkAsPreparing): others end theirs soon.
                _ if error.code().is_some_and(|state| state.code() == "53200") => {
                    Failure::Retry(of_statement(&error).into_error())
                }
                _ => of_copy(&error, "", &[]),
            }
        })
    }

    /// Marks the unit in the node's ledger, with all that could be refused looked at before.
    pub async fn mark(&mut self, ledger: &Ledger, gid: &str, old: &[String]) -> Result<(), Failure> {
        self.check_deferred().await?;
        ledger.mark(&self.node.connected.client, gid, old).await
    }

    /// Commits. After an error it is not known whether it took place.
    pub async fn commit(&mut self) -> Result<(), Failure> {
        self.execute("COMMIT").await?;
        self.stand = Stand::Idle;
        Ok(())
    }

    /// Checks deferred constraints now.
    pub async fn check_deferred(&self) -> Result<(), Failure> {
        let checked = self.node.connected.client.batch_execute("SET CONSTRAINTS ALL IMMEDIATE").await;
        checked.map_err(|error| of_copy(&error, "", &[]))
    }

    pub async fn execute(&self, sql: &str) -> Result<(), Failure> {
        let done = self.node.connected.client.batch_execute(sql).await;
        done.map_err(|e| self.node.connected.failure(&e))
    }

    /// Ends what was prepared. That it is not there any more is as good.
    pub async fn end_prepared(&mut self, verb: &str, gid: &str) -> Result<(), Failure> {
        let sql = format!("{verb} PREPARED {}", quote_literal(gid));
        match self.node.connected.client.batch_execute(&sql).await {
            Err(error) if error.code().is_none_or(|state| state.code() != "42704") => {
                Err(self.node.connected.failure(&error))
            }
            answer => {
                if answer.is_err() && self.has_prepared {
                    // Whoever settles ends only what nobody works on.
                    tracing::error!(gid, verb, "somebody else has ended what this session had prepared");
                }
                self.has_prepared = false;
                self.stand = Stand::Idle;
                Ok(())
            }
        }
    }
}
