"""Draw figures as SVG: the runs of one metric, and curves over a parameter.

All figures use one scale, one style and the same axes. Each trace has a colour, a dash and a
shape of its own, so that it is told from the others without colours.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from html import escape
from pathlib import Path
from typing import Final

from iogauge.core.text import visible
from iogauge.core.units import with_unit
from iogauge.judge.verdict import Verdict
from iogauge_extras.page.sweeps import Dot, Plot, Trace, held_of, label_of, spaced

#: Bars of text, from the bottom of the scale to its top; what lies beyond is an arrow.
_BARS: Final = "▁▂▃▄▅▆▇█"
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 640, 246, 74, 16, 54, 30

#: Values above this multiple of the usual ones are clipped, so that one outlier hides no loss.
_BEYOND: Final = 2.0
#: Share of the runs that are usual; of so few, all are: no one can tell which of them is the outlier.
_USUAL, _FEW = 0.9, 5
#: Verdicts of values that are not the storage's: they define no axis.
_FOREIGN: Final = (Verdict.INVALID, Verdict.ERROR)
#: Space above the largest value, and below the smallest one, as factors.
_ABOVE, _BELOW = 1.08, 0.97
#: Bars of text begin at this share of the least value, if that is not far below the largest.
_LEAST_BAR: Final = 0.5
#: The axis begins at zero if a value is below this share of the largest.
_ZOOM: Final = 0.8

#: The style of all figures, for light and dark screens; a page with several figures contains it once. The colours of
#: traces are those of Okabe and Ito, and each trace also has a dash and a shape of its own.
FIGURE_STYLE: Final = (Path(__file__).parent / "figure.css").read_text(encoding="utf-8")


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
    which an alarm began, ``steps`` are the sessions with which the level changed. ``key`` names
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
    steps: tuple[str, ...] = ()
    system: str = ""
    key: str = ""
    under: str = ""

    @property
    def caption(self) -> str:
        """Return n, unit, span of time, and what the runs were measured with."""
        valid = sum(run.verdict.is_valid for run in self.points)
        days = list(dict.fromkeys(f"{run.time:%Y-%m-%d}" for run in self.points))
        span = " to ".join([*days[:1], *days[1:][-1:]])
        count = f"n = {len(self.points)} runs" + (
            f", {valid} valid" if valid < len(self.points) else ""
        )
        unit = self.unit.replace("1", "")
        return "; ".join(part for part in (self.system, count, unit, span, self.under) if part)


def bounds(usual: Sequence[float], fixed: Sequence[float] = ()) -> tuple[float, float]:
    """Return bottom and top of an axis on which no outlier hides the other values.

    The values (> 0) are in the order of time: the newest and the ``fixed`` ones are always within.
    Of the others, those above twice the usual ones are beyond the top. The axis begins at zero, so
    that a drop looks as large as it is, and closer only if there is no large drop.
    """
    ordered = sorted(usual)
    if not ordered and not fixed:
        return 0.0, 1.0
    last = len(ordered) - 1 if len(ordered) <= _FEW else int(_USUAL * (len(ordered) - 1))
    common = ordered[last] if ordered else 0.0
    cap = _BEYOND * max(common, *usual[-1:], *fixed)
    most = max([value for value in ordered if value <= cap] + list(fixed))
    least = min([*ordered, *fixed])
    return (least * _BELOW if least > _ZOOM * most else 0.0), most * _ABOVE


def scale_of(curve: Curve) -> tuple[float, float]:
    """Return bottom and top of a curve's axis: from the runs that are the storage's, if it has some."""
    valid = [run.value for run in curve.points if run.verdict not in _FOREIGN]
    marks = (curve.reference, curve.least, curve.most, curve.level)
    return bounds(
        valid or [run.value for run in curve.points], [v for v in marks if v is not None and v > 0]
    )


def bars(curve: Curve, newest: int) -> str:
    """Return the newest runs as a row of bars on the figure's scale: ``▇▇↑▇▃``."""
    _, top = scale_of(curve)
    least = min((run.value for run in curve.points[-newest:]), default=0.0)
    bottom = (
        _LEAST_BAR * least if least > _LEAST_BAR * top else 0.0
    )  # a loss of 30 % is no slight dip

    def bar(value: float) -> str:
        share = (value - bottom) / (top - bottom)
        if not 0 <= share <= 1:
            return "↑" if share > 1 else "↓"
        return _BARS[round(share * (len(_BARS) - 1))]

    return "".join(bar(run.value) for run in curve.points[-newest:])


def ticks(low: float, high: float, logarithmic: bool = False) -> list[float]:
    """Return two to six round values in a range; on a logarithmic axis mostly powers of ten."""
    if high <= low:
        return [low]
    if logarithmic:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1, 2, 5) if high / low < 100 else (1,)
        found = [
            m * 10.0**power for power in powers for m in steps if low <= m * 10.0**power <= high
        ]
        return found[:: 1 + len(found) // 7]
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / pace)
    return [k * pace for k in range(first, math.floor(high / pace) + 1)]


@dataclass(frozen=True, slots=True)
class Ordinate:
    """Where values lie on the vertical axis of a figure; a ``logarithmic`` one begins above 0."""

    bottom: float
    top: float
    high: int = HIGH
    logarithmic: bool = False

    @property
    def depth(self) -> int:
        """Return the height of the field in which values are drawn."""
        return self.high - TOP - BOTTOM

    def y(self, value: float) -> float:
        """Return the height of a value; of one beyond the axis, that of its end."""
        if self.logarithmic:
            share = math.log(max(value, self.bottom) / self.bottom) / math.log(
                self.top / self.bottom
            )
        else:
            share = (value - self.bottom) / (self.top - self.bottom)
        return TOP + self.depth * (1 - min(max(share, 0.0), 1.0))

    def beyond(self, value: float) -> int:
        """Return 1 for a value above the axis, -1 for one below it, else 0."""
        return (value > self.top) - (value < self.bottom)

    def grid(self, unit: str) -> Iterator[str]:
        """Yield the lines of round values with their texts, and the unit."""
        for tick in ticks(self.bottom, self.top, self.logarithmic):
            y = self.y(tick)
            yield f'<path class="grid" d="M{LEFT} {y:.1f}h{WIDE - LEFT - RIGHT}"/>'
            yield f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{short(tick)}</text>'
        yield f'<text x="{LEFT - 6}" y="{TOP - 12}" text-anchor="end">{escape(visible(unit))}</text>'

    def line(self, kind: str, value: float | None, name: str) -> Iterator[str]:
        """Yield a horizontal line with its name as a tooltip; nothing if it is beyond the axis."""
        if value is not None and not self.beyond(value):
            yield (
                f'<path class="{kind}" d="M{LEFT} {self.y(value):.1f}h{WIDE - LEFT - RIGHT}">'
                f"<title>{escape(visible(name))}</title></path>"
            )


def begin(title: str, high: int = HIGH, role: str = "img") -> str:
    """Return the beginning of a figure: the tag and the title; one with links has the role group."""
    text = escape(visible(title))
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog" viewBox="0 0 {WIDE} {high}" role="{role}" '
        f'aria-label="{text}"><text class="title" x="8" y="17">{text}</text>'
    )


def arrow(x: float, y: float, up: bool, kind: str, label: str) -> str:
    """Return the mark of a value beyond the axis."""
    tip = -7 if up else 7
    return (
        f'<path class="run clip {kind}" d="M{x:.1f} {y + tip:.1f}l5 {-tip}h-10z">'
        f"<title>{escape(visible(label))}</title></path>"
    )


def svg(curve: Curve, *, alone: bool = False, anchors: Sequence[str] = ()) -> str:
    """Return the curve as SVG, with runs at equal distances; escapes text from outside.

    With ``alone`` the SVG is a complete file, with its own style. ``anchors`` are where a page
    tells of each run; the marks are links to them.
    """
    scale = Ordinate(*scale_of(curve))
    head = begin(curve.title, role="group" if anchors else "img")
    if alone:
        paper = f'<rect class="paper" width="{WIDE}" height="{HIGH}"/>'
        head = head.replace("<text", f"<style>{FIGURE_STYLE}</style>{paper}<text", 1)
    return "".join(
        [
            head,
            *_band(curve, scale),
            *scale.grid(curve.unit),
            *scale.line("reference", curve.reference, f"reference {curve.reference}"),
            *scale.line("level", curve.level, "level of the baseline"),
            *scale.line("limit", curve.low, "lower control limit: level - 3 s of the baseline"),
            *scale.line("limit", curve.high, "upper control limit: level + 3 s of the baseline"),
            *_marks(curve),
            *_runs(curve, scale, anchors),
            "</svg>",
        ]
    )


def overlay(system: str, curves: Sequence[Curve]) -> str:
    """Return the runs of all metrics of a system over time, each relative to its level; alarmed ones stand out."""
    times = [run.time.timestamp() for curve in curves for run in curve.points]
    first, last = min(times), max(times)
    shares = []
    for curve in curves:
        valid = [run for run in curve.points if run.verdict not in _FOREIGN]
        level = curve.level or statistics.median([run.value for run in valid] or [1.0])
        shares.append([(run.time.timestamp(), run.value / level) for run in valid])
    scale = Ordinate(0.0, min(max([1.2, *(s for one in shares for _, s in one)]), _BEYOND))
    parts = [begin(f"{system}: all metrics, each relative to its level"), *scale.grid("")]
    ordered = sorted(zip(curves, shares, strict=True), key=lambda one: one[0].since is not None)
    for curve, runs in ordered:
        line = " ".join(
            f"{LEFT + (WIDE - LEFT - RIGHT) * (time - first) / max(last - first, 1):.1f},{scale.y(share):.1f}"
            for time, share in runs
        )
        kind = "one worse" if curve.since else "one"
        parts.append(f'<polyline class="{kind}" points="{line}">{tip_of(curve.title)}</polyline>')
    for time, place, anchor in ((first, LEFT, "start"), (last, WIDE - RIGHT, "end")):
        day = f"{datetime.fromtimestamp(time, timezone.utc):%Y-%m-%d %H:%M}"
        parts.append(f'<text x="{place}" y="{HIGH - 8}" text-anchor="{anchor}">{day}</text>')
    return "".join([*parts, "</svg>"])


def _x(curve: Curve, run: float) -> float:
    """Return the middle of a run."""
    return LEFT + (WIDE - LEFT - RIGHT) * (run + 0.5) / max(len(curve.points), 1)


def _band(curve: Curve, scale: Ordinate) -> Iterator[str]:
    """Yield the area of the values that meet the reference, if they are bounded."""
    if curve.least is None and curve.most is None:
        return
    above = scale.y(scale.top if curve.most is None else curve.most)
    below = scale.y(scale.bottom if curve.least is None else curve.least)
    yield (
        f'<rect class="band" x="{LEFT}" y="{above:.1f}" width="{WIDE - LEFT - RIGHT}" '
        f'height="{max(below - above, 0):.1f}"/>'
    )


def _marks(curve: Curve) -> Iterator[str]:
    """Yield a line at each change of series and of level, and one with the time of an alarm."""
    runs, depth = curve.points, HIGH - TOP - BOTTOM
    for number in range(1, len(runs)):
        changed = runs[number].series != runs[number - 1].series
        if changed or runs[number].session in curve.steps:
            why = (
                "another series from here: the fingerprint changed"
                if changed
                else "the level changed here"
            )
            yield (
                f'<path class="change" d="M{_x(curve, number - 0.5):.1f} {TOP}v{depth}">'
                f"<title>{why}</title></path>"
            )
    first = next((k for k, run in enumerate(runs) if run.session == curve.since), None)
    if first is not None:
        at = _x(curve, first - 0.5)
        anchor = "end" if at > LEFT + (WIDE - LEFT - RIGHT) / 2 else "start"
        yield (
            f'<path class="since" d="M{at:.1f} {TOP - 8}v{depth + 8}"/>'
            f'<text class="word" x="{at:.1f}" y="{TOP - 12}" text-anchor="{anchor}">'
            f"since {runs[first].time:%Y-%m-%d %H:%M}</text>"
        )


def _runs(curve: Curve, scale: Ordinate, anchors: Sequence[str]) -> Iterator[str]:
    """Yield the line through the runs, a mark for each run, and the first and last time."""
    runs = curve.points
    line = " ".join(f"{_x(curve, k):.1f},{scale.y(run.value):.1f}" for k, run in enumerate(runs))
    yield f'<polyline class="runs" points="{line}"/>'
    radius = 3.4 if len(runs) < 60 else 2.6
    for k, run in enumerate(runs):
        kind = run.verdict.value if run.verdict.is_valid else "off"  # drawn hollow
        label = (
            f"{run.time:%Y-%m-%d %H:%M} {with_unit(run.value, curve.unit)} "
            f"{run.verdict.value} {run.session}"
        )
        x, y = _x(curve, k), scale.y(run.value)
        if beyond := scale.beyond(run.value):
            mark = arrow(x, y, beyond > 0, kind, f"beyond the axis: {label}")
        else:
            mark = f'<circle class="run {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">{tip_of(label)}</circle>'
        # The table below the figure has the same links for the keyboard.
        yield f'<a href="#{anchors[k]}" tabindex="-1">{mark}</a>' if anchors else mark
    ends = [(run, LEFT, "start") for run in runs[:1]]
    ends += [(run, WIDE - RIGHT, "end") for run in runs[1:][-1:]]
    for run, place, anchor in ends:
        time = f"{run.time:%Y-%m-%d %H:%M}"
        yield f'<text x="{place}" y="{HIGH - 8}" text-anchor="{anchor}">{time}</text>'


def short(value: float) -> str:
    """Return a round value as text for an axis."""
    return f"{value:,.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"


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


def linked(mark: str, anchor: str, label: str) -> str:
    """Return a mark as a link to a place of the page, if there is one."""
    name = escape(visible(label))
    return f'<a href="#{anchor}" aria-label="{name}">{mark}</a>' if anchor else mark


def tip_of(text: str) -> str:
    """Return the text of a mark, which a browser shows as a tooltip."""
    return f"<title>{escape(visible(text))}</title>"


def sweep(plot: Plot, anchor: Callable[[Dot], str]) -> str:
    """Return curves over a parameter, with the ideal line, published points and the ceiling.

    ``anchor`` returns where the record of a dot is on the page.
    """
    dots = plot.dots
    places = sorted({dot.x for dot in dots})
    sizes = any(not dot.text.replace(".", "").isdigit() for dot in dots)
    stretched = places[0] > 0 and (sizes or places[-1] / places[0] > _LOGARITHMIC)
    x = _horizontal(places, stretched)
    values = [v for dot in dots for v in (*dot.samples, dot.value) if v > 0]
    references = [dot.reference.value for dot in dots if dot.reference]
    usual = [dot.value for dot in dots if dot.metric.verdict not in _FOREIGN] or values
    _, top = bounds(usual, references)
    near = [value for value in plot.ceilings if value < 1.6 * top]
    # Only on two logarithmic axes is what is proportional a straight line.
    both = stretched and plot.proportional
    low = 0.7 * min(v for v in (*usual, *references) if v > 0) if both else 0.0
    scale = Ordinate(low, max([top, *(1.06 * value for value in near)]), logarithmic=both)
    legend = list(_legend(plot))
    high = HIGH + _LINE * ((len(legend) + 1) // 2) + 20
    base = HIGH - BOTTOM
    words = ": ".join(filter(None, (plot.title, plot.shown_unit)))
    parts = [begin(f"{words} over {plot.x_name}", high, "group"), *scale.grid(plot.shown_unit)]
    for value, text in plot.ceilings.items():
        parts += scale.line("ceiling", value, f"ceiling {with_unit(value, plot.unit)}: {text}")
    for dot in {dot.x: dot for dot in dots}.values():
        parts.append(
            f'<path class="axis" d="M{x(dot.x):.1f} {base}v5"/>'
            f'<text x="{x(dot.x):.1f}" y="{base + 18}" text-anchor="middle">{escape(visible(spaced(dot.text)))}</text>'
        )
    parts += _ideals(plot, x, scale)
    for number, trace in enumerate(plot.traces):
        parts += _trace(trace, number, x, scale, anchor)
    for k, entry in enumerate(legend):
        place = f"translate({LEFT + (k % 2) * 290} {HIGH + 20 + _LINE * (k // 2)})"
        parts.append(f'<g transform="{place}">{entry}</g>')
    how = "; both axes logarithmic" if both else ", logarithmic" if stretched else ""
    name = plot.x_name + how
    parts.append(f'<text x="{WIDE - RIGHT}" y="{base + 33}" text-anchor="end">{name}</text>')
    return "".join([*parts, "</svg>"])


def _horizontal(values: Sequence[float], logarithmic: bool) -> Callable[[float], float]:
    """Return where values of the parameter lie on the horizontal axis."""
    first, last = values[0], values[-1]
    position = math.log if logarithmic else float
    low, high = position(first), position(last)
    wide = WIDE - LEFT - RIGHT - 60

    def x(value: float) -> float:
        share = (position(value) - low) / (high - low) if high > low else 0.5
        return LEFT + 30 + wide * share

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
        yield f'<polyline class="ideal" points="{line}">{tip_of(f"ideal for {trace.name}")}</polyline>'


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
            yield (
                f'<path class="published" d="M{at - 9:.1f} {scale.y(reference.value):.1f}h18">'
                f"{tip_of(held_of(dot))}</path>"
            )
        label = label_of(trace.name, dot)
        kind = f"c{number}" + ("" if metric.verdict.is_valid else " off")
        if beyond := scale.beyond(dot.value):
            mark = arrow(at, scale.y(dot.value), beyond > 0, kind, f"beyond: {label}")
        else:
            place = f"translate({at:.1f} {scale.y(dot.value):.1f})"
            shape = _SHAPES[number]
            mark = (
                f'<path class="dot {kind}" transform="{place}" d="{shape}">{tip_of(label)}</path>'
            )
            if metric.verdict is Verdict.FAIL:
                mark += f'<circle class="bad" cx="{at:.1f}" cy="{scale.y(dot.value):.1f}" r="8.5"/>'
        yield linked(mark, anchor(dot), label)


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
        every = all(dot.reference for dot in plot.dots)
        words = "reference" if every else "reference (some points have none)"
        yield f'<path class="published" d="M4 0h18"/><text x="34" y="4">{words}</text>'
    for value, text in plot.ceilings.items():
        words = f"ceiling {short(round(value))} {plot.unit}"
        if len(words) + len(text) < 34:
            words += f": {text}"
        yield f'<path class="ceiling" d="M0 0h26"/><text x="34" y="4">{escape(visible(words))}</text>'
    if any(dot.metric.verdict is Verdict.FAIL for dot in plot.dots):
        yield '<circle class="bad" cx="13" cy="0" r="7"/><text x="34" y="4">ring: FAIL</text>'
    if any(not dot.metric.verdict.is_valid for dot in plot.dots):
        yield '<path class="dot off c5" d="M9 -4h8v8h-8z"/><text x="34" y="4">hollow: not valid</text>'
