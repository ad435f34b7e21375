"""The evidence that a finished job left, as values, and layouts that the job noted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.words import Value
from iogauge.evidence.task_counters import NodeActivity, TaskCounters
from iogauge.node.between import Library
from iogauge.node.files import Eviction, Sample
from iogauge.node.host import Load
from iogauge.node.lustre.directory import Directory
from iogauge.node.lustre.layout import FileLayout, Layouts
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


@dataclass(frozen=True, slots=True)
class ClockReading:
    """A look at a node's clock: seconds since the epoch less seconds since the first node's boot.

    The difference lies between the two, which are equal if the look was the first node's own.
    ``utc_offset`` is in seconds east of UTC.
    """

    least: float
    most: float
    utc_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """All evidence of a job.

    These are by phase name, in order of repetitions: ``outputs``; ``evictions``; ``cold``, the
    outputs of the warm-up, which are not judged; ``task_counters``, what the kernel says of them.

    ``activity`` says when the target's devices moved bytes, as the first node saw it. ``found`` says how many files
    the case's directory held there before each phase, :data:`~iogauge.plan.observations.MOST_FOUND` at most. ``asked`` says when
    the first task there passed bytes to the kernel, ``processes`` how many it had, and ``printed`` when the tool printed. ``hidden`` describes the mounts that hid the directory from the tool,
    ``loaded`` are the libraries between its first task and the kernel.

    ``opened`` is the first node's view before anything was written, ``passed_on`` what the target
    passes on to files, if it is on Lustre. ``disks`` are the counters of the disks below the devices that the case reads
    past the file system. ``neighbours`` are the
    directories of other cases on the target meanwhile. ``occupied`` names the holder of the
    target's lock if the job waited in vain. ``lost`` says why the job may not have held the lock
    throughout. Both are empty if all is well. ``striping`` holds the layouts on Lustre.

    ``directory`` is the case's directory as the job names it. ``clocks`` are looks at the nodes'
    clocks: before the first byte, and at the end of each look at their facts.

    ``nodes`` are the fingerprints of the nodes, ``versions`` those of the tools on them, by host, as far as their files
    tell. ``idle`` is one look at each before the run.
    ``changes`` is their activity between the first and the last judged phase. ``bindings`` are the
    cores that the launcher bound the tasks to, if it reports them. ``samples`` are the samples of
    the contents. ``mismatch`` is what the tool says of wrong data, if the warm-up ended with them.
    """

    views: tuple[View, ...]
    refused: tuple[str, ...] = ()
    runs: tuple[PhaseRun, ...] = ()
    outputs: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    evictions: Mapping[str, tuple[Eviction, ...]] = field(default_factory=dict)
    cold: Mapping[str, tuple[ToolOutput, ...]] = field(default_factory=dict)
    task_counters: Mapping[str, tuple[TaskCounters, ...]] = field(default_factory=dict)
    activity: tuple[Instant, ...] = ()
    asked: tuple[Instant, ...] = ()
    processes: tuple[tuple[float, int], ...] = ()
    printed: tuple[tuple[float, int], ...] = ()
    hidden: tuple[str, ...] = ()
    #: Why the agent of a node counted nothing; empty if it counted.
    uncounted: str = ""
    loaded: tuple[Library, ...] = ()
    found: tuple[tuple[float, int], ...] = ()
    neighbours: tuple[str, ...] = ()
    occupied: str = ""
    lost: str = ""
    striping: tuple[Striping, ...] = ()
    opened: View | None = None
    disks: tuple[str, ...] = ()
    passed_on: Directory | None = None
    directory: str = ""
    clocks: tuple[ClockReading, ...] = ()
    nodes: tuple[Mapping[str, Value], ...] = ()
    versions: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    idle: tuple[Load, ...] = ()
    changes: tuple[NodeActivity, ...] = ()
    bindings: tuple[Binding, ...] = ()
    samples: tuple[Sample, ...] = ()
    mismatch: str = ""

    @property
    def first(self) -> View | None:
        """Return the view of the first node, which runs the job script; None if it runs no task.

        The agent looks several times a second there, and says when in seconds since the boot of that node.
        """
        if self.opened is None:
            return next(iter(self.views), None)
        return next(
            (view for view in self.views if view.host == self.opened.host), None
        )


#: Quantity of every phase: the seconds that the tool reports.
SECONDS: Final = "seconds"


def tool_phases(output: ToolOutput, name: str, count: int = 1) -> list[Phase]:
    """Return the ``count`` phases of a name; raises :class:`ToolOutputError` for another number."""
    named = [phase for phase in output.phases if phase.name == name]
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
        if all(sources) and len({len(values) for values in sources}) == 1:
            rates[metric] = [
                computed.compute(*values) for values in zip(*sources, strict=True)
            ]
    return dict(rates)


#: The most targets and kinds of layouts that a record names; all are counted.
_MOST_NAMED: Final = 64


def layout_of_record(striping: Sequence[Striping]) -> dict[str, Any] | None:
    """Return the layouts of all repetitions in short, for the record; None if none were noted."""
    noted = [one.noted for one in striping if one.noted.files]
    files = [file for layouts in noted for file in layouts.files]
    if not files:
        return None
    kinds = Counter(_kind(file) for file in files)
    hit = sorted({ost for file in files for ost in file.osts})
    held: Counter[str] = Counter()
    for file in files:
        for part, size in file.held:
            held[str(part)] += size
    return {
        "kinds": [
            dict(kind) | {"files": count}
            for kind, count in kinds.most_common(_MOST_NAMED)
        ],
        "files": sum(layouts.total for layouts in noted),
        "looked_at": len(files),
        "targets_hit": len(hit),
        "targets": hit[:_MOST_NAMED],
        **({"bytes_in_components": dict(held)} if held else {}),
        **(
            {"seeds": seeds}
            if (seeds := [one.seed for one in noted if one.seed])
            else {}
        ),
    }


def _kind(file: FileLayout) -> tuple[tuple[str, Any], ...]:
    """Return what files of one kind have in common, as keys and values of the record."""
    last = file.last
    kind: dict[str, Any] = {
        "stripe_count": last.stripe_count,
        "stripe_bytes": last.stripe_bytes,
    }
    kind |= {"pattern": last.pattern, **({"pool": last.pool} if last.pool else {})}
    whole = {"components": str(file), "instantiated": len(file.instantiated)}
    return tuple((kind | (whole if file.composite else {})).items())


#: Name of an execution's bandwidth over time among the parameters of its output; ``unsteady`` tells in words what was not.
SERIES: Final = "series"

#: The phase that reads the layouts of directories back.
DIRECTORIES_READ: Final = "passed-on"


def passed_on_in(
    outputs: Mapping[str, Sequence[ToolOutput]],
) -> dict[str, FileLayout | None]:
    """Return what directories pass on to new files, by name, as the last execution that read it says."""
    found: dict[str, FileLayout | None] = {}
    for output in outputs.get(DIRECTORIES_READ, ()):
        found.update(output.parameters["directories"])  # type: ignore[call-overload]
    return found


#: The phase that asks on which metadata targets the directories with the tool's files lie.
DIRECTORIES_FOUND: Final = "on-metadata-targets"


def on_metadata_targets_in(
    outputs: Mapping[str, Sequence[ToolOutput]],
) -> list[dict[str, tuple[int, ...]]]:
    """Return the metadata targets of each directory with files, of each repetition."""
    return [
        output.parameters["directories"]  # type: ignore[misc]
        for output in outputs.get(DIRECTORIES_FOUND, ())
    ]
