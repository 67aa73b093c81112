//! What one lane does with the ledger: begin a unit, record it.

use super::{Ledger, StoredLoad, fenced};
use crate::failure::{Failure, of_statement};
use inrush_core::{Reject, RejectOrigin};
use serde::{Deserialize, Serialize};
use tokio_postgres::{Client, Row, Statement};

/// A byte range of an input that has been loaded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RangeDone {
    /// Input, from 0.
    pub input: u32,
    /// First byte.
    pub start: u64,
    /// One past the last byte.
    pub end: u64,
    /// Rows stored.
    pub rows: u64,
    /// Rows refused.
    pub rejects: u64,
    /// Records in the range.
    pub records: u64,
    /// Physical lines in the range.
    pub lines: u64,
}

impl RangeDone {
    // The ledger's numbers come from u64s of ours that a file can hold; negative ones would be someone's edit.
    #[allow(clippy::cast_sign_loss)]
    pub(super) fn from_row(row: &Row) -> RangeDone {
        let n = |i: usize| row.get::<_, i64>(i).max(0) as u64;
        RangeDone {
            input: row.get::<_, i32>(0).max(0) as u32,
            start: n(1),
            end: n(2),
            rows: n(3),
            rejects: n(4),
            records: n(5),
            lines: n(6),
        }
    }
}

/// What a unit is about to commit.
#[derive(Debug, Default)]
pub struct UnitRecord {
    /// Ranges, adjacent ones coalesced.
    pub ranges: Vec<RangeDone>,
    /// Refused rows.
    pub rejects: Vec<Reject>,
    /// Ids of subtransactions that stored rows and have ended (see [`UnitLedger::transaction_ids`]).
    pub xids: Vec<i64>,
}

impl UnitRecord {
    /// Adds a range and coalesces it with a neighbour.
    pub fn add(&mut self, range: RangeDone) {
        match self
            .ranges
            .iter_mut()
            .find(|r| r.input == range.input && (r.end == range.start || range.end == r.start))
        {
            Some(r) => {
                r.start = r.start.min(range.start);
                r.end = r.end.max(range.end);
                r.rows += range.rows;
                r.rejects += range.rejects;
                r.records += range.records;
                r.lines += range.lines;
            }
            None => self.ranges.push(range),
        }
    }
}

/// What one lane needs of the ledger.
pub struct UnitLedger {
    load: i64,
    epoch: i32,
    target: u32,
    incarnation: Vec<String>,
    statements: Statements,
}

/// The prepared statements of one lane.
struct Statements {
    share: Statement,
    record: Statement,
    reject: Statement,
    storage: Statement,
    xids: Statement,
}

/// `oid:filenode` of every relation with storage under the table $1 (itself, or its leaves), sorted.
pub(super) const STORAGE: &str = "
    SELECT coalesce(pg_catalog.array_agg(s ORDER BY s), '{}')
      FROM (SELECT c.oid::text || ':' || pg_catalog.pg_relation_filenode(c.oid)::text AS s
              FROM (SELECT $1::oid AS relid
                     UNION SELECT relid::oid FROM pg_catalog.pg_partition_tree($1::oid::regclass)) t
              JOIN pg_catalog.pg_class c ON c.oid = t.relid
             WHERE pg_catalog.pg_relation_filenode(c.oid) IS NOT NULL) x";

/// The ids of the running transaction and of its open subtransactions: each holds an exclusive lock on itself, released
/// with the savepoint (lmgr.c, XactLockTableInsert; xact.c, CommitSubTransaction). The ids in pg_locks have 32 bits; the
/// upper half is the current transaction's, corrected where the counter wrapped in between.
const TRANSACTION_IDS: &str = "
    WITH top AS (SELECT pg_catalog.pg_current_xact_id()::text::bigint AS xid)
    SELECT pg_catalog.array_agg(
             CASE WHEN low >= top.xid & 4294967295 THEN (top.xid >> 32 << 32) | low
                  ELSE ((top.xid >> 32) + 1 << 32) | low END)
      FROM top, (SELECT transactionid::text::bigint AS low FROM pg_catalog.pg_locks
                  WHERE locktype = 'transactionid' AND mode = 'ExclusiveLock'
                    AND pid = pg_catalog.pg_backend_pid() AND granted) l";

impl Ledger {
    /// Storage of a table now, to be recorded with a load and compared later.
    pub async fn storage(&self, client: &Client, table: u32) -> inrush_core::Result<Vec<String>> {
        let row = client.query_one(STORAGE, &[&table]).await.map_err(crate::failure::server_error)?;
        Ok(row.get(0))
    }
}

impl Statements {
    async fn prepare(
        ledger: &Ledger,
        client: &Client,
        unlogged: bool,
    ) -> Result<Statements, tokio_postgres::Error> {
        let share = format!("SELECT 1 FROM {}.loads WHERE id = $1 AND epoch = $2 FOR SHARE", ledger.sql);
        let record = format!(
            "INSERT INTO {}
                    (load_id, input, first_byte, end_byte, target, rows, rejects, records, lines, xids)
             SELECT $1, u.input, u.first_byte, u.end_byte, $2, u.rows, u.rejects, u.records, u.lines, $3
               FROM ROWS FROM (pg_catalog.unnest($4::int[]), pg_catalog.unnest($5::bigint[]),
                               pg_catalog.unnest($6::bigint[]), pg_catalog.unnest($7::bigint[]),
                               pg_catalog.unnest($8::bigint[]), pg_catalog.unnest($9::bigint[]),
                               pg_catalog.unnest($10::bigint[]))
                    AS u (input, first_byte, end_byte, rows, rejects, records, lines)",
            ledger.units_table(unlogged)
        );
        let reject = format!(
            "INSERT INTO {}
                    (load_id, input, byte, line, record, column_name, sqlstate, reason, from_server, raw, full_len)
             VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11)",
            ledger.rejects_table(unlogged)
        );
        // Sent in one go: a lane begins when the last one is answered.
        let (share, record, reject, storage, xids) = tokio::try_join!(
            client.prepare(&share),
            client.prepare(&record),
            client.prepare(&reject),
            client.prepare(STORAGE),
            client.prepare(TRANSACTION_IDS),
        )?;
        Ok(Statements { share, record, reject, storage, xids })
    }
}

impl UnitLedger {
    /// Prepares a lane's statements.
    pub async fn prepare(
        ledger: &Ledger,
        client: &Client,
        load: &StoredLoad,
    ) -> Result<UnitLedger, tokio_postgres::Error> {
        Ok(UnitLedger {
            load: load.id,
            epoch: load.epoch,
            target: load.target,
            incarnation: load.incarnation.clone(),
            statements: Statements::prepare(ledger, client, load.unlogged).await?,
        })
    }

    /// Has a new session read from the catalog what [`UnitLedger::prepare`] will need, if there is a ledger in this
    /// schema: it takes some milliseconds, for which a lane need not wait if it is done while others work.
    pub async fn look_ahead(client: &Client, schema: &str) -> Result<(), tokio_postgres::Error> {
        let ledger = Ledger::of(schema);
        let there = "SELECT pg_catalog.to_regclass($1) IS NOT NULL";
        if client.query_one(there, &[&ledger.units_table(false)]).await?.get(0) {
            let registration = ledger.registration();
            tokio::try_join!(client.prepare(&registration), Statements::prepare(&ledger, client, false))?;
        }
        Ok(())
    }

    /// The table has been emptied in this transaction: its storage is this one now.
    pub fn expect_storage(&mut self, storage: Vec<String>) {
        self.incarnation = storage;
    }

    /// First statement of a unit: nobody can take the load over until this transaction ends.
    pub async fn fence(&self, client: &Client) -> Result<(), Failure> {
        let row = client
            .query_opt(&self.statements.share, &[&self.load, &self.epoch])
            .await
            .map_err(|e| of_statement(&e))?;
        if row.is_none() {
            return Err(Failure::Fatal(fenced(self.load)));
        }
        Ok(())
    }

    /// The ids under which rows stored now are found again: of the transaction and its open savepoints. To be
    /// asked before a savepoint is released.
    pub async fn transaction_ids(&self, client: &Client) -> Result<Vec<i64>, Failure> {
        Ok(client.query_one(&self.statements.xids, &[]).await.map_err(|e| of_statement(&e))?.get(0))
    }

    /// Last statements of a unit: checks that the table is still the one earlier units went into, and records
    /// the unit. The caller commits.
    pub async fn record(&self, client: &Client, unit: &UnitRecord) -> Result<(), Failure> {
        let now: Vec<String> = client
            .query_one(&self.statements.storage, &[&self.target])
            .await
            .map_err(|e| of_statement(&e))?
            .get(0);
        // New leaves may have come; none that was there may have gone or been rewritten.
        if let Some(gone) = self.incarnation.iter().find(|s| now.binary_search(s).is_err()) {
            return Err(Failure::Fatal(changed_while_loading(self.load, gone)));
        }
        let mut xids = self.transaction_ids(client).await?;
        xids.extend_from_slice(&unit.xids);
        xids.sort_unstable();
        xids.dedup();
        let column = |f: fn(&RangeDone) -> u64| -> Vec<i64> {
            unit.ranges.iter().map(|r| i64::try_from(f(r)).unwrap_or(i64::MAX)).collect()
        };
        let inputs: Vec<i32> =
            unit.ranges.iter().map(|r| i32::try_from(r.input).unwrap_or(i32::MAX)).collect();
        client
            .execute(
                &self.statements.record,
                &[
                    &self.load,
                    &self.target,
                    &xids,
                    &inputs,
                    &column(|r| r.start),
                    &column(|r| r.end),
                    &column(|r| r.rows),
                    &column(|r| r.rejects),
                    &column(|r| r.records),
                    &column(|r| r.lines),
                ],
            )
            .await
            .map_err(|e| of_statement(&e))?;
        for reject in &unit.rejects {
            self.reject(client, reject).await?;
        }
        Ok(())
    }

    async fn reject(&self, client: &Client, reject: &Reject) -> Result<(), Failure> {
        let signed = |n: Option<u64>| n.map(|n| i64::try_from(n).unwrap_or(i64::MAX));
        let input = i32::try_from(reject.input).unwrap_or(i32::MAX);
        client
            .execute(
                &self.statements.reject,
                &[
                    &self.load,
                    &input,
                    // Rows of columnar inputs have no byte; their ranges count rows from 0.
                    &signed(reject.position.byte.or(reject.position.record.map(|r| r.saturating_sub(1))))
                        .unwrap_or_default(),
                    &signed(reject.position.line),
                    &signed(reject.position.record),
                    &reject.position.column,
                    &reject.sqlstate,
                    &reject.reason,
                    &(reject.origin == RejectOrigin::Server),
                    &reject.raw,
                    &signed(reject.full_len),
                ],
            )
            .await
            .map_err(|e| of_statement(&e))?;
        Ok(())
    }

    /// Whether the ledger has this range, asked after the answer to a COMMIT was lost.
    pub async fn has(
        ledger: &Ledger,
        client: &Client,
        load: &StoredLoad,
        range: &RangeDone,
    ) -> Result<bool, tokio_postgres::Error> {
        let found = client
            .query_opt(
                &format!(
                    "SELECT 1 FROM {} WHERE load_id = $1 AND input = $2 AND first_byte = $3 AND end_byte = $4",
                    ledger.units_table(load.unlogged)
                ),
                &[
                    &load.id,
                    &i32::try_from(range.input).unwrap_or(i32::MAX),
                    &i64::try_from(range.start).unwrap_or(i64::MAX),
                    &i64::try_from(range.end).unwrap_or(i64::MAX),
                ],
            )
            .await?;
        Ok(found.is_some())
    }
}

fn changed_while_loading(load: i64, storage: &str) -> inrush_core::Error {
    inrush_core::Error::new(
        inrush_core::Code::Incarnation,
        format!(
            "the table was dropped, truncated or rewritten while load {load} ran (storage {storage} is gone)"
        ),
    )
    .hint("The rows loaded before may be gone. Give the command again with --again to load everything, or with --resume to load only what is not recorded yet.")
}
