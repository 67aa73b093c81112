"""Several nodes commit together, whatever dies in between."""

import os
import signal

from server import eventually
from stock import expect, insert, same

RECORDS = "SELECT count(*) FROM inrush.dml_transactions"


def write_both(stock, session, note="x"):
    session.do("BEGIN;")
    for node in stock.nodes:
        session.run(insert("two", stock.ids_on("two", node)[0], note))


def notes(stock):
    found = []
    for leaf in range(4):
        found += [note for note, in stock.nodes[leaf % 2].rows(f"SELECT note FROM two_{leaf}")]
    return sorted(found)


def backend(node):
    """The process of ours on a node that has a transaction open."""
    return int(node.psql("SELECT pid FROM pg_stat_activity WHERE application_name = 'inrush distribute_dml'"
                         " AND state <> 'idle'"))


def restarted(stock, session):
    """Kills the backend of the session, whereupon the coordinator recovers."""
    main = stock.coordinator
    main.killed = True
    os.kill(session.pid, signal.SIGKILL)
    session.close()
    # Its entry is there until then.
    eventually("the coordinator recovers", lambda: main.psql(
        f"SELECT count(*) FROM pg_stat_activity WHERE pid = {session.pid}", check=False) == "0")
    # It has not read its settings again, and what hangs there may be a matter of them.
    main.psql("SELECT pg_reload_conf()")
    eventually("no standby is waited for", lambda: main.psql("SHOW synchronous_standby_names") == "")


def together(stock):
    main = stock.coordinator
    with stock.session() as session:
        write_both(stock, session, "1")
        session.do("COMMIT;")
        same(notes(stock), ["1", "1"], "committed")
        same(main.psql(RECORDS), "2", "records")
        # The records of one go with the next.
        write_both(stock, session, "2")
        session.do("COMMIT;")
        same(main.psql(RECORDS), "2", "records")
        same(stock.resolve(), [], "nothing to resolve")
        same(main.psql(RECORDS), "0", "records")
        # One node needs none, nor does one that was rolled back.
        a, b = (stock.ids_on("two", node)[0] for node in stock.nodes)
        session.run(insert("two", a, "3"))
        session.do("BEGIN;")
        session.run(insert("two", a, "3"))
        session.do("SAVEPOINT s;")
        session.run(insert("two", b, "no"))
        session.do("ROLLBACK TO s;")
        session.do("COMMIT;")
        same(main.psql(RECORDS), "0", "records of one node")
        # With something written here it does.
        session.do("CREATE TABLE here (i int); BEGIN; INSERT INTO here VALUES (1);")
        session.run(insert("two", a, "4"))
        session.do("COMMIT;")
        same(main.psql(RECORDS), "1", "records of a node and here")
        session.do("DROP TABLE here;")
        # Refused by one node when it prepares: neither has it.
        stock.nodes[1].psql("ALTER TABLE two_1 ADD UNIQUE (id, note) DEFERRABLE INITIALLY DEFERRED;"
                            "ALTER TABLE two_3 ADD UNIQUE (id, note) DEFERRABLE INITIALLY DEFERRED")
        before = notes(stock)
        write_both(stock, session, "2")
        expect(session.run("COMMIT;"), "23505")
        same(notes(stock), before, "refused by one")
        for leaf in (1, 3):
            stock.nodes[1].psql(f"ALTER TABLE two_{leaf} DROP CONSTRAINT two_{leaf}_id_note_key")
        same(stock.prepared(), 0, "prepared")
        same(main.psql(RECORDS), "1", "records")
    # The last record goes with the session.
    eventually("no record is left", lambda: main.psql(RECORDS) == "0")


def no_slots(stock):
    node = stock.nodes[1]
    node.stop()
    node.start(max_prepared_transactions="0")
    before = notes(stock)
    with stock.session() as session:
        write_both(stock, session, "never")
        session.run("\\set VERBOSITY default")
        said = session.run("COMMIT;")
        expect(said, "prepared transactions are disabled", "max_prepared_transactions on node \"b\"")
        same(session.run("\\echo :LAST_ERROR_SQLSTATE"), "53400", "SQLSTATE")
        same(notes(stock), before, "refused")
        # One node alone commits as ever.
        same(session.run(insert("two", stock.ids_on("two", node)[0], "alone")), "1", "rows")
    same(stock.prepared(), 0, "prepared")
    node.stop()
    node.start(max_prepared_transactions="10")
    same(len(notes(stock)), len(before) + 1, "alone")


def lost_before(stock):
    """A node that dies before it is asked to prepare."""
    node = stock.nodes[1]
    before = notes(stock)
    with stock.session() as session:
        write_both(stock, session, "never")
        node.psql(f"SELECT pg_terminate_backend({backend(node)})")
        expect(session.run("COMMIT;"), "ERROR")
        same(notes(stock), before, "rolled back")
        # And one that dies between two statements takes what it has done with it.
        write_both(stock, session, "never")
        node.psql(f"SELECT pg_terminate_backend({backend(node)})")
        session.do("SAVEPOINT s;")
        session.run(insert("two", stock.ids_on("two", node)[0], "never"))
        session.run("ROLLBACK TO s;")
        expect(session.run("COMMIT;"), "08006")
        same(notes(stock), before, "rolled back")
        # The next transaction makes a new connection.
        write_both(stock, session, "after")
        session.do("COMMIT;")
    same(len(notes(stock)), len(before) + 2, "after")
    same(stock.prepared(), 0, "prepared")


def killed_undecided(stock):
    """The session dies when one node has prepared and the other has not answered."""
    node = stock.nodes[1]
    before = notes(stock)
    session = stock.session()
    write_both(stock, session, "never")
    frozen = backend(node)
    os.kill(frozen, signal.SIGSTOP)
    session.send("COMMIT;")
    eventually("a has prepared", lambda: stock.prepared() == 1)
    same(stock.resolve(), [("a", "in progress")], "while it runs")
    restarted(stock, session)
    same(stock.resolve(), [("a", "rolled back")], "when it has died")
    # Only now the other node prepares.
    os.kill(frozen, signal.SIGCONT)
    eventually("b has prepared", lambda: stock.prepared() == 1)
    same(stock.resolve(), [("b", "rolled back")], "the other node")
    same(notes(stock), before, "rolled back")
    same(stock.coordinator.psql(RECORDS), "0", "records")


def hanging(stock):
    """Its commit has happened here, and waits for a standby that there is not: the nodes have not been told yet."""
    main = stock.coordinator
    main.psql("ALTER SYSTEM SET synchronous_standby_names = 'nobody'")
    main.psql("SELECT pg_reload_conf()")

    probe = stock.session()

    def commits_wait():
        probe.send("COMMENT ON TABLE two IS 'a commit';")
        return not probe.done(0.3)

    # Another process turns it on, some time after the reload.
    eventually("commits wait", commits_wait)
    probe.close()
    session = stock.session()
    write_both(stock, session, "yes")
    session.send("COMMIT;")
    eventually("it waits", lambda: main.psql(
        f"SELECT wait_event FROM pg_stat_activity WHERE pid = {session.pid}") == "SyncRep")
    same(stock.prepared(), 2, "prepared")
    main.psql("ALTER SYSTEM RESET synchronous_standby_names")
    return session


def killed_decided(stock):
    """The session dies when it has committed, before any node has."""
    main = stock.coordinator
    before = notes(stock)
    session = hanging(stock)
    # To others the transaction still runs, and its record is not there.
    restarted(stock, session)
    same(stock.prepared(), 2, "prepared")
    same(main.psql(RECORDS), "2", "records")
    # Nobody gives this away: not without rights.
    main.psql("CREATE ROLE nobody")
    with stock.session() as other:
        other.do("SET ROLE nobody;")
        expect(other.run("SELECT inrush.resolve_dml();"), "42501")
        expect(other.run("SELECT * FROM inrush.dml_transactions;"), "42501")
    main.psql("DROP ROLE nobody")
    # A node that cannot be looked at loses nothing.
    stock.nodes[1].stop("immediate")
    got = stock.resolve()
    same([(node, what.split(":")[0]) for node, what in got], [("a", "committed"), ("b", "failed")], "one node is away")
    same(main.psql(RECORDS), "1", "records")
    stock.nodes[1].start()
    same(stock.resolve(), [("b", "committed")], "when it is back")
    same(stock.resolve(), [], "once more")
    same(len(notes(stock)), len(before) + 2, "committed")
    same(main.psql(RECORDS), "0", "records")


def node_killed(stock):
    """A node dies between preparing and committing."""
    main = stock.coordinator
    before = notes(stock)
    session = hanging(stock)
    stock.nodes[1].kill()
    main.psql("SELECT pg_reload_conf()")
    expect(session.wait(), "WARNING:  08007")
    stock.nodes[1].start()
    same(stock.resolve(), [("b", "committed")], "the node is back")
    same(len(notes(stock)), len(before) + 2, "committed")
    # This session is none the worse for it.
    write_both(stock, session, "after")
    session.do("COMMIT;")
    session.close()
    same(stock.prepared(), 0, "prepared")


def no_record(stock):
    """Somebody has deleted the record of a transaction that has committed: that is for somebody to decide."""
    main = stock.coordinator
    session = hanging(stock)
    restarted(stock, session)
    main.psql("DELETE FROM inrush.dml_transactions")
    same(stock.resolve(), [("a", "unknown: no record"), ("b", "unknown: no record")], "no record")
    for node in stock.nodes:
        gid, = node.rows("SELECT gid FROM pg_prepared_xacts")[0]
        node.psql(f"ROLLBACK PREPARED '{gid}'")
    # Those of others are left alone.
    a = stock.nodes[0]
    a.psql("BEGIN; CREATE TABLE others (); PREPARE TRANSACTION 'inrush_dml_0123456789abcdef_5_7_0_1'")
    same(stock.resolve(), [], "another server's")
    a.psql("ROLLBACK PREPARED 'inrush_dml_0123456789abcdef_5_7_0_1'")


def twophase(stock):
    stock.start().table("two")
    for step in (together, no_slots, lost_before, killed_undecided, killed_decided, node_killed, no_record):
        # Records of sessions that have ended.
        same(stock.resolve(), [], "left")
        step(stock)
    stock.drop("two")


