"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS, for each storage target of Lustre. :class:`Testimony` holds the
kernel's word of one execution.

The activity of a node is what its counters show between two looks.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby, pairwise
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.node.counters import NETWORKS
from iogauge.node.host import HARMLESS, OWN, Load
from iogauge.node.mounts import BLOCK_DEVICE
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.seen import Instant, Look, Noted, TaskRun
from iogauge.plan.stage import PhaseRun

#: Share of the bytes at each end of an execution that may move outside of the tool's timing, and the
#: most that does not count with the bytes of others.
_ENDS: Final = 0.02
_MOST_TRIMMED: Final = 0.25
#: Share of the mean rate of an execution below which it rests, if that lasts so long.
_HARDLY: Final = 0.1
_REST_S: Final = 0.1
#: Bytes that a task reads or writes beside its data. Noted: 0.1 MiB of IOR and fio.
_STARTING_BYTES: Final = 1 << 20

#: Processes of fio before it starts its jobs.
_WITHOUT_JOBS: Final = 1


@dataclass(frozen=True, slots=True)
class Moved:
    """Bytes that were read and written."""

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


@dataclass(frozen=True, slots=True)
class Calls:
    """How often tasks called read(2), write(2) and their like."""

    read: int = 0
    write: int = 0

    def way(self, direction: str) -> int:
        """Return the calls of a direction, ``read`` or ``write``."""
        return self.read if direction == "read" else self.write


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
    calls: Calls = Calls()
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
    there saw the first task ask for.
    """

    witnesses: tuple[Witness, ...] = ()
    expected: int
    of_tasks: bool = True
    asked_for: tuple[float, float] | None = None
    watched: int = 0

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
        known = asked.read + asked.written + _STARTING_BYTES
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
    def calls(self) -> Calls:
        """Return how often all tasks called the kernel."""
        each = [witness.calls for witness in self.witnesses]
        return Calls(sum(calls.read for calls in each), sum(calls.write for calls in each))

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


def counted_between(
    instants: Sequence[Instant], span: tuple[float, float], direction: str
) -> int | None:
    """Return the bytes of a direction between two times, at most; None if nobody counted then.

    A look before the begin and one after the end bound them. Looks without a change are not written down, so that none
    after the end means that nothing moved after the last.
    """
    begin, end = span
    before = [i for i in instants if i.time <= begin][-1:]
    after = ([i for i in instants if i.time >= end] or instants[-1:])[:1]
    if not before or not after:
        return None
    reads = direction == "read"
    first, last = (i.read if reads else i.written for i in (before[0], after[0]))
    return max(0, last - first)


def seconds_of_activity(
    instants: Sequence[Instant], span: tuple[float, float], own_bytes: int
) -> float | None:
    """Return the seconds in which the tasks' bytes moved, at least; None if unknown.

    ``span`` holds the times of first start and last end. Nothing is known of the time between two
    instants: bytes may have begun late in it, and ended early. At each end a fiftieth does not
    count, and as many bytes as others moved. If they moved a quarter, nothing is known.
    """
    return _seconds_of([(i.time, i.bytes_moved) for i in instants], span, own_bytes)


def seconds_of_files(
    instants: Sequence[Instant], span: tuple[float, float], own_files: int
) -> float | None:
    """Return the seconds in which the tasks made so many files, or removed them if negative, at least; None if unknown.

    The number of files in use is that of the whole file system. If others make or remove files meanwhile, nothing is
    known: theirs may hide those of the tasks.
    """
    sign = 1 if own_files > 0 else -1
    counts = [(i.time, sign * i.files) for i in instants if i.files is not None]
    return _seconds_of(counts, span, abs(own_files)) if _alone(counts, span, own_files) else None


def seconds_of_growth(
    instants: Sequence[Instant], span: tuple[float, float], own_bytes: int, told_bytes: int
) -> float | None:
    """Return the seconds in which the target's files grew by so many bytes, at least; None if unknown.

    As :func:`seconds_of_files`. Bytes count as they are written to the page cache. Bytes that are written in place
    of others do not. The tool claims ``told_bytes`` of them. Its MPI may write others before the tool's time begins:
    Open MPI 4.1 has files of 8 MiB in TMPDIR, which may lie on the target.
    """
    counts = [(i.time, i.held) for i in instants if i.held is not None]
    if not _alone(counts, span, own_bytes):
        return None
    return _seconds_of(counts, span, min(own_bytes, told_bytes))


def seconds_of_asking(
    instants: Sequence[Instant],
    span: tuple[float, float],
    ways: Collection[str],
    *,
    phases: int = 1,
) -> float | None:
    """Return the seconds in which the first task passed its bytes to the kernel, at least; None if they are few.

    A task reads programs and settings first: a MiB of them may come at either end. Between two ``phases`` it may rest.
    The time from the last bytes before a pause to the first bytes after it does not count. A short time is taken off
    for each pause that is too short to be seen.
    """
    counts = [(i.time, i.read * ("read" in ways) + i.written * ("write" in ways)) for i in instants]
    mine = _of_execution(counts, span)
    seconds = _seconds_of(mine, span, mine[-1][1] - _STARTING_BYTES, rests=phases - 1)
    return None if seconds is None else max(0.0, seconds - _REST_S * (phases - 1))


def _of_execution(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> list[tuple[float, int]]:
    """Return the looks at a count of one execution, from zero at its start to the first look after its end.

    The count of each execution begins anew. So if it falls, another execution has begun.
    """
    started, ended = span
    mine = [(started, 0)]
    for time, count in counts:
        if time <= started:
            continue
        if count < mine[-1][1]:
            if time > ended:
                break
            mine = [(started, 0)]
        mine.append((time, count))
        if time > ended:
            break
    return mine


def _rests(looks: Sequence[tuple[float, int]], most: int) -> float:
    """Return the seconds in which a count hardly grew for some time, at most: those of the ``most`` longest times.

    Nothing is known of the intervals beside them: the count may have grown at their far ends alone. A count may also
    stand still while a call of the kernel lasts.
    """
    rate = (looks[-1][1] - looks[0][1]) / (looks[-1][0] - looks[0][0])
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in pairwise(looks)]
    rests, at = list[float](), 0
    for idle, of_kind in groupby(steps, lambda step: step[1] < _HARDLY * rate * step[0]):
        length = len(list(of_kind))
        if idle and sum(seconds for seconds, _ in steps[at : at + length]) >= _REST_S:
            rests.append(sum(seconds for seconds, _ in steps[max(0, at - 1) : at + length + 1]))
        at += length
    return sum(sorted(rests)[-most:])


def longest_silence(
    counts: Sequence[tuple[float, int]], span: tuple[float, float], printed: int
) -> float | None:
    """Return the longest time, at least, between two lines of a tool that has ``printed`` so much or more; None without two.

    ``counts`` are the bytes that it had printed at a time, in seconds since boot. If they fall, another execution has begun.
    """
    mine = [(span[0], 0), *((time, count) for time, count in counts if time > span[0])]
    ends = next((n for n, (a, b) in enumerate(pairwise(mine), 1) if b[1] < a[1]), len(mine))
    silences = [list(looks) for _, looks in groupby(mine[:ends], lambda look: look[1])][1:-1]
    return max(
        (looks[-1][0] - looks[0][0] for looks in silences if looks[0][1] >= printed), default=None
    )


def seconds_of_jobs(counts: Sequence[tuple[float, int]], span: tuple[float, float]) -> float | None:
    """Return the seconds, at least, in which fio had all of its jobs at once; None if it made no process for them.

    ``counts`` are the processes of fio: itself, and one for each job. A number counts only if two looks in succession
    found it.
    """
    jobs = jobs_at_once(counts, span)
    times = [
        time
        for time, count in counts
        if span[0] <= time <= span[1] and count == _WITHOUT_JOBS + jobs
    ]
    return times[-1] - times[0] if jobs else None


def jobs_at_once(counts: Sequence[tuple[float, int]], span: tuple[float, float]) -> int:
    """Return how many jobs fio had at once, as :func:`seconds_of_jobs`; 0 if it made no process for them."""
    within = [count for time, count in counts if span[0] <= time <= span[1]]
    return max(0, max((a for a, b in pairwise(within) if a == b), default=0) - _WITHOUT_JOBS)


def files_changed(instants: Sequence[Instant], span: tuple[float, float]) -> int | None:
    """Return how many files all programs made and removed in a span, at least; None if nobody counted them."""
    counts = [(i.time, i.files) for i in instants if i.files is not None]
    return _changed(counts, span) if counts else None


def _changed(counts: Sequence[tuple[float, int]], span: tuple[float, float]) -> int:
    within = _within(counts, span)
    return sum(abs(after - before) for (_, before), (_, after) in pairwise(within))


def _alone(counts: Sequence[tuple[float, int]], span: tuple[float, float], own: int) -> bool:
    """Return whether all changes of a count in a span are those of the tasks."""
    return abs(_changed(counts, span) - abs(own)) <= _ENDS * abs(own)


def _within(
    counts: Sequence[tuple[float, int]], span: tuple[float, float]
) -> list[tuple[float, int]]:
    """Return the looks of a span, with the last one before it and the first one after it."""
    started, ended = span
    before = [look for look in counts if look[0] <= started][-1:]
    after = [look for look in counts if look[0] > ended][:1]
    return before + [look for look in counts if started < look[0] <= ended] + after


def _seconds_of(
    counts: Sequence[tuple[float, int]], span: tuple[float, float], own: int, rests: int = 0
) -> float | None:
    """Return the seconds in which a count grew by ``own``, at least, without so many ``rests``; None if unknown."""
    within = _within(counts, span)
    if len(within) < 3:
        return None
    first, total = within[0][1], within[-1][1] - within[0][1]
    trim = _ENDS + max(0, total - own) / total if total > 0 else 1.0
    if trim > _MOST_TRIMMED:
        return None
    begun = next(time for time, count in within if count >= first + trim * total)
    going = [time for time, count in within if count < first + (1 - trim) * total]
    busy = [look for look in within if begun <= look[0] <= going[-1]]
    return max(
        0.0, going[-1] - begun - (_rests(busy, rests) if rests and going[-1] > begun else 0.0)
    )


def witnesses(seen: Noted) -> dict[str, list[Witness]]:
    """Return the witnesses of each execution, ``PHASE.REPETITION``: its tasks, or the looks at its servers' nodes."""
    grown = {(look.host, look.execution): look for look in seen.looks()}
    found: dict[str, list[Witness]] = {}
    for task in seen.tasks:
        first = task.number in (0, None)
        look = grown.get((task.host, task.execution)) if first else None
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
        calls=Calls(syscr, syscw),
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
    show such troubles. ``jobs_own`` and ``jobs_foreign`` are the bytes that the servers on this
    node moved for this job and for others. They are None if the servers keep no such account or do
    not list this job. ``uuid`` names the target's file system at the last look, "" if unknown. ``load1`` is the load of
    the last minute then.
    """

    host: str
    cache_id: str
    seconds: float
    troubles: tuple[str, ...] = ()
    watched: tuple[str, ...] = ()
    jobs_own: int | None = None
    jobs_foreign: int | None = None
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
    jobs: dict[str, int] = {}
    for job, count in after.jobs.items():
        first = before.jobs.get(job, 0)
        jobs[job] = count - first if count >= first else count  # the account was cleared meanwhile
    accounted = OWN in after.jobs
    return NodeActivity(
        host=after.host,
        cache_id=after.cache_id,
        seconds=after.time - before.time,
        troubles=tuple(dict.fromkeys(troubles)),
        watched=tuple(watched),
        jobs_own=jobs[OWN] if accounted else None,
        jobs_foreign=sum(n for job, n in jobs.items() if job != OWN) if accounted else None,
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
