"""Waiting ends: by a timeout of ours, a cancel, or a lost client; and then nothing goes on elsewhere."""

import os
import signal
import time

from server import Session, eventually
from stock import expect, insert, same

BUSY = ("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml' AND state <> 'idle'")


def locks(stock):
    stock.start().table("locked")
    a, b = stock.nodes
    ids = [stock.ids_on("locked", node)[0] for node in stock.nodes]
    leaf = stock.leaf("locked", f"{ids[0]}::bigint")
    touch = f"SELECT inrush.distribute_dml('locked', {ids[0]}::bigint, 'UPDATE %s SET note = ''z'' WHERE id = {ids[0]}');"
    sleep = f"SELECT inrush.distribute_dml('locked', {ids[0]}::bigint, 'INSERT INTO %s SELECT {ids[0]}, pg_sleep(60)::text');"
    with stock.session() as session, stock.session() as other:
        session.run(insert("locked", ids[0]))
        # Another transaction has the row.
        other.do("BEGIN;")
        other.run(touch)
        session.do("SET inrush_dml.lock_timeout = '200ms'; BEGIN;")
        session.run(insert("locked", ids[1], "never"))
        session.run("\\set VERBOSITY default")
        expect(session.run(touch), "was not to be had within inrush_dml.lock_timeout", "over another connection")
        same(session.run("\\echo :LAST_ERROR_SQLSTATE"), "55P03", "SQLSTATE")
        session.do("ROLLBACK;")
        # And behind a savepoint.
        session.do("BEGIN; SAVEPOINT s;")
        expect(session.run(touch), "ERROR")
        session.do("ROLLBACK TO s;")
        session.run(insert("locked", ids[0], "kept"))
        session.do("COMMIT;")
        other.do("ROLLBACK;")
        same(stock.count("locked"), 2, "rows")
        # This transaction itself has it, over another connection.
        if stock.has_fdw:
            session.do("BEGIN;")
            session.do(f"UPDATE locked_{leaf} SET note = 'fdw';")
            began = time.monotonic()
            expect(session.run(touch), "was not to be had")
            same(time.monotonic() - began < 5, True, "the timeout is the one that was set")
            session.do("ROLLBACK;")
        # Two transactions in each other's way on one node: it sees that by itself.
        first, second = stock.ids_on("locked", a, 2)
        session.run(insert("locked", second))
        session.do("SET inrush_dml.lock_timeout = '20s'; BEGIN;")
        other.do("SET inrush_dml.lock_timeout = '20s'; BEGIN;")
        session.run(touch)
        other.run(touch.replace(f"{first}::", f"{second}::").replace(f"= {first}", f"= {second}"))
        session.send(touch.replace(f"{first}::", f"{second}::").replace(f"= {first}", f"= {second}"))
        eventually("it waits", lambda: a.psql("SELECT count(*) FROM pg_locks WHERE NOT granted") != "0")
        said = other.run(touch)
        said += session.wait()
        expect(said, "deadlock detected on node") if "40P01" not in said else None
        session.run("ROLLBACK;")
        other.run("ROLLBACK;")
        # Cancelled, and the node's statement with it.
        session.run("\\set VERBOSITY sqlstate")
        session.do("SET statement_timeout = '300ms';")
        expect(session.run(sleep), "57014")
        same(a.psql(BUSY), "0", "statements on the node")
        session.do("RESET statement_timeout; BEGIN; SAVEPOINT s;")
        session.send(sleep)
        eventually("it sleeps", lambda: a.psql(f"{BUSY} AND wait_event = 'PgSleep'") == "1")
        stock.coordinator.psql(f"SELECT pg_cancel_backend({session.pid})")
        expect(session.wait(), "57014")
        session.do("ROLLBACK TO s;")
        session.run(insert("locked", ids[0], "on"))
        session.do("COMMIT;")
        same(a.psql(BUSY), "0", "statements on the node")
        # The session goes away.
        gone = Session(stock.coordinator)
        gone.do("BEGIN;")
        gone.run(insert("locked", ids[0], "never"))
        gone.send(sleep)
        eventually("it sleeps", lambda: a.psql(f"{BUSY} AND wait_event = 'PgSleep'") == "1")
        stock.coordinator.psql(f"SELECT pg_terminate_backend({gone.pid})")
        eventually("nothing goes on", lambda: a.psql(BUSY) == "0")
        gone.close()
        # A node that does not answer at all: its process is stopped.
        session.do("BEGIN;")
        session.run(insert("locked", ids[1], "never"))
        frozen = int(b.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml'"
                            " AND state <> 'idle'"))
        os.kill(frozen, signal.SIGSTOP)
        session.do("SET LOCAL statement_timeout = '300ms';")
        session.send(insert("locked", ids[1], "never"))
        same(session.done(1), False, "done")
        os.kill(frozen, signal.SIGCONT)
        expect(session.wait(), "57014")
        session.do("ROLLBACK;")
    same(stock.count("locked"), 4, "rows")
    stock.drop("locked")
