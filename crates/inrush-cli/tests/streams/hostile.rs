//! Bad input gets a clear answer, and nobody else suffers.

use crate::client::{get, post, raw, rows};
use crate::http::config;
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::{Postgres, ServerOptions, StopMode};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

#[test]
fn wrong_requests_are_told_what_is_wrong() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let more = "tokens = [\"s3cret\"]\nmax_body = \"100kB\"\ntimeout = \"1s\"\ninto.unknown = \"reject\"\n";
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, more));
    serve.wait_for(http);
    let token = ("Authorization", "Bearer s3cret");
    let good = "{\"id\":1}\n";

    rows(http, "t", &[], good).expect("an answer").expect(401);
    rows(http, "t", &[("Authorization", "Bearer wrong")], good).expect("an answer").expect(401);
    rows(http, "t", &[("Authorization", "Token s3cret")], good).expect("an answer").expect(204);
    rows(http, "t", &[("Authorization", "Basic eDpzM2NyZXQ=")], good).expect("an answer").expect(204);
    post(http, "/write?u=x&p=s3cret", &[], b"t id=1i\n").expect("an answer").expect(204);

    rows(http, "nothing", &[token], good).expect("an answer").expect(404);
    rows(http, "t%00", &[token], good).expect("an answer").expect(404);
    let plain = post(http, "/ingest/t", &[token, ("Content-Type", "text/plain")], good.as_bytes());
    plain.expect("an answer").expect(415);
    post(http, "/write?precision=y", &[token], b"t id=1i").expect("an answer").expect(400);
    post(http, "/nowhere", &[token], b"").expect("an answer").expect(404);
    raw(http, b"GET /write HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("an answer").expect(405);
    rows(http, "t", &[token, ("Content-Encoding", "br")], good).expect("an answer").expect(415);
    let gzip = rows(http, "t", &[token, ("Content-Encoding", "gzip")], good).expect("an answer").expect(400);
    assert!(gzip.body.contains("gzip"), "{}", gzip.body);
    rows(http, "t", &[token, ("Idempotency-Key", "")], good).expect("an answer").expect(400);
    let large = "{\"id\":1}\n".repeat(12_000);
    rows(http, "t", &[token], &large).expect("an answer").expect(413);
    // The same, unknown how long it is until it is read.
    let mut chunked = b"POST /ingest/t?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\n\
                        Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        .to_vec();
    for _ in 0..12 {
        chunked.extend_from_slice(b"2328\r\n");
        chunked.extend_from_slice("{\"id\":1}\n".repeat(1000).as_bytes());
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    raw(http, &chunked).expect("an answer").expect(413);
    let drift = rows(http, "t", &[token], "{\"id\":1,\"nope\":2}\n").expect("an answer").expect(400);
    assert!(drift.body.contains("nope"), "{}", drift.body);
    let utf8 = [&b"{\"id\":1,\"info\":\"\xff\"}\n{\"id\":2}\n"[..]].concat();
    let utf8 = post(http, "/ingest/t?format=ndjson", &[token], &utf8).expect("an answer").expect(400);
    assert!(utf8.body.contains("22021"), "{}", utf8.body);
    let header =
        post(http, "/ingest/t?format=csv", &[token], b"id,nope\n1,2\n").expect("an answer").expect(422);
    assert!(header.body.contains("nope"), "{}", header.body);
    // Another protocol.
    let mut socket = TcpStream::connect(("127.0.0.1", http)).expect("to connect");
    socket.write_all(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03").expect("to send");
    let mut answer = Vec::new();
    let _ = socket.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 400"), "{answer:?}");
    // A sender that takes its time.
    let mut slow = TcpStream::connect(("127.0.0.1", http)).expect("to connect");
    slow.write_all(b"POST /ingest/t?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\nContent-Length: 1000\r\n\r\n{")
        .expect("to send");
    let began = Instant::now();
    let mut answer = Vec::new();
    slow.set_read_timeout(Some(Duration::from_secs(20))).expect("a socket");
    let _ = slow.read_to_end(&mut answer);
    assert!(answer.starts_with(b"HTTP/1.1 408"), "{}", String::from_utf8_lossy(&answer));
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    // And one that goes away.
    let mut gone = TcpStream::connect(("127.0.0.1", http)).expect("to connect");
    gone.write_all(b"POST /ingest/t?format=ndjson HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer s3cret\r\nContent-Length: 1000\r\n\r\n{\"id\":77}\n")
        .expect("to send");
    drop(gone);

    rows(http, "t", &[token], "{\"id\":5}\n").expect("an answer").expect(204);
    assert_eq!(database.psql("SELECT count(*), count(*) FILTER (WHERE id = 2) FROM t WHERE id <> 77"), "5|1");
    assert_eq!(serve.stop(), 1);
}

/// PostgreSQL lets rows through to partitions that their sender may not write; they do not come that way here.
#[test]
fn who_may_not_write_the_leaves_is_told_what_to_do() {
    let database = Postgres::shared(15).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let made = crate::harness::inrush(dir.path())
        .args(["table", "create", "t", "at timestamptz not null, id int", "--time", "at", "--window", "1d"])
        .args(["--keep", "6d", "--to", &database.url()])
        .output()
        .expect("to run");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let role = format!("sender_{}", std::process::id());
    database.psql(&format!(
        "CREATE ROLE {role} LOGIN; GRANT INSERT ON t TO {role}; GRANT USAGE ON SCHEMA inrush_ledger TO {role};
         GRANT ALL ON ALL TABLES IN SCHEMA inrush_ledger TO {role}"
    ));
    let (http, admin) = (free_port(), free_port());
    let url = database.url().replace("postgres@", &format!("{role}@"));
    let mut serve = Serve::start(dir.path(), &config(&url, http, admin, ""));
    serve.wait_for(http);
    let at = database.psql("SELECT to_char(now() AT TIME ZONE 'UTC', 'YYYY-MM-DD\"T\"HH24:MI:SS\"Z\"')");
    let body = format!("{{\"id\":1,\"at\":\"{at}\"}}\n");
    let reply = rows(http, "t", &[], &body).expect("an answer").expect(503);
    assert!(reply.body.contains("42501"), "{reply:?}");
    assert!(serve.log().contains("be granted INSERT on the partitions"), "{}", serve.log());
    database.psql(&format!("GRANT INSERT ON ALL TABLES IN SCHEMA public TO {role}"));
    rows(http, "t", &[], &body).expect("an answer").expect(204);
    assert_eq!(serve.stop(), 0);
    database.psql(&format!("DROP OWNED BY {role}; DROP ROLE {role}"));
}

#[test]
fn too_many_refused_rows_stop_the_input_for_a_while() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let config = config(&database.url(), http, admin, "") + "[limits]\nrejects_per_minute = 10\n";
    let mut serve = Serve::start(dir.path(), &config);
    serve.wait_for(http);
    rows(http, "t", &[], &"nope\n".repeat(20)).expect("an answer").expect(400);
    let reply = rows(http, "t", &[], "{\"id\":1}\n").expect("an answer").expect(429);
    assert!(reply.header("retry-after").is_some_and(|after| after.parse::<u32>().is_ok()), "{reply:?}");
    let ready = get(admin, "/ready").expect("an answer").expect(503);
    assert!(ready.body.contains("refused rows a minute"), "{}", ready.body);
    assert_eq!(serve.stop(), 1);
}

#[test]
fn it_starts_without_the_server_and_goes_on_when_it_comes_back() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id int)");
    server.stop(StopMode::Immediate);
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let more = "[limits]\nmemory = \"2MiB\"\nwait = \"300ms\"\n";
    let mut serve = Serve::start(dir.path(), &(config(&database.url(), http, admin, "") + more));
    serve.wait_for(http);
    let ready = get(admin, "/ready").expect("an answer").expect(503);
    assert!(ready.body.contains("no connection"), "{}", ready.body);
    // What fits waits, what does not is told to come back.
    let waiting: Vec<_> = (0..6)
        .map(|n| {
            std::thread::spawn(move || {
                let body: String =
                    (0..10_000).map(|id| format!("{{\"id\":{}}}\n", n * 10_000 + id)).collect();
                loop {
                    match rows(http, "t", &[("Idempotency-Key", &format!("k{n}"))], &body) {
                        Ok(reply) if reply.status == 204 => return,
                        Ok(reply) => assert!([409, 503].contains(&reply.status), "{reply:?}"),
                        Err(_) => {}
                    }
                    std::thread::sleep(Duration::from_millis(100));
                }
            })
        })
        .collect();
    std::thread::sleep(Duration::from_secs(2));
    server.restart();
    for thread in waiting {
        thread.join().expect("a sender");
    }
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), "60000|60000");
    wait_until("it is ready again", || get(admin, "/ready").is_ok_and(|reply| reply.status == 200));
    assert_eq!(serve.stop(), 0);
}

#[test]
fn a_million_rows_go_through_an_outage_with_little_memory() {
    let server = Postgres::start(&ServerOptions::default());
    let database = server.fresh_database();
    database.psql("CREATE TABLE t (id int, info text)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let more = format!(
        "into.table = \"t\"\n[limits]\nmemory = \"64MiB\"\nwait = \"500ms\"\n[spill]\ndir = \"{}/spill\"\n",
        dir.path().display()
    );
    let text = config(&database.url(), http, admin, &more);
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    let (all, outage) = if std::env::var_os("INRUSH_LONG").is_some() { (1000, 60) } else { (200, 3) };
    let sender = std::thread::spawn(move || {
        for n in 0..all {
            let body: String = (0..1000)
                .map(|id| format!("{{\"id\":{},\"info\":\"{:080}\"}}\n", n * 1000 + id, id))
                .collect();
            let key = format!("k{n}");
            // Some with a key, some without: none of these is sent twice unless it was refused.
            let headers = if n % 3 == 0 { vec![("Idempotency-Key", key.as_str())] } else { Vec::new() };
            loop {
                let reply = rows(http, "t", &headers, &body).expect("an answer");
                if reply.status == 204 {
                    break;
                }
                assert_eq!(reply.status, 503, "{reply:?}");
                std::thread::sleep(Duration::from_millis(100));
            }
        }
    });
    std::thread::sleep(Duration::from_secs(1));
    server.kill9();
    std::thread::sleep(Duration::from_secs(outage));
    let spilled = get(admin, "/metrics").expect("an answer").body;
    assert!(!spilled.contains("\ninrush_spill_bytes 0\n"), "{spilled}");
    // It is not lost with the process either.
    serve.kill9();
    let checked =
        crate::harness::inrush(dir.path()).args(["spill", "check", "spill"]).output().expect("to run");
    assert!(checked.status.success(), "{checked:?}");
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(http);
    server.restart();
    sender.join().expect("a sender");
    let expected = format!("{0}|{0}", all * 1000);
    wait_until("everything is drained", || {
        database.psql("SELECT count(*), count(DISTINCT id) FROM t") == expected
    });
    let peak = serve.peak_memory();
    eprintln!("peak memory {} MiB", peak >> 20);
    assert!(peak < 300 << 20, "peak memory {} MiB", peak >> 20);
    wait_until("the spill says that it is empty", || {
        get(admin, "/metrics").is_ok_and(|reply| reply.body.contains("\ninrush_spill_bytes 0\n"))
    });
    assert_eq!(serve.stop(), 0);
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), expected);
}

/// A splitter that asks about a table must not stand still for those behind it.
#[test]
fn a_table_that_cannot_be_asked_for_holds_nobody_up() {
    let server = Postgres::start(&ServerOptions::default());
    server.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let config = config(&server.url(), http, admin, "") + "[limits]\nwait = \"1s\"\n";
    let mut serve = Serve::start(dir.path(), &config);
    serve.wait_for(http);
    server.stop(StopMode::Immediate);
    let began = Instant::now();
    rows(http, "t", &[("Idempotency-Key", "k")], "{\"id\":1}\n").expect("an answer").expect(503);
    rows(http, "t", &[], "{\"id\":2}\n").expect("an answer").expect(503);
    assert!(began.elapsed() < Duration::from_secs(20), "{:?}", began.elapsed());
    server.restart();
    wait_until("it is stored", || {
        rows(http, "t", &[("Idempotency-Key", "k")], "{\"id\":1}\n").is_ok_and(|reply| reply.status == 204)
    });
    assert_eq!(server.psql("SELECT string_agg(id::text, ',') FROM t"), "1");
    assert_eq!(serve.stop(), 0);
}
