"""Draw rows as SVG: the probes of a needle, layers, partitions side by side, two sides, all scenarios; and maps of cells.

Each figure of rows is a list of :class:`Bar` on one horizontal axis. It has the style of :mod:`iogauge_extras.page.charts`.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from html import escape
from itertools import groupby
from typing import TYPE_CHECKING, Final, NamedTuple

from iogauge.core.paths import project_root
from iogauge.core.text import count, visible
from iogauge.core.units import UnitError, convert, format_bytes, format_value, with_unit
from iogauge.core.untrusted import numbers
from iogauge.judge.verdict import Verdict
from iogauge.records.record import LAYER_CHECKS, MetricRecord, Record
from iogauge.site import folders
from iogauge.site.reference_notes import PUBLISHED
from iogauge.site.references import References, leaves
from iogauge_extras.ceilings.table import Chain
from iogauge_extras.page.charts import (
    TOP,
    WIDE,
    Axis,
    bounds,
    figure,
    linked,
    mark,
    word,
)
from iogauge_extras.page.sweeps import (
    Dot,
    Plot,
    Trace,
    drawable,
    held_of,
    label_of,
    spaced,
)

if TYPE_CHECKING:
    from iogauge_extras.compare.sides import Ratio

#: A layer is drawn to scale up to this multiple of the least.
_FAR: Final = 8.0

#: The bars of a ranking that are drawn: the slowest, and the fastest.
_SLOWEST, _FASTEST = 24, 8

#: Height of a row and of a label above it, and where bars begin and end.
_STEP, _ABOVE, _LEFT, _END = 22, 19, 158, 84

#: Width of a gauge.
_GAUGE: Final = 160

#: Characters of a label that fit beside its bar, and above it.
_BESIDE, _LONGEST = 14, 60


@dataclass(frozen=True, slots=True)
class Bar:
    """A row: its label, the bar up to ``value``, the text at its end, and a tooltip.

    ``heading`` is a line above it. ``marks`` are classes of lines across the row, at their values, with a tooltip each.
    ``interval`` is drawn as a line, around a dot of the class ``kind``.
    """

    label: str
    value: float | None = None
    text: str = ""
    tip: str = ""
    kind: str = ""
    heading: str = ""
    marks: Sequence[tuple[str, float, str]] = ()
    dots: Sequence[float] = ()
    track: float | None = None
    band: tuple[float, float] | None = None
    interval: tuple[float, float] | None = None
    link: str = ""


def rows(
    title: str,
    bars: Sequence[Bar],
    low: float,
    high: float,
    ticks: Mapping[float, str] | None = None,
) -> str:
    """Return bars as a figure, with grid lines at ``ticks``. Long labels stand above their bars.

    The axis is logarithmic if it begins above 0.
    """
    above = any(len(bar.label) > _BESIDE for bar in bars)
    axis = Axis(low, high, 24 if above else _LEFT, WIDE - _END, low > 0)
    parts, y = [], TOP - 14
    for bar in bars:
        name = f"name {bar.kind}".replace(" slow", " word")
        if bar.heading:
            parts.append(word(8, y + 14, bar.heading[:_LONGEST], "number"))
            y += _ABOVE
        if above:
            parts.append(word(24, y + 14, bar.label[:_LONGEST], name))
            y += _ABOVE
        else:
            parts.append(word(_LEFT - 8, y + 15, bar.label, name, "end"))
        parts += _row(bar, axis, y)
        y += _STEP
    grid = []
    for value, words in (ticks or {}).items():
        at = axis.at(value)
        grid.append(mark("path", "grid", d=f"M{at:.1f} {TOP - 14}V{y + 2}"))
        grid.append(word(at, y + 18, words, anchor="middle"))
    return figure(title, [*grid, *parts], y + (26 if ticks else 8))


def _row(bar: Bar, axis: Axis, y: int, thick: int = 14) -> Iterator[str]:
    left, x, middle = axis.start, axis.at, y + 11
    top = middle - thick // 2
    if bar.track:
        yield mark(
            "rect",
            "track",
            x=left,
            y=top - 1,
            width=x(bar.track) - left,
            height=thick + 2,
        )
    if bar.band:
        low, high = map(x, bar.band)
        yield mark("rect", "band", x=low, y=y + 2, width=high - low, height=18)
    if bar.interval and bar.value is not None:
        low, high = map(x, bar.interval)
        ends = f"M{low:.1f} {y + 7}v8M{high:.1f} {y + 7}v8"
        yield mark("path", "part", d=f"M{low:.1f} {middle}H{high:.1f}{ends}")
        yield mark(
            "circle", f"run {bar.kind}", bar.tip, cx=x(bar.value), cy=middle, r=4.5
        )
    elif bar.value is not None:
        width = max(x(bar.value) - left, 1.0)
        shape = mark(
            "rect", f"bar {bar.kind}", bar.tip, x=left, y=top, width=width, height=thick
        )
        yield linked(shape, bar.link, bar.tip)
        if bar.value > axis.high:
            yield mark("path", "run", d=f"M{x(axis.high) + 3:.1f} {y + 5}l10 6l-10 6z")
    for dot in bar.dots:
        if not axis.beyond(dot):
            yield mark("circle", "sample", cx=x(dot), cy=middle, r=1.8)
    for kind, value, tip in bar.marks:
        if not axis.beyond(value):
            yield mark("path", kind, tip, d=f"M{x(value):.1f} {y}v{_STEP}")
    if bar.text:
        yield word(WIDE - 8, y + 15, bar.text, "number", "end")


def probes_of(metric: MetricRecord) -> dict[str, float]:
    """Return the rate of each target or node of a needle; empty for another metric."""
    probes = metric.probes if isinstance(metric.probes, Mapping) else {}
    return {
        str(name): rate[0]
        for name, value in probes.items()
        if (rate := numbers([value]))
    }


def ranking(title: str, metric: MetricRecord, outliers: Collection[str]) -> str:
    """Return the probes of a needle as ranked bars, the slowest first.

    Of many, the slowest and the fastest are drawn, and all outliers.
    """
    ranked = sorted(probes_of(metric).items(), key=lambda probe: probe[1])
    shown = ranked
    if len(ranked) > _SLOWEST + _FASTEST:
        between = [
            probe for probe in ranked[_SLOWEST:-_FASTEST] if probe[0] in outliers
        ]
        shown = [*ranked[:_SLOWEST], *between, *ranked[-_FASTEST:]]
    middle = float(metric.median)
    _, top = bounds([rate for _, rate in ranked], [middle])
    marks = [("reference", middle, "median of all")]

    def bar(name: str, rate: float) -> Bar:
        label, kind = (f"{name} ◀ slow", "slow") if name in outliers else (name, "")
        against = f", {rate / middle - 1:+.1%} against the median" if middle else ""
        tip = f"{name}: {with_unit(rate, metric.unit)}{against}"
        return Bar(label[:22], rate, format_value(rate), tip, kind, marks=marks)

    more = f", and {len(ranked) - len(shown)} more" if len(shown) < len(ranked) else ""
    ticks = {middle: f"median {with_unit(middle, metric.unit)}{more}"}
    return rows(title, [bar(*probe) for probe in shown], 0.0, top, ticks)


def gauge(metric: MetricRecord) -> str:
    """Return one line: the samples, the median as a bar, the reference and the ceiling as marks."""
    reference = drawable(metric)
    held = {
        "reference": reference.value if reference else None,
        "ceiling": metric.ceiling,
    }
    known = {name: float(value) for name, value in held.items() if value}
    # A value is drawn against what it is held against, whatever an outlier among the samples does.
    top = 1.06 * max([float(metric.median), *known.values()])
    if not known or not 0 < top < math.inf:
        return ""  # nothing to draw against: a bar would show a share of nothing
    axis = Axis(0.0, top, 2, _GAUGE - 2)
    band = None
    if reference and (reference.least or reference.most):
        less = metric.better == "less" and reference.most
        band = (0.0 if less else reference.least or 0.0, reference.most or top)
    kind = "slow" * (metric.verdict is Verdict.FAIL) + " off" * (
        not metric.verdict.is_valid
    )
    lines = [
        (n.replace("reference", "published"), value, "") for n, value in known.items()
    ]
    dots = numbers(metric.samples)[:40]
    bar = Bar("", float(metric.median), "", "", kind, "", lines, dots, top, band)
    words = [f"measured {with_unit(metric.median, metric.unit)}"]
    words += [f"{name} {format_value(value)}" for name, value in known.items()]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog gauge" viewBox="0 0 {_GAUGE} {_STEP}" role="img" '
        f'aria-label="{escape(visible(", ".join(words)))}">{"".join(_row(bar, axis, 0, 6))}</svg>'
    )


def layers(chain: Chain, partition: str) -> str:
    """Return the layers of a direction, from the devices up: declared, measured, and what was reached."""
    known = [(row.name, row.declared, row.measured) for row in chain.rows]
    known = [row for row in known if row[1] or row[2]]
    reached = "reach"
    if chain.reached:
        known.append(("reached", None, chain.reached.bytes_s))
        best = chain.reached.record
        reached = "slow" if best and best.verdict is Verdict.FAIL else "reach"
    values = [v for row in known for v in row[1:] if v]
    # A layer that carries far more than the others would leave nothing of them to see.
    top = max((v for v in values if v <= _FAR * min(values)), default=1.0)

    def bar(name: str, declared: float | None, measured: float | None) -> Bar:
        value = measured or (declared if declared and declared > top else None)
        text = f"{format_bytes(measured or declared or 0)}/s"
        said = f"{name}: declared {format_bytes(declared)}/s" if declared else ""
        tip = f"{name}: measured {format_bytes(measured)}/s" if measured else said
        marks = [("ceiling", declared, said)] if declared else []
        kind = reached if name == "reached" else ""
        return Bar(name, value, text, tip, kind, marks=marks, track=declared)

    title = f"{partition}, {chain.direction}, {count(chain.nodes, 'node')}"
    return rows(title, [bar(*row) for row in known], 0.0, top)


def beside(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return the curves of a plot that has one value of the parameter as bars, one below the other."""

    def bar(nth: int, trace: Trace, dot: Dot) -> Bar:
        kind = f"c{nth}" + " off" * (not dot.metric.verdict.is_valid)
        marks = (
            [("published", dot.reference.value, held_of(dot))] if dot.reference else []
        )
        tip, link = label_of(trace.name, dot), anchor(dot)
        text = format_value(dot.value)
        return Bar(
            trace.name,
            dot.value,
            text,
            tip,
            kind,
            marks=marks,
            dots=dot.samples,
            link=link,
        )

    found = [
        bar(nth, one, dot) for nth, one in enumerate(plot.traces) for dot in one.dots
    ]
    values = [
        v for bar in found for v in (bar.value or 0.0, *(mark[1] for mark in bar.marks))
    ]
    words = [plot.title, plot.shown_unit, f"{plot.x_name} {spaced(plot.dots[0].text)}"]
    mark = "; mark: reference" if any(bar.marks for bar in found) else ""
    title = ": ".join(filter(None, words)) + mark
    return rows(title, found, 0.0, 1.08 * max(values))


#: Ratios that an axis of ratios may name, from 1 on.
_RATIOS: Final = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0)


def ratios(title: str, found: Sequence[Ratio]) -> str:
    """Return ratios with their intervals on a logarithmic axis, below their cases; 1 is no difference."""
    ends = [v for row in found for v in (row.ratio, row.low, row.high) if v]
    reach = min(1.04 * max([1.06, *ends, *(1 / v for v in ends)]), 16.0)
    drawn = []
    for case, mine in groupby(found, key=lambda row: row.case):
        for nth, row in enumerate(mine):
            low, high = row.low or row.ratio, row.high or row.ratio
            tip = f"{row.case} {row.metric}: B / A = {row.ratio:.3f} (95 %: {low:.3f} to {high:.3f})"
            kind, heading = (
                "" if row.mark in ("better", "worse") else "off",
                case if nth == 0 else "",
            )
            marks = [("reference", 1.0, "no difference")]
            bar = Bar(
                row.metric[:_BESIDE],
                row.ratio,
                f"{row.ratio:.3f}",
                tip,
                kind,
                heading,
                marks,
            )
            drawn.append(replace(bar, interval=(low, high)))
    known = [mark for mark in _RATIOS if mark <= reach][-2:]
    ticks = {
        v: f"{v:.3g}" for v in (*(1 / mark for mark in reversed(known)), 1.0, *known)
    }
    return rows(title, drawn, 1 / reach, reach, ticks)


#: Units that an overview has an axis for, each with what is drawn on it.
_OVERVIEWS: Final = ("MiB/s", "ops/s")


class Published(NamedTuple):
    """The best value of a metric that a document prints of a system."""

    value: float
    unit: str
    system: str
    check: str
    metric: str


def _published() -> list[Published]:
    """Return the best value of each metric and check that the sites of the project mark as published."""
    best: dict[tuple[str, str, str], Published] = {}
    for site in folders.site_folders(project_root() / "site-configs"):
        references = References.of_site(site.name)
        for check in (
            references.data.get(PUBLISHED, ()) if not references.mistakes else ()
        ):
            for _, metric, (value, *_, unit) in leaves(check, references.data[check]):
                one = Published(value, unit, site.name, check, metric)
                best[one[2:]] = max(one, best.get(one[2:], one))
    return list(best.values())


def overviews(
    records: Iterable[Record], anchor: Callable[[Record], str]
) -> Iterator[str]:
    """Yield a figure for each kind of rate: the best case of each check, beside published systems."""
    best: dict[tuple[str, ...], tuple[float, MetricRecord, Record]] = {}
    for record in records:
        for metric in record.metrics if record.check not in LAYER_CHECKS else ():
            for unit in (
                _OVERVIEWS if metric.verdict.is_valid and metric.median > 0 else ()
            ):
                with contextlib.suppress(UnitError):
                    value = convert(float(metric.median), metric.unit, unit)
                    key = (unit, record.where, record.check, metric.name)
                    if key not in best or value > best[key][0]:
                        best[key] = (value, metric, record)
    others = _published()
    for unit in _OVERVIEWS:
        mine = {key[1:]: one for key, one in best.items() if key[0] == unit}
        if not mine:
            continue
        several = len({place for place, *_ in mine}) > 1
        found = []
        for (place, check, name), (value, metric, record) in mine.items():
            label = f"{f'{place} ' if several else ''}{check} {name}"
            kind = "slow" if metric.verdict is Verdict.FAIL else ""
            told = f"{with_unit(metric.median, metric.unit)}, {metric.verdict.value}"
            tip, link = f"{record.short_name} {name}: {told}", anchor(record)
            found.append(Bar(label, value, format_value(value), tip, kind, link=link))
        names = {name for *_, name in mine} - {""}
        systems = {record.system for *_, record in mine.values()}
        fitting = [p for p in others if p.unit == unit and p.metric in names]
        for one in (p for p in fitting if p.system not in systems):
            name = f"{one.system} {one.check} {one.metric}"
            tip = f"published: {name}: {with_unit(one.value, one.unit)}"
            heading = "Published systems" if len(found) == len(mine) else ""
            found.append(
                Bar(name, one.value, format_value(one.value), tip, "off", heading)
            )
        values = [bar.value or 1.0 for bar in found]
        low, high = min(values) / 2, max(values) * 2
        first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
        ticks = {10.0**n: f"{10.0**n:,.10g}" for n in range(first, last + 1)}
        yield rows(
            f"Best case of each check, {unit}, logarithmic", found, low, high, ticks
        )


#: Rows and columns that are drawn: those with the slowest cells.
_CELLS: Final = 48
_NAMES, _HIGH, _CHARACTER = 100, 18, 8

Cells = Mapping[tuple[str, str], float]


def maps(records: Sequence[Record]) -> Iterator[tuple[str, str, str, Cells, Record]]:
    """Yield title, metric, unit, cells and newest record of each map: pairs of nodes, and targets from several nodes."""
    found: dict[str, tuple[str, str, dict[tuple[str, str], float], Record]] = {}
    for record in sorted(records, key=lambda one: one.time):
        host = str(record.fingerprint.get("nodes", ""))
        for metric in record.metrics:
            title = f"{record.check} {metric.name} on {record.where}"
            for name, rate in probes_of(metric).items():
                sender, to, receiver = name.partition(" to ")
                place = (sender, receiver) if to else (host, name)
                before = found.get(title, ("", "", {}, record))[2]
                found[title] = metric.name, metric.unit, before | {place: rate}, record
    for title, (metric_name, unit, cells, record) in found.items():
        if (
            len({row for row, _ in cells}) > 1
            and len({column for _, column in cells}) > 1
        ):
            yield title, metric_name, unit, cells, record


def cells_map(title: str, unit: str, cells: Cells, named: Collection[str]) -> str:
    """Return the map: the darker a cell, the slower beside the median of the faster half; ``named`` rows or columns are red."""
    middle = statistics.median(sorted(cells.values())[len(cells) // 2 :])
    rows, columns = (_slowest(cells, side) for side in (0, 1))
    width = (WIDE - _NAMES - 16) / len(columns)
    parts = []
    for nth, row in enumerate(rows):
        y = TOP + _HIGH * nth
        parts.append(word(_NAMES - 6, y + 13, row[-12:], "number", "end"))
        for at, column in enumerate(columns):
            if (rate := cells.get((row, column))) is not None:
                share = rate / middle if middle else 1.0
                kind = "cell slow" if {row, column} & {*named} and share < 1 else "cell"
                strength = {"fill-opacity": round(max(0.1, min(1.0, 1.1 - share)), 2)}
                tip = f"{row}, {column}: {with_unit(rate, unit)}, {share:.0%} of the faster half's median"
                place = {
                    "x": _NAMES + at * width,
                    "y": y,
                    "width": width - 1,
                    "height": _HIGH - 1,
                }
                parts.append(mark("rect", kind, tip, **place, **strength))
    room = max(1, int(len(max(columns, key=len)) * _CHARACTER / width) + 1)
    for at in range(0, len(columns), room):
        parts.append(word(_NAMES + at * width, TOP - 6, columns[at]))
    return figure(title, parts, TOP + _HIGH * len(rows) + 8)


def _slowest(cells: Cells, side: int) -> list[str]:
    """Return the names of a side by name, of many those with the slowest cells."""
    least: dict[str, float] = {}
    for place, rate in cells.items():
        least[place[side]] = min(rate, least.get(place[side], rate))
    return sorted(sorted(least, key=lambda name: least[name])[:_CELLS])
