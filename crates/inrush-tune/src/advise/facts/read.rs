//! Reads the facts, in a few round trips.
//!
//! Every name in the queries is qualified, operators included: whoever asks is likely to be a superuser.

use super::{Archiver, Checkpoints, Replica, ServerFacts, Setting, Slot, Tablespace, WalCounters};
use crate::advise::machine;
use inrush_core::{Code, Error, Result};
use inrush_sink::failure::server_error;
use std::collections::BTreeMap;
use tokio_postgres::types::Type;
use tokio_postgres::{Client, Row};

/// The settings that are read: those the rules look at, and those that tell how the server is built.
const SETTINGS: &[&str] = &[
    "allow_alter_system",
    "archive_command",
    "archive_library",
    "archive_mode",
    "archive_timeout",
    "autovacuum",
    "autovacuum_max_workers",
    "autovacuum_work_mem",
    "block_size",
    "checkpoint_completion_target",
    "checkpoint_timeout",
    "data_checksums",
    "data_directory",
    "effective_io_concurrency",
    "fsync",
    "full_page_writes",
    "io_max_concurrency",
    "io_method",
    "io_workers",
    "maintenance_io_concurrency",
    "maintenance_work_mem",
    "max_parallel_maintenance_workers",
    "max_parallel_workers",
    "max_slot_wal_keep_size",
    "max_wal_senders",
    "max_wal_size",
    "max_worker_processes",
    "port",
    "random_page_cost",
    "seq_page_cost",
    "shared_buffers",
    "summarize_wal",
    "synchronous_commit",
    "synchronous_standby_names",
    "track_io_timing",
    "wal_buffers",
    "wal_compression",
    "wal_keep_size",
    "wal_level",
    "wal_segment_size",
    "wal_writer_delay",
];

/// Roles by which managed services can be told, with what the service is called.
const MANAGED: &[(&str, &str)] = &[
    ("rds_superuser", "Amazon RDS or Aurora"),
    ("cloudsqlsuperuser", "Google Cloud SQL"),
    ("alloydbsuperuser", "Google AlloyDB"),
    ("azure_pg_admin", "Azure Database for PostgreSQL"),
    ("neon_superuser", "Neon"),
    ("supabase_admin", "Supabase"),
];

/// Reads everything there is to see.
///
/// # Errors
/// `server` for a server older than PostgreSQL 15, or one that refuses a statement that everybody may give.
pub async fn read(client: &Client) -> Result<ServerFacts> {
    let (mut facts, rights) = who_and_what(client).await?;
    let (settings, replicas, slots, counters, tablespaces) = tokio::try_join!(
        settings(client),
        replicas(client),
        slots(client),
        counters(client, facts.version_num),
        tablespaces(client),
    )?;
    facts.settings = settings;
    facts.replicas = replicas;
    facts.slots = slots;
    facts.tablespaces = tablespaces;
    let archiver;
    (facts.checkpoints, facts.wal, archiver) = counters;
    facts.archiver = Some(archiver).filter(|_| !facts.is("archive_mode", "off"));
    // A function that may not be called fails even where it is not reached: these are asked for one by one.
    if rights.control {
        let row = one(client, "SELECT system_identifier FROM pg_catalog.pg_control_system()").await?;
        facts.system_identifier = row.try_get(0).ok();
    }
    if rights.wal_directory {
        let sum = "SELECT pg_catalog.sum(size)::pg_catalog.int8 FROM pg_catalog.pg_ls_waldir()";
        facts.wal_directory_bytes = one(client, sum).await?.try_get(0).ok().and_then(unsigned);
    } else {
        facts.not_visible.push("the size of pg_wal: needs pg_monitor".to_owned());
    }
    if facts.sees_files {
        let files = files(client).await?;
        for (name, value) in files.auto_conf {
            if let Some(setting) = facts.settings.get_mut(&name) {
                setting.in_auto_conf = Some(value);
            }
        }
        facts.configuration_error = files.error;
    }
    if !facts.replicas.is_empty() && !rights.stats {
        let what = "which replicas there are, and how far behind: needs pg_read_all_stats";
        facts.not_visible.push(what.to_owned());
    }
    match facts.setting("data_directory").map(|setting| setting.value.clone()) {
        None => facts.not_visible.push(
            "where the data directory is, so no devices, free space and memory: needs pg_read_all_settings"
                .to_owned(),
        ),
        Some(directory) => {
            facts.machine = machine::look(&directory, &facts);
            if facts.machine.is_none() {
                facts.not_visible.push(format!(
                    "devices, free space and memory: {directory} is not on this machine, or not readable by this \
                     account of it"
                ));
            }
        }
    }
    Ok(facts)
}

/// What this role may call that not everybody may.
struct Rights {
    control: bool,
    wal_directory: bool,
    stats: bool,
}

async fn who_and_what(client: &Client) -> Result<(ServerFacts, Rights)> {
    let version = "SELECT pg_catalog.current_setting('server_version_num')::pg_catalog.int4, \
                          pg_catalog.current_setting('server_version')";
    let row = one(client, version).await?;
    let version_num = get::<i32>(&row, 0)?.unsigned_abs();
    let version: String = get(&row, 1)?;
    if version_num < 150_000 {
        return Err(Error::new(Code::Server, format!("the server has PostgreSQL {version}"))
            .hint("Advice is for PostgreSQL 15 and newer."));
    }
    let names: Vec<&str> = MANAGED.iter().map(|(role, _)| *role).collect();
    let rows = client
        .query_typed(
            "SELECT current_user::pg_catalog.text, \
                    pg_catalog.current_setting('is_superuser')::pg_catalog.bool, \
                    pg_catalog.pg_is_in_recovery(), \
                    pg_catalog.has_function_privilege('pg_catalog.pg_reload_conf()', 'EXECUTE'), \
                    pg_catalog.has_table_privilege('pg_catalog.pg_file_settings', 'SELECT') \
                      AND pg_catalog.has_function_privilege('pg_catalog.pg_show_all_file_settings()', 'EXECUTE'), \
                    extract(epoch FROM pg_catalog.pg_postmaster_start_time())::pg_catalog.float8, \
                    pg_catalog.has_function_privilege('pg_catalog.pg_control_system()', 'EXECUTE'), \
                    pg_catalog.has_function_privilege('pg_catalog.pg_ls_waldir()', 'EXECUTE'), \
                    pg_catalog.pg_has_role('pg_read_all_stats', 'USAGE'), \
                    (SELECT r.rolname::pg_catalog.text FROM pg_catalog.pg_roles r \
                      WHERE r.rolname OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[]) LIMIT 1)",
            &[(&names, Type::TEXT_ARRAY)],
        )
        .await
        .map_err(server_error)?;
    let row = rows.first().ok_or_else(no_row)?;
    let managed: Option<String> = get(row, 9)?;
    let managed = managed.and_then(|role| MANAGED.iter().find(|(name, _)| *name == role));
    let facts = ServerFacts {
        version_num,
        version,
        role: get(row, 0)?,
        superuser: get(row, 1)?,
        standby: get(row, 2)?,
        may_reload: get(row, 3)?,
        sees_files: get(row, 4)?,
        started: get(row, 5)?,
        managed: managed.map(|(_, service)| (*service).to_owned()),
        ..ServerFacts::default()
    };
    Ok((facts, Rights { control: get(row, 6)?, wal_directory: get(row, 7)?, stats: get(row, 8)? }))
}

async fn settings(client: &Client) -> Result<BTreeMap<String, Setting>> {
    let rows = client
        .query_typed(
            "SELECT s.name, s.setting, pg_catalog.current_setting(s.name), s.unit, s.context, s.source, \
                    s.pending_restart, coalesce(s.enumvals, '{}'), \
                    pg_catalog.has_parameter_privilege(s.name, 'ALTER SYSTEM') \
               FROM pg_catalog.pg_settings s \
              WHERE s.name OPERATOR(pg_catalog.=) ANY ($1::pg_catalog.text[])",
            &[(&SETTINGS, Type::TEXT_ARRAY)],
        )
        .await
        .map_err(server_error)?;
    rows.iter()
        .map(|row| {
            let setting = Setting {
                value: get(row, 1)?,
                shown: get(row, 2)?,
                unit: get(row, 3)?,
                context: get(row, 4)?,
                source: get(row, 5)?,
                pending_restart: get(row, 6)?,
                choices: get(row, 7)?,
                may_alter: get(row, 8)?,
                in_auto_conf: None,
            };
            Ok((get(row, 0)?, setting))
        })
        .collect()
}

/// The configuration files as they are now, which the server need not have read.
pub(crate) struct Files {
    /// What postgresql.auto.conf has: of a name that is there twice, what counts. Not to be relied on where there is
    /// an error: then the file may not have been looked at.
    pub(crate) auto_conf: BTreeMap<String, String>,
    /// Why the server would take nothing from them: place and reason.
    pub(crate) error: Option<String>,
}

/// Reads the configuration files through the server. Needs `sees_files`.
///
/// An unknown name or wrong syntax anywhere makes the server take nothing from any file (guc-file.l,
/// ProcessConfigFileInternal); its words for that are not translated. Other errors concern one setting: among them is
/// that it waits for a restart.
pub(crate) async fn files(client: &Client) -> Result<Files> {
    let rows = client
        .query_typed(
            "SELECT f.name, f.setting, \
                    pg_catalog.right(f.sourcefile, 21) OPERATOR(pg_catalog.=) '/postgresql.auto.conf', \
                    CASE WHEN f.error IS NOT NULL AND (f.name IS NULL \
                              OR f.error OPERATOR(pg_catalog.=) 'unrecognized configuration parameter') \
                         THEN pg_catalog.format('%s line %s: %s', f.sourcefile, f.sourceline, f.error) END \
               FROM pg_catalog.pg_file_settings f ORDER BY f.seqno",
            &[],
        )
        .await
        .map_err(server_error)?;
    let mut files = Files { auto_conf: BTreeMap::new(), error: None };
    for row in &rows {
        let (name, value): (Option<String>, Option<String>) = (get(row, 0)?, get(row, 1)?);
        if let (Some(name), Some(value), Some(true)) = (name, value, get::<Option<bool>>(row, 2)?) {
            files.auto_conf.insert(name, value);
        }
        if files.error.is_none() {
            files.error = get(row, 3)?;
        }
    }
    Ok(files)
}

async fn replicas(client: &Client) -> Result<Vec<Replica>> {
    let rows = client
        .query_typed(
            "SELECT r.application_name, r.state, r.sync_state, \
                    pg_catalog.pg_wal_lsn_diff( \
                      CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
                           ELSE pg_catalog.pg_current_wal_lsn() END, r.replay_lsn)::pg_catalog.int8 \
               FROM pg_catalog.pg_stat_replication r ORDER BY r.pid",
            &[],
        )
        .await
        .map_err(server_error)?;
    rows.iter()
        .map(|row| {
            Ok(Replica {
                name: get(row, 0)?,
                state: get(row, 1)?,
                sync_state: get(row, 2)?,
                behind_bytes: get(row, 3)?,
            })
        })
        .collect()
}

async fn slots(client: &Client) -> Result<Vec<Slot>> {
    let rows = client
        .query_typed(
            "SELECT s.slot_name::pg_catalog.text, s.slot_type, s.active, s.wal_status, \
                    pg_catalog.pg_wal_lsn_diff( \
                      CASE WHEN pg_catalog.pg_is_in_recovery() THEN pg_catalog.pg_last_wal_replay_lsn() \
                           ELSE pg_catalog.pg_current_wal_lsn() END, s.restart_lsn)::pg_catalog.int8 \
               FROM pg_catalog.pg_replication_slots s WHERE NOT s.temporary ORDER BY s.slot_name",
            &[],
        )
        .await
        .map_err(server_error)?;
    rows.iter()
        .map(|row| {
            Ok(Slot {
                name: get(row, 0)?,
                kind: get(row, 1)?,
                active: get(row, 2)?,
                wal_status: get(row, 3)?,
                held_bytes: get(row, 4)?,
            })
        })
        .collect()
}

async fn counters(client: &Client, version_num: u32) -> Result<(Checkpoints, WalCounters, Archiver)> {
    // PostgreSQL 17 moved the counters of checkpoints.
    let checkpoints = if version_num >= 170_000 {
        "c.num_timed, c.num_requested, c.stats_reset::pg_catalog.date::pg_catalog.text \
         FROM pg_catalog.pg_stat_checkpointer c"
    } else {
        "c.checkpoints_timed, c.checkpoints_req, c.stats_reset::pg_catalog.date::pg_catalog.text \
         FROM pg_catalog.pg_stat_bgwriter c"
    };
    let checkpoints = format!("SELECT {checkpoints}");
    let wal = "SELECT w.wal_fpi, w.wal_bytes::pg_catalog.int8, w.wal_buffers_full, \
                      w.stats_reset::pg_catalog.date::pg_catalog.text \
                 FROM pg_catalog.pg_stat_wal w";
    let archiver = "SELECT a.archived_count, a.failed_count, a.last_archived_wal, \
                           a.last_archived_time::pg_catalog.timestamptz(0)::pg_catalog.text, \
                           a.last_failed_time IS NOT NULL \
                             AND coalesce(a.last_failed_time OPERATOR(pg_catalog.>) a.last_archived_time, true), \
                           a.last_failed_wal \
                      FROM pg_catalog.pg_stat_archiver a";
    let (checkpoints, wal, archiver) =
        tokio::try_join!(one(client, &checkpoints), one(client, wal), one(client, archiver))?;
    let count = |row: &Row, i| get::<Option<i64>>(row, i).map(|n| n.and_then(unsigned).unwrap_or_default());
    Ok((
        Checkpoints {
            timed: count(&checkpoints, 0)?,
            requested: count(&checkpoints, 1)?,
            since: get(&checkpoints, 2)?,
        },
        WalCounters {
            page_images: count(&wal, 0)?,
            bytes: count(&wal, 1)?,
            buffers_full: count(&wal, 2)?,
            since: get(&wal, 3)?,
        },
        Archiver {
            archived: get::<Option<i64>>(&archiver, 0)?.unwrap_or_default(),
            failed: get::<Option<i64>>(&archiver, 1)?.unwrap_or_default(),
            last_archived: get(&archiver, 2)?,
            last_archived_at: get(&archiver, 3)?,
            failing: get(&archiver, 4)?,
            last_failed: get(&archiver, 5)?,
        },
    ))
}

async fn tablespaces(client: &Client) -> Result<Vec<Tablespace>> {
    let rows = client
        .query_typed(
            "SELECT t.spcname::pg_catalog.text, pg_catalog.pg_tablespace_location(t.oid) \
               FROM pg_catalog.pg_tablespace t \
              WHERE pg_catalog.pg_tablespace_location(t.oid) OPERATOR(pg_catalog.<>) '' ORDER BY t.spcname",
            &[],
        )
        .await
        .map_err(server_error)?;
    rows.iter().map(|row| Ok(Tablespace { name: get(row, 0)?, location: get(row, 1)? })).collect()
}

async fn one(client: &Client, sql: &str) -> Result<Row> {
    let mut rows = client.query_typed(sql, &[]).await.map_err(server_error)?;
    rows.pop().ok_or_else(no_row)
}

fn no_row() -> Error {
    Error::new(Code::Server, "the server gave no row where there always is one")
}

fn get<'r, T: tokio_postgres::types::FromSql<'r>>(row: &'r Row, i: usize) -> Result<T> {
    row.try_get(i).map_err(server_error)
}

fn unsigned(n: i64) -> Option<u64> {
    u64::try_from(n).ok()
}
