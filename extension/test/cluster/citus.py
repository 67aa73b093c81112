"""A cluster of Citus that somebody has started: INRUSH_TEST_CITUS. Everything of the test is in the schemas dml_*."""

import os
import subprocess
import threading
import time

from server import Flaw, Session, Skipped, eventually
from stock import expect, insert, same

TYPES = {
    "integer": "SELECT i * 71234567 - 1000000000 FROM generate_series(0, 28) i",
    "bigint": "SELECT (i - 15)::bigint * 123456789012345 FROM generate_series(0, 30) i",
    "text": "SELECT 'é' || md5(i::text) FROM generate_series(0, 30) i",
    "character(12)": "SELECT (repeat('x', i % 10) || i)::char(12) FROM generate_series(10, 40) i",
    "uuid": "SELECT md5(i::text)::uuid FROM generate_series(0, 30) i",
    "numeric(12,3)": "SELECT (i * 1234.5 - 9000)::numeric(12,3) FROM generate_series(0, 30) i",
    "timestamptz": "SELECT timestamptz '1990-01-01 UTC' + i * interval '97 days 3 hours' FROM generate_series(0, 30) i",
    "date": "SELECT date '1969-12-25' + i * 397 FROM generate_series(0, 30) i",
}


class Node:
    """One server of the cluster, as Session wants it."""

    def __init__(self, dsn):
        self.dsn = dsn

    def client(self, stop=True):
        return ["psql", "-X", "-q", "-A", "-t", "-v", f"ON_ERROR_STOP={int(stop)}", "-d", self.dsn]

    def psql(self, text, check=True):
        done = subprocess.run(self.client(), input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise Flaw(f"{self.dsn}: {text.strip()[:200]}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def rows(self, text):
        return [line.split("|") for line in self.psql(text).split("\n") if line]

    def session(self):
        session = Session(self)
        session.run("\\set VERBOSITY sqlstate\nSET client_min_messages = warning;")
        return session


def background(node, text):
    """A statement that waits, or not; its error if it has one."""
    said = []
    thread = threading.Thread(target=lambda: said.append(subprocess.run(
        node.client(), input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.STDOUT).stdout.decode()))
    thread.start()
    return thread, said


def routing(main, workers):
    """Citus finds every row where it looks for it, whichever node it was sent from."""
    for kind, values in TYPES.items():
        main.psql(f"CREATE TABLE dml_test.typed (id {kind}, note text);"
                  "SELECT create_distributed_table('dml_test.typed', 'id', shard_count => 8)")
        for number, node in enumerate([main, *workers]):
            node.psql("SELECT sum(inrush.distribute_dml('dml_test.typed', v, format('INSERT INTO %%s VALUES (%L, %L)', v,"
                      f" {number}))) FROM ({values}) q (v)")
        # One query for each value is routed by it; what lies in a wrong shard is not found.
        rows = main.rows(f"SELECT format('SELECT count(*) FROM dml_test.typed WHERE id = %L', v) FROM ({values}) q (v)")
        got = main.psql(";".join("|".join(row) for row in rows)).split("\n")
        same(set(got), {"3"}, f"rows of {kind}")
        main.psql("DROP TABLE dml_test.typed")


def kinds(main):
    main.psql("""
        SET citus.shard_replication_factor = 1;
        CREATE TABLE dml_test.reference (id int); SELECT create_reference_table('dml_test.reference');
        CREATE TABLE dml_test.known (id int PRIMARY KEY); SELECT citus_add_local_table_to_metadata('dml_test.known');
        CREATE TABLE dml_test.appended (id int); SELECT create_distributed_table('dml_test.appended', 'id', 'append');
        CREATE TABLE dml_test.ranged (id int, note text); SELECT create_distributed_table('dml_test.ranged', 'id', 'range');
        SET citus.enable_schema_based_sharding = on; CREATE SCHEMA dml_tenant;
        CREATE TABLE dml_tenant."One" (id int, note text);
        SET citus.shard_replication_factor = 2;
        CREATE TABLE dml_test.copied (id int);
        SELECT create_distributed_table('dml_test.copied', 'id', shard_count => 2, colocate_with => 'none');
    """)
    for low, high in ((-10, 9), (10, 19), (30, 39)):
        main.psql("SELECT master_create_empty_shard('dml_test.ranged')")
        main.psql(f"UPDATE pg_dist_shard SET shardminvalue = '{low}', shardmaxvalue = '{high}' WHERE logicalrelid ="
                  " 'dml_test.ranged'::regclass AND shardid = (SELECT max(shardid) FROM pg_dist_shard)")
    with main.session() as session:
        def call(table, value):
            return session.run(f"SELECT inrush.distribute_dml('{table}', {value}, 'INSERT INTO %s VALUES (1)');")
        for table, state in (("reference", "0A000"), ("known", "42809"), ("appended", "42P16"), ("copied", "55000")):
            expect(call(f"dml_test.{table}", 1), state, what=table)
        for value in (-10, 9, 10, 19, 30, 39):
            same(session.run(f"SELECT inrush.distribute_dml('dml_test.ranged', {value}, 'INSERT INTO %s VALUES ({value})');"),
                 "1", "rows")
            same(main.psql(f"SELECT count(*) FROM dml_test.ranged WHERE id = {value}"), "1", f"{value} in its range")
        for value in (-11, 25, 40):
            expect(call("dml_test.ranged", value), "23514")
        for value in ("1", "'any'", "NULL"):
            same(call('dml_tenant."One"', value), "1", "rows of a single shard")
        same(main.psql('SELECT count(*) FROM dml_tenant."One"'), "3", "rows of a single shard")
        expect(call("dml_test.t", "NULL"), "23502")
        expect(call("dml_test.t", "now()"), "42804")


def committing(main, workers, ids):
    here = "SELECT count(*) FROM dml_test.t"
    a, b = ids
    main.psql("TRUNCATE dml_test.t")
    for node in (main, workers[0]):
        with node.session() as session:
            for end, wanted in (("ROLLBACK", 0), ("COMMIT", 2)):
                session.do("BEGIN;")
                for value in (a, b):
                    same(session.run(insert("dml_test.t", value)), "1", "rows")
                # Here and there, with an ordinary statement of Citus on the way.
                session.do("SAVEPOINT s;")
                session.run(insert("dml_test.t", a))
                session.do("ROLLBACK TO s;")
                same(session.run("SELECT count(*) FROM dml_test.other;"), "0", "another table")
                session.run(f"{end};")
                same(main.psql(here), str(wanted), end)
            main.psql("TRUNCATE dml_test.t")
            # What Citus writes itself and we commit together.
            session.do("BEGIN;")
            session.run(insert("dml_test.t", a))
            session.run(f"INSERT INTO dml_test.other VALUES ({b});")
            session.do("COMMIT;")
            same(main.psql("SELECT (SELECT count(*) FROM dml_test.t), (SELECT count(*) FROM dml_test.other)"), "1|1", "both")
            # And if Citus' part fails when it commits, ours does.
            session.do("BEGIN;")
            session.run(insert("dml_test.t", a))
            session.run(f"INSERT INTO dml_test.other VALUES ({b});")
            expect(session.run("COMMIT;"), "23505")
            same(main.psql("SELECT (SELECT count(*) FROM dml_test.t), (SELECT count(*) FROM dml_test.other)"), "1|1", "both")
            main.psql("TRUNCATE dml_test.t; TRUNCATE dml_test.other")
        node.psql("SELECT inrush.resolve_dml()")
        same(node.psql("SELECT count(*) FROM inrush.dml_transactions"), "0", "records")
    with main.session() as session:
        # Citus has the row locked for this transaction, on another connection.
        main.psql(f"INSERT INTO dml_test.t VALUES ({a})")
        session.do("SET inrush_dml.lock_timeout = '300ms'; BEGIN;")
        session.run(f"UPDATE dml_test.t SET note = 'citus' WHERE id = {a};")
        expect(session.run(f"SELECT inrush.distribute_dml('dml_test.t', {a}, 'UPDATE %s SET note = ''ours''');"), "55P03")
        session.do("ROLLBACK;")
        # With the caller's rights, on the node as well.
        main.psql("CREATE ROLE dml_clerk LOGIN; GRANT USAGE ON SCHEMA dml_test TO dml_clerk;"
                  "GRANT INSERT ON dml_test.t TO dml_clerk")
        session.do("SET ROLE dml_clerk;")
        same(session.run(insert("dml_test.t", b)), "1", "rows")
        expect(session.run(f"SELECT inrush.distribute_dml('dml_test.t', {b}, 'DELETE FROM %s');"), "42501")
        expect(session.run(f"SELECT inrush.distribute_dml('dml_test.t', {b}, 'INSERT INTO %s SELECT id FROM %s');"), "42501")
        expect(session.run(f"SELECT inrush.distribute_dml('dml_test.other', {b}, 'INSERT INTO %s VALUES (1)');"), "42501")
        # Both nodes, prepared by somebody without rights on our records.
        session.do("BEGIN;")
        for value in (a, b):
            session.run(insert("dml_test.t", value, "clerk"))
        session.do("COMMIT; RESET ROLE;")
        same(main.psql("SELECT count(*) FROM dml_test.t WHERE note = 'clerk'"), "2", "rows of the clerk")
        main.psql("SELECT inrush.resolve_dml(); REVOKE ALL ON dml_test.t FROM dml_clerk;"
                  "REVOKE ALL ON SCHEMA dml_test FROM dml_clerk; DROP ROLE dml_clerk")


def moving(main, workers, nodes, value):
    """Whoever moves, splits or rewrites shards waits for those who have written, who then find the new place."""
    def shard():
        return main.rows("SELECT s.shardid, p.groupid FROM pg_dist_shard s JOIN pg_dist_placement p USING (shardid) WHERE"
                         f" s.shardid = get_shard_id_for_distribution_column('dml_test.t', {value})")[0]

    def move(mode):
        shardid, group = shard()
        there, = [n for n in nodes if n[0] != group]
        source, = [n for n in nodes if n[0] == group]
        return (f"SELECT citus_move_shard_placement({shardid}, '{source[1]}', {source[2]}, '{there[1]}', {there[2]},"
                f" shard_transfer_mode => '{mode}')")

    def split(_):
        shardid, group = shard()
        low, high = (int(x) for x in main.rows(f"SELECT shardminvalue, shardmaxvalue FROM pg_dist_shard WHERE shardid = {shardid}")[0])
        ids = [main.psql(f"SELECT nodeid FROM pg_dist_node WHERE groupid = {n[0]}") for n in nodes]
        return (f"SELECT citus_split_shard_by_split_points({shardid}, ARRAY['{(low + high) // 2}'],"
                f" ARRAY[{ids[0]}, {ids[1]}], 'block_writes')")

    steps = [("move", lambda: move("block_writes")), ("move", lambda: move("force_logical")), ("split", lambda: split(None)),
             ("alter", lambda: "SELECT alter_distributed_table('dml_test.t', shard_count => 6)"),
             ("undistribute", lambda: "SELECT undistribute_table('dml_test.t')")]
    main.psql("TRUNCATE dml_test.t")
    rows = 0
    for writer in (main, workers[0]):
        with writer.session() as session, writer.session() as other:
            # What rewrites a table loses what Citus' own statements of a transaction on a worker have written, and ours.
            for name, text in steps if writer is main else steps[:3]:
                # Both know where the shard is.
                for one in (session, other):
                    same(one.run(insert("dml_test.t", value)), "1", "rows")
                session.do("BEGIN;")
                same(session.run(insert("dml_test.t", value)), "1", "rows")
                thread, said = background(main, text())
                thread.join(1)
                if not thread.is_alive():
                    raise Flaw(f"{name} has not waited: {said}")
                # This one knows the old place, and waits behind what moves.
                other.send(insert("dml_test.t", value))
                time.sleep(0.3)
                session.do("COMMIT;")
                said_other = other.wait()
                thread.join(60)
                if thread.is_alive() or "ERROR" in said[0]:
                    raise Flaw(f"{name}: {said}")
                if name in ("alter", "undistribute"):
                    # The table it was for is another one now.
                    expect(said_other, "42P01")
                else:
                    same(said_other.strip(), "1", f"rows of who has waited for {name}")
                    rows += 1
                rows += 3
                if name == "undistribute":
                    expect(other.run(insert("dml_test.t", value)), "42809")
                    main.psql("SELECT create_distributed_table('dml_test.t', 'id', shard_count => 4, colocate_with => 'none')")
                same(other.run(insert("dml_test.t", value)), "1", "rows")
                rows += 1
                same(main.psql(f"SELECT count(*) FROM dml_test.t WHERE id = {value}"), str(rows), f"rows after {name}")
                same(main.psql("SELECT count(*) FROM dml_test.t"), str(rows), f"all rows after {name}")
    # And for what was prepared on the node, when the session that has the locks here is dead.
    shardid, group = shard()
    worker = workers[[n[0] for n in nodes].index(group)]
    worker.psql(f"BEGIN; SELECT inrush.dml_guard('dml_test.t', {shardid}); PREPARE TRANSACTION 'dml_test_guard'")
    thread, said = background(main, move("block_writes"))
    thread.join(2)
    waited = thread.is_alive()
    worker.psql("COMMIT PREPARED 'dml_test_guard'")
    thread.join(60)
    same((waited, said), (True, ["\n"]), "a move of what is prepared")
    with worker.session() as session:
        expect(session.run(f"SELECT inrush.dml_guard('dml_test.t', {shardid});"), "40001")


def interrupted(main, workers, ids):
    """A node away from the coordinator: nothing is left of what it should have taken."""
    main.psql("TRUNCATE dml_test.t")
    with main.session() as session:
        session.do("BEGIN;")
        for value in ids:
            session.run(insert("dml_test.t", value))
        for worker in workers:
            worker.psql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml'"
                        " AND state = 'idle in transaction'")
        expect(session.run("COMMIT;"), "ERROR")
        same(main.psql("SELECT count(*) FROM dml_test.t"), "0", "rows")
        eventually("nothing is prepared", lambda: all(
            worker.psql("SELECT count(*) FROM pg_prepared_xacts WHERE gid LIKE 'inrush%'") == "0" for worker in workers))
        same(session.run(insert("dml_test.t", ids[0])), "1", "rows")


def clean(main):
    main.psql("SET client_min_messages = error; SET citus.enable_schema_based_sharding = off;"
              "DROP SCHEMA IF EXISTS dml_test CASCADE; DROP SCHEMA IF EXISTS dml_tenant CASCADE")


def citus(stock):
    dsn = os.environ.get("INRUSH_TEST_CITUS")
    if not dsn:
        raise Skipped("INRUSH_TEST_CITUS is not set")
    main = Node(dsn)
    version, = main.rows("SELECT extversion, current_setting('server_version') FROM pg_extension WHERE extname = 'citus'")
    stock.note(f"Citus {version[0]} on {version[1]}")
    if main.psql("SELECT count(*) FROM pg_proc WHERE proname = 'distribute_dml'") == "0":
        raise Flaw("CREATE EXTENSION inrush first")
    nodes = main.rows("SELECT groupid, nodename, nodeport FROM pg_dist_node WHERE noderole = 'primary' AND groupid > 0"
                      " ORDER BY groupid LIMIT 2")
    workers = [Node(f"{dsn} host={host} port={port}") for _, host, port in nodes]
    clean(main)
    main.psql("CREATE SCHEMA dml_test; CREATE TABLE dml_test.t (id bigint, note text); CREATE TABLE dml_test.other (id bigint UNIQUE DEFERRABLE INITIALLY DEFERRED);"
              "SELECT create_distributed_table('dml_test.t', 'id', shard_count => 4, colocate_with => 'none');"
              "SELECT create_distributed_table('dml_test.other', 'id', shard_count => 4, colocate_with => 'none')")
    try:
        ids = [int(main.psql(
            "SELECT min(i) FROM generate_series(1, 50) i JOIN pg_dist_placement p ON p.shardid ="
            f" get_shard_id_for_distribution_column('dml_test.t', i) WHERE p.groupid = {group}")) for group, _, _ in nodes]
        routing(main, workers)
        kinds(main)
        committing(main, workers, ids)
        interrupted(main, workers, ids)
        moving(main, workers, nodes, ids[0])
    finally:
        clean(main)
