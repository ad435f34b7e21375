"""Sheets of one page from one table, for a terminal and as HTML: the acceptance of a delivery, and the months of a site."""

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, some
from iogauge.core.units import convert, of_runs, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import query
from iogauge.records.record import REPEATED, MetricRecord, Record, short_name
from iogauge.report.endings import Word
from iogauge.report.layout import Table, columns
from iogauge.site.extras import Criterion


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """What a sheet says."""

    title: str
    conclusion: str
    #: As the page's styles are called: ``ok``, ``failed``.
    style: str
    #: Each has one block, with its title.
    parts: list[Table]
    #: Facts of each place by name.
    places: Sequence[tuple[str, Mapping[str, str]]] = ()
    #: Who signs it.
    signers: Sequence[str] = ()


def acceptance(
    system: str,
    criteria: Mapping[str, Sequence[Criterion]],
    records: Sequence[Record],
    places: Sequence[tuple[str, Mapping[str, str]]],
) -> Sheet:
    """Return whether some records meet the criteria of each partition.

    All valid runs with a reference count, whatever they show. Raises ValueError for a criterion with fewer than it asks for.
    """
    rows = []
    lacking = []
    failed = 0
    for partition, mine in criteria.items():
        for criterion in mine:
            found = _measured(criterion, partition, records)
            valid = []
            for _, metric in found:
                if metric.verdict.is_valid and metric.reference:
                    valid.append(metric)
            if len(valid) < criterion.runs:
                lacking.append(
                    f"{system}:{partition} {criterion.case} {criterion.metric}: {len(valid)} of {criterion.runs} valid runs "
                    "with a reference"
                )
                continue
            met = all(metric.verdict is Verdict.PASS for metric in valid)
            failed += not met
            rows.append(_criterion_row(partition, criterion, found, valid, met))
    if lacking:
        raise ValueError(
            f"no acceptance report: {'; '.join(lacking)}. Measure them (iogauge run -n CASE), or give --since so that "
            "the report holds their sessions"
        )
    if not rows:
        raise ValueError(
            f"no acceptance report: no partition of {system} has extras.acceptance (docs/sites.md)"
        )
    conclusion, style = f"Accepted: criteria met: {len(rows)}.", Word.OK.style
    if failed:
        conclusion = f"Not accepted: criteria not met: {failed} of {len(rows)}."
        style = Word.FAILED.style
    headings = ("criterion", "demanded", "measured", "evidence", "source", "verdict")
    return Sheet(
        title=f"Acceptance of {system}",
        conclusion=conclusion,
        style=style,
        parts=[Table(columns(*headings), {"Criteria": rows})],
        places=places,
        signers=("operator", "supplier"),
    )


def _measured(
    criterion: Criterion, partition: str, records: Sequence[Record]
) -> list[tuple[Record, MetricRecord]]:
    """Return the runs of a criterion's metric."""
    found = []
    for record in records:
        if (record.partition, record.short_name) == (partition, criterion.case):
            for metric in record.metrics:
                if metric.name == criterion.metric:
                    found.append((record, metric))
    return found


def _criterion_row(
    partition: str,
    criterion: Criterion,
    found: Sequence[tuple[Record, MetricRecord]],
    valid: Sequence[MetricRecord],
    met: bool,
) -> tuple[str, ...]:
    unit = valid[-1].unit
    demanded = f"{criterion.runs} runs"
    if valid[-1].reference:
        demanded += f", reference {with_unit(valid[-1].reference.value, unit)}"
    values = [convert(metric.median, metric.unit, unit) for metric in valid]
    sessions = list(dict.fromkeys(record.session for record, _ in found))
    evidence = f"{len(valid)} valid of {count(len(found), 'run')}: {some(sessions, 3)}"
    verdict = "not met"
    if met:
        verdict = "met"
    name = f"{partition} {criterion.case} {criterion.metric}"
    measured = of_runs(values, unit)
    return (name, demanded, measured, evidence, criterion.source, verdict)


# The months of a site.
#: A night is from noon to noon, UTC.
_NOON: Final = timedelta(hours=12)

_COLUMNS: Final = (
    'time, session, system, partition, environment, "case", verdict, expected, confirms'
)


@dataclass(frozen=True, slots=True)
class Night:
    """What was measured on a target in one night."""

    #: The day on which it begins.
    day: datetime
    #: Whether every case is PASS.
    is_good: bool
    #: Names of the cases that failed it.
    failed: tuple[str, ...]


def summary(folder: Path, choice: query.Choice) -> Sheet:
    """Return the share of good nights of each target, its worst month, and its incidents.

    Raises ValueError as :meth:`query.Choice.condition` does, and if nothing was measured.
    """
    targets: list[tuple[str, ...]] = []
    incidents: list[tuple[str, ...]] = []
    with closing(query.connect(folder)) as history:
        first = query.Condition("position = 0")
        condition = query.every(choice.condition(history), first)
        rows = query.rows(history, _COLUMNS, condition, "ORDER BY time, start")
        if not rows:
            raise ValueError(f"nothing was measured in this time: {folder}")
        for where, mine in sorted(grouped(rows, _where).items()):
            nights = _nights(mine)
            good = sum(night.is_good for night in nights)
            span = (nights[-1].day - nights[0].day).days + 1
            cells = (where, f"{len(nights)} of {span}", f"{good / len(nights):.0%}")
            targets.append((*cells, _worst_month(nights)))
            incidents += _incidents(where, nights)
    begin, end = (f"{query.moment(rows[n]['time']):%Y-%m-%d}" for n in (0, -1))
    headings = ("target", "nights measured", "good nights", "worst month")
    parts = [Table(columns(*headings), {"Targets": targets})]
    if incidents:
        shown = columns("target", "since", "until", "nights", "what failed")
        parts.append(Table(shown, {"Incidents": incidents}))
    text = count(len(incidents), "incident")
    style = Word.FAILED.style
    if not incidents:
        style = Word.OK.style
    return Sheet(
        title=f"Storage from {begin} to {end}",
        conclusion=f"{count(len(targets), 'target')}, {text}. A night is good if every case is PASS.",
        style=style,
        parts=parts,
    )


def _where(row: sqlite3.Row) -> str:
    return f"{row['system']}:{row['partition']}"


def _night_of(row: sqlite3.Row) -> datetime:
    """Return the day on which the night of a row begins."""
    time = query.moment(row["time"]) - _NOON
    return time.replace(hour=0, minute=0, second=0, microsecond=0)


def _case(row: sqlite3.Row) -> tuple[str, str]:
    """Return environment and name of a row's case, without the number of its repeat."""
    return row["environment"], REPEATED.sub("", row["case"])


def _nights(rows: Sequence[sqlite3.Row]) -> list[Night]:
    """Return the nights of a target, from its rows by time."""
    passed_again = set()
    for row in rows:
        if row["verdict"] == Verdict.PASS.value:
            passed_again.add((row["confirms"], *_case(row)))
    nights = []
    for begin, mine in grouped(rows, _night_of).items():
        verdicts: set[Verdict] = set()
        failed: dict[str, None] = {}
        for row in mine:
            verdict = Verdict(row["verdict"])
            is_refuted = (row["session"], *_case(row)) in passed_again
            if row["expected"] or (verdict is Verdict.FAIL and is_refuted):
                continue
            verdicts.add(verdict)
            if verdict.fails_run:
                failed[f"{short_name(row['case'])} {verdict.value}"] = None
        nights.append(Night(begin, verdicts == {Verdict.PASS}, tuple(failed)))
    return nights


def _worst_month(nights: Sequence[Night]) -> str:
    """Return the month with the least share of good nights: ``2027-02: 71 % of 28``."""
    worst, least = "", 2.0
    for month, mine in grouped(nights, lambda night: f"{night.day:%Y-%m}").items():
        share = sum(night.is_good for night in mine) / len(mine)
        if share < least:
            worst, least = f"{month}: {share:.0%} of {len(mine)}", share
    return worst


def _incidents(where: str, nights: Sequence[Night]) -> Iterator[tuple[str, ...]]:
    """Yield each time in which a target failed night after night: since when, until when, how long, what."""
    bad: list[Night] = []
    for night in [*nights, None]:
        if night and night.failed:
            bad.append(night)
        elif bad:
            until = "still"
            if night:
                until = f"{night.day:%Y-%m-%d}"
            names: dict[str, None] = {}
            for each in bad:
                names |= dict.fromkeys(each.failed)
            since = f"{bad[0].day:%Y-%m-%d}"
            yield where, since, until, f"{len(bad)}", some(list(names), 3)
            bad = []
