//! What needs no server: where the settings come from. Values are compared with psql in tests/connect.rs.

use super::*;
use std::collections::HashMap;
use std::path::Path;

fn resolve_with(to: Option<&str>, env: &[(&str, &str)]) -> Result<Option<ConnInfo>> {
    let map: HashMap<_, _> = env.iter().copied().collect();
    resolve(to, &|name| map.get(name).map(|value| (*value).to_owned()))
}

fn info(to: &str, env: &[(&str, &str)]) -> ConnInfo {
    resolve_with(Some(to), env).expect("settings").expect("a server")
}

fn fact(to: &str, env: &[(&str, &str)]) -> String {
    let error = resolve_with(Some(to), env).expect_err("refused");
    assert_eq!(error.code(), Code::Usage);
    error.fact().to_owned()
}

const HOME: (&str, &str) = ("HOME", "/nonexistent");

#[test]
fn says_where_only_if_something_does() {
    assert!(resolve_with(None, &[HOME]).expect("settings").is_none());
    // A password or a time zone does not say where to go, nor does an empty variable.
    let none = [HOME, ("PGPASSWORD", "x"), ("PGTZ", "UTC"), ("PGHOST", ""), ("DATABASE_URL", "")];
    assert!(resolve_with(None, &none).expect("settings").is_none());
    for name in ["PGHOST", "PGHOSTADDR", "PGPORT", "PGDATABASE", "PGUSER"] {
        let value = if name == "PGPORT" { "6000" } else { "127.0.0.1" };
        assert!(resolve_with(None, &[HOME, (name, value)]).expect("settings").is_some(), "{name}");
    }
    let url = ("DATABASE_URL", "postgres://u@h/d");
    let both = resolve_with(None, &[HOME, url, ("PGHOST", "other"), ("PGPORT", "6000")]).expect("settings");
    let both = both.expect("a server");
    assert_eq!((both.hosts[0].to_string().as_str(), both.dbname.as_str()), ("h:6000", "d"));
    assert_eq!(info("x", &[HOME, url]).dbname, "x", "what the user says wins");
}

#[test]
fn fills_in_defaults() {
    let found = info("user=me", &[HOME]);
    assert_eq!((found.user.as_str(), found.dbname.as_str()), ("me", "me"));
    assert_eq!((found.hosts.len(), found.hosts[0].port), (1, 5432));
    assert_eq!(found.transport, Transport::default());
    assert!(!info("", &[HOME]).user.is_empty(), "the user of the operating system");
    assert_eq!(info("dbname='' user=me port=''", &[HOME]).dbname, "me");
}

#[test]
fn reads_lists_of_hosts() {
    let shown = |to: &str| info(to, &[HOME]).hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(shown("host=a,b,c port=1,,3"), ["a:1", "b:5432", "c:3"]);
    assert_eq!(shown("host=a,b port=7"), ["a:7", "b:7"]);
    assert_eq!(shown("postgres://[::1]:5,%2Frun%2Fpg:6/d"), ["[::1]:5", "/run/pg/.s.PGSQL.6"]);
    assert_eq!(shown("hostaddr=::1,10.0.0.1"), ["[::1]:5432", "10.0.0.1:5432"]);
}

#[test]
fn looks_for_the_socket_where_packagers_put_it() {
    let missing = info("port=1", &[HOME]);
    assert_eq!(missing.hosts[0].to_string(), "localhost:1");
}

#[test]
fn refuses_what_it_cannot_honour_by_name() {
    assert_eq!(fact("nonsense=1", &[HOME]), "unknown connection option \"nonsense\"");
    for option in
        ["gssencmode=require", "require_auth=gss", "replication=database", "sslcrldir=/x", "requirepeer=pg"]
    {
        assert!(fact(option, &[HOME]).contains("is not supported"), "{option}");
    }
    assert!(fact("host=@abstract", &[HOME]).contains("abstract"));
    assert!(!fact("sslpassword=secret", &[HOME]).contains("secret"));
    // What asks for nothing passes.
    info("gssencmode=prefer krbsrvname=x gssdelegation=0 sslcompression=1 replication=false", &[HOME]);
    assert!(fact("sslrootcert=system sslmode=require", &[HOME]).contains("too weak"));
    assert_eq!(info("sslrootcert=system", &[HOME]).transport.sslmode, SslMode::VerifyFull);
    assert!(fact("sslnegotiation=direct", &[HOME]).contains("too weak"));
    assert!(info("sslnegotiation=direct sslmode=require", &[HOME]).transport.direct);
}

#[test]
fn never_repeats_a_password_in_an_error() {
    for text in [
        "postgres://u:hunter2@h:port/d",
        "postgres://u:hunter2@[::1/d",
        "password=hunter2 nonsense=1",
        "password='hunter2",
        "postgres://u:hunter2%zz@h",
        "password=hunter2 port=0",
    ] {
        let error = resolve_with(Some(text), &[HOME]).expect_err("refused").to_string();
        assert!(!error.contains("hunter2"), "{error}");
    }
}

#[test]
fn display_can_be_read_back() {
    for text in [
        "postgresql://u%40x@h:1,[::1]:2/d%20%2Fä?sslmode=require",
        "host=/run/x user=a dbname=b port=6000",
        "host=a,b hostaddr=10.0.0.1,10.0.0.2 user=u dbname=d target_session_attrs=primary",
        "host=h user=u dbname=d options='-c a=b\\\\ c' channel_binding=require",
        "hostaddr=::1 user=u dbname=d",
        "host=/x,h user=u dbname=d",
    ] {
        let first = info(text, &[HOME]);
        let again = info(&first.display(), &[HOME]);
        assert_eq!(again.display(), first.display());
        assert_eq!(
            (&again.user, &again.dbname, &again.options),
            (&first.user, &first.dbname, &first.options)
        );
        assert_eq!(
            (&again.transport, again.target_session_attrs),
            (&first.transport, first.target_session_attrs)
        );
        let places = |i: &ConnInfo| i.hosts.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(places(&again), places(&first), "{text}");
    }
    let unix = ConnInfo::unix(Path::new("/tmp/x y"), 7, "me", "db");
    assert_eq!(info(&unix.display(), &[HOME]).hosts, unix.hosts);
}

#[test]
fn session_settings_of_the_environment_come_last() {
    let env = [HOME, ("PGOPTIONS", "-c work_mem=1MB"), ("PGTZ", "A B"), ("PGDATESTYLE", "default")];
    assert_eq!(info("x", &env).options.as_deref(), Some("-c work_mem=1MB -c timezone=A\\ B"));
    assert_eq!(info("options='-c a=1'", &[HOME]).options.as_deref(), Some("-c a=1"));
}
