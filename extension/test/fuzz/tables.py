"""The tables that are loaded, each as a trap of its own kind, with queries whose rows are the first streams."""

# Beside every table {t} there are two more of the same making, into which COPY puts what came out of it.
PRELUDE = """
CREATE TYPE colour AS ENUM ('red', 'green', 'blue');
CREATE TYPE size AS ENUM ('small', 'LARGE');
CREATE DOMAIN price AS numeric(8,2) CHECK (VALUE > 0);
CREATE DOMAIN word AS text CHECK (VALUE <> '' AND length(VALUE) < 2500);
CREATE DOMAIN given AS int NOT NULL CHECK (VALUE < 1000000000);
CREATE DOMAIN warm AS colour CHECK (VALUE <> 'blue');
CREATE DOMAIN later AS date CHECK (VALUE >= '1900-01-01');
CREATE SEQUENCE counted;
"""

# Intervals, "char" and tsvector have values that binary COPY takes and whose text nobody can read in again: those of years
# beyond what interval_in() reads, bytes that are no character of the encoding, and empty words and
# words at position 0.
SAYABLE_SPAN = """abs(('x' || encode(substr(interval_send({c}), 1, 8), 'hex'))::bit(64)::bigint::numeric) < 1e17
 AND abs(('x' || encode(substr(interval_send({c}), 9, 4), 'hex'))::bit(32)::int::numeric) < 1e6
 AND abs(('x' || encode(substr(interval_send({c}), 13, 4), 'hex'))::bit(32)::int::numeric) < 1e6"""
SAYABLE_CHAR = "get_byte(charsend({c}), 0) BETWEEN 1 AND 127"
SAYABLE_WORDS = "'' <> ALL (tsvector_to_array({c})) AND {c}::text !~ '[:,]0'"


class Table:
    def __init__(self, name, make, query, columns=None, sayable=(), scans=(), normal=None, weight=4):
        self.name, self.make, self.query, self.columns = name, make, query, columns
        # Conditions under which the text of a row can be read in again.
        self.sayable = " AND ".join(f"coalesce({text.format(c=column)}, true)" for column, text in sayable) or "true"
        # The columns, where a receive function stores what it reads in the order in which it comes: tsvectorrecv()
        # sorts the entries, and leaves the words where they are.
        self.normal = normal
        # Conditions that an index answers.
        self.scans = scans
        self.weight = weight
        self.temporary = "TEMP TABLE" in make


TABLES = (
    Table("every", """CREATE TABLE {t} (b bool, i2 int2, c "char", i4 int4, n name, i8 int8, o oid, f4 float4, f8 float8,
        m money, d date, ts timestamp, tz timestamptz, t time, tt timetz, iv interval, u uuid, ma macaddr, ma8 macaddr8,
        l pg_lsn, p point, s text, v varchar, bp bpchar, y bytea, nu numeric, e colour)""",
          """SELECT i % 2 = 0, i::int2, 'x'::"char", i, ('name' || i)::name, i::bigint << 33, i::oid, (i / 3.0)::float4,
        (i / 7.0)::float8, i::money, date '2020-01-01' + i,
        timestamp '1999-12-31 23:59:59' + i * interval '1.5 s', timestamptz '2024-02-29 UTC',
        time '00:00' + i * interval '1 min', timetz '12:34:56.789+02', interval '1 year 2 days' * i, md5(i::text)::uuid,
        macaddr '08:00:2b:01:02:03', macaddr8 '08:00:2b:01:02:03:04:05', pg_lsn '16/B374D848', point(i, -i), 'text ' || i,
        repeat('v', i * 40)::varchar, 'bp  '::bpchar, decode(md5(i::text), 'hex'), (i * 1234.5678)::numeric,
        (enum_range(NULL::colour))[1 + i % 3] FROM generate_series(0, 7) i
        UNION ALL SELECT NULL, '1', NULL, '2', NULL, '3', NULL, NULL, 'NaN', NULL, 'infinity', NULL, '-infinity', NULL, NULL,
        NULL, NULL, NULL, NULL, NULL, NULL, 'é', NULL, NULL, NULL, 'NaN', NULL""",
          sayable=(("iv", SAYABLE_SPAN), ("c", SAYABLE_CHAR)), weight=8),
    Table("narrow", """CREATE TABLE {t} (id int PRIMARY KEY, n int, note text);
        CREATE INDEX ON {t} (n DESC NULLS LAST); CREATE INDEX ON {t} USING brin (id) WITH (pages_per_range = 1, autosummarize)""",
          "SELECT i, i % 5, CASE WHEN i % 3 > 0 THEN 'note ' || i END FROM generate_series(1, 60) i",
          scans=("id BETWEEN -1000 AND 1000", "n = 3", "n IS NULL")),
    Table("wide", """CREATE TABLE {t} (id int, a text, b bytea, c text, d varchar(9000), z numeric) WITH (fillfactor = 70);
        ALTER TABLE {t} ALTER c SET STORAGE PLAIN, ALTER b SET STORAGE EXTERNAL, ALTER d SET STORAGE MAIN""",
          """SELECT i, (SELECT string_agg(md5(i || ' ' || j), '') FROM generate_series(1, i * 7) j), 
        decode(repeat('00ff', i * 50), 'hex'), repeat('c', i * 30),
        CASE WHEN i % 3 = 0 THEN repeat('d', 1000 * i)::varchar END, i::numeric
        FROM generate_series(0, 9) i""", weight=5),
    Table("gaps", """CREATE TABLE {t} (g0 int, id int NOT NULL, g1 text, note text, g2 int8,
        at timestamp NOT NULL DEFAULT '2020-01-01', filled int DEFAULT 7, counted int DEFAULT nextval('counted') % 3,
        said text DEFAULT 'said');
        ALTER TABLE {t} DROP g0, DROP g1, DROP g2""",
          "SELECT i, CASE WHEN i % 2 = 0 THEN 'n' || i END, timestamp '2001-02-03' FROM generate_series(1, 9) i",
          columns=("id", "note", "at")),
    Table("gapless", """CREATE TABLE {t} (g0 int, id int NOT NULL, g1 text, note text, yes bool NOT NULL, g2 name);
        ALTER TABLE {t} DROP g0, DROP g1, DROP g2""",
          "SELECT i, CASE WHEN i % 2 = 0 THEN 'n' || i END, true FROM generate_series(1, 9) i"),
    Table("received", """CREATE TABLE {t} (id int, j jsonb, a int4[], ip inet, k json, r int4range, note text,
        bits varbit, five bit(5), box box, q tsvector, x text[])""",
          """SELECT i, jsonb_build_object('a', i, 'b', ARRAY[i, 2], 'c', NULL), ARRAY[i, NULL, 3],
        ('10.0.0.' || i || '/24')::inet,
        json_build_object('k', repeat('x', i * 30)), int4range(i, i + 5), 'note' || i, B'1010'::varbit, B'10101'::bit(5),
        box(point(0, i), point(i, 2)), to_tsvector('simple', 'a few words ' || i), ARRAY['é', NULL, repeat('y', i * 20)]
        FROM generate_series(0, 8) i UNION ALL SELECT '9', NULL, '{}', NULL, NULL, 'empty', NULL, B'', NULL, NULL, '', '{}'""",
          sayable=(("q", SAYABLE_WORDS),), normal="id, j, a, ip, k, r, note, bits, five, box, q || '', x"),
    Table("checked", """CREATE TABLE {t} (id given, p price, w word, e warm, l later, n int CHECK (n <> 13), s size,
        CHECK (n > 0 OR s IS NULL), UNIQUE (id, w)) WITH (fillfactor = 30);
        CREATE INDEX ON {t} (lower(w)) WHERE n > 2; CREATE INDEX ON {t} USING hash (w)""",
          """SELECT i::given, (i * 1.25 + 0.5)::price, ('word' || i)::word, 'red'::colour::warm, date '2000-01-01' + i, i,
        (enum_range(NULL::size))[1 + i % 2] FROM generate_series(1, 11) i""",
          scans=("lower(w) = 'word4' AND n > 2", "w = 'word5'", "id = 7"), weight=6),
    Table("leaf", """CREATE TABLE {t}_whole (id int, day date, note varchar(20)) PARTITION BY RANGE (day, id);
        CREATE TABLE {t} PARTITION OF {t}_whole FOR VALUES FROM ('2020-01-01', 0) TO ('2021-01-01', 0);
        CREATE INDEX ON {t}_whole USING brin (day)""",
          "SELECT i, date '2020-01-01' + i, ('note ' || i)::varchar FROM generate_series(0, 40) i",
          scans=("day BETWEEN '2020-01-10' AND '2020-01-20'",)),
    Table("scaled", """CREATE TABLE {t} (n numeric(10,3), whole numeric(4,0), far numeric(3,-2), frac numeric(3,5), v varchar(3),
        b char(4), ts timestamp(0), tz timestamptz(3), t time(2), tt timetz(1), n1 numeric(1000,500))""",
          """SELECT (i * 1.5)::numeric(10,3), i::numeric(4,0), (i * 1000)::numeric(3,-2), (i * 0.0001)::numeric(3,5),
        'v'::varchar(3), 'b'::char(4), timestamp '2000-01-01 00:00:01', timestamptz '2000-01-01 00:00:01.125 UTC',
        time '11:12:13.25',
        timetz '11:12:13.5-05',
        i::numeric(1000,500) FROM generate_series(0, 9) i""", weight=6),
    Table("many", "CREATE TABLE {t} (" + ", ".join(
        f"c{i} {('bool', 'int2', 'text', 'int8', 'char(1)', 'numeric')[i % 6]}" for i in range(70)) + ")",
          "SELECT " + ", ".join(
              (f"CASE WHEN i % 7 <> {i % 7} THEN i % 2 = 0 END", "i::int2",
               f"CASE WHEN i % 5 <> {i % 5} THEN 't' || i END", "i::int8", f"CASE WHEN i <> {i % 9} THEN 'c'::char(1) END",
               "i::numeric")[i % 6] for i in range(70))
          + " FROM generate_series(0, 8) i", weight=2),
    Table("most", "CREATE TABLE {t} (" + ", ".join(f"c{i} bool" for i in range(1600)) + ")",
          "SELECT " + ", ".join(f"CASE WHEN i <> {i % 3} THEN true END" for i in range(1600)) + " FROM generate_series(0, 3) i",
          weight=1),
    Table("long", "CREATE TABLE {t} (" + ", ".join(f"c{i} name" for i in range(140)) + ")",
          "SELECT " + ", ".join(f"CASE WHEN {i} < n THEN 'name'::name END" for i in range(140))
          + " FROM (VALUES (1), (29), (30), (31), (32), (120), (126)) v (n)", weight=1),
    Table("none", "CREATE TABLE {t} ()", "SELECT FROM generate_series(1, 5)", columns=(), weight=1),
    Table("unlogged", """CREATE UNLOGGED TABLE {t} (id int, note text); CREATE INDEX ON {t} (note) INCLUDE (id)""",
          "SELECT i, 'note ' || i % 7 FROM generate_series(1, 30) i", scans=("note = 'note 3'",), weight=2),
    Table("fleeting", "CREATE TEMP TABLE {t} (id int, note text); CREATE INDEX ON {t} (id)",
          "SELECT i, repeat('note ', i % 7) FROM generate_series(1, 30) i", scans=("id = 3",), weight=1),
    Table("excluded", """CREATE TABLE {t} (r int4range, p point, j jsonb, EXCLUDE USING gist (r WITH &&));
        CREATE INDEX ON {t} USING gin (j); CREATE INDEX ON {t} USING spgist (p)""",
          "SELECT int4range(i * 10, i * 10 + 5), point(i, i), jsonb_build_object('a', i) FROM generate_series(0, 9) i",
          scans=("r && int4range(10, 30)", "j @> '{\"a\": 4}'"), weight=3),
)
