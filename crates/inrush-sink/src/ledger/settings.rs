//! What `inrush advise --apply` and `inrush tune io --apply` have set on the server, and what to put back.

use super::Ledger;
use crate::failure::server_error;
use inrush_core::Result;
use serde::Serialize;
use tokio_postgres::{Client, GenericClient, Transaction};

/// A setting that was recorded before it was changed, and that has not been taken back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedSetting {
    /// settings.id
    pub id: i64,
    /// The setting.
    pub name: String,
    /// What it was given.
    pub value: String,
    /// What postgresql.auto.conf had before; `None` if nothing.
    pub previous: Option<String>,
    /// When, as text in the session's time zone.
    pub applied_at: String,
}

impl Ledger {
    /// Records a change of a setting, to be done before the change: a crash in between leaves a record of what did not
    /// happen, which does no harm, and never a change without a record.
    ///
    /// The record is on disk when this returns, whatever the role's synchronous_commit: the change itself will be. It
    /// does not wait for standbys, one of which may be what is wrong with the server.
    pub async fn record_setting(
        &self,
        client: &mut Client,
        name: &str,
        value: &str,
        previous: Option<&str>,
    ) -> Result<i64> {
        let tx = client.transaction().await.map_err(server_error)?;
        let id = self.record_setting_in(&tx, name, value, previous).await?;
        tx.commit().await.map_err(server_error)?;
        Ok(id)
    }

    /// The same in a transaction that makes the change as well, where the change is of the kind that a transaction can
    /// make: then there is never one without the other.
    pub async fn record_setting_in(
        &self,
        tx: &Transaction<'_>,
        name: &str,
        value: &str,
        previous: Option<&str>,
    ) -> Result<i64> {
        tx.batch_execute("SET LOCAL synchronous_commit = 'local'").await.map_err(server_error)?;
        let row = tx
            .query_one(
                &format!(
                    "INSERT INTO {}.settings (name, value, previous) VALUES ($1, $2, $3) RETURNING id",
                    self.sql
                ),
                &[&name, &value, &previous],
            )
            .await
            .map_err(server_error)?;
        Ok(row.get(0))
    }

    /// The changes that have not been taken back, newest first.
    pub async fn applied_settings(&self, client: &Client) -> Result<Vec<AppliedSetting>> {
        let rows = client
            .query(
                &format!(
                    "SELECT id, name, value, previous, applied_at::pg_catalog.text FROM {}.settings
                      WHERE undone_at IS NULL ORDER BY id DESC",
                    self.sql
                ),
                &[],
            )
            .await
            .map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|row| AppliedSetting {
                id: row.get(0),
                name: row.get(1),
                value: row.get(2),
                previous: row.get(3),
                applied_at: row.get(4),
            })
            .collect())
    }

    /// Records that a change has been taken back, or that somebody else's has taken its place.
    pub async fn close_setting(&self, client: &impl GenericClient, id: i64) -> Result<()> {
        client
            .execute(
                &format!("UPDATE {}.settings SET undone_at = pg_catalog.now() WHERE id = $1", self.sql),
                &[&id],
            )
            .await
            .map_err(server_error)?;
        Ok(())
    }
}
