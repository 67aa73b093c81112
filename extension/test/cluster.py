#!/usr/bin/env python3
"""inrush.distribute_dml() on several servers: a coordinator and two nodes, with partitions that are foreign tables.

    cluster.py [NAME...]       in a directory for throw-away servers, with the programs of the server in PATH
    cluster.py --list          the names

The test "citus" needs a cluster that is there: INRUSH_TEST_CITUS is how psql connects to its coordinator as superuser,
as in "host=/tmp port=5432 dbname=postgres"; the extension has to be on all its nodes. Without it that one says SKIPPED.
Where there is no postgres_fdw the foreign tables are of a wrapper that has only its name, which is all that matters here.
ACCEPT=1 writes what is expected of errors anew. Not as root: servers do not like that.
"""

import os
import signal
import sys

sys.dont_write_bytecode = True
here = os.path.dirname(os.path.abspath(__file__))
sys.path[:0] = [os.path.join(here, "recovery"), os.path.join(here, "cluster")]

import changes  # noqa: E402
import citus  # noqa: E402
import errors  # noqa: E402
import locks  # noqa: E402
import rights  # noqa: E402
import routing  # noqa: E402
import transactions  # noqa: E402
import twophase  # noqa: E402
from outcome import run  # noqa: E402
from server import end_all  # noqa: E402
from stock import Stock  # noqa: E402

TESTS = {
    "routing": routing.routing,
    "errors": errors.errors,
    "transactions": transactions.transactions,
    "rights": rights.rights,
    "locks": locks.locks,
    "changes": changes.changes,
    "twophase": twophase.twophase,
    "citus": citus.citus,
}


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(TESTS))
        return 0
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        stock = Stock(here)
        return int(not all([run(name, TESTS, stock) for name in sys.argv[1:] or TESTS]))
    finally:
        end_all()


sys.exit(main())
