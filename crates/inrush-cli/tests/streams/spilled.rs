//! What was spilled is drained once, whatever is known of its keys, and nobody waits for what no table takes.

use crate::client::{get, post, rows};
use crate::http::config;
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::{Postgres, ServerOptions, StopMode};
use std::path::Path;
use std::time::Duration;

/// NDJSON of so many rows.
fn body(ids: std::ops::Range<u32>) -> String {
    ids.map(|id| format!("{{\"id\":{id}}}\n")).collect()
}

#[track_caller]
fn spill(http: u16, table: &str, headers: &[(&str, &str)], body: &str) {
    let reply = rows(http, table, headers, body).expect("an answer").expect(204);
    let durability = reply.header("inrush-durability").expect("a header");
    assert!(durability.starts_with("spilled"), "{durability}");
}

fn metric(admin: u16, line: &str) -> bool {
    get(admin, "/metrics").is_ok_and(|reply| reply.body.contains(&format!("\n{line}\n")))
}

#[track_caller]
fn wait_until_drained(admin: u16) {
    wait_until("the spill is empty", || metric(admin, "inrush_spill_bytes 0"));
}

/// Records in the log.
fn records(dir: &Path) -> u64 {
    let checked = crate::harness::inrush(dir).args(["spill", "check", "--json", "spill"]).output();
    let checked = checked.expect("to run");
    assert!(checked.status.success(), "{checked:?}");
    let report: serde_json::Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    report["records"].as_u64().expect("a number")
}

#[test]
fn spilled_rows_are_not_stored_again_when_their_keys_are_forgotten() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id int); CREATE UNLOGGED TABLE u (id int)");
    server.stop(StopMode::Fast);
    let dir = tempfile::tempdir().expect("a directory");
    let (http, other, admin) = (free_port(), free_port(), free_port());
    let text = config(&database.url(), http, admin, "")
        + &format!("[[http]]\nname = \"u\"\nlisten = \"127.0.0.1:{other}\"\ninto.unlogged = true\n")
        + "[spill]\ndir = \"spill\"\n";
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    for n in 0..5 {
        spill(http, "t", &[("Idempotency-Key", &format!("k{n}"))], &body(n * 100..n * 100 + 50));
        spill(http, "t", &[], &body(n * 100 + 50..n * 100 + 100));
        spill(other, "u", &[], &body(n * 100..n * 100 + 100));
    }
    server.restart();
    let found =
        "SELECT (SELECT count(*) FROM t), (SELECT count(DISTINCT id) FROM t), (SELECT count(*) FROM u)";
    wait_until_drained(admin);
    assert_eq!(database.psql(found), "500|500|500");
    serve.kill9();
    assert_eq!(records(dir.path()), 15, "the log has them still");
    // The days of limits.remember_keys go by.
    database.psql("DELETE FROM inrush_ledger.requests; DELETE FROM inrush_ledger.requests_unlogged");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    wait_until_drained(admin);
    assert_eq!(database.psql(found), "500|500|500");
    // It does not stay there for the next one to find.
    wait_until("the log is begun anew", || records(dir.path()) == 0);
    server.stop(StopMode::Fast);
    wait_until("the server is away", || {
        get(admin, "/ready").is_ok_and(|reply| reply.body.contains("2 of 2 lanes"))
    });
    spill(http, "t", &[], &body(500..600));
    server.restart();
    wait_until_drained(admin);
    assert_eq!(database.psql(found), "600|600|500");
    // At an end in order it is begun anew at once.
    assert_eq!(serve.stop(), 0);
    assert_eq!(records(dir.path()), 0);
    // Even a ledger that knows nothing has nothing to store.
    database.psql("TRUNCATE t; DROP SCHEMA inrush_ledger CASCADE");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    wait_until_drained(admin);
    assert_eq!(serve.stop(), 0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "0");
}

#[test]
fn spilled_bodies_that_no_table_takes_become_dead_letters_and_the_others_are_stored() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id int); CREATE UNLOGGED TABLE u (id int)");
    server.stop(StopMode::Fast);
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let text = config(&database.url(), http, admin, "into.unknown = \"reject\"\n[spill]\ndir = \"spill\"\n");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    // More than one part.
    let large = body(0..150_000);
    assert!(large.len() > 1 << 20);
    spill(http, "nosuch", &[("Idempotency-Key", "large")], &large);
    spill(http, "t", &[], &body(0..10));
    let csv = post(http, "/ingest/t?format=csv", &[], b"id,nope\n1,2\n3,4\n").expect("an answer");
    csv.expect(204);
    spill(http, "Nor-this", &[], "{\"id\":7}\n");
    spill(http, "u", &[], "{\"id\":8}\n");
    spill(http, "t", &[], &body(10..20));
    server.restart();
    wait_until_drained(admin);
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), "20|20");
    let large_found = database.psql(
        "SELECT md5(string_agg(raw, '' ORDER BY position)), count(*) > 1, min(position), min(line), min(sqlstate),
                max(source || ' ' || target), bool_and(reason LIKE '%nosuch%')
           FROM inrush_ledger.dead_letters WHERE partition = 'large'",
    );
    let sum = database.psql(
        "SELECT md5(string_agg('{\"id\":' || i || '}' || chr(10), '' ORDER BY i)) FROM generate_series(0, 149999) i",
    );
    assert_eq!(large_found, format!("{sum}|t|0|1|42P01|http:in nosuch|t"));
    let others = "SELECT sqlstate, convert_from(raw, 'UTF8'), reason FROM inrush_ledger.dead_letters
                   WHERE partition <> 'large' ORDER BY id";
    let others = database.psql(others);
    assert!(others.contains("42703|1,2\n3,4\n|") && others.contains("the header was id,nope"), "{others}");
    assert!(others.contains("{\"id\":7}") && others.contains("{\"id\":8}"), "{others}");
    let all = "SELECT count(*), sum(length(raw)) FROM inrush_ledger.dead_letters";
    let letters = database.psql(all);
    assert!(metric(admin, "inrush_input_rejects_total{input=\"http:in\"} 150004"));
    assert!(serve.log().contains("it is kept as dead letters"), "{}", serve.log());
    wait_until("it is ready", || get(admin, "/ready").is_ok_and(|reply| reply.status == 200));
    serve.kill9();
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    wait_until_drained(admin);
    assert_eq!(database.psql(all), letters, "they are kept once");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn spilled_entries_are_not_begun_again_while_they_are_under_way_nor_before_the_offset() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    // The ledger is made, and who sends may write all tables but one.
    database.psql("CREATE TABLE t (id int); CREATE TABLE forbidden (id int); CREATE TABLE locked (id int)");
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
    serve.wait_for(http);
    rows(http, "t", &[], &body(0..10)).expect("an answer").expect(204);
    assert_eq!(serve.stop(), 0);
    database.psql(
        "CREATE ROLE sender LOGIN; GRANT INSERT, SELECT ON t, locked TO sender; GRANT SELECT ON forbidden TO sender;
         GRANT USAGE ON SCHEMA inrush_ledger TO sender;
         GRANT ALL ON ALL TABLES IN SCHEMA inrush_ledger TO sender",
    );
    server.stop(StopMode::Fast);
    let url = database.url().replace("postgres@", "sender@");
    let text = config(&url, http, admin, "[spill]\ndir = \"spill\"\n");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    for n in 1..4 {
        spill(http, "t", &[("Idempotency-Key", &format!("k{n}"))], &body(n * 10..n * 10 + 10));
    }
    spill(http, "forbidden", &[], &body(0..10));
    spill(http, "locked", &[], &body(0..10));
    // Nothing is drained before the lock is there.
    serve.kill9();
    server.restart();
    let mut lock = server
        .psql_command(database.name())
        .args(["-c", "BEGIN; LOCK TABLE locked; SELECT pg_sleep(3600)"])
        .stderr(std::process::Stdio::null())
        .spawn()
        .expect("to run psql");
    wait_until("the lock", || {
        database.psql("SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND granted") == "1"
    });
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    let told = |serve: &Serve| serve.log().matches("the spill is not drained").count();
    wait_until("it says why", || told(&serve) > 0);
    std::thread::sleep(Duration::from_secs(5));
    assert_eq!(told(&serve), 1, "what is under way is waited for: {}", serve.log());
    let ready = get(admin, "/ready").expect("an answer").expect(503);
    assert!(ready.body.contains("permission denied for table forbidden"), "{}", ready.body);
    database.psql(
        "SELECT pg_terminate_backend(pid) FROM pg_locks
          WHERE relation = 'locked'::regclass AND granted AND mode = 'AccessExclusiveLock'",
    );
    lock.wait().expect("our child");
    wait_until("it is tried again", || told(&serve) > 2);
    assert_eq!(database.psql("SELECT count(*) FROM locked"), "10");
    serve.kill9();
    assert_eq!(records(dir.path()), 5);
    database
        .psql("DELETE FROM inrush_ledger.requests WHERE key LIKE 'k%'; GRANT INSERT ON forbidden TO sender");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    wait_until_drained(admin);
    let found =
        "SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM forbidden), (SELECT count(*) FROM locked)";
    assert_eq!(database.psql(found), "40|10|10");
    assert_eq!(serve.stop(), 0);
}
