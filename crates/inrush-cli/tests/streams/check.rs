//! `inrush serve --check`: what would not work is told, and nothing is changed.

use crate::client::post;
use crate::harness::{Outcome, inrush, run};
use crate::http::config;
use crate::process::{PATIENCE, Serve, free_port, wait_until};
use inrush_testkit::{Postgres, ServerOptions};
use std::path::Path;

/// Everything that was made in a database.
const MADE: &str = "SELECT (SELECT count(*) FROM pg_class WHERE oid >= 16384), (SELECT count(*) FROM pg_namespace), \
                    (SELECT count(*) FROM pg_proc WHERE oid >= 16384)";

fn check(dir: &Path, config: &str) -> Outcome {
    std::fs::write(dir.join("check.toml"), config).expect("to write a configuration");
    run(inrush(dir).args(["serve", "--check", "check.toml"]), None, PATIENCE)
}

/// What is wrong is a fact with advice.
#[track_caller]
fn refused(dir: &Path, config: &str, code: &str, fact: &str) {
    let outcome = check(dir, config);
    outcome.expect_code(2);
    assert!(outcome.stdout.is_empty(), "{outcome:#?}");
    assert!(outcome.stderr.starts_with(&format!("error[{code}]")), "{outcome:#?}");
    assert!(outcome.stderr.contains(fact) && outcome.stderr.contains("\nhint: "), "{fact}: {outcome:#?}");
}

#[test]
fn a_check_changes_nothing() {
    for version in [15, 18] {
        inrush_testkit::require_server!(version);
        let database = Postgres::shared(version).fresh_database();
        database.psql("CREATE TABLE there (id int)");
        let dir = tempfile::tempdir().expect("a directory");
        let (http, admin) = (free_port(), free_port());
        let more = format!(
            "into.table = \"t\"\ninto.unknown = \"add\"\ninto.create = {{ window = \"1d\", keep = \"7d\" }}\n\
             [[http]]\nname = \"other\"\nlisten = \"localhost:{}\"\ninto.table = \"there\"\n\
             [[http]]\nname = \"named\"\nlisten = \"unix:in.sock\"\ninto.create = {{ window = \"1d\" }}\n\
             [spill]\ndir = \"spill\"\n",
            free_port()
        );
        let text = config(&database.url(), http, admin, &more);
        let before = database.psql(MADE);
        let told = check(dir.path(), &text);
        told.expect_code(0);
        for line in [
            "spill: ok, spill\n",
            "\nledger: ok, the ledger schema inrush_ledger will be made\n",
            "\nhttp:in: ok, table t will be made\n",
            "\nhttp:other: ok, into public.there (plain)\n",
            "\nhttp:named: ok, tables are named by the input\n",
        ] {
            assert!(told.stdout.contains(line), "{line}: {told:#?}");
        }
        assert_eq!(database.psql(MADE), before);
        assert!(!dir.path().join("spill").exists() && !dir.path().join("in.sock").exists());

        // What it said comes true; then it says what is there, also while the other process runs.
        let mut serve = Serve::start(dir.path(), &text);
        serve.wait_for(http);
        post(http, "/write", &[], b"t id=1i").expect("an answer").expect(204);
        wait_until("the row", || database.try_psql("SELECT id FROM t").is_ok_and(|id| id.trim() == "1"));
        let files = || std::fs::read_dir(dir.path().join("spill")).expect("the spill").count();
        let kept = files();
        let before = database.psql(MADE);
        let told = check(dir.path(), &text);
        told.expect_code(0);
        assert!(told.stdout.contains("\nledger: ok, inrush_ledger\n"), "{told:#?}");
        assert!(told.stdout.contains("\nhttp:in: ok, into public.t (windows)\n"), "{told:#?}");
        assert_eq!(database.psql(MADE), before);
        assert_eq!(files(), kept);
        post(http, "/write", &[], b"t id=2i").expect("an answer").expect(204);
        assert_eq!(serve.stop(), 0);

        // A ledger of an older version is not brought up to date by looking at it.
        database.psql("UPDATE inrush_ledger.version SET version = 2");
        let told = check(dir.path(), &text);
        told.expect_code(0);
        assert!(told.stdout.contains("inrush_ledger will be brought up to date\n"), "{told:#?}");
        assert_eq!(database.psql("SELECT version FROM inrush_ledger.version"), "2");
    }
}

#[test]
fn what_cannot_be_made_is_told() {
    let database = Postgres::shared(15).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let with = |more: &str| config(&database.url(), free_port(), free_port(), more);
    let before = database.psql(MADE);
    let none = with("into.table = \"nothing\"\n");
    let outcome = check(dir.path(), &none);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("table nothing does not exist"), "{outcome:#?}");
    let made = |into: &str| with(&format!("into.table = \"t\"\n{into}\n"));
    refused(
        dir.path(),
        &made("into.schema = \"nowhere\"\ninto.create = { window = \"1d\" }"),
        "table",
        "there is no such schema",
    );
    refused(
        dir.path(),
        &made("into.create = { window = \"1s\", keep = \"30d\" }"),
        "table",
        "2592005 windows would lock",
    );
    refused(
        dir.path(),
        &made("into.create = { window = \"1d\" }\ninto.columns = { caller = \"msisdn\" }"),
        "columns",
        "without \"caller\"",
    );
    let timed = made("into.create = { window = \"1d\", time = \"at\" }\ninto.columns = { at = \"when\" }");
    check(dir.path(), &timed).expect_code(0);

    let role = format!("looker_{}", std::process::id());
    database.psql(&format!("CREATE ROLE {role} LOGIN; REVOKE CREATE ON SCHEMA public FROM PUBLIC"));
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let as_role = made("into.create = { window = \"1d\" }").replace(&database.url(), &url);
    refused(dir.path(), &as_role, "ledger", "may not create the ledger schema inrush_ledger");
    database.psql(&format!("CREATE SCHEMA inrush_ledger AUTHORIZATION {role}"));
    refused(dir.path(), &as_role, "table", "may not create tables in schema public");
    database.psql(&format!("GRANT CREATE ON SCHEMA public TO {role}"));
    check(dir.path(), &as_role).expect_code(0);
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
    assert_eq!(database.psql(MADE), before);
    database.psql(&format!("ALTER DATABASE {} SET default_transaction_read_only = on", database.name()));
    refused(dir.path(), &timed, "connect", "are read-only");
}

#[test]
fn what_does_not_fit_the_tables_is_told() {
    let database = Postgres::shared(15).fresh_database();
    database.psql(
        "CREATE TABLE t (id int, twice int GENERATED ALWAYS AS (id * 2) STORED); CREATE UNLOGGED TABLE u (id int);
         CREATE TABLE all_by_itself (id serial)",
    );
    let dir = tempfile::tempdir().expect("a directory");
    let with = |into: &str| config(&database.url(), free_port(), free_port(), &format!("{into}\n"));
    for into in ["columns = { nocol = \"x\" }", "constants = { nocol = \"x\" }"] {
        let text = with(&format!("into.table = \"t\"\ninto.{into}"));
        refused(dir.path(), &text, "columns", "table public.t has no column \"nocol\"");
    }
    let generated = check(dir.path(), &with("into.table = \"t\"\ninto.constants = { twice = \"2\" }"));
    generated.expect_code(2);
    assert!(generated.stderr.contains("\"twice\" of public.t is generated"), "{generated:#?}");
    refused(dir.path(), &with("into.table = \"u\""), "clash", "public.u is unlogged");
    let unlogged = check(dir.path(), &with("into.table = \"u\"\ninto.unlogged = true"));
    assert!(unlogged.expect_code(0).stdout.contains("into public.u (unlogged)"), "{unlogged:#?}");
    // What fills itself needs no key.
    check(dir.path(), &with("into.table = \"all_by_itself\"")).expect_code(0);
}

#[test]
fn what_this_machine_does_not_have_is_told() {
    let database = Postgres::shared(15).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let text = |listen: &str, more: &str| {
        format!(
            "[server]\nto = \"{}\"\n[[http]]\nname = \"in\"\nlisten = \"{listen}\"\n{more}",
            database.url()
        )
    };
    let spill = |dir: &str| text("127.0.0.1:0", &format!("[spill]\ndir = \"{dir}\"\n"));
    std::fs::write(dir.path().join("file"), "").expect("to write");
    refused(dir.path(), &spill("/proc/nope"), "spill", "cannot create /proc/nope");
    refused(dir.path(), &spill("no/where"), "spill", "cannot create no/where");
    refused(dir.path(), &spill("file"), "spill", "cannot write to file");
    assert!(!dir.path().join("no").exists());
    refused(dir.path(), &text("nonsense", ""), "usage", "listen = \"nonsense\" is no address");
    refused(dir.path(), &text("no-such-host.invalid:80", ""), "usage", "cannot listen on");
    let admin = text("127.0.0.1:0", "[admin]\nlisten = \"no-such-host.invalid:80\"\n");
    refused(dir.path(), &admin, "usage", "admin cannot listen on");
    // At the start, too.
    let every = text("127.0.0.1:0", "[windows]\nevery = \"0s\"\n");
    std::fs::write(dir.path().join("serve.toml"), &every).expect("to write a configuration");
    let started = run(inrush(dir.path()).args(["serve", "serve.toml"]), None, PATIENCE);
    started.expect_code(2);
    assert!(started.stderr.contains("windows.every must be more than nothing"), "{started:#?}");
}

#[test]
fn a_standby_takes_no_rows() {
    let primary = Postgres::start(&ServerOptions::default());
    let standby = primary.standby();
    let dir = tempfile::tempdir().expect("a directory");
    let text = config(&standby.url(), free_port(), free_port(), "");
    refused(dir.path(), &text, "connect", "is a standby");
}

#[test]
fn a_spill_that_is_none_is_told_where_to_look() {
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(dir.path().join("empty")).expect("a directory");
    for (name, fact) in [("empty", "empty is no spill log"), ("missing", "cannot read missing")] {
        let outcome = run(inrush(dir.path()).args(["spill", "check", name]), None, PATIENCE);
        outcome.expect_code(2);
        assert!(outcome.stderr.contains(fact), "{outcome:#?}");
        assert!(outcome.stderr.contains("\nhint: Give the directory that spill.dir"), "{outcome:#?}");
    }
    std::fs::write(dir.path().join("serve.toml"), config("postgres://h/d", 1, 2, "")).expect("to write");
    let outcome = run(inrush(dir.path()).args(["spill", "drain", "serve.toml"]), None, PATIENCE);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("the configuration has no [spill]"), "{outcome:#?}");
    assert!(outcome.stderr.contains("\nhint: ") && outcome.stderr.contains("spill.dir"), "{outcome:#?}");
}
