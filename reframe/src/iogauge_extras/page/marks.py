"""The newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import takewhile
from pathlib import Path
from textwrap import shorten
from typing import Final

import polars as pl

from iogauge.core.text import count, visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import ADDED, Record, short_name
from iogauge.report.endings import Ending
from iogauge.report.history_table import CASE, in_place, narrowed
from iogauge.report.layout import Column, Group, Table
from iogauge.report.outcome import STYLE
from iogauge_extras.page.past import GRAVEST
from iogauge_extras.page.trouble import DRIFT, Trouble

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


def read_marks(
    folder: Path, system: str = "", since: datetime | None = None, name: str = ""
) -> list[CaseStatus]:
    """Return the cases of a history by partition and name; with ``since`` those measured later.

    Raises OSError for a file that cannot be read.
    """
    columns = (*CASE, "time", "verdict", "record", *query.PLACE)
    frame = query.load(folder, columns=columns).unique("record", keep="first", maintain_order=True)
    frame = narrowed(frame, system=system, name=name)
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


#: Why a case has its verdict, by the ``id`` of the case: a few words, and the whole text.
Reasons = Mapping[int, tuple[str, str]]

#: Verdicts that fail no run, and yet are a problem to look at.
_DOUBTFUL: Final = (Verdict.UNSTABLE, Verdict.CONTAMINATED)

#: Words of a reason in a row, and cases that ``iogauge`` alone names.
_WORDS, _BRIEF = 10, 8


def reasons(cases: Sequence[CaseStatus], troubles: Sequence[Trouble]) -> Reasons:
    """Return why each case is neither PASS nor UNREFERENCED, and what has become worse."""
    found: dict[int, tuple[str, str]] = {}
    for case in cases:
        mine = [t for t in troubles if (t.where, t.case) == (case.where, case.case) and t.brief]
        verdict = case.newest.verdict
        if mine:
            text = "; ".join(dict.fromkeys(trouble.cause for trouble in mine if trouble.cause))
            found[id(case)] = ("; ".join(dict.fromkeys(one.brief for one in mine)), text)
        elif verdict not in (Verdict.PASS, Verdict.UNREFERENCED):
            first = next((f for f in case.newest.findings if f.objects(verdict)), None)
            said = (f"{first.guard}: {first.saw}" if first else case.newest.reason).split()
            words = " ".join(said[:_WORDS]) + (" …" if said[_WORDS:] else "")
            text = f"{first.guard}: demanded: {first.demands}. {first.remedy}" if first else ""
            found[id(case)] = (visible(words), visible(text))
    return found


def _gravity(case: CaseStatus, why: Reasons) -> int:
    """Return the place of a case: a drift stands beside a failure."""
    drifts = why.get(id(case), ("", ""))[0].startswith(DRIFT)
    return 0 if drifts else GRAVEST.index(case.newest.verdict)


def brief(
    cases: Sequence[CaseStatus], why: Reasons, ending: Ending, width: int
) -> Iterator[tuple[str, str]]:
    """Yield at most ten lines with their styles: green or red, what and since when, and what comes next."""
    ordered = sorted(cases, key=lambda case: _gravity(case, why))
    red = [case for case in ordered if _gravity(case, why) < GRAVEST.index(_DOUBTFUL[1])]
    shown = [*red, *(case for case in ordered if case.newest.verdict in _DOUBTFUL)]
    style = "bold red" if ending.status else "yellow" if shown else "bold green"
    yield f"iogauge: {ending}", style
    for case in shown[: _BRIEF if len(shown) <= _BRIEF else _BRIEF - 1]:
        last = case.newest.verdict
        same = len(list(takewhile(last.__eq__, reversed(case.verdicts))))
        runs = count(same, "run") + (" or more" if same == RUNS else "")
        words = why.get(id(case), ("", ""))[0]
        text = f"{last.value} for {runs}: {case.where} {case.case}: {words}"
        yield shorten(text, width, placeholder=" …"), ""
    if len(shown) > _BRIEF:
        yield f"and {len(shown) - _BRIEF + 1} more", ""
    steps = [
        *(["iogauge status"] if shown else []),
        *([f"iogauge explain {red[0].newest.verdict.value}"] if red else []),
        *(["iogauge calibrate"] if "UNREFERENCED" in ending.sentence else []),
        "iogauge run -t quick",
    ]
    newest = max(case.newest.time for case in cases)[:16].replace("T", " ")
    yield f"{count(len(cases), 'case')}, newest run {newest} UTC. Next: {', '.join(steps[:3])}", ""


def marks_table(cases: Sequence[CaseStatus], why: Reasons, wide: bool = False) -> Table:
    """Return a line for each case, the worst first: a mark for each run, the newest verdict, and why.

    Each whole text is one note below the table.
    """
    styles = {MARKS[verdict]: style for verdict, style in STYLE.items()}
    columns = (
        Column("case"),
        Column(f"last {RUNS} runs", right=True, whole=True, marks=styles),
        Column("newest", whole=True),
        Column("verdict", whole=True),
        Column("why"),
    )
    ordered = sorted(cases, key=lambda case: _gravity(case, why))
    notes = list(dict.fromkeys(why[id(one)][1] for one in ordered if why.get(id(one), ("", ""))[1]))

    def row(one: CaseStatus) -> tuple[str, ...]:
        words, text = why.get(id(one), ("", ""))
        mark = f" [{notes.index(text) + 1}]" if text else ""
        when = one.newest.time[:16].replace("T", " ")
        return (one.case, one.marks, when, one.newest.verdict.value, f"{words}{mark}".strip())

    groups = [
        Group(where, [row(one) for one in ordered if one.where == where])
        for where in dict.fromkeys(one.where for one in ordered)
    ]
    verdicts = {verdict.value: style for verdict, style in STYLE.items()}
    return Table(columns, groups, notes, styles=verdicts, wide=wide)


def marks_legend(cases: Sequence[CaseStatus]) -> str:
    """Return what the marks of some cases mean."""
    shown = {verdict for case in cases for verdict in case.verdicts}
    return ", ".join(
        f"{mark} {verdict.value}" for verdict, mark in MARKS.items() if verdict in shown
    )
