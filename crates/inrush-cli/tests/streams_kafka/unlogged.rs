//! Unlogged tables: a crash of the server empties them, and the topic fills them again.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Sender, create_topic};
use inrush_testkit::{Kafka, Postgres, ServerOptions, require_kafka};

#[test]
fn after_a_crash_of_the_server_everything_is_read_again() {
    require_kafka!();
    let (kafka, server) = (Kafka::shared(), Postgres::start(&ServerOptions::default()));
    let database = server.fresh_database();
    database.psql("CREATE UNLOGGED TABLE t (id int)");
    create_topic(kafka, "unlogged", 4);
    let sender = Sender::new(kafka, &[]);
    let send = |ids: std::ops::Range<i32>| {
        ids.for_each(|id| sender.send("unlogged", id % 4, Some(format!("{{\"id\":{id}}}").as_bytes())));
        sender.flush();
    };
    let complete = |rows: i32| {
        let (found, wanted) =
            ("SELECT count(*), count(DISTINCT id), max(id) FROM t", format!("{rows}|{rows}|{}", rows - 1));
        wait_until(&wanted, || database.try_psql(found).is_ok_and(|found| found == wanted));
    };
    send(0..1000);
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "unlogged", &["unlogged"])
        .with("into.table = \"t\"\ninto.unlogged = true");
    let serve = Serve::start(dir.path(), &config.text());
    complete(1000);
    assert_eq!(
        database.psql("SELECT count(*) FROM inrush_ledger.offsets"),
        "0",
        "offsets are in the unlogged twin"
    );
    server.kill9();
    server.restart();
    // Although nothing comes.
    complete(1000);
    server.kill9();
    send(1000..1500);
    server.restart();
    complete(1500);
    // Only one process of the server dies: it empties the tables all the same.
    let backend = "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'";
    let pid =
        database.psql(backend).parse().ok().and_then(rustix::process::Pid::from_raw).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).expect("a process of our server");
    complete(1500);
    serve.kill9();
    server.kill9();
    server.restart();
    let serve = Serve::start(dir.path(), &config.text());
    complete(1500);
    assert_eq!(serve.stop(), 0);
    // A clean restart empties nothing, and nothing comes twice.
    server.restart();
    let serve = Serve::start(dir.path(), &config.text());
    send(1500..1600);
    complete(1600);
    assert_eq!(serve.stop(), 0);
}
