//! Idempotency-Key.

use crate::client::{get, post, rows};
use crate::http::config;
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::Postgres;
use std::io::Write;
use std::net::TcpStream;
use std::time::Duration;

#[test]
fn a_body_with_a_key_is_stored_once() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int); CREATE TABLE u (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    // Small memory, so that a body is several parts and units.
    let more = "[limits]\nmemory = \"2MiB\"\n";
    let text = config(&database.url(), http, admin, "") + more;
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    let body: String = (0..60_000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
    let key = ("Idempotency-Key", "one");
    let first = rows(http, "t", &[key], &body).expect("an answer").expect(204);
    assert_eq!(first.header("inrush-rows"), Some("60000"));
    let again = rows(http, "t", &[key], &body).expect("an answer").expect(204);
    assert_eq!(again.header("inrush-known-rows"), Some("60000"));
    assert_eq!(database.psql("SELECT count(*) FROM t"), "60000");
    let other = rows(http, "t", &[key], "{\"id\":1}\n").expect("an answer").expect(422);
    assert!(other.body.contains("another body"), "{}", other.body);
    // Many at once.
    let threads: Vec<_> = (0..8)
        .map(|_| {
            std::thread::spawn(move || {
                let lines: String = (0..500).map(|id| format!("t id={id}i\nu id={id}i\n")).collect();
                post(http, "/write", &[("Idempotency-Key", "two")], lines.as_bytes())
                    .expect("an answer")
                    .status
            })
        })
        .collect();
    for thread in threads {
        assert_eq!(thread.join().expect("a sender"), 204);
    }
    assert_eq!(database.psql("SELECT count(*) FROM u"), "500");
    assert_eq!(serve.stop(), 0);
    // Another number of lanes does not make them other bodies.
    let mut serve = Serve::start(dir.path(), &text.replace("lanes = 2", "lanes = 5"));
    serve.wait_for(http);
    rows(http, "t", &[key], &body).expect("an answer").expect(204);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "60500");
    // Without a key it is another body each time.
    rows(http, "u", &[], "{\"id\":1}\n").expect("an answer").expect(204);
    rows(http, "u", &[], "{\"id\":1}\n").expect("an answer").expect(204);
    assert_eq!(database.psql("SELECT count(*) FROM u"), "502");
    assert_eq!(serve.stop(), 0);
}

#[test]
fn the_same_body_is_stored_once_where_that_is_asked_for() {
    for spill in ["", "[spill]\ndir = \"spill\"\n"] {
        let database = Postgres::shared(15).fresh_database();
        database.psql("CREATE TABLE t (id int); CREATE TABLE u (id int)");
        let dir = tempfile::tempdir().expect("a directory");
        let (http, admin) = (free_port(), free_port());
        let text = spill.to_owned() + &config(&database.url(), http, admin, "once_by_content = true\n");
        let mut serve = Serve::start(dir.path(), &text);
        serve.wait_for(http);
        wait_until("the server", || get(admin, "/ready").is_ok_and(|reply| reply.status == 200));
        let body: String = (0..1000).map(|id| format!("{{\"id\":{id}}}\n")).collect();
        let send = |table: &str, body: &str| {
            let reply = rows(http, table, &[], body).expect("an answer").expect(204);
            reply.header("inrush-known-rows").map(str::to_owned)
        };
        assert_eq!(send("t", &body), None);
        assert_eq!(send("t", &body).as_deref(), Some("1000"));
        assert_eq!(send("u", &body), None);
        assert_eq!(send("t", "{\"id\":1}\n"), None);
        assert_eq!(database.psql("SELECT (SELECT count(*) FROM t), (SELECT count(*) FROM u)"), "1001|1000");
        // With a key it is the key that counts.
        rows(http, "u", &[("Idempotency-Key", "k")], &body).expect("an answer").expect(204);
        assert_eq!(database.psql("SELECT count(*) FROM u"), "2000");
        let large = body.repeat(200);
        rows(http, "t", &[], &large).expect("an answer").expect(413);
        assert_eq!(database.psql("SELECT count(*) FROM t"), "1001");
        assert_eq!(serve.stop(), 0);
    }
}

/// A sender that has lost its patience sends again while the first attempt waits in the same queue.
#[test]
fn two_attempts_in_a_queue_are_stored_once() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
    serve.wait_for(http);
    let key = ("Idempotency-Key", "k");
    std::thread::scope(|scope| {
        let blocked = scope.spawn(|| {
            database.psql("BEGIN; LOCK TABLE t IN SHARE MODE; SELECT pg_sleep(3); COMMIT");
        });
        std::thread::sleep(Duration::from_millis(500));
        // Keeps the lane busy.
        let first = scope.spawn(|| rows(http, "t", &[], "{\"id\":1}\n").expect("an answer").expect(204));
        std::thread::sleep(Duration::from_millis(500));
        let mut gone = TcpStream::connect(("127.0.0.1", http)).expect("to connect");
        let request = "POST /ingest/t?format=ndjson HTTP/1.1\r\nHost: x\r\nIdempotency-Key: k\r\nContent-Length: 9\r\n\r\n{\"id\":2}\n";
        gone.write_all(request.as_bytes()).expect("to send");
        std::thread::sleep(Duration::from_millis(300));
        drop(gone);
        std::thread::sleep(Duration::from_millis(300));
        let again = rows(http, "t", &[key], "{\"id\":2}\n").expect("an answer");
        assert!(again.status != 400, "{again:?}");
        blocked.join().expect("psql");
        first.join().expect("a sender");
    });
    wait_until("it is stored", || {
        rows(http, "t", &[key], "{\"id\":2}\n").is_ok_and(|reply| reply.status == 204)
    });
    assert_eq!(database.psql("SELECT string_agg(id::text, ',' ORDER BY id) FROM t"), "1,2");
    assert_eq!(serve.stop(), 0);
}
