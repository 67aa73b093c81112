"""A physical standby that compares every page it makes with the primary's, and one that is promoted in mid-load."""

import os
import time

from loads import TABLES, Loaders
from server import Flaw, Server, Session, eventually, program


def make_standby(primary, name, **settings):
    server = Server(name)
    program("pg_basebackup", "-h", primary.directory, "-U", "postgres", "-D", server.data, "-c", "fast", "-X", "stream",
            "-R", "--no-sync")
    os.chmod(server.data, 0o700)
    server.start(**settings)
    return server


def standby(kit):
    primary = kit.server("primary")
    primary.start(wal_consistency_checking="all")
    copy = make_standby(primary, "standby")
    with Loaders(kit, primary) as loaders:
        loaders.wait(kit.kills)
        # Pages that VACUUM frees, truncates and that are filled again.
        primary.psql("VACUUM")
        loaders.wait(2)
        loaders.stop()
    # Every way at least once, whatever the dice said.
    with Session(primary) as session:
        for table in TABLES:
            kit.load(session, table)
            session.do("BEGIN;")
            kit.load(session, table, "SAVEPOINT s; {} ROLLBACK TO s;")
            kit.load(session, table, "{} COMMIT;")
            kit.load(session, table, "BEGIN; {} ROLLBACK;")
    # Before anybody reads the primary: with checksums the first hint bit of a page sends all of it to the standby, and
    # would hide that its own record was missing.
    copy.replayed(primary)
    kit.check(copy, loaders.acknowledged, loaders.never)
    kit.check(primary, loaders.acknowledged, loaders.never)
    primary.psql("VACUUM")
    copy.replayed(primary)
    kit.same(primary, copy)
    copy.stop()
    primary.stop()
    for server in (primary, copy):
        program("pg_checksums", "--check", "-D", server.data)
    kit.note(f"{len(loaders.acknowledged)} loads")


def promote(kit):
    primary = kit.server("old")
    primary.start(wal_log_hints="on")
    new = make_standby(primary, "new")
    with Loaders(kit, primary) as loaders:
        loaders.wait(3)
        acknowledged = loaders.acknowledged
        lsn = primary.lsn()
        eventually("the standby follows", lambda: new.psql(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn") == "t")
        time.sleep(kit.random.uniform(0, 0.1))
        program("pg_ctl", "promote", "-w", "-D", new.data)
        # The two go apart. Each loader has two loads at most that may have been on their way before.
        loaders.wait(5)
        loaders.stop()
    kit.check(new, acknowledged, loaders.never)
    with Session(new) as session:
        acknowledged += [kit.load(session, table) for table in TABLES]
    kit.check(primary, loaders.acknowledged, loaders.never)
    there = kit.check(new, acknowledged, loaders.never)
    if set(loaders.acknowledged) <= there:
        raise Flaw("the old primary committed nothing after the promotion")

    # What the old primary has loaded since is undone.
    primary.stop()
    new.psql("CHECKPOINT")
    program("pg_rewind", "--no-sync", "-R", "-D", primary.data,
            f"--source-server=host={new.directory} user=postgres dbname=postgres")
    primary.start()
    primary.replayed(new)
    kit.same(primary, new)
    kit.check(primary, acknowledged, loaders.never)
