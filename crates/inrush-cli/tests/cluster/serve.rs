//! Streams into partitions on other servers with `postgres_fdw`.

use crate::harness::{inrush, run};
use crate::loads::{Files, PATIENCE, Place, settled};
use crate::process::{Serve, free_port, wait_until};
use crate::stock::move_a_leaf;
use crate::story::Fault;
use crate::streams::{Stream, at_steps};
use inrush_testkit::{Cluster, ClusterDatabase, ClusterOptions, Version, require_server};
use std::io::Write as _;
use std::process::Stdio;
use std::time::Duration;

fn fresh(version: Version) -> ClusterDatabase<'static> {
    Cluster::shared(version).fresh_database()
}

fn killed(version: Version, fault: Fault) {
    let cluster = Cluster::start(&ClusterOptions { version, ..ClusterOptions::default() });
    let database = cluster.fresh_database();
    at_steps(&database, fault, &|| {
        database.everywhere(
            "DO $$ DECLARE r record; BEGIN FOR r IN SELECT relname, relkind FROM pg_class
                   WHERE relnamespace = 'public'::regnamespace AND relkind IN ('r', 'p', 'f') AND NOT relispartition
                 LOOP EXECUTE 'DROP ' || CASE r.relkind WHEN 'f' THEN 'FOREIGN ' ELSE '' END || 'TABLE ' || r.relname; END LOOP; END $$;
             DROP SCHEMA IF EXISTS inrush_ledger CASCADE",
        );
        database.by_hash("t", "id int, info text", "id", 4, "PRIMARY KEY (id)");
    });
}

#[test]
fn the_client_is_killed() {
    killed(Version::Any, Fault::Client);
}

#[test]
fn the_client_is_killed_and_a_statement_arrives_late() {
    killed(Version::Any, Fault::LateStatement);
}

#[test]
fn servers_crash() {
    killed(Version::Any, Fault::Coordinator);
    killed(Version::Any, Fault::Node);
}

#[test]
fn the_network_is_cut() {
    killed(Version::Any, Fault::Cut);
}

#[test]
fn everything_dies_on_18() {
    require_server!(18);
    killed(Version::Major(18), Fault::Everything);
}

/// A configuration that reads standard input.
fn stdin(url: &str, more: &str, input: &str) -> String {
    format!("[server]\nto = \"{url}\"\n{more}\n[batch]\nlinger = \"20ms\"\n[stdin]\n{input}\n")
}

/// Rows through standard input, of which none or some are refused; what was logged.
#[track_caller]
fn pass(config: &str, rows: &str, code: i32) -> String {
    let files = Files::new();
    let mut serve = Serve::with_input(files.path(), "serve", config, Stdio::piped());
    serve.stdin().write_all(rows.as_bytes()).expect("to write");
    assert_eq!(serve.wait(), code, "{}", serve.log());
    serve.log()
}

#[test]
fn rows_that_nodes_refuse_are_dead_letters() {
    for (version, deferred) in [(15, ""), (15, " DEFERRABLE INITIALLY DEFERRED"), (18, "")] {
        require_server!(version);
        let database = fresh(Version::Major(version));
        let constraint = format!("UNIQUE (id){deferred}");
        database.by_hash("t", "id int, info text CHECK (info <> 'no')", "id", 4, &constraint);
        database.everywhere(
            "SET client_min_messages = error; DO $$ DECLARE r record; BEGIN
            FOR r IN SELECT relname FROM pg_class WHERE relkind = 'r' AND relname LIKE 't\\_%'
            LOOP EXECUTE format('ALTER TABLE %I ADD CHECK (info <> ''no'')', r.relname); END LOOP; END $$",
        );
        let mut rows: String = (1..=2000).map(|id| format!("{id},info {id}\n")).collect();
        rows += "7,again\n2001,no\nx,y\n,null\n2002,last\n99999999999,far\n";
        let config = stdin(
            &database.url(),
            "lanes = 1",
            "format = \"csv\"\ncsv_columns = [\"id\", \"info\"]\ninto.table = \"t\"",
        );
        let log = pass(&config, &rows, 1);
        assert!(log.contains("straight to 4 partitions"), "{log}");
        // NULL is a key like others for partitions by hash; it is not unique.
        assert_eq!(
            database.psql("SELECT count(*), count(DISTINCT id), max(id) FROM t"),
            "2002|2001|2002",
            "{log}"
        );
        let letters = database
            .psql("SELECT sqlstate, convert_from(raw, 'UTF8') FROM inrush_ledger.dead_letters ORDER BY 1, 2");
        assert_eq!(
            letters, "22003|99999999999,far\n\n22P02|x,y\n\n23505|7,again\n\n23514|2001,no\n",
            "{log}"
        );
        settled(&database, &log);
    }
}

#[test]
fn what_the_coordinator_fills_is_what_an_insert_would_have() {
    let database = fresh(Version::Any);
    database.psql("CREATE SEQUENCE s START 1000");
    database.by_hash("t", "id bigint, info text, note text", "id", 3, "");
    database.psql("ALTER TABLE t ALTER id SET DEFAULT nextval('s'), ALTER note SET DEFAULT 'from here'");
    let config = stdin(&database.url(), "lanes = 1", "format = \"ndjson\"\ninto.table = \"t\"");
    let rows: String = (1..=500).map(|i| format!("{{\"info\":\"{i}\"}}\n")).collect();
    let log = pass(&config, &(rows + "{\"id\":5,\"info\":\"given\"}\n{\"note\":\"mine\"}\n"), 0);
    assert!(log.contains("straight to 3 partitions"), "{log}");
    assert_eq!(
        database.psql("SELECT count(*), count(DISTINCT id), min(id), count(*) FILTER (WHERE note = 'from here'), count(note) FROM t"),
        "502|502|5|501|502"
    );
    assert_eq!(Place::misplaced(&database, "t"), 0);
    // Defaults are asked for anew with each unit.
    database.psql("ALTER TABLE t ALTER note SET DEFAULT 'another'");
    pass(&config, "{\"info\":\"later\"}\n", 0);
    assert_eq!(database.psql("SELECT note FROM t WHERE info = 'later'"), "another");
    settled(&database, &log);
}

/// Defaults are of the unit, and whoever alters the table while it is written waits for a unit and no longer.
#[test]
fn a_table_that_is_altered_under_a_stream() {
    let database = fresh(Version::Any);
    database.by_hash("t", "id int, info text, note text, at timestamptz", "id", 3, "");
    database.psql("ALTER TABLE t ALTER at SET DEFAULT clock_timestamp(), ALTER note SET DEFAULT '0'");
    let stream = Stream::new(&database, "");
    let serve = stream.start();
    stream.rows(1..101);
    stream.wait_for(100, "");
    for turn in 1..=30_u32 {
        stream.rows(turn * 100 + 1..turn * 100 + 51);
        let alter = format!("SET lock_timeout = '20s'; ALTER TABLE t ALTER note SET DEFAULT '{turn}'");
        database.coordinator().psql(&alter);
        stream.rows(turn * 100 + 51..turn * 100 + 101);
    }
    stream.wait_for(3100, "");
    let log = serve.log();
    assert_eq!(serve.stop(), 0);
    // What came behind the last change has the last default, and nothing is older than its unit.
    let old = "SELECT count(*) FROM t WHERE id > 3050 AND note <> '30'";
    assert_eq!(database.psql(old), "0", "{log}");
    let of_first = "SELECT count(*) FROM t WHERE id > 1000 AND at <= (SELECT max(at) FROM t WHERE id <= 100)";
    assert_eq!(database.psql(of_first), "0", "{log}");
    settled(&database, &log);
}

/// Several lanes, and inputs of every kind, when the server goes away: keyed and keyless bodies, and a file.
#[test]
fn units_of_several_inputs_when_servers_crash() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let database = cluster.fresh_database();
    database.by_hash("t", "id int, info text", "id", 4, "UNIQUE (id)");
    let stream = Stream::new(&database, "");
    let port = free_port();
    let more = format!("[[http]]\nname = \"in\"\nlisten = \"127.0.0.1:{port}\"\ninto.table = \"t\"\n");
    let mut serve = stream.start_with(3, &more);
    serve.wait_for(port);
    let body = |from: u32| -> String {
        (from..from + 20).map(|id| format!("{{\"id\":{id},\"info\":\"info {id}\"}}\n")).collect()
    };
    let sending = std::sync::atomic::AtomicBool::new(true);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..60_u32 {
                stream.rows(number * 100 + 1..number * 100 + 61);
                std::thread::sleep(Duration::from_millis(50));
            }
        });
        scope.spawn(|| {
            for number in 0..60_u32 {
                let key = format!("body {number}");
                let text = body(number * 100 + 61);
                loop {
                    let headers = [("Idempotency-Key", key.as_str())];
                    let reply = crate::client::rows(port, "t", &headers, &text);
                    if reply.is_ok_and(|reply| reply.status / 100 == 2) {
                        break;
                    }
                    std::thread::sleep(Duration::from_millis(50));
                }
                // Without a key, refused rows and all: those that are answered are there once; the constraint says so.
                let _ = crate::client::rows(port, "t", &[], &body(number * 100 + 81));
                std::thread::sleep(Duration::from_millis(20));
            }
            sending.store(false, std::sync::atomic::Ordering::Relaxed);
        });
        scope.spawn(|| {
            let mut turn = 0;
            while sending.load(std::sync::atomic::Ordering::Relaxed) && turn < 4 {
                std::thread::sleep(Duration::from_millis(700));
                Place::crash(&database, turn % 2 == 0, turn % 2 == 1);
                turn += 1;
            }
        });
    });
    let keyed = "SELECT count(*) FROM t WHERE (id - 1) % 100 < 80";
    wait_until("all rows with offsets or keys", || {
        database.coordinator().try_psql(keyed).is_ok_and(|n| n == "4800")
    });
    let log = serve.log();
    assert_eq!(serve.stop(), 0, "{log}");
    assert_eq!(database.psql("SELECT count(*) - count(DISTINCT id) FROM t"), "0", "{log}");
    let other = "SELECT count(*) FROM inrush_ledger.dead_letters WHERE sqlstate <> '23505'";
    assert_eq!(database.psql(other), "0", "{log}");
    assert_eq!(Place::misplaced(&database, "t"), 0);
    settled(&database, &log);
}

/// Lines of line protocol for two tables in one body: all or nothing, and once for its key.
#[test]
fn one_body_for_several_tables_is_stored_once() {
    let database = fresh(Version::Any);
    for table in ["cpu", "disk"] {
        database.by_hash(
            table,
            "host text, time timestamptz, load double precision",
            "host",
            3,
            "UNIQUE (host, time)",
        );
    }
    database.psql("CREATE TABLE plain (host text, time timestamptz, load double precision)");
    let (files, port) = (Files::new(), free_port());
    let config = format!(
        "[server]\nto = \"{}\"\nlanes = 2\n[[http]]\nname = \"in\"\nlisten = \"127.0.0.1:{port}\"\n",
        database.url()
    );
    let mut serve = Serve::start(files.path(), &config);
    serve.wait_for(port);
    let body = |from: u32, to: u32| -> String {
        (from..to)
            .map(|i| {
                format!(
                    "{},host=h{i} load={i} {}\n",
                    ["cpu", "disk", "plain"][i as usize % 3],
                    1_700_000_000_000_000_000_u64 + u64::from(i) * 1_000_000_000
                )
            })
            .collect()
    };
    for attempt in 0..2 {
        for part in 0..10 {
            let key = format!("part {part}");
            let reply = crate::client::post(
                port,
                "/write",
                &[("Idempotency-Key", &key)],
                body(part * 100, part * 100 + 100).as_bytes(),
            );
            assert!(
                reply.as_ref().is_ok_and(|reply| reply.status / 100 == 2),
                "attempt {attempt}: {reply:?}\n{}",
                serve.log()
            );
        }
    }
    let counts =
        "SELECT (SELECT count(*) FROM cpu), (SELECT count(*) FROM disk), (SELECT count(*) FROM plain)";
    assert_eq!(database.psql(counts), "334|333|333");
    let log = serve.log();
    assert_eq!(log.matches("straight to 3 partitions").count(), 2, "{log}");
    assert_eq!(serve.stop(), 0);
    assert_eq!(Place::misplaced(&database, "cpu") + Place::misplaced(&database, "disk"), 0);
    settled(&database, &log);
}

#[test]
fn partitions_that_change_under_way() {
    for version in [Version::Any, Version::Major(18)] {
        let database = fresh(version);
        database.by_hash("t", "id int, info text", "id", 4, "");
        let stream = Stream::new(&database, "");
        let serve = stream.start();
        let mut next = 1;
        let mut more = |stream: &Stream<'_>, rows: u32| {
            for _ in 0..rows / 100 {
                stream.rows(next..next + 100);
                next += 100;
                std::thread::sleep(Duration::from_millis(10));
            }
        };
        more(&stream, 1000);
        std::thread::scope(|scope| {
            let changes = scope.spawn(|| {
                // From one node to the other.
                move_a_leaf(&database);
                std::thread::sleep(Duration::from_millis(1500));
                // From a node to the coordinator.
                database.psql(
                    "BEGIN; ALTER TABLE t DETACH PARTITION t_1; CREATE TABLE here (id int, info text);
                     INSERT INTO here SELECT * FROM t_1; DROP FOREIGN TABLE t_1;
                     ALTER TABLE t ATTACH PARTITION here FOR VALUES WITH (MODULUS 4, REMAINDER 1); COMMIT",
                );
                std::thread::sleep(Duration::from_millis(1500));
                // All of it to the coordinator, then back to a table that is spread.
                database.psql(
                    "BEGIN; ALTER TABLE t RENAME TO old; CREATE TABLE t (id int, info text);
                     INSERT INTO t SELECT * FROM old; COMMIT",
                );
            });
            while !changes.is_finished() {
                more(&stream, 200);
            }
            changes.join().expect("all changes");
        });
        more(&stream, 1000);
        let rows = next - 1;
        stream.wait_for(rows, "");
        let log = serve.log();
        assert!(log.contains("straight to 4 partitions on 2 nodes"), "{log}");
        assert!(log.contains("straight to 4 partitions on 3 nodes"), "{log}");
        assert!(log.contains("any more") && log.contains("its rows are on this server now"), "{log}");
        assert_eq!(serve.stop(), 0);
        let expected = format!("SELECT i, 'info ' || i FROM generate_series(1, {rows}) i");
        assert_eq!(database.psql(&format!("SELECT count(*) FROM (TABLE t EXCEPT ALL ({expected})) x")), "0");
        settled(&database, &log);
    }
}

#[test]
fn what_goes_through_the_coordinator_says_why() {
    let cluster = Cluster::start(&ClusterOptions { prepared: 0, ..ClusterOptions::default() });
    let unprepared = cluster.fresh_database();
    unprepared.by_hash("t", "id int, info text", "id", 2, "");
    let database = fresh(Version::Any);
    database.by_hash("t", "id int, info text", "id", 2, "");
    let input = "format = \"csv\"\ncsv_columns = [\"id\", \"info\"]\ninto.table = \"t\"";
    for (database, more, why) in [
        (&unprepared, "", "a node prepares nothing (max_prepared_transactions is 0)"),
        (&database, "bypass = false", "server.bypass is false"),
        (&database, "nodes = [\"127.0.0.1=127.0.0.1:1\", \"localhost=127.0.0.1:1\"]", "Connection refused"),
    ] {
        let config = stdin(&database.url(), more, input);
        let log = pass(&config, "1,a\n2,b\n", 0);
        assert!(log.contains("through the coordinator: ") && log.contains(why), "{why}: {log}");
        let files = Files::new();
        files.write("c.toml", &config);
        let checked = run(inrush(files.path()).args(["serve", "--check", "c.toml"]), None, PATIENCE);
        checked.expect_code(0);
        assert!(checked.stdout.contains(why), "{checked:#?}");
    }
    assert_eq!(database.psql("SELECT count(*) FROM t"), "4");
    assert_eq!(unprepared.psql("SELECT count(*) FROM t"), "2");
    settled(&database, "");
}

/// A node that is away keeps rows waiting, and nothing is lost or told twice.
#[test]
fn a_node_that_is_away() {
    let cluster = Cluster::start(&ClusterOptions::default());
    let database = cluster.fresh_database();
    database.by_hash("t", "id int, info text", "id", 4, "PRIMARY KEY (id)");
    let stream = Stream::new(&database, "");
    let serve = stream.start();
    stream.rows(1..101);
    stream.wait_for(100, "");
    cluster.nodes()[1].stop(inrush_testkit::StopMode::Immediate);
    stream.rows(101..301);
    std::thread::sleep(Duration::from_secs(2));
    cluster.nodes()[1].restart();
    stream.wait_for(300, "");
    assert_eq!(serve.stop(), 0);
    stream.check(300, "");
}
