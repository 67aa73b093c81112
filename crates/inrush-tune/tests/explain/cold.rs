//! Cold runs: had, looked up, and nothing left behind.

use super::*;
use inrush_testkit::{Installation, Version, require_server};
use std::path::PathBuf;

const SCHEMA: &str = "SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'inrush_explain%'";

/// A server on a disk: what is in a file system in memory cannot be made cold.
fn on_disk(server: &Postgres) -> bool {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let path = server.data_dir().canonicalize().expect("a directory");
    let of = mounts.lines().filter_map(|line| {
        let mut words = line.split(' ').skip(1);
        Some((PathBuf::from(words.next()?), words.next()?.to_owned()))
    });
    let nearest =
        of.filter(|(point, _)| path.starts_with(point)).max_by_key(|(point, _)| point.as_os_str().len());
    let disk = nearest.is_some_and(|(_, kind)| ["ext4", "xfs", "btrfs"].contains(&kind.as_str()));
    if !disk {
        eprintln!("SKIPPED: needs a temporary directory on ext4, xfs or btrfs");
    }
    disk
}

async fn cold(version: impl Into<Version>) {
    let version = version.into();
    require_server!(version);
    let major = Installation::find(version).expect("it is there").major();
    let server = server(version);
    if !on_disk(&server) {
        return;
    }
    server.psql(TABLE);
    let options = Options {
        cold: inrush_tune::explain::ColdWish::Ask,
        concurrency: Some(8),
        ..options("SELECT count(pad) FROM t WHERE c1 < 20")
    };
    let report = explain_with(&server.url(), &options, true).await.expect("a report");
    let said = &report.cold;
    assert!(said.measured, "{said:?}");
    assert!(said.resident.unwrap() <= 0.01, "{said:?}");
    assert!(said.partial.is_none(), "{said:?}");
    let how = said.how.join("\n");
    assert!(how.contains("CHECKPOINT") && how.contains("DONTNEED"), "{how}");
    let expected = match major {
        18.. => "pg_buffercache_evict_relation",
        17 => "pg_buffercache_evict() page by page",
        _ => "pushed out",
    };
    assert!(how.contains(expected), "{how}");
    for scan in report.scans.iter().filter(|scan| scan.failed.is_none()) {
        let (warm, cold) = (scan.warm.as_ref().unwrap(), scan.cold.as_ref().unwrap());
        assert_eq!(cold.runs.len(), 3, "{}", scan.label);
        // Every page that is visited has to come from somewhere: none was in shared buffers.
        let pages = scan.heap_pages.expect("pages");
        assert!(cold.shared_read >= pages, "{}: {cold:?} {pages}", scan.label);
        assert!(scan.method != Method::Sequential || cold.shared_hit <= 20, "{}: {cold:?}", scan.label);
        // And from the device, as far as its counters can be read: at least as much as was visited.
        if let Some(bytes) = cold.device_bytes {
            assert!(bytes >= pages * 8192 * 9 / 10, "{}: {bytes} {pages}", scan.label);
            assert!(cold.device_reads.is_some_and(|reads| reads > 0));
            assert!(warm.device_bytes < Some(bytes), "{}: {warm:?}", scan.label);
        }
    }
    assert!(report.verdict.cold);
    assert_eq!(server.psql(SCHEMA), "0");
    assert_eq!(server.psql("SELECT count(*) FROM pg_extension WHERE extname = 'pg_buffercache'"), "0");
}

#[tokio::test]
async fn cold_on_15() {
    cold(15).await;
}

#[tokio::test]
async fn cold_on_16() {
    cold(16).await;
}

/// Nobody packs a 17 that tests could fetch: this one is built for the tests of the extension.
#[tokio::test]
async fn cold_on_17() {
    cold(Version::Asserts(17)).await;
}

#[tokio::test]
async fn cold_on_18() {
    cold(18).await;
}

#[tokio::test]
async fn without_consent_or_rights_it_is_warm_only() {
    require_server!(16);
    let server = server(16);
    server.psql(TABLE);
    let mut options = options("SELECT count(pad) FROM t WHERE c1 < 20");
    options.cold = inrush_tune::explain::ColdWish::Ask;
    let report = explain_with(&server.url(), &options, false).await.expect("a report");
    assert!(report.cold.why_not.unwrap().contains("nobody has agreed"));
    assert!(report.scans.iter().all(|scan| scan.cold.is_none() && scan.warm.is_some()));

    // A role that does not see where the files are.
    server.psql("CREATE ROLE app LOGIN; GRANT SELECT ON t TO app");
    let url = server.url().replace("postgres@", "app@");
    let report = explain_with(&url, &options, true).await.expect("a report");
    assert!(report.cold.why_not.unwrap().contains("may not see where the data directory is"));
    let left = &report.left_out[0];
    assert!(left.remedy.as_ref().unwrap().contains("pg_read_all_settings"), "{left:?}");

    // One that sees them, and may make the scratch tables, gets cold runs without being a superuser.
    server.psql("GRANT pg_read_all_settings TO app; GRANT CREATE ON DATABASE postgres TO app");
    let report = explain_with(&url, &options, true).await.expect("a report");
    assert!(report.cold.measured || !on_disk(&server), "{:?}", report.cold);
    assert!(report.left_out.iter().any(|left| left.what.contains("no CHECKPOINT")), "{:?}", report.left_out);
    assert_eq!(server.psql(SCHEMA), "0");

    // Without that right shared buffers would stay as they are: that is not cold.
    server.psql("REVOKE CREATE ON DATABASE postgres FROM app");
    let report = explain_with(&url, &options, true).await.expect("a report");
    let said = &report.cold;
    assert!(
        !said.measured && said.why_not.as_ref().is_some_and(|why| why.contains("stays there")),
        "{said:?}"
    );
    assert!(report.scans.iter().all(|scan| scan.cold.is_none()) && !report.verdict.cold);
    assert!(
        report.left_out.iter().any(|left| left.remedy.as_ref().is_some_and(|it| it.contains("GRANT CREATE")))
    );
    let required = Options { cold: inrush_tune::explain::ColdWish::Required, ..options.clone() };
    let error = explain_with(&url, &required, true).await.expect_err("no cold runs");
    assert!(error.fact().contains("stays there"), "{error}");

    // A managed service gives nobody its files.
    server.psql("CREATE ROLE rds_superuser");
    let report = explain_with(&server.url(), &options, true).await.expect("a report");
    assert!(report.cold.why_not.unwrap().contains("gives no access"), "{:?}", report.left_out);
}

/// What a killed run has left is removed by the next one; what is not ours is not.
#[tokio::test]
async fn what_was_left_is_removed() {
    require_server!(15);
    let server = server(15);
    server.psql(TABLE);
    let query = "SELECT count(pad) FROM t WHERE c1 < 20";
    server.psql("CREATE SCHEMA inrush_explain_scratch; CREATE TABLE inrush_explain_scratch.mine ()");
    explain(&server.url(), query).await;
    assert_eq!(server.psql(SCHEMA), "1");
    let wish = Options { cold: inrush_tune::explain::ColdWish::Agreed, ..options(query) };
    let report = explain_with(&server.url(), &wish, true).await.expect("a report");
    let said = report.cold.why_not.expect("a foreign schema");
    assert!(said.contains("is not this tool's"), "{said}");
    assert!(report.scans.iter().all(|scan| scan.warm.is_some() && scan.cold.is_none()));
    let required = Options { cold: inrush_tune::explain::ColdWish::Required, ..wish };
    let error = explain_with(&server.url(), &required, true).await.expect_err("a foreign schema");
    assert!(error.fact().contains("is not this tool's"), "{error}");
    assert_eq!(server.psql(SCHEMA), "1");

    server.psql(
        "COMMENT ON SCHEMA inrush_explain_scratch IS 'scratch tables of inrush explain, removed by its next \
         run'",
    );
    let report = explain(&server.url(), query).await;
    assert!(report.notes.iter().any(|note| note.contains("an earlier run had left")), "{:?}", report.notes);
    assert_eq!(server.psql(SCHEMA), "0");
}

/// Ctrl-C while the scratch tables are there: they go.
#[tokio::test]
async fn an_interrupt_leaves_no_tables() {
    require_server!(15);
    let server = server(15);
    if !on_disk(&server) {
        return;
    }
    server.psql(TABLE);
    let stop = Arc::new(AtomicBool::new(false));
    let note = |text: &str| {
        if text.starts_with("cold: round 2") {
            assert_eq!(server.psql(SCHEMA), "1");
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    };
    let hooks = Hooks { note: &note, agree: &|_| true, stop: Arc::clone(&stop) };
    let wish = Options {
        cold: inrush_tune::explain::ColdWish::Agreed,
        ..options("SELECT count(pad) FROM t WHERE c1 < 20")
    };
    let error = run(&conninfo(&server.url()), &wish, &hooks).await.expect_err("interrupted");
    assert_eq!(error.code(), inrush_core::Code::Interrupted);
    assert_eq!(server.psql(SCHEMA), "0");
}

/// A second run beside a first one is warm, and leaves the first one's scratch tables alone.
#[tokio::test]
async fn a_second_run_does_not_disturb_the_first() {
    require_server!(15);
    let server = server(15);
    if !on_disk(&server) {
        return;
    }
    server.psql(TABLE);
    let wish = Options {
        cold: inrush_tune::explain::ColdWish::Agreed,
        ..options("SELECT count(pad) FROM t WHERE c1 < 20")
    };
    let (url, begun) = (server.url(), std::cell::Cell::new(false));
    let note = |text: &str| {
        if text.starts_with("cold: round 1") && !begun.replace(true) {
            let (url, wish) = (url.clone(), wish.clone());
            let other = std::thread::spawn(move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
                runtime.expect("a runtime").block_on(explain_with(&url, &wish, true))
            });
            let report = other.join().expect("no panic").expect("a report");
            let why = report.cold.why_not.expect("warm only");
            assert!(why.contains("another `inrush explain`"), "{why}");
            assert!(report.scans.iter().all(|scan| scan.warm.is_some() && scan.cold.is_none()));
            assert_eq!(server.psql(SCHEMA), "1");
        }
    };
    let hooks = Hooks { note: &note, agree: &|_| true, stop: Arc::default() };
    let report = run(&conninfo(&url), &wish, &hooks).await.expect("a report");
    assert!(begun.get() && report.cold.measured, "{:?}", report.cold);
    assert_eq!(server.psql(SCHEMA), "0");
}

/// A session that writes nothing unless told so: what is made for cold runs is told so.
#[tokio::test]
async fn read_only_by_default() {
    for version in [15, 18] {
        require_server!(version);
        let server = server(version);
        if !on_disk(&server) {
            return;
        }
        server.psql(TABLE);
        server.psql("ALTER ROLE postgres SET default_transaction_read_only = on");
        let wish = Options {
            cold: inrush_tune::explain::ColdWish::Agreed,
            ..options("SELECT count(pad) FROM t WHERE c1 < 20")
        };
        let report = explain_with(&server.url(), &wish, true).await.expect("a report");
        assert!(report.cold.measured, "{:?}", report.cold);
        assert_eq!(server.psql(SCHEMA), "0");
    }
}
