//! What loads have changed about their tables, so that it can be taken back whatever dies.
//!
//! A change and its row in `levers` are one transaction, and so are taking it back and marking the row: at any moment
//! the rows say exactly what differs from how the table was.

use super::{Ledger, StoredLoad, fenced, unit::STORAGE};
use crate::failure::server_error;
use inrush_core::Result;
use serde_json::Value;
use tokio_postgres::{Client, GenericClient};

/// A change that a load has made.
#[derive(Debug, Clone, PartialEq)]
pub struct LeverStep {
    /// Number within the load, in the order of the changes.
    pub step: i32,
    /// Name of the lever, as on the command line: `defer-indexes`.
    pub lever: String,
    /// OID of the table.
    pub target: u32,
    /// What is needed to take it back; its shape belongs to the lever.
    pub detail: Value,
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Settled {
    /// Taken back.
    Undone,
    /// It stays: it is what the user asked for.
    Kept,
}

impl Ledger {
    /// Fails if another run has taken the load over; it cannot while the transaction is open.
    pub async fn fence_load(&self, tx: &impl GenericClient, load: &StoredLoad) -> Result<()> {
        let sql = format!("SELECT 1 FROM {}.loads WHERE id = $1 AND epoch = $2 FOR SHARE", self.sql);
        match tx.query_opt(&sql, &[&load.id, &load.epoch]).await.map_err(server_error)? {
            Some(_) => Ok(()),
            None => Err(fenced(load.id)),
        }
    }

    /// Records a change in the transaction that makes it: one to be taken back, or one that stays from the start.
    pub async fn record_lever(
        &self,
        tx: &impl GenericClient,
        load: i64,
        lever: &str,
        target: u32,
        detail: &Value,
        stays: bool,
    ) -> Result<()> {
        let sql = format!(
            "INSERT INTO {0}.levers (load_id, step, lever, target, detail, state)
             SELECT $1, coalesce((SELECT max(step) FROM {0}.levers WHERE load_id = $1), 0) + 1, $2, $3, $4,
                    CASE WHEN $5 THEN 'kept' ELSE 'applied' END",
            self.sql
        );
        tx.execute(&sql, &[&load, &lever, &target, detail, &stays]).await.map_err(server_error)?;
        Ok(())
    }

    /// The changes of a load that have neither been taken back nor are to stay, in the order they were made.
    pub async fn pending_levers(&self, client: &Client, load: i64) -> Result<Vec<LeverStep>> {
        let sql = format!(
            "SELECT step, lever, target, detail FROM {}.levers WHERE load_id = $1 AND state = 'applied' ORDER BY step",
            self.sql
        );
        let rows = client.query(&sql, &[&load]).await.map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|row| LeverStep {
                step: row.get(0),
                lever: row.get(1),
                target: row.get(2),
                detail: row.get(3),
            })
            .collect())
    }

    /// Whether a load has pulled a lever, whatever became of it.
    pub async fn has_lever(&self, client: &Client, load: i64, lever: &str) -> Result<bool> {
        let sql =
            format!("SELECT EXISTS (SELECT 1 FROM {}.levers WHERE load_id = $1 AND lever = $2)", self.sql);
        Ok(client.query_one(&sql, &[&load, &lever]).await.map_err(server_error)?.get(0))
    }

    /// Another load that has pulled this lever on the same table and not taken it back.
    pub async fn lever_of_another(
        &self,
        tx: &impl GenericClient,
        load: i64,
        lever: &str,
        target: u32,
    ) -> Result<Option<i64>> {
        let sql = format!(
            "SELECT load_id FROM {}.levers WHERE load_id <> $1 AND lever = $2 AND target = $3 AND state = 'applied' LIMIT 1",
            self.sql
        );
        let row = tx.query_opt(&sql, &[&load, &lever, &target]).await.map_err(server_error)?;
        Ok(row.map(|row| row.get(0)))
    }

    /// Notes how far a change has been taken back.
    pub async fn amend_lever(
        &self,
        tx: &impl GenericClient,
        load: i64,
        step: i32,
        detail: &Value,
    ) -> Result<()> {
        let sql = format!("UPDATE {}.levers SET detail = $3 WHERE load_id = $1 AND step = $2", self.sql);
        tx.execute(&sql, &[&load, &step, detail]).await.map_err(server_error)?;
        Ok(())
    }

    /// Marks a change in the transaction that takes it back. `false` if somebody else has done so: then the caller
    /// must not do it again. Two that do it at once wait for each other here.
    pub async fn settle_lever(
        &self,
        tx: &impl GenericClient,
        load: i64,
        step: i32,
        settled: Settled,
    ) -> Result<bool> {
        let state = match settled {
            Settled::Undone => "undone",
            Settled::Kept => "kept",
        };
        let sql = format!(
            "UPDATE {}.levers SET state = $3, undone_at = pg_catalog.now()
              WHERE load_id = $1 AND step = $2 AND state = 'applied'",
            self.sql
        );
        Ok(tx.execute(&sql, &[&load, &step, &state]).await.map_err(server_error)? > 0)
    }

    /// Loads that have begun, have not ended and have changes to take back.
    pub async fn loads_with_levers(&self, client: &Client) -> Result<Vec<i64>> {
        let sql =
            format!("SELECT DISTINCT load_id FROM {}.levers WHERE state = 'applied' ORDER BY 1", self.sql);
        let rows = client.query(&sql, &[]).await.map_err(server_error)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Other loads that have changed this table and not taken it back.
    pub async fn others_with_levers(&self, client: &Client, load: &StoredLoad) -> Result<Vec<i64>> {
        let sql = format!(
            "SELECT DISTINCT load_id FROM {}.levers
              WHERE state = 'applied' AND target = $1 AND load_id <> $2 ORDER BY 1",
            self.sql
        );
        let rows = client.query(&sql, &[&load.target, &load.id]).await.map_err(server_error)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// The table is about to be truncated for a load, in this transaction: the entries of its earlier loads go, and
    /// whoever still loads into it is fenced, which waits for units in flight. To be done before the table is locked:
    /// those units hold their load and then ask for the table.
    pub async fn forget_others(&self, tx: &impl GenericClient, load: &StoredLoad) -> Result<()> {
        let sql = format!(
            "UPDATE {}.loads SET state = 'undone', epoch = epoch + 1,
                    finished_at = coalesce(finished_at, pg_catalog.now())
              WHERE target = $1 AND id <> $2 AND state <> 'undone'",
            self.sql
        );
        tx.execute(&sql, &[&load.target, &load.id]).await.map_err(server_error)?;
        for suffix in ["", "_unlogged"] {
            for table in ["units", "rejects"] {
                let sql = format!(
                    "DELETE FROM {0}.{table}{suffix} WHERE load_id IN
                            (SELECT id FROM {0}.loads WHERE target = $1 AND id <> $2)",
                    self.sql
                );
                tx.execute(&sql, &[&load.target, &load.id]).await.map_err(server_error)?;
            }
        }
        Ok(())
    }

    /// A load that has no units yet goes on with the table as it is in this transaction. Gives its storage.
    pub async fn rebase(
        &self,
        tx: &impl GenericClient,
        load: &StoredLoad,
        unlogged: bool,
    ) -> Result<Vec<String>> {
        let storage: Vec<String> = tx.query_one(STORAGE, &[&load.target]).await.map_err(server_error)?.get(0);
        let sql = format!("UPDATE {}.loads SET incarnation = $2, unlogged = $3 WHERE id = $1", self.sql);
        tx.execute(&sql, &[&load.id, &storage, &unlogged]).await.map_err(server_error)?;
        Ok(storage)
    }

    /// The table has just been made logged, in this transaction: what is recorded of its loads is logged from now on,
    /// too. The rows have been written again, so that no load's rows can be told by their transactions any more: the
    /// transactions are forgotten, and undo says so.
    pub async fn now_logged(&self, tx: &impl GenericClient, target: u32) -> Result<()> {
        for table in ["units", "rejects"] {
            let sql = format!(
                "WITH moved AS (DELETE FROM {0}.{table}_unlogged WHERE load_id IN
                                       (SELECT id FROM {0}.loads WHERE target = $1) RETURNING *)
                 INSERT INTO {0}.{table} SELECT * FROM moved",
                self.sql
            );
            tx.execute(&sql, &[&target]).await.map_err(server_error)?;
        }
        let storage: Vec<String> = tx.query_one(STORAGE, &[&target]).await.map_err(server_error)?.get(0);
        let sql = format!(
            "UPDATE {}.loads SET unlogged = false, incarnation = $2 WHERE target = $1 AND state <> 'undone'",
            self.sql
        );
        tx.execute(&sql, &[&target, &storage]).await.map_err(server_error)?;
        Ok(())
    }
}
