"""What was seen on the nodes while a case ran: two files a node in the stage directory, their writers and their reader.

``seen.HOST.jsonl`` is written by the agents of a node, a line for each :class:`Observation`: ``[SECONDS, WHAT, VALUE]`` with the
seconds since its boot. ``tasks.HOST`` has a line for each task that ended well, which witness.sh hands to the agent of its
node, or writes where there is none::

    EXECUTION NUMBER STARTED ENDED SYNCED RCHAR WCHAR SYSCR SYSCW READ WRITTEN CANCELLED end

A line is written at once and appears whole, or it is damaged. A task without its line is missing for the judge.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

from iogauge.core import untrusted
from iogauge.node.between import Library
from iogauge.node.counters import Reading, Readings

SEEN: Final = "seen"
TASKS: Final = "tasks"

# What agents note. A node's answers to commands, as its view, are noted under the words that the command was given.

#: Bytes read and written under the target's mount; inodes in use, where the file system counts them.
MOVED: Final = "moved"
#: Bytes that the first task of the first node passed to read(2) and write(2).
ASKED: Final = "asked"
#: Processes of that task: the tool, and what it has started.
PROCESSES: Final = "processes"
#: Libraries between it and the kernel: :class:`iogauge.node.between.Library`.
LOADED: Final = "loaded"
#: Type, source and point of a mount that hid the case's directory while a tool ran.
HIDDEN: Final = "hidden"
#: Bytes that the tool had printed. The output of each execution begins with none.
PRINTED: Final = "printed"
#: Files of the case that the agent found before each phase; it counts no more than so many.
FOUND: Final = "found"
MOST_FOUND: Final = 100
#: A :class:`iogauge.node.files.Sample`.
CONTENTS: Final = "contents"
#: The layouts of the files of a repetition.
LAYOUTS: Final = "layouts"
#: All counters of the node: execution, ``before`` or ``after`` it, and what differs from the look before.
COUNTERS: Final = "counters"
#: Why the agent of a node counts nothing.
UNCOUNTED: Final = "uncounted"
#: Why the case may not have held the target's lock to the end; empty if it did.
LOST: Final = "lost"
#: A node's server: its address ``HOST,PORT``, and its process.
SERVER: Final = "server"
#: Why a node refuses the case.
REFUSES: Final = "refuses"


class Observation(NamedTuple):
    """What an agent noted: seconds since boot, what, and a value as plain data."""

    time: float
    what: str
    value: Any


@dataclass(frozen=True, slots=True)
class Instant:
    """The counters under the target's mount at a time: seconds since boot, bytes of each way.

    ``files`` is the number of inodes in use on the target; None if nobody counted them.
    """

    time: float
    read: int
    written: int
    files: int | None = None

    @property
    def bytes_moved(self) -> int:
        """Return the bytes of both ways."""
        return self.read + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """The kernel's word of one task in an execution, or of one node: a line of witness.sh, and what the node's counters grew by.

    ``number`` is that of the task on its node, None for a look at a server's node. A line may stand for several ``tasks`` of
    a node, but for the first: it begins with the first of them, ends with the last, and has their sums.
    ``started``, ``ended`` and ``synced`` are seconds since the node's boot; ``synced`` is the end
    of a syncfs(2) after the task, None without one. ``asked`` are bytes of read(2), write(2) and
    their like, and ``calls`` their number. ``moved`` are bytes that the process fetched from storage and sent there. They are
    counted as the process dirties pages, without those that it dropped. ``counters`` is the growth of all counters of the
    node, by name (:mod:`iogauge.node.counters`); its agent looks at them for the first task alone.
    """

    host: str
    execution: str = ""
    number: int | None = 0
    tasks: int = 1
    started: float
    ended: float
    synced: float | None
    asked: Reading
    calls: Reading = field(default_factory=Reading)
    moved: Reading
    counters: Readings = field(default_factory=dict)


class Growth(NamedTuple):
    """When a node was looked at before an execution, and what its counters grew by until it was after it.

    None stands for a device that did not tell twice. What appeared meanwhile, as a mount, began to count then.
    """

    at: float
    counters: Readings


# The writers: agents.


def boot_seconds() -> float:
    """Return the seconds since this node's boot, as /proc/uptime tells them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def line_of(what: str, value: object, at: float | None = None) -> str:
    """Return the line of a note of now, or of a time."""
    return (
        json.dumps([round(boot_seconds() if at is None else at, 3), what, value]) + "\n"
    )


def append(lines: str, stem: str = SEEN) -> None:
    """Append lines to a file of this node in the current directory, at once; raises OSError."""
    suffix = ".jsonl" if stem == SEEN else ""
    place = f"{stem}.{os.uname().nodename}{suffix}"
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, lines.encode())
    finally:
        os.close(file)


def note(what: str, value: object) -> None:
    """Append one note; raises OSError."""
    append(line_of(what, value))


# The reader: the judge.

T = TypeVar("T")

_MOST: Final = 1 << 63
#: Growth of a counter that stood still, and of one that counts bytes alone.
_STILL: Final = Reading()
_STILL_BYTES: Final = Reading(requests=None)
_SECONDS: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_TASK: Final = re.compile(
    rf"(\S+) ([0-9]{{1,6}}|-) {_SECONDS} {_SECONDS} (?:{_SECONDS}|-)((?: [0-9]{{1,19}}){{7}}) end"
)


@dataclass(frozen=True, slots=True)
class NodeObservations:
    """All that the nodes of a job noted, by host, in the order in which they did.

    ``damaged`` are lines of agents that are none, which no agent writes that ends well. ``grown`` is what the counters of a
    node grew by, by host and execution.
    """

    notes: Mapping[str, Sequence[Observation]] = field(default_factory=dict)
    tasks: tuple[TaskLine, ...] = ()
    damaged: tuple[str, ...] = ()
    grown: Mapping[tuple[str, str], Growth] = field(default_factory=dict)

    def each(self, what: str, kind: Any = object) -> Iterator[tuple[str, float, Any]]:
        """Yield host, time and value of what was noted; a value of another type than ``kind`` is left out."""
        for host, notes in self.notes.items():
            for at, _, value in (one for one in notes if one.what == what):
                with contextlib.suppress(TypeError):
                    yield (
                        host,
                        at,
                        value if kind is object else untrusted.build(kind, value),
                    )

    def by_host(self, what: str) -> dict[str, Any]:
        """Return what each node answered last."""
        return {host: value for host, _, value in self.each(what)}

    def instants(self, what: str) -> tuple[Instant, ...]:
        """Return what was counted each way, in order."""
        kinds = tuple[int, int] | tuple[int, int, int]
        return tuple(Instant(time, *sums) for _, time, sums in self.each(what, kinds))

    def counts(self, what: str) -> tuple[tuple[float, int], ...]:
        """Return a count by seconds since boot."""
        return tuple((time, count) for _, time, count in self.each(what, int))

    def loaded(self) -> tuple[Library, ...]:
        """Return the libraries between the first task and the kernel, each once."""
        kind = tuple[tuple[str, str, tuple[str, ...]], ...]
        found: dict[Library, None] = {}
        for _, _, libraries in self.each(LOADED, kind):
            for path, name, replaces in libraries:
                found[Library(path, name, replaces)] = None
        return tuple(found)

    def hidden(self) -> tuple[str, ...]:
        """Return the mounts that hid the case's directory, each once, in words."""
        mounts = (mount for _, _, mount in self.each(HIDDEN, tuple[str, str, str]))
        return tuple(
            dict.fromkeys(
                "{} from {}, mounted at {}".format(*mount) for mount in mounts
            )
        )


#: Start and end of a task, and its seven sums.
_Row = tuple[float, float, tuple[int, ...]]


@dataclass(frozen=True, slots=True)
class _Seen:
    """What the agents of one node noted: all but its counters, what those grew by, and lines that are damaged."""

    notes: Sequence[Observation]
    grown: Mapping[str, Growth]
    damaged: Sequence[str]


class Reader:
    """Reads what the nodes of a job have noted until now. A file is read again only if it has grown."""

    def __init__(self, stage: Path) -> None:
        """Begin with nothing."""
        self._stage = stage
        self._seen: dict[Path, tuple[int, _Seen]] = {}
        self._tasks: dict[Path, tuple[int, Sequence[TaskLine]]] = {}

    def read(self) -> NodeObservations:
        """Return all that was noted; a damaged line of a task is left out."""
        notes: dict[str, Sequence[Observation]] = {}
        grown: dict[tuple[str, str], Growth] = {}
        tasks: list[TaskLine] = []
        damaged: list[str] = []
        for host, seen in self._each(f"{SEEN}.", ".jsonl", self._seen, _seen):
            if seen.notes:
                notes[host] = seen.notes
            for execution, growth in seen.grown.items():
                grown[host, execution] = growth
            for line in seen.damaged:
                damaged.append(f"{SEEN}.{host}.jsonl: damaged line {line[:80]!r}")
        for _, lines in self._each(f"{TASKS}.", "", self._tasks, _tasks):
            tasks += lines
        return NodeObservations(notes, tuple(tasks), tuple(damaged), grown)

    def _each(
        self,
        stem: str,
        suffix: str,
        known: dict[Path, tuple[int, T]],
        parse: Callable[[str, str], T],
    ) -> Iterator[tuple[str, T]]:
        """Yield each host with what its file holds."""
        for path in sorted(self._stage.glob(f"{stem}*{suffix}")):
            host = path.name[len(stem) : len(path.name) - len(suffix)]
            with contextlib.suppress(OSError):
                # A file that is opened is fetched anew by NFS, its size as well.
                with untrusted.open_file(path) as file:
                    size = os.fstat(file.fileno()).st_size
                    if path not in known or known[path][0] != size:
                        text = file.read(size).decode(errors="replace")
                        known[path] = size, parse(host, text)
                yield host, known[path][1]


def read(stage: Path) -> NodeObservations:
    """Return all that the nodes of a job have noted until now."""
    return Reader(stage).read()


def growth_of(looks: Iterable[Observation]) -> dict[str, Growth]:
    """Return what the counters of a node grew by in each execution, of its agent's notes about them.

    A look of another form is left out.
    """
    before: dict[str, Growth] = {}
    grown: dict[str, Growth] = {}
    for at, _, value in looks:
        with contextlib.suppress(TypeError, ValueError):
            execution, when, told = value
            counts = _readings(told)
            if when == "before":
                before.setdefault(execution, Growth(at, counts))
            elif execution in before:
                first = before[execution]
                grown[execution] = Growth(first.at, _since(first.counters, counts))
    return grown


def _readings(counts: Any) -> dict[str, Reading | None]:
    """Return counters as they were noted; raises TypeError or ValueError.

    There may be a million of them, so their types are looked at here and not by :func:`iogauge.core.untrusted.build`.
    """
    if type(counts) is not dict:
        raise TypeError("expected an object")
    found: dict[str, Reading | None] = {}
    for name, sums in counts.items():
        if sums is None:
            found[name] = None
            continue
        read, written, requests = sums
        for count in (read, written, 0 if requests is None else requests):
            if type(count) is not int or not -_MOST <= count < _MOST:
                raise TypeError("expected an integer of 64 bits")
        found[name] = Reading(read, written, requests)
    return found


def _since(
    before: Readings, changed: Mapping[str, Reading | None]
) -> dict[str, Reading | None]:
    """Return what counters grew by; a look after an execution names those alone that have changed."""
    grown: dict[str, Reading | None] = {}
    for name, then in before.items():
        if then is None:
            grown[name] = None
        else:
            grown[name] = _STILL if then.requests is not None else _STILL_BYTES
    for name, now in changed.items():
        then = before.get(name, _STILL)
        grown[name] = now.since(then) if now and then else None
    return grown


def _seen(host: str, text: str) -> _Seen:
    notes, looks, damaged = [], [], []
    for line in text.split("\n"):
        if not line:
            continue
        note = _note(line)
        if note is None:
            damaged.append(line)
        elif note.what == COUNTERS:
            looks.append(note)
        else:
            notes.append(note)
    return _Seen(notes, growth_of(looks), damaged)


def _note(line: str) -> Observation | None:
    try:
        note = Observation(*untrusted.parse_json(line))
    except (TypeError, ValueError):
        return None
    return (
        note if untrusted.is_number(note.time) and isinstance(note.what, str) else None
    )


def _tasks(host: str, text: str) -> list[TaskLine]:
    """Return the first task of each execution, and the others together, on a node; the last line may have been cut."""
    found: list[TaskLine] = []
    others: dict[str, list[_Row]] = {}
    for line in text.split("\n")[:-1]:
        match = _TASK.fullmatch(line)
        if match is None:
            continue
        execution, number, started, ended, synced, sums = match.groups()
        counts = tuple(map(int, sums.split()))
        row = (float(started), float(ended), counts)
        if number in ("0", "-"):
            task = _task(host, execution, [row])
            number = 0 if number == "0" else None
            synced = float(synced) if synced else None
            found.append(replace(task, number=number, synced=synced))
        else:
            others.setdefault(execution, []).append(row)
    for execution, rows in others.items():
        found.append(_task(host, execution, rows))
    return found


def _task(host: str, execution: str, rows: Sequence[_Row]) -> TaskLine:
    """Return tasks of a node as one, of their starts, ends and sums."""
    started, ended, counts = zip(*rows, strict=True)
    rchar, wchar, syscr, syscw, fetched, stored, cancelled = zip(*counts, strict=True)
    kept = (max(0, own - lost) for own, lost in zip(stored, cancelled, strict=True))
    return TaskLine(
        host=host,
        execution=execution,
        number=1,
        tasks=len(rows),
        started=min(started),
        ended=max(ended),
        synced=None,
        asked=Reading(sum(rchar), sum(wchar)),
        calls=Reading(sum(syscr), sum(syscw)),
        moved=Reading(sum(fetched), sum(kept)),
    )
