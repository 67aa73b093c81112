//! The right facts of tables that are named oddly, partitioned, behind views, joined, and behind a hostile
//! search path.

use super::*;
use inrush_testkit::require_server;

async fn odd_names(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(
        r#"CREATE SCHEMA "My ""Schema"; SET search_path = "My ""Schema";
        CREATE TABLE "Ta'ble" ("Co l" int, pad text);
        INSERT INTO "Ta'ble" SELECT i % 500, repeat('x', 100) FROM generate_series(1, 50000) i;
        CREATE INDEX "In""dex" ON "Ta'ble" ("Co l"); ANALYZE "Ta'ble""#,
    );
    let query = r#"SELECT count(pad) FROM "My ""Schema"."Ta'ble" AS "nextval(" WHERE "Co l" = 7"#;
    let report = explain(&server.url(), query).await;
    assert_eq!(report.table.name, r#""My ""Schema"."Ta'ble""#);
    assert_eq!(report.table.indexes[0].name, r#""My ""Schema"."In""dex""#);
    assert_eq!(report.table.indexes[0].first_key, r#""Co l""#);
    assert!(report.table.indexes[0].correlation.is_some());
    for method in [Method::Sequential, Method::Index, Method::Bitmap] {
        let scans = of(&report, method);
        assert!(scans.len() == 1 && (scans[0].rows - 100.0).abs() < 0.5, "{method:?} {:?}", report.absent);
    }
    assert_eq!(of(&report, Method::Bitmap)[0].indexes, [r#""My ""Schema"."In""dex""#]);
    let pages: u64 =
        server.psql(r#"SELECT pg_relation_size('"My ""Schema"."Ta''ble"') / 8192"#).parse().unwrap();
    assert_eq!(report.table.pages, pages);
}

#[tokio::test]
async fn odd_names_on_15() {
    odd_names(15).await;
}

#[tokio::test]
async fn odd_names_on_18() {
    odd_names(18).await;
}

/// Partitions are one table: those that the plan scans, with their sums.
async fn partitions(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(
        "CREATE TABLE p (k int, v int, pad text) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (2000) PARTITION BY RANGE (k);
         CREATE TABLE p2a PARTITION OF p2 FOR VALUES FROM (1000) TO (2000);
         CREATE TABLE p3 PARTITION OF p FOR VALUES FROM (2000) TO (3000);
         INSERT INTO p SELECT i % 3000, i % 100, repeat('x', 100) FROM generate_series(1, 60000) i;
         CREATE INDEX ON p (v);
         CREATE TABLE small AS SELECT i AS v FROM generate_series(1, 5000) i; ANALYZE",
    );
    let report = explain(&server.url(), "SELECT count(pad) FROM p WHERE v = 7 AND k < 1500").await;
    assert_eq!((report.table.name.as_str(), report.table.partitions), ("public.p", Some(2)));
    let pages = server.psql("SELECT (pg_relation_size('p1') + pg_relation_size('p2a')) / 8192");
    assert_eq!(report.table.pages.to_string(), pages);
    for method in [Method::Sequential, Method::Index, Method::Bitmap] {
        let scans = of(&report, method);
        assert_eq!(scans.len(), 1, "{method:?} {:?}", report.absent);
        // i % 3000 < 1500 and i % 100 = 7: every 100th of 30,000.
        assert!((scans[0].rows - 300.0).abs() < 0.5, "{}: {}", scans[0].label, scans[0].rows);
    }
    let bitmap = of(&report, Method::Bitmap)[0];
    assert_eq!(bitmap.indexes, ["public.p1_v_idx", "public.p2a_v_idx"]);
    assert!(bitmap.exact_pages > Some(0) && bitmap.heap_pages_estimated.is_some());
    assert_eq!(report.scans.iter().filter(|scan| scan.planners).count(), 1);

    // In a join the larger table is studied, and the other one is named.
    let report = explain(&server.url(), "SELECT count(*) FROM p JOIN small USING (v) WHERE p.pad > ''").await;
    assert_eq!((report.table.name.as_str(), report.table.partitions), ("public.p", Some(3)));
    assert_eq!(report.table.other_tables, 1);

    // Through a view, and only one partition.
    server.psql("CREATE VIEW w AS SELECT * FROM p3 WHERE v = 7");
    let report = explain(&server.url(), "SELECT count(pad) FROM w").await;
    assert_eq!((report.table.name.as_str(), report.table.partitions), ("public.p", Some(1)));
}

#[tokio::test]
async fn partitions_on_15() {
    partitions(15).await;
}

#[tokio::test]
async fn partitions_on_18() {
    partitions(18).await;
}

/// A partition without the index is scanned in another way: that is a plan of its own, and no method.
#[tokio::test]
async fn mixed_partitions() {
    require_server!(16);
    let server = server(16);
    server.psql(
        "CREATE TABLE p (k int, v int, pad text) PARTITION BY RANGE (k);
         CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000);
         CREATE TABLE p2 PARTITION OF p FOR VALUES FROM (1000) TO (2000);
         INSERT INTO p SELECT i % 2000, i, repeat('x', 100) FROM generate_series(1, 60000) i;
         CREATE INDEX ON p1 (v); ANALYZE",
    );
    let report = explain(&server.url(), "SELECT count(pad) FROM p WHERE v = 7").await;
    let own = report.scans.iter().find(|scan| scan.planners).expect("the planner's own");
    assert_eq!(own.method, Method::Mixed);
    assert!(why(&report, Method::Index).unwrap().contains("of several kinds"), "{:?}", report.absent);
    assert_eq!(of(&report, Method::Sequential).len(), 1);
}

/// Whatever is in front of pg_catalog: the facts are those of the server.
#[tokio::test]
async fn a_hostile_search_path() {
    require_server!(15);
    let server = server(15);
    server.psql(TABLE);
    server.psql(
        "CREATE SCHEMA front;
         CREATE VIEW front.pg_class AS SELECT 1 AS oid; CREATE VIEW front.pg_index AS SELECT 1 AS indexrelid;
         CREATE VIEW front.pg_proc AS SELECT 1 AS oid; CREATE VIEW front.pg_tablespace AS SELECT 1 AS oid;
         CREATE VIEW front.pg_namespace AS SELECT 1 AS oid; CREATE VIEW front.pg_settings AS SELECT 1 AS name;
         CREATE FUNCTION front.equal(text, text) RETURNS bool LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR front.= (LEFTARG = text, RIGHTARG = text, FUNCTION = front.equal);
         CREATE FUNCTION front.equal(oid, oid) RETURNS bool LANGUAGE sql AS 'SELECT false';
         CREATE OPERATOR front.= (LEFTARG = oid, RIGHTARG = oid, FUNCTION = front.equal);
         CREATE FUNCTION front.count(text) RETURNS int8 LANGUAGE sql AS 'SELECT 1/0';
         CREATE FUNCTION front.pg_relation_size(oid) RETURNS int8 LANGUAGE sql AS 'SELECT 0::int8';
         ALTER ROLE postgres SET search_path = front, pg_catalog, public",
    );
    let options = Options {
        cold: inrush_tune::explain::ColdWish::Agreed,
        ..options("SELECT pg_catalog.count(pad) FROM t WHERE c1 < 20")
    };
    let report = explain_with(&server.url(), &options, true).await.expect("a report");
    assert_eq!((report.table.name.as_str(), report.table.indexes.len()), ("public.t", 3));
    assert!(report.table.pages > 1000);
    for method in [Method::Sequential, Method::Index, Method::Bitmap] {
        assert_eq!(of(&report, method).len(), 1, "{method:?} {:?}", report.absent);
    }
    // A function of the same name as one of the server's is not taken for that one.
    server.psql("CREATE FUNCTION front.lower(text) RETURNS text LANGUAGE plpgsql AS 'BEGIN RETURN $1; END'");
    let error = refused(&server.url(), &super::options("SELECT * FROM t WHERE lower(pad) LIKE 'x'")).await;
    assert!(error.fact().contains("front.lower"), "{error}");
    let report = explain(&server.url(), "SELECT * FROM t WHERE pg_catalog.lower(pad) LIKE 'x'").await;
    assert_eq!(report.table.name, "public.t");
}
