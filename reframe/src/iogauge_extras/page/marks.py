"""The newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Final

import polars as pl

from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import ADDED, Record, short_name
from iogauge.report.history_table import CASE, in_place, of_system
from iogauge.report.layout import Column, Group, Table
from iogauge.report.outcome import STYLE

#: Runs of a case that are shown.
RUNS: Final = 14


#: A letter for each verdict.
MARKS: Final = {
    Verdict.PASS: "P",
    Verdict.FAIL: "F",
    Verdict.INVALID: "I",
    Verdict.ERROR: "E",
    Verdict.UNSTABLE: "~",
    Verdict.CONTAMINATED: "C",
    Verdict.UNREFERENCED: "?",
}


@dataclass(frozen=True, slots=True)
class CaseStatus:
    """The verdicts of a case's newest runs, the oldest first, and its newest record."""

    where: str
    case: str
    verdicts: tuple[Verdict, ...]
    newest: Record

    @property
    def marks(self) -> str:
        """Return a letter for each run."""
        return "".join(MARKS[verdict] for verdict in self.verdicts)


def read_marks(folder: Path, system: str = "", since: datetime | None = None) -> list[CaseStatus]:
    """Return the cases of a history by partition and name; with ``since`` those measured later.

    Raises OSError for a file that cannot be read.
    """
    columns = (*CASE, "time", "verdict", "record", *query.PLACE)
    frame = query.load(folder, columns=columns).unique("record", keep="first", maintain_order=True)
    if system:
        frame = of_system(frame, system)
    shown = pl.col("case").str.replace_all(ADDED.pattern, "")  # one row for all runs of --repeat
    cases = frame.group_by(*CASE[:-1], shown, maintain_order=True).agg(
        pl.col("verdict").tail(RUNS).alias("verdicts"), pl.col("time", *query.PLACE).last()
    )
    if since:
        cases = cases.filter(pl.col("time") >= since)
    contents = query.records(folder, cases)
    found = []
    for row in sorted(cases.iter_rows(named=True), key=in_place):
        if (row["source"], row["number"]) in contents:
            found.append(
                CaseStatus(
                    f"{row['system']}:{row['partition']}",
                    short_name(row["case"]),
                    tuple(map(Verdict, row["verdicts"])),
                    Record.from_json(contents[row["source"], row["number"]]),
                )
            )
    return found


def marks_table(cases: Sequence[CaseStatus], wide: bool = False) -> Table:
    """Return the cases by partition, with a mark for each run; the newest run is the last mark."""
    styles = {MARKS[verdict]: style for verdict, style in STYLE.items()}
    columns = (
        Column("case"),
        Column(f"last {RUNS} runs", right=True, whole=True, marks=styles),
        Column("newest"),
        Column("verdict", whole=True),
    )
    groups = [
        Group(
            where,
            [
                (
                    one.case,
                    one.marks,
                    one.newest.time[:16].replace("T", " "),
                    one.newest.verdict.value,
                )
                for one in cases
                if one.where == where
            ],
        )
        for where in dict.fromkeys(one.where for one in cases)
    ]
    verdicts = {verdict.value: style for verdict, style in STYLE.items()}
    return Table(columns, groups, styles=verdicts, wide=wide)


def marks_legend() -> str:
    """Return what the marks mean."""
    return ", ".join(f"{mark} {verdict.value}" for verdict, mark in MARKS.items())
