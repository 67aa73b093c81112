"""What must hold of a table after loads that were accepted, whatever was sent."""

import collections

import frames
from wire import message

# What pages take as it is; longer rows may be compressed or moved out of line.
PLAIN = 2032 - 23
# HEAP_HASEXTERNAL: a row that points to values elsewhere, at other places in every table.
EXTERNAL = 4
# What COPY binary begins with: in the message of the first row.
SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)


class Flaw(Exception):
    """The extension, or something it relies on, has done what it must not."""


def rows_of(data):
    """What a COPY TO STDOUT sent, in an order of its own: another table may have found other room for a row."""
    joined = [data[0].removeprefix(SIGNATURE), *data[1:]] if data else []
    return sorted(joined)


class Judge:
    def __init__(self, session, table, plan, has_amcheck):
        self.session, self.table, self.plan, self.has_amcheck = session, table, plan, has_amcheck
        self.native = all(column["class"] in ("native", "dropped") for column in plan["columns"]) and \
            all(column["sent"] or column["class"] == "dropped" for column in plan["columns"])

    def ask(self, text):
        result = self.session.ask(text)
        if result.error:
            raise Flaw(f"{text[:100]}: {result.state} {result.message}")
        return result

    def back(self, data, table, options):
        """Puts what came out of a table into another one."""
        self.ask(f"TRUNCATE {table}")
        result = self.session.copy(
            f"COPY {table} FROM STDIN {options}", [message(b"d", part) for part in data], message(b"c"))
        if result.error:
            raise Flaw(f"COPY {options} does not take back what was stored: {result.state} {result.message}"
                       f" {result.error.get('W', '')}")

    def check(self, rows, streams):
        """`rows` were accepted, in these streams."""
        t = self.table.name
        found = int(self.ask(f"SELECT count(*) FROM {t}").rows[0][0])
        if found != rows:
            raise Flaw(f"{rows} rows were accepted, {found} are there")
        text = self.ask(f"COPY {t} TO STDOUT").data
        binary = self.ask(f"COPY {t} TO STDOUT (FORMAT binary)").data

        self.back(binary, f"{t}_binary", "(FORMAT binary)")
        if rows_of(self.ask(f"COPY {t}_binary TO STDOUT (FORMAT binary)").data) != rows_of(binary):
            raise Flaw("the rows are others after COPY binary")
        if rows_of(self.ask(f"COPY {t}_binary TO STDOUT").data) != rows_of(text):
            raise Flaw("the rows have another text after COPY binary")
        self.stored_as_by_copy(f"{t}_binary")

        said = self.ask(f"COPY (SELECT * FROM {t} WHERE {self.table.sayable}) TO STDOUT").data
        self.back(said, f"{t}_text", "")
        if rows_of(self.ask(f"COPY {t}_text TO STDOUT").data) != rows_of(said):
            raise Flaw("the rows are others after COPY text")
        self.structure()
        if self.native:
            self.stored_as_sent(streams)

    def differences(self, table, twin):
        rows = f"SELECT flags, hoff, bytes FROM inrush_test.stored('%s') WHERE flags & {EXTERNAL} = 0"
        return self.ask(f"""WITH a AS ({rows % table}), b AS ({rows % twin})
            (SELECT 'stored ' || a::text FROM (TABLE a EXCEPT ALL TABLE b) a LIMIT 1)
            UNION ALL (SELECT 'COPY would store ' || b::text FROM (TABLE b EXCEPT ALL TABLE a) b LIMIT 1)""").rows

    def stored_as_by_copy(self, twin):
        differ = self.differences(self.table.name, twin)
        if differ and self.table.normal:
            self.ask(f"CREATE TEMP TABLE normal (LIKE {self.table.name})")
            self.ask(f"INSERT INTO normal SELECT {self.table.normal} FROM {self.table.name}")
            differ = self.differences("normal", twin)
            self.ask("DROP TABLE normal")
        if differ:
            raise Flaw("; ".join(row[0].decode()[:400] for row in differ))

    def structure(self):
        t = self.table.name
        if self.has_amcheck:
            heap = self.ask(f"SELECT blkno, offnum, attnum, msg FROM verify_heapam('{t}', check_toast => true)").rows
            if heap:
                raise Flaw(f"verify_heapam: {heap[0]}")
            self.ask(f"""SELECT bt_index_check(indexrelid, true) FROM pg_index i JOIN pg_class c ON c.oid = indexrelid
                JOIN pg_am a ON a.oid = relam WHERE indrelid = '{t}'::regclass AND amname = 'btree'""")
        for condition in self.table.scans:
            counts = []
            for scan in ("on", "off"):
                other = "off" if scan == "on" else "on"
                self.ask(f"SET enable_seqscan = {scan}; SET enable_indexscan = {other};"
                         f" SET enable_bitmapscan = {other}")
                counts.append(self.ask(f"SELECT count(*), sum(hashtext(t::text)) FROM {t} t WHERE {condition}").rows)
            self.ask("RESET enable_seqscan; RESET enable_indexscan; RESET enable_bitmapscan")
            if counts[0] != counts[1]:
                raise Flaw(f"an index and the table disagree on {condition}: {counts}")

    def stored_as_sent(self, streams):
        """Byte for byte, where rows are too short for anything else."""
        stored = collections.Counter(
            (int(row[0]), row[1]) for row in
            self.ask(f"SELECT hoff, bytes FROM inrush_test.stored('{self.table.name}') WHERE length(bytes) <= {PLAIN}").rows)
        sent = collections.Counter(
            (hoff, b"\\x" + data.hex().encode()) for stream in streams for _, hoff, data in frames.split(stream)
            if len(data) <= PLAIN)
        # What was longer may have become as short.
        if missing := sent - stored:
            raise Flaw(f"a row is not stored as it was sent: {next(iter(missing))}")
