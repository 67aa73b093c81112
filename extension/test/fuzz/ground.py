"""A database with the tables, their plans and first rows, and the session that loads them."""

import json
import os
import re

import frames
import tables
from judge import Flaw, Judge
from mutate import Mutator
from wire import Session

# What Python calls the encodings. SQL_ASCII takes any bytes.
CODECS = {"UTF8": "utf-8", "EUC_JP": "euc_jp", "LATIN1": "latin-1", "SQL_ASCII": "utf-8"}


def shape(text):
    """A message without the names and numbers in it."""
    return re.sub(r'"[^"]*"|0x[0-9A-Fa-f]+|\d+', "#", text)


class World:
    """What values are made of that only the server knows."""

    def __init__(self, encoding):
        self.encoding = CODECS[encoding]
        # All of them can be converted to and from UTF8, and not all to each other.
        self.client_encodings = ("UTF8", "LATIN1") if encoding == "UTF8" else ("UTF8",)
        self.labels, self.every_label, self.received = {}, [], {}


class Ground:
    def __init__(self, control, encoding, patience):
        self.name, self.encoding, self.patience = f"fuzz_{encoding.lower()}", encoding, patience
        self.cpu = 0.0
        self.settings = None
        self.session = None
        control.do(f"DROP DATABASE IF EXISTS {self.name}")
        control.do(f"CREATE DATABASE {self.name} TEMPLATE template0 ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'")
        self.world = World(encoding)
        self.ready = False
        self.connect()
        do = self.session.do
        do("CREATE EXTENSION inrush; CREATE EXTENSION inrush_test")
        self.has_amcheck = do("SELECT count(*) FROM pg_available_extensions WHERE name = 'amcheck'") == [["1"]]
        if self.has_amcheck:
            do("CREATE EXTENSION amcheck")
        do(tables.PRELUDE)
        for type_, label in do("SELECT enumtypid, oid FROM pg_enum ORDER BY enumtypid, enumsortorder"):
            self.world.labels.setdefault(int(type_), []).append(int(label))
            self.world.every_label.append(int(label))
        self.plans, self.rows = {}, {}
        for table in tables.TABLES:
            self.make(table)
            self.first_rows(table)
        self.ready = True

    def make(self, table):
        for twin in ("", "_text", "_binary"):
            self.session.do(table.make.format(t=table.name + twin))

    def first_rows(self, table):
        if table.columns is None:
            names = [row[0] for row in self.session.do(
                f"SELECT attname FROM pg_attribute WHERE attrelid = '{table.name}'::regclass AND attnum > 0 AND NOT attisdropped"
                " ORDER BY attnum")]
        else:
            names = list(table.columns)
        array = "ARRAY[" + ", ".join(f"'{name}'" for name in names) + "]::text[]"
        plan = json.loads(self.session.do(f"SELECT inrush.plan('{table.name}', {array})")[0][0])
        if plan["refusal"]:
            raise Flaw(f"{table.name} does not qualify: {plan['refusal']}")
        stream = bytes.fromhex(self.session.do(
            f"SELECT encode(inrush_test.blocks('{table.name}', $q${table.query}$q$, {array}), 'hex')")[0][0])
        rows = list(frames.decode(plan["columns"], stream))
        if frames.join(frames.encode(plan["columns"], row) for row in rows) != stream[frames.HEADER:]:
            raise Flaw(f"{table.name}: the first rows are not what they were after they were taken apart")
        for row in rows:
            for column, value in zip(plan["columns"], row.values):
                if column["class"] == "receive" and value is not None:
                    self.world.received.setdefault(column["base_type"], []).append(value)
        self.plans[table.name], self.rows[table.name] = plan, rows

    def mutator(self, random, table, corpus):
        return Mutator(random, table, self.plans[table.name], self.rows[table.name], self.world, corpus)

    def judge(self, table):
        # What comes out of a table goes back as it came.
        self.session.do(f"SET client_encoding = '{self.encoding}'")
        self.settings = None
        return Judge(self.session, table, self.plans[table.name], self.has_amcheck)

    # The session.

    def connect(self):
        if self.session:
            self.spent()
            self.session.close()
        self.session = Session(self.name, self.patience)
        self.pid = int(self.session.do("SELECT pg_backend_pid()")[0][0])
        self.before = self.backend_cpu()
        self.settings = None
        if self.ready:
            # Whoever hangs keeps locks.
            self.session.do("SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
                            " WHERE datname = current_database() AND pid <> pg_backend_pid()")
            self.session.do("SELECT inrush.version()")
            for table in tables.TABLES:
                if table.temporary:
                    self.make(table)

    def backend_cpu(self):
        """CPU seconds of the session's process so far; it may have ended."""
        try:
            with open(f"/proc/{self.pid}/stat", encoding="ascii", errors="replace") as file:
                words = file.read().rpartition(")")[2].split()
        except OSError:
            return 0.0
        return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")

    def spent(self):
        """CPU seconds of all sessions so far."""
        now = self.backend_cpu()
        self.cpu += max(0.0, now - self.before)
        self.before = now
        return self.cpu

    def truncate(self, table):
        self.session.do(f"TRUNCATE {table.name}")

    # Cases.

    def prepare(self, case):
        known = case.client_encoding in self.world.client_encodings
        settings = (case.whole_pages, case.ring, case.client_encoding if known else self.encoding)
        if settings != self.settings:
            self.session.do(f"SET inrush.whole_pages = {'on' if settings[0] else 'off'};"
                            f" SET inrush.ring = {'on' if settings[1] else 'off'};"
                            f" SET client_encoding = '{settings[2]}'")
            self.settings = settings

    def statement(self, table):
        names = f" ({', '.join(table.columns)})" if table.columns else ""
        return f"COPY {table.name}{names} FROM STDIN (FORMAT inrush)"

    def run(self, case):
        """Result, and how many rows of it are to stay. Closed and Hang where the session ended."""
        session = self.session
        statement = self.statement(case.table)
        self.prepare(case)
        if case.end == "gone":
            session.begin_copy(statement, case.messages(), b"")
            session.close()
            self.connect()
            return None, 0
        if case.wrap != "none":
            session.do("BEGIN ISOLATION LEVEL SERIALIZABLE" if case.wrap == "serializable" else "BEGIN")
        if case.wrap == "savepoint":
            session.do("SAVEPOINT here")
            first = session.copy(statement, case.messages(), case.ending())
            self.settle(case)
            session.do("ROLLBACK TO here")
        result = session.copy(statement, case.messages(), case.ending())
        self.settle(case)
        if case.wrap == "savepoint" and (first.state, shape(first.message)) != (result.state, shape(result.message)):
            raise Flaw(f"another answer after a savepoint: {first.message}; {result.message}")
        rows = 0 if result.error else int(result.tag.split()[1])
        if case.wrap != "none":
            keep = case.wrap != "rollback" and not result.error
            session.do("COMMIT" if keep else "ROLLBACK")
            rows = rows if keep else 0
        return result, rows

    def settle(self, case):
        if case.odd:
            self.session.settle()

    def start_again(self):
        """After a crash or a hang, with empty tables."""
        self.connect()
        for table in tables.TABLES:
            self.truncate(table)
