"""The newest runs of every case as marks."""

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from textwrap import shorten
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.journal import Damaged
from iogauge.records.record import ADDED, Record
from iogauge.report import outcome
from iogauge.report.endings import Ending
from iogauge.report.history_table import by_place
from iogauge.report.layout import LOOKS, Table, columns
from iogauge.report.outcome import Notes
from iogauge.report.ranking import Rank, dead_targets, rank_of
from iogauge_extras.page.trouble import DRIFT, Alarm, Trouble

#: Runs of a case that are shown.
RUNS: Final = 14

#: Characters of a reason in a row, and cases that ``iogauge`` alone names.
_WHY, BRIEF = 60, 5

#: Ranks of cases that ``iogauge`` alone leaves out.
QUIET: Final = (Rank.UNREFERENCED, Rank.PASS)


@dataclass(frozen=True, slots=True)
class CaseStatus:
    """The newest runs of a case."""

    #: Verdicts, the oldest first.
    verdicts: tuple[Verdict, ...]
    newest: Record
    rank: Rank = Rank.PASS
    loss: float = 0.0
    #: Why the case is not in order, in a few words.
    why: str = ""
    #: More of it, for a note.
    note: str = ""

    @property
    def case(self) -> str:
        """Return the name of the case."""
        return visible(self.newest.short_name)


#: The newest runs of a case.
_NEWEST: Final = f"""
SELECT time, file, start, verdict FROM run WHERE place = ? AND position = 0 ORDER BY time DESC LIMIT {RUNS}
"""


def _case(place: sqlite3.Row) -> tuple[str, ...]:
    """Return what all runs of a case have in common, those of ``--repeat`` too."""
    names = [place[key] for key in ("system", "partition", "environment")]
    return (*names, ADDED.sub("", place["case"]))


def read_marks(
    folder: Path, choice: query.Choice
) -> tuple[list[CaseStatus], list[Damaged]]:
    """Return the cases of a history by partition and name that were measured since a time; and its damaged lines.

    Raises OSError for a file that cannot be read.
    """
    runs_of: dict[tuple[int, int], list[sqlite3.Row]] = {}
    with closing(query.connect(folder)) as history:
        chosen = choice.of_cases(history)
        question = f"SELECT * FROM place WHERE {chosen.text}"
        places = history.execute(question, chosen.values)
        for mine in grouped(places, _case).values():
            runs: list[sqlite3.Row] = []
            for place in mine:
                runs += history.execute(_NEWEST, (place["id"],))
            runs.sort(key=lambda run: (run["time"], run["file"], run["start"]))
            last = runs[-1]
            if not choice.since or query.moment(last["time"]) >= choice.since:
                runs_of[last["file"], last["start"]] = runs[-RUNS:]
        records = query.records(folder, history, runs_of)
        damaged = query.damaged(folder, history)
    found = []
    for key, record in records.items():
        verdicts = tuple(Verdict(run["verdict"]) for run in runs_of[key])
        found.append(CaseStatus(verdicts, record))
    return sorted(found, key=lambda case: by_place(case.newest)), damaged


def gravest_first(
    cases: Sequence[CaseStatus], troubles: Sequence[Trouble]
) -> list[CaseStatus]:
    """Return cases by rank and loss, with why each is neither PASS nor UNREFERENCED, and what has become worse."""
    dead = dead_targets(case.newest for case in cases)
    explained = []
    for case in cases:
        record = case.newest
        here = [trouble for trouble in troubles if trouble.where == record.where]
        mine = [one for one in here if one.case == case.case and one.is_of_history]
        whys = [one.acknowledged for one in here if one.is_meant(case.case)]
        rank, loss, notes = rank_of(record, record.verdict, dead), 0.0, []
        if mine:
            rank, loss = mine[0].rank, mine[0].loss
            for one in mine:
                kind = DRIFT if one.kind == DRIFT else ""
                whys.append(f"{kind} {one.metric}: {one.text}".lstrip())
            notes = [one.cause for one in mine if one.cause]
        elif record.verdict not in (Verdict.PASS, Verdict.UNREFERENCED):
            for row in outcome.rows([record]):
                if row.verdict is record.verdict:
                    notes += row.reasons
            saw = "".join(notes[:1]).partition("; demanded")[0]
            whys.append(shorten(saw, _WHY, placeholder=" …"))
        why = "; ".join(dict.fromkeys(filter(None, whys)))
        note = "; ".join(dict.fromkeys(notes))
        explained.append(replace(case, rank=rank, loss=loss, why=why, note=note))
    return sorted(explained, key=lambda case: (case.rank, -case.loss))


def brief(ordered: Sequence[CaseStatus], alarm: Alarm, width: int) -> Iterator[str]:
    """Yield at most ten lines: what weighs most, the ending, the gravest cases, and what comes next."""
    yield shorten(alarm.title, width, placeholder=" …")
    if alarm.gist != alarm.ending.sentence:
        yield str(alarm.ending)
    grave = [case for case in ordered if case.rank not in QUIET]
    for case in grave[:BRIEF]:
        verdict = case.newest.verdict.value
        text = f"{verdict} {case.newest.where} {case.case}: {case.why}"
        yield shorten(text, width, placeholder=" …")
    newest = max(case.newest.minute for case in ordered)
    yield f"{count(len(ordered), 'case')}, {len(grave)} not in order, newest run {newest} UTC. Next: iogauge status"


def marks_table(ordered: Sequence[CaseStatus]) -> Table:
    """Return a line for each case: a mark for each run, the newest verdict, and why.

    Each whole text is one note below the table, and so is what the marks mean.
    """
    runs = f"last {RUNS} runs"
    headings = columns("case", runs, "newest", "verdict", "why", right=(runs,))
    notes = Notes(one.note for one in ordered if one.note)
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for status in ordered:
        letters = "".join(LOOKS[verdict].letter for verdict in status.verdicts)
        why = status.why
        if status.note:
            why += f" {notes.numbers([status.note])}"
        last = status.newest
        row = (status.case, letters, last.minute, last.verdict.value, why.strip())
        blocks.setdefault(last.where, []).append(row)
    marks = [f"{look.letter} {verdict.value}" for verdict, look in LOOKS.items()]
    return Table(headings, blocks, notes.texts, footer=[", ".join(marks)])


def marks_json(ordered: Sequence[CaseStatus], ending: Ending) -> str:
    """Return the ending, and each case with its verdicts, the gravest first, as JSON."""
    cases = []
    for status in ordered:
        record = status.newest
        cases.append(
            {
                "system": record.system,
                "partition": record.partition,
                "environment": record.environment,
                "case": record.short_name,
                "time": record.time,
                "session": record.session,
                "verdict": record.verdict.value,
                "verdicts": [verdict.value for verdict in status.verdicts],
                "why": status.why,
                "note": status.note,
            }
        )
    return json.dumps({**ending.to_json(), "cases": cases}, indent=2)
