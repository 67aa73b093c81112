//! The probe through the server alone, against real servers: tables that are cached, and tables on slow
//! storage.

use inrush_core::{Code, Result};
use inrush_sink::conninfo;
use inrush_testkit::slow_disk::LatencyLayer;
use inrush_testkit::{Postgres, ServerOptions, ServerUser, require_server};
use inrush_tune::files;
use inrush_tune::io::Measured;
use inrush_tune::io::in_database::{Plan, run};
use inrush_tune::io::measured::StopReason;
use inrush_tune::io::report;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

fn server(version: u32) -> Postgres {
    Postgres::start(&ServerOptions {
        version: version.into(),
        conf: &[("shared_buffers", "16MB"), ("autovacuum", "off")],
        ..ServerOptions::default()
    })
}

/// 30,000 pages with six rows each.
fn table(server: &Postgres, tablespace: &str) {
    server.psql(&format!(
        "CREATE UNLOGGED TABLE big (id int, pad text) WITH (fillfactor = 10) TABLESPACE {tablespace};
         INSERT INTO big SELECT i, repeat('x', 90) FROM generate_series(1, 180000) i;
         CREATE UNIQUE INDEX ON big (id) TABLESPACE {tablespace}"
    ));
    server.psql("VACUUM ANALYZE big");
    let pages = server.psql("SELECT relpages FROM pg_class WHERE relname = 'big'");
    assert!(pages.parse::<u32>().expect("pages") >= 30_000, "{pages}");
}

fn plan(seconds: f64) -> Plan {
    Plan { table: Some("public.big".into()), seconds, read_bytes: 2_000_000_000 }
}

/// What is told to a superuser, in a minute.
async fn asked(server: &Postgres, version: u32) -> Result<(String, Measured)> {
    asked_by("postgres", server, version, 60.0, &AtomicBool::new(false), &mut |_, _| {}).await
}

async fn asked_by(
    role: &str,
    server: &Postgres,
    version: u32,
    seconds: f64,
    ended: &AtomicBool,
    tell: &mut dyn FnMut(f64, &str),
) -> Result<(String, Measured)> {
    let url = server.url().replace("postgres@", &format!("{role}@"));
    let conninfo = conninfo::resolve(Some(&url), &|_| None).expect("settings").expect("a server");
    let (io_method, io_workers) =
        if version >= 18 { (Some("worker".to_owned()), Some(3)) } else { (None, None) };
    let facts =
        report::Server { version_num: version * 10_000, io_method, io_workers, ..report::Server::default() };
    run(&conninfo, &facts, &plan(seconds), ended, tell).await
}

/// Whatever is in front of pg_catalog, and would be called if a name or an operator were not qualified.
const HOSTILE: &str = r#"
    CREATE SCHEMA front;
    DO $$ DECLARE t text; BEGIN
      FOREACH t IN ARRAY ARRAY['"char"', 'text', 'name', 'oid', 'int2', 'int4', 'int8', 'bool', 'tid'] LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION front.equal(%1$s, %1$s) RETURNS bool LANGUAGE plpgsql
          AS ''BEGIN RAISE EXCEPTION $m$hostile$m$; END'';
          CREATE OPERATOR front.= (LEFTARG = %1$s, RIGHTARG = %1$s, FUNCTION = front.equal);
          CREATE FUNCTION front.count(%1$s) RETURNS int8 LANGUAGE plpgsql
          AS ''BEGIN RAISE EXCEPTION $m$hostile$m$; END''', t);
      END LOOP;
      FOREACH t IN ARRAY ARRAY['sum(int8)', 'now()', 'to_char(timestamp, text)',
          'timezone(text, timestamptz)', 'to_regclass(text)', 'current_database()',
          'has_parameter_privilege(text, text)', 'has_table_privilege(oid, text)',
          'row_security_active(oid)'] LOOP
        EXECUTE pg_catalog.format('CREATE FUNCTION front.%s RETURNS int8 LANGUAGE plpgsql
          AS ''BEGIN RAISE EXCEPTION $m$hostile$m$; END''', t);
      END LOOP;
    END $$;
    CREATE VIEW front.pg_class AS SELECT 1 AS oid; CREATE VIEW front.pg_stats AS SELECT 1 AS oid;
    CREATE DOMAIN front.text AS pg_catalog.int4; CREATE DOMAIN front.int8 AS pg_catalog.text;
    ALTER ROLE postgres SET search_path = front, pg_catalog, public"#;

async fn what_is_cached_is_not_called_storage(version: u32) {
    let server = server(version);
    table(&server, "pg_default");
    let before = server.psql("SHOW effective_io_concurrency");
    // The machine may be short of memory: then some is not cached, and the passes still say nothing of a
    // disk.
    let error = asked(&server, version).await.expect_err("a refusal");
    assert!(error.fact().starts_with("cannot tell: "), "{error}");
    assert!(error.fact().contains("cache") && error.hint_text().is_some(), "{error}");
    server.psql(HOSTILE);
    let error = asked(&server, version).await.expect_err("a refusal");
    assert!(error.fact().starts_with("cannot tell: ") && error.fact().contains("cache"), "{error}");
    assert_eq!(server.psql("SHOW effective_io_concurrency"), before);
}

#[tokio::test]
async fn what_is_cached_is_not_called_storage_on_15() {
    require_server!(15);
    what_is_cached_is_not_called_storage(15).await;
}

#[tokio::test]
async fn what_is_cached_is_not_called_storage_on_18() {
    require_server!(18);
    what_is_cached_is_not_called_storage(18).await;
}

/// Rows of a key that the statistics know nothing of are not read: the trial ends at three times what was
/// expected.
#[tokio::test]
async fn keys_with_more_rows_than_known_are_refused() {
    require_server!(15);
    let server = server(15);
    table(&server, "pg_default");
    // Each value gets twelve more rows, and nobody analyzes.
    server.psql(
        "DROP INDEX big_id_idx; CREATE INDEX ON big (id);
         INSERT INTO big SELECT i, '' FROM generate_series(1, 180000) i, generate_series(1, 12)",
    );
    let error = asked(&server, 15).await.expect_err("a refusal");
    assert!(error.fact().contains("rows or more"), "{error}");
}

#[tokio::test]
async fn slow_storage_shows_its_curve_on_15() {
    require_server!(15);
    slow_storage_shows_its_curve(15, 3.0).await;
}

/// Three workers read ahead.
#[tokio::test]
async fn slow_storage_shows_its_curve_on_18() {
    require_server!(18);
    slow_storage_shows_its_curve(18, 1.5).await;
}

async fn slow_storage_shows_its_curve(version: u32, times: f64) {
    let directory = tempfile::tempdir().expect("a directory");
    let mode = |path: &Path, mode| std::fs::set_permissions(path, PermissionsExt::from_mode(mode));
    mode(directory.path(), 0o755).expect("own directory");
    let [backing, at] = ["backing", "at"].map(|name| directory.path().join(name));
    for path in [&backing, &at] {
        std::fs::create_dir(path).expect("own directory");
    }
    let layer = match LatencyLayer::mount(&backing, &at, Duration::from_millis(1)) {
        Ok(layer) => layer,
        Err(e) => {
            eprintln!("SKIPPED slow_storage_shows_its_curve: no slow storage here: {e}");
            return;
        }
    };
    let tables = layer.at().join("tables");
    std::fs::create_dir(&tables).expect("in the layer");
    mode(&tables, 0o700).expect("own directory");
    ServerUser::get().own(&tables).expect("root");
    let server = server(version);
    server.psql(&format!("CREATE TABLESPACE slow LOCATION '{}'", tables.display()));
    table(&server, "slow");
    let files: Vec<_> = ["big", "big_id_idx"]
        .iter()
        .flat_map(|name| {
            let path = server.psql(&format!("SELECT pg_relation_filepath('{name}')"));
            files::of(&server.data_dir().join(path)).expect("files")
        })
        .collect();
    let cold = || {
        server.restart();
        files.iter().for_each(|path| files::forget(path).expect("fadvise"));
    };
    cold();
    // A hundred pages take longer than the time of a first trial: it is cancelled by statement_timeout. On a
    // busy machine the time is over before it begins.
    let never = AtomicBool::new(false);
    let error = asked_by("postgres", &server, version, 0.3, &never, &mut |_, _| {}).await;
    let error = error.expect_err("too few seconds");
    assert!(error.fact().starts_with("cannot tell: 0 s were too few"), "{error}");

    // Two passes or three, if nothing else is in the way.
    cold();
    match asked_by("postgres", &server, version, 1.5, &never, &mut |_, _| {}).await {
        Ok((_, measured)) => {
            let stop = measured.stopped.map(|stop| stop.reason);
            assert!(stop.is_none_or(|reason| reason == StopReason::Time), "{stop:?}");
            assert!(measured.replays.iter().all(|one| one.passes.len() >= 2) && measured.replays.len() >= 3);
            println!("in a second: {} values, stopped: {stop:?}", measured.replays.len());
        }
        Err(error) => {
            let why = ["2 s were too few", "the passes "];
            assert!(
                why.iter().any(|why| error.fact().starts_with(&format!("cannot tell: {why}"))),
                "{error}"
            );
            println!("in a second: {error}");
        }
    }

    // In a trial: it is cancelled.
    cold();
    let ended = AtomicBool::new(false);
    let begun = tokio::sync::Notify::new();
    let mut tell = |done: f64, _: &str| {
        if done > 0.0 {
            begun.notify_one();
        }
    };
    let told = asked_by("postgres", &server, version, 60.0, &ended, &mut tell);
    let (interrupted, ()) = tokio::join!(told, async {
        begun.notified().await;
        tokio::time::sleep(Duration::from_millis(30)).await;
        ended.store(true, Ordering::Relaxed);
    });
    assert_eq!(interrupted.expect_err("interrupted").code(), Code::Interrupted);

    // Half of the table is cached: the passes would agree, on half of what the storage takes. Without
    // track_io_timing, too, which most roles may not set.
    server.psql("CREATE ROLE app LOGIN; GRANT SELECT ON big TO app");
    for role in ["postgres", "app"] {
        cold();
        server.psql("SELECT pg_catalog.count(pad) FROM big WHERE ctid < '(15000,0)'");
        let error = asked_by(role, &server, version, 60.0, &never, &mut |_, _| {}).await;
        let error = error.expect_err("a refusal");
        assert!(error.fact().contains("pages that were read alone took less than"), "{role}: {error}");
    }

    // A machine that is busy with something else makes passes differ, and it says so.
    let mut told = None;
    for _ in 0..3 {
        cold();
        match asked(&server, version).await {
            Ok(figures) => told = Some(figures),
            Err(error) if error.fact().starts_with("cannot tell: the passes ") => {
                println!("once more: {error}");
                continue;
            }
            Err(error) => panic!("{error}"),
        }
        break;
    }
    let Some((tablespace, measured)) = told else {
        eprintln!("SKIPPED slow_storage_shows_its_curve: this machine is too busy to tell");
        return;
    };
    assert_eq!(tablespace, "slow");
    assert!(measured.stopped.as_ref().is_none_or(|stop| stop.reason == StopReason::Time));
    let page_us =
        |ahead: u32| measured.replays.iter().find(|one| one.ahead == ahead).expect("a value").page_us;
    println!(
        "us a page: {:?}",
        measured.replays.iter().map(|one| (one.ahead, one.page_us)).collect::<Vec<_>>()
    );
    println!("{:?} {:?}", measured.storage.file_system_note, measured.watched);
    assert!(page_us(0) >= 1_000.0 && page_us(0) > times * page_us(16), "{:?}", measured.replays);
    // Nothing is left of what was set.
    assert_eq!(server.psql("SELECT count(*) FROM pg_tablespace WHERE spcoptions IS NOT NULL"), "0");
}
