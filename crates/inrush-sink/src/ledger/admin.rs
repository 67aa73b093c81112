//! `inrush loads`: list, show, undo, prune.

use super::{Ledger, LoadState, StoredLoad, unit::STORAGE};
use crate::catalog::citus;
use crate::failure::server_error;
use inrush_core::{Code, Error, Result};
use serde::Serialize;
use tokio_postgres::Client;

/// One line of `inrush loads list`.
#[derive(Debug, Clone, Serialize)]
pub struct LoadSummary {
    /// loads.id
    pub id: i64,
    /// `--load-id`
    pub name: Option<String>,
    /// The target as it was named.
    pub table: String,
    /// `open`, `done` or `undone`
    pub state: String,
    /// Begun at, as text.
    pub started_at: String,
    /// Ended at, as text.
    pub finished_at: Option<String>,
    /// Rows committed so far.
    pub rows: i64,
    /// Rejects recorded so far.
    pub rejects: i64,
    /// Paths of the inputs.
    pub inputs: Vec<String>,
    /// Server processes of the load that are alive.
    pub running: i64,
}

/// What `inrush loads undo` did.
#[derive(Debug, Clone, Serialize)]
pub struct UndoOutcome {
    /// Rows removed.
    pub removed: u64,
    /// Rows the ledger had recorded.
    pub recorded: u64,
}

impl Ledger {
    /// Every load, newest first, at most `limit`.
    pub async fn list(&self, client: &Client, limit: i64) -> Result<Vec<LoadSummary>> {
        let rows = client
            .query(
                &format!(
                    "SELECT l.id, l.name, l.target_name, l.state, l.started_at::text, l.finished_at::text,
                            CASE WHEN l.state = 'open' THEN coalesce(u.rows, 0)::bigint ELSE l.rows END,
                            CASE WHEN l.state = 'open' THEN coalesce(u.rejects, 0)::bigint ELSE l.rejects END,
                            ARRAY(SELECT i ->> 'path' FROM pg_catalog.jsonb_array_elements(l.inputs) i),
                            (SELECT count(*) FROM {0}.backends b JOIN pg_catalog.pg_stat_activity a
                                 ON a.pid = b.pid AND a.backend_start = b.backend_start
                              WHERE b.load_id = l.id AND b.epoch = l.epoch)
                       FROM {0}.loads l
                       LEFT JOIN LATERAL (
                            SELECT sum(rows) AS rows, sum(rejects) AS rejects
                              FROM (SELECT rows, rejects FROM {0}.units WHERE load_id = l.id
                                    UNION ALL
                                    SELECT rows, rejects FROM {0}.units_unlogged WHERE load_id = l.id) x) u ON true
                      ORDER BY l.id DESC LIMIT $1",
                    self.sql
                ),
                &[&limit],
            )
            .await
            .map_err(server_error)?;
        Ok(rows
            .iter()
            .map(|r| LoadSummary {
                id: r.get(0),
                name: r.get(1),
                table: r.get(2),
                state: r.get(3),
                started_at: r.get(4),
                finished_at: r.get(5),
                rows: r.get(6),
                rejects: r.get(7),
                inputs: r.get::<_, Vec<Option<String>>>(8).into_iter().flatten().collect(),
                running: r.get(9),
            })
            .collect())
    }

    /// One load by number or name.
    pub async fn load(&self, client: &Client, id_or_name: &str) -> Result<StoredLoad> {
        let row = client
            .query_opt(
                &format!(
                    "{} WHERE id::text = $1 OR name = $1 ORDER BY name = $1 DESC LIMIT 1",
                    self.select_load()
                ),
                &[&id_or_name],
            )
            .await
            .map_err(server_error)?;
        match row {
            Some(row) => StoredLoad::from_row(&row),
            None => Err(Error::new(Code::Ledger, format!("there is no load {id_or_name:?} in {}", self.sql))
                .hint("`inrush loads list` shows them.")),
        }
    }

    /// Removes exactly the rows of a load, by the transactions that stored them, and forgets its units.
    ///
    /// Refused where it cannot be exact: the table has been rewritten since, or its rows may have been frozen
    /// (a transaction older than relfrozenxid), Citus has the rows, or the number of rows found is not the number
    /// recorded (some have been updated or deleted since) unless `partial` says to remove what is still as loaded, if
    /// anything is.
    pub async fn undo(&self, client: &mut Client, load: &StoredLoad, partial: bool) -> Result<UndoOutcome> {
        if load.state == LoadState::Undone {
            return Err(Error::new(Code::Ledger, format!("load {} has been undone already", load.id)));
        }
        let sql = format!(
            "SELECT EXISTS (SELECT 1 FROM {}.levers WHERE load_id = $1 AND lever = 'on-conflict'
                               AND detail ->> 'action' = 'update')",
            self.sql
        );
        if client.query_one(&sql, &[&load.id]).await.map_err(server_error)?.get(0) {
            return Err(Error::new(
                Code::Ledger,
                format!("load {} may have updated rows that were there before", load.id),
            )
            .hint("With --on-conflict update rows cannot be told from those they replaced; nothing was removed."));
        }
        self.end_backends(client, load.id, std::time::Duration::from_secs(2), |_| ()).await?;
        let units = self.units_table(load.unlogged);
        let rejects = self.rejects_table(load.unlogged);
        let tx = client.transaction().await.map_err(server_error)?;
        // Raising the epoch waits for units in flight and fences whoever still runs the load.
        tx.execute(
            &format!(
                "UPDATE {}.loads SET epoch = epoch + 1, state = 'undone', finished_at = pg_catalog.now() WHERE id = $1",
                self.sql
            ),
            &[&load.id],
        )
        .await
        .map_err(server_error)?;
        let name = tx
            .query_opt(
                "SELECT $1::oid::regclass::text FROM pg_catalog.pg_class WHERE oid = $1",
                &[&load.target],
            )
            .await
            .map_err(server_error)?;
        let Some(name) = name.map(|r| r.get::<_, String>(0)) else {
            return Err(Error::new(Code::Incarnation, format!("the table of load {} is gone", load.id))
                .hint("Its rows went with it; `inrush loads prune` forgets the load."));
        };
        let elsewhere = "SELECT EXISTS (SELECT 1 FROM pg_catalog.pg_partition_tree($1::oid::regclass) t
                           JOIN pg_catalog.pg_class c ON c.oid = t.relid WHERE c.relkind = 'f')";
        let elsewhere: bool = tx.query_one(elsewhere, &[&load.target]).await.map_err(server_error)?.get(0);
        if elsewhere || citus::is_sharded(&tx, load.target).await? {
            let what = if elsewhere { "partitions" } else { "shards" };
            return Err(Error::new(Code::Ledger, format!("the rows of load {} are in {what} of {name}", load.id)).hint(
                "The transactions that stored them there are not those of this server: its rows cannot be told from \
                 others; nothing was removed.",
            ));
        }
        tx.batch_execute(&format!("LOCK TABLE {name} IN SHARE ROW EXCLUSIVE MODE"))
            .await
            .map_err(server_error)?;
        let now: Vec<String> = tx.query_one(STORAGE, &[&load.target]).await.map_err(server_error)?.get(0);
        if load.incarnation.is_empty() || load.incarnation.iter().any(|s| now.binary_search(s).is_err()) {
            return Err(Error::new(
                Code::Incarnation,
                format!("{name} has been truncated or rewritten since load {}", load.id),
            )
            .hint("Its rows can no longer be told from others; nothing was removed."));
        }
        let frozen = tx
            .query_one(
                &format!(
                    "SELECT count(*) FROM (SELECT DISTINCT pg_catalog.unnest(xids) AS xid FROM {units} WHERE load_id = $1) u
                      WHERE pg_catalog.pg_snapshot_xmax(pg_catalog.pg_current_snapshot())::text::bigint - u.xid
                            >= (SELECT min(pg_catalog.age(c.relfrozenxid))
                                  FROM pg_catalog.unnest($2::text[]) s
                                  JOIN pg_catalog.pg_class c ON c.oid = pg_catalog.split_part(s, ':', 1)::oid)",
                ),
                &[&load.id, &load.incarnation],
            )
            .await
            .map_err(server_error)?
            .get::<_, i64>(0);
        if frozen > 0 {
            return Err(Error::new(
                Code::Ledger,
                format!("rows of load {} have been frozen by VACUUM since", load.id),
            )
            .hint("They can no longer be told from others by their transaction; nothing was removed."));
        }
        let recorded: i64 = tx
            .query_one(
                &format!("SELECT coalesce(sum(rows), 0)::bigint FROM {units} WHERE load_id = $1"),
                &[&load.id],
            )
            .await
            .map_err(server_error)?
            .get(0);
        let removed = tx
            .execute(
                &format!(
                    "DELETE FROM {name} WHERE xmin IN (
                        SELECT DISTINCT (x % 4294967296)::text::xid
                          FROM {units} u, pg_catalog.unnest(u.xids) x WHERE u.load_id = $1)"
                ),
                &[&load.id],
            )
            .await
            .map_err(server_error)?;
        let recorded = u64::try_from(recorded).unwrap_or_default();
        if removed != recorded && !partial {
            return Err(Error::new(
                Code::Ledger,
                format!("{removed} rows of load {} are as they were loaded, {recorded} were recorded", load.id),
            )
            .hint("The others have been updated, deleted or left out by a trigger since. `--partial` removes those that are as loaded; nothing was removed."));
        }
        if removed == 0 && recorded > 0 {
            return Err(Error::new(
                Code::Ledger,
                format!("no row of load {} is as it was loaded, {recorded} were recorded", load.id),
            )
            .hint("They have been updated, deleted, compressed or left out by a trigger since; nothing was removed."));
        }
        for table in [&units, &rejects] {
            tx.execute(&format!("DELETE FROM {table} WHERE load_id = $1"), &[&load.id])
                .await
                .map_err(server_error)?;
        }
        tx.execute(&format!("DELETE FROM {}.backends WHERE load_id = $1", self.sql), &[&load.id])
            .await
            .map_err(server_error)?;
        tx.commit().await.map_err(server_error)?;
        Ok(UndoOutcome { removed, recorded })
    }

    /// Forgets loads that ended more than `days` ago, but none that has changed its table and not taken that back. Their rows stay; the same command would load them again.
    pub async fn prune(&self, client: &mut Client, days: i32) -> Result<u64> {
        let tx = client.transaction().await.map_err(server_error)?;
        let gone = tx
            .query(
                &format!(
                    "DELETE FROM {0}.loads WHERE state <> 'open'
                        AND finished_at < pg_catalog.now() - pg_catalog.make_interval(days => $1)
                        AND id NOT IN (SELECT load_id FROM {0}.levers WHERE state = 'applied') RETURNING id",
                    self.sql
                ),
                &[&days],
            )
            .await
            .map_err(server_error)?;
        let ids: Vec<i64> = gone.iter().map(|r| r.get(0)).collect();
        for table in ["units", "units_unlogged", "rejects", "rejects_unlogged", "backends", "levers"] {
            tx.execute(&format!("DELETE FROM {}.{table} WHERE load_id = ANY($1)", self.sql), &[&ids])
                .await
                .map_err(server_error)?;
        }
        tx.commit().await.map_err(server_error)?;
        Ok(ids.len() as u64)
    }
}
