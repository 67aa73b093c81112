//! What is not run, and that nothing of it has happened.

use super::*;
use inrush_core::Code;
use inrush_testkit::require_server;
use std::time::Duration;

/// What is refused, with what is said.
const REFUSED: &[(&str, &str)] = &[
    ("", "there is no query"),
    ("  -- nothing\n", "not one query that only reads"),
    ("INSERT INTO t VALUES (0)", "not one query that only reads"),
    ("DELETE FROM t", "not one query that only reads"),
    ("WITH x AS (INSERT INTO t VALUES (0) RETURNING a) SELECT * FROM x", "not one query that only reads"),
    ("WITH x AS (SELECT 1) DELETE FROM t", "not one query that only reads"),
    ("SELECT * FROM t; DELETE FROM t", "not one query that only reads"),
    ("SELECT 1; SELECT 2", "not one query that only reads"),
    ("SELECT * INTO u FROM t", "not one query that only reads"),
    ("CREATE TABLE u AS SELECT * FROM t", "not one query that only reads"),
    ("EXPLAIN ANALYZE DELETE FROM t", "not one query that only reads"),
    ("ANALYZE t", "not one query that only reads"),
    ("COPY t TO '/tmp/inrush-explain-refused'", "not one query that only reads"),
    ("EXECUTE s0", "not one query that only reads"),
    ("SHOW work_mem", "not one query that only reads"),
    ("COMMIT", "not one query that only reads"),
    ("SELECT * FROM t WHERE a = $1", "has parameters"),
    ("SELECT * FROM t FOR UPDATE", "the query locks rows"),
    ("SELECT * FROM (SELECT * FROM t FOR SHARE) x", "the query locks rows"),
    ("SELECT nextval('s') FROM t", "volatile and may have effects: nextval"),
    ("SELECT count(*) FROM t WHERE pg_terminate_backend(a)", "effects: pg_terminate_backend"),
    ("SELECT a FROM t ORDER BY pg_read_file('PG_VERSION'), a", "effects: pg_read_file"),
    ("SELECT a FROM t GROUP BY a HAVING set_config('x.y', max(b), false) = 'x'", "effects: set_config"),
    ("SELECT 1 FROM t, LATERAL pg_advisory_lock(a)", "effects: pg_advisory_lock"),
    ("SELECT (SELECT logged(a)) FROM t", "effects: public.logged"),
    ("SELECT * FROM t WHERE a <%%> 1 = 1", "effects: operator <%%>"),
    ("SELECT \"Odd Name\"(a) FROM t", "effects: public.Odd Name"),
    ("SELECT odd_agg(a) FROM t", "effects: public.odd_agg"),
    ("SELECT * FROM hidden", "effects: public.logged"),
    // EXPLAIN does not print these.
    ("SELECT a FROM t LIMIT pg_terminate_backend(pg_backend_pid())::int", "effects: pg_terminate_backend"),
    ("SELECT a FROM t OFFSET PG_Advisory_Lock /* ( */ (1)::text::int", "effects: pg_advisory_lock"),
    ("SELECT a FROM t LIMIT public . \"logged\" -- (\n (1)", "effects: public.logged"),
    ("SELECT a FROM t LIMIT 1 <%%> 1", "effects: operator <%%>"),
    ("SELECT a FROM t, (VALUES (1), (logged(2))) v (x)", "effects: public.logged"),
    ("SELECT sum(a) OVER (ORDER BY a ROWS logged(1) PRECEDING) FROM t", "effects: public.logged"),
    ("SELECT a FROM t WHERE logged(1) IN (SELECT a FROM e)", "effects: public.logged"),
    ("SELECT a FROM t LIMIT ((1, 'x')::t).of_row", "effects: public.of_row"),
    ("SELECT a FROM t LIMIT U&\"logge\\0064\"(1)", "a name with Unicode escapes"),
    ("SELECT a FROM t LIMIT length(E'\\'' || logged(1) || '')", "effects: public.logged"),
    ("SELECT * FROM limited", "effects: pg_terminate_backend"),
    ("SELECT * FROM s2.over_limited", "effects: pg_terminate_backend"),
    ("SELECT * FROM operated", "effects: public.loud"),
    ("SELECT * FROM guarded", "effects: public.logged"),
    ("SELECT 1", "no scan of a table to study"),
    ("SELECT * FROM generate_series(1, 3)", "no scan of a table to study: Function Scan"),
    ("SELECT * FROM e", "are empty"),
];

/// What is wrong by itself, with the SQLSTATE and what is said: places are those of the user's text.
const WRONG: &[(&str, &str, &str)] = &[
    ("SELECT * FROM nothing", "42P01", "at character 15 of the query: relation \"nothing\" does not exist"),
    ("selct 1", "42601", "at character 1 of the query: syntax error at or near \"selct\""),
    ("SELECT :x FROM t", "42601", "at character 8 of the query: syntax error at or near \":\""),
    ("SELECT 1 /* x", "42601", "at character 10 of the query: unterminated /* comment"),
    ("SELECT 'x", "42601", "at character 8 of the query: unterminated quoted string"),
    ("SELECT 1 FROM other.public.t", "0A000", "cross-database references are not implemented"),
    ("SELECT nothing(1)", "42883", "at character 8 of the query: function nothing(integer) does not exist"),
    ("SELECT 'x'::int", "22P02", "invalid input syntax for type integer"),
    ("ANALYZE DELETE FROM t", "42601", "at character 16 of the query: syntax error"),
];

async fn refusals(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(
        "CREATE TABLE t (a int PRIMARY KEY, b text); INSERT INTO t SELECT i, 'x' FROM generate_series(1, \
         1000) i;
         CREATE TABLE e (a int);
         CREATE SEQUENCE s; ANALYZE t;
         CREATE FUNCTION logged(int) RETURNS int LANGUAGE plpgsql AS
           'BEGIN INSERT INTO t VALUES (-1); RETURN 1; END';
         CREATE FUNCTION \"Odd Name\"(int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
         CREATE FUNCTION loud(int, int) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
         CREATE OPERATOR <%%> (LEFTARG = int, RIGHTARG = int, FUNCTION = loud);
         CREATE AGGREGATE odd_agg(int) (SFUNC = loud, STYPE = int);
         CREATE VIEW hidden AS SELECT a FROM t WHERE logged(a) > 0;
         CREATE FUNCTION of_row(t) RETURNS int LANGUAGE plpgsql AS 'BEGIN RETURN 1; END';
         CREATE VIEW limited AS SELECT a FROM t LIMIT pg_terminate_backend(pg_backend_pid())::int;
         CREATE SCHEMA s2; CREATE VIEW s2.over_limited AS SELECT * FROM limited;
         CREATE VIEW operated AS SELECT a FROM t LIMIT 1 <%%> 1;
         CREATE VIEW calm AS SELECT a FROM t WHERE now() > '2000-01-01' LIMIT 10;
         CREATE TABLE guarded (a int); ALTER TABLE guarded ENABLE ROW LEVEL SECURITY;
         CREATE POLICY p ON guarded USING (a > (SELECT a FROM t LIMIT logged(1)));",
    );
    let contents = || server.psql("SELECT count(*), sum(a), (SELECT is_called FROM s) FROM t");
    let before = contents();
    for (query, said) in REFUSED {
        let error = refused(&server.url(), &options(query)).await;
        assert_eq!(error.code(), Code::Usage, "{query}: {error}");
        assert!(error.fact().contains(said), "{query}: {error}");
        assert!(error.hint_text().is_some(), "{query}");
    }
    // A query that is wrong is the server's to explain.
    for (query, sqlstate, said) in WRONG {
        let error = refused(&server.url(), &options(query)).await;
        assert_eq!(
            (error.code(), error.sqlstate_text()),
            (Code::Server, Some(*sqlstate)),
            "{query}: {error}"
        );
        assert!(error.fact().contains(said), "{query}: {error}");
    }

    // The words of others do not make a query dangerous.
    for query in [
        "SELECT a FROM t WHERE b <> 'nextval(''s'')' AND random() >= 0 -- DELETE",
        "TABLE t;",
        "SELECT a, clock_timestamp(), now() FROM t /* nextval('s') /* ( */ */ LIMIT (random() * 0)::int + 9",
        "SELECT a, $x$ nextval('s') $x$, E'\\' nextval(' FROM t OFFSET length('nextval(')",
        "SELECT * FROM calm",
        "SELECT sum(t.a) OVER (ORDER BY a ROWS 1 PRECEDING) FROM t WHERE a NOT IN (SELECT a FROM e)",
        "WITH x AS MATERIALIZED (SELECT * FROM t) SELECT count(*) FROM x",
        "SELECT a AS \"nextval('s')\" FROM t AS \"pg_read_file(x)\"",
    ] {
        let report = explain_with(&server.url(), &options(query), false).await;
        assert!(report.is_ok(), "{query}: {}", report.unwrap_err());
    }
    // Vouched for, it is run in a read-only transaction all the same.
    let vouched = Options { allow_volatile: true, ..options("SELECT logged(a) FROM t") };
    assert_eq!(refused(&server.url(), &vouched).await.sqlstate_text(), Some("25006"));
    let vouched = Options {
        allow_volatile: true,
        ..options("SELECT set_config('transaction_read_only', 'off', true) FROM t")
    };
    assert_eq!(refused(&server.url(), &vouched).await.sqlstate_text(), Some("25001"));
    let vouched = Options { allow_volatile: true, ..options("SELECT \"Odd Name\"(a) FROM t") };
    let report = explain_with(&server.url(), &vouched, false).await.expect("a report");
    assert!(
        report.notes.iter().any(|note| note.contains("volatile functions were run")),
        "{:?}",
        report.notes
    );

    assert_eq!(contents(), before);
    assert_eq!(server.psql("SELECT count(*) FROM pg_class WHERE relname = 'u'"), "0");
}

#[tokio::test]
async fn refusals_on_15() {
    refusals(15).await;
}

#[tokio::test]
async fn refusals_on_16() {
    refusals(16).await;
}

#[tokio::test]
async fn refusals_on_18() {
    refusals(18).await;
}

#[tokio::test]
async fn what_is_too_large_or_takes_too_long() {
    require_server!(15);
    let server = server(15);
    server.psql(TABLE);
    let small = Options { max_bytes: 1 << 20, ..options("SELECT * FROM t WHERE c1 = 1") };
    let error = refused(&server.url(), &small).await;
    assert!(error.fact().contains("MB, and a run may read 1 MB"), "{error}");
    assert!(error.hint_text().unwrap().contains("--max-size"), "{error}");

    // TOAST and the index of the plan count, too: the table itself has less than a MB.
    server.psql(
        "CREATE TABLE wide (id int, pad text);
         ALTER TABLE wide ALTER pad SET STORAGE EXTERNAL;
         INSERT INTO wide SELECT i, repeat('x', 10000) FROM generate_series(1, 300) i;
         CREATE TABLE narrow (id int); INSERT INTO narrow SELECT 1 FROM generate_series(1, 20000);
         CREATE INDEX ON narrow (id, (repeat(md5(id::text), 3)));
         INSERT INTO narrow SELECT i FROM generate_series(2, 2000) i;
         VACUUM ANALYZE wide, narrow",
    );
    for (query, bytes) in [
        ("SELECT * FROM wide", "pg_table_size('wide')"),
        (
            "SELECT * FROM narrow WHERE id = 7",
            "pg_table_size('narrow') + pg_relation_size('narrow_id_repeat_idx')",
        ),
    ] {
        let bytes: u64 = server.psql(&format!("SELECT {bytes}")).parse().expect("a size");
        let error = refused(&server.url(), &Options { max_bytes: bytes - 1, ..options(query) }).await;
        assert!(error.fact().contains("with TOAST and the indexes of its plan"), "{error}");
        let fits = Options { max_bytes: bytes, ..options(query) };
        let report = explain_with(&server.url(), &fits, false).await;
        assert!(report.is_ok(), "{query}: {}", report.unwrap_err());
    }

    // One way of scanning that takes too long leaves the others their figures.
    let slow = Options {
        timeout: Duration::from_millis(300),
        allow_volatile: true,
        ..options("SELECT count(*) FROM t WHERE c1 = 1 AND ts < 100 AND pg_sleep(2) IS NOT NULL")
    };
    let report = explain_with(&server.url(), &slow, false).await.expect("a report");
    assert!(report.scans.iter().all(|scan| scan.warm.is_none()));
    let why = report.scans[0].failed.as_ref().expect("a reason");
    assert_eq!(why, "it took longer than 0.3 s");
    assert_eq!(report.verdict.refused.as_deref(), Some("nothing was measured"));
    assert!(report.verdict.sentences.iter().any(|said| said.contains("took longer than 0.3 s")));
}

/// What is not read by this server may have effects elsewhere, or by a program.
async fn foreign_tables(version: u32) {
    require_server!(version);
    let server = server(version);
    if server.psql("SELECT count(*) FROM pg_available_extensions WHERE name = 'file_fdw'") == "0" {
        eprintln!("SKIPPED: this PostgreSQL {version} has no file_fdw");
        return;
    }
    let directory = tempfile::tempdir().expect("a directory");
    std::fs::set_permissions(directory.path(), std::os::unix::fs::PermissionsExt::from_mode(0o777))
        .expect("a directory for all");
    let touched = directory.path().join("touched");
    server.psql(&format!(
        "CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 1000) i; ANALYZE t;
         CREATE EXTENSION file_fdw; CREATE SERVER files FOREIGN DATA WRAPPER file_fdw;
         CREATE FOREIGN TABLE f (a int) SERVER files OPTIONS (program 'echo 1; touch {}');
         CREATE VIEW v AS SELECT a FROM f",
        touched.display()
    ));
    for query in ["SELECT * FROM t JOIN f USING (a)", "SELECT * FROM t WHERE a = (SELECT max(a) FROM v)"] {
        let error = refused(&server.url(), &options(query)).await;
        assert_eq!(error.code(), Code::Usage, "{error}");
        assert!(error.fact().contains("reads a foreign table: public.f"), "{error}");
        let hint = error.hint_text().expect("a hint");
        assert!(hint.contains("no caches but this server's") && hint.contains("--allow-volatile"), "{hint}");
    }
    assert!(!touched.exists());
    let vouched = Options { allow_volatile: true, ..options("SELECT * FROM t JOIN f USING (a)") };
    explain_with(&server.url(), &vouched, false).await.expect("a report");
    assert!(touched.exists());
}

#[tokio::test]
async fn foreign_tables_on_15() {
    foreign_tables(15).await;
}

#[tokio::test]
async fn foreign_tables_on_18() {
    foreign_tables(18).await;
}

/// A lock of another session is not waited for without bound, by whatever needs it first.
async fn a_locked_table(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql("CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 1000) i; ANALYZE t");
    let (other, connection) =
        tokio_postgres::connect(&server.url(), tokio_postgres::NoTls).await.expect("a session");
    let connection = tokio::spawn(connection);
    other.batch_execute("BEGIN; LOCK TABLE t").await.expect("a lock");
    let (url, options) = (server.url(), options("SELECT * FROM t"));
    let ended = tokio::time::timeout(Duration::from_secs(60), refused(&url, &options));
    let error = ended.await.expect("an end to the wait");
    assert_eq!((error.code(), error.sqlstate_text()), (Code::Server, Some("55P03")), "{error}");
    assert!(error.fact().contains("another session holds a lock"), "{error}");
    assert!(error.hint_text().is_some_and(|hint| hint.contains("pg_blocking_pids()")), "{error}");
    other.batch_execute("ROLLBACK").await.expect("no lock");
    explain(&server.url(), "SELECT * FROM t").await;
    drop(other);
    connection.await.expect("no panic").expect("an orderly end");
}

#[tokio::test]
async fn a_locked_table_on_15() {
    a_locked_table(15).await;
}

#[tokio::test]
async fn a_locked_table_on_18() {
    a_locked_table(18).await;
}

/// Ctrl-C ends the statement that runs, and nothing is left.
#[tokio::test]
async fn an_interrupt_ends_it() {
    require_server!(16);
    let server = server(16);
    server.psql("CREATE TABLE t AS SELECT i AS a FROM generate_series(1, 100) i; ANALYZE t");
    let stop = Arc::new(AtomicBool::new(false));
    let hooks = Hooks { note: &|_| {}, agree: &|_| true, stop: Arc::clone(&stop) };
    let timer = std::thread::spawn({
        let stop = Arc::clone(&stop);
        move || {
            std::thread::sleep(Duration::from_millis(700));
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    });
    let options = options("SELECT count(*) FROM t WHERE pg_sleep(0.5) IS NOT NULL");
    let error = run(&conninfo(&server.url()), &options, &hooks).await.expect_err("interrupted");
    timer.join().expect("the timer");
    assert_eq!(error.code(), Code::Interrupted);
    let left = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inrush explain' AND state = \
                'active'";
    for _ in 0..100 {
        if server.psql(left) == "0" {
            return;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("a statement still runs");
}
