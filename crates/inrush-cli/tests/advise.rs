//! `inrush advise` from outside, on servers of its own: what it sets holds for a whole server.

mod harness;

use harness::{Outcome, inrush, run};
use inrush_testkit::{Postgres, ServerOptions, Version, require_server};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;

/// A server on which little is as a load would have it.
fn bad_server(version: impl Into<Version>) -> Postgres {
    Postgres::start(&ServerOptions {
        version: version.into(),
        conf: &[
            ("max_wal_size", "64MB"),
            ("checkpoint_timeout", "1min"),
            ("checkpoint_completion_target", "0.5"),
            ("wal_buffers", "1MB"),
            // Whatever the machine of the test is like.
            ("shared_buffers", "32MB"),
            ("maintenance_work_mem", "1GB"),
            ("max_parallel_maintenance_workers", "4"),
        ],
        ..ServerOptions::default()
    })
}

fn advise(url: &str, words: &[&str]) -> Outcome {
    let mut command = inrush(Path::new("/"));
    command.args(["advise", "--to", url]).args(words);
    let outcome = run(&mut command, None, Duration::from_secs(60));
    assert!(!outcome.panicked(), "{outcome:#?}");
    assert!(!outcome.stdout.contains('\u{1b}'), "colours without a terminal: {}", outcome.stdout);
    outcome
}

fn said(url: &str, words: &[&str]) -> String {
    advise(url, words).expect_code(0).stdout.clone()
}

fn json(url: &str, words: &[&str]) -> Value {
    serde_json::from_str(&said(url, &[words, &["--json"]].concat())).expect("JSON")
}

/// What postgresql.auto.conf has, without comments.
fn auto_conf(server: &Postgres) -> String {
    let text = std::fs::read_to_string(server.data_dir().join("postgresql.auto.conf")).expect("the file");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

/// The settings that are in effect in a new session.
fn in_effect(server: &Postgres) -> String {
    server.psql(
        "SELECT string_agg(name || '=' || current_setting(name), ' ' ORDER BY name) FROM pg_settings
          WHERE name IN ('max_wal_size', 'checkpoint_timeout', 'checkpoint_completion_target')",
    )
}

const BEFORE: &str = "checkpoint_completion_target=0.5 checkpoint_timeout=1min max_wal_size=64MB";

/// Waits for what a reload changes in new sessions.
fn wait_for(server: &Postgres, wanted: &str) {
    for _ in 0..200 {
        if in_effect(server) == wanted {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{} instead of {wanted}", in_effect(server));
}

fn given_applied_and_taken_back(version: u32) {
    require_server!(version);
    let server = bad_server(version);
    let url = server.url();

    let text = said(&url, &[]);
    assert!(text.starts_with("PostgreSQL ") && text.contains(" limit bulk loads, and "), "{text}");
    let advice = text.lines().find(|line| line.starts_with("max_wal_size: 64MB -> ")).expect("advice");
    assert!(advice.ends_with("(reload)"), "{advice}");
    assert!(text.contains("wal_buffers: 1MB -> "), "{text}");
    assert!(text.contains("danger: fsync is off"), "{text}");
    // The lines can be copied in one piece, once for a reload and once for a restart.
    let (_, copy) = text.split_once("A reload is enough for these:\n\n").expect("a block");
    let (reload, rest) = copy.split_once("SELECT pg_reload_conf();\n").expect("its end");
    assert!(reload.lines().all(|line| line.starts_with("ALTER SYSTEM SET ")), "{reload}");
    assert!(
        rest.contains("\nThese need a restart of the server:\n\nALTER SYSTEM SET wal_buffers = '"),
        "{rest}"
    );
    // What is wider than a terminal is a command or a line for the server.
    let wide = text.lines().filter(|line| line.chars().count() > 80);
    assert!(wide.clone().all(|line| line.starts_with("inrush advise ")), "{:?}", wide.collect::<Vec<_>>());
    assert_eq!((in_effect(&server).as_str(), auto_conf(&server).as_str()), (BEFORE, ""));

    // The statements do what they say.
    server.psql(&format!("{reload} SELECT pg_reload_conf()"));
    let as_said = json(&url, &[]);
    let names = |list: &Value| -> Vec<String> {
        let of = |one: &Value| one["setting"].as_str().expect("a name").to_owned();
        list.as_array().expect("a list").iter().map(of).collect()
    };
    assert!(!names(&as_said["advice"]).contains(&"max_wal_size".to_owned()), "{as_said}");
    assert!(names(&as_said["already_right"]).contains(&"max_wal_size".to_owned()), "{as_said}");
    server.psql("ALTER SYSTEM RESET ALL");
    server.psql("SELECT pg_reload_conf()");
    wait_for(&server, BEFORE);

    let applied = said(&url, &["--apply"]);
    assert!(applied.contains("max_wal_size: 64MB -> ") && applied.contains("in effect\n"), "{applied}");
    assert!(applied.contains("wal_buffers: left at 1MB; needs a restart"), "{applied}");
    assert!(applied.contains("take it back with: inrush advise --undo --to "), "{applied}");
    let after = in_effect(&server);
    assert!(after.starts_with("checkpoint_completion_target=0.9 checkpoint_timeout=15min"), "{after}");
    assert!(!after.contains("max_wal_size=64MB"), "{after}");
    assert!(!auto_conf(&server).contains("wal_buffers"));
    let written = auto_conf(&server);
    let recorded = "SELECT count(*) FROM inrush_ledger.settings WHERE undone_at IS NULL";
    assert_eq!(server.psql(recorded), "3");

    // Again: nothing.
    let again = json(&url, &["--apply"]);
    assert_eq!(again["applied"], Value::Array(Vec::new()), "{again}");
    assert_eq!((auto_conf(&server), server.psql(recorded)), (written, "3".into()));

    let undone = said(&url, &["--undo"]);
    assert!(undone.contains("taken back, 64MB is in effect"), "{undone}");
    assert_eq!((in_effect(&server).as_str(), auto_conf(&server).as_str()), (BEFORE, ""));
    assert!(said(&url, &["--undo"]).starts_with("nothing to take back"));
}

#[test]
fn advice_is_given_applied_and_taken_back_on_15() {
    given_applied_and_taken_back(15);
}

#[test]
fn advice_is_given_applied_and_taken_back_on_16() {
    given_applied_and_taken_back(16);
}

#[test]
fn advice_is_given_applied_and_taken_back_on_18() {
    given_applied_and_taken_back(18);
}

/// The entries that postgresql.auto.conf had come back as they were, and nothing else is touched.
#[test]
fn what_was_there_before_comes_back_exactly() {
    let server = bad_server(Version::Any);
    let url = server.url();
    server.psql("ALTER SYSTEM SET work_mem = '5MB'");
    server.psql("ALTER SYSTEM SET max_wal_size = '98304kB'");
    server.psql("ALTER SYSTEM SET checkpoint_timeout = 70");
    server.psql("SELECT pg_reload_conf()");
    wait_for(&server, "checkpoint_completion_target=0.5 checkpoint_timeout=70s max_wal_size=96MB");
    let before = auto_conf(&server);
    said(&url, &["--apply", "--ledger", "kept_elsewhere"]);
    assert_ne!(auto_conf(&server), before);
    // Another ledger knows nothing of it.
    assert!(said(&url, &["--undo"]).starts_with("nothing to take back"));
    said(&url, &["--undo", "--ledger", "kept_elsewhere"]);
    // ALTER SYSTEM puts what it changes at the end.
    let sorted = |text: String| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines
    };
    assert_eq!(sorted(auto_conf(&server)), sorted(before));
}

#[test]
fn what_somebody_else_has_changed_since_is_left_alone() {
    let server = bad_server(Version::Any);
    let url = server.url();
    said(&url, &["--apply"]);
    server.psql("ALTER SYSTEM SET max_wal_size = '123MB'");
    server.psql("ALTER SYSTEM RESET checkpoint_timeout");
    let undone = json(&url, &["--undo"]);
    let outcomes: Vec<(&str, &Value)> = undone["undone"]
        .as_array()
        .expect("a list")
        .iter()
        .map(|one| (one["setting"].as_str().expect("a name"), &one["outcome"]))
        .collect();
    // Newest first.
    assert_eq!(
        outcomes,
        [
            ("checkpoint_completion_target", &Value::from("restored")),
            ("checkpoint_timeout", &Value::from("as_before")),
            ("max_wal_size", &serde_json::json!({ "changed_since": { "found": "123MB" } })),
        ]
    );
    assert_eq!(auto_conf(&server), "max_wal_size = '123MB'\n");
    assert!(said(&url, &["--undo"]).starts_with("nothing to take back"));
}

/// A record without its change, as a crash in between leaves it, does no harm.
#[test]
fn a_crash_between_record_and_change_is_harmless() {
    let server = bad_server(Version::Any);
    let url = server.url();
    said(&url, &["--apply"]);
    server.psql("ALTER SYSTEM RESET max_wal_size");
    server.psql("SELECT pg_reload_conf()");
    wait_for(&server, "checkpoint_completion_target=0.9 checkpoint_timeout=15min max_wal_size=64MB");
    // As if it had stopped there: the record of max_wal_size is open, and the same command is given again.
    let again = said(&url, &["--apply"]);
    assert!(again.contains("max_wal_size: 64MB -> "), "{again}");
    assert_eq!(server.psql("SELECT count(*) FROM inrush_ledger.settings WHERE name = 'max_wal_size'"), "2");
    said(&url, &["--undo"]);
    assert_eq!((in_effect(&server).as_str(), auto_conf(&server).as_str()), (BEFORE, ""));
}

#[test]
fn an_ordinary_role_gets_advice_and_changes_nothing() {
    let server = bad_server(Version::Any);
    server.psql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let url = server.url().replace("postgres@", "app@");
    let text = said(&url, &[]);
    assert!(text.contains("ALTER SYSTEM SET max_wal_size = '4GB';"), "{text}");
    assert!(text.contains("Role app may not run these lines: a superuser may"), "{text}");
    assert!(text.contains("not seen    the size of pg_wal"), "{text}");
    assert!(!text.contains("--apply"), "{text}");

    let refused = advise(&url, &["--apply"]);
    refused.expect_code(2);
    assert!(refused.stderr.contains("error[server]: role app may not change settings"), "{}", refused.stderr);
    let (_, hint) = refused.stderr.split_once("hint: ").expect("a hint");
    let schema = "SELECT count(*) FROM pg_namespace WHERE nspname = 'inrush_ledger'";
    assert_eq!((server.psql(schema).as_str(), auto_conf(&server).as_str()), ("0", ""));

    // What the hint names is what it takes.
    let (_, grants) = hint.trim().trim_end_matches('.').split_once(": ").expect("statements");
    server.psql(grants);
    assert!(said(&url, &[]).contains("--apply"));
    said(&url, &["--apply"]);
    assert!(auto_conf(&server).contains("max_wal_size = '4GB'"), "{}", auto_conf(&server));
    said(&url, &["--undo"]);
    assert_eq!((in_effect(&server).as_str(), auto_conf(&server).as_str()), (BEFORE, ""));
}

/// With an error in it the server takes nothing from its configuration, and does not even look at
/// postgresql.auto.conf: what is there would be recorded wrongly.
#[test]
fn a_broken_configuration_is_said_and_nothing_is_written() {
    let server = bad_server(Version::Any);
    let url = server.url();
    let file = server.data_dir().join("postgresql.conf");
    let sound = std::fs::read_to_string(&file).expect("the file");
    server.psql("ALTER SYSTEM SET max_wal_size = '80MB'");
    // One that waits for a restart is no error.
    server.psql("ALTER SYSTEM SET shared_buffers = '40MB'");
    server.psql("SELECT pg_reload_conf()");
    wait_for(&server, &BEFORE.replace("64MB", "80MB"));
    let before = auto_conf(&server);
    for broken in ["nonsense = on", "this is = no = syntax"] {
        std::fs::write(&file, format!("{sound}{broken}\n")).expect("own file");
        assert!(said(&url, &[]).contains("danger: The server takes nothing from its configuration files"));
        let refused = advise(&url, &["--apply"]);
        refused.expect_code(2);
        assert!(refused.stderr.contains("does not take its configuration"), "{}", refused.stderr);
        assert_eq!(auto_conf(&server), before);
    }
    std::fs::write(&file, &sound).expect("own file");
    said(&url, &["--apply"]);
    assert_ne!(auto_conf(&server), before);
    std::fs::write(&file, format!("{sound}this is = no = syntax\n")).expect("own file");
    advise(&url, &["--undo"]).expect_code(2);
    std::fs::write(&file, &sound).expect("own file");
    said(&url, &["--undo"]);
    wait_for(&server, &BEFORE.replace("64MB", "80MB"));
}

/// A superuser does not set what the owner of a database has written into a ledger.
#[test]
fn a_ledger_cannot_name_other_settings() {
    let server = bad_server(Version::Any);
    let url = server.url();
    said(&url, &["--apply"]);
    server.psql("ALTER SYSTEM SET shared_preload_libraries = 'x'");
    let before = auto_conf(&server);
    server.psql(
        "INSERT INTO inrush_ledger.settings (name, value, previous)
         VALUES ('shared_preload_libraries', 'x', 'evil')",
    );
    let refused = advise(&url, &["--undo"]);
    refused.expect_code(2);
    assert!(refused.stderr.contains("error[ledger]: "), "{}", refused.stderr);
    assert_eq!(auto_conf(&server), before);
}

/// What wins over ALTER SYSTEM is said and not tried.
#[test]
fn settings_of_the_role_win_and_that_is_said() {
    let server = bad_server(Version::Any);
    server.psql("ALTER ROLE postgres SET maintenance_work_mem = '1MB'");
    let text = said(&server.url(), &[]);
    // On a machine too small for the advice there is none.
    if let Some((_, advice)) = text.split_once("maintenance_work_mem: 1MB -> ") {
        assert!(advice.contains("  but    this session has its value from elsewhere (user)"), "{text}");
        let (_, copy) = text.split_once("A reload is enough for these:\n\n").expect("a block");
        let (copy, _) = copy.split_once("pg_reload_conf").expect("its end");
        assert!(!copy.contains("maintenance_work_mem"), "{copy}");
        assert!(
            said(&server.url(), &["--apply"]).contains("maintenance_work_mem: left at 1MB; this session")
        );
        assert!(!auto_conf(&server).contains("maintenance_work_mem"));
    }
}

#[test]
fn a_configuration_managed_elsewhere_is_not_touched() {
    require_server!(18);
    let server = Postgres::start(&ServerOptions {
        version: 18.into(),
        conf: &[("max_wal_size", "64MB"), ("allow_alter_system", "off")],
        ..ServerOptions::default()
    });
    assert!(said(&server.url(), &[]).contains("allow_alter_system is off"));
    let refused = advise(&server.url(), &["--apply"]);
    refused.expect_code(2);
    assert!(refused.stderr.contains("does not take ALTER SYSTEM"), "{}", refused.stderr);
}
