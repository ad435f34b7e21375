"""The grammar of all figures as SVG, and figures with a vertical axis: runs of metrics, and curves over a parameter.

All figures have one style and the same axes. Text from outside is escaped here, and nowhere else.

Each trace has a colour, a dash and a shape of its own, so that it is told from the others without colours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from iogauge.core.text import visible
from iogauge.core.units import with_unit
from iogauge.judge.verdict import Verdict
from iogauge_extras.page.sweeps import Dot, Plot, Trace, held_of, label_of, spaced

WIDE, HIGH, LEFT, TOP = 640, 246, 74, 54
#: The right end and the bottom of what is drawn, and how wide and deep it is.
END, BASE = WIDE - 16, HIGH - 30
ACROSS, DEPTH = END - LEFT, BASE - TOP

#: Values above this multiple of the usual ones are clipped, so that one outlier hides no loss.
_BEYOND: Final = 2.0
#: Share of the values that are usual; of so few, all are: no one can tell which of them is the outlier.
_USUAL, _FEW = 0.9, 5
#: Space above the largest value, and below the smallest one, as factors.
_ABOVE, _BELOW = 1.08, 0.97
#: The axis begins at zero if a value is below this share of the largest.
_ZOOM: Final = 0.8

#: The style of all figures, for light and dark screens; a page with several figures contains it once. The colours of
#: traces are those of Okabe and Ito, and each trace also has a dash and a shape of its own.
FIGURE_STYLE: Final = (Path(__file__).parent / "figure.css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values from ``low`` to ``high`` lie, between two places; a ``logarithmic`` one begins above 0."""

    low: float
    high: float
    start: float = BASE
    end: float = TOP
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value; of one beyond the scale, that of its end."""
        place = math.log if self.logarithmic else float
        low, high = place(self.low), place(self.high)
        share = (
            (place(max(value, self.low)) - low) / (high - low) if high > low else 0.5
        )
        return self.start + (self.end - self.start) * min(share, 1.0)

    def beyond(self, value: float) -> int:
        """Return 1 for a value above the scale, -1 for one below it, else 0."""
        return (value > self.high) - (value < self.low)

    def grid(self, unit: str) -> Iterator[str]:
        """Yield, for a scale from below to above, the lines of round values with their texts, and the unit."""
        for tick in ticks(self.low, self.high, self.logarithmic):
            yield from self.line("grid", tick)
            yield word(LEFT - 6, self.at(tick) + 4, short(tick), anchor="end")
        yield word(LEFT - 6, TOP - 12, "" if unit == "1" else unit, anchor="end")

    def line(self, kind: str, value: float | None, tip: str = "") -> Iterator[str]:
        """Yield a line across the figure; nothing if it is beyond the scale."""
        if value is not None and not self.beyond(value):
            yield mark("path", kind, tip, d=f"M{LEFT} {self.at(value):.1f}h{ACROSS}")


def bounds(usual: Sequence[float], fixed: Sequence[float] = ()) -> tuple[float, float]:
    """Return bottom and top of an axis on which no outlier hides the other values.

    The values (> 0) are in the order of time: the newest and the ``fixed`` ones are always within.
    Of the others, those above twice the usual ones are beyond the top. The axis begins at zero, so
    that a drop looks as large as it is, and closer only if there is no large drop.
    """
    ordered = sorted(usual)
    if not ordered and not fixed:
        return 0.0, 1.0
    last = (
        len(ordered) - 1 if len(ordered) <= _FEW else int(_USUAL * (len(ordered) - 1))
    )
    common = ordered[last] if ordered else 0.0
    cap = _BEYOND * max(common, *usual[-1:], *fixed)
    most = max([value for value in ordered if value <= cap] + list(fixed))
    least = min([*ordered, *fixed])
    return (least * _BELOW if least > _ZOOM * most else 0.0), most * _ABOVE


def ticks(low: float, high: float, logarithmic: bool = False) -> list[float]:
    """Return two to six round values in a range; on a logarithmic axis mostly powers of ten."""
    if high <= low:
        return [low]
    if logarithmic:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if high / low < 100 else (1,)
        round_values = [m * 10.0**power for power in powers for m in steps]
        found = [value for value in round_values if low <= value <= high]
        return found[:: 1 + len(found) // 7]
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    return [k * pace for k in range(math.ceil(low / pace), math.floor(high / pace) + 1)]


def short(value: float) -> str:
    """Return a round value as text for an axis."""
    return f"{value:,.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"


def mark(tag: str, kind: str, tip: str = "", **values: object) -> str:
    """Return a shape; ``tip`` is its text, which a browser shows as a tooltip."""
    written = {
        name: f"{value:.1f}" if isinstance(value, float) else value
        for name, value in values.items()
    }
    inner = f"<title>{escape(visible(tip))}</title>" if tip else ""
    pairs = "".join(f' {name}="{value}"' for name, value in written.items())
    return f'<{tag} class="{kind}"{pairs}>{inner}</{tag}>'


def word(x: float, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return text at a place."""
    return f'<text class="{kind}" x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}">{escape(visible(text))}</text>'


def curve(kind: str, points: Iterable[tuple[float, float]], tip: str = "") -> str:
    """Return a line through points."""
    return mark(
        "polyline", kind, tip, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    )


def arrow(x: float, y: float, up: bool, kind: str, label: str) -> str:
    """Return the mark of a value beyond the axis."""
    tip = -7 if up else 7
    return mark(
        "path", f"run clip {kind}", label, d=f"M{x:.1f} {y + tip:.1f}l5 {-tip}h-10z"
    )


def linked(shape: str, anchor: str, label: str = "") -> str:
    """Return a mark as a link to a place of the page, if there is one; without a label it is none for the keyboard."""
    name = f'aria-label="{escape(visible(label))}"' if label else 'tabindex="-1"'
    return f'<a href="#{anchor}" {name}>{shape}</a>' if anchor else shape


def figure(title: str, parts: Iterable[str], high: float = HIGH) -> str:
    """Return a figure with its title; its style is :data:`FIGURE_STYLE`."""
    text, drawn = escape(visible(title)), "".join(parts)
    role = "group" if "<a href" in drawn else "img"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog" viewBox="0 0 {WIDE} {high}" role="{role}" '
        f'aria-label="{text}"><text class="title" x="8" y="17">{text}</text>{drawn}</svg>'
    )


#: Bars of text, from the bottom of the scale to its top; what lies beyond is an arrow.
_BARS: Final = "▁▂▃▄▅▆▇█"
#: Bars of text begin at this share of the least value, if that is not far below the largest.
_LEAST_BAR: Final = 0.5
#: Verdicts of values that are not the storage's: they define no axis.
_FOREIGN: Final = (Verdict.INVALID, Verdict.ERROR)
#: In an overlay, what is above this multiple of its level is at the top.
_MOST: Final = 2.0


@dataclass(frozen=True, slots=True)
class Run:
    """A run's median, in the curve's unit."""

    time: datetime
    session: str
    value: float
    verdict: Verdict
    series: str
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The runs of one metric of one line, oldest first, and the values that they should have.

    ``least`` and ``most`` bound the values that meet the reference; None is no bound. ``level`` is
    that of the baseline, ``low`` and ``high`` are its control limits. ``since`` is the session with
    which an alarm began, ``steps`` are the times of the runs with which the level changed. ``key`` names
    the record that the newest run belongs to. ``under`` says what the runs were measured with.
    """

    title: str
    unit: str
    points: Sequence[Run]
    reference: float | None = None
    least: float | None = None
    most: float | None = None
    level: float | None = None
    low: float | None = None
    high: float | None = None
    since: str | None = None
    steps: tuple[datetime, ...] = ()
    system: str = ""
    key: str = ""
    under: str = ""

    @property
    def caption(self) -> str:
        """Return n, unit, span of time, and what the runs were measured with."""
        valid = sum(run.verdict.is_valid for run in self.points)
        days = list(dict.fromkeys(f"{run.time:%Y-%m-%d}" for run in self.points))
        span = " to ".join([*days[:1], *days[1:][-1:]])
        count = f"n = {len(self.points)} runs"
        count += f", {valid} valid" if valid < len(self.points) else ""
        parts = (self.system, count, self.unit.replace("1", ""), span, self.under)
        return "; ".join(filter(None, parts))


def scale_of(runs: Curve) -> tuple[float, float]:
    """Return bottom and top of a curve's axis: from the runs that are the storage's, if it has some."""
    valid = [run.value for run in runs.points if run.verdict not in _FOREIGN]
    marks = (runs.reference, runs.least, runs.most, runs.level)
    fixed = [v for v in marks if v is not None and v > 0]
    return bounds(valid or [run.value for run in runs.points], fixed)


def bars(runs: Curve, newest: int) -> str:
    """Return the newest runs as a row of bars on the figure's scale: ``▇▇↑▇▃``."""
    values = [run.value for run in runs.points[-newest:]]
    _, top = scale_of(runs)
    least = _LEAST_BAR * min(values, default=0.0)
    bottom = (
        least if least > _LEAST_BAR**2 * top else 0.0
    )  # a loss of 30 % is no slight dip

    def bar(value: float) -> str:
        share = (value - bottom) / (top - bottom)
        if not 0 <= share <= 1:
            return "↑" if share > 1 else "↓"
        return _BARS[round(share * (len(_BARS) - 1))]

    return "".join(map(bar, values))


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def _ends(times: Sequence[datetime]) -> Iterator[str]:
    """Yield the first time and the last one, below a figure."""
    for time in times[:1]:
        yield word(LEFT, HIGH - 8, _minute(time))
    for time in times[1:][-1:]:
        yield word(END, HIGH - 8, _minute(time), anchor="end")


def svg(runs: Curve, anchors: Sequence[str] = ()) -> str:
    """Return the curve as SVG, with runs at equal distances.

    ``anchors`` are where a page tells of each run; the marks are links to them.
    """
    scale = Axis(*scale_of(runs))
    parts = [
        *_band(runs, scale),
        *scale.grid(runs.unit),
        *scale.line("reference", runs.reference, f"reference {runs.reference}"),
        *scale.line("level", runs.level, "level of the baseline"),
        *scale.line(
            "limit", runs.low, "lower control limit: level - 3 s of the baseline"
        ),
        *scale.line(
            "limit", runs.high, "upper control limit: level + 3 s of the baseline"
        ),
        *_changes(runs),
        *_runs(runs, scale, anchors),
        *_ends([run.time for run in runs.points]),
    ]
    return figure(runs.title, parts)


def _places(runs: Curve) -> Axis:
    """Return the axis of the runs' numbers: they are at equal distances."""
    return Axis(-0.5, max(len(runs.points), 1) - 0.5, LEFT, END)


def overlay(system: str, curves: Sequence[Curve]) -> str:
    """Return the runs of all metrics of a system over time, each relative to its level; alarmed ones stand out."""
    times = sorted(run.time for one in curves for run in one.points)
    x = Axis(times[0].timestamp(), times[-1].timestamp(), LEFT, END)
    lines: list[tuple[Curve, list[tuple[float, float]]]] = []
    for one in sorted(curves, key=lambda one: one.since is not None):
        valid = [run for run in one.points if run.verdict not in _FOREIGN]
        level = one.level or statistics.median([run.value for run in valid] or [1.0])
        lines.append(
            (one, [(x.at(run.time.timestamp()), run.value / level) for run in valid])
        )
    largest = max([1.2, *(share for _, places in lines for _, share in places)])
    y = Axis(0.0, min(largest, _MOST))
    drawn = [
        curve(
            f"one{' worse' if one.since else ''}",
            [(at, y.at(v)) for at, v in places],
            one.title,
        )
        for one, places in lines
    ]
    title = f"{system}: all metrics, each relative to its level"
    ends = _ends([time.astimezone(timezone.utc) for time in (times[0], times[-1])])
    return figure(title, [*y.grid(""), *drawn, *ends])


def _band(runs: Curve, scale: Axis) -> Iterator[str]:
    """Yield the area of the values that meet the reference, if they are bounded."""
    if runs.least is None and runs.most is None:
        return
    above = scale.at(scale.high if runs.most is None else runs.most)
    below = scale.at(scale.low if runs.least is None else runs.least)
    yield mark(
        "rect", "band", x=LEFT, y=above, width=ACROSS, height=max(below - above, 0.0)
    )


def _changes(runs: Curve) -> Iterator[str]:
    """Yield a line at each change of series and of level, and one with the time of an alarm."""
    x = _places(runs).at
    for number, (before, run) in enumerate(pairwise(runs.points), 1):
        why = "the level changed here" if run.time in runs.steps else ""
        if run.series != before.series:
            why = "another series from here: the fingerprint changed"
        if why:
            yield mark("path", "change", why, d=f"M{x(number - 0.5):.1f} {TOP}v{DEPTH}")
    first = next(
        (k for k, run in enumerate(runs.points) if run.session == runs.since), None
    )
    if first is not None:
        at = x(first - 0.5)
        anchor = "end" if at > LEFT + ACROSS / 2 else "start"
        yield mark("path", "since", d=f"M{at:.1f} {TOP - 8}v{DEPTH + 8}")
        yield word(
            at, TOP - 12, f"since {_minute(runs.points[first].time)}", "word", anchor
        )


def _runs(runs: Curve, scale: Axis, anchors: Sequence[str]) -> Iterator[str]:
    """Yield the line through the runs, and a mark for each run."""
    places = [
        (_places(runs).at(k), scale.at(run.value)) for k, run in enumerate(runs.points)
    ]
    yield curve("runs", places)
    radius = 3.4 if len(places) < 60 else 2.6
    for k, (run, (x, y)) in enumerate(zip(runs.points, places, strict=True)):
        kind = run.verdict.value if run.verdict.is_valid else "off"  # drawn hollow
        value = with_unit(run.value, runs.unit)
        label = f"{_minute(run.time)} {value} {run.verdict.value} {run.session}"
        shape = mark("circle", f"run {kind}", label, cx=x, cy=y, r=radius)
        if beyond := scale.beyond(run.value):
            shape = arrow(x, y, beyond > 0, kind, f"beyond the axis: {label}")
        # The table below the figure has the same links for the keyboard.
        yield linked(shape, anchors[k] if anchors else "")


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

#: Height of a line of a legend.
_LINE: Final = 18


def sweep(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return curves over a parameter, with the ideal line, published points and the ceiling.

    ``anchor`` returns where the record of a dot is on the page.
    """
    dots = plot.dots
    places = sorted({dot.x for dot in dots})
    sizes = any(not dot.text.replace(".", "").isdigit() for dot in dots)
    stretched = places[0] > 0 and (sizes or places[-1] / places[0] > _LOGARITHMIC)
    x = Axis(places[0], places[-1], LEFT + 30, END - 30, stretched)
    values = [v for dot in dots for v in (*dot.samples, dot.value) if v > 0]
    references = [dot.reference.value for dot in dots if dot.reference]
    usual = [dot.value for dot in dots if dot.metric.verdict not in _FOREIGN] or values
    _, top = bounds(usual, references)
    near = [1.06 * value for value in plot.ceilings if value < 1.6 * top]
    # Only on two logarithmic axes is what is proportional a straight line.
    both = stretched and plot.proportional
    low = 0.7 * min(v for v in (*usual, *references) if v > 0) if both else 0.0
    y = Axis(low, max([top, *near]), logarithmic=both)
    parts = [*y.grid(plot.unit)]
    for value, text in plot.ceilings.items():
        parts += y.line(
            "ceiling", value, f"ceiling {with_unit(value, plot.unit)}: {text}"
        )
    for dot in {dot.x: dot for dot in dots}.values():
        parts.append(mark("path", "axis", d=f"M{x.at(dot.x):.1f} {BASE}v5"))
        parts.append(word(x.at(dot.x), BASE + 18, spaced(dot.text), anchor="middle"))
    parts += _ideals(plot, x, y)
    for number, trace in enumerate(plot.traces):
        parts += _trace(trace, number, x, y, anchor)
    legend = list(_legend(plot))
    for k, entry in enumerate(legend):
        place = f"translate({LEFT + (k % 2) * 290} {HIGH + 20 + _LINE * (k // 2)})"
        parts.append(f'<g transform="{place}">{entry}</g>')
    how = "; both axes logarithmic" if both else ", logarithmic" if stretched else ""
    parts.append(word(END, BASE + 33, plot.x_name + how, anchor="end"))
    words = ": ".join(filter(None, (plot.title, plot.shown_unit)))
    high = HIGH + _LINE * ((len(legend) + 1) // 2) + 20
    return figure(f"{words} over {plot.x_name}", parts, high)


def _ideals(plot: Plot, x: Axis, y: Axis) -> Iterator[str]:
    """Yield, for each curve of a proportional parameter, the line from zero through its first
    dot.
    """
    for trace in plot.traces if plot.proportional else ():
        first, last = trace.dots[0], trace.dots[-1]
        slope = first.value / first.x if first.x > 0 else 0.0
        end = min(last.x, y.high / slope) if slope > 0 else first.x
        if end > first.x:
            at = [first.x + (end - first.x) * k / 24 for k in range(25)]
            line = [(x.at(value), y.at(slope * value)) for value in at]
            yield curve("ideal", line, f"ideal for {trace.name}")


def _trace(
    trace: Trace, number: int, x: Axis, y: Axis, anchor: Callable[[Dot], str]
) -> Iterator[str]:
    """Yield a curve, its samples, its published points, and its dots as links to their records."""
    yield curve(
        f"trace c{number}", [(x.at(dot.x), y.at(dot.value)) for dot in trace.dots]
    )
    for dot in trace.dots:
        at, up = x.at(dot.x), y.at(dot.value)
        for sample in dot.samples:
            if not y.beyond(sample):
                yield mark("circle", "sample", cx=at, cy=y.at(sample), r=1.7)
        if reference := dot.reference:
            line = f"M{at - 9:.1f} {y.at(reference.value):.1f}h18"
            yield mark("path", "published", held_of(dot), d=line)
        label = label_of(trace.name, dot)
        kind = f"c{number}" + ("" if dot.metric.verdict.is_valid else " off")
        place = f"translate({at:.1f} {up:.1f})"
        shape = mark("path", f"dot {kind}", label, transform=place, d=_SHAPES[number])
        if beyond := y.beyond(dot.value):
            shape = arrow(at, up, beyond > 0, kind, f"beyond: {label}")
        elif dot.metric.verdict is Verdict.FAIL:
            shape += mark("circle", "bad", cx=at, cy=up, r=8.5)
        yield linked(shape, anchor(dot), label)


def _legend(plot: Plot) -> Iterator[str]:
    """Yield the entries of a legend, each with its origin at 0."""

    def line(kind: str, text: str, d: str = "M0 0h26") -> str:
        return mark("path", kind, d=d) + word(34, 4, text)

    for number, trace in enumerate(plot.traces):
        name = trace.name if len(trace.name) < 42 else trace.name[:40] + "…"
        place = "translate(13 0)"
        dot = mark("path", f"dot c{number}", transform=place, d=_SHAPES[number])
        yield line(f"trace c{number}", name) + dot
    if plot.proportional:
        yield line("ideal", "proportional to the first point")
    if any(dot.reference for dot in plot.dots):
        every = all(dot.reference for dot in plot.dots)
        words = "reference" if every else "reference (some points have none)"
        yield line("published", words, "M4 0h18")
    for value, text in plot.ceilings.items():
        words = f"ceiling {short(round(value))} {plot.unit}"
        fits = len(words) + len(text) < 34
        yield line("ceiling", f"{words}: {text}" if fits else words)
    if any(dot.metric.verdict is Verdict.FAIL for dot in plot.dots):
        yield mark("circle", "bad", cx=13, cy=0, r=7) + word(34, 4, "ring: FAIL")
    if any(not dot.metric.verdict.is_valid for dot in plot.dots):
        yield line("dot off c5", "hollow: not valid", "M9 -4h8v8h-8z")
