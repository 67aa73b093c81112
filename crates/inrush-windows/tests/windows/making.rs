//! Tables and windows are made.

use super::{HOUR, Place, calls, laned, open, span};
use inrush_core::Code;
use inrush_sink::catalog::TableName;
use inrush_testkit::require_server;
use inrush_windows::{
    Body, Create, IndexKind, Late, Place as Where, TimeKind, Unit, WindowState, ensure, find, locks, read_all,
};
use std::time::SystemTime;

const VERSIONS: [u32; 2] = [15, 18];

#[tokio::test]
async fn plain_sql_sees_an_ordinary_partitioned_table() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        let mut place = Place::new(version).await;
        let made = place.create(&calls()).await;
        assert!(made.unfinished.is_none(), "{:?}", made.unfinished);
        assert_eq!(made.table.windows.len(), 3);
        assert_eq!(made.view, "public.calls_complete");
        let now = SystemTime::now();
        place.insert(now, 10);
        place.insert(now + HOUR, 5);
        assert_eq!(place.psql("SELECT count(*) FROM calls"), "15");
        let leaf = &made.table.window_of(made.table.instant(now)).unwrap().leaves[0];
        assert_eq!(place.psql(&format!("SELECT count(*) FROM {}", leaf.qualified())), "10");
        let left =
            "SELECT count(*) FROM pg_constraint WHERE contype = 'c' AND conrelid::regclass::text ~ '^calls'";
        assert_eq!(place.psql(left), "0");
        assert_eq!(
            place.psql("SELECT count(*) FROM pg_class WHERE relkind = 'i' AND relname ~ '^calls'"),
            "3"
        );
        let found = find(&place.session.client, &place.ledger, &calls().name).await.unwrap().unwrap();
        assert_eq!(found, place.read(made.table.relid).await);
        assert_eq!(read_all(&place.session.client, &place.ledger).await.unwrap(), [found]);
    }
}

#[tokio::test]
async fn the_servers_hash_finds_the_lane() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        let mut place = Place::new(version).await;
        let spec = Create {
            body: Body::Columns(
                "at timestamptz NOT NULL, device int, info text, PRIMARY KEY (at, device)".into(),
            ),
            ..laned(4)
        };
        let made = place.create(&spec).await;
        let now = SystemTime::now();
        place.insert(now, 400);
        let window = made.table.window_of(made.table.instant(now)).unwrap();
        assert_eq!(window.leaves.len(), 4);
        let mut total = 0;
        for (i, leaf) in window.leaves.iter().enumerate() {
            assert_eq!(leaf.lane as usize, i);
            let rows = place.psql(&format!("SELECT count(*) FROM {}", leaf.qualified()));
            // Through the partition of the parent: what the server computes for the window.
            let top = format!("(SELECT inhparent FROM pg_inherits WHERE inhrelid = {})", leaf.relid);
            let hashed =
                format!("SELECT count(*) FROM calls WHERE satisfies_hash_partition({top}, 4, {i}, device)");
            assert_eq!(rows, place.psql(&hashed));
            total += rows.parse::<u32>().unwrap();
        }
        assert_eq!(total, 400);
        assert!(
            place.database.try_psql("INSERT INTO calls SELECT at, device, '' FROM calls LIMIT 1").is_err()
        );
    }
}

/// Rows that go straight into a leaf are numbered as those that come through the parent. Before 17, partitions have no
/// part in its identity.
#[tokio::test]
async fn identity_numbers_rows_in_leaves() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        for (of, lanes) in [("ALWAYS", 1), ("BY DEFAULT", 2)] {
            let mut place = Place::new(version).await;
            let columns =
                format!("at timestamptz NOT NULL, device int, id bigint GENERATED {of} AS IDENTITY");
            let spec = match lanes {
                1 => Create { body: Body::Columns(columns), ..calls() },
                _ => Create { body: Body::Columns(columns), ..laned(lanes) },
            };
            let made = place.create(&spec).await.table;
            let window = made.window_of(made.instant(SystemTime::now())).unwrap();
            for leaf in &window.leaves {
                // A row that is that lane's: the one device of the first hundred that is taken.
                place.psql(&format!(
                    "DO $$ BEGIN FOR d IN 1..100 LOOP BEGIN
                       INSERT INTO {} (at, device) VALUES (now(), d); EXIT;
                     EXCEPTION WHEN check_violation THEN NULL; END; END LOOP; END $$",
                    leaf.qualified()
                ));
            }
            place.psql("INSERT INTO calls (at, device) VALUES (now(), 1)");
            let counts = place.psql("SELECT count(*), count(DISTINCT id), count(id) FROM calls");
            let rows = lanes + 1;
            assert_eq!(counts, format!("{rows}|{rows}|{rows}"), "{version} {of}");
            // The sequence is the parent's: it goes with the table and with nothing before.
            place.psql(&format!("DROP TABLE {}", window.leaves[0].qualified()));
            place.psql("INSERT INTO calls (at, device) VALUES (now() + '1 hour', 1)");
            place.psql("DROP VIEW calls_complete; DROP TABLE calls");
            assert_eq!(
                place.psql("SELECT count(*) FROM pg_class WHERE relkind = 'S' AND relname ~ 'calls'"),
                "0"
            );
        }
    }
}

#[tokio::test]
async fn every_type_of_time_column_routes_rows() {
    require_server!(15);
    let now = "extract(epoch FROM now())";
    for (of, unit, window, kind, value) in [
        ("timestamptz", None, "1h", TimeKind::Timestamptz, "now()".to_owned()),
        ("timestamp", None, "1h", TimeKind::Timestamp, "now() AT TIME ZONE 'UTC'".to_owned()),
        ("date", None, "2d", TimeKind::Date, "(now() AT TIME ZONE 'UTC')::date".to_owned()),
        ("bigint", Some(Unit::Seconds), "1h", TimeKind::Bigint, format!("{now}::bigint")),
        ("bigint", Some(Unit::Nanos), "1h", TimeKind::Bigint, format!("({now} * 1000000000)::bigint")),
    ] {
        let mut place = Place::new(15).await;
        let spec = Create {
            body: Body::Columns(format!("at {of} NOT NULL")),
            unit,
            window: Some(span(window)),
            keep: Some(span("10d")),
            ..calls()
        };
        let made = place.create(&spec).await.table;
        assert_eq!((made.time_kind, made.unit), (kind, unit));
        place.psql(&format!("SET timezone = 'Asia/Kolkata'; INSERT INTO calls VALUES ({value})"));
        let window = made.window_of(made.instant(SystemTime::now())).unwrap();
        let leaf = &window.leaves[0];
        assert_eq!(place.psql(&format!("SELECT count(*) FROM {}", leaf.qualified())), "1", "{of}");
        // What the view gives for an instant is the value itself.
        place.psql(&format!(
            "INSERT INTO inrush_ledger.progress (relid, source, lane, up_to, rows) VALUES ({}, 's', 0, {}, 1)",
            made.relid, window.start
        ));
        let bound = place
            .psql(&format!("SELECT pg_get_expr(relpartbound, oid) FROM pg_class WHERE oid = {}", leaf.relid));
        let up_to = place.psql("SELECT up_to FROM calls_complete");
        assert!(bound.contains(&up_to), "{bound} does not begin with {up_to}");
    }
}

#[tokio::test]
async fn leaves_go_round_the_tablespaces_with_their_indexes() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let dirs = tempfile::tempdir().unwrap();
    let user = inrush_testkit::ServerUser::get();
    let names: Vec<String> = (0..3).map(|i| format!("windows_{}_{i}", std::process::id())).collect();
    user.own(dirs.path()).unwrap();
    for name in &names {
        let dir = dirs.path().join(name);
        std::fs::create_dir(&dir).unwrap();
        user.own(&dir).unwrap();
        place.psql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", dir.display()));
    }
    let spec = Create { tablespaces: names.clone(), unlogged: true, ..laned(4) };
    let made = place.create(&spec).await.table;
    let used = "SELECT count(DISTINCT spcname) FROM pg_class c JOIN pg_tablespace s ON s.oid = reltablespace
                 WHERE relname ~ '_l[0-9]' AND relkind = $kind";
    assert_eq!(place.psql(&used.replace("$kind", "'r'")), "3");
    let strays = "SELECT count(*) FROM pg_index JOIN pg_class t ON t.oid = indrelid JOIN pg_class i ON i.oid = indexrelid
                   WHERE t.relname ~ '_l[0-9]$' AND i.reltablespace <> t.reltablespace";
    assert_eq!(place.psql(strays), "0");
    assert_eq!(
        place.psql("SELECT count(*) FROM pg_class WHERE relname ~ '_l[0-9]$' AND relpersistence <> 'u'"),
        "0"
    );
    let first = |window: &inrush_windows::Window| {
        let leaf = window.leaves[0].relid;
        place.psql(&format!("SELECT reltablespace FROM pg_class WHERE oid = {leaf}"))
    };
    assert_ne!(first(&made.windows[0]), first(&made.windows[1]), "each window begins with another");
    place.psql("DROP TABLE calls CASCADE");
    for name in &names {
        place.psql(&format!("DROP TABLESPACE {name}"));
    }
}

#[tokio::test]
async fn a_query_over_all_windows_takes_the_locks_that_were_computed() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        for spec in [calls(), laned(3), Create { index: IndexKind::None, ..laned(2) }] {
            let mut place = Place::new(version).await;
            let made = place.create(&spec).await;
            let computed = made.locks.of(made.table.windows.len() as u64);
            let taken = place.psql(
                "BEGIN; SELECT count(*) FROM calls;
                 SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND locktype = 'relation'
                    AND relation::regclass::text ~ 'calls'; COMMIT",
            );
            assert_eq!(
                taken.lines().last().unwrap(),
                computed.to_string(),
                "{version}, {} lanes",
                spec.lanes
            );
        }
    }
}

#[tokio::test]
async fn more_windows_than_a_query_can_lock_are_refused_with_a_better_width() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let spec = Create { window: Some(span("1m")), keep: Some(span("30d")), ..laned(8) };
    let error = place.refused(&spec).await;
    // 43,200 windows, the one that is written, two ahead and the one that goes; 18 locks each, and the parent.
    assert_eq!(error.code(), Code::Usage);
    assert!(error.fact().contains("43204 windows (345632 leaves)"), "{error}");
    let hint = error.hint_text().unwrap();
    assert!(hint.contains("--window 12h"), "{error}");
    let better = Create { window: Some(span("12h")), ..spec };
    let made = place.create(&better).await;
    assert_eq!((made.suggested, made.windows_kept), (None, Some(64)));
    // Not stated: the same.
    let mut other = Place::new(15).await;
    let made = other.create(&Create { window: None, ..better }).await;
    assert!(made.width_chosen);
    assert_eq!(made.table.scale().span(made.table.policy.width), span("12h"));
    let locks = locks(&other.session.client, made.table.relid, 8, false).await.unwrap();
    assert_eq!(locks, made.locks);
}

#[tokio::test]
async fn what_cannot_be_made_is_explained_and_leaves_nothing() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        let mut place = Place::new(version).await;
        let columns = |text: &str| Body::Columns(text.to_owned());
        let statement = |text: &str| Body::Statement(text.to_owned());
        for (spec, code, fact) in [
            (
                Create { time_column: "when".into(), ..calls() },
                Code::Table,
                "column \"when\" named in partition key",
            ),
            (Create { time_column: "info".into(), ..calls() }, Code::Columns, "of type text"),
            (Create { body: columns("at bigint"), ..calls() }, Code::Usage, "what the numbers"),
            (Create { unit: Some(Unit::Millis), ..calls() }, Code::Usage, "needs no unit"),
            (Create { body: columns("at date"), ..calls() }, Code::Usage, "too small"),
            (Create { window: Some(span("10ms")), ..calls() }, Code::Usage, "too small"),
            (Create { keep: Some(span("1m")), ..calls() }, Code::Usage, "shorter than one window"),
            (Create { lanes: 4, ..calls() }, Code::Usage, "need a key"),
            (Create { key_column: Some("device".into()), ..calls() }, Code::Usage, "needs lanes"),
            (Create { key_column: Some("nope".into()), ..laned(2) }, Code::Table, "nope"),
            (Create { body: columns("at timestamptz, device point"), ..laned(2) }, Code::Table, "hash"),
            (
                Create { body: columns("at timestamptz, id int PRIMARY KEY"), ..calls() },
                Code::Table,
                "unique constraint",
            ),
            (
                Create { body: columns("at timestamptz, device int, PRIMARY KEY (at)"), ..laned(2) },
                Code::Table,
                "unique",
            ),
            (Create { tablespaces: vec!["nope".into()], ..calls() }, Code::Table, "no tablespace \"nope\""),
            (Create { storage: vec![("info".into(), "none".into())], ..calls() }, Code::Usage, "storage"),
            (Create { storage: vec![("device".into(), "main".into())], ..calls() }, Code::Table, "storage"),
            (
                Create { body: columns("at timestamptz); DROP TABLE x; --"), ..calls() },
                Code::Table,
                "syntax error",
            ),
            (Create { body: statement("DROP TABLE x"), ..calls() }, Code::Usage, "does not begin"),
            (
                Create { body: statement("CREATE TABLE a (at date); CREATE TABLE b (at date)"), ..calls() },
                Code::Table,
                "cannot insert multiple",
            ),
            (
                Create {
                    body: statement("CREATE TABLE a (at timestamptz, x int) PARTITION BY LIST (x)"),
                    ..calls()
                },
                Code::Table,
                "not partitioned by range",
            ),
            (
                Create { name: TableName { schema: Some("nope".into()), name: "t".into() }, ..calls() },
                Code::Table,
                "schema",
            ),
        ] {
            let error = place.refused(&spec).await;
            assert_eq!(error.code(), code, "{error}");
            assert!(error.fact().contains(fact), "{error} does not say {fact}");
        }
        place.create(&calls()).await;
        let again =
            inrush_windows::create(&mut place.session.client, &place.ledger, &calls()).await.unwrap_err();
        assert!(again.fact().contains("already exists"), "{again}");
    }
}

#[tokio::test]
async fn a_statement_is_taken_as_it_is() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let body = "-- as pg_dump has it\nCREATE TABLE public.old (\n at timestamptz NOT NULL,\n n int DEFAULT 7 CHECK (n > 0),\n                 info text, CONSTRAINT old_pk PRIMARY KEY (at, n)\n);\n";
    let spec = Create {
        body: Body::Statement(body.into()),
        storage: vec![("info".into(), "plain".into())],
        ..calls()
    };
    let made = place.create(&spec).await.table;
    let leaf = made.windows[0].leaves[0].relid;
    assert_eq!(place.psql("SELECT relkind FROM pg_class WHERE relname = 'calls'"), "p");
    assert_eq!(place.psql("SELECT to_regclass('old') IS NULL"), "t");
    let of_leaf = format!(
        "SELECT string_agg(contype::text, '' ORDER BY contype), (SELECT attstorage FROM pg_attribute
                WHERE attrelid = {leaf} AND attname = 'info') FROM pg_constraint WHERE conrelid = {leaf} AND contype <> 'n'"
    );
    assert_eq!(place.psql(&of_leaf), "cp|p");
    place.psql("INSERT INTO calls (at) VALUES (now())");
    assert_eq!(place.psql("SELECT n FROM calls"), "7");
}

#[tokio::test]
async fn windows_are_made_when_they_are_needed_and_only_then() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let made = place.create(&calls()).await.table;
    let now = SystemTime::now();
    let at = |hours: i64| {
        let shifted = HOUR * u32::try_from(hours.abs()).unwrap();
        made.instant(if hours < 0 { now - shifted } else { now + shifted })
    };
    assert_eq!(made.place(at(-5), at(0)), Where::Missing);
    let window = ensure(&mut place.session.client, &place.ledger, made.relid, at(-5)).await.unwrap().unwrap();
    assert!(window.start <= at(-5) && at(-5) < window.end && window.state == WindowState::Open);
    // Asked again, by two at once: the same.
    let mut other = open(&place.database.url()).await;
    let both = tokio::join!(
        ensure(&mut other.client, &place.ledger, made.relid, at(-7)),
        ensure(&mut place.session.client, &place.ledger, made.relid, at(-7))
    );
    let (one, two) = (both.0.unwrap().unwrap(), both.1.unwrap().unwrap());
    assert_eq!(one, two);
    for refused in [at(-30), at(300), i64::MAX, i64::MIN] {
        assert_eq!(
            ensure(&mut place.session.client, &place.ledger, made.relid, refused).await.unwrap(),
            None
        );
    }
    let table = place.read(made.relid).await;
    assert_eq!(table.windows.len(), 5);
    assert!(table.windows.is_sorted_by_key(|window| window.start));
    assert_eq!(
        ensure(&mut place.session.client, &place.ledger, 1, 0).await.unwrap(),
        None,
        "no windowed table"
    );
}

#[tokio::test]
async fn garbage_times_do_not_make_tables_without_end() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let made = place.create(&Create { keep: None, ahead: 1, ..calls() }).await;
    // As if the server could bear three windows.
    let bearable = made.locks.windows();
    assert!(bearable > 100, "{bearable}");
    let fill = format!(
        "INSERT INTO inrush_ledger.windows SELECT relid, start - 3600000000 * g, stop - 3600000000 * g, top, top_name, leaf,
                leaf_name, lane, state FROM inrush_ledger.windows, generate_series(1000, 1000 + {bearable}) g WHERE start =
                (SELECT min(start) FROM inrush_ledger.windows)"
    );
    place.psql(&fill);
    let ancient = made.table.instant(SystemTime::now()) - 500_000 * 3_600_000_000;
    assert_eq!(made.table.place(ancient, made.table.instant(SystemTime::now())), Where::Missing);
    assert_eq!(
        ensure(&mut place.session.client, &place.ledger, made.table.relid, ancient).await.unwrap(),
        None
    );
}

#[tokio::test]
async fn a_default_partition_is_refused() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let made = place.create(&calls()).await.table;
    place.psql("CREATE TABLE d PARTITION OF calls DEFAULT");
    let past = made.instant(SystemTime::now() - 3 * HOUR);
    let error = ensure(&mut place.session.client, &place.ledger, made.relid, past).await.unwrap_err();
    assert!(error.fact().contains("default partition"), "{error}");
}

#[tokio::test]
async fn names_that_are_taken_are_passed_over() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let made = place.create(&calls()).await.table;
    let past = made.instant(SystemTime::now() - 3 * HOUR);
    let wanted = made.windows[0].leaves[0].name.clone();
    let stamp = made.scale().text(made.window_start(past)).replace(['-', ':'], "").replace(' ', "_");
    let name = format!("calls_{}", &stamp[..13]);
    assert_eq!(wanted.len(), name.len());
    place.psql(&format!("CREATE TABLE {name} (i int); CREATE TABLE {name}_2 (i int)"));
    let window = ensure(&mut place.session.client, &place.ledger, made.relid, past).await.unwrap().unwrap();
    assert_eq!(window.leaves[0].name, format!("{name}_3"));
}

#[tokio::test]
async fn late_rows_have_a_table_where_that_was_chosen() {
    require_server!(15);
    let mut place = Place::new(15).await;
    let made = place.create(&Create { late: Late::Overflow, unlogged: true, ..calls() }).await.table;
    let overflow = made.overflow.unwrap();
    assert_eq!(overflow.name, "calls_late");
    let of = format!(
        "SELECT relkind, relpersistence, relispartition FROM pg_class WHERE oid = {}",
        overflow.relid
    );
    assert_eq!(place.psql(&of), "r|u|f");
    let columns = "SELECT string_agg(attname || atttypid, ',' ORDER BY attnum) FROM pg_attribute WHERE attnum > 0 AND attrelid = ";
    assert_eq!(
        place.psql(&format!("{columns}{}", overflow.relid)),
        place.psql(&format!("{columns}'calls'::regclass"))
    );
}

#[tokio::test]
async fn the_view_says_up_to_when_a_source_is_complete() {
    require_server!(15);
    require_server!(18);
    for version in VERSIONS {
        let mut place = Place::new(version).await;
        let made = place.create(&calls()).await.table;
        let hour = 3_600_000_000_i64;
        let lane = |table: &str, source: &str, lane: i64, up_to: i64, ago: i64| {
            place.psql(&format!(
                "INSERT INTO inrush_ledger.{table} VALUES ({}, '{source}', {lane}, {up_to}, 5, now() - interval '{ago} s')",
                made.relid
            ));
        };
        // Of lanes that are live, the smallest; an idle one holds nothing back.
        lane("progress", "a", 0, 3 * hour, 1);
        lane("progress_unlogged", "a", 1, 2 * hour, 0);
        lane("progress", "a", 2, hour, 60);
        // All idle: all there was is in.
        lane("progress", "b", 0, hour, 60);
        lane("progress", "b", 1, 2 * hour, 70);
        lane("progress", "c", 0, i64::MIN, 0);
        place.psql("INSERT INTO inrush_ledger.progress VALUES (1, 'd', 0, 0, 0)");
        let said = place.psql(
            "SET timezone = 'UTC'; SELECT source, up_to, rows, lanes, idle_lanes FROM calls_complete ORDER BY source",
        );
        assert_eq!(
            said,
            "a|2000-01-01 02:00:00+00|15|3|1\nb|2000-01-01 02:00:00+00|10|2|2\nc|-infinity|5|1|0"
        );
        let rule = place.psql("SELECT obj_description('calls_complete'::regclass)");
        assert!(rule.contains("nothing for 10s is idle"), "{rule}");
    }
}
