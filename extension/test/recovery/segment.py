"""A load across the border between two files of a table, with a crash there. Writes 2 GB: only in the long version."""

from loads import Loaders
from server import Flaw, Session, Skipped

SEGMENT = 1024 * 1024 * 1024


def segment(kit):
    if kit.kills < 100:
        raise Skipped("writes 2 GB: only with INRUSH_KILLS=100 or more")
    server = kit.server("segment")
    server.start(max_wal_size="2GB", shared_buffers="128MB", wal_keep_size="0", wal_level="replica")
    with Session(server) as session:
        kit.load(session, "wide")
        one = int(server.psql("SELECT pg_relation_size('wide')"))
        for _ in range(SEGMENT // one - 6):
            kit.load(session, "wide")
    acknowledged = [int(load) for load, in server.rows("SELECT load FROM ledger")]
    server.psql("CHECKPOINT")
    with Loaders(kit, server, tables=("wide",), plain=True) as loaders:
        loaders.wait(16)
        server.kill()
    server.start(wal_consistency_checking="all")
    if int(server.psql("SELECT pg_relation_size('wide')")) <= SEGMENT:
        raise Flaw("the border was not crossed")
    kit.check(server, acknowledged + loaders.acknowledged, loaders.never)
    server.stop()
    server.start()
    with Session(server) as session:
        acknowledged.append(kit.load(session, "wide"))
    kit.check(server, acknowledged + loaders.acknowledged)
