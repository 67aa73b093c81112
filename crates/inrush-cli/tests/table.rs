//! `inrush table`: what is made, told and kept up, on real servers.

mod harness;

use harness::{Outcome, inrush, run};
use inrush_testkit::{Database, Postgres, require_server};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn table(database: &Database<'_>, args: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(
        dir.path().join("calls.sql"),
        "CREATE TABLE calls (at timestamptz NOT NULL, info text);\n",
    )
    .expect("own directory");
    let mut command = inrush(dir.path());
    command.arg("table").args(args).args(["--to", &database.url()]);
    let outcome = run(&mut command, None, PATIENCE);
    assert!(!outcome.panicked(), "{outcome:#?}");
    outcome
}

const CALLS: &[&str] =
    &["create", "calls", "at timestamptz NOT NULL", "device bigint", "info text", "--time", "at"];

#[test]
fn a_table_is_made_listed_shown_and_maintained() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let database = Postgres::shared(version).fresh_database();
        table(&database, &["list"]).expect_code(0);
        let made = table(
            &database,
            &[CALLS, &["--window", "1h", "--keep", "2d", "--lanes", "2", "--key", "device"]].concat(),
        );
        made.expect_code(0);
        for part in [
            "table public.calls made, with 5 windows",
            "window      1h",
            "lanes       2, by the hash of device",
            "kept        2d",
            "at once     54 windows, 108 leaves",
            "SELECT * FROM public.calls_complete",
        ] {
            assert!(made.stdout.contains(part), "no {part:?} in {}", made.stdout);
        }
        assert_eq!(made.stderr, "");
        database.psql(
            "INSERT INTO calls SELECT now(), g, 'x' FROM generate_series(1, 1000) g;
             INSERT INTO inrush_ledger.progress SELECT 'calls'::regclass, 'tap', 0, 848610000000000, 1000",
        );
        let listed = table(&database, &["list"]);
        assert!(
            listed.stdout.contains("public.calls  at        1h    2d      2        5"),
            "{}",
            listed.stdout
        );
        let shown = table(&database, &["show", "calls"]);
        assert!(shown.stdout.contains("SOURCE  COMPLETE UP TO"), "{}", shown.stdout);
        assert!(shown.stdout.contains("2026-11-21 21:00:00+00"), "{}", shown.stdout);
        assert_eq!(shown.stdout.matches(" open ").count(), 5, "{}", shown.stdout);
        let json: serde_json::Value =
            serde_json::from_str(&table(&database, &["show", "calls", "--json"]).stdout).unwrap();
        assert_eq!(json["windows"][0]["leaves"][1]["lane"], 1);
        assert_eq!(json["complete"][0]["rows"], 1000);
        let did = table(&database, &["maintain"]);
        assert_eq!(did.expect_code(0).stdout, "public.calls: nothing to do\n");
        table(
            &database,
            &["create", "ticks", "at timestamptz", "--time", "at", "--window", "1s", "--keep", "1s"],
        )
        .expect_code(0);
        std::thread::sleep(Duration::from_secs(3));
        let did = table(&database, &["maintain", "ticks"]);
        assert!(did.stdout.contains("public.ticks: retired ") && did.stdout.contains("(by age"), "{did:?}");
        assert!(did.stdout.contains("public.ticks: made "), "{did:?}");
        database.psql("DROP TABLE ticks CASCADE");
        assert!(table(&database, &["maintain"]).stdout.contains("was dropped"));
        let did = table(&database, &["maintain", "--json"]);
        let json: serde_json::Value = serde_json::from_str(&did.stdout).unwrap();
        assert_eq!((json["table"].as_str(), json["busy"].as_bool()), (Some("public.calls"), Some(false)));
        database.psql("DROP TABLE calls CASCADE");
        let did = table(&database, &["maintain"]);
        assert!(did.stdout.contains("was dropped"), "{}", did.stdout);
        assert_eq!(table(&database, &["list"]).stdout, "there are no windowed tables here\n");
    }
}

#[test]
fn a_file_is_as_good_as_columns() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    let made = table(
        &database,
        &["create", "calls", "--like", "calls.sql", "--time", "at", "--storage", "info=plain", "--json"],
    );
    made.expect_code(0);
    let json: serde_json::Value = serde_json::from_str(&made.stdout).unwrap();
    assert_eq!((json["window"].as_str(), json["view"].as_str()), (Some("1d"), Some("public.calls_complete")));
    assert!(made.stderr.contains("warning: nothing is ever retired"), "{}", made.stderr);
    let missing = table(&database, &["create", "calls", "--like", "nope.sql", "--time", "at"]);
    assert!(
        missing.expect_code(2).stderr.starts_with("error[source-open]: cannot read nope.sql"),
        "{}",
        missing.stderr
    );
}

#[test]
fn what_is_refused_says_what_would_do() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    let refused = table(
        &database,
        &[CALLS, &["--window", "1m", "--keep", "30d", "--lanes", "8", "--key", "device"]].concat(),
    );
    let said = &refused.expect_code(2).stderr;
    assert!(
        said.starts_with("error[usage]: a query over all") && said.contains("--window 12h or longer"),
        "{said}"
    );
    // A wide table still within the limit is warned about.
    let warned = table(&database, &[CALLS, &["--window", "15m", "--keep", "20d"]].concat());
    let said = &warned.expect_code(0).stderr;
    assert!(
        said.contains("warning: a query over all windows needs") && said.contains("--window 6h"),
        "{said}"
    );
    for (args, part) in [
        (&["show", "nope"][..], "nope is no windowed table"),
        (&["maintain", "nope"][..], "nope is no windowed table"),
    ] {
        let refused = table(&database, args);
        assert!(refused.expect_code(2).stderr.contains(part), "{}", refused.stderr);
    }
    for line in
        [&["create", "t", "--time", "at"][..], &["create", "t", "a int", "--like", "x", "--time", "a"][..]]
    {
        table(&database, line).expect_code(2);
    }
}

#[test]
fn maintaining_goes_on_when_the_server_was_away() {
    require_server!(15);
    let server = Postgres::start(&inrush_testkit::ServerOptions {
        version: inrush_testkit::Version::Major(15),
        ..Default::default()
    });
    let database = server.fresh_database();
    table(&database, &[CALLS, &["--window", "1s", "--keep", "1m", "--ahead", "3"]].concat()).expect_code(0);
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = inrush(dir.path());
    command.args(["table", "maintain", "--loop", "300ms", "--to", &database.url()]);
    let running = harness::Running::start(&mut command, None);
    std::thread::sleep(Duration::from_secs(2));
    server.restart();
    let windows = || {
        database
            .psql("SELECT count(*) FROM pg_inherits WHERE inhparent = 'calls'::regclass")
            .parse::<u32>()
            .unwrap()
    };
    let before = windows();
    std::thread::sleep(Duration::from_secs(4));
    let after = windows();
    let outcome = running.kill9();
    assert!(after >= before + 2, "{before} {after} {outcome:?}");
    assert!(outcome.stdout.contains("public.calls: made "), "{outcome:?}");
}
