"""Show what a session found: one row a metric, and a table of prices."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.markup import escape

from iogauge.core.text import visible, visible_lines
from iogauge.core.units import BANDWIDTH_UNITS, convert, format_value
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.derive import POINTS, cost_per_gb_s_month
from iogauge.records.record import LAYER_CHECKS, MetricRecord, PriceRecord, Record
from iogauge.report.layout import Column, Group, Table
from iogauge.report.outcome import Ending, same_fault

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
        f"{f.guard}: {f.saw}; demanded: {f.demands}" + (f". {f.remedy}" if f.remedy else "")
        for f in record.findings
        if f.metric in (None, about.name) and f.objects(about.verdict)
    ]
    if objections:
        return tuple(objections)
    remarks = [
        f"{f.guard}: {f.saw}"
        for f in record.findings
        if f.metric in (None, about.name)
        and f.outcome == Outcome.WARN.value
        and not (f.guard == "G4" and record.tier == "quick")
    ]
    reason = about.reason if about.verdict is not Verdict.PASS else ""
    return (*([reason] if reason else []), *remarks)


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
                    f"{format_value(metric.median)} {metric.unit}{spread}",
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
                    "case": record.case,
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


@dataclass(frozen=True, slots=True)
class BandwidthPrice:
    """The price of a target's best measured bandwidth: information, never a verdict."""

    target: str
    currency: str
    per_gb_month: float
    metric: str
    case: str
    gb_s: float
    per_gb_s_month: float
    source: str
    record: Record


def costs(records: Iterable[Record]) -> list[BandwidthPrice]:
    """Return the prices by partition and bandwidth metric.

    ``records`` come in the order in which they were made. The newest valid value of each case
    counts, and for each metric the best case. Partitions without a price are left out, and so is what
    a layer below the target carries.
    """
    newest: dict[tuple[str, ...], dict[str, tuple[float, Record, PriceRecord]]] = {}
    for record in records:
        price = record.price
        for metric in record.metrics if price else ():
            if metric.unit not in BANDWIDTH_UNITS or not metric.verdict.is_valid:
                continue
            if price is None or metric.median <= 0 or record.check in LAYER_CHECKS:
                continue
            bytes_s = convert(metric.median, metric.unit, "B/s")
            cases = newest.setdefault((record.system, record.partition, metric.name), {})
            cases[record.case] = (bytes_s, record, price)
    prices = []
    for (*_, name), cases in newest.items():
        bytes_s, record, price = max(cases.values(), key=lambda measured: measured[0])
        prices.append(
            BandwidthPrice(
                target=record.target_path,
                currency=price.currency,
                per_gb_month=price.per_gb_month,
                metric=name,
                case=record.short_name,
                gb_s=bytes_s / 1e9,
                per_gb_s_month=cost_per_gb_s_month(price.per_gb_month, price.capacity, bytes_s),
                source=price.source,
                record=record,
            )
        )
    return prices


def cost_table(prices: Sequence[BandwidthPrice]) -> Table:
    """Return the prices as a table."""
    columns = (
        Column("what it costs"),
        Column("per GB and month", right=True),
        Column("for"),
        Column("GB/s", right=True),
        Column("per GB/s and month", right=True),
    )
    sources = list(dict.fromkeys(price.source for price in prices))
    rows = [
        (
            price.case,
            f"{price.per_gb_month:g} {price.currency}",
            price.metric,
            format_value(price.gb_s),
            f"{price.per_gb_s_month:,.2f} {price.currency} [{sources.index(price.source) + 1}]",
        )
        for price in prices
    ]
    groups = [
        Group(
            f"target {target}", [r for r, p in zip(rows, prices, strict=True) if p.target == target]
        )
        for target in dict.fromkeys(price.target for price in prices)
    ]
    return Table(columns, groups, [f"price: {source}" for source in sources])
