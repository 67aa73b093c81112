//! Case C4, tiny: what is measured on a cluster, and what is left of it.

use inrush_bench::c4::{self, Case, Options, Record};
use inrush_testkit::{Cluster, ClusterDatabase, Version};
use std::io::Write as _;
use std::path::PathBuf;

fn skipped(needs: &str) {
    let _ = writeln!(std::io::stderr(), "SKIPPED: needs {needs}");
}

/// The program, where cargo has put it beside this test; the tests of all crates together build it first.
fn inrush() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let program = test.parent()?.parent()?.join("inrush");
    let found = program.is_file();
    if !found {
        skipped(&format!("{} (cargo build)", program.display()));
    }
    found.then_some(program)
}

fn options(to: &str) -> Options {
    Options {
        to: to.to_owned(),
        nodes: Vec::new(),
        runs: Some(1),
        seconds: Some(0.3),
        threads: Some(2),
        rows: Some(2000),
        rungs: Vec::new(),
        only: Vec::new(),
        inrush: PathBuf::from("/nowhere"),
        command: "inrush bench c4".to_owned(),
    }
}

fn small() -> Case {
    let mut case = Case::built_in().unwrap();
    case.shards = 4;
    case.update_rows = 50;
    case
}

fn run(case: Case, options: &Options) -> Record {
    c4::run(case, options, &|line| println!("{line}")).unwrap()
}

/// Nothing is left of a run.
fn assert_clean(database: &ClusterDatabase<'_>) {
    let schemas = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'inrush_bench%'";
    assert_eq!(database.everywhere(schemas), ["0", "0", "0"]);
    // The role is the server's, its settings are the database's.
    let settings = "SELECT count(*) FROM pg_db_role_setting s, pg_database d \
        WHERE d.oid = s.setdatabase AND d.datname = current_database() AND setconfig::text LIKE '%synchronous_commit=o%'";
    assert_eq!(database.everywhere(settings), ["0", "0", "0"]);
    assert_eq!(database.prepared(), Vec::<String>::new());
}

#[test]
fn partitions_on_other_servers_are_measured_and_kept() {
    let Some(inrush) = inrush() else { return };
    let database = Cluster::shared(Version::Any).fresh_database();
    // What the role had is put back.
    database.coordinator().psql(&format!(
        "ALTER ROLE postgres IN DATABASE \"{}\" SET synchronous_commit = local",
        database.coordinator().name()
    ));
    let record = run(small(), &Options { inrush, ..options(&database.url()) });
    assert_eq!(record.turns.len(), 6, "{:#?}", record.turns);
    for turn in &record.turns {
        assert_eq!(turn.failure, None, "{turn:?}");
        let rows = if turn.contender == "fdw-copy" { 100 } else { 2000 };
        assert_eq!((turn.rung.as_str(), turn.operations, turn.threads), ("fdw", rows, 0));
        assert!(turn.client_peak_bytes.unwrap() > 1 << 20 && turn.seconds > 0.0);
        assert!(turn.coordinator_cpu_seconds.is_some() && turn.workers_cpu_seconds.is_some());
    }
    let absent: Vec<_> = record.absent.iter().map(|absent| absent.rung.as_deref().unwrap_or("-")).collect();
    assert_eq!(absent, ["insert", "update", "copy"]);
    assert_eq!(
        record.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(),
        ["coordinator", "node0", "node1"]
    );
    assert_clean(&database);
    assert_eq!(database.coordinator().psql("SHOW synchronous_commit"), "local");

    let shown = c4::text(&record);
    assert!(
        shown.contains("2.5 times fdw-insert-select") && shown.contains("left out: rung insert"),
        "{shown}"
    );
    let dir = tempfile::tempdir().unwrap();
    let kept = c4::keep(&record, dir.path()).unwrap();
    let json: Record = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    assert_eq!((json.kind.as_str(), c4::text(&json)), (c4::KIND, shown));
    let readme = std::fs::read_to_string(kept.with_file_name("README.md")).unwrap();
    assert!(readme.contains("## c4: ") && readme.contains("| fdw-copy | 1 |"), "{readme}");
}

#[test]
fn what_a_contender_does_wrong_is_kept_and_not_counted() {
    let database = Cluster::shared(Version::Any).fresh_database();
    let mut case = small();
    for contender in &mut case.contenders {
        match contender.name.as_str() {
            "fdw-copy" => contender.command = Some("echo no room >&2; exit 3".to_owned()),
            "inrush" => contender.command = Some("true".to_owned()),
            _ => {}
        }
    }
    let record = run(case, &options(&database.url()));
    let failure = |name: &str| {
        let turn = record.turns.iter().find(|turn| turn.contender == name).unwrap();
        turn.failure.clone().unwrap_or_default()
    };
    assert!(failure("fdw-copy").contains("no room") && failure("fdw-copy").contains('3'));
    assert_eq!(failure("inrush"), "0 rows instead of 2000");
    assert_eq!(failure("fdw-insert-select"), "");
    let shown = c4::text(&record);
    assert!(!shown.contains("Goals") && shown.contains("inrush, turn 1: 0 rows instead of 2000"), "{shown}");
    assert_clean(&database);
}

#[test]
fn a_server_that_is_no_cluster_is_refused() {
    let database = Cluster::shared(Version::Any).fresh_database();
    let error = c4::run(small(), &options(&database.node(0).url()), &|_| ()).unwrap_err();
    assert!(
        error.to_string().contains("nothing could be run: left out: rung insert: the database has no Citus"),
        "{error}"
    );
    let other = Options { rungs: vec!["none".to_owned()], ..options(&database.url()) };
    assert!(c4::run(small(), &other, &|_| ()).unwrap_err().to_string().contains("there is no rung none"));
    assert_clean(&database);
}

/// Every way of sending, on a cluster of Citus that is there for tests: `INRUSH_TEST_CITUS=DSN`.
#[test]
fn every_way_through_citus_and_past_it_is_measured() {
    let Some(to) = std::env::var("INRUSH_TEST_CITUS").ok().filter(|dsn| !dsn.is_empty()) else {
        skipped("a cluster of Citus (INRUSH_TEST_CITUS=DSN)");
        return;
    };
    let Some(inrush) = inrush() else { return };
    let rungs = ["insert", "update", "copy"].map(str::to_owned).to_vec();
    let record = run(small(), &Options { inrush, rungs, ..options(&to) });
    assert_eq!(record.ended_early, None);
    for turn in &record.turns {
        assert_eq!(turn.failure, None, "{turn:?}");
        assert!(turn.operations > 0, "{turn:?}");
        let routed = ["direct", "fn", "mx-fn"].iter().any(|one| turn.contender.starts_with(one))
            || turn.contender == "inrush";
        assert_eq!(turn.misplaced, (routed && turn.rung != "update").then_some(0), "{turn:?}");
    }
    let absent: Vec<_> = record.absent.iter().map(|absent| absent.contender.as_str()).collect();
    for rung in &record.case.rungs {
        for name in rung.contenders.iter().filter(|name| !absent.contains(&name.as_str())) {
            for commit in &rung.synchronous_commit {
                assert_eq!(record.of(&rung.name, commit, name).count(), 1, "{} {commit} {name}", rung.name);
            }
        }
    }
    if absent.is_empty() {
        return;
    }
    // Only what needs the extension, and without it.
    assert!(
        absent.iter().all(|name| ["fn-auto", "fn-txn", "mx-fn", "direct-guard-fn"].contains(name)),
        "{absent:?}"
    );
    skipped(&format!("the extension inrush on every node, for {}", absent.join(", ")));
}
