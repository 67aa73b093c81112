//! `inrush explain` from outside: text, JSON, page, refusals, and Ctrl-C.

mod harness;

use harness::{INRUSH, Outcome, inrush, run, without_server_variables};
use inrush_testkit::{Postgres, ServerOptions, require_server};
use serde_json::Value;
use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

fn server(version: u32) -> Postgres {
    let server = Postgres::start(&ServerOptions {
        version: version.into(),
        conf: &[("shared_buffers", "16MB"), ("autovacuum", "off")],
        ..ServerOptions::default()
    });
    server.psql(
        "CREATE TABLE t (id int, c1 int, pad text);
         INSERT INTO t SELECT i, i * 7919 % 200, repeat('x', 60) FROM generate_series(1, 200000) i;
         CREATE INDEX t_c1 ON t (c1); VACUUM ANALYZE t;",
    );
    server
}

const QUERY: &str = "SELECT count(pad) FROM t WHERE c1 < 20";

fn explain(url: &str, words: &[&str]) -> Outcome {
    let mut command = inrush(Path::new("/"));
    command.args(["explain", "--to", url]).args(words);
    let outcome = run(&mut command, None, Duration::from_secs(120));
    assert!(!outcome.panicked(), "{outcome:#?}");
    assert!(!outcome.stdout.contains('\u{1b}'), "colours without a terminal: {}", outcome.stdout);
    outcome
}

fn scans_in_every_form(version: u32) {
    require_server!(version);
    let server = server(version);
    let url = server.url();
    let text = explain(&url, &[QUERY]).expect_code(0).stdout.clone();
    assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    assert!(text.contains("The planner chose bitmap because it has the lowest cost"), "{text}");
    // Times, reads, pages: the planner's choice is marked in each table.
    let marked = text.lines().filter(|line| line.starts_with("bitmap at ") && line.contains(" * "));
    assert_eq!(marked.count(), 3, "{text}");
    // Without a terminal nobody has agreed to anything.
    let said = text.split_whitespace().collect::<Vec<_>>().join(" ");
    assert!(said.contains("cold warm only: nobody has agreed"), "{text}");
    assert!(said.contains("BRIN: the table has no BRIN index"), "{text}");
    assert!(said.contains("no model the storage has not been measured"), "{text}");

    let directory = tempfile::tempdir().expect("a directory");
    let file = |name: &str| directory.path().join(name).display().to_string();
    let (page, kept) = (file("scans.html"), file("scans.json"));
    let words = ["--json", "--warm-only", "--runs", "1", "--report", &page, "--report", &kept, QUERY];
    let outcome = explain(&url, &words);
    let json: Value = serde_json::from_str(&outcome.expect_code(0).stdout).expect("JSON");
    assert_eq!(json["version"], 1);
    assert_eq!(json["cold"]["why_not"], "cold runs were not wanted");
    assert_eq!(json["scans"][0]["warm"]["runs"].as_array().expect("runs").len(), 1);
    assert!(json["verdict"]["refused"].as_str().expect("refused").contains("too few for a verdict"));
    let read = |name: &str| std::fs::read_to_string(name).expect("a report");
    assert_eq!(serde_json::from_str::<Value>(&read(&kept)).expect("JSON"), json);
    let page = read(&page);
    assert!(page.starts_with("<!DOCTYPE html>") && page.contains("Scans of public.t"), "{page}");
}

#[test]
fn scans_in_every_form_of_15() {
    scans_in_every_form(15);
}

#[test]
fn scans_in_every_form_of_18() {
    scans_in_every_form(18);
}

#[test]
fn cold_where_it_was_asked_for() {
    require_server!(15);
    let server = server(15);
    let words = ["--cold", "--concurrency", "16", "--json", QUERY];
    let outcome = explain(&server.url(), &words);
    if outcome.stderr.contains("no cold runs can be had") {
        eprintln!("SKIPPED: {}", outcome.stderr.trim());
        return;
    }
    let json: Value = serde_json::from_str(&outcome.expect_code(0).stdout).expect("JSON");
    assert_eq!((&json["cold"]["measured"], &json["concurrency"]["compared"][0]), (&true.into(), &16.into()));
    assert!(json["scans"][0]["cold"]["seconds"].as_f64().expect("seconds") > 0.0);

    // Asked for and not to be had is an error: the role does not see the files.
    server.psql("CREATE ROLE app LOGIN; GRANT SELECT ON t TO app");
    let url = server.url().replace("postgres@", "app@");
    let outcome = explain(&url, &["--cold", "--runs", "1", QUERY]);
    assert!(outcome.expect_code(2).stderr.contains("error[usage]: no cold runs can be had"), "{outcome:#?}");
    assert!(outcome.stderr.contains("hint: GRANT pg_read_all_settings"), "{outcome:#?}");
    // With --yes it is measured warm, and said.
    let text = explain(&url, &["--yes", "--runs", "1", QUERY]).expect_code(0).stdout.clone();
    assert!(text.contains("warm only: this role may not see"), "{text}");
}

#[test]
fn what_is_not_run() {
    require_server!(16);
    let server = server(16);
    let url = server.url();
    for (words, said) in [
        (&["DELETE FROM t"][..], "error[usage]: that is not one query that only reads"),
        (&["SELECT 1; DELETE FROM t"], "error[usage]: that is not one query that only reads"),
        (
            &["--max-size", "1MiB", "SELECT * FROM t"],
            "hint: Each of many runs may read all of them; allow more with --max-size.",
        ),
        (&["--storage", "/nowhere.json", QUERY], "error[source-open]: cannot read /nowhere.json"),
        (&["--storage", "/etc/hostname", QUERY], "error[format]: /etc/hostname is no measurement of storage"),
        (&["--report", "/nowhere/x.html", QUERY], "error[output]: cannot write /nowhere/x.html"),
        (&["--timeout", "3000000", QUERY], "seconds are needed, from 0.1 to 86400"),
        (&["--max-size", "0", QUERY], "no query reads nothing: give what a run may read, as 4GiB"),
        (&["--concurrency", "1001", QUERY], "error[usage]"),
        (&["--warm-only", "--cold", QUERY], "error[usage]"),
    ] {
        let outcome = explain(&url, words);
        assert!(outcome.expect_code(2).stderr.contains(said), "{words:?}: {outcome:#?}");
        assert!(outcome.stdout.is_empty(), "{outcome:#?}");
    }
    assert_eq!(server.psql("SELECT count(*) FROM t"), "200000");
}

/// Ctrl-C amid cold runs: the statement ends, the scratch tables go. Killed: the next run removes them.
#[test]
fn nothing_is_left_behind() {
    require_server!(15);
    let server = server(15);
    let scratch = "SELECT count(*) FROM pg_namespace WHERE nspname = 'inrush_explain_scratch'";
    for signal in [rustix::process::Signal::INT, rustix::process::Signal::KILL] {
        let mut command = Command::new(INRUSH);
        without_server_variables(&mut command);
        let mut child = command
            .args(["explain", "--to", &server.url(), "--yes", "--runs", "50", QUERY])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the command runs");
        let began = Instant::now();
        while server.psql(scratch) == "0" && began.elapsed() < Duration::from_secs(60) {
            assert!(child.try_wait().expect("our child").is_none(), "it ended early");
            std::thread::sleep(Duration::from_millis(20));
        }
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).expect("to signal our child");
        let output = child.wait_with_output().expect("our child");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        if signal == rustix::process::Signal::INT {
            assert_eq!(output.status.code(), Some(2), "{said}");
            assert!(said.contains("error[interrupted]"), "{said}");
        } else {
            // Its session may take a moment to go.
            let sessions = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inrush explain'";
            while server.psql(sessions) != "0" && began.elapsed() < Duration::from_secs(60) {
                std::thread::sleep(Duration::from_millis(20));
            }
            assert_eq!(server.psql(scratch), "1");
            let text = explain(&server.url(), &["--warm-only", "--runs", "1", QUERY]);
            let said = text.expect_code(0).stdout.split_whitespace().collect::<Vec<_>>().join(" ");
            assert!(said.contains("scratch tables that an earlier run had left were removed"), "{said}");
        }
        assert_eq!(server.psql(scratch), "0");
    }
}

/// Names are shown without what a terminal would obey, and kept as they are in JSON.
#[test]
fn names_of_others_are_shown_as_text() {
    require_server!(18);
    let server = server(18);
    server.psql("ALTER TABLE t RENAME TO U&\"a\\001b[31m\\000ab\"");
    let url = server.url();
    let query = "SELECT count(pad) FROM \"a\u{1b}[31m\nb\" WHERE c1 < 20";
    let text = explain(&url, &["--warm-only", "--runs", "1", query]).expect_code(0).stdout.clone();
    assert!(text.contains(r#"public."a\u{1b}[31m\nb""#), "{text}");
    let json = explain(&url, &["--warm-only", "--runs", "1", "--json", query]).expect_code(0).stdout.clone();
    let json: Value = serde_json::from_str(&json).expect("JSON");
    assert_eq!(json["table"]["name"], "public.\"a\u{1b}[31m\nb\"");
}

/// What a person does at the question.
enum Does {
    Types(&'static [u8]),
    Interrupts,
}

/// Runs a query on a terminal up to the question whether the table may become cold, and on. `None` where it is not
/// asked, with what was said instead.
fn at_the_question(url: &str, does: &Does) -> Result<(Option<i32>, String), String> {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
    let terminal = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
    grantpt(&terminal).expect("a terminal");
    unlockpt(&terminal).expect("a terminal");
    let name = ptsname(&terminal, Vec::new()).expect("a name").into_string().expect("a name of ASCII");
    let end = || Stdio::from(File::options().read(true).write(true).open(&name).expect("a terminal"));
    let mut command = Command::new(INRUSH);
    without_server_variables(&mut command);
    let mut child = command
        .args(["explain", "--to", url, "--runs", "1", QUERY])
        .stdin(end())
        .stderr(end())
        .stdout(Stdio::null())
        .spawn()
        .expect("the command runs");
    // It holds the terminal's ends, too: reading would not come to an end.
    drop(command);
    let mut terminal = File::from(terminal);
    let (mut said, mut asked) = (Vec::new(), false);
    let mut some = [0; 4096];
    loop {
        let mut wanted = [PollFd::new(&terminal, PollFlags::IN)];
        let patience = Timespec { tv_sec: 60, tv_nsec: 0 };
        if poll(&mut wanted, Some(&patience)).expect("to wait") == 0 {
            child.kill().expect("to kill our child");
            child.wait().expect("our child");
            panic!("nothing happens behind {}", String::from_utf8_lossy(&said));
        }
        // At the end of it there is an error (EIO), nobody holding the other end.
        let Ok(n @ 1..) = terminal.read(&mut some) else { break };
        said.extend(&some[..n]);
        if !asked && said.ends_with(b"[y/N] ") {
            asked = true;
            match does {
                Does::Types(keys) => std::io::Write::write_all(&mut terminal, keys).expect("to type"),
                Does::Interrupts => {
                    let pid = rustix::process::Pid::from_child(&child);
                    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("to signal");
                }
            }
        }
    }
    let code = child.wait().expect("our child").code();
    let said = String::from_utf8_lossy(&said).into_owned();
    if asked { Ok((code, said)) } else { Err(said) }
}

#[test]
fn what_is_said_to_the_question() {
    require_server!(15);
    let server = server(15);
    let url = server.url();
    match at_the_question(&url, &Does::Interrupts) {
        Err(said) => eprintln!("SKIPPED: cold runs cannot be had here: {said}"),
        Ok((code, said)) => {
            assert_eq!(code, Some(2), "{said}");
            assert!(said.contains("[y/N] \r\n") && said.contains("error[interrupted]"), "{said}");
            // Agreed to or not, by a line, or by the end of what is typed.
            for (keys, cold) in [(&b"y\n"[..], true), (b"n\n", false), (b"\n", false), (b"\x04", false)] {
                let (code, said) = at_the_question(&url, &Does::Types(keys)).expect("a question");
                assert_eq!((code, said.contains("cold: round 1")), (Some(0), cold), "{keys:?}: {said}");
            }
        }
    }
}
