//! Servers of the case: one for each version, which is set up anew for each turn.

use crate::c5::cold::drop_caches;
use crate::c5::storage::Storage;
use crate::c5::{Setup, Tables, data};
use crate::machine;
use inrush_core::{Code, Error, Result};
use inrush_testkit::{Installation, Postgres, ServerOptions};
use inrush_tune::files;
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// Settings of all turns.
const SETTINGS: [(&str, &str); 11] = [
    // Every table has more than a quarter of it: sequential scans use a ring of buffers, as with large
    // tables.
    ("shared_buffers", "128MB"),
    ("max_parallel_workers_per_gather", "0"),
    ("jit", "off"),
    ("track_io_timing", "off"),
    // Nothing but the scan reads or writes.
    ("autovacuum", "off"),
    ("checkpoint_timeout", "1h"),
    ("max_wal_size", "16GB"),
    // COPY into a table of the same transaction then writes no WAL.
    ("wal_level", "minimal"),
    ("max_wal_senders", "0"),
    ("maintenance_work_mem", "256MB"),
    ("max_connections", "20"),
];

/// Settings that a record tells.
const TOLD: [&str; 10] = [
    "server_version",
    "shared_buffers",
    "random_page_cost",
    "seq_page_cost",
    "effective_cache_size",
    "effective_io_concurrency",
    "maintenance_io_concurrency",
    "io_method",
    "io_workers",
    "io_combine_limit",
];

/// A server of one version.
#[derive(Debug)]
pub struct Server {
    postgres: Postgres,
    version: u32,
    /// Settings that setups have changed so far, with their values.
    changed: RefCell<BTreeMap<String, String>>,
}

impl Server {
    /// Starts one.
    pub fn start(installation: &Installation) -> Result<Server> {
        let options =
            ServerOptions { version: installation.wanted(), conf: &SETTINGS, ..ServerOptions::default() };
        // The kit is made for tests and panics, with the server's log as its words; nothing of ours is half
        // done.
        let postgres = catch_unwind(|| Postgres::start(&options))
            .map_err(|_| Error::new(Code::Local, format!("{} does not start", installation.wanted())))?;
        Ok(Server { postgres, version: installation.major(), changed: RefCell::default() })
    }

    /// How it is reached.
    pub fn dsn(&self) -> String {
        self.postgres.url()
    }

    /// What statements give, without header and alignment.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.postgres.try_psql(sql).map_err(|text| {
            Error::new(Code::Server, format!("the server refused a statement of the bench: {text}"))
        })
    }

    /// Settings as they are.
    pub fn facts(&self) -> Result<BTreeMap<String, String>> {
        let names = TOLD.map(|name| format!("'{name}'")).join(", ");
        let rows = self
            .sql(&format!("SELECT name, current_setting(name) FROM pg_settings WHERE name IN ({names})"))?;
        let pair = |row: &str| row.split_once('|').map(|(name, value)| (name.to_owned(), value.to_owned()));
        Ok(rows.lines().filter_map(pair).collect())
    }

    /// Why it cannot be set up so.
    pub fn lacks(&self, setup: &Setup) -> Result<Option<String>> {
        for (name, value) in &setup.settings {
            let known = self.sql(&format!(
                "SELECT coalesce('{value}' = ANY (enumvals), true) FROM pg_settings WHERE name = '{name}'"
            ))?;
            if known != "t" {
                return Ok(Some(match known.is_empty() {
                    true => format!("it has no setting {name}"),
                    false => format!("it is built without {name} = {value}"),
                }));
            }
        }
        Ok(None)
    }

    /// Sets it up, and starts it anew, with nothing in its memory. Its processes are as slow as the storage.
    pub fn restart(&self, setup: &Setup, storage: &Storage) -> Result<()> {
        let mut changed = self.changed.borrow_mut();
        if *changed != setup.settings {
            let resets = changed.keys().map(|name| format!("ALTER SYSTEM RESET {name};\n"));
            let sets =
                setup.settings.iter().map(|(name, value)| format!("ALTER SYSTEM SET {name} = '{value}';\n"));
            self.sql(&resets.chain(sets).collect::<String>())?;
            changed.clone_from(&setup.settings);
        }
        catch_unwind(AssertUnwindSafe(|| self.postgres.restart())).map_err(|_| {
            Error::new(Code::Local, format!("PostgreSQL {} does not start again", self.version))
        })?;
        if let Some(postmaster) = self.postgres.pid() {
            storage.add(postmaster)?;
            for pid in machine::children_of(postmaster) {
                // One that has just ended reads nothing.
                let _ = storage.add(pid);
            }
        }
        Ok(())
    }

    /// Makes the tables of a rung on its storage: `tbx_RUNG` and the others, in the tablespace `c5_RUNG`.
    pub fn fill(&self, rung: &str, storage: &Storage, tables: Tables) -> Result<()> {
        self.sql(&format!("CREATE TABLESPACE c5_{rung} LOCATION '{}'", storage.tables().display()))?;
        data::make(&self.postgres, &format!("c5_{rung}"), tables, &format!("_{rung}"))?;
        self.sql("CHECKPOINT").map(drop)
    }

    /// Removes them.
    pub fn empty(&self, rung: &str) -> Result<()> {
        self.sql(&format!(
            "DROP TABLE IF EXISTS tbx_{rung}, events_{rung}, lineitem_{rung};\n\
             DROP TABLESPACE IF EXISTS c5_{rung}"
        ))
        .map(drop)
    }

    /// Bytes of tables and indexes of a rung.
    pub fn sizes(&self, rung: &str) -> Result<BTreeMap<String, u64>> {
        let rows = self.sql(&format!(
            "SELECT c.relname, pg_relation_size(c.oid) FROM pg_class c \
             JOIN pg_tablespace t ON t.oid = c.reltablespace \
             WHERE t.spcname = 'c5_{rung}' AND c.relkind IN ('r', 'i')"
        ))?;
        let pair = |row: &str| {
            let (name, bytes) = row.split_once('|')?;
            Some((name.to_owned(), bytes.parse().ok()?))
        };
        Ok(rows.lines().filter_map(pair).collect())
    }

    /// The files of the tables and indexes of a rung.
    pub fn files(&self, rung: &str) -> Result<Vec<PathBuf>> {
        let rows = self.sql(&format!(
            "SELECT pg_relation_filepath(c.oid) FROM pg_class c \
             JOIN pg_tablespace t ON t.oid = c.reltablespace \
             WHERE t.spcname = 'c5_{rung}' AND c.relkind IN ('r', 'i', 't')"
        ))?;
        let data = self.postgres.data_dir();
        let of = |path: &str| {
            let path = data.join(path);
            files::of(&path)
                .map_err(|e| Error::new(Code::Local, format!("cannot open {}: {e}", path.display())))
        };
        Ok(rows.lines().map(of).collect::<Result<Vec<_>>>()?.concat())
    }

    /// Takes these files out of the page cache; what is left of them there.
    pub fn forget(&self, files: &[PathBuf]) -> Result<f64> {
        drop_caches(files)
    }

    /// CPU seconds of all its processes so far.
    pub fn cpu(&self) -> Option<f64> {
        machine::server_cpu(self.postgres.pid()?)
    }
}
