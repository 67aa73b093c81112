//! The throw-away servers themselves.

use inrush_testkit::{Installation, Postgres, ServerOptions, StopMode, Version, require_server};
use std::os::unix::fs::MetadataExt;

fn exercise(version: Version) {
    let server = Postgres::start(&ServerOptions {
        version,
        conf: &[("work_mem", "5MB"), ("application_name", "it's")],
        ..ServerOptions::default()
    });
    assert_eq!(server.psql("SHOW work_mem; SHOW fsync; SHOW server_encoding"), "5MB\noff\nUTF8");
    if let Version::Major(major) = version {
        assert!(server.psql("SHOW server_version").starts_with(&major.to_string()));
    }
    assert_eq!(std::fs::metadata(server.socket_dir()).unwrap().mode() & 0o777, 0o700);
    let pid = server.pid().unwrap();

    server.psql("CREATE TABLE t AS SELECT generate_series(1, 1000) a");
    server.kill9();
    assert!(server.pid().is_none());
    assert!(server.try_psql("SELECT 1").is_err());
    server.restart();
    assert_ne!(server.pid().unwrap(), pid);
    assert_eq!(server.psql("SELECT count(*) FROM t"), "1000");
    assert!(server.log().contains("not properly shut down"), "{}", server.log());

    server.stop(StopMode::Immediate);
    server.restart();
    server.stop(StopMode::Fast);
    server.restart();
    assert_eq!(server.psql("SELECT count(*) FROM t"), "1000");
    assert_eq!(server.psql("SELECT count(*) > 500 FROM pg_timezone_names"), "t");
    assert_eq!(server.psql("SELECT timestamptz '2024-07-01 12:00 Europe/Berlin'"), "2024-07-01 10:00:00+00");

    let dir = server.data_dir();
    drop(server);
    assert!(!dir.parent().unwrap().exists(), "{} is still there", dir.display());
}

#[test]
fn any_version_lives_dies_and_comes_back() {
    exercise(Version::Any);
}

#[test]
fn version_16_lives_dies_and_comes_back() {
    require_server!(16);
    exercise(Version::Major(16));
}

#[test]
fn version_18_lives_dies_and_comes_back() {
    require_server!(18);
    exercise(Version::Major(18));
}

#[test]
fn a_shared_server_gives_databases_of_their_own() {
    let server = Postgres::shared(Version::Any);
    let (a, b) = (server.fresh_database(), server.fresh_database());
    a.psql("CREATE TABLE t(a int)");
    assert!(b.try_psql("TABLE t").unwrap_err().contains("does not exist"));
    let name = a.name().to_owned();
    drop(a);
    assert_eq!(server.psql(&format!("SELECT count(*) FROM pg_database WHERE datname = '{name}'")), "0");
}

#[test]
fn a_server_with_passwords() {
    let server = Postgres::start(&ServerOptions {
        hba: "local all postgres trust\nhost all all 127.0.0.1/32 scram-sha-256\n",
        ..ServerOptions::default()
    });
    server.psql("CREATE ROLE eve LOGIN PASSWORD 'secret'");
    let tcp = |password: &str| {
        let mut psql = server.installation().command("psql");
        psql.args([
            "-X",
            "-w",
            "-At",
            "-h",
            "127.0.0.1",
            "-p",
            &server.port().to_string(),
            "-U",
            "eve",
            "-d",
            "postgres",
        ]);
        psql.env("PGPASSWORD", password).args(["-c", "SELECT 1"]).output().unwrap().status.success()
    };
    assert!(tcp("secret"));
    assert!(!tcp("wrong"));
}

#[test]
fn a_version_that_nobody_has_is_skipped_aloud() {
    if std::env::var_os("INRUSH_TEST_REQUIRE_SERVERS").is_none() {
        assert!(!Installation::have_or_say_skipped(9999));
    }
}
