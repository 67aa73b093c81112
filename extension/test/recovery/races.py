"""Loads beside what others do to the same tables, and with few buffers."""

import threading
import time

from loads import TABLES, Loaders
from server import Flaw, Session, eventually


class Beside(threading.Thread):
    """Statements in a loop, in a session of their own."""

    def __init__(self, server, *statements):
        super().__init__(daemon=True)
        self.server, self.statements = server, statements
        self.rounds, self.failure = 0, None
        self.stopping = threading.Event()
        self.start()

    def run(self):
        with Session(self.server) as session:
            while not self.stopping.is_set():
                for statement in self.statements:
                    if said := session.run(statement):
                        self.failure = f"{statement}: {said}"
                        return
                self.rounds += 1

    def stop(self):
        self.stopping.set()
        self.join(60)
        if self.failure or self.is_alive():
            raise Flaw(self.failure or f"hangs: {self.statements}")


def races(kit):
    server = kit.server("races")
    server.start()
    with Loaders(kit, server, 3) as loaders:
        beside = [
            # Takes empty pages off the end, and enters new ones into the free space map.
            Beside(server, *(f"VACUUM {table};" for table in TABLES)),
            Beside(server, "CREATE INDEX CONCURRENTLY late ON indexed (note);", check_index(kit, "late"),
                   "DROP INDEX CONCURRENTLY late;",
                   "DO $$ BEGIN PERFORM brin_summarize_new_values('indexed_brin'); END $$;"),
            # Tries the pages at the end, which a load has just added.
            Beside(server, *(f"BEGIN; {insert(table)} ROLLBACK;" for table in TABLES)),
        ]
        time.sleep(1 if kit.small else 2 if kit.kills < 50 else 20)
        loaders.wait(4)
        for thread in beside:
            thread.stopping.set()
        loaders.stop()
        for thread in beside:
            thread.stop()
    kit.check(server, loaders.acknowledged, loaders.never)
    # What was rolled back is counted, and can be had again.
    time.sleep(0.2)
    dead = int(server.psql("SELECT sum(n_dead_tup) FROM pg_stat_user_tables"))
    server.psql("VACUUM")
    kit.check(server, loaders.acknowledged, loaders.never)
    kit.note(f"{len(loaders.acknowledged)} loads beside {' '.join(str(t.rounds) for t in beside)} rounds,"
             f" {dead} dead rows at the end")


def check_index(kit, index):
    return f"DO $$ BEGIN PERFORM bt_index_check('{index}', true); END $$;" if kit.has_amcheck else ""


def insert(table):
    columns, query, _ = TABLES[table]
    del columns
    return f"INSERT INTO {table} SELECT -1, q.* FROM ({query} OFFSET 0 LIMIT 700) q;"


def bloat(kit):
    """Loads that fail leave dead rows, which the statistics know of, and VACUUM gives their room back."""
    server = kit.server("bloat")
    server.start()
    with Session(server) as session:
        kit.load(session, "wide")
        size = int(server.psql("SELECT pg_relation_size('wide')"))
        rows = kit.streams["wide"].rows
        for _ in range(10):
            kit.load(session, "wide", "BEGIN; {} ROLLBACK;")
        backend = session.pid
    # A backend hands in what it has counted before it goes.
    eventually("the session's end", lambda: server.psql(
        f"SELECT count(*) FROM pg_stat_activity WHERE pid = {backend}") == "0")
    dead, live = server.rows("SELECT n_dead_tup, n_live_tup FROM pg_stat_user_tables WHERE relname = 'wide'")[0]
    if (int(dead), int(live)) != (10 * rows, rows):
        raise Flaw(f"statistics: {dead} dead and {live} live rows instead of {10 * rows} and {rows}")
    server.psql("VACUUM wide")
    after = int(server.psql("SELECT pg_relation_size('wide')"))
    if after > size + 8192:
        raise Flaw(f"{after} bytes after VACUUM, {size} with the rows that are there")
    kit.check(server)


def buffers(kit):
    """So few buffers, for so many sessions, that a backend may hold hardly any of them."""
    server = kit.server("buffers")
    server.start(shared_buffers="1MB", max_connections="300")
    with Loaders(kit, server, 3) as loaders:
        loaders.wait(6)
        loaders.stop()
    kit.check(server, loaders.acknowledged, loaders.never)
