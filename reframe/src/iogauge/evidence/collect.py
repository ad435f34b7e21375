"""Read all files that a finished job left in its stage directory, once and in full. Find out why a launcher, a job or a tool
failed, in its own words.

Failures were seen with mpirun of Open MPI 4.1 and 5.0, MPICH's hydra 5.0, and srun of Slurm 22.05. Open MPI
explains itself in paragraphs between dashed lines, hydra names a function of its own and where it
stands, srun marks its lines. What they say of a tool that ran and failed is no cause.

The files become values for guards and verdict. Raises :class:`ToolOutputError` for all that a
healthy job would not leave.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import os
import re
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.core.text import visible
from iogauge.core.words import FIO, FIO_METADATA, Value
from iogauge.evidence import model, witness
from iogauge.evidence.fingerprint import merge
from iogauge.evidence.model import ClockSeen, Evidence
from iogauge.evidence.witness import NodeActivity, Testimony, changes
from iogauge.node.files import Eviction, Sample
from iogauge.node.host import Clock, Load
from iogauge.node.probes import SCRIPT, too_old
from iogauge.node.view import View
from iogauge.plan.case import REP, CasePlan, PhasePlan, Printed
from iogauge.plan.stage import (
    ACTIVITY,
    ASKED,
    CONTENTS,
    FACTS,
    FILL,
    FOUND,
    HIDDEN,
    JOB_COMPLAINTS,
    LAYOUTS,
    LOADED,
    LOCKED,
    NEIGHBOURS,
    OPENED,
    PINNED,
    PRINTED,
    PROCESSES,
    REFUSAL,
    RUNS,
    SIGNAL,
    SPREAD,
    STRIPE_DIRECTORY,
    VIEW,
    WITNESS,
    Instant,
    LockKept,
    Opened,
    PhaseRun,
    complaints_file,
    evict_stem,
    parse_activity,
    parse_counts,
    parse_hidden,
    parse_loaded,
    parse_runs,
    printed_file,
)
from iogauge.tools.mpi import Binding, is_binding, parse_bindings

#: How paragraphs of Open MPI begin that say why nothing ran.
_CAUSES: Final = re.compile(
    r"There are not enough slots available"
    r"|All nodes which are allocated for this job are already filled"
    r"|(?:\S+ )?was unable to (?:launch|find|start|reliably start)"
    r"|A daemon failed to report back"
    r"|A request was made to bind"
    r"|A request for multiple cpus-per-proc"
    r"|An unrecognized option was included"
    r"|(?:mpirun|prterun) has detected an attempt to run as root"
    r"|The application appears to have been direct launched using"
)

#: A trace of hydra: ``[mpiexec@n1] function (file:line): words``.
_HYDRA: Final = re.compile(r"\[(?:mpiexec|proxy)[^\]]*\] \w+ \([^)]*\): (.+)")

#: A complaint of srun; what it says of a task that ran is none.
_SRUN: Final = re.compile(r"srun: (?:error: (?!\S+: tasks? [\d,-]+: )|unrecognized ).+")

#: ssh's own words are more than those of the launcher that called it.
_SSH: Final = re.compile(r"ssh: .+|Host key verification failed\.|.*Permission denied \(.+")

#: How launchers begin to speak of a tool that failed: it says no more than the exit status.
_RAN: Final = re.compile(
    r"Primary job +terminated normally|(?:mpirun|prterun|mpiexec) (?:detected|noticed) that"
    r"|=* *BAD TERMINATION|srun: error: \S+: tasks? [\d,-]+: "
)

_REMEDIES: Final = (
    (
        "not enough slots",
        "Let mpirun start more tasks than it sees cores (--oversubscribe: OMPI_MCA_rmaps_base_oversubscribe=1 in "
        "env_vars; Open MPI 5: PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe), or name more hosts (hosts)",
    ),
    (
        "More processors requested than permitted",
        "Let srun start more tasks than cores (--overcommit: SLURM_OVERCOMMIT=1 in env_vars), or ask for more nodes",
    ),
    (
        "attempt to run as root",
        "Run as an ordinary user, or set the two variables that mpirun names",
    ),
    (
        "have been direct launched",
        "Let srun offer what this MPI understands (srun --mpi=list; SLURM_MPI_TYPE=pmix in env_vars), or take the "
        "launcher mpirun",
    ),
)


def launcher_cause(lines: Sequence[str]) -> str:
    """Return why a launcher did not run the tool, and what to do; empty if it does not say so."""
    found = next(_causes(lines), "")
    remedy = next((remedy for words, remedy in _REMEDIES if words in found), "")
    return f"{found.rstrip('.')}. {remedy}" if remedy else found


def is_of_tool(lines: Sequence[str]) -> list[str]:
    """Return the lines before a launcher speaks of a tool that failed, without lines of dashes."""
    end = next((n for n, line in enumerate(lines) if _RAN.match(line)), len(lines))
    return [line for line in lines[:end] if line.strip(" -=\t")]


def launcher_ended(lines: Sequence[str]) -> str:
    """Return what a launcher says of a tool that failed; empty if it says nothing."""
    found = next((p for p in _paragraphs(lines) if _RAN.match(p.lstrip("= "))), "")
    signal = re.search("YOUR APPLICATION TERMINATED WITH THE EXIT STRING: .*?\\)", found)
    return signal[0] if signal else found


def _causes(lines: Sequence[str]) -> Iterator[str]:
    paragraphs = list(_paragraphs(lines))
    if any(_CAUSES.match(p) for p in paragraphs) or any(_HYDRA.match(line) for line in lines):
        yield from (line for line in lines if _SSH.fullmatch(line))
    for number, paragraph in enumerate(paragraphs):
        if _CAUSES.match(paragraph):
            # What follows a colon is a name, or a list of guesses.
            sentence = paragraph.partition(" This usually is caused by")[0]
            more = paragraphs[number + 1 : number + 2] if sentence.endswith(":") else []
            yield " ".join([sentence, *more])
    for line in lines:
        if match := _HYDRA.fullmatch(line):
            yield match[1]
        elif _SRUN.fullmatch(line):
            yield line


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
    steps = (VIEW, SPREAD, STRIPE_DIRECTORY, FILL)
    failed = [run for run in runs if run.status != 0 and run.name in steps]
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
_TOOL_ERROR: Final = re.compile(r"(?<!OPAL )(?<!ORTE )(?<!PMIX )(?<!PRTE )\bERROR\b")


#: What a tool is told by the kernel whose connection to a Lustre server broke (EIO, ESHUTDOWN).
_CUT_OFF: Final = (os.strerror(errno.EIO), os.strerror(errno.ESHUTDOWN))


_EVICTION: Final = (
    "; on Lustre this may be an eviction, or a target that is switched off: root sees it (lctl get_param "
    "'osc.*.state' 'mdc.*.state', dmesg on the node)"
)


def telling_line(stage: Path, run: PhaseRun, on_lustre: bool = False) -> str:
    """Return the line that best explains a failed phase, on Lustre with what else to look at.

    An error of the system comes first, then an error of the tool. Then comes why a launcher did not run it, then
    the last line of the tool.
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
        [line.strip() for line in text.splitlines() if not is_binding(line)] for text in printed
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
        if said := launcher_cause(lines):
            return visible(said[:500])
    # The tool speaks before the launcher adds to it.
    for lines in map(is_of_tool, texts):
        telling = [x for x in lines if "error" in x.lower() or "fail" in x.lower()] or lines[-1:]
        if telling:
            return visible(telling[0][:300])
    ending = next(filter(None, map(launcher_ended, texts)), "it printed nothing")
    return visible(ending[:300])


#: Bytes below which a directory counts as full: a job's own files need this room.
_ROOM_BYTES: Final = 64 << 10


def is_full(stage: Path) -> bool:
    try:
        info = os.statvfs(stage)
    except OSError:
        return False
    return info.f_bavail * info.f_frsize < _ROOM_BYTES or (info.f_files > 0 and info.f_favail == 0)


_Item = TypeVar("_Item")

#: Seconds to wait for the files of other nodes: a stage directory on NFS shows them late.
ANSWER_S = 10.0


def _answers(stage: Path, out: str, nodes: int) -> list[dict[str, Any]]:
    """Return the agent's answers, ``OUT.<host>.json``; raises :class:`ToolOutputError`."""
    answers, deadline = [], time.monotonic() + ANSWER_S
    while True:
        files = sorted(stage.glob(f"{glob.escape(out)}.*.json"))
        if len(files) >= nodes or nodes == 1 or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for file in files:
        try:
            answer = untrusted.read_json(file)
        except OSError as error:
            raise ToolOutputError(f"{out}: no output: {file.name}: {error.strerror}") from error
        except ValueError as error:
            raise ToolOutputError(str(error)) from error
        if not isinstance(answer, dict):
            raise ToolOutputError(f"{file.name}: expected an object, found {type(answer).__name__}")
        host = file.name[len(out) + 1 : -len(".json")]
        if answer.get("host", host) != host:
            raise ToolOutputError(f"{file.name}: the answer of {str(answer['host'])[:80]!r}")
        answers.append(answer)
    return answers


def _parse(stage: Path, phase: PhasePlan, repetition: int) -> ToolOutput | None:
    if phase.parse is None:
        return None
    what = f"{phase.name}, repetition {repetition}"

    def text(name: str) -> str:
        return stage_text(stage / name.replace(REP, str(repetition)), what)

    stdout = text(printed_file(phase.name, REP))
    printed = Printed(
        result=text(phase.output) if phase.output else stdout,
        stdout=stdout if phase.output else "",
        stderr=text(complaints_file(phase.name, REP)),
        ranks=text(phase.ranks) if phase.ranks else "",
        files=stage_folder(stage / phase.folder.replace(REP, str(repetition)), what)
        if phase.folder
        else {},
    )
    try:
        return phase.parse(printed)
    except ToolOutputError as error:
        raise ToolOutputError(f"{what}: {error}") from error


def _evictions(stage: Path, plan: CasePlan, phase: PhasePlan, repetition: int) -> list[Eviction]:
    what = evict_stem(phase.name, repetition)
    try:
        return [Eviction.from_json(answer) for answer in _answers(stage, what, plan.nodes)]
    except TypeError as error:
        raise ToolOutputError(f"{what}: not an eviction: {error}") from error


def _if_there(file: Path) -> str:
    with contextlib.suppress(ToolOutputError):
        return stage_text(file, "")
    return ""


def _expected(plan: CasePlan) -> list[tuple[int, PhasePlan]]:
    """Return every execution of a phase as (repetition, phase)."""
    return [(0, phase) for phase in plan.prepare] + [
        (rep, phase)
        for rep in range(plan.first_repetition, plan.repetitions + 1)
        for phase in plan.repeat
        if phase.within is None
    ]


def _placed(stage: Path, repetition: int) -> Mapping[str, int]:
    """Return the requested target of each pinned name; raises :class:`ToolOutputError`."""
    what = f"{PINNED}.{repetition}"
    try:
        (pinned,) = _answers(stage, what, 1)
        placed: Mapping[str, int] = untrusted.build(Mapping[str, int], pinned["placed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ToolOutputError(f"{what}: not the targets of the files: {error!r}") from error
    return placed


@dataclass(frozen=True, slots=True)
class _Facts:
    """What the nodes said of themselves: fields as in :class:`Evidence`."""

    nodes: tuple[Mapping[str, Value], ...]
    versions: Mapping[str, Mapping[str, str]]
    idle: tuple[Load, ...]
    changes: tuple[NodeActivity, ...]
    clocks: tuple[ClockSeen, ...]


def _facts(stage: Path, runs: Sequence[PhaseRun], plan: CasePlan) -> _Facts:
    """Return the nodes' fingerprints, looks and changes; skip missing or damaged files."""
    prints: dict[str, list[Mapping[str, Value]]] = {}
    looks: dict[str, list[Load]] = {out: [] for out in FACTS}
    clocks: list[ClockSeen] = []
    versions: dict[str, Mapping[str, str]] = {}
    for run in (run for run in runs if run.name in FACTS):
        with contextlib.suppress(ToolOutputError):
            for answer in _answers(stage, run.name, plan.nodes):
                with contextlib.suppress(KeyError, TypeError):
                    load = Load.from_json(answer["load"])
                    facts = _of_tool(plan.tool, answer["fingerprint"])
                    clock = Clock.from_json(answer["clock"])
                    prints.setdefault(load.host, []).append(facts)
                    looks[run.name].append(load)
                    clocks.append(_while(run, clock))
                    versions[load.host] = untrusted.build(Mapping[str, str], answer["versions"])
    start, before, after = (looks[out] for out in FACTS)
    merged = tuple(merge(facts) for facts in prints.values())
    return _Facts(merged, versions, tuple(start), changes(before, after), tuple(clocks))


def _of_tool(tool: str, answer: object) -> Mapping[str, Value]:
    """Return a node's fingerprint without the scripts of other tools; raises TypeError."""
    facts: Mapping[str, Value] = untrusted.build(Mapping[str, Value], answer)
    own = SCRIPT + tool
    return {k: v for k, v in facts.items() if not k.startswith(SCRIPT) or k == own}


def _while(run: PhaseRun, clock: Clock) -> ClockSeen:
    """Return a look at the clock of any node, which was taken while a phase ran."""
    return ClockSeen(clock.epoch - run.ended, clock.epoch - run.started, clock.utc_offset)


def _lost(stage: Path) -> str:
    """Return why the job may not have held the target's lock throughout; empty if it did."""
    try:
        return LockKept.from_json(untrusted.parse_json(stage_text(stage / LOCKED, "lock"))).lost
    except (ToolOutputError, ValueError, TypeError):
        return "what kept the lock of the target for this case was killed before it could tell"


def _bindings(stage: Path, plan: CasePlan) -> tuple[Binding, ...]:
    """Return the bindings of the first judged execution on all tasks; all are launched alike."""
    for repetition, phase in _expected(plan):
        if repetition > 0 and phase.launch == "tasks":
            with contextlib.suppress(ToolOutputError):
                return tuple(
                    parse_bindings(stage_text(stage / complaints_file(phase.name, repetition), ""))
                )
    return ()


def collect(
    stage: Path,
    plan: CasePlan,
    job_status: int | None,
    owner: tuple[str, str] | None = None,
    job_state: str | None = None,
) -> Evidence:
    """Return all evidence that the job left.

    ``job_status`` is the job's exit status, None if unknown. ``job_state`` is the scheduler's state
    of the job. ``owner`` is (session, case): files of another case in the same directory are no
    evidence. If the agent refused, the evidence says so. Raises :class:`ToolOutputError` for
    anything else that is missing, damaged or failed. The error names the phase, the repetition and
    the tool's own message, and says if the directory is full.
    """
    old = _too_old(stage, plan)
    try:
        found = _collect(stage, plan, job_status, owner, job_state)
    except ToolOutputError as error:
        if old:
            raise ToolOutputError(f"{plan.tool}: {old} ({error})") from error
        if not is_full(stage):
            raise
        raise ToolOutputError(
            f"{error}; No space left in the stage directory {stage}: make room there, or set IOGAUGE_HOME to "
            "another directory"
        ) from error
    if old:
        raise ToolOutputError(f"{plan.tool}: {old}")
    return found


def _too_old(stage: Path, plan: CasePlan) -> str:
    """Return why the version of the tool that the first look found will not do; empty if it will."""
    of_files = any("metadata" in (phase.access.direction, phase.beside) for phase in plan.phases)
    feature = FIO_METADATA if plan.tool == FIO and of_files else plan.tool
    with contextlib.suppress(ToolOutputError, TypeError, KeyError):
        for answer in _answers(stage, FACTS[0], 1):
            found = untrusted.build(Mapping[str, str], answer["versions"])
            if old := too_old(feature, found.get(plan.tool, "")):
                return old
    return ""


def _collect(
    stage: Path,
    plan: CasePlan,
    job_status: int | None,
    owner: tuple[str, str] | None,
    job_state: str | None,
) -> Evidence:
    cause = cause_of_end(stage, job_state)
    ending = [*([] if job_status is None else [f"the job's {describe_status(job_status)}"]), *cause]
    opened = _opened(stage, owner, ending)
    if opened.refused or opened.occupied:
        first = (opened.view,) if opened.view else ()
        return Evidence(views=first, refused=opened.refused, occupied=opened.occupied)
    runs = parse_runs(stage_text(stage / RUNS, "phases"))
    if mismatch := _mismatch(stage, plan, runs):
        return Evidence(views=(opened.view,) if opened.view else (), mismatch=mismatch)
    if refused := refused_by_node(stage, runs):
        return Evidence(views=(opened.view,) if opened.view else (), refused=refused)
    on_lustre = plan.striped or bool(opened.view and opened.view.on_lustre)
    _check_phases(stage, plan, runs, cause, ending, on_lustre)
    if job_status or job_state in ENDED_BY_SCHEDULER:
        raise ToolOutputError(f"all phases finished, but {', '.join(ending)}")
    views = _views(stage, plan, opened)
    activity = parse_activity(_if_there(stage / ACTIVITY))
    outputs = _outputs(stage, plan, runs, activity)
    neighbours = stage_text(stage / NEIGHBOURS, "neighbours").splitlines()
    facts, clock = _facts(stage, runs, plan), opened.clock
    booted = clock.epoch - clock.boot if clock else 0.0
    own = [ClockSeen(booted, booted, clock.utc_offset)] if clock else []
    return Evidence(
        views=views,
        runs=tuple(runs),
        outputs=_frozen(outputs.judged),
        evictions=_frozen(outputs.evictions),
        cold=_frozen(outputs.cold),
        testimony=_frozen(outputs.testimony),
        activity=tuple(activity),
        asked=tuple(parse_activity(_if_there(stage / ASKED))),
        processes=tuple(parse_counts(_if_there(stage / PROCESSES))),
        printed=tuple(parse_counts(_if_there(stage / PRINTED))),
        hidden=tuple(parse_hidden(_if_there(stage / HIDDEN))),
        loaded=tuple(parse_loaded(_if_there(stage / LOADED))),
        found=tuple(parse_counts(_if_there(stage / FOUND))),
        neighbours=tuple(dict.fromkeys(neighbours)),
        lost=_lost(stage) if opened.locked else "",
        striping=model.striping_of_repetitions(
            plan, _if_there(stage / LAYOUTS), lambda number: _placed(stage, number)
        ),
        opened=opened.view,
        disks=opened.disks,
        passed_on=opened.directory_seen,
        directory=opened.directory,
        clocks=(*own, *facts.clocks),
        nodes=facts.nodes,
        versions=facts.versions,
        idle=facts.idle,
        changes=facts.changes,
        bindings=_bindings(stage, plan),
        samples=_samples(stage) if plan.sampled else (),
    )


def _mismatch(stage: Path, plan: CasePlan, runs: Sequence[PhaseRun]) -> str:
    """Return what a tool said of wrong data if it failed with them before it was judged, else nothing."""
    failed = {run.name for run in runs if run.repetition == 0 and run.status != 0}
    for phase in plan.phases:
        if phase.verifies is None or phase.name not in failed:
            continue
        files = [complaints_file(phase.name, 0), printed_file(phase.name, 0)]
        # What fio's servers say stands before the results.
        for name in [*files, *([phase.output.replace(REP, "0")] if phase.output else [])]:
            with contextlib.suppress(ToolOutputError):
                for line in stage_text(stage / name, phase.name).splitlines():
                    if re.search(phase.verifies.complaint, line):
                        return f"{phase.name}: {visible(line.strip()[:300])}"
    return ""


def _samples(stage: Path) -> tuple[Sample, ...]:
    """Return the samples of the contents; raises :class:`ToolOutputError`."""
    samples: dict[tuple[int, str], Sample] = {}
    for line in stage_text(stage / CONTENTS, "contents").splitlines():
        try:
            sample = Sample.from_json(untrusted.parse_json(line))
        except (TypeError, ValueError) as error:
            raise ToolOutputError(f"{CONTENTS}: not a sample: {error}") from error
        if (sample.repetition, sample.after) in samples:
            raise ToolOutputError(
                f"{CONTENTS}: {sample.after}, repetition {sample.repetition}: appears twice"
            )
        samples[sample.repetition, sample.after] = sample
    return tuple(samples.values())


def _opened(stage: Path, owner: tuple[str, str] | None, ending: Sequence[str]) -> Opened:
    """Return the agent's look before the first write; raises :class:`ToolOutputError`."""
    try:
        opened = Opened.from_json(untrusted.parse_json(stage_text(stage / OPENED, "open")))
    except (ToolOutputError, ValueError, TypeError) as error:
        said = _if_there(stage / JOB_COMPLAINTS).splitlines()
        ended = [visible(line[:300]) for line in said if line.startswith("iogauge: ")]
        reasons = f" ({', '.join([*ended, *ending])})" if ended or ending else ""
        raise ToolOutputError(
            f"the job ended before it looked at the target{reasons}: {error}"
        ) from error
    holder = (opened.session, opened.case)
    if owner is not None and holder != owner:
        raise ToolOutputError(f"the stage directory holds the case {holder}, expected {owner}")
    if opened.failed:
        raise ToolOutputError(f"nothing was measured: {opened.failed}")
    return opened


def _check_phases(
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
    for repetition, phase in _expected(plan):
        if (repetition, phase.name) not in done:
            missing = f"phase {phase.name}, repetition {repetition} never finished"
            raise ToolOutputError(f"{plan.tool}: " + ", ".join([missing, *ending]))


def _views(stage: Path, plan: CasePlan, opened: Opened) -> tuple[View, ...]:
    """Return the view of every node; raises :class:`ToolOutputError`."""
    if plan.nodes == 1:
        return (opened.view,) if opened.view else ()
    try:
        views = [View.from_json(answer) for answer in _answers(stage, VIEW, plan.nodes)]
    except TypeError as error:
        raise ToolOutputError(f"view: not a view of the target: {error}") from error
    hosts = {view.host for view in views}
    if len(hosts) != plan.nodes:
        raise ToolOutputError(f"{len(hosts)} node(s) looked at the target, {plan.nodes} expected")
    return tuple(views)


@dataclass(frozen=True, slots=True)
class _Outputs:
    """What the executions left, by phase name: fields as in :class:`Evidence`."""

    judged: dict[str, list[ToolOutput]]
    cold: dict[str, list[ToolOutput]]
    evictions: dict[str, list[Eviction]]
    testimony: dict[str, list[Testimony]]


def _outputs(
    stage: Path, plan: CasePlan, runs: Sequence[PhaseRun], activity: Sequence[Instant]
) -> _Outputs:
    """Parse the outputs and evictions of all executions; raises :class:`ToolOutputError`."""
    emptied = [phase.name for phase in plan.phases if phase.access.evict]
    told = witness.parse("".join(_if_there(file) for file in stage.glob(f"{WITNESS}.*")))
    outputs = _Outputs(
        judged={phase.name: [] for phase in plan.phases},
        cold={phase.name: [] for phase in plan.repeat},
        evictions={name: [] for name in emptied},
        testimony={phase.name: [] for phase in plan.phases if phase.witnessed},
    )
    for repetition, phase in _expected(plan):
        warm_up = repetition == 0 and phase.name in outputs.cold
        parsed = _parse(stage, phase, repetition)
        run = next((r for r in runs if (r.repetition, r.name) == (repetition, phase.name)), None)
        testimony = witness.hear(plan, phase, repetition, run, told)
        what = f"{phase.name}, repetition {repetition}"
        if parsed is not None and phase.syncs:
            measured = {name for name, _ in phase.rates.values()}
            parsed = witness.synced(parsed, measured, testimony, what)
        if parsed is not None and phase.series and run is not None:
            parsed = phase.series(parsed, activity, run, what)
        parts = [phase, *(p for p in plan.repeat if p.within == phase.name)]
        if parsed is not None:
            for part in parts:
                (outputs.cold if warm_up else outputs.judged)[part.name].append(parsed)
        if phase.name in outputs.testimony and not warm_up:
            for part in parts:
                outputs.testimony[part.name].append(testimony)
        if phase.access.evict and not warm_up:
            outputs.evictions[phase.name] += _evictions(stage, plan, phase, repetition)
    return outputs


def _frozen(values: Mapping[str, Sequence[_Item]]) -> dict[str, tuple[_Item, ...]]:
    return {name: tuple(items) for name, items in values.items()}
