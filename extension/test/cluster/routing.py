"""Rows arrive in the leaves that PostgreSQL itself would put them in."""

from server import Flaw
from stock import expect, same

# Types of keys, and values of them.
TYPES = {
    "smallint": "SELECT (i * 917 - 16000)::smallint FROM generate_series(0, 30) i",
    "integer": "SELECT i * 71234567 - 1000000000 FROM generate_series(0, 28) i",
    "bigint": "SELECT (i - 15)::bigint * 123456789012345 FROM generate_series(0, 30) i",
    "text": "SELECT repeat('é' || i, i) FROM generate_series(1, 30) i",
    "varchar(40)": "SELECT left(md5(i::text), i + 1)::varchar(40) FROM generate_series(0, 30) i",
    "character(12)": "SELECT (repeat('x', i % 10) || i)::char(12) FROM generate_series(10, 40) i",
    "uuid": "SELECT md5(i::text)::uuid FROM generate_series(0, 30) i",
    "numeric(12,3)": "SELECT (i * 1234.5 - 9000)::numeric(12,3) FROM generate_series(0, 30) i",
    "double precision": "SELECT x FROM unnest('{0,-0,NaN,Infinity,-Infinity,1e300,-2.5,3.25,4,5,6,7}'::float8[]) x",
    "date": "SELECT date '1969-12-25' + i * 397 FROM generate_series(0, 30) i",
    "timestamptz": "SELECT timestamptz '1990-01-01 UTC' + i * interval '97 days 3 hours' FROM generate_series(0, 30) i",
    "bytea": "SELECT decode(md5(i::text), 'hex') FROM generate_series(0, 30) i",
    "boolean": "SELECT x FROM unnest('{t,f}'::boolean[]) x",
    "interval": "SELECT make_interval(days => i * 17, mins => i) FROM generate_series(0, 30) i",
    "inet": "SELECT ('10.0.' || i || '.1')::inet FROM generate_series(0, 30) i",
    "mood": "SELECT x FROM unnest('{sad,ok,happy}'::mood[]) x",
    "length": "SELECT (i * 3)::length FROM generate_series(0, 30) i",
    "integer[]": "SELECT ARRAY[i, i + 1] FROM generate_series(0, 30) i",
}


def leaves_of(table, numbers):
    """Rows of leaves, with their numbers."""
    return " UNION ALL ".join(f"SELECT {n}, id::text COLLATE \"C\" FROM {table}_{n}" for n in numbers) + " ORDER BY 1, 2"


def compare(stock, table):
    """What is in the leaves on the nodes and in those of a local twin that PostgreSQL has filled. The number of rows."""
    total = 0
    for at, node in enumerate(stock.nodes):
        got = node.rows(leaves_of(table, (at, at + 2)))
        same(got, stock.coordinator.rows(leaves_of("twin", (at, at + 2))), f"{table} on {node.name}")
        total += len(got)
    return total


def twin(kind):
    """Enums are hashed by OID: the twin is of the very type."""
    return "; ".join([f"CREATE TABLE twin (id {kind}) PARTITION BY HASH (id)"] + [
        f"CREATE TABLE twin_{n} PARTITION OF twin FOR VALUES WITH (MODULUS 4, REMAINDER {n})" for n in range(4)])


def by_types(stock):
    main = stock.coordinator
    for server in [main, *stock.nodes]:
        server.psql("CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy'); CREATE DOMAIN length AS int CHECK (VALUE >= 0)")
    rows = 0
    for kind, values in TYPES.items():
        stock.table("typed", f"id {kind}")
        main.psql(twin(kind))
        # As the type itself, and as a text that is read as it.
        for cast in (kind.split("(")[0], "text"):
            value = "v" if cast != "text" else "v::text"
            main.psql(
                f"INSERT INTO twin {values};"
                f"SELECT sum(inrush.distribute_dml('typed', {value}, format('INSERT INTO %%s VALUES (%L)', v)))"
                f" FROM ({values}) q (v)")
        if (got := compare(stock, "typed")) == 0:
            raise Flaw(f"no rows of {kind}")
        rows += got
        changed = main.psql(f"SELECT sum(inrush.distribute_dml('typed', v, format('DELETE FROM %%s WHERE id = %L', v)))"
                            f" FROM ({values}) q (v)")
        same(changed, str(got), f"rows of {kind} deleted")
        main.psql("DROP TABLE twin")
        stock.drop("typed")
    stock.note(f"{rows} rows of {len(TYPES)} types")


def by_casts(stock):
    """Values of other types become what is stored first."""
    main = stock.coordinator
    stock.table("cast_to", "id numeric(8,2)")
    main.psql(twin("numeric(8,2)"))
    for value in ("1", "1::bigint", "1.005", "2.344::float8", "'3.999'", "7::smallint", "123456.785"):
        text = value.replace("'", "''")
        main.psql(f"INSERT INTO twin VALUES ({value});"
                  f"SELECT inrush.distribute_dml('cast_to', {value}, 'INSERT INTO %s VALUES ({text})')")
    compare(stock, "cast_to")
    main.psql("DROP TABLE twin")
    stock.drop("cast_to")


def by_range(stock):
    """Ranges with a default, a list below a range by the same column, a local leaf, a dropped column before the key."""
    main = stock.coordinator
    columns = "gone int, note text, id integer"
    main.psql(f"CREATE TABLE ranged ({columns}) PARTITION BY RANGE (id); ALTER TABLE ranged DROP COLUMN gone;"
              "CREATE TABLE twin (note text, id integer) PARTITION BY RANGE (id)")
    a, b = stock.nodes
    bounds = ["FOR VALUES FROM (MINVALUE) TO (0)", "FOR VALUES FROM (0) TO (10)", None, "DEFAULT"]
    for number, node in ((0, a), (1, b), (3, b)):
        stock.foreign("ranged", f"ranged_{number}", bounds[number], node, "note text, id integer")
        main.psql(f"CREATE TABLE twin_{number} PARTITION OF twin {bounds[number]}")
    for name in ("ranged", "twin"):
        main.psql(f"CREATE TABLE {name}_2 PARTITION OF {name} FOR VALUES FROM (20) TO (30) PARTITION BY LIST (id)")
    stock.foreign("ranged_2", "ranged_20", "FOR VALUES IN (20, 21)", a, "note text, id integer")
    main.psql("CREATE TABLE ranged_22 PARTITION OF ranged_2 FOR VALUES IN (22);"
              "CREATE TABLE twin_20 PARTITION OF twin_2 FOR VALUES IN (20, 21);"
              "CREATE TABLE twin_22 PARTITION OF twin_2 FOR VALUES IN (22)")
    for value in (-2147483648, -1, 0, 5, 9, 10, 19, 20, 21, 22, 30, 2147483647):
        main.psql(f"INSERT INTO twin VALUES ('x', {value});"
                  f"SELECT inrush.distribute_dml('ranged', {value}, 'INSERT INTO %s (id, note) VALUES ({value}, ''x'')')")
    for leaf, server in (("0", a), ("1", b), ("3", b), ("20", a), ("22", main)):
        query = "SELECT id, note FROM {} ORDER BY 1"
        same(server.rows(query.format(f"ranged_{leaf}")), main.rows(query.format(f"twin_{leaf}")), f"ranged_{leaf}")
    with stock.session() as session:
        expect(session.run("SELECT inrush.distribute_dml('ranged', 25, 'INSERT INTO %s VALUES (''x'', 25)');"), "23514")
        # The local leaf: in this transaction, and the bound is checked.
        expect(session.run("SELECT inrush.distribute_dml('ranged', 22, 'INSERT INTO %s VALUES (''x'', 25)');"), "23514")
    main.psql("DROP TABLE twin")
    stock.drop("ranged")


def by_text(stock):
    """Placeholders, comments, and the three statements."""
    stock.table("spoken")
    with stock.session() as session:
        def call(text, value=7):
            return session.run(f"SELECT inrush.distribute_dml('spoken', {value}::bigint, $q${text}$q$);")
        same(call("INSERT INTO %s VALUES (7, '100%%'), (7, 'b')"), "2", "rows")
        same(call("-- a comment\n /* and /* another */ */ insert INTO %1$s AS t VALUES (7, 'é%%s')"), "1", "rows")
        same(call("UPDATE %s AS t SET note = t.note || '!' WHERE t.id = 7 AND note LIKE '100\\%%' RETURNING *"), "1", "rows")
        same(call("UPDATE %s SET note = 'x' WHERE id = 8"), "0", "rows")
        leaf = stock.leaf("spoken", "7::bigint")
        node = stock.nodes[leaf % 2]
        same(node.psql(f"SELECT string_agg(note, ',' ORDER BY note) FROM spoken_{leaf}"), "100%!,b,é%s", "notes")
        same(call("DELETE FROM %s WHERE id = 7 AND EXISTS (SELECT FROM %1$s s WHERE s.id = 7)"), "3", "rows")
        # Longer than the buffers of a socket, there and back.
        same(call("INSERT INTO %s VALUES (7, '" + "é" * 3000000 + "') RETURNING *"), "1", "rows of a long text")
        same(node.psql(f"SELECT length(note) FROM spoken_{leaf}"), "3000000", "length")
    stock.drop("spoken")


def routing(stock):
    stock.start()
    by_types(stock)
    by_casts(stock)
    by_range(stock)
    by_text(stock)
