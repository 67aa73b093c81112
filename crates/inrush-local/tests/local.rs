//! The embedded server from its creation to its end, with a real PostgreSQL.
//!
//! Every test has a server of its own. As root the cycle runs once more as an ordinary user.

use inrush_local::{Local, Options, Origin, Progress, State, StopMode};
use rustix::process::{Pid, Signal, kill_process};
use std::ffi::OsString;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;
use tokio_postgres::NoTls;

/// A server in a directory of its own; both are gone when it is dropped.
struct Throwaway {
    local: Local,
    dir: PathBuf,
    _parent: TempDir,
}

impl Throwaway {
    fn new(name: &str) -> Throwaway {
        let parent = tempfile::Builder::new().prefix("inrush-local-").tempdir_in("/tmp").unwrap();
        // As root, the account the server runs as passes through.
        fs::set_permissions(parent.path(), fs::Permissions::from_mode(0o711)).unwrap();
        let dir = parent.path().join(name);
        Throwaway { local: open(&dir), dir, _parent: parent }
    }

    fn start(&self) -> inrush_local::Started {
        self.local.ensure_started(&mut |_| {}).unwrap()
    }

    fn pid(&self) -> u32 {
        match self.local.status().unwrap().state {
            State::Running { pid } => pid,
            other => panic!("{other:?}"),
        }
    }
}

impl Drop for Throwaway {
    fn drop(&mut self) {
        let _ = self.local.destroy();
    }
}

fn open(dir: &Path) -> Local {
    Local::open(&Options { dir: Some(dir.to_owned()), fetch: false }).unwrap()
}

fn is_root() -> bool {
    rustix::process::geteuid().is_root()
}

/// The first column of the first row.
fn query(url: &str, sql: &str) -> String {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) = tokio_postgres::connect(url, NoTls).await.unwrap();
        tokio::spawn(connection);
        let messages = client.simple_query(sql).await.unwrap();
        let rows = messages.iter().filter_map(|message| match message {
            tokio_postgres::SimpleQueryMessage::Row(row) => row.get(0).map(str::to_owned),
            _ => None,
        });
        rows.last().unwrap_or_default()
    })
}

#[test]
fn from_creation_to_destruction() {
    let server = Throwaway::new("with a space");
    assert_eq!(server.local.status().unwrap().state, State::Absent);
    assert!(!server.local.stop(StopMode::Fast).unwrap());
    assert!(!server.dir.exists(), "asking must not create anything");

    let mut seen = Vec::new();
    let started = server.local.ensure_started(&mut |progress| seen.push(progress)).unwrap();
    assert!(started.created && !started.was_running);
    assert!(matches!(&seen[..], [Progress::Creating { .. }, Progress::Starting { .. }]), "{seen:?}");
    let again = server.start();
    assert!(!again.created && again.was_running);
    assert_eq!((&again.url, &again.version), (&started.url, &started.version));

    let url = &started.url;
    for (setting, value) in [
        ("listen_addresses", ""),
        ("data_checksums", "on"),
        ("fsync", "on"),
        ("full_page_writes", "on"),
        ("synchronous_commit", "on"),
        ("server_encoding", "UTF8"),
        ("checkpoint_timeout", "15min"),
    ] {
        assert_eq!(query(url, &format!("SHOW {setting}")), value, "{setting}");
    }
    assert_eq!(
        query(url, "SELECT current_database() || rolsuper FROM pg_roles WHERE rolname = current_user"),
        "inrushtrue"
    );
    assert_eq!(query(url, "SELECT upper('ä')"), "Ä");
    assert!(query(url, "SHOW server_version").starts_with(&started.version));

    let status = server.local.status().unwrap();
    assert_eq!(status.server.as_ref().unwrap().origin(), Origin::Installed);
    assert_eq!(status.server.unwrap().version(), started.version);
    for private in ["data", "socket", "log"] {
        let found = fs::metadata(server.dir.join(private)).unwrap();
        assert_eq!(found.mode() & 0o777, 0o700, "{private}");
        assert!(found.uid() != 0, "{private}");
    }

    query(url, "CREATE TABLE kept AS SELECT 42 AS a");
    query(url, "ALTER SYSTEM SET work_mem = '7MB'");
    assert!(server.local.stop(StopMode::Fast).unwrap());
    assert!(!server.local.stop(StopMode::Fast).unwrap());
    assert_eq!(server.local.status().unwrap().state, State::Stopped);
    assert!(!server.start().created);
    assert_eq!(query(url, "SELECT a FROM kept"), "42");
    assert_eq!(query(url, "SHOW work_mem"), "7MB");

    assert!(server.local.destroy().unwrap());
    assert!(!server.dir.exists());
    assert!(!server.local.destroy().unwrap());
}

#[test]
fn from_creation_to_destruction_as_an_ordinary_user() {
    if !is_root() {
        // The test above was it.
        return;
    }
    let dir = tempfile::Builder::new().prefix("inrush-local-").tempdir_in("/tmp").unwrap();
    let program = dir.path().join("test");
    fs::copy(std::env::current_exe().unwrap(), &program).unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let output = Command::new(program)
        .args(["--exact", "from_creation_to_destruction"])
        .uid(65534)
        .gid(65534)
        .current_dir("/")
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success() && text.contains("1 passed"),
        "{text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

const CHILD: &str = "INRUSH_TEST_CHILD_DIR";

/// What the other processes of the next test run.
#[test]
fn child_of_the_race() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let started = open(Path::new(&dir)).ensure_started(&mut |_| {}).unwrap();
        assert_eq!(query(&started.url, "SELECT 1"), "1");
        println!("created={} running={}", started.created, started.was_running);
    }
}

#[test]
fn four_processes_start_one_server() {
    let server = Throwaway::new("race");
    let children: Vec<_> = (0..4)
        .map(|_| {
            Command::new(std::env::current_exe().unwrap())
                .args(["--exact", "child_of_the_race", "--nocapture"])
                .env(CHILD, &server.dir)
                .stdout(Stdio::piped())
                .stderr(Stdio::piped())
                .spawn()
                .unwrap()
        })
        .collect();
    let outputs: Vec<_> = children.into_iter().map(|child| child.wait_with_output().unwrap()).collect();
    let text: String = outputs
        .iter()
        .map(|o| String::from_utf8_lossy(&[&o.stdout[..], &o.stderr].concat()).into_owned())
        .collect();
    assert!(outputs.iter().all(|output| output.status.success()), "{text}");
    assert_eq!(text.matches("created=true running=false").count(), 1, "{text}");
    assert_eq!(text.matches("created=false running=true").count(), 3, "{text}");
}

#[test]
fn a_killed_server_comes_back_with_its_data() {
    let server = Throwaway::new("killed");
    let url = server.start().url;
    query(&url, "CREATE TABLE t AS SELECT generate_series(1, 1000) a");
    let pid = server.pid();
    // A session that outlives its postmaster holds the shared memory; nothing may start beside it.
    let sleeping = url.clone();
    let session = std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let (client, connection) = tokio_postgres::connect(&sleeping, NoTls).await.unwrap();
            tokio::spawn(connection);
            let _ = client.simple_query("SELECT pg_sleep(30)").await;
        });
    });
    let mut backend = String::new();
    while backend.is_empty() {
        backend = query(&url, "SELECT pid FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'");
    }
    let signal =
        |signal: Signal, pid: u32| kill_process(Pid::from_raw(pid.cast_signed()).unwrap(), signal).unwrap();
    let backend: u32 = backend.parse().unwrap();
    signal(Signal::STOP, backend);
    signal(Signal::KILL, pid);
    while server.local.status().unwrap().state != State::Stopped {}
    assert!(server.dir.join("data/postmaster.pid").exists());

    let waiting = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(1500));
        signal(Signal::CONT, backend);
    });
    let began = Instant::now();
    let started = server.start();
    assert!(began.elapsed() > Duration::from_secs(1), "started beside a living session");
    waiting.join().unwrap();
    assert!(!started.created && !started.was_running);
    assert_ne!(server.pid(), pid);
    assert_eq!(query(&url, "SELECT count(*) FROM t"), "1000");
    session.join().unwrap();
}

/// After a reboot the number in postmaster.pid may be another process's, which the server takes for a
/// running one.
#[test]
fn a_lock_file_with_the_number_of_some_other_process_is_no_server() {
    let server = Throwaway::new("reboot");
    server.start();
    server.local.stop(StopMode::Fast).unwrap();
    let account = fs::metadata(server.dir.join("data")).unwrap();
    let mut other = Command::new("sleep");
    let mut other = other.arg("60").uid(account.uid()).gid(account.gid()).spawn().unwrap();
    let text = format!("{}\n{}\n0\n5432\n\n\n0 0\nready   \n", other.id(), server.dir.join("data").display());
    fs::write(server.dir.join("data/postmaster.pid"), &text).unwrap();
    fs::write(server.dir.join("socket/.s.PGSQL.5432.lock"), &text).unwrap();
    assert_eq!(server.local.status().unwrap().state, State::Stopped);
    let first = server.local.ensure_started(&mut |_| {});
    server.local.stop(StopMode::Fast).unwrap();
    // The socket's lock file alone, as when the data directory was put back from elsewhere.
    fs::write(server.dir.join("socket/.s.PGSQL.5432.lock"), &text).unwrap();
    let second = server.local.ensure_started(&mut |_| {});
    other.kill().unwrap();
    other.wait().unwrap();
    assert!(!first.unwrap().was_running && !second.unwrap().was_running);
}

#[test]
fn a_path_too_long_for_a_socket_gets_a_short_one() {
    let server = Throwaway::new(&"long".repeat(30));
    let url = server.start().url;
    assert!(url.contains("host=/tmp/inrush-"), "{url}");
    assert_eq!(query(&url, "SELECT 1"), "1");
    let socket_dir = query(&url, "SHOW unix_socket_directories");
    assert_eq!(fs::metadata(&socket_dir).unwrap().mode() & 0o777, 0o700);
    server.local.destroy().unwrap();
    assert!(!Path::new(&socket_dir).exists());
}

#[test]
fn a_socket_directory_that_someone_else_put_there_is_refused() {
    if !is_root() {
        println!("SKIPPED: needs root to make a directory of another user");
        return;
    }
    let server = Throwaway::new("taken");
    fs::create_dir(&server.dir).unwrap();
    fs::set_permissions(&server.dir, fs::Permissions::from_mode(0o711)).unwrap();
    fs::create_dir(server.dir.join("socket")).unwrap();
    let error = server.local.ensure_started(&mut |_| {}).unwrap_err();
    assert!(error.fact().contains("socket is not a directory of the user the server runs as"), "{error}");
}

#[test]
fn errors_say_what_to_do() {
    let server = Throwaway::new("errors");
    if is_root() {
        let closed = Throwaway::new("closed/root");
        let outer = closed.dir.parent().unwrap();
        fs::create_dir(outer).unwrap();
        fs::set_permissions(outer, fs::Permissions::from_mode(0o700)).unwrap();
        let error = closed.local.ensure_started(&mut |_| {}).unwrap_err();
        assert!(
            error.fact().contains("cannot reach") && error.hint_text().unwrap().contains("INRUSH_LOCAL_DIR"),
            "{error}"
        );
    }
    server.start();
    server.local.stop(StopMode::Fast).unwrap();

    let conf = fs::read_to_string(server.dir.join("local.conf")).unwrap();
    fs::write(server.dir.join("local.conf"), format!("{conf}shared_buffers = none\n")).unwrap();
    let error = server.local.ensure_started(&mut |_| {}).unwrap_err();
    assert!(
        error.fact().contains("does not start") && error.hint_text().unwrap().contains("server.log"),
        "{error}"
    );

    fs::write(server.dir.join("data/PG_VERSION"), "12\n").unwrap();
    let error = server.local.ensure_started(&mut |_| {}).unwrap_err();
    assert!(error.fact().contains("is of PostgreSQL 12"), "{error}");
    fs::write(server.dir.join("data/PG_VERSION"), "twelve\n").unwrap();
    let error = server.local.status().unwrap_err();
    assert!(error.fact().contains("holds no version"), "{error}");
}

/// What the next test runs with a standard input of its own.
#[test]
fn child_of_the_prompt() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let arguments: Vec<OsString> =
            std::env::var_os("INRUSH_TEST_COMMAND").map(|c| vec!["-c".into(), c]).unwrap_or_default();
        let code = open(Path::new(&dir)).prompt(&arguments).unwrap();
        println!("left with {code}");
    }
}

#[test]
fn the_prompt_runs_statements_and_shows_where_they_are_wrong() {
    let server = Throwaway::new("prompt");
    server.start();
    let converse = |input: &str, command: Option<&str>| {
        let mut child = Command::new(std::env::current_exe().unwrap());
        child.args(["--exact", "child_of_the_prompt", "--nocapture"]).env(CHILD, &server.dir);
        if let Some(command) = command {
            child.env("INRUSH_TEST_COMMAND", command);
        }
        let mut child =
            child.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8([output.stdout, output.stderr].concat()).unwrap()
    };
    let text = converse(
        "CREATE TABLE \"T 1\"(a int NOT NULL,\n b text DEFAULT 'x;');\nINSERT INTO \"T 1\" VALUES (1),\n(2);\n\\dt\n\\d T 1\n\
         SELECT a, b FROM \"T 1\" ORDER BY a; SELECT count(*) FROM generate_series(1, 2500);\nSELECT g FROM generate_series(1, 2500) g;\n\\q\n",
        None,
    );
    for expected in [
        "ok, 2 rows affected",
        "| T 1",
        "(1 row)",
        " a      | integer",
        "'x;'::text",
        " a | b\n---+----\n 1 | x;\n 2 | x;\n(2 rows)\n",
        " 2500\n(1 row)",
        " 2500\n(2500 rows)",
        "left with 0",
    ] {
        assert!(text.contains(expected), "no {expected:?} in:\n{text}");
    }

    let text = converse("SELECT 1,\n  nothing;\nSELECT 'not reached';\n", None);
    assert!(
        text.contains("ERROR:  column \"nothing\" does not exist\nLINE 2:   nothing;\n          ^"),
        "{text}"
    );
    assert!(text.contains("left with 1") && !text.contains("not reached"), "{text}");

    assert!(converse("", Some("SELECT 6 * 7")).contains(" 42\n(1 row)"));
    assert!(converse("COPY pg_class FROM STDIN;\n", None).contains("left with 1"));
}
