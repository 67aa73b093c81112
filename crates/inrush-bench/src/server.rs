use crate::record::ServerFacts;
use crate::{Rung, machine};
use inrush_core::{Code, Error, Result};
use inrush_testkit::{Installation, Postgres, ServerOptions, USUAL_BLOCK_SIZE};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};

/// Settings that a record tells.
const SETTINGS: &str = "shared_buffers, max_wal_size, checkpoint_timeout, fsync, full_page_writes, \
    data_checksums, wal_level, wal_compression, wal_buffers, autovacuum, max_connections, huge_pages, \
    block_size, wal_block_size";

/// A server that contenders run against.
#[derive(Debug)]
pub struct Server {
    dsn: String,
    /// One that was started for this; stops when dropped.
    own: Option<Postgres>,
    /// What tells libpq of it, for contenders that take no connection string.
    environment: Vec<(&'static str, OsString)>,
    postmaster: Option<u32>,
}

/// What is in the table.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Found {
    pub rows: u64,
    /// Does not depend on the order of the rows: the sum of their hashes, which may be negative.
    pub hash: String,
    /// Of the main fork: what the relation was extended by.
    pub bytes: u64,
}

/// Where everything is made and removed again.
pub const SCHEMA: &str = "inrush_bench";
/// The table that is loaded.
pub const TABLE: &str = "inrush_bench.t";
/// The ledger of the loads of a bench.
pub const LEDGER: &str = "inrush_bench_ledger";

impl Server {
    /// Starts one, with data checksums, fsync and the settings.
    pub fn start(installation: &Installation, settings: &BTreeMap<String, String>) -> Result<Server> {
        let conf: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let options = ServerOptions {
            version: installation.wanted(),
            conf: &conf,
            initdb: &["--data-checksums"],
            durable: true,
            ..ServerOptions::default()
        };
        // The kit is made for tests and panics, with the server's log as its words; nothing of ours is half done.
        let own = std::panic::catch_unwind(|| Postgres::start(&options))
            .map_err(|_| Error::new(Code::Local, format!("{} does not start", installation.wanted())))?;
        let postmaster = own.pid();
        let environment = vec![
            ("PGHOST", own.socket_dir().into()),
            ("PGPORT", own.port().to_string().into()),
            ("PGUSER", "postgres".into()),
            ("PGDATABASE", "postgres".into()),
        ];
        Ok(Server { dsn: own.url(), own: Some(own), environment, postmaster })
    }

    /// One that runs already.
    pub fn named(dsn: &str) -> Result<Server> {
        let mut server = Server { dsn: dsn.to_owned(), own: None, environment: Vec::new(), postmaster: None };
        // What libpq made of the connection string and the environment. A password in the string stays there.
        for (name, variable) in
            [("PGHOST", "HOST"), ("PGPORT", "PORT"), ("PGUSER", "USER"), ("PGDATABASE", "DBNAME")]
        {
            server.environment.push((name, server.sql(&format!("\\echo :{variable}"))?.into()));
        }
        // Through a socket the server is on this machine. A session of psql has ended when we look, so its
        // backend must be alive for that long.
        let local =
            server.sql("SELECT inet_server_addr() IS NULL OR inet_server_addr() = inet_client_addr()")?;
        if local == "t" {
            let backend =
                server.sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'")?;
            server.postmaster = backend.parse().ok().and_then(machine::postmaster_of);
        }
        Ok(server)
    }

    /// What contenders connect to.
    pub fn dsn(&self) -> &str {
        &self.dsn
    }

    /// What tells libpq of it, for contenders that take no connection string.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        self.environment.clone()
    }

    /// Whether the environment's `PG*` variables are part of how to connect.
    pub fn uses_environment(&self) -> bool {
        self.own.is_none()
    }

    /// Version and settings.
    pub fn facts(&self) -> Result<ServerFacts> {
        let number: u32 = self.sql("SHOW server_version_num")?.parse().unwrap_or(0);
        let mut settings = BTreeMap::new();
        for name in SETTINGS.split(',').map(str::trim) {
            settings.insert(name.to_owned(), self.sql(&format!("SHOW {name}"))?);
        }
        Ok(ServerFacts {
            version: self.sql("SHOW server_version")?,
            major: number / 10_000,
            block_size: settings.get("block_size").and_then(|n| n.parse().ok()).unwrap_or(USUAL_BLOCK_SIZE),
            started_for_this: self.own.is_some(),
            settings,
        })
    }

    /// Whether an extension is there and could be made.
    pub fn make_extension(&self, name: &str) -> Result<(), String> {
        self.try_sql(&format!("CREATE EXTENSION IF NOT EXISTS {name}"), Stdio::null()).map(drop)
    }

    /// A value of `synchronous_commit` for every session of our role, whatever program opens it.
    pub fn set_synchronous_commit(&self, value: Option<&str>) -> Result<()> {
        let what = match value {
            Some(value) => format!("SET synchronous_commit = {value}"),
            None => "RESET synchronous_commit".to_owned(),
        };
        self.sql(&format!(
            "DO $$ BEGIN EXECUTE format('ALTER ROLE CURRENT_USER IN DATABASE %I {what}', current_database()); \
             END $$"
        ))
        .map(drop)
    }

    /// The table of a rung without the rows of any run, and nothing left to write. `text` has the rows to be loaded,
    /// as COPY text; what is in the table already comes back.
    pub fn prepare(&self, rung: &Rung, columns: &str, text: &Path) -> Result<Found> {
        self.clear()?;
        let unlogged = if rung.unlogged { "UNLOGGED " } else { "" };
        self.sql(&format!("CREATE SCHEMA {SCHEMA}; CREATE {unlogged}TABLE {TABLE} ({columns})"))?;
        for statement in &rung.index {
            self.sql(&statement.replace("{table}", TABLE))?;
        }
        let mut before = Found::default();
        if let Some(column) = &rung.foreign_key {
            self.copy(text)?;
            self.sql(&format!(
                "CREATE TABLE {SCHEMA}.referenced AS SELECT DISTINCT {column} FROM {TABLE}; TRUNCATE {TABLE}; \
                 ALTER TABLE {SCHEMA}.referenced ADD PRIMARY KEY ({column}); \
                 ALTER TABLE {TABLE} ADD FOREIGN KEY ({column}) REFERENCES {SCHEMA}.referenced"
            ))?;
            self.sql(&format!("VACUUM ANALYZE {SCHEMA}.referenced"))?;
        }
        if rung.pre_extended {
            self.copy(text)?;
            // The last row is on the last page: VACUUM gives no page back to the file system, and enters all of
            // them in the free space map.
            self.sql(&format!("DELETE FROM {TABLE} WHERE ctid <> (SELECT max(ctid) FROM {TABLE})"))?;
            self.sql(&format!("VACUUM {TABLE}"))?;
            before = self.found(&Found::default())?;
        }
        self.checkpoint()?;
        Ok(before)
    }

    /// Fills the table from COPY text.
    fn copy(&self, text: &Path) -> Result<()> {
        let rows = File::open(text)
            .map_err(|e| Error::new(Code::Internal, format!("cannot read {}: {e}", text.display())))?;
        self.sql_with(&format!("COPY {TABLE} FROM STDIN"), rows.into()).map(drop)
    }

    /// Removes what a run left.
    pub fn clear(&self) -> Result<()> {
        self.sql(&format!("DROP SCHEMA IF EXISTS {SCHEMA}, {LEDGER} CASCADE")).map(drop)
    }

    /// Writes everything to the disk.
    pub fn checkpoint(&self) -> Result<()> {
        self.sql("CHECKPOINT").map(drop)
    }

    /// The WAL insert position, in bytes.
    pub fn wal_position(&self) -> Result<u64> {
        let text = self.sql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn")?;
        text.parse().map_err(|_| Error::new(Code::Internal, format!("{text} is no WAL position")))
    }

    /// What is in the table beside what was there before.
    pub fn found(&self, before: &Found) -> Result<Found> {
        let less = if before.hash.is_empty() { "0" } else { &before.hash };
        let text = self.sql(&format!(
            "SELECT count(*) - {}, coalesce(sum(hash_record_extended(t, 0)::numeric), 0) - {less}, \
             pg_relation_size('{TABLE}') - {} FROM {TABLE}",
            before.rows, before.bytes
        ))?;
        let mut fields = text.split('|');
        let mut next = || fields.next().unwrap_or_default();
        let (rows, hash, bytes) = (next(), next(), next());
        Ok(Found {
            rows: rows.parse().unwrap_or(0),
            hash: hash.to_owned(),
            bytes: bytes.parse().unwrap_or(0),
        })
    }

    /// CPU seconds of all its processes so far.
    pub fn cpu(&self) -> Option<f64> {
        machine::server_cpu(self.postmaster?)
    }

    /// What a statement gives, without header and alignment.
    pub fn sql(&self, sql: &str) -> Result<String> {
        self.sql_with(sql, Stdio::null())
    }

    fn sql_with(&self, sql: &str, input: Stdio) -> Result<String> {
        self.try_sql(sql, input).map_err(|text| {
            Error::new(Code::Server, format!("the server refused a statement of the bench: {text}"))
        })
    }

    fn try_sql(&self, sql: &str, input: Stdio) -> Result<String, String> {
        let mut command = Command::new("psql");
        if !self.uses_environment() {
            remove_server_variables(&mut command);
        }
        let output = command
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.dsn, "-c", sql])
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(input)
            .output()
            .map_err(|e| format!("psql cannot be run: {e}"))?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned())
        } else {
            Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned())
        }
    }
}

/// PATH with the programs of an installed server in front: Debian's /usr/bin/psql is a Perl script that finds the
/// real one, and its start is not psql's.
pub fn search_path() -> OsString {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let real = Installation::all().iter().map(Installation::bin).find(|bin| {
        Command::new(bin.join("psql")).arg("--version").output().is_ok_and(|output| output.status.success())
    });
    let dirs = real.map(Path::to_owned).into_iter().chain(std::env::split_paths(&path));
    // A directory with a colon in its name cannot have come from PATH.
    std::env::join_paths(dirs).unwrap_or(path.clone())
}

/// Keeps the developer's `PG*` variables away from a server of ours.
pub fn remove_server_variables(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PG") {
            command.env_remove(name);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Case, Form, write_data};
    use inrush_testkit::Version;

    /// Prepares the table of every rung with these blocks of case C1 and loads it as psql would.
    fn every_form(server: &Server) -> u32 {
        let case = Case::find("c1").unwrap();
        let facts = server.facts().unwrap();
        let (rows, dir) = (2000, tempfile::tempdir().unwrap());
        let text = dir.path().join("rows.text");
        write_data(&case, Form::Text, rows, &text).unwrap();
        let mut hash = None;
        let mut forms = 0;
        for rung in case.each_rung().iter().filter(|rung| rung.block_size == facts.block_size) {
            let before = server.prepare(rung, &case.columns, &text).unwrap();
            let persistence = format!("SELECT relpersistence FROM pg_class WHERE oid = '{TABLE}'::regclass");
            let expected = if rung.unlogged { "u" } else { "p" };
            assert_eq!(server.sql(&persistence).unwrap(), expected, "{}", rung.name);
            let indexes = format!("SELECT count(*) FROM pg_index WHERE indrelid = '{TABLE}'::regclass");
            assert_eq!(server.sql(&indexes).unwrap(), rung.index.len().to_string(), "{}", rung.name);
            let keys = format!(
                "SELECT count(*) FROM pg_constraint WHERE contype = 'f' AND conrelid = '{TABLE}'::regclass"
            );
            assert_eq!(server.sql(&keys).unwrap(), u8::from(rung.foreign_key.is_some()).to_string());
            assert_eq!(before.rows, u64::from(rung.pre_extended));
            let full = u64::from(facts.block_size);
            assert_eq!(before.bytes >= rows * 400, rung.pre_extended, "{}: {before:?}", rung.name);

            server.copy(&text).unwrap();
            let found = server.found(&before).unwrap();
            assert_eq!(found.rows, rows, "{}", rung.name);
            // The row that is left there takes the place of one of the others.
            assert_eq!(found.bytes <= full, rung.pre_extended, "{}: {found:?}", rung.name);
            assert_eq!(*hash.get_or_insert_with(|| found.hash.clone()), found.hash, "{}", rung.name);
            forms += 1;
        }
        server.clear().unwrap();
        forms
    }

    #[test]
    fn every_rung_has_its_table() {
        let server = Server::start(&Installation::all()[0], &BTreeMap::new()).unwrap();
        assert_eq!(server.facts().unwrap().block_size, 8192);
        assert!(every_form(&server) >= 6);
    }

    #[test]
    fn larger_blocks_have_theirs() {
        if !Installation::have_or_say_skipped(Version::Blocks { major: 15, block_size: 32768 }) {
            return;
        }
        let server = Server::start(&Installation::with_other_blocks()[0], &BTreeMap::new()).unwrap();
        assert_eq!(server.sql("SHOW block_size; SHOW wal_block_size").unwrap(), "32768\n65536");
        assert_eq!(server.facts().unwrap().block_size, 32768);
        assert!(every_form(&server) >= 4);
    }

    #[test]
    fn a_named_server_tells_how_libpq_reached_it() {
        let own = Server::start(&Installation::all()[0], &BTreeMap::new()).unwrap();
        let named = Server::named(own.dsn()).unwrap();
        assert_eq!(named.environment(), own.environment());
    }
}
