"""Look at the history on a terminal: chosen records, and the newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
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
from iogauge.records.record import Excerpt, Record, excerpts, operations_of, same_spread
from iogauge.report.layout import Table, columns


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
            frame, system=self.system, name=self.name, since=self.since, until=self.until
        )
        if self.metric:
            frame = frame.filter(pl.col("metric") == self.metric)
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
) -> pl.DataFrame:
    """Return the rows of a system and of a case, from a time to another; what is empty restricts nothing.

    Raises ValueError for a name that fits no case, and for a system that has no row, if others have some.
    """
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


def table(found: Iterable[tuple[dict[str, Any], set[str | None]]], wide: bool = False) -> Table:
    """Return a table of records with their chosen metrics, by time and place, reasons below it."""
    facts = []
    for number, (record, metrics) in enumerate(found):
        again = "%.repeat_no=" in str(record.get("case"))
        run = record.get("session") if again else number
        facts += [(run, fact) for fact in _facts(list(excerpts(record, metrics)))]
    reasons: dict[str, int] = {}
    blocks = {}
    for where, here in grouped(facts, lambda one: one[1][0].where).items():
        rows: list[tuple[str, ...]] = []
        last = ""
        for same in grouped(here, _same).values():
            runs = [fact for _, fact in same]
            first = runs[0][0]
            reason = first.reason if first.verdict != Verdict.PASS.value else ""
            why = f"[{reasons.setdefault(reason, len(reasons) + 1)}]" if reason else ""
            shown = f"{first.time[:16].replace('T', ' ')}  {first.case}"
            rows.append(("" if shown == last else shown, *_measured(runs), why))
            last = shown
        blocks[where] = rows
    headings = ("metric", "median ±spread", "verdict", "why")
    return Table(columns("scenario", *headings, whole=headings), blocks, tuple(reasons), wide)


def _same(one: tuple[object, Sequence[Excerpt]]) -> tuple[object, ...]:
    """Return what the runs of ``--repeat`` have in common."""
    run, (first, *_) = one
    return first.case, run, first.metric, first.verdict


def _facts(found: Sequence[Excerpt]) -> Iterator[list[Excerpt]]:
    """Yield each excerpt with the bandwidth that repeats it: both are one fact, and one line."""

    def repeats(one: Excerpt, other: Excerpt) -> bool:
        return (
            (one.metric is not None and operations_of(one.metric) == other.metric)
            and one.verdict == other.verdict
            and same_spread(one.spread, other.spread)
        )

    for excerpt in found:
        if not any(repeats(excerpt, other) for other in found):
            yield [excerpt, *(other for other in found if repeats(other, excerpt))]


def _measured(runs: Sequence[Sequence[Excerpt]]) -> tuple[str, str, str]:
    """Return metrics, medians and verdict of a fact; of ``--repeat`` the range of its runs."""
    fact = runs[0]
    first, values = fact[0], [run[0].median for run in runs if run[0].median is not None]
    many = f"{len(runs)} runs" if len(runs) > 1 else ""
    if first.metric is None:
        return ("-", many or "-", first.verdict)
    measured = ", ".join(
        "-" if one.median is None else with_unit(one.median, one.unit) for one in fact
    )
    if many and values:
        measured = of_runs(values, str(first.unit))
    elif first.spread is not None:
        measured += f" ±{first.spread:.1%}"
    return (", ".join(str(one.metric) for one in fact), measured, first.verdict)


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
