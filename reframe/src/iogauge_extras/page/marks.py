"""The newest runs of every case as marks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from operator import is_
from pathlib import Path
from textwrap import shorten
from typing import Final

import polars as pl

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import ADDED, Record
from iogauge.report.endings import Ending
from iogauge.report.history_table import CASE, in_place, narrowed
from iogauge.report.layout import GRAVEST, LOOKS, Column, Table, columns
from iogauge_extras.history.states import TOGETHER
from iogauge_extras.page.news import DRIFT, Trouble

#: Runs of a case that are shown.
RUNS: Final = 14


@dataclass(frozen=True, slots=True)
class CaseStatus:
    """The verdicts of a case's newest runs, the oldest first, and its newest record.

    ``why`` is why the case is not in order, in a few words; ``told`` is more of it, for a note.
    """

    verdicts: tuple[Verdict, ...]
    newest: Record
    why: str = ""
    told: str = ""

    @property
    def case(self) -> str:
        """Return the name of the case."""
        return visible(self.newest.short_name)

    @property
    def gravity(self) -> int:
        """Return the place of the case among others: a drift stands beside a failure."""
        return 0 if self.why.startswith(DRIFT) else GRAVEST.index(self.newest.verdict)


def read_marks(
    folder: Path, system: str = "", since: datetime | None = None, name: str = ""
) -> list[CaseStatus]:
    """Return the cases of a history by partition and name; with ``since`` those measured later.

    Raises OSError for a file that cannot be read.
    """
    wanted = (*CASE, "time", "verdict", "position", *query.PLACE)
    every = narrowed(query.load(folder, columns=wanted), system=system, name=name)
    parts = []
    for part in every.iter_slices(
        TOGETHER
    ):  # so that a long history needs little memory
        cases = (
            part.select(*CASE, "position")
            .with_row_index()
            .filter(pl.col("position") == 0)
        )
        parts.append(part[cases.group_by(CASE).tail(RUNS)["index"]])
    newest = pl.concat(parts or [every]).group_by(CASE).tail(RUNS)
    frame = newest.sort("time", *query.PLACE)
    shown = (
        pl.col("case").cast(pl.String).str.replace_all(ADDED.pattern, "")
    )  # one row for all runs of --repeat
    cases = frame.group_by(*CASE[:-1], shown, maintain_order=True).agg(
        pl.col("verdict").tail(RUNS).alias("verdicts"),
        pl.col("time", *query.PLACE).last(),
    )
    if since:
        cases = cases.filter(pl.col("time") >= since)
    contents = query.records(folder, cases)
    return [
        CaseStatus(tuple(map(Verdict, row["verdicts"])), Record.from_json(contents[at]))
        for row in sorted(cases.iter_rows(named=True), key=in_place)
        if (at := (row["source"], row["number"])) in contents
    ]


#: Words of a reason in a row, and cases that ``iogauge`` alone names.
_WORDS, _BRIEF = 10, 8


def gravest_first(
    cases: Sequence[CaseStatus], troubles: Sequence[Trouble]
) -> list[CaseStatus]:
    """Return cases by gravity, with why each is neither PASS nor UNREFERENCED, and what has become worse."""
    explained = []
    for case in cases:
        place, verdict = (case.newest.where, case.case), case.newest.verdict
        mine = [one for one in troubles if (one.where, one.case) == place and one.brief]
        why = told = ""
        if mine:
            why = "; ".join(dict.fromkeys(one.brief for one in mine))
            told = "; ".join(dict.fromkeys(one.cause for one in mine if one.cause))
        elif verdict not in (Verdict.PASS, Verdict.UNREFERENCED):
            first = next((f for f in case.newest.findings if f.objects(verdict)), None)
            said = (
                f"{first.name}: {first.saw}" if first else case.newest.reason
            ).split()
            why = " ".join(said[:_WORDS]) + (" …" if said[_WORDS:] else "")
            told = (
                f"{first.guard}: demanded: {first.demands}. {first.remedy}"
                if first
                else ""
            )
        explained.append(replace(case, why=visible(why), told=visible(told)))
    return sorted(explained, key=lambda case: case.gravity)


def brief(
    ordered: Sequence[CaseStatus], ending: Ending, width: int
) -> Iterator[tuple[str, str]]:
    """Yield at most ten lines with their styles: green or red, what and since when, and what comes next."""
    red = [case for case in ordered if case.gravity <= GRAVEST.index(Verdict.ERROR)]
    shown = [
        case for case in ordered if case.gravity <= GRAVEST.index(Verdict.UNSTABLE)
    ]
    style = "bold red" if ending.status else "yellow" if shown else "bold green"
    yield f"iogauge: {ending}", style
    for case in shown[: _BRIEF if len(shown) <= _BRIEF else _BRIEF - 1]:
        last = case.newest.verdict
        same = len(list(takewhile(partial(is_, last), reversed(case.verdicts))))
        runs = count(same, "run") + (" or more" if same == RUNS else "")
        text = f"{last.value} for {runs}: {case.newest.where} {case.case}: {case.why}"
        yield shorten(text, width, placeholder=" …"), ""
    if len(shown) > _BRIEF:
        yield f"and {len(shown) - _BRIEF + 1} more", ""
    steps = [
        *(["iogauge status"] if shown else []),
        *([f"iogauge explain {red[0].newest.verdict.value}"] if red else []),
        *(["iogauge calibrate"] if "UNREFERENCED" in ending.sentence else []),
        "iogauge run -t quick",
    ]
    newest = max(case.newest.minute for case in ordered)
    yield (
        f"{count(len(ordered), 'case')}, newest run {newest} UTC. Next: {', '.join(steps[:3])}",
        "",
    )


def marks_table(ordered: Sequence[CaseStatus], wide: bool = False) -> Table:
    """Return a line for each case: a mark for each run, the newest verdict, and why.

    Each whole text is one note below the table.
    """
    marks = {look.letter: look.style for look in LOOKS.values()}
    runs = Column(f"last {RUNS} runs", right=True, whole=True, marks=marks)
    case, *others = columns(
        "case", "newest", "verdict", "why", whole=("newest", "verdict")
    )
    notes = list(dict.fromkeys(one.told for one in ordered if one.told))

    def row(one: CaseStatus) -> tuple[str, ...]:
        letters = "".join(LOOKS[verdict].letter for verdict in one.verdicts)
        note = f" [{notes.index(one.told) + 1}]" if one.told else ""
        last = one.newest
        return (
            one.case,
            letters,
            last.minute,
            last.verdict.value,
            f"{one.why}{note}".strip(),
        )

    blocks = {
        where: list(map(row, mine))
        for where, mine in grouped(ordered, lambda one: one.newest.where).items()
    }
    return Table((case, runs, *others), blocks, notes, wide)


def marks_legend(cases: Sequence[CaseStatus]) -> str:
    """Return what the marks of some cases mean."""
    shown = {verdict for case in cases for verdict in case.verdicts}
    return ", ".join(
        f"{LOOKS[one].letter} {one.value}" for one in Verdict if one in shown
    )
