//! Streams in the ledger: what each lane has taken of each partition of a source, in the transaction of the rows.
//!
//! # What makes a stream exactly once
//!
//! - A source that can be read again has **partitions** (of a Kafka topic, a file, the spill) with positions that grow.
//!   The rows of a partition are spread over **lanes** by a rule that depends on nothing but the row and the number of
//!   lanes, which is recorded with the partition.
//! - A lane's unit moves the lane's offset from where its rows begin to where they end, in the transaction of the rows.
//!   The update must find the offset where the rows begin, and the epoch of this process: otherwise the unit is void.
//! - Whoever begins to read a partition **claims** it: raises the epoch, which waits for units that have moved an offset
//!   and not ended, and only then reads the offsets. A unit of an earlier reader that comes later finds another epoch.
//! - The source is read again from the smallest offset; each lane drops what lies before its own.
//! - The body of a request with a key is a partition that is read once per attempt: `requests` instead of `offsets`, and
//!   the first lane to commit decides. There is no epoch: two attempts meet in the primary key.
//! - Offsets of unlogged tables are in unlogged twins: a crash of the server empties both, and the partition is read
//!   from its first position again.

use super::Ledger;
use crate::failure::{Failure, of_statement, server_error};
use inrush_core::{Code, Error, Reject, RejectOrigin, Result};
use std::time::Duration;
use tokio_postgres::{Client, Statement};

/// How long a claim waits for a unit of an earlier reader before it ends the reader's connections.
const CLAIM_PATIENCE: Duration = Duration::from_secs(5);

/// A partition of a source, as SQL keys it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PartitionName {
    /// The source: kind and name of the input, as `kafka:gateway/calls`.
    pub source: String,
    /// The partition in it.
    pub partition: String,
}

/// What a claim found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// What units must find.
    pub epoch: i32,
    /// What each lane reads next; as many as the partition's rows are spread over.
    pub next: Vec<i64>,
}

impl Claim {
    /// Where the source has to be read from.
    pub fn restart(&self) -> i64 {
        self.next.iter().copied().min().unwrap_or_default()
    }
}

/// What to claim.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// The partition.
    pub name: &'a PartitionName,
    /// Lanes to spread the rows over, if it is new or no lane is ahead of another.
    pub lanes: u32,
    /// Where it begins, if it is new.
    pub first: i64,
    /// Whether its rows go to unlogged tables.
    pub unlogged: bool,
    /// Who claims it: names the process, for people.
    pub process: &'a str,
}

/// An offset that a unit moves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The partition.
    pub name: PartitionName,
    /// Which lane.
    pub lane: i32,
    /// Of the claim.
    pub epoch: i32,
    /// Where the unit's rows begin: what the lane read next before.
    pub from: i64,
    /// What it reads next from then on.
    pub to: i64,
}

/// A part of the body of a request with a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RequestMove {
    /// The input.
    pub source: String,
    /// The key.
    pub key: String,
    /// Which lane.
    pub lane: i32,
    /// Of how many the body's rows are spread over.
    pub lanes: i32,
    /// Hash of the head of the body: the same key must come with the same body.
    pub head: Vec<u8>,
    /// First byte of the body that this unit covers; 0 where the lane has nothing of it yet.
    pub from: i64,
    /// One past the last.
    pub to: i64,
}

/// What the ledger has of a request.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RequestState {
    /// Lanes that its rows were spread over.
    pub lanes: u32,
    /// Hash of the head of its body.
    pub head: Vec<u8>,
    /// What lanes have, as (lane, next byte).
    pub next: Vec<(u32, i64)>,
}

/// Rows that a lane committed of a source into a table, and their largest event time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// OID of the table.
    pub relid: u32,
    /// The source.
    pub source: String,
    /// The lane.
    pub lane: i32,
    /// Largest event time, in the binary form of the time column.
    pub up_to: i64,
    /// Rows.
    pub rows: i64,
}

/// A row that was refused, and where it was to go.
#[derive(Debug, Clone)]
pub struct DeadLetter {
    /// Where it came from.
    pub from: PartitionName,
    /// Its position in the partition.
    pub position: i64,
    /// The table it was meant for.
    pub target: String,
    /// The rest.
    pub reject: Reject,
}

/// The statements by which a lane records its units.
pub struct StreamLedger {
    offsets: [Statement; 2],
    request_first: [Statement; 2],
    request_next: [Statement; 2],
    progress: [Statement; 2],
    dead_letters: [Statement; 2],
}

fn twin(name: &str, unlogged: bool) -> String {
    if unlogged { format!("{name}_unlogged") } else { name.to_owned() }
}

impl Ledger {
    /// Claims a partition: nobody who claimed it before can commit a unit of it after this.
    ///
    /// # Errors
    /// Of the server; code `fenced` if an earlier reader's unit does not end.
    pub async fn claim(&self, client: &mut Client, wanted: &Wanted<'_>) -> Result<Claim> {
        let mut ended = false;
        loop {
            match self.try_claim(client, wanted).await {
                Err(failure) if failure.code().is_some_and(|code| code.code() == "55P03") => {
                    if ended {
                        return Err(Error::new(
                            Code::Fenced,
                            format!(
                                "an earlier reader of {} {} does not end its transaction",
                                wanted.name.source, wanted.name.partition
                            ),
                        ));
                    }
                    self.end_holders(client, wanted).await?;
                    ended = true;
                }
                other => return other.map_err(server_error),
            }
        }
    }

    async fn try_claim(
        &self,
        client: &mut Client,
        wanted: &Wanted<'_>,
    ) -> Result<Claim, tokio_postgres::Error> {
        let PartitionName { source, partition } = wanted.name;
        let tx = client.transaction().await?;
        tx.batch_execute(&format!("SET LOCAL lock_timeout = {}", CLAIM_PATIENCE.as_millis())).await?;
        let lanes = i32::try_from(wanted.lanes).unwrap_or(i32::MAX);
        let row = tx
            .query_one(
                &format!(
                    "INSERT INTO {} AS p (source, partition, first, lanes, claimed_by) VALUES ($1, $2, $3, $4, $5)
                     ON CONFLICT (source, partition) DO UPDATE
                        SET epoch = p.epoch + 1, claimed_by = excluded.claimed_by, claimed_at = pg_catalog.now()
                     RETURNING epoch, lanes, first",
                    self.table("partitions")
                ),
                &[source, partition, &wanted.first, &lanes, &wanted.process],
            )
            .await?;
        let (epoch, stored_lanes, first): (i32, i32, i64) = (row.get(0), row.get(1), row.get(2));
        let offsets = self.table(&twin("offsets", wanted.unlogged));
        // Waits for every unit that has moved an offset and not ended.
        let rows = tx
            .query(
                &format!(
                    "UPDATE {offsets} SET epoch = $3 WHERE source = $1 AND partition = $2 RETURNING lane, next"
                ),
                &[source, partition, &epoch],
            )
            .await?;
        let mut next = vec![first; usize::try_from(stored_lanes).unwrap_or_default()];
        let found = rows.len();
        for row in &rows {
            let lane = usize::try_from(row.get::<_, i32>(0)).unwrap_or(usize::MAX);
            if let Some(next) = next.get_mut(lane) {
                *next = row.get(1);
            }
        }
        let level = next.iter().all(|n| Some(n) == next.first());
        if level && stored_lanes != lanes {
            // No lane is ahead: the rows that come can be spread anew.
            let at = next.first().copied().unwrap_or(first);
            tx.execute(
                &format!("DELETE FROM {offsets} WHERE source = $1 AND partition = $2"),
                &[source, partition],
            )
            .await?;
            tx.execute(
                &format!(
                    "UPDATE {} SET lanes = $3 WHERE source = $1 AND partition = $2",
                    self.table("partitions")
                ),
                &[source, partition, &lanes],
            )
            .await?;
            next = vec![at; wanted.lanes as usize];
        }
        if level && stored_lanes != lanes || found < next.len() {
            let numbers: Vec<i32> = (0..).take(next.len()).collect();
            tx.execute(
                &format!(
                    "INSERT INTO {offsets} (source, partition, lane, epoch, next)
                     SELECT $1, $2, u.lane, $3, u.next
                       FROM ROWS FROM (pg_catalog.unnest($4::int[]), pg_catalog.unnest($5::bigint[])) AS u (lane, next)
                     ON CONFLICT DO NOTHING"
                ),
                &[source, partition, &epoch, &numbers, &next],
            )
            .await?;
        }
        tx.commit().await?;
        Ok(Claim { epoch, next })
    }

    /// Ends the sessions that have locked the partition's offsets for as long as a claim waits.
    async fn end_holders(&self, client: &Client, wanted: &Wanted<'_>) -> Result<()> {
        tracing::warn!(
            source = wanted.name.source,
            partition = wanted.name.partition,
            "ending the connections of an earlier reader, which hold its offsets"
        );
        // Of those that run a transaction: the ones with a lock on the offsets that have called themselves ours. Behind
        // that there may be a name of the user's.
        let sql = "SELECT pg_catalog.pg_terminate_backend(a.pid)
                     FROM pg_catalog.pg_stat_activity a
                    WHERE pg_catalog.starts_with(a.application_name, 'inrush serve') AND a.pid <> pg_catalog.pg_backend_pid()
                      AND a.xact_start < pg_catalog.now() - interval '4 s'
                      AND EXISTS (SELECT 1 FROM pg_catalog.pg_locks l
                                   WHERE l.pid = a.pid AND l.relation = $1::text::regclass AND l.granted)";
        let table = self.table(&twin("offsets", wanted.unlogged));
        client.query(sql, &[&table]).await.map_err(server_error)?;
        Ok(())
    }

    /// What the ledger has of a request; `None` if it has not been seen.
    pub async fn request(
        &self,
        client: &Client,
        source: &str,
        key: &str,
        unlogged: bool,
    ) -> Result<Option<RequestState>, tokio_postgres::Error> {
        let rows = client
            .query(
                &format!(
                    "SELECT lane, next, lanes, head FROM {} WHERE source = $1 AND key = $2",
                    self.table(&twin("requests", unlogged))
                ),
                &[&source, &key],
            )
            .await?;
        let Some(first) = rows.first() else { return Ok(None) };
        Ok(Some(RequestState {
            lanes: first.get::<_, i32>(2).unsigned_abs(),
            head: first.get(3),
            next: rows.iter().map(|row| (row.get::<_, i32>(0).unsigned_abs(), row.get(1))).collect(),
        }))
    }

    /// The rows of a partition that were refused, as line, SQLSTATE and reason: how many, and the first of them.
    pub async fn refused_of(
        &self,
        client: &Client,
        name: &PartitionName,
        unlogged: bool,
        most: i64,
    ) -> Result<(u64, Vec<(Option<u64>, String, String)>), tokio_postgres::Error> {
        let table = self.table(&twin("dead_letters", unlogged));
        let of = "source = $1 AND partition = $2";
        let rows = client
            .query(
                &format!(
                    "SELECT line, sqlstate, reason, count(*) OVER () FROM {table} WHERE {of} ORDER BY position LIMIT $3"
                ),
                &[&name.source, &name.partition, &most],
            )
            .await?;
        let count = rows.first().map_or(0, |row| row.get::<_, i64>(3).unsigned_abs());
        let line = |line: Option<i64>| line.and_then(|line| u64::try_from(line).ok());
        Ok((count, rows.iter().map(|row| (line(row.get(0)), row.get(1), row.get(2))).collect()))
    }

    /// Forgets the keys of requests that are older than so many seconds. Gives how many rows went.
    pub async fn forget_requests(&self, client: &Client, seconds: f64) -> Result<u64> {
        let mut gone = 0;
        for unlogged in [false, true] {
            let sql = format!(
                "DELETE FROM {} WHERE at < pg_catalog.now() - $1 * interval '1 s'",
                self.table(&twin("requests", unlogged))
            );
            gone += client.execute(&sql, &[&seconds]).await.map_err(server_error)?;
        }
        Ok(gone)
    }

    /// Removes dead letters that are older than so many seconds. Gives how many went.
    pub async fn forget_dead_letters(&self, client: &Client, seconds: f64) -> Result<u64> {
        let mut gone = 0;
        for unlogged in [false, true] {
            let sql = format!(
                "DELETE FROM {} WHERE at < pg_catalog.now() - $1 * interval '1 s'",
                self.table(&twin("dead_letters", unlogged))
            );
            gone += client.execute(&sql, &[&seconds]).await.map_err(server_error)?;
        }
        Ok(gone)
    }

    /// Where a lane's offset is now: asked when the answer to a COMMIT was lost. `None` if it is not there.
    pub async fn offset(
        &self,
        client: &Client,
        name: &PartitionName,
        lane: i32,
        unlogged: bool,
    ) -> Result<Option<(i32, i64)>, tokio_postgres::Error> {
        let sql = format!(
            "SELECT epoch, next FROM {} WHERE source = $1 AND partition = $2 AND lane = $3",
            self.table(&twin("offsets", unlogged))
        );
        let row = client.query_opt(&sql, &[&name.source, &name.partition, &lane]).await?;
        Ok(row.map(|row| (row.get(0), row.get(1))))
    }
}

impl StreamLedger {
    /// Prepares a lane's statements.
    pub async fn prepare(ledger: &Ledger, client: &Client) -> Result<StreamLedger, tokio_postgres::Error> {
        let offsets = |unlogged| {
            format!(
                "UPDATE {} o SET next = u.until
                   FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                                   pg_catalog.unnest($3::int[]), pg_catalog.unnest($4::int[]),
                                   pg_catalog.unnest($5::bigint[]), pg_catalog.unnest($6::bigint[]))
                        AS u (source, partition, lane, epoch, since, until)
                  WHERE o.source = u.source AND o.partition = u.partition AND o.lane = u.lane
                    AND o.epoch = u.epoch AND o.next = u.since",
                ledger.table(&twin("offsets", unlogged))
            )
        };
        let request_first = |unlogged| {
            format!(
                "INSERT INTO {} (source, key, lane, lanes, head, next)
                 SELECT * FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                                          pg_catalog.unnest($3::int[]), pg_catalog.unnest($4::int[]),
                                          pg_catalog.unnest($5::bytea[]), pg_catalog.unnest($6::bigint[]))
                 ON CONFLICT DO NOTHING",
                ledger.table(&twin("requests", unlogged))
            )
        };
        let request_next = |unlogged| {
            format!(
                "UPDATE {} r SET next = u.until, at = pg_catalog.now()
                   FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                                   pg_catalog.unnest($3::int[]), pg_catalog.unnest($4::bigint[]),
                                   pg_catalog.unnest($5::bigint[])) AS u (source, key, lane, since, until)
                  WHERE r.source = u.source AND r.key = u.key AND r.lane = u.lane AND r.next = u.since",
                ledger.table(&twin("requests", unlogged))
            )
        };
        let progress = |unlogged| {
            format!(
                "INSERT INTO {} AS p (relid, source, lane, up_to, rows)
                 SELECT * FROM ROWS FROM (pg_catalog.unnest($1::oid[]), pg_catalog.unnest($2::text[]),
                                          pg_catalog.unnest($3::int[]), pg_catalog.unnest($4::bigint[]),
                                          pg_catalog.unnest($5::bigint[]))
                 ON CONFLICT (relid, source, lane) DO UPDATE
                    SET up_to = greatest(p.up_to, excluded.up_to), rows = p.rows + excluded.rows,
                        at = pg_catalog.now()",
                ledger.table(&twin("progress", unlogged))
            )
        };
        let dead_letters = |unlogged| {
            format!(
                "INSERT INTO {}
                        (source, partition, position, line, target, column_name, sqlstate, reason, from_server, raw)
                 SELECT * FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::text[]),
                                          pg_catalog.unnest($3::bigint[]), pg_catalog.unnest($4::bigint[]),
                                          pg_catalog.unnest($5::text[]), pg_catalog.unnest($6::text[]),
                                          pg_catalog.unnest($7::text[]), pg_catalog.unnest($8::text[]),
                                          pg_catalog.unnest($9::bool[]), pg_catalog.unnest($10::bytea[]))",
                ledger.table(&twin("dead_letters", unlogged))
            )
        };
        let both = async |sql: &(dyn Fn(bool) -> String + Sync)| {
            let (logged, unlogged) = (sql(false), sql(true));
            let (logged, unlogged) = tokio::try_join!(client.prepare(&logged), client.prepare(&unlogged))?;
            Ok::<_, tokio_postgres::Error>([logged, unlogged])
        };
        Ok(StreamLedger {
            offsets: both(&offsets).await?,
            request_first: both(&request_first).await?,
            request_next: both(&request_next).await?,
            progress: both(&progress).await?,
            dead_letters: both(&dead_letters).await?,
        })
    }

    /// Moves offsets. `false`: not all of them were where the unit begins, or another process has claimed a partition;
    /// the caller rolls back.
    ///
    /// The moves come in the order of their keys: two units of one partition lock offsets in the same order.
    pub async fn move_offsets(
        &self,
        client: &Client,
        moves: &[Move],
        unlogged: bool,
    ) -> Result<bool, Failure> {
        if moves.is_empty() {
            return Ok(true);
        }
        let source: Vec<&str> = moves.iter().map(|m| m.name.source.as_str()).collect();
        let partition: Vec<&str> = moves.iter().map(|m| m.name.partition.as_str()).collect();
        let lane: Vec<i32> = moves.iter().map(|m| m.lane).collect();
        let epoch: Vec<i32> = moves.iter().map(|m| m.epoch).collect();
        let from: Vec<i64> = moves.iter().map(|m| m.from).collect();
        let to: Vec<i64> = moves.iter().map(|m| m.to).collect();
        let moved = client
            .execute(&self.offsets[usize::from(unlogged)], &[&source, &partition, &lane, &epoch, &from, &to])
            .await
            .map_err(|e| of_statement(&e))?;
        Ok(moved == moves.len() as u64)
    }

    /// Records what a unit has of requests with keys. To be done before its rows: another attempt of the same request
    /// waits here. `false`: another attempt was faster; the caller rolls back and asks the ledger.
    pub async fn move_requests(
        &self,
        client: &Client,
        moves: &[RequestMove],
        unlogged: bool,
    ) -> Result<bool, Failure> {
        let (first, next): (Vec<&RequestMove>, Vec<&RequestMove>) = moves.iter().partition(|m| m.from == 0);
        let mut done = 0;
        if !first.is_empty() {
            let source: Vec<&str> = first.iter().map(|m| m.source.as_str()).collect();
            let key: Vec<&str> = first.iter().map(|m| m.key.as_str()).collect();
            let lane: Vec<i32> = first.iter().map(|m| m.lane).collect();
            let lanes: Vec<i32> = first.iter().map(|m| m.lanes).collect();
            let head: Vec<&[u8]> = first.iter().map(|m| m.head.as_slice()).collect();
            let to: Vec<i64> = first.iter().map(|m| m.to).collect();
            let statement = &self.request_first[usize::from(unlogged)];
            done += client
                .execute(statement, &[&source, &key, &lane, &lanes, &head, &to])
                .await
                .map_err(|e| of_statement(&e))?;
        }
        if !next.is_empty() {
            let source: Vec<&str> = next.iter().map(|m| m.source.as_str()).collect();
            let key: Vec<&str> = next.iter().map(|m| m.key.as_str()).collect();
            let lane: Vec<i32> = next.iter().map(|m| m.lane).collect();
            let from: Vec<i64> = next.iter().map(|m| m.from).collect();
            let to: Vec<i64> = next.iter().map(|m| m.to).collect();
            done += client
                .execute(&self.request_next[usize::from(unlogged)], &[&source, &key, &lane, &from, &to])
                .await
                .map_err(|e| of_statement(&e))?;
        }
        Ok(done == moves.len() as u64)
    }

    /// Records how far a unit's rows reach. One entry for each key.
    pub async fn progress(
        &self,
        client: &Client,
        progress: &[Progress],
        unlogged: bool,
    ) -> Result<(), Failure> {
        if progress.is_empty() {
            return Ok(());
        }
        let relid: Vec<u32> = progress.iter().map(|p| p.relid).collect();
        let source: Vec<&str> = progress.iter().map(|p| p.source.as_str()).collect();
        let lane: Vec<i32> = progress.iter().map(|p| p.lane).collect();
        let up_to: Vec<i64> = progress.iter().map(|p| p.up_to).collect();
        let rows: Vec<i64> = progress.iter().map(|p| p.rows).collect();
        client
            .execute(&self.progress[usize::from(unlogged)], &[&relid, &source, &lane, &up_to, &rows])
            .await
            .map_err(|e| of_statement(&e))?;
        Ok(())
    }

    /// Keeps refused rows.
    pub async fn dead_letters(
        &self,
        client: &Client,
        letters: &[&DeadLetter],
        unlogged: bool,
    ) -> Result<(), Failure> {
        // Bounded statements: raw bytes may be many.
        for some in letters.chunks(1000) {
            let source: Vec<&str> = some.iter().map(|l| l.from.source.as_str()).collect();
            let partition: Vec<&str> = some.iter().map(|l| l.from.partition.as_str()).collect();
            let position: Vec<i64> = some.iter().map(|l| l.position).collect();
            let line: Vec<Option<i64>> =
                some.iter().map(|l| l.reject.position.line.and_then(|n| i64::try_from(n).ok())).collect();
            let target: Vec<&str> = some.iter().map(|l| l.target.as_str()).collect();
            let column: Vec<Option<&str>> =
                some.iter().map(|l| l.reject.position.column.as_deref()).collect();
            let sqlstate: Vec<&str> = some.iter().map(|l| l.reject.sqlstate.as_str()).collect();
            let reason: Vec<&str> = some.iter().map(|l| l.reject.reason.as_str()).collect();
            let server: Vec<bool> = some.iter().map(|l| l.reject.origin == RejectOrigin::Server).collect();
            let raw: Vec<&[u8]> = some.iter().map(|l| l.reject.raw.as_slice()).collect();
            client
                .execute(
                    &self.dead_letters[usize::from(unlogged)],
                    &[
                        &source, &partition, &position, &line, &target, &column, &sqlstate, &reason, &server,
                        &raw,
                    ],
                )
                .await
                .map_err(|e| of_statement(&e))?;
        }
        Ok(())
    }
}
