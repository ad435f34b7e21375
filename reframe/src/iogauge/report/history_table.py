"""Look at the history on a terminal: chosen records, and the newest runs of every case as marks."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Collection, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from iogauge.core.groups import grouped
from iogauge.core.text import visible
from iogauge.core.units import in_order, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.records.record import MetricRecord, Record
from iogauge.report import outcome
from iogauge.report.layout import Table
from iogauge.report.outcome import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChoice(query.Choice):
    """Which records to show; what is empty restricts nothing."""

    #: Verdicts of the case or of one of its metrics.
    verdicts: tuple[Verdict, ...] = ()
    metric: str = ""
    #: Number of newest records; 0 for all.
    limit: int = 20

    def matching(self, history: sqlite3.Connection) -> query.Condition:
        """Return the condition of the chosen metrics; raises ValueError as :meth:`query.Choice.condition` does."""
        parts = [self.condition(history)]
        if self.metric:
            parts.append(query.Condition("metric = ?", (self.metric,)))
        if self.verdicts:
            wanted = [verdict.value for verdict in self.verdicts]
            of_metric = query.among("metric_verdict", wanted)
            of_case = query.among("verdict", wanted)
            text = f"{of_metric.text} OR {of_case.text}"
            parts.append(query.Condition(text, of_metric.values + of_case.values))
        return query.every(*parts)


@dataclass(frozen=True, slots=True)
class Chosen:
    """Records that were chosen."""

    #: The newest first, each with the names of its chosen metrics.
    records: list[tuple[Record, set[str | None]]]
    #: How many records match.
    matching: int
    #: Lines of the history that are no records.
    damaged: list[journal.Damaged]


def chosen(folder: Path, choice: RecordChoice) -> Chosen:
    """Return the chosen records; raises ValueError for an impossible choice, OSError for a file that cannot be read."""
    with closing(query.connect(folder)) as history:
        condition = choice.matching(history)
        ((count,),) = query.rows(history, "count(DISTINCT record)", condition)
        limit = choice.limit or -1
        newest = query.rows(
            history,
            "file, start, json_group_array(metric) AS metrics",
            condition,
            f"GROUP BY record ORDER BY time DESC, file DESC, start DESC LIMIT {limit}",
        )
        places = _places(newest)
        found = query.records(folder, history, places)
        damaged = query.damaged(folder, history)
    records = []
    for place, row in zip(places, newest, strict=True):
        if place not in found:
            continue
        record = found[place]
        names = set(json.loads(row["metrics"]))
        # A verdict is the metric's own; a case that no metric explains is shown whole.
        own = {m.name for m in record.metrics if m.verdict in choice.verdicts}
        records.append((record, names & own or names))
    return Chosen(records, count, damaged)


def _places(rows: Iterable[sqlite3.Row]) -> list[tuple[int, int]]:
    """Return the file and the start of each record."""
    return [(row["file"], row["start"]) for row in rows]


class _DatedRow(Row):
    """A row of a history."""

    @property
    def scenario(self) -> str:
        """Return the time and the name of the case."""
        return f"{self.record.minute}  {visible(self.record.short_name)}"

    @property
    def place(self) -> str:
        """Return system and partition."""
        return self.record.where


def table(found: Iterable[tuple[Record, set[str | None]]]) -> Table:
    """Return a table of records with their chosen metrics, by time and place, reasons below it."""
    lines: list[Row] = []
    for record, metrics in found:
        lines += _rows(record, metrics)
    return outcome.table(outcome.folded(lines))


def _rows(record: Record, chosen: Collection[str | None]) -> Iterator[Row]:
    """Yield a row for each chosen metric, with the bandwidth that repeats it: both are one fact, and one row."""
    if not record.metrics:
        yield _DatedRow(record, record.verdict, _why(record))
    metrics = {
        metric.name: metric for metric in record.metrics if metric.name in chosen
    }

    def fact(metric: MetricRecord) -> str:
        other = outcome.repeated(record, metric)
        if other and other.name in metrics:
            return other.name
        return metric.name

    for name, mine in grouped(metrics.values(), fact).items():
        metric = metrics[name]
        mine.sort(key=lambda one: one.name != name)
        values = ", ".join(with_unit(one.median, one.unit) for one in mine)
        if metric.spread is not None:
            values += f" ±{metric.spread:.1%}"
        yield _DatedRow(
            record,
            metric.verdict,
            _why(metric),
            ", ".join(one.name for one in mine),
            values,
            of=metric,
        )


def _why(decided: Record | MetricRecord) -> tuple[str, ...]:
    if decided.verdict is Verdict.PASS:
        return ()
    return (decided.reason,)


def by_place(record: Record) -> tuple[list[tuple[int, int, str]], ...]:
    """Return what sorts records by system, partition, environment and case, numbers by their value."""
    texts = (*record.place, record.case)
    return tuple(map(in_order, texts))


def newest_records(
    folder: Path, choice: query.Choice
) -> tuple[list[Record], list[journal.Damaged]]:
    """Return the newest record of every line in a span of time, by system, partition and case.

    The damaged lines are those in files that hold one of these. Raises OSError for a file that cannot be read, and
    ValueError as :meth:`query.Choice.condition` does.
    """
    with closing(query.connect(folder)) as history:
        newest = query.rows(
            history,
            "file, start, max(time * 4294967296 + start)",
            query.every(choice.condition(history), query.Condition("position = 0")),
            "GROUP BY line",
        )
        places = _places(newest)
        found = query.records(folder, history, places)
        files = query.among("id", [file for file, _ in places])
        paths = query.column(
            history, f"SELECT path FROM file WHERE {files.text}", files.values
        )
        every = query.damaged(folder, history)
    ours = {folder / path for path in paths}
    damaged = [line for line in every if line.file in ours]
    return sorted(found.values(), key=by_place), damaged


def of_session(folder: Path, name: str) -> list[Record]:
    """Return the records of a session by time, in whatever files they are; raises OSError for one that cannot be read."""
    with closing(query.connect(folder)) as history:
        of_name = query.Condition("session = ? AND position = 0", (name,))
        rows = query.rows(history, "file, start", of_name, "ORDER BY time, start")
        places = _places(rows)
        found = query.records(folder, history, places)
    return [found[place] for place in places if place in found]
