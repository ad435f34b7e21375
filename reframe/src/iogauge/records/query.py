"""What is asked of a history: rows of its index, and the records that they stand for.

The columns of the view ``runs`` are those of docs/results.md. A time is in microseconds since 1970, UTC.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from iogauge.core.text import did_you_mean
from iogauge.records import index, names
from iogauge.records.journal import Damaged, read_at
from iogauge.records.record import EPOCH, Record, since_1970

#: Where a record lies: its session file's number in the index, and its first byte.
Place = tuple[int, int]

connect = index.connect
VALID, COUNTING = index.VALID, index.COUNTING


def moment(microseconds: int) -> datetime:
    """Return a time of the index."""
    return EPOCH + timedelta(microseconds=microseconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """A part of a history; empty texts and None restrict nothing, and both ends of the time belong to it."""

    system: str = ""
    #: A case's name in the table, or a regular expression that a form of it holds.
    name: str = ""
    since: datetime | None = None
    until: datetime | None = None
    #: Names of sessions; None for all.
    sessions: Collection[str] | None = None

    def condition(self, history: sqlite3.Connection) -> Condition:
        """Return the choice as a condition of rows; raises ValueError as :meth:`of_cases` does."""
        parts = [self.of_cases(history), self.of_time]
        if self.sessions is not None:
            parts.append(among("session", self.sessions))
        return every(*parts)

    def of_cases(self, history: sqlite3.Connection) -> Condition:
        """Return the condition of system and name.

        Raises ValueError for a name that fits no case, and for a system without records if others have some.
        """
        parts = []
        if self.system:
            known = column(history, "SELECT DISTINCT system FROM place ORDER BY system")
            if known and self.system not in known:
                hint = did_you_mean(self.system, known)
                hint = hint or f" (recorded: {', '.join(known)})"
                raise ValueError(
                    f"--system {self.system!r}: no case of it is recorded{hint}"
                )
            parts.append(Condition("system = ?", (self.system,)))
        if self.name:
            every_case = "SELECT DISTINCT \"case\" FROM place WHERE ? IN (system, '')"
            cases = column(history, every_case, (self.system,))
            parts.append(among('"case"', names.chosen(self.name, cases)))
        return every(*parts)

    @property
    def of_time(self) -> Condition:
        """Return the condition of the time."""
        parts = []
        if self.since:
            parts.append(Condition("time >= ?", (since_1970(self.since),)))
        if self.until:
            parts.append(Condition("time <= ?", (since_1970(self.until),)))
        return every(*parts)


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of SQL, with the values of its question marks."""

    text: str
    values: tuple[Any, ...] = ()


def every(*parts: Condition) -> Condition:
    """Return the condition that all conditions hold; without any it always holds."""
    text = " AND ".join(f"({part.text})" for part in parts)
    values: tuple[Any, ...] = ()
    for part in parts:
        values += part.values
    return Condition(text or "1", values)


def among(name: str, values: Collection[Any]) -> Condition:
    """Return the condition that a column has one of some values, however many there are."""
    listed = json.dumps(list(values))
    return Condition(f"{name} IN (SELECT value FROM json_each(?))", (listed,))


def rows(
    history: sqlite3.Connection, columns: str, condition: Condition, more: str = ""
) -> list[sqlite3.Row]:
    """Return columns of the view ``runs`` where a condition holds; ``more`` groups, orders or limits them."""
    question = f"SELECT {columns} FROM runs WHERE {condition.text} {more}"
    return history.execute(question, _storable(condition.values)).fetchall()


def column(
    history: sqlite3.Connection, question: str, values: Sequence[Any] = ()
) -> list[Any]:
    """Return the first column of the answer to a question."""
    return [row[0] for row in history.execute(question, _storable(values))]


def _storable(values: Iterable[Any]) -> list[Any]:
    """Return values as SQLite takes them: text that is not UTF-8 becomes text that fits no record."""
    stored = []
    for value in values:
        if isinstance(value, str):
            value = value.encode("utf-8", "replace").decode()
        stored.append(value)
    return stored


def fingerprints(history: sqlite3.Connection) -> dict[str, Mapping[str, Any]]:
    """Return the content of all fingerprints by their ids."""
    found = history.execute("SELECT name, content FROM fingerprint")
    return {name: json.loads(content) for name, content in found}


def damaged(folder: Path, history: sqlite3.Connection) -> list[Damaged]:
    """Return the lines below a folder that are no records, or whose values have not the form that they must have."""
    question = "SELECT path, line, problem FROM damage JOIN file ON file.id = file ORDER BY path, line"
    found = history.execute(question)
    return [Damaged(folder / path, line, problem) for path, line, problem in found]


def records(
    folder: Path, history: sqlite3.Connection, places: Iterable[Place]
) -> dict[Place, Record]:
    """Return the records at some places; those whose file has gone meanwhile are left out.

    Raises OSError for a file that cannot be read.
    """
    starts: dict[int, list[int]] = {}
    for file, start in places:
        starts.setdefault(file, []).append(start)
    paths = dict(tuple(row) for row in history.execute("SELECT id, path FROM file"))
    found: dict[Place, Record] = {}
    for file, mine in starts.items():
        try:
            for start, record in read_at(folder / paths[file], sorted(set(mine))):
                found[file, start] = record
        except FileNotFoundError:
            continue
    return found
