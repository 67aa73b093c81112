//! What the tests of this binary share: a directory of files, loads of them, and what must be true afterwards.

use crate::harness::{Outcome, Running, inrush, run};
use inrush_testkit::proxy::Proxy;
use inrush_testkit::{ClusterDatabase, StopMode};
use serde_json::Value;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How long one command may take.
pub const PATIENCE: Duration = Duration::from_secs(90);

/// A directory for inputs and rejects.
pub struct Files(TempDir);

impl Files {
    pub fn new() -> Files {
        Files(tempfile::tempdir().expect("a directory"))
    }

    pub fn path(&self) -> &Path {
        self.0.path()
    }

    pub fn write(&self, name: &str, bytes: impl AsRef<[u8]>) {
        std::fs::write(self.0.path().join(name), bytes).expect("to write a file");
    }

    pub fn read(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.path().join(name)).unwrap_or_default()
    }

    /// `inrush load FILE --table TABLE --to URL`, and more.
    pub fn load(&self, file: &str, table: &str, url: &str, more: &[&str]) -> Command {
        let mut command = inrush(self.path());
        command.args(["load", file, "--table", table, "--to", url]).args(more);
        command
    }

    /// Runs a load that has to end with this code, and gives its report.
    #[track_caller]
    pub fn report(&self, code: i32, file: &str, table: &str, url: &str, more: &[&str]) -> Report {
        let mut command = self.load(file, table, url, more);
        let outcome = run(command.args(["--report", "-"]), None, PATIENCE);
        outcome.expect_code(code);
        Report::of(&outcome)
    }
}

/// The report of a load.
#[derive(Debug)]
pub struct Report(pub Value);

impl Report {
    #[track_caller]
    pub fn of(outcome: &Outcome) -> Report {
        let last = outcome.stdout.trim();
        Report(serde_json::from_str(last).unwrap_or_else(|e| panic!("no report: {e}\n{outcome:#?}")))
    }

    pub fn cluster(&self) -> &Value {
        &self.0["cluster"]
    }

    #[track_caller]
    pub fn bypassed(&self) -> &Report {
        assert_eq!(self.cluster()["bypassed"], true, "{:#}", self.0);
        self
    }

    /// Through the coordinator, for a reason with this in it.
    #[track_caller]
    pub fn through(&self, why: &str) -> &Report {
        assert_eq!(self.cluster()["bypassed"], false, "{:#}", self.0);
        let reason = self.cluster()["reason"].as_str().unwrap_or_default();
        assert!(reason.contains(why), "{why:?} is not in {reason:?}");
        self
    }

    /// The audit was asked for, and has found nothing.
    #[track_caller]
    pub fn audited(&self, rows: u64) -> &Report {
        let audit = &self.cluster()["audit"];
        assert_eq!((&audit["rows"], &audit["misplaced"]), (&rows.into(), &0.into()), "{:#}", self.0);
        self
    }

    /// A figure of the totals.
    pub fn total(&self, name: &str) -> u64 {
        self.0["totals"][name].as_u64().unwrap_or_else(|| panic!("no {name} in {:#}", self.0))
    }
}

/// Ends a command, which may not hang.
#[track_caller]
pub fn end(mut running: Running) -> Outcome {
    if running.wait_until(Instant::now() + PATIENCE).is_none() {
        let outcome = running.kill9();
        panic!("it hangs\n{outcome:#?}");
    }
    running.finish()
}

/// Waits until it is so.
#[track_caller]
pub fn wait_until(what: &str, condition: impl Fn() -> bool) {
    let began = Instant::now();
    while !condition() {
        assert!(began.elapsed() < Duration::from_secs(30), "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// A database whose tables are on several servers.
pub trait Place: Sync {
    /// SQL on the coordinator.
    fn try_psql(&self, sql: &str) -> Result<String, String>;

    /// What is prepared in this database, on all servers.
    fn prepared(&self) -> Vec<String>;

    /// Sessions of loads in it, on all servers.
    fn sessions(&self) -> usize;

    /// How to reach it through a port of 127.0.0.1.
    fn url_via(&self, port: u16) -> String;

    /// A proxy in front of the coordinator.
    fn coordinator_proxy(&self) -> Proxy;

    /// Proxies in front of the nodes, with HOST:PORT by which the coordinator knows them.
    fn node_proxies(&self) -> Vec<(String, Proxy)>;

    /// Has servers crash, and waits until they are back.
    fn crash(&self, coordinator: bool, node: bool);

    /// Rows of a table that are not where its key leads, by the server's own functions.
    fn misplaced(&self, table: &str) -> u64;

    #[track_caller]
    fn sql(&self, sql: &str) -> String {
        self.try_psql(sql).unwrap_or_else(|error| panic!("psql: {error}\nin: {sql}"))
    }
}

impl Place for ClusterDatabase<'_> {
    fn try_psql(&self, sql: &str) -> Result<String, String> {
        self.coordinator().try_psql(sql)
    }

    fn prepared(&self) -> Vec<String> {
        ClusterDatabase::prepared(self)
    }

    fn sessions(&self) -> usize {
        ClusterDatabase::sessions(self)
    }

    fn url_via(&self, port: u16) -> String {
        self.coordinator().tcp_url_via(port)
    }

    fn coordinator_proxy(&self) -> Proxy {
        Proxy::start(self.cluster().coordinator())
    }

    fn node_proxies(&self) -> Vec<(String, Proxy)> {
        let nodes = self.cluster().nodes().iter().enumerate();
        nodes
            .map(|(number, node)| {
                let (host, port) = self.cluster().address(number);
                (format!("{host}:{port}"), Proxy::start(node))
            })
            .collect()
    }

    fn crash(&self, coordinator: bool, node: bool) {
        let all = [(coordinator, self.cluster().coordinator()), (node, &self.cluster().nodes()[1])];
        let down = || all.iter().filter(|(wanted, _)| *wanted).map(|(_, server)| server);
        down().for_each(|server| server.stop(StopMode::Immediate));
        down().for_each(|server| server.restart());
    }

    fn misplaced(&self, table: &str) -> u64 {
        // OFFSET: a node knows nothing of the parent.
        let counts = self.psql(&format!(
            "SELECT format('SELECT count(*) FROM (SELECT * FROM %s OFFSET 0) x WHERE NOT (%s)', c.oid::regclass,
                           pg_get_partition_constraintdef(c.oid))
               FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '{table}'::regclass \\gexec"
        ));
        counts.lines().map(|count| count.parse::<u64>().expect("a number")).sum()
    }
}

impl<P: Place + ?Sized> Place for &P {
    fn try_psql(&self, sql: &str) -> Result<String, String> {
        (**self).try_psql(sql)
    }
    fn prepared(&self) -> Vec<String> {
        (**self).prepared()
    }
    fn sessions(&self) -> usize {
        (**self).sessions()
    }
    fn url_via(&self, port: u16) -> String {
        (**self).url_via(port)
    }
    fn coordinator_proxy(&self) -> Proxy {
        (**self).coordinator_proxy()
    }
    fn node_proxies(&self) -> Vec<(String, Proxy)> {
        (**self).node_proxies()
    }
    fn crash(&self, coordinator: bool, node: bool) {
        (**self).crash(coordinator, node);
    }
    fn misplaced(&self, table: &str) -> u64 {
        (**self).misplaced(table)
    }
}

/// Nothing is left prepared, nor in the ledger, nor of sessions.
#[track_caller]
pub fn settled(place: &dyn Place, told: &str) {
    assert_eq!(place.prepared(), Vec::<String>::new(), "{told}");
    let left = place.sql("SELECT count(*) FROM inrush_ledger.prepared");
    assert_eq!(left, "0", "rows in inrush_ledger.prepared: {told}");
    wait_until("no session of a load is left", || place.sessions() == 0);
}

/// The table `t` has the rows from 1 to so many, each once.
#[track_caller]
pub fn has_rows(place: &dyn Place, rows: u32, told: &str) {
    let expected = format!("SELECT i, 'info ' || i FROM generate_series(1, {rows}) i");
    let differences = place.sql(&format!(
        "CREATE TEMP TABLE found AS SELECT id, info FROM t;
         SELECT 'lost', count(*) FROM (({expected}) EXCEPT ALL TABLE found) x
          UNION ALL SELECT 'too many', count(*) FROM (TABLE found EXCEPT ALL ({expected})) x ORDER BY 1"
    ));
    assert_eq!(differences, "lost|0\ntoo many|0", "{told}");
}
