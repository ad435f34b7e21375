"""Read all that a finished job left in its stage directory, once and in full, as values for guards and verdict.

:func:`collect` reads from top to bottom: how the job entered the target, how its phases ended, what its nodes noted, and
what its tools printed. Raises :class:`ToolOutputError` for all that a healthy job would not leave.
"""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from iogauge.core import untrusted
from iogauge.core.measurement import ToolOutput, ToolOutputError
from iogauge.core.text import visible
from iogauge.core.versions import too_old
from iogauge.core.words import FIO, FIO_METADATA, Value
from iogauge.evidence import complaints, task_counters
from iogauge.evidence.complaints import executions, stage_text
from iogauge.evidence.fingerprint import merge
from iogauge.evidence.model import ClockReading, Evidence, Striping
from iogauge.evidence.task_counters import TaskCounters, changes
from iogauge.node.between import SCRIPT
from iogauge.node.files import Eviction, Sample
from iogauge.node.host import Clock, Load
from iogauge.node.lustre.layout import Layouts
from iogauge.node.lustre.targets import ost_name
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
    with _explained(stage, noted, plan):
        cause = complaints.cause_of_end(stage, job_state)
        status = f"the job's {complaints.describe_status(job_status or 0)}"
        ending = [*([] if job_status is None else [status]), *cause]
        # How the job entered the target.
        opened = _opened(stage, owner, ending)
        first = (opened.view,) if opened.view else ()
        if opened.refused or opened.occupied:
            return Evidence(
                views=first, refused=opened.refused, occupied=opened.occupied
            )

        # How its phases ended.
        runs = files.parse_runs(stage_text(stage / files.RUNS, "phases"))
        wrong = complaints.mismatch(stage, plan, runs)
        refused = complaints.refused_by_node(stage, runs)
        if wrong or refused:
            return Evidence(views=first, mismatch=wrong, refused=refused)
        on_lustre = plan.striped or bool(opened.view and opened.view.on_lustre)
        complaints.check_phases(stage, plan, runs, cause, ending, on_lustre)
        if job_status or job_state in complaints.ENDED_BY_SCHEDULER:
            raise ToolOutputError(f"all phases finished, but {', '.join(ending)}")
        # What its nodes noted, and what its tools printed.
        noted = _complete(stage, reader, noted, plan, runs)
        neighbours = stage_text(stage / files.NEIGHBOURS, files.NEIGHBOURS)
        return Evidence(
            views=_views(noted, plan, opened),
            runs=tuple(runs),
            **_outputs(stage, plan, runs, noted, opened.view),
            activity=noted.instants(observations.MOVED),
            asked=noted.instants(observations.ASKED),
            processes=noted.counts(observations.PROCESSES),
            printed=noted.counts(observations.PRINTED),
            hidden=noted.hidden(),
            uncounted="; ".join(
                f"{host}: {why}"
                for host, _, why in noted.each(observations.UNCOUNTED, str)
            ),
            loaded=noted.loaded(),
            found=noted.counts(observations.FOUND),
            neighbours=tuple(dict.fromkeys(neighbours.splitlines())),
            lost=_lost(noted) if opened.locked else "",
            striping=_striping(noted, plan),
            opened=opened.view,
            disks=opened.disks,
            passed_on=opened.directory_seen,
            directory=opened.directory,
            **_facts(noted, runs, plan, opened.clock),
            bindings=_bindings(stage, plan),
            samples=_samples(noted) if plan.sampled else (),
        )


@contextlib.contextmanager
def _explained(stage: Path, noted: NodeObservations, plan: CasePlan) -> Iterator[None]:
    """Say of an error what caused it: the tool is too old, which is an error by itself, something was mounted over the case's
    directory, or the stage directory is full."""
    old, hidden = _too_old(noted, plan), noted.hidden()
    try:
        yield
    except ToolOutputError as error:
        if old and old not in str(error):
            raise ToolOutputError(f"{plan.tool}: {old} ({error})") from error
        if hidden:
            raise ToolOutputError(
                f"{error}; meanwhile the case's directory lay on {hidden[0]}: see who mounted that, and run again"
            ) from error
        if not complaints.is_full(stage):
            raise
        raise ToolOutputError(
            f"{error}; No space left in the stage directory {stage}: make room there, or set IOGAUGE_HOME to "
            "another directory"
        ) from error
    if old:
        raise ToolOutputError(f"{plan.tool}: {old}")


# How the job entered the target, and how its phases ended.


#: Words of a module system, a shell or an interpreter that could not begin.
_FAILED: Final = re.compile(r"(?i:error)|No such file|not found|denied")


def _opened(
    stage: Path, owner: tuple[str, str] | None, ending: Sequence[str]
) -> Opened:
    """Return the agent's look before the first write; raises :class:`ToolOutputError`."""
    try:
        opened = Opened.from_json(
            untrusted.parse_json(stage_text(stage / files.OPENED, "open"))
        )
    except (ToolOutputError, ValueError, TypeError) as error:
        ended: list[str] = []
        with contextlib.suppress(ToolOutputError):
            said = stage_text(stage / files.JOB_COMPLAINTS, "").splitlines()
            own = [line for line in said if line.startswith("iogauge: ")]
            why = own or [line for line in said if _FAILED.search(line)][-1:]
            ended = [visible(line.strip()[:300]) for line in why]
        reasons = f" ({', '.join([*ended, *ending])})" if ended or ending else ""
        raise ToolOutputError(
            f"the job ended before it looked at the target{reasons}: {error}"
        ) from error
    holder = (opened.session, opened.case)
    if owner is not None and holder != owner:
        raise ToolOutputError(
            f"the stage directory holds the case {holder}, expected {owner}"
        )
    if opened.failed:
        raise ToolOutputError(f"nothing was measured: {opened.failed}")
    return opened


# What its nodes noted.


def _complete(
    stage: Path,
    reader: observations.Reader,
    noted: NodeObservations,
    plan: CasePlan,
    runs: Sequence[PhaseRun],
) -> NodeObservations:
    """Return what the nodes of a finished job noted; wait for what others than the first one answered.

    Raises :class:`ToolOutputError` without any, or for a damaged line.
    """
    expected = [run.name for run in runs if run.name in (files.VIEW, *files.FACTS)]
    expected += [
        files.evict_stem(phase.name, repetition)
        for repetition, phase in executions(plan)
        if phase.access.evict
    ]
    deadline = time.monotonic() + ANSWER_S
    while plan.nodes > 1 and time.monotonic() < deadline:
        answered = all(len(noted.by_host(what)) >= plan.nodes for what in expected)
        if answered and _all_counted(noted, plan):
            break
        time.sleep(0.5)
        noted = reader.read()
    if not noted.notes:
        raise ToolOutputError(
            f"no output of the agents: {stage / observations.SEEN}.HOST.jsonl: No such file"
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
    for repetition, phase in executions(plan):
        counts = task_counters.hear(plan, phase, repetition, None, told, ())
        if phase.witnessed and not counts.complete:
            return False
    return True


T = TypeVar("T")


@contextlib.contextmanager
def _reading(what: str, expected: str) -> Iterator[None]:
    """Raise :class:`ToolOutputError` if what is read meanwhile is not as ``expected``."""
    try:
        yield
    except (KeyError, TypeError, ValueError) as error:
        raise ToolOutputError(f"{what}: not {expected}: {error}") from error


def _answers(
    noted: NodeObservations, what: str, expected: str, read: Callable[[Any], T]
) -> dict[str, T]:
    """Return what each node answered, as it is read; raises :class:`ToolOutputError` for the answer of another node."""
    answers = noted.by_host(what)
    for host, answer in answers.items():
        if not isinstance(answer, dict):
            raise ToolOutputError(
                f"{what}: {host} answered a {type(answer).__name__}: expected an object"
            )
        if answer.get("host", host) != host:
            raise ToolOutputError(
                f"{what}: {host} gave the answer of {str(answer['host'])[:80]!r}"
            )
    with _reading(what, expected):
        return {host: read(answer) for host, answer in answers.items()}


def _views(noted: NodeObservations, plan: CasePlan, opened: Opened) -> tuple[View, ...]:
    """Return the view of every node; raises :class:`ToolOutputError`."""
    if plan.nodes == 1:
        return (opened.view,) if opened.view else ()
    views = _answers(noted, files.VIEW, "a view of the target", View.from_json)
    if len(views) != plan.nodes:
        raise ToolOutputError(
            f"{len(views)} node(s) looked at the target, {plan.nodes} expected"
        )
    return tuple(views.values())


def _facts(
    noted: NodeObservations, runs: Sequence[PhaseRun], plan: CasePlan, own: Clock | None
) -> dict[str, Any]:
    """Return what the nodes said of themselves, fields of :class:`Evidence`; missing or damaged answers are left out.

    ``own`` is the look at the clock of the first node, whose seconds since boot the job script counts.
    """
    booted = (own.epoch - own.boot,) * 2 if own else (0.0, 0.0)
    clocks = [ClockReading(*booted, own.utc_offset)] if own else []
    prints: dict[str, list[Mapping[str, Value]]] = {}
    looks: dict[str, list[Load]] = {out: [] for out in files.FACTS}
    versions: dict[str, Mapping[str, str]] = {}
    for run in (run for run in runs if run.name in files.FACTS):
        with contextlib.suppress(ToolOutputError):
            for answer in _answers(noted, run.name, "facts", dict).values():
                with contextlib.suppress(KeyError, TypeError):
                    load = Load.from_json(answer["load"])
                    facts = _of_tool(plan.tool, answer["fingerprint"])
                    clock = Clock.from_json(answer["clock"])
                    prints.setdefault(load.host, []).append(facts)
                    looks[run.name].append(load)
                    booted = clock.epoch - run.ended, clock.epoch - run.started
                    clocks.append(ClockReading(*booted, clock.utc_offset))
                    versions[load.host] = untrusted.build(
                        Mapping[str, str], answer["versions"]
                    )
    start, before, after = (looks[out] for out in files.FACTS)
    return {
        "nodes": tuple(merge(facts) for facts in prints.values()),
        "versions": versions,
        "idle": tuple(start),
        "changes": changes(before, after),
        "clocks": tuple(clocks),
    }


def _too_old(noted: NodeObservations, plan: CasePlan) -> str:
    """Return why the version of the tool that the first look found will not do; empty if it will."""
    of_files = any(
        "metadata" in (phase.access.direction, phase.beside) for phase in plan.phases
    )
    feature = FIO_METADATA if plan.tool == FIO and of_files else plan.tool
    with contextlib.suppress(ToolOutputError, TypeError, KeyError):
        for answer in _answers(noted, files.FACTS[0], "facts", dict).values():
            found = untrusted.build(Mapping[str, str], answer["versions"])
            if old := too_old(feature, found.get(plan.tool, "")):
                return old
    return ""


def _of_tool(tool: str, answer: object) -> Mapping[str, Value]:
    """Return a node's fingerprint without the scripts of other tools; raises TypeError."""
    facts: Mapping[str, Value] = untrusted.build(Mapping[str, Value], answer)
    own = SCRIPT + tool
    return {k: v for k, v in facts.items() if not k.startswith(SCRIPT) or k == own}


def _lost(noted: NodeObservations) -> str:
    """Return why the job may not have held the target's lock throughout; empty if it did."""
    killed = (
        "what kept the lock of the target for this case was killed before it could tell"
    )
    told: list[str] = [
        killed,
        *(text for _, _, text in noted.each(observations.LOST, str)),
    ]
    return told[-1]


def _once(
    noted: NodeObservations,
    what: str,
    read: Callable[[Any], Any],
    key: Callable[[Any], object],
) -> dict[Any, Any]:
    """Return what was noted, each under a key of its own; raises :class:`ToolOutputError`."""
    found: dict[Any, Any] = {}
    for _, _, value in noted.each(what):
        with _reading(what, "what agents note"):
            one = read(value)
        if key(one) in found:
            raise ToolOutputError(f"{what}: {key(one)} appears twice")
        found[key(one)] = one
    return found


def _striping(noted: NodeObservations, plan: CasePlan) -> tuple[Striping, ...]:
    """Return the layouts of each judged repetition, or of the preparing one if it writes.

    They are missing if the target is not on Lustre, or the case writes no data.
    """
    layouts = _once(
        noted, observations.LAYOUTS, Layouts.from_json, lambda one: one.repetition
    )
    expected = [0] if plan.prepare else range(1, plan.repetitions + 1)
    silent = "the agent that keeps the lock did not answer in time"
    return tuple(
        Striping(
            _placed(noted, repetition) if plan.pins else {},
            layouts.get(repetition, Layouts(repetition=repetition, problem=silent)),
        )
        for repetition in expected
        if repetition in layouts or (plan.striped and plan.keeps_files)
    )


def _samples(noted: NodeObservations) -> tuple[Sample, ...]:
    blocks = _once(
        noted,
        observations.CONTENTS,
        Sample.from_json,
        lambda one: (one.after, one.repetition),
    )
    return tuple(blocks.values())


def _placed(noted: NodeObservations, repetition: int) -> Mapping[str, int]:
    """Return the requested target of each pinned name; raises :class:`ToolOutputError`."""

    def read(answer: Any) -> Any:
        return untrusted.build(Mapping[str, int], answer["placed"])

    what = f"{files.PINNED}.{repetition}"
    answers: list[Mapping[str, int]]
    answers = [*_answers(noted, what, "the targets of the files", read).values()]
    if len(answers) != 1:
        raise ToolOutputError(f"{what}: {len(answers)} answers, expected one")
    return answers[0]


# What its tools printed.


def _outputs(
    stage: Path,
    plan: CasePlan,
    runs: Sequence[PhaseRun],
    noted: NodeObservations,
    view: View | None,
) -> dict[str, Any]:
    """Return what the executions left, and what the kernels say of them, as fields of :class:`Evidence` by phase name.

    Raises :class:`ToolOutputError`.
    """
    told, asked = task_counters.witnesses(noted), noted.instants(observations.ASKED)
    servers = (
        {ost_name(one.index): one.server for one in view.targets if one.server}
        if view
        else {}
    )
    judged: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.phases}
    cold: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.repeat}
    emptied: dict[str, list[Eviction]] = {
        p.name: [] for p in plan.phases if p.access.evict
    }
    counts: dict[str, list[TaskCounters]] = {
        p.name: [] for p in plan.phases if p.witnessed
    }
    for repetition, phase in executions(plan):
        warm_up = repetition == 0 and phase.name in cold
        run = next(
            (r for r in runs if (r.repetition, r.name) == (repetition, phase.name)),
            None,
        )
        heard = task_counters.hear(plan, phase, repetition, run, told, asked)
        output = _output(stage, phase, repetition, run, heard, noted, servers)
        for part in [phase, *(p for p in plan.repeat if p.within == phase.name)]:
            if output is not None:
                (cold if warm_up else judged)[part.name].append(output)
            if phase.name in counts and not warm_up:
                counts[part.name].append(heard)
        if phase.access.evict and not warm_up:
            stem = files.evict_stem(phase.name, repetition)
            emptied[phase.name] += _answers(
                noted, stem, "an eviction", Eviction.from_json
            ).values()
    named = {
        "outputs": judged,
        "cold": cold,
        "evictions": emptied,
        "task_counters": counts,
    }
    frozen = {}
    for what, by_phase in named.items():
        frozen[what] = {n: tuple(each) for n, each in by_phase.items()}  # type: ignore[attr-defined]
    return frozen


def _output(
    stage: Path,
    phase: PhasePlan,
    repetition: int,
    run: PhaseRun | None,
    counts: TaskCounters,
    noted: NodeObservations,
    servers: Mapping[str, str],
) -> ToolOutput | None:
    """Return the output of an execution, with what belongs to its time; raises :class:`ToolOutputError`."""
    if phase.parse is None:
        return None
    what = f"{phase.name}, repetition {repetition}"

    def text(name: str) -> str:
        return stage_text(stage / name.replace(REP, str(repetition)), what)

    stdout = unlabelled(text(files.printed_file(phase.name, REP)))
    folder = phase.folder and stage / phase.folder.replace(REP, str(repetition))
    printed = Printed(
        result=text(phase.output) if phase.output else stdout,
        stdout=stdout if phase.output else "",
        stderr=unlabelled(text(files.complaints_file(phase.name, REP))),
        ranks=text(phase.ranks) if phase.ranks else "",
        files=complaints.stage_folder(folder, what) if folder else {},
        servers=servers,
    )
    if several := alone(stdout):
        raise ToolOutputError(f"{what}: {several}")
    try:
        parsed = phase.parse(printed)
        if old := too_old(parsed.tool, parsed.version):
            raise ToolOutputError(f"{parsed.tool}: {old}")
    except ToolOutputError as error:
        raise ToolOutputError(f"{what}: {error}") from error
    if phase.syncs:
        measured = {name for name, _ in phase.rates.values()}
        parsed = task_counters.synced(parsed, measured, counts, what)
    if phase.series and run is not None:
        parsed = phase.series(parsed, noted, run, what)
    return parsed


def _bindings(stage: Path, plan: CasePlan) -> tuple[Binding, ...]:
    """Return the bindings of the first judged execution on all tasks; all are launched alike."""
    for repetition, phase in executions(plan):
        if repetition > 0 and phase.launch == "tasks":
            with contextlib.suppress(ToolOutputError):
                said = stage_text(
                    stage / files.complaints_file(phase.name, repetition), ""
                )
                return tuple(parse_bindings(unlabelled(said)))
    return ()
