//! Each way of scanning is forced, and seen to be what it is called.

use super::*;
use inrush_testkit::require_server;

async fn every_method(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    let report = explain(&server.url(), "SELECT count(pad) FROM t WHERE ts BETWEEN 1000 AND 60000").await;
    assert_eq!(report.version, 1);
    assert_eq!(report.table.name, "public.t");
    assert!(report.table.pages > 1000 && report.table.indexes.len() == 3);
    each(&report, &[Method::Sequential, Method::Index, Method::Brin], 59_001.0);
    let indexes = |report: &Report, method| of(report, method)[0].indexes.clone();
    assert_eq!(indexes(&report, Method::Index), ["public.t_ts"]);
    assert_eq!(indexes(&report, Method::Brin), ["public.t_brin"]);
    // A BRIN index names whole ranges, all of whose rows are looked at.
    let brin = of(&report, Method::Brin)[0];
    assert!(brin.lossy_pages > Some(0) && brin.exact_pages == Some(0) && brin.scan_cost.is_some());
    assert_eq!(brin.heap_pages, brin.lossy_pages);
    assert!(brin.index_pages > 0);
    let said = why(&report, Method::Bitmap).expect("no bitmap");
    assert!(said.contains("it makes bitmaps from the BRIN index"), "{said}");
    assert!(!report.cold.measured);
    assert_eq!(report.cold.why_not.as_deref(), Some("cold runs were not wanted"));
    assert_eq!(report.server.version_num / 10_000, version);
    assert_eq!(report.server.io_method.is_some(), version >= 18);
    // The table lies in the order of its time: that is where the estimate of bitmaps goes wrong.
    let reason = report.verdict.reasons.iter().find(|reason| reason.about == "bitmap-pages");
    assert!(reason.is_some(), "{:?} {:?}", report.verdict, report.scans);
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["scans"][0]["method"], "sequential");

    // Few rows: reading the btree is cheaper than reading the BRIN index, and BRIN has to be forced.
    let report = explain(&server.url(), "SELECT count(pad) FROM t WHERE ts BETWEEN 1000 AND 1002").await;
    each(&report, &[Method::Sequential, Method::Index, Method::Bitmap, Method::Brin], 3.0);
    assert_eq!(indexes(&report, Method::Bitmap), ["public.t_ts"]);

    let report = explain(&server.url(), "SELECT count(pad) FROM t WHERE c1 BETWEEN 10 AND 19").await;
    each(&report, &[Method::Sequential, Method::Index, Method::Bitmap], 10_000.0);
    assert_eq!(indexes(&report, Method::Bitmap), ["public.t_c1"]);
    let bitmap = of(&report, Method::Bitmap)[0];
    assert!(bitmap.exact_pages > Some(100) && bitmap.lossy_pages == Some(0));
    // What an index scan visits is what the bitmap names.
    assert_eq!(of(&report, Method::Index)[0].heap_pages, bitmap.heap_pages);
}

/// Each of the methods has been run, and had so many rows.
fn each(report: &Report, methods: &[Method], rows: f64) {
    for method in methods {
        let scans = of(report, *method);
        assert_eq!(scans.len(), 1, "{method:?}: {:?}", report.absent);
        let scan = scans[0];
        let warm =
            scan.warm.as_ref().unwrap_or_else(|| panic!("no runs of {}: {:?}", scan.label, scan.failed));
        assert_eq!(warm.runs.len(), 3);
        assert!(warm.least <= warm.seconds && warm.seconds <= warm.most && warm.spread.is_some());
        assert!((scan.rows - rows).abs() < 0.5, "{}: {}", scan.label, scan.rows);
        assert!(warm.shared_hit + warm.shared_read > 0);
        assert!(scan.cold.is_none() && scan.current && scan.scan_cost.is_some());
        assert!(scan.no_prediction.as_ref().unwrap().contains("inrush tune io"));
    }
    assert_eq!(report.scans.iter().filter(|scan| scan.planners).count(), 1);
}

#[tokio::test]
async fn every_method_on_15() {
    every_method(15).await;
}

#[tokio::test]
async fn every_method_on_16() {
    every_method(16).await;
}

#[tokio::test]
async fn every_method_on_18() {
    every_method(18).await;
}

/// A bitmap without memory is lossy; with more it is not, and gives the same rows.
async fn a_lossy_bitmap(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    server.psql("ALTER ROLE postgres SET work_mem = '64kB'");
    let report = explain(&server.url(), "SELECT count(pad) FROM t WHERE c1 < 40").await;
    let bitmaps = of(&report, Method::Bitmap);
    assert_eq!(bitmaps.len(), 2, "{:?}", report.scans);
    let (lossy, exact) = (bitmaps[0], bitmaps[1]);
    assert!(lossy.lossy_pages > Some(0) && lossy.rows_rechecked > 0 && lossy.work_mem_kb.is_none());
    assert_eq!((exact.lossy_pages, exact.rows_rechecked), (Some(0), 0));
    assert_eq!(exact.exact_pages.unwrap(), lossy.exact_pages.unwrap() + lossy.lossy_pages.unwrap());
    assert!((lossy.rows - exact.rows).abs() < 0.5 && exact.rows > 1000.0);
    let said = report.verdict.sentences.join(" ");
    assert!(said.contains("The bitmap did not fit into work_mem"), "{said}");
    assert!(said.contains(&format!("work_mem = {} kB keeps it exact", exact.work_mem_kb.unwrap())), "{said}");
    assert!(why(&report, Method::Brin).unwrap().contains("no BRIN index answers"), "{:?}", report.absent);
}

#[tokio::test]
async fn a_lossy_bitmap_on_15() {
    a_lossy_bitmap(15).await;
}

#[tokio::test]
async fn a_lossy_bitmap_on_18() {
    a_lossy_bitmap(18).await;
}

#[tokio::test]
async fn what_the_planner_does_not_have_is_said() {
    require_server!(16);
    let server = server(16);
    server.psql("CREATE TABLE bare AS SELECT i AS a FROM generate_series(1, 10000) i; ANALYZE bare");
    let report = explain(&server.url(), "SELECT * FROM bare WHERE a = 1").await;
    assert_eq!(report.scans.len(), 1);
    for method in [Method::Index, Method::Bitmap] {
        assert_eq!(why(&report, method), Some("the table has no index"));
    }
    assert_eq!(why(&report, Method::Brin), Some("the table has no BRIN index"));
    server.psql("CREATE INDEX ON bare USING brin (a)");
    let report = explain(&server.url(), "SELECT * FROM bare WHERE a = 1").await;
    assert_eq!(why(&report, Method::Bitmap), Some("the table has BRIN indexes only"));
    assert_eq!(of(&report, Method::Brin).len(), 1);

    // An index that answers another condition.
    server.psql("ALTER TABLE bare ADD b int; CREATE INDEX ON bare (b)");
    let report = explain(&server.url(), "SELECT * FROM bare WHERE a + 0 = 1").await;
    assert!(why(&report, Method::Index).unwrap().starts_with("no index answers"), "{:?}", report.absent);

    // From the index alone, once the visibility map allows.
    server.psql("CREATE INDEX ON bare (a); VACUUM ANALYZE bare");
    let report = explain(&server.url(), "SELECT a FROM bare WHERE a < 5000").await;
    let only = of(&report, Method::IndexOnly);
    assert_eq!((only.len(), only[0].heap_fetches), (1, 0), "{:?}", report.scans);
    assert_eq!(of(&report, Method::Index).len(), 1);
}

/// An option of the tablespace wins over the session's setting: the other value is run all the same.
async fn a_masked_setting(version: u32) {
    require_server!(version);
    let server = server(version);
    server.psql(TABLE);
    server.psql("ALTER TABLESPACE pg_default SET (effective_io_concurrency = 7, random_page_cost = 3)");
    let mut options = options("SELECT count(pad) FROM t WHERE c1 < 20");
    options.concurrency = Some(32);
    let report = explain_with(&server.url(), &options, false).await.expect("a report");
    assert_eq!((report.concurrency.current, report.concurrency.compared.as_slice()), (7, &[32][..]));
    let masks: Vec<(&str, &str)> =
        report.concurrency.masks.iter().map(|mask| (mask.option.as_str(), mask.value.as_str())).collect();
    assert_eq!(masks, [("effective_io_concurrency", "7"), ("random_page_cost", "3")]);
    let values: Vec<_> = of(&report, Method::Bitmap).iter().map(|scan| scan.concurrency).collect();
    assert_eq!(values, [Some(7), Some(32)]);
    // Sequential scans read ahead by it in 18.
    assert_eq!(of(&report, Method::Sequential).len(), if version >= 18 { 2 } else { 1 });
    // Nothing of that stays.
    let options_now = server.psql("SELECT spcoptions FROM pg_tablespace WHERE spcname = 'pg_default'");
    assert_eq!(options_now, "{effective_io_concurrency=7,random_page_cost=3}");

    // A role that may not alter the tablespace runs the current value only.
    server.psql("CREATE ROLE app LOGIN; GRANT SELECT ON t TO app");
    let url = server.url().replace("postgres@", "app@");
    let report = explain_with(&url, &options, false).await.expect("a report");
    assert!(report.concurrency.compared.is_empty());
    let said = report.concurrency.why_only_current.unwrap();
    assert!(said.starts_with("masked by effective_io_concurrency = 7 of tablespace pg_default"), "{said}");
    assert!(report.left_out[0].remedy.as_ref().unwrap().contains("ALTER TABLESPACE pg_default SET"));
}

#[tokio::test]
async fn a_masked_setting_on_15() {
    a_masked_setting(15).await;
}

#[tokio::test]
async fn a_masked_setting_on_18() {
    a_masked_setting(18).await;
}

/// While somebody else alters the tablespace, the other value has no time, and everything else has.
#[tokio::test]
async fn a_tablespace_that_somebody_else_alters() {
    require_server!(15);
    let server = server(15);
    server.psql(TABLE);
    server.psql("ALTER TABLESPACE pg_default SET (effective_io_concurrency = 7)");
    let info = conninfo(&server.url());
    let other = inrush_sink::connect::connect(&info, "somebody else").await.expect("a session");
    let alter = "BEGIN; ALTER TABLESPACE pg_default SET (effective_io_concurrency = 9)";
    other.client.batch_execute(alter).await.expect("altered");
    let wish =
        Options { concurrency: Some(64), runs: 1, ..options("SELECT count(pad) FROM t WHERE c1 < 20") };
    let report = explain_with(&server.url(), &wish, false).await.expect("a report");
    let (at_64, rest): (Vec<&Variant>, Vec<&Variant>) =
        report.scans.iter().partition(|scan| scan.concurrency == Some(64));
    assert!(!at_64.is_empty());
    for scan in at_64 {
        let why = scan.failed.as_ref().expect("no time");
        assert!(why.contains("another session alters tablespace pg_default"), "{why}");
    }
    assert!(rest.iter().all(|scan| scan.failed.is_none() && scan.warm.is_some()), "{rest:?}");
}
