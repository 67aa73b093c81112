"""A load that is cancelled, timed out, terminated or left by its client leaves nothing, and the session goes on."""

import os
import time

from loads import TABLES, Feed, begin
from server import Flaw, Session, eventually

# How much of the stream has been sent when it happens: nothing, part of a block, groups of pages, everything.
MOMENTS = (0.0, 0.04, 0.35, 0.8, 1.0)


def interrupts(kit):
    server = kit.server("interrupts")
    server.start()
    never, kept = [], []
    for table in TABLES:
        with Session(server) as session:
            for number, moment in enumerate(MOMENTS):
                # In the small version one way at each moment, another for the next table.
                ways = ("cancel", "timeout")
                for way in (ways[(number + len(kept)) % 2],) if kit.small else ways:
                    if way == "timeout":
                        session.run("SET statement_timeout = '60ms';")
                    feed = Feed(kit, session, table)
                    feed.up_to(moment)
                    arrive(server, session, feed)
                    if way == "cancel":
                        server.psql(f"SELECT pg_cancel_backend({session.pid})")
                    # As in any COPY, a backend that waits for data hears of it with the next message.
                    time.sleep(0.08 if way == "timeout" else 0.01)
                    feed.up_to(min(1, moment + 0.2))
                    feed.end()
                    said = session.wait()
                    if "canceling statement due to " not in said:
                        raise Flaw(f"{way} at {moment} of {table}: {said}")
                    never.append(feed.load)
                    session.run("ROLLBACK;\nSET statement_timeout = 0;")
                kept.append(kit.load(session, table))
        kit.check(server, kept, never, structure=False)
        for moment in kit.random.sample(MOMENTS, 1 if kit.small else 2):
            for way in ("terminate", "client"):
                with Session(server) as session:
                    feed = Feed(kit, session, table)
                    feed.up_to(moment)
                    arrive(server, session, feed)
                    if way == "terminate":
                        server.psql(f"SELECT pg_terminate_backend({session.pid})")
                    else:
                        session.psql.kill()
                    eventually("the backend is gone", lambda: server.psql(
                        f"SELECT count(*) FROM pg_stat_activity WHERE pid = {session.pid}") == "0")
                    feed.end()
                    never.append(feed.load)
    kit.check(server, kept, never)
    if not kit.small:
        random_moments(kit, server, kept, never)
    server.psql("VACUUM")
    kit.check(server, kept, never)


def arrive(server, session, feed):
    """Until the server waits for more: psql and libpq keep the last parts of what they have read."""
    sent = feed.at - 24 * 1024
    eventually("the server waits for the rest", lambda: server.psql(
        f"SELECT count(*) FROM pg_stat_activity a JOIN pg_stat_progress_copy p USING (pid) WHERE pid = {session.pid}"
        f" AND wait_event = 'ClientRead' AND bytes_processed >= {sent}") == "1" or gone(server, session))


def gone(server, session):
    """Where a timeout came first; if it was before the COPY, psql has reached the end of the transaction by now."""
    state = server.psql(f"SELECT state FROM pg_stat_activity WHERE pid = {session.pid}")
    return state in ("idle in transaction (aborted)", "idle")


def random_moments(kit, server, kept, never):
    """While pages are written: the stream does not wait."""
    hit = 0
    with Session(server) as session, Session(server) as other:
        for number in range(max(24, kit.kills)):
            table = kit.random.choice(list(TABLES))
            timeout = number % 3 == 0
            wrap = "BEGIN; {} COMMIT;"
            if timeout:
                wrap = f"BEGIN; SET LOCAL statement_timeout = {kit.random.randint(1, 8)}; {{}} COMMIT;"
            load, path = begin(kit, session, table, wrap)
            if not timeout:
                time.sleep(kit.random.uniform(0, 0.012))
                other.run(f"SELECT pg_cancel_backend({session.pid}) FROM pg_stat_progress_copy WHERE pid = {session.pid};")
            said = session.wait().strip()
            os.unlink(path)
            if "canceling statement" in said:
                hit += 1
                never.append(load)
            elif not said:
                kept.append(load)
            else:
                raise Flaw(f"a cancelled load says: {said}")
            session.run("ROLLBACK;" if said else "SELECT 1;")
    kit.check(server, kept, never)
    if hit == 0:
        raise Flaw("nothing was interrupted: the test has tested nothing")
    kit.note(f"{hit} loads interrupted at random")
