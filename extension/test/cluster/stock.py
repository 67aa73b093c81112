"""A coordinator and two nodes of plain PostgreSQL."""

from server import Flaw, Server, Session, program

SETTINGS = {"max_prepared_transactions": "10", "wal_level": "replica"}


class Stock:
    """Started when a test first asks for it, and kept for the next."""

    def __init__(self, here):
        self.here = here
        self.notes = []
        self.coordinator = None
        self.nodes = []

    def note(self, text):
        self.notes.append(text)

    def start(self):
        if self.coordinator:
            return self
        template = Server("template")
        program("initdb", "-D", template.data, "-U", "postgres", "-A", "trust", "-N", "-E", "UTF8", "--locale=C",
                "--wal-segsize=1")
        self.coordinator = Server("coordinator", template)
        self.nodes = [Server("a", template), Server("b", template)]
        for server in [self.coordinator, *self.nodes]:
            server.start(**SETTINGS)
        self.coordinator.psql("CREATE EXTENSION inrush")
        self.version = self.coordinator.major()
        self.has_fdw = self.coordinator.contrib("postgres_fdw")
        if self.has_fdw:
            self.coordinator.psql("CREATE EXTENSION postgres_fdw")
        else:
            # What is read of it is its name and its tables' options.
            self.coordinator.psql("CREATE FOREIGN DATA WRAPPER postgres_fdw")
        for node in self.nodes:
            self.coordinator.psql(
                f"CREATE SERVER {node.name} FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '{node.directory}', dbname 'postgres');"
                f"CREATE USER MAPPING FOR postgres SERVER {node.name} OPTIONS (user 'postgres')")
        return self

    def session(self):
        session = Session(self.coordinator)
        session.run("\\set VERBOSITY sqlstate")
        return session

    def foreign(self, parent, leaf, bound, node, columns):
        """A leaf that is a table of a node."""
        node.psql(f"CREATE TABLE {leaf} ({columns})")
        self.coordinator.psql(
            f"CREATE FOREIGN TABLE {leaf} PARTITION OF {parent} {bound} SERVER {node.name} OPTIONS (schema_name 'public')")

    def table(self, name, columns="id bigint NOT NULL, note text", key="id", leaves=4):
        """Hash partitioned, its leaves in turns on both nodes: NAME_0 on a, NAME_1 on b ..."""
        texts = [f"CREATE TABLE {name} ({columns}) PARTITION BY HASH ({key})"]
        for at, node in enumerate(self.nodes):
            mine = range(at, leaves, 2)
            node.psql("; ".join(f"CREATE TABLE {name}_{number} ({columns})" for number in mine))
            texts += [f"CREATE FOREIGN TABLE {name}_{number} PARTITION OF {name} FOR VALUES WITH (MODULUS {leaves},"
                      f" REMAINDER {number}) SERVER {node.name} OPTIONS (schema_name 'public')" for number in mine]
        self.coordinator.psql("; ".join(texts))

    def leaf(self, table, value, leaves=4):
        """The number of the leaf, by PostgreSQL's own judgement."""
        for number in range(leaves):
            if self.coordinator.psql(
                    f"SELECT satisfies_hash_partition('{table}'::regclass, {leaves}, {number}, {value})") == "t":
                return number
        raise Flaw(f"{value} is in no leaf of {table}")

    def ids_on(self, table, node, n=1):
        """Numbers whose leaves are on the node."""
        at = self.nodes.index(node)
        rows = self.coordinator.rows(
            f"SELECT i FROM generate_series(1, 100) i WHERE satisfies_hash_partition('{table}'::regclass, 4, {at}, i::bigint)"
            f" OR satisfies_hash_partition('{table}'::regclass, 4, {at + 2}, i::bigint) ORDER BY i LIMIT {n}")
        return [int(number) for number, in rows]

    def count(self, table, node=None):
        """Rows in the leaves on one node, or on both."""
        total = 0
        for number in range(4):
            server = self.nodes[number % 2]
            if node in (None, server):
                total += int(server.psql(f"SELECT count(*) FROM {table}_{number}"))
        return total

    def drop(self, table):
        self.coordinator.psql(f"DROP TABLE {table}")
        for node in self.nodes:
            node.psql("DO $$ BEGIN EXECUTE (SELECT 'DROP TABLE ' || string_agg(relname, ', ') FROM pg_class"
                      f" WHERE relname ~ '^{table}_[0-9]+$'); END $$")

    def prepared(self):
        return sum(int(node.psql("SELECT count(*) FROM pg_prepared_xacts")) for node in self.nodes)

    def resolve(self, server=None):
        return sorted((node, outcome) for node, outcome in
                      (server or self.coordinator).rows("SELECT node, outcome FROM inrush.resolve_dml()"))


def expect(said, *wanted, what=""):
    for text in wanted:
        if text not in said:
            raise Flaw(f"{what or 'a session'} says {said!r} and not {text!r}")


def same(got, wanted, what):
    if got != wanted:
        raise Flaw(f"{what}: {got!r} instead of {wanted!r}")


def insert(table, value, note="x"):
    return f"SELECT inrush.distribute_dml('{table}', {value}::bigint, 'INSERT INTO %s VALUES ({value}, ''{note}'')');"
