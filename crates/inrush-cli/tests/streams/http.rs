//! HTTP: what is taken, and what is answered.

use crate::client::{get, post, rows};
use crate::process::{Serve, free_port, wait_until};
use inrush_testkit::Postgres;
use rustix::process::Signal;
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::process::{Command, Stdio};

/// A server's database with a configuration that listens; its ports.
pub fn config(url: &str, http: u16, admin: u16, more: &str) -> String {
    format!(
        "[server]\nto = \"{url}\"\nlanes = 2\n[batch]\nlinger = \"20ms\"\n[admin]\nlisten = \"127.0.0.1:{admin}\"\n\
         [[http]]\nname = \"in\"\nlisten = \"127.0.0.1:{http}\"\n{more}"
    )
}

#[test]
fn every_format_comes_in() {
    for version in [15, 18] {
        inrush_testkit::require_server!(version);
        let database = Postgres::shared(version).fresh_database();
        database.psql("CREATE TABLE t (id int, at timestamptz, info text, v float8, ok bool)");
        let dir = tempfile::tempdir().expect("a directory");
        let (http, admin) = (free_port(), free_port());
        let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
        serve.wait_for(http);

        let json =
            "{\"id\":1,\"at\":\"2026-01-01T00:00:00Z\",\"info\":\"a\\nb\",\"v\":1.5,\"ok\":true}\n{\"id\":2}";
        let reply = rows(http, "t", &[], json).expect("an answer").expect(204);
        assert_eq!(reply.header("inrush-rows"), Some("2"));
        assert_eq!(reply.header("inrush-durability"), Some("durable"));
        let csv = "info,id\r\n\"x, \"\"y\"\"\r\nz\",3\r\n,4\r\n";
        post(http, "/ingest/t", &[("Content-Type", "text/csv")], csv.as_bytes())
            .expect("an answer")
            .expect(204);
        let line = "t,info=tag id=5i,v=2.5,ok=t\n# a comment\n\nt id=6i,info=\"of a field\"\n";
        post(http, "/write?db=x&precision=s", &[], line.as_bytes()).expect("an answer").expect(204);
        let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
        gzip.write_all(b"t id=7i\n").expect("to compress");
        let gzip = gzip.finish().expect("to compress");
        let headers = [("Content-Encoding", "gzip")];
        post(http, "/api/v2/write?org=o&bucket=b", &headers, &gzip).expect("an answer").expect(204);

        let found = database.psql(
            "SELECT id, at AT TIME ZONE 'UTC', replace(replace(info, E'\\n', '~'), E'\\r', '^'), v, ok FROM t ORDER BY id",
        );
        assert_eq!(
            found,
            "1|2026-01-01 00:00:00|a~b|1.5|t\n2||||\n3||x, \"y\"^~z||\n4||||\n5||tag|2.5|t\n6||of a field||\n7||||",
        );
        let metrics = get(admin, "/metrics").expect("an answer").expect(200).body;
        assert!(metrics.contains("\ninrush_rows_total 7\n"), "{metrics}");
        assert!(get(admin, "/ready").expect("an answer").expect(200).body.contains("\"ready\":true"));
        assert_eq!(serve.stop(), 0);
    }
}

#[test]
fn refused_rows_are_dead_letters_and_the_others_are_stored() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int PRIMARY KEY, v smallint CHECK (v < 100))");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
    serve.wait_for(http);
    // Not JSON; not a number; out of range; a constraint; a key that is there already.
    let body = "{\"id\":1,\"v\":1}\n{\"id\":2,\n{\"id\":\"x\"}\n{\"id\":4,\"v\":40000}\n{\"id\":5,\"v\":100}\n{\"id\":1}\n{\"id\":7}\n";
    let reply = rows(http, "t", &[], body).expect("an answer").expect(400);
    let told: serde_json::Value = serde_json::from_str(&reply.body).expect("JSON");
    assert_eq!((&told["rows"], &told["rejects"]), (&2.into(), &5.into()), "{told}");
    assert_eq!(database.psql("SELECT id, v FROM t ORDER BY id"), "1|1\n7|");
    let letters = database.psql(
        "SELECT position, line, sqlstate, column_name, convert_from(raw, 'UTF8') FROM inrush_ledger.dead_letters \
         ORDER BY position",
    );
    let expected = "15|2|22P02||{\"id\":2,\n\n24|3|22P02|id|{\"id\":\"x\"}\n\n35|4|22003|v|{\"id\":4,\"v\":40000}\n\n\
                    54|5|23514||{\"id\":5,\"v\":100}\n\n71|6|23505||{\"id\":1}\n";
    assert_eq!(letters.trim_end(), expected.trim_end());
    // A body that comes again under its key is told the same.
    let body = "{\"id\":20}\n{\"id\":\"x\"}\n{\"id\":21}\n";
    let key = [("Idempotency-Key", "k")];
    let first = rows(http, "t", &key, body).expect("an answer").expect(400);
    let again = rows(http, "t", &key, body).expect("an answer").expect(400);
    assert_eq!(again.header("inrush-known-rows"), Some("2"));
    assert_eq!(first.body, again.body);
    // A hundred of them among thousands, in one body.
    let many: String =
        (1000..9000)
            .map(|id| {
                if id % 80 == 0 {
                    format!("{{\"id\":{id},\"v\":100}}\n")
                } else {
                    format!("{{\"id\":{id}}}\n")
                }
            })
            .collect();
    let reply = rows(http, "t", &[], &many).expect("an answer").expect(400);
    assert!(reply.body.contains("\"rejects\":100"), "{}", reply.body);
    assert_eq!(database.psql("SELECT count(*) FROM t"), "7904");
    assert_eq!(serve.stop(), 1, "rows were refused");
}

#[test]
fn tables_and_columns_are_made_where_that_is_allowed() {
    let database = Postgres::shared(15).fresh_database();
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let into = "into.create = { time = \"time\", window = \"1h\", keep = \"1d\" }\ninto.unknown = \"add\"\n\
                into.tables = [\"cpu\", \"mem_*\"]\n";
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, into));
    serve.wait_for(http);
    let lines =
        "cpu,host=a usage=1.5,n=3i,note=\"x\",up=t\ncpu,host=b usage=2,cores=8u\nmem_free,host=a bytes=7i\n";
    post(http, "/api/v2/write", &[], lines.as_bytes()).expect("an answer").expect(204);
    assert_eq!(
        database.psql(
            "SELECT host, usage, n, note, up, cores, time > now() - interval '1 min' FROM cpu ORDER BY host"
        ),
        "a|1.5|3|x|t||t\nb|2||||8|t"
    );
    assert_eq!(database.psql("SELECT host, bytes FROM mem_free"), "a|7");
    rows(http, "cpu", &[], "{\"time\":\"now\",\"host\":\"c\",\"more\":{\"a\":1}}\n")
        .expect("an answer")
        .expect(204);
    assert_eq!(database.psql("SELECT more->>'a' FROM cpu WHERE host = 'c'"), "1");
    let reply = post(http, "/write", &[], b"disk x=1\ncpu,host=d usage=1\n").expect("an answer").expect(400);
    assert!(reply.body.contains("not among those"), "{}", reply.body);
    assert_eq!(database.psql("SELECT count(*) FROM cpu WHERE host = 'd'"), "1");
    rows(http, "disk", &[], "{}").expect("an answer").expect(403);
    assert_eq!(serve.stop(), 1);
}

#[test]
fn tags_name_tables() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE cpu_berlin (host text, v float8); CREATE TABLE cpu_oslo (LIKE cpu_berlin)");
    let dir = tempfile::tempdir().expect("a directory");
    let (http, admin) = (free_port(), free_port());
    let into = "into.table = \"{measurement}_{tag:site}\"\ninto.tables = [\"cpu*\"]\n";
    let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, into));
    serve.wait_for(http);
    let lines = "cpu,site=berlin,host=a v=1\ncpu,host=b,site=oslo v=2\ncpu,site=berlin,host=c v=3\n";
    post(http, "/write", &[], lines.as_bytes()).expect("an answer").expect(204);
    let wrong = b"cpu,host=d v=4\nmem,site=oslo v=5\ncpu,site=rome v=6\ncpu,site=oslo,host=g v=7\n";
    let reply = post(http, "/write", &[], wrong).expect("an answer").expect(400);
    assert!(
        reply.body.contains("3 rows refused") && reply.body.contains("no tag \\\"site"),
        "{}",
        reply.body
    );
    rows(http, "cpu", &[], "{\"v\":1}\n").expect("an answer").expect(422);
    let found = "SELECT string_agg(host, '' ORDER BY v) FROM ";
    assert_eq!(database.psql(&format!("{found} cpu_berlin")), "ac");
    assert_eq!(database.psql(&format!("{found} cpu_oslo")), "bg");
    assert_eq!(
        database.psql(
            "SELECT string_agg(target || ':' || sqlstate, ' ' ORDER BY line) FROM inrush_ledger.dead_letters"
        ),
        ":22P04 :42501 cpu_rome:42P01"
    );
    assert_eq!(serve.stop(), 1);
}

#[test]
fn rows_go_to_their_windows_and_late_ones_as_the_table_says() {
    for version in [15, 18] {
        inrush_testkit::require_server!(version);
        let database = Postgres::shared(version).fresh_database();
        let dir = tempfile::tempdir().expect("a directory");
        let made = crate::harness::inrush(dir.path())
            .args(["table", "create", "t", "at timestamptz not null, id int, k text", "--time", "at"])
            .args(["--window", "1h", "--keep", "6h", "--lanes", "3", "--key", "k", "--to", &database.url()])
            .output()
            .expect("to run");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        let (http, admin) = (free_port(), free_port());
        let mut serve = Serve::start(dir.path(), &config(&database.url(), http, admin, ""));
        serve.wait_for(http);
        let now = database.psql("SELECT extract(epoch FROM now())::bigint").parse::<i64>().expect("a number");
        let at = |seconds: i64| {
            database.psql(&format!(
                "SELECT to_char(to_timestamp({}) AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS\"Z\"')",
                now - seconds
            ))
        };
        let mut body = String::new();
        for id in 0..300 {
            // The last two hours, by turns: one of the windows has to be made.
            body +=
                &format!("{{\"at\":\"{}\",\"id\":{id},\"k\":\"key {id}\"}}\n", at(i64::from(id % 3) * 3600));
        }
        rows(http, "t", &[], &body).expect("an answer").expect(204);
        assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), "300|300");
        assert_eq!(
            database.psql("SELECT count(DISTINCT tableoid) FROM t"),
            "9",
            "three windows of three leaves"
        );
        let late =
            format!("{{\"at\":\"{}\",\"id\":1000}}\n{{\"at\":\"{}\",\"id\":1001}}\n", at(8 * 3600), at(0));
        let reply = rows(http, "t", &[], &late).expect("an answer").expect(400);
        assert!(reply.body.contains("oldest window"), "{}", reply.body);
        let far = format!("{{\"at\":\"{}\",\"id\":1002}}\n", at(-90 * 86400));
        let reply = rows(http, "t", &[], &far).expect("an answer").expect(400);
        assert!(reply.body.contains("future"), "{}", reply.body);
        // A time that is not read here is the server's to route.
        rows(http, "t", &[], "{\"at\":\"now\",\"id\":1003,\"k\":\"x\"}\n").expect("an answer").expect(204);
        assert_eq!(database.psql("SELECT count(*) FROM t WHERE id > 999"), "2");
        wait_until("the view says so", || {
            database.psql("SELECT count(*) FROM t_complete WHERE source = 'http:in' AND up_to IS NOT NULL")
                == "1"
        });
        assert_eq!(serve.stop(), 1);
    }
}

#[test]
fn tls_a_unix_socket_and_tokens_that_change() {
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (id int)");
    let dir = tempfile::tempdir().expect("a directory");
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"])
        .args(["-subj", "/CN=localhost", "-keyout", "key.pem", "-out", "cert.pem"])
        .current_dir(dir.path())
        .output()
        .expect("openssl");
    assert!(made.status.success(), "{made:?}");
    let (http, tls, admin) = (free_port(), free_port(), free_port());
    let socket = dir.path().join("in.sock");
    let more = format!(
        "tokens = [\"${{TOKEN:-first}}\"]\n[[http]]\nname = \"tls\"\nlisten = \"127.0.0.1:{tls}\"\ntls_cert = \"cert.pem\"\n\
         tls_key = \"key.pem\"\n[[http]]\nname = \"unix\"\nlisten = \"unix:{}\"\n",
        socket.display()
    );
    let text = config(&database.url(), http, admin, &more);
    let mut serve = Serve::start(dir.path(), &text);
    serve.wait_for(tls);
    let request = "POST /ingest/t?format=ndjson HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nConnection: close\r\n\r\n{\"id\":1}\n";
    let mut client = Command::new("openssl")
        .args(["s_client", "-quiet", "-CAfile", "cert.pem", "-verify_return_error", "-connect"])
        .arg(format!("localhost:{tls}"))
        .current_dir(dir.path())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("openssl");
    client.stdin.take().expect("a pipe").write_all(request.as_bytes()).expect("to send");
    let answer = client.wait_with_output().expect("openssl");
    assert!(answer.stdout.starts_with(b"HTTP/1.1 204"), "{answer:?}");
    let mut unix = UnixStream::connect(&socket).expect("to connect");
    unix.write_all(request.as_bytes()).expect("to send");
    let mut answer = String::new();
    unix.read_to_string(&mut answer).expect("an answer");
    assert!(answer.starts_with("HTTP/1.1 204"), "{answer}");

    let send = |token: &str| {
        rows(http, "t", &[("Authorization", &format!("Bearer {token}"))], "{\"id\":2}\n")
            .expect("an answer")
            .status
    };
    assert_eq!((send("first"), send("second")), (204, 401));
    std::fs::write(dir.path().join("serve.toml"), text.replace("first", "second")).expect("to write");
    serve.signal(Signal::HUP);
    wait_until("the new token is known", || send("second") == 204);
    assert_eq!(send("first"), 401);
    std::fs::write(dir.path().join("serve.toml"), "nonsense").expect("to write");
    serve.signal(Signal::HUP);
    wait_until("it says so", || serve.log().contains("was not read again"));
    assert_eq!(send("second"), 204);
    assert_eq!(serve.stop(), 0);
    assert!(!socket.exists());
}
