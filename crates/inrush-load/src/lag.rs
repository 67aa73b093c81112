//! `--max-lag`: the load pauses while what follows the server's WAL falls behind.
//!
//! Watched over a connection of its own, twice a second: replicas (by what they have replayed), active
//! replication slots (by the WAL they hold back), the archiver (by the last segment it has archived), and, where
//! the server runs on this machine and its data directory can be looked at, the free space of the WAL's device.
//! An inactive slot is told but not waited for: nobody may ever come back to it.

use crate::job::Job;
use crate::progress::Stop;
use inrush_core::{Code, Error, Result};
use inrush_sink::connect::connect;
use inrush_sink::failure::server_error;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Duration;
use tokio_postgres::Client;

/// How often lag is looked at: a pause comes late by the WAL of this time.
const EVERY: Duration = Duration::from_millis(500);

/// Watches until the load ends. Sets and clears [`crate::Progress::pause`].
pub(crate) fn watch(job: &Job, max_lag: u64, notice: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|e| Error::new(Code::Internal, format!("cannot start the lag watcher's runtime: {e}")))?;
    runtime.block_on(async {
        let connected = connect(&job.conninfo, "inrush load: lag").await?;
        let client = &connected.client;
        tell_what_cannot_be_seen(client, notice).await?;
        let mut told = false;
        while !job.is_over() && job.progress.stopping() == Stop::No {
            let behind = worst(client, max_lag).await?;
            job.progress.pause(behind.is_some());
            match behind {
                Some(what) if !told => {
                    notice(&format!("paused: {what}"));
                    told = true;
                }
                None if told => {
                    notice("going on: nothing lags behind any more");
                    told = false;
                }
                _ => {}
            }
            tokio::time::sleep(EVERY).await;
        }
        job.progress.pause(false);
        Ok(())
    })
}

async fn tell_what_cannot_be_seen(client: &Client, notice: &(dyn Fn(&str) + Sync)) -> Result<()> {
    let row = client
        .query_one(
            "SELECT pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'),
                    coalesce((SELECT pg_catalog.string_agg(slot_name, ', ') FROM pg_catalog.pg_replication_slots
                               WHERE NOT active), '')",
            &[],
        )
        .await
        .map_err(server_error)?;
    if !row.get::<_, bool>(0) {
        notice("--max-lag sees no replicas: this role is not a member of pg_read_all_stats");
    }
    let idle: &str = row.get(1);
    if !idle.is_empty() {
        notice(&format!("--max-lag does not wait for slots that nobody uses: {idle}"));
    }
    Ok(())
}

/// What lags behind by more than `max_lag` bytes of WAL, worst first.
async fn worst(client: &Client, max_lag: u64) -> Result<Option<String>> {
    let max = i64::try_from(max_lag).unwrap_or(i64::MAX);
    let row = client
        .query_opt(
            // A segment's name is its number in base 16, 8 digits of time line before it (xlog_internal.h,
            // XLogFileName): two parts of 8 digits, the second counting 4 GB / wal_segment_size.
            "WITH now AS (SELECT pg_catalog.pg_current_wal_lsn() AS lsn,
                                 pg_catalog.pg_size_bytes(pg_catalog.current_setting('wal_segment_size')) AS seg),
                  lags AS (
                    SELECT 'replica ' || application_name AS what,
                           pg_catalog.pg_wal_lsn_diff(now.lsn, replay_lsn)::bigint AS bytes
                      FROM pg_catalog.pg_stat_replication, now WHERE replay_lsn IS NOT NULL
                    UNION ALL
                    SELECT 'slot ' || slot_name, pg_catalog.pg_wal_lsn_diff(now.lsn, restart_lsn)::bigint
                      FROM pg_catalog.pg_replication_slots, now WHERE active AND restart_lsn IS NOT NULL
                    UNION ALL
                    SELECT 'archiver',
                           -- The segment being written cannot be archived yet: it does not count.
                           pg_catalog.div(pg_catalog.pg_wal_lsn_diff(now.lsn, '0/0'), now.seg)::bigint * now.seg
                           - (('x' || pg_catalog.substr(wal, 9, 8))::bit(32)::bigint * (4294967296 / now.seg)
                              + ('x' || pg_catalog.substr(wal, 17, 8))::bit(32)::bigint + done) * now.seg
                      FROM now, (
                        -- The last segment archived, or the one the archiver fails at.
                        SELECT CASE WHEN failing THEN last_failed_wal ELSE last_archived_wal END AS wal,
                               CASE WHEN failing THEN 0 ELSE 1 END AS done
                          FROM pg_catalog.pg_stat_archiver,
                               LATERAL (SELECT coalesce(last_failed_time > coalesce(last_archived_time, '-infinity'),
                                                        false) AS failing) f) a
                     WHERE pg_catalog.current_setting('archive_mode') <> 'off' AND wal ~ '^[0-9A-F]{24}')
             SELECT what, bytes FROM lags WHERE bytes > $1 ORDER BY bytes DESC LIMIT 1",
            &[&max],
        )
        .await
        .map_err(server_error)?;
    if let Some(row) = row {
        let (what, bytes): (&str, i64) = (row.get(0), row.get(1));
        return Ok(Some(format!("{what} is {} MB of WAL behind", bytes / 1_000_000)));
    }
    // Superusers and pg_read_all_settings only; others get no row, and the space is not watched.
    let directory = client
        .query_opt("SELECT setting FROM pg_catalog.pg_settings WHERE name = 'data_directory'", &[])
        .await
        .map_err(server_error)?
        .map(|row| row.get::<_, String>(0));
    Ok(directory
        .and_then(|directory| free_space(&directory))
        .filter(|free| *free < max_lag)
        .map(|free| format!("the device of the server's WAL has {} MB left", free / 1_000_000)))
}

/// Free bytes on the device of `directory/pg_wal`, if that is here and can be looked at. A directory of the same
/// name on this machine while the server is elsewhere would mislead: only one that holds a cluster counts.
fn free_space(directory: &str) -> Option<u64> {
    let wal = std::path::Path::new(directory).join("pg_wal");
    wal.is_dir().then_some(())?;
    let stat = rustix::fs::statvfs(&wal).ok()?;
    Some(stat.f_bavail.saturating_mul(stat.f_frsize))
}

impl Job {
    fn is_over(&self) -> bool {
        self.progress.over.load(Relaxed)
    }
}
