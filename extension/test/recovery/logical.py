"""Logical decoding and logical replication see the committed rows, and no others."""

from loads import TABLES, Loaders
from server import Flaw, Session, Skipped, eventually


def mixed(kit, server):
    """Loads of all kinds, after which the tables are what the ledger says."""
    with Session(server) as session:
        for table in TABLES:
            kit.load(session, table)
            kit.load(session, table, "BEGIN; {} ROLLBACK;")
            session.do("BEGIN;")
            kit.load(session, table, "{}")
            kit.load(session, table, "SAVEPOINT s; {} ROLLBACK TO s;")
            kit.load(session, table, "SAVEPOINT t; {} RELEASE t; COMMIT;")


def decoding(kit):
    server = kit.server("decoded")
    server.start()
    if not server.has_plugin("test_decoding"):
        raise Skipped("there is no test_decoding")
    server.psql("SELECT pg_create_logical_replication_slot('all', 'test_decoding'),"
                " pg_create_logical_replication_slot('local', 'test_decoding')")
    mixed(kit, server)
    # Rows that another server sent, to be left out on request.
    server.psql("SELECT pg_replication_origin_create('elsewhere')")
    with Session(server) as session:
        session.run("SELECT pg_replication_origin_session_setup('elsewhere');")
        foreign = {kit.load(session, table) for table in TABLES}
    kit.check(server)
    ledger = {int(load) for load, in server.rows("SELECT load FROM ledger")}
    for slot, options, expected in (("all", "", ledger), ("local", ", 'only-local', '1'", ledger - foreign)):
        # Small, so that changes are spilled to disk as well.
        server.psql(f"SET logical_decoding_work_mem = '256kB'; CREATE UNLOGGED TABLE changes_{slot} AS SELECT data FROM"
                    f" pg_logical_slot_get_changes('{slot}', NULL, NULL, 'skip-empty-xacts', '1'{options})")
        for table, (columns, query, _) in TABLES.items():
            names = [column.split()[0] for column in columns.split(", ")]
            decoded = ", ".join(
                f"substring(data FROM ' {name}\\[[^]]*\\]:(''[^'']*''|[^ ]*)')" for name in ["load", *names])
            # As test_decoding prints them.
            there = ", ".join(
                f"coalesce(CASE WHEN pg_typeof({name}) IN ('int', 'bigint', 'numeric', 'float8') THEN {name}::text"
                f" ELSE quote_literal({name}) END, 'null')" for name in ["load", *names])
            loads = ", ".join(map(str, expected))
            lost, odd = server.rows(
                f"CREATE TEMP TABLE a AS SELECT ROW({there})::text FROM {table} WHERE load IN ({loads});"
                f"CREATE TEMP TABLE b AS SELECT ROW({decoded})::text FROM changes_{slot}"
                f" WHERE data LIKE 'table public.{table}: INSERT:%';"
                "SELECT (SELECT count(*) FROM (TABLE a EXCEPT ALL TABLE b) x),"
                " (SELECT count(*) FROM (TABLE b EXCEPT ALL TABLE a) x)")[0]
            if (lost, odd) != ("0", "0"):
                raise Flaw(f"slot {slot}, {table}: {lost} rows were not decoded, {odd} should not have been")


def replication(kit):
    """To a subscriber, with large transactions streamed before they end."""
    publisher, subscriber = kit.server("publisher"), kit.server("subscriber")
    publisher.start(logical_decoding_work_mem="256kB")
    subscriber.start()
    publisher.psql(f"CREATE PUBLICATION p FOR TABLE ledger, {', '.join(TABLES)}")
    subscriber.psql(f"CREATE SUBSCRIPTION s CONNECTION 'host={publisher.directory} user=postgres dbname=postgres'"
                    " PUBLICATION p WITH (copy_data = false, streaming = on)")
    mixed(kit, publisher)
    with Loaders(kit, publisher) as loaders:
        loaders.wait(4)
        loaders.stop()
    lsn = publisher.lsn()
    publisher.psql("SELECT pg_switch_wal()")
    eventually("the subscriber follows", lambda: publisher.psql(
        f"SELECT confirmed_flush_lsn >= '{lsn}'::pg_lsn FROM pg_replication_slots") == "t")
    kit.check(publisher, loaders.acknowledged, loaders.never)
    kit.check(subscriber, loaders.acknowledged, loaders.never)
    kit.same(publisher, subscriber)
    streamed = publisher.psql("SELECT stream_txns > 0 FROM pg_stat_replication_slots")
    if streamed != "t":
        raise Flaw("nothing was streamed: the transactions are too small")
