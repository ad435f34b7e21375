"""Draw rows as SVG: the probes of a needle, partitions side by side, two sides, all scenarios; and maps of cells.

Each figure of rows is a list of :class:`Bar` on one horizontal axis. It has the style of :mod:`iogauge_extras.page.charts`.
"""

from __future__ import annotations

import contextlib
import math
import statistics
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Final, NamedTuple

from iogauge.core.paths import project_root
from iogauge.core.text import visible
from iogauge.core.units import UnitError, convert, format_value, with_unit
from iogauge.core.untrusted import numbers
from iogauge.judge.verdict import Verdict
from iogauge.records.record import LAYER_CHECKS, MetricRecord, Record
from iogauge.site import folders
from iogauge.site.reference_notes import PUBLISHED
from iogauge.site.references import References, leaves
from iogauge_extras.page.charts import (
    Axis,
    across,
    bounds,
    figure,
    linked,
    mark,
    symbol,
    upright,
    word,
)
from iogauge_extras.page.sweeps import Dot, Plot, drawable, held_of, label_of, spaced

if TYPE_CHECKING:
    from iogauge_extras.compare.sides import Ratio

#: The bars of a ranking that are drawn: the slowest, and the fastest.
_SLOWEST, _FASTEST = 24, 8

#: Height of a row and of a label above it; pixels beside the bars for labels and for texts.
_STEP, _ABOVE, _LABELS, _TEXTS = 22, 19, 130, 84

#: Characters of a label that fit beside its bar, and above it on a narrow screen.
_BESIDE, _LONGEST = 14, 42


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A row of a figure."""

    label: str = ""
    #: A line above the label.
    heading: str = ""
    #: Where the bar ends; None draws none.
    value: float | None = None
    #: Text at the right end.
    text: str = ""
    tip: str = ""
    #: Classes of the bar: ``slow``, ``off``.
    kind: str = ""
    #: Lines across the row: class, value, tooltip.
    marks: Sequence[tuple[str, float, str]] = ()
    dots: Sequence[float] = ()
    #: Values that meet the reference.
    band: tuple[float, float] | None = None
    #: Drawn as a line, around a dot in the bar's place.
    interval: tuple[float, float] | None = None
    #: Where the record is on the page.
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
    axis = Axis(low, high, 0, 100, low > 0)
    parts, y = [], 0
    for bar in bars:
        name = f"name {bar.kind}".replace(" slow", " word")
        if bar.heading:
            parts.append(word("0", y + 14, _shortened(bar.heading), "number"))
            y += _ABOVE
        if above:
            parts.append(word("0", y + 14, _shortened(bar.label), name))
            y += _ABOVE
        else:
            parts.append(word("-8", y + 15, bar.label, name, "end"))
        parts += _row(bar, axis, y)
        if bar.text:
            text = word("8", 15, bar.text, "number")
            parts.append(symbol(100, y, text))
        y += _STEP
    grid = []
    for number, (value, words) in enumerate((ticks or {}).items()):
        at = axis.at(value)
        kind = "odd" if number % 2 else ""
        grid.append(upright("grid", at, 0, y + 2))
        grid.append(word(across(at), y + 18, words, kind, "middle"))
    high_px = y + (26 if ticks else 8)
    left = 8 if above else _LABELS
    return figure(title, [*grid, *parts], high_px, left=left, right=_TEXTS)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _row(bar: Bar, axis: Axis, y: int, thick: int = 14) -> Iterator[str]:
    x, middle = axis.at, y + 11
    top = middle - thick // 2
    if bar.band:
        low, high = map(x, bar.band)
        width = across(high - low)
        yield mark("rect", "band", x=across(low), y=y + 2, width=width, height=18)
    if bar.interval and bar.value is not None:
        low, high = map(x, bar.interval)
        ends = across(low), across(high)
        yield mark("line", "part", x1=ends[0], x2=ends[1], y1=middle, y2=middle)
        at = across(x(bar.value))
        yield mark("circle", f"run {bar.kind}", bar.tip, cx=at, cy=middle, r=4.5)
    elif bar.value is not None:
        width = across(max(x(bar.value), 0.3))
        kind = f"bar {bar.kind}"
        shape = mark("rect", kind, bar.tip, x=0, y=top, width=width, height=thick)
        yield linked(shape, bar.link, bar.tip)
    for dot in bar.dots:
        if not axis.beyond(dot):
            yield mark("circle", "sample", cx=across(x(dot)), cy=middle, r=1.8)
    for kind, value, tip in bar.marks:
        if not axis.beyond(value):
            yield upright(kind, x(value), y, y + _STEP, tip)


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
        middle_part = ranked[_SLOWEST:-_FASTEST]
        named = [probe for probe in middle_part if probe[0] in outliers]
        shown = [*ranked[:_SLOWEST], *named, *ranked[-_FASTEST:]]
    middle = float(metric.median)
    _, top = bounds([rate for _, rate in ranked], [middle])
    bars = []
    for name, rate in shown:
        slow = name in outliers
        tip = f"{name}: {with_unit(rate, metric.unit)}"
        if middle:
            tip += f", {rate / middle - 1:+.1%} against the median"
        bars.append(
            Bar(
                label=(f"{name} ◀ slow" if slow else name)[:22],
                value=rate,
                text=format_value(rate),
                tip=tip,
                kind="slow" if slow else "",
                marks=[("reference", middle, "median of all")],
            )
        )
    more = f", and {len(ranked) - len(shown)} more" if len(shown) < len(ranked) else ""
    ticks = {middle: f"median {with_unit(middle, metric.unit)}"}
    return rows(title + more, bars, 0.0, top, ticks)


def gauge(metric: MetricRecord) -> str:
    """Return one line: the samples, the median as a bar, the reference and the ceiling as marks."""
    reference = drawable(metric)
    known: dict[str, float] = {}
    if reference and reference.value:
        known["reference"] = reference.value
    if metric.ceiling:
        known["ceiling"] = float(metric.ceiling)
    # A value is drawn against what it is held against, whatever an outlier among the samples does.
    top = 1.06 * max([float(metric.median), *known.values()])
    if not known or not 0 < top < math.inf:
        return ""  # nothing to draw against: a bar would show a share of nothing
    band = None
    if reference and (reference.least or reference.most):
        less = metric.better == "less" and reference.most
        band = (0.0 if less else reference.least or 0.0, reference.most or top)
    kinds = []
    if metric.verdict is Verdict.FAIL:
        kinds.append("slow")
    if not metric.verdict.is_valid:
        kinds.append("off")
    styles = {"reference": "published", "ceiling": "ceiling"}
    bar = Bar(
        value=float(metric.median),
        kind=" ".join(kinds),
        marks=[(styles[name], value, "") for name, value in known.items()],
        dots=numbers(metric.samples)[:40],
        band=band,
    )
    words = [f"measured {with_unit(metric.median, metric.unit)}"]
    words += [f"{name} {format_value(value)}" for name, value in known.items()]
    drawn = "".join(_row(bar, Axis(0.0, top, 0, 100), 0, 6))
    return (
        f'<svg class="iog gauge" height="{_STEP}" role="img" '
        f'aria-label="{escape(visible(", ".join(words)))}">{drawn}</svg>'
    )


def beside(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return the curves of a plot that has one value of the parameter as bars, one below the other."""
    found = []
    for number, trace in enumerate(plot.traces):
        for dot in trace.dots:
            marks = []
            if dot.reference:
                marks.append(("published", dot.reference.value, held_of(dot)))
            off = "" if dot.metric.verdict.is_valid else " off"
            found.append(
                Bar(
                    label=trace.name,
                    value=dot.value,
                    text=format_value(dot.value),
                    tip=label_of(trace.name, dot),
                    kind=f"c{number}{off}",
                    marks=marks,
                    dots=dot.samples,
                    link=anchor(dot),
                )
            )
    values = [dot.value for dot in plot.dots]
    values += [dot.reference.value for dot in plot.dots if dot.reference]
    words = [plot.title, plot.shown_unit, f"{plot.x_name} {spaced(plot.dots[0].text)}"]
    title = ": ".join(filter(None, words))
    if any(bar.marks for bar in found):
        title += "; mark: reference"
    return rows(title, found, 0.0, 1.08 * max(values))


#: Ratios that an axis of ratios may name, from 1 on.
_RATIOS: Final = (1.02, 1.05, 1.1, 1.25, 1.5, 2.0, 4.0, 8.0, 16.0)


def ratios(title: str, found: Sequence[Ratio]) -> str:
    """Return ratios with their intervals on a logarithmic axis, below their cases; 1 is no difference."""
    reach = 1.06
    drawn: list[Bar] = []
    case = ""
    for row in found:
        low, high = row.low or row.ratio, row.high or row.ratio
        for value in (row.ratio, low, high):
            if value:
                reach = max(reach, value, 1 / value)
        drawn.append(
            Bar(
                label=row.metric[:_BESIDE],
                heading=row.case if row.case != case else "",
                value=row.ratio,
                text=f"{row.ratio:.3f}",
                tip=f"{row.case} {row.metric}: B / A = {row.ratio:.3f} (95 %: {low:.3f} to {high:.3f})",
                kind="" if row.mark in ("better", "worse") else "off",
                marks=[("reference", 1.0, "no difference")],
                interval=(low, high),
            )
        )
        case = row.case
    reach = min(1.04 * reach, 16.0)
    known = [ratio for ratio in _RATIOS if ratio <= reach][-2:]
    places = [*(1 / ratio for ratio in reversed(known)), 1.0, *known]
    ticks = {place: f"{place:.3g}" for place in places}
    return rows(title, drawn, 1 / reach, reach, ticks)


#: Units that an overview has an axis for, and the most bars that are one glance.
_OVERVIEWS: Final = ("MiB/s", "ops/s")
_MOST: Final = 40


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


class _Best(NamedTuple):
    """The best case of a check on a partition, in the unit of an overview."""

    value: float
    metric: MetricRecord
    record: Record


def _best(records: Iterable[Record], unit: str) -> dict[tuple[str, str, str], _Best]:
    """Return the best value of each metric and check in a unit, by partition, check and metric."""
    best: dict[tuple[str, str, str], _Best] = {}
    for record in records:
        for metric in record.metrics:
            below = record.check in LAYER_CHECKS
            if below or not metric.verdict.is_valid or metric.median <= 0:
                continue
            with contextlib.suppress(UnitError):
                value = convert(float(metric.median), metric.unit, unit)
                key = (record.where, record.check, metric.name)
                if key not in best or value > best[key].value:
                    best[key] = _Best(value, metric, record)
    return best


def overviews(
    records: Sequence[Record], anchor: Callable[[Record], str]
) -> Iterator[tuple[str, str]]:
    """Yield, for each kind of rate, the best case of each check, and the same beside published systems; empty if none fits."""
    others = _published()
    for unit in _OVERVIEWS:
        best = _best(records, unit)
        if not 0 < len(best) <= _MOST:
            continue
        several = len({place for place, _, _ in best}) > 1
        mine: list[Bar] = []
        places: set[str] = set()
        for (place, check, name), (value, metric, record) in best.items():
            text = f"{with_unit(metric.median, metric.unit)}, {metric.verdict.value}"
            new = several and place not in places
            places.add(place)
            mine.append(
                Bar(
                    heading=place if new else "",
                    label=f"{check} {name}",
                    value=value,
                    text=format_value(value),
                    tip=f"{record.short_name} {name}: {text}",
                    kind="slow" if metric.verdict is Verdict.FAIL else "",
                    link=anchor(record),
                )
            )
        names = {name for _, _, name in best}
        systems = {found.record.system for found in best.values()}
        published = []
        for one in others:
            fits = one.unit == unit and one.metric in names
            if fits and one.system not in systems:
                label = f"{one.system} {one.check} {one.metric}"
                tip = f"published: {label}: {with_unit(one.value, one.unit)}"
                published.append(
                    Bar(
                        label=label,
                        value=one.value,
                        text=format_value(one.value),
                        tip=tip,
                        kind="off",
                    )
                )
        title = f"Best case of each check, {unit}, logarithmic"
        beside_them = _logarithmic(title, [*mine, *published]) if published else ""
        yield _logarithmic(title, mine), beside_them


def _logarithmic(title: str, bars: Sequence[Bar]) -> str:
    values = [bar.value or 1.0 for bar in bars]
    low, high = min(values) / 2, max(values) * 2
    first, last = math.ceil(math.log10(low)), math.floor(math.log10(high))
    ticks = {10.0**n: f"{10.0**n:,.10g}" for n in range(first, last + 1)}
    return rows(title, bars, low, high, ticks)


#: Rows and columns that are drawn: those with the slowest cells.
_CELLS: Final = 48
#: Pixels for the names of rows, and of a row's height.
_NAMES, _HIGH = 92, 18

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
    lines, columns = _slowest(cells, 0), _slowest(cells, 1)
    width = 100 / len(columns)
    # A narrow screen has room for some three names of this length.
    room = max(1, len(columns) // max(1, 24 // len(max(columns, key=len))))
    parts = []
    for at in range(0, len(columns), room):
        parts.append(word(across(at * width), 12, columns[at]))
    for nth, line in enumerate(lines):
        y = 18 + _HIGH * nth
        parts.append(word("-6", y + 13, line[-12:], "number", "end"))
        for at, column in enumerate(columns):
            rate = cells.get((line, column))
            if rate is None:
                continue
            share = rate / middle if middle else 1.0
            slow = share < 1 and (line in named or column in named)
            tip = f"{line}, {column}: {with_unit(rate, unit)}, {share:.0%} of the faster half's median"
            shade = f"fill-opacity:{max(0.1, min(1.0, 1.1 - share)):.2f}"
            parts.append(
                mark(
                    "rect",
                    "cell slow" if slow else "cell",
                    tip,
                    x=across(at * width),
                    y=y,
                    width=across(0.97 * width),
                    height=_HIGH - 1,
                    style=shade,
                )
            )
    return figure(title, parts, 26 + _HIGH * len(lines), left=_NAMES)


def _slowest(cells: Cells, side: int) -> list[str]:
    """Return the names of a side by name, of many those with the slowest cells."""
    least: dict[str, float] = {}
    for place, rate in cells.items():
        least[place[side]] = min(rate, least.get(place[side], rate))
    return sorted(sorted(least, key=lambda name: least[name])[:_CELLS])
