//! `--max-lag`: a load waits while the archiver cannot keep up, and goes on when it can.

use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::{Postgres, ServerOptions, Version};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};

#[test]
fn a_load_pauses_while_the_archiver_lags() {
    let server = Postgres::start(&ServerOptions {
        version: Version::Any,
        conf: &[("archive_mode", "on"), ("archive_command", "false"), ("archive_timeout", "0")],
        ..ServerOptions::default()
    });
    // WAL that cannot be archived, so that the archiver is behind before the load begins.
    server.psql("CREATE TABLE noise AS SELECT repeat('x', 1000) AS x FROM generate_series(1, 30000)");
    server.psql("SELECT pg_switch_wal()");
    let patience = std::time::Instant::now();
    while server.psql("SELECT coalesce(last_failed_wal, '') FROM pg_stat_archiver").trim().is_empty() {
        assert!(patience.elapsed().as_secs() < 60, "the archiver never tried");
        std::thread::sleep(std::time::Duration::from_millis(100));
    }

    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("c2.csv");
    Case::C2.write(Form::CsvHeader, 2_000_000, 1, File::create(&path).expect("a file")).expect("rows");
    let mut load = Command::new(env!("CARGO_BIN_EXE_inrush"))
        .args(["load", "--max-lag", "1MiB", "--no-analyze", "--to", &server.url()])
        .arg(&path)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("inrush");
    let stderr = BufReader::new(load.stderr.take().expect("piped"));
    let mut lines = stderr.lines().map_while(Result::ok);
    let paused = lines.find(|line| line.starts_with("paused: archiver is "));
    assert!(paused.is_some(), "the load did not wait for the archiver");
    server.psql("ALTER SYSTEM SET archive_command = 'true'");
    server.psql("SELECT pg_reload_conf()");
    assert!(lines.any(|line| line.starts_with("going on: ")), "the load did not go on");
    lines.for_each(drop);
    assert!(load.wait().expect("an end").success());
    assert_eq!(server.psql("SELECT count(*) FROM c2").trim(), "2000000");
}
