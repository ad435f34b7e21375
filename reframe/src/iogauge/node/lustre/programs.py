"""``lfs`` and ``lctl``: how they are run, and what their failure says. Written against Lustre 2.17.0, whose exit statuses say little."""

from __future__ import annotations

import os
from subprocess import CompletedProcess
from typing import Final

from iogauge.core import commands


class LustreError(ValueError):
    """Output of ``lfs`` or ``lctl`` cannot be trusted, or a program failed. Shown to the user."""


def excerpt(text: str) -> str:
    shown = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return repr(shown[:120]) if shown else "an empty answer"


#: Names on one command line, seconds for one program.
NAMES_PER_COMMAND: Final = 200
PROGRAM_SECONDS: Final = 120


def run(*words: str, seconds: float = PROGRAM_SECONDS) -> CompletedProcess[str]:
    """Run a program, whatever its status; raises :class:`LustreError` if it cannot run or hangs."""
    try:
        return commands.run(*words, seconds=seconds)
    except OSError as error:
        raise LustreError(
            f"{words[0]} cannot be run on {os.uname().nodename} ({error}): a target that Lustre stripes "
            "needs it on every node"
        ) from error


def run_lfs(*words: str) -> str:
    """Return the output of ``lfs``; raises :class:`LustreError` with its complaint if it fails."""
    done = run("lfs", *words)
    if done.returncode != 0:
        complaint = (
            done.stderr.strip() or done.stdout.strip() or "it printed nothing"
        ).splitlines()
        shown = " ".join(["lfs", *words[:6], *(["..."] if len(words) > 6 else [])])
        raise LustreError(f"{shown}: exit status {done.returncode}: {complaint[0]}")
    return done.stdout


def ask_lctl(*parameters: str) -> str:
    """Return what ``lctl get_param`` prints, whose exit status says nothing; empty if it cannot run."""
    try:
        return run("lctl", "get_param", *parameters).stdout
    except LustreError:
        return ""
