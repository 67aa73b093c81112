//! Partitions on other servers with `postgres_fdw`: every row is where PostgreSQL would have put it.

use crate::harness::{Running, run};
use crate::loads::{Files, PATIENCE, Report, end, settled, wait_until};
use crate::rejected::{self, Written, reasons};
use inrush_testkit::proxy::Proxy;
use inrush_testkit::{At, Cluster, ClusterDatabase, ClusterOptions, Reach, Version, require_server};
use std::fmt::Write as _;

/// Each test on 15 and on 18.
macro_rules! on_versions {
    ($($name:ident),+ $(,)?) => {
        mod v15 {
            $(#[test] fn $name() { super::$name(inrush_testkit::Version::Any); })+
        }
        mod v18 {
            $(#[test] fn $name() { inrush_testkit::require_server!(18); super::$name(inrush_testkit::Version::Major(18)); })+
        }
    };
}

on_versions!(
    keys_of_every_type,
    keys_of_several_columns_and_moduli,
    ranges,
    ranges_of_other_types,
    spellings_that_only_the_server_reads,
    leaves_that_are_called_otherwise,
    what_the_coordinator_fills,
    rejects,
    rows_without_a_partition,
    the_same_command_again,
    what_goes_through_the_coordinator,
    settings_of_the_role,
    partitions_that_change_under_way,
    a_server_that_moves,
    a_table_that_is_made_anew,
);

/// Values by which a table may be spread, as SQL of `i`.
const KEYS: &[(&str, &str)] = &[
    ("smallint", "(i * 7 - 1000)::smallint"),
    ("integer", "i * 7919 - 1000000"),
    ("bigint", "(i - 150) * 10000000000"),
    ("numeric", "(i - 150) * 1234.5678 * 10 ^ (i % 40 - 20)"),
    ("text", "md5(i::text) || CASE i % 3 WHEN 0 THEN E'\\t\\\\ \\u00e9\\n\"' ELSE '' END"),
    ("varchar(12)", "left(md5(i::text), i % 13)"),
    ("character(9)", "left(md5(i::text), i % 10)"),
    ("uuid", "md5(i::text)::uuid"),
    ("timestamptz", "'2024-02-29 23:59:59.123456+03'::timestamptz + i * '1 day 1 microsecond'::interval"),
    ("timestamp", "'1969-12-31 23:59:59.999999'::timestamp - i * '77 days 3 microseconds'::interval"),
    ("date", "'2000-01-01'::date + i * 40 - 6000"),
    ("bytea", "decode(md5(i::text), 'hex')"),
    ("boolean", "i % 2 = 0"),
    ("double precision", "(i - 150) * 1.1e10"),
];

fn fresh(version: Version) -> ClusterDatabase<'static> {
    Cluster::shared(version).fresh_database()
}

/// Compares with a table that is partitioned in the same way, has all its partitions here, and was filled by PostgreSQL.
#[track_caller]
fn routed_as_postgres_does(database: &ClusterDatabase<'_>, table: &str) {
    let leaves = database.psql(&format!(
        "SELECT format('CREATE TABLE reference.%I PARTITION OF reference.{table} %s;', c.relname,
                       pg_get_expr(c.relpartbound, c.oid))
           FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = '{table}'::regclass"
    ));
    let key = database.psql(&format!("SELECT pg_get_partkeydef('{table}'::regclass)"));
    database.psql(&format!(
        "CREATE SCHEMA IF NOT EXISTS reference;
         CREATE TABLE reference.{table} (LIKE {table}) PARTITION BY {key};
         {leaves}
         INSERT INTO reference.{table} SELECT * FROM {table}"
    ));
    let rows = |of: &str| {
        format!("SELECT c.relname, t::text FROM {of}{table} t JOIN pg_class c ON c.oid = t.tableoid")
    };
    let (here, there) = (rows(""), rows("reference."));
    let misplaced = database.psql(&format!(
        "SELECT count(*) FROM (({here} EXCEPT ALL {there}) UNION ALL ({there} EXCEPT ALL {here})) x"
    ));
    assert_eq!(misplaced, "0", "rows of {table} are in other leaves than PostgreSQL would put them in");
}

/// What is in a table equals what a query of the coordinator gives.
#[track_caller]
fn equals(database: &ClusterDatabase<'_>, table: &str, expected: &str) {
    let differences = database.psql(&format!(
        "SELECT 'lost', count(*) FROM (({expected}) EXCEPT ALL TABLE {table}) x
          UNION ALL SELECT 'too many', count(*) FROM (TABLE {table} EXCEPT ALL ({expected})) x ORDER BY 1"
    ));
    assert_eq!(differences, "lost|0\ntoo many|0", "{table}");
}

/// Writes what a query gives to a file, in a format of COPY.
fn export(database: &ClusterDatabase<'_>, files: &Files, name: &str, query: &str, format: &str) {
    let path = files.path().join(name);
    // psql writes it: the server's account may not.
    let query = query.replace('\n', " ");
    database.psql(&format!("\\copy ({query}) TO '{}' (FORMAT {format})", path.display()));
}

fn keys_of_every_type(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    for (number, (ty, key)) in KEYS.iter().enumerate() {
        let query = format!("SELECT ({key})::{ty} AS k, i AS n FROM generate_series(1, 300) i");
        for (format, more) in [
            ("csv", &["--no-header"][..]),
            ("binary", &["--format", "binary"]),
            ("text", &["--via", "copy-text"]),
        ] {
            let table = format!("t{number}_{format}");
            let file = format!("{table}.{format}");
            database.by_hash(&table, &format!("k {ty}, n int"), "k", 7, "");
            export(&database, &files, &file, &query, format);
            let format = if format == "text" { &["--format", "text"][..] } else { &[] };
            let more = [more, format, &["--audit"]].concat();
            let report = files.report(0, &file, &table, &database.url(), &more);
            report.bypassed().audited(300);
            equals(&database, &table, &query);
            routed_as_postgres_does(&database, &table);
        }
    }
    settled(&database, "");
}

fn keys_of_several_columns_and_moduli(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let leaves = [
        ("FOR VALUES WITH (MODULUS 2, REMAINDER 0)", At::Node(0)),
        ("FOR VALUES WITH (MODULUS 4, REMAINDER 1)", At::Node(1)),
        ("FOR VALUES WITH (MODULUS 8, REMAINDER 3)", At::Here),
        ("FOR VALUES WITH (MODULUS 8, REMAINDER 7)", At::Node(0)),
    ];
    let columns = "n int, a text, b bigint, c uuid";
    database.partitioned("t", columns, "HASH (b, a, c)", &leaves, columns);
    // NULL is a key like others for partitions by hash.
    let query = "SELECT i AS n, CASE WHEN i % 3 > 0 THEN 'a' || i END AS a, CASE WHEN i % 5 > 0 THEN i * 4000000000 END AS b,
                        CASE WHEN i % 7 > 0 THEN md5(i::text)::uuid END AS c FROM generate_series(1, 2000) i";
    export(&database, &files, "t.csv", query, "csv");
    let report = files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit", "--jobs", "2"]);
    report.bypassed().audited(2000);
    assert_eq!(report.cluster()["nodes"], 3, "{:#}", report.0);
    equals(&database, "t", query);
    routed_as_postgres_does(&database, "t");
    // A node knows nothing of the parent.
    let wrong = "SELECT count(*) FROM (SELECT * FROM t_0 OFFSET 0) t WHERE NOT satisfies_hash_partition('t'::regclass, 2, 0, b, a, c)";
    assert_eq!(database.psql(wrong), "0");
    settled(&database, "");
}

fn ranges(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let leaves = [
        ("FOR VALUES FROM (MINVALUE) TO (-10)", At::Node(0)),
        ("FOR VALUES FROM (-10) TO (10)", At::Node(1)),
        ("FOR VALUES FROM (10) TO (100)", At::Here),
        ("FOR VALUES FROM (200) TO (MAXVALUE)", At::Node(0)),
        ("DEFAULT", At::Node(1)),
    ];
    let columns = "k int, n int";
    database.partitioned("t", columns, "RANGE (k)", &leaves, columns);
    let query = "SELECT CASE WHEN i % 11 > 0 THEN i - 500 END AS k, i AS n FROM generate_series(1, 1000) i";
    export(&database, &files, "t.csv", query, "csv");
    files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"]).bypassed().audited(1000);
    equals(&database, "t", query);
    routed_as_postgres_does(&database, "t");
    settled(&database, "");
}

fn ranges_of_other_types(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let cases = [
        ("text", "'m'", "md5(i::text)"),
        ("uuid", "'80000000-0000-0000-0000-000000000000'", "md5(i::text)::uuid"),
        (
            "timestamptz",
            "'2024-06-01 00:00+02'",
            "'2024-05-31 00:00Z'::timestamptz + i * '6 minutes'::interval",
        ),
        ("date", "'2024-06-01'", "'2024-01-01'::date + i"),
        ("bigint", "5000000000", "i * 30000000::bigint"),
    ];
    for (ty, middle, key) in cases {
        let table = format!("t_{ty}");
        let (below, above) = (
            format!("FOR VALUES FROM (MINVALUE) TO ({middle})"),
            format!("FOR VALUES FROM ({middle}) TO (MAXVALUE)"),
        );
        let columns = format!("k {ty}, n int");
        let leaves = [(below.as_str(), At::Node(0)), (above.as_str(), At::Node(1))];
        database.partitioned(&table, &columns, "RANGE (k)", &leaves, &columns);
        // The middle itself is above.
        let query = format!(
            "SELECT ({key})::{ty} AS k, i AS n FROM generate_series(1, 300) i UNION ALL SELECT {middle}::{ty}, 0"
        );
        export(&database, &files, "t.csv", &query, "csv");
        let report =
            files.report(0, "t.csv", &table, &database.url(), &["--no-header", "--audit", "--again"]);
        report.bypassed().audited(301);
        equals(&database, &table, &query);
        routed_as_postgres_does(&database, &table);
    }
    settled(&database, "");
}

fn spellings_that_only_the_server_reads(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let mut cases = vec![
        ("integer", vec![" 7", "+12", "007", "-0 ", "  -2147483648"]),
        ("bigint", vec![" 9000000000 ", "+1"]),
        ("numeric", vec!["1e2", "100", "100.00", "NaN", ".5", "-1.5E-3", "+0.0", " 42 "]),
        ("date", vec!["Jan 8, 1999", "20240229", "infinity", "epoch", "J2451187", "1999-01-08 BC"]),
        (
            "timestamptz",
            vec!["2024-06-01 12:00 Europe/Berlin", "20240601T120000Z", "June 1 2024 12:00 PST", "-infinity"],
        ),
        ("uuid", vec!["{A0EEBC99-9C0B-4EF8-BB6D-6BB9BD380A11}", "a0eebc999c0b4ef8bb6d6bb9bd380a11"]),
        ("boolean", vec!["yes", "off", "T", "0", " tr "]),
        ("double precision", vec!["1e3", "-0", "0", "NaN", "inf", " 1.5 "]),
        ("bytea", vec!["\\x0aFF", "abc\\\\d"]),
    ];
    if version == Version::Major(18) {
        cases.push(("integer", vec!["0x1F", "1_000", "0b101", "0o17"]));
    }
    for (number, (ty, spellings)) in cases.iter().enumerate() {
        let table = format!("t{number}");
        database.by_hash(&table, &format!("k {ty}, n int"), "k", 5, "");
        let (mut file, mut query) = (String::new(), String::new());
        for (n, spelling) in spellings.iter().enumerate() {
            let _ = writeln!(file, "\"{spelling}\",{n}");
            let union = if n > 0 { " UNION ALL " } else { "" };
            let _ = write!(query, "{union}SELECT '{spelling}'::{ty}, {n}");
        }
        files.write("t.csv", &file);
        let rows = spellings.len() as u64;
        let report =
            files.report(0, "t.csv", &table, &database.url(), &["--no-header", "--audit", "--again"]);
        report.bypassed().audited(rows);
        equals(&database, &table, &query);
        routed_as_postgres_does(&database, &table);
    }
    // It means another value each day, and one only within a transaction.
    database.by_hash("today", "k date, n int", "k", 5, "");
    files.write("today.csv", "today,1\nyesterday,2\ntomorrow,3\n");
    files.report(0, "today.csv", "today", &database.url(), &["--no-header", "--audit"]).bypassed().audited(3);
    routed_as_postgres_does(&database, "today");
    settled(&database, "");
}

fn leaves_that_are_called_otherwise(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    database.node(0).psql(
        "CREATE SCHEMA \"Other s\"; CREATE TABLE \"Other s\".\"It \"\"s\" (\"Payload x\" text, extra int DEFAULT 9, \"K\" bigint)",
    );
    database.node(1).psql("CREATE TABLE plain (payload text, k bigint)");
    database.psql(
        "CREATE TABLE t (k bigint, payload text) PARTITION BY HASH (k);
         CREATE FOREIGN TABLE a (payload text OPTIONS (column_name 'Payload x'), k bigint OPTIONS (column_name 'K'))
             SERVER node0 OPTIONS (schema_name 'Other s', table_name 'It \"s');
         ALTER TABLE t ATTACH PARTITION a FOR VALUES WITH (MODULUS 2, REMAINDER 0);
         CREATE FOREIGN TABLE b PARTITION OF t FOR VALUES WITH (MODULUS 2, REMAINDER 1) SERVER node1
             OPTIONS (schema_name 'public', table_name 'plain')",
    );
    let query = "SELECT i::bigint AS k, 'p' || i AS payload FROM generate_series(1, 500) i";
    export(&database, &files, "t.csv", query, "csv");
    files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"]).bypassed().audited(500);
    equals(&database, "t", query);
    routed_as_postgres_does(&database, "t");
    // What is only on the node is filled there.
    assert_eq!(database.node(0).psql("SELECT DISTINCT extra FROM \"Other s\".\"It \"\"s\""), "9");
    settled(&database, "");
}

fn what_the_coordinator_fills(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    database.psql("CREATE SEQUENCE own START 1000 INCREMENT 5");
    let here = "id bigserial, again int GENERATED BY DEFAULT AS IDENTITY, info text, drawn bigint DEFAULT nextval('own'),
                who text DEFAULT 'a ''quoted'' ' || current_database(), made timestamptz DEFAULT now(),
                twice int GENERATED ALWAYS AS (length(info) * 2) STORED, none int";
    // Identity columns cannot be in a partitioned table before 17.
    let here = if version == Version::Any {
        here.replace("GENERATED BY DEFAULT AS IDENTITY", "DEFAULT 0")
    } else {
        here.into()
    };
    let there =
        "id bigint NOT NULL, again int NOT NULL, info text, drawn bigint NOT NULL, who text DEFAULT 'wrong',
                 made timestamptz, twice int GENERATED ALWAYS AS (length(info) * 2) STORED, none int";
    let leaves = [
        ("FOR VALUES WITH (MODULUS 3, REMAINDER 0)", At::Node(0)),
        ("FOR VALUES WITH (MODULUS 3, REMAINDER 1)", At::Node(1)),
        ("FOR VALUES WITH (MODULUS 3, REMAINDER 2)", At::Here),
    ];
    // The key itself comes from a sequence.
    database.partitioned("t", &here, "HASH (id)", &leaves, there);
    let file: String = (1..=25_000).map(|i| format!("row {i}\n")).collect();
    files.write("t.csv", &file);
    for (again, via) in ["auto", "copy-text"].iter().enumerate() {
        let more = ["--no-header", "--columns", "info", "--audit", "--again", "--via", via, "--jobs", "2"];
        let report = files.report(0, "t.csv", "t", &database.url(), &more);
        report.bypassed().audited(25_000 * (again as u64 + 1));
    }
    routed_as_postgres_does(&database, "t");
    let facts = database.psql(
        "SELECT count(*), count(DISTINCT id), count(DISTINCT drawn), min(drawn) >= 1000, bool_and(drawn % 5 = 0),
                count(*) FILTER (WHERE who = 'a ''quoted'' ' || current_database()), count(DISTINCT made) > 0,
                count(*) FILTER (WHERE twice = length(info) * 2), count(none), count(DISTINCT info) FROM t",
    );
    assert_eq!(facts, "50000|50000|50000|t|t|50000|t|50000|0|25000");
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE made IS NULL OR again IS NULL"), "0");
    // Nobody else gets the same.
    assert_eq!(
        database.psql("SELECT nextval('t_id_seq') > max(id), nextval('own') > max(drawn) FROM t"),
        "t|t"
    );
    settled(&database, "");
}

fn rejects(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let columns = "id int, info text, made date";
    database.by_hash("t", columns, "id", 4, "PRIMARY KEY (id), CHECK (info <> 'bad')");
    let Written { text, expected } = rejected::write(&database, &files, "23502");

    // One ends a load that may reject none, and nothing of its unit is there.
    let lines: Vec<&str> = text.lines().collect();
    files.write("strict.csv", format!("{}\n{}\n", lines[..39].join("\n"), lines[40..1399].join("\n")));
    files.write("late.csv", format!("{}\n{}\n", lines[1410..1500].join("\n"), lines[1399]));
    for (file, line) in [("strict.csv", 699), ("late.csv", 91)] {
        let mut strict = files.load(file, "t", &database.url(), &["--no-header"]);
        let outcome = run(&mut strict, None, PATIENCE);
        outcome.expect_code(2);
        assert!(outcome.stderr.contains(&format!("{file}:{line} ")), "{outcome:#?}");
        settled(&database, file);
        assert_eq!(database.psql("SELECT count(*) FROM t"), "0");
    }

    for via in ["auto", "copy-text"] {
        database.everywhere(
            "DO $$ DECLARE l text; BEGIN
            FOR l IN SELECT oid::regclass FROM pg_class WHERE relname ~ '^t_[0-9]$' AND relkind = 'r' LOOP
                EXECUTE 'TRUNCATE ' || l; END LOOP; END $$",
        );
        let name = format!("bad-{via}.csv");
        let more = [
            "--no-header",
            "--max-rejects",
            "100",
            "--rejects",
            &name,
            "--via",
            via,
            "--audit",
            "--load-id",
            via,
        ];
        let report = files.report(1, "t.csv", "t", &database.url(), &more);
        report.bypassed().audited(rejected::LINES - expected.len() as u64);
        equals(&database, "t", "TABLE expected");
        assert_eq!(reasons(&files, &name), expected, "{via}");
    }
    settled(&database, "");
}

fn rows_without_a_partition(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let leaves =
        [("FOR VALUES FROM (0) TO (100)", At::Node(0)), ("FOR VALUES FROM (200) TO (300)", At::Node(1))];
    database.partitioned("t", "k int, n int", "RANGE (k)", &leaves, "k int, n int");
    let mut file: String = (0..100).map(|k| format!("{k},1\n{},2\n", k + 200)).collect();
    // A gap, below, above, and NULL.
    file += "150,3\n-1,4\n300,5\n,6\n299,7\n";
    files.write("t.csv", &file);
    let more = ["--no-header", "--max-rejects", "10", "--rejects", "bad.csv", "--audit"];
    files.report(1, "t.csv", "t", &database.url(), &more).bypassed().audited(201);
    assert_eq!(
        reasons(&files, "bad.csv"),
        [201, 202, 203, 204].map(|line| (line, "23514".to_owned())),
        "{}",
        files.read("bad.csv.jsonl")
    );
    assert_eq!(database.psql("SELECT count(*), sum(n) FROM t"), "201|307");
    assert_eq!(files.read("bad.csv").lines().count(), 4, "{}", files.read("bad.csv"));
    settled(&database, "");
}

fn the_same_command_again(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    database.by_hash("t", "id int, info text", "id", 6, "");
    let file: String = (1..=20_000).map(|id| format!("{id},info {id}\n")).collect();
    files.write("t.csv", &file);
    let more = ["--no-header", "--jobs", "2", "--chunk", "20K", "--unit-bytes", "40K", "--unit-millis", "10"];
    let first = files.report(0, "t.csv", "t", &database.url(), &more);
    first.bypassed();
    assert_eq!(first.total("rows"), 20_000);
    let second = files.report(0, "t.csv", "t", &database.url(), &more);
    assert_eq!(second.total("rows"), 0, "{:#}", second.0);
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 20000) i");
    routed_as_postgres_does(&database, "t");
    let units: u32 = database.psql("SELECT count(*) FROM inrush_ledger.units").parse().expect("a number");
    assert!(units > 1, "one unit proves nothing");
    settled(&database, "");
}

fn what_goes_through_the_coordinator(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let file: String = (1..=300).map(|id| format!("{id},{}\n", id % 3)).collect();
    files.write("t.csv", &file);
    let columns = "id int, kind int";
    let halves = [
        ("FOR VALUES WITH (MODULUS 2, REMAINDER 0)", At::Node(0)),
        ("FOR VALUES WITH (MODULUS 2, REMAINDER 1)", At::Node(1)),
    ];
    // What the table has against it.
    let made: [(&str, &str); 9] = [
        ("by_list", "by list"),
        ("nested", "is partitioned, too"),
        ("triggers", "it has triggers for rows"),
        ("expression", "has an expression"),
        ("by_two", "range of several columns"),
        ("read_only", "not to be written to"),
        ("collated", "does not order by bytes"),
        ("rounded", "keys of type numeric are not hashed here"),
        ("ordered", "the order of its partition key's type numeric is not known here"),
    ];
    database.partitioned(
        "by_list",
        columns,
        "LIST (kind)",
        &[("FOR VALUES IN (0, 1)", At::Node(0)), ("FOR VALUES IN (2)", At::Node(1))],
        columns,
    );
    database.partitioned("nested", columns, "HASH (id)", &halves[..1], columns);
    database.psql(
        "CREATE TABLE nested_1 PARTITION OF nested FOR VALUES WITH (MODULUS 2, REMAINDER 1) PARTITION BY HASH (id);
         CREATE TABLE nested_1_0 PARTITION OF nested_1 FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    );
    database.partitioned("triggers", columns, "HASH (id)", &halves, columns);
    database.psql(
        "CREATE FUNCTION f() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
         CREATE TRIGGER each BEFORE INSERT ON triggers FOR EACH ROW EXECUTE FUNCTION f()",
    );
    database.partitioned("expression", columns, "HASH ((id % 10))", &halves, columns);
    database.partitioned(
        "by_two",
        columns,
        "RANGE (id, kind)",
        &[
            ("FOR VALUES FROM (MINVALUE, MINVALUE) TO (100, 0)", At::Node(0)),
            ("FOR VALUES FROM (100, 0) TO (MAXVALUE, MAXVALUE)", At::Node(1)),
        ],
        columns,
    );
    // Not written to, by its options: the coordinator refuses what comes to that leaf, so that none may.
    database.partitioned(
        "read_only",
        columns,
        "RANGE (id)",
        &[
            ("FOR VALUES FROM (MINVALUE) TO (1000)", At::Node(0)),
            ("FOR VALUES FROM (1000) TO (MAXVALUE)", At::Node(1)),
        ],
        columns,
    );
    database.psql("ALTER FOREIGN TABLE read_only_1 OPTIONS (updatable 'false')");
    let icu = database
        .psql("SELECT coalesce(min(collname::text), '') FROM pg_collation WHERE collname = 'en-x-icu'");
    database.partitioned(
        "rounded",
        "id numeric(12,2), kind int",
        "HASH (id)",
        &halves,
        "id numeric(12,2), kind int",
    );
    database.partitioned(
        "ordered",
        "id numeric, kind int",
        "RANGE (id)",
        &[
            ("FOR VALUES FROM (MINVALUE) TO (200)", At::Node(0)),
            ("FOR VALUES FROM (200) TO (MAXVALUE)", At::Node(1)),
        ],
        "id numeric, kind int",
    );
    for (table, why) in made {
        if table == "collated" {
            if icu.is_empty() {
                continue;
            }
            database.partitioned(
                table,
                "id text COLLATE \"en-x-icu\", kind int",
                "RANGE (id)",
                &[
                    ("FOR VALUES FROM (MINVALUE) TO ('2')", At::Node(0)),
                    ("FOR VALUES FROM ('2') TO (MAXVALUE)", At::Node(1)),
                ],
                "id text, kind int",
            );
        }
        let report = files.report(0, "t.csv", table, &database.url(), &["--no-header", "--again"]);
        report.through(why);
        assert_eq!(database.psql(&format!("SELECT count(*), sum(kind) FROM {table}")), "300|300", "{table}");
    }
    // What the load has against it.
    let asked: [(&[&str], &str); 5] = [
        (&["--no-bypass", "--audit"], "--no-bypass"),
        (&["--atomic"], "one transaction"),
        (&["--no-ledger"], "without a ledger"),
        (&["--unit-bytes", "1K", "--set", "kind=1", "--columns", "id,-", "--no-bypass"], "--no-bypass"),
        (&["--via", "direct"], "--via direct"),
    ];
    for (number, (args, why)) in asked.iter().enumerate() {
        let table = format!("asked{number}");
        database.partitioned(&table, columns, "HASH (id)", &halves, columns);
        if args.contains(&"direct") {
            let mut command =
                files.load("t.csv", &table, &database.url(), &["--no-header", "--via", "direct"]);
            // There is no extension, and no direct way into a partitioned table.
            run(&mut command, None, PATIENCE).expect_code(2);
            continue;
        }
        let args: Vec<&str> = ["--no-header", "--again"].into_iter().chain(args.iter().copied()).collect();
        let report = files.report(0, "t.csv", &table, &database.url(), &args);
        report.through(why);
        if args.contains(&"--audit") {
            report.audited(300);
        }
        assert_eq!(database.psql(&format!("SELECT count(*) FROM {table}")), "300", "{args:?}");
    }
    // In words, too.
    let mut command = files.load("t.csv", "by_list", &database.url(), &["--no-header", "--again"]);
    let outcome = run(&mut command, None, PATIENCE);
    assert!(outcome.stdout.contains("through the coordinator: it is partitioned by list"), "{outcome:#?}");
    database.by_hash("straight", columns, "id", 4, "");
    let mut command =
        files.load("t.csv", "straight", &database.url(), &["--no-header", "--again", "--audit"]);
    let outcome = run(&mut command, None, PATIENCE);
    assert!(outcome.stdout.contains("on 2 nodes; each of 300 rows is where its key leads"), "{outcome:#?}");
    settled(&database, "");
}

fn settings_of_the_role(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    database.by_hash("t", "k date, at timestamptz, n int", "k", 5, "");
    let name = database.coordinator().name().to_owned();
    // The nodes would read 2 January.
    database.psql(&format!(
        "ALTER DATABASE {name} SET datestyle = 'SQL, DMY'; ALTER DATABASE {name} SET timezone = 'Asia/Tokyo'"
    ));
    files.write("t.csv", "01/02/2024,01/02/2024 03:00,1\n13/12/2024,13/12/2024 00:00,2\n");
    files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"]).bypassed().audited(2);
    let rows = database.psql("SET datestyle = ISO; SET timezone = 'UTC'; SELECT * FROM t ORDER BY n");
    assert_eq!(rows, "2024-02-01|2024-01-31 18:00:00+00|1\n2024-12-13|2024-12-12 15:00:00+00|2");
    routed_as_postgres_does(&database, "t");
    settled(&database, "");
}

/// A load of 30000 rows into a new table `t`, slow enough to change something: some rows have come.
fn slow_load(database: &ClusterDatabase<'_>, files: &Files) -> Running {
    database.by_hash("t", "id int, info text", "id", 4, "");
    let file: String = (1..=30_000).map(|id| format!("{id},info {id}\n")).collect();
    files.write("t.csv", &file);
    let mut command =
        files.load("t.csv", "t", &database.url(), &["--no-header", "--jobs", "2", "--chunk", "5K"]);
    command.args([
        "--unit-bytes",
        "10K",
        "--unit-millis",
        "20",
        "--max-rate",
        "200K",
        "--report",
        "-",
        "--audit",
    ]);
    let running = Running::start(&mut command, None);
    wait_until("rows come", || database.psql("SELECT count(*) > 2000 FROM t") == "t");
    running
}

fn partitions_that_change_under_way(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let mut running = slow_load(&database, &files);
    // The leaf moves from one node to the other, while nobody writes.
    move_a_leaf(&database);
    let still = running.wait_until(std::time::Instant::now()).is_none();
    let outcome = end(running);
    outcome.expect_code(0);
    assert!(still, "the load was over before anything changed");
    Report::of(&outcome).bypassed().audited(30_000);
    let moved: u32 = database.node(1).psql("SELECT count(*) FROM moved").parse().expect("a number");
    assert!(moved > 5_000, "{moved}");
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 30000) i");
    routed_as_postgres_does(&database, "t");
    settled(&database, "");
}

fn a_server_that_moves(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    let running = slow_load(&database, &files);
    let elsewhere = Proxy::start(&database.cluster().nodes()[1]);
    database.psql(&format!("ALTER SERVER node1 OPTIONS (SET port '{}')", elsewhere.port()));
    let outcome = end(running);
    outcome.expect_code(0);
    Report::of(&outcome).bypassed().audited(30_000);
    assert!(elsewhere.accepted() > 1, "it still went to where the node had been");
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 30000) i");
    settled(&database, "");
}

fn a_table_that_is_made_anew(version: Version) {
    let database = fresh(version);
    let files = Files::new();
    database.by_hash("t", "id int, info text", "id", 4, "");
    let file: String = (1..=2_000).map(|id| format!("{id},info {id}\n")).collect();
    files.write("t.csv", file.replace("\n1900,", "\nx,"));
    let units = [
        "--no-header",
        "--chunk",
        "1K",
        "--unit-bytes",
        "5K",
        "--unit-millis",
        "1",
        "--jobs",
        "1",
        "--load-id",
        "l",
    ];
    files.report(2, "t.csv", "t", &database.url(), &units).bypassed();
    let there: u32 = database.psql("SELECT count(*) FROM t").parse().expect("a number");
    assert!(there > 0 && there < 1_900, "{there}");
    files.write("t.csv", &file);
    // Another table of the name, with the rows of the first.
    database.by_hash("t_new", "id int, info text", "id", 3, "");
    database.psql(
        "BEGIN; INSERT INTO t_new SELECT * FROM t; DROP TABLE t; ALTER TABLE t_new RENAME TO t; COMMIT",
    );
    let mut command = files.load("t.csv", "t", &database.url(), &units);
    let outcome = run(&mut command, None, PATIENCE);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("`--resume` loads what load 1 has not recorded"), "{outcome:#?}");
    let resumed = [&units[..], &["--resume", "--audit"]].concat();
    files.report(0, "t.csv", "t", &database.url(), &resumed).bypassed().audited(2_000);
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 2000) i");
    settled(&database, "");
}

#[test]
fn nodes_behind_other_addresses() {
    let cluster = Cluster::start(&ClusterOptions { reach: Reach::Socket, ..ClusterOptions::default() });
    let database = cluster.fresh_database();
    let files = Files::new();
    database.by_hash("t", "id int, info text", "id", 4, "");
    let file: String = (1..=1_000).map(|id| format!("{id},info {id}\n")).collect();
    files.write("t.csv", &file);
    // As the coordinator reaches them.
    files.report(0, "t.csv", "t", &database.url(), &["--no-header"]).bypassed();
    let proxies: Vec<Proxy> = cluster.nodes().iter().map(Proxy::start).collect();
    let map: Vec<String> = (0..2)
        .map(|node| {
            let (host, port) = cluster.address(node);
            format!("{host}:{port}=127.0.0.1:{}", proxies[node].port())
        })
        .collect();
    let more = ["--no-header", "--again", "--node", &map[0], "--node", &map[1]];
    let url = cluster.coordinator().tcp_url_via(cluster.coordinator().port(), database.coordinator().name());
    files.report(0, "t.csv", "t", &url, &more).bypassed();
    assert!(proxies.iter().all(|proxy| proxy.forwarded() > 5_000), "rows did not go by the map");
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 1000) i, generate_series(1, 2)");
    settled(&database, "");
}

#[test]
fn nodes_that_want_a_password_or_are_not_there() {
    let hba = "local all all trust\nhost all reader 127.0.0.1/32 scram-sha-256\nhost all all 127.0.0.1/32 scram-sha-256\n";
    let cluster = Cluster::start(&ClusterOptions { node_hba: hba, ..ClusterOptions::default() });
    let database = cluster.fresh_database();
    let files = Files::new();
    for node in 0..2 {
        database
            .node(node)
            .psql("CREATE ROLE writer LOGIN PASSWORD 'secret' IN ROLE pg_write_all_data, pg_read_all_data");
    }
    database.psql(
        "CREATE TABLE own (a int);
         ALTER USER MAPPING FOR PUBLIC SERVER node0 OPTIONS (SET user 'writer', ADD password 'secret');
         ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (SET user 'writer', ADD password 'secret')",
    );
    database.by_hash("t", "id int, info text", "id", 4, "");
    let file: String = (1..=1_000).map(|id| format!("{id},info {id}\n")).collect();
    files.write("t.csv", &file);
    files.report(0, "t.csv", "t", &database.url(), &["--no-header"]).bypassed();
    equals(&database, "t", "SELECT i, 'info ' || i FROM generate_series(1, 1000) i");

    let before = database.psql("SELECT count(*) FROM t_0");
    // The error names the node, and the ways out; never the password.
    let fails = |what: &str| {
        let mut command = files.load("t.csv", "t", &database.url(), &["--no-header", "--again"]);
        let outcome = run(&mut command, None, PATIENCE);
        outcome.expect_code(2);
        for word in [what, "node1", "--node", "--no-bypass"] {
            assert!(outcome.stderr.contains(word), "no {word:?} in {outcome:#?}");
        }
        assert!(!format!("{outcome:?}").contains("wr0ng"), "{outcome:#?}");
        assert_eq!(database.psql("SELECT count(*) FROM t_0"), before);
        settled(&database, what);
    };
    database.psql("ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (SET password 'wr0ng')");
    fails("password authentication failed");
    database.psql("ALTER USER MAPPING FOR PUBLIC SERVER node1 OPTIONS (SET password 'secret')");
    database.psql("ALTER SERVER node1 OPTIONS (SET port '1')");
    fails("refused");
}

#[test]
fn sixteen_goes_on_without() {
    // 16 of the test servers has no postgres_fdw: tables that are all here are not asked about more than that.
    require_server!(16);
    let database = inrush_testkit::Postgres::shared(16).fresh_database();
    let files = Files::new();
    database.psql(
        "CREATE TABLE t (id int) PARTITION BY HASH (id);
         CREATE TABLE t_0 PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    );
    files.write("t.csv", "1\n2\n");
    let report = files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"]);
    assert!(report.cluster().is_null(), "{:#}", report.0);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "2");
}

/// The first of four partitions by hash moves from one node to the other.
pub fn move_a_leaf(database: &ClusterDatabase<'_>) {
    database.node(1).psql("CREATE TABLE moved (id int, info text)");
    database.psql(
        "BEGIN; ALTER TABLE t DETACH PARTITION t_0;
         CREATE FOREIGN TABLE moved (id int, info text) SERVER node1;
         INSERT INTO moved SELECT * FROM t_0; DROP FOREIGN TABLE t_0;
         ALTER TABLE t ATTACH PARTITION moved FOR VALUES WITH (MODULUS 4, REMAINDER 0); COMMIT",
    );
}
