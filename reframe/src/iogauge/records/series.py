"""Series that go on although some records know less, and that begin anew with what is not comparable.

A record whose facts were not answered in time belongs to the series of its neighbours, unless what it knows
contradicts them. A series is divided by the file system, by the layouts that the target passes on, and by the settings
of the case, where two known values differ.
"""

import json
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from iogauge.core.text import digest
from iogauge.evidence.fingerprint import DIVIDING, FILE_SYSTEM, agree, unanswered
from iogauge.node.identity import differ

Fingerprint = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Measured:
    """A record of a line: the series that it names itself, and its fingerprint."""

    own: str
    fingerprint: Fingerprint


def others(old: str, new: str) -> bool:
    """Return whether two values of ``fs.uuid`` have no file system in common."""
    for one in old.split(" | "):
        for other in new.split(" | "):
            if not differ(one, other):
                return False
    return True


def series_of_line(records: Sequence[Measured]) -> list[str]:
    """Return the series of each record of a line, in order of time."""
    names = _rejoined(records)
    for key in DIVIDING:
        values = [_value(record.fingerprint, key) for record in records]
        if len(set(values)) > 1:
            names = _divided(names, values, key == FILE_SYSTEM)
    return names


def _value(fingerprint: Fingerprint, key: str) -> str | None:
    value = fingerprint.get(key)
    return value if isinstance(value, str) else None


def _rejoined(records: Sequence[Measured]) -> list[str]:
    """Return names in which incomplete records have that of the complete one before them, or else after them."""
    names = [record.own for record in records]
    incomplete = [bool(unanswered(record.fingerprint)) for record in records]
    places = range(len(records))
    for ordered in (reversed(places), places):  # the neighbour before wins
        near: Measured | None = None
        for place in ordered:
            record = records[place]
            if not incomplete[place]:
                near = record
            elif near and agree(near.fingerprint, record.fingerprint):
                names[place] = near.own
    return names


def _divided(
    names: Sequence[str], values: Sequence[str | None], of_systems: bool
) -> list[str]:
    """Return names that differ where known values differ.

    The first known value of a series keeps its name. A record without a value belongs to the one before it, or else
    to the one after it.
    """
    first: dict[str, list[str]] = {}
    own: dict[str, str] = {}
    found: list[str | None] = []
    for name, value in zip(names, values, strict=True):
        if value is None:
            found.append(own.get(name))
            continue
        known = first.setdefault(name, [])
        number = len(known)
        for place, other in enumerate(known):
            alike = not others(value, other) if of_systems else value == other
            if alike:
                number = place
                break
        if number == len(known):
            known.append(value)
        own[name] = digest([name, known[number]]) if number else name
        found.append(own[name])
    return [new or name for new, name in zip(found, names, strict=True)]


#: Rows of a line in order of time.
_OF_LINE = """
SELECT run.rowid, record, own.name, series.name, fingerprint FROM place CROSS JOIN run ON run.place = place.id
JOIN series AS own ON own.id = run.own JOIN series ON series.id = run.series
WHERE place.line = ? ORDER BY time, run.file, start, position
"""
_SET = "UPDATE run SET series = (SELECT id FROM series WHERE name = ?) WHERE rowid = ?"


def assign(index: sqlite3.Connection, lines: Iterable[str]) -> None:
    """Set the series of all records of some lines of an index."""
    contents: dict[int | None, Fingerprint] = {None: {}}
    for number, content in index.execute("SELECT id, content FROM fingerprint"):
        contents[number] = json.loads(content)
    for line in lines:
        rows_of: dict[int, list[tuple[int, str]]] = {}
        records: list[Measured] = []
        for row, record, own, current, number in index.execute(_OF_LINE, (line,)):
            if record not in rows_of:
                rows_of[record] = []
                records.append(Measured(own, contents[number]))
            rows_of[record].append((row, current))
        for rows, name in zip(rows_of.values(), series_of_line(records), strict=True):
            for row, current in rows:
                if current != name:
                    index.execute(
                        "INSERT OR IGNORE INTO series (name) VALUES (?)", (name,)
                    )
                    index.execute(_SET, (name, row))
