"""Tables, the streams that are loaded into them, and what must be there afterwards.

Every row says in its first column which load it belongs to; the number is put into the stream before it is sent. A load
enters itself into the ledger in its own (sub)transaction: its rows are there, all and once, if and only if that row is.
"""

import contextlib
import errno
import itertools
import os
import random
import struct
import subprocess
import threading
import time

from server import PATIENCE, Flaw, Server, eventually, program, started

# Columns behind "load", the rows of a load, indexes.
TABLES = {
    "narrow": (
        "id int, value bigint",
        "SELECT i, i * 7919::bigint FROM generate_series(1, 12000) i", ""),
    "wide": (
        "id int, a text, b numeric, c timestamptz, d float8, e text",
        "SELECT i, repeat(md5(i::text), 1 + i % 20), i / 8.0, timestamptz '2020-01-01 UTC' + i * interval '1 min',"
        " sqrt(i::float8), CASE WHEN i % 3 = 0 THEN NULL ELSE 'e' || i END FROM generate_series(1, 3000) i", ""),
    # Whole pages and TOAST, in turns, in one stream.
    "toasted": (
        "id int, note text",
        "SELECT i, CASE WHEN i % 60 = 7 THEN (SELECT string_agg(md5(i || '.' || j), '') FROM generate_series(1, 250) j)"
        " ELSE repeat(md5(i::text), 4) END FROM generate_series(1, 3000) i", ""),
    "indexed": (
        "id int, value int, note text",
        "SELECT i, i * 31 % 1009, md5(i::text) FROM generate_series(1, 4000) i",
        "CREATE UNIQUE INDEX indexed_row ON indexed (load, id); CREATE INDEX indexed_value ON indexed (value);"
        "CREATE INDEX indexed_brin ON indexed USING brin (id) WITH (pages_per_range = 4);"),
}

numbers = itertools.count(1)


def hashed(table):
    """Count and hash of the rows, leaving out which load they belong to."""
    names = ", ".join(column.split()[0] for column in TABLES[table][0].split(", "))
    return f"count(*), sum(hash_record_extended(ROW({names}), 0))"


class Stream:
    """The blocks of a load, and where in them the number of the load goes."""

    def __init__(self, table, blocks, rows, digest):
        self.table, self.rows, self.digest = table, rows, digest
        self.blocks = bytearray(blocks)
        self.places, self.borders = [], [0]
        at = 0
        while at < len(blocks):
            nrows, length = struct.unpack_from("<II", blocks, at + 16)
            frame = at + 64
            for _ in range(nrows):
                size, = struct.unpack_from("<H", blocks, frame)
                hoff = blocks[frame + 6]
                data = frame + 7
                if size == 0:
                    size, = struct.unpack_from("<I", blocks, frame + 8)
                    data = frame + 12
                self.places.append(data + hoff - 23)
                frame = data + size
                frame += (frame - at) % 2
            at += 64 + length
            self.borders.append(at)
        if len(self.places) != rows:
            raise Flaw(f"{table}: {len(self.places)} frames, {rows} rows")

    def of(self, load):
        number = struct.pack("<i", load)
        stamped = self.blocks[:]
        for place in self.places:
            stamped[place:place + 4] = number
        return bytes(stamped)


class Kit:
    """What the tests share: a server to copy, the streams, and the random numbers."""

    def __init__(self, seed, kills):
        self.seed, self.kills = seed, kills
        # Each way once, not in every combination: what every run of the tests has time for.
        self.small = kills < 6
        self.random = random.Random(seed)
        self.streams = {}
        self.notes = []
        self.template = Server("template")
        program("initdb", "-D", self.template.data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C",
                "--data-checksums", "--wal-segsize=1")
        self.template.start()
        self.template.psql("CREATE EXTENSION inrush_test CASCADE; CREATE TABLE ledger (load int, name text)")
        self.has_amcheck = self.template.contrib("amcheck")
        self.version = self.template.major()
        if self.has_amcheck:
            self.template.psql("CREATE EXTENSION amcheck")
        for table, (columns, query, indexes) in TABLES.items():
            self.template.psql(f"CREATE TABLE {table} (load int NOT NULL, {columns}); {indexes}")
            # Each stamp is a number, so the query has one too.
            stamped = query.replace("SELECT i,", "SELECT 0, i,", 1)
            blocks = bytes.fromhex(self.template.psql(
                f"SELECT encode(inrush_test.blocks('{table}', $q${stamped}$q$), 'hex')"))
            names = ", ".join(column.split()[0] for column in columns.split(", "))
            rows, digest = self.template.rows(f"SELECT {hashed(table)} FROM ({query}) q ({names})")[0]
            self.streams[table] = Stream(table, blocks, int(rows), digest)
        self.template.stop()
        started.remove(self.template)

    def server(self, name):
        return Server(name, self.template)

    def has_library(self, name):
        """Whether the server's modules have it; not every one is an extension."""
        modules = program("pg_config", "--pkglibdir").stdout.decode().strip()
        return os.path.exists(f"{modules}/{name}.so")

    def note(self, text):
        """Said with the test's result."""
        if text not in self.notes:
            self.notes.append(text)

    def write(self, path, table, load):
        with open(path, "wb") as file:
            file.write(self.streams[table].of(load))

    def load(self, session, table, wrap="BEGIN; {} COMMIT;"):
        """One load by this session, from a file. Its number."""
        load, path = begin(self, session, table, wrap)
        said = session.wait().strip()
        os.unlink(path)
        if said:
            raise Flaw(f"load into {table}: {said}")
        return load

    def contents(self, server):
        """What is there, as {(table, load): (rows, hash)}."""
        found = {}
        for table in TABLES:
            for load, rows, digest in server.rows(f"SELECT load, {hashed(table)} FROM {table} GROUP BY load"):
                found[table, int(load)] = (int(rows), digest)
        return found

    def check(self, server, acknowledged=(), never=(), structure=True):
        """Whether the rows of the loads in the ledger are there, and no others. The loads in the ledger."""
        entries = [(name, int(load)) for load, name in server.rows("SELECT load, name FROM ledger")]
        ledger = set(entries)
        if len(entries) != len(ledger):
            raise Flaw("the ledger has loads twice")
        loads = {load for _, load in ledger}
        if lost := set(acknowledged) - loads:
            raise Flaw(f"acknowledged, and lost: {sorted(lost)[:10]}")
        if undead := set(never) & loads:
            raise Flaw(f"rolled back, and there: {sorted(undead)[:10]}")
        expected = {(name, load): (self.streams[name].rows, self.streams[name].digest) for name, load in ledger}
        found = self.contents(server)
        if found != expected:
            odd = sorted(set(found.items()) ^ set(expected.items()))[:6]
            raise Flaw(f"{server.name}: rows that are not those of the ledger: {odd}")
        if structure:
            self.structure(server)
        return loads

    def structure(self, server):
        """Heap and indexes, by amcheck where it is, and by what the indexes find."""
        for column in ("load", "id", "value"):
            for plan in ("enable_bitmapscan", "enable_indexscan"):
                query = f"SELECT {hashed('indexed')} FROM indexed WHERE {column} >= 0"
                seen = server.psql(f"SET enable_seqscan = off; SET {plan} = off; SET enable_indexonlyscan = off; {query}")
                there = server.psql(f"SET enable_indexscan = off; SET enable_bitmapscan = off;"
                                    f" SET enable_indexonlyscan = off; {query}")
                if seen != there:
                    raise Flaw(f"{server.name}: the index on indexed ({column}) finds {seen}, the table has {there}")
        if self.has_amcheck and server.psql("SELECT pg_is_in_recovery()") == "f":
            for table in TABLES:
                said = server.psql(f"SELECT * FROM verify_heapam('{table}', check_toast => true)")
                if said:
                    raise Flaw(f"{server.name}: verify_heapam('{table}'): {said[:500]}")
            server.psql("SELECT bt_index_check('indexed_row', true), bt_index_check('indexed_value', true)")

    def same(self, a, b):
        if (left := self.contents(a)) != (right := self.contents(b)):
            raise Flaw(f"{a.name} and {b.name} differ: {sorted(set(left.items()) ^ set(right.items()))[:6]}")


def begin(kit, session, table, wrap):
    """Sends a load from a file, with SQL around it. Its number, and the file."""
    load = next(numbers)
    path = os.path.abspath(f"load-{load}")
    kit.write(path, table, load)
    before, after = wrap.split("{}")
    session.send(f"{before}\nINSERT INTO ledger VALUES ({load}, '{table}');\n"
                 f"\\copy {table} from '{path}' (format inrush)\n{after}")
    return load, path


class Loader(threading.Thread):
    """Loads one thing after the other until it is told to stop, or the server goes away."""

    def __init__(self, kit, server, tables=tuple(TABLES), plain=False):
        super().__init__(daemon=True)
        self.kit, self.server, self.tables, self.plain = kit, server, tables, plain
        self.random = random.Random(kit.random.random())
        self.acknowledged, self.never, self.begun = [], [], []
        self.failure = None
        self.stopping = threading.Event()
        self.path = os.path.abspath(f"{server.name}-loader-{next(numbers)}")
        self.pid = None
        self.psql = subprocess.Popen(
            server.client(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pid = int(self.ask("SELECT pg_backend_pid();\nSELECT inrush.version();")[0])
        self.start()

    def ask(self, text):
        """The lines of the answer; None if psql has ended."""
        try:
            self.psql.stdin.write(f"{text}\n\\warn <<done>>\n".encode())
            self.psql.stdin.flush()
        except BrokenPipeError:
            return None
        lines = []
        for line in self.psql.stdout:
            line = line.decode(errors="replace").rstrip()
            if line == "<<done>>":
                return lines
            lines.append(line)
        self.failure = "; ".join(lines[-3:]) or "psql ended"
        return None

    def copy(self):
        load, table = next(numbers), self.random.choice(self.tables)
        path = f"{self.path}-{len(self.begun) % 3}"
        self.kit.write(path, table, load)
        self.begun.append(load)
        return load, f"INSERT INTO ledger VALUES ({load}, '{table}');\n\\copy {table} from '{path}' (format inrush)\n"

    def transaction(self):
        """Its text, the loads that count once it has ended, and those that never do."""
        kind = 0 if self.plain else self.random.random()
        load, text = self.copy()
        if kind < 0.65:
            return f"BEGIN;\n{text}COMMIT;", [load], []
        if kind < 0.8:
            return f"BEGIN;\n{text}ROLLBACK;", [], [load]
        other, inner = self.copy()
        last, third = self.copy()
        return (f"BEGIN;\n{text}SAVEPOINT s;\n{inner}ROLLBACK TO s;\n{third}COMMIT;", [load, last], [other])

    def run(self):
        while not self.stopping.is_set():
            text, counts, never = self.transaction()
            # Whatever happens, these were rolled back before they could be committed.
            self.never += never
            if self.ask(text) is None:
                break
            self.acknowledged += counts

    def stop(self):
        self.stopping.set()
        self.join(PATIENCE)
        if self.is_alive():
            raise Flaw("a loader hangs")
        with contextlib.suppress(BrokenPipeError):
            self.psql.stdin.close()
        self.psql.wait()
        self.psql.stdout.close()
        for i in range(3):
            if os.path.exists(f"{self.path}-{i}"):
                os.unlink(f"{self.path}-{i}")

    @property
    def cut(self):
        """How many loads have neither been acknowledged nor rolled back."""
        return len(self.begun) - len(self.acknowledged) - len(self.never)


class Loaders:
    """Several, at the same time."""

    def __init__(self, kit, server, count=2, **options):
        self.list = [Loader(kit, server, **options) for _ in range(count)]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for loader in self.list:
            loader.stopping.set()
        for loader in self.list:
            loader.stop()

    def stop(self):
        """Ends them; they must not have failed."""
        self.__exit__()
        for loader in self.list:
            if loader.failure:
                raise Flaw(f"a load failed: {loader.failure}")

    def wait(self, loads):
        """Until so many more were acknowledged."""
        goal = len(self.acknowledged) + loads
        eventually(f"{loads} loads", lambda: len(self.acknowledged) >= goal or any(l.failure for l in self.list))

    @property
    def acknowledged(self):
        return [load for loader in self.list for load in loader.acknowledged[:]]

    @property
    def never(self):
        return [load for loader in self.list for load in loader.never[:]]

    @property
    def cut(self):
        return sum(loader.cut for loader in self.list)


class Feed:
    """A load that stops where it is told to: psql reads a FIFO, and we write."""

    def __init__(self, kit, session, table, wrap="BEGIN; {} COMMIT;"):
        self.load, self.table = next(numbers), table
        self.bytes = kit.streams[table].of(self.load)
        self.path = os.path.abspath(f"feed-{self.load}")
        self.at = 0
        os.mkfifo(self.path)
        before, after = wrap.split("{}")
        session.send(f"{before}\nINSERT INTO ledger VALUES ({self.load}, '{table}');\n"
                     f"\\copy {table} from '{self.path}' (format inrush)\n{after}")
        until = time.monotonic() + PATIENCE
        while True:
            try:
                self.file = os.open(self.path, os.O_WRONLY | os.O_NONBLOCK)
                break
            except OSError as error:
                if error.errno != errno.ENXIO or time.monotonic() > until:
                    raise Flaw("psql does not open what it is to send") from error
                time.sleep(0.005)
        os.set_blocking(self.file, True)

    def up_to(self, part):
        """Sends the stream up to this part of it (0 to 1)."""
        end = int(len(self.bytes) * part)
        try:
            while self.at < end:
                self.at += os.write(self.file, self.bytes[self.at:min(end, self.at + 65536)])
        except BrokenPipeError:
            pass

    def end(self):
        os.close(self.file)
        os.unlink(self.path)

    def end_with_rest(self):
        self.up_to(1)
        self.end()
