//! Connecting as psql does: whatever psql makes of a connection string and an environment, so must we.

use inrush_core::Code;
use inrush_sink::catalog;
use inrush_sink::connect::{self, Connected};
use inrush_sink::conninfo::{self, ConnInfo};
use inrush_sink::failure::Failure;
use inrush_testkit::{Postgres, ServerOptions, StopMode, require_server};
use std::collections::HashMap;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

type Env<'a> = &'a [(&'a str, &'a str)];

/// Connection string, environment, whether the connection must come about.
type Case = (String, Vec<(String, String)>, bool);

fn settings(dsn: &str, env: Env<'_>) -> inrush_core::Result<ConnInfo> {
    let map: HashMap<_, _> = env.iter().copied().collect();
    let info = conninfo::resolve(Some(dsn), &|name| map.get(name).map(|value| (*value).to_owned()))?;
    Ok(info.expect("a connection string names a server"))
}

async fn open(dsn: &str, env: Env<'_>) -> inrush_core::Result<Connected> {
    connect::connect(&settings(dsn, env)?, "connect test").await
}

/// What psql says to a query, or its error.
fn psql(server: &Postgres, dsn: &str, env: Env<'_>, query: &str) -> Result<String, String> {
    let output = Command::new(server.installation().bin().join("psql"))
        .args(["-X", "-w", "-A", "-t", "-d", dsn, "-c", query])
        .env_clear()
        .envs(env.iter().copied())
        .output()
        .expect("psql runs");
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).trim_end().to_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A session described from inside: who, where, how encrypted, with which settings.
const DESCRIBE: &str = "SELECT concat_ws(' ', session_user, current_database(), inet_server_port(),
    (SELECT concat_ws(' ', ssl, version, client_dn) FROM pg_stat_ssl WHERE pid = pg_backend_pid()),
    current_setting('TimeZone'), current_setting('DateStyle'), current_setting('work_mem'))";

/// Connects both ways and compares: either both fail, or both get the same session.
async fn as_psql(server: &Postgres, dsn: &str, env: Env<'_>) -> Result<String, String> {
    let theirs = psql(server, dsn, env, DESCRIBE);
    let ours = match open(dsn, env).await {
        Ok(connected) => {
            let row = connected.client.query_one(DESCRIBE, &[]).await.expect("query");
            Ok(row.get::<_, String>(0))
        }
        Err(e) => Err(e.to_string()),
    };
    match (&ours, &theirs) {
        (Ok(ours), Ok(theirs)) => assert_eq!(ours, theirs, "{dsn} {env:?}"),
        (Err(_), Err(_)) => {}
        _ => panic!("{dsn} {env:?}\nours: {ours:?}\npsql: {theirs:?}"),
    }
    ours
}

fn write(path: &Path, text: &str, mode: u32) {
    std::fs::write(path, text).expect("file written");
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).expect("mode set");
}

fn openssl(dir: &Path, script: &str) {
    let output = Command::new("sh").current_dir(dir).args(["-ec", script]).output().expect("a shell runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test]
async fn settings_and_passwords_as_psql() {
    require_server!(15);
    let server = Postgres::start(&ServerOptions {
        version: inrush_testkit::Version::Major(15),
        hba: "local all postgres trust\nhost all postgres 127.0.0.1/32 trust\nlocal all all scram-sha-256\n\
              host all md5er 127.0.0.1/32 md5\nhost all plain 127.0.0.1/32 password\nhost all all 127.0.0.1/32 scram-sha-256",
        ..ServerOptions::default()
    });
    server.psql(
        "CREATE ROLE scram LOGIN PASSWORD 'p:w\\d ü'; CREATE ROLE plain LOGIN PASSWORD 'clear';
         SET password_encryption = 'md5'; CREATE ROLE md5er LOGIN PASSWORD 'old'; CREATE DATABASE \"Dä ta\"",
    );
    let home = tempfile::tempdir().expect("directory");
    let port = server.port().to_string();
    let sockets = server.socket_dir().display().to_string();
    let home_text = home.path().display().to_string();
    let path = |name: &str| home.path().join(name);
    write(
        &path(".pgpass"),
        &format!(
            "#x\n127.0.0.1:1:*:*:no\n127.0.0.1:{port}:*:scram:p\\:w\\\\d ü\n{sockets}:*:*:scram:p\\:w\\\\d ü\n*:*:*:scram:wrong\n"
        ),
        0o600,
    );
    write(&path("open.pgpass"), "*:*:*:*:p:w\\\\d ü\n", 0o644);
    write(
        &path(".pg_service.conf"),
        &format!(
            "# x\n[other]\nhost=nowhere\n[mine]\nhost=127.0.0.1\nport={port}\nuser=scram\ndbname=Dä ta\n\n[bad]\nwhat=1\n"
        ),
        0o644,
    );
    let base = [("HOME", home_text.as_str()), ("PATH", "/usr/bin:/bin")];
    let env = |more: &[(&'static str, &str)]| -> Vec<(String, String)> {
        base.iter().copied().chain(more.iter().copied()).map(|(k, v)| (k.to_owned(), v.to_owned())).collect()
    };
    let tcp = format!("host=127.0.0.1 port={port}");
    let open_pass = path("open.pgpass").display().to_string();
    let cases: Vec<Case> = vec![
        (format!("{tcp} user=postgres dbname='Dä ta'"), env(&[]), true),
        (format!("postgresql://postgres@127.0.0.1:{port}/D%C3%A4%20ta"), env(&[]), true),
        (format!("postgresql://%2Fnowhere,127.0.0.1:{port}/?user=postgres"), env(&[]), true),
        (
            format!("postgresql://%2Fnowhere:1,127.0.0.1:{port}/?user=postgres&dbname=postgres"),
            env(&[]),
            true,
        ),
        (format!("postgresql://postgres@127.0.0.1:1,127.0.0.1:{port}/postgres"), env(&[]), true),
        (
            format!(
                "postgresql://postgres@nowhere.invalid,localhost:1,{port}/postgres?hostaddr=127.0.0.1,127.0.0.1"
            ),
            env(&[]),
            false,
        ),
        (format!("host=a,b hostaddr=127.0.0.1,127.0.0.1 port=1,{port} user=postgres"), env(&[]), true),
        (format!("host=a,b hostaddr=127.0.0.1 port={port} user=postgres"), env(&[]), false),
        (format!("{tcp} user=scram dbname=postgres"), env(&[]), true),
        (format!("host={sockets} port={port} user=scram dbname=postgres"), env(&[]), true),
        (
            format!("host=localhost hostaddr=127.0.0.1 port={port} user=scram dbname=postgres"),
            env(&[]),
            false,
        ),
        (format!("{tcp} user=scram dbname=postgres passfile={open_pass}"), env(&[]), false),
        (format!("{tcp} user=scram dbname=postgres"), env(&[("PGPASSWORD", "wrong")]), false),
        (
            format!("{tcp} user=scram dbname=postgres password='p:w\\\\d ü'"),
            env(&[("PGPASSWORD", "wrong")]),
            true,
        ),
        (format!("{tcp} user=md5er dbname=postgres password=old"), env(&[]), true),
        (format!("{tcp} user=plain dbname=postgres password=clear"), env(&[]), true),
        (format!("{tcp} user=plain dbname=postgres password=clear channel_binding=require"), env(&[]), false),
        (format!("{tcp} user=nobody_at_all dbname=postgres password=x"), env(&[]), false),
        ("service=mine".into(), env(&[]), true),
        ("service=mine dbname=postgres".into(), env(&[("PGDATABASE", "no")]), true),
        ("service=missing".into(), env(&[]), false),
        ("service=bad".into(), env(&[]), false),
        ("postgres".into(), env(&[("PGHOST", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres")]), true),
        (
            "postgres".into(),
            env(&[("PGHOSTADDR", "127.0.0.1"), ("PGPORT", &port), ("PGUSER", "postgres")]),
            true,
        ),
        ("postgres".into(), env(&[("PGHOST", &sockets), ("PGPORT", &port), ("PGUSER", "postgres")]), true),
        (
            format!("{tcp} user=postgres"),
            env(&[("PGTZ", "Asia/Kolkata"), ("PGDATESTYLE", "German, DMY")]),
            true,
        ),
        (
            format!("{tcp} user=postgres options='-c work_mem=1234kB -c TimeZone=UTC'"),
            env(&[("PGTZ", "Asia/Tokyo"), ("PGOPTIONS", "-c bad=1")]),
            true,
        ),
        (format!("{tcp} user=postgres"), env(&[("PGOPTIONS", "-c datestyle=SQL,\\ DMY")]), true),
        (format!("{tcp} user=postgres"), env(&[("PGSSLMODE", "what")]), false),
        (format!("{tcp} user=postgres"), env(&[("PGSSLMODE", "")]), false),
        (format!("{tcp} user=postgres sslmode=require"), env(&[]), false),
        (format!("{tcp} user=postgres sslmode=prefer"), env(&[]), true),
        (format!("host={sockets} port={port} user=postgres sslmode=require"), env(&[]), true),
        (format!("{tcp} user=postgres sslmode=verify-full"), env(&[]), false),
        (format!("{tcp} user=postgres connect_timeout=x"), env(&[]), false),
        (
            format!("{tcp} user=postgres connect_timeout=' 5 ' keepalives_idle=10 keepalives=1"),
            env(&[]),
            true,
        ),
        (format!("{tcp} user=postgres nonsense=1"), env(&[]), false),
        (format!("{tcp} user=postgres dbname"), env(&[]), false),
        (format!("{tcp} user=postgres dbname='postgres"), env(&[]), false),
        (format!("postgresql://postgres@127.0.0.1:{port}/postgres?a"), env(&[]), false),
        (format!("postgresql://postgres@127.0.0.1:{port}/postgres?dbname=a=b"), env(&[]), false),
        (format!("postgresql://postgres@127.0.0.1:{port}/postgres%0"), env(&[]), false),
        (format!("postgresql://postgres@127.0.0.1:{port}/postgres%00"), env(&[]), false),
        (format!("postgresql://postgres@[127.0.0.1]:{port}/postgres"), env(&[]), true),
        (format!("postgresql://postgres@[127.0.0.1:{port}/postgres"), env(&[]), false),
        (format!("postgresql://postgres@[127.0.0.1]x:{port}/postgres"), env(&[]), false),
        (format!("postgresql://postgres@127.0.0.1:{port}0000/postgres"), env(&[]), false),
        (format!("{tcp} user=postgres target_session_attrs=read-only"), env(&[]), false),
        (
            format!("{tcp} user=postgres target_session_attrs=read-only"),
            env(&[("PGOPTIONS", "-c default_transaction_read_only=on")]),
            true,
        ),
        (
            format!("{tcp} user=postgres target_session_attrs=read-write"),
            env(&[("PGOPTIONS", "-c default_transaction_read_only=on")]),
            false,
        ),
        (format!("{tcp} user=postgres target_session_attrs=standby"), env(&[]), false),
        (format!("{tcp} user=postgres target_session_attrs=primary"), env(&[]), true),
        (format!("{tcp} user=postgres target_session_attrs=prefer-standby"), env(&[]), true),
        (format!("{tcp} user=postgres target_session_attrs=nearest"), env(&[]), false),
    ];
    for (dsn, env, works) in &cases {
        let env: Vec<_> = env.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
        // libpq reads the name of a database without "=" only where psql hands it over: -d does.
        let outcome = as_psql(&server, dsn, &env).await;
        assert_eq!(outcome.is_ok(), *works, "{dsn} {env:?}: {outcome:?}");
    }

    // What is shown leads psql to the same place, and shows no password.
    let env: Vec<_> = base.to_vec();
    let dsn = format!(
        "host=a,127.0.0.1 hostaddr=127.0.0.1,127.0.0.1 port=1,{port} user=scram dbname='Dä ta' password='p:w\\\\d ü'"
    );
    let info = settings(&dsn, &env).expect("settings");
    let shown = info.display();
    assert!(!shown.contains("p:w") && !format!("{info:?}").contains("p:w"), "{shown}");
    let with_password = [env.as_slice(), &[("PGPASSWORD", "p:w\\d ü")]].concat();
    assert_eq!(psql(&server, &shown, &with_password, "SELECT current_database()").as_deref(), Ok("Dä ta"));
    let warned = settings(&format!("{tcp} user=scram passfile={open_pass}"), &env).expect("settings");
    assert!(warned.warnings[0].contains("world access"), "{:?}", warned.warnings);
}

#[tokio::test]
async fn tls_as_psql() {
    require_server!(15);
    if Command::new("openssl").arg("version").output().is_err() {
        eprintln!("SKIPPED: needs openssl to make certificates");
        return;
    }
    let server = Postgres::start(&ServerOptions {
        version: inrush_testkit::Version::Major(15),
        hba: "local all all trust\nhostssl all scram 127.0.0.1/32 scram-sha-256\nhostnossl all noisy 127.0.0.1/32 trust\n\
              hostssl all certified 127.0.0.1/32 cert\nhost all postgres 127.0.0.1/32 trust",
        ..ServerOptions::default()
    });
    server.psql(
        "CREATE ROLE scram LOGIN PASSWORD 'secret'; CREATE ROLE noisy LOGIN; CREATE ROLE certified LOGIN",
    );
    let home = tempfile::tempdir().expect("directory");
    let dir = home.path();
    openssl(
        dir,
        r#"
        req() { openssl req -newkey "${4:-rsa:2048}" ${5:+-pkeyopt} ${5:+"$5"} -nodes -keyout $1.key -subj "/CN=$2" -out $1.csr 2>/dev/null; }
        sign() { openssl x509 -req -in $1.csr -days 30 -CA ca.crt -CAkey ca.key -CAcreateserial -out $1.crt "${@:2}" 2>/dev/null; }
        openssl req -x509 -newkey rsa:2048 -nodes -keyout ca.key -subj /CN=ca -days 30 -out ca.crt 2>/dev/null
        openssl req -x509 -newkey rsa:2048 -nodes -keyout otherca.key -subj /CN=other -days 30 -out otherca.crt 2>/dev/null
        req san db.example; printf 'subjectAltName=DNS:*.san.example,IP:127.0.0.1\n' > san.ext
        openssl x509 -req -in san.csr -days 30 -CA ca.crt -CAkey ca.key -CAcreateserial -extfile san.ext -out san.crt 2>/dev/null
        # The recipe of the PostgreSQL manual: no extensions, the host in the subject.
        req v1 db.example; openssl x509 -req -in v1.csr -days 30 -CA ca.crt -CAkey ca.key -CAcreateserial -out v1.crt 2>/dev/null
        openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout ecv1.key -subj /CN=db.example -out ecv1.csr 2>/dev/null
        openssl x509 -req -in ecv1.csr -sha384 -days 30 -CA ca.crt -CAkey ca.key -CAcreateserial -out ecv1.crt 2>/dev/null
        openssl req -x509 -newkey rsa:2048 -nodes -keyout self.key -subj /CN=db.example -days 30 -out self.crt 2>/dev/null
        req client certified; openssl x509 -req -in client.csr -days 30 -CA ca.crt -CAkey ca.key -CAcreateserial -out client.crt 2>/dev/null
        openssl pkcs8 -topk8 -in client.key -out locked.key -passout pass:x 2>/dev/null
        chmod 600 *.key
        "#,
    );
    let data = server.data_dir();
    let owner = std::fs::metadata(&data).expect("data directory");
    let install = |name: &str| {
        for (from, to, mode) in [
            (format!("{name}.crt"), "server.crt", 0o600),
            (format!("{name}.key"), "server.key", 0o600),
            ("ca.crt".to_owned(), "root.crt", 0o600),
        ] {
            let to = data.join(to);
            std::fs::copy(dir.join(from), &to).expect("copied");
            std::fs::set_permissions(&to, std::fs::Permissions::from_mode(mode)).expect("mode");
            chown(&to, Some(owner.uid()), Some(owner.gid())).expect("owner");
        }
        server.psql("ALTER SYSTEM SET ssl_ca_file = 'root.crt'");
        server.psql("ALTER SYSTEM SET ssl = on");
        server.restart();
    };
    let port = server.port();
    let home_text = dir.display().to_string();
    let env = [("HOME", home_text.as_str())];
    let file = |name: &str| dir.join(name).display().to_string();
    let (ca, other) = (file("ca.crt"), file("otherca.crt"));

    // Certificate of the server, settings, whether the connection must come about.
    let mut plan: Vec<(&str, Vec<(String, bool)>)> = Vec::new();
    let addr = "hostaddr=127.0.0.1 dbname=postgres";
    let mut common = Vec::new();
    for mode in ["disable", "allow", "prefer", "require"] {
        common.push((format!("{addr} host=wrong user=postgres sslmode={mode}"), true));
    }
    for (role, mode, works) in [
        ("noisy", "disable", true),
        ("noisy", "allow", true),
        ("noisy", "prefer", true),
        ("noisy", "require", false),
        ("scram", "disable", false),
        ("scram", "allow", true),
        ("scram", "prefer", true),
        ("scram", "require", true),
    ] {
        common.push((format!("{addr} host=wrong user={role} sslmode={mode} password=secret"), works));
    }
    common.push((format!("{addr} host=x user=scram password=secret channel_binding=require"), true));
    common.push((
        format!("{addr} host=x user=scram password=secret channel_binding=require sslmode=disable"),
        false,
    ));
    common.push((format!("{addr} host=x user=scram password=secret channel_binding=disable"), true));
    common.push((format!("{addr} host=x user=scram password=wrong"), false));
    common.push((format!("{addr} host=x user=postgres sslmode=verify-ca"), false));
    common.push((format!("{addr} host=x user=postgres sslmode=require ssl_max_protocol_version=TLSv1.2 channel_binding=prefer"), true));
    common.push((format!("{addr} host=x user=scram password=secret ssl_max_protocol_version=TLSv1.2 channel_binding=require"), true));
    common.push((format!("{addr} host=x user=certified sslmode=require"), false));
    common.push((
        format!(
            "{addr} host=x user=certified sslmode=require sslcert={} sslkey={}",
            file("client.crt"),
            file("client.key")
        ),
        true,
    ));
    common.push((
        format!(
            "{addr} host=x user=certified sslmode=require sslcert={} sslkey={}",
            file("client.crt"),
            file("missing.key")
        ),
        false,
    ));
    common.push((
        format!(
            "{addr} host=x user=certified sslmode=require sslcert={} sslkey={}",
            file("client.crt"),
            file("locked.key")
        ),
        false,
    ));
    common.push((
        format!("{addr} host=x user=postgres sslmode=require sslrootcert={}", file("missing.crt")),
        true,
    ));
    common.push((format!("{addr} host=x user=postgres sslrootcert={}", file("missing.crt")), true));
    plan.push(("san", common));
    let checked = |good: &str, bad: &str, root: &str, cases: &mut Vec<(String, bool)>| {
        cases
            .push((format!("{addr} host={good} user=postgres sslmode=verify-full sslrootcert={root}"), true));
        cases
            .push((format!("{addr} host={bad} user=postgres sslmode=verify-full sslrootcert={root}"), false));
        cases.push((format!("{addr} host={bad} user=postgres sslmode=verify-ca sslrootcert={root}"), true));
        cases.push((format!("{addr} host={bad} user=postgres sslmode=require sslrootcert={root}"), true));
        cases.push((
            format!("{addr} host={good} user=postgres sslmode=verify-full sslrootcert={other}"),
            false,
        ));
        cases
            .push((format!("{addr} host={good} user=postgres sslmode=verify-ca sslrootcert={other}"), false));
        cases.push((format!("{addr} host={good} user=postgres sslmode=require sslrootcert={other}"), false));
        cases.push((format!("{addr} host={good} user=postgres sslmode=prefer sslrootcert={other}"), true));
        cases.push((format!("{addr} user=postgres sslmode=verify-full sslrootcert={root}"), false));
        for (role, version) in [("scram", "TLSv1.2"), ("scram", "TLSv1.3")] {
            cases.push((format!("{addr} host={good} user={role} password=secret sslmode=verify-full sslrootcert={root} channel_binding=require ssl_min_protocol_version={version} ssl_max_protocol_version={version}"), true));
        }
    };
    let mut san = Vec::new();
    checked("a.san.example", "a.b.san.example", &ca, &mut san);
    san.push((
        format!("host=127.0.0.1 dbname=postgres user=postgres sslmode=verify-full sslrootcert={ca}"),
        true,
    ));
    san.push((format!("{addr} host=db.example user=postgres sslmode=verify-full sslrootcert={ca}"), false));
    plan.push(("san", san));
    for name in ["v1", "ecv1", "self"] {
        let root = if name == "self" { file("self.crt") } else { ca.clone() };
        let mut cases = Vec::new();
        checked("db.example", "wrong.example", &root, &mut cases);
        plan.push((name, cases));
    }

    for (certificate, cases) in plan {
        install(certificate);
        for (dsn, works) in cases {
            let dsn = format!("{dsn} port={port}");
            let outcome = as_psql(&server, &dsn, &env).await;
            assert_eq!(outcome.is_ok(), works, "certificate {certificate}: {dsn}: {outcome:?}");
        }
    }
    let open_key = dir.join("open.key");
    std::fs::copy(dir.join("client.key"), &open_key).expect("copied");
    std::fs::set_permissions(&open_key, std::fs::Permissions::from_mode(0o644)).expect("mode");
    let dsn = format!(
        "{addr} host=x port={port} user=certified sslmode=require sslcert={} sslkey={}",
        file("client.crt"),
        file("open.key")
    );
    let refused = as_psql(&server, &dsn, &env).await.expect_err("the key is open to all");
    assert!(refused.contains("group or world access"), "{refused}");
}

#[tokio::test]
async fn sessions_end_and_are_cancelled() {
    require_server!(15);
    let server = Postgres::start(&ServerOptions {
        version: inrush_testkit::Version::Major(15),
        ..ServerOptions::default()
    });
    for dsn in [server.url(), server.tcp_url()] {
        let mut connected = open(&dsn, &[]).await.expect("connection");
        assert!((150_000..160_000).contains(&connected.server_version_num));
        let row = connected
            .client
            .query_one("SELECT pg_backend_pid(), current_setting('application_name')", &[])
            .await
            .expect("row");
        assert_eq!((row.get::<_, i32>(0), row.get::<_, &str>(1)), (connected.backend_pid, "connect test"));
        connected.client.batch_execute("DO $$BEGIN RAISE WARNING 'mind the gap'; END$$").await.expect("DO");
        assert_eq!(connected.notices.recv().await.expect("a notice").message(), "mind the gap");

        // From another thread, without a runtime of its own.
        let cancel = connected.cancel.clone();
        let thread = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(300));
            cancel.cancel_blocking()
        });
        let started = std::time::Instant::now();
        let error = connected.client.batch_execute("SELECT pg_sleep(30)").await.expect_err("cancelled");
        assert!(started.elapsed() < Duration::from_secs(20));
        thread.join().expect("thread").expect("cancel request");
        assert_eq!(error.code().map(|c| c.code()), Some("57014"));
        assert!(matches!(connected.failure(&error), Failure::Fatal(_)));

        let error = connected
            .client
            .batch_execute("SELECT pg_terminate_backend(pg_backend_pid())")
            .await
            .expect_err("terminated");
        assert!(matches!(connected.failure(&error), Failure::Lost(_)), "{error:?}");
        let error = connected.client.batch_execute("SELECT 1").await.expect_err("gone");
        match connected.failure(&error) {
            Failure::Lost(error) => assert_eq!(error.code(), Code::ConnectionLost, "{error}"),
            other => panic!("{other:?}"),
        }
    }

    let connected = open(&server.url(), &[]).await.expect("connection");
    server.kill9();
    let error = connected.client.batch_execute("SELECT 1").await.expect_err("gone");
    assert!(matches!(connected.failure(&error), Failure::Lost(_)), "{error:?}");
    let refused = open(&server.url(), &[]).await.expect_err("no server");
    assert_eq!(refused.code(), Code::Connect, "{refused}");
    assert!(refused.hint_text().is_some_and(|hint| hint.contains("running")), "{refused}");
    server.restart();
    open(&server.url(), &[]).await.expect("back again");
    server.stop(StopMode::Fast);
}

#[tokio::test]
async fn a_standby_is_told_from_a_primary() {
    require_server!(15);
    let server = Postgres::start(&ServerOptions {
        version: inrush_testkit::Version::Major(15),
        ..ServerOptions::default()
    });
    let standby = Postgres::start(&ServerOptions {
        version: inrush_testkit::Version::Major(15),
        ..ServerOptions::default()
    });
    // In recovery for ever: it waits for WAL that nobody sends.
    standby.stop(StopMode::Fast);
    let signal = standby.data_dir().join("standby.signal");
    std::fs::write(&signal, "").expect("written");
    let owner = std::fs::metadata(standby.data_dir()).expect("data directory");
    chown(&signal, Some(owner.uid()), Some(owner.gid())).expect("owner");
    standby.restart();
    let hosts = format!("host=127.0.0.1,127.0.0.1 port={},{} user=postgres", standby.port(), server.port());
    let env = [("HOME", "/nonexistent")];
    for (wanted, port) in [
        ("any", standby.port()),
        ("read-write", server.port()),
        ("primary", server.port()),
        ("standby", standby.port()),
        ("read-only", standby.port()),
        ("prefer-standby", standby.port()),
    ] {
        let outcome = as_psql(&server, &format!("{hosts} target_session_attrs={wanted}"), &env)
            .await
            .expect("connects");
        assert!(outcome.contains(&format!(" {port} ")), "{wanted}: {outcome}");
    }
    let connected = open(&standby.url(), &[]).await.expect("connection");
    assert!(catalog::facts(&connected.client).await.expect("facts").in_recovery);
}
