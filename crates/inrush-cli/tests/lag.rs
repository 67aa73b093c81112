//! `--max-lag`: a load waits while the archiver cannot keep up, and goes on when it can.

use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::{Postgres, ServerOptions, Version};
use std::fs::File;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

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
    let patience = Instant::now();
    while server.psql("SELECT coalesce(last_failed_wal, '') FROM pg_stat_archiver").trim().is_empty() {
        assert!(patience.elapsed().as_secs() < 60, "the archiver never tried");
        std::thread::sleep(Duration::from_millis(100));
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
    let (tell, lines) = mpsc::channel();
    let stderr = BufReader::new(load.stderr.take().expect("piped"));
    std::thread::spawn(move || stderr.lines().map_while(Result::ok).try_for_each(|line| tell.send(line)));
    // The archiver itself may wait a minute after three failures (pgarch.c).
    let deadline = Instant::now() + Duration::from_secs(150);
    let said = |what: &str| loop {
        match lines.recv_timeout(deadline.saturating_duration_since(Instant::now())) {
            Ok(line) if line.starts_with(what) => break,
            Ok(_) => {}
            Err(e) => panic!("the load did not say \"{what}\": {e}"),
        }
    };
    said("paused: archiver is ");
    // The segment being written is more than half full, and stays so: what is not complete cannot lag.
    server.psql("SELECT pg_switch_wal()");
    server.psql("SELECT pg_logical_emit_message(false, 'test', repeat('x', 10000000))");
    server.psql("ALTER SYSTEM SET archive_command = 'true'");
    server.psql("SELECT pg_reload_conf()");
    said("going on: ");
    assert!(load.wait().expect("an end").success());
    assert_eq!(server.psql("SELECT count(*) FROM c2").trim(), "2000000");
}
