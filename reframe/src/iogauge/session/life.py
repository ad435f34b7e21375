"""A sign of life: where the running cases stand, on the screen of whoever waits for them.

A thread reads the files that a job leaves in its stage directory, and writes a line every 30 s. A filter keeps ReFrame's
blocks about failures for the command that prints the summary first.
"""

import atexit
import contextlib
import logging
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from iogauge.core import commands, untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.core.text import visible
from iogauge.core.units import duration
from iogauge.plan.case import CasePlan
from iogauge.plan.stage import OPENED, RUNS, SAYS, parse_runs

#: Environment variable with the file that keeps ReFrame's blocks about failures; unset: they are shown.
DETAILS: Final = "IOGAUGE_DETAILS"

_TICK_S: Final = 1.0
_PACE_S: Final = 30.0
_ASK_S: Final = 10.0

#: Beginning of what the agent prints while it waits, and the part of the output that is read.
_LOCK: Final = "iogauge: lock: "
_TAIL_BYTES: Final = 4096


class Watched:
    """A case whose job is about to be submitted; ``job`` is ReFrame's, ``expected_s`` the plan's estimate."""

    def __init__(
        self, name: str, stage: Path, job: Any, plan: CasePlan, expected_s: float
    ) -> None:
        self.name, self.job, self._stage = name, job, stage
        self._plan, self._expected_s = plan, expected_s
        self._opened_at: float | None = None
        self._ask_at = 0.0
        #: Why the job waits, in Slurm's word (``PartitionTimeLimit``); empty if it is not known.
        self.waits_for = ""

    def began(self) -> bool:
        """Return whether the job has started."""
        return (self._stage / RUNS).exists()

    def look(self, now: float) -> tuple[bool, str]:
        """Return whether the job measures, and where it stands; ``now`` is monotonic."""
        if not self.began():
            self._ask_slurm(now)
            state = self.job.state or "submitted"
            if self.waits_for:
                state += f": {self.waits_for}"
            return False, f"job {self.job.jobid} waits in the queue ({state})"
        if not (self._stage / OPENED).exists():
            return False, self._lock() or "looks at the target"
        if self._opened_at is None:
            self._opened_at = now
        try:
            runs = parse_runs(untrusted.read_text(self._stage / RUNS))
        except (OSError, ToolOutputError):
            runs = {}
        expected = duration(self._expected_s)
        times = f"{duration(now - self._opened_at)} of about {expected} gone"
        for repetition, phase in self._plan.in_order:
            if (repetition, phase.name) not in runs:
                break
        else:
            return True, f"removes its files, {times}"
        doing = phase.name
        meaning = "preparation"
        if repetition:
            meaning = f"repetition {repetition} of {self._plan.repetitions}"
        with contextlib.suppress(OSError):
            doing += (
                f": {visible(untrusted.read_text(self._stage / SAYS, _TAIL_BYTES))}"
            )
        return True, f"{doing}, {meaning}, {times}"

    def _ask_slurm(self, now: float) -> None:
        """Ask Slurm now and then why the job waits."""
        slurm = self.job.scheduler.registered_name in ("slurm", "squeue")
        if slurm and now >= self._ask_at:
            self._ask_at = now + _ASK_S
            words = ["squeue", "--noheader", "--format=%r", f"--jobs={self.job.jobid}"]
            with contextlib.suppress(OSError):
                reason = commands.output(*words, seconds=_ASK_S / 2).strip()
                # Of a job that is gone it says nothing: the last reason stays.
                self.waits_for = reason or self.waits_for

    def _lock(self) -> str:
        """Return for whom the job waits, in the agent's last words; empty if it does not wait."""
        try:
            with open(self._stage / self.job.stdout, "rb") as file:
                file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_BYTES))
                lines = file.read(_TAIL_BYTES).decode("utf-8", "replace").splitlines()
        except OSError:
            return ""
        if not lines or not lines[-1].startswith(_LOCK):
            return ""
        return lines[-1].removeprefix("iogauge: ")


def _line(cases: Sequence[Watched], now: float) -> str:
    """Return a line about the case that measures, else about the first that waits."""
    shown, text = cases[0], ""
    for case in cases:
        measures, state = case.look(now)
        if measures or not text:
            shown, text = case, state
        if measures:
            break
    if len(cases) > 1:
        text += f" (+{len(cases) - 1} more)"
    return visible(f"iogauge: {shown.name}: {text}")


class Screen:
    """A line each 30 s while cases run; ``write`` gets the text for standard error."""

    def __init__(self, write: Callable[[str], None]) -> None:
        self._write = write
        self._cases: list[Watched] = []
        self._lock = threading.Lock()
        self._written_at: float | None = None

    def add(self, case: Watched) -> None:
        """Watch a case until its job has ended."""
        with self._lock:
            self._cases.append(case)

    def tick(self, now: float) -> None:
        """Write where the cases stand, if it is time to."""
        with self._lock:
            self._cases = [
                case for case in self._cases if case.job.completion_time is None
            ]
            submitted = [case for case in self._cases if case.job.jobid is not None]
            if not submitted:
                self._written_at = None
                return
            if self._written_at is None:
                self._written_at = now
            line = _line(submitted, now)
            if now - self._written_at >= _PACE_S:
                self._written_at = now
                self._write(f"{line}\n")


#: ReFrame's line that a run has ended without a failure, coloured or not.
_PASSED: Final = re.compile(r"\[ (\x1b\[[\d;]*m)* *PASSED *(\x1b\[[\d;]*m)* \] Ran ")


class Filter(logging.Filter):
    """Between ReFrame and the screen: keeps its blocks about failures for the command that prints the summary first.

    ``details`` is the file that gets these blocks. ReFrame's own ending is left out: PASSED may have proven nothing.
    """

    def __init__(self, details: Path) -> None:
        super().__init__()
        self._details = details
        self._within = self._ruled = False

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether the screen gets a record."""
        text = record.getMessage()
        if _PASSED.match(text):
            return False
        if text.strip("=") == " SUMMARY OF FAILURES ":
            self._within, self._ruled = True, False
        elif self._within and self._ruled and not text.startswith("FAILURE INFO"):
            self._within = False
        if not self._within:
            return True
        self._ruled = bool(text) and not text.strip("-")
        try:
            with open(self._details, "a", encoding="utf-8") as file:
                file.write(f"{text}\n")
        except OSError:
            return True
        return False


_screen: Screen | None = None


def screen() -> Screen:
    """Return the screen of this process; the first call starts its thread."""
    global _screen
    if _screen is None:
        _screen = Screen(_write)
        ended = threading.Event()
        thread = threading.Thread(target=_run, args=(_screen, ended), daemon=True)
        thread.start()
        # Without it the thread could write while the interpreter goes down.
        atexit.register(_end, ended, thread)
    return _screen


def _run(screen: Screen, ended: threading.Event) -> None:
    while not ended.wait(_TICK_S):
        screen.tick(time.monotonic())


def _end(ended: threading.Event, thread: threading.Thread) -> None:
    ended.set()
    thread.join(2 * _TICK_S)


def _write(text: str) -> None:
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write(text)
        sys.stderr.flush()
