//! Case C3, tiny: what is measured, what is kept.

use inrush_bench::c3::{self, Case, Options, Purpose};
use inrush_testkit::Installation;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

fn have_pgbench_or_say_skipped(installation: &Installation) -> bool {
    let own = installation.bin().join("pgbench").is_file();
    if own || Command::new("pgbench").arg("--version").output().is_ok_and(|output| output.status.success()) {
        return true;
    }
    let _ = writeln!(std::io::stderr(), "SKIPPED: needs pgbench (run tests/servers.sh)");
    false
}

/// The program, where cargo has put it beside this test; the tests of all crates together build it first.
fn inrush() -> Option<PathBuf> {
    let test = std::env::current_exe().ok()?;
    let program = test.parent()?.parent()?.join("inrush");
    let found = program.is_file();
    if !found {
        let _ = writeln!(std::io::stderr(), "SKIPPED: needs {} (cargo build)", program.display());
    }
    found.then_some(program)
}

fn options(only: &[&str]) -> Options {
    Options {
        runs: 1,
        seconds: 2.0,
        minutes: None,
        versions: vec![Installation::all()[0].major()],
        rungs: vec!["unlogged".to_owned()],
        only: only.iter().map(|&name| name.to_owned()).collect(),
        inrush: PathBuf::from("/nowhere"),
        command: "inrush bench c3".to_owned(),
    }
}

fn small() -> Case {
    let mut case = Case::built_in().unwrap();
    case.settings.insert("shared_buffers".to_owned(), "64MB".to_owned());
    case.settings.insert("max_wal_size".to_owned(), "1GB".to_owned());
    case.clients = 2;
    case.copy_rows = 5000;
    case.bound_mib = 4096;
    case.window_mib = 64;
    case.serve.body_kib = 64;
    case.serve.connections = 4;
    case.serve.paced_connections = 4;
    case
}

#[test]
fn the_published_ways_are_measured_and_kept() {
    if !have_pgbench_or_say_skipped(&Installation::all()[0]) {
        return;
    }
    let options = options(&["pgbench-constants", "pgbench-data", "copy-one"]);
    let record = c3::run(small(), &options, &|line| println!("{line}")).unwrap();
    assert_eq!((record.version, record.servers.len(), record.turns.len()), (c3::VERSION, 1, 3));
    for turn in &record.turns {
        assert_eq!(turn.failure, None, "{turn:?}");
        assert_eq!((turn.purpose, turn.counted, turn.truncated), (Purpose::Top, Some(turn.rows), 0));
        assert!(
            turn.rows > 178 && turn.disk_bytes / turn.rows >= 350 && turn.wal_bytes < turn.disk_bytes / 4
        );
        assert!(turn.client_cpu_seconds > 0.0 && turn.server_cpu_seconds.unwrap() > 0.0);
        assert!((1..=3).contains(&turn.each_second.len()) && turn.each_second.iter().sum::<u64>() > 0);
    }
    let shown = c3::text(&record);
    assert!(shown.contains("pgbench-data") && !shown.contains("Goals"), "{shown}");

    let dir = tempfile::tempdir().unwrap();
    let kept = c3::keep(&record, dir.path()).unwrap();
    let json: c3::Record = serde_json::from_slice(&std::fs::read(&kept).unwrap()).unwrap();
    assert_eq!(json.kind, c3::KIND);
    assert_eq!(c3::text(&json), shown);
    let readme = std::fs::read_to_string(kept.with_file_name("README.md")).unwrap();
    assert!(readme.contains("## c3: ") && readme.contains("| copy-one-table | 1 |"), "{readme}");
    // A second one is beside the first, and both are in the pages.
    let second = c3::keep(&record, dir.path()).unwrap();
    assert!(second.ends_with("c3-2.json"));
}

#[test]
fn serve_is_measured_with_times_and_questions() {
    let (Some(inrush), true) = (inrush(), have_pgbench_or_say_skipped(&Installation::all()[0])) else {
        return;
    };
    let mut case = small();
    for goal in &mut case.goals {
        goal.contenders = vec!["inrush-serve-copy".to_owned()];
    }
    let mut stdin = case.contender("inrush-serve-direct-stdin").unwrap().clone();
    (stdin.name, stdin.extension, stdin.via) =
        ("inrush-serve-copy-stdin".to_owned(), None, Some("copy".to_owned()));
    case.contenders.push(stdin);
    let options = Options { inrush, ..options(&["inrush-serve-copy", "pgbench-data"]) };
    let record = c3::run(case, &options, &|line| println!("{line}")).unwrap();
    assert!(record.turns.iter().all(|turn| turn.failure.is_none()), "{:#?}", record.turns);
    let of = |purpose| record.of(0, "unlogged", "inrush-serve-copy", purpose).next().unwrap();
    let top = of(Purpose::Top);
    assert!(top.serve_cpu_seconds.unwrap() > 0.0 && top.serve_peak_bytes.unwrap() > 1 << 20);
    assert_eq!(top.counted, Some(top.rows));
    let stdin = record.of(0, "unlogged", "inrush-serve-copy-stdin", Purpose::Top).next().unwrap();
    assert!(stdin.rows > 0 && stdin.counted == Some(stdin.rows), "{stdin:?}");
    let paced = of(Purpose::Paced);
    assert!(paced.answers.unwrap().p99 > 0.0 && paced.visible_p99_at_most.is_some());
    let window = of(Purpose::Window);
    assert_eq!(window.queries.len(), 3);
    assert!(
        window.queries[0].part() <= 1.0 && window.queries[0].brin_pages > 0 && window.queries[0].rows > 0,
        "{:?}",
        window.queries
    );
    let shown = c3::text(&record);
    assert_eq!(shown.matches("  met").count() + shown.matches("MISSED").count(), 4, "{shown}");
}

#[test]
fn a_program_that_is_not_there_is_said() {
    let error = c3::run(small(), &options(&["inrush-serve-copy"]), &|_| ()).unwrap_err();
    assert!(error.to_string().contains("inrush table cannot be run"), "{error}");
    let mut other = options(&["inrush-serve-copy"]);
    other.rungs = vec!["none".to_owned()];
    assert!(c3::run(small(), &other, &|_| ()).is_err());
}
