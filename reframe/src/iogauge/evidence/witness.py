"""What the kernels of the nodes say that the tasks of an execution did (job/witness.sh).

A tool reports bytes and seconds. The kernel counts them too: for each process, for each block
device, for each mount of NFS. :class:`Testimony` holds the kernel's word of one execution.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
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
    block device (``8:0``) or by the mount point of an NFS.
    """

    host: str
    started: float
    ended: float
    synced: float | None
    asked: Moved
    moved: Moved
    counters: Mapping[str, Moved] = field(default_factory=dict)


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

    def counted(self, counters: Mapping[str, Collection[str]]) -> Moved:
        """Return the growth of counters, whose names are given by host.

        The widest look at a counter holds: each task of a node may have looked. A counter that did
        not grow is not in a line.
        """
        total = Moved()
        for host, of_host in self._by_host().items():
            for name in counters.get(host, ()):
                looks = [w.counters[name] for w in of_host if name in w.counters]
                total += Moved(
                    max((look.read for look in looks), default=0),
                    max((look.written for look in looks), default=0),
                )
        return total

    def _by_host(self) -> dict[str, list[Witness]]:
        hosts: dict[str, list[Witness]] = {}
        for witness in self.witnesses:
            hosts.setdefault(witness.host, []).append(witness)
        return hosts


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
    for line in text.splitlines(keepends=True):
        if WORD not in line:
            rest.append(line)
        elif match := _LINE.fullmatch(line.strip()):
            witnesses.append(_of_line(match))
    return witnesses, "".join(rest)


def _of_line(match: re.Match[str]) -> Witness:
    sums = [int(match[n]) for n in range(5, 10)]
    counters = {}
    for name, read, written in _COUNTER.findall(match[10]):
        unit = _SECTOR if _DEVICE.fullmatch(name) else 1
        counters[re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), name)] = Moved(
            unit * int(read), unit * int(written)
        )
    return Witness(
        host=match[1],
        started=float(match[2]),
        ended=float(match[3]),
        synced=float(match[4]) if match[4] else None,
        asked=Moved(sums[0], sums[1]),
        moved=Moved(sums[2], max(0, sums[3] - sums[4])),
        counters=counters,
    )


def between(before: Iterable[Witness], after: Sequence[Witness]) -> list[Witness]:
    """Return what happened between two looks at each node, for nodes with both."""
    first = {look.host: look for look in before}
    grown = []
    for last in after:
        if (look := first.get(last.host)) is not None:
            counters = {
                name: value - look.counters.get(name, Moved())
                for name, value in last.counters.items()
            }
            grown.append(
                replace(
                    last,
                    started=look.started,
                    asked=last.asked - look.asked,
                    moved=last.moved - look.moved,
                    counters=counters,
                )
            )
    return grown


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
