use crate::machine;
use crate::record::ServerFacts;
use inrush_core::{Code, Error, Result};
use inrush_testkit::{Installation, Postgres, ServerOptions, Version};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::Path;
use std::process::{Command, Stdio};

/// Settings that a record tells.
const SETTINGS: &str = "shared_buffers, max_wal_size, checkpoint_timeout, fsync, full_page_writes, \
    data_checksums, wal_level, wal_compression, wal_buffers, autovacuum, max_connections, huge_pages";

/// A server that contenders run against.
#[derive(Debug)]
pub struct Server {
    dsn: String,
    /// One that was started for this; stops when dropped.
    own: Option<Postgres>,
    postmaster: Option<u32>,
}

/// Where everything is made and removed again.
pub const SCHEMA: &str = "inrush_bench";
/// The ledger of the loads of a bench.
const LEDGER: &str = "inrush_bench_ledger";

impl Server {
    /// Starts one of this major version, with data checksums, fsync and the settings.
    pub fn start(major: u32, settings: &BTreeMap<String, String>) -> Result<Server> {
        if Installation::find(Version::Major(major)).is_none() {
            let known: Vec<_> = Installation::all().iter().map(|one| one.major().to_string()).collect();
            return Err(Error::new(Code::Local, format!("PostgreSQL {major} is not installed"))
                .hint(format!("Found here: {}. tests/servers.sh fetches 16 and 18.", known.join(", "))));
        }
        let conf: Vec<(&str, &str)> = settings.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        let own = Postgres::start(&ServerOptions {
            version: Version::Major(major),
            conf: &conf,
            initdb: &["--data-checksums"],
            durable: true,
            ..ServerOptions::default()
        });
        let postmaster = own.pid();
        Ok(Server { dsn: own.url(), own: Some(own), postmaster })
    }

    /// One that runs already.
    pub fn named(dsn: &str) -> Result<Server> {
        let mut server = Server { dsn: dsn.to_owned(), own: None, postmaster: None };
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

    /// What tells libpq of an own server, for contenders that take no connection string.
    pub fn environment(&self) -> Vec<(&'static str, OsString)> {
        let Some(own) = &self.own else { return Vec::new() };
        vec![
            ("PGHOST", own.socket_dir().into()),
            ("PGPORT", own.port().to_string().into()),
            ("PGUSER", "postgres".into()),
            ("PGDATABASE", "postgres".into()),
        ]
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
            started_for_this: self.own.is_some(),
            settings,
        })
    }

    /// Whether an extension is there and could be made.
    pub fn make_extension(&self, name: &str) -> Result<(), String> {
        self.try_sql(&format!("CREATE EXTENSION IF NOT EXISTS {name}")).map(drop)
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

    /// An empty table, nothing of an earlier run, nothing left to write.
    pub fn prepare(&self, columns: &str) -> Result<()> {
        self.clear()?;
        self.sql(&format!("CREATE SCHEMA {SCHEMA}; CREATE TABLE {SCHEMA}.t ({columns})"))?;
        self.checkpoint()
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

    /// Rows of the table, and a hash that does not depend on their order.
    pub fn rows_and_hash(&self) -> Result<(u64, String)> {
        let text = self.sql(&format!(
            "SELECT count(*), coalesce(sum(hash_record_extended(t, 0)::numeric), 0) FROM {SCHEMA}.t"
        ))?;
        let (rows, hash) = text.split_once('|').unwrap_or((&text, ""));
        Ok((rows.parse().unwrap_or(0), hash.to_owned()))
    }

    /// CPU seconds of all its processes so far.
    pub fn cpu(&self) -> Option<f64> {
        machine::server_cpu(self.postmaster?)
    }

    fn sql(&self, sql: &str) -> Result<String> {
        self.try_sql(sql).map_err(|text| {
            Error::new(Code::Server, format!("the server refused a statement of the bench: {text}"))
        })
    }

    fn try_sql(&self, sql: &str) -> Result<String, String> {
        let mut command = Command::new("psql");
        if !self.uses_environment() {
            remove_server_variables(&mut command);
        }
        let output = command
            .args(["-XqAt", "-v", "ON_ERROR_STOP=1", "-d", &self.dsn, "-c", sql])
            .env("PGOPTIONS", "-c client_min_messages=warning")
            .stdin(Stdio::null())
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
