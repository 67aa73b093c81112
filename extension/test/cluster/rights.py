"""Nobody gets more than the privileges on the table, and on the servers, give."""

from stock import expect, insert, same


def on_the_table(stock, session):
    main = stock.coordinator
    main.psql("CREATE ROLE clerk; CREATE ROLE auditor; CREATE ROLE other;"
              "GRANT INSERT ON owned TO clerk; GRANT USAGE ON FOREIGN SERVER a, b TO clerk, auditor;"
              "GRANT UPDATE, DELETE ON owned TO auditor;"
              "CREATE USER MAPPING FOR clerk SERVER a OPTIONS (user 'postgres', password_required 'false');"
              "CREATE USER MAPPING FOR clerk SERVER b OPTIONS (user 'postgres', password 'x')")
    a, b = (stock.ids_on("owned", node)[0] for node in stock.nodes)
    session.do("SET ROLE clerk;")
    same(session.run(insert("owned", a)), "1", "rows")
    expect(session.run(f"SELECT inrush.distribute_dml('owned', {a}::bigint, 'DELETE FROM %s');"), "42501")
    expect(session.run(f"SELECT inrush.distribute_dml('owned', {a}::bigint, '/* INSERT */ UPDATE %s SET id = 1');"), "42501")
    # A password that the node does not ask for is none; a superuser may say that it need not.
    expect(session.run(insert("owned", b)), "2F003")
    main.psql("ALTER USER MAPPING FOR clerk SERVER a OPTIONS (DROP password_required)")
    expect(session.run(insert("owned", a)), "2F003")
    main.psql("ALTER USER MAPPING FOR clerk SERVER a OPTIONS (ADD password_required 'false')")
    same(session.run(insert("owned", a)), "1", "rows")
    # Whoever may use a mapping may send what it lets him: that takes the right to use the server.
    main.psql("REVOKE USAGE ON FOREIGN SERVER a FROM clerk")
    expect(session.run(insert("owned", a)), "42501")
    main.psql("GRANT USAGE ON FOREIGN SERVER a TO clerk; REVOKE INSERT ON owned FROM clerk")
    expect(session.run(insert("owned", a)), "42501")
    main.psql("GRANT INSERT (note) ON owned TO clerk")
    expect(session.run(insert("owned", a)), "42501")
    session.do("RESET ROLE; SET ROLE auditor;")
    expect(session.run(insert("owned", a)), "42501")
    # No user mapping.
    expect(session.run(f"SELECT inrush.distribute_dml('owned', {a}::bigint, 'DELETE FROM %s');"), "42704")
    session.do("RESET ROLE; SET ROLE other;")
    # Nor does anybody without rights wait for a lock, or hold one.
    session.do("BEGIN;")
    expect(session.run(insert("owned", a)), "42501")
    same(main.psql(f"SELECT count(*) FROM pg_locks WHERE pid = {session.pid} AND relation = 'owned'::regclass"), "0", "locks")
    session.do("ROLLBACK; RESET ROLE;")
    same(stock.count("owned"), 2, "rows")


def as_somebody(stock, session):
    """Connections of one user are not used by another, in one transaction either."""
    main = stock.coordinator
    a = stock.ids_on("owned", stock.nodes[0])[0]
    main.psql("GRANT INSERT ON owned TO clerk")
    stock.nodes[0].psql("CREATE ROLE remote LOGIN; GRANT INSERT ON owned_0, owned_2 TO remote")
    main.psql("ALTER USER MAPPING FOR clerk SERVER a OPTIONS (SET user 'remote')")
    call = f"SELECT inrush.distribute_dml('owned', {a}::bigint, 'INSERT INTO %s VALUES ({a}, current_user)');"
    main.psql("CREATE FUNCTION as_owner() RETURNS bigint LANGUAGE sql SECURITY DEFINER SET search_path = pg_catalog, pg_temp"
              f" AS $q$ {call.replace('owned', 'public.owned')} $q$")
    session.do("SET ROLE clerk; BEGIN;")
    same(session.run(call), "1", "rows")
    same(session.run("SELECT as_owner();"), "1", "rows")
    same(session.run(call), "1", "rows")
    session.do("COMMIT; RESET ROLE;")
    found = []
    for leaf in (0, 2):
        found += stock.nodes[0].rows(f"SELECT note FROM owned_{leaf} WHERE note <> 'x'")
    same(sorted(found), [["postgres"], ["remote"], ["remote"]], "users")
    # What the remote user may not, the caller may not.
    session.do("SET ROLE clerk;")
    expect(session.run(f"SELECT inrush.distribute_dml('owned', {a}::bigint, 'INSERT INTO %s SELECT oid FROM pg_authid');"),
           "42501")
    session.do("RESET ROLE;")


def local_leaf(stock, session):
    """Where the leaf is here it is the caller who needs the rights on it."""
    main = stock.coordinator
    main.psql("CREATE TABLE at_home (id int) PARTITION BY LIST (id); CREATE TABLE at_home_1 PARTITION OF at_home DEFAULT;"
              "GRANT INSERT ON at_home TO clerk")
    session.do("SET ROLE clerk;")
    call = "SELECT inrush.distribute_dml('at_home', 1, 'INSERT INTO %s VALUES (1)');"
    expect(session.run(call), "42501")
    main.psql("GRANT INSERT ON at_home_1 TO clerk")
    same(session.run(call), "1", "rows")
    expect(session.run("SELECT inrush.distribute_dml('at_home', 1, 'INSERT INTO %s SELECT 1 FROM pg_authid');"), "42501")
    session.do("RESET ROLE;")
    main.psql("DROP TABLE at_home")


def row_security(stock, session):
    main = stock.coordinator
    a = stock.ids_on("owned", stock.nodes[0])[0]
    main.psql("ALTER TABLE owned ENABLE ROW LEVEL SECURITY; GRANT ALL ON owned TO clerk")
    same(session.run(insert("owned", a)), "1", "rows of the owner")
    session.do("SET ROLE clerk;")
    expect(session.run(insert("owned", a)), "42501")
    main.psql("ALTER TABLE owned DISABLE ROW LEVEL SECURITY")
    same(session.run(insert("owned", a)), "1", "rows")
    session.do("RESET ROLE;")


def rights(stock):
    stock.start().table("owned")
    with stock.session() as session:
        on_the_table(stock, session)
        as_somebody(stock, session)
        local_leaf(stock, session)
        row_security(stock, session)
    stock.drop("owned")
    stock.coordinator.psql("DROP FUNCTION as_owner; DROP OWNED BY clerk, auditor, other; DROP ROLE clerk, auditor, other")
