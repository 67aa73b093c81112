"""From streams that are right to streams that are wrong in one place or a few: values, fields, frames, blocks, bytes."""

import struct

import frames
import values
from wire import message

# What an unsigned field of one, two, four or eight bytes is set to.
EDGES = (0, 1, 2, 3, 7, 8, 16, 22, 23, 24, 31, 32, 64, 127, 128, 255, 256, 2032, 8160, 8192, 16384, 32767, 32768, 65535, 65536,
         1 << 20, (1 << 20) + 1, (1 << 30) - 65536, 1 << 30, (1 << 31) - 1, 1 << 31, (1 << 32) - 1, (1 << 63), (1 << 64) - 1)
FORMS = ("short", "long", "compressed", "external", "one more", "one less", "huge", "none")
# Of a tuple that goes onto a page as it is: TOAST_TUPLE_THRESHOLD of 8 KB blocks.
THRESHOLD = 2032


class Case:
    """A COPY: the statement's target and settings, its bytes, how they are cut into messages, and how it ends."""

    def __init__(self, table, stream, done=()):
        self.table, self.stream = table, stream
        self.cuts = []
        self.odd = []
        self.end = "done"
        self.wrap = "none"
        self.whole_pages = self.ring = True
        # What receive functions convert from; empty for the server's own.
        self.client_encoding = ""
        # The names of what was done to it: a new one that is accepted is worth keeping.
        self.done = list(done)

    def messages(self):
        at, parts = 0, []
        for i, cut in enumerate([*self.cuts, len(self.stream)]):
            parts.append(message(b"d", self.stream[at:cut]))
            at = cut
            if i < len(self.odd):
                parts.append({"flush": message(b"H"), "sync": message(b"S"), "empty": message(b"d"),
                              "unknown": message(b"x", b"?")}[self.odd[i]])
        return parts

    def ending(self):
        return {"done": message(b"c"), "fail": message(b"f", b"enough\0"), "gone": b""}[self.end]


class Mutator:
    """Makes cases for one table, from its rows and its corpus."""

    def __init__(self, random, table, plan, rows, world, corpus):
        self.random, self.table, self.plan, self.rows, self.world = random, table, plan, rows, world
        self.columns = plan["columns"]
        self.sent = [i for i, column in enumerate(self.columns) if column["sent"]]
        self.corpus = corpus

    # Rows.

    def value(self, row):
        i = self.random.choice(self.sent)
        row.values[i] = values.value(self.random, self.columns[i], row.values[i], self.world)

    def null(self, row):
        i = self.random.choice(self.sent)
        row.values[i] = None

    def from_other_column(self, row):
        i, j = self.random.choice(self.sent), self.random.choice(self.sent)
        source = self.random.choice(self.rows).values[j]
        if source is not None and self.columns[i]["length"] > 0:
            source = (source + bytes(self.columns[i]["length"]))[:self.columns[i]["length"]]
        row.values[i] = source

    def not_sent(self, row):
        i = self.random.randrange(len(self.columns))
        column = self.columns[i]
        row.values[i] = bytes(column["length"]) if column["length"] > 0 else b"x"

    def form(self, row):
        variable = [i for i in self.sent if self.columns[i]["length"] == -1]
        if variable:
            row.forms[self.random.choice(variable)] = self.random.choice(FORMS)

    def threshold(self, row):
        """As long as a tuple may be that is put onto a page, or a little more or less."""
        variable = [i for i in self.sent if self.columns[i]["length"] == -1 and row.values[i] is not None]
        if not variable:
            return
        i = self.random.choice(variable)
        length = len(frames.encode(self.columns, row).data) - 7 + 23
        wanted = self.random.choices((THRESHOLD, 8160, 65535 + 23, 3 << 20), (50, 25, 25, 1))[0]
        size = max(0, len(row.values[i]) + wanted + self.random.choice((0, 0, 1, -1, 2, 4, 8, -8, -3)) - length)
        filling = self.random.choice((b"x" * 8192, self.random.randbytes(4096).hex().encode()))
        row.values[i] = (row.values[i] + filling * (size // len(filling) + 1))[:size]

    def other_keys(self, rows):
        """Where a whole number comes first: keys that no other row has."""
        i = self.sent[0] if self.sent else -1
        if i >= 0 and self.columns[i]["base_type"] == values.INT4:
            for row in rows:
                if row.values[i] is not None:
                    row.values[i] = struct.pack("<i", self.random.randrange(-10**9, 10**9))

    ROW_CHANGES = (("value", 14), ("null", 3), ("from_other_column", 2), ("not_sent", 1), ("form", 4), ("threshold", 3))

    # Frames.

    def field(self, frame):
        """One field of a frame, where it lies."""
        if not frame.fields:
            return "bytes", frame
        name, begin, end = self.random.choice(frame.fields)
        # Headers are a small part of the fields, and most of what can go wrong.
        if self.random.random() < 0.4:
            name, begin, end = self.random.choice([field for field in frame.fields if field[0] != "value"])
        data = bytearray(frame.data)
        kind = self.random.randrange(8)
        if kind < 3 and begin < end:
            size = end - begin
            edge = self.random.choice((*EDGES, *(int.from_bytes(data[begin:end], "little") + d for d in (1, -1, 2, 4, 8))))
            data[begin:end] = (edge & (1 << 8 * size) - 1).to_bytes(size, "little")
        elif kind < 5 and begin < end:
            data[self.random.randrange(begin, end)] ^= 1 << self.random.randrange(8)
        elif kind == 5:
            at = self.random.randrange(begin, end + 1)
            data[at:at] = self.random.choice((b"\0", b"\1", b"\0\0\0\0", bytes(8), self.random.randbytes(3)))
            self.mend(data)
        elif kind == 6 and begin < end:
            at = self.random.randrange(begin, end)
            del data[at:at + self.random.choice((1, 1, 2, 4, end - at))]
            self.mend(data)
        else:
            extra = self.random.choice((b"\0", b"\0\0", b"x", bytes(8)))
            data = data + extra if self.random.random() < 0.5 else data[:-len(extra)]
            self.mend(data)
        return name, frames.Frame(bytes(data), frame.fields)

    def mend(self, data):
        """The length that the frame then has, mostly: else nothing behind its header is ever looked at."""
        if self.random.random() < 0.85 and len(data) >= 12:
            if data[0:2] == b"\0\0":
                data[8:12] = struct.pack("<I", len(data) - 12)
            else:
                data[0:2] = struct.pack("<H", len(data) - 7 & 0xFFFF)

    # Blocks.

    def header(self, stream):
        name, at, size = self.random.choice(frames.HEADER_FIELDS)
        data = bytearray(stream)
        if len(data) < frames.HEADER:
            return "header", stream
        old = int.from_bytes(data[at:at + size], "little")
        edge = self.random.choice((*EDGES, old + 1, old - 1, old ^ 1 << self.random.randrange(8 * size), old * 2))
        data[at:at + size] = (edge & (1 << 8 * size) - 1).to_bytes(size, "little")
        return name, bytes(data)

    # The stream.

    def bytes(self, stream):
        data = bytearray(stream)
        kind = self.random.randrange(6)
        at = self.random.randrange(len(data) + 1)
        if kind == 0 and data:
            for _ in range(self.random.choice((1, 1, 2, 8))):
                data[self.random.randrange(len(data))] ^= 1 << self.random.randrange(8)
            return "flip", bytes(data)
        if kind == 1:
            return "truncate", bytes(data[:at])
        if kind == 2:
            data[at:at] = self.random.randbytes(self.random.choice((1, 2, 4, 64)))
            return "insert", bytes(data)
        if kind == 3:
            del data[at:at + self.random.choice((1, 2, 4, 64))]
            return "delete", bytes(data)
        if kind == 4 and self.corpus:
            other = self.random.choice(self.corpus)
            begin = self.random.randrange(len(other) + 1)
            data[at:at + 64] = other[begin:begin + self.random.choice((4, 16, 64, 256))]
            return "splice", bytes(data)
        data[at:at] = data[at:at + 64]
        return "double", bytes(data)

    def rows_of_case(self):
        random = self.random
        count = random.choice((1, 1, 1, 2, 3, 8, 20, 60))
        # Rows of 1600 columns take Python long.
        count = min(count, 4) if len(self.columns) > 200 else count
        rows = [random.choice(self.rows).copy() for _ in range(count)]
        if random.random() < 0.85:
            self.other_keys(rows)
        return rows

    def block(self, done):
        """A block, wrong in a row, a frame or not at all."""
        random = self.random
        rows = self.rows_of_case()
        if self.sent and random.random() < 0.7:
            names, weights = zip(*self.ROW_CHANGES)
            for name in random.choices(names, weights, k=random.choice((1, 1, 1, 2, 5))):
                getattr(self, name)(random.choice(rows))
                done.append(name)
        # Enough rows for whole pages, sometimes.
        if random.random() < 0.08 and len(self.columns) < 200:
            rows = (rows * 1000)[:random.choice((100, 400, 1000))]
            self.other_keys(rows := [row.copy() for row in rows])
            done.append("many rows")
        encoded = [frames.encode(self.columns, row, wide=True if random.random() < 0.01 else None) for row in rows]
        if random.random() < 0.2:
            at = random.randrange(len(encoded))
            name, encoded[at] = self.field(encoded[at])
            done.append("field " + name)
        payload = frames.join(encoded)
        if len(payload) > 1 << 20 and len(encoded) > 1:
            encoded = encoded[:1]
            payload = frames.join(encoded)
        if random.random() < 0.03:
            payload += b"\0"
            done.append("byte behind")
        count = len(encoded) + (random.choice((1, -1)) if random.random() < 0.02 else 0)
        crc = len(payload) < 4096 and random.random() < 0.3
        block = frames.block(self.plan, count, payload, crc)
        if random.random() < 0.05:
            name, block = self.header(block)
            done.append("header " + name)
        return block

    def case(self):
        random, done = self.random, []
        if self.corpus and random.random() < 0.1:
            stream = random.choice(self.corpus)
            done.append("corpus")
        else:
            stream = b"".join(self.block(done) for _ in range(random.choice((1, 1, 1, 1, 2, 3))))
        if random.random() < 0.12 or done == ["corpus"]:
            name, stream = self.bytes(stream)
            done.append(name)
        case = Case(self.table, stream, done)
        if stream and random.random() < 0.3:
            case.cuts = sorted(random.randrange(len(stream) + 1) for _ in range(random.choice((1, 2, 5, 40))))
            if random.random() < 0.2:
                case.odd = random.choices(("flush", "sync", "empty", "unknown"),
                                          (10, 10, 10, 0 if self.table.temporary else 1), k=min(len(case.cuts), 3))
        # A session that ends takes a temporary table with it, and the rows of the cases before.
        case.end = random.choices(("done", "fail", "gone"), (94, 4, 0 if self.table.temporary else 2))[0]
        case.wrap = random.choices(("none", "commit", "rollback", "savepoint", "serializable"), (70, 8, 8, 8, 6))[0]
        case.whole_pages = random.random() < 0.75
        case.ring = random.random() < 0.25
        case.client_encoding = random.choice(self.world.client_encodings) if random.random() < 0.1 else ""
        return case

    def untouched(self):
        """All first rows, as they are."""
        return Case(self.table, frames.block(self.plan, len(self.rows), frames.join(
            frames.encode(self.columns, row) for row in self.rows), crc=True))
