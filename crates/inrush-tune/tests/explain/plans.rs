//! Scans inside of plans that end them early, repeat them, share them out among workers, or read other
//! tables.

use super::*;
use inrush_testkit::require_server;

/// Under a LIMIT or an EXISTS nobody knows how many pages a scan would have read: nothing is said of them.
async fn ends_early(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    let all = |report: &Report, early: bool| {
        for scan in &report.scans {
            assert_eq!(scan.stops_early, early, "{}", scan.label);
            assert!(!early || scan.heap_pages.is_none(), "{scan:?}");
        }
    };
    let about = |report: &Report| -> Vec<&str> {
        report.verdict.reasons.iter().map(|reason| reason.about).filter(|about| *about != "cache").collect()
    };
    let report = explain(&server.url(), "SELECT pad FROM t WHERE c1 < 40 LIMIT 10").await;
    assert!(report.scans.len() > 2, "{:?}", report.scans);
    all(&report, true);
    assert_eq!(about(&report), [""; 0], "{:?}", report.verdict);
    // Rows as expected of all, and as found of a few: not what ANALYZE mends.
    let bitmap = of(&report, Method::Bitmap)[0];
    assert!(bitmap.rows_estimated > 100.0 * bitmap.rows, "{bitmap:?}");

    // Whoever sorts or counts has read everything before the LIMIT.
    let report =
        explain(&server.url(), "SELECT c1, count(pad) FROM t WHERE c1 < 40 GROUP BY c1 LIMIT 1").await;
    let seq = of(&report, Method::Sequential)[0];
    assert_eq!((seq.stops_early, seq.heap_pages), (false, Some(report.table.pages)));
    let report = explain(&server.url(), "SELECT count(pad) FROM t WHERE c1 < 40 LIMIT 1").await;
    all(&report, false);
    assert!(of(&report, Method::Index)[0].heap_pages.is_some());

    let report = explain(&server.url(), "SELECT 1 WHERE EXISTS (SELECT FROM t WHERE c1 < 40)").await;
    all(&report, true);
    assert_eq!(about(&report), [""; 0], "{:?}", report.verdict);
}

#[tokio::test]
async fn ends_early_on_15() {
    ends_early(15).await;
}

#[tokio::test]
async fn ends_early_on_18() {
    ends_early(18).await;
}

/// Of a scan in a loop rows are those of all its turns, expected and found; and other tables' scans are
/// looked at.
async fn in_a_loop(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    server.psql(
        "CREATE TABLE small AS SELECT i * 3 AS c1, i * 100 AS id FROM generate_series(1, 40) i;
         CREATE TABLE wide AS SELECT i AS id, i % 7 AS a FROM generate_series(1, 20000) i;
         CREATE INDEX ON wide (id); ANALYZE small, wide",
    );
    let query = "SELECT count(t.pad) FROM small JOIN t USING (c1)";
    // A merge join ends with the shorter side.
    let merged = explain(&server.url(), query).await;
    let index = of(&merged, Method::Index)[0];
    assert!(index.stops_early && index.rows > 40_000.0 && index.rows < 200_000.0, "{index:?}");
    server.psql(
        "ALTER ROLE postgres SET enable_mergejoin = off; ALTER ROLE postgres SET enable_hashjoin = off",
    );
    let report = explain(&server.url(), query).await;
    server.psql("ALTER ROLE postgres RESET ALL");
    for method in [Method::Index, Method::Bitmap] {
        let scan = of(&report, method)[0];
        assert!((scan.rows - 40_000.0).abs() < 0.5, "{scan:?}");
        assert!((scan.rows_estimated / scan.rows - 1.0).abs() < 0.3, "{scan:?}");
        assert_eq!((scan.heap_pages, scan.heap_pages_estimated), (None, None), "{scan:?}");
    }

    // BRIN is had by raised costs of other indexes: what those cost elsewhere in the plan is no cost.
    let query =
        "SELECT count(pad) FROM wide JOIN t USING (id) WHERE wide.id < 5 AND ts BETWEEN 1000 AND 1002";
    let report = explain(&server.url(), query).await;
    let brin = of(&report, Method::Brin)[0];
    assert!(brin.total_cost.is_none_or(|cost| cost < 100_000.0), "{brin:?}");
    assert!(brin.scan_cost.is_some_and(|cost| cost < 100_000.0), "{brin:?}");
    // With bitmap scans off, the other table is read in another way, too.
    let (own, sequential) =
        (report.scans.iter().find(|scan| scan.planners), of(&report, Method::Sequential)[0]);
    assert!(!own.expect("the planner's own").rest_differs && sequential.rest_differs, "{sequential:?}");
}

#[tokio::test]
async fn in_a_loop_on_15() {
    in_a_loop(15).await;
}

#[tokio::test]
async fn in_a_loop_on_18() {
    in_a_loop(18).await;
}

/// With parallel workers the figures are those of all of them, or none.
async fn shared_out(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    for setting in [
        "parallel_setup_cost = 0",
        "parallel_tuple_cost = 0",
        "min_parallel_table_scan_size = 0",
        "min_parallel_index_scan_size = 0",
        "max_parallel_workers_per_gather = 2",
    ] {
        server.psql(&format!("ALTER ROLE postgres SET {setting}"));
    }
    let query = "SELECT count(pad) FROM t WHERE c1 < 40";
    let alone = explain(&server.url(), query).await;
    let parallel = explain_with(&server.url(), &Options { parallel: true, ..options(query) }, false)
        .await
        .expect("a report");
    for method in [Method::Sequential, Method::Bitmap] {
        let (one, many) = (of(&alone, method)[0], of(&parallel, method)[0]);
        assert!(one.workers == 0 && many.workers > 0, "{many:?}");
        assert!((one.rows - many.rows).abs() < 3.0, "{} {}", one.rows, many.rows);
        assert!((many.rows_estimated / one.rows_estimated - 1.0).abs() < 0.01, "{one:?} {many:?}");
    }
    let (one, many) = (of(&alone, Method::Bitmap)[0], of(&parallel, Method::Bitmap)[0]);
    if version >= 18 {
        assert_eq!((many.exact_pages, many.lossy_pages), (one.exact_pages, one.lossy_pages), "{many:?}");
        assert_eq!(many.heap_pages, one.heap_pages);
    } else {
        // There the leader tells its own only.
        assert_eq!((many.exact_pages, many.lossy_pages, many.heap_pages), (None, None, None), "{many:?}");
    }
    assert!(parallel.verdict.reasons.iter().all(|reason| reason.about != "rows"), "{:?}", parallel.verdict);
}

#[tokio::test]
async fn shared_out_on_15() {
    shared_out(15).await;
}

#[tokio::test]
async fn shared_out_on_18() {
    shared_out(18).await;
}
