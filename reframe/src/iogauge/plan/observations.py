"""What was seen on the nodes while a case ran: two files a node in the stage directory, their writers and their reader.

``seen.HOST.jsonl`` is written by the agents of a node, a line for each :class:`Observation`: ``[SECONDS, WHAT, VALUE]`` with the
seconds since its boot. ``tasks.HOST`` is written by witness.sh, a line for each task that ended well::

    EXECUTION NUMBER STARTED ENDED SYNCED RCHAR WCHAR SYSCR SYSCW READ WRITTEN CANCELLED end

A line is written at once and appears whole, or it is damaged. A task without its line is missing for the judge.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

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

    ``number`` is that of the task on its node, None for a look at a server's node.
    ``started``, ``ended`` and ``synced`` are seconds since the node's boot; ``synced`` is the end
    of a syncfs(2) after the task, None without one. ``asked`` are bytes of read(2), write(2) and
    their like, and ``calls`` their number. ``moved`` are bytes that the process fetched from storage and sent there. They are
    counted as the process dirties pages, without those that it dropped. ``counters`` is the growth of all counters of the
    node, by name (:mod:`iogauge.node.counters`); its agent looks at them for the first task alone.
    """

    host: str
    execution: str = ""
    number: int | None = 0
    started: float
    ended: float
    synced: float | None
    asked: Reading
    calls: Reading = field(default_factory=Reading)
    moved: Reading
    counters: Readings = field(default_factory=dict)


# The writers: agents.


def boot_seconds() -> float:
    """Return the seconds since this node's boot, as /proc/uptime tells them."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def line_of(what: str, value: object, at: float | None = None) -> str:
    """Return the line of a note of now, or of a time."""
    return (
        json.dumps([round(boot_seconds() if at is None else at, 3), what, value]) + "\n"
    )


def append(lines: str) -> None:
    """Append lines to this node's file in the current directory, at once; raises OSError."""
    place = f"{SEEN}.{os.uname().nodename}.jsonl"
    file = os.open(place, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        os.write(file, lines.encode())
    finally:
        os.close(file)


def note(what: str, value: object) -> None:
    """Append one note; raises OSError."""
    append(line_of(what, value))


# The reader: the judge.

_SECONDS: Final = r"([0-9]{1,15}(?:\.[0-9]{1,9})?)"
_TASK: Final = re.compile(
    rf"(\S+) ([0-9]{{1,6}}|-) {_SECONDS} {_SECONDS} (?:{_SECONDS}|-)((?: [0-9]{{1,19}}){{7}}) end"
)


@dataclass(frozen=True, slots=True)
class NodeObservations:
    """All that the nodes of a job noted, by host, in the order in which they did.

    ``damaged`` are lines of agents that are none, which no agent writes that ends well.
    """

    notes: Mapping[str, Sequence[Observation]] = field(default_factory=dict)
    tasks: tuple[TaskLine, ...] = ()
    damaged: tuple[str, ...] = ()

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

    def grown(self) -> Mapping[tuple[str, str], tuple[float, Readings]]:
        """Return when a node was looked at before an execution, and what its counters grew by until it was after it, by host
        and execution; None for a device that did not tell twice.

        What appeared meanwhile, as a mount, began to count then.
        """
        first: dict[tuple[str, str], tuple[float, Readings]] = {}
        grown: dict[tuple[str, str], tuple[float, Readings]] = {}
        kind = tuple[str, str, Mapping[str, tuple[int, int, int | None] | None]]
        for host, at, (execution, when, told) in self.each(COUNTERS, kind):
            counts = {
                name: None if one is None else Reading(*one)
                for name, one in told.items()
            }
            if when == "before":
                first.setdefault((host, execution), (at, counts))
            elif (host, execution) in first:
                started, before = first[host, execution]
                pairs = [
                    (n, before.get(n, Reading()), now)
                    for n, now in (*before.items(), *counts.items())
                ]
                grew = {
                    name: now and then and now.since(then) for name, then, now in pairs
                }
                grown[host, execution] = started, grew
        return grown


def read(stage: Path) -> NodeObservations:
    """Return all that the nodes of a job have noted until now; a damaged line of a task is left out."""
    notes: dict[str, list[Observation]] = {}
    damaged = []
    for host, lines in _lines(stage, SEEN, ".jsonl"):
        for line in filter(None, lines):
            if (one := _note(line)) is None:
                damaged.append(f"{SEEN}.{host}.jsonl: damaged line {line[:80]!r}")
            else:
                notes.setdefault(host, []).append(one)
    # The last line of a task that was cut is none.
    each = (
        _task(host, line)
        for host, lines in _lines(stage, TASKS, "")
        for line in lines[:-1]
    )
    return NodeObservations(notes, tuple(filter(None, each)), tuple(damaged))


def _lines(stage: Path, stem: str, suffix: str) -> Iterator[tuple[str, list[str]]]:
    """Yield each host with the lines of its file, and with what follows the last one's end."""
    for file in sorted(stage.glob(f"{stem}.*{suffix}")):
        with contextlib.suppress(OSError):
            text = untrusted.read_text(file)
            yield (
                file.name[len(stem) + 1 : len(file.name) - len(suffix)],
                text.split("\n"),
            )


def _note(line: str) -> Observation | None:
    try:
        note = Observation(*untrusted.parse_json(line))
    except (TypeError, ValueError):
        return None
    return (
        note if untrusted.is_number(note.time) and isinstance(note.what, str) else None
    )


def _task(host: str, line: str) -> TaskLine | None:
    match = _TASK.fullmatch(line)
    if match is None:
        return None
    rchar, wchar, syscr, syscw, fetched, stored, cancelled = map(int, match[6].split())
    return TaskLine(
        host=host,
        execution=match[1],
        number=None if match[2] == "-" else int(match[2]),
        started=float(match[3]),
        ended=float(match[4]),
        synced=float(match[5]) if match[5] else None,
        asked=Reading(rchar, wchar),
        calls=Reading(syscr, syscw),
        moved=Reading(fetched, max(0, stored - cancelled)),
    )
