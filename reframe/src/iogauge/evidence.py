"""What a finished job left in its stage directory, read once and in full.

Turns files into values for guards and verdict; raises :class:`ToolOutputError` on everything that is not
what a healthy job leaves.
"""

from __future__ import annotations

import contextlib
import errno
import glob
import math
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iogauge import outside
from iogauge.filesystem import View
from iogauge.fingerprint import Value, merge
from iogauge.guards import Binding, is_binding, parse_bindings
from iogauge.load import Change, Load, changes
from iogauge.lustre import FileLayout
from iogauge.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.pagecache import Eviction
from iogauge.plan import FACTS, PINNED, REP, STRIPES, CasePlan, PhasePlan, Printed
from iogauge.units import visible


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One execution of a phase: repetition (0: preparing), exit status, seconds since boot of the step."""

    repetition: int
    name: str
    status: int
    started: float
    ended: float


@dataclass(frozen=True, slots=True)
class Striping:
    """What was asked and obtained of the storage targets in one repetition.

    ``placed`` maps a name to the target that it was pinned to; ``files`` are the layouts that were read
    back after the first write.
    """

    repetition: int
    placed: Mapping[str, int]
    files: tuple[FileLayout, ...]


@dataclass(frozen=True, slots=True)
class Evidence:
    """All that a job left: ``outputs`` and ``evictions`` by phase name, in order of repetitions.

    ``cold`` holds the outputs of the warm-up, which are kept and not judged. ``fetched``: bytes that the
    tasks fetched from storage, by phase name, for phases before which the page cache was emptied;
    ``neighbours``: directories of other cases that were on the target meanwhile; ``occupied``: who had the
    target's lock for as long as the job waited, ``lost``: why the job cannot be said to have had it throughout
    (both empty where all is well); ``striping``: layouts,
    where the case asked for one; ``opened``: what the first node saw before anything was written;
    ``nodes``: fingerprints of the nodes, ``idle``: one look at each before the run, ``changes``: what each
    counted between the first and the last phase that is judged; ``bindings``: cores that the launcher bound
    the tasks to, where it says so.
    """

    views: tuple[View, ...]
    refused: tuple[str, ...]
    runs: tuple[PhaseRun, ...]
    outputs: Mapping[str, tuple[ToolOutput, ...]]
    evictions: Mapping[str, tuple[Eviction, ...]]
    cold: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    fetched: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    neighbours: tuple[str, ...] = ()
    occupied: str = ""
    lost: str = ""
    striping: tuple[Striping, ...] = ()
    opened: View | None = None
    nodes: tuple[Mapping[str, Value], ...] = ()
    idle: tuple[Load, ...] = ()
    changes: tuple[Change, ...] = ()
    bindings: tuple[Binding, ...] = ()


def describe_status(status: int) -> str:
    """An exit status for people: ``exit status 255``, ``killed by SIGKILL (exit status 137)``."""
    if status > 128:
        try:
            return f"killed by {signal.Signals(status - 128).name} (exit status {status})"
        except ValueError:
            pass
    return f"exit status {status}"


_RUN: Final = re.compile(
    r"([0-9]{1,9})\t([^\t]+)\t(-?[0-9]{1,9})\t([0-9]{1,18}(?:\.[0-9]+)?)\t([0-9]{1,18}(?:\.[0-9]+)?)"
)


#: File in the stage directory with the signal that ended the job, as job.sh writes it.
_TOLD: Final = "told.txt"
#: Signals that have to do with the time limit: the warning that Slurm is asked for, and what Flux sends then.
_LIMIT: Final = {
    "USR1": "the scheduler warned of the time limit, ",
    "ALRM": "the time limit was reached, ",
}
#: What a scheduler says of a job that it ended by itself; its exit status may be 0.
_ENDED_BY_SCHEDULER: Final = frozenset(
    ("BOOT_FAIL", "CANCELLED", "DEADLINE", "NODE_FAIL", "OUT_OF_MEMORY", "PREEMPTED", "TIMEOUT")
)


def _cause(stage: Path, state: str | None) -> list[str]:
    """Who ended a job before its time: the signal that it was told by, the scheduler's word."""
    found = []
    with contextlib.suppress(ToolOutputError):
        told = _text(stage / _TOLD, "job").strip()
        found.append(f"{_LIMIT.get(told, '')}told to end by SIG{told}")
    if state in _ENDED_BY_SCHEDULER:
        found.append(f"the scheduler says {state}")
    return found


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


def _text(path: Path, what: str) -> str:
    try:
        return outside.read_text(path)
    except OSError as error:
        raise ToolOutputError(f"{what}: no output: {path.name}: {error.strerror}") from error


#: Seconds to wait for the files of other nodes: a stage directory on NFS shows them late.
PATIENCE_S = 10.0


def _answers(stage: Path, out: str, nodes: int) -> list[dict[str, Any]]:
    """What the agent wrote on every node, ``OUT.<host>.json``; raises :class:`ToolOutputError`."""
    found, deadline = [], time.monotonic() + PATIENCE_S
    while True:
        files = sorted(stage.glob(f"{glob.escape(out)}.*.json"))
        if len(files) >= nodes or nodes == 1 or time.monotonic() > deadline:
            break
        time.sleep(0.5)
    for file in files:
        try:
            answer = outside.read_json(file)
        except OSError as error:
            raise ToolOutputError(f"{out}: no output: {file.name}: {error.strerror}") from error
        except ValueError as error:
            raise ToolOutputError(str(error)) from error
        if not isinstance(answer, dict):
            raise ToolOutputError(f"{file.name}: expected an object, found {type(answer).__name__}")
        host = file.name[len(out) + 1 : -len(".json")]
        if answer.get("host", host) != host:
            raise ToolOutputError(f"{file.name}: the answer of {str(answer['host'])[:80]!r}")
        found.append(answer)
    return found


_SYSTEM_ERRORS: Final = tuple(os.strerror(number) for number in errno.errorcode)


_FIO_ERROR: Final = re.compile(r'"error" : ([1-9][0-9]{0,3}),')
_TOOL_ERROR: Final = re.compile(r"\bERROR\b")


def _last_lines(stage: Path, run: PhaseRun) -> str:
    """The line that tells best why a phase failed: the system's word, the tool's, or the last that was said."""
    printed: list[str] = []
    name = f"{run.name}.{run.repetition}"
    for file in (f"{name}.err", f"{name}.out", f"fio-{name}.json"):
        try:
            text = outside.read_text(stage / file)
        except OSError:
            continue
        if file.endswith(".json"):  # fio complains before the results, or just gives a number
            errors = (int(number) for number in _FIO_ERROR.findall(text))
            text = text.partition("{")[0] + "".join(
                f"error {n}: {os.strerror(n)}\n" for n in errors
            )
        printed.append(text)
    said = [
        [line.strip() for line in text.splitlines() if line.strip(" -\t") and not is_binding(line)]
        for text in printed
    ]
    for lines in said:
        telling = [x for x in lines if any(error in x for error in _SYSTEM_ERRORS)]
        if telling:
            return visible(telling[0][:300])
    for lines in said:
        # IOR's and mdtest's own word, wherever the launcher says more.
        telling = [x for x in lines if _TOOL_ERROR.search(x)]
        if telling:
            return visible(telling[0][:300])
    for lines in said:
        # The tool's own word for the failure, before what the launcher adds to it.
        telling = [x for x in lines if "error" in x.lower() or "fail" in x.lower()] or lines[-1:]
        if telling:
            return visible(telling[0][:300])
    return "it printed nothing"


def _parse(stage: Path, phase: PhasePlan, repetition: int) -> ToolOutput | None:
    if phase.parse is None:
        return None
    what = f"{phase.name}, repetition {repetition}"

    def text(name: str) -> str:
        return _text(stage / name.replace(REP, str(repetition)), what)

    stdout = text(f"{phase.name}.{REP}.out")
    printed = Printed(
        result=text(phase.output) if phase.output else stdout,
        stdout=stdout if phase.output else "",
        stderr=text(f"{phase.name}.{REP}.err"),
        ranks=text(phase.ranks) if phase.ranks else "",
    )
    try:
        return phase.parse(printed)
    except ToolOutputError as error:
        raise ToolOutputError(f"{what}: {error}") from error


def _evictions(stage: Path, plan: CasePlan, phase: PhasePlan, repetition: int) -> list[Eviction]:
    what = f"evict-{phase.name}.{repetition}"
    try:
        return [Eviction.from_json(answer) for answer in _answers(stage, what, plan.nodes)]
    except TypeError as error:
        raise ToolOutputError(f"{what}: not an eviction: {error}") from error


def _fetched(stage: Path, plan: CasePlan, phase: PhasePlan, repetition: int) -> int | None:
    """Bytes that all tasks fetched, as account.sh wrote them down; None where a kernel does not count."""
    name = f"fetched-{phase.name}.{repetition}"
    files = list(stage.glob(f"{glob.escape(name)}.*"))
    if not files:
        return None
    if len(files) != (plan.tasks if phase.launch == "tasks" else 1):
        raise ToolOutputError(f"{name}: {len(files)} task(s) were accounted for, not all")
    texts = [_text(file, name).strip() for file in files]
    if wrong := [text for text in texts if not re.fullmatch("[0-9]{1,18}", text)]:
        raise ToolOutputError(f"{name}: not a number of bytes: {wrong[0][:80]!r}")
    return sum(map(int, texts))


def _expected(plan: CasePlan) -> list[tuple[int, PhasePlan]]:
    """Every execution of a phase: (repetition, phase)."""
    return [(0, phase) for phase in plan.prepare] + [
        (rep, phase)
        for rep in range(plan.first_repetition, plan.repetitions + 1)
        for phase in plan.repeat
        if phase.within is None
    ]


def _striping(stage: Path, plan: CasePlan) -> tuple[Striping, ...]:
    """Layouts of every repetition that is judged (the preparing one, where files are made once)."""
    repetitions = [0] if plan.prepare else range(1, plan.repetitions + 1)
    found = []
    for repetition in repetitions if plan.striped else ():
        what = f"{STRIPES}.{repetition}"
        try:
            (answer,) = _answers(stage, what, 1)
            files = tuple(FileLayout.from_json(file) for file in list(answer["files"]))
            placed: dict[str, int] = {}
            if plan.pins is not None:
                what = f"{PINNED}.{repetition}"
                (pinned,) = _answers(stage, what, 1)
                placed = outside.build(Mapping[str, int], pinned["placed"])
        except (KeyError, TypeError, ValueError) as error:
            raise ToolOutputError(f"{what}: not the layouts of the files: {error!r}") from error
        found.append(Striping(repetition, placed, files))
    return tuple(found)


def _facts(
    stage: Path, runs: Sequence[PhaseRun], plan: CasePlan
) -> tuple[tuple[Mapping[str, Value], ...], tuple[Load, ...], tuple[Change, ...]]:
    """Fingerprints, first looks and changes of the nodes; what is missing or damaged is left out."""
    prints: dict[str, list[Mapping[str, Value]]] = {}
    looks: dict[str, list[Load]] = {out: [] for out in FACTS}
    ran = {run.name for run in runs}
    for out in FACTS:
        with contextlib.suppress(ToolOutputError):
            for answer in _answers(stage, out, plan.nodes) if out in ran else ():
                with contextlib.suppress(KeyError, TypeError):
                    seen = Load.from_json(answer["load"])
                    facts = outside.build(Mapping[str, Value], answer["fingerprint"])
                    prints.setdefault(seen.host, []).append(facts)
                    looks[out].append(seen)
    start, before, after = (looks[out] for out in FACTS)
    return tuple(merge(seen) for seen in prints.values()), tuple(start), changes(before, after)


def _lost(stage: Path) -> str:
    """Why the job cannot be said to have had the target's lock from its beginning to its end."""
    try:
        told = outside.parse_json(_text(stage / "lock.json", "lock"))
        lost: str = outside.build(str, told["lost"], "lost")
        return lost
    except (ToolOutputError, ValueError, KeyError, TypeError):
        return "what kept the lock of the target for this case was killed before it could tell"


#: Bytes below which a directory counts as full: a job's own files need as many.
_ROOM_BYTES: Final = 64 << 10


def _is_full(stage: Path) -> bool:
    try:
        info = os.statvfs(stage)
    except OSError:
        return False
    return info.f_bavail * info.f_frsize < _ROOM_BYTES or (info.f_files > 0 and info.f_favail == 0)


def _bindings(stage: Path, plan: CasePlan) -> tuple[Binding, ...]:
    """Bindings of the first judged execution on all tasks; every other is started by the same words."""
    for repetition, phase in _expected(plan):
        if repetition > 0 and phase.launch == "tasks":
            with contextlib.suppress(ToolOutputError):
                return tuple(parse_bindings(_text(stage / f"{phase.name}.{repetition}.err", "")))
    return ()


def collect(
    stage: Path,
    plan: CasePlan,
    job_status: int | None,
    owner: tuple[str, str] | None = None,
    job_state: str | None = None,
) -> Evidence:
    """Everything that the job left. ``job_status`` is the job's exit status, None where unknown.

    ``job_state`` is what the scheduler says of the job. ``owner`` is (session, case): what another one left in the same directory is no evidence.
    A refusal of the agent is returned, not raised; everything else that is missing, damaged or failed
    raises :class:`ToolOutputError` with the phase, the repetition and the tool's own message; where there is
    no room left in the directory, it says that too.
    """
    try:
        return _collect(stage, plan, job_status, owner, job_state)
    except ToolOutputError as error:
        if not _is_full(stage):
            raise
        raise ToolOutputError(
            f"{error}; No space left in the stage directory {stage}: make room there, or set IOGAUGE_HOME to "
            "another directory"
        ) from error


def _collect(
    stage: Path,
    plan: CasePlan,
    job_status: int | None,
    owner: tuple[str, str] | None,
    job_state: str | None,
) -> Evidence:
    cause = _cause(stage, job_state)
    ending = [*([] if job_status is None else [f"the job's {describe_status(job_status)}"]), *cause]
    try:
        opened = outside.parse_json(_text(stage / "open.json", "open"))
        views = [] if opened["view"] is None else [View.from_json(opened["view"])]
        refused = outside.build(tuple[str, ...], opened["refused"], "refused")
        occupied = outside.build(str, opened["occupied"], "occupied")
        locked = outside.build(bool, opened["locked"], "locked")
        found_owner = (opened["session"], opened["case"])
        failed = outside.build(str, opened.get("failed", ""), "failed")
    except (ToolOutputError, ValueError, KeyError, TypeError) as error:
        known = f" ({', '.join(ending)})" if ending else ""
        raise ToolOutputError(
            f"the job ended before it looked at the target{known}: {error}"
        ) from error
    if owner is not None and found_owner != owner:
        raise ToolOutputError(f"the stage directory holds the case {found_owner}, expected {owner}")
    if failed:
        raise ToolOutputError(f"nothing was measured: {failed}")
    if refused or occupied:
        return Evidence(tuple(views), refused, (), {}, {}, occupied=occupied)

    runs = parse_runs(_text(stage / "phases.tsv", "phases"))
    for run in runs:
        if run.status != 0:
            raise ToolOutputError(
                f"{plan.tool}: phase {run.name}, repetition {run.repetition}: "
                f"{describe_status(run.status)}: {_last_lines(stage, run)}"
                + "".join(f"; {known}" for known in cause)
            )
    done = {(run.repetition, run.name) for run in runs}
    for repetition, phase in _expected(plan):
        if (repetition, phase.name) not in done:
            raise ToolOutputError(
                f"{plan.tool}: "
                + ", ".join(
                    [f"phase {phase.name}, repetition {repetition} never finished", *ending]
                )
            )
    if job_status or job_state in _ENDED_BY_SCHEDULER:
        raise ToolOutputError(f"all phases finished, but {', '.join(ending)}")

    opened_view = views[0] if views else None
    if plan.nodes > 1:
        try:
            views = [View.from_json(answer) for answer in _answers(stage, "view", plan.nodes)]
        except TypeError as error:
            raise ToolOutputError(f"view: not a view of the target: {error}") from error
        if len({view.host for view in views}) != plan.nodes:
            raise ToolOutputError(
                f"{len({view.host for view in views})} node(s) looked at the target, {plan.nodes} expected"
            )
    outputs: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.phases}
    evictions: dict[str, list[Eviction]] = {p.name: [] for p in plan.phases if p.access.evict}
    fetched: dict[str, list[int | None]] = {name: [] for name in evictions}
    cold: dict[str, list[ToolOutput]] = {phase.name: [] for phase in plan.repeat}
    for repetition, phase in _expected(plan):
        warm_up = repetition == 0 and phase.name in cold
        parsed = _parse(stage, phase, repetition)
        for part in [phase, *(p for p in plan.repeat if p.within == phase.name)]:
            if parsed is not None:
                (cold if warm_up else outputs)[part.name].append(parsed)
        if phase.access.evict and not warm_up:
            evictions[phase.name] += _evictions(stage, plan, phase, repetition)
            fetched[phase.name].append(_fetched(stage, plan, phase, repetition))
    return Evidence(
        tuple(views),
        (),
        tuple(runs),
        {name: tuple(found) for name, found in outputs.items()},
        {name: tuple(found) for name, found in evictions.items()},
        {name: tuple(found) for name, found in cold.items()},
        {name: tuple(found) for name, found in fetched.items()},
        tuple(dict.fromkeys(_text(stage / "neighbours.txt", "neighbours").splitlines())),
        "",
        _lost(stage) if locked else "",
        _striping(stage, plan),
        opened_view,
        *_facts(stage, runs, plan),
        _bindings(stage, plan),
    )


def tool_phases(output: ToolOutput, name: str, count: int = 1) -> list[Phase]:
    """The phases of that name in a tool's output, ``count`` of them; raises :class:`ToolOutputError`."""
    found = [phase for phase in output.phases if phase.name == name]
    if len(found) != count:
        names = ", ".join(phase.name for phase in output.phases) or "none"
        raise ToolOutputError(
            f"{output.tool}: {len(found)} phases {name!r} in the output, {count} expected (there: {names})"
        )
    return found


def rates_of(
    plan: CasePlan, outputs: Mapping[str, Sequence[ToolOutput]]
) -> dict[str, Sequence[Quantity]]:
    """Values of every metric in the outputs of the phases, one an output, as the tool printed them."""
    found: dict[str, list[Quantity]] = {}
    for phase in plan.repeat:
        for metric, (name, rate) in phase.rates.items():
            for output in outputs[phase.name]:
                for one in tool_phases(output, name, phase.samples):
                    if rate in one.rates:
                        found.setdefault(metric, []).append(one.rates[rate])
    for metric, computed in plan.computed.items():
        sources = [found.get(source, []) for source in computed.sources]
        if all(sources) and len({len(values) for values in sources}) == 1:
            found[metric] = [computed.compute(*values) for values in zip(*sources, strict=True)]
    return dict(found)
