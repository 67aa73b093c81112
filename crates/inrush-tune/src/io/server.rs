//! What of a server decides about its scans: settings, tablespaces with their options and directories, and how much of
//! what is read is cached.

use super::advice::{SystemSetting, Tablespace};
use super::report::{DiskShare, Server, TablespaceOption};
use crate::advise::ServerFacts;
use inrush_core::Result;
use inrush_sink::failure::server_error;
use std::path::{Path, PathBuf};
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, GenericClient};

/// The options of a tablespace that are ever set from here.
pub(super) const OPTIONS: &[&str] =
    &["effective_io_concurrency", "maintenance_io_concurrency", "random_page_cost"];

/// The settings that a tablespace has options for.
const MASKED: &[&str] =
    &["effective_io_concurrency", "maintenance_io_concurrency", "random_page_cost", "seq_page_cost"];

/// A tablespace, and where its files are.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Space {
    /// What the rules look at.
    pub tablespace: Tablespace,
    /// Whether it is the one of the database, where no other is named.
    pub default: bool,
    /// Whether it is within the data directory.
    pub in_data: bool,
    /// Its directory, as the server names it; `None` where it may not be told.
    pub directory: Option<PathBuf>,
}

/// Reads what decides about scans.
///
/// # Errors
/// `server` where a statement fails that everybody may give.
pub async fn read(client: &Client, facts: &ServerFacts) -> Result<(Server, Vec<Space>)> {
    let value = |name: &str| facts.setting(name).map(|setting| setting.value.clone());
    let number = |name: &str| value(name).and_then(|value| value.parse::<u32>().ok());
    let server = Server {
        version_num: facts.version_num,
        version: facts.version.clone(),
        role: facts.role.clone(),
        managed: facts.managed.clone(),
        standby: facts.standby,
        io_method: value("io_method"),
        io_methods: facts.setting("io_method").map(|setting| setting.choices.clone()).unwrap_or_default(),
        io_workers: number("io_workers"),
        io_max_concurrency: number("io_max_concurrency"),
        shared_buffers: value("shared_buffers")
            .and_then(|blocks| blocks.parse::<u64>().ok())
            .zip(value("block_size").and_then(|size| size.parse::<u64>().ok()))
            .map(|(blocks, size)| blocks * size),
        shared_miss: shared_miss(client).await?,
        disk_share: None,
    };
    Ok((server, spaces(client, facts).await?))
}

/// Requests for pages before a share of them says anything.
const ENOUGH_REQUESTS: i64 = 10_000;

/// The share of requests for pages that shared_buffers had no answer for, since the counters of the database began.
async fn shared_miss(client: &Client) -> Result<Option<f64>> {
    let row = client
        .query_one(
            "SELECT pg_catalog.sum(d.blks_read)::pg_catalog.int8, pg_catalog.sum(d.blks_hit)::pg_catalog.int8 \
               FROM pg_catalog.pg_stat_database d",
            &[],
        )
        .await
        .map_err(server_error)?;
    let (read, hit): (Option<i64>, Option<i64>) = (row.get(0), row.get(1));
    #[allow(clippy::cast_precision_loss)] // counters
    Ok(read
        .zip(hit)
        .filter(|(read, hit)| read + hit >= ENOUGH_REQUESTS)
        .map(|(read, hit)| read as f64 / (read + hit) as f64))
}

/// The share of reads that the page cache does not answer, by what reads take: a read from the page cache takes
/// `cached_us`, one from the storage `latency_us`. Needs track_io_timing; until PostgreSQL 17. Since 18 the times of
/// reads that others have begun are only those of waiting.
///
/// # Errors
/// `server` where a statement fails.
pub async fn disk_share(
    client: &Client,
    facts: &ServerFacts,
    latency_us: f64,
    cached_us: f64,
) -> Result<Option<DiskShare>> {
    if !facts.is("track_io_timing", "on") || facts.version_num >= 180_000 || latency_us <= cached_us {
        return Ok(None);
    }
    let row = client
        .query_one(
            "SELECT pg_catalog.sum(d.blk_read_time)::pg_catalog.float8, \
                    pg_catalog.sum(d.blks_read)::pg_catalog.int8 FROM pg_catalog.pg_stat_database d",
            &[],
        )
        .await
        .map_err(server_error)?;
    let (time_ms, reads): (Option<f64>, Option<i64>) = (row.get(0), row.get(1));
    let Some((time_ms, reads)) =
        time_ms.zip(reads).filter(|(time, reads)| *reads >= ENOUGH_REQUESTS && *time > 0.0)
    else {
        return Ok(None);
    };
    #[allow(clippy::cast_precision_loss)] // a counter
    let mean_us = time_ms * 1e3 / reads as f64;
    let share = ((mean_us - cached_us) / (latency_us - cached_us)).clamp(0.0, 1.0);
    let how = format!("by track_io_timing a read took {mean_us:.0} us on average");
    Ok(Some(DiskShare { share, how }))
}

async fn spaces(client: &Client, facts: &ServerFacts) -> Result<Vec<Space>> {
    let rows = client
        .query_typed(
            "SELECT t.spcname::pg_catalog.text, coalesce(t.spcoptions, '{}'), \
                    pg_catalog.pg_has_role(t.spcowner, 'USAGE'), pg_catalog.pg_tablespace_location(t.oid), \
                    t.oid OPERATOR(pg_catalog.=) (SELECT d.dattablespace FROM pg_catalog.pg_database d \
                        WHERE d.datname OPERATOR(pg_catalog.=) pg_catalog.current_database()) \
               FROM pg_catalog.pg_tablespace t \
              WHERE t.spcname OPERATOR(pg_catalog.<>) 'pg_global' \
              ORDER BY 5 DESC, 1",
            &[],
        )
        .await
        .map_err(server_error)?;
    let shown = |name: &&str| {
        facts
            .setting(name)
            .map(|setting| TablespaceOption { name: (*name).to_owned(), value: setting.value.clone() })
    };
    let settings: Vec<TablespaceOption> = MASKED.iter().filter_map(shown).collect();
    let system: Vec<SystemSetting> =
        ["io_workers", "io_method"].into_iter().map(|name| system(facts, name)).collect();
    let data = facts.setting("data_directory").map(|setting| PathBuf::from(&setting.value));
    let spaces = rows.iter().map(|row| {
        let location: String = row.get(3);
        let directory = if location.is_empty() {
            data.as_ref().map(|data| data.join("base"))
        } else {
            Some(PathBuf::from(&location))
        };
        Space {
            tablespace: Tablespace {
                name: row.get(0),
                options: options(row.get(1)),
                settings: settings.clone(),
                may_alter: facts.superuser || row.get::<_, bool>(2),
                system: system.clone(),
            },
            default: row.get(4),
            in_data: location.is_empty(),
            directory,
        }
    });
    Ok(spaces.collect())
}

fn system(facts: &ServerFacts, name: &'static str) -> SystemSetting {
    let Some(setting) = facts.setting(name) else {
        return SystemSetting { name, ..SystemSetting::default() };
    };
    let obstacle = match setting.source.as_str() {
        "command line" => {
            Some("it is set on the server's command line, which wins over ALTER SYSTEM".to_owned())
        }
        "environment variable" => {
            Some("it is set in the server's environment, which wins over ALTER SYSTEM".to_owned())
        }
        _ if facts.is("allow_alter_system", "off") => Some(
            "allow_alter_system is off: the configuration of this server is managed from outside".to_owned(),
        ),
        _ => None,
    };
    SystemSetting { name, may: setting.may_alter, obstacle }
}

/// `{effective_io_concurrency=7}` as the catalog has it.
fn options(list: Vec<String>) -> Vec<TablespaceOption> {
    let option = |entry: String| {
        let (name, value) = entry.split_once('=')?;
        Some(TablespaceOption { name: name.to_owned(), value: value.to_owned() })
    };
    list.into_iter().filter_map(option).collect()
}

/// A tablespace as it is now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Found {
    /// Its OID: names change.
    pub(super) oid: u32,
    /// Its name.
    pub(super) name: String,
    /// Its options.
    options: Vec<TablespaceOption>,
}

impl Found {
    /// The tablespace of this name; `None` if there is none.
    pub(super) async fn named(client: &impl GenericClient, name: &str) -> Result<Option<Found>> {
        let condition = "t.spcname OPERATOR(pg_catalog.=) $1::pg_catalog.name";
        Found::one(client, condition, (&name, Type::TEXT)).await
    }

    /// The tablespace with this OID; `None` if there is none any more.
    pub(super) async fn of(client: &impl GenericClient, oid: u32) -> Result<Option<Found>> {
        Found::one(client, "t.oid OPERATOR(pg_catalog.=) $1", (&oid, Type::OID)).await
    }

    async fn one(
        client: &impl GenericClient,
        condition: &str,
        parameter: (&(dyn ToSql + Sync), Type),
    ) -> Result<Option<Found>> {
        let sql = format!(
            "SELECT t.oid, t.spcname::pg_catalog.text, coalesce(t.spcoptions, '{{}}') \
               FROM pg_catalog.pg_tablespace t WHERE {condition}"
        );
        let rows = client.query_typed(&sql, &[parameter]).await.map_err(server_error)?;
        Ok(rows.first().map(|row| Found { oid: row.get(0), name: row.get(1), options: options(row.get(2)) }))
    }

    /// The value of an option, if it has that.
    pub(super) fn option(&self, name: &str) -> Option<String> {
        self.options.iter().find(|option| option.name == name).map(|option| option.value.clone())
    }
}

/// The value of an option of a tablespace; `None` if it has none, or there is no such tablespace.
pub(super) async fn option_of(
    client: &impl GenericClient,
    tablespace: &str,
    name: &str,
) -> Result<Option<String>> {
    Ok(Found::named(client, tablespace).await?.and_then(|found| found.option(name)))
}

/// Makes a session one that may wait for a measurement, and in which nobody's names are taken for PostgreSQL's.
///
/// # Errors
/// `server` where the statement fails.
pub async fn prepare(client: &Client) -> Result<()> {
    client
        .batch_execute("SET search_path = pg_catalog, pg_temp; SET idle_session_timeout = 0")
        .await
        .map_err(server_error)
}

/// The directory of a tablespace that the server's account may write into: within a location, that of the version.
pub fn writable_directory(directory: &Path, version_num: u32) -> PathBuf {
    let prefix = format!("PG_{}_", version_num / 10_000);
    let mut inside = std::fs::read_dir(directory)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(&prefix))
        .map(|entry| entry.path());
    inside.next().unwrap_or_else(|| directory.to_owned())
}
