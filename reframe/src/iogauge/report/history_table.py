"""Records of the history: chosen ones, and the newest of every line."""

import sqlite3
from collections.abc import Iterable, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from iogauge.core.units import in_order
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.records.record import Record


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records that were chosen."""

    #: The newest first.
    records: list[Record]
    #: How many records match.
    matching: int
    #: Lines of the history that are no records.
    damaged: list[journal.Damaged]


def chosen(
    folder: Path, choice: query.Choice, verdicts: Sequence[Verdict] = (), limit: int = 0
) -> Chosen:
    """Return so many of the newest records that were chosen (0: all), with one of some verdicts (none: any).

    Raises ValueError for an impossible choice, OSError for a file that cannot be read.
    """
    with closing(query.connect(folder)) as history:
        parts = [choice.condition(history), query.Condition("position = 0")]
        if verdicts:
            wanted = [verdict.value for verdict in verdicts]
            parts.append(query.among("verdict", wanted))
        condition = query.every(*parts)
        ((count,),) = query.rows(history, "count(*)", condition)
        newest = f"ORDER BY time DESC, file DESC, start DESC LIMIT {limit or -1}"
        rows = query.rows(history, "file, start", condition, newest)
        records = _records(folder, history, rows)
        damaged = query.damaged(folder, history)
    return Chosen(records, count, damaged)


def _records(
    folder: Path, history: sqlite3.Connection, rows: Iterable[sqlite3.Row]
) -> list[Record]:
    """Return the records of rows, in their order."""
    places = [(row["file"], row["start"]) for row in rows]
    found = query.records(folder, history, places)
    return [found[place] for place in places if place in found]


def by_place(record: Record) -> tuple[list[tuple[int, int, str]], ...]:
    """Return what sorts records by system, partition, environment and case, numbers by their value."""
    texts = (*record.place, record.case)
    return tuple(map(in_order, texts))


def newest_records(
    folder: Path, choice: query.Choice
) -> tuple[list[Record], list[journal.Damaged]]:
    """Return the newest record of every line in a span of time, by system, partition and case; and the damaged lines.

    Raises OSError for a file that cannot be read, and ValueError as :meth:`query.Choice.condition` does.
    """
    with closing(query.connect(folder)) as history:
        newest = query.rows(
            history,
            "file, start, max(time * 4294967296 + start)",
            query.every(choice.condition(history), query.Condition("position = 0")),
            "GROUP BY line",
        )
        found = _records(folder, history, newest)
        damaged = query.damaged(folder, history)
    return sorted(found, key=by_place), damaged
