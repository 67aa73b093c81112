//! What others do to a windowed table: rename, drop, own, refer to it, add columns.

use super::{HOUR, Place, calls, laned, open};
use inrush_sink::catalog::TableName;
use inrush_testkit::require_server;
use inrush_windows::{Body, Create, Late, Options, maintain, widen_overflow};
use std::time::SystemTime;

#[tokio::test]
async fn leaves_are_the_owners_whoever_makes_them() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let mut place = Place::new(version).await;
        let role = format!("owner_{}", std::process::id());
        let table = place.create(&laned(2)).await.table;
        place.psql(&format!(
            "CREATE ROLE {role}; GRANT CREATE, USAGE ON SCHEMA public TO {role};
             DO $$ DECLARE t regclass; BEGIN
               FOR t IN SELECT 'calls'::regclass UNION ALL SELECT relid FROM pg_partition_tree('calls') LOOP
                 EXECUTE format('ALTER TABLE %s OWNER TO {role}', t);
               END LOOP; END $$"
        ));
        let did = place.maintain(table.relid, SystemTime::now() + 2 * HOUR).await;
        assert_eq!(did.made.len(), 2, "{did:?}");
        let strangers = format!(
            "SELECT count(*) FROM pg_partition_tree('calls') JOIN pg_class ON oid = relid
              WHERE pg_get_userbyid(relowner) <> '{role}'"
        );
        assert_eq!(place.psql(&strangers), "0", "{version}");
        assert_eq!(
            place
                .session
                .client
                .query_one("SELECT current_user::text", &[])
                .await
                .unwrap()
                .get::<_, String>(0),
            "postgres"
        );
        // And without what it needs for them the pass says so; what there is stays as it is.
        place.psql(&format!("REVOKE CREATE ON SCHEMA public FROM {role}, public"));
        let later = SystemTime::now() + 4 * HOUR;
        let options = Options::default();
        let error = maintain(&mut place.session.client, &place.ledger, table.relid, later, &options)
            .await
            .unwrap_err();
        assert!(error.hint_text().is_some_and(|hint| hint.contains("needs CREATE on its schema")), "{error}");
        place.psql(&format!("DROP TABLE calls CASCADE; DROP OWNED BY {role}; DROP ROLE {role}"));
    }
}

#[tokio::test]
async fn columns_may_be_renamed() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let table = place.create(&laned(2)).await.table;
    place.psql("ALTER TABLE calls RENAME at TO ts; ALTER TABLE calls RENAME device TO \"Key\"");
    let now = place.read(table.relid).await;
    assert_eq!((now.time_column.as_str(), now.policy.key_column.as_deref()), ("ts", Some("Key")));
    let did = place.maintain(table.relid, SystemTime::now() + HOUR).await;
    assert_eq!((did.made.len(), did.table.as_str()), (1, "public.calls"), "{did:?}");
    // The table, too: what is known of it is known by its number.
    place.psql("ALTER TABLE calls RENAME TO talks");
    let table = place.read(table.relid).await;
    place.psql(&format!(
        "INSERT INTO inrush_ledger.progress (relid, source, lane, up_to, rows) VALUES ({}, 's', 0, 0, 1)",
        table.relid
    ));
    let complete = inrush_windows::complete(&place.session.client, &place.ledger, &table).await.unwrap();
    assert_eq!(complete.len(), 1);
}

#[tokio::test]
async fn what_somebody_else_has_renamed_is_left_alone_and_told() {
    require_server!(15);
    for lanes in [1, 2] {
        let mut place = Place::new(15).await;
        let spec = if lanes == 1 { calls() } else { laned(lanes) };
        let table = place.create(&spec).await.table;
        let leaf = &table.windows[1].leaves[0].name;
        place.psql(&format!("ALTER TABLE {leaf} RENAME TO mine"));
        let did = place.maintain(table.relid, SystemTime::now() + HOUR).await;
        assert!(did.notes.len() == 1 && did.notes[0].contains("left alone"), "{did:?}");
        assert_eq!(did.made.len(), 1, "the others are made: {did:?}");
        let left = place.read(table.relid).await;
        assert!(left.window_of(table.windows[1].start).is_none());
        // Nor is it made a second time when a row comes for it.
        let start = table.windows[1].start;
        let made = inrush_windows::ensure(&mut place.session.client, &place.ledger, table.relid, start).await;
        assert_eq!(made.unwrap(), None);
        let did = place.maintain(table.relid, SystemTime::now() + 100 * HOUR).await;
        assert_eq!(place.psql("SELECT count(*) FROM mine"), "0", "{did:?}");
    }
}

#[tokio::test]
async fn windows_go_where_others_cannot_be_made() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let table = place.create(&Create { keep: Some(super::span("3h")), ..calls() }).await.table;
    let now = SystemTime::now();
    place.insert(now, 10);
    place.psql("CREATE TABLE odd PARTITION OF calls DEFAULT");
    let options = Options::default();
    let later = now + 6 * HOUR;
    let error =
        maintain(&mut place.session.client, &place.ledger, table.relid, later, &options).await.unwrap_err();
    assert!(error.fact().contains("default partition"), "{error}");
    assert!(place.read(table.relid).await.windows.iter().all(|window| window.start > table.windows[0].start));
}

/// TRUNCATE is refused there; a row that is referred to keeps its window.
#[tokio::test]
async fn foreign_keys_to_and_from_a_table_are_no_hindrance() {
    require_server!(15);
    let mut place = Place::new(15).await;
    place.psql("CREATE TABLE devices (device int PRIMARY KEY); INSERT INTO devices VALUES (1)");
    let spec = Create {
        body: Body::Columns(
            "at timestamptz NOT NULL, device int REFERENCES devices, info text, PRIMARY KEY (at, device)"
                .into(),
        ),
        keep: Some(super::span("3h")),
        ..calls()
    };
    let table = place.create(&spec).await.table;
    place.psql("CREATE TABLE notes (at timestamptz, device int, FOREIGN KEY (at, device) REFERENCES calls)");
    let now = SystemTime::now();
    place.insert(now, 1);
    let did = place.maintain(table.relid, now + 6 * HOUR).await;
    assert!(did.notes.iter().any(|note| note.contains("cannot truncate")), "{did:?}");
    assert!(did.retired[0].gone, "{did:?}");
    assert!(!did.made.is_empty());
}

#[tokio::test]
async fn the_table_for_late_rows_gets_the_columns_of_the_parent() {
    require_server!(15);
    require_server!(18);
    for version in [15, 18] {
        let mut place = Place::new(version).await;
        let spec = Create {
            body: Body::Columns(
                "at timestamptz NOT NULL, device int, info text, id int GENERATED ALWAYS AS IDENTITY".into(),
            ),
            late: Late::Overflow,
            ..calls()
        };
        let table = place.create(&spec).await.table;
        place.psql("INSERT INTO calls VALUES (now(), 1, ''); INSERT INTO calls_late VALUES (now(), 1, '')");
        assert_eq!(
            place.psql(
                "SELECT count(DISTINCT id) FROM (SELECT id FROM calls UNION ALL SELECT id FROM calls_late) x"
            ),
            "2"
        );
        place.psql("ALTER TABLE calls ADD COLUMN extra numeric(9,3), ADD COLUMN \"Odd one\" text[]");
        place.maintain(table.relid, SystemTime::now()).await;
        place.psql("ALTER TABLE calls ADD COLUMN last int");
        widen_overflow(&mut place.session.client, &table, HOUR).await.unwrap();
        let columns =
            "SELECT string_agg(attname || ' ' || format_type(atttypid, atttypmod), ',' ORDER BY attnum)
                         FROM pg_attribute WHERE attnum > 0 AND attrelid = 'calls'::regclass";
        assert_eq!(place.psql(columns), place.psql(&columns.replace("'calls'", "'calls_late'")));
    }
}

#[tokio::test]
async fn the_statement_of_a_file_says_where_the_table_is() {
    require_server!(15);
    let mut place = Place::new(15).await;
    place.psql("CREATE SCHEMA metrics; CREATE TABLE calls (at timestamptz, x int)");
    let body = "-- dumped\nCREATE TABLE metrics.calls (at timestamptz NOT NULL, -- partition by what?\n x int /* ; */ DEFAULT 1);\n-- end\n";
    let spec =
        Create { body: Body::Statement(body.into()), storage: vec![("x".into(), "plain".into())], ..calls() };
    let made = place.create(&spec).await;
    assert_eq!(made.table.name, TableName { schema: Some("metrics".into()), name: "calls".into() });
    assert_eq!(place.psql("SELECT count(*) FROM pg_index WHERE indrelid = 'public.calls'::regclass"), "0");
    assert_eq!(place.psql("SELECT count(*) FROM pg_index WHERE indrelid = 'metrics.calls'::regclass"), "1");
    let again = Create {
        body: Body::Statement("CREATE TABLE IF NOT EXISTS calls (at timestamptz)".into()),
        ..calls()
    };
    let error = inrush_windows::create(&mut place.session.client, &place.ledger, &again).await.unwrap_err();
    assert!(error.hint_text().unwrap().contains("IF NOT EXISTS"), "{error}");
}

/// A window that goes for one tablespace gives back room in the others.
#[tokio::test]
async fn one_window_goes_where_one_will_do() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let dirs = tempfile::tempdir().unwrap();
    let user = inrush_testkit::ServerUser::get();
    user.own(dirs.path()).unwrap();
    let names: Vec<String> = (0..2).map(|i| format!("sizes_{}_{i}", std::process::id())).collect();
    for name in &names {
        let dir = dirs.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        user.own(&dir).unwrap();
        place.psql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", dir.display()));
    }
    let spec = Create {
        keep: None,
        max_size: Some(1 << 30),
        tablespaces: names.clone(),
        index: inrush_windows::IndexKind::None,
        ..laned(2)
    };
    let table = place.create(&spec).await.table;
    let now = SystemTime::now();
    for past in 1..4 {
        let at = now - past * HOUR;
        let start = table.instant(at);
        inrush_windows::ensure(&mut place.session.client, &place.ledger, table.relid, start).await.unwrap();
        place.insert(at, 20_000);
    }
    let table = place.read(table.relid).await;
    let sizes = inrush_windows::sizes(&place.session.client, &table).await.unwrap();
    let taken = |name: &str| sizes.iter().filter(|s| s.tablespace == name).map(|s| s.bytes).sum::<i64>();
    let limit = taken(&names[0]).min(taken(&names[1])) - 8192;
    place.psql(&format!("UPDATE inrush_ledger.windowed SET max_size = {limit}"));
    let did = place.maintain(table.relid, now).await;
    assert_eq!(did.retired.len(), 1, "{did:?}");
    let mut other = open(&place.database.url()).await;
    let options = Options::default();
    let did = maintain(&mut other.client, &place.ledger, table.relid, None, &options).await.unwrap();
    assert!(did.retired.is_empty(), "{did:?}");
    place.psql("DROP TABLE calls CASCADE");
    for name in &names {
        place.psql(&format!("DROP TABLESPACE {name}"));
    }
}
