//! What is read from real servers of every version, and by roles that see less.

use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo;
use inrush_testkit::{Postgres, ServerOptions, require_server};
use inrush_tune::advise::{Report, ServerFacts, Weight, facts};

async fn open(dsn: &str) -> Connected {
    let info = conninfo::resolve(Some(dsn), &|_| None).expect("settings").expect("a server");
    connect::connect(&info, "advise test").await.expect("connection")
}

async fn read(dsn: &str) -> ServerFacts {
    facts::read(&open(dsn).await.client).await.expect("facts")
}

async fn of_version(version: u32) {
    require_server!(version);
    let server = Postgres::start(&ServerOptions {
        version: version.into(),
        conf: &[("max_wal_size", "64MB"), ("archive_mode", "on"), ("archive_command", "false")],
        ..ServerOptions::default()
    });
    // A directory of its own for a tablespace, open to the server's account.
    let space = server.data_dir().parent().expect("a directory").join("s/space");
    server.psql(&format!(
        "\\! mkdir -p {0} && chmod 700 {0} && chown --reference={1} {0}",
        space.display(),
        server.data_dir().display()
    ));
    server.psql(&format!("CREATE TABLESPACE extra LOCATION '{}'", space.display()));
    server.psql(
        "SELECT pg_create_physical_replication_slot('idle', true); ALTER SYSTEM SET work_mem = '9MB';
         ALTER SYSTEM SET checkpoint_timeout = '7min'; CREATE TABLE t AS SELECT 1 AS a; SELECT pg_switch_wal()",
    );

    let facts = read(&server.url()).await;
    assert_eq!(facts.version_num / 10_000, version);
    assert!(facts.superuser && facts.may_reload && facts.sees_files && !facts.standby);
    assert_eq!(facts.bytes("max_wal_size"), Some(64 << 20));
    assert_eq!(facts.setting("checkpoint_timeout").unwrap().in_auto_conf.as_deref(), Some("7min"));
    // Not read by the server yet: nobody has had it reload.
    assert_eq!(facts.setting("checkpoint_timeout").unwrap().shown, "5min");
    assert!(facts.setting("wal_compression").unwrap().choices.contains(&"pglz".to_owned()));
    assert_eq!(facts.setting("shared_buffers").unwrap().context, "postmaster");
    assert!(facts.setting("max_wal_size").unwrap().may_alter);
    assert!(facts.system_identifier.is_some());
    assert!(facts.wal.bytes > 0 && facts.wal_directory_bytes.unwrap() >= 16 << 20);
    assert!(facts.checkpoints.since.is_some());
    let slot = &facts.slots[0];
    assert_eq!((slot.name.as_str(), slot.kind.as_str(), slot.active), ("idle", "physical", false));
    assert!(slot.held_bytes.unwrap() > 0);
    assert!(facts.archiver.is_some());

    // The server is on this machine, and its directory is readable by whoever runs the tests.
    let machine = facts.machine.as_ref().expect("the machine");
    let linux = cfg!(target_os = "linux");
    assert!(machine.processors.unwrap() > 0);
    assert!(!linux || machine.memory.unwrap() > 1 << 28);
    let what: Vec<&str> = machine.directories.iter().map(|directory| directory.what.as_str()).collect();
    assert_eq!(what, ["data", "pg_wal", "tablespace extra"]);
    for directory in &machine.directories {
        let space = directory.space.unwrap();
        assert!(space.total > space.free && space.free > 0);
        assert!(!linux || directory.device.is_some() && directory.file_system.is_some(), "{directory:?}");
    }
    assert_eq!(facts.not_visible, [""; 0]);
    let report = Report::of(facts);
    assert!(report.findings.iter().any(|finding| finding.about == "fsync-off"));
    assert!(report.findings.iter().any(|finding| finding.about == "idle-slot"));
    let json = serde_json::to_value(&report).expect("JSON");
    assert_eq!(json["version"], 1);

    // The archiver fails soon enough.
    for _ in 0..100 {
        if server.psql("SELECT failed_count FROM pg_stat_archiver") != "0" {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    let facts = read(&server.url()).await;
    assert!(facts.archiver.as_ref().unwrap().failing, "{:?}", facts.archiver);

    // An ordinary role sees less and is told so.
    server.psql("CREATE ROLE app LOGIN; CREATE ROLE rds_superuser");
    let seen = read(&server.url().replace("postgres@", "app@")).await;
    assert!(!seen.superuser && !seen.may_reload && !seen.sees_files);
    assert_eq!(seen.bytes("max_wal_size"), Some(64 << 20));
    assert!(seen.settings.values().all(|setting| !setting.may_alter && setting.in_auto_conf.is_none()));
    assert_eq!((seen.machine.is_some(), seen.wal_directory_bytes), (false, None));
    assert_eq!(seen.managed.as_deref(), Some("Amazon RDS or Aurora"));
    assert_eq!(seen.configuration_error, None);
    let missing = seen.not_visible.join("\n");
    assert!(missing.contains("pg_monitor") && missing.contains("pg_read_all_settings"), "{missing}");
    let report = Report::of(seen);
    assert!(report.advice.iter().any(|advice| advice.setting == "max_wal_size" && !advice.may));

    // A schema in front of pg_catalog changes nothing.
    server.psql(
        "CREATE SCHEMA front; CREATE VIEW front.pg_settings AS SELECT 1 AS name;
         CREATE FUNCTION front.equal(text, text[]) RETURNS bool LANGUAGE sql AS 'SELECT false';
         CREATE FUNCTION front.pg_is_in_recovery() RETURNS bool LANGUAGE sql AS 'SELECT true';
         ALTER ROLE postgres SET search_path = front, pg_catalog",
    );
    let facts = read(&server.url()).await;
    assert!(!facts.standby);
    assert_eq!(facts.bytes("max_wal_size"), Some(64 << 20));
}

#[tokio::test]
async fn facts_of_15() {
    of_version(15).await;
}

#[tokio::test]
async fn facts_of_16() {
    of_version(16).await;
}

#[tokio::test]
async fn facts_of_18() {
    of_version(18).await;
}

/// A copy of the cluster is not the server: the start or the port differ.
#[tokio::test]
async fn a_directory_is_believed_only_with_its_postmaster() {
    require_server!(15);
    let server = Postgres::start(&ServerOptions { version: 15.into(), ..ServerOptions::default() });
    assert!(read(&server.url()).await.machine.is_some());
    let file = server.data_dir().join("postmaster.pid");
    let text = std::fs::read_to_string(&file).expect("postmaster.pid");
    let lie = text.replace(&format!("\n{}\n", server.port()), "\n1\n");
    assert_ne!(text, lie);
    std::fs::write(&file, lie).expect("own file");
    let facts = read(&server.url()).await;
    std::fs::write(&file, text).expect("own file");
    assert!(facts.machine.is_none());
    assert!(
        facts.not_visible.iter().any(|what| what.contains("is not on this machine")),
        "{:?}",
        facts.not_visible
    );
}

/// A standby is told for what it is, and its primary sees it.
#[tokio::test]
async fn a_synchronous_standby_that_is_missing_is_a_danger() {
    require_server!(15);
    let server = Postgres::start(&ServerOptions {
        version: 15.into(),
        conf: &[("synchronous_standby_names", "there")],
        ..ServerOptions::default()
    });
    let report = Report::of(read(&server.url()).await);
    let first = &report.findings[0];
    assert_eq!((first.about, first.weight), ("synchronous-standby-missing", Weight::Danger));
    // The advice to wait less is an option, and never for the server as a whole.
    let option = report.options.iter().find(|option| option.setting == "synchronous_commit").unwrap();
    assert_eq!(option.sql, ["ALTER ROLE postgres SET synchronous_commit = 'local';"]);
    assert!(!report.advice.iter().any(|advice| advice.setting == "synchronous_commit"));
}
