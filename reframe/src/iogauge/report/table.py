"""What a session found, as people read it: one row a metric, and one line that sums it up."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from rich.markup import escape
from rich.table import Table

from iogauge.core.text import visible, visible_lines
from iogauge.core.units import BANDWIDTH_UNITS, convert, format_value
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.derive import POINTS, cost_per_gb_s_month
from iogauge.records.record import MetricRecord, PriceRecord, Record

_STYLE: Final = {
    Verdict.PASS: "green",
    Verdict.FAIL: "bold red",
    Verdict.INVALID: "bold magenta",
    Verdict.ERROR: "bold red",
    Verdict.UNSTABLE: "yellow",
    Verdict.CONTAMINATED: "yellow",
    Verdict.UNREFERENCED: "cyan",
}


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table; all text but the verdict."""

    scenario: str
    target: str
    metric: str
    measured: str
    reference: str
    ceiling: str
    verdict: Verdict
    reason: str


def plain(text: str) -> str:
    """Text from outside for a console of rich: neither its markup nor its control characters act."""
    return escape(visible_lines(text))


def _reason(record: Record, metric: MetricRecord) -> str:
    objections = [
        f"{f.guard}: {f.saw}; demanded: {f.demands}"
        for f in record.findings
        if f.metric in (None, metric.name) and f.objects(metric.verdict)
    ]
    if objections:
        return "; ".join(objections)
    remarks = [
        f"{f.guard}: {f.saw}"
        for f in record.findings
        if f.metric in (None, metric.name)
        and f.outcome == Outcome.WARN.value
        and not (f.guard == "G4" and record.tier == "quick")
    ]
    text = metric.reason if metric.verdict is not Verdict.PASS else ""
    return "; ".join([*([text] if text else []), *remarks])


def rows(records: Iterable[Record]) -> list[Row]:
    """Rows of a session's records; a case without metrics has one row."""
    found = []
    for record in records:
        name = visible(record.short_name)
        target = record.target_path
        if not record.metrics:
            reason = visible(record.reason)
            found.append(Row(name, target, "-", "-", "-", "-", record.verdict, reason))
        for metric in record.metrics:
            reference = metric.reference
            spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
            bound = ""
            if reference:
                lower = f" {reference.lower:+.0%}" if reference.lower else ""
                bound = format_value(reference.value) + lower
            found.append(
                Row(
                    name,
                    target,
                    metric.name,
                    f"{format_value(metric.median)} {metric.unit}{spread}",
                    bound or "none",
                    format_value(metric.ceiling) if metric.ceiling else "unknown",
                    metric.verdict,
                    visible(_reason(record, metric)),
                )
            )
        found += _not_computed(record, name, target)
    return found


def _not_computed(record: Record, name: str, target: str) -> list[Row]:
    """Rows of the metrics that a derived case could not compute beside those that it could."""
    computed = {metric.name for metric in record.metrics}
    rows = []
    for finding in record.findings if computed else ():
        if finding.guard != POINTS or finding.metric is None or finding.metric in computed:
            continue
        invalid = finding.objects(Verdict.INVALID)
        verdict = Verdict.INVALID if invalid else Verdict.UNREFERENCED
        reason = visible(finding.saw)
        rows.append(Row(name, target, finding.metric, "-", "-", "-", verdict, reason))
    return rows


def table(found: Sequence[Row], title: str) -> Table:
    """The rows as a table for a terminal; text from outside is escaped."""
    view = Table(title=title, title_justify="left", show_lines=False, pad_edge=False)
    for heading, options in (
        ("scenario", {"overflow": "fold"}),
        ("target", {"overflow": "fold"}),
        ("metric", {"no_wrap": True}),
        ("median ±spread", {"no_wrap": True}),
        ("reference", {"justify": "right"}),
        ("ceiling", {"justify": "right"}),
        ("verdict", {"no_wrap": True}),
        ("reason", {"overflow": "fold", "ratio": 1}),
    ):
        view.add_column(heading, **options)
    last = ""
    for row in found:
        style = _STYLE[row.verdict]
        same = row.scenario == last
        last = row.scenario
        view.add_row(
            "" if same else plain(row.scenario),
            "" if same else plain(row.target),
            plain(row.metric),
            plain(row.measured),
            plain(row.reference),
            plain(row.ceiling),
            f"[{style}]{row.verdict.value}[/]",
            plain(row.reason),
        )
    return view


@dataclass(frozen=True, slots=True)
class Cost:
    """What a target costs for the best that it was seen to deliver: information, never a verdict."""

    target: str
    currency: str
    per_gb_month: float
    metric: str
    case: str
    gb_s: float
    per_gb_s_month: float
    source: str


def costs(records: Iterable[Record]) -> list[Cost]:
    """Cost by partition and bandwidth metric, from records in the order in which they were made.

    Of each case the newest valid value counts, of each metric the best case; partitions without a price
    have none.
    """
    newest: dict[tuple[str, str], dict[str, tuple[float, Record, PriceRecord]]] = {}
    for record in records:
        price = record.price
        for metric in record.metrics if price else ():
            if metric.unit not in BANDWIDTH_UNITS or not metric.verdict.is_valid:
                continue
            if price is None or metric.median <= 0:
                continue
            bytes_s = convert(metric.median, metric.unit, "B/s")
            cases = newest.setdefault((record.partition, metric.name), {})
            cases[record.case] = (bytes_s, record, price)
    found = []
    for (_, name), cases in newest.items():
        bytes_s, record, price = max(cases.values(), key=lambda one: one[0])
        found.append(
            Cost(
                target=record.target_path,
                currency=price.currency,
                per_gb_month=price.per_gb_month,
                metric=name,
                case=record.short_name,
                gb_s=bytes_s / 1e9,
                per_gb_s_month=cost_per_gb_s_month(price.per_gb_month, price.capacity, bytes_s),
                source=price.source,
            )
        )
    return found


def cost_table(found: Sequence[Cost]) -> Table:
    """Costs as a table for a terminal; text from outside is escaped."""
    view = Table(title="What it costs", title_justify="left", pad_edge=False)
    for heading in (
        "target",
        "per GB and month",
        "for",
        "of",
        "GB/s",
        "per GB/s and month",
        "price",
    ):
        view.add_column(heading, overflow="fold")
    for cost in found:
        cells = (
            cost.target,
            f"{cost.per_gb_month:g} {cost.currency}",
            cost.metric,
            cost.case,
            format_value(cost.gb_s),
            f"{cost.per_gb_s_month:,.2f} {cost.currency}",
            cost.source,
        )
        view.add_row(*(escape(visible(cell)) for cell in cells))
    return view
