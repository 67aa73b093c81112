"""What nodes do is part of the caller's transaction, and of its savepoints."""

from stock import expect, insert, same


def commit_and_rollback(stock, session):
    a, b = (stock.ids_on("bound", node)[0] for node in stock.nodes)
    same(session.run(insert("bound", a)), "1", "rows")
    same(stock.count("bound"), 1, "by itself")
    session.do("BEGIN;")
    session.run(insert("bound", a, "y"))
    session.run(insert("bound", b, "y"))
    same(stock.count("bound"), 1, "not committed yet")
    session.do("ROLLBACK;")
    same(stock.count("bound"), 1, "rolled back")
    # What a transaction has written it sees, on the same node.
    session.do("BEGIN;")
    session.run(insert("bound", a, "y"))
    same(session.run(f"SELECT inrush.distribute_dml('bound', {a}::bigint, 'DELETE FROM %s WHERE note = ''y''');"), "1",
         "rows seen")
    session.do("COMMIT;")
    same(stock.count("bound"), 1, "committed")
    # An error of the node is one of the transaction, with its SQLSTATE.
    session.do("BEGIN;")
    session.run(insert("bound", a, "y"))
    expect(session.run(f"SELECT inrush.distribute_dml('bound', {a}::bigint, 'INSERT INTO %s VALUES (1/0)');"), "22012")
    expect(session.run(insert("bound", a, "y")), "25P02")
    session.run("COMMIT;")
    same(stock.count("bound"), 1, "failed")
    # Several calls in one statement, one of which fails.
    expect(session.run(f"SELECT inrush.distribute_dml('bound', i, 'INSERT INTO %s VALUES (1, (1/(' || i || ' - {b}))::text)')"
                       f" FROM unnest('{{{a},{b}}}'::bigint[]) i;"), "22012")
    same(stock.count("bound"), 1, "failed statement")
    # A constraint that is looked at when the node commits.
    node = stock.nodes[0]
    for leaf in (0, 2):
        node.psql(f"ALTER TABLE bound_{leaf} ADD UNIQUE (id, note) DEFERRABLE INITIALLY DEFERRED")
    session.do("BEGIN;")
    session.run(insert("bound", a, "z"))
    session.run(insert("bound", a, "z"))
    expect(session.run("COMMIT;"), "23505")
    same(session.run("SELECT 1;"), "1", "a session that goes on")
    same(stock.count("bound"), 1, "refused at commit")
    for leaf in (0, 2):
        node.psql(f"ALTER TABLE bound_{leaf} DROP CONSTRAINT bound_{leaf}_id_note_key")
    expect(session.run("BEGIN; " + insert("bound", a) + " PREPARE TRANSACTION 'not ours';"), "0A000")
    same(stock.count("bound"), 1, "refused to prepare")


def savepoints(stock, session):
    a, b = (stock.ids_on("bound", node)[0] for node in stock.nodes)
    for node in stock.nodes:
        for leaf in range(4):
            node.psql(f"TRUNCATE bound_{leaf}", check=False)

    def notes():
        found = []
        for leaf in range(4):
            found += [note for note, in stock.nodes[leaf % 2].rows(f"SELECT note FROM bound_{leaf}")]
        return sorted(found)

    session.do("BEGIN;")
    session.run(insert("bound", a, "a1"))
    session.do("SAVEPOINT one;")
    session.run(insert("bound", a, "a2"))
    session.run(insert("bound", b, "b2"))          # Begun on this node within the savepoint.
    session.do("SAVEPOINT two;")
    session.run(insert("bound", a, "a3"))
    session.do("ROLLBACK TO two;")
    session.run(insert("bound", b, "b3"))
    session.do("RELEASE two;")
    session.run(insert("bound", b, "b4"))
    session.do("ROLLBACK TO one;")
    session.run(insert("bound", a, "a5"))
    session.do("SAVEPOINT three;")
    session.run(insert("bound", b, "b5"))
    session.do("RELEASE three;")
    session.do("COMMIT;")
    same(notes(), ["a1", "a5", "b5"], "savepoints")
    # An error behind a savepoint, and on with the transaction.
    session.do("BEGIN;")
    session.run(insert("bound", a, "a6"))
    session.do("SAVEPOINT one;")
    session.run(insert("bound", a, "a7"))
    expect(session.run(f"SELECT inrush.distribute_dml('bound', {a}::bigint, 'INSERT INTO %s VALUES (1/0)');"), "22012")
    session.do("ROLLBACK TO one;")
    session.run(insert("bound", a, "a8"))
    # First on its node, and fails there.
    session.do("SAVEPOINT four;")
    expect(session.run(f"SELECT inrush.distribute_dml('bound', {b}::bigint, 'INSERT INTO %s VALUES (1/0)');"), "22012")
    session.do("ROLLBACK TO four;")
    session.do("COMMIT;")
    same(notes(), ["a1", "a5", "a6", "a8", "b5"], "error behind a savepoint")
    # Blocks of PL/pgSQL with a handler.
    session.do(f"""DO $$ BEGIN
        FOR i IN 1 .. 4 LOOP
            BEGIN
                PERFORM inrush.distribute_dml('bound', {a}::bigint, format('INSERT INTO %%s VALUES ({a}, %L)', 'p' || i));
                PERFORM inrush.distribute_dml('bound', {b}::bigint, format('INSERT INTO %%s VALUES ({b}, (%s/(%s-2))::text)', i, i));
            EXCEPTION WHEN division_by_zero THEN NULL;
            END;
        END LOOP;
    END $$;""")
    same([note for note in notes() if note[0] == "p"], ["p1", "p3", "p4"], "handlers")
    same(len(notes()), 5 + 6, "rows of handlers")


def settings(stock, session):
    """A text means there what it means here."""
    a, b = (stock.ids_on("bound", node)[0] for node in stock.nodes)
    node = stock.nodes[0]
    leaf = stock.leaf("bound", f"{a}::bigint")

    def stored(expression):
        session.run(f"SELECT inrush.distribute_dml('bound', {a}::bigint, $q$INSERT INTO %s VALUES ({a}, ({expression})::text)$q$);")

    def last():
        return node.psql(f"SELECT note FROM bound_{leaf} ORDER BY ctid DESC LIMIT 1")

    node.psql("CREATE SCHEMA other; CREATE FUNCTION other.whose() RETURNS text LANGUAGE sql AS 'SELECT ''other''';"
              "CREATE FUNCTION public.whose() RETURNS text LANGUAGE sql AS 'SELECT ''public'''")
    session.do("SET DateStyle = 'ISO, DMY';")
    stored("date '02/03/2024'")
    same(last(), "2024-03-02", "DateStyle")
    session.do("SET DateStyle = 'ISO, MDY'; SET TimeZone = 'Asia/Tokyo';")
    stored("timestamptz '02/03/2024 12:00' AT TIME ZONE 'UTC'")
    same(last(), "2024-02-03 03:00:00", "TimeZone")
    session.do("SET standard_conforming_strings = off; SET escape_string_warning = off;")
    stored("'a\\\\b'")
    same(last(), "a\\b", "standard_conforming_strings")
    session.do("RESET ALL; BEGIN; SET LOCAL search_path = other, public;")
    stored("whose()")
    session.do("SAVEPOINT s; SET LOCAL search_path = public;")
    stored("whose()")
    session.do("ROLLBACK TO s;")
    stored("whose()")
    session.do("SET LOCAL search_path = public;")
    stored("whose()")
    session.do("COMMIT;")
    stored("whose()")
    same([note for note, in node.rows(f"SELECT note FROM bound_{leaf} WHERE note IN ('other', 'public') ORDER BY ctid")],
         ["other", "other", "public", "public"], "search_path")
    stored("current_setting('lock_timeout')")
    same(last(), "10s", "lock_timeout")
    session.do("SET inrush_dml.lock_timeout = '1234ms';")
    stored("current_setting('lock_timeout') || current_setting('application_name')")
    same(last(), "1234msinrush distribute_dml", "lock_timeout that was set")
    for level in ("repeatable read", "serializable"):
        session.do(f"BEGIN ISOLATION LEVEL {level};")
        stored("current_setting('transaction_isolation')")
        session.do("COMMIT;")
        same(last(), level, "isolation")


def transactions(stock):
    stock.start().table("bound")
    with stock.session() as session:
        commit_and_rollback(stock, session)
        savepoints(stock, session)
        settings(stock, session)
    stock.drop("bound")
    same(stock.prepared(), 0, "prepared transactions")
