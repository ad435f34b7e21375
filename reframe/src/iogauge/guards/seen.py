"""What guards read: a case, its phases, layouts and metrics, with the evidence that its job left.

This module derives only values that several guards share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from iogauge.core.measurement import Metric, Phase, ToolOutput
from iogauge.core.words import Tier
from iogauge.evidence.model import Evidence, Striping, tool_phases
from iogauge.evidence.times import counted_between
from iogauge.evidence.witness import Testimony
from iogauge.node.counters import Reading
from iogauge.node.kinds import Kind, Traits, kind_of, traits
from iogauge.node.lustre.layout import Layouts
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.view import View
from iogauge.plan.bounds import NOTHING_MEASURED, MeasuredCeilings
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.site.extras import PartitionExtras
from iogauge.tools.fio.options import METADATA_PHASES

#: Bytes that the ends of a buffered operation may add: a page each, or what is read ahead by default.
PAGE: Final = 4096
READ_AHEAD: Final = 128 << 10
#: Bytes that a client of a network reads ahead for a task by default, at most (Lustre: max_read_ahead_per_file_mb).
READ_AHEAD_OF_NETWORK: Final = 64 << 20
#: The fewest files that are compared.
LEAST_FILES: Final = 1000
#: Seconds by which a tool's date may lie outside its execution. Tools cut theirs to whole seconds.
#: Between two looks at a clock, time servers slow it down or speed it up by 0.5 ms a second at most.
SLACK_S: Final = 2.0


@dataclass(frozen=True)
class CaseSeen:
    """A case: its plan, its evidence, the site's declarations, and the samples of each metric.

    ``measured`` are the measured ceilings of its partition.
    """

    plan: CasePlan
    evidence: Evidence
    extras: PartitionExtras
    tier: Tier
    metrics: Sequence[Metric]
    values: Mapping[str, Sequence[float]]
    measured: MeasuredCeilings = NOTHING_MEASURED

    @property
    def phases(self) -> list[PhaseSeen]:
        """Return the repeated phases, which are judged."""
        return [PhaseSeen(self, phase) for phase in self.plan.repeat]

    @property
    def layouts(self) -> list[LayoutSeen]:
        """Return the layouts that were noted, by repetition; empty if not on Lustre."""
        return [LayoutSeen(self, striping) for striping in self.evidence.striping]

    @property
    def targets(self) -> Sequence[StorageTarget]:
        """Return the storage targets that the job saw when it began; empty if not on Lustre."""
        return self.evidence.opened.targets if self.evidence.opened else ()

    @cached_property
    def traits(self) -> Traits:
        """Return how the target caches, as far as the site and the nodes know."""
        target = self.extras.target
        known = traits(target.type, target.cache, target.honours_o_direct)
        for view in self.evidence.views:
            known = known.over(view.below)
        return known

    @property
    def witness_required(self) -> bool:
        """Return whether the site wants a second witness of every figure."""
        return self.extras.limits.witness == "required"

    @property
    def kind(self) -> Kind:
        """Return what is known of the target's type."""
        return kind_of(self.extras.target.type)

    @property
    def busy(self) -> str:
        """Return which node had more work of others than cores, before the run or at its end; empty if none had."""
        cores = min(self.cores, default=self.extras.node.cores)
        looks = [(load.host, load.load1) for load in self.evidence.idle]
        looks += [(c.host, c.load1 - self.tasks_per_node) for c in self.evidence.changes]
        host, load = max(looks, key=lambda look: look[1], default=("", 0.0))
        return (
            f"{host} had a load of {load:.1f} beside the tasks on {cores} core(s)"
            if load > cores
            else ""
        )

    @cached_property
    def counters(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the counters under the target's mount, by host.

        Containers of one kernel over one mount share their counters: only the first of them is
        named. Empty if a node has none, or if one of them counts nothing.
        """
        return self._by_host(lambda view: view.counters)

    @cached_property
    def disks(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the disks at the bottom, by host, as :attr:`counters`."""
        return self._by_host(lambda view: view.below.disks)

    @cached_property
    def ways(self) -> Mapping[str, Sequence[str]]:
        """Return the devices by which bytes may leave the nodes, by host; containers of one kernel share theirs."""
        return {view.host: view.below.ways for view in self._firsts}

    @cached_property
    def shared_counters(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the counters that show the load of others, as :attr:`counters`.

        A partition's disk also serves the other partitions. Empty if a device is among them that the kernel says it does not
        count: before Linux 5.14, md may count a part of a read twice.
        """
        if any(set(view.below.unsure).intersection(view.counters) for view in self._firsts):
            return {}
        return self._by_host(lambda view: view.below.disk_of_partition or view.counters)

    def _by_host(self, names: Callable[[View], Sequence[str]]) -> Mapping[str, Sequence[str]]:
        named = {view.host: names(view) for view in self._firsts}
        known = all(
            named[v.host] and not self.silent(v).intersection(named[v.host]) for v in self._firsts
        )
        return named if known else {}

    def silent(self, view: View) -> frozenset[str]:
        """Return the devices that the kernel says it does not count, if no device of their driver moved anything in the case."""
        moved = {
            name
            for testimonies in self.evidence.testimony.values()
            for testimony in testimonies
            for witness in testimony.witnesses
            if witness.host == view.host
            for name, counted in witness.counters.items()
            if counted and (counted.read or counted.written)
        }
        kinds = {
            name: view.below.names.get(name, "").rstrip("0123456789") for name in view.below.unsure
        }
        count = {kinds[name] for name in moved & kinds.keys()}
        return frozenset(name for name, kind in kinds.items() if kind not in count)

    @property
    def _firsts(self) -> Collection[View]:
        """Return the view of the first host of each kernel and mount."""
        return {view.cache_id: view for view in reversed(self.evidence.views)}.values()

    @property
    def on_network(self) -> bool:
        """Return whether the counters are those of a network's clients, which count data alone."""
        return bool(self.counters) and not any(v.below.devices for v in self.evidence.views)

    @property
    def copies(self) -> tuple[float, float]:
        """Return how many bytes the file system writes for each byte, at least and at most."""
        copies = [view.below.copies for view in self.evidence.views] or [(1.0, 1.0)]
        return min(least for least, _ in copies), max(most for _, most in copies)

    @property
    def source(self) -> str:
        """Return what counts under the target's mount, for a finding; empty if nothing does."""
        named = {
            f"the client of {name} (osc.*.stats)"
            if view.on_lustre
            else view.below.names.get(name, name)
            for view in self.evidence.views
            for name in self.counters and view.counters
        }
        return ", ".join(sorted(named))

    def fetched(self, testimony: Testimony) -> int | None:
        """Return the bytes that an execution fetched from storage; None if nobody counted them.

        A client of Lustre or NFS counts for all programs on its node. Elsewhere the kernel counts
        for the tasks alone.
        """
        if not testimony.complete:
            return None
        if self.traits.accounts:
            return testimony.moved.read
        counted = testimony.counted(self.counters)
        return None if counted is None else counted.read

    def span(self, testimony: Testimony) -> tuple[float, float] | None:
        """Return when an execution began and ended on the first node; None if nobody there tells."""
        first = self.evidence.first
        return testimony.span(first.host if first else "")

    def over_time(self, testimony: Testimony, way: str) -> int | None:
        """Return the bytes that the first node's looks over time count for an execution and its sync, at most.

        They speak if the looks before and after it are lost, of one node's devices. None if nobody looked.
        """
        span = self.span(testimony)
        if len(self.counters) != 1 or self.on_network or span is None:
            return None
        synced = span[0], span[1] + (testimony.sync_seconds or 0.0)
        return counted_between(self.evidence.activity, synced, way)

    def found_after(self, testimony: Testimony) -> int | None:
        """Return how many files the first node found after an execution, before the next; None if nobody looked."""
        span = self.span(testimony) if testimony.complete else None
        later = [count for when, count in self.evidence.found if span and when >= span[1]]
        return later[0] if later else None

    @property
    def tasks_per_node(self) -> int:
        """Return the number of tasks on each node."""
        return self.plan.tasks // self.plan.nodes

    @property
    def cores(self) -> list[int]:
        """Return the physical cores of the nodes, as far as they told."""
        return [n for node in self.evidence.nodes if isinstance(n := node.get("cpu.cores"), int)]

    @property
    def memories(self) -> list[int]:
        """Return the bytes of memory that the job could use on each node, as far as they told.

        This is the memory of the node, or the limit of the job's control group if that is smaller.
        """
        sizes = []
        for node in self.evidence.nodes:
            told = [node.get(key) for key in ("mem.bytes", "mem.limit")]
            known = [size for size in told if isinstance(size, int)]
            sizes += [min(known)] if known else []
        return sizes


@dataclass(frozen=True)
class LayoutSeen:
    """The layouts of the files of one repetition."""

    case: CaseSeen
    striping: Striping

    @property
    def noted(self) -> Layouts:
        """Return the layouts that the job noted."""
        return self.striping.noted

    @property
    def active(self) -> list[int]:
        """Return the numbers of the active storage targets, of those in the declared pool."""
        passed_on, targets = self.case.evidence.passed_on, self.case.targets
        usable = passed_on.usable(targets) if passed_on else targets
        return [target.index for target in usable if target.active]

    @property
    def saturates(self) -> bool:
        """Return whether the case claims to drive the target to its limit."""
        return any(phase.access.saturates for phase in self.case.plan.phases)


@dataclass(frozen=True)
class PhaseSeen:
    """A phase of a case, with its outputs in order of repetitions."""

    case: CaseSeen
    phase: PhasePlan

    @property
    def access(self) -> Access:
        """Return how the phase touches data."""
        return self.phase.access

    @property
    def moves_data(self) -> bool:
        """Return whether the phase reads or writes data."""
        return self.access.direction in ("read", "write")

    @property
    def timed(self) -> bool:
        """Return whether the tool tells seconds of something that the phase does with the target."""
        return bool(self.tool_phases) and self.access.direction != "none"

    @property
    def outputs(self) -> Sequence[ToolOutput]:
        """Return the tool's outputs, one for each repetition."""
        return self.case.evidence.outputs[self.phase.name]

    @property
    def tool(self) -> str:
        """Return the name of the tool that ran."""
        return self.outputs[0].tool if self.outputs else self.case.plan.tool

    @cached_property
    def reported(self) -> list[tuple[ToolOutput, Phase]]:
        """Return the tool's phases that yield a metric, each with its output."""
        names = sorted({name for name, _ in self.phase.rates.values()})
        return [
            (output, phase)
            for output in self.outputs
            for name in names
            for phase in tool_phases(output, name, self.phase.samples)
        ]

    @property
    def tool_phases(self) -> list[Phase]:
        """Return the tool's phases that yield a metric."""
        return [phase for _, phase in self.reported]

    @property
    def testimonies(self) -> Sequence[Testimony]:
        """Return the kernel's word of each execution."""
        return self.case.evidence.testimony.get(self.phase.name, ())

    def claimed_bytes(self, output: ToolOutput, direction: str) -> int | None:
        """Return the bytes that an execution moved in a direction, as its tool says."""
        if output.totals:
            return output.totals.get(direction)
        moved = [phase.bytes_moved for phase in output.phases if phase.name == direction]
        known = [count for count in moved if count is not None]
        return sum(known) if moved and len(known) == len(moved) else None

    def claimed(self, output: ToolOutput, hosts: Collection[str] | None = None) -> Reading:
        """Return the bytes that an execution's tool says it moved on some hosts, evenly divided, or on all."""
        share = 1.0 if hosts is None else len(hosts) / self.case.plan.nodes
        claimed = (self.claimed_bytes(output, way) for way in ("read", "write"))
        return Reading(*(round(share * (count or 0)) for count in claimed))

    def own(
        self, output: ToolOutput, testimony: Testimony, hosts: Collection[str] | None = None
    ) -> Reading:
        """Return the bytes of an execution's tasks on some hosts, or on all.

        The kernel does not tell those of servers, nor any of a network's client. Some kernels
        count nothing. Then the tool's word stands, evenly divided, or what the tasks asked for.
        """
        of_hosts = [w for w in testimony.witnesses if hosts is None or w.host in hosts]
        if testimony.speaks_of_tasks and self.case.traits.accounts:
            return sum((witness.moved for witness in of_hosts), Reading())
        claimed = [self.claimed_bytes(output, way) for way in ("read", "write")]
        if testimony.speaks_of_tasks and claimed == [None, None]:
            return sum((witness.asked for witness in of_hosts), Reading())
        return self.claimed(output, hosts)

    def files_changed(
        self, output: ToolOutput, testimony: Testimony
    ) -> tuple[tuple[float, float], int] | None:
        """Return when an execution ran on the first node, and how many files it made, or removed if negative; None if it
        also did something else.
        """
        span, phases = self.case.span(testimony), output.but_trees
        names = [phase.name for phase in phases]
        kept = output.parameters.get("unlink") != "1" and not output.disturber
        files = phases[0].operations if names in (["create"], ["remove"]) else None
        if span is None or files is None or not kept or self.phase.pauses:
            return None
        return span, files if names == ["create"] else -files

    @property
    def bytes_per_node(self) -> int:
        """Return V, the bytes that the phase moves on each node."""
        return (self.phase.data_bytes or 0) // self.case.plan.nodes


def synchronous(output: ToolOutput) -> bool:
    """Return whether the kernel counts what a tool asks for: not with an asynchronous engine of a job that moves data."""
    if output.tool != "fio":
        return True
    jobs: Any = output.parameters.get("jobs") or {}
    engines = {told.get("ioengine", "psync") for told in jobs.values()} or {
        output.parameters.get("engine")
    }
    return engines - set(METADATA_PHASES) == {"psync"}
