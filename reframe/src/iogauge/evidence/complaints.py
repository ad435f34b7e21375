"""Why a launcher, a job or a tool failed, in its own words.

Failures were seen with mpirun of Open MPI 4.1 and 5.0, MPICH's hydra 5.0, and srun of Slurm 22.05. Open MPI
explains itself in paragraphs between dashed lines, hydra names a function of its own and where it
stands, srun marks its lines. What they say of a tool that ran and failed is no cause.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import re
import signal
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutputError
from iogauge.core.text import visible
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
from iogauge.tools.mpi import alone, is_binding, unlabelled

#: If MPI does not begin, its launcher is another's, or offers another way to meet.
_MEET: Final = (
    "Let srun offer what this MPI understands (srun --mpi=list; SLURM_MPI_TYPE=pmix in env_vars), or take the launcher "
    "of the MPI library that the tool was built with"
)
#: MPI could not make its own files.
_OWN_FILES: Final = re.compile(r"PMIX ERROR: OUT-OF-RESOURCE|orte_session_dir failed")
_ROOM: Final = (
    "MPI keeps files of its own in $TMPDIR, or in /tmp. See that it exists on the node, and has room. If you ran "
    "another mpirun there, which may have removed them as it ended, run again"
)

#: How paragraphs of Open MPI begin that say why nothing ran, and what to do, if that is known.
_CAUSES: Final = {
    r"There are not enough slots available": (
        "Let mpirun start more tasks than it sees cores (--oversubscribe: OMPI_MCA_rmaps_base_oversubscribe=1 in "
        "env_vars; Open MPI 5: PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe), or name more hosts (hosts)"
    ),
    r"Your job has requested more processes than": (
        "Ask for fewer tasks on a node (scale.tasks_per_node), or for more nodes"
    ),
    r"A requested component was not found": (
        "Give the nodes what this component needs, or leave it out (PMIX_MCA_<framework>=^<component> in env_vars)"
    ),
    r"(?:mpirun|prterun) has detected an attempt to run as root": (
        "Run as an ordinary user, or set the two variables that mpirun names"
    ),
    r"An? \S+ daemon has unexpectedly failed": (
        "mpirun starts its daemons with srun if SLURM_JOB_ID is set. If that allocation has ended, run from a shell "
        "without SLURM_* variables"
    ),
    r'The value of the MCA parameter "plm_rsh_agent"': (
        "mpirun looks for ssh, even for one node. Install it, or set OMPI_MCA_plm=isolated in env_vars for one node"
    ),
    r"The application appears to have been direct launched using": _MEET,
    r"It looks like \S+ (?:runtime init )?failed for some reason": _MEET,
    r"All nodes which are allocated for this job are already filled": "",
    r"(?:\S+ )?was unable to (?:launch|find|start|reliably start)": "",
    r"A daemon failed to report back": "",
    r"A request was made to bind": "",
    r"A request for multiple cpus-per-proc": "",
    r"An unrecognized option was included": "",
    r"\S+ has lost communication with a remote daemon": "",
}

#: What follows the cause in such a paragraph: a list of guesses.
_GUESSES: Final = re.compile(
    r" (?:This (?:usually is caused by|could be caused by|means that)|There are (?:many|several))"
)

#: MPI found no process manager that it understands, or the launcher none that it was told to offer.
_UNKNOWN_MANAGER: Final = re.compile(
    r"\[unset\]: .+|PMII_singinit: .+|PMI2_Init failed .+|No PMIx server was reachable.*"
    r"|srun: error: (?:.* mpi/\w+\b.*|Invalid MPI type .+)"
)

#: MPI did not begin, for a reason that it tells here or nowhere.
_NOT_BEGUN: Final = re.compile(
    r".*Fatal error in (?:P?MPI|internal)_Init(?:_thread)?: .+|(?:\[\S+\] )?\*\*\* An error occurred in MPI_Init.*"
)

#: Lines of the libraries below a tool, and warnings: the tool may go on after them, but not after IOR's of a failed call.
_OF_LIBRARY: Final = re.compile(
    r"\[[^\] ]+:\d+\] |\[unset\]: |PMII_|system msg for |\w+\(\d+\)\.*: |.* UCX +(?:ERROR|WARN) "
    r"|(?i:warning)\b(?!: (?:read|write)\([^)]*\) failed )"
)

#: A trace of hydra: ``[mpiexec@n1] function (file:line): words``.
_HYDRA: Final = re.compile(r"\[(?:mpiexec|proxy)[^\]]*\] \w+ \([^)]*\): (.+)")

#: A complaint of srun; what it says of a task that ran is none.
_SRUN: Final = re.compile(r"srun: (?:error: (?!\S+: tasks? [\d,-]+: )|unrecognized ).+")

#: ssh's own words are more than those of the launcher that called it.
_SSH: Final = re.compile(
    r"ssh: .+|Host key verification failed\.|.*Permission denied \(.+|.*\b(?:orted|prted|\w*pmi_proxy): command not found"
)

#: What Open MPI says in a process that crashed, before its trace.
_CRASHED: Final = re.compile(r"\[\S+\] Signal: .+ \(\d+\)")

#: How launchers begin to speak of a tool that failed: it says no more than the exit status.
_RAN: Final = re.compile(
    r"Primary job +terminated normally|(?:mpirun|prterun|mpiexec) (?:detected that|noticed that|has exited due to)"
    r"|=* *BAD TERMINATION|srun: error: \S+: tasks? [\d,-]+: "
)

#: What stands before the words of a shell that starts a tool: the place in a script of this suite.
_OF_SHELL: Final = re.compile(r"\S+/iogauge/job/\w+\.sh: (?:line )?\d+: (?:\d+ )?")

#: What to do about causes that other lines tell.
_OTHERS: Final = {
    r"srun: .*More processors requested than permitted": (
        "Let srun start more tasks than cores (--overcommit: SLURM_OVERCOMMIT=1 in env_vars), or ask for more nodes"
    ),
    _UNKNOWN_MANAGER.pattern: _MEET,
    r".*_Init(?:_thread)?: .*PMI_\w+ returned": _MEET,
    r".*An error occurred in MPI_Init": _MEET,
}


def launcher_cause(lines: Sequence[str]) -> str:
    """Return why a launcher did not run the tool, and what to do; empty if it does not say so."""
    found = next(_causes(lines), "")
    rows = {**_CAUSES, **_OTHERS}.items()
    remedy = next((remedy for begins, remedy in rows if re.match(begins, found)), "")
    if remedy is _MEET and any(map(_OWN_FILES.search, lines)):
        remedy = _ROOM
    return f"{found.rstrip('.')}. {remedy}" if remedy else found


def launcher_ended(lines: Sequence[str]) -> str:
    """Return what a launcher says of a tool that failed; empty if it says nothing."""
    found = next((p for p in _paragraphs(lines) if _RAN.match(p.lstrip("= "))), "")
    signal = re.search(
        "YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*?\\)", found
    )
    return signal[0] if signal else found


def _causes(lines: Sequence[str]) -> Iterator[str]:
    yield from (line for line in lines if _UNKNOWN_MANAGER.fullmatch(line))
    paragraphs = list(_paragraphs(lines))
    causes = [
        n
        for n, p in enumerate(paragraphs)
        if any(re.match(begins, p) for begins in _CAUSES)
    ]
    if causes or any(_HYDRA.match(line) for line in lines):
        yield from (line for line in lines if _SSH.fullmatch(line))
    for number in causes:
        # What follows a colon is a name; names may also stand in paragraphs of their own.
        sentence, after = (
            _GUESSES.split(paragraphs[number])[0],
            paragraphs[number + 1 :],
        )
        named = list(itertools.takewhile(re.compile(r"\w+: \S+").fullmatch, after))
        yield " ".join([sentence, *(after[:1] if sentence.endswith(":") else named)])
    for line in lines:
        if match := _HYDRA.fullmatch(line):
            yield match[1]
        elif _SRUN.fullmatch(line):
            yield line
    stack = [line for line in lines if re.match(r"\w+\(\d+\)\.*: ", line)]
    yield from (
        " ".join([line, *stack[-1:]]) for line in lines if _NOT_BEGUN.fullmatch(line)
    )


def _paragraphs(lines: Sequence[str]) -> Iterator[str]:
    """Yield paragraphs, each on one line: empty and dashed lines part them."""
    words: list[str] = []
    for line in [*lines, ""]:
        if line.strip(" -\t"):
            words += line.split()
        elif words:
            yield " ".join(words)
            words = []


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
    """Return the line that best explains a failed phase, on Lustre with what else to look at."""
    execution = (run.name, run.repetition)
    results = f"fio-{run.name}.{run.repetition}.json"
    texts: list[list[str]] = []
    for file in (complaints_file(*execution), printed_file(*execution), results):
        try:
            text = untrusted.read_text(stage / file)
        except OSError:
            continue
        if file.endswith(
            ".json"
        ):  # fio complains before the results, or only gives a number
            errors = (int(number) for number in _FIO_ERROR.findall(text))
            more = "".join(f"error {n}: {os.strerror(n)}\n" for n in errors)
            text = text.partition("{")[0] + more
        if several := alone(unlabelled(text)):
            return several
        texts.append(
            [
                _OF_SHELL.sub("", line).strip()
                for line in unlabelled(text).splitlines()
                if not is_binding(line)
            ]
        )
    told = visible(next(filter(None, _telling(texts)), "it printed nothing"))
    if run.status == 127 and told.endswith("not found"):
        told += ". Put it on PATH there, by modules or prepare_cmds of the environment"
    cut_off = on_lustre and any(words in told for words in _CUT_OFF)
    return told + (_EVICTION if cut_off else "")


def _telling(texts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines that may explain a failure, the best one first."""
    managed = not any(
        _UNKNOWN_MANAGER.fullmatch(line) for text in texts for line in text
    )
    of_tool = [
        [line for line in text if not _OF_LIBRARY.match(line)]
        for text in texts
        if managed
    ]
    yield from _errors(of_tool)
    yield from (launcher_cause(text)[:500] for text in texts)
    yield from _errors(texts)
    yield from (line for text in texts for line in text if _CRASHED.fullmatch(line))
    # The tool speaks before the launcher adds to it; fio's first word is the cause of its next ones.
    for text in (*of_tool, *texts):
        before = itertools.takewhile(lambda line: not _RAN.match(line), text)
        own = [line for line in before if line.strip(" -=\t")]
        failing = [line for line in own if line.startswith("fio: ")]
        failing += [line for line in own if re.search("error|fail", line.lower())]
        yield from (line[:300] for line in failing or own[-1:])
    yield from (launcher_ended(text)[:300] for text in texts)


def _errors(texts: Sequence[Sequence[str]]) -> Iterator[str]:
    """Yield the lines with an error of the system, then those that IOR and mdtest mark as errors."""
    lines = [line for text in texts for line in text if line.strip(" -")]
    yield from (
        line[:300] for line in lines if any(error in line for error in _SYSTEM_ERRORS)
    )
    yield from (line[:300] for line in lines if _TOOL_ERROR.search(line))


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
        told = telling_line(stage, failed[phase.name])
        why = (
            f"; also: {told}" if any(error in told for error in _SYSTEM_ERRORS) else ""
        )
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
