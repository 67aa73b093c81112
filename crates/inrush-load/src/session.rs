//! One connection of a lane, with what has been prepared on it.

use crate::job::Job;
use crate::levers::conflict::Statements;
use crate::plan::WirePath;
use inrush_core::{Code, Error, Result};
use inrush_sink::catalog::direct::LOAD_LIBRARY;
use inrush_sink::connect::{Connected, connect};
use inrush_sink::conninfo::ConnInfo;
use inrush_sink::copy::{CopyStream, WireFormat, statement};
use inrush_sink::failure::{Failure, of_copy, of_direct_copy, of_statement, server_error};
use inrush_sink::ledger::UnitLedger;
use std::collections::HashMap;
use std::time::{Duration, Instant};
use tokio_postgres::{Client, Statement};

/// Seconds to wait for the server process of a lost connection to end before it is terminated.
const GONE_GRACE: Duration = Duration::from_secs(5);

/// Process id and start time of a server process: a process id alone may be reused.
pub(crate) type Backend = (i32, String);

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
            commit_for_good(&connected.client).await?;
        }
        // What pg_stat_activity is made of: the view costs a new session some milliseconds.
        let own = "SELECT pid, backend_start::text
                     FROM pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid())";
        let row = connected.client.query_one(own, &[]).await.map_err(server_error)?;
        let backend = (row.get(0), row.get(1));
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

/// Has a session's commits outlast a crash of its server. What is decided here others are told of: rows and ledger of one
/// server may be lost together, but not those of one when another has the rest.
pub(crate) async fn commit_for_good(client: &Client) -> Result<()> {
    let set = "SELECT pg_catalog.set_config('synchronous_commit', 'local', false)
                WHERE pg_catalog.current_setting('synchronous_commit') = 'off'";
    client.query(set, &[]).await.map(drop).map_err(server_error)
}

/// Waits until a server process has ended, and ends it if it does not by itself: only then is it known
/// whether a COMMIT it had received took place.
pub(crate) async fn wait_until_gone(client: &Client, backend: &Backend) -> Result<()> {
    let started = Instant::now();
    let mut terminated = false;
    loop {
        let there = client
            .query_opt(
                "SELECT 1 FROM pg_catalog.pg_stat_activity WHERE pid = $1 AND backend_start::text = $2",
                &[&backend.0, &backend.1],
            )
            .await
            .map_err(server_error)?;
        if there.is_none() {
            return Ok(());
        }
        if !terminated && started.elapsed() > GONE_GRACE {
            client
                .execute("SELECT pg_catalog.pg_terminate_backend($1)", &[&backend.0])
                .await
                .map_err(server_error)?;
            terminated = true;
        }
        if started.elapsed() > GONE_GRACE * 6 {
            return Err(Error::new(
                Code::ConnectionLost,
                format!("server process {} of a lost connection does not end", backend.0),
            ));
        }
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}
