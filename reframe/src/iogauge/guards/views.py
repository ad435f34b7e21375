"""What guards read: a case, its phases, executions and metrics, with the evidence that its job left.

This module derives only values that several guards share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from iogauge.core.measurement import Metric, Phase, ToolOutput
from iogauge.core.text import some
from iogauge.core.words import Tier
from iogauge.evidence.model import Evidence, Striping, tool_phases
from iogauge.evidence.task_counters import TaskCounters
from iogauge.evidence.times import counted_between
from iogauge.node.counters import Reading
from iogauge.node.kinds import Kind, Traits, kind_of, traits
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.view import View
from iogauge.plan.bounds import NOTHING_MEASURED, MeasuredCeilings
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.plan.stage import PhaseRun
from iogauge.site.extras import PartitionExtras
from iogauge.tools.fio.options import METADATA_PHASES

#: Bytes that the ends of a buffered operation may add: a page each, or what is read ahead by default.
PAGE: Final = 4096
READ_AHEAD: Final = 128 << 10
#: The fewest files that are compared.
LEAST_FILES: Final = 1000
#: Seconds by which a tool's date may lie outside its execution. Tools cut theirs to whole seconds.
#: Between two looks at a clock, time servers slow it down or speed it up by 0.5 ms a second at most.
SLACK_S: Final = 2.0
#: The word of nobody.
UNHEARD: Final = TaskCounters(expected=1)


@dataclass(frozen=True)
class CaseView:
    """A case: its plan, its evidence, the site's declarations, and the samples of each metric.

    ``measured`` are the measured ceilings of its partition. In a ``gate`` what nothing proves is not believed.
    """

    plan: CasePlan
    evidence: Evidence
    extras: PartitionExtras
    tier: Tier
    metrics: Sequence[Metric]
    values: Mapping[str, Sequence[float]]
    measured: MeasuredCeilings = NOTHING_MEASURED
    gate: bool = False

    @property
    def phases(self) -> list[PhaseView]:
        """Return the repeated phases, which are judged."""
        return [PhaseView(self, phase) for phase in self.plan.repeat]

    @property
    def layouts(self) -> list[tuple[CaseView, Striping]]:
        """Return the case with the layouts that were noted in each repetition; empty if not on Lustre."""
        return [(self, striping) for striping in self.evidence.striping]

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
        looks += [
            (c.host, c.load1 - self.tasks_per_node) for c in self.evidence.changes
        ]
        host, load = max(looks, key=lambda look: look[1], default=("", 0.0))
        saw = f"{host} had a load of {load:.1f} beside the tasks on {cores} core(s)"
        return saw if load > cores else ""

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
        if any(
            set(view.below.unsure).intersection(view.counters) for view in self._firsts
        ):
            return {}
        return self._by_host(lambda view: view.below.disk_of_partition or view.counters)

    def _by_host(
        self, names: Callable[[View], Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        named = {view.host: names(view) for view in self._firsts}
        known = all(
            named[v.host] and not self.silent(v).intersection(named[v.host])
            for v in self._firsts
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
            name: view.below.names.get(name, "").rstrip("0123456789")
            for name in view.below.unsure
        }
        count = {kinds[name] for name in moved & kinds.keys()}
        return frozenset(name for name, kind in kinds.items() if kind not in count)

    @property
    def _firsts(self) -> Collection[View]:
        """Return the view of the first host of each kernel and mount."""
        return {view.cache_id: view for view in reversed(self.evidence.views)}.values()

    @property
    def with_first(self) -> set[str]:
        """Return the hosts whose counters the first node sees: containers of one kernel over one mount share them."""
        first = self.evidence.first
        return {
            v.host
            for v in self.evidence.views
            if first and v.cache_id == first.cache_id
        }

    @property
    def on_network(self) -> bool:
        """Return whether the counters are those of a network's clients, which count data alone."""
        return bool(self.counters) and not any(
            v.below.devices for v in self.evidence.views
        )

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

    @property
    def tasks_per_node(self) -> int:
        """Return the number of tasks on each node."""
        return self.plan.tasks // self.plan.nodes

    @property
    def cores(self) -> list[int]:
        """Return the physical cores of the nodes, as far as they told."""
        return [
            n
            for node in self.evidence.nodes
            if isinstance(n := node.get("cpu.cores"), int)
        ]

    @property
    def memories(self) -> list[int]:
        """Return the bytes of memory that the job could use on each node, as far as they told.

        This is the memory of the node, or the limit of the job's control group if that is smaller.
        """
        told = [
            (node.get("mem.bytes"), node.get("mem.limit"))
            for node in self.evidence.nodes
        ]
        known = [[size for size in sizes if isinstance(size, int)] for sizes in told]
        return [min(sizes) for sizes in known if sizes]


@dataclass(frozen=True)
class PhaseView:
    """A phase of a case, with its executions in order of repetitions."""

    case: CaseView
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
        return self.case.evidence.outputs.get(self.phase.name, ())

    @cached_property
    def executions(self) -> list[Execution]:
        """Return the executions that left an output, without the warm-up."""
        heard = self.case.evidence.testimony.get(self.phase.name, ())
        first = 0 if self.phase in self.case.plan.prepare else 1
        each = zip(self.outputs, [*heard, *[UNHEARD] * len(self.outputs)], strict=False)
        return [Execution(self, number, *one) for number, one in enumerate(each, first)]

    @property
    def unheard(self) -> str:
        """Return which nodes told nothing of an execution of all nodes, in words; empty if nobody knows."""
        nodes, heard = {view.host for view in self.case.evidence.views}, self.executions
        told = [
            one.testimony for one in heard if one.testimony.expected >= len(nodes) > 1
        ]
        gone = sorted(
            {host for testimony in told for host in nodes.difference(testimony.hosts)}
        )
        return f"{some(gone)} told nothing: did the agent there end?" if gone else ""

    @property
    def tool(self) -> str:
        """Return the name of the tool that ran."""
        return self.outputs[0].tool if self.outputs else self.case.plan.tool

    @cached_property
    def reported(self) -> list[tuple[Execution, Phase]]:
        """Return the tool's phases that yield a metric, each with its execution."""
        names = sorted({name for name, _ in self.phase.rates.values()})
        return [
            (one, phase)
            for one in self.executions
            for name in names
            for phase in tool_phases(one.output, name, self.phase.samples)
        ]

    @property
    def tool_phases(self) -> list[Phase]:
        """Return the tool's phases that yield a metric."""
        return [phase for _, phase in self.reported]

    @property
    def bytes_per_node(self) -> int:
        """Return V, the bytes that the phase moves on each node."""
        return (self.phase.data_bytes or 0) // self.case.plan.nodes


@dataclass(frozen=True)
class Execution:
    """An execution of a phase: its repetition (0: preparation or warm-up), what its tool and the kernels say of it."""

    seen: PhaseView
    repetition: int
    output: ToolOutput
    testimony: TaskCounters

    @property
    def case(self) -> CaseView:
        """Return the case."""
        return self.seen.case

    def run(self, phase: PhasePlan) -> PhaseRun | None:
        """Return when the job script ran a phase in this repetition; None if it does not say it."""
        name = phase.within or phase.name
        runs = self.case.evidence.runs
        own = (
            run for run in runs if (run.repetition, run.name) == (self.repetition, name)
        )
        return next(own, None)

    @property
    def span(self) -> tuple[float, float] | None:
        """Return when it began and ended on the first node; None if nobody there tells."""
        first = self.case.evidence.first
        return self.testimony.span(first.host if first else "")

    @property
    def fetched(self) -> int | None:
        """Return the bytes that it fetched from storage; None if nobody counted them.

        A client of Lustre or NFS counts for all programs on its node. Elsewhere the kernel counts
        for the tasks alone.
        """
        if not self.testimony.complete:
            return None
        own = self.case.traits.accounts
        counted = (
            self.testimony.moved if own else self.testimony.counted(self.case.counters)
        )
        return None if counted is None else counted.read

    def over_time(self, way: str) -> int | None:
        """Return the bytes that the first node's looks over time count for it and its sync, at most.

        They speak if the looks before and after it are lost, of one node's devices. None if nobody looked.
        """
        span = self.span
        if len(self.case.counters) != 1 or self.case.on_network or span is None:
            return None
        synced = span[0], span[1] + (self.testimony.sync_seconds or 0.0)
        return counted_between(self.case.evidence.activity, synced, way)

    @property
    def found_after(self) -> int | None:
        """Return how many files the first node found after it, before the next; None if nobody looked."""
        span = self.span if self.testimony.complete else None
        later = (
            count
            for when, count in self.case.evidence.found
            if span and when >= span[1]
        )
        return next(later, None)

    def claimed(self, way: str) -> int | None:
        """Return the bytes that it moved in a direction, as its tool says."""
        if self.output.totals:
            return self.output.totals.get(way)
        return whole(
            [phase.bytes_moved for phase in self.output.phases if phase.name == way]
        )

    def told(self, hosts: Collection[str] | None = None) -> Reading:
        """Return the bytes that its tool says it moved on some hosts, evenly divided, or on all."""
        share = 1.0 if hosts is None else len(hosts) / self.case.plan.nodes
        return Reading(
            *(round(share * (self.claimed(way) or 0)) for way in ("read", "write"))
        )

    def own(self, hosts: Collection[str] | None = None) -> Reading:
        """Return the bytes of its tasks on some hosts, or on all.

        The kernel does not tell those of servers, nor any of a network's client. Some kernels
        count nothing. Then the tool's word stands, evenly divided, or what the tasks asked for.
        """
        of_hosts = [
            w for w in self.testimony.witnesses if hosts is None or w.host in hosts
        ]
        if self.testimony.speaks_of_tasks:
            if self.case.traits.accounts:
                return sum((witness.moved for witness in of_hosts), Reading())
            if self.claimed("read") is None and self.claimed("write") is None:
                return sum((witness.asked for witness in of_hosts), Reading())
        return self.told(hosts)

    @property
    def files_changed(self) -> tuple[tuple[float, float], int] | None:
        """Return when it ran on the first node, and how many files it made, or removed if negative; None if it also did
        something else.
        """
        span, output, phases = self.span, self.output, self.output.but_trees
        names = [phase.name for phase in phases]
        kept = output.parameters.get("unlink") != "1" and not output.disturber
        files = phases[0].operations if names in (["create"], ["remove"]) else None
        if span is None or files is None or not kept or self.seen.phase.pauses:
            return None
        return span, files if names == ["create"] else -files

    @property
    def synchronous(self) -> bool:
        """Return whether the kernel counts what the tool asks for: not with an asynchronous engine of a job that moves data."""
        if self.output.tool != "fio":
            return True
        told = self.output.parameters
        jobs: Any = told.get("jobs") or {}
        engines = {job.get("ioengine", "psync") for job in jobs.values()} or {
            told.get("engine")
        }
        return engines - set(METADATA_PHASES) == {"psync"}


def whole(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None without any, or if one is unknown."""
    known = [count for count in counts if count is not None]
    return sum(known) if known and len(known) == len(counts) else None
