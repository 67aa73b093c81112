//! `inrush tune io` from outside, on storage and servers of its own.

mod harness;

use harness::{Outcome, inrush, run};
use inrush_testkit::{Postgres, ServerOptions, ServerUser, require_server};
use serde_json::Value;
use std::path::Path;
use std::time::Duration;
use tempfile::TempDir;

/// A measurement takes a minute at most.
const PATIENCE: Duration = Duration::from_secs(120);

/// Tries before a machine is taken for too noisy to measure: passes that differ make no verdict, and rightly so.
const TRIES: u32 = 6;

fn tune(home: &Path, words: &[&str]) -> Outcome {
    let mut command = inrush(home);
    command.env("XDG_STATE_HOME", home.join("state")).args(["tune", "io"]).args(words);
    let outcome = run(&mut command, None, PATIENCE);
    assert!(!outcome.panicked(), "{outcome:#?}");
    assert!(!outcome.stdout.contains('\u{1b}'), "colours without a terminal: {}", outcome.stdout);
    outcome
}

fn json(outcome: &Outcome) -> Value {
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {outcome:#?}"))
}

/// What is said of a quiet moment.
fn settled(home: &Path, words: &[&str]) -> Value {
    for _ in 0..TRIES {
        let outcome = tune(home, &[words, &["--json"]].concat());
        let report = json(&outcome);
        if report["targets"][0]["verdict"]["refused"].is_null() {
            return report;
        }
        eprintln!("measured again: {}", report["targets"][0]["verdict"]["refused"]);
    }
    panic!("the storage of this machine does not hold still: no verdict in {TRIES} tries");
}

/// A directory on a disk, which /tmp need not be, that the account of servers may write into.
fn on_disk() -> TempDir {
    below(Path::new("/var/tmp"))
}

/// A directory on the storage of a server.
fn beside(server: &Postgres) -> TempDir {
    below(server.data_dir().parent().expect("a directory"))
}

fn below(parent: &Path) -> TempDir {
    let dir = tempfile::Builder::new().prefix("inrush-tune-").tempdir_in(parent).expect("a directory");
    ServerUser::get().own(dir.path()).expect("owner");
    dir
}

fn entries(dir: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(dir).expect("directory").flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[test]
fn a_directory_is_measured_within_its_bounds_and_left_as_it_was() {
    let (home, dir) = (tempfile::tempdir().unwrap(), on_disk());
    let path = dir.path().to_str().unwrap();
    let page = home.path().join("report.html");
    let report = settled(home.path(), &["--path", path, "--report", page.to_str().unwrap()]);
    let measured = &report["targets"][0]["measured"];
    assert!(measured["read_bytes"].as_u64().unwrap() <= 2_000_000_000, "{measured}");
    assert!(measured["seconds"].as_f64().unwrap() <= 61.0, "{measured}");
    assert!(measured["scratch_bytes"].as_u64().unwrap() <= 512 << 20, "{measured}");
    let (free, total) = (&measured["storage"]["space"][0], &measured["storage"]["space"][1]);
    assert!(free.as_u64().unwrap() < total.as_u64().unwrap());
    // Others may have filled the disk between one look at it and the next.
    assert!(measured["scratch_bytes"].as_u64().unwrap() <= free.as_u64().unwrap() / 90);
    assert_eq!(measured["random"][0]["depth"], 1);
    assert!(measured["replays"].as_array().unwrap().len() >= 20, "{measured}");
    assert_eq!(entries(dir.path()), [""; 0]);
    assert!(report["server"].is_null());
    assert!(std::fs::read_to_string(&page).unwrap().starts_with("<!DOCTYPE html>"));
    // As text, beside what was kept.
    let text = tune(home.path(), &["--path", path, "--verify"]);
    assert!(text.stdout.contains("verdict") && text.stdout.contains("\nbefore, 20"), "{text:#?}");
    assert!(text.stdout.lines().all(|line| line.chars().count() <= 100), "{}", text.stdout);
}

#[test]
fn what_is_advised_is_set_verified_and_taken_back() {
    require_server!(15);
    let home = tempfile::tempdir().unwrap();
    let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
    server.psql("ALTER TABLESPACE pg_default SET (effective_io_concurrency = 1, seq_page_cost = 1)");
    let options = || server.psql("SELECT spcoptions FROM pg_tablespace WHERE spcname = 'pg_default'");
    let before = options();
    let (url, dir) = (server.url(), beside(&server));
    let to = ["--to", &url, "--path", dir.path().to_str().unwrap()];
    let report = settled(home.path(), &[&to[..], &["--apply"]].concat());
    let target = &report["targets"][0];
    assert_eq!(target["tablespace"], "pg_default");
    assert_eq!(target["options"][0]["name"], "effective_io_concurrency");
    let advised = target["advice"].as_array().unwrap();
    let wanted: Vec<&Value> =
        advised.iter().filter(|one| one["applied"] == true && one["place"]["kind"] == "tablespace").collect();
    let applied = report["applied"]["changes"].as_array().unwrap();
    assert_eq!(applied.len(), wanted.len(), "{report}");
    for one in wanted {
        let entry = format!("{}={}", one["setting"].as_str().unwrap(), one["advised"].as_str().unwrap());
        assert!(options().contains(&entry), "{entry} in {}", options());
    }
    if applied.is_empty() {
        assert_eq!(options(), before);
    }
    server.kill9();
    server.restart();
    let verified = tune(home.path(), &[&to[..], &["--verify"]].concat());
    assert!(verified.stdout.contains("before, 20"), "{verified:#?}");
    if !applied.is_empty() {
        assert!(verified.stdout.contains("then, now"), "{verified:#?}");
    }
    let undone = tune(home.path(), &["--to", &url, "--undo"]);
    undone.expect_code(0);
    assert_eq!(undone.stdout.matches("taken back").count(), applied.len(), "{undone:#?}");
    let sorted = |text: &str| {
        let mut all: Vec<String> = text.trim_matches(['{', '}']).split(',').map(str::to_owned).collect();
        all.sort();
        all
    };
    assert_eq!(sorted(&options()), sorted(&before));
    let again = tune(home.path(), &["--to", &url, "--undo"]);
    assert!(again.stdout.starts_with("nothing to take back"), "{again:#?}");
}

#[test]
fn who_may_not_set_it_gets_the_lines() {
    require_server!(15);
    let home = tempfile::tempdir().unwrap();
    let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
    server.psql("ALTER TABLESPACE pg_default SET (effective_io_concurrency = 1); CREATE ROLE app LOGIN");
    let (url, dir) = (server.url(), beside(&server));
    let path = dir.path().to_str().unwrap();
    let to = ["--to", &url, "--path", path];
    let before = server.psql("SELECT spcoptions FROM pg_tablespace WHERE spcname = 'pg_default'");
    for _ in 0..TRIES {
        let mut command = inrush(home.path());
        command.env("PGOPTIONS", "-c role=app").args(["tune", "io", "--apply"]).args(to);
        let outcome = run(&mut command, None, PATIENCE);
        assert_eq!(server.psql("SELECT spcoptions FROM pg_tablespace WHERE spcname = 'pg_default'"), before);
        if outcome.stdout.contains("effective_io_concurrency: 1 ->") {
            outcome.expect_code(2);
            assert!(outcome.stderr.contains("role app may not set"), "{outcome:#?}");
            assert!(
                outcome.stderr.contains("ALTER TABLESPACE pg_default SET (effective_io_concurrency"),
                "{outcome:#?}"
            );
            return;
        }
    }
    panic!("no advice in {TRIES} tries");
}

#[test]
fn where_nothing_can_be_told_it_says_so() {
    require_server!(15);
    let home = tempfile::tempdir().unwrap();
    let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
    // A role that may not see where the server's directory is: as on a managed service.
    server.psql("CREATE ROLE app LOGIN");
    let mut command = inrush(home.path());
    command.env("PGOPTIONS", "-c role=app").args(["tune", "io", "--json", "--to", &server.url()]);
    let outcome = run(&mut command, None, PATIENCE);
    outcome.expect_code(2);
    let report = json(&outcome);
    let target = &report["targets"][0];
    assert_eq!(target["verdict"]["class"], "cannot_tell");
    assert!(target["not_measured"].as_str().unwrap().contains("--path"), "{target}");
    assert_eq!(target["advice"].as_array().unwrap().len(), 0);
    for (words, fact) in [
        (&["--path", "/nonexistent"][..], "/nonexistent"),
        (&["--path", "/dev/shm"], "is in memory"),
        (&["--tablespace", "none", "--to", &server.url()], "there is no tablespace \"none\""),
        (&["--table", "nothing", "--to", &server.url()], ""),
    ] {
        let outcome = tune(home.path(), words);
        if !fact.is_empty() {
            outcome.expect_code(2);
            assert!(outcome.stderr.contains(fact), "{outcome:#?}");
        }
    }
}
