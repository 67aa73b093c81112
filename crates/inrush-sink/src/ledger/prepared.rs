//! Units whose rows are on several servers: the row here decides whether what was prepared there is committed.

use super::Ledger;
use crate::failure::{Failure, of_statement, server_error};
use inrush_core::Result;
use tokio_postgres::Client;

/// A unit that is committed, and of which not every node may have been told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedUnit {
    /// What the names of its prepared transactions begin with.
    pub gid: String,
    /// Its load.
    pub load: i64,
    /// Names of the nodes that have rows of it.
    pub nodes: Vec<String>,
}

impl Ledger {
    /// What tells the prepared transactions of this ledger from those of others. The database is part of it: one that was
    /// copied has a copy of the ledger.
    pub async fn origin(&self, client: &Client) -> Result<String> {
        let sql = format!(
            "SELECT o.id || 'd' || d.oid FROM {} o, pg_catalog.pg_database d
              WHERE d.datname = pg_catalog.current_database()",
            self.table("origin")
        );
        Ok(client.query_one(&sql, &[]).await.map_err(server_error)?.get(0))
    }

    /// Records in the unit's own transaction that what was prepared under this name is committed, and forgets older ones
    /// that every node has been told of.
    pub async fn decide(&self, client: &Client, unit: &PreparedUnit, told: &[String]) -> Result<(), Failure> {
        let table = self.table("prepared");
        let insert = format!("INSERT INTO {table} (gid, load_id, nodes) VALUES ($1, $2, $3)");
        client.execute(&insert, &[&unit.gid, &unit.load, &unit.nodes]).await.map_err(|e| of_statement(&e))?;
        if !told.is_empty() {
            let forget = format!("DELETE FROM {table} WHERE gid = ANY($1)");
            client.execute(&forget, &[&told]).await.map_err(|e| of_statement(&e))?;
        }
        Ok(())
    }

    /// Units that are committed and not known to be so everywhere.
    pub async fn decided(&self, client: &Client) -> Result<Vec<PreparedUnit>> {
        let sql = format!("SELECT gid, load_id, nodes FROM {} ORDER BY at, gid", self.table("prepared"));
        let rows = client.query(&sql, &[]).await.map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|row| PreparedUnit { gid: row.get(0), load: row.get(1), nodes: row.get(2) })
            .collect())
    }

    /// Whether a unit is committed.
    pub async fn is_decided(&self, client: &Client, gid: &str) -> Result<bool> {
        let sql = format!("SELECT EXISTS (SELECT 1 FROM {} WHERE gid = $1)", self.table("prepared"));
        Ok(client.query_one(&sql, &[&gid]).await.map_err(server_error)?.get(0))
    }

    /// Forgets units that every node has been told of.
    pub async fn forget(&self, client: &Client, gids: &[String]) -> Result<()> {
        let sql = format!("DELETE FROM {} WHERE gid = ANY($1)", self.table("prepared"));
        client.execute(&sql, &[&gids]).await.map(drop).map_err(server_error)
    }

    /// The epoch of a load; `None` if the ledger does not have it.
    pub async fn epoch(&self, client: &Client, load: i64) -> Result<Option<i32>> {
        let sql = format!("SELECT epoch FROM {} WHERE id = $1", self.table("loads"));
        Ok(client.query_opt(&sql, &[&load]).await.map_err(server_error)?.map(|row| row.get(0)))
    }

    /// Raises the epoch of a load that nobody works on: no unit of it can be committed any more. Waits for one that is
    /// being committed.
    pub async fn give_up(&self, client: &Client, load: i64) -> Result<()> {
        let sql = format!("UPDATE {} SET epoch = epoch + 1 WHERE id = $1", self.table("loads"));
        client.execute(&sql, &[&load]).await.map(drop).map_err(server_error)
    }
}
