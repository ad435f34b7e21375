"""Draw what one look must show beside the runs: curves over a parameter, ranked bars, gauges, ratios.

All use the axes and colours of :mod:`iogauge.alarm.figure`. Each trace has a colour, a dash and a
shape of its own, so that it is told from the others without colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from html import escape
from typing import Final

from iogauge.alarm import figure
from iogauge.alarm.figure import BOTTOM, HIGH, LEFT, RIGHT, TOP, WIDE, Ordinate, begin, short
from iogauge.alarm.sweeps import Dot, Plot, Trace, drawable
from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.core.untrusted import numbers
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord

STYLE: Final = """
.iog .trace{fill:none;stroke-width:2}
.iog .dot{stroke-width:1.6}
.iog .dot.off{fill:var(--paper)!important}
.iog .bad{stroke:var(--bad);stroke-width:2.6}
.iog .ideal{fill:none;stroke:var(--dim);stroke-dasharray:1 4;stroke-width:1.6;stroke-linecap:round}
.iog .published{fill:none;stroke:var(--ink);stroke-width:1.6}
.iog .sample{fill:var(--ink);fill-opacity:.45}
.iog .bar{fill:var(--line);fill-opacity:.55}
.iog .bar.slow{fill:var(--bad);fill-opacity:1}
.iog .axis{stroke:var(--dim)}
.iog .part{stroke:var(--line);stroke-width:2.2}
.iog .track{fill:var(--grid);fill-opacity:.55}
""" + "".join(
    f".iog .c{n}{{stroke:var(--t{n});fill:var(--t{n})}}.iog .trace.c{n}{{fill:none;stroke-dasharray:{dash}}}\n"
    for n, dash in enumerate(("none", "8 3", "3 3", "10 3 2 3", "5 2 1 2", "14 4"))
)

#: Shapes of the dots of each trace around a middle at 0.
_SHAPES: Final = (
    "M-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0z",
    "M-4 -4h8v8h-8z",
    "M0 -5l5 9h-10z",
    "M0 5l5 -9h-10z",
    "M0 -5.5l5 5.5l-5 5.5l-5 -5.5z",
    "M-5 -1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
)

#: A horizontal axis is logarithmic for sizes, and if its values differ by more than this factor.
_LOGARITHMIC: Final = 40.0

#: Height of a line of a legend, and of a bar of a ranking.
_LINE, _BAR = 18, 17

#: Bars of a ranking that are drawn: the slowest, and the fastest.
_SLOWEST, _FASTEST = 24, 8


def _tip(text: str) -> str:
    return f"<title>{escape(visible(text))}</title>"


def sweep(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return curves over a parameter, with the ideal line, published points and the ceiling.

    ``anchor`` returns where the record of a dot is on the page.
    """
    dots = plot.dots
    sizes = any(not dot.text.replace(".", "").isdigit() for dot in dots)
    x = _horizontal(sorted({dot.x for dot in dots}), sizes)
    values = [v for dot in dots for v in (*dot.samples, dot.value) if v > 0]
    references = [dot.reference.value for dot in dots if dot.reference]
    usual = [dot.value for dot in dots if dot.metric.verdict.is_valid] or values
    _, top = figure.bounds(usual, references)
    near = [value for value in plot.ceilings if value < 1.6 * top]
    scale = Ordinate(0.0, max([top, *(1.06 * value for value in near)]))
    legend = list(_legend(plot))
    high = HIGH + _LINE * ((len(legend) + 1) // 2) + 12
    base = HIGH - BOTTOM
    unit = "" if plot.unit == "1" else plot.unit
    words = ": ".join(word for word in (plot.title, unit) if word)
    parts = [begin(f"{words} over {plot.x_name}", high, role="group"), *scale.grid(unit)]
    for value, text in plot.ceilings.items():
        parts += scale.line("ceiling", value, f"ceiling {format_value(value)} {plot.unit}: {text}")
    for dot in {dot.x: dot for dot in dots}.values():
        parts.append(
            f'<path class="axis" d="M{x(dot.x):.1f} {base}v5"/>'
            f'<text x="{x(dot.x):.1f}" y="{base + 18}" text-anchor="middle">{escape(visible(dot.text))}</text>'
        )
    parts += _ideals(plot, x, scale)
    for number, trace in enumerate(plot.traces):
        parts += _trace(trace, number, x, scale, anchor)
    for k, entry in enumerate(legend):
        place = f"translate({LEFT + (k % 2) * 290} {HIGH + 10 + _LINE * (k // 2)})"
        parts.append(f'<g transform="{place}">{entry}</g>')
    parts.append(f'<text x="{WIDE - RIGHT}" y="{base - 6}" text-anchor="end">{plot.x_name}</text>')
    return "".join([*parts, "</svg>"])


def _horizontal(values: Sequence[float], sizes: bool) -> Callable[[float], float]:
    """Return where values of the parameter lie on the horizontal axis."""
    first, last = values[0], values[-1]
    logarithmic = first > 0 and (sizes or last / first > _LOGARITHMIC)
    position = math.log if logarithmic else float
    low, high = position(first), position(last)
    wide = WIDE - LEFT - RIGHT - 60

    def x(value: float) -> float:
        return LEFT + 30 + wide * (position(value) - low) / (high - low)

    return x


def _ideals(plot: Plot, x: Callable[[float], float], scale: Ordinate) -> Iterator[str]:
    """Yield, for each curve of a proportional parameter, the line from zero through its first
    dot.
    """
    for trace in plot.traces if plot.proportional else ():
        first, last = trace.dots[0], trace.dots[-1]
        slope = first.value / first.x if first.x > 0 else 0.0
        end = min(last.x, scale.top / slope) if slope > 0 else first.x
        if end <= first.x:
            continue
        at = [first.x + (end - first.x) * k / 24 for k in range(25)]
        line = " ".join(f"{x(value):.1f},{scale.y(slope * value):.1f}" for value in at)
        yield f'<polyline class="ideal" points="{line}">{_tip(f"ideal for {trace.name}")}</polyline>'


def _trace(
    trace: Trace,
    number: int,
    x: Callable[[float], float],
    scale: Ordinate,
    anchor: Callable[[Dot], str],
) -> Iterator[str]:
    """Yield a curve, its samples, its published points, and its dots as links to their records."""
    line = " ".join(f"{x(dot.x):.1f},{scale.y(dot.value):.1f}" for dot in trace.dots)
    yield f'<polyline class="trace c{number}" points="{line}"/>'
    for dot in trace.dots:
        at, metric = x(dot.x), dot.metric
        for sample in dot.samples:
            if not scale.beyond(sample):
                yield f'<circle class="sample" cx="{at:.1f}" cy="{scale.y(sample):.1f}" r="1.7"/>'
        if reference := dot.reference:
            label = f"reference {format_value(reference.value)} {metric.unit}: {reference.source}"
            yield (
                f'<path class="published" d="M{at - 9:.1f} {scale.y(reference.value):.1f}h18">'
                f"{_tip(label)}</path>"
            )
        label = (
            f"{trace.name} at {dot.text}: {format_value(dot.value)} {metric.unit}, n = {len(dot.samples)}, "
            f"{metric.verdict.value}, {dot.record.time[:16]}, {dot.record.session}"
        )
        kind = f"c{number}" + (" bad" if metric.verdict is Verdict.FAIL else "")
        kind += "" if metric.verdict.is_valid else " off"
        link = f'<a href="#{anchor(dot)}" aria-label="{escape(visible(label))}">'
        if beyond := scale.beyond(dot.value):
            mark = figure.arrow(at, scale.y(dot.value), beyond > 0, kind, f"beyond: {label}")
        else:
            place = f"translate({at:.1f} {scale.y(dot.value):.1f})"
            shape = _SHAPES[number]
            mark = f'<path class="dot {kind}" transform="{place}" d="{shape}">{_tip(label)}</path>'
        yield f"{link}{mark}</a>"


def _legend(plot: Plot) -> Iterator[str]:
    """Yield the entries of a legend, each with its origin at 0."""
    for number, trace in enumerate(plot.traces):
        name = trace.name if len(trace.name) < 42 else trace.name[:40] + "…"
        yield (
            f'<path class="trace c{number}" d="M0 0h26"/><path class="dot c{number}" transform="translate(13 0)" '
            f'd="{_SHAPES[number]}"/><text x="34" y="4">{escape(visible(name))}</text>'
        )
    if plot.proportional:
        yield '<path class="ideal" d="M0 0h26"/><text x="34" y="4">proportional to the first point</text>'
    if any(dot.reference for dot in plot.dots):
        yield '<path class="published" d="M4 0h18"/><text x="34" y="4">reference</text>'
    for value, text in plot.ceilings.items():
        words = f"ceiling {short(round(value))} {plot.unit}" + (
            f": {text}" if len(text) < 24 else ""
        )
        yield f'<path class="ceiling" d="M0 0h26"/><text x="34" y="4">{escape(visible(words))}</text>'
    if any(not dot.metric.verdict.is_valid for dot in plot.dots):
        yield '<path class="dot off c5" d="M9 -4h8v8h-8z"/><text x="34" y="4">hollow: not valid</text>'


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
    _, top = figure.bounds([rate for _, rate in ranked], [middle_value])
    left, wide = 150, WIDE - 150 - 96
    parts = [begin(title, high)]
    for k, (name, rate) in enumerate(shown):
        y, share = TOP + k * _BAR, min(max(rate / top, 0), 1)
        slow = named(name)
        share_text = f"{rate / middle_value - 1:+.1%}" if middle_value else ""
        text = f"{name}: {format_value(rate)} {metric.unit}, {share_text} against the median"
        words = f"{name}{' ◀ slow' if slow else ''}"
        parts.append(
            f'<text x="{left - 8}" y="{y + 12}" text-anchor="end" class="name{" word" if slow else ""}">'
            f"{escape(visible(words[:22]))}</text>"
            f'<rect class="bar{" slow" if slow else ""}" x="{left}" y="{y + 2}" width="{wide * share:.1f}" '
            f'height="{_BAR - 4}">{_tip(text)}</rect>'
            f'<text x="{left + wide * share + 6:.1f}" y="{y + 12}">{format_value(rate)}</text>'
        )
    at = left + wide * min(middle_value / top, 1)
    parts.append(
        f'<path class="reference" d="M{at:.1f} {TOP - 4}v{_BAR * len(shown) + 6}">{_tip("median of all")}</path>'
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
    # A value is drawn against what it is held against, whatever an outlier among the samples does.
    top = 1.06 * max([float(metric.median), *known])
    if not 0 < top < math.inf:
        return ""  # nothing to draw against
    wide, parts = 160, []

    def x(value: float) -> float:
        return 2 + (wide - 4) * min(max(value / top, 0), 1)

    words = [f"measured {format_value(metric.median)} {metric.unit}"]
    parts.append(f'<rect class="track" x="2" y="7" width="{wide - 4}" height="8"/>')
    if reference and reference.lower is not None:
        low = x(reference.value * (1 + reference.lower))
        high = x(reference.value * (1 + reference.upper)) if reference.upper is not None else wide
        if metric.better == "less":
            low, high = (2, high) if reference.upper is not None else (low, high)
        parts.append(
            f'<rect class="band" x="{low:.1f}" y="3" width="{max(high - low, 0):.1f}" height="16"/>'
        )
    kind = "bar" if metric.verdict is not Verdict.FAIL else "bar slow"
    parts.append(
        f'<rect class="{kind}" x="2" y="7" width="{x(metric.median) - 2:.1f}" height="8"/>'
    )
    for sample in numbers(metric.samples)[:40]:
        parts.append(f'<circle class="sample" cx="{x(sample):.1f}" cy="11" r="1.8"/>')
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


def ratios(title: str, rows: Mapping[str, tuple[float, float, float, bool]]) -> str:
    """Return ratios with their intervals on a logarithmic axis, by name; 1 is no difference.

    A row is ratio, lower and upper end, and whether the interval excludes 1.
    """
    high = TOP + 22 * len(rows) + 26
    ends = [v for row in rows.values() for v in row[:3] if v > 0]
    reach = min(max([1.25, *ends, *(1 / v for v in ends)]), 16.0)
    left, wide = 276, WIDE - 276 - 70

    def x(value: float) -> float:
        share = (math.log(max(value, 1e-9)) / math.log(reach) + 1) / 2
        return left + wide * min(max(share, 0.0), 1.0)

    parts = [begin(title, high)]
    marks = [1 / reach, 1 / math.sqrt(reach), 1.0, math.sqrt(reach), reach]
    for mark in marks:
        kind = "reference" if mark == 1 else "grid"
        parts.append(
            f'<path class="{kind}" d="M{x(mark):.1f} {TOP - 8}v{22 * len(rows) + 10}"/>'
            f'<text x="{x(mark):.1f}" y="{high - 8}" text-anchor="middle">{mark:.3g}</text>'
        )
    for k, (name, (ratio, low, upper, sure)) in enumerate(rows.items()):
        y = TOP + 22 * k + 6
        label = name if len(name) < 36 else f"{name[:17]}…{name[-17:]}"
        tip = _tip(f"{name}: B / A = {ratio:.3f} (95 %: {low:.3f} to {upper:.3f})")
        fill = "" if sure else " off"
        parts.append(
            f'<text x="{left - 10}" y="{y + 4}" text-anchor="end">{escape(visible(label))}</text>'
            f'<path class="part" d="M{x(low):.1f} {y}H{x(upper):.1f}"/>'
            f'<circle class="run{fill}" cx="{x(ratio):.1f}" cy="{y}" r="4.5">{tip}</circle>'
            f'<text x="{WIDE - 8}" y="{y + 4}" text-anchor="end">{ratio:.3f}</text>'
        )
    return "".join([*parts, "</svg>"])
