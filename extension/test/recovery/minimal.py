"""wal_level = minimal, where a new table is synced at commit instead of logged; and tables that are never logged."""

from loads import TABLES
from server import Flaw, Session


def minimal(kit):
    settings = {"wal_level": "minimal", "max_wal_senders": "0", "max_replication_slots": "0", "wal_keep_size": "0"}
    # At commit the table is written to its file, or what it has is logged.
    for threshold in ("0", "1GB"):
        # In the short version each table on one side, in the small one each end of a transaction.
        step = 4 if kit.small else 2
        for table in TABLES if kit.kills >= 50 else list(TABLES)[threshold == "0"::step]:
            server = kit.server(f"minimal-{threshold}-{table}")
            server.start(wal_skip_threshold=threshold, **settings)
            with Session(server) as session:
                # New in the transaction, and committed.
                made = f"ALTER TABLE {table} RENAME TO old; CREATE TABLE {table} (LIKE old INCLUDING ALL); DROP TABLE old;"
                if table == "indexed":
                    made = f"TRUNCATE {table};"
                kept = kit.load(session, table, f"BEGIN; {made} {{}} COMMIT;")
                server.kill()
            server.start()
            require(kit, server, table, {kept})
            with Session(server) as session:
                # Empty again, and not committed.
                session.do(f"BEGIN; TRUNCATE {table}; DELETE FROM ledger;")
                kit.load(session, table, "{}")
                server.kill()
            server.start()
            require(kit, server, table, {kept})
            with Session(server) as session:
                # A savepoint is undone, and behind it the old file is loaded again, with WAL.
                session.do("BEGIN;\nSAVEPOINT s;\nDELETE FROM ledger;\n" f"TRUNCATE {table};")
                kit.load(session, table, "{}")
                session.do("ROLLBACK TO s;")
                second = kit.load(session, table, "{} COMMIT;")
                # In a new file, a load that is undone and one that is not.
                session.do(f"BEGIN;\nTRUNCATE {table};\nDELETE FROM ledger;\nSAVEPOINT s;")
                kit.load(session, table, "{} ROLLBACK TO s;")
                third = kit.load(session, table, "{}")
                if table == "narrow":
                    session.do("ROLLBACK;")
                    expected = {kept, second}
                else:
                    session.do("COMMIT;")
                    expected = {third}
                server.kill()
            server.start()
            require(kit, server, table, expected)
            server.stop("immediate")


def require(kit, server, table, loads):
    there = kit.check(server)
    if there != loads:
        raise Flaw(f"{table}: loads {sorted(there)} instead of {sorted(loads)}")


def unlogged(kit):
    """Such a table is empty after a crash, and takes rows again."""
    server = kit.server("unlogged")
    server.start()
    for table in TABLES:
        server.psql(f"ALTER TABLE {table} SET UNLOGGED")
    with Session(server) as session:
        loads = [kit.load(session, table) for table in TABLES]
        kit.check(server, loads)
        # Written to files, it has to be emptied nevertheless.
        server.psql("CHECKPOINT")
        loads = [kit.load(session, table) for table in TABLES]
        server.kill()
    server.start()
    if kit.contents(server):
        raise Flaw("unlogged tables have rows after a crash")
    kit.structure(server)
    server.psql("DELETE FROM ledger")
    with Session(server) as session:
        loads = [kit.load(session, table) for table in TABLES]
    kit.check(server, loads)
    # An orderly stop keeps them.
    server.stop()
    server.start()
    kit.check(server, loads)
