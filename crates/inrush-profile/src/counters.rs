//! Counters of the server at one moment. They count what the whole server did, not only the load.

use inrush_core::Result;
use inrush_sink::failure::server_error;
use serde::Serialize;
use tokio_postgres::{Client, Row};

/// What the server has counted.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct Counters {
    /// WAL written by everybody.
    pub wal: WalCounters,
    /// Checkpoints because `checkpoint_timeout` had passed.
    pub checkpoints_timed: u64,
    /// Checkpoints because `max_wal_size` was reached, or somebody asked.
    pub checkpoints_requested: u64,
    /// Seconds the checkpointer spent writing, pauses between writes included.
    pub checkpoint_write_seconds: f64,
    /// Seconds the checkpointer spent syncing.
    pub checkpoint_sync_seconds: f64,
    /// What client backends did to relations (pg_stat_io); PostgreSQL 16 and newer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub table_io: Option<TableIo>,
}

/// pg_stat_wal, and the position WAL is inserted at.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct WalCounters {
    /// Bytes by the insert position.
    pub bytes: u64,
    /// Records.
    pub records: u64,
    /// Full page images: first changes of a page after a checkpoint.
    pub full_page_images: u64,
    /// Times a backend had to write WAL because `wal_buffers` was full.
    pub buffers_full: u64,
}

/// Relation I/O of client backends.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct TableIo {
    /// Extensions.
    pub extends: u64,
    /// Bytes of extensions.
    pub extend_bytes: u64,
    /// Writes of pages by the backends themselves.
    pub writes: u64,
    /// Pages thrown out of shared buffers to make room.
    pub evictions: u64,
    /// Pages of a ring (COPY writes through one) that were used again.
    pub reuses: u64,
    /// Syncs the backends did themselves.
    pub fsyncs: u64,
}

impl Counters {
    /// Reads them. Any role may.
    pub async fn read(client: &Client, server_version_num: u32) -> Result<Counters> {
        let row = client.query_one(&query(server_version_num), &[]).await.map_err(server_error)?;
        Ok(Counters::from_row(&row, server_version_num))
    }

    fn from_row(row: &Row, server_version_num: u32) -> Counters {
        // The views count from 0 up; null in views that have been reset at this moment.
        let n =
            |i: usize| row.get::<_, Option<i64>>(i).and_then(|n| u64::try_from(n).ok()).unwrap_or_default();
        let seconds = |i: usize| row.get::<_, Option<f64>>(i).unwrap_or_default() / 1e3;
        Counters {
            wal: WalCounters { bytes: n(0), records: n(1), full_page_images: n(2), buffers_full: n(3) },
            checkpoints_timed: n(4),
            checkpoints_requested: n(5),
            checkpoint_write_seconds: seconds(6),
            checkpoint_sync_seconds: seconds(7),
            table_io: (server_version_num >= 160_000).then(|| TableIo {
                extends: n(8),
                extend_bytes: n(9),
                writes: n(10),
                evictions: n(11),
                reuses: n(12),
                fsyncs: n(13),
            }),
        }
    }

    /// What was counted since an earlier moment. Somebody may have reset the counters in between: then 0.
    pub fn since(&self, earlier: &Counters) -> Counters {
        let n = |get: fn(&Counters) -> u64| get(self).saturating_sub(get(earlier));
        let seconds = |get: fn(&Counters) -> f64| (get(self) - get(earlier)).max(0.0);
        let table_io = self.table_io.as_ref().zip(earlier.table_io.as_ref()).map(|(now, then)| TableIo {
            extends: now.extends.saturating_sub(then.extends),
            extend_bytes: now.extend_bytes.saturating_sub(then.extend_bytes),
            writes: now.writes.saturating_sub(then.writes),
            evictions: now.evictions.saturating_sub(then.evictions),
            reuses: now.reuses.saturating_sub(then.reuses),
            fsyncs: now.fsyncs.saturating_sub(then.fsyncs),
        });
        Counters {
            wal: WalCounters {
                bytes: n(|c| c.wal.bytes),
                records: n(|c| c.wal.records),
                full_page_images: n(|c| c.wal.full_page_images),
                buffers_full: n(|c| c.wal.buffers_full),
            },
            checkpoints_timed: n(|c| c.checkpoints_timed),
            checkpoints_requested: n(|c| c.checkpoints_requested),
            checkpoint_write_seconds: seconds(|c| c.checkpoint_write_seconds),
            checkpoint_sync_seconds: seconds(|c| c.checkpoint_sync_seconds),
            table_io,
        }
    }
}

/// The functions behind pg_stat_wal, pg_stat_bgwriter, pg_stat_checkpointer (17 and newer) and pg_stat_io (16 and newer;
/// its bytes are new in 18): a new session pays for every view that it opens, and a load may be short.
fn query(server_version_num: u32) -> String {
    let checkpoints = if server_version_num >= 170_000 {
        "pg_catalog.pg_stat_get_checkpointer_num_timed(), pg_catalog.pg_stat_get_checkpointer_num_requested(),
         pg_catalog.pg_stat_get_checkpointer_write_time(), pg_catalog.pg_stat_get_checkpointer_sync_time()"
    } else {
        "pg_catalog.pg_stat_get_bgwriter_timed_checkpoints(),
         pg_catalog.pg_stat_get_bgwriter_requested_checkpoints(),
         pg_catalog.pg_stat_get_checkpoint_write_time(), pg_catalog.pg_stat_get_checkpoint_sync_time()"
    };
    let extend_bytes = if server_version_num >= 180_000 { "extend_bytes" } else { "extends * op_bytes" };
    let io = if server_version_num >= 160_000 {
        format!(
            "(SELECT sum(extends)::int8, sum({extend_bytes})::int8, sum(writes)::int8, sum(evictions)::int8,
                     sum(reuses)::int8, sum(fsyncs)::int8
                FROM pg_catalog.pg_stat_get_io()
               WHERE backend_type = 'client backend' AND object = 'relation') i"
        )
    } else {
        "(SELECT null::int8, null::int8, null::int8, null::int8, null::int8, null::int8) i".to_owned()
    };
    format!(
        "SELECT pg_catalog.pg_wal_lsn_diff(pg_catalog.pg_current_wal_insert_lsn(), '0/0')::int8,
                w.wal_records, w.wal_fpi, w.wal_buffers_full, {checkpoints}, i.*
           FROM pg_catalog.pg_stat_get_wal() w, {io}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_that_were_reset_give_nothing() {
        let now = Counters { checkpoints_requested: 1, ..Counters::default() };
        let then =
            Counters { checkpoints_requested: 9, checkpoint_write_seconds: 2.0, ..Counters::default() };
        let since = now.since(&then);
        assert_eq!((since.checkpoints_requested, since.checkpoint_write_seconds), (0, 0.0));
    }
}
