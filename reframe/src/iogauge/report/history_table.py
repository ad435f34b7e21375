"""Look at the history on a terminal: chosen records, and the newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.core.text import did_you_mean
from iogauge.core.units import in_order, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, names, query
from iogauge.records.record import MetricRecord, Record
from iogauge.report import outcome
from iogauge.report.layout import Table
from iogauge.report.outcome import Row


@dataclass(frozen=True, slots=True)
class RecordChoice:
    """Which records to show; empty values and None let all through.

    ``since`` and ``until`` belong to the range.
    """

    system: str = ""
    #: The case's name in the table, or a regular expression that a form of it holds.
    name: str = ""
    #: Verdicts of the case or of one of its metrics.
    verdicts: tuple[Verdict, ...] = ()
    metric: str = ""
    since: datetime | None = None
    until: datetime | None = None
    #: Number of newest records; 0 for all.
    limit: int = 20

    def of(self, folder: Path, cache: Path | None = None) -> tuple[pl.DataFrame, int]:
        """Return the rows of the chosen records, newest first, and the number of records without
        the limit.

        The columns are ``record``, ``metric`` and the position of the record (:func:`records`).
        Raises ValueError for a name that fits no case, and for a system without records.
        """
        shown = ("record", *query.PLACE, "metric")
        used = {
            "system": self.system,
            "case": self.name,
            "verdict": self.verdicts,
            "metric_verdict": self.verdicts,
            "time": self.since or self.until,
        }
        columns = [*shown, *(column for column, needed in used.items() if needed)]
        frame = query.load(folder, cache, columns=columns)
        frame = narrowed(
            frame,
            system=self.system,
            name=self.name,
            since=self.since,
            until=self.until,
        )
        if self.metric:
            frame = frame.filter(pl.col("metric") == self.metric)
        if self.verdicts:
            wanted = [verdict.value for verdict in self.verdicts]
            # If a case is worse than its metrics, all of them are shown.
            explained = (
                (pl.col("metric_verdict") == pl.col("verdict")).any().over("record")
            )
            frame = frame.filter(
                pl.col("metric_verdict").is_in(wanted)
                | (pl.col("verdict").is_in(wanted) & ~explained)
            )
        matching = frame["record"].unique().sort(descending=True)
        newest = matching.head(self.limit) if self.limit else matching
        oldest = newest[-1] if newest.len() else 0
        rows = frame.filter(pl.col("record") >= oldest).select(shown)
        return rows.sort("record", descending=True, maintain_order=True), matching.len()


def narrowed(
    frame: pl.DataFrame,
    *,
    system: str = "",
    name: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> pl.DataFrame:
    """Return the rows of a system and of a case, from a time to another; what is empty restricts nothing.

    Raises ValueError for a name that fits no case, and for a system that has no row, if others have some.
    """
    if system:
        known = frame["system"].unique().drop_nulls().to_list()
        if known and system not in known:
            hint = (
                did_you_mean(system, known)
                or f" (recorded: {', '.join(sorted(known))})"
            )
            raise ValueError(f"--system {system!r}: no case of it is recorded{hint}")
        frame = frame.filter(pl.col("system") == system)
    if since:
        frame = frame.filter(pl.col("time") >= since)
    if until:
        frame = frame.filter(pl.col("time") <= until)
    if name:
        frame = frame.filter(
            pl.col("case").is_in(names.chosen(name, frame["case"].unique()))
        )
    return frame


def records(
    folder: Path, rows: pl.DataFrame
) -> Iterator[tuple[dict[str, Any], set[str | None]]]:
    """Yield the records of chosen rows, each once, with the names of the chosen metrics.

    A record is left out if its file is gone meanwhile. Raises OSError for a file that cannot be
    read.
    """
    contents = query.records(folder, rows)
    grouped = rows.group_by("record", *query.PLACE, maintain_order=True).agg("metric")
    for _, source, number, metrics in grouped.iter_rows():
        if (source, number) in contents:
            yield contents[source, number], set(metrics)


def table(
    found: Iterable[tuple[dict[str, Any], set[str | None]]], wide: bool = False
) -> Table:
    """Return a table of records with their chosen metrics, by time and place, reasons below it.

    A line of the history that is no whole record is a reason alone.
    """
    lines: list[Row] = []
    damaged: list[str] = []
    for values, chosen in found:
        try:
            lines += _rows(Record.from_json(values), chosen)
        except (TypeError, ValueError) as error:
            damaged.append(
                f"damaged record of session {values.get('session')}: {error}"
            )
    return outcome.table(outcome.folded(lines), wide, damaged, history=True)


def _rows(record: Record, chosen: Collection[str | None]) -> Iterator[Row]:
    """Yield a row for each chosen metric, with the bandwidth that repeats it: both are one fact, and one row."""

    def why(decided: Record | MetricRecord) -> tuple[str, ...]:
        return () if decided.verdict is Verdict.PASS else (decided.reason,)

    if not record.metrics:
        yield Row(record, record.verdict, why(record))
    found = {metric.name: metric for metric in record.metrics if metric.name in chosen}
    repeated = {name: outcome.repeated(record, one) for name, one in found.items()}
    for name, metric in found.items():
        if repeated[name] not in found.values():
            fact = [
                metric,
                *(found[other] for other, of in repeated.items() if of is metric),
            ]
            values = ", ".join(with_unit(one.median, one.unit) for one in fact)
            spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
            names = ", ".join(one.name for one in fact)
            yield Row(
                record, metric.verdict, why(metric), names, values + spread, of=metric
            )


CASE: Final = ("system", "partition", "environment", "case")


def in_place(row: Mapping[str, Any]) -> list[list[tuple[int, int, str]]]:
    return [in_order(row[key]) for key in CASE]


def newest_records(
    folder: Path,
    system: str = "",
    since: datetime | None = None,
    until: datetime | None = None,
) -> tuple[list[Record], list[journal.Damaged]]:
    """Return the newest record of every line in a span of time, by system, partition and case.

    The damaged lines are those in the files of these sessions. Raises OSError for a file that cannot be read.
    """
    frame = query.load(folder, columns=(*CASE, "time", "line", *query.PLACE))
    frame = narrowed(frame, system=system, since=since, until=until)
    rows = frame.unique("line", keep="last", maintain_order=True)
    contents = query.valid_records(folder, rows)
    found = [
        contents[place]
        for row in sorted(rows.iter_rows(named=True), key=in_place)
        if (place := (row["source"], row["number"])) in contents
    ]
    sessions = {record.session for record in found}
    damaged = [one for one in query.damaged(folder) if one.file.stem in sessions]
    return found, damaged
