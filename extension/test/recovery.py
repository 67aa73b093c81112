#!/usr/bin/env python3
"""What is left of a load when something dies: crashes, standbys, backups, replication, full disks, interrupts. And
whatever else needs servers of its own: other libraries' hooks.

    recovery.py [NAME...]       in a directory for throw-away servers, with the programs of the server in PATH
    recovery.py --list          the names
    recovery.py rate            how fast a standby replays loads; only if asked for

INRUSH_SEED sets the random numbers, INRUSH_KILLS how often the test "crash" kills. Others do more with more too, and
with less than 6 they are the small version, which is part of every run of the tests.
INRUSH_SMALL_DISK is a directory on a small file system, for the test "disk". Not as root: servers do not like that.
"""

import os
import random
import shutil
import signal
import sys
import time
import traceback

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "recovery"))

import backup  # noqa: E402
import crash  # noqa: E402
import disk  # noqa: E402
import hooks  # noqa: E402
import interrupts  # noqa: E402
import logical  # noqa: E402
import minimal  # noqa: E402
import races  # noqa: E402
import rate  # noqa: E402
import segment  # noqa: E402
import standby  # noqa: E402
from loads import Kit  # noqa: E402
from server import Flaw, Skipped, end_all, started  # noqa: E402

TESTS = {
    "crash": crash.crash,
    "standby": standby.standby,
    "promote": standby.promote,
    "backup": backup.backup,
    "pitr": backup.pitr,
    "decoding": logical.decoding,
    "replication": logical.replication,
    "minimal": minimal.minimal,
    "unlogged": minimal.unlogged,
    "disk": disk.disk,
    "hooks": hooks.hooks,
    "interrupts": interrupts.interrupts,
    "races": races.races,
    "bloat": races.bloat,
    "buffers": races.buffers,
    "segment": segment.segment,
}


def run(name, kit):
    """Whether it passed or could not be run."""
    began = time.monotonic()
    kit.notes.clear()
    # The same numbers whichever tests run.
    kit.random = random.Random(f"{kit.seed} {name}")
    state, what = "ok", ""
    try:
        {**TESTS, "rate": rate.rate}[name](kit)
        if flaws := [f"{server.name}: {line}" for server in started for line in server.flaws()]:
            raise Flaw("\n".join(flaws[:5]))
    except Skipped as why:
        state, what = "SKIPPED:", f": {why}"
    except Flaw as flaw:
        state, what = "not ok", f"\n{flaw}"
    except Exception:  # The next test can be run nevertheless.
        state, what = "not ok", f"\n{traceback.format_exc()}"
    servers = started[:]
    end_all()
    if state != "not ok":
        for server in servers:
            shutil.rmtree(server.directory, ignore_errors=True)
    if kit.notes:
        what = f" ({'; '.join(kit.notes)}){what}"
    dash = " " if state == "SKIPPED:" else " - "
    print(f"{state}{dash}{name} {int((time.monotonic() - began) * 1000)} ms{what}", flush=True)
    return state != "not ok"


def main():
    if sys.argv[1:] == ["--list"]:
        print("\n".join(TESTS))
        return 0
    seed = int(os.environ.get("INRUSH_SEED") or random.SystemRandom().randrange(1 << 32))
    kills = int(os.environ.get("INRUSH_KILLS") or 6)
    print(f"INRUSH_SEED={seed} INRUSH_KILLS={kills}", flush=True)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    try:
        kit = Kit(seed, kills)
        return int(not all([run(name, kit) for name in sys.argv[1:] or TESTS]))
    finally:
        end_all()


sys.exit(main())
