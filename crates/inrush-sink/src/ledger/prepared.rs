//! Units whose rows are on several servers: the row here decides whether what was prepared there is committed.

use super::{Ledger, RangeDone};
use crate::failure::{Failure, of_statement, server_error};
use inrush_core::{Code, Error, Result};
use serde_json::Value;
use tokio_postgres::Client;
use tokio_postgres::types::ToSql;

/// A unit that is committed, and of which not every node may have been told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PreparedUnit {
    /// What the names of its prepared transactions begin with.
    pub gid: String,
    /// Its load.
    pub load: i64,
    /// Names of the nodes that have rows of it.
    pub nodes: Vec<String>,
    /// Where nodes prepare nothing: what is read again for one that has no mark of it.
    pub ranges: Option<Vec<RangeDone>>,
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
        let insert = format!("INSERT INTO {table} (gid, load_id, nodes, ranges) VALUES ($1, $2, $3, $4)");
        let ranges = unit.ranges.as_ref().and_then(|ranges| serde_json::to_value(ranges).ok());
        let values: [&(dyn ToSql + Sync); 4] = [&unit.gid, &unit.load, &unit.nodes, &ranges];
        client.execute(&insert, &values).await.map_err(|e| of_statement(&e))?;
        if !told.is_empty() {
            let forget = format!("DELETE FROM {table} WHERE gid = ANY($1)");
            client.execute(&forget, &[&told]).await.map_err(|e| of_statement(&e))?;
        }
        Ok(())
    }

    /// Units that are committed and not known to be so everywhere.
    pub async fn decided(&self, client: &Client) -> Result<Vec<PreparedUnit>> {
        let sql =
            format!("SELECT gid, load_id, nodes, ranges FROM {} ORDER BY at, gid", self.table("prepared"));
        let rows = client.query(&sql, &[]).await.map_err(server_error)?;
        rows.iter()
            .map(|row| {
                let ranges = row.get::<_, Option<Value>>(3).map(serde_json::from_value).transpose();
                let ranges = ranges.map_err(|e| {
                    Error::new(
                        Code::Ledger,
                        format!("the ranges of unit {} cannot be read: {e}", row.get::<_, &str>(0)),
                    )
                })?;
                Ok(PreparedUnit { gid: row.get(0), load: row.get(1), nodes: row.get(2), ranges })
            })
            .collect()
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

    /// Marks a unit in the ledger of a node, in the transaction of its rows there, and forgets marks that nobody asks for any
    /// more.
    pub async fn mark(&self, node: &Client, gid: &str, told: &[String]) -> Result<(), Failure> {
        let table = self.table("marks");
        let insert = format!("INSERT INTO {table} (gid) VALUES ($1)");
        node.execute(&insert, &[&gid]).await.map_err(|e| of_statement(&e))?;
        if !told.is_empty() {
            let forget = format!("DELETE FROM {table} WHERE gid = ANY($1)");
            node.execute(&forget, &[&told]).await.map_err(|e| of_statement(&e))?;
        }
        Ok(())
    }

    /// The units whose name begins so that a node has marks of; none if it has no ledger.
    pub async fn marks(&self, node: &Client, prefix: &str) -> Result<Vec<String>> {
        let there = "SELECT pg_catalog.to_regclass($1) IS NOT NULL";
        let table = self.table("marks");
        if !node.query_one(there, &[&table]).await.map_err(server_error)?.get::<_, bool>(0) {
            return Ok(Vec::new());
        }
        let sql = format!("SELECT gid FROM {table} WHERE pg_catalog.starts_with(gid, $1)");
        let rows = node.query(&sql, &[&prefix]).await.map_err(server_error)?;
        Ok(rows.iter().map(|row| row.get(0)).collect())
    }

    /// Whether a node has the rows of a unit, by the mark in its ledger.
    pub async fn is_marked(&self, node: &Client, gid: &str) -> Result<bool> {
        Ok(self.marks(node, gid).await?.iter().any(|mark| mark == gid))
    }

    /// Forgets the marks of units in the ledger of a node.
    pub async fn unmark(&self, node: &Client, gids: &[String]) -> Result<()> {
        if gids.is_empty() {
            return Ok(());
        }
        let sql = format!("DELETE FROM {} WHERE gid = ANY($1)", self.table("marks"));
        node.execute(&sql, &[&gids]).await.map(drop).map_err(server_error)
    }

    /// Its schema.
    pub fn schema(&self) -> &str {
        &self.schema
    }

    /// The epoch of a load, 0 of a stream that lives; `None` if it is neither.
    pub async fn epoch(&self, client: &Client, load: i64) -> Result<Option<i32>> {
        let sql = format!("SELECT epoch FROM {} WHERE id = $1", self.table("loads"));
        match client.query_opt(&sql, &[&load]).await.map_err(server_error)? {
            Some(row) => Ok(Some(row.get(0))),
            None => Ok(self.stream_lives(client, load).await?.then_some(0)),
        }
    }

    /// Raises the epoch of a load that nobody works on: no unit of it can be committed any more. Waits for one that is
    /// being committed.
    pub async fn give_up(&self, client: &Client, load: i64) -> Result<()> {
        let sql = format!("UPDATE {} SET epoch = epoch + 1 WHERE id = $1", self.table("loads"));
        client.execute(&sql, &[&load]).await.map(drop).map_err(server_error)
    }
}
