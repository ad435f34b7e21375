"""Draw bars and ratios as SVG: the probes of a needle, a metric on one line, layers, two sides.

They have the style and the axes of :mod:`iogauge_extras.page.charts`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final

from iogauge.core.text import count, visible
from iogauge.core.units import format_bytes, format_value, with_unit
from iogauge.core.untrusted import numbers
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord
from iogauge_extras.ceilings.table import Chain
from iogauge_extras.page.charts import TOP, WIDE, begin, bounds, tip_of
from iogauge_extras.page.sweeps import drawable

#: A layer is drawn to scale up to this multiple of the least.
_FAR: Final = 8.0

#: Height of a bar of a ranking, and the bars that are drawn: the slowest, and the fastest.
_BAR, _SLOWEST, _FASTEST = 17, 24, 8


def probes_of(metric: MetricRecord) -> dict[str, float]:
    """Return the rate of each target or node of a needle; empty for another metric."""
    probes = metric.probes if isinstance(metric.probes, Mapping) else {}
    return {str(name): rate[0] for name, value in probes.items() if (rate := numbers([value]))}


def ranking(title: str, metric: MetricRecord, named: Callable[[str], bool]) -> str:
    """Return the probes of a needle as ranked bars, the slowest first; ``named`` are the outliers.

    Of many, the slowest and the fastest are drawn, and all outliers.
    """
    ranked = sorted(probes_of(metric).items(), key=lambda probe: probe[1])
    hidden = len(ranked) - _SLOWEST - _FASTEST
    shown = ranked
    if hidden > 0:
        middle = [p for p in ranked[_SLOWEST:-_FASTEST] if named(p[0])]
        shown = [*ranked[:_SLOWEST], *middle, *ranked[-_FASTEST:]]
    high = TOP + _BAR * len(shown) + 24
    middle_value = float(metric.median)
    _, top = bounds([rate for _, rate in ranked], [middle_value])
    left, wide = 150, WIDE - 150 - 76
    parts = [begin(title, high)]
    for k, (name, rate) in enumerate(shown):
        y, share = TOP + k * _BAR, min(max(rate / top, 0), 1)
        slow = named(name)
        share_text = f"{rate / middle_value - 1:+.1%}" if middle_value else ""
        text = f"{name}: {with_unit(rate, metric.unit)}, {share_text} against the median"
        words = f"{name}{' ◀ slow' if slow else ''}"
        parts.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" class="name{" word" if slow else ""}">'
            f"{escape(visible(words[:22]))}</text>"
            f'<rect class="bar{" slow" if slow else ""}" x="{left}" y="{y + 2}" width="{wide * share:.1f}" '
            f'height="{_BAR - 4}">{tip_of(text)}</rect>'
            f'<text x="{WIDE - 8}" y="{y + 12}" text-anchor="end">{format_value(rate)}</text>'
        )
    at = left + wide * min(middle_value / top, 1)
    parts.append(
        f'<path class="reference" d="M{at:.1f} {TOP - 4}v{_BAR * len(shown) + 6}">{tip_of("median of all")}</path>'
        f'<text x="{at:.1f}" y="{TOP - 10}" text-anchor="middle">median {format_value(middle_value)} '
        f"{escape(visible(metric.unit))}</text>"
    )
    if len(shown) < len(ranked):
        parts.append(f'<text x="{left}" y="{high - 8}">{len(ranked) - len(shown)} more</text>')
    return "".join([*parts, "</svg>"])


def gauge(metric: MetricRecord) -> str:
    """Return one line: the samples, the median as a bar, the reference and the ceiling as marks."""
    reference, ceiling = drawable(metric), metric.ceiling
    known = [v for v in (reference.value if reference else None, ceiling) if v]
    if not known:
        return ""  # a bar would show a share of nothing
    # A value is drawn against what it is held against, whatever an outlier among the samples does.
    top = 1.06 * max([float(metric.median), *known])
    if not 0 < top < math.inf:
        return ""  # nothing to draw against
    wide, parts = 160, []

    def x(value: float) -> float:
        return 2 + (wide - 4) * min(max(value / top, 0), 1)

    words = [f"measured {with_unit(metric.median, metric.unit)}"]
    parts.append(f'<rect class="track" x="2" y="7" width="{wide - 4}" height="8"/>')
    if reference and reference.lower is not None:
        low = x(reference.value * (1 + reference.lower))
        high = x(reference.value * (1 + reference.upper)) if reference.upper is not None else wide
        if metric.better == "less":
            low, high = (2, high) if reference.upper is not None else (low, high)
        parts.append(
            f'<rect class="band" x="{low:.1f}" y="3" width="{max(high - low, 0):.1f}" height="16"/>'
        )
    kind = "bar slow" if metric.verdict is Verdict.FAIL else "bar"
    kind += "" if metric.verdict.is_valid else " off"
    parts.append(
        f'<rect class="{kind}" x="2" y="7" width="{x(metric.median) - 2:.1f}" height="8"/>'
    )
    for sample in numbers(metric.samples)[:40]:
        parts.append(f'<circle class="sample" cx="{x(sample):.1f}" cy="11" r="1.7"/>')
    if reference:
        words.append(f"reference {format_value(reference.value)}")
        parts.append(f'<path class="published" d="M{x(reference.value):.1f} 2v18"/>')
    if ceiling:
        words.append(f"ceiling {format_value(ceiling)}")
        parts.append(f'<path class="ceiling" d="M{x(ceiling):.1f} 1v20"/>')
    text = escape(visible(", ".join(words)))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog gauge" viewBox="0 0 {wide} 22" role="img" '
        f'aria-label="{text}">{"".join(parts)}</svg>'
    )


def layers(chain: Chain, partition: str) -> str:
    """Return the layers of a direction, from the devices up: declared, measured, and what was reached."""
    rows = [(row.name, row.declared, row.measured) for row in chain.rows]
    rows = [row for row in rows if row[1] or row[2]]
    if chain.reached:
        rows.append(("reached", None, chain.reached.bytes_s))
    values = [v for row in rows for v in row[1:] if v]
    # A layer that carries far more than the others would leave nothing of them to see.
    top = max((v for v in values if v <= _FAR * min(values)), default=0.0)
    left, wide, step = 226, WIDE - 226 - 30, 30
    high = TOP + step * len(rows) + 8
    parts = [begin(f"{partition}, {chain.direction}, {count(chain.nodes, 'node')}", high)]
    for nth, (name, declared, measured) in enumerate(rows):
        y = TOP + nth * step
        parts.append(f'<text x="136" y="{y + 17}" text-anchor="end">{name}</text>')
        if declared:
            parts.append(
                f'<rect class="track" x="{left}" y="{y + 4}" width="{wide * min(declared / top, 1):.1f}" height="18"/>'
            )
        if measured:
            width, kind = wide * min(measured / top, 1), "bar reach" if name == "reached" else "bar"
            tip = tip_of(f"{name}: measured {format_bytes(measured)}/s")
            parts.append(
                f'<rect class="{kind}" x="{left}" y="{y + 4}" width="{width:.1f}" height="18">{tip}</rect>'
            )
        if max(declared or 0, measured or 0) > top:
            parts.append(f'<path class="run" d="M{left + wide + 3} {y + 5}l12 8l-12 8z"/>')
        if declared and declared <= top:
            tip = tip_of(f"{name}: declared {format_bytes(declared)}/s")
            parts.append(
                f'<path class="ceiling" d="M{left + wide * declared / top:.1f} {y}v26">{tip}</path>'
            )
        words = [format_bytes(v) + "/s" for v in (measured or declared,) if v]
        parts.append(
            f'<text class="number" x="{left - 8}" y="{y + 17}" text-anchor="end">{"".join(words)}</text>'
        )
    return "".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Between:
    """A ratio of two sides with its interval; ``sure`` if the interval is over runs and excludes 1."""

    case: str
    metric: str
    ratio: float
    low: float
    high: float
    sure: bool


#: Ratios that an axis of ratios may name, from 1 on.
_RATIOS: Final = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0)


def ratios(title: str, rows: Sequence[Between]) -> str:
    """Return ratios with their intervals on a logarithmic axis, below their cases; 1 is no difference."""
    cases: dict[str, list[Between]] = {}
    for row in rows:
        cases.setdefault(row.case, []).append(row)
    step, left, wide = 20, 200, WIDE - 200 - 70
    depth = step * (len(rows) + len(cases))
    high = TOP + depth + 34
    ends = [v for row in rows for v in (row.ratio, row.low, row.high) if v > 0]
    reach = min(1.04 * max([1.06, *ends, *(1 / v for v in ends)]), 16.0)

    def x(value: float) -> float:
        share = (math.log(max(value, 1e-9)) / math.log(reach) + 1) / 2
        return left + wide * min(max(share, 0.0), 1.0)

    parts = [begin(title, high)]
    known = [mark for mark in _RATIOS if mark <= reach][-2:]
    for mark in (*(1 / mark for mark in reversed(known)), 1.0, *known):
        kind = "reference" if mark == 1 else "grid"
        parts.append(
            f'<path class="{kind}" d="M{x(mark):.1f} {TOP - 14}v{depth + 10}"/>'
            f'<text x="{x(mark):.1f}" y="{high - 14}" text-anchor="middle">{mark:.3g}</text>'
        )
    y = TOP - 2
    for case, mine in cases.items():
        label = case if len(case) < 74 else f"{case[:72]}…"
        parts.append(f'<text class="number" x="8" y="{y + 4}">{escape(visible(label))}</text>')
        for row in mine:
            y += step
            tip = tip_of(
                f"{row.case} {row.metric}: B / A = {row.ratio:.3f} (95 %: {row.low:.3f} to {row.high:.3f})"
            )
            parts.append(
                f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(visible(row.metric[:26]))}</text>'
                f'<circle class="run{"" if row.sure else " off"}" cx="{x(row.ratio):.1f}" cy="{y}" r="4.5">{tip}</circle>'
                f'<path class="part" d="M{x(row.low):.1f} {y}H{x(row.high):.1f}M{x(row.low):.1f} {y - 4}v8M{x(row.high):.1f} {y - 4}v8"/>'
                f'<text x="{WIDE - 8}" y="{y + 4}" text-anchor="end">{row.ratio:.3f}</text>'
            )
        y += step
    return "".join([*parts, "</svg>"])
