"""``lfs`` and ``lctl``: how they are run, and what their failure says. Written against Lustre 2.17.0, whose exit statuses say little."""

import os
from subprocess import CompletedProcess

from iogauge.core import commands


class LustreError(ValueError):
    """Output of ``lfs`` or ``lctl`` cannot be trusted, or a program failed. Shown to the user."""


def excerpt(text: str) -> str:
    shown = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    if not shown:
        return "an empty answer"
    return repr(shown[:120])


#: Names on one command line, seconds for one program.
NAMES_PER_COMMAND = 200
PROGRAM_SECONDS = 120


def run(*words: str, seconds: float = PROGRAM_SECONDS) -> CompletedProcess[str]:
    """Run a program, whatever its status; raises :class:`LustreError` if it cannot run or hangs."""
    try:
        return commands.run(*words, seconds=seconds)
    except OSError as error:
        raise LustreError(
            f"{words[0]} cannot be run on {os.uname().nodename} ({error}): a target that Lustre stripes "
            "needs it on every node"
        ) from error


#: How ``lfs df`` ends.
SUMMARY = "filesystem_summary: .*"


def change(*words: str) -> None:
    """Let ``lfs`` change paths; raises :class:`LustreError` if it fails. What it says beside is looked at afterwards."""
    done = run("lfs", *words)
    if done.returncode != 0:
        # The complaint names the path.
        options = [word for word in words if not os.path.isabs(word)]
        what = f"lfs {' '.join(options)}"
        raise LustreError(
            f"{what}: exit status {done.returncode}: {commands.complaint(done)}"
        )


def run_lfs(*words: str, ends: str = "") -> str:
    """Return the output of ``lfs``; raises :class:`LustreError` if it fails, or is not whole (:func:`commands.whole`)."""
    done = run("lfs", *words)
    try:
        return commands.whole(done, ends)
    except OSError as error:
        raise LustreError(str(error)) from error
