//! The ledger: what has been loaded, in the target database, in the same transactions as the rows.
//!
//! # What makes a load exactly once
//!
//! - Every **unit** is one transaction of one connection: it locks its `loads` row FOR SHARE and checks the
//!   epoch, copies its rows, inserts one `units` row per byte range, and commits.
//! - A second run of the same load takes the load over: it ends or waits for the recorded backends, raises
//!   the epoch (which waits for every FOR SHARE lock), and only then reads `units`. A COMMIT that was still
//!   in a dead client's socket has by then either been carried out or can never be.
//! - Resuming sends the complement of the recorded ranges, never chunk numbers: chunk size, number of
//!   connections and version may differ between runs.
//! - Rows of an unlogged table are recorded in an unlogged ledger table: after a crash of the server both are
//!   empty, so the ledger never claims rows that are gone.
//!
//! # Whom it trusts
//!
//! A schema of this name could have been planted by someone else. Before use its owner must be the current
//! role, the owner of the database or a superuser, and its tables must be plain ones of that owner, without
//! triggers, rules and row security. Anything else is refused.

mod admin;
mod levers;
mod prepared;
mod recover;
mod schema;
mod settings;
pub mod stream;
mod unit;
mod writer;

pub use admin::{LoadSummary, UndoOutcome};
pub use levers::{LeverStep, Settled};
pub use prepared::PreparedUnit;
pub use recover::LoadConnection;
pub use settings::AppliedSetting;
pub use unit::{RangeDone, UnitLedger, UnitRecord};

use futures_util::TryStreamExt;
use inrush_core::{Code, Error, Position, Reject, RejectOrigin, Result, Table, quote_ident};
use serde_json::Value;
use tokio_postgres::{Client, Row, Transaction};

use crate::failure::server_error;

/// A ledger that exists, is ours and has the version this program knows.
#[derive(Debug, Clone)]
pub struct Ledger {
    /// Schema name, not quoted.
    schema: String,
    /// Schema name, quoted for SQL.
    sql: String,
}

/// A load as the ledger has it.
#[derive(Debug, Clone)]
pub struct StoredLoad {
    /// loads.id
    pub id: i64,
    /// `--load-id`
    pub name: Option<String>,
    /// Raised each time another run takes the load over.
    pub epoch: i32,
    /// What happened last.
    pub state: LoadState,
    /// OID of the target when the load began.
    pub target: u32,
    /// Storage of the target (and its leaves) when rows were last committed: `oid:filenode`, sorted.
    pub incarnation: Vec<String>,
    /// Identity of each input, in order; their shape belongs to the caller.
    pub inputs: Vec<Value>,
    /// Dialect, columns and so on: what changes the meaning of the inputs.
    pub meaning: Value,
    /// Arguments of the command that began it, without the server's name; empty if it was no command.
    pub command: Vec<String>,
    /// Whether the units are in the unlogged table.
    pub unlogged: bool,
    /// When the load began, as text in the session's time zone.
    pub started_at: String,
    /// When it ended, if it did.
    pub finished_at: Option<String>,
    /// Rows, once it is done.
    pub rows: i64,
    /// Rejects, once it is done.
    pub rejects: i64,
    /// Number of unit rows, once it is done.
    pub units: i64,
    /// Number of unit rows now: none of several means that a crash has reset the unlogged ledger.
    pub units_now: i64,
}

/// State of a load.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LoadState {
    /// Begun and not known to have ended: running, or dead.
    Open,
    /// Every row of every input is in the table or among the rejects.
    Done,
    /// Its rows have been removed again.
    Undone,
}

/// What a new load is recorded with.
#[derive(Debug)]
pub struct NewLoad<'a> {
    /// `--load-id`
    pub name: Option<&'a str>,
    /// Hash of what makes two commands the same load, see `inrush-load`.
    pub key: &'a str,
    /// The target.
    pub table: &'a Table,
    /// Storage of the target now.
    pub incarnation: &'a [String],
    /// Identity of each input.
    pub inputs: &'a [Value],
    /// What changes their meaning.
    pub meaning: &'a Value,
    /// Arguments of the command, without the server's name: no password may get in here.
    pub command: &'a [String],
}

/// The loads of one key, locked against other runs of the same command until the transaction ends.
pub struct Opening<'a> {
    ledger: &'a Ledger,
    tx: Transaction<'a>,
    key: String,
}

impl Ledger {
    /// The schema used unless `--ledger` names another.
    pub const DEFAULT_SCHEMA: &'static str = "inrush_ledger";

    /// Starts opening a load: other runs that open a load of the same name or key wait until this ends.
    pub async fn opening<'a>(
        &'a self,
        client: &'a mut Client,
        name: Option<&str>,
        key: &str,
    ) -> Result<Opening<'a>> {
        let tx = client.transaction().await.map_err(server_error)?;
        // Always the name first, so that no two runs wait for each other; 70 and 71 keep the two apart.
        let locks = [name.map(|name| (name, 70_i64)), Some((key, 71))];
        for (what, seed) in locks.into_iter().flatten() {
            let lock = "SELECT pg_catalog.pg_advisory_xact_lock(pg_catalog.hashtextextended($1, $2))";
            tx.query(lock, &[&what, &seed]).await.map_err(server_error)?;
        }
        Ok(Opening { ledger: self, tx, key: key.to_owned() })
    }

    /// The ledger in this schema, whether or not it is there.
    fn of(schema: &str) -> Ledger {
        Ledger { schema: schema.to_owned(), sql: quote_ident(schema) }
    }

    /// A table of the ledger, as SQL names it.
    pub fn table(&self, name: &str) -> String {
        format!("{}.{name}", self.sql)
    }

    /// The table that holds the units of a load.
    fn units_table(&self, unlogged: bool) -> String {
        self.table(if unlogged { "units_unlogged" } else { "units" })
    }

    /// The table that holds the rejects of a load.
    fn rejects_table(&self, unlogged: bool) -> String {
        self.table(if unlogged { "rejects_unlogged" } else { "rejects" })
    }

    /// Ends the recorded backends of a load that are still there: waits `grace` for them to go by
    /// themselves (a killed client's backends end within milliseconds), then terminates them.
    ///
    /// Afterwards no unit of an earlier run is in flight, unless a backend cannot be seen or terminated by
    /// this role; then raising the epoch waits on its row lock.
    pub async fn end_backends(
        &self,
        client: &Client,
        load: i64,
        grace: std::time::Duration,
        mut notice: impl FnMut(&str),
    ) -> Result<()> {
        let live = format!(
            "SELECT b.pid FROM {}.backends b JOIN pg_catalog.pg_stat_activity a
               ON a.pid = b.pid AND a.backend_start = b.backend_start
              WHERE b.load_id = $1",
            self.sql
        );
        let started = std::time::Instant::now();
        let mut terminated = false;
        loop {
            let pids: Vec<i32> =
                client.query(&live, &[&load]).await.map_err(server_error)?.iter().map(|r| r.get(0)).collect();
            if pids.is_empty() {
                return Ok(());
            }
            if !terminated && started.elapsed() >= grace {
                notice(&format!("ending {} connections of an earlier run of load {load}", pids.len()));
                client
                    .execute(
                        "SELECT pg_catalog.pg_terminate_backend(p) FROM pg_catalog.unnest($1::int[]) p",
                        &[&pids],
                    )
                    .await
                    .map_err(server_error)?;
                terminated = true;
            }
            if started.elapsed() > grace + std::time::Duration::from_secs(30) {
                return Err(Error::new(
                    Code::Ledger,
                    format!("{} connections of an earlier run of load {load} do not end", pids.len()),
                )
                .hint(format!(
                    "End the server processes {} (pg_terminate_backend) and give the command again.",
                    pids.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
                )));
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    /// Records a connection of this run, so that a later run can end it. To be done before its first unit.
    pub async fn register_backend(&self, client: &Client, load: i64, epoch: i32) -> Result<()> {
        let n = client.execute(&self.registration(), &[&load, &epoch]).await.map_err(server_error)?;
        if n == 0 {
            return Err(fenced(load));
        }
        Ok(())
    }

    /// Records the session's server process for load $1 if its epoch is $2.
    fn registration(&self) -> String {
        format!(
            "INSERT INTO {0}.backends (load_id, epoch, pid, backend_start)
             SELECT l.id, l.epoch, a.pid, a.backend_start
               FROM {0}.loads l, pg_catalog.pg_stat_get_activity(pg_catalog.pg_backend_pid()) a
              WHERE l.id = $1 AND l.epoch = $2",
            self.sql
        )
    }

    /// What the units of a load have recorded, ordered by input and first byte.
    pub async fn done_ranges(&self, client: &Client, load: &StoredLoad) -> Result<Vec<RangeDone>> {
        let rows = client
            .query(
                &format!(
                    "SELECT input, first_byte, end_byte, rows, rejects, records, lines FROM {}
                      WHERE load_id = $1 ORDER BY input, first_byte",
                    self.units_table(load.unlogged)
                ),
                &[&load.id],
            )
            .await
            .map_err(server_error)?;
        Ok(rows.iter().map(RangeDone::from_row).collect())
    }

    /// Marks a load done, with its totals, if this run still owns it. Runs in the caller's transaction.
    pub async fn finish(&self, client: &Client, load: &StoredLoad) -> Result<()> {
        let n = client
            .execute(
                &format!(
                    "UPDATE {0}.loads SET state = 'done', finished_at = pg_catalog.now(),
                            rows = coalesce((SELECT sum(rows) FROM {1} WHERE load_id = $1), 0),
                            rejects = coalesce((SELECT sum(rejects) FROM {1} WHERE load_id = $1), 0),
                            units = (SELECT count(*) FROM {1} WHERE load_id = $1)
                      WHERE id = $1 AND epoch = $2",
                    self.sql,
                    self.units_table(load.unlogged)
                ),
                &[&load.id, &load.epoch],
            )
            .await
            .map_err(server_error)?;
        if n == 0 {
            return Err(fenced(load.id));
        }
        client
            .execute(&format!("DELETE FROM {}.backends WHERE load_id = $1", self.sql), &[&load.id])
            .await
            .map_err(server_error)?;
        Ok(())
    }

    /// The rejects of a load, in order of input and byte.
    pub async fn rejects(
        &self,
        client: &Client,
        load: &StoredLoad,
        mut each: impl FnMut(Reject) -> Result<()>,
    ) -> Result<()> {
        let rows = client
            .query_raw(
                &format!(
                    "SELECT input, byte, line, record, column_name, sqlstate, reason, from_server, raw, full_len
                       FROM {} WHERE load_id = $1 ORDER BY input, byte",
                    self.rejects_table(load.unlogged)
                ),
                [&load.id],
            )
            .await
            .map_err(server_error)?;
        let mut rows = std::pin::pin!(rows);
        while let Some(row) = rows.try_next().await.map_err(server_error)? {
            let unsigned = |i: usize| row.get::<_, Option<i64>>(i).and_then(|n| u64::try_from(n).ok());
            let input = u32::try_from(row.get::<_, i32>(0)).unwrap_or_default();
            let source = load.inputs.get(input as usize).and_then(|i| i.get("path")?.as_str());
            each(Reject {
                input,
                position: Position {
                    source: source.unwrap_or_default().to_owned(),
                    byte: unsigned(1),
                    line: unsigned(2),
                    record: unsigned(3),
                    column: row.get(4),
                },
                sqlstate: row.get(5),
                reason: row.get(6),
                origin: if row.get(7) { RejectOrigin::Server } else { RejectOrigin::Client },
                raw: row.get(8),
                full_len: unsigned(9),
            })?;
        }
        Ok(())
    }
}

impl Opening<'_> {
    /// The latest load of this name, else of this key, whatever its state.
    pub async fn find(&self, name: Option<&str>) -> Result<Option<StoredLoad>> {
        let row = self
            .tx
            .query_opt(
                &format!(
                    "{} WHERE CASE WHEN $1::text IS NULL THEN key = $2 AND name IS NULL ELSE name = $1 END
                      ORDER BY id DESC LIMIT 1",
                    self.ledger.select_load()
                ),
                &[&name, &self.key],
            )
            .await
            .map_err(server_error)?;
        row.as_ref().map(StoredLoad::from_row).transpose()
    }

    /// Records a new load in state open, with epoch 1. An older load of the same name loses its name to it;
    /// the open load `given_up` is fenced, so that whoever still runs it cannot go on.
    pub async fn create(self, new: &NewLoad<'_>, given_up: Option<i64>) -> Result<StoredLoad> {
        if let Some(given_up) = given_up {
            self.tx
                .execute(
                    &format!("UPDATE {}.loads SET epoch = epoch + 1 WHERE id = $1", self.ledger.sql),
                    &[&given_up],
                )
                .await
                .map_err(server_error)?;
        }
        if let Some(name) = new.name {
            self.tx
                .execute(
                    &format!("UPDATE {}.loads SET name = NULL WHERE name = $1", self.ledger.sql),
                    &[&name],
                )
                .await
                .map_err(server_error)?;
        }
        let inputs = Value::Array(new.inputs.to_vec());
        let row = self
            .tx
            .query_one(
                &format!(
                    "INSERT INTO {}.loads (name, key, target, target_name, incarnation, inputs, meaning, unlogged,
                                           command)
                     VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id",
                    self.ledger.sql
                ),
                &[
                    &new.name,
                    &new.key,
                    &new.table.oid,
                    &new.table.qualified(),
                    &new.incarnation,
                    &inputs,
                    new.meaning,
                    &new.table.unlogged,
                    &new.command,
                ],
            )
            .await
            .map_err(server_error)?;
        let id: i64 = row.get(0);
        self.reload(id).await
    }

    /// Fences an open load, which waits for every unit still in flight, and tells whether any of its units has
    /// been recorded.
    pub async fn has_units(&self, load: &StoredLoad) -> Result<bool> {
        let ledger = self.ledger;
        self.tx
            .execute(&format!("UPDATE {}.loads SET epoch = epoch + 1 WHERE id = $1", ledger.sql), &[&load.id])
            .await
            .map_err(server_error)?;
        // A statement of its own: its snapshot has what was in flight.
        let units = ledger.units_table(load.unlogged);
        let row = self
            .tx
            .query_one(&format!("SELECT EXISTS (SELECT 1 FROM {units} WHERE load_id = $1)"), &[&load.id])
            .await
            .map_err(server_error)?;
        Ok(row.get(0))
    }

    /// Takes an open load over: raises its epoch, which waits for every unit still in flight.
    /// `table`, OID and storage, replaces the recorded one where the user said `--resume`: it may be another of the same name.
    pub async fn take_over(self, load: i64, table: Option<(u32, &[String])>) -> Result<StoredLoad> {
        let (target, incarnation) = table.unzip();
        self.tx
            .execute(
                &format!(
                    "UPDATE {}.loads SET epoch = epoch + 1, state = 'open', finished_at = NULL,
                            incarnation = coalesce($2, incarnation), target = coalesce($3, target)
                      WHERE id = $1",
                    self.ledger.sql
                ),
                &[&load, &incarnation, &target],
            )
            .await
            .map_err(server_error)?;
        self.reload(load).await
    }

    async fn reload(self, id: i64) -> Result<StoredLoad> {
        let row = self
            .tx
            .query_one(&format!("{} WHERE id = $1", self.ledger.select_load()), &[&id])
            .await
            .map_err(server_error)?;
        let load = StoredLoad::from_row(&row)?;
        self.tx.commit().await.map_err(server_error)?;
        Ok(load)
    }
}

impl Ledger {
    fn select_load(&self) -> String {
        format!(
            "SELECT id, name, epoch, state, target, incarnation, inputs, meaning, unlogged,
                    started_at::text, finished_at::text, rows, units,
                    CASE WHEN unlogged THEN (SELECT count(*) FROM {0}.units_unlogged u WHERE u.load_id = l.id)
                         ELSE units END, command, rejects
               FROM {0}.loads l",
            self.sql
        )
    }
}

impl StoredLoad {
    fn from_row(row: &Row) -> Result<StoredLoad> {
        let state = match row.get::<_, &str>(3) {
            "open" => LoadState::Open,
            "done" => LoadState::Done,
            "undone" => LoadState::Undone,
            other => return Err(Error::new(Code::Ledger, format!("unknown state {other:?} in the ledger"))),
        };
        let inputs = match row.get::<_, Value>(6) {
            Value::Array(inputs) => inputs,
            _ => return Err(Error::new(Code::Ledger, "the inputs of a load in the ledger are not a list")),
        };
        Ok(StoredLoad {
            id: row.get(0),
            name: row.get(1),
            epoch: row.get(2),
            state,
            target: row.get(4),
            incarnation: row.get(5),
            inputs,
            meaning: row.get(7),
            unlogged: row.get(8),
            started_at: row.get(9),
            finished_at: row.get(10),
            rows: row.get(11),
            units: row.get(12),
            units_now: row.get(13),
            command: row.get(14),
            rejects: row.get(15),
        })
    }
}

/// The error of a run whose load another run has taken over.
fn fenced(load: i64) -> Error {
    Error::new(Code::Fenced, format!("another run has taken load {load} over"))
        .hint("If it is the same command, it loads what is left, and nothing has to be done here.")
}
