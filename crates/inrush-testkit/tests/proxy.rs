//! The proxy, with psql as the client.

use inrush_testkit::proxy::Proxy;
use inrush_testkit::{Database, Postgres, Version};
use std::process::{Child, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(20);

fn database() -> Database<'static> {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql("CREATE TABLE t(a int)");
    database
}

/// psql through the proxy, started.
fn client(database: &Database<'_>, host: &str, port: u16, sql: &str) -> Child {
    let mut psql = database.server().installation().command("psql");
    psql.args([
        "-X",
        "-At",
        "-U",
        "postgres",
        "-h",
        host,
        "-p",
        &port.to_string(),
        "-d",
        database.name(),
        "-c",
        sql,
    ]);
    psql.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn finish(child: Child) -> (bool, String) {
    let output = child.wait_with_output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).unwrap().trim().to_owned())
}

fn wait_for(database: &Database<'_>, query: &str, expected: &str) {
    let began = Instant::now();
    while database.psql(query) != expected {
        assert!(began.elapsed() < PATIENCE, "{query} is not {expected}");
        sleep(Duration::from_millis(20));
    }
}

const COMMIT: &str = "BEGIN; INSERT INTO t VALUES (1); COMMIT";

#[test]
fn forwards_over_both_kinds_of_socket() {
    let database = database();
    let proxy = Proxy::start(database.server());
    let hosts = ["127.0.0.1", proxy.socket_dir().to_str().unwrap()];
    for host in hosts {
        assert_eq!(
            finish(client(&database, host, proxy.port(), "SELECT repeat('x', 1000000)")).1.len(),
            1_000_000
        );
    }
    assert_eq!(proxy.accepted(), 2);
}

#[test]
fn a_cut_ends_the_session_on_both_sides() {
    let database = database();
    let proxy = Proxy::start(database.server());
    let child = client(&database, "127.0.0.1", proxy.port(), "SELECT pg_sleep(60)");
    let sessions = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%' AND datname = current_database()";
    wait_for(&database, sessions, "1");
    proxy.cut();
    let (success, text) = finish(child);
    assert!(!success, "{text}");
    // A sleeping backend notices when it writes; a query ends it here.
    database.psql("SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep%'");
    wait_for(&database, sessions, "0");
    assert!(finish(client(&database, "127.0.0.1", proxy.port(), "SELECT 1")).0);
}

#[test]
fn cut_after_stops_within_the_data() {
    let database = database();
    let proxy = Proxy::start(database.server());
    proxy.cut_after(100_000);
    let sql = format!("INSERT INTO t VALUES (length('{}'))", "x".repeat(60_000));
    assert!(finish(client(&database, "127.0.0.1", proxy.port(), &sql)).0);
    assert!(!finish(client(&database, "127.0.0.1", proxy.port(), &sql)).0);
    assert_eq!(proxy.forwarded(), 100_000);
    assert!(finish(client(&database, "127.0.0.1", proxy.port(), &sql)).0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "2");
}

#[test]
fn a_freeze_holds_everything_until_thawed() {
    let database = database();
    let proxy = Proxy::start(database.server());
    proxy.freeze();
    let mut child = client(&database, "127.0.0.1", proxy.port(), "INSERT INTO t VALUES (1)");
    sleep(Duration::from_millis(300));
    assert!(child.try_wait().unwrap().is_none());
    assert_eq!(database.psql("SELECT count(*) FROM t"), "0");
    proxy.thaw();
    assert!(finish(child).0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "1");
}

#[test]
fn frozen_after_commit_the_server_has_it_and_the_client_does_not_know() {
    let database = database();
    let proxy = Proxy::start(database.server());
    proxy.freeze_after_commit();
    let mut child = client(&database, "127.0.0.1", proxy.port(), COMMIT);
    assert!(proxy.wait_for_trap(PATIENCE));
    wait_for(&database, "SELECT count(*) FROM t", "1");
    sleep(Duration::from_millis(200));
    assert!(child.try_wait().unwrap().is_none());
    // Others pass.
    assert!(finish(client(&database, "127.0.0.1", proxy.port(), COMMIT)).0);
    proxy.cut();
    assert!(!finish(child).0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "2");
}

#[test]
fn a_held_commit_arrives_after_its_client_is_dead() {
    let database = database();
    let proxy = Proxy::start(database.server());
    proxy.freeze_before_commit_reaches();
    let mut child = client(&database, "127.0.0.1", proxy.port(), COMMIT);
    assert!(proxy.wait_for_trap(PATIENCE));
    child.kill().unwrap();
    child.wait().unwrap();
    sleep(Duration::from_millis(200));
    assert_eq!(database.psql("SELECT count(*) FROM t"), "0");
    proxy.deliver_held();
    wait_for(&database, "SELECT count(*) FROM t", "1");
}

#[test]
fn throttling_takes_its_time() {
    let database = database();
    let proxy = Proxy::start(database.server());
    let sql = format!("SELECT length('{}')", "x".repeat(100_000));
    proxy.throttle(200_000);
    let began = Instant::now();
    assert_eq!(finish(client(&database, "127.0.0.1", proxy.port(), &sql)).1, "100000");
    let took = began.elapsed();
    assert!((Duration::from_millis(300)..Duration::from_secs(10)).contains(&took), "{took:?}");
}
