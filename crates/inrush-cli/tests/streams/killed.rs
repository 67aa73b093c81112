//! Processes that are killed while rows come: every row exactly once where that is promised, and nothing that was
//! acknowledged is missing.

use crate::client::rows;
use crate::harness::Random;
use crate::process::{PATIENCE, Serve, free_port};
use inrush_testkit::{Postgres, ServerOptions};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::SeqCst};
use std::time::{Duration, Instant};

/// Kills of a run: INRUSH_KILLS, or a few.
fn kills() -> usize {
    std::env::var("INRUSH_KILLS").ok().and_then(|n| n.parse().ok()).unwrap_or(8)
}

#[test]
fn bodies_with_keys_arrive_once_whoever_is_killed() {
    bodies_arrive_once("bodies_with_keys", "");
}

#[test]
fn spilled_bodies_arrive_once_whoever_is_killed() {
    bodies_arrive_once("spilled_bodies", "[spill]\ndir = \"spill\"\n");
}

fn bodies_arrive_once(test: &str, spill: &str) {
    let mut random = Random::from_environment(test);
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id bigint, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let made = crate::harness::inrush(dir.path())
        .args([
            "table",
            "create",
            "u",
            "id bigint, info text, at timestamptz",
            "--time",
            "at",
            "--window",
            "1h",
        ])
        .args(["--lanes", "3", "--key", "id", "--to", &database.url()])
        .output()
        .expect("to run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let at = database.psql("SELECT now()");
    let http = free_port();
    let config = |random: &mut Random| {
        spill.to_owned()
            + &format!(
                "[server]\nto = \"{}\"\nlanes = {}\nsynchronous_commit = \"{}\"\n[batch]\nlinger = \"{}ms\"\nrows = {}\n\
             [limits]\nmemory = \"8MiB\"\nwait = \"500ms\"\n[[http]]\nname = \"in\"\nlisten = \"127.0.0.1:{http}\"\n",
                database.url(),
                1 + random.below(5),
                random.pick(&["on", "off"]),
                random.pick(&[1, 20, 200]),
                random.pick(&[100, 100_000]),
            )
    };
    let mut serve = Serve::start(dir.path(), &config(&mut random));
    serve.wait_for(http);

    let pause = Duration::from_millis(if spill.is_empty() { 0 } else { 25 });
    let stop = Arc::new(AtomicBool::new(false));
    let sent = Arc::new(AtomicU64::new(0));
    let senders: Vec<_> = (0..4u64)
        .map(|sender| {
            let (stop, sent, at) = (Arc::clone(&stop), Arc::clone(&sent), at.clone());
            let mut random = Random::new(random.next());
            std::thread::spawn(move || {
                let mut bodies = 0u64;
                let (mut bad, mut spilled) = (0, 0);
                while !stop.load(SeqCst) {
                    let rows_of = 1 + random.below(3000);
                    let first = sender << 40 | bodies << 20;
                    let mut body = String::new();
                    let with_bad = random.one_in(4);
                    for id in first..first + rows_of {
                        body += &format!("{{\"id\":{id},\"info\":\"of {sender}\",\"at\":\"{at}\"}}\n");
                    }
                    if with_bad {
                        body += "{\"id\":\"no number\"}\n";
                        bad += 1;
                    }
                    let key = format!("{sender}-{bodies}");
                    let table = if random.one_in(2) { "t" } else { "u" };
                    spilled += u64::from(deliver(http, table, &key, &body));
                    sent.fetch_add(rows_of, SeqCst);
                    bodies += 1;
                    // The disk takes bodies much faster than the server gets through them afterwards.
                    std::thread::sleep(pause);
                }
                (bad, spilled)
            })
        })
        .collect();

    let mut told = String::new();
    for _ in 0..kills() {
        std::thread::sleep(Duration::from_millis(200 + random.below(1500)));
        match random.below(3) {
            0 => {
                told += "inrush ";
                serve.kill9();
                serve = Serve::start(dir.path(), &config(&mut random));
                serve.wait_for(http);
            }
            1 => {
                told += "server ";
                server.kill9();
                std::thread::sleep(Duration::from_millis(random.below(800)));
                server.restart();
            }
            _ => {
                told += "both ";
                serve.kill9();
                server.kill9();
                serve = Serve::start(dir.path(), &config(&mut random));
                std::thread::sleep(Duration::from_millis(random.below(500)));
                server.restart();
                serve.wait_for(http);
            }
        }
    }
    stop.store(true, SeqCst);
    let ends = senders.into_iter().map(|sender| sender.join().expect("a sender"));
    let (bad, spilled) = ends.fold((0, 0), |all, one| (all.0 + one.0, all.1 + one.1));
    let sent = sent.load(SeqCst);
    let found = "SELECT count(*), count(DISTINCT id) FROM (SELECT id FROM t UNION ALL SELECT id FROM u) x";
    if !spill.is_empty() {
        // As long as it takes, while it goes on.
        let (mut stored, mut since) = (0, Instant::now());
        while stored < sent && since.elapsed() < PATIENCE {
            std::thread::sleep(Duration::from_millis(200));
            let now = database.psql(found).split('|').next().and_then(|n| n.parse().ok()).unwrap_or(0);
            if now > stored {
                (stored, since) = (now, Instant::now());
            }
        }
    }
    assert_eq!(database.psql(found), format!("{sent}|{sent}"), "killed: {told}");
    assert_eq!(
        database.psql("SELECT count(*) FROM inrush_ledger.dead_letters"),
        bad.to_string(),
        "refused rows are kept once; killed: {told}"
    );
    assert!(serve.stop() < 2);
    eprintln!("{} kills, {sent} rows, {spilled} bodies by way of the spill: {told}", kills());
}

/// Sends a body until it is told that it is stored; whether it went to the spill.
pub fn deliver(port: u16, table: &str, key: &str, body: &str) -> bool {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match rows(port, table, &[("Idempotency-Key", key)], body) {
            // 400: stored but for the rows that are refused.
            Ok(reply) if [204, 400].contains(&reply.status) => {
                return reply.header("inrush-durability").is_some_and(|told| told.starts_with("spilled"));
            }
            Ok(reply) => assert!([409, 503].contains(&reply.status), "{reply:?}"),
            Err(_) => {}
        }
        assert!(Instant::now() < deadline, "{key} is not taken");
        std::thread::sleep(Duration::from_millis(50));
    }
}

#[test]
fn a_crash_takes_the_rows_of_unlogged_tables_and_what_is_known_of_them() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE UNLOGGED TABLE t (id int); CREATE TABLE logged (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, other, admin) = (free_port(), free_port(), free_port());
    let config = crate::http::config(&database.url(), http, admin, "into.unlogged = true\n")
        + &format!("[[http]]\nname = \"logged\"\nlisten = \"127.0.0.1:{other}\"\n");
    let mut serve = Serve::start(dir.path(), &config);
    serve.wait_for(http);
    let body: String = (0..1000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let key = [("Idempotency-Key", "k")];
    let reply = rows(http, "t", &key, &body).expect("an answer").expect(204);
    assert!(
        reply.header("inrush-durability").is_some_and(|told| told.contains("lost if the database crashes"))
    );
    rows(other, "logged", &key, &body).expect("an answer").expect(204);
    assert!(serve.log().contains("lost if the database crashes"), "{}", serve.log());
    // A table of the other class is not for this input.
    rows(http, "logged", &[], &body).expect("an answer").expect(422);
    server.kill9();
    server.restart();
    assert_eq!(database.psql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM logged)"), "0|1000");
    // The same key again: what is lost is stored, what is there is known.
    deliver(http, "t", "k", &body);
    deliver(other, "logged", "k", &body);
    assert_eq!(database.psql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM logged)"), "1000|1000");
    assert_eq!(serve.stop(), 0);
}
