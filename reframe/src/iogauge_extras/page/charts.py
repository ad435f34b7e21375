"""The grammar of all figures as SVG, and figures with a vertical axis: runs of metrics, and curves over a parameter.

A figure has no width of its own: places across it are per cent, and those down are pixels. So a phone draws it anew, with
letters of the same size. Text from outside is escaped here, and nowhere else.

Each trace has a colour, a dash and a shape of its own, so that it is told from the others without colours.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from itertools import pairwise
from pathlib import Path
from typing import Final

from iogauge.core.text import visible
from iogauge.core.units import with_unit
from iogauge.judge.verdict import Verdict
from iogauge_extras.page.sweeps import Dot, Plot, Trace, held_of, label_of, spaced

#: Height of a figure with a vertical axis, and where that ends and begins, in pixels.
HIGH, TOP, BASE = 222, 30, 190
#: Pixels on the left for the texts of the axis.
LEFT: Final = 74

#: Values above this multiple of the usual ones are clipped, so that one outlier hides no loss.
_BEYOND: Final = 2.0
#: Share of the values that are usual; of so few, all are: no one can tell which of them is the outlier.
_USUAL, _FEW = 0.9, 5
#: Space above the largest value, and below the smallest one, as factors.
_ABOVE, _BELOW = 1.08, 0.97
#: The axis begins at zero if a value is below this share of the largest.
_ZOOM: Final = 0.8

#: The style of all figures, for light and dark screens; a page with several figures contains it once. The colours of
#: traces are those of Okabe and Ito.
FIGURE_STYLE: Final = (Path(__file__).parent / "figure.css").read_text(encoding="utf-8")


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie between two places; a logarithmic axis begins above 0."""

    #: The least value, and the largest.
    low: float
    high: float
    #: Their places: pixels down, or per cent across.
    start: float = BASE
    end: float = TOP
    logarithmic: bool = False

    def at(self, value: float) -> float:
        """Return the place of a value; of one beyond the scale, that of its end."""
        place = math.log if self.logarithmic else float
        low, high = place(self.low), place(self.high)
        share = 0.5
        if high > low:
            share = (place(max(value, self.low)) - low) / (high - low)
        return self.start + (self.end - self.start) * min(share, 1.0)

    def beyond(self, value: float) -> int:
        """Return 1 for a value above the scale, -1 for one below it, else 0."""
        return (value > self.high) - (value < self.low)

    def grid(self, unit: str) -> Iterator[str]:
        """Yield, for a scale from below to above, the lines of round values with their texts, and the unit."""
        for tick in ticks(self.low, self.high, self.logarithmic):
            yield from self.line("grid", tick)
            yield word("-6", self.at(tick) + 4, short(tick), anchor="end")
        yield word("-6", TOP - 12, "" if unit == "1" else unit, anchor="end")

    def line(self, kind: str, value: float | None, tip: str = "") -> Iterator[str]:
        """Yield a line across the figure; nothing if it is beyond the scale."""
        if value is not None and not self.beyond(value):
            at = self.at(value)
            yield mark("line", kind, tip, x1="0", x2="100%", y1=at, y2=at)


def across(place: float) -> str:
    """Return a place across a figure: ``12.50%``."""
    return f"{place:.2f}%"


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
    pairs = []
    for name, value in values.items():
        written = f"{value:.1f}" if isinstance(value, float) else value
        pairs.append(f' {name}="{written}"')
    inner = f"<title>{escape(visible(tip))}</title>" if tip else ""
    return f'<{tag} class="{kind}"{"".join(pairs)}>{inner}</{tag}>'


def word(x: str, y: float, text: str, kind: str = "", anchor: str = "start") -> str:
    """Return text at a place."""
    return (
        f'<text class="{kind}" x="{x}" y="{y:.1f}" text-anchor="{anchor}">'
        f"{escape(visible(text))}</text>"
    )


def upright(kind: str, x: float, top: float, base: float, tip: str = "") -> str:
    """Return a line from above to below."""
    return mark("line", kind, tip, x1=across(x), x2=across(x), y1=top, y2=base)


def curve(kind: str, points: Iterable[tuple[float, float]], tip: str = "") -> str:
    """Return a line through points, which stretches with the figure."""
    text = " ".join(f"{x:.2f},{y:.1f}" for x, y in points)
    return (
        f'<svg width="100%" height="{HIGH}" viewBox="0 0 100 {HIGH}" preserveAspectRatio="none">'
        f"{mark('polyline', kind, tip, points=text)}</svg>"
    )


def symbol(x: float, y: float, shape: str) -> str:
    """Return a shape around a place; its own middle is at 0."""
    return f'<svg x="{across(x)}" y="{y:.1f}">{shape}</svg>'


def arrow(x: float, y: float, up: bool, kind: str, label: str) -> str:
    """Return the mark of a value beyond the axis."""
    tip = -7 if up else 7
    return symbol(
        x, y, mark("path", f"run clip {kind}", label, d=f"M0 {tip}l5 {-tip}h-10z")
    )


def linked(shape: str, anchor: str, label: str = "") -> str:
    """Return a mark as a link to a place of the page, if there is one; without a label it is none for the keyboard."""
    name = f'aria-label="{escape(visible(label))}"' if label else 'tabindex="-1"'
    return f'<a href="#{anchor}" {name}>{shape}</a>' if anchor else shape


def figure(
    title: str,
    parts: Iterable[str],
    high: float = HIGH,
    *,
    left: int = LEFT,
    right: int = 16,
    legend: Iterable[str] = (),
) -> str:
    """Return a figure with its title and legend; ``left`` and ``right`` are pixels for texts beside it."""
    text, drawn = escape(visible(title)), "".join(parts)
    role = "group" if "<a href" in drawn else "img"
    entries = "".join(f"<li>{entry}</li>" for entry in legend)
    keys = f'<ul class="legend">{entries}</ul>' if entries else ""
    return (
        f'<div class="drawing"><p class="title">{text}</p><svg class="iog" height="{high:g}" '
        f'style="padding:0 {right}px 0 {left}px" role="{role}" aria-label="{text}">{drawn}</svg>{keys}</div>'
    )


def key(shape: str, text: str) -> str:
    """Return an entry of a legend: a mark and its meaning."""
    return (
        f'<svg class="iog key" aria-hidden="true">{shape}</svg> {escape(visible(text))}'
    )


#: Bars of text, from the bottom of the scale to its top; what lies beyond is an arrow.
_BARS: Final = "▁▂▃▄▅▆▇█"
#: Bars of text begin at this share of the least value, if that is not far below the largest.
_LEAST_BAR: Final = 0.5
#: Verdicts of values that are not the storage's: they define no axis.
_FOREIGN: Final = (Verdict.INVALID, Verdict.ERROR)


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
    """The runs of one metric of one line, and the values that they should have, in its unit."""

    title: str
    unit: str
    #: Oldest first.
    points: Sequence[Run]
    reference: float | None = None
    #: The least and the largest value that meet the reference; None is no bound.
    least: float | None = None
    most: float | None = None
    #: Level and control limits of the baseline.
    level: float | None = None
    low: float | None = None
    high: float | None = None
    #: Time of the first run of an alarm.
    since: datetime | None = None
    #: Times of the runs with which the level changed.
    steps: tuple[datetime, ...] = ()
    system: str = ""
    #: Line of the record that the newest run belongs to.
    key: str = ""
    #: What the runs were measured with.
    under: str = ""

    @property
    def caption(self) -> str:
        """Return n, unit, span of time, and what the runs were measured with."""
        valid = sum(run.verdict.is_valid for run in self.points)
        days = [f"{run.time:%Y-%m-%d}" for run in self.points]
        span = " to ".join(dict.fromkeys([*days[:1], *days[-1:]]))
        count = f"n = {len(self.points)} runs"
        count += f", {valid} valid" if valid < len(self.points) else ""
        parts = (self.system, count, self.unit.replace("1", ""), span, self.under)
        return "; ".join(filter(None, parts))


def scale_of(runs: Curve) -> tuple[float, float]:
    """Return bottom and top of a curve's axis: from the runs that are the storage's, if it has some."""
    valid = [run.value for run in runs.points if run.verdict not in _FOREIGN]
    marks = (runs.reference, runs.least, runs.most, runs.level)
    fixed = [value for value in marks if value is not None and value > 0]
    return bounds(valid or [run.value for run in runs.points], fixed)


def bars(runs: Curve, newest: int) -> str:
    """Return the newest runs as a row of bars on the figure's scale: ``▇▇↑▇▃``."""
    values = [run.value for run in runs.points[-newest:]]
    _, top = scale_of(runs)
    bottom = _LEAST_BAR * min(values, default=0.0)
    if bottom <= _LEAST_BAR**2 * top:  # a loss of 30 % is no slight dip
        bottom = 0.0
    text = ""
    for value in values:
        share = (value - bottom) / (top - bottom)
        if 0 <= share <= 1:
            text += _BARS[round(share * (len(_BARS) - 1))]
        else:
            text += "↑" if share > 1 else "↓"
    return text


def _minute(time: datetime) -> str:
    return f"{time:%Y-%m-%d %H:%M}"


def svg(runs: Curve, anchors: Sequence[str] = ()) -> str:
    """Return the curve as SVG, with runs at equal distances.

    ``anchors`` are where a page tells of each run; the marks are links to them.
    """
    scale = Axis(*scale_of(runs))
    limit = "control limit: level {} 3 s of the baseline"
    parts = [
        *_band(runs, scale),
        *scale.grid(runs.unit),
        *scale.line("reference", runs.reference, f"reference {runs.reference}"),
        *scale.line("level", runs.level, "level of the baseline"),
        *scale.line("limit", runs.low, f"lower {limit.format('-')}"),
        *scale.line("limit", runs.high, f"upper {limit.format('+')}"),
        *_changes(runs),
        *_runs(runs, scale, anchors),
    ]
    for place, text, anchor in _ends([run.time for run in runs.points]):
        parts.append(word(place, HIGH - 8, text, anchor=anchor))
    return figure(runs.title, parts)


def _ends(times: Sequence[datetime]) -> Iterator[tuple[str, str, str]]:
    """Yield place, text and anchor of the first time and of the last one, as short as they may be."""
    if not times:
        return
    first, last = times[0], times[-1]
    if first.date() != last.date():
        yield "0", f"{first:%Y-%m-%d}", "start"
        yield "100%", f"{last:%Y-%m-%d}", "end"
        return
    yield "0", _minute(first), "start"
    if first != last:
        yield "100%", f"{last:%H:%M}", "end"


def _places(runs: Curve) -> Axis:
    """Return the axis of the runs' numbers: they are at equal distances."""
    return Axis(-0.5, max(len(runs.points), 1) - 0.5, 0, 100)


def _band(runs: Curve, scale: Axis) -> Iterator[str]:
    """Yield the area of the values that meet the reference, if they are bounded."""
    if runs.least is None and runs.most is None:
        return
    above = scale.at(scale.high if runs.most is None else runs.most)
    below = scale.at(scale.low if runs.least is None else runs.least)
    high = max(below - above, 0.0)
    yield mark("rect", "band", x=0, y=above, width="100%", height=high)


def _changes(runs: Curve) -> Iterator[str]:
    """Yield a line at each change of series and of level, and one with the time of an alarm."""
    x = _places(runs).at
    for number, (before, run) in enumerate(pairwise(runs.points), 1):
        why = ""
        if run.series != before.series:
            why = "another series from here: the fingerprint changed"
        elif run.time in runs.steps:
            why = "the level changed here"
        if why:
            yield upright("change", x(number - 0.5), TOP, BASE, why)
    begun = [k for k, run in enumerate(runs.points) if run.time == runs.since]
    if begun:
        at = x(begun[0] - 0.5)
        anchor = "middle"
        if not 30 < at < 70:
            anchor = "end" if at > 50 else "start"
        yield upright("since", at, TOP - 8, BASE)
        text = f"since {runs.points[begun[0]].time:%m-%d %H:%M}"
        yield word(across(at), TOP - 12, text, "word", anchor)


def _runs(runs: Curve, scale: Axis, anchors: Sequence[str]) -> Iterator[str]:
    """Yield the line through the runs, and a mark for each run."""
    x = _places(runs).at
    places = [(x(k), scale.at(run.value)) for k, run in enumerate(runs.points)]
    yield curve("runs", places)
    radius = 3.4 if len(places) < 60 else 2.6
    for number, run in enumerate(runs.points):
        at, down = places[number]
        kind = run.verdict.value if run.verdict.is_valid else "off"  # drawn hollow
        value = with_unit(run.value, runs.unit)
        label = f"{_minute(run.time)} {value} {run.verdict.value} {run.session}"
        beyond = scale.beyond(run.value)
        if beyond:
            shape = arrow(at, down, beyond > 0, kind, f"beyond the axis: {label}")
        else:
            shape = mark(
                "circle", f"run {kind}", label, cx=across(at), cy=down, r=radius
            )
        # The table below the figure has the same links for the keyboard.
        yield linked(shape, anchors[number] if anchors else "")


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

#: Of more ticks than these, a narrow screen shows every second one.
_TICKS: Final = 4


def sweep(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return curves over a parameter, with the ideal line, published points and the ceiling.

    ``anchor`` returns where the record of a dot is on the page.
    """
    dots = plot.dots
    places = sorted({dot.x for dot in dots})
    sizes = any(not dot.text.replace(".", "").isdigit() for dot in dots)
    wide = places[0] > 0 and (sizes or places[-1] / places[0] > _LOGARITHMIC)
    x = Axis(places[0], places[-1], 5, 95, wide)
    y = _scale(plot, wide)
    parts = [*y.grid(plot.unit)]
    for value, text in plot.ceilings.items():
        tip = f"ceiling {with_unit(value, plot.unit)}: {text}"
        parts += y.line("ceiling", value, tip)
    named = {dot.x: spaced(dot.text) for dot in dots}
    for number, place in enumerate(places):
        kind = "odd" if number % 2 and len(places) > _TICKS else ""
        parts.append(upright("axis", x.at(place), BASE, BASE + 5))
        parts.append(word(across(x.at(place)), BASE + 18, named[place], kind, "middle"))
    parts += _ideals(plot, x, y)
    for number, trace in enumerate(plot.traces):
        parts += _trace(trace, number, x, y, anchor)
    how = ""
    if y.logarithmic:
        how = "; both axes logarithmic"
    elif wide:
        how = ", logarithmic"
    parts.append(word("100%", BASE + 33, plot.x_name + how, anchor="end"))
    words = ": ".join(filter(None, (plot.title, plot.shown_unit)))
    title = f"{words} over {plot.x_name}"
    return figure(title, parts, HIGH + 12, legend=_legend(plot))


def _scale(plot: Plot, wide: bool) -> Axis:
    """Return the vertical axis of a plot; ``wide`` says that the horizontal one is logarithmic."""
    values = [dot.value for dot in plot.dots]
    valid = [dot.value for dot in plot.dots if dot.metric.verdict not in _FOREIGN]
    usual = valid or values
    references = [dot.reference.value for dot in plot.dots if dot.reference]
    _, top = bounds(usual, references)
    near = [1.06 * value for value in plot.ceilings if value < 1.6 * top]
    # Only on two logarithmic axes is what is proportional a straight line.
    both = wide and plot.proportional
    low = 0.7 * min(v for v in (*usual, *references) if v > 0) if both else 0.0
    return Axis(low, max([top, *near]), logarithmic=both)


def _ideals(plot: Plot, x: Axis, y: Axis) -> Iterator[str]:
    """Yield, for each curve of a proportional parameter, the line from zero through its first dot."""
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
    line = [(x.at(dot.x), y.at(dot.value)) for dot in trace.dots]
    yield curve(f"trace c{number}", line)
    for dot in trace.dots:
        at, down = x.at(dot.x), y.at(dot.value)
        for sample in dot.samples:
            if not y.beyond(sample):
                place = across(at)
                yield mark("circle", "sample", cx=place, cy=y.at(sample), r=1.7)
        if dot.reference:
            shape = mark("path", "published", held_of(dot), d="M-9 0h18")
            yield symbol(at, y.at(dot.reference.value), shape)
        label = label_of(trace.name, dot)
        kind = f"c{number}" + ("" if dot.metric.verdict.is_valid else " off")
        beyond = y.beyond(dot.value)
        if beyond:
            drawn = arrow(at, down, beyond > 0, kind, f"beyond: {label}")
        else:
            shape = mark("path", f"dot {kind}", label, d=_SHAPES[number])
            if dot.metric.verdict is Verdict.FAIL:
                shape += mark("circle", "bad", cx=0, cy=0, r=8.5)
            drawn = symbol(at, down, shape)
        yield linked(drawn, anchor(dot), label)


def _legend(plot: Plot) -> Iterator[str]:
    """Yield the entries of a legend."""
    line = "M-13 0h26"
    for number, trace in enumerate(plot.traces):
        shape = mark("path", f"trace c{number}", d=line)
        shape += mark("path", f"dot c{number}", d=_SHAPES[number])
        yield key(shape, trace.name)
    if plot.proportional:
        yield key(mark("path", "ideal", d=line), "proportional to the first point")
    having = [dot.reference is not None for dot in plot.dots]
    if any(having):
        text = "reference" if all(having) else "reference (some points have none)"
        yield key(mark("path", "published", d="M-9 0h18"), text)
    for value, text in plot.ceilings.items():
        words = f"ceiling {short(round(value))} {plot.unit}: {text}"
        yield key(mark("path", "ceiling", d=line), words)
    verdicts = {dot.metric.verdict for dot in plot.dots}
    if Verdict.FAIL in verdicts:
        yield key(mark("circle", "bad", cx=0, cy=0, r=7), "ring: FAIL")
    if not all(verdict.is_valid for verdict in verdicts):
        shape = mark("path", "dot off c5", d=_SHAPES[1])
        yield key(shape, "hollow: not valid")
