"""Read all that a finished job left in its stage directory, once and in full, as values for guards and verdict.

:func:`collect` reads from top to bottom: how the job entered the target, how its phases ended, what its nodes noted, and
what its tools printed. Raises :class:`ToolOutputError` for all that a healthy job would not leave.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.core.text import visible
from iogauge.core.words import FIO, FIO_METADATA, Value
from iogauge.evidence import model, witness
from iogauge.evidence.complaints import (
    ENDED_BY_SCHEDULER,
    cause_of_end,
    describe_status,
    is_full,
    refused_by_node,
    stage_folder,
    stage_text,
    telling_line,
)
from iogauge.evidence.fingerprint import merge
from iogauge.evidence.model import ClockSeen, Evidence
from iogauge.evidence.witness import Testimony, changes
from iogauge.node.files import Eviction, Sample
from iogauge.node.host import Clock, Load
from iogauge.node.layouts import Layouts
from iogauge.node.mounts import View
from iogauge.node.probes import SCRIPT, too_old
from iogauge.plan.case import REP, CasePlan, PhasePlan, Printed
from iogauge.plan.seen import (
    ASKED,
    CONTENTS,
    FOUND,
    LAYOUTS,
    LOADED,
    LOST,
    MOVED,
    PRINTED,
    PROCESSES,
    SEEN,
    Instant,
    Seen,
    read,
)
from iogauge.plan.stage import (
    FACTS,
    JOB_COMPLAINTS,
    NEIGHBOURS,
    OPENED,
    PINNED,
    RUNS,
    VIEW,
    Opened,
    PhaseRun,
    complaints_file,
    evict_stem,
    parse_runs,
    printed_file,
)
from iogauge.tools.mpi import Binding, parse_bindings

_Item = TypeVar("_Item")

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
    evidence. If the agent refused, the evidence says so. Raises :class:`ToolOutputError` for
    anything else that is missing, damaged or failed. The error names the phase, the repetition and
    the tool's own message, and says if the directory is full.
    """
    old = _too_old(read(stage), plan)
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


def _collect(
    stage: Path,
    plan: CasePlan,
    job_status: int | None,
    owner: tuple[str, str] | None,
    job_state: str | None,
) -> Evidence:
    cause = cause_of_end(stage, job_state)
    ending = [*([] if job_status is None else [f"the job's {describe_status(job_status)}"]), *cause]

    # How the job entered the target.
    opened = _opened(stage, owner, ending)
    first = (opened.view,) if opened.view else ()
    if opened.refused or opened.occupied:
        return Evidence(views=first, refused=opened.refused, occupied=opened.occupied)

    # How its phases ended.
    runs = parse_runs(stage_text(stage / RUNS, "phases"))
    if mismatch := _mismatch(stage, plan, runs):
        return Evidence(views=first, mismatch=mismatch)
    if refused := refused_by_node(stage, runs):
        return Evidence(views=first, refused=refused)
    on_lustre = plan.striped or bool(opened.view and opened.view.on_lustre)
    _check_phases(stage, plan, runs, cause, ending, on_lustre)
    if job_status or job_state in ENDED_BY_SCHEDULER:
        raise ToolOutputError(f"all phases finished, but {', '.join(ending)}")
    neighbours = stage_text(stage / NEIGHBOURS, "neighbours").splitlines()

    # What its nodes noted.
    seen = _noted(stage, plan, runs)
    if not seen.notes:
        raise ToolOutputError(f"no output of the agents: {stage / SEEN}.HOST.jsonl: No such file")
    if seen.damaged:
        raise ToolOutputError(f"agents: {seen.damaged[0]}; expected whole lines. Run the case again")
    activity = seen.instants(MOVED)
    facts = [
        (run.name, load, _of_tool(plan.tool, prints), _while(run, clock), versions)
        for run in runs
        for load, prints, clock, versions in _facts(seen, run.name)
    ]
    prints_of: dict[str, list[Mapping[str, Value]]] = {}
    for _, load, prints, _, _ in facts:
        prints_of.setdefault(load.host, []).append(prints)
    start, before, after = ([load for name, load, *_ in facts if name == out] for out in FACTS)
    clock = opened.clock
    booted = clock.epoch - clock.boot if clock else 0.0
    own = [ClockSeen(booted, booted, clock.utc_offset)] if clock else []

    # What its tools printed, and what the kernels say of them.
    emptied = [phase.name for phase in plan.phases if phase.access.evict]
    judged: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.phases}
    cold: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.repeat}
    evictions: dict[str, list[Eviction]] = {name: [] for name in emptied}
    testimony: dict[str, list[Testimony]] = {p.name: [] for p in plan.phases if p.witnessed}
    told = witness.witnesses(seen)
    for repetition, phase in _expected(plan):
        warm_up = repetition == 0 and phase.name in cold
        run = next((r for r in runs if (r.repetition, r.name) == (repetition, phase.name)), None)
        heard = witness.hear(plan, phase, repetition, run, told)
        output = _output(stage, phase, repetition, run, heard, activity)
        parts = [phase, *(p for p in plan.repeat if p.within == phase.name)]
        for part in parts:
            if output is not None:
                (cold if warm_up else judged)[part.name].append(output)
            if phase.name in testimony and not warm_up:
                testimony[part.name].append(heard)
        if phase.access.evict and not warm_up:
            evictions[phase.name] += _evictions(seen, phase, repetition)

    return Evidence(
        views=_views(seen, plan, opened),
        runs=tuple(runs),
        outputs=_frozen(judged),
        evictions=_frozen(evictions),
        cold=_frozen(cold),
        testimony=_frozen(testimony),
        activity=activity,
        asked=seen.instants(ASKED),
        processes=seen.counts(PROCESSES),
        printed=seen.counts(PRINTED),
        hidden=seen.hidden(),
        loaded=tuple(sorted(seen.words(LOADED))),
        found=seen.counts(FOUND),
        neighbours=tuple(dict.fromkeys(neighbours)),
        lost=_lost(seen) if opened.locked else "",
        striping=model.striping_of_repetitions(
            plan, _layouts(seen), lambda repetition: _placed(seen, repetition)
        ),
        opened=opened.view,
        disks=opened.disks,
        passed_on=opened.directory_seen,
        directory=opened.directory,
        clocks=(*own, *(looked for _, _, _, looked, _ in facts)),
        nodes=tuple(merge(prints) for prints in prints_of.values()),
        versions={load.host: versions for _, load, _, _, versions in facts},
        idle=tuple(start),
        changes=changes(before, after),
        bindings=_bindings(stage, plan),
        samples=_samples(seen) if plan.sampled else (),
    )


# How the job entered the target, and how its phases ended.


def _opened(stage: Path, owner: tuple[str, str] | None, ending: Sequence[str]) -> Opened:
    """Return the agent's look before the first write; raises :class:`ToolOutputError`."""
    try:
        opened = Opened.from_json(untrusted.parse_json(stage_text(stage / OPENED, "open")))
    except (ToolOutputError, ValueError, TypeError) as error:
        said = _said(stage / JOB_COMPLAINTS)
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


def _said(file: Path) -> list[str]:
    with contextlib.suppress(ToolOutputError):
        return stage_text(file, "").splitlines()
    return []


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


def _expected(plan: CasePlan) -> list[tuple[int, PhasePlan]]:
    """Return every execution of a phase as (repetition, phase)."""
    return [(0, phase) for phase in plan.prepare] + [
        (rep, phase)
        for rep in range(plan.first_repetition, plan.repetitions + 1)
        for phase in plan.repeat
        if phase.within is None
    ]


# What its nodes noted.


def _noted(stage: Path, plan: CasePlan, runs: Sequence[PhaseRun]) -> Seen:
    """Return what the nodes of a finished job noted; wait for what others than the first one answered."""
    expected = [run.name for run in runs if run.name in (VIEW, *FACTS)]
    expected += [
        evict_stem(phase.name, repetition)
        for repetition, phase in _expected(plan)
        if phase.access.evict
    ]
    deadline = time.monotonic() + ANSWER_S
    while True:
        seen = read(stage)
        if plan.nodes == 1 or time.monotonic() > deadline:
            return seen
        if all(len(seen.by_host(what)) >= plan.nodes for what in expected):
            return seen
        time.sleep(0.5)


def _answers(seen: Seen, what: str) -> dict[str, dict[str, Any]]:
    """Return what each node answered; raises :class:`ToolOutputError` for the answer of another node."""
    answers = seen.by_host(what)
    for host, answer in answers.items():
        if not isinstance(answer, dict):
            raise ToolOutputError(
                f"{what}: {host} answered a {type(answer).__name__}: expected an object"
            )
        if answer.get("host", host) != host:
            raise ToolOutputError(f"{what}: {host} gave the answer of {str(answer['host'])[:80]!r}")
    return answers


def _views(seen: Seen, plan: CasePlan, opened: Opened) -> tuple[View, ...]:
    """Return the view of every node; raises :class:`ToolOutputError`."""
    if plan.nodes == 1:
        return (opened.view,) if opened.view else ()
    try:
        views = [View.from_json(answer) for answer in _answers(seen, VIEW).values()]
    except TypeError as error:
        raise ToolOutputError(f"view: not a view of the target: {error}") from error
    if len(views) != plan.nodes:
        raise ToolOutputError(f"{len(views)} node(s) looked at the target, {plan.nodes} expected")
    return tuple(views)


_Facts = tuple[Load, Mapping[str, Value], Clock, Mapping[str, str]]


def _facts(seen: Seen, what: str) -> list[_Facts]:
    """Return what nodes said of themselves: load, fingerprint, clock, versions; damaged answers are left out."""
    if what not in FACTS:
        return []
    facts: list[_Facts] = []
    with contextlib.suppress(ToolOutputError):
        for answer in _answers(seen, what).values():
            with contextlib.suppress(KeyError, TypeError):
                facts.append(
                    (
                        Load.from_json(answer["load"]),
                        untrusted.build(Mapping[str, Value], answer["fingerprint"]),
                        Clock.from_json(answer["clock"]),
                        untrusted.build(Mapping[str, str], answer["versions"]),
                    )
                )
    return facts


def _too_old(seen: Seen, plan: CasePlan) -> str:
    """Return why the version of the tool that the first look found will not do; empty if it will."""
    of_files = any("metadata" in (phase.access.direction, phase.beside) for phase in plan.phases)
    feature = FIO_METADATA if plan.tool == FIO and of_files else plan.tool
    reasons = (too_old(feature, v.get(plan.tool, "")) for _, _, _, v in _facts(seen, FACTS[0]))
    return next(filter(None, reasons), "")


def _of_tool(tool: str, facts: Mapping[str, Value]) -> Mapping[str, Value]:
    """Return a node's fingerprint without the scripts of other tools."""
    own = SCRIPT + tool
    return {k: v for k, v in facts.items() if not k.startswith(SCRIPT) or k == own}


def _while(run: PhaseRun, clock: Clock) -> ClockSeen:
    """Return a look at the clock of any node, which was taken while a phase ran."""
    return ClockSeen(clock.epoch - run.ended, clock.epoch - run.started, clock.utc_offset)


def _lost(seen: Seen) -> str:
    """Return why the job may not have held the target's lock throughout; empty if it did."""
    told = [text for _, _, text in seen.each(LOST, str)]
    return (
        told[-1]
        if told
        else "what kept the lock of the target for this case was killed before it could tell"
    )


def _layouts(seen: Seen) -> dict[int, Layouts]:
    """Return the layouts that were noted, by repetition; raises :class:`ToolOutputError`."""
    noted: dict[int, Layouts] = {}
    for _, _, value in seen.each(LAYOUTS):
        try:
            layouts = Layouts.from_json(value)
        except (TypeError, ValueError) as error:
            raise ToolOutputError(f"{LAYOUTS}: not the layouts of the files: {error}") from error
        if layouts.repetition in noted:
            raise ToolOutputError(f"{LAYOUTS}: repetition {layouts.repetition}: there twice")
        noted[layouts.repetition] = layouts
    return noted


def _placed(seen: Seen, repetition: int) -> Mapping[str, int]:
    """Return the requested target of each pinned name; raises :class:`ToolOutputError`."""
    what = f"{PINNED}.{repetition}"
    try:
        (pinned,) = _answers(seen, what).values()
        placed: Mapping[str, int] = untrusted.build(Mapping[str, int], pinned["placed"])
    except (KeyError, TypeError, ValueError) as error:
        raise ToolOutputError(f"{what}: not the targets of the files: {error!r}") from error
    return placed


def _evictions(seen: Seen, phase: PhasePlan, repetition: int) -> list[Eviction]:
    what = evict_stem(phase.name, repetition)
    try:
        return [Eviction.from_json(answer) for answer in _answers(seen, what).values()]
    except TypeError as error:
        raise ToolOutputError(f"{what}: not an eviction: {error}") from error


def _samples(seen: Seen) -> tuple[Sample, ...]:
    """Return the samples of the contents; raises :class:`ToolOutputError`."""
    samples: dict[tuple[int, str], Sample] = {}
    for _, _, value in seen.each(CONTENTS):
        try:
            sample = Sample.from_json(value)
        except (TypeError, ValueError) as error:
            raise ToolOutputError(f"{CONTENTS}: not a sample: {error}") from error
        if (sample.repetition, sample.after) in samples:
            raise ToolOutputError(
                f"{CONTENTS}: {sample.after}, repetition {sample.repetition}: appears twice"
            )
        samples[sample.repetition, sample.after] = sample
    return tuple(samples.values())


# What its tools printed.


def _output(
    stage: Path,
    phase: PhasePlan,
    repetition: int,
    run: PhaseRun | None,
    testimony: Testimony,
    activity: Sequence[Instant],
) -> ToolOutput | None:
    """Return the output of an execution, with what belongs to its time; raises :class:`ToolOutputError`."""
    parsed, what = _parse(stage, phase, repetition), f"{phase.name}, repetition {repetition}"
    if parsed is not None and phase.syncs:
        measured = {name for name, _ in phase.rates.values()}
        parsed = witness.synced(parsed, measured, testimony, what)
    if parsed is not None and phase.series and run is not None:
        parsed = phase.series(parsed, activity, run, what)
    return parsed


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


def _bindings(stage: Path, plan: CasePlan) -> tuple[Binding, ...]:
    """Return the bindings of the first judged execution on all tasks; all are launched alike."""
    for repetition, phase in _expected(plan):
        if repetition > 0 and phase.launch == "tasks":
            with contextlib.suppress(ToolOutputError):
                return tuple(
                    parse_bindings(stage_text(stage / complaints_file(phase.name, repetition), ""))
                )
    return ()


def _frozen(values: Mapping[str, Sequence[_Item]]) -> dict[str, tuple[_Item, ...]]:
    return {name: tuple(items) for name, items in values.items()}
