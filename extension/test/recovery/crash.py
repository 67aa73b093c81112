"""Processes die at random moments while two sessions load; what was committed is there, once, and nothing else."""

import os
import signal
import time

from loads import TABLES, Loaders
from server import Flaw, Session, eventually


def crash(kit):
    server = kit.server("crash")
    server.start()
    acknowledged, never = [], []
    cut, committed = 0, 0
    ways = []
    for number in range(kit.kills):
        if not ways:
            ways = ["all", "backend", "immediate"]
            kit.random.shuffle(ways)
        way = ways.pop()
        with Loaders(kit, server) as loaders:
            checkpoints = Session(server) if kit.random.random() < 0.5 else None
            until = time.monotonic() + kit.random.uniform(0.05, 0.7)
            while time.monotonic() < until:
                if checkpoints:
                    checkpoints.run("CHECKPOINT;")
                time.sleep(min(0.03, max(0, until - time.monotonic())))
            if way == "all":
                server.kill()
            elif way == "immediate":
                server.stop("immediate")
            else:
                server.killed = True
                os.kill(kit.random.choice(loaders.list).pid, signal.SIGKILL)
                # The others go with it, and then the server recovers.
                for loader in loaders.list:
                    loader.join(30)
            if checkpoints:
                checkpoints.close()
        cut += loaders.cut
        acknowledged += loaders.acknowledged
        never += loaders.never
        if way == "backend":
            eventually("the server recovers", server.answers)
        # What recovery makes of a page is now and then compared with an image of it.
        elif not server.start(may_fail=True, wal_consistency_checking=kit.random.choice(["all", ""])):
            raise Flaw(f"kill {number} ({way}): the server does not start:\n{server.tail()}")
        # Others get the numbers of the transactions that died.
        server.psql("SELECT pg_current_xact_id();\n" * 50)
        try:
            committed += len(kit.check(server, acknowledged, never))
            server.psql("VACUUM")
            kit.check(server, acknowledged, never, structure=number % 4 == 3)
        except Flaw as flaw:
            raise Flaw(f"kill {number} ({way}): {flaw}") from flaw
        if number % 4 == 3:
            server.psql(f"TRUNCATE ledger, {', '.join(TABLES)}")
            acknowledged, never = [], []
    with Session(server) as session:
        for table in TABLES:
            acknowledged.append(kit.load(session, table))
    kit.check(server, acknowledged, never)
    if kit.kills >= 5 and cut == 0:
        raise Flaw("no load was hit: the test has tested nothing")
    kit.note(f"{kit.kills} kills cut {cut} loads")
