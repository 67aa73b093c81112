//! `inrush watch` from outside: sessions of psql that load, and what is said of them.

mod harness;

use harness::{Outcome, inrush, run};
use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::{Database, Installation, Postgres, ServerOptions, Version};
use serde_json::Value;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::{Child, ChildStdin, Stdio};
use std::time::{Duration, Instant};

const PATIENCE: Duration = Duration::from_secs(60);

/// A psql that runs a script; ended when dropped.
struct Psql(Child);

impl Psql {
    fn start(database: &Database<'_>, application: &str, script: &str) -> Psql {
        let (mut psql, mut stdin) = Psql::open(database, application);
        let script = script.to_owned();
        // It reads as it works, and ends early when it is killed.
        std::thread::spawn(move || drop(stdin.write_all(script.as_bytes())));
        assert!(psql.0.try_wait().expect("our own child").is_none());
        psql
    }

    fn open(database: &Database<'_>, application: &str) -> (Psql, ChildStdin) {
        let mut command = database.server().psql_command(database.name());
        command.args(["-qAt"]).env("PGAPPNAME", application).stdin(Stdio::piped()).stdout(Stdio::null());
        let mut child = command.spawn().expect("psql");
        let stdin = child.stdin.take().expect("piped above");
        (Psql(child), stdin)
    }
}

impl Drop for Psql {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Waits until a question has this answer.
#[track_caller]
fn wait_for(database: &Database<'_>, question: &str, answer: &str) {
    let until = Instant::now() + PATIENCE;
    while database.psql(question) != answer {
        assert!(Instant::now() < until, "never {answer}: {question}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn watch(url: &str, words: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().expect("a directory");
    let mut command = inrush(dir.path());
    let outcome = run(command.args(["watch", "--to", url]).args(words), None, PATIENCE);
    outcome.expect_code(0);
    outcome
}

/// The objects of the intervals, and the summary.
fn watch_json(url: &str, words: &[&str]) -> (Vec<Value>, Value) {
    let outcome = watch(url, &[words, &["--json"]].concat());
    let parsed = outcome.stdout.lines().map(|line| serde_json::from_str(line).expect("JSON"));
    let mut lines: Vec<Value> = parsed.collect();
    let summary = lines.pop().expect("a summary");
    assert_eq!(summary["type"], "summary");
    assert!(lines.iter().all(|line| line["type"] == "interval" && line["version"] == 1));
    (lines, summary)
}

/// Shares of what was split: they add up.
#[track_caller]
fn assert_is_whole(split: &Value) {
    let shares = split.as_array().expect("a split").iter().map(|share| share["share"].as_f64().unwrap());
    let sum: f64 = shares.sum();
    assert!((sum - 1.0).abs() < 0.01, "{split}");
}

/// Looks a hundred times a second for three seconds, without our code.
const SAMPLER: &str = "
    SET client_min_messages = error;
    CREATE TEMP TABLE looks (kind text, event text);
    DO $$ BEGIN
      FOR i IN 1..250 LOOP
        PERFORM pg_stat_clear_snapshot();
        INSERT INTO looks SELECT coalesce(wait_event_type, ''), coalesce(wait_event, '') FROM pg_stat_activity
         WHERE application_name = 'the loader' AND datname = current_database();
        PERFORM pg_sleep(0.01);
      END LOOP;
    END $$;
    SELECT kind, event, count(*) FROM looks GROUP BY 1, 2";

fn shares(looks: &str) -> BTreeMap<&'static str, f64> {
    let mut counts = BTreeMap::new();
    for line in looks.lines() {
        let fields: Vec<&str> = line.split('|').collect();
        let what = match (fields[0], fields[1]) {
            ("", _) | (_, "") => "running",
            ("Client", _) => "client",
            ("Lock", "extend") => "extend-lock",
            (_, event) if event.to_lowercase().starts_with("wal") => "wal",
            ("IO", _) => "data-io",
            _ => "lock",
        };
        *counts.entry(what).or_default() += fields[2].parse::<f64>().unwrap();
    }
    let sum: f64 = counts.values().sum();
    counts.values_mut().for_each(|count| *count /= sum);
    counts
}

/// A file with rows of case C1, as the server's account may read it through psql.
fn rows(dir: &Path, rows: u64) -> String {
    let path = dir.join("rows.csv");
    Case::C1.write(Form::Csv, rows, 1, File::create(&path).expect("a file")).expect("rows");
    path.display().to_string()
}

#[test]
fn four_sessions_that_copy() {
    let server = Postgres::start(&ServerOptions { durable: true, ..ServerOptions::default() });
    let database = server.fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let file = rows(dir.path(), 40_000);
    database.psql(&format!("CREATE TABLE t ({})", Case::C1.columns()));
    let script = format!("\\copy t FROM '{file}' (FORMAT csv)\n").repeat(500);
    let _loaders: Vec<Psql> = (0..4).map(|_| Psql::start(&database, "the loader", &script)).collect();
    let copies = "SELECT count(*) FROM pg_stat_progress_copy";
    wait_for(&database, copies, "4");
    let sampler = {
        let mut command = server.psql_command(database.name());
        command.args(["-XqAt", "-c", SAMPLER]).stdout(Stdio::piped()).spawn().expect("psql")
    };
    let (lines, summary) = watch_json(&database.url(), &["--for", "3"]);
    let looks = sampler.wait_with_output().expect("the sampler's answer");
    let others = shares(&String::from_utf8_lossy(&looks.stdout));

    assert_eq!(lines.len(), 3, "{lines:#?}");
    let last = &lines[2];
    let table = &last["tables"][0];
    assert_eq!((table["table"].as_str(), &table["kinds"]), (Some("public.t"), &serde_json::json!(["COPY"])));
    assert_eq!((table["sessions"].as_u64(), last["backends"].as_array().unwrap().len()), (Some(4), 4));
    assert!(table["rows_per_second"].as_f64().unwrap() > 1000.0, "{table}");
    assert!(table["bytes_per_second"].as_f64().unwrap() > 100_000.0, "{table}");
    assert!(table["relation_growth_per_second"].as_f64().unwrap() > 0.0, "{table}");
    assert!(last["wal_bytes_per_second"].as_f64().unwrap() > 0.0);
    for whole in [&last["all"], table, &last["backends"][0], &summary["all"], &summary["backends"][3]] {
        assert_is_whole(&whole["split"]);
    }
    // Four sessions for three seconds, and the intervals are all of it.
    let seconds = |line: &Value| line["all"]["backend_seconds"].as_f64().unwrap();
    assert!((9.0..13.0).contains(&seconds(&summary)), "{}", seconds(&summary));
    let sum: f64 = lines.iter().map(seconds).sum();
    assert!((sum - seconds(&summary)).abs() < 1.5, "{sum} {}", seconds(&summary));

    let mut ranked: Vec<_> = others.iter().collect();
    ranked.sort_by(|a, b| b.1.total_cmp(a.1));
    let limit = &summary["tables"][0]["limit"];
    eprintln!("{} | {ranked:?} | {}", limit["sentence"], summary["tables"][0]["split"]);
    let named = match limit["class"].as_str().unwrap() {
        "cpu" | "cpu-queue" => "running",
        other => other,
    };
    let theirs = others.get(named).copied().unwrap_or_default();
    assert!(theirs > ranked[0].1 - 0.1, "{limit} named, the others saw {ranked:?}");

    // The lines for people, of the same.
    let text = watch(&database.url(), &["--for", "1", "--table", "t"]).stdout;
    assert!(text.contains(" public.t COPY 4 sessions "), "{text}");
    assert!(text.contains(" rows/s ") && text.contains("\n  limit       "), "{text}");
}

#[test]
fn inserts_are_found_with_their_table() {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql(
        "CREATE SCHEMA \"S x\"; CREATE TABLE \"S x\".watch_plain (a int);
         CREATE TABLE watch_parts (a int) PARTITION BY HASH (a);
         CREATE TABLE watch_part_0 PARTITION OF watch_parts FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE watch_part_1 PARTITION OF watch_parts FOR VALUES WITH (MODULUS 2, REMAINDER 1);",
    );
    let plain = "set search_path = \"S x\";\n".to_owned()
        + &"/* a load */ with g as (select generate_series(1, 50000) a) insert into watch_plain table g;\n"
            .repeat(2000);
    let parts = "INSERT INTO watch_parts SELECT generate_series(1, 50000);\n".repeat(2000);
    let _loaders = [Psql::start(&database, "plain", &plain), Psql::start(&database, "parts", &parts)];
    wait_for(&database, "SELECT count(*) > 1 FROM (SELECT FROM watch_parts LIMIT 2) t", "t");
    wait_for(&database, "SELECT count(*) > 1 FROM (SELECT FROM \"S x\".watch_plain LIMIT 2) t", "t");
    let (_, summary) =
        watch_json(&database.url(), &["--for", "4", "--table", "watch_parts", "--table", "watch_plain"]);
    let mut tables: Vec<(&str, u64, u64)> = Vec::new();
    for table in summary["tables"].as_array().unwrap() {
        assert_eq!(table["kinds"], serde_json::json!(["INSERT"]));
        let number = |name: &str| table[name].as_u64().unwrap();
        tables.push((table["table"].as_str().unwrap(), number("sessions"), number("rows")));
    }
    tables.sort_unstable();
    assert!(
        matches!(tables[..], [("\"S x\".watch_plain", 1, a), ("public.watch_parts", 1, b)] if a > 0 && b > 0),
        "{tables:?}"
    );
}

/// TRUNCATE and COPY in one transaction: nobody may look at the relation meanwhile, and nobody waits to.
#[test]
fn a_table_that_is_locked_and_who_waits_for_it() {
    for installation in Installation::all() {
        locked_on(Postgres::shared(installation.major()));
    }
}

fn locked_on(server: &Postgres) {
    let database = server.fresh_database();
    database.psql("CREATE TABLE watch_locked (a int)");
    let (_holder, mut stdin) = Psql::open(&database, "the holder");
    stdin.write_all(b"BEGIN; TRUNCATE watch_locked; COPY watch_locked FROM STDIN;\n1\n").unwrap();
    stdin.flush().unwrap();
    wait_for(&database, "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = current_database()", "1");
    let _waiter = Psql::start(&database, "the waiter", "INSERT INTO watch_locked VALUES (1);\n");
    wait_for(
        &database,
        "SELECT count(*) FROM pg_locks WHERE relation = 'watch_locked'::regclass AND NOT granted",
        "1",
    );
    let (lines, summary) = watch_json(&database.url(), &["--for", "3", "--table", "public.watch_locked"]);
    let last = lines.last().unwrap();
    assert!(last["looks_per_second"].as_f64().unwrap() > 10.0, "{last}");
    let of = |application: &str| {
        let backends = last["backends"].as_array().unwrap();
        backends.iter().find(|b| b["application"] == application).unwrap_or_else(|| panic!("{last:#}"))
    };
    let (holder, waiter) = (of("the holder"), of("the waiter"));
    assert_eq!((holder["kind"].as_str(), waiter["kind"].as_str()), (Some("COPY"), Some("INSERT")));
    assert_eq!(holder["limit"]["sentence"], "the client or the network: 100 % of backend time");
    assert_eq!(waiter["limit"]["sentence"], "other locks: 100 % of backend time");
    assert_eq!(waiter["waiting_for"], "Lock/relation");
    assert_eq!(waiter["blocked_by"][0]["pid"], holder["pid"]);
    assert_eq!(waiter["blocked_by"][0]["application"], "the holder");
    let table = &summary["tables"][0];
    assert!(table["relation_bytes"].is_null() && table["sessions"] == 2, "{table}");
}

#[test]
fn a_role_that_may_not_see_others() {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql(
        "CREATE TABLE watch_hidden (a int); CREATE ROLE watch_nobody LOGIN;
         ALTER ROLE watch_nobody SET statement_timeout = '30ms'",
    );
    let (loader, mut stdin) = Psql::open(&database, "hidden");
    stdin.write_all(b"COPY watch_hidden FROM STDIN;\n1\n").unwrap();
    stdin.flush().unwrap();
    wait_for(&database, "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = current_database()", "1");
    let url = database.url().replace("postgres@", "watch_nobody@");
    let outcome = watch(&url, &["--for", "2", "--table", "watch_hidden"]);
    assert!(outcome.stderr.contains("not seen: "), "{outcome:#?}");
    assert!(
        outcome.stderr.contains("COPY; a member of pg_read_all_stats or pg_monitor sees them"),
        "{outcome:#?}"
    );
    assert!(outcome.stdout.contains(" nothing is loading\n"), "{outcome:#?}");
    let (lines, _) = watch_json(&url, &["--for", "1.2", "--table", "watch_hidden"]);
    assert!(lines[0]["hidden"]["copies"].as_u64().unwrap() >= 1, "{lines:?}");
    // One that may.
    database.psql("GRANT pg_read_all_stats TO watch_nobody");
    let (lines, _) = watch_json(&url, &["--for", "1", "--table", "watch_hidden"]);
    assert!(lines[0]["hidden"].is_null(), "{lines:?}");
    assert_eq!(lines[0]["tables"][0]["table"], "public.watch_hidden");
    drop(loader);
    database.psql("DROP ROLE watch_nobody");
}

#[test]
fn nothing_runs() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let outcome = watch(&database.url(), &["--for", "1", "--interval", "0.5", "--table", "watch_none"]);
    assert_eq!(outcome.stdout.matches(" nothing is loading\n").count(), 2, "{outcome:#?}");
    assert!(outcome.stdout.ends_with("nothing was loading\n"), "{outcome:#?}");
    let dir = tempfile::tempdir().expect("a directory");
    let to_nobody = ["watch", "--to", "postgresql://127.0.0.1:1/none"];
    run(inrush(dir.path()).args(to_nobody), None, PATIENCE).expect_code(2);
}

#[test]
fn the_server_is_restarted() {
    let server = Postgres::start(&ServerOptions::default());
    let url = server.url();
    std::thread::scope(|scope| {
        let watched = scope.spawn(|| watch_json(&url, &["--for", "7", "--interval", "0.5"]));
        std::thread::sleep(Duration::from_millis(1500));
        server.restart();
        let (lines, summary) = watched.join().unwrap();
        let troubled = lines.iter().filter(|line| !line["trouble"].is_null()).count();
        assert!(troubled > 0 && troubled < lines.len(), "{lines:#?}");
        assert!(summary["trouble"].is_null(), "{summary}");
    });
}

/// Every field is on the page.
#[test]
fn the_json_is_as_documented() {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql("CREATE TABLE watch_documented (a int)");
    let (_loader, mut stdin) = Psql::open(&database, "documented");
    stdin.write_all(b"COPY watch_documented FROM STDIN;\n1\n").unwrap();
    stdin.flush().unwrap();
    wait_for(&database, "SELECT count(*) FROM pg_stat_progress_copy WHERE datname = current_database()", "1");
    let (lines, _) = watch_json(&database.url(), &["--for", "2", "--table", "watch_documented"]);
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/watch.md");
    let page = std::fs::read_to_string(page).unwrap();
    let line = lines.last().unwrap();
    for part in [line, &line["all"], &line["tables"][0], &line["backends"][0]] {
        for field in part.as_object().unwrap_or_else(|| panic!("{line:#}")).keys() {
            assert!(page.contains(&format!("`{field}`")), "{field} is not in docs/watch.md");
        }
    }
}
