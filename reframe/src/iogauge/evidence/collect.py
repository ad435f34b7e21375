"""Read all that a finished job left in its stage directory, once and in full, as values for guards and verdict.

:func:`collect` reads from top to bottom: how the job entered the target, how its phases ended, what its nodes noted, and
what its tools printed. Raises :class:`ToolOutputError` for all that a healthy job would not leave.
"""

import contextlib
import os
import re
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeVar

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.core.text import visible
from iogauge.core.versions import too_old
from iogauge.core.vocabulary import Value
from iogauge.evidence import complaints, task_counters
from iogauge.evidence.complaints import stage_text
from iogauge.evidence.fingerprint import merge
from iogauge.evidence.model import Evidence, Striping
from iogauge.evidence.task_counters import TaskCounters, changes
from iogauge.node.activity import Load
from iogauge.node.between import SCRIPT
from iogauge.node.files import Eviction, Sample
from iogauge.node.lustre.file_layout import Layouts
from iogauge.node.view import View
from iogauge.plan import observations
from iogauge.plan import stage as files
from iogauge.plan.case import REP, CasePlan, PhasePlan, Printed
from iogauge.plan.observations import NodeObservations
from iogauge.plan.stage import Opened, PhaseRun
from iogauge.tools.mpi import Binding, alone, parse_bindings, unlabelled

#: Seconds to wait for what other nodes noted: a stage directory on NFS shows it late.
ANSWER_S = 10.0


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
    evidence. If the agent refused, the evidence says so. Raises :class:`ToolOutputError`, with the tool's own message, for
    anything else that is missing, damaged or failed.
    """
    reader = observations.Reader(stage)
    noted = reader.read()
    end = complaints.end_of_job(stage, job_status, job_state)
    with _explained(stage):
        opened = _opened(stage, owner, end)
        evidence = Evidence(
            views=tuple(filter(None, [opened.view])),
            opened=opened.view,
            refused=opened.refused,
            occupied=opened.occupied,
        )
        if opened.refused or opened.occupied:
            return evidence
        runs = files.parse_runs(stage_text(stage / files.RUNS))
        wrong = complaints.mismatch(stage, plan, runs)
        refused = complaints.refused_by_node(stage, runs)
        if wrong or refused:
            return replace(evidence, mismatch=wrong, refused=refused)
        on_lustre = plan.striped or bool(opened.view and opened.view.on_lustre)
        complaints.check_phases(stage, plan, runs, end, on_lustre)
        job = _Job(stage, plan, opened, runs, _complete(reader, noted, plan, runs))
        evidence = _with_notes(evidence, job)
        evidence = _with_facts(evidence, job)
        return _with_outputs(evidence, job)


@dataclass(frozen=True, slots=True)
class _Job:
    """A job that ended well: its stage, its plan, its look at the target, its phases, and what its nodes noted."""

    stage: Path
    plan: CasePlan
    opened: Opened
    runs: complaints.Runs
    noted: NodeObservations


@contextlib.contextmanager
def _explained(stage: Path) -> Iterator[None]:
    """Say of an error that a full stage directory caused it."""
    try:
        yield
    except ToolOutputError as error:
        if not _is_full(stage):
            raise
        raise ToolOutputError(
            f"{error}; No space left in the stage directory {stage}: make room there, or set IOGAUGE_HOME to "
            "another directory"
        ) from error


#: Bytes below which a directory counts as full: a job's own files need this room.
_ROOM_BYTES = 64 << 10


def _is_full(stage: Path) -> bool:
    with contextlib.suppress(OSError):
        info = os.statvfs(stage)
        no_files = info.f_files > 0 and info.f_favail == 0
        return no_files or info.f_bavail * info.f_frsize < _ROOM_BYTES
    return False


#: Words of a module system, a shell or an interpreter that could not begin.
_FAILED = re.compile(r"(?i:error)|No such file|not found|denied")


def _opened(stage: Path, owner: tuple[str, str] | None, end: complaints.End) -> Opened:
    """Return the agent's look before the first write; raises :class:`ToolOutputError`."""
    try:
        text = stage_text(stage / files.OPENED)
        opened = Opened.from_json(untrusted.parse_json(text))
    except (ToolOutputError, ValueError, TypeError) as error:
        reasons = ", ".join([*_why_not_opened(stage), *end.reasons])
        because = reasons and f" ({reasons})"
        raise ToolOutputError(
            f"the job ended before it looked at the target{because}: {error}"
        ) from error
    holder = (opened.session, opened.case)
    if owner is not None and holder != owner:
        raise ToolOutputError(
            f"the stage directory holds the case {holder}, expected {owner}"
        )
    if opened.failed:
        raise ToolOutputError(f"nothing was measured: {opened.failed}")
    return opened


def _why_not_opened(stage: Path) -> list[str]:
    """Return what the job script printed of its end, in its own lines or in the last one that names an error."""
    try:
        lines = stage_text(stage / files.JOB_COMPLAINTS).splitlines()
    except ToolOutputError:
        return []
    told = [line for line in lines if line.startswith("iogauge: ")]
    if not told:
        told = [line for line in lines if _FAILED.search(line)][-1:]
    return [visible(line.strip()[:300]) for line in told]


# What its nodes noted.


def _complete(
    reader: observations.Reader,
    noted: NodeObservations,
    plan: CasePlan,
    runs: complaints.Runs,
) -> NodeObservations:
    """Return what the nodes of a finished job noted; wait for what others than the first one answered.

    Raises :class:`ToolOutputError` without any, or for a damaged line.
    """
    looks = (files.VIEW, *files.FACTS)
    expected = [name for _, name in runs if name in looks]
    for repetition, phase in plan.in_order:
        if phase.access.evict:
            expected.append(files.evict_stem(phase.name, repetition))
    deadline = time.monotonic() + ANSWER_S
    while plan.nodes > 1 and time.monotonic() < deadline:
        answered = all(len(noted.by_host(what)) >= plan.nodes for what in expected)
        if answered and _all_counted(noted, plan):
            break
        time.sleep(0.5)
        noted = reader.read()
    if not noted.notes:
        raise ToolOutputError(
            f"no output of the agents: no file {observations.SEEN}.HOST.jsonl in the stage directory"
        )
    if noted.damaged:
        raise ToolOutputError(
            f"agents: {noted.damaged[0]}; expected whole lines. Run the case again"
        )
    return noted


def _all_counted(noted: NodeObservations, plan: CasePlan) -> bool:
    """Return whether the agents of the nodes have told of all tasks, if any has."""
    told = task_counters.witnesses(noted)
    if not told:
        return True
    for repetition, phase in plan.in_order:
        counts = task_counters.hear(plan, phase, repetition, told)
        if phase.witnessed and not counts.complete:
            return False
    return True


T = TypeVar("T")


def _read(what: str, read: Callable[[Any], T], value: Any) -> T:
    """Return a value as it is read; raises :class:`ToolOutputError` if it is not what agents note."""
    try:
        return read(value)
    except (KeyError, TypeError, ValueError) as error:
        raise ToolOutputError(f"{what}: not what agents note: {error}") from error


def _answers(noted: NodeObservations, what: str, read: Callable[[Any], T]) -> list[T]:
    """Return what each node answered, as it is read; raises :class:`ToolOutputError`."""
    return [_read(what, read, answer) for answer in noted.by_host(what).values()]


def _noted(noted: NodeObservations, what: str, read: Callable[[Any], T]) -> list[T]:
    """Return what was noted; raises :class:`ToolOutputError`."""
    return [_read(what, read, value) for _, _, value in noted.each(what)]


def _with_notes(evidence: Evidence, job: _Job) -> Evidence:
    """Return the evidence with what the nodes saw of the target, and over time; raises :class:`ToolOutputError`."""
    noted, views = job.noted, evidence.views
    if job.plan.nodes > 1:
        views = tuple(_answers(noted, files.VIEW, View.from_json))
        if len(views) != job.plan.nodes:
            raise ToolOutputError(
                f"{len(views)} node(s) looked at the target, {job.plan.nodes} expected"
            )
    neighbours = stage_text(job.stage / files.NEIGHBOURS)
    why = noted.each(observations.UNCOUNTED, str)
    return replace(
        evidence,
        views=views,
        passed_on=job.opened.directory_seen,
        directory=job.opened.directory,
        neighbours=tuple(dict.fromkeys(neighbours.splitlines())),
        lost=_lost(job),
        striping=_striping(job),
        moved=noted.instants(observations.MOVED),
        asked=noted.instants(observations.ASKED),
        printed=noted.counts(observations.PRINTED),
        found=noted.counts(observations.FOUND),
        loaded=noted.loaded(),
        uncounted="; ".join(f"{host}: {text}" for host, _, text in why),
        samples=tuple(_noted(noted, observations.CONTENTS, Sample.from_json)),
    )


def _lost(job: _Job) -> str:
    """Return why the job may not have held the target's lock throughout; empty if it did."""
    if not job.opened.locked:
        return ""
    told = (
        "what kept the lock of the target for this case was killed before it could tell"
    )
    for _, _, text in job.noted.each(observations.LOST, str):
        told = text
    return told


def _striping(job: _Job) -> tuple[Striping, ...]:
    """Return the layouts of each judged repetition, or of the preparing one if it writes.

    They are missing if the target is not on Lustre, or the case writes no data.
    """
    plan, striping = job.plan, []
    noted = {}
    for layouts in _noted(job.noted, observations.LAYOUTS, Layouts.from_json):
        noted[layouts.repetition] = layouts
    repetitions = range(1, plan.repetitions + 1)
    if plan.prepare:
        repetitions = range(1)
    for repetition in repetitions:
        silent = "the agent that keeps the lock did not answer in time"
        layouts = noted.get(repetition, Layouts(repetition=repetition, problem=silent))
        if repetition in noted or (plan.striped and plan.keeps_files):
            striping.append(Striping(_placed(job, repetition), layouts))
    return tuple(striping)


def _placed(job: _Job, repetition: int) -> Mapping[str, int]:
    """Return the requested target of each pinned name; raises :class:`ToolOutputError`."""
    if not job.plan.pins:
        return {}

    def read(answer: Any) -> Any:
        return untrusted.build(Mapping[str, int], answer["placed"])

    what = f"{files.PINNED}.{repetition}"
    answers: list[Mapping[str, int]] = _answers(job.noted, what, read)
    if len(answers) != 1:
        raise ToolOutputError(f"{what}: {len(answers)} answers, expected one")
    return answers[0]


def _with_facts(evidence: Evidence, job: _Job) -> Evidence:
    """Return the evidence with what the nodes said of themselves; missing or damaged answers are left out."""
    prints = defaultdict[str, list[Mapping[str, Value]]](list)
    looks: dict[str, list[Load]] = {what: [] for what in files.FACTS}
    versions: dict[str, Mapping[str, str]] = {}
    for what, loads in looks.items():
        for _, _, answer in job.noted.each(what):
            with contextlib.suppress(KeyError, TypeError):
                load = Load.from_json(answer["load"])
                facts = _of_tool(job.plan.tool, answer["fingerprint"])
                prints[load.host].append(facts)
                loads.append(load)
                versions[load.host] = untrusted.build(
                    Mapping[str, str], answer["versions"]
                )
    start, before, after = looks.values()
    return replace(
        evidence,
        nodes={host: merge(looks) for host, looks in prints.items()},
        versions=versions,
        idle=tuple(start),
        activity=changes(before, after),
    )


def _of_tool(tool: str, answer: object) -> Mapping[str, Value]:
    """Return a node's fingerprint without the scripts of other tools; raises TypeError."""
    facts: Mapping[str, Value] = untrusted.build(Mapping[str, Value], answer)
    own = SCRIPT + tool
    return {k: v for k, v in facts.items() if not k.startswith(SCRIPT) or k == own}


# What its tools printed.


def _with_outputs(evidence: Evidence, job: _Job) -> Evidence:
    """Return the evidence with what the executions left, and what the kernels say of them; raises ToolOutputError."""
    plan, noted = job.plan, job.noted
    told = task_counters.witnesses(noted)
    judged: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.phases}
    cold: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.repeat}
    emptied = defaultdict[str, list[Eviction]](list)
    counts = defaultdict[str, list[TaskCounters]](list)
    for repetition, phase in plan.in_order:
        run = job.runs[repetition, phase.name]
        heard = task_counters.hear(plan, phase, repetition, told)
        output = _output(job, phase, run, heard)
        is_warm_up = repetition == 0 and phase not in plan.prepare
        outputs = cold if is_warm_up else judged
        for part in plan.phases:
            if phase.name not in (part.name, part.within):
                continue
            if output is not None:
                outputs[part.name].append(output)
            if phase.witnessed and not is_warm_up:
                counts[part.name].append(heard)
        if phase.access.evict and not is_warm_up:
            stem = files.evict_stem(phase.name, repetition)
            emptied[phase.name] += _answers(noted, stem, Eviction.from_json)
    return replace(
        evidence,
        runs=job.runs,
        outputs=_frozen(judged),
        cold=_frozen(cold),
        evictions=_frozen(emptied),
        task_counters=_frozen(counts),
        bindings=_bindings(job),
    )


def _frozen(by_phase: Mapping[str, Sequence[T]]) -> dict[str, tuple[T, ...]]:
    return {name: tuple(values) for name, values in by_phase.items()}


def _output(
    job: _Job, phase: PhasePlan, run: PhaseRun, counts: TaskCounters
) -> ToolOutput | None:
    """Return the output of an execution, with what belongs to its time; raises :class:`ToolOutputError`."""
    if phase.parse is None:
        return None
    what = f"{phase.name}, repetition {run.repetition}"
    try:
        printed = _printed(job, phase, run.repetition)
        parsed = phase.parse(printed)
        old = too_old(parsed.tool, parsed.version)
        if old:
            raise ToolOutputError(f"{parsed.tool}: {old}")
    except ToolOutputError as error:
        raise ToolOutputError(f"{what}: {error}") from error
    if phase.syncs:
        measured = {name for name, _ in phase.rates.values()}
        parsed = task_counters.synced(parsed, measured, counts, what)
    if phase.series:
        parsed = phase.series(parsed, job.noted, run, what)
    return parsed


def _printed(job: _Job, phase: PhasePlan, repetition: int) -> Printed:
    """Return all that a phase printed; raises :class:`ToolOutputError`."""

    def text(name: str) -> str:
        if not name:
            return ""
        path = job.stage / name.replace(REP, str(repetition))
        return stage_text(path)

    stdout = unlabelled(text(files.printed_file(phase.name, REP)))
    several = alone(stdout)
    if several:
        raise ToolOutputError(several)
    texts: dict[str, str] = {}
    if phase.folder:
        folder = job.stage / phase.folder.replace(REP, str(repetition))
        texts = stage_folder(folder)
    printed = Printed(
        result=stdout,
        stdout="",
        stderr=unlabelled(text(files.complaints_file(phase.name, REP))),
        ranks=text(phase.ranks or ""),
        files=texts,
    )
    if phase.output:
        return replace(printed, result=text(phase.output), stdout=stdout)
    return printed


#: Texts that a tool leaves in its folder.
_TEXTS = (".csv", ".ini", ".json", ".txt")


def stage_folder(folder: Path) -> dict[str, str]:
    """Return the texts in a folder by their names; raises :class:`ToolOutputError`."""
    try:
        files = sorted(file for file in folder.iterdir() if file.suffix in _TEXTS)
    except OSError as error:
        raise ToolOutputError(f"no output: {folder.name}: {error.strerror}") from error
    return {file.name: stage_text(file) for file in files}


def _bindings(job: _Job) -> tuple[Binding, ...]:
    """Return the bindings of the first judged execution on all tasks; all are launched alike."""
    for repetition, phase in job.plan.in_order:
        if repetition > 0 and phase.launch == "tasks":
            with contextlib.suppress(ToolOutputError):
                file = job.stage / files.complaints_file(phase.name, repetition)
                return tuple(parse_bindings(unlabelled(stage_text(file))))
    return ()
