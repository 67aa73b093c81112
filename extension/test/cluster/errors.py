"""What is refused, with its SQLSTATE and hint: compared with errors.out."""

import os
import re

from server import Flaw

SETUP = """
CREATE TABLE plain (id int);
CREATE TABLE two_keys (a int, b int) PARTITION BY HASH (a, b);
CREATE TABLE by_expression (a int) PARTITION BY HASH ((a + 1));
CREATE TABLE by_other (a int, b int) PARTITION BY RANGE (a);
CREATE TABLE by_other_1 PARTITION OF by_other FOR VALUES FROM (0) TO (10) PARTITION BY LIST (b);
CREATE TABLE by_other_11 PARTITION OF by_other_1 FOR VALUES IN (1);
CREATE TABLE gaps (id int, note text) PARTITION BY HASH (id);
CREATE TABLE gaps_0 PARTITION OF gaps FOR VALUES WITH (MODULUS 2, REMAINDER 0);
CREATE TABLE empty (id int) PARTITION BY LIST (id);
CREATE TABLE secured (id int) PARTITION BY RANGE (id);
CREATE TABLE secured_1 PARTITION OF secured DEFAULT;
ALTER TABLE secured ENABLE ROW LEVEL SECURITY;
ALTER TABLE secured FORCE ROW LEVEL SECURITY;
CREATE ROLE writer;
GRANT ALL ON secured TO writer;
CREATE TABLE triggered (id int) PARTITION BY RANGE (id);
CREATE TABLE triggered_1 PARTITION OF triggered DEFAULT;
CREATE FUNCTION nothing() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END';
CREATE TRIGGER once AFTER INSERT ON triggered FOR EACH STATEMENT EXECUTE FUNCTION nothing();
CREATE TABLE ruled (id int) PARTITION BY RANGE (id);
CREATE TABLE ruled_1 PARTITION OF ruled DEFAULT;
CREATE RULE never AS ON DELETE TO ruled DO INSTEAD NOTHING;
CREATE VIEW seen AS SELECT 1 AS id;
CREATE TABLE short (id varchar(3)) PARTITION BY LIST (id);
CREATE TABLE short_1 PARTITION OF short DEFAULT;
CREATE FOREIGN DATA WRAPPER dummy;
CREATE SERVER elsewhere FOREIGN DATA WRAPPER dummy;
CREATE TABLE odd (id int) PARTITION BY LIST (id);
CREATE FOREIGN TABLE odd_1 PARTITION OF odd DEFAULT SERVER elsewhere;
CREATE SERVER nowhere FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '/nowhere', port '1');
CREATE USER MAPPING FOR postgres SERVER nowhere;
CREATE TABLE unreached (id int) PARTITION BY LIST (id);
CREATE FOREIGN TABLE unreached_1 PARTITION OF unreached FOR VALUES IN (1) SERVER nowhere;
CREATE SERVER unmapped FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '/nowhere');
CREATE FOREIGN TABLE unreached_2 PARTITION OF unreached FOR VALUES IN (2) SERVER unmapped;
CREATE FOREIGN TABLE unreached_3 PARTITION OF unreached FOR VALUES IN (3) SERVER a OPTIONS (updatable 'false');
CREATE FOREIGN TABLE unreached_4 PARTITION OF unreached FOR VALUES IN (4) SERVER a OPTIONS (table_name 'missing', schema_name 'public');
CREATE FOREIGN TABLE unreached_5 PARTITION OF unreached FOR VALUES IN (5) SERVER a;
CREATE TRIGGER each AFTER INSERT ON unreached_5 FOR EACH ROW EXECUTE FUNCTION nothing();
CREATE FOREIGN TABLE unreached_6 PARTITION OF unreached FOR VALUES IN (6) SERVER a OPTIONS (schema_name 'pg_catalog', table_name 'pg_class');
"""

# Statements, or table, value and text of a call.
CASES = [
    "-- The text.",
    ("gaps", "1", "SELECT * FROM %s"),
    ("gaps", "1", "WITH x AS (SELECT 1) INSERT INTO %s SELECT * FROM x"),
    ("gaps", "1", "inserted INTO %s"),
    ("gaps", "1", "/* INSERT */ TRUNCATE %s"),
    ("gaps", "1", ""),
    ("gaps", "1", "INSERT INTO gaps VALUES (1)"),
    ("gaps", "1", "INSERT INTO %s VALUES (1, 'é 100%')"),
    ("gaps", "1", "INSERT INTO %2$s VALUES (1)"),
    ("gaps", "1", "INSERT INTO %I VALUES (1)"),
    ("gaps", "1", "INSERT INTO %-10s VALUES (1)"),
    ("gaps", "1", "INSERT INTO %s VALUES (1) %"),
    ("gaps", "1", "INSERT INTO %s VALUES (1); DROP TABLE plain"),
    ("unreached", "4", "INSERT INTO %s VALUES (1); DROP TABLE plain"),
    ("unreached", "4", "INSERT INTO %s VALUES (1)"),
    ("unreached", "6", "INSERT INTO %s VALUES (1, 2"),
    "SELECT inrush.distribute_dml('gaps', 1, NULL)",
    "SELECT inrush.distribute_dml(NULL, 1, 'INSERT INTO %s VALUES (1)')",
    "-- The table.",
    ("plain", "1", "INSERT INTO %s VALUES (1)"),
    ("seen", "1", "INSERT INTO %s VALUES (1)"),
    ("two_keys", "1", "INSERT INTO %s VALUES (1)"),
    ("by_expression", "1", "INSERT INTO %s VALUES (1)"),
    ("by_other", "1", "INSERT INTO %s VALUES (1, 1)"),
    ("triggered", "1", "INSERT INTO %s VALUES (1)"),
    ("ruled", "1", "DELETE FROM %s"),
    "SELECT inrush.distribute_dml(1::oid::regclass, 1, 'INSERT INTO %s VALUES (1)')",
    "SET ROLE writer",
    ("secured", "1", "INSERT INTO %s VALUES (1)"),
    "RESET ROLE",
    "-- The value.",
    ("gaps", "4", "INSERT INTO %s VALUES (4)"),
    ("gaps", "NULL", "INSERT INTO %s VALUES (2)"),
    ("gaps", "NULL::int", "INSERT INTO %s VALUES (2)"),
    ("gaps", "'x'", "INSERT INTO %s VALUES (2)"),
    ("gaps", "3000000000", "INSERT INTO %s VALUES (2)"),
    ("gaps", "true", "INSERT INTO %s VALUES (2)"),
    ("gaps", "now()", "INSERT INTO %s VALUES (2)"),
    ("gaps", "ARRAY[1]", "INSERT INTO %s VALUES (2)"),
    ("gaps", "ROW(1)", "INSERT INTO %s VALUES (2)"),
    ("short", "'four'::text", "INSERT INTO %s VALUES ('four')"),
    ("empty", "1", "INSERT INTO %s VALUES (1)"),
    "-- Nodes.",
    ("odd", "1", "INSERT INTO %s VALUES (1)"),
    ("unreached", "2", "INSERT INTO %s VALUES (2)"),
    ("unreached", "3", "INSERT INTO %s VALUES (3)"),
    ("unreached", "5", "INSERT INTO %s VALUES (5)"),
    ("unreached", "9", "INSERT INTO %s VALUES (9)"),
    "-- The transaction.",
    "BEGIN READ ONLY",
    ("gaps", "1", "INSERT INTO %s VALUES (1)"),
    "ROLLBACK",
]


def errors(stock):
    stock.start()
    main = stock.coordinator
    main.psql(SETUP)
    transcript = ""
    with stock.session() as session:
        session.run("\\set VERBOSITY verbose")
        for case in CASES:
            text = case
            if not isinstance(case, str):
                table, value, dml = case
                text = f"SELECT inrush.distribute_dml('{table}', {value}, $q${dml}$q$)"
            transcript += f"{text}\n"
            if text.startswith("--"):
                continue
            said = session.run(f"{text};")
            # PostgreSQL's own, and not the same in all versions.
            said = re.sub("(user mapping not found).*", "\\1", said)
            # Where in our source, and psql's own arrow.
            transcript += "".join(f"    {line}\n" for line in said.split("\n")
                                  if line and not re.match(r"LOCATION:|LINE \d|\s+\^", line))
    # The path of the socket, and how connecting fails, are not the same everywhere.
    with stock.session() as session:
        session.run("\\set VERBOSITY verbose")
        said = session.run("SELECT inrush.distribute_dml('unreached', 1, 'INSERT INTO %s VALUES (1)');")
        transcript += f"-- A node that is not there.\n    {said.splitlines()[0]}\n"
    for table in ("plain", "two_keys", "by_expression", "by_other", "gaps", "empty", "secured", "triggered", "ruled", "short",
                  "odd", "unreached"):
        main.psql(f"DROP TABLE {table}")
    main.psql("DROP VIEW seen; DROP SERVER elsewhere; DROP FOREIGN DATA WRAPPER dummy; DROP SERVER nowhere CASCADE;"
              "DROP SERVER unmapped; DROP FUNCTION nothing; DROP ROLE writer")
    path = os.path.join(stock.here, "cluster", "errors.out")
    if os.environ.get("ACCEPT"):
        with open(path, "w", encoding="utf-8") as file:
            file.write(transcript)
    with open(path, encoding="utf-8") as file:
        wanted = file.read()
    if transcript != wanted:
        with open("errors.out", "w", encoding="utf-8") as file:
            file.write(transcript)
        got, wanted = transcript.split("\n"), wanted.split("\n")
        raise Flaw("\n".join(f"- {a}\n+ {b}" for a, b in zip(wanted, got) if a != b)[:3000])
