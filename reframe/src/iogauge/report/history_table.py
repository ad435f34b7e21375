"""Look at the history on a terminal: chosen records, and the newest runs of every case as marks."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.core.units import format_value, in_order
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.records.record import (
    Excerpt,
    Record,
    excerpts,
    operations_of,
    same_spread,
)
from iogauge.report.layout import Column, Group, Table


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordChoice:
    """Which records to show; empty values and None let all through.

    ``since`` and ``until`` belong to the range.
    """

    system: str = ""
    #: Regular expression that the case's name holds; the name begins with the check's.
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
        Raises ValueError if the name is not a regular expression.
        """
        try:
            pattern = re.compile(self.name)
        except re.error as error:
            raise ValueError(f"{self.name!r} is no regular expression: {error}") from error
        columns = ["record", *query.PLACE, "metric"]
        used = {
            "system": bool(self.system),
            "case": bool(self.name),
            "verdict": bool(self.verdicts),
            "metric_verdict": bool(self.verdicts),
            "time": bool(self.since or self.until),
        }
        columns += [column for column, needed in used.items() if needed]
        frame = query.load(folder, cache, columns=columns)
        if self.system:
            frame = frame.filter(pl.col("system") == self.system)
        if self.metric:
            frame = frame.filter(pl.col("metric") == self.metric)
        if self.since:
            frame = frame.filter(pl.col("time") >= self.since)
        if self.until:
            frame = frame.filter(pl.col("time") <= self.until)
        if self.name:
            cases = frame["case"].drop_nulls().unique()
            frame = frame.filter(pl.col("case").is_in([c for c in cases if pattern.search(c)]))
        if self.verdicts:
            wanted = [verdict.value for verdict in self.verdicts]
            # If a case is worse than its metrics, all of them are shown.
            explained = (pl.col("metric_verdict") == pl.col("verdict")).any().over("record")
            frame = frame.filter(
                pl.col("metric_verdict").is_in(wanted)
                | (pl.col("verdict").is_in(wanted) & ~explained)
            )
        matching = frame["record"].unique().sort(descending=True)
        chosen = matching.head(self.limit) if self.limit else matching
        oldest = chosen[-1] if chosen.len() else 0
        rows = frame.filter(pl.col("record") >= oldest)
        rows = rows.select("record", *query.PLACE, "metric")
        return rows.sort("record", descending=True, maintain_order=True), matching.len()


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


def moment(text: str, *, end: bool = False) -> datetime:
    """Return a time: 2027-03-31, 2027-03-31T12:00 (UTC unless it has a zone), or 12h, 7d, 4w ago.

    A day is its begin, with ``end`` its end. Raises ValueError.
    """
    if ago := re.fullmatch(r"(\d{1,5})([hdw])", text):
        hours = int(ago[1]) * {"h": 1, "d": 24, "w": 168}[ago[2]]
        return datetime.now(timezone.utc) - timedelta(hours=hours)
    try:
        time = datetime.fromisoformat(re.sub("Z$", "+00:00", text))
        if end and re.fullmatch(r"[\d-]+", text):
            time = time.replace(hour=23, minute=59, second=59, microsecond=999_999)
        zone = time.tzinfo or timezone.utc
        return time.replace(tzinfo=zone).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        message = f"{text!r} is no time: expected 2027-03-31, 2027-03-31T12:00, 12h, 7d or 4w"
        raise ValueError(message) from error


_COLUMNS: Final = (
    Column("scenario"),
    Column("metric", whole=True),
    Column("median ±spread", whole=True),
    Column("verdict", whole=True),
    Column("why", whole=True),
)


def table(chosen: Iterable[tuple[dict[str, Any], set[str | None]]], wide: bool = False) -> Table:
    """Return a table of records with their chosen metrics, by time and place, reasons below it."""
    groups: dict[str, list[tuple[str, ...]]] = {}
    reasons: list[str] = []
    shown: tuple[int, str] | None = None
    for record, names in chosen:
        for excerpt, *others in _facts(list(excerpts(record, names))):
            reason = excerpt.reason if excerpt.verdict != Verdict.PASS.value else ""
            if reason and reason not in reasons:
                reasons.append(reason)
            why = f"[{reasons.index(reason) + 1}]" if reason else ""
            heading = f"{excerpt.time} {excerpt.where}"
            rows = groups.setdefault(heading, [])
            case = "" if shown == (id(record), excerpt.case) else excerpt.case
            shown = (id(record), excerpt.case)
            rows.append((case, *_measured([excerpt, *others]), why))
    return Table(_COLUMNS, [Group(name, rows) for name, rows in groups.items()], reasons, wide=wide)


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


def _measured(fact: Sequence[Excerpt]) -> tuple[str, str, str]:
    """Return metrics, medians and verdict of a fact."""
    first = fact[0]
    if first.metric is None:
        return ("-", "-", first.verdict)
    measured = ", ".join(
        "-" if one.median is None else f"{format_value(one.median)} {one.unit}" for one in fact
    )
    if first.spread is not None:
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
    if system:
        frame = frame.filter(pl.col("system") == system)
    if since:
        frame = frame.filter(pl.col("time") >= since)
    if until:
        frame = frame.filter(pl.col("time") <= until)
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
