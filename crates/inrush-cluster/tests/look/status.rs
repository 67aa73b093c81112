//! What nodes have: shards, rows, bytes, and what was prepared there.

use super::Session;
use inrush_cluster::{Look, NodeMap, Recover, Spread, known_nodes, settle};
use inrush_core::Code;
use inrush_testkit::{At, Cluster, ClusterOptions, Postgres, StopMode, Version, require_server};
use std::time::Duration;

#[test]
fn rows_and_bytes_are_counted_where_they_are() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let session = Session::open(&database.url());
    // Two thirds on node 0, a leaf here, and what is partitioned further.
    let bound = |from: i32, to: i32| format!("FOR VALUES FROM ({from}) TO ({to})");
    database.psql("CREATE TABLE t (k integer, v text) PARTITION BY RANGE (k)");
    for (name, from, to, at) in
        [("t_a", 0, 400, At::Node(0)), ("t_b", 400, 600, At::Node(1)), ("t_c", 600, 700, At::Here)]
    {
        database.leaf("t", name, &bound(from, to), at, "k integer PRIMARY KEY, v text");
    }
    database.node(0).psql(
        "CREATE TABLE t_d (k integer, v text) PARTITION BY LIST (v); CREATE TABLE t_d_x PARTITION OF t_d DEFAULT",
    );
    database.psql(
        "CREATE FOREIGN TABLE t_d PARTITION OF t FOR VALUES FROM (700) TO (900) SERVER node0;
         CREATE TABLE plain (k integer);
         INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(0, 899) i",
    );
    let exact = session.status(Look { exact: true, ..Look::default() });
    assert!(exact.cluster);
    let names: Vec<&str> = exact.nodes.iter().map(|node| node.name.as_str()).collect();
    assert_eq!(names, ["coordinator", "node0", "node1"]);
    for node in &exact.nodes {
        assert_eq!((node.error.as_deref(), node.citus.as_deref()), (None, None));
        assert_eq!(node.max_prepared_transactions, Some(100));
        assert!(node.server_version.as_ref().is_some_and(|version| version.starts_with("15.")), "{node:?}");
    }
    let [table] = &exact.tables[..] else { panic!("{:?}", exact.tables) };
    assert_eq!((table.table.as_str(), table.spread), ("public.t", Spread::Partitions));
    assert_eq!((table.by.as_deref(), table.shards, table.rows), (Some("range of k"), 4, Some(900)));
    let shares: Vec<_> =
        table.nodes.iter().map(|share| (share.node.as_str(), share.shards, share.rows)).collect();
    assert_eq!(shares, [("coordinator", 1, Some(100)), ("node0", 2, Some(600)), ("node1", 1, Some(200))]);
    let skew = table.skew.expect("something to compare");
    assert_eq!((skew.shards.rows, skew.nodes.rows), (Some(1.778), Some(2.0)));
    let largest = table.largest.as_ref().expect("a largest one");
    assert_eq!((largest.relation.as_str(), largest.node.as_str()), ("public.t_a", "node0"));
    let size: u64 = database
        .node(0)
        .psql("SELECT pg_total_relation_size('t_a') + pg_total_relation_size('t_d_x')")
        .parse()
        .expect("a size");
    assert_eq!(table.nodes[1].bytes, Some(size));

    // Nobody has looked at the rows yet; then somebody has.
    let guess = session.status(Look::default());
    assert_eq!((guess.tables[0].rows, guess.tables[0].not_analyzed), (None, 4));
    assert_eq!(guess.tables[0].bytes, table.bytes);
    database.everywhere("ANALYZE");
    let guess = session.status(Look::default());
    assert_eq!((guess.tables[0].rows, guess.tables[0].not_analyzed), (Some(900), 0));

    let plain = session.table("plain");
    let error = session.try_status(Look { table: Some(&plain), ..Look::default() }).expect_err("not spread");
    assert_eq!(error.code(), Code::Table);
    let t = session.table("t");
    database.by_hash("other", "k integer", "k", 2, "");
    assert_eq!(session.status(Look { table: Some(&t), ..Look::default() }).tables.len(), 1);
    let both = session.status(Look::default());
    assert_eq!(both.tables.len(), 2);
    // Without a row there is nothing to compare.
    assert_eq!((both.tables[0].rows, both.tables[0].skew, both.tables[0].bytes), (Some(0), None, Some(0)));
}

#[test]
fn without_others_there_is_no_cluster() {
    require_server!(18);
    let database = Postgres::shared(Version::Major(18)).fresh_database();
    let session = Session::open(&database.url());
    database.psql(
        "CREATE TABLE t (k integer) PARTITION BY HASH (k);
         CREATE TABLE t_0 PARTITION OF t FOR VALUES WITH (MODULUS 1, REMAINDER 0)",
    );
    let status = session.status(Look::default());
    assert!(!status.cluster && status.tables.is_empty() && status.nodes.len() == 1, "{status:?}");
}

/// What is said of prepared transactions is what then comes to pass.
#[test]
fn what_recover_does_is_said_before() {
    require_server!(15);
    let database = Cluster::shared(15).fresh_database();
    let mut session = Session::open(&database.url());
    database.by_hash("t", "k integer", "k", 2, "");
    let ledger = session.ledger();
    let origin = session.runtime.block_on(ledger.origin(&session.connected.client)).expect("an origin");
    let load = |epoch: i32| {
        database.psql(&format!(
            "INSERT INTO inrush_ledger.loads (key, target, target_name, incarnation, inputs, meaning, unlogged, command, epoch)
                 VALUES ('k', 0, 't', '{{}}', '[]', '{{}}', false, '{{}}', {epoch}) RETURNING id"
        ))
    };
    // A run before this one left a unit that was decided and one that was not; the one of now is at work.
    let (old, working) = (load(2), load(1));
    let prepare = |node: usize, gid: &str, row: i32| {
        database
            .node(node)
            .psql(&format!("BEGIN; INSERT INTO t_{node} VALUES ({row}); PREPARE TRANSACTION '{gid}'"));
    };
    let (decided, lost, now) = (
        format!("inrush_{origin}_{old}_1_0.1"),
        format!("inrush_{origin}_{old}_1_0.2"),
        format!("inrush_{origin}_{working}_1_0.1"),
    );
    for (gid, row) in [(&decided, 1), (&lost, 2), (&now, 3)] {
        prepare(0, &format!("{gid}_n0"), row);
        prepare(1, &format!("{gid}_n1"), row);
    }
    database
        .psql(&format!("BEGIN; LOCK TABLE t IN ROW EXCLUSIVE MODE; PREPARE TRANSACTION '{decided}_guard'"));
    database.psql(&format!(
        "INSERT INTO inrush_ledger.prepared (gid, load_id, nodes) VALUES ('{decided}', {old}, '{{node0,node1}}');
         INSERT INTO inrush_ledger.backends SELECT {working}, 1, pid, backend_start FROM pg_stat_activity
             WHERE pid = {}",
        session.connected.backend_pid
    ));
    prepare(0, "somebody else's".replace('\'', "''").as_str(), 4);
    let foreign = "inrush_0123456789abcdefd1_1_1_0.1_n0";
    prepare(1, foreign, 5);

    let look = Look { ledger: Some(&ledger), others_older_than: Duration::ZERO, ..Look::default() };
    let status = session.status(look);
    let said: Vec<_> = status
        .prepared
        .iter()
        .map(|unit| (unit.gid.as_str(), unit.committed, unit.recover, unit.parts.len()))
        .collect();
    let mut expected = vec![
        (decided.as_str(), true, Recover::Commits, 3),
        (lost.as_str(), false, Recover::RollsBack, 2),
        (now.as_str(), false, Recover::LeavesAlone, 2),
    ];
    expected.sort_unstable_by_key(|unit| unit.0.to_owned());
    assert_eq!(said, expected);
    let guard = &status.prepared.iter().find(|unit| unit.committed).expect("one").parts[2];
    assert_eq!((guard.guard, guard.node.as_str()), (true, "coordinator"));
    let others: Vec<_> =
        status.others.iter().map(|one| (one.node.as_str(), one.gid.as_str(), one.of)).collect();
    assert_eq!(
        others,
        [("node0", "somebody else's", None), ("node1", foreign, Some("another ledger of inrush"))]
    );
    assert_eq!(
        status.nodes.iter().map(|node| node.prepared).collect::<Vec<_>>(),
        [Some(1), Some(4), Some(4)]
    );
    // Young ones are nobody's concern, and without a ledger none of them is ours.
    assert!(session.status(Look { ledger: Some(&ledger), ..Look::default() }).others.is_empty());
    let unknown = session.status(Look { others_older_than: Duration::ZERO, ..Look::default() });
    assert_eq!((unknown.prepared.len(), unknown.others.len()), (0, 9));

    let settled = session.runtime.block_on(async {
        let nodes = known_nodes(&session.connected.client).await?;
        settle(&session.connected.client, &ledger, &session.conninfo, &NodeMap::default(), &nodes).await
    });
    let settled = settled.expect("settled");
    assert_eq!((settled.committed, settled.rolled_back), (1, 1), "{settled:?}");
    let left = session.status(look);
    assert_eq!(left.prepared.iter().map(|unit| unit.gid.as_str()).collect::<Vec<_>>(), [now.as_str()]);
    assert_eq!(database.psql("SELECT string_agg(DISTINCT k::text, ' ') FROM t"), "1");
    for (node, gid) in [(0, format!("{now}_n0")), (1, format!("{now}_n1")), (1, foreign.to_owned())] {
        database.node(node).psql(&format!("ROLLBACK PREPARED '{gid}'"));
    }
    database.node(0).psql("ROLLBACK PREPARED 'somebody else''s'");
}

#[test]
fn nodes_that_are_not_there_are_told() {
    require_server!(18);
    let cluster = Cluster::start(&ClusterOptions {
        version: Version::Major(18),
        prepared: 0,
        ..ClusterOptions::default()
    });
    let database = cluster.fresh_database();
    let session = Session::open(&database.url());
    database.by_hash("t", "k integer", "k", 4, "");
    database.psql("INSERT INTO t SELECT generate_series(1, 100)");
    database.node(0).psql("ALTER TABLE t_2 RENAME TO elsewhere");
    let status = session.status(Look { exact: true, ..Look::default() });
    assert!(status.notes.iter().any(|note| note == "public.t_2 is not on node0, or may not be looked at"));
    let off = |note: &&String| note.contains("prepares no transactions (max_prepared_transactions = 0)");
    assert_eq!(status.notes.iter().filter(off).count(), 3, "{:?}", status.notes);
    assert_eq!((status.tables[0].rows, status.tables[0].nodes[0].rows), (None, None));
    assert!(status.tables[0].nodes[1].rows.is_some_and(|rows| rows > 0));

    cluster.nodes()[1].stop(StopMode::Fast);
    let status = session.status(Look { exact: true, ..Look::default() });
    let error = status.nodes[2].error.as_deref().expect("not reached");
    assert!(error.contains("Connection refused"), "{error}");
    assert_eq!((status.nodes[1].error.as_deref(), status.tables[0].nodes[1].rows), (None, None));
    assert_eq!((status.tables[0].nodes[1].shards, status.tables[0].rows), (2, None));

    database.psql("DROP USER MAPPING FOR PUBLIC SERVER node1");
    let status = session.status(Look::default());
    assert_eq!(status.nodes[2].error.as_deref(), Some("this role has no user mapping for it"));
    assert_eq!(status.nodes[2].port, Some(cluster.nodes()[1].port()));
    cluster.nodes()[1].restart();
}
