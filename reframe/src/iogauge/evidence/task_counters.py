"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS, for each storage target of Lustre. :class:`TaskCounters` holds the
kernel's word of one execution.

The activity of a node is what its counters show between two looks.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property

from iogauge.core.measurement import Quantity, ToolOutput, ToolOutputError
from iogauge.node.activity import Load
from iogauge.node.counters import NETWORKS, Reading
from iogauge.node.mounts import BLOCK_DEVICE
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.observations import NodeObservations, TaskLine

#: Bytes that a task reads or writes beside its data. NodeObservations: 0.1 MiB of IOR and fio.
STARTING_BYTES = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TaskCounters:
    """All witnesses of one execution, and how many there should be.

    ``of_tasks`` is False if they looked at the nodes of servers: then only the counters speak.
    """

    witnesses: tuple[TaskLine, ...] = ()
    expected: int
    of_tasks: bool = True

    @property
    def complete(self) -> bool:
        """Return whether no witness is missing."""
        return self.expected == sum(witness.tasks for witness in self.witnesses)

    @property
    def hosts(self) -> list[str]:
        """Return the nodes' names, sorted."""
        return sorted(self._by_host)

    @property
    def seconds(self) -> float:
        """Return the longest time between the first start and the last end on a node.

        A sync after the end belongs to it.
        """
        longest = 0.0
        for of_host in self._by_host.values():
            ended = max(witness.synced or witness.ended for witness in of_host)
            started = min(witness.started for witness in of_host)
            longest = max(longest, ended - started)
        return longest

    @property
    def sync_seconds(self) -> float | None:
        """Return the longest time that syncfs(2) took on a node; None if a node did not sync."""
        longest = 0.0
        for of_host in self._by_host.values():
            took = [w.synced - w.ended for w in of_host if w.synced is not None]
            if not took:
                return None
            longest = max(longest, *took)
        if not self.witnesses:
            return None
        return longest

    @property
    def asked(self) -> Reading:
        """Return the bytes that all tasks asked for."""
        return sum((witness.asked for witness in self.witnesses), Reading())

    @property
    def calls(self) -> Reading:
        """Return how often all tasks called read(2), write(2) and their like."""
        return sum((witness.calls for witness in self.witnesses), Reading())

    @property
    def moved(self) -> Reading:
        """Return the bytes that all tasks fetched and stored."""
        return sum((witness.moved for witness in self.witnesses), Reading())

    def counted(self, counters: Mapping[str, Collection[str]]) -> Reading | None:
        """Return the growth of counters, whose names are given by host; None if it is unknown, or no task ran on these hosts.

        A name of neither a device nor a mount is that of a Lustre file system, whose clients before 2.17 tell root alone.
        """
        grown = self._grown
        if grown.keys().isdisjoint(counters):
            return None
        readings = []
        for host, of_host in grown.items():
            for name in counters.get(host, ()):
                readings.append(_growth(name, of_host))
        return _total(readings)

    def passed(self, devices: Mapping[str, Collection[str]]) -> dict[str, Reading]:
        """Return what passed the networks of the nodes and some devices, by name, of all programs; all together is "".

        A device's number may stand for another disk on each node.
        """
        passed = {"": Reading()}
        for host, grown in self._grown.items():
            for name, moved in grown.items():
                if moved and (name == NETWORKS or name in devices.get(host, ())):
                    passed[name] = passed.get(name, Reading()) + moved
                    passed[""] += moved
        return passed

    @cached_property
    def _grown(self) -> Mapping[str, Mapping[str, Reading | None]]:
        grown: dict[str, dict[str, Reading | None]] = {}
        for witness in reversed(self.witnesses):
            grown.setdefault(witness.host, {}).update(witness.counters)
        return grown

    @cached_property
    def _by_host(self) -> dict[str, list[TaskLine]]:
        hosts: dict[str, list[TaskLine]] = {}
        for witness in self.witnesses:
            hosts.setdefault(witness.host, []).append(witness)
        return hosts


def _total(readings: Iterable[Reading | None]) -> Reading | None:
    """Return the sum; None if one of them is unknown."""
    total = Reading()
    for reading in readings:
        if reading is None:
            return None
        total += reading
    return total


def _growth(name: str, grown: Mapping[str, Reading | None]) -> Reading | None:
    """Return the growth of a counter of a node. Where the kernel lists no device at all, nothing is known of any."""
    if BLOCK_DEVICE.fullmatch(name):
        if not any(map(BLOCK_DEVICE.fullmatch, grown)):
            return None
        return grown.get(name, Reading())
    if name.startswith("/"):
        return grown.get(name, Reading(requests=None))
    targets = []
    for target, growth in grown.items():
        if target.rpartition("-")[0] == name:
            targets.append(growth)
    if not targets:
        return None
    return _total(targets)


def witnesses(seen: NodeObservations) -> dict[str, list[TaskLine]]:
    """Return the witnesses of each execution, ``PHASE.REPETITION``: its tasks, or the looks at its servers' nodes.

    Where no task ran and no agent counted, there is no witness.
    """
    found: dict[str, list[TaskLine]] = {}
    for task in seen.tasks:
        look = seen.grown.get((task.host, task.execution))
        if task.number is None:
            if look is None:
                continue
            # A look at the node of a server tells when it was taken.
            task = replace(task, started=look.at)
        if look and not task.number:
            task = replace(task, counters=look.counters, processors=look.processors)
        found.setdefault(task.execution, []).append(task)
    return found


def hear(
    plan: CasePlan,
    phase: PhasePlan,
    repetition: int,
    told: Mapping[str, Sequence[TaskLine]],
) -> TaskCounters:
    """Return the kernel's word of an execution, of which witnesses may be missing; ``told`` are those of all executions."""
    expected = 1
    if phase.on_servers:
        expected = plan.nodes
    elif phase.launch == "tasks":
        expected = plan.tasks
    return TaskCounters(
        witnesses=tuple(told.get(f"{phase.name}.{repetition}", ())),
        expected=expected,
        of_tasks=not phase.on_servers,
    )


def synced(
    output: ToolOutput, measured: Collection[str], counts: TaskCounters, what: str
) -> ToolOutput:
    """Return an output whose measured phases, given by name, also took the seconds of a sync after them.

    Raises :class:`ToolOutputError` if a node did not report its sync; ``what`` names the execution.
    """
    seconds = counts.sync_seconds
    if seconds is None:
        raise ToolOutputError(f"{what}: a node did not report how long its sync took")

    phases = []
    for phase in output.phases:
        if phase.name in measured:
            share = phase.seconds / (phase.seconds + seconds)
            rates = dict(phase.rates)
            for name in rates.keys() & {"rate", "bw"}:
                rate = rates[name]
                rates[name] = Quantity(share * rate.value, rate.unit)
            phase = replace(phase, rates=rates, seconds=phase.seconds + seconds)
        phases.append(phase)
    return replace(output, phases=tuple(phases))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActivity(Load):
    """The last look at a node, and what became of it since the first one."""

    #: Connections to servers that were lost.
    troubles: tuple[str, ...] = ()
    #: Whether the kernel's log, which names them, could be read at both looks.
    watched: bool = False


def changes(before: Sequence[Load], after: Sequence[Load]) -> tuple[NodeActivity, ...]:
    """Return what became of all hosts with two looks, in order of their names."""
    first = {load.host: load for load in before}
    became = []
    for last in sorted(after, key=lambda load: load.host):
        if last.host not in first:
            continue
        troubles: dict[str, None] = {}
        end = first[last.host].log_end
        watched = end is not None and last.log_end is not None
        for number, text in last.complaints:
            if end is not None and number > end:
                troubles[text] = None
        activity = NodeActivity(
            **asdict(last), troubles=tuple(troubles), watched=watched
        )
        became.append(activity)
    return tuple(became)
