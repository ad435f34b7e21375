"""Look at the history on a terminal: chosen records, and the newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.core.groups import grouped
from iogauge.core.text import did_you_mean
from iogauge.core.units import in_order, of_runs, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, names, query
from iogauge.records.record import MetricRecord, Record, operations_of, same_spread
from iogauge.report.layout import Table, columns
from iogauge.report.outcome import notes_of


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
            metrics=[self.metric] if self.metric else (),
        )
        if self.verdicts:
            wanted = [verdict.value for verdict in self.verdicts]
            # If a case is worse than its metrics, all of them are shown.
            explained = (pl.col("metric_verdict") == pl.col("verdict")).any().over("record")
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
    metrics: Collection[str] = (),
) -> pl.DataFrame:
    """Return the rows of a system, a case and metrics, from a time to another; what is empty restricts nothing.

    Raises ValueError for a name that fits no case, and for a system or a metric that has no row, if others have some.
    """
    if metrics:
        present = sorted(frame["metric"].drop_nulls().unique())
        for one in metrics if present else ():
            if one not in present:
                raise ValueError(
                    f"no record has the metric {one!r}{did_you_mean(one, present)}; there are: {', '.join(present)}"
                )
        frame = frame.filter(pl.col("metric").is_in(metrics))
    if system:
        known = frame["system"].unique().drop_nulls().to_list()
        if known and system not in known:
            hint = did_you_mean(system, known) or f" (recorded: {', '.join(sorted(known))})"
            raise ValueError(f"--system {system!r}: no case of it is recorded{hint}")
        frame = frame.filter(pl.col("system") == system)
    if since:
        frame = frame.filter(pl.col("time") >= since)
    if until:
        frame = frame.filter(pl.col("time") <= until)
    if name:
        frame = frame.filter(pl.col("case").is_in(names.chosen(name, frame["case"].unique())))
    return frame


def records(folder: Path, rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], set[str | None]]]:
    """Yield the records of chosen rows, each once, with the names of the chosen metrics.

    A record is left out if its file is gone meanwhile. Raises OSError for a file that cannot be
    read.
    """
    contents = query.records(folder, rows)
    grouped = rows.group_by("record", *query.PLACE, maintain_order=True).agg("metric")
    for _, source, number, metrics in grouped.iter_rows():
        if (source, number) in contents:
            yield contents[source, number], set(metrics)


#: A record, its run, which those of ``--repeat`` have in common, and metrics that are one fact; a case may have none.
_Fact = tuple[Record, object, Sequence[MetricRecord]]


def table(found: Iterable[tuple[dict[str, Any], set[str | None]]], wide: bool = False) -> Table:
    """Return a table of records with their chosen metrics, by time and place, reasons below it.

    A line of the history that is no whole record is a reason alone.
    """
    facts: list[_Fact] = []
    damaged: list[str] = []
    for number, (values, chosen) in enumerate(found):
        try:
            record = Record.from_json(values)
        except (TypeError, ValueError) as error:
            damaged.append(f"damaged record of session {values.get('session')}: {error}")
            continue
        run = record.session if "%.repeat_no=" in record.case else number
        facts += [(record, run, metrics) for metrics in _of_one(record, chosen)]
    blocks = {}
    for where, here in grouped(facts, lambda one: f"{one[0].system}:{one[0].partition}").items():
        rows: list[tuple[str, ...]] = []
        last = ""
        for same in grouped(here, _same).values():
            record, _, metrics = same[0]
            decided = metrics[0] if metrics else record
            reason = decided.reason if decided.verdict is not Verdict.PASS else ""
            shown = f"{record.time[:16].replace('T', ' ')}  {record.short_name}"
            measured = _measured([metrics for *_, metrics in same])
            rows.append(("" if shown == last else shown, *measured, decided.verdict.value, reason))
            last = shown
        blocks[where] = rows
    headings = ("metric", "median ±spread", "verdict", "why")
    reasons = [row[-1] for rows in blocks.values() for row in rows if row[-1]]
    notes = notes_of([*damaged, *reasons])
    numbers = {note: number for number, note in enumerate(dict.fromkeys(notes.values()), 1)}
    numbered = {
        where: [(*row, f"[{numbers[notes[why]]}]" if why else "") for *row, why in rows]
        for where, rows in blocks.items()
    }
    return Table(columns("scenario", *headings, whole=headings), numbered, tuple(numbers), wide)


def _same(one: _Fact) -> tuple[object, ...]:
    """Return what the runs of ``--repeat`` have in common."""
    record, run, metrics = one
    first = metrics[0] if metrics else record
    return record.short_name, run, metrics and metrics[0].name, first.verdict


def _of_one(record: Record, chosen: Collection[str | None]) -> Iterator[Sequence[MetricRecord]]:
    """Yield each chosen metric with the bandwidth that repeats it: both are one fact, and one line."""

    def repeats(one: MetricRecord, other: MetricRecord) -> bool:
        return (
            operations_of(one.name) == other.name
            and one.verdict == other.verdict
            and same_spread(one.spread, other.spread)
        )

    if not record.metrics:
        yield ()
    found = [metric for metric in record.metrics if metric.name in chosen]
    for metric in found:
        if not any(repeats(metric, other) for other in found):
            yield [metric, *(other for other in found if repeats(other, metric))]


def _measured(runs: Sequence[Sequence[MetricRecord]]) -> tuple[str, str]:
    """Return metrics and medians of a fact; of ``--repeat`` the range of its runs."""
    fact = runs[0]
    many = f"{len(runs)} runs" if len(runs) > 1 else ""
    if not fact:
        return ("-", many or "-")
    measured = ", ".join(with_unit(one.median, one.unit) for one in fact)
    if many:
        measured = of_runs([run[0].median for run in runs], fact[0].unit)
    elif fact[0].spread is not None:
        measured += f" ±{fact[0].spread:.1%}"
    return (", ".join(one.name for one in fact), measured)


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

    A record that lacks keys is returned as damaged. Raises OSError for a file that cannot be read.
    """
    frame = query.load(folder, columns=(*CASE, "time", "line", *query.PLACE))
    frame = narrowed(frame, system=system, since=since, until=until)
    rows = frame.unique("line", keep="last", maintain_order=True)
    contents = query.records(folder, rows)
    found: list[Record] = []
    damaged: list[journal.Damaged] = []
    for row in sorted(rows.iter_rows(named=True), key=in_place):
        source, number = row["source"], row["number"]
        try:
            if (source, number) in contents:
                found.append(Record.from_json(contents[source, number]))
        except (TypeError, ValueError) as error:
            damaged.append(journal.Damaged(folder, number, str(error)))
    return found, damaged
