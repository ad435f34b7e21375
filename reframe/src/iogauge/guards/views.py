"""What guards read: a case, its phases, executions and metrics, with the evidence that its job left.

This module derives only values that several guards share.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from iogauge.core.measurement import Metric, Phase, ToolOutput
from iogauge.core.text import some
from iogauge.core.vocabulary import Tier
from iogauge.evidence.model import Evidence, tool_phases
from iogauge.evidence.task_counters import STARTING_BYTES, TaskCounters
from iogauge.node.activity import Load
from iogauge.node.counters import Reading
from iogauge.node.kinds import Kind, kind_of
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import option
from iogauge.node.view import View
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.plan.observations import TaskLine
from iogauge.plan.stage import PhaseRun
from iogauge.site.extras import PartitionExtras

#: Bytes that the ends of a buffered operation may add: a page each, or what is read ahead by default.
PAGE = 4096
READ_AHEAD = 128 << 10
#: The fewest files that are compared.
LEAST_FILES = 1000
#: Share of the time of a busy node's processors that the work of others takes at least, and that is idle at most.
_WORK_OF_OTHERS = 0.5
_IDLE = 0.1
#: The counts of an execution of which every line is lost.
NO_COUNTS = TaskCounters(expected=1)


@dataclass(frozen=True)
class CaseView:
    """A case: its plan, its evidence, the site's declarations, and the values of each metric, one for each repetition."""

    plan: CasePlan
    evidence: Evidence
    extras: PartitionExtras
    tier: Tier
    metrics: Sequence[Metric]
    values: Mapping[str, Sequence[float]]
    #: Whether only PASS passes the run.
    gate: bool = False

    @property
    def phases(self) -> list[PhaseView]:
        """Return the repeated phases, which are judged."""
        return [PhaseView(self, phase) for phase in self.plan.repeat]

    @property
    def targets(self) -> Sequence[StorageTarget]:
        """Return the storage targets that the job saw when it began; empty if not on Lustre."""
        return self.evidence.opened.targets if self.evidence.opened else ()

    @cached_property
    def kind(self) -> Kind:
        """Return what is known of the target's type, as far as the site and the layers below keep it."""
        target = self.extras.target
        kind = kind_of(target.type, target.cache, target.honours_o_direct)
        for view in self.evidence.views:
            kind = kind.over(view.below)
        return kind

    @property
    def witness_required(self) -> bool:
        """Return whether bytes on the target need a second witness: the site wants it, the type of file system promises it, or
        a program may keep them in memory.

        A device of which the kernel says that it does not count promises nothing.
        """
        if self.extras.limits.witness is not None:
            return self.witness_asked
        views = self.evidence.views
        if any(view.is_unproven for view in views):
            return True
        return self.kind.accounts and not any(map(self.silent, views))

    @property
    def witness_asked(self) -> bool:
        """Return whether the site wants a second witness of every figure."""
        return self.extras.limits.witness == "required"

    @property
    def lines_required(self) -> bool:
        """Return whether the kernel counts on such a target what tasks move: then no task's line may be lost."""
        return self.witness_asked or self.kind.accounts or bool(self.counters)

    @property
    def busy(self) -> str:
        """Return which node was busy with the work of others in a judged phase; empty if none was."""
        for phase in self.phases:
            if phase.busy:
                return phase.busy
        return ""

    @property
    def loaded(self) -> str:
        """Return which node had more work of others than cores, by its load before the run or at its end; empty if none had.

        It lags by a minute.
        """
        cores = min(self.cores, default=self.extras.node.cores)
        for look in self._looks:
            # The load of the minute before may be that of an earlier case, with as many tasks.
            beside = look.load1 - self.tasks_per_node
            if beside > cores:
                return f"{look.host} had a load of {beside:.1f} beside the tasks on {cores} core(s)"
        return ""

    @property
    def load(self) -> float | None:
        """Return the load of the busiest node before the run, in its cores; None if it is not known."""
        cores = min(self.cores, default=0)
        if not cores or not self.evidence.idle:
            return None
        return round(max(look.load1 for look in self.evidence.idle) / cores, 2)

    @property
    def _looks(self) -> Sequence[Load]:
        """Return the looks at the nodes before the run and at its end."""
        return *self.evidence.idle, *self.evidence.activity

    @cached_property
    def counters(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the counters under the target's mount, by host.

        Containers of one kernel over one mount share their counters: only the first of them is
        named. Empty if a node has none, or if one of them counts nothing.
        """
        return self.by_host(lambda view: view.counters)

    @cached_property
    def disks(self) -> Mapping[str, Sequence[str]]:
        """Return the names of the disks at the bottom, by host, as :attr:`counters`."""
        return self.by_host(lambda view: view.below.disks)

    @cached_property
    def ways(self) -> Mapping[str, Sequence[str]]:
        """Return the devices by which bytes may leave the nodes, by host; containers of one kernel share theirs."""
        return {view.host: view.below.ways for view in self._firsts}

    def by_host(
        self, names: Callable[[View], Sequence[str]]
    ) -> Mapping[str, Sequence[str]]:
        """Return the names of counters by host, as :attr:`counters`."""
        named = {view.host: names(view) for view in self._firsts}
        for view in self._firsts:
            of_host = named[view.host]
            if not of_host or self.silent(view).intersection(of_host):
                return {}
        return named

    def silent(self, view: View) -> set[str]:
        """Return the devices below a node's mount that the kernel did not count at the first or the last look, as it says."""
        devices = view.below.devices + view.below.disks
        return self._silent.get(view.host, set()).intersection(devices)

    @cached_property
    def _silent(self) -> Mapping[str, set[str]]:
        """Return by host what the kernel did not count at the first or the last look."""
        silent: dict[str, set[str]] = {}
        for look in self._looks:
            silent.setdefault(look.host, set()).update(look.silent)
        return silent

    @property
    def _firsts(self) -> Collection[View]:
        """Return the view of the first host of each kernel and mount."""
        return {view.cache_id: view for view in reversed(self.evidence.views)}.values()

    @property
    def on_network(self) -> bool:
        """Return whether the counters are those of a network's clients, which count data alone."""
        on_devices = any(view.below.devices for view in self.evidence.views)
        return bool(self.counters) and not on_devices

    @property
    def copies(self) -> tuple[float, float]:
        """Return how many bytes the file system writes for each byte, at least and at most."""
        copies = [view.below.copies for view in self.evidence.views] or [(1.0, 1.0)]
        return min(copies)[0], max(most for _, most in copies)

    @property
    def source(self) -> str:
        """Return what counts under the target's mount, for a finding; empty if nothing does."""
        names = set()
        if not self.counters:
            return ""
        for view in self.evidence.views:
            for name in view.counters:
                shown = view.below.names.get(name, name)
                if view.on_lustre:
                    shown = f"the client of {name} (osc.*.stats)"
                names.add(shown)
        return ", ".join(sorted(names))

    def mounted_with(self, names: str) -> bool:
        """Return whether a node mounts the target with one of some options, joined by ``|``."""
        return any(option(view.mount, names) for view in self.evidence.views)

    @property
    def tasks_per_node(self) -> int:
        """Return the number of tasks on each node."""
        return self.plan.tasks // self.plan.nodes

    @property
    def cores(self) -> list[int]:
        """Return the physical cores of the nodes, as far as they are known."""
        return self._least("cpu.cores")

    @property
    def memories(self) -> list[int]:
        """Return the bytes of memory that the job could use on each node, as far as they are known.

        This is the memory of the node, or the limit of the job's control group if that is smaller.
        """
        return self._least("mem.bytes", "mem.limit")

    def _least(self, *keys: str) -> list[int]:
        """Return the least of some facts of each node that tells one of them."""
        least = []
        for facts in self.evidence.nodes.values():
            told = [facts.get(key) for key in keys]
            known = [count for count in told if isinstance(count, int)]
            if known:
                least.append(min(known))
        return least


@dataclass(frozen=True)
class PhaseView:
    """A phase of a case, with its executions in order of repetitions."""

    case: CaseView
    plan: PhasePlan

    @property
    def access(self) -> Access:
        """Return how the phase touches data."""
        return self.plan.access

    @property
    def moves_data(self) -> bool:
        """Return whether the phase reads or writes data."""
        return self.access.direction in ("read", "write")

    @cached_property
    def busy(self) -> str:
        """Return which node was busy with the work of others while the phase ran; empty if none was.

        The processors say it. The load counts where nobody looked at them in any execution.
        """
        looks = list[tuple[str, float, float]]()
        for execution in self.executions:
            looks += execution.work_of_others
        if not looks:
            return self.case.loaded
        for host, others, idle in looks:
            if others >= _WORK_OF_OTHERS and idle <= _IDLE:
                return f"others kept {others:.0%} of the processors of {host} at work, and hardly any was idle"
        return ""

    @property
    def timed(self) -> bool:
        """Return whether the tool reports seconds of something that the phase does with the target."""
        return bool(self.tool_phases) and self.access.direction != "none"

    @property
    def outputs(self) -> Sequence[ToolOutput]:
        """Return the tool's outputs, one for each repetition."""
        return self.case.evidence.outputs.get(self.plan.name, ())

    @cached_property
    def executions(self) -> list[Execution]:
        """Return the executions that left an output, without the warm-up."""
        counts = self.case.evidence.task_counters.get(self.plan.name, ())
        every = [*counts, *[NO_COUNTS] * len(self.outputs)]
        first = 0 if self.plan in self.case.plan.prepare else 1
        return [
            Execution(self, first + index, output, every[index])
            for index, output in enumerate(self.outputs)
        ]

    @property
    def complete(self) -> list[bool]:
        """Return of each execution whether no count of it is lost."""
        return [execution.complete for execution in self.executions]

    @property
    def nodes_lost(self) -> str:
        """Return in words why nodes left no count, or which left none of an execution of all nodes; empty if nobody knows."""
        evidence, gone = self.case.evidence, set[str]()
        nodes = {view.host for view in evidence.views}
        for execution in self.executions:
            if execution.counts.expected >= len(nodes) > 1:
                gone |= nodes.difference(execution.counts.hosts)
        if evidence.uncounted or not gone:
            return evidence.uncounted
        return f"{some(sorted(gone))} told nothing: did the agent there end?"

    @property
    def tool(self) -> str:
        """Return the name of the tool that ran."""
        return self.outputs[0].tool if self.outputs else self.case.plan.tool

    @cached_property
    def tool_phases(self) -> list[Phase]:
        """Return the tool's phases that yield a metric."""
        names, phases = {name for name, _ in self.plan.rates.values()}, list[Phase]()
        for execution in self.executions:
            for name in sorted(names):
                phases += tool_phases(execution.output, name, self.plan.samples)
        return phases

    @property
    def bytes_per_node(self) -> int:
        """Return V, the bytes that the phase moves on each node."""
        return (self.plan.data_bytes or 0) // self.case.plan.nodes


@dataclass(frozen=True)
class Execution:
    """An execution of a phase, with what its tool and the kernels report of it."""

    phase: PhaseView
    #: 0 is preparation or warm-up.
    repetition: int
    output: ToolOutput
    counts: TaskCounters

    @property
    def case(self) -> CaseView:
        """Return the case."""
        return self.phase.case

    @property
    def complete(self) -> bool:
        """Return whether no count is lost: the lines of all tasks, and what the devices below a local file system moved."""
        if not self.counts.complete:
            return False
        looked = self.case.kind.accounts and self.case.counters
        return not looked or self.counts.counted(self.case.counters) is not None

    @property
    def work_of_others(self) -> list[tuple[str, float, float]]:
        """Return nodes whose processors were looked at while it ran, with the shares of their time that others worked and that
        they were idle.

        Containers of one kernel share its processors.
        """
        if not self.speaks_of_tasks:
            return []
        by_kernel: dict[str, list[TaskLine]] = {}
        kernels = {view.host: view.cache_id for view in self.case.evidence.views}
        for line in self.counts.witnesses:
            kernel = kernels.get(line.host, line.host)
            by_kernel.setdefault(kernel, []).append(line)
        shares = []
        for lines in by_kernel.values():
            looks = [line.processors for line in lines if line.processors]
            own = whole([line.ticks for line in lines])
            if looks and own is not None:
                work, idle = looks[0]
                every = max(1, work + idle)
                shares.append((lines[0].host, (work - own) / every, idle / every))
        return shares

    @property
    def run(self) -> PhaseRun | None:
        """Return what the job script saw of it; None if it saw nothing."""
        plan = self.phase.plan
        runs = self.case.evidence.runs
        return runs.get((self.repetition, plan.within or plan.name))

    @property
    def speaks_of_tasks(self) -> bool:
        """Return whether the sums of the tasks count: every process has read its own libraries.

        The kernel adds up children that were waited for. Some containers wait for none of theirs: then the agent on the first
        node saw its first task ask for more.
        """
        asked, run, watched = self.counts.asked, self.run, 0
        for instant in self.case.evidence.asked:
            if run and run.started <= instant.time <= run.ended:
                watched = max(watched, instant.bytes_moved)
        known = asked.read + asked.written + STARTING_BYTES
        return self.counts.of_tasks and asked.read > 0 and known >= watched

    @property
    def span(self) -> tuple[float, float] | None:
        """Return when it began and ended on the first node, in seconds since its boot; None if no task ran there.

        Tasks began and ended while the job script waited for them. If their times are others, they have another clock (a time
        namespace), and the script's count. Servers work for other nodes too: of them only the script knows it.
        """
        run, opened = self.run, self.case.evidence.opened
        if run and not self.counts.of_tasks:
            return run.started, run.ended
        here = opened.host if opened else ""
        lines = [line for line in self.counts.witnesses if line.host == here]
        if not lines:
            return None
        began = min(line.started for line in lines)
        ended = max(line.ended for line in lines)
        if run and not run.started <= began <= ended <= run.ended:
            return run.started, run.ended
        return began, ended

    @property
    def fetched(self) -> int | None:
        """Return the bytes that it fetched from storage; None if nobody counted them.

        A client of Lustre or NFS counts for all programs on its node. Elsewhere the kernel counts
        for the tasks alone.
        """
        if not self.counts.complete:
            return None
        if self.case.kind.accounts:
            return self.counts.moved.read
        counted = self.counts.counted(self.case.counters)
        if counted is None:
            return None
        return counted.read

    @property
    def found_after(self) -> int | None:
        """Return how many files the first node found after it, before the next; None if nobody looked."""
        if self.span is None or not self.counts.complete:
            return None
        for when, count in self.case.evidence.found:
            if when >= self.span[1]:
                return count
        return None

    def reported(self, way: str) -> int | None:
        """Return the bytes that it moved in a direction, as its tool reports."""
        if self.output.totals:
            return self.output.totals.get(way)
        return whole([phase.bytes_moved for phase in self.output.named(way)])

    @cached_property
    def reported_bytes(self) -> Reading:
        """Return the bytes that its tool reports both ways; what it does not report is 0."""
        return Reading(self.reported("read") or 0, self.reported("write") or 0)

    @property
    def own(self) -> Reading:
        """Return the bytes of its tasks.

        The kernel does not know those of servers, nor any of a network's client. Some kernels
        count nothing. Then the tool's figure stands, or what the tasks asked for.
        """
        if not self.speaks_of_tasks:
            return self.reported_bytes
        if self.case.kind.accounts:
            return self.counts.moved
        if self.reported("read") is None and self.reported("write") is None:
            return self.counts.asked
        return self.reported_bytes

    @property
    def files_changed(self) -> int | None:
        """Return how many files it made, or removed if negative; None if it also did something else."""
        names = [phase.name for phase in self.output.phases]
        if names not in (["create"], ["remove"]):
            return None
        files = self.output.phases[0].operations or 0
        if names == ["remove"]:
            return -files
        return files

    @property
    def synchronous(self) -> bool:
        """Return whether the kernel counts what the tool asks for: not with an asynchronous engine of a job that moves data."""
        jobs: Any = self.output.parameters.get("jobs") or {"": {}}
        engines = {job.get("ioengine", "psync") for job in jobs.values()}
        return engines == {"psync"}


def whole(counts: Sequence[int | None]) -> int | None:
    """Return the sum of counts; None without any, or if one is unknown."""
    total = None
    for count in counts:
        if count is None:
            return None
        total = (total or 0) + count
    return total
