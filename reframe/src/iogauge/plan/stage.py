"""What crosses between a job and its judge: names of files in the stage directory, and their forms."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Final

from iogauge.core.measurement import ToolOutputError

#: Exit status of a refusal, as against a crash.
REFUSED: Final = 3

#: File in the stage directory with what ``open`` saw and decided.
OPENED: Final = "open.json"

#: File in the stage directory that says whether the lock was held to the end. The job script waits for the word.
LOCKED: Final = "lock.json"
WORD: Final = "opened"


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One execution of a phase: repetition (0: preparing), exit status, seconds since boot of the step."""

    repetition: int
    name: str
    status: int
    started: float
    ended: float


_RUN: Final = re.compile(
    r"([0-9]{1,9})\t([^\t]+)\t(-?[0-9]{1,9})\t([0-9]{1,18}(?:\.[0-9]+)?)\t([0-9]{1,18}(?:\.[0-9]+)?)"
)

#: File in the stage directory with the signal that ended the job, as job.sh writes it.
TOLD: Final = "told.txt"


def parse_runs(text: str) -> list[PhaseRun]:
    """Lines of ``phases.tsv`` as job.sh writes them; raises :class:`ToolOutputError`.

    No execution stands there twice.
    """
    if text and not text.endswith("\n"):
        raise ToolOutputError(f"phases.tsv: cut off after {text[-80:]!r}")
    runs: dict[tuple[int, str], PhaseRun] = {}
    for line in text.splitlines():
        match = _RUN.fullmatch(line)
        if (
            match is None
            or not math.isfinite(float(match[4]))
            or not math.isfinite(float(match[5]))
        ):
            raise ToolOutputError(f"phases.tsv: damaged line {line[:200]!r}")
        run = PhaseRun(int(match[1]), match[2], int(match[3]), float(match[4]), float(match[5]))
        if (run.repetition, run.name) in runs:
            raise ToolOutputError(
                f"phases.tsv: {run.name}, repetition {run.repetition}: there twice"
            )
        runs[run.repetition, run.name] = run
    return list(runs.values())


#: File in the stage directory with the hosts of a partition that no scheduler gives nodes.
HOSTFILE: Final = "hosts.txt"

#: File in the stage directory with what the agent shall pin where, and stems of its answers.
PINS: Final = "pins.json"
PINNED: Final = "pinned"

#: Stems of the nodes' answers: before the run, before the first phase that is judged, after the last.
FACTS: Final = ("facts-start", "facts-before", "facts-after")
STRIPES: Final = "stripes"
