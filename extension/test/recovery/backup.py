"""Base backups taken in mid-load, restored to their end and to points before and after a commit."""

import os
import threading

from loads import TABLES, Feed, Loaders
from server import Flaw, Server, Session, eventually, program


def take(server, path, *options):
    program("pg_basebackup", "-h", server.directory, "-U", "postgres", "-D", path, "-c", "fast", "--no-sync", *options)


def restore(kit, name, source, **settings):
    server = Server(name)
    os.rename(source, server.data)
    os.chmod(server.data, 0o700)
    server.start(archive_mode="off", summarize_wal="off", **settings) if kit.version >= 17 else \
        server.start(archive_mode="off", **settings)
    eventually(f"{name} is open", lambda: server.psql("SELECT pg_is_in_recovery()", check=False) == "f")
    return server


def backup(kit):
    """With the WAL that was written meanwhile; from 17 on incremental ones too."""
    server = kit.server("source")
    server.start(**({"summarize_wal": "on"} if kit.version >= 17 else {}))
    with Loaders(kit, server) as loaders:
        loaders.wait(3)
        before = loaders.acknowledged
        take(server, "full", "-X", "stream")
        loaders.wait(3)
        since = loaders.acknowledged
        if kit.version >= 17:
            take(server, "increment", "-X", "stream", "--incremental=full/backup_manifest")
            program("pg_combinebackup", "--no-sync", "full", "increment", "-o", "combined")
        loaders.stop()
    never = loaders.never
    # Loads after the checkpoint that a backup begins with are only in its WAL.
    restored = restore(kit, "restored", "full")
    kit.check(restored, before, never)
    with Session(restored) as session:
        kit.load(session, "toasted")
    kit.check(restored, before, never)
    if kit.version >= 17:
        kit.check(restore(kit, "increments", "combined"), since, never)
    kit.check(server, loaders.acknowledged, never)


def pitr(kit):
    """From the archive, to points between loads and in the middle of them."""
    os.makedirs("archive", exist_ok=True)
    archive = os.path.abspath("archive")
    server = kit.server("archived")
    server.start(archive_mode="on", archive_command=f"cp %p {archive}/%f")
    points = {}

    def point(name):
        points[name] = {int(load) for load, in server.rows("SELECT load FROM ledger")}
        server.psql(f"SELECT pg_create_restore_point('{name}')")

    with Session(server) as session, Session(server) as other:
        kit.load(other, "wide")
        feed = Feed(kit, session, "toasted")
        feed.up_to(0.4)
        # In the middle of a load.
        backup_thread = threading.Thread(target=take, args=(server, "base", "-X", "none"))
        backup_thread.start()
        kit.load(other, "indexed")
        feed.up_to(0.6)
        backup_thread.join()
        kit.load(other, "narrow")
        feed.up_to(1)
        point("before")
        feed.end()
        if said := session.wait().strip():
            raise Flaw(f"the load says: {said}")
        point("after")
        kit.load(other, "wide", "BEGIN; {} ROLLBACK;")
        # Begun before the point, ended behind it.
        late = Feed(kit, session, "indexed")
        late.up_to(0.7)
        kit.load(other, "narrow")
        point("between")
        late.end_with_rest()
        session.wait()
    if feed.load in points["before"] or feed.load not in points["after"]:
        raise Flaw("the points are not where they should be")
    segment = server.psql("SELECT pg_walfile_name(pg_switch_wal())")
    eventually("the archive is complete", lambda: os.path.exists(f"{archive}/{segment}"))
    for name, loads in points.items():
        program("cp", "-a", "base", f"base-{name}")
        with open(f"base-{name}/recovery.signal", "wb"):
            pass
        restored = restore(kit, f"at-{name}", f"base-{name}", restore_command=f"cp {archive}/%f %p",
                           recovery_target_name=name, recovery_target_action="promote")
        there = kit.check(restored)
        if there != loads:
            raise Flaw(f"at the point {name}: loads {sorted(there)} instead of {sorted(loads)}")
        with Session(restored) as session:
            for table in TABLES:
                kit.load(session, table)
        kit.check(restored, loads)
        restored.stop("immediate")
