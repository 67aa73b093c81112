//! What messages may be, and what becomes of them.

use crate::process::{Serve, wait_until};
use crate::stream::{Config, Sender, create_topic, observer, watermarks};
use inrush_testkit::{Kafka, Postgres, require_kafka};
use rdkafka::producer::Producer;
use std::time::Duration;

const LETTERS: &str = "SELECT string_agg(partition || ' ' || position, ',' ORDER BY partition, position)
                         FROM inrush_ledger.dead_letters";

#[test]
fn json_comes_from_all_partitions_and_what_is_wrong_is_a_dead_letter() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int, info text)");
    let sender = Sender::new(kafka, &[("compression.type", "zstd")]);
    create_topic(kafka, "json", 4);
    let mut offsets = [0; 4];
    let (mut rows, mut letters) = (0, Vec::new());
    for number in 0..2000 {
        let partition: usize = number % 4;
        let values: (Option<String>, usize, usize) = match number / 4 % 50 {
            3 => (None, 0, 0),
            7 => (Some(String::new()), 0, 0),
            11 => (Some(format!("{{\n  \"id\": {rows},\n  \"info\": \"pretty\"\n}}\n")), 1, 0),
            17 => {
                (Some(format!("{{\"id\":{rows}}}\n{{\"id\":{}}}\r\n{{\"id\":{}}}", rows + 1, rows + 2)), 3, 0)
            }
            23 => (Some("{\"id\":\"no number\"}".into()), 0, 1),
            29 => (Some("{ this is\n  not JSON\n}".into()), 0, 1),
            31 => (Some(format!("{{\"id\":{rows},\"info\":\"a newline\nin a string\"}}")), 0, 1),
            _ => (Some(format!("{{\"id\":{rows},\"info\":\"plain\"}}")), 1, 0),
        };
        let (value, good, bad) = values;
        sender.send("json", i32::try_from(partition).expect("0 to 3"), value.as_deref().map(str::as_bytes));
        rows += good;
        letters.extend((0..bad).map(|_| (partition, offsets[partition])));
        offsets[partition] += 1;
    }
    sender.flush();
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "json", &["json"]).with("into.table = \"t\"");
    let serve = Serve::start(dir.path(), &config.text());
    wait_until("all rows", || database.psql("SELECT count(*) FROM t") == rows.to_string());
    letters.sort_unstable();
    let wanted: Vec<String> = letters.iter().map(|(p, offset)| format!("json/{p} {offset}")).collect();
    wait_until("all letters", || database.psql(LETTERS) == wanted.join(","));
    assert_eq!(
        database.psql("SELECT count(DISTINCT id), max(id), count(*) FILTER (WHERE info = 'pretty') FROM t"),
        format!("{rows}|{}|40", rows - 1)
    );
    assert_eq!(
        database.psql(
            "SELECT DISTINCT source, target, rtrim(convert_from(raw, 'UTF8'), E'\n') FROM inrush_ledger.dead_letters
              WHERE from_server"
        ),
        "kafka:events|t|{\"id\":\"no number\"}"
    );
    assert_eq!(serve.stop(), 1, "rows were refused");
}

#[test]
fn csv_and_line_protocol_come_and_an_open_quote_ends_with_its_message() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql(
        "CREATE TABLE c (id int, info text); CREATE TABLE cpu (time timestamptz, host text, used float8)",
    );
    create_topic(kafka, "csv", 1);
    create_topic(kafka, "lines", 1);
    let csv = Sender::new(kafka, &[("compression.type", "gzip")]);
    let lines = Sender::new(kafka, &[("compression.type", "lz4")]);
    for id in 0..500 {
        let value = match id % 5 {
            0 => format!("{id},plain"),
            1 => format!("{id},\"two\nlines\"\n"),
            2 => format!("{id},open \"quote"),
            3 => format!("{id},with its end\r\n"),
            _ => format!("{id},first\r\n{},second\r\n", id + 1000),
        };
        csv.send("csv", 0, Some(value.as_bytes()));
        let value = match id % 5 {
            0 => format!("cpu,host=h{id} used={id} {id}000000000"),
            1 => format!("cpu,host=h{id} used={id},note=\"a\nb\" {id}000000000\n"),
            2 => format!("cpu,host=h{id} used={id},note=\"open {id}000000000"),
            3 => format!("# a comment \" with a quote\ncpu,host=h{id} used={id},note=\"closed\""),
            _ => format!("cpu,host=h{id} used={id}\ncpu,host=i{id} used={id}\n"),
        };
        lines.send("lines", 0, Some(value.as_bytes()));
    }
    csv.flush();
    lines.flush();
    let dir = tempfile::tempdir().expect("a directory");
    let of_csv = Config::new(kafka, &database, "csv", &["csv"])
        .with("format = \"csv\"\ncsv_columns = [\"id\", \"info\"]\ninto.table = \"c\"");
    let of_lines = Config::new(kafka, &database, "lines", &["lines"]).with("format = \"line\"");
    let both = of_csv.text() + &of_lines.input.replace("events", "points");
    let serve = Serve::start(dir.path(), &both);
    wait_until("all of CSV", || database.psql("SELECT count(*), count(DISTINCT id) FROM c") == "500|500");
    wait_until("all lines", || database.psql("SELECT count(*), count(DISTINCT host) FROM cpu") == "500|500");
    assert_eq!(
        database.psql("SELECT info, count(*) FROM c GROUP BY info ORDER BY info"),
        "first|100\nplain|100\nsecond|100\ntwo\nlines|100\nwith its end|100"
    );
    let letters = "SELECT source, count(*), count(DISTINCT position), min(position), max(position)
                     FROM inrush_ledger.dead_letters GROUP BY source ORDER BY source";
    wait_until("all letters", || {
        database.psql(letters) == "kafka:events|100|100|2|497\nkafka:points|100|100|2|497"
    });
    assert_eq!(serve.stop(), 1, "rows were refused");
}

#[test]
fn only_what_a_transaction_has_committed_is_read() {
    require_kafka!();
    let (kafka, database) = (Kafka::shared(), Postgres::shared(15).fresh_database());
    database.psql("CREATE TABLE t (id int)");
    create_topic(kafka, "committed", 2);
    let settings =
        [("transactional.id", "test"), ("compression.type", "snappy"), ("message.timeout.ms", "60000")];
    let sender = Sender::new(kafka, &settings);
    let patience = Duration::from_secs(60);
    sender.producer().init_transactions(patience).expect("transactions");
    for number in 0..20 {
        sender.producer().begin_transaction().expect("to begin");
        for id in 0..10 {
            sender.send("committed", id % 2, Some(format!("{{\"id\":{}}}", number * 10 + id).as_bytes()));
        }
        // Otherwise what is to be aborted is never sent.
        sender.flush();
        let ended = match number % 2 {
            0 => sender.producer().commit_transaction(patience),
            _ => sender.producer().abort_transaction(patience),
        };
        ended.expect("to end");
    }
    let dir = tempfile::tempdir().expect("a directory");
    let config = Config::new(kafka, &database, "committed", &["committed"]).with("into.table = \"t\"");
    let mut serve = Serve::start(dir.path(), &config.text());
    serve.wait_for(config.admin);
    wait_until("what was committed", || database.psql("SELECT count(*) FROM t") == "100");
    // The marks of transactions are offsets too, and nothing that one waits for.
    crate::told::wait_for_lag(config.admin, 0);
    let observer = observer(kafka, "nobody");
    assert_eq!(watermarks(&observer, "committed", 0), (0, 120));
    assert_eq!(
        database.psql("SELECT count(DISTINCT id), count(*) FILTER (WHERE id / 10 % 2 = 1) FROM t"),
        "100|0"
    );
    assert_eq!(serve.stop(), 0);
}
