"""Show what a session found: one row a metric, and a table of prices."""

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
    """One line of the table; everything but the verdict is text."""

    scenario: str
    target: str
    metric: str
    measured: str
    reference: str
    ceiling: str
    verdict: Verdict
    reason: str


def plain(text: str) -> str:
    """Return text from outside for a rich console; its markup and control characters do nothing."""
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
    """Return the rows of a session's records; a case without metrics has one row."""
    lines: list[Row] = []
    for record in records:
        name = visible(record.short_name)
        target = record.target_path
        if not record.metrics:
            reason = visible(record.reason)
            lines.append(Row(name, target, "-", "-", "-", "-", record.verdict, reason))
        for metric in record.metrics:
            reference = metric.reference
            spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
            bound = ""
            if reference:
                lower = f" {reference.lower:+.0%}" if reference.lower else ""
                bound = format_value(reference.value) + lower
            lines.append(
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
        lines += _not_computed(record, name, target)
    return lines


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
        lines.append(Row(name, target, finding.metric, "-", "-", "-", verdict, reason))
    return lines


def table(lines: Sequence[Row], title: str) -> Table:
    """Return the rows as a table for a terminal; escapes text from outside."""
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
    for line in lines:
        style = _STYLE[line.verdict]
        same = line.scenario == last
        last = line.scenario
        view.add_row(
            "" if same else plain(line.scenario),
            "" if same else plain(line.target),
            plain(line.metric),
            plain(line.measured),
            plain(line.reference),
            plain(line.ceiling),
            f"[{style}]{line.verdict.value}[/]",
            plain(line.reason),
        )
    return view


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


def costs(records: Iterable[Record]) -> list[BandwidthPrice]:
    """Return the prices by partition and bandwidth metric.

    ``records`` come in the order in which they were made. The newest valid value of each case
    counts, and for each metric the best case. Partitions without a price are left out.
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
    prices = []
    for (_, name), cases in newest.items():
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
            )
        )
    return prices


def cost_table(prices: Sequence[BandwidthPrice]) -> Table:
    """Return the prices as a table for a terminal; escapes text from outside."""
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
    for price in prices:
        cells = (
            price.target,
            f"{price.per_gb_month:g} {price.currency}",
            price.metric,
            price.case,
            format_value(price.gb_s),
            f"{price.per_gb_s_month:,.2f} {price.currency}",
            price.source,
        )
        view.add_row(*(escape(visible(cell)) for cell in cells))
    return view
