"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS, for each storage target of Lustre. :class:`Testimony` holds the
kernel's word of one execution.

The activity of a node is what its counters show between two looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.node.counters import NETWORKS
from iogauge.node.host import HARMLESS, Load
from iogauge.node.mounts import BLOCK_DEVICE
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.seen import Instant, Look, Noted, TaskRun
from iogauge.plan.stage import PhaseRun

#: Bytes that a task reads or writes beside its data. Noted: 0.1 MiB of IOR and fio.
STARTING_BYTES: Final = 1 << 20


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that were read and written, or calls that did so."""

    read: int = 0
    written: int = 0

    def __add__(self, other: Moved) -> Moved:
        """Return the sums."""
        return Moved(self.read + other.read, self.written + other.written)

    def __sub__(self, other: Moved) -> Moved:
        """Return the growth since ``other``."""
        return Moved(self.read - other.read, self.written - other.written)

    def way(self, direction: str) -> int:
        """Return the bytes of a direction, ``read`` or ``write``."""
        return self.read if direction == "read" else self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The kernel's word of one task, or of one node.

    ``started``, ``ended`` and ``synced`` are seconds since the node's boot; ``synced`` is the end
    of a syncfs(2) after the task, None without one. ``asked`` are bytes of read(2), write(2) and
    their like, and ``calls`` their number. ``moved`` are bytes that the process fetched from storage and sent there. They are
    counted as the process dirties pages, without those that it dropped. ``counters`` are bytes by
    block device (``8:0``) or by the mount point of an NFS. ``requests`` are those that block devices and targets of a
    Lustre client finished, reads and writes. ``lists_disks`` is False if the kernel lists no block device there. ``targets`` are bytes by target of a Lustre client
    (``scratch-OST0003``), None unless all of the node's Lustre devices told theirs.
    """

    host: str
    started: float
    ended: float
    synced: float | None
    asked: Moved
    calls: Moved = Moved()
    moved: Moved
    counters: Mapping[str, Moved] = field(default_factory=dict)
    requests: Mapping[str, int] = field(default_factory=dict)
    targets: Mapping[str, Moved] | None = None
    lists_disks: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """All witnesses of one execution, and how many there should be.

    ``of_tasks`` is False if they looked at the nodes of servers: then only the counters speak. ``asked_for`` is when the job
    script on the first node waited for these servers, in seconds since its boot. ``watched`` are the bytes that the agent
    there saw the first task ask for. Without ``in_calls`` the tasks' bytes do not pass in calls that the kernel counts.
    """

    witnesses: tuple[Witness, ...] = ()
    expected: int
    of_tasks: bool = True
    asked_for: tuple[float, float] | None = None
    watched: int = 0
    in_calls: bool = True

    @property
    def complete(self) -> bool:
        """Return whether no witness is missing."""
        return len(self.witnesses) == self.expected

    @property
    def speaks_of_tasks(self) -> bool:
        """Return whether the sums of the tasks count: every process has read its own libraries.

        The kernel adds up children that were waited for. Some containers wait for none of theirs.
        """
        asked = self.asked
        known = asked.read + asked.written + STARTING_BYTES
        return self.of_tasks and self.in_calls and asked.read > 0 and known >= self.watched

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
            for of_host in self._by_host().values()
        )

    def span(self, host: str) -> tuple[float, float] | None:
        """Return the first start and the last end on a node, in seconds since its boot."""
        of_host = self._by_host().get(host)
        if not of_host:
            return None
        return min(w.started for w in of_host), max(w.ended for w in of_host)

    @property
    def sync_seconds(self) -> float | None:
        """Return the longest time that syncfs(2) took on a node; None if a node did not sync."""
        longest = 0.0
        for of_host in self._by_host().values():
            took = [w.synced - w.ended for w in of_host if w.synced is not None]
            if not took:
                return None
            longest = max(longest, *took)
        return longest if self.witnesses else None

    @property
    def asked(self) -> Moved:
        """Return the bytes that all tasks asked for."""
        return sum((witness.asked for witness in self.witnesses), Moved())

    @property
    def calls(self) -> Moved:
        """Return how often all tasks called read(2), write(2) and their like."""
        return sum((witness.calls for witness in self.witnesses), Moved())

    @property
    def moved(self) -> Moved:
        """Return the bytes that all tasks fetched and stored."""
        return sum((witness.moved for witness in self.witnesses), Moved())

    def counted(self, counters: Mapping[str, Collection[str]]) -> Moved | None:
        """Return the growth of counters, whose names are given by host; None if it is unknown, or no task ran on these hosts.

        A device that did not grow is not in a line; where the kernel lists none, nothing is known. A name of neither a device nor a mount is that
        of a Lustre file system, whose clients before 2.17 tell root alone.
        """
        if self._by_host().keys().isdisjoint(counters):
            return None
        total = Moved()
        for host, of_host in self._by_host().items():
            for name in counters.get(host, ()):
                if BLOCK_DEVICE.fullmatch(name) and not any(w.lists_disks for w in of_host):
                    return None
                if BLOCK_DEVICE.fullmatch(name) or name.startswith("/"):
                    total += _widest(name, [w.counters for w in of_host])
                elif all(witness.targets is None for witness in of_host):
                    return None
        return sum(self.by_target(counters).values(), total)

    def passed(self, devices: Mapping[str, Collection[str]]) -> dict[str, Moved]:
        """Return what passed each way out of the nodes, of all programs: all networks, each device, and all of them ("").

        Devices are given by host. A device's number may stand for another disk on each node.
        """
        ways: dict[str, Moved] = {}
        for host, of_host in self._by_host().items():
            looks = [w.counters for w in of_host]
            for name in {name for look in looks for name in look}:
                if name == NETWORKS or name in devices.get(host, ()):
                    for way in (name, ""):
                        ways[way] = ways.get(way, Moved()) + _widest(name, looks)
        return ways

    def requests(self, counters: Mapping[str, Collection[str]]) -> int | None:
        """Return the requests that counters finished, given by host; None if one has no such count, or no task ran there."""
        if self._by_host().keys().isdisjoint(counters):
            return None
        total = 0
        for host, of_host in self._by_host().items():
            for name in counters.get(host, ()):
                counting = {name}
                if not BLOCK_DEVICE.fullmatch(name):
                    targets = [one for w in of_host for one in w.targets or ()]
                    counting = {one for one in targets if one.rpartition("-")[0] == name}
                    if not counting:
                        return None
                total += sum(max(w.requests.get(one, 0) for w in of_host) for one in counting)
        return total

    def by_target(self, counters: Mapping[str, Collection[str]]) -> dict[str, Moved]:
        """Return the bytes by target (``OST0003``) of the Lustre file systems among the counters."""
        targets: dict[str, Moved] = {}
        for host, of_host in self._by_host().items():
            told = [witness.targets for witness in of_host if witness.targets is not None]
            for name in sorted({name for looks in told for name in looks}):
                fsname, _, target = name.rpartition("-")
                if fsname in counters.get(host, ()):
                    targets[target] = targets.get(target, Moved()) + _widest(name, told)
        return targets

    def _by_host(self) -> dict[str, list[Witness]]:
        hosts: dict[str, list[Witness]] = {}
        for witness in self.witnesses:
            hosts.setdefault(witness.host, []).append(witness)
        return hosts


def _widest(name: str, looks: Sequence[Mapping[str, Moved]]) -> Moved:
    """Return the most of several looks at a counter: each task of a node may have looked."""
    known = [look[name] for look in looks if name in look]
    return Moved(
        max((moved.read for moved in known), default=0),
        max((moved.written for moved in known), default=0),
    )


def witnesses(seen: Noted) -> dict[str, list[Witness]]:
    """Return the witnesses of each execution, ``PHASE.REPETITION``: its tasks, or the looks at its servers' nodes.

    Where no task ran and no agent counted, there is no witness.
    """
    grown = {(look.host, look.execution): look for look in seen.looks()}
    found: dict[str, list[Witness]] = {}
    for task in seen.tasks:
        first = task.number in (0, None)
        look = grown.get((task.host, task.execution)) if first else None
        if task.number is None and look is None:
            continue
        found.setdefault(task.execution, []).append(_of_task(task, look))
    return found


def _of_task(task: TaskRun, look: Look | None) -> Witness:
    """Return the witness of a task; the first one of a node brings the growth of the node's counters."""
    rchar, wchar, syscr, syscw, fetched, stored, cancelled = task.sums
    counters, requests = dict[str, Moved](), dict[str, int]()
    targets = dict[str, Moved | None]()
    for name, count in (look.growth() if look else {}).items():
        moved = None if count is None else Moved(count.read, count.written)
        if count is not None and count.requests is not None:
            requests[name] = count.requests
        if not (BLOCK_DEVICE.fullmatch(name) or name.startswith("/") or name == NETWORKS):
            targets[name] = moved
        elif moved is not None:
            counters[name] = moved
    told = {name: moved for name, moved in targets.items() if moved is not None}
    return Witness(
        host=task.host,
        # A look at the node of a server tells when it was taken.
        started=look.started if look and task.number is None else task.started,
        ended=task.ended,
        synced=task.synced,
        asked=Moved(rchar, wchar),
        calls=Moved(syscr, syscw),
        moved=Moved(fetched, max(0, stored - cancelled)),
        counters=counters,
        requests=requests,
        targets={n: m for n, m in told.items() if m != Moved()}
        if told and told == targets
        else None,
        lists_disks=any(BLOCK_DEVICE.fullmatch(name) for name in counters),
    )


def hear(
    plan: CasePlan,
    phase: PhasePlan,
    repetition: int,
    run: PhaseRun | None,
    told: Mapping[str, Sequence[Witness]],
    asked: Sequence[Instant],
) -> Testimony:
    """Return the kernel's word of an execution, for which the job script saw ``run``; witnesses may be missing.

    ``told`` are the witnesses of all executions, ``asked`` what the agent saw the first task ask for.
    """
    within = [i.bytes_moved for i in asked if run and run.started <= i.time <= run.ended]
    if phase.on_servers:
        return Testimony(
            witnesses=tuple(told.get(f"{phase.name}.{repetition}", ())),
            expected=plan.nodes,
            of_tasks=False,
            asked_for=(run.started, run.ended) if run else None,
        )
    return Testimony(
        witnesses=tuple(told.get(f"{phase.name}.{repetition}", ())),
        expected=plan.tasks if phase.launch == "tasks" else 1,
        watched=max(within, default=0),
        in_calls=phase.in_calls,
    )


def synced(
    output: ToolOutput, measured: Collection[str], testimony: Testimony, what: str
) -> ToolOutput:
    """Return an output whose measured phases, given by name, also took the seconds of a sync after them.

    Raises :class:`ToolOutputError` if a node did not report its sync; ``what`` names the execution.
    """
    seconds = testimony.sync_seconds
    if seconds is None:
        raise ToolOutputError(f"{what}: a node did not report how long its sync took")

    def longer(phase: Phase) -> Phase:
        if phase.name not in measured:
            return phase
        share = phase.seconds / (phase.seconds + seconds)
        rates = {
            name: Quantity(share * rate.value, rate.unit) if name in ("rate", "bw") else rate
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
        f"{device} is {state}" for device, state in after.states.items() if state not in HARMLESS
    ]
    earlier = set(before.history)
    troubles += [
        f"{device} went through {state}"
        for when, device, state in after.history
        if (when, device, state) not in earlier
        and when >= int(before.time)
        and state not in HARMLESS
    ]
    if before.timeouts is not None and (after.timeouts or 0) > before.timeouts:
        troubles.append(f"{(after.timeouts or 0) - before.timeouts} request(s) timed out")
    watched = ["the state of the connections"] if after.states else []
    if before.log_end is not None and after.log_end is not None:
        watched.append("the kernel's log")
        troubles += [text for number, text in after.complaints if number > before.log_end]
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
