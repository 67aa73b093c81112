//! The connections of a process.

use crate::config::SyncCommit;
use crate::part::Batch;
use crate::target::Leaf;
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::direct;
use inrush_sink::connect::{Backend, Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::copy::{CopyStream, WireFormat, statement};
use inrush_sink::failure::{Failure, of_copy, of_direct_copy, of_statement, server_error};
use inrush_sink::ledger::Ledger;
use inrush_sink::ledger::stream::StreamLedger;
use std::collections::{HashMap, HashSet};
use tokio_postgres::Statement;

/// What pg_stat_activity shows of every connection of ours.
pub(crate) const APPLICATION: &str = "inrush serve";

/// Prepared COPYs that a session keeps: leaves come and go.
const STATEMENTS: usize = 512;

/// The connection that looks at tables and alters them.
pub(crate) async fn connect_control(conninfo: &ConnInfo) -> Result<Connected> {
    connect(conninfo, APPLICATION).await
}

/// The connection of a lane.
pub(crate) struct Session {
    pub connected: Connected,
    pub ledger: Ledger,
    pub stream: StreamLedger,
    pub backend: Backend,
    /// Whether COMMIT is answered before the WAL has been flushed.
    pub asynchronous: bool,
    statements: HashMap<(u32, u64, WireFormat), Statement>,
    /// Its number as a stream, once it decides units on several servers.
    writer: Option<i64>,
    /// See [`Session::types_hold`].
    types: Statement,
}

/// Counts columns that are not of the type that they were encoded for.
const OTHER_TYPES: &str = "
    SELECT pg_catalog.count(*)
      FROM ROWS FROM (pg_catalog.unnest($1::pg_catalog.oid[]), pg_catalog.unnest($2::pg_catalog.text[]),
                      pg_catalog.unnest($3::pg_catalog.oid[])) w (relid, name, of)
     WHERE NOT EXISTS (SELECT 1 FROM pg_catalog.pg_attribute a
                        WHERE a.attrelid OPERATOR(pg_catalog.=) w.relid
                          AND a.attname OPERATOR(pg_catalog.=) w.name::pg_catalog.name
                          AND a.atttypid OPERATOR(pg_catalog.=) w.of AND NOT a.attisdropped)";

impl Session {
    pub async fn open(
        conninfo: &ConnInfo,
        ledger: &str,
        sync_commit: Option<SyncCommit>,
        extension: bool,
    ) -> Result<Session> {
        let mut connected = connect(conninfo, APPLICATION).await?;
        if extension {
            direct::load_library_if_there(&connected.client).await.map_err(server_error)?;
        }
        if let Some(value) = sync_commit {
            let set = "SELECT pg_catalog.set_config('synchronous_commit', $1, false)";
            connected.client.query_one(set, &[&value.sql()]).await.map_err(server_error)?;
        }
        let backend = Backend::own(&connected.client).await?;
        let set = "SELECT pg_catalog.current_setting('synchronous_commit')";
        let row = connected.client.query_one(set, &[]).await.map_err(server_error)?;
        let asynchronous = row.get::<_, &str>(0) == "off";
        let ledger = Ledger::open(&mut connected.client, ledger, true)
            .await?
            .ok_or_else(|| Error::new(Code::Ledger, "the ledger could not be made"))?;
        let stream = StreamLedger::prepare(&ledger, &connected.client).await.map_err(server_error)?;
        let types = connected.client.prepare(OTHER_TYPES).await.map_err(server_error)?;
        Ok(Session {
            connected,
            ledger,
            stream,
            backend,
            asynchronous,
            statements: HashMap::new(),
            writer: None,
            types,
        })
    }

    /// Its number as a stream, by which others see whether it lives.
    pub async fn writer(&mut self) -> Result<i64, Failure> {
        if let Some(writer) = self.writer {
            return Ok(writer);
        }
        let begun = self.ledger.begin_stream(&self.connected.client).await;
        let writer = begun.map_err(Failure::of_error)?;
        self.writer = Some(writer);
        Ok(writer)
    }

    /// What a failed statement means.
    pub fn failure(&self, error: &tokio_postgres::Error) -> Failure {
        self.connected.failure(error)
    }

    /// What a failed COPY means: a row may be to blame.
    pub fn copy_failure(&self, batch: &Batch, wire: WireFormat, error: &tokio_postgres::Error) -> Failure {
        match self.connected.ended() {
            Some(ended) if error.is_closed() => of_statement(ended),
            _ => {
                let columns: Vec<&str> = batch.shape.names.iter().map(String::as_str).collect();
                let of = if wire == WireFormat::Direct { of_direct_copy } else { of_copy };
                match of(error, &batch.leaf.name, &columns) {
                    Failure::Fatal(fatal) => Failure::Fatal(explained(fatal)),
                    failure => failure,
                }
            }
        }
    }

    /// Runs statements that give no rows.
    pub async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.connected.client.batch_execute(sql).await.map_err(|e| self.failure(&e))
    }

    /// Starts a COPY into the leaf of a batch.
    pub async fn start_copy(&mut self, batch: &Batch, wire: WireFormat) -> Result<CopyStream, Failure> {
        let key = (batch.leaf.relid, batch.shape.id, wire);
        if !self.statements.contains_key(&key) {
            if self.statements.len() >= STATEMENTS {
                self.statements.clear();
            }
            let columns: Vec<&str> = batch.shape.names.iter().map(String::as_str).collect();
            let sql = statement(&batch.leaf.qualified, &columns, wire, None, false);
            let prepared = self.connected.client.prepare(&sql).await;
            let prepared = prepared.map_err(|e| self.copy_failure(batch, wire, &e))?;
            self.statements.insert(key, prepared);
        }
        CopyStream::start(&self.connected, &self.statements[&key])
            .await
            .map_err(|e| self.copy_failure(batch, wire, &e))
    }

    /// Whether the columns that binary rows went into in this transaction are of the types they were encoded for: eight
    /// bytes of a bigint are a double precision, too. To be asked behind the COPYs, whose locks keep the types from being
    /// altered until the transaction ends. Text is read by the server, and frames say what they were made for.
    pub async fn types_hold(&self, batches: impl Iterator<Item = &Batch>) -> Result<bool, Failure> {
        let (mut relids, mut names, mut types) = (Vec::new(), Vec::new(), Vec::new());
        let mut seen = HashSet::new();
        for batch in batches.filter(|batch| batch.wire == WireFormat::Binary) {
            if seen.insert((batch.leaf.relid, batch.shape.id)) {
                for column in &batch.shape.columns {
                    relids.push(batch.leaf.relid);
                    names.push(column.name.as_str());
                    types.push(column.ty.oid);
                }
            }
        }
        if relids.is_empty() {
            return Ok(true);
        }
        let asked = self.connected.client.query_one(&self.types, &[&relids, &names, &types]).await;
        Ok(asked.map_err(|e| self.failure(&e))?.get::<_, i64>(0) == 0)
    }

    /// Forgets the statements of a leaf that is not there any more.
    pub fn forget(&mut self, leaf: &Leaf) {
        self.statements.retain(|(relid, ..), _| *relid != leaf.relid);
    }
}

/// With what helps where the server speaks of a leaf, which nobody has named.
fn explained(error: Error) -> Error {
    match (error.sqlstate_text(), error.hint_text()) {
        (Some("42501"), None) => error.hint(
            "Rows go straight into the partitions of a table: this role must own it, or be a member of the role that \
             does (GRANT owner TO role), or be granted INSERT on the partitions, too.",
        ),
        _ => error,
    }
}
