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
from outcome import run  # noqa: E402
from server import end_all, started  # noqa: E402

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


def run_alone(name, kit):
    """With servers that no other test has."""
    # The same numbers whichever tests run.
    kit.random = random.Random(f"{kit.seed} {name}")
    return run(name, {**TESTS, "rate": rate.rate}, kit, end_servers)


def end_servers(passed):
    """Their files stay if there is something to be found in them."""
    servers = started[:]
    end_all()
    if passed:
        for server in servers:
            shutil.rmtree(server.directory, ignore_errors=True)


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
        return int(not all([run_alone(name, kit) for name in sys.argv[1:] or TESTS]))
    finally:
        end_all()


sys.exit(main())
