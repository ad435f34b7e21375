"""The newest runs of every case as marks."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from itertools import takewhile
from operator import is_
from pathlib import Path
from textwrap import shorten
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.journal import Damaged
from iogauge.records.record import ADDED, Record
from iogauge.report.endings import Ending
from iogauge.report.history_table import by_place
from iogauge.report.layout import LOOKS, Table, columns
from iogauge.report.outcome import Notes
from iogauge.report.ranking import Rank, dead_targets, rank_of
from iogauge_extras.page.trouble import Alarm, Trouble

#: Runs of a case that are shown.
RUNS: Final = 14


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

    @property
    def runs(self) -> str:
        """Return for how many runs the newest verdict holds: ``3 runs``."""
        last = self.verdicts[-1]
        same = len(list(takewhile(partial(is_, last), reversed(self.verdicts))))
        more = " or more" if same == RUNS else ""
        return count(same, "run") + more


def read_marks(
    folder: Path, system: str = "", since: datetime | None = None, name: str = ""
) -> tuple[list[CaseStatus], list[Damaged]]:
    """Return the cases of a history by partition and name, with ``since`` those measured later; and its damaged lines.

    Raises OSError for a file that cannot be read.
    """
    choice = query.Choice(system=system, name=name)
    with closing(query.connect(folder)) as history:
        chosen = choice.of_cases(history)
        question = f"SELECT id, {_CASE} FROM place WHERE {chosen.text}"
        # One row for all runs of --repeat.
        places = grouped(
            history.execute(question, chosen.values),
            lambda place: (*tuple(place)[1:4], ADDED.sub("", place["case"])),
        )
        runs_of = []
        for mine in places.values():
            runs = [
                run for place in mine for run in history.execute(_NEWEST, place[:1])
            ]
            runs.sort(key=lambda run: tuple(run)[:3])
            if not since or query.moment(runs[-1]["time"]) >= since:
                runs_of.append(runs[-RUNS:])
        last = [(runs[-1]["file"], runs[-1]["start"]) for runs in runs_of]
        records = query.records(folder, history, last)
        damaged = query.damaged(folder, history)
    found = []
    for place, runs in zip(last, runs_of, strict=True):
        if place in records:
            verdicts = tuple(Verdict(run["verdict"]) for run in runs)
            found.append(CaseStatus(verdicts, records[place]))
    return sorted(found, key=lambda case: by_place(case.newest)), damaged


_CASE: Final = 'system, partition, environment, "case"'

#: The newest runs of a case.
_NEWEST: Final = f"""
SELECT time, file, start, verdict FROM run WHERE place = ? AND position = 0 ORDER BY time DESC LIMIT {RUNS}
"""


#: Words of a reason in a row, and cases that ``iogauge`` alone names.
_WORDS, _BRIEF = 10, 8


def gravest_first(
    cases: Sequence[CaseStatus], troubles: Sequence[Trouble]
) -> list[CaseStatus]:
    """Return cases by rank and loss, with why each is neither PASS nor UNREFERENCED, and what has become worse."""
    dead = dead_targets(case.newest for case in cases)
    named = grouped(troubles, lambda trouble: (trouble.where, trouble.case))
    explained = []
    for case in cases:
        place = (case.newest.where, case.case)
        mine = [trouble for trouble in named.get(place, ()) if trouble.brief]
        if mine:
            found = _of_troubles(case, mine)
        else:
            rank = rank_of(case.newest, case.newest.verdict, dead)
            found = _of_record(replace(case, rank=rank))
        for trouble in troubles:
            if trouble.where == case.newest.where and trouble.is_meant(case.case):
                whys = filter(None, [trouble.acknowledged, found.why])
                found = replace(found, why="; ".join(dict.fromkeys(whys)))
        explained.append(found)
    return sorted(explained, key=lambda case: (case.rank, -case.loss))


def _of_troubles(case: CaseStatus, troubles: Sequence[Trouble]) -> CaseStatus:
    whys = dict.fromkeys(trouble.brief for trouble in troubles)
    causes = dict.fromkeys(trouble.cause for trouble in troubles if trouble.cause)
    first = troubles[0]
    return replace(
        case,
        rank=first.rank,
        loss=first.loss,
        why=visible("; ".join(whys)),
        note=visible("; ".join(causes)),
    )


def _of_record(case: CaseStatus) -> CaseStatus:
    record = case.newest
    if record.verdict in (Verdict.PASS, Verdict.UNREFERENCED):
        return case
    text, note = record.reason, ""
    for finding in record.findings:
        if finding.objects(record.verdict):
            text = finding.saw
            note = f"{finding.guard}: demanded: {finding.demands}. {finding.remedy}"
            break
    words = text.split()
    more = " …" if len(words) > _WORDS else ""
    why = " ".join(words[:_WORDS]) + more
    return replace(case, why=visible(why), note=visible(note))


def brief(
    ordered: Sequence[CaseStatus], alarm: Alarm, width: int
) -> Iterator[tuple[str, str]]:
    """Yield at most eleven lines with their styles: the guilty part, what and since when, and what comes next."""
    red = [case for case in ordered if case.rank <= Rank.ERROR]
    shown = [
        case for case in ordered if case.rank <= Rank.UNSTABLE or case.rank is Rank.BACK
    ]
    style = "bold green"
    if alarm.failed:
        style = "bold red"
    elif shown:
        style = "yellow"
    yield shorten(f"iogauge: {alarm.headline}", width, placeholder=" …"), style
    if alarm.gist != alarm.ending.sentence:
        yield str(alarm.ending), ""
    most = _BRIEF if len(shown) <= _BRIEF else _BRIEF - 1
    for case in shown[:most]:
        record = case.newest
        text = f"{record.verdict.value} for {case.runs}: {record.where} {case.case}: {case.why}"
        yield shorten(text, width, placeholder=" …"), ""
    if len(shown) > most:
        yield f"and {len(shown) - most} more", ""
    steps = []
    if shown:
        steps.append("iogauge status")
    if red:
        word = red[0].newest.verdict.value
        if red[0].rank is Rank.DRIFT:
            word = "drift"
        steps.append(f"iogauge explain {word}")
    if any(case.rank is Rank.UNREFERENCED for case in ordered):
        steps.append("iogauge calibrate")
    steps.append("iogauge run -t quick")
    newest = max(case.newest.minute for case in ordered)
    yield (
        f"{count(len(ordered), 'case')}, newest run {newest} UTC. Next: {', '.join(steps[:3])}",
        "",
    )


def marks_table(ordered: Sequence[CaseStatus]) -> Table:
    """Return a line for each case: a mark for each run, the newest verdict, and why.

    Each whole text is one note below the table.
    """
    runs = f"last {RUNS} runs"
    whole = (runs, "newest", "verdict")
    headings = columns("case", *whole, "why", right=(runs,), whole=whole)
    notes = Notes(one.note for one in ordered if one.note)

    def row(status: CaseStatus) -> tuple[str, ...]:
        letters = "".join(LOOKS[verdict].letter for verdict in status.verdicts)
        why = status.why
        if status.note:
            why += f" {notes.numbers([status.note])}"
        last = status.newest
        return status.case, letters, last.minute, last.verdict.value, why.strip()

    blocks = {}
    for where, mine in grouped(ordered, lambda status: status.newest.where).items():
        blocks[where] = list(map(row, mine))
    return Table(headings, blocks, notes.texts)


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
    ended = {"word": ending.word.value, "sentence": ending.sentence}
    return json.dumps({**ended, "status": ending.status, "cases": cases}, indent=2)


def marks_legend() -> str:
    """Return what the marks mean."""
    return ", ".join(
        f"{look.letter} {verdict.value}" for verdict, look in LOOKS.items()
    )
