"""What was seen on the nodes while a case ran: two files a node in the stage directory, their writers and their reader.

``seen.HOST.jsonl`` is written by the agents of a node, a line for each :class:`Observation`: ``[SECONDS, WHAT, VALUE]`` with the
seconds since its boot. ``tasks.HOST`` has a line for each task that ended well, which witness.sh hands to the agent of its
node, or writes where there is none::

    EXECUTION NUMBER STARTED ENDED SYNCED RCHAR WCHAR SYSCR SYSCW READ WRITTEN CANCELLED TICKS end

Earlier versions wrote no TICKS, which are those of processors.

A line is written at once and appears whole, or it is damaged. A task without its line is missing for the judge.
"""

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
from iogauge.node.counters import Reading, Readings, Ticks

SEEN: Final = "seen"
TASKS: Final = "tasks"

# What agents note. A node's answers to commands, as its view, are noted under the words that the command was given.

#: Bytes read and written under the target's mount; inodes in use, where the file system counts them.
MOVED: Final = "moved"
#: Bytes that the first task of the first node passed to read(2) and write(2).
ASKED: Final = "asked"
#: Libraries that are preloaded in tasks, by source (:func:`iogauge.node.between.preloaded`).
LOADED: Final = "loaded"
#: Bytes that the tool had printed. The output of each execution begins with none.
PRINTED: Final = "printed"
#: Files of the case that the agent found before each phase; it counts no more than so many.
FOUND: Final = "found"
MOST_FOUND: Final = 100
#: A :class:`iogauge.node.files.Sample`.
CONTENTS: Final = "contents"
#: The layouts of the files of a repetition.
LAYOUTS: Final = "layouts"
#: All counters of the node: execution, ``before`` or ``after`` it, what differs from the look before, and the processors'
#: :class:`~iogauge.node.counters.Ticks`.
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
    """What an agent noted."""

    #: Seconds since the node's boot.
    time: float
    what: str
    #: Plain data.
    value: Any


@dataclass(frozen=True, slots=True)
class Instant:
    """The counters under the target's mount at a time."""

    #: Seconds since the node's boot.
    time: float
    #: Bytes.
    read: int
    #: Bytes.
    written: int
    #: Inodes in use on the target; None if nobody counted them.
    files: int | None = None

    @property
    def bytes_moved(self) -> int:
        """Return the bytes of both ways."""
        return self.read + self.written


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskLine:
    """The kernel's counts of one task in an execution, or of one node: a line of witness.sh, and what the node's counters grew by.

    A line may stand for several tasks of a node, but for the first: it begins with the first of them, ends with the last, and
    has their sums.
    """

    host: str
    execution: str = ""
    #: Of the task on its node; None for a look at a server's node.
    number: int | None = 0
    #: Tasks that the line stands for.
    tasks: int = 1
    #: Seconds since the node's boot.
    started: float
    #: Seconds since the node's boot.
    ended: float
    #: The end of a syncfs(2) after the task, seconds since the node's boot; None without one.
    synced: float | None
    #: Bytes of read(2), write(2) and their like.
    asked: Reading
    #: The number of these calls.
    calls: Reading = field(default_factory=Reading)
    #: Bytes that the process fetched from storage and sent there. They are counted as the process dirties pages, without those
    #: that it dropped.
    moved: Reading
    #: Growth of all counters of the node, by name (:mod:`iogauge.node.counters`); its agent looks at them for the first task alone.
    counters: Readings = field(default_factory=dict)
    #: What all processors of the node did meanwhile; None if unknown, or not looked at for this task.
    processors: Ticks | None = None
    #: Ticks that these tasks kept a processor at work; None if unknown.
    ticks: int | None = None


class Growth(NamedTuple):
    """When a node was looked at before an execution, and what its counters grew by until it was after it.

    None stands for a device that did not tell twice. What appeared meanwhile, as a mount, began to count then.
    """

    at: float
    counters: Readings
    processors: Ticks | None = None


# The writers: agents.


def boot_seconds() -> float:
    """Return the seconds since this node's boot, as /proc/uptime tells them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def line_of(what: str, value: object, at: float | None = None) -> str:
    """Return the line of a note of now, or of a time."""
    if at is None:
        at = boot_seconds()
    return json.dumps([round(at, 3), what, value]) + "\n"


def append(lines: str, stem: str = SEEN) -> None:
    """Append lines to a file of this node in the current directory, at once; raises OSError."""
    place = f"{stem}.{os.uname().nodename}"
    if stem == SEEN:
        place += ".jsonl"
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
_SECONDS: Final = r"[0-9]{1,15}(?:\.[0-9]{1,9})?"
_TASK: Final = re.compile(
    rf"(?P<execution>\S+) (?P<number>[0-9]{{1,6}}|-) (?P<started>{_SECONDS}) (?P<ended>{_SECONDS}) "
    rf"(?:(?P<synced>{_SECONDS})|-)(?P<sums>(?: [0-9]{{1,19}}){{7}})(?: (?P<ticks>[0-9]{{1,19}}))? end"
)


@dataclass(frozen=True, slots=True)
class NodeObservations:
    """All that the nodes of a job noted."""

    #: By host, in the order in which they did.
    notes: Mapping[str, Sequence[Observation]] = field(default_factory=dict)
    tasks: tuple[TaskLine, ...] = ()
    #: Lines of agents that are none, which no agent writes that ends well.
    damaged: tuple[str, ...] = ()
    #: What the counters of a node grew by, by host and execution.
    grown: Mapping[tuple[str, str], Growth] = field(default_factory=dict)

    def each(self, what: str, kind: Any = object) -> Iterator[tuple[str, float, Any]]:
        """Yield host, time and value of what was noted; a value of another type than ``kind`` is left out."""
        for host, notes in self.notes.items():
            for note in notes:
                if note.what != what:
                    continue
                value = note.value
                with contextlib.suppress(TypeError):
                    if kind is not object:
                        value = untrusted.build(kind, value)
                    yield host, note.time, value

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

    def loaded(self) -> tuple[Mapping[str, str], ...]:
        """Return the libraries that are preloaded in tasks, by source, as each look found them."""
        return tuple(facts for _, _, facts in self.each(LOADED, Mapping[str, str]))


class _Sums(NamedTuple):
    """What one task did, in the order of its line: bytes, but for the calls."""

    rchar: int
    wchar: int
    #: read(2) and their like.
    read_calls: int
    #: write(2) and their like.
    write_calls: int
    fetched: int
    stored: int
    #: Of those stored, dropped before they went out.
    cancelled: int


class _Row(NamedTuple):
    """A line of a task."""

    #: Seconds since boot.
    started: float
    #: Seconds since boot.
    ended: float
    sums: _Sums
    #: None if unknown.
    ticks: int | None


@dataclass(frozen=True, slots=True)
class _Notes:
    """What the agents of one node noted."""

    #: All but its counters.
    notes: Sequence[Observation]
    #: What the counters grew by, by execution.
    grown: Mapping[str, Growth]
    #: Lines.
    damaged: Sequence[str]


class Reader:
    """Reads what the nodes of a job have noted until now. A file is read again only if it has grown."""

    def __init__(self, stage: Path) -> None:
        """Begin with nothing."""
        self._stage = stage
        self._seen: dict[Path, tuple[int, _Notes]] = {}
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
            execution, when, sums, *more = value
            counts, processors = _readings(sums), None
            if more and more[0]:
                processors = Ticks(*untrusted.build(tuple[int, int], more[0]))
            if when == "before":
                before.setdefault(execution, Growth(at, counts, processors))
                continue
            first = before.get(execution)
            if first is None:
                continue
            meanwhile = None
            if processors and first.processors:
                work = processors.work - first.processors.work
                meanwhile = Ticks(work, processors.idle - first.processors.idle)
            counts = _since(first.counters, counts)
            grown[execution] = Growth(first.at, counts, meanwhile)
    return grown


def _readings(counts: Any) -> dict[str, Reading | None]:
    """Return counters as they were noted; raises TypeError or ValueError.

    There may be a million of them, so their types are looked at here and not by :func:`iogauge.core.untrusted.build`.
    """
    if type(counts) is not dict:
        raise TypeError("expected an object")
    readings: dict[str, Reading | None] = {}
    for name, sums in counts.items():
        if sums is None:
            readings[name] = None
            continue
        read, written, requests = sums
        whole = type(read) is type(written) is type(requests or 0) is int
        if not whole or abs(read) + abs(written) + abs(requests or 0) >= _MOST:
            raise TypeError("expected integers of 64 bits")
        readings[name] = Reading(read, written, requests)
    return readings


def _since(
    before: Readings, changed: Mapping[str, Reading | None]
) -> dict[str, Reading | None]:
    """Return what counters grew by; a look after an execution names those alone that have changed."""
    grown: dict[str, Reading | None] = {}
    for name, then in before.items():
        grown[name] = _STILL
        if then is None:
            grown[name] = None
        elif then.requests is None:
            grown[name] = _STILL_BYTES
    for name, now in changed.items():
        then = before.get(name, _STILL)
        grown[name] = None
        if now and then:
            grown[name] = now.since(then)
    return grown


def _seen(host: str, text: str) -> _Notes:
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
    return _Notes(notes, growth_of(looks), damaged)


def _note(line: str) -> Observation | None:
    try:
        note = Observation(*untrusted.parse_json(line))
    except (TypeError, ValueError):
        return None
    if untrusted.is_number(note.time) and isinstance(note.what, str):
        return note
    return None


def _tasks(host: str, text: str) -> list[TaskLine]:
    """Return the first task of each execution, and the others together, on a node; the last line may have been cut."""
    tasks: list[TaskLine] = []
    others: dict[str, list[_Row]] = {}
    for line in text.split("\n")[:-1]:
        match = _TASK.fullmatch(line)
        if match is None:
            continue
        execution, number = match["execution"], match["number"]
        ticks = None
        if match["ticks"]:
            ticks = int(match["ticks"])
        row = _Row(
            started=float(match["started"]),
            ended=float(match["ended"]),
            sums=_Sums(*map(int, match["sums"].split())),
            ticks=ticks,
        )
        if number not in ("0", "-"):
            others.setdefault(execution, []).append(row)
            continue
        task = replace(_task(host, execution, [row]), number=None)
        if number == "0":
            task = replace(task, number=0)
        if match["synced"]:
            task = replace(task, synced=float(match["synced"]))
        tasks.append(task)
    for execution, rows in others.items():
        tasks.append(_task(host, execution, rows))
    return tasks


def _task(host: str, execution: str, rows: Sequence[_Row]) -> TaskLine:
    """Return tasks of a node as one, of their starts, ends and sums."""
    columns = zip(*(row.sums for row in rows), strict=True)
    sums = _Sums(*map(sum, columns))
    dropped = sum(min(row.sums.stored, row.sums.cancelled) for row in rows)
    ticks = None
    if all(row.ticks is not None for row in rows):
        ticks = sum(row.ticks or 0 for row in rows)
    return TaskLine(
        host=host,
        execution=execution,
        number=1,
        tasks=len(rows),
        started=min(row.started for row in rows),
        ended=max(row.ended for row in rows),
        synced=None,
        asked=Reading(sums.rchar, sums.wchar),
        calls=Reading(sums.read_calls, sums.write_calls),
        moved=Reading(sums.fetched, sums.stored - dropped),
        ticks=ticks,
    )
