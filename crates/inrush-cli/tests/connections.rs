//! How many connections a load takes, and what happens to those that are opened ahead.

mod harness;

use harness::{Running, inrush, run};
use inrush_testkit::{Database, Postgres, Version};
use std::io::Write as _;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);
/// Sessions of loads in this database.
const SESSIONS: &str =
    "FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'inrush load%'";
const ROWS: usize = 20_000;
/// A load with these is refused as soon as the table is known.
const MISNAMED: [&str; 2] = ["--columns", "a,nope"];

/// A table, and a directory with a file for it.
fn prepared(database: &Database<'_>) -> tempfile::TempDir {
    database.psql("CREATE TABLE t (a int, b text)");
    let dir = tempfile::tempdir().expect("a directory");
    let rows: String = (0..ROWS).map(|i| format!("{i},row number {i}\n")).collect();
    std::fs::write(dir.path().join("t.csv"), rows).expect("to write a file");
    dir
}

fn load(database: &Database<'_>, dir: &tempfile::TempDir, url: &str, more: &[&str]) -> std::process::Command {
    let mut command = inrush(dir.path());
    command.args(["load", "t.csv", "--no-header", "--table", "t", "--to", url]).args(more);
    assert!(url.contains(database.name()));
    command
}

/// Waits until the server says so.
#[track_caller]
fn wait_until(database: &Database<'_>, condition: &str) {
    let began = Instant::now();
    while database.psql(&format!("SELECT {condition}")) != "t" {
        assert!(began.elapsed() < PATIENCE, "never: {condition}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A session that holds a lock until it is dropped.
struct Holder(Child, Option<ChildStdin>);

impl Holder {
    fn of(database: &Database<'_>, sql: &str) -> Holder {
        let mut psql = database.server().psql_command(database.name());
        let mut child = psql.stdin(Stdio::piped()).stdout(Stdio::null()).spawn().expect("psql");
        let mut stdin = child.stdin.take().expect("a pipe");
        writeln!(stdin, "SET application_name = 'holder'; BEGIN; {sql};").expect("to write to psql");
        wait_until(
            database,
            "EXISTS (SELECT FROM pg_locks JOIN pg_stat_activity USING (pid)
               WHERE application_name = 'holder' AND granted
                 AND (locktype = 'advisory' OR mode = 'AccessExclusiveLock'))",
        );
        Holder(child, Some(stdin))
    }
}

impl Drop for Holder {
    fn drop(&mut self) {
        drop(self.1.take());
        let _ = self.0.wait();
    }
}

#[test]
fn lanes_connect_again_if_the_server_has_ended_what_was_opened_ahead() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = prepared(&database);
    // The load waits for its name before its lanes begin.
    let held = Holder::of(&database, "SELECT pg_advisory_xact_lock(hashtextextended('held', 70))");
    let mut loading =
        load(&database, &dir, &database.url(), &["--jobs", "2", "--load-id", "held", "--unit-bytes", "64K"]);
    let running = Running::start(&mut loading, None);
    let lanes = format!("{SESSIONS} AND application_name = 'inrush load' AND state = 'idle'");
    wait_until(&database, &format!("count(*) = 2 {lanes}"));
    assert_eq!(database.psql(&format!("SELECT bool_and(pg_terminate_backend(pid, 10000)) {lanes}")), "t");
    drop(held);
    let outcome = running.finish();
    outcome.expect_code(0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), ROWS.to_string(), "{outcome:#?}");
    assert_eq!(database.psql(&format!("SELECT count(*) {SESSIONS}")), "0");
}

#[test]
fn a_role_with_few_connections_loads_with_what_it_has() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = prepared(&database);
    let role = format!("few_{}", database.name());
    database.psql(&format!(
        "CREATE ROLE {role} LOGIN CONNECTION LIMIT 2; GRANT CREATE ON DATABASE {0} TO {role}; ALTER TABLE t OWNER TO {role}",
        database.name()
    ));
    let url = database.url().replacen("postgres@", &format!("{role}@"), 1);
    assert!(url.contains(&role), "{url}");
    // The control connection, and a lane.
    run(&mut load(&database, &dir, &url, &[]), None, PATIENCE).expect_code(0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), ROWS.to_string());
    wait_until(&database, &format!("count(*) = 0 {SESSIONS}"));
    // Asked for, two lanes must be there, where there is work for two.
    let two = ["--again", "--jobs", "2", "--chunk", "64K", "--unit-bytes", "64K"];
    let outcome = run(&mut load(&database, &dir, &url, &two), None, PATIENCE);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("too many connections"), "{outcome:#?}");
    database.psql(&format!("DROP OWNED BY {role} CASCADE; DROP ROLE {role}"));
}

#[test]
fn a_load_that_does_not_begin_leaves_no_session() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = prepared(&database);
    let outcome = run(&mut load(&database, &dir, &database.url(), &MISNAMED), None, PATIENCE);
    outcome.expect_code(2);
    wait_until(&database, &format!("count(*) = 0 {SESSIONS}"));
    let log = database.server().log();
    let cut = log.lines().filter(|line| line.contains("incomplete startup packet")).count();
    assert_eq!(cut, 0, "{log}");
}

#[test]
fn a_load_that_does_not_begin_waits_for_no_lock() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = prepared(&database);
    run(&mut load(&database, &dir, &database.url(), &[]), None, PATIENCE).expect_code(0);
    let _held = Holder::of(&database, "LOCK TABLE inrush_ledger.units");
    let mut refused = load(&database, &dir, &database.url(), &MISNAMED);
    let outcome = run(&mut refused, None, Duration::from_secs(20));
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("error[columns]"), "{outcome:#?}");
}
