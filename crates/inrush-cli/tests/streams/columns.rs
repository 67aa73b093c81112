//! Which columns rows fill: those with a default, those that are added, those that somebody alters.

use crate::client::{post, rows};
use crate::http::config;
use crate::process::{Serve, free_port};
use inrush_testkit::Postgres;

#[test]
fn each_record_leaves_to_the_server_what_it_does_not_have() {
    let database = Postgres::shared(15).fresh_database();
    database.psql(
        "CREATE TABLE t (id int GENERATED ALWAYS AS IDENTITY, a int, status text DEFAULT 'new', n int NOT NULL DEFAULT 7);
         CREATE TABLE cpu (time timestamptz DEFAULT now(), host text DEFAULT 'here', usage float8, note text DEFAULT 'none')",
    );
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    for unknown in ["ignore", "reject", "add"] {
        database.psql("TRUNCATE t, cpu");
        let more = format!("into.unknown = \"{unknown}\"\n");
        let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, &more));
        serve.wait_for(http);
        let body = "{\"a\":1}\n{\"a\":2,\"status\":\"x\"}\n{\"a\":3,\"n\":1}\n{\"status\":null,\"a\":4}\n\
                    {\"a\":5,\"st\\u0061tus\":\"y\"}\n{\"a\":6}\n{\"a\":7,\"n\":2}\n{\"a\":8,\"status\":\"n\"}\n{\"a\":9}";
        rows(http, "t", &[], body).expect("an answer").expect(204);
        assert_eq!(
            database.psql("SELECT string_agg(a || coalesce(status, '-') || n, ' ' ORDER BY a) FROM t"),
            "1new7 2x7 3new1 4-7 5y7 6new7 7new2 8n7 9new7",
            "{unknown}"
        );
        let lines = "cpu usage=1 1700000000000000000\n\
                     cpu,host=a usage=2,note=\"x\" 1700000001000000000\n\
                     cpu usage=3,note=\"host=b\" 1700000002000000000\n\
                     cpu,host=c usage=4\n\
                     cpu usage=5 1700000004000000000\n";
        post(http, "/write", &[], lines.as_bytes()).expect("an answer").expect(204);
        assert_eq!(
            database
                .psql("SELECT string_agg(concat_ws(' ', usage, host, note), ',' ORDER BY usage) FROM cpu"),
            "1 here none,2 a x,3 here host=b,4 c none,5 here none",
            "{unknown}"
        );
        assert_eq!(
            database.psql("SELECT count(*) FROM cpu WHERE time BETWEEN to_timestamp(1700000000) AND to_timestamp(1700000004)"),
            "4"
        );
        assert_eq!(serve.stop(), 0);
    }
}

/// Eight bytes are a bigint as well as a double precision.
#[test]
fn types_may_be_altered() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, v bigint)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
    serve.wait_for(http);
    rows(http, "t", &[], "{\"id\":1,\"v\":17}\n").expect("an answer").expect(204);
    database.psql("ALTER TABLE t ALTER v TYPE double precision");
    rows(http, "t", &[], "{\"id\":2,\"v\":18}\n").expect("an answer").expect(503);
    rows(http, "t", &[], "{\"id\":2,\"v\":18}\n").expect("an answer").expect(204);
    assert_eq!(database.psql("SELECT string_agg(v::text, ',' ORDER BY id) FROM t"), "17,18");
    assert!(serve.log().contains("other types"), "{}", serve.log());
    assert_eq!(serve.stop(), 0);
}

#[test]
fn keys_that_no_column_can_be_named_after_are_refused() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let more = "into.unknown = \"add\"\n";
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, more));
    serve.wait_for(http);
    let long = "k".repeat(64);
    let body = format!(
        "{{\"id\":1}}\n{{\"id\":2,\"{long}\":1}}\n{{\"id\":3,\"\":1}}\n{{\"id\":4,\"xmin\":1}}\n{{\"id\":5,\"{}\":1}}\n",
        &long[1..]
    );
    let reply = rows(http, "t", &[], &body).expect("an answer").expect(400);
    assert!(reply.body.contains("\"rejects\":3"), "{reply:?}");
    assert_eq!(database.psql("SELECT string_agg(id::text, ',' ORDER BY id) FROM t"), "1,5");
    let lines = format!("t id=6i\nt id=7i,{long}=1\nt id=8i\n");
    post(http, "/write", &[], lines.as_bytes()).expect("an answer").expect(400);
    assert_eq!(database.psql("SELECT string_agg(id::text, ',' ORDER BY id) FROM t"), "1,5,6,8");
    // A table that an input cannot write spoils nothing for the others.
    database.psql("CREATE UNLOGGED TABLE u (id int)");
    let reply = post(http, "/write", &[], b"t id=9i\nu id=1i\nt id=10i\n").expect("an answer").expect(400);
    assert!(reply.body.contains("unlogged"), "{reply:?}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), "6");
    assert_eq!(serve.stop(), 1);
}

#[test]
fn a_body_of_nothing_but_refused_rows_is_not_read_to_its_end() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let config =
        config(&database.url(), http, admin, "") + "[limits]\nmemory = \"8MiB\"\nrejects_per_minute = 1000\n";
    let mut serve = Serve::start(dir.path(), &config);
    serve.wait_for(http);
    let body = format!("{}\n", "x".repeat(300)).repeat(200_000);
    if let Ok(reply) = rows(http, "t", &[], &body) {
        reply.expect(429);
    }
    let kept = "SELECT count(*) FROM inrush_ledger.dead_letters";
    assert!(database.psql(kept).parse::<u64>().expect("a number") < 100_000);
    assert_eq!(serve.stop(), 1);
}
