//! Writers at work while windows come and go: nobody waits, no batch fails.

use super::{Stop, alone, calls, on_this_thread, open, span};
use inrush_sink::ledger::Ledger;
use inrush_testkit::{Postgres, ServerOptions, Version, require_server};
use inrush_windows::{Create, Options, create, maintain, read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// What a lock may cost a writer.
const LONGEST: Duration = Duration::from_millis(100);

/// Milliseconds of waits that the server has logged (it does after `deadlock_timeout`), of sessions with this name.
fn logged_waits(log: &str, session: &str) -> Vec<f64> {
    let waits = log.lines().filter(|line| line.contains(session) && line.contains(" after "));
    waits.filter_map(|line| line.split(" after ").nth(1)?.split(' ').next()?.parse().ok()).collect()
}

fn write(url: &str, lane: u32, stop: &AtomicBool) -> (u64, Duration) {
    on_this_thread(async {
        let session = open(&format!("{url}&application_name=the_writer")).await;
        // Through the parent, as plain SQL does; every other batch in a transaction that stays open a while.
        let insert = format!(
            "INSERT INTO calls SELECT clock_timestamp(), {lane}, repeat('x', 50) FROM generate_series(1, 500)"
        );
        let (mut batches, mut longest) = (0, Duration::ZERO);
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            session.client.batch_execute(&insert).await.expect("no batch fails");
            longest = longest.max(began.elapsed());
            session
                .client
                .batch_execute(&format!("BEGIN; {insert}; SELECT pg_sleep(0.05); COMMIT"))
                .await
                .expect("nor this");
            batches += 2;
        }
        (batches, longest)
    })
}

fn read_all_the_time(url: &str, stop: &AtomicBool) {
    on_this_thread(async {
        let session = open(url).await;
        while !stop.load(Ordering::Relaxed) {
            session
                .client
                .batch_execute("BEGIN; SELECT count(*) FROM calls; SELECT pg_sleep(0.2); COMMIT")
                .await
                .unwrap();
        }
    });
}

async fn windows_of_a_second(version: u32, seconds: u64) {
    // deadlock_timeout: when waits are logged.
    let conf = &[("log_lock_waits", "on"), ("deadlock_timeout", "5ms")];
    let server = Postgres::start(&ServerOptions {
        version: Version::Major(version),
        conf,
        ..ServerOptions::default()
    });
    let database = server.fresh_database();
    let mut session = open(&database.url()).await;
    let ledger = Ledger::open(&mut session.client, "inrush_ledger", true).await.unwrap().unwrap();
    let spec = Create { window: Some(span("1s")), keep: Some(span("3s")), ahead: 5, ..calls() };
    let table = create(&mut session.client, &ledger, &spec).await.unwrap().table;
    let stop = AtomicBool::new(false);
    let url = database.url();
    let (mut made, mut retired) = (0, 0);
    let written = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..3)
            .map(|lane| {
                let (url, stop) = (&url, &stop);
                scope.spawn(move || write(url, lane, stop))
            })
            .collect();
        scope.spawn(|| read_all_the_time(&url, &stop));
        let stopping = Stop(&stop);
        alone(async {
            let mut session = open(&url).await;
            let began = Instant::now();
            while began.elapsed() < Duration::from_secs(seconds) {
                let did = maintain(
                    &mut session.client,
                    &ledger,
                    table.relid,
                    SystemTime::now(),
                    &Options::default(),
                )
                .await
                .unwrap();
                made += did.made.len();
                retired += did.retired.iter().filter(|one| one.gone).count();
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
        });
        drop(stopping);
        writers.into_iter().map(|writer| writer.join().unwrap()).collect::<Vec<_>>()
    });
    let batches: u64 = written.iter().map(|(batches, _)| batches).sum();
    let longest = written.iter().map(|(_, longest)| *longest).max().unwrap();
    let waits = logged_waits(&server.log(), "the_writer");
    let wait = waits.iter().copied().fold(0.0, f64::max);
    let log = server.log();
    let worst = log
        .lines()
        .filter(|line| line.contains(" acquired ") && line.contains(&format!(" after {wait:.3} ms")));
    eprintln!(
        "{}PostgreSQL {version}: {batches} batches, {made} windows made, {retired} retired; longest INSERT {longest:?}, \
         {} waits for a lock over 5 ms, the longest {wait} ms",
        worst.map(|line| format!("{line}\n")).collect::<String>(),
        waits.len()
    );
    assert!(
        batches > 20 && made as u64 >= seconds - 2 && retired as u64 >= seconds - 6,
        "{made} made, {retired} retired"
    );
    assert!(wait < LONGEST.as_secs_f64() * 1000.0, "a writer waited {wait} ms for a lock");
    let rows: u64 = database.psql("SELECT count(*) FROM calls").parse().unwrap();
    assert!(rows > 0 && rows < batches * 500, "the oldest are gone");
    let left = read(&session.client, &ledger, table.relid).await.unwrap().unwrap();
    assert!(left.windows.len() <= 12, "{}", left.windows.len());
}

#[tokio::test]
async fn writers_do_not_wait_on_15() {
    require_server!(15);
    windows_of_a_second(15, 12).await;
}

#[tokio::test]
async fn writers_do_not_wait_on_18() {
    require_server!(18);
    windows_of_a_second(18, 12).await;
}

#[test]
fn waits_are_read_from_the_log() {
    let log = "2026-11-22 [7] the_writer LOG:  process 7 still waiting for RowExclusiveLock on relation 5 of database 5 after 5.123 ms\n\
               2026-11-22 [7] the_writer LOG:  process 7 acquired RowExclusiveLock on relation 5 of database 5 after 61.5 ms\n\
               2026-11-22 [8] other LOG:  process 8 acquired ShareLock on transaction 5 after 900.0 ms\n";
    assert_eq!(logged_waits(log, "the_writer"), [5.123, 61.5]);
}
