//! What nodes have too little of, or not at all.

use crate::harness::{inrush, run};
use crate::loads::{Files, PATIENCE, settled};
use inrush_testkit::{At, Cluster, ClusterOptions};

const ROWS: usize = 20_000;

fn file(files: &Files) {
    let file: String = (1..=ROWS).map(|id| format!("{id},row number {id}\n")).collect();
    files.write("t.csv", &file);
}

#[test]
fn as_many_lanes_as_there_may_be_prepared_units() {
    let cluster = Cluster::start(&ClusterOptions { prepared: 1, ..ClusterOptions::default() });
    let database = cluster.fresh_database();
    let files = Files::new();
    file(&files);
    database.by_hash("t", "id int, info text", "id", 4, "");
    let more = ["--no-header", "--jobs", "4", "--chunk", "16K", "--unit-bytes", "32K"];
    let report = files.report(0, "t.csv", "t", &database.url(), &more);
    report.bypassed();
    assert_eq!(report.total("connections"), 1);
    assert_eq!(database.psql("SELECT count(*), count(DISTINCT id) FROM t"), format!("{ROWS}|{ROWS}"));
    settled(&database, "");
    // Somebody else has the only one for a while: his end is waited for.
    database.node(0).psql("BEGIN; CREATE TABLE other (); PREPARE TRANSACTION 'other'");
    let more = [&more[..], &["--again"]].concat();
    std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(std::time::Duration::from_millis(150));
            database.node(0).psql("ROLLBACK PREPARED 'other'");
        });
        files.report(0, "t.csv", "t", &database.url(), &more).bypassed();
    });
    settled(&database, "");
}

#[test]
fn places_that_are_not_fit_are_refused_before_a_row_is_sent() {
    let cluster = Cluster::shared(inrush_testkit::Version::Any);
    let database = cluster.fresh_database();
    let files = Files::new();
    file(&files);
    database.by_hash("t", "id int, info text", "id", 4, "");
    let refused = |what: &str| {
        let outcome = run(&mut files.load("t.csv", "t", &database.url(), &["--no-header"]), None, PATIENCE);
        outcome.expect_code(2);
        assert!(outcome.stderr.contains(what), "{outcome:#?}");
        assert!(outcome.stderr.contains("hint: "), "{outcome:#?}");
    };
    database.node(1).psql("ALTER TABLE t_1 SET UNLOGGED");
    refused("t_1 on node node1");
    database.node(1).psql("ALTER TABLE t_1 SET LOGGED; ALTER TABLE t_1 RENAME TO u");
    refused("there is no table public.t_1 on node node1");
    database.node(1).psql("ALTER TABLE u RENAME TO t_1");
    files.report(0, "t.csv", "t", &database.url(), &["--no-header"]).bypassed();
    // Rows elsewhere cannot be told by transactions of this server.
    let outcome =
        run(inrush(files.path()).args(["loads", "undo", "1", "--to", &database.url()]), None, PATIENCE);
    outcome.expect_code(2);
    assert!(outcome.stderr.contains("partitions of t"), "{outcome:#?}");
    assert_eq!(database.psql("SELECT count(*) FROM t"), ROWS.to_string());
}

#[test]
fn columns_of_other_types_go_as_text() {
    let database = Cluster::shared(inrush_testkit::Version::Any).fresh_database();
    let files = Files::new();
    database.everywhere("CREATE TYPE unused AS ENUM ('x')");
    database.node(1).psql("CREATE TYPE another AS ENUM ('y')");
    database.everywhere("CREATE TYPE mood AS ENUM ('sad', 'glad')");
    let leaves = [
        ("FOR VALUES WITH (MODULUS 2, REMAINDER 0)", At::Node(0)),
        ("FOR VALUES WITH (MODULUS 2, REMAINDER 1)", At::Node(1)),
    ];
    let columns = "id int, info varchar(30), moods mood[]";
    database.partitioned("t", columns, "HASH (id)", &leaves, "id bigint, info text, moods mood[]");
    let file: String = (1..=2_000).map(|id| format!("{id},\"row, {id}\",\"{{sad,glad}}\"\n")).collect();
    files.write("t.csv", file);
    files.report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"]).bypassed().audited(2_000);
    let found = database.psql("SELECT count(*), count(DISTINCT id), min(info), min(moods::text) FROM t");
    assert_eq!(found, "2000|2000|row, 1|{sad,glad}");
    database.partitioned("u", columns, "HASH (id)", &leaves, columns);
    files.report(0, "t.csv", "u", &database.url(), &["--no-header", "--audit"]).bypassed().audited(2_000);
    settled(&database, "");
}

#[test]
fn a_user_mapping_without_options() {
    let database = Cluster::shared(inrush_testkit::Version::Any).fresh_database();
    let files = Files::new();
    file(&files);
    database.by_hash("t", "id int, info text", "id", 4, "");
    let of = |server| {
        format!(
            "DROP USER MAPPING FOR PUBLIC SERVER {server}; CREATE USER MAPPING FOR CURRENT_USER SERVER {server}"
        )
    };
    database.psql(&[of("node0"), of("node1")].join(";"));
    files
        .report(0, "t.csv", "t", &database.url(), &["--no-header", "--audit"])
        .bypassed()
        .audited(ROWS as u64);
}
