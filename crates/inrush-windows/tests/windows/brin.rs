//! BRIN: what is summarized, and what is not.

use super::{HOUR, Place, calls, open};
use inrush_testkit::require_server;
use inrush_windows::{Create, IndexKind, Options, Windowed, ensure};
use std::time::{Duration, SystemTime};

impl Place {
    /// Ranges of a leaf that have a summary, and blocks of the leaf.
    fn summarized(&self, leaf: u32) -> (u32, u32) {
        let index = self.psql(&format!(
            "SELECT indexrelid::regclass FROM pg_index WHERE indrelid = {leaf} AND indisvalid"
        ));
        let ranges = self.psql(&format!(
            "SELECT count(*) FROM brin_revmap_data(get_raw_page('{index}', 1)) t WHERE t::text !~ ',0\\)$'"
        ));
        let blocks = self.psql(&format!("SELECT pg_relation_size({leaf}) / 8192"));
        (ranges.parse().unwrap(), blocks.parse().unwrap())
    }

    fn fill(&self, at: SystemTime, megabytes: u32) {
        let seconds = at.duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs();
        self.psql(&format!(
            "INSERT INTO calls SELECT to_timestamp({seconds}), g, repeat('x', 950) FROM generate_series(1, {megabytes} * 1024) g"
        ));
    }
}

async fn with_inspection(version: u32, spec: &Create) -> (Place, Windowed) {
    let mut place = Place::new(version).await;
    place.psql("CREATE EXTENSION pageinspect SCHEMA pg_catalog");
    let table = place.create(spec).await.table;
    (place, table)
}

#[tokio::test]
async fn ranges_behind_the_head_are_summarized_and_the_head_is_not() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let (mut place, table) = with_inspection(version, &calls()).await;
        let now = SystemTime::now();
        let leaf = table.window_of(table.instant(now)).unwrap().leaves[0].relid;
        assert_eq!(place.summarized(leaf).0, 0, "range 0 of a new index");
        place.fill(now, 4);
        assert_eq!(place.maintain(table.relid, now).await.summarized, 0);
        place.fill(now, 20);
        let (before, blocks) = place.summarized(leaf);
        assert_eq!(before, 0);
        let did = place.maintain(table.relid, now).await;
        let behind = (blocks - 1024) / 128;
        assert!(behind >= 15, "{blocks}");
        assert_eq!((did.summarized, place.summarized(leaf).0), (u64::from(behind), behind));
        // Again: nothing to do.
        assert_eq!(place.maintain(table.relid, now).await.summarized, 0);
        // Emptied and filled again: nothing of that is summarized, though as many blocks were before.
        place.psql("TRUNCATE calls");
        place.fill(now, 24);
        // But for range 0, which an index has that is made of an empty table.
        let (left, again) = place.summarized(leaf);
        assert!(left <= 1 && again == blocks, "{left} {again}");
        let did = place.maintain(table.relid, now).await;
        assert_eq!((did.summarized, place.summarized(leaf).0), (u64::from(behind - left), behind));
        // Its hour has passed: all of it, the last range in part.
        let did = place.maintain(table.relid, now + 2 * HOUR).await;
        assert_eq!(place.summarized(leaf), (blocks.div_ceil(128), blocks));
        assert!(did.closed.iter().any(|window| window.start <= table.instant(now)), "{did:?}");
        // Late rows still go there, and are summarized.
        place.fill(now, 2);
        let (_, blocks) = place.summarized(leaf);
        let did = place.maintain(table.relid, now + 2 * HOUR).await;
        assert!(did.closed.is_empty() && did.summarized > 0, "{did:?}");
        assert_eq!(place.summarized(leaf).0, blocks.div_ceil(128));
        assert_eq!(place.maintain(table.relid, now + 2 * HOUR).await.summarized, 0);
    }
}

#[tokio::test]
async fn a_window_is_closed_a_while_after_its_end() {
    require_server!(15);
    let (mut place, table) = with_inspection(15, &calls()).await;
    let now = SystemTime::now();
    let window = table.window_of(table.instant(now)).unwrap();
    let to_end = Duration::from_micros((window.end - table.instant(now)).unsigned_abs());
    assert!(place.maintain(table.relid, now + to_end + Duration::from_secs(59)).await.closed.is_empty());
    assert_eq!(place.maintain(table.relid, now + to_end + Duration::from_secs(61)).await.closed.len(), 1);
}

#[tokio::test]
async fn an_index_at_close_is_built_late_and_again_after_a_failure() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let spec = Create { index: IndexKind::BrinAtClose, pages_per_range: 16, keep: None, ..calls() };
        let (mut place, table) = with_inspection(version, &spec).await;
        let now = SystemTime::now();
        let leaf = table.window_of(table.instant(now)).unwrap().leaves[0].relid;
        let indexes = format!(
            "SELECT count(*), count(*) FILTER (WHERE indisvalid) FROM pg_index WHERE indrelid = {leaf}"
        );
        place.fill(now, 2);
        place.maintain(table.relid, now).await;
        assert_eq!(place.psql(&indexes), "0|0");
        // A transaction that has seen the rows keeps the build from ending.
        let reader = open(&place.database.url()).await;
        reader
            .client
            .batch_execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM calls")
            .await
            .unwrap();
        let hasty = Options { index_timeout: Duration::from_millis(300), ..Options::default() };
        let did = place.maintain_with(table.relid, now + 2 * HOUR, &hasty).await;
        assert!(did.closed.iter().all(|window| window.start > table.instant(now)), "{did:?}");
        assert_eq!(place.psql(&indexes), "1|0");
        // Rows come in all the same.
        place.fill(now, 1);
        reader.client.batch_execute("COMMIT").await.unwrap();
        let did = place.maintain(table.relid, now + 2 * HOUR).await;
        assert!(!did.closed.is_empty(), "{did:?}");
        assert_eq!(place.psql(&indexes), "1|1");
        let (ranges, blocks) = place.summarized(leaf);
        assert_eq!(ranges, blocks.div_ceil(16));
    }
}

#[tokio::test]
async fn no_index_is_no_index() {
    require_server!(15);
    let (mut place, table) = with_inspection(15, &Create { index: IndexKind::None, ..calls() }).await;
    let now = SystemTime::now();
    place.fill(now, 1);
    let past = table.instant(now - 3 * HOUR);
    ensure(&mut place.session.client, &place.ledger, table.relid, past).await.unwrap().unwrap();
    let did = place.maintain(table.relid, now + 2 * HOUR).await;
    assert!(did.closed.len() >= 2 && did.summarized == 0, "{did:?}");
    let count = "SELECT count(*) FROM pg_index WHERE indrelid::regclass::text ~ '^calls'";
    assert_eq!(place.psql(count), "0");
}
