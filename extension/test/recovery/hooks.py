"""Other libraries' hooks, below this one and above: what they see of a COPY, and who is refused because of it."""

import os

from loads import numbers
from server import Flaw, Session

UTILITY = "utility hook: COPY"
PERMISSIONS = "permissions hook: INSERT into narrow"


def hooks(kit):
    plain(kit)
    preloaded(kit, above=True)
    preloaded(kit, above=False)
    pgaudit(kit)


def copies(kit, session, form="inrush"):
    """One load of "narrow", and what the session says to it."""
    load = next(numbers)
    path = os.path.abspath(f"hooks-{load}")
    kit.write(path, "narrow", load)
    if form != "inrush":
        with open(path, "w", encoding="ascii") as file:
            file.writelines(f"{load}\t{i}\t{i * 7919}\n" for i in range(1, 12001))
    said = session.run(f"BEGIN;\n\\copy narrow from '{path}' (format {form})\nSELECT count(*) FROM narrow WHERE load = {load};"
                       "\nROLLBACK;")
    os.unlink(path)
    return said


def expect(what, said, seen, unseen=(), rows=True):
    lines = said.split("\n")
    flaws = [f"misses {line!r}" for line in seen if not any(line in there for there in lines)]
    flaws += [f"has {line!r}" for line in unseen if line in said]
    if rows and "12000" not in lines:
        flaws.append("its rows are not there")
    if flaws:
        raise Flaw(f"{what}: {'; '.join(flaws)}: {said}")


def refusal(session):
    return session.run("SELECT inrush.plan('narrow')->'refusal'->>'code';")


def refused(kit, session, what, code):
    if (there := refusal(session)) != code:
        raise Flaw(f"{what}: the plan's refusal is {there!r}")
    expect(what, copies(kit, session), ['table "narrow" does not take FORMAT inrush', f"{code}: "], rows=False)
    # And every other COPY goes on.
    expect(what, copies(kit, session, "text"), ())


def plain(kit):
    """Libraries that a session loads, before this one or after it."""
    server = kit.server("session")
    server.start()
    with Session(server) as session:
        expect("alone", copies(kit, session), (), [UTILITY])
        session.do("LOAD 'inrush_hooks';")
        for form in ("inrush", "text"):
            expect(f"above, {form}", copies(kit, session, form), [UTILITY, "utility hook: 12000 rows", PERMISSIONS])
    server.psql("ALTER ROLE postgres SET session_preload_libraries = 'inrush_hooks'")
    with Session(server) as session:
        # What pg_stat_statements does not count, as the documentation says.
        expect("below", copies(kit, session), [PERMISSIONS], [UTILITY])
        expect("below, text", copies(kit, session, "text"), [UTILITY, "utility hook: 12000 rows", PERMISSIONS])
        expect("below, TO", session.run("COPY (SELECT 7) TO STDOUT;"), [UTILITY, "7"], rows=False)
        # A hook that says no, as sepgsql's does, is obeyed.
        session.do("SET inrush_hooks.refuses = on;")
        for form in ("inrush", "text"):
            expect(f"refused, {form}", copies(kit, session, form), ["permissions hook: refused"], ["12000"], rows=False)
        session.do("RESET inrush_hooks.refuses;")
        expect("allowed again", copies(kit, session), [PERMISSIONS])
    server.psql("ALTER ROLE postgres SET inrush_hooks.audits = on")
    with Session(server) as session:
        refused(kit, session, "an auditor, and nothing preloaded", "audit")


def preloaded(kit, above):
    """With others in shared_preload_libraries: they see the statement if this one comes first there."""
    others = [name for name in ("pg_stat_statements", "auto_explain") if kit.has_library(name)]
    for name in {"pg_stat_statements", "auto_explain"} - set(others):
        kit.note(f"there is no {name}")
    libraries = ["inrush", "inrush_hooks", *others] if above else ["inrush_hooks", *others, "inrush"]
    what = ", ".join(libraries)
    server = kit.server("above" if above else "below")
    settings = {"auto_explain.log_min_duration": "0", "auto_explain.log_nested_statements": "on"} if others else {}
    server.start(shared_preload_libraries=",".join(libraries), **{"inrush_hooks.audits": "on"}, **settings)
    if "pg_stat_statements" in others:
        server.psql("CREATE EXTENSION pg_stat_statements")
    with Session(server) as session:
        if above:
            if said := refusal(session):
                raise Flaw(f"{what}: refused: {said}")
            expect(what, copies(kit, session), [UTILITY, "utility hook: 12000 rows", PERMISSIONS])
        else:
            refused(kit, session, what, "audit")
        expect(f"{what}, text", copies(kit, session, "text"), [UTILITY, "utility hook: 12000 rows", PERMISSIONS])
    if "pg_stat_statements" in others:
        counted = server.psql("SELECT string_agg(rows::text, ',') FROM pg_stat_statements WHERE query LIKE '%format inrush%'"
                              " AND query LIKE 'COPY%'")
        if counted != ("12000" if above else ""):
            raise Flaw(f"{what}: pg_stat_statements has {counted!r}")
        if server.psql("SELECT count(*) > 0 FROM pg_stat_statements WHERE query LIKE '%format text%'") != "t":
            raise Flaw(f"{what}: pg_stat_statements has no other COPY")
    if "auto_explain" in others:
        with open(server.log, encoding="utf-8", errors="replace") as file:
            if "SELECT count(*) FROM narrow WHERE load" not in file.read():
                raise Flaw(f"{what}: auto_explain has logged no plan")


def pgaudit(kit):
    """The auditor itself, where it is installed (Debian: postgresql-NN-pgaudit)."""
    if not kit.has_library("pgaudit"):
        kit.note("there is no pgaudit: only the one that stands for it was tested")
        return
    for libraries, code in (("pgaudit", "audit"), ("pgaudit,inrush", "audit"), ("inrush,pgaudit", "")):
        server = kit.server("pgaudit")
        server.start(shared_preload_libraries=libraries, **{"pgaudit.log": "all", "log_min_messages": "log"})
        with Session(server) as session:
            if code:
                refused(kit, session, libraries, code)
            else:
                if said := refusal(session):
                    raise Flaw(f"{libraries}: refused: {said}")
                expect(libraries, copies(kit, session), ())
        with open(server.log, encoding="utf-8", errors="replace") as file:
            audited = [line for line in file if "AUDIT:" in line and ",COPY," in line and "format inrush" in line]
        if not code and not audited:
            raise Flaw(f"{libraries}: the COPY is not in the audit log")
        server.stop()
