"""Looking at the history: which records, and how a terminal shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Final

import polars as pl
from rich.markup import escape
from rich.table import Table

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import Excerpt, excerpts

_ORIGIN: Final = ("source", "number")


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Which records; what is empty or None lets all through. ``since`` and ``until`` belong to the range."""

    system: str = ""
    #: Regular expression that the case's name holds; the name begins with the check's.
    name: str = ""
    #: Of the case or of one of its metrics.
    verdicts: tuple[Verdict, ...] = ()
    metric: str = ""
    since: datetime | None = None
    until: datetime | None = None
    #: Newest records that are wanted; 0: all.
    limit: int = 20

    def of(self, folder: Path, cache: Path | None = None) -> tuple[pl.DataFrame, int]:
        """Rows of the chosen records, newest record first, and how many records match beside the limit.

        The columns are ``record``, ``metric``, and where the record is (:func:`records`). Raises ValueError
        for a name that is no regular expression.
        """
        try:
            pattern = re.compile(self.name)
        except re.error as error:
            raise ValueError(f"{self.name!r} is no regular expression: {error}") from error
        columns = ["record", *_ORIGIN, "metric"]
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
            # A case can be worse than its metrics, then all of them are shown.
            told = (pl.col("metric_verdict") == pl.col("verdict")).any().over("record")
            frame = frame.filter(
                pl.col("metric_verdict").is_in(wanted) | (pl.col("verdict").is_in(wanted) & ~told)
            )
        matching = frame["record"].unique().sort(descending=True)
        chosen = matching.head(self.limit) if self.limit else matching
        oldest = chosen[-1] if chosen.len() else 0
        rows = frame.filter(pl.col("record") >= oldest)
        rows = rows.select("record", *_ORIGIN, "metric")
        return rows.sort("record", descending=True, maintain_order=True), matching.len()


def records(folder: Path, rows: pl.DataFrame) -> Iterator[tuple[dict[str, Any], set[str | None]]]:
    """The records of chosen rows, each once, with the names of the metrics that were chosen.

    A record whose file has gone meanwhile is left out. Raises OSError for a file that cannot be read.
    """
    found = query.records(folder, rows)
    one = rows.group_by("record", *_ORIGIN, maintain_order=True).agg("metric")
    for _, source, number, metrics in one.iter_rows():
        if (source, number) in found:
            yield found[source, number], set(metrics)


def moment(text: str, *, end: bool = False) -> datetime:
    """A moment: 2027-03-31, 2027-03-31T12:00 (UTC unless it says otherwise), or 12h, 7d, 4w ago.

    A day means its begin, with ``end`` its end. Raises ValueError.
    """
    if ago := re.fullmatch(r"(\d{1,5})([hdw])", text):
        hours = int(ago[1]) * {"h": 1, "d": 24, "w": 168}[ago[2]]
        return datetime.now(timezone.utc) - timedelta(hours=hours)
    try:
        found = datetime.fromisoformat(re.sub("Z$", "+00:00", text))
        if end and re.fullmatch(r"[\d-]+", text):
            found = found.replace(hour=23, minute=59, second=59, microsecond=999_999)
        zone = found.tzinfo or timezone.utc
        return found.replace(tzinfo=zone).astimezone(timezone.utc)
    except (ValueError, OverflowError) as error:
        message = f"{text!r} is no time: expected 2027-03-31, 2027-03-31T12:00, 12h, 7d or 4w"
        raise ValueError(message) from error


def table(chosen: Iterable[tuple[dict[str, Any], set[str | None]]]) -> Table:
    """Records, each with the metrics that are shown, as a table for a terminal; text from outside is escaped."""
    view = Table(pad_edge=False, show_lines=False)
    view.add_column("time", no_wrap=True)
    for heading in ("system:partition", "case"):
        view.add_column(heading, overflow="fold")
    for heading in ("metric", "median ±spread", "verdict"):
        view.add_column(heading, no_wrap=True)
    view.add_column("reason", no_wrap=True, overflow="ellipsis", ratio=1)
    for record, names in chosen:
        for found in excerpts(record, names):
            view.add_row(*(escape(visible(cell)) for cell in _cells(found)))
    return view


def _cells(found: Excerpt) -> tuple[str, ...]:
    """Cells of one line of the table."""
    head = (found.time, found.where, found.case)
    if found.metric is None:
        return (*head, "-", "-", found.verdict, found.reason)
    measured = "-" if found.median is None else f"{format_value(found.median)} {found.unit}"
    if found.spread is not None:
        measured += f" ±{found.spread:.1%}"
    reason = found.reason if found.verdict != Verdict.PASS.value else ""
    return (*head, found.metric, measured, found.verdict, reason)
