"""What a session found, one row a metric: the table, and the same as JSON."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.markup import escape

from iogauge.core.text import visible, visible_lines
from iogauge.core.units import format_value, of_runs, with_unit
from iogauge.core.words import POINTS
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import (
    MetricRecord,
    Record,
    operations_of,
    same_spread,
)
from iogauge.report.endings import Ending
from iogauge.report.layout import Column, Group, Table


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of each line, in the order of their first records."""
    found: dict[str, Record] = {}
    for record in records:
        line = record.line
        if line not in found or record.time >= found[line].time:
            found[line] = record
    return list(found.values())


def same_fault(record: Record, metric: MetricRecord) -> MetricRecord:
    """Return the operations per second that a bandwidth repeats, or the metric itself.

    Samples that are proportional have the same spread. Single samples miss their references by
    the same share.
    """
    if metric.verdict is not Verdict.FAIL:
        return metric
    for other in record.metrics:
        fails = other.verdict is Verdict.FAIL and other.is_trouble(gate=False)
        alike = other.name == operations_of(metric.name) and same_spread(
            other.spread, metric.spread
        )
        if not (alike and fails):
            continue
        if metric.spread is not None:
            return other
        if metric.reference and other.reference:
            shares = (m.median / m.reference.value for m in (metric, other) if m.reference)
            if math.isclose(*shares, rel_tol=1e-3):
                return other
    return metric


#: Style of each verdict on a terminal.
STYLE: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INVALID: "bold magenta",
    Verdict.ERROR: "bold red",
    Verdict.UNSTABLE: "yellow",
    Verdict.CONTAMINATED: "yellow",
    Verdict.UNREFERENCED: "cyan",
}

#: How the source of a reference begins for which the ceiling stands in (plan.cost).
_CEILINGS_SHARE: Final = re.compile(r"(\d+%) of the ceiling ")


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; everything but the verdict is text."""

    scenario: str
    target: str
    metric: str
    measured: str
    reference: str
    ceiling: str
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def reason(self) -> str:
        """Return all reasons as one text."""
        return "; ".join(self.reasons)


def plain(text: str) -> str:
    """Return text from outside for a rich console; its markup and control characters do nothing."""
    return escape(visible_lines(text))


def _reasons(record: Record, metric: MetricRecord) -> tuple[str, ...]:
    """Return why a metric has its verdict, and the remarks of guards.

    The bandwidth of a block size is its operations per second, times the block. If both fail alike,
    that is one fault with one reason.
    """
    about = same_fault(record, metric)
    objections = [
        f"{f.name}: {f.saw}; demanded: {f.demands}" + (f". {f.remedy}" if f.remedy else "")
        for f in record.findings
        if f.metric in (None, about.name) and f.objects(about.verdict)
    ]
    if objections:
        return tuple(objections)
    remarks = [
        f"{f.name}, a remark, no fault: {f.saw}" + (f". {f.remedy}" if f.remedy else "")
        for f in record.findings
        if f.metric in (None, about.name)
        and f.outcome == Outcome.WARN.value
        and not (f.guard == "G4" and record.tier == "quick")
    ]
    reason = about.reason if about.verdict is not Verdict.PASS else ""
    return (*([reason] if reason else []), *remarks)


def folded(records: Iterable[Record]) -> list[Row]:
    """Return the rows of records, those of ``--repeat`` as one row a case, metric and verdict, in the first one's place.

    Its measured values are the least, the most and their median; its reasons are those of the first run.
    """
    groups: dict[tuple[object, ...], list[tuple[Row, MetricRecord | None]]] = {}
    for number, record in enumerate(records):
        measured = {metric.name: metric for metric in record.metrics}
        for row in rows([record]):
            again = "" if "%.repeat_no=" in record.case else number
            key = (again, record.place, row.scenario, row.metric, row.verdict)
            groups.setdefault(key, []).append((row, measured.get(row.metric)))
    return [_folded(found) for found in groups.values()]


def _folded(found: Sequence[tuple[Row, MetricRecord | None]]) -> Row:
    row, metric = found[0]
    values = [one.median for _, one in found if one]
    if len(found) == 1:
        return row
    if metric is None or not values:
        return replace(row, measured=f"{len(found)} runs")
    return replace(row, measured=of_runs(values, metric.unit))


def rows(records: Iterable[Record]) -> list[Row]:
    """Return the rows of a session's records; a case without metrics has one row."""
    lines: list[Row] = []
    for record in records:
        name = visible(record.short_name)
        target = record.target_path
        if not record.metrics:
            reason = visible(record.reason)
            lines.append(Row(name, target, "-", "-", "-", "-", record.verdict, (reason,)))
        for metric in record.metrics:
            spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
            lines.append(
                Row(
                    name,
                    target,
                    metric.name,
                    f"{with_unit(metric.median, metric.unit)}{spread}",
                    _bound(metric),
                    format_value(metric.ceiling) if metric.ceiling else "unknown",
                    metric.verdict,
                    tuple(map(visible, _reasons(record, metric))),
                )
            )
        lines += _not_computed(record, name, target)
    return lines


def _bound(metric: MetricRecord) -> str:
    """Return the reference of a metric, with its bound or with the share of the ceiling that it is."""
    reference = metric.reference
    if not reference:
        return "none"
    if share := _CEILINGS_SHARE.match(str(reference.source)):
        return f"{format_value(reference.value)} ({share[1]})"
    allowed = reference.lower if metric.better == "more" else reference.upper
    return format_value(reference.value) + (f" {allowed:+.0%}" if allowed else "")


def judged_by_ceiling(records: Iterable[Record]) -> bool:
    """Return whether the ceiling stands in for the reference of a metric."""
    references = (metric.reference for record in records for metric in record.metrics)
    return any(_CEILINGS_SHARE.match(str(r.source)) for r in references if r)


def _not_computed(record: Record, name: str, target: str) -> list[Row]:
    """Return rows for the metrics that a derived case could not compute, if it computed others."""
    computed = {metric.name for metric in record.metrics}
    lines = []
    for finding in record.findings if computed else ():
        if finding.guard != POINTS or finding.metric is None or finding.metric in computed:
            continue
        invalid = finding.objects(Verdict.INVALID)
        verdict = Verdict.INVALID if invalid else Verdict.UNREFERENCED
        reason = visible(finding.saw)
        lines.append(Row(name, target, finding.metric, "-", "-", "-", verdict, (reason,)))
    return lines


_COLUMNS: Final = (
    Column("scenario"),
    Column("metric", whole=True),
    Column("median ±spread"),
    Column("reference", right=True),
    Column("ceiling", right=True),
    Column("verdict", whole=True),
)


#: Figures of a moment in G15 and G17, which differ from case to case; the row shows its own spread.
_MOMENT: Final = re.compile(r"(load before the run|coefficient of variation) ([0-9.]+)")


def _joined(reasons: Sequence[str]) -> str:
    """Return reasons that differ at most in such a figure as one, with the least and the most."""
    figures = sorted(
        {found[2] for reason in reasons if (found := _MOMENT.search(reason))}, key=float
    )
    if len(figures) < 2:
        return reasons[0]
    return _MOMENT.sub(rf"\1 {figures[0]} to {figures[-1]}", reasons[0])


def table(lines: Sequence[Row], wide: bool = False) -> Table:
    """Return the rows as a table, by target; the reasons are numbered below it.

    With ``wide`` the reasons stand in the rows.
    """
    alike: dict[str, list[str]] = {}
    for line in lines:
        for reason in line.reasons:
            alike.setdefault(_MOMENT.sub(r"\1", reason), []).append(reason)
    numbers = {text: number for number, text in enumerate(alike, 1)}
    groups = []
    for target in dict.fromkeys(line.target for line in lines):
        cells, last = [], None
        for line in (line for line in lines if line.target == target):
            known = ",".join(str(numbers[_MOMENT.sub(r"\1", reason)]) for reason in line.reasons)
            cells.append(
                (
                    line.scenario if wide or line.scenario != last else "",
                    line.metric,
                    line.measured,
                    line.reference,
                    line.ceiling,
                    line.verdict.value,
                    line.reason if wide else f"[{known}]" * bool(known),
                )
            )
            last = line.scenario
        groups.append(Group(f"target {target}", cells))
    return Table(
        columns=(*_COLUMNS, Column("reason" if wide else "why")),
        groups=groups,
        notes=() if wide else tuple(map(_joined, alike.values())),
        styles={verdict.value: style for verdict, style in STYLE.items()},
        wide=wide,
    )


#: Keys of a metric that :func:`to_json` shows as they are recorded.
_FIGURES: Final = ("median", "unit", "spread", "reference", "ceiling")


def to_json(records: Iterable[Record], ending: Ending) -> str:
    """Return the ending of a session and each metric, with its reasons, as JSON."""
    metrics = []
    for record in records:
        measured = {metric.name: metric.to_json() for metric in record.metrics}
        for row in rows([record]):
            figures = measured.get(row.metric, {})
            metrics.append(
                {
                    "case": record.short_name,
                    "system": record.system,
                    "partition": record.partition,
                    "environment": record.environment,
                    "target": record.target_path,
                    "metric": None if row.metric == "-" else row.metric,
                    **{key: figures.get(key) for key in _FIGURES},
                    "verdict": row.verdict.value,
                    "reasons": row.reasons,
                }
            )
    ended = {"word": ending.word.value, "sentence": ending.sentence, "status": ending.status}
    return json.dumps({**ended, "remarks": ending.remarks, "metrics": metrics}, indent=2)
