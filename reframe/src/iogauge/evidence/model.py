"""What a finished job left, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.words import Value
from iogauge.evidence.changes import NodeActivity
from iogauge.node.counters import Load
from iogauge.node.layouts import FileLayout
from iogauge.node.mounts import View
from iogauge.node.pagecache import Eviction
from iogauge.plan.case import CasePlan
from iogauge.plan.stage import PhaseRun
from iogauge.tools.mpi import Binding


@dataclass(frozen=True, slots=True)
class Striping:
    """What was asked and obtained of the storage targets in one repetition.

    ``placed`` maps a name to the target that it was pinned to; ``files`` are the layouts that were read
    back after the first write.
    """

    repetition: int
    placed: Mapping[str, int]
    files: tuple[FileLayout, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
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
    refused: tuple[str, ...] = ()
    runs: tuple[PhaseRun, ...] = ()
    outputs: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)
    cold: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    fetched: Mapping[str, tuple[int | None, ...]] = field(default_factory=dict)
    neighbours: tuple[str, ...] = ()
    occupied: str = ""
    lost: str = ""
    striping: tuple[Striping, ...] = ()
    opened: View | None = None
    nodes: tuple[Mapping[str, Value], ...] = ()
    idle: tuple[Load, ...] = ()
    changes: tuple[NodeActivity, ...] = ()
    bindings: tuple[Binding, ...] = ()


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
