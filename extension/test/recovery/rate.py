"""How long a standby replays what sessions have loaded: figures, and no test."""

import time

from loads import TABLES
from server import Session, eventually
from standby import make_standby


# Of the same rows, in one COPY.
LOADS = 300


def rate(kit):
    primary = kit.server("rate")
    primary.start(shared_buffers="512MB", max_wal_size="8GB", wal_keep_size="8GB", wal_level="replica")
    copy = make_standby(primary, "replay", shared_buffers="512MB", max_wal_size="8GB")
    for table in TABLES:
        with Session(primary) as session:
            kit.load(session, table)
            copy.replayed(primary)
            copy.psql("SELECT pg_wal_replay_pause()")
            eventually("a pause", lambda: copy.psql("SELECT pg_get_wal_replay_pause_state()") == "paused")
            # The same rows again and again, one session.
            path, before = "rate-stream", primary.lsn()
            with open(path, "wb") as file:
                for load in range(LOADS):
                    file.write(kit.streams[table].of(-1 - load))
            began = time.monotonic()
            if said := session.run(f"\\copy {table} from '{path}' (format inrush)"):
                raise RuntimeError(said)
            loaded = time.monotonic() - began
            lsn = primary.lsn()
            written = int(primary.psql(f"SELECT '{lsn}'::pg_lsn - '{before}'::pg_lsn"))
            eventually("the standby has it", lambda: copy.psql(f"SELECT pg_last_wal_receive_lsn() >= '{lsn}'::pg_lsn") == "t"
                       or primary.psql("SELECT pg_switch_wal()") == "")
            began = time.monotonic()
            copy.psql("SELECT pg_wal_replay_resume()")
            eventually("replay", lambda: copy.psql(f"SELECT pg_last_wal_replay_lsn() >= '{lsn}'::pg_lsn") == "t")
            replayed = time.monotonic() - began
        kit.note(f"{table}: {LOADS * kit.streams[table].rows} rows, {written / 1e6:.0f} MB of WAL: loaded in {loaded:.2f} s,"
                 f" replayed in {replayed:.2f} s")
