"""One test: what it found, and the line that says so."""

import time
import traceback

from server import Flaw, Skipped, started


def run(name, tests, kit, ended=lambda passed: None):
    """Whether it passed or could not be run, which "ended" is told before the line is printed."""
    began = time.monotonic()
    kit.notes.clear()
    state, what = "ok", ""
    try:
        tests[name](kit)
        if flaws := [f"{server.name}: {line}" for server in started for line in server.flaws()]:
            raise Flaw("\n".join(flaws[:5]))
    except Skipped as why:
        state, what = "SKIPPED:", f": {why}"
    except Flaw as flaw:
        state, what = "not ok", f"\n{flaw}"
    except Exception:  # The next test can be run nevertheless.
        state, what = "not ok", f"\n{traceback.format_exc()}"
    ended(state != "not ok")
    if kit.notes:
        what = f" ({'; '.join(kit.notes)}){what}"
    dash = " " if state == "SKIPPED:" else " - "
    print(f"{state}{dash}{name} {int((time.monotonic() - began) * 1000)} ms{what}", flush=True)
    return state != "not ok"
