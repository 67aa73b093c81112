use crate::account::{Account, cannot};
use crate::find::{OLDEST, Server, servers};
use crate::paths::{PORT, Paths};
use crate::postmaster::{self, Postmaster};
use crate::{create, prompt};
use inrush_core::{Code, Error, Result};
use std::ffi::OsString;
use std::fs::{self, File, TryLockError};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

/// Major version that is fetched for a new data directory.
const FETCHED: u32 = 18;

/// What the user may decide about the embedded server.
#[derive(Debug, Clone, Default)]
pub struct Options {
    /// The root directory; `None`: the default one.
    pub dir: Option<PathBuf>,
    /// Use a server that Inrush fetched, and fetch it, even if one is installed.
    pub fetch: bool,
}

impl Options {
    /// From `INRUSH_LOCAL_DIR` (a path) and `INRUSH_LOCAL_FETCH` (1: only a fetched server).
    pub fn from_env() -> Options {
        Options {
            dir: std::env::var_os("INRUSH_LOCAL_DIR").filter(|dir| !dir.is_empty()).map(PathBuf::from),
            fetch: std::env::var_os("INRUSH_LOCAL_FETCH").is_some_and(|value| value == "1"),
        }
    }
}

/// What takes a while, as it begins or ends.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Progress {
    /// Another process is starting, stopping or removing the server; waiting for it.
    Waiting,
    /// No server is installed: fetching this major version.
    Fetching {
        /// The major version.
        major: u32,
    },
    /// Fetched, and its published checksum is right.
    Fetched {
        /// The version, such as `18.1.0`.
        version: String,
        /// The size of what was fetched.
        bytes: u64,
    },
    /// Creating the data directory.
    Creating {
        /// The version of the server that creates it.
        version: String,
        /// The data directory.
        data_dir: PathBuf,
    },
    /// Starting the server.
    Starting {
        /// Its version.
        version: String,
    },
}

/// A server that takes connections.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// The connection URL of its database.
    pub url: String,
    /// Its version, such as `18.1`.
    pub version: String,
    /// The data directory was created just now.
    pub created: bool,
    /// It ran before.
    pub was_running: bool,
}

/// What the embedded server is doing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum State {
    /// There is no data directory.
    Absent,
    /// It does not run.
    Stopped,
    /// It does not take connections: it starts (perhaps recovering from a crash) or stops.
    Starting {
        /// The process id of the postmaster.
        pid: u32,
    },
    /// It takes connections.
    Running {
        /// The process id of the postmaster.
        pid: u32,
    },
}

/// The embedded server as it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    /// What it is doing.
    pub state: State,
    /// The major version of its data directory; `None` if there is none.
    pub major: Option<u32>,
    /// The server it runs from, or would be started with; `None` if it would have to be fetched.
    pub server: Option<Server>,
    /// The connection URL, whether it runs or not.
    pub url: String,
    /// The directory everything is in.
    pub root: PathBuf,
    /// The data directory.
    pub data_dir: PathBuf,
    /// The server's log.
    pub log: PathBuf,
}

/// How to stop it (`pg_ctl stop -m`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StopMode {
    /// Waits until every client has gone.
    Smart,
    /// Ends the sessions, then shuts down cleanly.
    #[default]
    Fast,
    /// Aborts everything at once; the next start recovers as after a crash.
    Immediate,
}

/// The embedded server of this user. Opening it starts and creates nothing.
#[derive(Debug)]
pub struct Local {
    paths: Paths,
    account: Account,
    fetch: bool,
}

impl Local {
    /// Finds out who the server runs as and where it is.
    ///
    /// # Errors
    /// `local`: the user has no name or no home, or as root there is no account to run the server as.
    pub fn open(options: &Options) -> Result<Local> {
        let account = Account::find()?;
        let root = match &options.dir {
            Some(dir) => dir.clone(),
            None => Paths::default_root(&account)?,
        };
        Ok(Local { paths: Paths::under(&root)?, account, fetch: options.fetch })
    }

    /// The connection URL of the database `inrush`, as the superuser with the user's own name.
    pub fn url(&self) -> String {
        let host = percent_encoded(&self.paths.socket_dir.to_string_lossy());
        let role = percent_encoded(self.account.role());
        format!("postgresql://{role}@/{}?host={host}&port={PORT}", create::DATABASE)
    }

    /// Makes sure that the server runs: finds or fetches one, creates the data directory and starts it,
    /// as far as needed. Any number of processes may do so at once. It blocks; in a runtime, call it where
    /// blocking is allowed.
    ///
    /// # Errors
    /// `local`: no server of the right version and none to be had, or it does not start.
    pub fn ensure_started(&self, progress: &mut dyn FnMut(Progress)) -> Result<Started> {
        if let Some(version) = self.ready_version() {
            return Ok(self.started(version, false, true));
        }
        self.paths.create(&self.account)?;
        let _lock = self.lock(progress)?;
        if let Some(version) = self.ready_version() {
            return Ok(self.started(version, false, true));
        }
        if let Some(Postmaster { pid, .. }) = postmaster::running(&self.paths) {
            let fact =
                format!("a server (process {}) that Inrush did not start is not ready", pid.as_raw_nonzero());
            return Err(
                Error::new(Code::Local, fact).hint("Try again in a moment; `inrush local status` shows it.")
            );
        }
        let existing = self.data_major()?;
        let server = self.choose(existing, progress)?;
        let version = server.version();
        if existing.is_none() {
            progress(Progress::Creating { version: version.clone(), data_dir: self.paths.data.clone() });
            create::create(&self.paths, &server, &self.account)?;
        }
        create::write_conf(&self.paths)?;
        progress(Progress::Starting { version: version.clone() });
        postmaster::start(&self.paths, &server, &self.account)?;
        Ok(self.started(version, existing.is_none(), false))
    }

    /// Stops the server; whether it ran.
    ///
    /// # Errors
    /// `local`: it does not stop.
    pub fn stop(&self, mode: StopMode) -> Result<bool> {
        if !self.paths.root.is_dir() {
            return Ok(false);
        }
        let _lock = self.lock(&mut |_| {})?;
        self.stop_locked(mode)
    }

    /// What the server is doing, without waiting for anything.
    ///
    /// # Errors
    /// `local`: the data directory is none of a server.
    pub fn status(&self) -> Result<Status> {
        let major = self.data_major()?;
        let state = match postmaster::running(&self.paths) {
            Some(Postmaster { pid, ready }) => {
                let pid = pid.as_raw_nonzero().get().cast_unsigned();
                if ready { State::Running { pid } } else { State::Starting { pid } }
            }
            None if major.is_none() => State::Absent,
            None => State::Stopped,
        };
        let last =
            postmaster::last_bin(&self.paths).filter(|_| !matches!(state, State::Absent | State::Stopped));
        let servers = servers(&self.paths.servers, self.fetch, &self.account);
        let server = servers.into_iter().find(|server| match (&last, major) {
            (Some(bin), _) => server.bin == *bin,
            (None, Some(major)) => server.major == major,
            (None, None) => true,
        });
        Ok(Status {
            state,
            major,
            server,
            url: self.url(),
            root: self.paths.root.clone(),
            data_dir: self.paths.data.clone(),
            log: self.paths.server_log(),
        })
    }

    /// Stops the server and removes everything, its data and fetched servers too; whether there was
    /// anything. The root directory itself goes if nothing else is in it.
    ///
    /// # Errors
    /// `local`: it does not stop, or something cannot be removed.
    pub fn destroy(&self) -> Result<bool> {
        if !self.paths.root.is_dir() {
            return Ok(false);
        }
        let lock = self.lock(&mut |_| {})?;
        self.stop_locked(StopMode::Immediate)?;
        let mut existed = false;
        let unfinished = self.paths.root.join("data.new");
        let paths = &self.paths;
        // The data last: while it is there, another attempt finds what is left.
        for dir in [&paths.socket_dir, &paths.log_dir, &paths.servers, &unfinished, &paths.data] {
            existed |= gone(dir, fs::remove_dir_all(dir))?;
        }
        for file in [&paths.conf, &paths.lock] {
            existed |= gone(file, fs::remove_file(file))?;
        }
        drop(lock);
        // Something else may be in it, or another process may be starting anew.
        let _ = fs::remove_dir(&paths.root);
        Ok(existed)
    }

    /// Opens a session in the terminal, with `arguments` for psql: the server's own psql, else the one on
    /// PATH, which replaces this process; else a small prompt of our own, which returns when the user
    /// leaves. The server must run. The result is the exit code.
    ///
    /// # Errors
    /// `local`: psql cannot be run; `usage`: an argument that only psql knows; `connect`.
    pub fn psql(&self, arguments: &[OsString]) -> Result<u8> {
        match self.psql_program() {
            Some(program) => {
                let error = Command::new(&program).arg("-d").arg(self.url()).args(arguments).exec();
                Err(cannot("run", &program, &error))
            }
            None => self.prompt(arguments),
        }
    }

    /// As [`Local::psql`] without psql: the built-in prompt, which knows `-c SQL` only.
    ///
    /// # Errors
    /// `usage`: another argument; `connect`.
    pub fn prompt(&self, arguments: &[OsString]) -> Result<u8> {
        prompt::run(&self.paths.socket_dir, PORT, self.account.role(), create::DATABASE, arguments)
    }

    /// The psql that [`Local::psql`] would run, if there is one.
    pub fn psql_program(&self) -> Option<PathBuf> {
        let own = postmaster::last_bin(&self.paths).map(|bin| bin.join("psql"));
        let path = std::env::var_os("PATH").unwrap_or_default();
        let on_path = std::env::split_paths(&path).map(|dir| dir.join("psql")).find(|psql| psql.is_file());
        own.filter(|psql| psql.is_file()).or(on_path)
    }

    fn started(&self, version: String, created: bool, was_running: bool) -> Started {
        Started { url: self.url(), version, created, was_running }
    }

    /// The version of the running server, if it takes connections.
    fn ready_version(&self) -> Option<String> {
        postmaster::running(&self.paths).filter(|server| server.ready)?;
        let bin = postmaster::last_bin(&self.paths)?;
        let origin = crate::Origin::Installed;
        // Its programs may have been upgraded or removed while it runs; the data directory knows the rest.
        Server::at(&bin, origin, &self.account)
            .map(|server| server.version())
            .or_else(|| Some(self.data_major().ok()??.to_string()))
    }

    fn stop_locked(&self, mode: StopMode) -> Result<bool> {
        match postmaster::running(&self.paths) {
            Some(running) => postmaster::stop(&self.paths, running, mode).map(|()| true),
            None => Ok(false),
        }
    }

    /// The lock that keeps starting, stopping and removing apart. It ends with the process that holds it.
    fn lock(&self, progress: &mut dyn FnMut(Progress)) -> Result<File> {
        let path = &self.paths.lock;
        loop {
            let file = File::options().create(true).truncate(false).write(true).open(path);
            let file = file.map_err(|error| cannot("write", path, &error))?;
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => {
                    progress(Progress::Waiting);
                    file.lock().map_err(|error| cannot("lock", path, &error))?;
                }
                Err(TryLockError::Error(error)) => return Err(cannot("lock", path, &error)),
            }
            // While we waited `destroy` may have removed the file: then this lock keeps nobody out.
            if same_file(&file, path) {
                return Ok(file);
            }
            self.paths.create(&self.account)?;
        }
    }

    /// The major version of the data directory; `None` if there is none.
    fn data_major(&self) -> Result<Option<u32>> {
        let path = self.paths.data.join("PG_VERSION");
        match fs::read_to_string(&path) {
            Ok(text) => text.trim().parse().map(Some).map_err(|_| {
                Error::new(Code::Local, format!("{} holds no version", path.display()))
                    .hint("The data directory is damaged; `inrush local destroy` removes it.")
            }),
            Err(_) if !self.paths.data.exists() => Ok(None),
            Err(error) => Err(cannot("read", &path, &error)),
        }
    }

    /// The server to start: the newest for a new data directory, the same major version for an existing one;
    /// fetched when it is not there.
    fn choose(&self, existing: Option<u32>, progress: &mut dyn FnMut(Progress)) -> Result<Server> {
        let servers = servers(&self.paths.servers, self.fetch, &self.account);
        let fits = |server: &Server| existing.is_none_or(|major| server.major == major);
        if let Some(server) = servers.into_iter().find(fits) {
            return Ok(server);
        }
        let major = existing.unwrap_or(FETCHED);
        if major < OLDEST {
            let fact = format!(
                "{} is of PostgreSQL {major}; the oldest supported is {OLDEST}",
                self.paths.data.display()
            );
            return Err(Error::new(Code::Local, fact).hint("Set INRUSH_LOCAL_DIR to another directory."));
        }
        self.fetch(major, progress).map_err(|error| {
            let Some(major) = existing else { return error };
            let fact = format!(
                "{} is of PostgreSQL {major}, which is not installed any more and could not be fetched: {}",
                self.paths.data.display(),
                error.fact()
            );
            let hint = format!("Install PostgreSQL {major}, or set INRUSH_LOCAL_DIR to another directory.");
            Error::new(Code::Local, fact).hint(hint)
        })
    }

    #[cfg(feature = "fetch")]
    fn fetch(&self, major: u32, progress: &mut dyn FnMut(Progress)) -> Result<Server> {
        crate::fetch::fetch(&self.paths.servers, major, &self.account, progress)
    }

    #[cfg(not(feature = "fetch"))]
    fn fetch(&self, major: u32, _: &mut dyn FnMut(Progress)) -> Result<Server> {
        Err(Error::new(Code::Local, format!("PostgreSQL {major} is not installed"))
            .hint("Install it: this build of Inrush cannot fetch it."))
    }
}

/// Whether something was removed; that it was not there is fine.
fn gone(path: &Path, result: std::io::Result<()>) -> Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(cannot("remove", path, &error)),
    }
}

fn same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let identity = |found: fs::Metadata| (found.dev(), found.ino());
    match (file.metadata(), fs::metadata(path)) {
        (Ok(open), Ok(named)) => identity(open) == identity(named),
        _ => false,
    }
}

/// For a part of a connection URL.
fn percent_encoded(text: &str) -> String {
    let mut encoded = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                encoded.push(byte.into());
            }
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_url_survives_odd_paths() {
        assert_eq!(percent_encoded("/srv/a b/ü&x"), "/srv/a%20b/%C3%BC%26x");
        let local = Local::open(&Options { dir: Some("/srv/a b".into()), fetch: false }).unwrap();
        let parsed: tokio_postgres::Config = local.url().parse().unwrap();
        assert_eq!(parsed.get_hosts(), [tokio_postgres::config::Host::Unix("/srv/a b/socket".into())]);
        assert_eq!(parsed.get_dbname(), Some("inrush"));
        assert_eq!(parsed.get_user(), Some(local.account.role()));
    }
}
