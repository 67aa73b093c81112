//! Nodes that prepare nothing: each commits its rows with a mark, and is sent again what it lacks.

use crate::harness::{Running, inrush, run};
use crate::loads::{Files, PATIENCE, Report, end, settled};
use inrush_testkit::proxy::{Proxy, Statement};
use inrush_testkit::{At, Cluster, ClusterDatabase, ClusterOptions, StopMode};
use std::time::{Duration, Instant};

const ROWS: usize = 40_000;

fn cluster() -> Cluster {
    Cluster::start(&ClusterOptions { prepared: 0, ..ClusterOptions::default() })
}

/// A table with leaves on both nodes and on the coordinator, a file for it, and what `--node` says of these proxies.
fn spread(cluster: &Cluster, database: &ClusterDatabase<'_>, proxies: &[Proxy]) -> (Files, Vec<String>) {
    let files = Files::new();
    let bound = |i| format!("FOR VALUES WITH (MODULUS 3, REMAINDER {i})");
    let (zero, one, two) = (bound(0), bound(1), bound(2));
    let leaves = [(zero.as_str(), At::Node(0)), (one.as_str(), At::Node(1)), (two.as_str(), At::Here)];
    database.partitioned("t", "id int, info text", "HASH (id)", &leaves, "id int, info text");
    let file: String = (1..=ROWS).map(|id| format!("{id},row number {id}\n")).collect();
    files.write("t.csv", &file);
    let map = (0..proxies.len()).flat_map(|node| {
        let (host, port) = cluster.address(node);
        ["--node".to_owned(), format!("{host}:{port}=127.0.0.1:{}", proxies[node].port())]
    });
    let mut more: Vec<String> = map.collect();
    // Many units, of some rows each.
    more.extend(["--no-header", "--chunk", "16K", "--unit-bytes", "64K", "--jobs", "2"].map(str::to_owned));
    (files, more)
}

/// Each row is there once, where it belongs, and nothing is left of how it got there.
#[track_caller]
fn whole(database: &ClusterDatabase<'_>, told: &str) {
    let found = database.psql(
        "SELECT count(*), count(DISTINCT id), count(*) FILTER (WHERE info = 'row number ' || id) FROM t",
    );
    assert_eq!(found, format!("{ROWS}|{ROWS}|{ROWS}"), "{told}");
    settled(database, told);
    for marks in database.everywhere("SELECT count(*) FROM inrush_ledger.marks") {
        assert_eq!(marks, "0", "marks are left: {told}");
    }
}

#[test]
fn every_node_commits_for_itself() {
    let cluster = cluster();
    let database = cluster.fresh_database();
    let (files, more) = spread(&cluster, &database, &[]);
    let more: Vec<&str> = more.iter().map(String::as_str).collect();
    let report = files.report(0, "t.csv", "t", &database.url(), &[&more[..], &["--audit"]].concat());
    report.bypassed().audited(ROWS as u64);
    assert_eq!(report.cluster()["atomic"], false);
    whole(&database, "");
    // Where the input is gone once it was read, a node could not be sent what it lacks.
    let stdin = std::fs::read(files.path().join("t.csv")).expect("the file");
    database.psql("TRUNCATE t");
    let mut command =
        files.load("-", "t", &database.url(), &["--no-header", "--format", "csv", "--report", "-"]);
    let outcome = run(&mut command, Some(stdin), PATIENCE);
    outcome.expect_code(0);
    Report::of(&outcome).through("max_prepared_transactions");
}

/// What dies between the ledger's decision and the nodes' COMMITs.
#[derive(Debug, Clone, Copy)]
enum Dies {
    Client,
    Node,
    Connection,
}

#[test]
fn what_a_node_lacks_is_sent_again() {
    let cluster = cluster();
    for (number, dies) in
        [Dies::Client, Dies::Connection, Dies::Node, Dies::Client, Dies::Client].into_iter().enumerate()
    {
        for before in [true, false] {
            let told = format!("{dies:?} {} COMMIT, {number}", if before { "before" } else { "after" });
            let database = cluster.fresh_database();
            let proxies: Vec<Proxy> = cluster.nodes().iter().map(Proxy::start).collect();
            let (files, more) = spread(&cluster, &database, &proxies);
            let more: Vec<&str> = more.iter().map(String::as_str).collect();
            let node = number % 2;
            let commit = Statement::whole("COMMIT").skip(2 + number as u64);
            if before {
                proxies[node].freeze_before(commit);
            } else {
                proxies[node].freeze_after(commit);
            }
            let running = Running::start(&mut files.load("t.csv", "t", &database.url(), &more), None);
            assert!(proxies[node].wait_for_trap(Duration::from_secs(30)), "no COMMIT came by: {told}");
            match dies {
                Dies::Client => {
                    // The other nodes have the unit.
                    std::thread::sleep(Duration::from_millis(100));
                    running.kill9();
                    proxies[node].cut();
                    proxies[node].thaw();
                    if number % 2 == 0 {
                        let mut recover = inrush(files.path());
                        run(recover.args(["recover", "--to", &database.url()]), None, PATIENCE)
                            .expect_code(0);
                    }
                    let outcome =
                        end(Running::start(&mut files.load("t.csv", "t", &database.url(), &more), None));
                    outcome.expect_code(0);
                }
                Dies::Connection => {
                    proxies[node].cut();
                    proxies[node].thaw();
                    end(running).expect_code(0);
                }
                Dies::Node => {
                    cluster.nodes()[node].stop(StopMode::Immediate);
                    proxies[node].cut();
                    proxies[node].thaw();
                    cluster.nodes()[node].restart();
                    let outcome = end(running);
                    // It may have come too late for a unit that had not been decided.
                    if outcome.code != Some(0) {
                        let again = files.load("t.csv", "t", &database.url(), &more);
                        end(Running::start(&mut { again }, None)).expect_code(0);
                    }
                }
            }
            whole(&database, &told);
            let began = Instant::now();
            assert!(began.elapsed() < PATIENCE);
        }
    }
}

/// A unit without rows has nobody told of anything: what the ledger has not forgotten keeps its marks.
#[test]
fn units_of_rejects_only_and_a_killed_client() {
    let cluster = cluster();
    let database = cluster.fresh_database();
    let proxies: Vec<Proxy> = cluster.nodes().iter().map(Proxy::start).collect();
    let (files, more) = spread(&cluster, &database, &proxies);
    let good = files.read("t.csv");
    let half = good.find(&format!("{},row", ROWS / 2)).expect("a row of the middle");
    let bad = "x,no number\n".repeat(20_000);
    files.write("t.csv", format!("{}{bad}{}", &good[..half], &good[half..]));
    let more: Vec<&str> = more.iter().map(|word| if word == "2" { "1" } else { word.as_str() }).collect();
    let command = || {
        let mut command = files.load("t.csv", "t", &database.url(), &more);
        command.args(["--max-rejects", "30000"]);
        command
    };
    for skip in [8, 9, 10] {
        proxies[0].freeze_before(Statement::with("marks (gid) VALUES").skip(skip));
        let running = Running::start(&mut command(), None);
        assert!(proxies[0].wait_for_trap(Duration::from_secs(60)), "no such statement");
        running.kill9();
        for proxy in &proxies {
            proxy.cut();
            proxy.thaw();
        }
        let outcome = end(Running::start(&mut command(), None));
        outcome.expect_code(1);
        whole(&database, &format!("killed before mark {skip}"));
        database.psql("TRUNCATE t; DROP SCHEMA inrush_ledger CASCADE");
        for node in 0..2 {
            database.node(node).psql("DROP SCHEMA inrush_ledger CASCADE");
        }
    }
}
