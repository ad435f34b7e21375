"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS, for each storage target of Lustre. :class:`Testimony` holds the
kernel's word of one execution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.node.mounts import unescape
from iogauge.plan.case import CasePlan, PhasePlan
from iogauge.plan.stage import Instant, complaints_file, look_phase, printed_file

#: First word of each line of witness.sh.
WORD: Final = "iogauge-witness"

#: Share of the bytes at each end of an execution that may move outside of the tool's timing, and the
#: most that does not count with the bytes of others.
_ENDS: Final = 0.02
_MOST_TRIMMED: Final = 0.25

_SECTOR: Final = 512
_SECONDS: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_SUM: Final = r"(-?[0-9]{1,19})"
_LINE: Final = re.compile(
    rf"{WORD} (\S+) {_SECONDS} {_SECONDS} (?:{_SECONDS}|-) {' '.join([_SUM] * 5)}((?: \S+={_SUM},{_SUM})*) end"
)
_COUNTER: Final = re.compile(rf"(\S+)={_SUM},{_SUM}")
_DEVICE: Final = re.compile(r"[0-9]+:[0-9]+")

#: More counters of a node, in a line of its own: host, start, counters.
_MORE: Final = re.compile(rf"iogauge-more (\S+) {_SECONDS}((?: \S+={_SUM},{_SUM})*) end")

#: A device of a Lustre client: storage target or metadata target, and the client's instance.
_CLIENT: Final = re.compile(r"(\S+-(?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-\S+")


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Witness:
    """The kernel's word of one task, or of one node.

    ``started``, ``ended`` and ``synced`` are seconds since the node's boot; ``synced`` is the end
    of a syncfs(2) after the task, None without one. ``asked`` are bytes of read(2), write(2) and
    their like. ``moved`` are bytes that the process fetched from storage and sent there. They are
    counted as the process dirties pages, without those that it dropped. ``counters`` are bytes by
    block device (``8:0``) or by the mount point of an NFS. ``targets`` are bytes by target of a
    Lustre client (``scratch-OST0003``), None unless all of the node's Lustre devices told theirs.
    """

    host: str
    started: float
    ended: float
    synced: float | None
    asked: Moved
    moved: Moved
    counters: Mapping[str, Moved] = field(default_factory=dict)
    targets: Mapping[str, Moved] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Testimony:
    """All witnesses of one execution, and how many there should be.

    ``of_tasks`` is False if they looked at the nodes of fio's servers: then only the counters speak.
    """

    witnesses: tuple[Witness, ...] = ()
    expected: int
    of_tasks: bool = True

    @property
    def complete(self) -> bool:
        """Return whether no witness is missing."""
        return len(self.witnesses) == self.expected

    @property
    def speaks_of_tasks(self) -> bool:
        """Return whether the sums of the tasks count: every process has read its own libraries."""
        return self.of_tasks and self.asked.read > 0

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
    def moved(self) -> Moved:
        """Return the bytes that all tasks fetched and stored."""
        return sum((witness.moved for witness in self.witnesses), Moved())

    def counted(self, counters: Mapping[str, Collection[str]]) -> Moved | None:
        """Return the growth of counters, whose names are given by host; None if it is unknown.

        A device that did not grow is not in a line. A name of neither a device nor a mount is that
        of a Lustre file system, whose clients before 2.17 tell root alone.
        """
        total = Moved()
        for host, of_host in self._by_host().items():
            for name in counters.get(host, ()):
                if _DEVICE.fullmatch(name) or name.startswith("/"):
                    total += _widest(name, [w.counters for w in of_host])
                elif all(witness.targets is None for witness in of_host):
                    return None
        return sum(self.by_target(counters).values(), total) if counters else None

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


def seconds_of_activity(
    instants: Sequence[Instant], span: tuple[float, float], own_bytes: int
) -> float | None:
    """Return the seconds in which the tasks' bytes moved, at least; None if unknown.

    ``span`` holds the times of first start and last end. Nothing is known of the time between two
    instants: bytes may have begun late in it, and ended early. At each end a fiftieth does not
    count, and as many bytes as others moved. If they moved a quarter, nothing is known.
    """
    started, ended = span
    before = [i for i in instants if i.time <= started][-1:]
    after = [i for i in instants if i.time > ended][:1]
    within = before + [i for i in instants if started < i.time <= ended] + after
    if len(within) < 3:
        return None
    first, total = within[0].bytes_moved, within[-1].bytes_moved - within[0].bytes_moved
    trim = _ENDS + max(0, total - own_bytes) / total if total > 0 else 1.0
    if trim > _MOST_TRIMMED:
        return None
    begun = next(i.time for i in within if i.bytes_moved >= first + trim * total)
    going = [i.time for i in within if i.bytes_moved < first + (1 - trim) * total]
    return max(0.0, going[-1] - begun)


def parse(text: str) -> tuple[list[Witness], str]:
    """Return the witnesses in a text, and the text without their lines.

    A damaged line is no witness: a launcher may cut lines of several tasks into each other.
    """
    witnesses, rest = [], []
    more: dict[tuple[str, str], list[str]] = {}
    for line in text.splitlines(keepends=True):
        if match := _MORE.fullmatch(line.strip()):
            more.setdefault((match[1], match[2]), []).append(match[3])
        elif WORD not in line:
            rest.append(line)
        elif match := _LINE.fullmatch(line.strip()):
            witnesses.append(_of_line(match, more.pop((match[1], match[2]), [])))
    return witnesses, "".join(rest)


def _of_line(match: re.Match[str], more: Sequence[str]) -> Witness:
    sums = [int(match[n]) for n in range(5, 10)]
    counters, clients = {}, {}
    for name, read, written in _COUNTER.findall(" ".join([match[10], *more])):
        moved = Moved(int(read), int(written))
        if _DEVICE.fullmatch(name):
            counters[name] = Moved(_SECTOR * moved.read, _SECTOR * moved.written)
        elif name.startswith("/"):
            counters[unescape(name)] = moved
        else:
            clients[name] = moved
    return Witness(
        host=match[1],
        started=float(match[2]),
        ended=float(match[3]),
        synced=float(match[4]) if match[4] else None,
        asked=Moved(sums[0], sums[1]),
        moved=Moved(sums[2], max(0, sums[3] - sums[4])),
        counters=counters,
        targets=_by_target(clients, len(more)),
    )


def _by_target(clients: dict[str, Moved], lines: int) -> dict[str, Moved] | None:
    """Return the bytes by target of a Lustre client; None if a device or a line is missing.

    Two mounts of a file system have two devices for each target.
    """
    told, further = clients.pop("lustre", Moved()), clients.pop("more", Moved())
    if not told.read or told.read != told.written or further.read != lines:
        return None
    targets: dict[str, Moved] = {}
    for name, moved in clients.items():
        if match := _CLIENT.fullmatch(name):
            targets[match[1]] = targets.get(match[1], Moved()) + moved
    return targets


def between(before: Iterable[Witness], after: Sequence[Witness]) -> list[Witness]:
    """Return what happened between two looks at each node, for nodes with both."""
    first = {look.host: look for look in before}
    return [_since(first[last.host], last) for last in after if last.host in first]


def _since(look: Witness, last: Witness) -> Witness:
    """Return what happened since a look."""

    def growth(now: Mapping[str, Moved], then: Mapping[str, Moved]) -> dict[str, Moved]:
        return {name: moved - then.get(name, Moved()) for name, moved in now.items()}

    both = last.targets is not None and look.targets is not None
    return replace(
        last,
        started=look.started,
        asked=last.asked - look.asked,
        moved=last.moved - look.moved,
        counters=growth(last.counters, look.counters),
        targets=growth(last.targets or {}, look.targets or {}) if both else None,
    )


def hear(
    plan: CasePlan, phase: PhasePlan, repetition: int, text: Callable[[str], str]
) -> Testimony:
    """Return the kernel's word of an execution; ``text`` returns a file of the stage, or nothing."""
    if phase.on_servers:
        before, after = (
            parse(text(printed_file(look_phase(when, phase.name), repetition)))[0]
            for when in ("before", "after")
        )
        return Testimony(
            witnesses=tuple(between(before, after)), expected=plan.nodes, of_tasks=False
        )
    witnesses, _ = parse(text(complaints_file(phase.name, repetition)))
    return Testimony(
        witnesses=tuple(witnesses), expected=plan.tasks if phase.launch == "tasks" else 1
    )


def synced(output: ToolOutput, testimony: Testimony, what: str) -> ToolOutput:
    """Return an output whose phases also took the seconds of a sync after them.

    Raises :class:`ToolOutputError` if a node did not report its sync; ``what`` names the execution.
    """
    seconds = testimony.sync_seconds
    if seconds is None:
        raise ToolOutputError(f"{what}: a node did not report how long its sync took")

    def longer(phase: Phase) -> Phase:
        share = phase.seconds / (phase.seconds + seconds)
        rates = {
            name: Quantity(share * rate.value, rate.unit) if name == "rate" else rate
            for name, rate in phase.rates.items()
        }
        return replace(phase, rates=rates, seconds=phase.seconds + seconds)

    return replace(output, phases=tuple(map(longer, output.phases)))
