//! Windows go away: by age, by size, by want of room; and whatever happens in between.

use super::{HOUR, Place, Stop, alone, calls, laned, on_this_thread, open, span};
use inrush_sink::connect::Connected;
use inrush_testkit::require_server;
use inrush_windows::{Create, Options, Place as Where, Windowed, ensure, maintain};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

const PENDING: &str = "SELECT count(*) FROM pg_inherits WHERE inhdetachpending";
const STATES: &str = "SELECT coalesce(string_agg(DISTINCT state, ','), '') FROM inrush_ledger.windows";

/// A table kept for three hours, with rows in the last three windows and in this one.
async fn with_past(place: &mut Place, spec: &Create) -> (Windowed, SystemTime) {
    let made = place.create(spec).await.table;
    let now = SystemTime::now();
    for hours in [0, 1, 2, 3] {
        let at = now - hours * HOUR;
        ensure(&mut place.session.client, &place.ledger, made.relid, made.instant(at))
            .await
            .unwrap()
            .unwrap();
        place.insert(at, 50);
    }
    (place.read(made.relid).await, now)
}

fn kept_3h() -> Create {
    Create { keep: Some(span("3h")), ahead: 1, ..calls() }
}

#[tokio::test]
async fn by_age_and_never_to_come_back() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        for spec in [kept_3h(), Create { lanes: 3, key_column: Some("device".into()), ..kept_3h() }] {
            let mut place = Place::new(version).await;
            let (table, now) = with_past(&mut place, &spec).await;
            assert_eq!(table.windows.len(), 5);
            // The first has ended three hours ago at the end of this hour.
            let later = now + 2 * HOUR;
            let did = place.maintain(table.relid, later).await;
            let gone: Vec<i64> = did.retired.iter().map(|one| one.window.start).collect();
            assert_eq!(gone, [table.windows[0].start, table.windows[1].start], "{did:?}");
            assert!(did.retired.iter().all(|one| one.gone && one.why == "age" && one.bytes > 0), "{did:?}");
            assert_eq!(place.psql("SELECT count(*) FROM calls"), "100");
            let left = place.read(table.relid).await;
            assert_eq!(left.retired_to, Some(table.windows[1].end));
            assert_eq!(place.psql(STATES), "closed,open");
            // Nothing of it is left in the schema: the parent, windows, leaves.
            let per_window = if spec.lanes == 1 { 1 } else { 4 };
            assert_eq!(place.tables(), (1 + per_window * left.windows.len()).to_string());
            let old = table.windows[0].start;
            assert_eq!(left.place(old, left.instant(later)), Where::Late);
            // Not even by the clock of that time.
            assert_eq!(left.place(old, left.instant(now)), Where::Late);
            assert_eq!(
                ensure(&mut place.session.client, &place.ledger, table.relid, old).await.unwrap(),
                None
            );
            let did = place.maintain(table.relid, now).await;
            assert!(did.made.is_empty() && did.retired.is_empty(), "{did:?}");
        }
    }
}

#[tokio::test]
async fn by_size_the_oldest_go_and_never_the_one_that_is_written() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &Create { keep: None, ..kept_3h() }).await;
    let sizes = inrush_windows::sizes(&place.session.client, &table).await.unwrap();
    let all: i64 = sizes.iter().map(|size| size.bytes).sum();
    let limit = |bytes: i64| format!("UPDATE inrush_ledger.windowed SET max_size = {bytes}");
    place.psql(&limit(all - 1));
    let did = place.maintain(table.relid, now).await;
    assert_eq!(did.retired.len(), 1, "{did:?}");
    assert_eq!((did.retired[0].window.start, did.retired[0].why), (table.windows[0].start, "size"));
    place.psql(&limit(1));
    let did = place.maintain(table.relid, now).await;
    assert_eq!(did.retired.len(), 2, "{did:?}");
    assert_eq!(place.psql("SELECT count(*) FROM calls"), "50", "those of this hour");
    assert_eq!(place.read(table.relid).await.windows.len(), 2);
    assert_eq!(place.maintain(table.relid, now).await.retired.len(), 0);
}

#[tokio::test]
async fn by_free_space_where_that_can_be_looked_at() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &Create { min_free: Some(1), ..kept_3h() }).await;
    assert!(place.maintain(table.relid, now).await.retired.is_empty());
    place.psql("UPDATE inrush_ledger.windowed SET min_free = 9000000000000000000");
    let did = place.maintain(table.relid, now).await;
    assert_eq!(did.retired.iter().filter(|one| one.why == "space" && one.gone).count(), 3, "{did:?}");
    assert_eq!(place.psql("SELECT count(*) FROM calls"), "50");
    // Through the network nobody knows where the directories are.
    let mut remote = open(&place.database.tcp_url_via(place.database.server().port())).await;
    let did =
        maintain(&mut remote.client, &place.ledger, table.relid, now, &Options::default()).await.unwrap();
    assert!(did.notes[0].contains("another machine"), "{did:?}");
    let spec = Create {
        min_free: Some(1),
        name: inrush_sink::catalog::TableName { schema: None, name: "b".into() },
        ..calls()
    };
    let error = inrush_windows::create(&mut remote.client, &place.ledger, &spec).await.unwrap_err();
    assert!(error.hint_text().unwrap().contains("--max-size"), "{error}");
}

#[tokio::test]
async fn a_pass_that_dies_anywhere_is_finished_by_the_next() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) =
        with_past(&mut place, &Create { lanes: 2, key_column: Some("device".into()), ..kept_3h() }).await;
    let mut seen = std::collections::BTreeSet::new();
    for steps in 0..14 {
        let later = now + (steps + 1) * HOUR;
        // Each hour one window goes, one is made, one is closed.
        let options = Options { steps: Some(steps), ..Options::default() };
        place.maintain_with(table.relid, later, &options).await;
        seen.insert(format!("{} {}", place.psql(STATES), place.partitions()));
        // The session of the dead, and its lock, are gone.
        place.session = open(&place.database.url()).await;
        place.maintain(table.relid, later).await;
        let left = place.read(table.relid).await;
        assert_eq!(left.windows.len(), 5.min(left.windows.len()), "{left:?}");
        assert_eq!(place.psql(PENDING), "0");
        assert!(!place.psql(STATES).contains("retiring"), "after {steps} steps");
        let recorded = place.psql("SELECT count(DISTINCT start) FROM inrush_ledger.windows");
        assert_eq!(place.partitions(), recorded, "after {steps} steps");
        // Parent, windows, two leaves each: no leftovers.
        assert_eq!(place.tables(), (1 + 3 * left.windows.len()).to_string(), "after {steps} steps");
        let hour = left.instant(later);
        assert!(left.window_of(hour).is_some() && left.windows[0].end + left.policy.keep.unwrap() > hour);
    }
    assert!(seen.iter().any(|state| state.contains("retiring")), "it never died while retiring: {seen:?}");
}

/// A transaction that stays open.
async fn held(place: &Place, sql: &str) -> Connected {
    let other = open(&place.database.url()).await;
    other.client.batch_execute(&format!("BEGIN; {sql}")).await.unwrap();
    other
}

fn hasty() -> Options {
    let short = Duration::from_millis(300);
    Options { gentle_timeout: short, patience: short, ..Options::default() }
}

#[tokio::test]
async fn a_detach_that_was_interrupted_is_finalized() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let mut place = Place::new(version).await;
        let (table, now) = with_past(&mut place, &kept_3h()).await;
        let later = now + HOUR;
        // It has seen the parent and this hour, and nothing of what goes.
        let reader = held(&place, "SELECT * FROM calls WHERE at >= now()").await;
        let did = place.maintain_with(table.relid, later, &hasty()).await;
        assert!(did.waits.iter().any(|wait| wait.what.starts_with("detach") && !wait.done), "{did:?}");
        assert!(did.retired.iter().all(|one| !one.gone));
        assert_eq!(place.psql(PENDING), "1");
        // Emptied already, and no row goes there.
        assert_eq!(place.psql("SELECT count(*) FROM calls"), "150");
        assert!(place.read(table.relid).await.window_of(table.windows[0].start).is_none());
        // Windows are made all the same.
        assert_eq!(place.maintain_with(table.relid, later + HOUR, &hasty()).await.made.len(), 1);
        reader.client.batch_execute("COMMIT").await.unwrap();
        let did = place.maintain(table.relid, later).await;
        assert!(did.retired.iter().all(|one| one.gone && one.why == "left"), "{did:?}");
        assert_eq!(place.psql(PENDING), "0");
        assert_eq!(place.psql(STATES), "closed,open");
    }
}

/// Watches whether anybody holds or wants AccessExclusive on the parent, and writes through it all the time; gives the
/// longest statement and whether the lock was seen.
fn watched(place: &Place, stop: &AtomicBool) -> (Duration, bool) {
    on_this_thread(async {
        let writer = open(&place.database.url()).await;
        let mut longest = Duration::ZERO;
        let mut seen = false;
        let locks = "SELECT count(*) FROM pg_locks WHERE relation = 'calls'::regclass AND mode = 'AccessExclusiveLock'";
        while !stop.load(Ordering::Relaxed) {
            let began = Instant::now();
            writer.client.batch_execute("INSERT INTO calls VALUES (now(), 1, 'x')").await.unwrap();
            longest = longest.max(began.elapsed());
            let row = writer.client.query_one(locks, &[]).await.unwrap();
            seen |= row.get::<_, i64>(0) > 0;
        }
        (longest, seen)
    })
}

#[tokio::test]
async fn a_reader_that_stays_holds_up_no_writer() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &kept_3h()).await;
    let watcher = Place {
        session: open(&place.database.url()).await,
        database: place.database,
        ledger: place.ledger.clone(),
    };
    let stop = AtomicBool::new(false);
    let (did, longest, seen) = std::thread::scope(|scope| {
        let at_work = scope.spawn(|| watched(&watcher, &stop));
        let stopping = Stop(&stop);
        let did = alone(async {
            // Every leaf is locked by this one: the old cannot be emptied.
            let reader = held(&watcher, "SELECT count(*) FROM calls").await;
            let mut session = open(&watcher.database.url()).await;
            let options = Options {
                gentle_timeout: Duration::from_secs(1),
                patience: Duration::from_secs(2),
                ..Options::default()
            };
            let did = maintain(&mut session.client, &watcher.ledger, table.relid, now + HOUR, &options)
                .await
                .unwrap();
            reader.client.batch_execute("COMMIT").await.unwrap();
            let rest = maintain(&mut session.client, &watcher.ledger, table.relid, now + HOUR, &options)
                .await
                .unwrap();
            assert!(rest.retired.iter().all(|one| one.gone), "{rest:?}");
            did
        });
        drop(stopping);
        let (longest, seen) = at_work.join().unwrap();
        (did, longest, seen)
    });
    eprintln!("longest INSERT beside a reader that stays: {longest:?}");
    assert_eq!(did.made.len(), 1, "windows are made all the same: {did:?}");
    let wait = did.waits.iter().find(|wait| wait.what.starts_with("truncate")).unwrap();
    assert!(!wait.done && wait.tries > 1 && wait.longest_try_ms < 200.0, "{wait:?}");
    assert!(!seen, "AccessExclusive on the parent");
    assert!(longest < Duration::from_millis(100), "{longest:?}");
}

#[tokio::test]
async fn two_maintainers_do_what_one_would() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &kept_3h()).await;
    let mut other = open(&place.database.url()).await;
    let later = now + 2 * HOUR;
    let options = Options::default();
    let (one, two) = tokio::join!(
        maintain(&mut place.session.client, &place.ledger, table.relid, later, &options),
        maintain(&mut other.client, &place.ledger, table.relid, later, &options)
    );
    let (one, two) = (one.unwrap(), two.unwrap());
    assert!(one.busy != two.busy, "{one:?} {two:?}");
    let worked = if one.busy { two } else { one };
    assert_eq!((worked.retired.len(), worked.made.len()), (2, 2), "{worked:?}");
    // The lock is given back, and so is the session's setting.
    assert!(!maintain(&mut other.client, &place.ledger, table.relid, later, &options).await.unwrap().busy);
    assert_eq!(other.client.query_one("SHOW lock_timeout", &[]).await.unwrap().get::<_, String>(0), "0");
}

#[tokio::test]
async fn what_others_drop_is_forgotten() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &laned(2)).await;
    let past = place.psql(&format!(
        "SELECT DISTINCT top_name FROM inrush_ledger.windows WHERE start = {}",
        table.windows[0].start
    ));
    place.psql(&format!("DROP TABLE {past}"));
    let did = place.maintain(table.relid, now).await;
    assert!(did.notes[0].contains("dropped, detached or renamed"), "{did:?}");
    assert_eq!(place.read(table.relid).await.windows.len(), table.windows.len() - 1);
    place.psql("DROP TABLE calls CASCADE");
    assert!(place.maintain(table.relid, now).await.forgotten);
    assert_eq!(place.psql("SELECT (SELECT count(*) FROM inrush_ledger.windowed) + (SELECT count(*) FROM inrush_ledger.windows)"), "0");
    assert!(!place.maintain(table.relid, now).await.forgotten);
}

#[tokio::test]
async fn what_somebody_else_has_detached_is_theirs() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let (table, now) = with_past(&mut place, &kept_3h()).await;
    let (kept, renamed) = (&table.windows[0].leaves[0].name, &table.windows[1].leaves[0].name);
    for name in [kept, renamed] {
        place.psql(&format!("ALTER TABLE calls DETACH PARTITION {name}"));
    }
    place.psql(&format!("ALTER TABLE {renamed} RENAME TO mine"));
    let did = place.maintain(table.relid, now + 5 * HOUR).await;
    assert_eq!((did.notes.len(), did.retired.len()), (2, 3), "{did:?}");
    place.maintain(table.relid, now + 6 * HOUR).await;
    assert_eq!(
        place.psql(&format!("SELECT (SELECT count(*) FROM mine) + (SELECT count(*) FROM {kept})")),
        "100"
    );
}
