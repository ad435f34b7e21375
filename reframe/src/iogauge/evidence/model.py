"""The evidence that a finished job left, as values, and layouts that the job noted."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.vocabulary import Value
from iogauge.evidence.task_counters import NodeActivity, TaskCounters
from iogauge.node.activity import Load
from iogauge.node.files import Eviction, Sample
from iogauge.node.lustre.file_layout import FileLayout, Layouts
from iogauge.node.lustre.inherited import Directory
from iogauge.node.view import View
from iogauge.plan.case import CasePlan
from iogauge.plan.observations import Instant
from iogauge.plan.stage import PhaseRun
from iogauge.tools.mpi import Binding


@dataclass(frozen=True, slots=True)
class Striping:
    """Planned and obtained layouts of the files of a repetition.

    ``placed`` maps a name to the target that it was pinned to. ``noted`` are the layouts that were
    read after the last write.
    """

    placed: Mapping[str, int]
    noted: Layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All evidence of a job.

    ``runs`` are by repetition and phase name. These are by phase name, in order of repetitions: ``outputs``; ``evictions``; ``cold``, the
    outputs of the warm-up, which are not judged; ``task_counters``, what the kernel says of them.

    ``moved`` says when the target's devices moved bytes, as the first node saw it. ``found`` says how many files
    the case's directory held there before each phase, :data:`~iogauge.plan.observations.MOST_FOUND` at most. ``asked`` says when
    the first task there passed bytes to the kernel, and ``printed`` when the tool printed.
    ``loaded`` are the libraries that are preloaded in tasks there.

    ``opened`` is the view of the first node, which runs the job script, before anything was written, ``passed_on`` what the target
    passes on to files, if it is on Lustre. ``neighbours`` are the
    directories of other cases on the target meanwhile. ``occupied`` names the holder of the
    target's lock if the job waited in vain. ``lost`` says why the job may not have held the lock
    throughout. Both are empty if all is well. ``striping`` holds the layouts on Lustre.

    ``directory`` is the case's directory as the job names it.

    By host, ``nodes`` are the fingerprints of the nodes, ``versions`` those of the tools on them, as far as their files
    tell. ``idle`` is one look at each before the run.
    ``activity`` is theirs between the first and the last judged phase. ``bindings`` are the
    cores that the launcher bound the tasks to, if it reports them. ``samples`` are the samples of
    the contents. ``mismatch`` is what the tool says of wrong data, if the warm-up ended with them.
    """

    views: tuple[View, ...]
    refused: tuple[str, ...] = ()
    runs: Mapping[tuple[int, str], PhaseRun] = field(default_factory=dict)
    outputs: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)
    cold: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    task_counters: Mapping[str, tuple[TaskCounters, ...]] = field(default_factory=dict)
    moved: tuple[Instant, ...] = ()
    asked: tuple[Instant, ...] = ()
    printed: tuple[tuple[float, int], ...] = ()
    #: Why the agent of a node counted nothing; empty if it counted.
    uncounted: str = ""
    loaded: tuple[Mapping[str, str], ...] = ()
    found: tuple[tuple[float, int], ...] = ()
    neighbours: tuple[str, ...] = ()
    occupied: str = ""
    lost: str = ""
    striping: tuple[Striping, ...] = ()
    opened: View | None = None
    passed_on: Directory | None = None
    directory: str = ""
    nodes: Mapping[str, Mapping[str, Value]] = field(default_factory=dict)
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    idle: tuple[Load, ...] = ()
    activity: tuple[NodeActivity, ...] = ()
    bindings: tuple[Binding, ...] = ()
    samples: tuple[Sample, ...] = ()
    mismatch: str = ""


#: Quantity of every phase: the seconds that the tool reports.
SECONDS = "seconds"


def tool_phases(output: ToolOutput, name: str, count: int) -> list[Phase]:
    """Return the ``count`` phases of a name; raises :class:`ToolOutputError` for another number."""
    named = output.named(name)
    if len(named) != count:
        names = ", ".join(phase.name for phase in output.phases) or "none"
        raise ToolOutputError(
            f"{output.tool}: {len(named)} phases {name!r} in the output, {count} expected (there: {names})"
        )
    return named


def rates_of(
    plan: CasePlan, outputs: Mapping[str, Sequence[ToolOutput]]
) -> dict[str, Sequence[Quantity]]:
    """Return the values of every metric, one for each output, as the tool printed them."""
    rates: dict[str, list[Quantity]] = {}
    for phase in plan.repeat:
        for metric, (name, rate) in phase.rates.items():
            for output in outputs[phase.name]:
                for tool_phase in tool_phases(output, name, phase.samples):
                    found = {
                        **tool_phase.rates,
                        SECONDS: Quantity(tool_phase.seconds, "s"),
                    }
                    if rate in found:
                        rates.setdefault(metric, []).append(found[rate])
    for metric, computed in plan.computed.items():
        sources = [rates.get(source, []) for source in computed.sources]
        if all(sources) and len({*map(len, sources)}) == 1:
            rates[metric] = list(map(computed.compute, *sources))
    return dict(rates)


#: The most targets and kinds of layouts that a record names; all are counted.
_MOST_NAMED = 64


def layout_of_record(striping: Sequence[Striping]) -> dict[str, Any] | None:
    """Return the layouts of all repetitions in short, for the record; None if none were noted."""
    files: list[FileLayout] = []
    total = 0
    for repetition in striping:
        files += repetition.noted.files
        total += repetition.noted.total
    if not files:
        return None
    kinds: Counter[tuple[tuple[str, Any], ...]] = Counter()
    hit: set[int] = set()
    for file in files:
        kinds[_kind(file)] += 1
        hit.update(file.osts)
    named = kinds.most_common(_MOST_NAMED)
    return {
        "kinds": [dict(kind) | {"files": count} for kind, count in named],
        "files": total,
        "looked_at": len(files),
        "targets_hit": len(hit),
        "targets": sorted(hit)[:_MOST_NAMED],
    }


def _kind(file: FileLayout) -> tuple[tuple[str, Any], ...]:
    """Return what files of one kind have in common, as keys and values of the record."""
    last = file.last
    kind: dict[str, Any] = {
        "stripe_count": last.stripe_count,
        "stripe_bytes": last.stripe_bytes,
        "pattern": last.pattern,
    }
    if last.pool:
        kind["pool"] = last.pool
    if file.composite:
        kind["components"] = str(file)
        kind["instantiated"] = len(file.instantiated)
    return tuple(kind.items())


#: Name of an execution's bandwidth over time among the parameters of its output; ``unsteady`` tells in words what was not.
SERIES = "series"
