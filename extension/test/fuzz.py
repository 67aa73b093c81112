#!/usr/bin/env python3
"""A hostile client: sends what a client must not send, and looks at what the server then has.

    fuzz.py [FILE...]       with PGHOST and PGUSER, on a server with the extensions; only these inputs, if any

Cases are made from rows that are right (fuzz/tables.py), wrong in a value, a field, a frame, a header or anywhere
(fuzz/mutate.py). What is refused must be refused with an error of the format or of the type; what is accepted must come
out of the table and go into another one unchanged, through COPY text and COPY binary, and be stored as COPY stores it
(fuzz/judge.py).

    INRUSH_SEED=N           the same cases again
    INRUSH_FUZZ_SECONDS=N   CPU seconds of this process and its server process; 0: only the inputs that were kept
    INRUSH_FUZZ_CORPUS=DIR  inputs that were kept; all are sent first
    INRUSH_FUZZ_OUT=DIR     what is new goes to DIR/found, what fails to DIR/findings
"""

import os
import random
import re
import sys
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "fuzz"))

import corpus  # noqa: E402
import tables  # noqa: E402
from ground import Ground, shape  # noqa: E402
from judge import Flaw  # noqa: E402
from wire import Closed, Hang, Session  # noqa: E402

# A statement that takes longer has hung, however busy the machine is; valgrind is slower.
PATIENCE = float(os.environ.get("INRUSH_FUZZ_PATIENCE") or 300)
BATCH = 25
MOST_FINDINGS = 20

# What a refusal may be: of the format, of the types' own functions, of constraints, of limits.
REFUSALS = {
    "22P04", "22P03", "22021", "22008", "22001", "22003", "22009", "22000", "22023", "22P02", "22026", "2202E", "54000",
    "22P05", "23502", "23505", "23514", "23P01", "55000", "0A000", "57014", "08P01", "42804", "22030", "54001", "42704",
}


class Run:
    def __init__(self):
        self.seed = int(os.environ.get("INRUSH_SEED") or random.SystemRandom().randrange(1 << 32))
        self.seconds = float(os.environ.get("INRUSH_FUZZ_SECONDS") or 20)
        self.out = os.environ.get("INRUSH_FUZZ_OUT") or "fuzz-out"
        self.kept = corpus.read(os.environ.get("INRUSH_FUZZ_CORPUS") or "corpus")
        # Kinds of answers: an input that had a new one is kept, unless it was.
        self.known = set()
        self.keep_new = False
        self.findings = []
        self.sent = self.accepted = self.rows = self.new = 0
        other = random.Random(self.seed).choice(("EUC_JP", "LATIN1", "SQL_ASCII"))
        self.grounds = []
        control = Session("postgres", PATIENCE)
        for encoding in ("UTF8", other):
            self.grounds.append(Ground(control, encoding, PATIENCE))
        control.close()

    def cpu(self):
        return time.process_time() + sum(ground.spent() for ground in self.grounds)

    # Findings.

    def finding(self, ground, cases, why):
        """Keeps the inputs, and says why."""
        number = len(self.findings) + 1
        self.findings.append(why)
        print(f"FINDING {number}: {why}", flush=True)
        for i, case in enumerate(cases):
            name = corpus.write(os.path.join(self.out, "findings"), case, ground.plans[case.table.name], ground.world,
                                f"{self.seed}-{number}-{i}-{case.table.name}", why)
            print(f"  {name}: {', '.join(case.done) or 'nothing wrong'}", flush=True)
        if number >= MOST_FINDINGS:
            raise SystemExit(self.end())

    def start_again(self, ground):
        """Until the server has recovered."""
        until = time.monotonic() + PATIENCE
        while True:
            try:
                return ground.start_again()
            except (OSError, Closed):
                if time.monotonic() > until:
                    print("the server does not come back", flush=True)
                    raise SystemExit(self.end()) from None
                time.sleep(0.3)

    # Cases.

    @staticmethod
    def while_receiving(result, plan):
        """Whether it is a receive function of the server that complains. Some do with internal errors, or ask for as much
        memory as a wrong number in their input says (tsvectorrecv); they would do so in COPY binary."""
        place = re.search(r'^COPY \w+, line \d+, column (\w+)$', result.error.get("W", ""), re.M)
        return place and any(column["name"] == place[1] and column["class"] == "receive" for column in plan["columns"])

    def outcome(self, case, result, plan):
        """Says what is wrong with an answer, and names its kind."""
        if result is None:
            return ("gone",)
        for warning in result.warnings:
            if warning.get("V") not in ("NOTICE", "INFO", "LOG", "DEBUG"):
                raise Flaw(f"a warning: {warning.get('M')}")
        if not result.error:
            return "accepted", case.table.name, *sorted(set(case.done))[:1]
        if result.state not in REFUSALS and not self.while_receiving(result, plan):
            raise Flaw(f"an error that is none of the format's: {result.state} {result.message} ({result.error.get('R')})")
        return result.state, shape(result.message)

    def one(self, ground, case):
        """Sends a case. Its rows that stay, or None where the session had to end."""
        self.sent += 1
        result, rows = ground.run(case)
        outcome = self.outcome(case, result, ground.plans[case.table.name])
        if result and not result.error:
            self.accepted += 1
            self.rows += rows
        if outcome not in self.known and len(case.stream) <= corpus.LARGEST:
            self.known.add(outcome)
            if not self.keep_new:
                return rows
            self.new += 1
            corpus.write(os.path.join(self.out, "found"), case, ground.plans[case.table.name], ground.world)
        return rows

    def batch(self, ground, table, cases):
        """Sends cases for a table that is empty, and judges what it has then."""
        taken = []
        for case in cases:
            try:
                rows = self.one(ground, case)
                if rows:
                    taken.append((case, rows))
            except Closed as closed:
                expected = "unknown" in case.odd and closed.result.state in ("08P01", "")
                if not expected:
                    self.finding(ground, [case], f"the session ended: {closed.result.state} {closed.result.message}")
                self.start_again(ground)
                taken = []
            except Hang:
                self.finding(ground, [case], f"no answer in {PATIENCE:.0f} s")
                self.start_again(ground)
                taken = []
            except (Flaw, ValueError) as flaw:
                self.finding(ground, [case], str(flaw))
                self.start_again(ground)
                taken = []
        self.settle(ground, table, taken)

    def judged(self, ground, table, taken):
        """What is wrong with the table, or nothing. It is empty afterwards."""
        try:
            ground.judge(table).check(sum(rows for _, rows in taken), [case.stream for case, _ in taken])
            ground.truncate(table)
        except Flaw as flaw:
            self.start_again(ground)
            return str(flaw)
        except (Closed, Hang) as end:
            self.start_again(ground)
            return f"{type(end).__name__} while the table was read: {end}"
        return None

    def settle(self, ground, table, taken):
        why = taken and self.judged(ground, table, taken)
        if not why:
            return
        found = False
        for case, _ in taken:
            try:
                _, rows = ground.run(case)
                alone = self.judged(ground, table, [(case, rows)])
            except (Closed, Hang, Flaw, ValueError) as error:
                alone = f"sent again: {type(error).__name__} {error}"
                self.start_again(ground)
            if alone:
                self.finding(ground, [case], alone)
                found = True
        if not found:
            self.finding(ground, [case for case, _ in taken], f"together only: {why}")

    # The run.

    def replay(self, kept):
        for ground in self.grounds:
            for table in tables.TABLES:
                cases = [one.case(table, ground) for one in kept if one.table == table.name]
                for i in range(0, len(cases), BATCH):
                    self.batch(ground, table, cases[i:i + BATCH])

    def untouched(self):
        """Rows that are right are accepted, or the cases say nothing."""
        for ground in self.grounds:
            for table in tables.TABLES:
                mutator = ground.mutator(random.Random(0), table, [])
                case = mutator.untouched()
                result, rows = ground.run(case)
                if result.error or not rows:
                    self.finding(ground, [case], f"what is right is refused: {result.state} {result.message}")
                elif why := self.judged(ground, table, [(case, rows)]):
                    self.finding(ground, [case], why)

    def fuzz(self):
        number, self.keep_new = 0, True
        names, weights = list(tables.TABLES), [table.weight for table in tables.TABLES]
        streams = {ground: {table.name: [one.bytes(ground) for one in self.kept if one.table == table.name]
                            for table in tables.TABLES} for ground in self.grounds}
        while self.cpu() < self.seconds:
            # Of this batch alone, so that it can be had again without those before it.
            numbers = random.Random(f"{self.seed} {number}")
            number += 1
            ground = numbers.choices(self.grounds, (5, 1))[0]
            table = numbers.choices(names, weights)[0]
            mutator = ground.mutator(numbers, table, streams[ground][table.name])
            self.batch(ground, table, [mutator.case() for _ in range(numbers.choice((1, 5, BATCH)))])

    def end(self):
        state = "not ok" if self.findings else "ok"
        print(f"{state} - fuzz: {self.sent} cases, {self.accepted} accepted with {self.rows} rows, {self.cpu():.0f} CPU s,"
              f" {len(self.known)} kinds of answers ({self.new} new),"
              f" {len(self.findings)} findings; INRUSH_SEED={self.seed}", flush=True)
        return 1 if self.findings else 0


def main():
    run = Run()
    print(f"INRUSH_SEED={run.seed} ({run.grounds[1].encoding} beside UTF8), {len(run.kept)} inputs kept", flush=True)
    if not run.grounds[0].has_amcheck:
        print("without amcheck, which this server has not: indexes are compared with their tables by what they find", flush=True)
    if sys.argv[1:]:
        run.replay([corpus.Kept(path) for path in sys.argv[1:]])
        return run.end()
    try:
        run.untouched()
        run.replay(run.kept)
        run.fuzz()
    except KeyboardInterrupt:
        print("stopped before its time", flush=True)
    return run.end()


sys.exit(main())
