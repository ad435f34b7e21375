"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS, for each storage target of Lustre. :class:`TaskCounters` holds the
kernel's word of one execution.

The activity of a node is what its counters show between two looks.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.node.counters import NETWORKS, Reading
from iogauge.node.host import HARMLESS, Load
from iogauge.node.mounts import BLOCK_DEVICE
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.observations import Instant, NodeObservations, TaskLine
from iogauge.plan.stage import PhaseRun

#: Bytes that a task reads or writes beside its data. NodeObservations: 0.1 MiB of IOR and fio.
STARTING_BYTES: Final = 1 << 20


@dataclass(frozen=True, kw_only=True)
class TaskCounters:
    """All witnesses of one execution, and how many there should be.

    ``of_tasks`` is False if they looked at the nodes of servers: then only the counters speak. ``asked_for`` is when the job
    script on the first node waited for the execution, in seconds since its boot. ``watched`` are the bytes that the agent
    there saw the first task ask for.
    """

    witnesses: tuple[TaskLine, ...] = ()
    expected: int
    of_tasks: bool = True
    asked_for: tuple[float, float] | None = None
    watched: int = 0

    @property
    def complete(self) -> bool:
        """Return whether no witness is missing."""
        return self.tasks == self.expected

    @property
    def tasks(self) -> int:
        """Return the number of tasks, or of looks at nodes of servers, that are there."""
        return sum(witness.tasks for witness in self.witnesses)

    @property
    def speaks_of_tasks(self) -> bool:
        """Return whether the sums of the tasks count: every process has read its own libraries.

        The kernel adds up children that were waited for. Some containers wait for none of theirs.
        """
        asked = self.asked
        known = asked.read + asked.written + STARTING_BYTES
        return self.of_tasks and asked.read > 0 and known >= self.watched

    @property
    def hosts(self) -> list[str]:
        """Return the nodes' names, sorted."""
        return sorted({witness.host for witness in self.witnesses})

    @property
    def seconds(self) -> float:
        """Return the longest time between the first start and the last end on a node.

        A sync after the end belongs to it.
        """
        return max(
            max(w.synced or w.ended for w in of_host) - min(w.started for w in of_host)
            for of_host in self._by_host.values()
        )

    def span(self, host: str) -> tuple[float, float] | None:
        """Return the first start and the last end on the first node, in seconds since its boot; None if no task ran there.

        The job script tells those of servers, which work for others too, and those of tasks in a time namespace.
        """
        if not self.of_tasks and self.asked_for:
            return self.asked_for
        of_host = self._by_host.get(host)
        if not of_host:
            return None
        span = min(w.started for w in of_host), max(w.ended for w in of_host)
        elsewhen = self.asked_for and (
            span[1] < self.asked_for[0] or self.asked_for[1] < span[0]
        )
        return self.asked_for if elsewhen else span

    @property
    def sync_seconds(self) -> float | None:
        """Return the longest time that syncfs(2) took on a node; None if a node did not sync."""
        longest = 0.0
        for of_host in self._by_host.values():
            took = [w.synced - w.ended for w in of_host if w.synced is not None]
            if not took:
                return None
            longest = max(longest, *took)
        return longest if self.witnesses else None

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
        return _total(
            _growth(name, of_host)
            for host, of_host in grown.items()
            for name in counters.get(host, ())
        )

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

    def of_host(self, host: str) -> Mapping[str, Reading | None]:
        """Return the growth of each counter of a host, None if it is unknown."""
        return self._grown.get(host, {})

    @cached_property
    def _grown(self) -> dict[str, Mapping[str, Reading | None]]:
        return {
            host: ChainMap(*(dict(witness.counters) for witness in of_host))
            for host, of_host in self._by_host.items()
        }

    @cached_property
    def _by_host(self) -> dict[str, list[TaskLine]]:
        hosts: dict[str, list[TaskLine]] = {}
        for witness in self.witnesses:
            hosts.setdefault(witness.host, []).append(witness)
        return hosts


def _total(each: Iterable[Reading | None]) -> Reading | None:
    """Return the sum; None if one of them is unknown."""
    total = Reading()
    for one in each:
        if one is None:
            return None
        total += one
    return total


def _growth(name: str, grown: Mapping[str, Reading | None]) -> Reading | None:
    """Return the growth of a counter of a node. Where the kernel lists no device at all, nothing is known of any."""
    if BLOCK_DEVICE.fullmatch(name):
        return (
            grown.get(name, Reading())
            if any(map(BLOCK_DEVICE.fullmatch, grown))
            else None
        )
    if name.startswith("/"):
        return grown.get(name, Reading(requests=None))
    targets = [
        one for target, one in grown.items() if target.rpartition("-")[0] == name
    ]
    return _total(targets) if targets else None


def witnesses(seen: NodeObservations) -> dict[str, list[TaskLine]]:
    """Return the witnesses of each execution, ``PHASE.REPETITION``: its tasks, or the looks at its servers' nodes.

    Where no task ran and no agent counted, there is no witness.
    """
    found: dict[str, list[TaskLine]] = {}
    for task in seen.tasks:
        look = None if task.number else seen.grown.get((task.host, task.execution))
        if look is not None:
            # A look at the node of a server tells when it was taken.
            started = look.at if task.number is None else task.started
            one = replace(task, started=started, counters=look.counters)
        elif task.number is None:
            continue
        else:
            one = task
        found.setdefault(task.execution, []).append(one)
    return found


def hear(
    plan: CasePlan,
    phase: PhasePlan,
    repetition: int,
    run: PhaseRun | None,
    told: Mapping[str, Sequence[TaskLine]],
    asked: Sequence[Instant],
) -> TaskCounters:
    """Return the kernel's word of an execution, for which the job script saw ``run``; witnesses may be missing.

    ``told`` are the witnesses of all executions, ``asked`` what the agent saw the first task ask for.
    """
    asked_for = (run.started, run.ended) if run else None
    watched = [
        i.bytes_moved
        for i in asked
        if asked_for and asked_for[0] <= i.time <= asked_for[1]
    ]
    of_all = plan.nodes if phase.on_servers else plan.tasks
    return TaskCounters(
        witnesses=tuple(told.get(f"{phase.name}.{repetition}", ())),
        expected=of_all if phase.on_servers or phase.launch == "tasks" else 1,
        of_tasks=not phase.on_servers,
        asked_for=asked_for,
        watched=max(watched, default=0),
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

    def longer(phase: Phase) -> Phase:
        if phase.name not in measured:
            return phase
        share = phase.seconds / (phase.seconds + seconds)
        rates = {
            name: Quantity(share * rate.value, rate.unit)
            if name in ("rate", "bw")
            else rate
            for name, rate in phase.rates.items()
        }
        return replace(phase, rates=rates, seconds=phase.seconds + seconds)

    return replace(output, phases=tuple(map(longer, output.phases)))


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeActivity:
    """Activity of a node between two looks.

    ``troubles`` describes troubles of connections to servers. ``watched`` names the places that
    show such troubles. ``uuid`` names the target's file system at the last look, "" if unknown. ``load1`` is the load of
    the last minute then.
    """

    host: str
    cache_id: str
    seconds: float
    troubles: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    uuid: str = ""
    load1: float = 0.0


def change(before: Load, after: Load) -> NodeActivity:
    """Return the activity of a node between two looks."""
    troubles = [
        f"{device} is {state}"
        for device, state in after.states.items()
        if state not in HARMLESS
    ]
    troubles += [
        f"{device} went through {state}"
        for when, device, state in after.history
        if (when, device, state) not in before.history
        and when >= int(before.time)
        and state not in HARMLESS
    ]
    if before.timeouts is not None and (after.timeouts or 0) > before.timeouts:
        troubles.append(
            f"{(after.timeouts or 0) - before.timeouts} request(s) timed out"
        )
    watched = ["the state of the connections"] if after.states else []
    if before.log_end is not None and after.log_end is not None:
        watched.append("the kernel's log")
        troubles += [
            text for number, text in after.complaints if number > before.log_end
        ]
    return NodeActivity(
        host=after.host,
        cache_id=after.cache_id,
        seconds=after.time - before.time,
        troubles=tuple(dict.fromkeys(troubles)),
        watched=tuple(watched),
        uuid=after.uuid,
        load1=after.load1,
    )


def changes(before: list[Load], after: list[Load]) -> tuple[NodeActivity, ...]:
    """Return the activity of all hosts with two looks, in order of their names."""
    first = {load.host: load for load in before}
    return tuple(
        change(first[load.host], load)
        for load in sorted(after, key=lambda load: load.host)
        if load.host in first
    )
