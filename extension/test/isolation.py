#!/usr/bin/env python3
"""Runs specs/NAME.spec with one psql for each session, and compares with expected/NAME.out.

PostgreSQL's own isolationtester cannot send the data of a COPY ... FROM STDIN, and psql can. The specs are written in
its language, as far as they need it: setup, teardown, session, step and permutation blocks. What is in braces goes to
psql, so that a step may be a \\copy. One thing is ours:

    step name async { ... }     it is not waited for: it reads from a FIFO that a later step writes to

setup and teardown run before and after every permutation, in a session of their own.
A step that waits for a lock says <waiting ...>, and its output comes when it is done, as in isolationtester.

    isolation.py NAME...        in a directory with specs/ and expected/; PGHOST and PGUSER say where
"""

import difflib
import os
import re
import select
import signal
import subprocess
import sys
import time

DATABASE = "isolation"
# A step that takes longer than this and waits for no lock has hung.
PATIENCE = 60.0


class Session:
    """A psql that is sent one step after the other."""

    def __init__(self, name):
        self.name = name
        self.psql = subprocess.Popen(
            ["psql", "-X", "-q", "-A", "-d", DATABASE],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self.count = 0
        self.output = ""
        self.step = None
        self.pid = self.run("SELECT pg_backend_pid();").split("\n")[1]

    def send(self, text):
        self.count += 1
        self.output = ""
        self.ended = False
        # On standard error, which psql does not buffer; it writes results out before it reads on.
        self.psql.stdin.write(f"{text}\n\\warn <<{self.count}>>\n".encode())
        self.psql.stdin.flush()

    def done(self, seconds):
        """Whether the step has ended, after waiting at most so long; its output is then complete."""
        if self.ended:
            return True
        mark = f"<<{self.count}>>\n"
        until = time.monotonic() + seconds
        while not self.output.endswith(mark):
            left = until - time.monotonic()
            if left <= 0 or not select.select([self.psql.stdout], [], [], left)[0]:
                return False
            part = os.read(self.psql.stdout.fileno(), 65536)
            if not part:
                self.output += "psql has ended\n"
                self.ended = True
                return True
            self.output += part.decode()
        self.output = self.output[: -len(mark)]
        self.ended = True
        return True

    def run(self, text):
        self.send(text)
        if not self.done(PATIENCE):
            raise TimeoutError(f"session {self.name} hangs in: {text}")
        return self.output

    def close(self):
        # With what it has started, which may wait for a FIFO.
        os.killpg(self.psql.pid, signal.SIGKILL)
        self.psql.wait()


class Spec:
    def __init__(self, path):
        text = re.sub(r"^#.*\n", "", open(path, encoding="utf-8").read(), flags=re.M)
        self.setup, self.teardown = [], []
        self.sessions, self.permutations = {}, []
        self.steps = {}
        session = None
        token = re.compile(
            r"\s*(?:(setup|teardown)\s*\{(.*?)^\}|session\s+(\w+)|step\s+(\w+)(\s+async)?\s*\{(.*?)\}[ \t]*$"
            r"|permutation\s+([\w ]+)$)", re.S | re.M)
        at = 0
        while text[at:].strip():
            m = token.match(text, at)
            if not m:
                raise SyntaxError(f"{path}: {text[at:at + 60]!r}")
            at = m.end()
            if m[1]:
                (self.setup if m[1] == "setup" else self.teardown).append(m[2].strip())
            elif m[3]:
                session = m[3]
                self.sessions[session] = []
            elif m[4]:
                self.steps[m[4]] = (session, m[6].strip(), bool(m[5]))
                self.sessions[session].append(m[4])
            else:
                self.permutations.append(m[7].split())


def blocked(control, session, others):
    pids = ",".join(s.pid for s in others)
    answer = control.run(f"SELECT pg_catalog.pg_isolation_test_session_is_blocked({session.pid}, '{{{pids}}}');")
    return answer.split("\n")[1] == "t"


def permute(spec, order, control, out):
    out.append(f"\nstarting permutation: {' '.join(order)}\n")
    for text in spec.setup:
        out.append(control.run(text))
    sessions = {name: Session(name) for name in spec.sessions}
    waiting = []

    def report():
        """What has been waited for, and is done now."""
        for session in waiting[:]:
            if session.done(0.02):
                out.append(f"step {session.step}: <... completed>\n{session.output}")
                waiting.remove(session)

    try:
        for name in order:
            owner, text, is_async = spec.steps[name]
            session = sessions[owner]
            if session in waiting:
                # Its turn comes when the step before has ended.
                wait_for(session)
                report()
            session.step = name
            out.append(f"step {name}: {text}\n")
            session.send(text)
            until = time.monotonic() + PATIENCE
            while not is_async and not session.done(0.02):
                if blocked(control, session, sessions.values()):
                    is_async = True
                elif time.monotonic() > until:
                    raise TimeoutError(f"step {name} hangs")
            if is_async:
                out[-1] = f"step {name}: {text} <waiting ...>\n"
                waiting.append(session)
            else:
                out.append(session.output)
            # Those that this step has set free: no lock holds them, so they end, or wait for a FIFO.
            for other in waiting:
                if other is not session and not spec.steps[other.step][2]:
                    while not other.done(0.02) and not blocked(control, other, sessions.values()):
                        if time.monotonic() > until:
                            raise TimeoutError(f"step {other.step} hangs")
            report()
        while waiting:
            wait_for(waiting[0])
            report()
    finally:
        for session in sessions.values():
            session.close()
    for text in spec.teardown:
        out.append(control.run(text))


def wait_for(session):
    if not session.done(PATIENCE):
        raise TimeoutError(f"step {session.step} hangs")


def run(name):
    """The differences from what is expected, or nothing."""
    out = []
    try:
        spec = Spec(f"specs/{name}.spec")
        control = Session("control")
        try:
            for order in spec.permutations:
                permute(spec, order, control, out)
        finally:
            control.close()
    except (TimeoutError, SyntaxError) as error:
        out.append(f"{error}\n")
    result = "".join(out)
    with open(f"results/{name}.out", "w", encoding="utf-8") as file:
        file.write(result)
    try:
        expected = open(f"expected/{name}.out", encoding="utf-8").read()
    except FileNotFoundError:
        expected = ""
    return list(difflib.unified_diff(
        expected.splitlines(True), result.splitlines(True), f"expected/{name}.out", f"results/{name}.out"))


def main():
    admin = ["psql", "-X", "-q", "-d", "postgres"]
    subprocess.run([*admin, "-c", f"DROP DATABASE IF EXISTS {DATABASE}", "-c", f"CREATE DATABASE {DATABASE}"],
                   check=True, stderr=subprocess.DEVNULL)
    subprocess.run(["psql", "-X", "-q", "-d", DATABASE, "-c", "CREATE EXTENSION inrush_test CASCADE"],
                   check=True, stderr=subprocess.DEVNULL)
    failed = 0
    for name in sys.argv[1:]:
        began = time.monotonic()
        diff = run(name)
        print(f"{'not ok' if diff else 'ok'} - {name} {int((time.monotonic() - began) * 1000)} ms", flush=True)
        if diff:
            failed = 1
            with open("regression.diffs", "a", encoding="utf-8") as file:
                file.writelines(diff)
    return failed


sys.exit(main())
