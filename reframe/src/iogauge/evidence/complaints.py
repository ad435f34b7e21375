"""Why a job or a phase of it failed: the line that explains it, read from the stage directory."""

import contextlib
import errno
import os
import re
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.core.text import visible
from iogauge.evidence import speakers
from iogauge.plan.case import CasePlan
from iogauge.plan.stage import (
    JOB_COMPLAINTS,
    REFUSAL,
    SIGNAL,
    VIEW,
    PhaseRun,
    complaints_file,
    printed_file,
)
from iogauge.tools.mpi import alone, unlabelled


def describe_status(status: int) -> str:
    """Describe an exit status: ``exit status 255``, ``killed by SIGKILL (exit status 137)``."""
    with contextlib.suppress(ValueError):
        return f"killed by {signal.Signals(status - 128).name} (exit status {status})"
    return f"exit status {status}"


#: Signals of the time limit: the warning that Slurm is asked to send, and Flux's signal at the
#: limit.
_LIMIT = {
    "USR1": "the scheduler warned of the time limit, ",
    "ALRM": "the time limit was reached, ",
}

#: A scheduler's states of jobs that it ended by itself; their exit status may be 0.
_ENDED_BY_SCHEDULER = frozenset(
    (
        "BOOT_FAIL",
        "CANCELLED",
        "DEADLINE",
        "NODE_FAIL",
        "OUT_OF_MEMORY",
        "PREEMPTED",
        "TIMEOUT",
    )
)


#: Why the agent could not remove the case's directory, such as a file system that was mounted over it meanwhile.
_LEFT_BEHIND = re.compile(r"^iogauge: remove: (.+)$", re.MULTILINE)


class End(NamedTuple):
    """How a job ended: its exit status if it is known, the signal that it got, and the scheduler's state."""

    reasons: list[str]
    #: Whether it failed, or the scheduler ended it.
    failed: bool


def end_of_job(stage: Path, status: int | None, state: str | None) -> End:
    """Return how a job ended, by its exit status and the scheduler's state of it, None if unknown."""
    reasons, failed = [], bool(status)
    if status is not None:
        reasons.append(f"the job's {describe_status(status)}")
    with contextlib.suppress(ToolOutputError):
        signal_name = stage_text(stage / SIGNAL).strip()
        reasons.append(f"{_LIMIT.get(signal_name, '')}told to end by SIG{signal_name}")
    if state in _ENDED_BY_SCHEDULER:
        failed = True
        reasons.append(f"the scheduler says {state}")
    with contextlib.suppress(ToolOutputError):
        left = _LEFT_BEHIND.findall(stage_text(stage / JOB_COMPLAINTS))
        reasons += [visible(why[:_MOST_CHARACTERS]) for why in left[-1:]]
    return End(reasons, failed)


#: The runs of all phases, by repetition and name.
Runs = Mapping[tuple[int, str], PhaseRun]


def refused_by_node(stage: Path, runs: Runs) -> tuple[str, ...]:
    """Return why nodes refused the case before the first byte, after the first node had opened it."""
    run = runs.get((0, VIEW))
    if run is None or not run.status:
        return ()
    text = stage_text(stage / complaints_file(run.name, run.repetition))
    return tuple(re.findall(f"{re.escape(REFUSAL)}(.*)", text))


def stage_text(path: Path) -> str:
    """Return the text of a file that a job left; raises :class:`ToolOutputError`."""
    try:
        return untrusted.read_text(path)
    except OSError as error:
        raise ToolOutputError(f"no output: {path.name}: {error.strerror}") from error


_FIO_ERROR = re.compile(r'"error" : ([1-9][0-9]{0,3}),')

#: The most characters of a line that are shown.
_MOST_CHARACTERS = 300

#: What a tool is told by the kernel whose connection to a Lustre server broke (EIO, ESHUTDOWN).
_CUT_OFF = (os.strerror(errno.EIO), os.strerror(errno.ESHUTDOWN))


_EVICTION = (
    "; on Lustre this may be an eviction, or a target that is switched off: root sees it (lctl get_param "
    "'osc.*.state' 'mdc.*.state', dmesg on the node)"
)


def telling_line(stage: Path, run: PhaseRun, on_lustre: bool = False) -> str:
    """Return the line that best explains a failed phase, with what to do; on Lustre with what else to look at.

    If nobody names a cause, that is said, with the last line of each file.
    """
    printed = _printed(stage, run)
    several = alone("\n".join(printed.values()))
    if several:
        return several
    found = speakers.cause(printed.values())
    line = visible(found.text[:_MOST_CHARACTERS])
    if found.advice:
        line = f"{line.rstrip('.')}. {found.advice}"
    if found.meaning is speakers.Meaning.ENDED:
        for file, text in printed.items():
            ends = [end.strip() for end in text.splitlines() if end.strip(" -=")]
            last = visible("".join(ends[-1:])[:_MOST_CHARACTERS])
            if last not in line:
                line += f"; {file} ends with: {last}"
    if on_lustre and any(words in line for words in _CUT_OFF):
        line += _EVICTION
    return line


def _printed(stage: Path, run: PhaseRun) -> dict[str, str]:
    """Return what a phase printed by file, errors first, without labels of the launcher.

    Of fio's results it is what its servers say before them, and the error numbers in them.
    """
    results = f"fio-{run.name}.{run.repetition}.json"
    execution = (run.name, run.repetition)
    printed = {}
    for file in (complaints_file(*execution), printed_file(*execution), results):
        with contextlib.suppress(OSError):
            printed[file] = unlabelled(untrusted.read_text(stage / file))
    if results in printed:
        text, _, result = printed[results].partition("{")
        for number in _FIO_ERROR.findall(result):
            text += f"error {number}: {os.strerror(int(number))}\n"
        printed[results] = text
    return printed


def mismatch(stage: Path, plan: CasePlan, runs: Runs) -> str:
    """Return what a tool said of wrong data if it failed with them before it was judged, else nothing."""
    for phase in plan.phases:
        run = runs.get((0, phase.name))
        if phase.verifies is None or run is None or run.status == 0:
            continue
        printed = "\n".join(_printed(stage, run).values())
        wrong = re.search(f".*(?:{phase.verifies.complaint}).*", printed)
        if wrong:
            text = f"{phase.name}: {visible(wrong[0].strip()[:_MOST_CHARACTERS])}"
            # MPI-IO goes on after a write that the kernel refused; its library tells why.
            reason = telling_line(stage, run)
            if speakers.names_system_error(reason):
                text += f"; also: {reason}"
            return text
    return ""


def check_phases(
    stage: Path,
    plan: CasePlan,
    runs: Runs,
    end: End,
    on_lustre: bool,
) -> None:
    """Raise :class:`ToolOutputError` if a phase failed or never finished, or the job ended otherwise than by its end."""
    for run in runs.values():
        if run.status != 0:
            reasons = [telling_line(stage, run, on_lustre), *end.reasons]
            raise ToolOutputError(
                f"{plan.tool}: phase {run.name}, repetition {run.repetition}: "
                f"{describe_status(run.status)}: {'; '.join(reasons)}"
            )
    for repetition, phase in plan.in_order:
        if (repetition, phase.name) not in runs:
            missing = f"phase {phase.name}, repetition {repetition} never finished"
            raise ToolOutputError(f"{plan.tool}: {', '.join([missing, *end.reasons])}")
    if end.failed:
        raise ToolOutputError(f"all phases finished, but {', '.join(end.reasons)}")
