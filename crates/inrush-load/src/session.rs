//! One connection of a lane, with what has been prepared on it.

use crate::job::Job;
use crate::levers::conflict::Statements;
use crate::plan::WirePath;
use inrush_core::Result;
use inrush_sink::catalog::direct::LOAD_LIBRARY;
use inrush_sink::connect::{Backend, Connected, Patience, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::copy::{CopyStream, WireFormat, statement};
use inrush_sink::failure::{Failure, of_copy, of_direct_copy, of_statement, server_error};
use inrush_sink::ledger::UnitLedger;
use std::collections::HashMap;
use std::time::Duration;
use tokio_postgres::Statement;

/// How long the server process of a lost connection is waited for.
pub(crate) const GONE: Patience = Patience { grace: Duration::from_secs(5), limit: Duration::from_secs(30) };

/// A connection and its prepared statements.
pub(crate) struct Session {
    pub connected: Connected,
    pub ledger: Option<UnitLedger>,
    pub backend: Backend,
    statements: HashMap<(usize, WireFormat), Statement>,
    /// How rows get from the temporary tables into the target, by shape; empty where they go straight into it.
    merges: Vec<Statements>,
}

/// Connects a lane, or what will be one.
pub(crate) async fn connect_lane(conninfo: &ConnInfo) -> Result<Connected> {
    connect(conninfo, "inrush load").await
}

impl Session {
    /// Connects, and records the backend in the ledger before it can do anything.
    ///
    /// `lane` is told which backend it has now.
    pub async fn open(job: &Job, lane: &inrush_profile::Lane) -> Result<Session> {
        Session::over(connect_lane(&job.conninfo).await?, job, lane).await
    }

    /// [`Session::open`] over a connection that is there.
    pub async fn over(connected: Connected, job: &Job, lane: &inrush_profile::Lane) -> Result<Session> {
        lane.connected(connected.backend_pid);
        if job.plan.path == WirePath::Direct {
            connected.client.batch_execute(LOAD_LIBRARY).await.map_err(server_error)?;
        }
        if let Some(value) = &job.plan.sync_commit {
            let set = "SELECT pg_catalog.set_config('synchronous_commit', $1, false)";
            connected.client.query_one(set, &[value]).await.map_err(server_error)?;
        }
        if job.plan.spread.is_some() {
            connected.commit_for_good().await?;
        }
        let backend = Backend::own(&connected.client).await?;
        let ledger = match &job.ledger {
            Some((ledger, load)) => {
                ledger.register_backend(&connected.client, load.id, load.epoch).await?;
                Some(UnitLedger::prepare(ledger, &connected.client, load).await.map_err(server_error)?)
            }
            None => None,
        };
        let merges = job.plan.merges()?;
        for merge in &merges {
            connected.client.batch_execute(&merge.make).await.map_err(|e| {
                let error = server_error(e);
                let hint = "Rows are merged from a temporary table: the role needs TEMPORARY on the database and \
                            SELECT on the columns.";
                error.hint(hint)
            })?;
        }
        Ok(Session { connected, ledger, backend, statements: HashMap::new(), merges })
    }

    /// What a failed statement means.
    pub fn failure(&self, error: &tokio_postgres::Error) -> Failure {
        self.connected.failure(error)
    }

    /// What a failed COPY, or the COMMIT behind it, means: a row may be to blame.
    pub fn copy_failure(&self, job: &Job, shape: usize, error: &tokio_postgres::Error) -> Failure {
        match self.connected.ended() {
            Some(ended) if error.is_closed() => of_statement(ended),
            _ => {
                let columns = job.plan.shapes[shape].names();
                let of = if job.plan.path == WirePath::Direct { of_direct_copy } else { of_copy };
                of(error, &job.plan.table.name, &columns)
            }
        }
    }

    /// Runs statements that give no rows.
    pub async fn execute(&self, sql: &str) -> Result<(), Failure> {
        self.connected.client.batch_execute(sql).await.map_err(|e| self.failure(&e))
    }

    /// Starts the COPY of a shape.
    pub async fn start_copy(
        &mut self,
        job: &Job,
        shape: usize,
        format: WireFormat,
    ) -> Result<CopyStream, Failure> {
        if !self.statements.contains_key(&(shape, format)) {
            let columns = job.plan.shapes[shape].names();
            let encoding = (format == WireFormat::Text).then_some(job.plan.encoding.as_deref()).flatten();
            let target = match self.merges.get(shape) {
                Some(merge) => merge.staging.clone(),
                None => job.plan.table.qualified(),
            };
            let sql = statement(&target, &columns, format, encoding, job.plan.freeze);
            let prepared = self.connected.client.prepare(&sql).await;
            let prepared = prepared.map_err(|e| self.copy_failure(job, shape, &e))?;
            self.statements.insert((shape, format), prepared);
        }
        CopyStream::start(&self.connected, &self.statements[&(shape, format)])
            .await
            .map_err(|e| self.copy_failure(job, shape, &e))
    }

    /// Ends a COPY, and merges its rows where they are merged. Gives the number of rows that came into the table.
    pub async fn finish_copy(&self, job: &Job, shape: usize, copy: CopyStream) -> Result<u64, Failure> {
        let stored = copy.finish().await.map_err(|e| self.copy_failure(job, shape, &e))?;
        let Some(merge) = self.merges.get(shape) else { return Ok(stored) };
        let client = &self.connected.client;
        let merged =
            client.execute(&merge.merge, &[]).await.map_err(|e| self.copy_failure(job, shape, &e))?;
        self.execute(&merge.empty).await?;
        Ok(merged)
    }
}
