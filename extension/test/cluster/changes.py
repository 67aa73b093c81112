"""What is cached is dropped when it changes, in whichever session."""

from server import eventually
from stock import expect, insert, same


def changes(stock):
    stock.start().table("moved")
    main = stock.coordinator
    a, b = stock.nodes
    value = stock.ids_on("moved", a)[0]
    leaf = stock.leaf("moved", f"{value}::bigint")
    bound = f"FOR VALUES WITH (MODULUS 4, REMAINDER {leaf})"

    def rows(node, table=f"moved_{leaf}", database="postgres"):
        return int(node.psql(f"SELECT count(*) FROM {table}", database))

    with stock.session() as session:
        def send(wanted="1"):
            got = session.run(insert("moved", value))
            expect(got, wanted) if wanted != "1" else same(got, "1", "rows")

        send()
        # Another name on the node.
        a.psql(f"ALTER TABLE moved_{leaf} RENAME TO renamed")
        send("42P01")
        main.psql(f"ALTER FOREIGN TABLE moved_{leaf} OPTIONS (ADD table_name 'renamed')")
        send()
        same(rows(a, "renamed"), 2, "renamed")
        a.psql(f"ALTER TABLE renamed RENAME TO moved_{leaf}")
        main.psql(f"ALTER FOREIGN TABLE moved_{leaf} OPTIONS (DROP table_name)")
        send()
        # Another database, then another server, under the same name.
        a.psql("CREATE DATABASE second")
        a.psql(f"CREATE TABLE moved_{leaf} (id bigint, note text)", "second")
        main.psql("ALTER SERVER a OPTIONS (SET dbname 'second')")
        send()
        same(rows(a, database="second"), 1, "the other database")
        main.psql("ALTER SERVER a OPTIONS (SET dbname 'postgres')")
        b.psql(f"CREATE TABLE moved_{leaf} (id bigint, note text)")
        # Not in the middle of a transaction, which is where it is.
        session.do("BEGIN;")
        send()
        main.psql(f"ALTER SERVER a OPTIONS (SET host '{b.directory}')")
        send()
        session.do("COMMIT;")
        same((rows(a), rows(b)), (5, 0), "in a transaction")
        send()
        same((rows(a), rows(b)), (5, 1), "the next transaction")
        main.psql(f"ALTER SERVER a OPTIONS (SET host '{a.directory}')")
        # Another user.
        main.psql("ALTER USER MAPPING FOR postgres SERVER a OPTIONS (SET user 'missing')")
        send("08001")
        main.psql("ALTER USER MAPPING FOR postgres SERVER a OPTIONS (SET user 'postgres')")
        send()
        # A leaf that is detached, and another in its place.
        main.psql(f"ALTER TABLE moved DETACH PARTITION moved_{leaf}")
        send("23514")
        main.psql(f"ALTER TABLE moved ATTACH PARTITION moved_{leaf} {bound}")
        send()
        main.psql(f"ALTER TABLE moved DETACH PARTITION moved_{leaf}; CREATE TABLE local_leaf PARTITION OF moved {bound}")
        send()
        same((rows(main, "local_leaf"), rows(a)), (1, 7), "a local leaf")
        main.psql("ALTER TABLE local_leaf RENAME TO other_leaf; CREATE TABLE local_leaf (id bigint, note text)")
        send()
        same((rows(main, "other_leaf"), rows(main, "local_leaf")), (2, 0), "a local leaf of another name")
        main.psql(f"DROP TABLE local_leaf; DROP TABLE other_leaf; ALTER TABLE moved ATTACH PARTITION moved_{leaf} {bound}")
        # A schema of another name: what the table is called on the node follows, unless it has an option.
        main.psql("CREATE SCHEMA old; CREATE TABLE old.part (id int) PARTITION BY LIST (id);"
                  "CREATE FOREIGN TABLE old.part_1 PARTITION OF old.part DEFAULT SERVER a")
        a.psql("CREATE SCHEMA old; CREATE TABLE old.part_1 (id int)")
        same(session.run("SELECT inrush.distribute_dml('old.part', 1, 'INSERT INTO %s VALUES (1)');"), "1", "rows")
        main.psql("ALTER SCHEMA old RENAME TO new")
        a.psql("ALTER SCHEMA old RENAME TO new")
        same(session.run("SELECT inrush.distribute_dml('new.part', 1, 'INSERT INTO %s VALUES (1)');"), "1", "rows")
        # The key of another type.
        main.psql("DROP TABLE new.part; CREATE TABLE new.part (id text) PARTITION BY LIST (id);"
                  "CREATE FOREIGN TABLE new.part_1 PARTITION OF new.part DEFAULT SERVER a")
        same(session.run("SELECT inrush.distribute_dml('new.part', 'x', 'INSERT INTO %s VALUES (1)');"), "1", "rows")
        # A connection that breaks while nobody uses it is made again, and one in use is an error.
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml'"
        gone = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml'"
        a.psql(kill)
        eventually("it is gone", lambda: a.psql(gone) == "0")
        send()
        session.do("BEGIN;")
        send()
        a.psql(kill)
        eventually("it is gone", lambda: a.psql(gone) == "0")
        expect(session.run(insert("moved", value)), "57P01")
        session.do("ROLLBACK;")
        send()
        same(rows(a), 9, "rows")
        # A server that restarts.
        a.stop()
        send("08001")
        a.start()
        send()
        same(rows(a), 10, "rows")
        # Dropped.
        main.psql("DROP TABLE new.part; DROP SCHEMA new")
        expect(session.run("SELECT inrush.distribute_dml('new.part', 'x', 'INSERT INTO %s VALUES (1)');"), "ERROR")
    a.psql("DROP SCHEMA new CASCADE")
    a.psql("DROP DATABASE second WITH (FORCE)")
    b.psql(f"DROP TABLE moved_{leaf}")
    stock.drop("moved")
