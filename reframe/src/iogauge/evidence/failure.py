"""Why a job or a tool failed, in its own words."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.core.text import visible
from iogauge.evidence.witness import parse
from iogauge.plan.stage import (
    REFUSAL,
    SIGNAL,
    SPREAD,
    VIEW,
    PhaseRun,
    complaints_file,
    printed_file,
)
from iogauge.tools import launcher
from iogauge.tools.mpi import is_binding


def describe_status(status: int) -> str:
    """Describe an exit status: ``exit status 255``, ``killed by SIGKILL (exit status 137)``."""
    if status > 128:
        try:
            return f"killed by {signal.Signals(status - 128).name} (exit status {status})"
        except ValueError:
            pass
    return f"exit status {status}"


#: Signals of the time limit: the warning that Slurm is asked to send, and Flux's signal at the
#: limit.
_LIMIT: Final = {
    "USR1": "the scheduler warned of the time limit, ",
    "ALRM": "the time limit was reached, ",
}

#: A scheduler's states of jobs that it ended by itself; their exit status may be 0.
ENDED_BY_SCHEDULER: Final = frozenset(
    ("BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
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
    failed = [run for run in runs if run.status != 0 and run.name in (VIEW, SPREAD)]
    texts = [stage_text(stage / complaints_file(r.name, r.repetition), r.name) for r in failed]
    said = [line for text in texts for line in text.splitlines()]
    return tuple(line.partition(REFUSAL)[2] for line in said if REFUSAL in line)


def stage_text(path: Path, what: str) -> str:
    try:
        return untrusted.read_text(path)
    except OSError as error:
        raise ToolOutputError(f"{what}: no output: {path.name}: {error.strerror}") from error


#: Texts that a tool leaves in its folder, and the most of them that are read.
_TEXTS: Final = (".csv", ".ini", ".txt")
_MOST_TEXTS: Final = 100


def stage_folder(folder: Path, what: str) -> dict[str, str]:
    """Return the texts in a folder by their names; raises :class:`ToolOutputError`."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _TEXTS)
    except OSError as error:
        raise ToolOutputError(f"{what}: no output: {folder.name}: {error.strerror}") from error
    if len(files) > _MOST_TEXTS:
        raise ToolOutputError(
            f"{what}: {len(files)} texts in {folder.name}, expected {_MOST_TEXTS} at most"
        )
    return {file.name: stage_text(file, what) for file in files}


_SYSTEM_ERRORS: Final = tuple(os.strerror(number) for number in errno.errorcode)

_FIO_ERROR: Final = re.compile(r'"error" : ([1-9][0-9]{0,3}),')
_TOOL_ERROR: Final = re.compile(r"\bERROR\b")


#: What a tool is told by the kernel whose connection to a Lustre server broke (EIO, ESHUTDOWN).
_CUT_OFF: Final = (os.strerror(errno.EIO), os.strerror(errno.ESHUTDOWN))


_EVICTION: Final = (
    "; on Lustre this may be an eviction, or a target that is switched off: root sees it (lctl get_param "
    "'osc.*.state' 'mdc.*.state', dmesg on the node)"
)


def telling_line(stage: Path, run: PhaseRun, on_lustre: bool = False) -> str:
    """Return the line that best explains a failed phase, on Lustre with what else to look at.

    An error of the system comes first, then an error of the tool, then why a launcher did not run
    it, then the last line of the tool.
    """
    printed: list[str] = []
    execution = (run.name, run.repetition)
    results = f"fio-{run.name}.{run.repetition}.json"
    for file in (complaints_file(*execution), printed_file(*execution), results):
        try:
            text = untrusted.read_text(stage / file)
        except OSError:
            continue
        if file.endswith(".json"):  # fio complains before the results, or only gives a number
            errors = (int(number) for number in _FIO_ERROR.findall(text))
            text = text.partition("{")[0] + "".join(
                f"error {n}: {os.strerror(n)}\n" for n in errors
            )
        printed.append(text)
    texts = [
        [line.strip() for line in parse(text)[1].splitlines() if not is_binding(line)]
        for text in printed
    ]
    printed_lines = [[line for line in lines if line.strip(" -")] for lines in texts]
    for lines in printed_lines:
        telling = [x for x in lines if any(error in x for error in _SYSTEM_ERRORS)]
        if telling:
            cut_off = on_lustre and any(words in telling[0] for words in _CUT_OFF)
            return visible(telling[0][:300]) + (_EVICTION if cut_off else "")
    for lines in printed_lines:
        # IOR and mdtest mark their errors; the launcher may print more.
        telling = [x for x in lines if _TOOL_ERROR.search(x)]
        if telling:
            return visible(telling[0][:300])
    for lines in texts:
        if said := launcher.cause(lines):
            return visible(said[:500])
    # The tool speaks before the launcher adds to it.
    for lines in map(launcher.of_tool, texts):
        telling = [x for x in lines if "error" in x.lower() or "fail" in x.lower()] or lines[-1:]
        if telling:
            return visible(telling[0][:300])
    ending = next(filter(None, map(launcher.ended, texts)), "it printed nothing")
    return visible(ending[:300])


#: Bytes below which a directory counts as full: a job's own files need this room.
_ROOM_BYTES: Final = 64 << 10


def is_full(stage: Path) -> bool:
    try:
        info = os.statvfs(stage)
    except OSError:
        return False
    return info.f_bavail * info.f_frsize < _ROOM_BYTES or (info.f_files > 0 and info.f_favail == 0)
