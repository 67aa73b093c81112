//! What is decided outlasts a crash, whatever synchronous_commit says: otherwise one server would forget what another was told.

use crate::harness::Running;
use crate::loads::{Files, end, settled};
use inrush_testkit::proxy::{Proxy, Statement};
use inrush_testkit::{Cluster, ClusterOptions};
use std::time::Duration;

const ROWS: usize = 20_000;

/// Servers that flush commits long after they have answered them, and lose what was not flushed.
const LAZY: &[(&str, &str)] = &[("synchronous_commit", "off"), ("wal_writer_delay", "10s"), ("fsync", "on")];

/// Lets units commit, then kills one server and the client, and gives the command again.
fn crash(prepared: u32, coordinator: bool) {
    let cluster = Cluster::start(&ClusterOptions { prepared, conf: LAZY, ..ClusterOptions::default() });
    let database = cluster.fresh_database();
    let files = Files::new();
    database.by_hash("t", "id int, info text", "id", 2, "");
    let file: String = (1..=ROWS).map(|id| format!("{id},row number {id}\n")).collect();
    files.write("t.csv", &file);
    let proxy = Proxy::start(&cluster.nodes()[0]);
    let (host, port) = cluster.address(0);
    let map = format!("{host}:{port}=127.0.0.1:{}", proxy.port());
    let more = ["--no-header", "--chunk", "16K", "--unit-bytes", "32K", "--jobs", "1", "--node", &map];
    let told = if prepared > 0 { "COMMIT PREPARED" } else { "COMMIT" };
    proxy.freeze_after(Statement::with(told).skip(3));
    let running = Running::start(&mut files.load("t.csv", "t", &database.url(), &more), None);
    assert!(proxy.wait_for_trap(Duration::from_secs(30)), "no {told} came by");
    std::thread::sleep(Duration::from_millis(200));
    let dying = if coordinator { cluster.coordinator() } else { &cluster.nodes()[0] };
    dying.kill9();
    running.kill9();
    proxy.cut();
    proxy.thaw();
    dying.restart();
    end(Running::start(&mut files.load("t.csv", "t", &database.url(), &more), None)).expect_code(0);
    let found = database.psql("SELECT count(*), count(DISTINCT id) FROM t");
    assert_eq!(found, format!("{ROWS}|{ROWS}"), "prepared {prepared}, coordinator {coordinator}");
    settled(&database, "");
}

#[test]
fn a_coordinator_that_commits_lazily() {
    crash(20, true);
}

#[test]
fn nodes_that_commit_lazily() {
    crash(20, false);
}

#[test]
fn a_coordinator_that_commits_lazily_over_nodes_that_prepare_nothing() {
    crash(0, true);
}

#[test]
fn nodes_that_commit_lazily_and_prepare_nothing() {
    crash(0, false);
}
