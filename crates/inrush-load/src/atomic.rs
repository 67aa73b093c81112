//! A load that is one transaction: how it begins and ends.

use crate::lane::{Lane, interrupted};
use crate::levers::{self, unique::Unmade};
use crate::progress::Stop;
use inrush_core::Result;
use inrush_sink::failure::{Failure, server_error};
use std::sync::atomic::Ordering::Relaxed;

impl Lane<'_> {
    /// Begins it: nobody else works on the load, and the table is as it is to be.
    pub(crate) async fn begin_atomic(&mut self) -> Result<()> {
        self.session.execute("BEGIN").await.map_err(Failure::into_error)?;
        if let Some(ledger) = &self.session.ledger {
            ledger.fence(&self.session.connected.client).await.map_err(Failure::into_error)?;
        }
        if self.job.plan.truncate {
            self.truncate().await?;
        }
        let plan = &self.job.plan;
        levers::unique::drop_all(&self.session.connected.client, &plan.table, &plan.forbidding).await
    }

    /// Empties the table in the load's one transaction.
    async fn truncate(&mut self) -> Result<()> {
        let client = &self.session.connected.client;
        let table = &self.job.plan.table;
        if let (Some((ledger, load)), Some(unit)) = (&self.job.ledger, &mut self.session.ledger) {
            let storage = levers::truncate_in_transaction(client, ledger, load, table).await?;
            unit.expect_storage(storage);
            return Ok(());
        }
        client.batch_execute(&levers::truncate_statement(table)).await.map_err(server_error)
    }

    /// Ends an atomic load: the percentage of rejects is judged, the load recorded as done, all committed.
    pub async fn finish_atomic(&mut self) -> Result<()> {
        if self.job.progress.stopping() != Stop::No {
            return Err(interrupted());
        }
        self.job.rejects.judge(self.job.progress.records.load(Relaxed))?;
        let plan = &self.job.plan;
        let client = &self.session.connected.client;
        match levers::unique::make_all(client, &plan.table, &plan.forbidding).await {
            Ok(()) => {}
            Err(Unmade::Duplicates(error)) => {
                self.job.duplicates.store(true, Relaxed);
                return Err(error);
            }
            Err(Unmade::Failed(error)) => return Err(error),
        }
        if let Some((ledger, load)) = &self.job.ledger {
            ledger.finish(&self.session.connected.client, load).await?;
        }
        self.session.execute("COMMIT").await.map_err(Failure::into_error)
    }
}
