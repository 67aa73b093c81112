//! What `inrush tune io --apply` makes of a real server, what a crash leaves, and what `--undo` puts back.

use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo;
use inrush_sink::ledger::Ledger;
use inrush_testkit::{Postgres, ServerOptions, require_server};
use inrush_tune::advise::Effect;
use inrush_tune::advise::apply::{Change, Outcome, Undone};
use inrush_tune::advise::facts;
use inrush_tune::io::advice::Place;
use inrush_tune::io::{Advice, apply, server};

async fn open(dsn: &str) -> Connected {
    let info = conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server");
    connect::connect(&info, "tune test").await.expect("connection")
}

fn advice(setting: &'static str, place: Place, advised: &str) -> Advice {
    Advice {
        setting,
        versions: None,
        place,
        now: None,
        advised: advised.into(),
        why: String::new(),
        price: String::new(),
        effect: Effect::Immediate,
        applied: true,
        lines: Vec::new(),
        may: true,
        obstacle: None,
        expected: Vec::new(),
    }
}

fn option(tablespace: &str, setting: &'static str, advised: &str) -> Advice {
    advice(setting, Place::Tablespace { name: tablespace.into() }, advised)
}

async fn applied(dsn: &str, advice: &[Advice]) -> Vec<Change> {
    let mut connected = open(dsn).await;
    let ledger = Ledger::open(&mut connected.client, "inrush_ledger", true).await.unwrap().unwrap();
    let advice: Vec<&Advice> = advice.iter().collect();
    apply::apply(&mut connected.client, &ledger, &advice).await.expect("applied")
}

async fn undone(dsn: &str) -> Vec<Undone> {
    let mut connected = open(dsn).await;
    let ledger = Ledger::open(&mut connected.client, "inrush_ledger", false).await.unwrap().unwrap();
    let facts = facts::read(&connected.client).await.expect("facts");
    apply::undo(&mut connected.client, &ledger, &facts).await.expect("undone").undone
}

fn options(server: &Postgres) -> String {
    server.psql("SELECT coalesce(spcoptions::text, '-') FROM pg_tablespace WHERE spcname = 'pg_default'")
}

fn auto_conf(server: &Postgres) -> String {
    let text = std::fs::read_to_string(server.data_dir().join("postgresql.auto.conf")).expect("the file");
    text.lines().filter(|line| !line.starts_with('#')).map(|line| format!("{line}\n")).collect()
}

fn start(version: u32, durable: bool) -> Postgres {
    Postgres::start(&ServerOptions { version: version.into(), durable, ..ServerOptions::default() })
}

async fn survives_a_crash(version: u32) {
    require_server!(version);
    let server = start(version, true);
    server.psql("ALTER TABLESPACE pg_default SET (random_page_cost = 1.25, seq_page_cost = 1)");
    server.psql("ALTER SYSTEM SET work_mem = '9MB'");
    let (before, before_conf) = (options(&server), auto_conf(&server));
    let mut wanted = vec![
        option("pg_default", "effective_io_concurrency", "64"),
        option("pg_default", "maintenance_io_concurrency", "32"),
        option("pg_default", "random_page_cost", "1.7"),
    ];
    if version >= 18 {
        wanted.push(advice("io_workers", Place::System, "12"));
    }
    let changes = applied(&server.url(), &wanted).await;
    assert_eq!(changes.len(), wanted.len());
    assert!(
        changes.iter().all(|change| change.overruled.is_none() && change.now == change.value),
        "{changes:?}"
    );
    server.kill9();
    server.restart();
    assert!(options(&server).contains("effective_io_concurrency=64"), "{}", options(&server));
    assert!(options(&server).contains("random_page_cost=1.7"), "{}", options(&server));
    if version >= 18 {
        assert_eq!(server.psql("SHOW io_workers"), "12");
    }
    // What a crash between the record and ALTER SYSTEM leaves: a record of what did not happen.
    let told = undone(&server.url()).await;
    assert_eq!(told.len(), wanted.len());
    assert!(told.iter().all(|one| one.outcome == Outcome::Restored), "{told:?}");
    let sorted = |text: &str| {
        let mut words: Vec<String> = text.trim_matches(['{', '}']).split(',').map(str::to_owned).collect();
        words.sort();
        words
    };
    assert_eq!(sorted(&options(&server)), sorted(&before));
    assert_eq!(auto_conf(&server), before_conf);
    assert_eq!(undone(&server.url()).await, []);
}

#[tokio::test]
async fn survives_a_crash_15() {
    survives_a_crash(15).await;
}

#[tokio::test]
async fn survives_a_crash_18() {
    survives_a_crash(18).await;
}

#[tokio::test]
async fn what_others_have_changed_since_stays() {
    require_server!(15);
    let server = start(15, false);
    applied(&server.url(), &[option("pg_default", "effective_io_concurrency", "64")]).await;
    server.psql("ALTER TABLESPACE pg_default SET (effective_io_concurrency = 7)");
    let told = undone(&server.url()).await;
    assert_eq!(told[0].outcome, Outcome::ChangedSince { found: Some("7".into()) });
    assert_eq!(options(&server), "{effective_io_concurrency=7}");
    // Set twice, taken back twice: what was there at first is there again.
    applied(&server.url(), &[option("pg_default", "effective_io_concurrency", "16")]).await;
    applied(&server.url(), &[option("pg_default", "effective_io_concurrency", "32")]).await;
    assert_eq!(undone(&server.url()).await.len(), 2);
    assert_eq!(options(&server), "{effective_io_concurrency=7}");
    // What advise has set is not ours.
    let mut connected = open(&server.url()).await;
    let ledger = Ledger::open(&mut connected.client, "inrush_ledger", false).await.unwrap().unwrap();
    ledger.record_setting(&mut connected.client, "max_wal_size", "4GB", None).await.unwrap();
    assert_eq!(undone(&server.url()).await, []);
    assert_eq!(ledger.applied_settings(&connected.client).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_role_without_rights_is_seen_and_stopped() {
    require_server!(15);
    let server = start(15, false);
    server.psql("CREATE ROLE app LOGIN; GRANT CREATE ON DATABASE postgres TO app");
    let dsn = format!("{} user=app", server.url());
    let dsn = if server.url().contains("://") { server.url().replace("postgres@", "app@") } else { dsn };
    let mut connected = open(&dsn).await;
    let facts = facts::read(&connected.client).await.unwrap();
    if facts.role != "app" {
        // The URL of the testkit names its role in another way.
        connected.client.batch_execute("SET SESSION AUTHORIZATION app").await.unwrap();
    }
    let facts = facts::read(&connected.client).await.unwrap();
    assert_eq!(facts.role, "app");
    let (_, spaces) = server::read(&connected.client, &facts).await.unwrap();
    assert!(spaces.iter().all(|space| !space.tablespace.may_alter));
    let mut refused = option("pg_default", "effective_io_concurrency", "64");
    refused.may = false;
    assert!(apply::applicable([&refused]).is_empty());
    // Given nonetheless, nothing is recorded and nothing changed.
    let ledger = Ledger::open(&mut connected.client, "app_ledger", true).await.unwrap().unwrap();
    let given = option("pg_default", "effective_io_concurrency", "64");
    let error = apply::apply(&mut connected.client, &ledger, &[&given]).await.unwrap_err();
    assert!(error.to_string().contains("must be owner of tablespace"), "{error}");
    assert!(ledger.applied_settings(&connected.client).await.unwrap().is_empty());
    assert_eq!(options(&server), "-");
}

async fn tablespaces_are_read(version: u32) {
    require_server!(version);
    let server = start(version, false);
    let directory = server.data_dir().parent().expect("a directory").join("s/fast one");
    server.psql(&format!(
        "\\! mkdir -p '{0}' && chmod 700 '{0}' && chown --reference={1} '{0}'",
        directory.display(),
        server.data_dir().display()
    ));
    server.psql(&format!(
        "CREATE TABLESPACE \"fast one\" LOCATION '{}' WITH (effective_io_concurrency = 7)",
        directory.display()
    ));
    let connected = open(&server.url()).await;
    let facts = facts::read(&connected.client).await.unwrap();
    let (read, spaces) = server::read(&connected.client, &facts).await.unwrap();
    assert_eq!(read.version_num / 10_000, version);
    assert_eq!(read.io_method.as_deref(), (version >= 18).then_some("worker"));
    assert_eq!(read.io_workers, (version >= 18).then_some(3));
    assert!(read.shared_buffers.unwrap() > 1 << 20);
    let names: Vec<(&str, bool)> =
        spaces.iter().map(|space| (space.tablespace.name.as_str(), space.default)).collect();
    assert_eq!(names, [("pg_default", true), ("fast one", false)]);
    let default = if version >= 18 { "16" } else { "1" };
    assert_eq!(spaces[0].tablespace.holds("effective_io_concurrency"), Some(default));
    assert_eq!(spaces[1].tablespace.holds("effective_io_concurrency"), Some("7"));
    assert_eq!(spaces[0].directory.as_deref(), Some(server.data_dir().join("base").as_path()));
    let inside = server::writable_directory(spaces[1].directory.as_deref().unwrap(), read.version_num);
    assert!(inside.parent() == Some(directory.as_path()), "{inside:?}");
    // An option of a tablespace whose name needs quoting.
    let changes = applied(&server.url(), &[option("fast one", "effective_io_concurrency", "64")]).await;
    assert_eq!((changes[0].value.as_str(), changes[0].overruled.as_ref()), ("64", None));
    assert_eq!(undone(&server.url()).await[0].now, "7");
}

#[tokio::test]
async fn a_tablespace_with_another_name_is_still_the_one() {
    require_server!(15);
    let server = start(15, false);
    for name in ["one", "two"] {
        let directory = server.data_dir().parent().expect("a directory").join(format!("s/{name}"));
        server.psql(&format!(
            "\\! mkdir -p '{0}' && chmod 700 '{0}' && chown --reference={1} '{0}'",
            directory.display(),
            server.data_dir().display()
        ));
        server.psql(&format!("CREATE TABLESPACE {name} LOCATION '{}'", directory.display()));
        applied(&server.url(), &[option(name, "effective_io_concurrency", "64")]).await;
    }
    server.psql("ALTER TABLESPACE one RENAME TO \"the first\"");
    server.psql("DROP TABLESPACE two");
    let told = undone(&server.url()).await;
    assert_eq!(told[0].outcome, Outcome::Gone);
    assert_eq!(
        (told[1].setting.as_str(), &told[1].outcome),
        ("effective_io_concurrency of tablespace the first", &Outcome::Restored)
    );
    assert_eq!(
        server.psql("SELECT coalesce(spcoptions::text, '-') FROM pg_tablespace WHERE spcname = 'the first'"),
        "-"
    );
    assert_eq!(undone(&server.url()).await, []);
}

/// A superuser who measures in a database whose owner has made functions and operators of the names that queries use.
#[tokio::test]
async fn a_hostile_search_path_changes_nothing() {
    require_server!(15);
    let server = start(15, false);
    server.psql(
        "CREATE ROLE od LOGIN; CREATE SCHEMA evil AUTHORIZATION od; CREATE TABLE evil.hits (what text);
         CREATE FUNCTION evil.hit(a bigint) RETURNS bigint LANGUAGE plpgsql AS
           $$BEGIN INSERT INTO evil.hits VALUES ('hit'); RETURN a; END$$;
         CREATE AGGREGATE evil.count(*) (SFUNC = pg_catalog.int8inc, STYPE = bigint, INITCOND = '0',
                                        FINALFUNC = evil.hit);
         CREATE AGGREGATE evil.sum(bigint) (SFUNC = pg_catalog.int8pl, STYPE = bigint, INITCOND = '0',
                                            FINALFUNC = evil.hit);
         CREATE FUNCTION evil.same(a \"char\", b \"char\") RETURNS boolean LANGUAGE plpgsql AS
           $$BEGIN INSERT INTO evil.hits VALUES ('='); RETURN true; END$$;
         CREATE OPERATOR evil.= (LEFTARG = \"char\", RIGHTARG = \"char\", FUNCTION = evil.same);
         ALTER DATABASE postgres SET search_path = evil, pg_catalog",
    );
    let connected = open(&server.url()).await;
    let facts = facts::read(&connected.client).await.unwrap();
    server::read(&connected.client, &facts).await.unwrap();
    applied(&server.url(), &[option("pg_default", "effective_io_concurrency", "64")]).await;
    undone(&server.url()).await;
    assert_eq!(server.psql("SELECT pg_catalog.count(*) FROM evil.hits"), "0");
    // In sessions of the command nothing else is looked up in the first place.
    server::prepare(&connected.client).await.unwrap();
    let row = connected.client.query_one("SHOW search_path", &[]).await.unwrap();
    assert_eq!(row.get::<_, String>(0), "pg_catalog, pg_temp");
}

#[tokio::test]
async fn tablespaces_are_read_15() {
    tablespaces_are_read(15).await;
}

#[tokio::test]
async fn tablespaces_are_read_18() {
    tablespaces_are_read(18).await;
}
