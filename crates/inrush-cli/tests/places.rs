//! `inrush route` and `inrush cluster status`: what they print. What they find is tested in inrush-cluster.

mod harness;

use harness::{Outcome, inrush, run};
use inrush_testkit::{Cluster, ClusterDatabase, Postgres, require_server};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn said(url: &str, args: &[&str]) -> Outcome {
    let dir = tempfile::tempdir().expect("a directory");
    let outcome = run(inrush(dir.path()).args(args).args(["--to", url]), None, PATIENCE);
    assert!(!outcome.panicked(), "{outcome:#?}");
    let widest = outcome.stdout.lines().map(|line| line.chars().count()).max().unwrap_or_default();
    assert!(widest <= 80, "a line of {widest}:\n{}", outcome.stdout);
    outcome
}

fn json(outcome: &Outcome) -> serde_json::Value {
    outcome.expect_code(0);
    serde_json::from_str(&outcome.stdout).unwrap_or_else(|e| panic!("{e}: {}", outcome.stdout))
}

/// Text with the ports of nodes as PORT0, PORT1, and one space for many.
fn plain(database: &ClusterDatabase<'_>, text: &str) -> String {
    let mut text = text.to_owned();
    for node in 0..2 {
        text = text.replace(&database.cluster().address(node).1.to_string(), &format!("PORT{node}"));
    }
    text.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ") + "\n").collect()
}

#[test]
fn a_key_is_explained() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    database.by_hash("orders", "id bigint, note text", "id", 4, "");
    let url = database.url();
    // The hash is that of the kept vectors of inrush-route.
    let found = said(&url, &["route", "orders", "42"]);
    found.expect_code(0);
    assert_eq!(
        plain(&database, &found.stdout),
        "table public.orders: partitioned by hash of id\n\
         key id = 42 (bigint)\n\
         hash 12669485132091644514 (64 bits)\n\
         partition public.orders_2, one of 4\n\
         takes FOR VALUES WITH (modulus 4, remainder 2)\n\
         found by the hash divided by each modulus\n\
         checked by satisfies_hash_partition\n\
         node node0 (127.0.0.1:PORT0)\n\
         relation public.orders_2\n\
         a load sends it straight there\n"
    );
    assert_eq!(found.stderr, "");
    let found = json(&said(&url, &["route", "orders", "-1", "--json"]));
    assert_eq!(found["version"], 1);
    assert_eq!(found["key"][0]["value"], "-1");
    assert_eq!(found["steps"][0]["hash"]["value"], "288437243775528869");
    assert_eq!(found["placements"][0]["host"], "127.0.0.1");
    assert_eq!(found["direct"], true);
    // NULL has to be said.
    let null = json(&said(&url, &["route", "orders", "NULL", "--null", "NULL", "--json"]));
    assert_eq!(null["key"][0]["value"], serde_json::Value::Null);
    said(&url, &["route", "orders", "NULL"]).expect_code(2);
    let few = said(&url, &["route", "orders"]);
    few.expect_code(2);
    assert!(
        few.stderr.contains("error[usage]: the key of public.orders is (id), and no value is given\nhint: "),
        "{}",
        few.stderr
    );
    database.psql("CREATE TABLE days (at date) PARTITION BY RANGE (at); CREATE TABLE plain (n integer)");
    let nowhere = said(&url, &["route", "days", "2026-11-22"]);
    nowhere.expect_code(0);
    assert!(nowhere.stdout.contains("  nowhere     no partition takes this key\n"), "{}", nowhere.stdout);
    let here = said(&url, &["route", "plain"]);
    assert_eq!(
        here.stdout,
        "table public.plain: on this server as a whole, without a key\n  node        the server that was asked\n  relation    public.plain\n"
    );
    let missing = said(&url, &["route", "nobody", "1"]);
    missing.expect_code(2);
    assert!(missing.stderr.starts_with("error[table]: table nobody does not exist"), "{}", missing.stderr);
}

#[test]
fn a_cluster_is_shown() {
    require_server!(18);
    let database = Cluster::shared(18).fresh_database();
    database.by_hash("orders", "id bigint, note text", "id", 4, "PRIMARY KEY (id)");
    database.psql("INSERT INTO orders SELECT i, 'x' FROM generate_series(1, 1000) i");
    let url = database.url();
    let found = said(&url, &["cluster", "status", "--exact"]);
    found.expect_code(0);
    let text = plain(&database, &found.stdout);
    for part in [
        "NODE SERVER CITUS INRUSH PREPARED STATE\n",
        "\nnode0 (127.0.0.1:PORT0) 18.",
        " stock no 0 of 100 ok\n",
        "\ntable public.orders: hash of id\nhas 4 partitions, 1,000 rows, ",
        "\nskew partitions 1.",
        "\nlargest public.orders_",
        "\nNODE PARTITIONS ROWS SIZE\nnode0 2 ",
    ] {
        assert!(text.contains(part), "no {part:?} in\n{text}");
    }
    let of_table = json(&said(&url, &["cluster", "status", "orders", "--exact", "--json"]));
    assert_eq!((&of_table["cluster"], &of_table["tables"][0]["rows"]), (&true.into(), &1000.into()));
    // A ledger that has prepared something.
    said(&url, &["recover"]).expect_code(0);
    let dir = tempfile::tempdir().expect("a directory");
    std::fs::write(dir.path().join("a.csv"), "id,note\n2000,y\n").expect("own directory");
    run(inrush(dir.path()).args(["load", "a.csv", "-t", "orders", "--to", &url]), None, PATIENCE)
        .expect_code(0);
    let origin = database.psql(
        "SELECT id || 'd' || (SELECT oid FROM pg_database WHERE datname = current_database()) FROM inrush_ledger.origin",
    );
    database.node(1).psql(&format!(
        "BEGIN; INSERT INTO orders_1 VALUES (-1, 'z'); PREPARE TRANSACTION 'inrush_{origin}_99_1_0.7_n1'"
    ));
    let found = said(&url, &["cluster", "status"]);
    let text = plain(&database, &found.stdout);
    let unit = "\nprepared by loads\nLOAD UNIT AGE LEDGER RECOVER ON\n99 0.7 ";
    assert!(text.contains(unit) && text.contains(" open rolls it back node1\n"), "{text}");
    said(&url, &["recover"]).expect_code(0);
    assert!(!said(&url, &["cluster", "status"]).stdout.contains("prepared by loads"));
    assert_eq!(database.prepared(), Vec::<String>::new());
}

#[test]
fn one_server_is_no_cluster() {
    require_server!(15);
    let database = Postgres::shared(15).fresh_database();
    database.psql("CREATE TABLE t (n integer)");
    let found = said(&database.url(), &["cluster", "status"]);
    found.expect_code(0);
    assert_eq!(found.stdout, "there is no cluster here: no Citus, and no partition on another server\n");
    let json = json(&said(&database.url(), &["cluster", "status", "--json"]));
    assert_eq!((&json["cluster"], json["nodes"].as_array().map(Vec::len)), (&false.into(), Some(1)));
    said(&database.url(), &["cluster", "status", "t"]).expect_code(2);
}
