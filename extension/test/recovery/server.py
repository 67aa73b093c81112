"""Servers that may die: each in a directory of its own, on a Unix socket there, a copy of one that initdb made once."""

import contextlib
import os
import select
import shutil
import signal
import subprocess
import time

# What takes longer than this has hung.
PATIENCE = 60.0

SETTINGS = {
    "listen_addresses": "",
    # Processes are killed here, not the machine: what they wrote is in the kernel.
    "fsync": "off",
    "autovacuum": "off",
    "wal_level": "logical",
    "max_wal_senders": "8",
    "max_replication_slots": "8",
    "max_connections": "30",
    # Small, so that pages are evicted while they are loaded.
    "shared_buffers": "8MB",
    "wal_keep_size": "1GB",
    "log_min_messages": "warning",
    "log_line_prefix": "%m [%p] ",
    "log_checkpoints": "off",
}

# A server's log never has one of these, unless a test kills something.
FLAWS = ("PANIC", "inconsistent page", "TRAP:", " leak", "was terminated by signal")


class Flaw(Exception):
    """What a test found."""


class Skipped(Exception):
    """Why a test cannot be run here."""


started = []


def program(*words, log=None, check=True):
    """A program of the server's."""
    done = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
    if log:
        with open(log, "ab") as file:
            file.write(done.stdout)
    if check and done.returncode != 0:
        raise Flaw(f"{' '.join(words)}: {done.stdout.decode(errors='replace')[-2000:]}")
    return done


def eventually(what, condition, seconds=PATIENCE):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            raise Flaw(f"waited in vain: {what}")
        time.sleep(0.02)


class Server:
    def __init__(self, name, template=None):
        self.name = name
        self.directory = os.path.abspath(name)
        self.data = os.path.join(self.directory, "data")
        self.log = os.path.join(self.directory, "log")
        self.settings = {}
        self.process = None
        self.killed = False
        shutil.rmtree(self.directory, ignore_errors=True)
        os.mkdir(self.directory)
        if template:
            shutil.copytree(template.data, self.data, symlinks=True)

    # Settings are given at every start: pg_rewind and pg_basebackup bring the configuration of another server along.
    # Not by pg_ctl: a killed server that nobody waits for would still count as one that runs.
    def start(self, may_fail=False, **settings):
        self.settings.update(settings)
        options = [word for name, value in {**SETTINGS, **self.settings}.items() for word in ("-c", f"{name}={value}")]
        if self not in started:
            started.append(self)
        with open(self.log, "ab") as log:
            self.process = subprocess.Popen(
                ["postgres", "-D", self.data, "-k", self.directory, *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, start_new_session=True)
        eventually(f"{self.name} starts", lambda: self.process.poll() is not None or self.answers())
        if self.process.poll() is None:
            return True
        if not may_fail:
            raise Flaw(f"server {self.name} does not start:\n{self.tail()}")
        return False

    def stop(self, mode="fast"):
        program("pg_ctl", "stop", "-w", "-m", mode, "-D", self.data)
        self.process.wait(PATIENCE)

    def tail(self):
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return "".join(file.readlines()[-15:])

    def kill(self):
        """All processes at once, as when the machine stops, except that the kernel keeps what they wrote."""
        self.killed = True
        # It must not start children meanwhile, or clean up behind them.
        self.process.send_signal(signal.SIGSTOP)
        children = program("pgrep", "-P", str(self.process.pid), check=False).stdout.split()
        self.process.kill()
        for child in children:
            try:
                os.kill(int(child), signal.SIGKILL)
            except ProcessLookupError:
                pass
        self.process.wait(PATIENCE)
        # Until then the shared memory is theirs. Whoever inherits them may leave them as zombies.
        eventually("killed processes are gone", lambda: not any(
            state for state in program("ps", "-o", "stat=", "-p", ",".join(c.decode() for c in children) or "1",
                                       check=False).stdout.split() if children and not state.startswith(b"Z")))

    def client(self, database="postgres", stop=True):
        """The command of a psql that prints unaligned and without headers, and ends at an error unless told not to."""
        return ["psql", "-X", "-q", "-A", "-t", "-v", f"ON_ERROR_STOP={int(stop)}", "-h", self.directory, "-U", "postgres",
                "-d", database]

    def psql(self, text, database="postgres", check=True):
        """What it prints."""
        done = subprocess.run(
            self.client(database), input=text.encode(), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        if check and done.returncode != 0:
            raise Flaw(f"{self.name}: {text.strip()[:200]}: {done.stderr.decode()}")
        return done.stdout.decode().strip()

    def rows(self, text):
        return [line.split("|") for line in self.psql(text).split("\n") if line]

    def answers(self):
        return self.psql("SELECT 1", check=False) == "1"

    def major(self):
        return int(self.psql("SHOW server_version_num")) // 10000

    def contrib(self, name):
        return self.psql(f"SELECT count(*) FROM pg_available_extensions WHERE name = '{name}'") == "1"

    def has_plugin(self, name):
        """Whether there is this output plugin, which is no extension."""
        self.psql(f"SELECT pg_drop_replication_slot(slot_name) FROM"
                  f" pg_create_logical_replication_slot('probe', '{name}')", check=False)
        return "could not access file" not in self.tail()

    def flaws(self):
        """Lines of the log that should not be there."""
        expected = ("was terminated by signal",) if self.killed else ()
        if not os.path.exists(self.log):
            return []
        with open(self.log, encoding="utf-8", errors="replace") as file:
            return [line.rstrip() for line in file
                    if any(flaw in line for flaw in FLAWS) and not any(flaw in line for flaw in expected)]

    def lsn(self):
        return self.psql("SELECT pg_current_wal_insert_lsn()")

    def replayed(self, primary):
        """Waits until this standby has replayed what the primary has written."""
        # In this order: what comes behind the switch is not written until somebody writes more.
        lsn = primary.lsn()
        primary.psql("SELECT pg_switch_wal()")
        eventually(
            f"{self.name} replays up to {lsn}",
            lambda: self.psql(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn", check=False) == "t"
            or self.broken())

    def broken(self):
        """A standby that cannot go on ends."""
        if self.flaws():
            raise Flaw(f"{self.name}: " + "; ".join(self.flaws()[:3]))
        return False


def end_all():
    for server in started:
        if server.process and server.process.poll() is None:
            # As in an immediate stop.
            server.process.send_signal(signal.SIGQUIT)
            server.process.wait(PATIENCE)
    started.clear()


class Session:
    """A psql that is sent one step after the other, as in isolation.py, and goes on after errors."""

    def __init__(self, server):
        self.psql = subprocess.Popen(
            server.client(stop=False), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True)
        self.count = 0
        self.output = ""
        self.ended = False
        self.pid = int(self.run("SELECT pg_backend_pid();"))
        # From here on the session has the format.
        self.run("SELECT inrush.version();")

    def send(self, text):
        self.count += 1
        self.output = ""
        try:
            self.psql.stdin.write(f"{text}\n\\warn <<{self.count}>>\n".encode())
            self.psql.stdin.flush()
        except BrokenPipeError:
            self.ended = True

    def done(self, seconds):
        mark = f"<<{self.count}>>\n"
        until = time.monotonic() + seconds
        while not self.ended and not self.output.endswith(mark):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.psql.stdout], [], [], left)[0]:
                return False
            part = os.read(self.psql.stdout.fileno(), 65536)
            self.ended = not part
            self.output += part.decode(errors="replace")
        self.output = self.output.removesuffix(mark)
        return True

    def wait(self):
        if not self.done(PATIENCE):
            raise Flaw(f"a session hangs: {self.output}")
        return self.output

    def run(self, text):
        self.send(text)
        return self.wait().strip()

    def do(self, text):
        """Says nothing, or has failed."""
        if said := self.run(text):
            raise Flaw(f"{text.strip()[:200]}: {said}")

    def close(self):
        try:
            os.killpg(self.psql.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass
        self.psql.wait()
        with contextlib.suppress(BrokenPipeError):
            self.psql.stdin.close()
        self.psql.stdout.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
