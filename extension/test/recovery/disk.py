"""A full disk is an error of the load, and of nothing else."""

import os

from loads import TABLES
from server import Flaw, Session, Skipped


def disk(kit):
    small = os.environ.get("INRUSH_SMALL_DISK")
    if not small:
        raise Skipped("only root can mount a small file system")
    server = kit.server("disk")
    server.start()
    server.psql(f"CREATE TABLESPACE small LOCATION '{small}'")
    for table in ("toasted", "indexed") if kit.small else TABLES:
        filler = os.path.join(small, "filler")
        size = os.statvfs(small)
        # Half of it is for the first loads to fail in, the rest comes free later.
        with open(filler, "wb") as file:
            os.posix_fallocate(file.fileno(), 0, size.f_bavail * size.f_frsize // 2)
        server.psql(f"ALTER TABLE {table} SET TABLESPACE small")
        if table == "indexed":
            server.psql("ALTER INDEX indexed_row SET TABLESPACE small; ALTER INDEX indexed_value SET TABLESPACE small")
        with Session(server) as session:
            loads, said = 0, ""
            while not said:
                try:
                    kit.load(session, table)
                    loads += 1
                except Flaw as flaw:
                    said = str(flaw)
                if loads > 200:
                    raise Flaw("the disk is never full")
            if "No space left on device" not in said:
                raise Flaw(f"{table}: {said}")
            kit.check(server)
            # Again, now that it is full to the last block.
            try:
                kit.load(session, table)
                raise Flaw(f"{table}: a load goes onto a full disk")
            except Flaw as flaw:
                if "No space left" not in str(flaw):
                    raise
            os.unlink(filler)
            # The session goes on.
            load = kit.load(session, table)
        server.psql("VACUUM")
        kit.check(server, [load])
        server.kill()
        server.start()
        kit.check(server, [load])
        server.psql(f"TRUNCATE ledger, {table}; CHECKPOINT")
        server.psql(f"ALTER TABLE {table} SET TABLESPACE pg_default")
        if table == "indexed":
            server.psql("ALTER INDEX indexed_row SET TABLESPACE pg_default; ALTER INDEX indexed_value SET TABLESPACE pg_default")
