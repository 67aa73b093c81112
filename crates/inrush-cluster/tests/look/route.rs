//! Keys of partitioned tables, against real rows that the server has routed.

use super::Session;
use inrush_cluster::{Route, Spread};
use inrush_core::Code;
use inrush_testkit::{At, Cluster, ClusterDatabase, require_server};

/// Asks for each row of a table where it lives, and finds that it is where the server has put it. Gives the answers.
fn agrees(session: &Session, table: &str, keys: &str) -> Vec<Route> {
    let columns: Vec<String> = keys.split(", ").map(|key| format!("{key}::text")).collect();
    let rows = session.rows(&format!(
        "SELECT n.nspname || '.' || c.relname, {} FROM {table} t
           JOIN pg_class c ON c.oid = t.tableoid JOIN pg_namespace n ON n.oid = c.relnamespace",
        columns.join(", ")
    ));
    assert!(!rows.is_empty(), "{table} has rows");
    let routed = rows.iter().map(|row| {
        let key: Vec<Option<&str>> = row[1..].iter().map(Option::as_deref).collect();
        let route = session.route(table, &key);
        let chosen =
            route.steps.last().and_then(|step| step.chosen.as_ref()).map(|chosen| chosen.name.clone());
        assert_eq!(chosen, row[0], "{table} {key:?}");
        assert_eq!(route.placements.len(), 1, "{table} {key:?}");
        route
    });
    routed.collect()
}

/// Types that are hashed here, and values of them from a number i.
const HASHED: &[(&str, &str)] = &[
    ("boolean", "i % 2 = 0"),
    ("smallint", "i::smallint"),
    ("integer", "i * 7919"),
    ("bigint", "i * 10000000000"),
    ("oid", "(i + 5)::oid"),
    ("real", "i / 3.0"),
    ("double precision", "exp(i)"),
    ("text", "'größe ' || i"),
    ("varchar(9)", "'v ' || i"),
    ("character(9)", "'c ' || i"),
    ("name", "('n' || i)::name"),
    ("bytea", "decode(md5(i::text), 'hex')"),
    ("uuid", "md5(i::text)::uuid"),
    ("date", "'2026-01-01'::date + i"),
    ("time", "'12:00'::time + i * interval '1 s'"),
    ("timestamp(3)", "'2026-01-01'::timestamp + i * interval '1.0005 s'"),
    ("timestamptz", "'2026-01-01'::timestamptz + i * interval '1.5 h'"),
    ("interval", "i * interval '1 day 1 s'"),
    ("numeric", "i / 7.0"),
];

fn every_type(version: u32) {
    let cluster = Cluster::shared(version);
    let database = cluster.fresh_database();
    let session = Session::open(&database.url());
    for (number, (ty, value)) in HASHED.iter().enumerate() {
        let table = format!("h{number}");
        database.by_hash(&table, &format!("k {ty}"), "k", 4, "");
        database.psql(&format!("INSERT INTO {table} SELECT {value} FROM generate_series(-12, 12) i"));
        for route in agrees(&session, &table, "k") {
            assert!(route.direct && route.why.is_none(), "{ty}: {route:?}");
            let step = &route.steps[0];
            assert_eq!((step.of, step.checked.as_slice()), (4, &["satisfies_hash_partition".to_owned()][..]));
            assert_eq!(step.hash.as_ref().map(|hash| hash.bits), Some(64));
            let placement = &route.placements[0];
            assert!(placement.node.starts_with("node"), "{placement:?}");
            assert_eq!(placement.host.as_deref(), Some("127.0.0.1"));
            let number: usize = placement.node["node".len()..].parse().expect("a number");
            assert_eq!(placement.port, Some(cluster.nodes()[number].port()));
        }
    }
}

#[test]
fn every_type_on_the_oldest_server() {
    require_server!(15);
    every_type(15);
}

#[test]
fn every_type_on_18() {
    require_server!(18);
    every_type(18);
}

#[test]
fn several_columns_and_null() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let session = Session::open(&database.url());
    database.by_hash("two", "a integer, b text, n integer", "a, b", 8, "");
    database.psql(
        "INSERT INTO two SELECT nullif(i % 7, 0), CASE WHEN i % 5 > 0 THEN 'key ' || i END, i FROM generate_series(1, 60) i",
    );
    let routes = agrees(&session, "two", "a, b");
    assert!(routes.iter().any(|route| route.key.iter().all(|key| key.value.is_none())));
    assert_eq!((routes[0].by.as_deref(), routes[0].spread), (Some("hash of a, b"), Spread::Partitions));
    let error = session.try_route("two", &[Some("1")]).expect_err("a value is missing");
    assert_eq!(error.fact(), "the key of public.two is (a, b), and 1 value is given");
    assert_eq!(error.code(), Code::Usage);
    assert_eq!(error.hint_text(), Some("Give 2 values, in this order."));
    assert!(session.try_route("two", &[Some("1"), Some("b"), Some("c")]).is_err());
}

/// Types that no load hashes: the server finds the partition.
#[test]
fn types_that_only_the_server_knows() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let session = Session::open(&database.url());
    database.psql(
        "CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE DOMAIN small AS integer CHECK (value < 50)",
    );
    let cases = [
        ("numeric(6, 2)", "i / 7.0", false),
        ("jsonb", "jsonb_build_object('i', i)", false),
        ("integer[]", "ARRAY[i, 2]", false),
        ("inet", "'10.0.0.0'::inet + i", false),
        ("mood", "(ARRAY['sad', 'ok', 'happy'])[i % 3 + 1]::mood", false),
        ("small", "i::small", true),
    ];
    for (number, (ty, value, known)) in cases.iter().enumerate() {
        let table = format!("u{number}");
        // Enums and domains are only known here.
        database.psql(&format!("CREATE TABLE {table} (k {ty}) PARTITION BY HASH (k)"));
        for part in 0..3 {
            database.psql(&format!(
                "CREATE TABLE {table}_{part} PARTITION OF {table} FOR VALUES WITH (MODULUS 3, REMAINDER {part})"
            ));
        }
        database.psql(&format!("INSERT INTO {table} SELECT {value} FROM generate_series(1, 20) i"));
        for route in agrees(&session, &table, "k") {
            assert_eq!(route.steps[0].hash.is_some(), *known, "{ty}");
            assert!(!route.direct);
        }
    }
    database.by_hash("u", "k numeric(6, 2)", "k", 2, "");
    let route = session.route("u", &[Some("1.005")]);
    assert_eq!(route.key[0].value.as_deref(), Some("1.01"));
    assert_eq!(
        route.why.as_deref(),
        Some("keys of type numeric are not hashed here: the server rounds them first")
    );
}

fn here_and_there(database: &ClusterDatabase<'_>, table: &str, columns: &str, by: &str, bounds: &[&str]) {
    let places = [At::Node(0), At::Here, At::Node(1)];
    let leaves: Vec<(&str, At)> =
        bounds.iter().enumerate().map(|(number, bound)| (*bound, places[number % 3])).collect();
    database.partitioned(table, columns, by, &leaves, columns);
}

#[test]
fn ranges_and_lists() {
    require_server!(18);
    let database = Cluster::shared(18).fresh_database();
    let session = Session::open(&database.url());
    here_and_there(
        &database,
        "r",
        "at date",
        "RANGE (at)",
        &[
            "FOR VALUES FROM (MINVALUE) TO ('2026-01-01')",
            "FOR VALUES FROM ('2026-01-01') TO ('2026-02-01')",
            "FOR VALUES FROM ('2026-02-01') TO ('2026-03-01')",
        ],
    );
    database.psql("INSERT INTO r SELECT '2025-12-01'::date + i FROM generate_series(0, 89) i");
    let routes = agrees(&session, "r", "at");
    assert!(routes.iter().all(|route| route.direct), "{:?}", routes[0]);
    assert_eq!(routes[0].steps[0].found, "the value looked up in the partitions' ranges");
    let placed = |node: &str| routes.iter().any(|route| route.placements[0].node == node);
    assert!(placed("node0") && placed("node1") && placed("coordinator"));
    let nowhere = session.route("r", &[Some("2026-03-01")]);
    assert_eq!((nowhere.why.as_deref(), nowhere.placements.len()), (Some("no partition takes this key"), 0));
    assert_eq!(session.route("r", &[None]).why.as_deref(), Some("no partition takes this key"));

    here_and_there(
        &database,
        "l",
        "region text, n integer",
        "LIST (region)",
        &["FOR VALUES IN ('eu', 'us')", "FOR VALUES IN (NULL, 'x''y')", "DEFAULT"],
    );
    database.psql("INSERT INTO l VALUES ('eu'), ('us'), (NULL), ('x''y'), ('elsewhere')");
    let routes = agrees(&session, "l", "region");
    assert!(routes.iter().all(|route| !route.direct));
    assert_eq!(routes[0].why.as_deref(), Some("it is partitioned by list"));

    here_and_there(
        &database,
        "rr",
        "a integer, b text",
        "RANGE (a, b)",
        &[
            "FOR VALUES FROM (0, 'a') TO (5, MINVALUE)",
            "FOR VALUES FROM (5, 'm') TO (9, MAXVALUE)",
            "DEFAULT",
        ],
    );
    database.psql("INSERT INTO rr SELECT i % 12, chr(97 + i % 26) FROM generate_series(0, 60) i");
    agrees(&session, "rr", "a, b");
}

#[test]
fn expressions_collations_and_levels() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let session = Session::open(&database.url());
    database.psql(
        "CREATE TABLE e (id integer, word text) PARTITION BY HASH (lower(word));
         CREATE TABLE e_0 PARTITION OF e FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE e_1 PARTITION OF e FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO e SELECT i, chr(65 + i) || i FROM generate_series(0, 25) i",
    );
    let routes = agrees(&session, "e", "word");
    assert_eq!(routes[0].by.as_deref(), Some("hash of lower(word)"));
    assert_eq!(routes[0].why.as_deref(), Some("its partitions are on this server"));

    // Ordered otherwise than by bytes, and compared otherwise.
    database.psql(
        "CREATE COLLATION nobody_cares (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
         CREATE TABLE c (word text COLLATE nobody_cares) PARTITION BY HASH (word);
         CREATE TABLE c_0 PARTITION OF c FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE TABLE c_1 PARTITION OF c FOR VALUES WITH (MODULUS 2, REMAINDER 1);
         INSERT INTO c SELECT chr(97 + i) FROM generate_series(0, 25) i;
         CREATE TABLE o (word text COLLATE \"en-x-icu\") PARTITION BY RANGE (word);
         CREATE TABLE o_0 PARTITION OF o FOR VALUES FROM (MINVALUE) TO ('m');
         CREATE TABLE o_1 PARTITION OF o FOR VALUES FROM ('m') TO (MAXVALUE);
         INSERT INTO o VALUES ('a'), ('B'), ('m'), ('M'), ('N'), ('z')",
    );
    assert!(agrees(&session, "c", "word").iter().all(|route| route.steps[0].hash.is_none()));
    let upper = |route: &Route| route.placements[0].relation.clone();
    assert_eq!(upper(&session.route("c", &[Some("q")])), upper(&session.route("c", &[Some("Q")])));
    agrees(&session, "o", "word");

    database.psql(
        "CREATE TABLE d (at date, device integer, n integer) PARTITION BY RANGE (at);
         CREATE TABLE d_old PARTITION OF d FOR VALUES FROM (MINVALUE) TO ('2026-01-01');
         CREATE TABLE d_new PARTITION OF d FOR VALUES FROM ('2026-01-01') TO (MAXVALUE) PARTITION BY HASH (device);
         CREATE TABLE d_new_0 PARTITION OF d_new FOR VALUES WITH (MODULUS 2, REMAINDER 0)",
    );
    database.node(0).psql("CREATE TABLE d_new_1 (at date, device integer, n integer)");
    database.psql(
        "CREATE FOREIGN TABLE d_new_1 PARTITION OF d_new FOR VALUES WITH (MODULUS 2, REMAINDER 1) SERVER node0;
         INSERT INTO d SELECT '2026-01-01'::date + i, i FROM generate_series(0, 20) i",
    );
    let routes = agrees(&session, "d", "at, device");
    assert!(routes.iter().all(|route| route.steps.len() == 2 && !route.direct));
    // Further down the key has one column more.
    assert_eq!(session.route("d", &[Some("2025-01-01")]).placements[0].relation, "public.d_old");
    let error = session.try_route("d", &[Some("2026-01-01")]).expect_err("a value is missing");
    assert_eq!(error.fact(), "the key of public.d is (at, device), and 1 value is given");
    let error = session.try_route("d", &[Some("2025-01-01"), Some("1")]).expect_err("one too many");
    assert_eq!(error.fact(), "the key of public.d is (at), and 2 values are given");
}

#[test]
fn names_there_and_values_that_are_none() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let session = Session::open(&database.url());
    database.node(1).psql("CREATE SCHEMA \"Other\"; CREATE TABLE \"Other\".\"Leaf one\" (k varchar(3))");
    database.psql(
        "CREATE TABLE n (k varchar(3)) PARTITION BY HASH (k);
         CREATE FOREIGN TABLE n_0 PARTITION OF n FOR VALUES WITH (MODULUS 1, REMAINDER 0) SERVER node1
             OPTIONS (schema_name 'Other', table_name 'Leaf one');
         CREATE TABLE plain (k integer); CREATE VIEW v AS TABLE plain",
    );
    let route = session.route("n", &[Some("ab ")]);
    assert_eq!(route.placements[0].relation, "\"Other\".\"Leaf one\"");
    assert_eq!(route.key[0].ty, "character varying(3)");
    let error = session.try_route("n", &[Some("abcd")]).expect_err("too long");
    assert_eq!(error.code(), Code::Usage);
    assert_eq!(error.fact(), "\"abcd\" is too long for column k of type character varying(3)");
    // Spaces that are too many are cut off, as in an INSERT.
    assert_eq!(session.route("n", &[Some("abc   ")]).key[0].value.as_deref(), Some("abc"));
    let plain = session.route("plain", &[]);
    assert_eq!((plain.spread, plain.placements[0].relation.as_str()), (Spread::None, "public.plain"));
    assert_eq!(session.route("v", &[]).why.as_deref(), Some("it is a view"));

    database.by_hash("i", "k integer", "k", 2, "");
    let error = session.try_route("i", &[Some("12x")]).expect_err("no number");
    assert_eq!((error.code(), error.sqlstate_text()), (Code::Usage, Some("22P02")));
}
