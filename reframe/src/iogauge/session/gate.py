"""A gate that guards itself: a run that decided nothing does not pass."""

from __future__ import annotations

import atexit
import contextlib
import os
import sys

from iogauge.session.current import current, is_gate, runs_cases


def guard_gate() -> None:
    """As a gate, make a run end with status 1 unless a case passed and no case failed on the way.

    ReFrame itself ends with 0 if it selected nothing, or if a retry passed after a failure. Called
    when the site configuration is loaded: exit handlers run in reverse order, so this one is last.
    """
    if not is_gate() or not runs_cases(sys.argv[1:]):
        return
    session = current()

    def refuse() -> None:
        if session.failed or not session.passed:
            reason = (
                f"{session.failed} case(s) did not pass at first"
                if session.failed
                else "no case was measured and passed. Expected at least one: check the options -n, "
                "-t, -c and --system, and see what 'reframe -c checks/ -l' lists"
            )
            print(f"iogauge: FAILED: this run is a gate and {reason}", file=sys.stderr)
            session.clean()
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(1)

    atexit.register(refuse)
