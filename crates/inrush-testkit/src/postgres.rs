use crate::{Installation, ServerUser, Version};
use rustix::process::{Pid, Signal, kill_process};
use std::collections::HashMap;
use std::fs;
use std::io::Write;
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use std::thread::sleep;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long a server may take to start or to stop.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a throw-away server is like. The default: any version, UTF-8, C locale, UTC, trust, fsync off.
#[derive(Debug, Clone, Default)]
pub struct ServerOptions<'a> {
    /// The version it must be.
    pub version: Version,
    /// Lines for postgresql.conf; values are quoted here. They come last, so they win.
    pub conf: &'a [(&'a str, &'a str)],
    /// The whole pg_hba.conf; empty: `trust` for everybody who reaches the socket or the loopback address.
    pub hba: &'a str,
    /// Further arguments for initdb. They come last, so they win.
    pub initdb: &'a [&'a str],
    /// Keeps fsync on. Off by default: no test here pulls the plug of the machine.
    pub durable: bool,
}

/// How to stop a server (`pg_ctl stop -m`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopMode {
    /// Waits until every client has gone.
    Smart,
    /// Ends the sessions, then shuts down cleanly.
    Fast,
    /// Aborts everything at once; the next start recovers as after a crash.
    Immediate,
}

/// A throw-away server. Dropping it stops it and removes its directory; if the test process dies instead, a
/// guard process does both.
#[derive(Debug)]
pub struct Postgres {
    installation: &'static Installation,
    user: ServerUser,
    port: u16,
    /// The running postmaster. The lock also keeps starting and stopping apart.
    postmaster: Mutex<Option<Child>>,
    /// Ends with its standard input, which is ours alone: it sees the death of this process in any form.
    guard: Child,
    // Removed by `Drop` below it: the guard and the postmaster are gone by then.
    dir: TempDir,
}

/// A database of its own on a server, removed when dropped.
#[derive(Debug)]
pub struct Database<'s> {
    server: &'s Postgres,
    name: String,
}

impl Postgres {
    /// Starts a server.
    ///
    /// # Panics
    /// If the version is not installed (see [`crate::require_server!`]) or the server does not start; the
    /// message has the server's log.
    pub fn start(options: &ServerOptions<'_>) -> Postgres {
        let installation = Installation::find(options.version)
            .unwrap_or_else(|| panic!("this test needs {} (run tests/servers.sh)", options.version));
        let user = ServerUser::get();
        let dir = new_dir(user);
        initdb(installation, user, dir.path(), options);
        Postgres::in_dir(installation, user, dir)
    }

    /// Starts a standby that this server, which runs, streams its WAL to. `SELECT pg_promote()` makes a primary of it.
    ///
    /// # Panics
    /// If it cannot be copied, or does not start.
    pub fn standby(&self) -> Postgres {
        let dir = new_dir(self.user);
        let mut command = self.installation.command("pg_basebackup");
        let output = self
            .user
            .run(&mut command)
            .arg("-D")
            .arg(dir.path().join("data"))
            .args(["-R", "-c", "fast", "--no-sync", "-d", &self.url()])
            .current_dir(dir.path())
            .output()
            .expect("to run pg_basebackup");
        assert!(output.status.success(), "pg_basebackup: {}", String::from_utf8_lossy(&output.stderr));
        let conf = format!("\nunix_socket_directories = '{}'\n", dir.path().join("s").display());
        let mut file = fs::File::options()
            .append(true)
            .open(dir.path().join("data/postgresql.conf"))
            .expect("to open postgresql.conf");
        file.write_all(conf.as_bytes()).expect("to write postgresql.conf");
        Postgres::in_dir(self.installation, self.user, dir)
    }

    /// Starts what is in a directory.
    fn in_dir(installation: &'static Installation, user: ServerUser, dir: TempDir) -> Postgres {
        let guard = guard(dir.path());
        let mut server = Postgres { installation, user, port: 0, postmaster: Mutex::new(None), guard, dir };
        // A port that was free a moment ago may be taken by now: choose again.
        for _ in 0..5 {
            server.port = free_port();
            match server.launch() {
                Ok(child) => {
                    server.postmaster = Mutex::new(Some(child));
                    return server;
                }
                Err(log) if log.contains("Address already in use") => {}
                Err(log) => panic!("{} does not start:\n{log}", installation.version()),
            }
        }
        panic!("no free port to be had");
    }

    /// The server of this version that all tests of the process share, started by the first that asks. Use
    /// it with [`Postgres::fresh_database`], and do not stop it.
    ///
    /// # Panics
    /// As [`Postgres::start`].
    pub fn shared(version: impl Into<Version>) -> &'static Postgres {
        static SHARED: OnceLock<Mutex<HashMap<PathBuf, &'static Postgres>>> = OnceLock::new();
        let version = version.into();
        let key = Installation::find(version).map(|one| one.bin().to_owned()).unwrap_or_default();
        let mut shared =
            SHARED.get_or_init(Mutex::default).lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Never dropped: the guard process stops it when this process ends.
        shared.entry(key).or_insert_with(|| {
            let conf = &[("max_connections", "300")];
            Box::leak(Box::new(Postgres::start(&ServerOptions { version, conf, ..ServerOptions::default() })))
        })
    }

    /// An empty database of its own. It takes about 50 ms, where a server takes a second.
    pub fn fresh_database(&self) -> Database<'_> {
        static NEXT: AtomicU32 = AtomicU32::new(1);
        let name = format!("test_{}", NEXT.fetch_add(1, Ordering::Relaxed));
        self.psql(&format!("CREATE DATABASE {name} TEMPLATE template0"));
        Database { server: self, name }
    }

    /// The connection URL of database `postgres`, through the Unix socket.
    pub fn url(&self) -> String {
        self.url_of("postgres")
    }

    /// The connection URL of database `postgres` through 127.0.0.1.
    pub fn tcp_url(&self) -> String {
        self.tcp_url_via(self.port, "postgres")
    }

    /// The connection URL of a database through another port of 127.0.0.1, such as a proxy's.
    pub fn tcp_url_via(&self, port: u16, database: &str) -> String {
        format!("postgresql://postgres@127.0.0.1:{port}/{database}?sslmode=disable")
    }

    /// The directory of the Unix socket, mode 0700, owned by the server's account.
    pub fn socket_dir(&self) -> PathBuf {
        self.dir.path().join("s")
    }

    /// The port, of the TCP socket and in the name of the Unix socket.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The data directory.
    pub fn data_dir(&self) -> PathBuf {
        self.dir.path().join("data")
    }

    /// What it runs from.
    pub fn installation(&self) -> &'static Installation {
        self.installation
    }

    /// The process id of the postmaster, if it runs.
    pub fn pid(&self) -> Option<u32> {
        self.lock().as_ref().map(Child::id)
    }

    /// Everything the server has logged so far.
    pub fn log(&self) -> String {
        fs::read(self.dir.path().join("log"))
            .map(|log| String::from_utf8_lossy(&log).into_owned())
            .unwrap_or_default()
    }

    /// Runs SQL (and psql's backslash commands) in database `postgres`; the result without header and
    /// alignment, columns parted by `|`, no final newline.
    ///
    /// # Panics
    /// If a statement fails; the message has psql's.
    pub fn psql(&self, sql: &str) -> String {
        self.psql_in("postgres", sql)
    }

    /// As [`Postgres::psql`], with the error text instead of a panic.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        self.try_psql_in("postgres", sql)
    }

    /// A psql command for `database`, without rc file, ready for further arguments.
    pub fn psql_command(&self, database: &str) -> Command {
        let mut command = self.installation.command("psql");
        command.args(["-X", "-d", &self.url_of(database)]);
        command
    }

    /// Stops the server and waits until it is down. Does nothing when it is down already.
    ///
    /// # Panics
    /// If it takes longer than a minute.
    pub fn stop(&self, mode: StopMode) {
        let mut postmaster = self.lock();
        if let Some(mut child) = postmaster.take() {
            signal(
                &child,
                match mode {
                    StopMode::Smart => Signal::TERM,
                    StopMode::Fast => Signal::INT,
                    StopMode::Immediate => Signal::QUIT,
                },
            );
            wait_for_exit(&mut child);
        }
    }

    /// Kills the postmaster and all its processes with SIGKILL, as the kernel or a power cut would.
    pub fn kill9(&self) {
        let mut postmaster = self.lock();
        if let Some(mut child) = postmaster.take() {
            // Stopped first, so that it cannot start another process between the look and the kill.
            signal(&child, Signal::STOP);
            for pid in children_of(child.id()) {
                // Cannot be another process by now: its parent has not been able to reap it.
                let _ = kill_process(pid, Signal::KILL);
            }
            signal(&child, Signal::KILL);
            wait_for_exit(&mut child);
        }
    }

    /// Starts the server again on the same port and data; stops it first (fast) if it runs.
    ///
    /// # Panics
    /// If it does not start; the message has the server's log.
    pub fn restart(&self) {
        self.stop(StopMode::Fast);
        let mut postmaster = self.lock();
        let began = Instant::now();
        loop {
            match self.launch() {
                Ok(child) => break *postmaster = Some(child),
                // Processes of the killed server may take a moment to go away (sysv_shmem.c).
                Err(log) if log.contains("shared memory block") && began.elapsed() < PATIENCE => {
                    sleep(Duration::from_millis(50));
                }
                Err(log) => panic!("the server does not start again:\n{log}"),
            }
        }
    }

    fn url_of(&self, database: &str) -> String {
        format!("postgresql://postgres@/{database}?host={}&port={}", self.socket_dir().display(), self.port)
    }

    fn psql_in(&self, database: &str, sql: &str) -> String {
        match self.try_psql_in(database, sql) {
            Ok(result) => result,
            Err(error) => panic!("psql: {error}\nin: {sql}"),
        }
    }

    fn try_psql_in(&self, database: &str, sql: &str) -> Result<String, String> {
        let mut child = self
            .psql_command(database)
            .args(["-qAt", "-v", "ON_ERROR_STOP=1"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .map_err(|error| format!("psql cannot be run: {error}"))?;
        let mut stdin = child.stdin.take().expect("piped above");
        let sql = sql.to_owned();
        // In a thread of its own: a long script and a long answer would wait for each other.
        let writer = std::thread::spawn(move || drop(stdin.write_all(sql.as_bytes())));
        let output = child.wait_with_output().map_err(|error| error.to_string())?;
        drop(writer.join());
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).into_owned());
        }
        let mut text = String::from_utf8(output.stdout).map_err(|error| error.to_string())?;
        if text.ends_with('\n') {
            text.pop();
        }
        Ok(text)
    }

    /// One attempt to start; the new part of the log when it fails.
    fn launch(&self) -> Result<Child, String> {
        let log_path = self.dir.path().join("log");
        let log = fs::File::options().create(true).append(true).open(&log_path).map_err(|e| e.to_string())?;
        let logged = log.metadata().map(|m| m.len()).unwrap_or(0);
        let mut command = self.installation.command("postgres");
        self.user.run(&mut command);
        let mut child = command
            .arg("-D")
            .arg(self.data_dir())
            .args(["-c", &format!("port={}", self.port)])
            .current_dir(self.dir.path())
            // Out of the terminal's group: Ctrl-C reaches the test, and the guard stops the server.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(|e| e.to_string())?)
            .stderr(log)
            .spawn()
            .map_err(|error| format!("postgres cannot be run: {error}"))?;
        let began = Instant::now();
        while !is_ready(&self.data_dir(), child.id()) {
            let ended = child.try_wait().map_err(|e| e.to_string())?.is_some();
            if ended || began.elapsed() > PATIENCE {
                if !ended {
                    let _ = child.kill();
                    let _ = child.wait();
                }
                let all = self.log();
                return Err(all.get(logged as usize..).unwrap_or(&all).to_owned());
            }
            sleep(Duration::from_millis(10));
        }
        Ok(child)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Child>> {
        // A test that panicked while it held the lock leaves a valid state behind.
        self.postmaster.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
    }
}

impl Drop for Postgres {
    fn drop(&mut self) {
        if let Some(mut child) = self.lock().take() {
            // Nobody needs this data any more.
            signal(&child, Signal::QUIT);
            wait_for_exit(&mut child);
        }
        let _ = self.guard.kill();
        let _ = self.guard.wait();
    }
}

impl Database<'_> {
    /// Its name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its server.
    pub fn server(&self) -> &Postgres {
        self.server
    }

    /// Its connection URL, through the Unix socket.
    pub fn url(&self) -> String {
        self.server.url_of(&self.name)
    }

    /// Its connection URL through a port of 127.0.0.1, such as a proxy's.
    pub fn tcp_url_via(&self, port: u16) -> String {
        self.server.tcp_url_via(port, &self.name)
    }

    /// As [`Postgres::psql`], in this database.
    pub fn psql(&self, sql: &str) -> String {
        self.server.psql_in(&self.name, sql)
    }

    /// As [`Postgres::try_psql`], in this database.
    pub fn try_psql(&self, sql: &str) -> Result<String, String> {
        self.server.try_psql_in(&self.name, sql)
    }
}

impl Drop for Database<'_> {
    fn drop(&mut self) {
        // The server may be down by now, on purpose.
        let _ = self.server.try_psql(&format!("DROP DATABASE {} WITH (FORCE)", self.name));
    }
}

/// A new directory, closed to everybody but the server's account, whose path leaves room for a socket: the
/// kernel takes 107 bytes, of which `/s/.s.PGSQL.65535` needs 18.
fn new_dir(user: ServerUser) -> TempDir {
    let mut parent = std::env::temp_dir();
    if parent.as_os_str().len() > 60 {
        parent = "/tmp".into();
    }
    let closed = || fs::Permissions::from_mode(0o700);
    let dir = tempfile::Builder::new()
        .permissions(closed())
        .prefix("inrush-test-")
        .tempdir_in(&parent)
        .expect("a directory for the server");
    let socket_dir = dir.path().join("s");
    fs::create_dir(&socket_dir).expect("a directory for the socket");
    fs::set_permissions(&socket_dir, closed()).expect("to close the socket's directory");
    user.own(&socket_dir)
        .and_then(|()| user.own(dir.path()))
        .expect("to hand the directory to the server's account");
    dir
}

fn initdb(installation: &Installation, user: ServerUser, dir: &Path, options: &ServerOptions<'_>) {
    let mut command = installation.command("initdb");
    let output = user
        .run(&mut command)
        .arg("-D")
        .arg(dir.join("data"))
        .args(["-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "--no-sync", "--no-instructions"])
        .args(options.initdb)
        .current_dir(dir)
        .output()
        .expect("to run initdb");
    assert!(output.status.success(), "initdb: {}", String::from_utf8_lossy(&output.stderr));
    let mut conf = format!(
        "\nlisten_addresses = '127.0.0.1'\nunix_socket_directories = '{}'\nunix_socket_permissions = 0700\n\
         timezone = 'UTC'\nlog_timezone = 'UTC'\nlog_line_prefix = '%m [%p] %q%a '\nmax_wal_size = '4GB'\n",
        dir.join("s").display()
    );
    if !options.durable {
        conf.push_str("fsync = off\n");
    }
    for (name, value) in options.conf {
        conf.push_str(&format!("{name} = '{}'\n", value.replace('\'', "''")));
    }
    let mut file = fs::File::options()
        .append(true)
        .open(dir.join("data/postgresql.conf"))
        .expect("to open postgresql.conf");
    file.write_all(conf.as_bytes()).expect("to write postgresql.conf");
    if !options.hba.is_empty() {
        fs::write(dir.join("data/pg_hba.conf"), options.hba).expect("to write pg_hba.conf");
    }
}

/// Starts the process that cleans up after this one, however it ends: it waits for the end of its standard
/// input, whose other end closes with this process. The postmaster's number is believed only while
/// postmaster.pid names it.
fn guard(dir: &Path) -> Child {
    const SCRIPT: &str = r#"
        trap '' INT TERM HUP
        read -r _
        if read -r pid < "$1/data/postmaster.pid"; then
            kill -QUIT "$pid"
            tries=0
            while kill -0 "$pid" && [ $tries -lt 100 ]; do sleep 0.1; tries=$((tries + 1)); done
        fi
        rm -rf "$1"
    "#;
    Command::new("sh")
        .args(["-c", SCRIPT, "inrush-test-guard"])
        .arg(dir)
        .process_group(0)
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("to run sh")
}

pub(crate) fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port of the loopback address");
    listener.local_addr().expect("a bound socket has an address").port()
}

/// Whether the postmaster `pid` says in postmaster.pid that it takes connections: line 1 is its number, line
/// 8 its state (pidfile.h, `LOCK_FILE_LINE_PM_STATUS`).
fn is_ready(data_dir: &Path, pid: u32) -> bool {
    let Ok(text) = fs::read_to_string(data_dir.join("postmaster.pid")) else { return false };
    let mut lines = text.lines();
    lines.next().and_then(|line| line.trim().parse().ok()) == Some(pid)
        && lines.nth(6).is_some_and(|state| state.trim() == "ready")
}

/// Sends a signal to a child that has not been waited for: its number is still its own.
fn signal(child: &Child, signal: Signal) {
    let _ = kill_process(Pid::from_child(child), signal);
}

pub(crate) fn wait_for_exit(child: &mut Child) {
    let began = Instant::now();
    while child.try_wait().expect("to wait for our own child").is_none() {
        if began.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the server did not stop within {PATIENCE:?}");
        }
        sleep(Duration::from_millis(10));
    }
}

/// The direct children of a process; a postmaster has no others.
fn children_of(parent: u32) -> Vec<Pid> {
    let output = Command::new("ps").args(["-A", "-o", "pid=,ppid="]).output().expect("to run ps");
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| {
            let (pid, ppid) = line.trim().split_once(char::is_whitespace)?;
            (ppid.trim().parse() == Ok(parent)).then(|| Pid::from_raw(pid.parse().ok()?))?
        })
        .collect()
}
