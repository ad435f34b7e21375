"""Why a job or a phase of it failed: the line that explains it, read from the stage directory."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.core.text import visible
from iogauge.evidence import speakers
from iogauge.plan.case import REP, CasePlan, PhasePlan
from iogauge.plan.stage import (
    FILL,
    REFUSAL,
    SIGNAL,
    SPREAD,
    STRIPE_DIRECTORY,
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
_LIMIT: Final = {
    "USR1": "the scheduler warned of the time limit, ",
    "ALRM": "the time limit was reached, ",
}

#: A scheduler's states of jobs that it ended by itself; their exit status may be 0.
ENDED_BY_SCHEDULER: Final = frozenset(
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


def cause_of_end(stage: Path, state: str | None) -> list[str]:
    """Return why a job ended before its time: the signal that it got, and the scheduler's state."""
    causes = []
    with contextlib.suppress(ToolOutputError):
        signal_name = stage_text(stage / SIGNAL, "job").strip()
        causes.append(f"{_LIMIT.get(signal_name, '')}told to end by SIG{signal_name}")
    if state in ENDED_BY_SCHEDULER:
        causes.append(f"the scheduler says {state}")
    return causes


def refused_by_node(stage: Path, runs: Sequence[PhaseRun]) -> tuple[str, ...]:
    """Return why nodes refused the case before the first byte, after the first node had opened it."""
    steps = (VIEW, SPREAD, STRIPE_DIRECTORY, FILL)
    failed = [run for run in runs if run.status != 0 and run.name in steps]
    texts = [
        stage_text(stage / complaints_file(r.name, r.repetition), r.name)
        for r in failed
    ]
    said = [line for text in texts for line in text.splitlines()]
    return tuple(line.partition(REFUSAL)[2] for line in said if REFUSAL in line)


def stage_text(path: Path, what: str) -> str:
    """Return the text of a file that a job left; raises :class:`ToolOutputError`, also for a link."""
    if path.is_symlink():
        raise ToolOutputError(
            f"{what}: {path.name} is a link to {visible(os.readlink(path))}, expected a file that the tool wrote"
        )
    try:
        return untrusted.read_text(path)
    except OSError as error:
        raise ToolOutputError(
            f"{what}: no output: {path.name}: {error.strerror}"
        ) from error


#: Texts that a tool leaves in its folder, and the most of them that are read.
_TEXTS: Final = (".csv", ".ini", ".txt")
_MOST_TEXTS: Final = 100


def stage_folder(folder: Path, what: str) -> dict[str, str]:
    """Return the texts in a folder by their names; raises :class:`ToolOutputError`."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _TEXTS)
    except OSError as error:
        raise ToolOutputError(
            f"{what}: no output: {folder.name}: {error.strerror}"
        ) from error
    if len(files) > _MOST_TEXTS:
        raise ToolOutputError(
            f"{what}: {len(files)} texts in {folder.name}, expected {_MOST_TEXTS} at most"
        )
    return {file.name: stage_text(file, what) for file in files}


_FIO_ERROR: Final = re.compile(r'"error" : ([1-9][0-9]{0,3}),')

#: The most characters of a line that are shown.
_MOST_CHARACTERS: Final = 300

#: What a tool is told by the kernel whose connection to a Lustre server broke (EIO, ESHUTDOWN).
_CUT_OFF: Final = (os.strerror(errno.EIO), os.strerror(errno.ESHUTDOWN))


_EVICTION: Final = (
    "; on Lustre this may be an eviction, or a target that is switched off: root sees it (lctl get_param "
    "'osc.*.state' 'mdc.*.state', dmesg on the node)"
)


def telling_line(stage: Path, run: PhaseRun, on_lustre: bool = False) -> str:
    """Return the line that best explains a failed phase, with what to do; on Lustre with what else to look at.

    If nobody names a cause, that is said, with the last line of each file.
    """
    printed = dict(_printed(stage, run))
    for text in printed.values():
        several = alone(text)
        if several:
            return several
    found = speakers.cause([text.splitlines() for text in printed.values()])
    line = "nothing names the cause"
    if found is not None:
        line = visible(found.text[:_MOST_CHARACTERS])
        if found.advice:
            line = f"{line.rstrip('.')}. {found.advice}"
    if found is None or found.meaning is speakers.Meaning.ENDED:
        for file, text in printed.items():
            last = [end for end in text.splitlines() if end.strip(" -=")][-1:]
            line += "".join(
                f"; {file} ends with: {visible(end.strip()[:_MOST_CHARACTERS])}"
                for end in last
            )
    if on_lustre and any(words in line for words in _CUT_OFF):
        line += _EVICTION
    return line


def _printed(stage: Path, run: PhaseRun) -> Iterator[tuple[str, str]]:
    """Yield each file that a phase printed, errors first, by name and without labels of the launcher.

    Of fio's results it is what stands before them, and the error numbers in them.
    """
    results = f"fio-{run.name}.{run.repetition}.json"
    execution = (run.name, run.repetition)
    for file in (complaints_file(*execution), printed_file(*execution), results):
        try:
            text = unlabelled(untrusted.read_text(stage / file))
        except OSError:
            continue
        if file == results:
            numbers = [int(number) for number in _FIO_ERROR.findall(text)]
            text = text.partition("{")[0]
            for number in numbers:
                text += f"error {number}: {os.strerror(number)}\n"
        yield file, text


#: Bytes below which a directory counts as full: a job's own files need this room.
_ROOM_BYTES: Final = 64 << 10


def is_full(stage: Path) -> bool:
    with contextlib.suppress(OSError):
        info = os.statvfs(stage)
        no_files = info.f_files > 0 and info.f_favail == 0
        return no_files or info.f_bavail * info.f_frsize < _ROOM_BYTES
    return False


def mismatch(stage: Path, plan: CasePlan, runs: Sequence[PhaseRun]) -> str:
    """Return what a tool said of wrong data if it failed with them before it was judged, else nothing."""
    failed = {run.name: run for run in runs if run.repetition == 0 and run.status != 0}
    for phase in plan.phases:
        if phase.verifies is None or phase.name not in failed:
            continue
        # MPI-IO goes on after a write that the kernel refused; its library tells why.
        reason = telling_line(stage, failed[phase.name])
        why = f"; also: {reason}" if speakers.names_system_error(reason) else ""
        files = [complaints_file(phase.name, 0), printed_file(phase.name, 0)]
        # What fio's servers say stands before the results.
        for name in [
            *files,
            *([phase.output.replace(REP, "0")] if phase.output else []),
        ]:
            with contextlib.suppress(ToolOutputError):
                for line in stage_text(stage / name, phase.name).splitlines():
                    if re.search(phase.verifies.complaint, line):
                        return f"{phase.name}: {visible(line.strip()[:300])}{why}"
    return ""


def check_phases(
    stage: Path,
    plan: CasePlan,
    runs: Sequence[PhaseRun],
    cause: Sequence[str],
    ending: Sequence[str],
    on_lustre: bool,
) -> None:
    """Raise :class:`ToolOutputError` if a phase failed or never finished."""
    for run in runs:
        if run.status != 0:
            raise ToolOutputError(
                f"{plan.tool}: phase {run.name}, repetition {run.repetition}: "
                f"{describe_status(run.status)}: {telling_line(stage, run, on_lustre)}"
                + "".join(f"; {reason}" for reason in cause)
            )
    done = {(run.repetition, run.name) for run in runs}
    for repetition, phase in executions(plan):
        if (repetition, phase.name) not in done:
            missing = f"phase {phase.name}, repetition {repetition} never finished"
            raise ToolOutputError(f"{plan.tool}: " + ", ".join([missing, *ending]))


def executions(plan: CasePlan) -> list[tuple[int, PhasePlan]]:
    """Return every execution of a phase as (repetition, phase)."""
    return [(0, phase) for phase in plan.prepare] + [
        (rep, phase)
        for rep in range(plan.first_repetition, plan.repetitions + 1)
        for phase in plan.repeat
        if phase.within is None
    ]
