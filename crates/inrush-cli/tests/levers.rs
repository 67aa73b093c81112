//! Levers: what they change is taken back whatever dies, and what is impossible is refused before the first row.
//!
//! pg_dump is the judge of what a table was and is. `INRUSH_KILLS` says how many times a load is killed (6 unless told
//! otherwise), `INRUSH_SEED` which random numbers are used.

mod harness;

use harness::{Outcome, Random, Running, inrush, run, without_server_variables};
use inrush_testkit::fixtures::{Case, Form};
use inrush_testkit::{Database, Postgres, ServerOptions, StopMode, Version, require_server};
use std::fs::File;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};
use tempfile::TempDir;

const PATIENCE: Duration = Duration::from_secs(90);

/// A table with one of everything that a lever drops or changes, and things beside it.
const TABLE: &str = r#"
    CREATE SCHEMA "Odd s";
    CREATE TABLE parents (id int PRIMARY KEY);
    INSERT INTO parents SELECT generate_series(0, 99);
    CREATE FUNCTION "Odd s".low(text) RETURNS text IMMUTABLE STRICT LANGUAGE sql AS 'SELECT pg_catalog.lower($1)';
    CREATE TABLE "Odd s"."T" (
        id int PRIMARY KEY, name text UNIQUE, parent int REFERENCES parents ON DELETE CASCADE, note text,
        EXCLUDE USING btree (note WITH =) WHERE (note = 'one only')
    ) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.5, toast.autovacuum_enabled = true);
    ALTER TABLE "Odd s"."T" ADD CONSTRAINT "self" FOREIGN KEY (parent) REFERENCES "Odd s"."T" (id)
        DEFERRABLE INITIALLY DEFERRED NOT VALID;
    COMMENT ON CONSTRAINT "self" ON "Odd s"."T" IS 'it''s a \ comment';
    CREATE INDEX plain ON "Odd s"."T" (parent, id DESC NULLS LAST) INCLUDE (note) WITH (fillfactor = 70);
    CREATE INDEX "Expr" ON "Odd s"."T" ("Odd s".low(note), (id % 10)) WHERE parent > 5;
    ALTER INDEX "Odd s"."Expr" ALTER COLUMN 2 SET STATISTICS 500;
    COMMENT ON INDEX "Odd s"."Expr" IS 'it''s an index \';
    CREATE INDEX brin ON "Odd s"."T" USING brin (id) WITH (pages_per_range = 8);
    CREATE INDEX clustered ON "Odd s"."T" (note COLLATE "C" text_pattern_ops);
    ALTER TABLE "Odd s"."T" CLUSTER ON clustered;
"#;

/// The schema as pg_dump writes it, without what a newer pg_dump makes random.
fn dump(database: &Database<'_>) -> String {
    let server = database.server();
    let mut command = Command::new(server.installation().bin().join("pg_dump"));
    without_server_variables(&mut command);
    let output = command
        .args(["-s", "--exclude-schema=inrush_ledger", "-h"])
        .arg(server.socket_dir())
        .args(["-p", &server.port().to_string(), "-U", "postgres", database.name()])
        .output()
        .expect("pg_dump");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8(output.stdout).expect("UTF-8");
    text.lines().filter(|line| !line.starts_with('\\')).collect::<Vec<_>>().join("\n")
}

/// Invalid indexes and constraints that are not validated, of tables that are not the ledger's.
const INVALID: &str = "
    SELECT (SELECT count(*) FROM pg_index WHERE NOT indisvalid) || ' '
        || (SELECT count(*) FROM pg_constraint WHERE NOT convalidated)";

fn load(database: &Database<'_>, dir: &Path, args: &[&str]) -> Outcome {
    let mut command = inrush(dir);
    command.arg("load").args(args).args(["--to", &database.url()]);
    run(&mut command, None, PATIENCE)
}

fn rows(n: u32) -> TempDir {
    let dir = tempfile::tempdir().expect("a directory");
    let lines: String = (0..n).map(|i| format!("{i},name {i},{},note {}\n", i % 100, i % 1000)).collect();
    std::fs::write(dir.path().join("rows.csv"), lines).expect("own directory");
    dir
}

const ALL: [&str; 5] =
    ["--defer-indexes", "--defer-foreign-keys", "--quiet-autovacuum", "--unlogged", "--then-logged"];

#[test]
fn everything_is_as_it_was() {
    require_server!(15);
    let server = Postgres::shared(15);
    for levers in [&ALL[..], &ALL[..1], &ALL[1..2], &ALL[2..3], &ALL[3..5], &["--fast"]] {
        let database = server.fresh_database();
        database.psql(TABLE);
        let before = dump(&database);
        let dir = rows(5000);
        let said = load(&database, dir.path(), &[&["rows.csv", "-t", "\"Odd s\".\"T\""], levers].concat());
        said.expect_code(0);
        assert_eq!(dump(&database), before, "{levers:?}");
        assert_eq!(database.psql(INVALID), "0 1", "{levers:?}");
        assert_eq!(database.psql("SELECT count(*) FROM \"Odd s\".\"T\""), "5000");
        assert_eq!(database.psql("SELECT count(*) FROM inrush_ledger.levers WHERE state = 'applied'"), "0");
        assert_eq!(database.psql("SELECT sum(rows) FROM inrush_ledger.units"), "5000", "{levers:?}");
        // Said again: the rows are there, whatever was rewritten.
        let again = load(&database, dir.path(), &[&["rows.csv", "-t", "\"Odd s\".\"T\""], levers].concat());
        assert!(again.expect_code(0).stdout.starts_with("nothing loaded"), "{again:?}");
    }
}

#[test]
fn indexes_are_dropped_meanwhile_and_follow_a_renamed_table() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    database.psql(TABLE);
    let before = dump(&database);
    let dir = rows(3000);
    let slow = [
        "rows.csv",
        "-t",
        "\"Odd s\".\"T\"",
        "--max-rate",
        "60KB",
        "--chunk",
        "4KiB",
        "--unit-bytes",
        "4KiB",
    ];
    let mut command = inrush(dir.path());
    command.arg("load").args(slow).args(["--defer-indexes=plain,Expr", "--to", &database.url()]);
    let running = Running::start(&mut command, None);
    let there = "SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class
                  WHERE relkind = 'i' AND relname IN ('plain', 'Expr', 'brin', 'clustered')";
    let deadline = Instant::now() + PATIENCE;
    while database.psql(there) != "brin clustered" {
        assert!(Instant::now() < deadline, "the indexes are not dropped");
        std::thread::sleep(Duration::from_millis(20));
    }
    running.kill9();
    let mut recover = inrush(dir.path());
    database.psql("ALTER TABLE \"Odd s\".\"T\" RENAME TO \"U\"");
    let said = run(recover.args(["recover", "--to", &database.url()]), None, PATIENCE);
    assert!(said.expect_code(0).stdout.contains("is back"), "{said:?}");
    database.psql("ALTER TABLE \"Odd s\".\"U\" RENAME TO \"T\"");
    assert_eq!(dump(&database), before);
}

#[test]
fn truncate_once() {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql("CREATE TABLE t (id int, name text, parent int, note text); INSERT INTO t VALUES (-1)");
    let dir = rows(3000);
    load(&database, dir.path(), &["rows.csv", "-t", "t"]).expect_code(0);
    // Another file, which stops on its last row: the table is emptied, what came before that row stays.
    let mut text = std::fs::read_to_string(dir.path().join("rows.csv")).unwrap();
    text += "x,bad,1,\n";
    std::fs::write(dir.path().join("more.csv"), text).unwrap();
    let more =
        ["more.csv", "-t", "t", "--truncate", "--chunk", "4KiB", "--unit-bytes", "4KiB", "--jobs", "1"];
    load(&database, dir.path(), &more).expect_code(2);
    let kept: u32 = database.psql("SELECT count(*) FROM t").parse().unwrap();
    assert!((1..3000).contains(&kept), "{kept}");
    assert_eq!(database.psql("SELECT count(*) FROM t WHERE id = -1"), "0");
    // Resumed: not emptied again.
    load(&database, dir.path(), &[&more[..], &["--max-rejects", "1"]].concat()).expect_code(1);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
    // What the first file brought is gone, and the ledger knows it.
    assert_eq!(database.psql("SELECT state FROM inrush_ledger.loads ORDER BY id LIMIT 1"), "undone");
    let first = load(&database, dir.path(), &["rows.csv", "-t", "t", "--truncate", "--atomic"]);
    assert!(first.expect_code(0).stdout.contains("3,000 rows into"), "{first:?}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
    // All or nothing: a bad row leaves the table as it was.
    let failed = load(&database, dir.path(), &["more.csv", "-t", "t", "--truncate", "--atomic", "--again"]);
    failed.expect_code(2);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
}

#[test]
fn frozen_rows() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, name text, parent int, note text)");
    let dir = rows(3000);
    load(&database, dir.path(), &["rows.csv", "-t", "t", "--freeze", "--no-analyze"]).expect_code(0);
    let frozen = "SELECT bool_and(all_frozen) FROM pg_visibility_map('t'::regclass)";
    database.psql("CREATE EXTENSION pg_visibility");
    assert_eq!(database.psql(frozen), "t");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
    // Into a table that it makes.
    load(&database, dir.path(), &["rows.csv", "-t", "made", "--freeze", "--no-header"]).expect_code(0);
    assert_eq!(database.psql("SELECT count(*) FROM made"), "3000");
    // A row that the server refuses: nothing is loaded, and the rows from before are there.
    std::fs::write(dir.path().join("bad.csv"), "1,a,1,\nx,b,1,\n").unwrap();
    let bad = ["bad.csv", "-t", "t", "--freeze", "--truncate", "--max-rejects", "5"];
    let said = load(&database, dir.path(), &bad);
    assert!(said.expect_code(2).stderr.contains("--freeze a row that the server refuses"), "{said:?}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
}

/// Where WAL is minimal, a table that is made logged is synced and not written to WAL; elsewhere all of it is.
#[test]
fn the_price_of_then_logged() {
    require_server!(15);
    let dir = tempfile::tempdir().expect("a directory");
    let file = File::create(dir.path().join("rows.csv")).expect("a file");
    Case::C1.write(Form::Csv, 50_000, 1, file).expect("rows");
    let mut wal = Vec::new();
    for conf in [&[("wal_level", "minimal"), ("max_wal_senders", "0")][..], &[("wal_level", "replica")]] {
        let server =
            Postgres::start(&ServerOptions { version: Version::Major(15), conf, ..ServerOptions::default() });
        let database = server.fresh_database();
        database.psql(&format!("CREATE TABLE t ({})", Case::C1.columns()));
        let at = || -> u64 {
            database.psql("SELECT pg_current_wal_insert_lsn() - '0/0'::pg_lsn").parse().unwrap()
        };
        let before = at();
        let words = ["rows.csv", "-t", "t", "--no-header", "--unlogged", "--then-logged", "--no-analyze"];
        let said = load(&database, dir.path(), &words);
        said.expect_code(0);
        assert_eq!(said.stderr.contains("1.6 times"), conf.len() == 1, "{said:?}");
        wal.push((at() - before, database.psql("SELECT pg_relation_size('t')").parse::<u64>().unwrap()));
        assert_eq!(database.psql("SELECT count(*) FROM t"), "50000");
        // It is durable: a crash leaves it as it is.
        server.stop(StopMode::Immediate);
        server.restart();
        assert_eq!(database.psql("SELECT count(*) FROM t"), "50000");
    }
    let [(minimal, size), (replica, _)] = wal[..] else { unreachable!() };
    assert!(minimal < size / 10, "{wal:?}");
    assert!(replica > size, "{wal:?}");
}

#[test]
fn a_foreign_key_that_is_violated() {
    let database = Postgres::shared(Version::Any).fresh_database();
    database.psql(
        "CREATE TABLE p (id int PRIMARY KEY); INSERT INTO p SELECT generate_series(0, 50);
         CREATE TABLE t (id int, name text, parent int CONSTRAINT fk REFERENCES p, note text)",
    );
    let before = database.psql("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'fk'");
    let dir = rows(3000);
    let said = load(&database, dir.path(), &["rows.csv", "-t", "t", "--defer-foreign-keys"]);
    assert!(said.expect_code(2).stderr.contains("violate the foreign key fk"), "{said:?}");
    assert_eq!(database.psql("SELECT convalidated FROM pg_constraint WHERE conname = 'fk'"), "f");
    assert!(database.try_psql("INSERT INTO t VALUES (1, 'x', 99)").is_err(), "new rows are not checked");
    database.psql("DELETE FROM t WHERE parent > 50");
    let mut recover = inrush(dir.path());
    run(recover.args(["recover", "--to", &database.url()]), None, PATIENCE).expect_code(0);
    let after = "SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = 'fk'";
    assert_eq!(database.psql(after), before);
}

#[test]
fn the_impossible_is_refused_before_the_first_row() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let role = format!("lever_{}", std::process::id());
    database.psql(&format!(
        "CREATE TABLE t (id int PRIMARY KEY, name text UNIQUE, parent int, note text); INSERT INTO t VALUES (-1);
         CREATE TABLE published (LIKE t); CREATE PUBLICATION pub FOR TABLE published;
         CREATE TABLE child (t int REFERENCES t);
         CREATE TABLE part (LIKE t) PARTITION BY RANGE (id);
         CREATE TABLE part_1 PARTITION OF part FOR VALUES FROM (0) TO (1000000);
         CREATE VIEW v AS SELECT * FROM published;
         CREATE TABLE empty (LIKE t);
         CREATE ROLE {role} LOGIN; GRANT INSERT, SELECT ON ALL TABLES IN SCHEMA public TO {role};
         GRANT CREATE ON DATABASE \"{}\" TO {role}",
        database.name()
    ));
    let dir = rows(10);
    let as_role = database.url().replace("postgres@", &format!("{role}@"));
    let cases: &[(&str, &[&str], &str)] = &[
        ("t", &["--freeze"], "child has a foreign key to public.t"),
        ("t", &["--truncate"], "child has a foreign key to public.t"),
        ("t", &["--unlogged"], "child is logged and has a foreign key"),
        ("published", &["--unlogged"], "published by \"pub\""),
        ("part", &["--defer-indexes"], "partitioned table"),
        ("part", &["--unlogged"], "partitioned table"),
        ("v", &["--quiet-autovacuum"], "a view"),
        ("t", &["--defer-indexes=t_pkey"], "foreign keys that depend on it"),
        (
            "t",
            &["--defer-indexes=t_name_key", "--jobs", "2"],
            "--defer-indexes=t_name_key contradicts --jobs 2",
        ),
        ("t", &["--defer-indexes=nothing"], "has no index \"nothing\""),
        ("empty", &["--then-logged"], "--unlogged"),
        ("empty", &["--unlogged", "--no-ledger"], "--no-ledger"),
        ("empty", &["--freeze", "--jobs", "3"], "--freeze contradicts --jobs 3"),
        ("empty", &["--sync-commit", "never"], "--sync-commit"),
    ];
    for (table, args, expected) in cases {
        let said = load(&database, dir.path(), &[&["rows.csv", "-t", table], *args].concat());
        assert!(said.expect_code(2).stderr.contains(expected), "{table} {args:?}: {}", said.stderr);
        assert!(!said.stderr.contains("panicked"), "{}", said.stderr);
    }
    for lever in ["--unlogged", "--defer-indexes", "--defer-foreign-keys", "--quiet-autovacuum", "--truncate"]
    {
        let mut command = inrush(dir.path());
        command.args(["load", "rows.csv", "-t", "empty", lever, "--to", &as_role]);
        let said = run(&mut command, None, PATIENCE);
        let error = &said.expect_code(2).stderr;
        assert!(error.contains("42501") && error.contains("hint:"), "{lever}: {error}");
    }
    // Rows that are there are not risked, and a table with rows is not frozen.
    database.psql("INSERT INTO empty VALUES (-1)");
    for lever in ["--unlogged", "--freeze"] {
        let said = load(&database, dir.path(), &["rows.csv", "-t", "empty", lever]);
        assert!(said.expect_code(2).stderr.contains("public.empty has rows"), "{}", said.stderr);
    }
    let counts = "SELECT (SELECT count(*) FROM t) || ' ' || (SELECT count(*) FROM published) || ' '
                      || (SELECT count(*) FROM part) || ' ' || (SELECT count(*) FROM empty)";
    assert_eq!(database.psql(counts), "1 0 0 1");
    assert_eq!(database.psql("SELECT relpersistence FROM pg_class WHERE relname = 'empty'"), "p");
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn indexes_that_forbid_something() {
    require_server!(15);
    let server = Postgres::shared(15);
    for version in [15, 18] {
        if !inrush_testkit::Installation::have_or_say_skipped(version) {
            continue;
        }
        let server = if version == 15 { server } else { Postgres::shared(version) };
        let database = server.fresh_database();
        database.psql(
            "CREATE TABLE t (id int, name text, parent int, note text,
               CONSTRAINT pk PRIMARY KEY (id) INCLUDE (note) WITH (fillfactor = 80),
               CONSTRAINT uq UNIQUE (name) DEFERRABLE INITIALLY DEFERRED,
               CONSTRAINT ex EXCLUDE USING btree (id WITH =, name WITH =) WHERE (parent > 50));
             COMMENT ON CONSTRAINT pk ON t IS 'it''s the key'; COMMENT ON INDEX pk IS 'an index';
             CREATE UNIQUE INDEX part ON t (note, name) WHERE id > 5; CREATE INDEX plain ON t (parent);
             ALTER TABLE t CLUSTER ON pk",
        );
        let shape = "SELECT string_agg(d, E'\\n' ORDER BY d) FROM (
            SELECT pg_get_indexdef(indexrelid) || ' ' || indisclustered || ' ' || indisvalid
                   || coalesce(obj_description(indexrelid, 'pg_class'), '') AS d FROM pg_index WHERE indrelid = 't'::regclass
            UNION ALL SELECT conname || pg_get_constraintdef(oid) || coalesce(obj_description(oid, 'pg_constraint'), '')
              FROM pg_constraint WHERE conrelid = 't'::regclass) x";
        let before = database.psql(shape);
        let dir = rows(3000);
        let all = "--defer-indexes=pk,uq,ex,part,plain";
        let said = load(&database, dir.path(), &["rows.csv", "-t", "t", all]);
        assert!(said.expect_code(0).stderr.contains("nobody else can use public.t"), "{said:?}");
        assert_eq!(database.psql(shape), before);
        assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
        // Duplicates of rows that were there, and within the file.
        let more: String = (2990..3100).chain([3050, 3051]).map(|i| format!("{i},new {i},1,x\n")).collect();
        std::fs::write(dir.path().join("more.csv"), more).unwrap();
        let words = ["more.csv", "-t", "t", all];
        let said = load(&database, dir.path(), &words);
        assert!(said.expect_code(2).stderr.contains("SQLSTATE 23505"), "{said:?}");
        assert_eq!(database.psql("SELECT count(*) FROM t"), "3000");
        let said = load(
            &database,
            dir.path(),
            &[&words[..], &["--max-rejects", "50", "--rejects", "bad.csv"]].concat(),
        );
        assert!(said.expect_code(1).stderr.contains("done once more"), "{said:?}");
        assert_eq!(
            (database.psql(shape), database.psql("SELECT count(*) FROM t")),
            (before, "3100".to_owned())
        );
        let reasons = std::fs::read_to_string(dir.path().join("bad.csv.jsonl")).unwrap();
        assert_eq!(reasons.lines().count(), 12, "{reasons}");
        assert!(reasons.contains("\"record\":111,\"line\":111"), "{reasons}");
        // Others depend on it.
        database.psql("CREATE TABLE child (id int REFERENCES t)");
        let said = load(&database, dir.path(), &["rows.csv", "-t", "t", "--defer-indexes=pk", "--again"]);
        assert!(said.expect_code(2).stderr.contains("foreign keys that depend on it"), "{said:?}");
        database.psql(
            "DROP TABLE child; ALTER TABLE t ALTER name SET NOT NULL; CREATE UNIQUE INDEX ri ON t (name);
                       ALTER TABLE t REPLICA IDENTITY USING INDEX ri",
        );
        let said = load(&database, dir.path(), &["rows.csv", "-t", "t", "--defer-indexes=ri", "--again"]);
        assert!(said.expect_code(2).stderr.contains("replica identity"), "{said:?}");
    }
}

/// Where sizes decide nothing, the first seconds do: in the middle of the load, or not at all.
#[test]
fn fast_decides_after_the_first_seconds() {
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let file = File::create(dir.path().join("rows.csv")).expect("a file");
    Case::C1.write(Form::Csv, 100_000, 1, file).expect("rows");
    let columns = Case::C1.columns();
    database.psql(&format!(
        "CREATE TABLE t ({columns});\n\\copy t FROM '{}' (FORMAT csv)\n
         CREATE INDEX i1 ON t (c1); CREATE INDEX i2 ON t (c2); CREATE INDEX i3 ON t (c3); CREATE INDEX i4 ON t (c4);
         CREATE INDEX i5 ON t (c5); CREATE INDEX i6 ON t (c6); CREATE INDEX i7 ON t (c7); CREATE INDEX i8 ON t (c8)",
        dir.path().join("rows.csv").display()
    ));
    let defs = "SELECT string_agg(pg_get_indexdef(indexrelid) || indisvalid, ';' ORDER BY indexrelid::regclass::text)
                  FROM pg_index WHERE indrelid = 't'::regclass";
    let before = database.psql(defs);
    let common = ["rows.csv", "-t", "t", "--no-header", "--fast", "--chunk", "64KiB", "--unit-millis", "200"];
    // The client is held back: making indexes later would bring nothing.
    let said = load(&database, dir.path(), &[&common[..], &["--max-rate", "4MB"]].concat());
    assert!(said.expect_code(0).stderr.contains("--fast: the indexes stay: the server waits"), "{said:?}");
    // The server is the limit. Whether the rest is worth it depends on the machine; that it is weighed does not.
    let said = load(&database, dir.path(), &[&common[..], &["--again", "--jobs", "2"]].concat());
    said.expect_code(0);
    assert_eq!(database.psql(defs), before);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "300000");
}

/// What rows do one after the other is what a load makes of them at once.
#[test]
fn conflicts_as_one_row_after_the_other() {
    let mut random = Random::from_environment("conflicts");
    let database = Postgres::shared(Version::Any).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    for (round, action) in ["update", "nothing", "update", "nothing"].iter().enumerate() {
        let make = |name: &str| {
            format!(
                "DROP TABLE IF EXISTS {name}; CREATE TABLE {name} (
                   \"Key\" int, sub text COLLATE \"C\", n int, w numeric DEFAULT 7, at timestamptz DEFAULT '2020-01-01',
                   always int GENERATED ALWAYS AS IDENTITY, UNIQUE (\"Key\", sub), CHECK (w > 0));
                 INSERT INTO {name} (\"Key\", sub, n) SELECT i, 'a', -1 FROM generate_series(0, 40) i;\n"
            )
        };
        database.psql(&(make("t") + &make("expected")));
        let (mut lines, mut script) = (String::from("Key,sub,n,w\n"), String::new());
        let set = match *action {
            "update" => "DO UPDATE SET n = EXCLUDED.n, w = EXCLUDED.w",
            _ => "DO NOTHING",
        };
        for n in 0..2500 {
            let key = if random.one_in(20) { String::new() } else { random.below(60).to_string() };
            let sub = random.pick(&["a", "b", "", "it's"]);
            // One value in a hundred is refused by the CHECK: a reject here, an error passed over there.
            let w = if random.one_in(100) { "-1" } else { random.pick(&["1.50", "3", "1e3"]) };
            let quoted = if sub.is_empty() { "\"\"" } else { sub };
            lines += &format!("{key},{quoted},{n},{w}\n");
            let key = if key.is_empty() { "NULL" } else { &key };
            if w != "-1" {
                script += &format!(
                    "INSERT INTO expected (\"Key\", sub, n, w) VALUES ({key}, '{}', {n}, {w}) ON CONFLICT (\"Key\", sub) {set};\n",
                    sub.replace('\'', "''")
                );
            }
        }
        database.psql(&format!("BEGIN;\n{script}COMMIT"));
        std::fs::write(dir.path().join("rows.csv"), lines).unwrap();
        let pieces: &[&str] = if round < 2 { &[] } else { &["--chunk", "2KiB", "--unit-bytes", "4KiB"] };
        let words = ["rows.csv", "-t", "t", "--on-conflict", action, "--max-rejects", "500", "--again"];
        load(&database, dir.path(), &[&words[..], pieces].concat()).expect_code(1);
        let columns = "\"Key\", sub, n, w, at";
        let differ = format!(
            "SELECT count(*) FROM ((SELECT {columns} FROM t EXCEPT ALL SELECT {columns} FROM expected) UNION ALL
                                  (SELECT {columns} FROM expected EXCEPT ALL SELECT {columns} FROM t)) d"
        );
        assert_eq!(database.psql(&differ), "0", "{action} {pieces:?}");
        let mut undo = inrush(dir.path());
        let id = database.psql("SELECT max(id) FROM inrush_ledger.loads");
        let said = run(undo.args(["loads", "undo", &id, "--to", &database.url()]), None, PATIENCE);
        assert_eq!(said.code == Some(0), *action == "nothing", "{said:?}");
        if *action == "nothing" {
            assert_eq!(database.psql("SELECT count(*) FROM t WHERE n <> -1"), "0");
            assert_eq!(database.psql("SELECT count(*) FROM t"), "41");
        }
    }
    // Keys that cannot decide.
    database.psql(
        "CREATE TABLE none (id int); CREATE TABLE two (a int UNIQUE, b int UNIQUE);
         CREATE TABLE odd (a int, b int); CREATE UNIQUE INDEX ON odd ((a + 1)); CREATE UNIQUE INDEX ON odd (b) WHERE b > 1",
    );
    std::fs::write(dir.path().join("two.csv"), "a,b\n1,1\n1,2\n").unwrap();
    std::fs::write(dir.path().join("one.csv"), "a\n1\n").unwrap();
    for (words, expected) in [
        (&["one.csv", "-t", "none", "--columns", "id"][..], "has none over plain columns"),
        (&["two.csv", "-t", "two"], "several unique indexes"),
        (&["two.csv", "-t", "odd"], "has none over plain columns"),
        (&["two.csv", "-t", "two", "--conflict-key", "a,b"], "no unique index on (a, b)"),
        (&["one.csv", "-t", "two", "--conflict-key", "b"], "no field goes to the key column \"b\""),
        (&["two.csv", "-t", "two", "--conflict-key", "a", "--jobs", "2"], "contradicts --jobs"),
        (&["two.csv", "-t", "two", "--conflict-key", "a", "--via", "copy-binary"], "contradicts --via"),
    ] {
        let said = load(&database, dir.path(), &[words, &["--on-conflict", "update"]].concat());
        assert!(said.expect_code(2).stderr.contains(expected), "{words:?}: {}", said.stderr);
    }
    let words = ["two.csv", "-t", "two", "--conflict-key", "a", "--on-conflict", "update"];
    load(&database, dir.path(), &words).expect_code(0);
    assert_eq!(database.psql("SELECT a || ' ' || b FROM two"), "1 2");
}

/// Kills clients and servers at any moment, also while levers are pulled and taken back.
#[test]
fn levers_survive_kills() {
    require_server!(15);
    let kills: u32 = std::env::var("INRUSH_KILLS").map_or(6, |n| n.parse().expect("INRUSH_KILLS"));
    let mut random = Random::from_environment("levers");
    let server = Postgres::start(&ServerOptions { version: Version::Major(15), ..ServerOptions::default() });
    let dir = tempfile::tempdir().expect("a directory");
    let file = File::create(dir.path().join("rows.csv")).expect("a file");
    Case::C1.write(Form::Csv, 60_000, 1, file).expect("rows");
    let mut tally = String::new();
    for kill in 0..kills {
        let database = server.fresh_database();
        database.psql(&format!(
            "CREATE TABLE t ({0}); CREATE INDEX i1 ON t (id); CREATE INDEX i2 ON t (c1); CREATE INDEX i3 ON t (c2);
             ALTER TABLE t SET (autovacuum_enabled = true, fillfactor = 95);
             CREATE TABLE parents (id int PRIMARY KEY); INSERT INTO parents SELECT generate_series(0, 60000);
             ALTER TABLE t ADD CONSTRAINT fk FOREIGN KEY (id) REFERENCES parents;
             CREATE TABLE expected (LIKE t);\n\\copy expected FROM '{1}' (FORMAT csv)",
            Case::C1.columns(),
            dir.path().join("rows.csv").display()
        ));
        let before = dump(&database);
        let levers: &[&str] = match kill % 3 {
            0 => &["--fast"],
            1 => &["--defer-indexes", "--defer-foreign-keys", "--quiet-autovacuum"],
            _ => &ALL,
        };
        let url = database.url();
        let common = ["load", "rows.csv", "-t", "t", "--no-header", "--jobs", "2", "--to", &url];
        let small = ["--chunk", "256KiB", "--unit-millis", "50"];
        let words = [&common[..], &small, levers].concat();
        let mut command = inrush(dir.path());
        let mut running = Running::start(command.args(&words), None);
        let after = Duration::from_millis(random.below(1600));
        let ended = running.wait_until(Instant::now() + after).is_some();
        let crash = random.one_in(4);
        if crash {
            server.stop(StopMode::Immediate);
            server.restart();
        }
        let outcome = running.kill9();
        tally += &format!(
            "kill {kill}: {levers:?} after {after:?}, server too: {crash}, ended: {ended} {:?}\n",
            outcome.code
        );
        // What the table is must not depend on what becomes of the rows.
        let mut recover = inrush(dir.path());
        let said = run(recover.args(["recover", "--to", &url]), None, PATIENCE);
        let pending = || {
            database
                .try_psql("SELECT count(*) FROM inrush_ledger.levers WHERE state = 'applied'")
                .unwrap_or_else(|_| "0".to_owned())
        };
        assert_eq!(said.code, Some(0), "{tally}{said:?}");
        assert_eq!((dump(&database), pending()), (before.clone(), "0".to_owned()), "{tally}{said:?}");
        assert_eq!(database.psql(INVALID), "0 0", "{tally}{said:?}");
        // And the load is finished by the same command.
        let mut again = inrush(dir.path());
        let said = run(again.args(&words), None, PATIENCE);
        assert_eq!(said.code, Some(0), "{tally}{outcome:?}\n{said:?}");
        let differ = "SELECT count(*) FROM ((TABLE t EXCEPT ALL TABLE expected) UNION ALL
                                            (TABLE expected EXCEPT ALL TABLE t)) d";
        assert_eq!(database.psql(differ), "0", "{tally}{said:?}");
        assert_eq!((dump(&database), pending()), (before, "0".to_owned()), "{tally}{said:?}");
        assert_eq!(database.psql(INVALID), "0 0", "{tally}{said:?}");
    }
    println!("{tally}");
}
