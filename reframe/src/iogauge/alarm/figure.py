"""Draw the runs of one metric as a control chart: as SVG that needs no other file, and as text.

The other figures of a page use the same scale, style and axes: see :mod:`iogauge.alarm.charts`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict

#: Bars of text, from the bottom of the scale to its top; what lies beyond is an arrow.
_BARS: Final = "▁▂▃▄▅▆▇█"
WIDE, HIGH, LEFT, RIGHT, TOP, BOTTOM = 640, 236, 74, 16, 44, 30

#: Values above this multiple of the usual ones are clipped, so that one outlier hides no loss.
_BEYOND: Final = 2.0
#: Share of the runs that are usual.
_USUAL: Final = 0.9
#: Space above the largest value, and below the smallest one, as factors.
_ABOVE, _BELOW = 1.08, 0.97
#: The axis begins at zero if a value is below this share of the largest.
_ZOOM: Final = 0.8

#: Colours for light and dark screens; a page with several figures contains it once. The colours of traces are those of
#: Okabe and Ito, and each trace also has a dash and a shape of its own.
STYLE: Final = """
.iog{--ink:#1f2328;--dim:#57606a;--grid:#d1d9e0;--band:#0969da1f;--line:#0550ae;--bad:#b3261e;--paper:#fff;
--t0:#0072b2;--t1:#b34700;--t2:#00795c;--t3:#a3447d;--t4:#7a5c00;--t5:#1f2328}
@media screen and (prefers-color-scheme:dark){.iog{--ink:#f0f6fc;--dim:#a2abb4;--grid:#3d444d;--band:#4493f838;--line:#79b8ff;--bad:#ff9a92;--paper:#0d1117;
--t0:#56b4e9;--t1:#ff9d5c;--t2:#3ed6a8;--t3:#e79ac6;--t4:#e6c34a;--t5:#f0f6fc}}
.iog text{fill:var(--dim);font:13px system-ui,sans-serif}
.iog .title{fill:var(--ink);font-weight:600}
.iog .grid{stroke:var(--grid)}
.iog .band{fill:var(--band)}
.iog .reference{stroke:var(--ink);stroke-dasharray:7 4;stroke-width:1.3}
.iog .ceiling{stroke:var(--ink);stroke-width:2.4}
.iog .level{stroke:var(--dim);stroke-width:1.2}
.iog .limit{stroke:var(--dim);stroke-dasharray:2 4;stroke-width:1.2}
.iog .runs{fill:none;stroke:var(--line);stroke-width:1.6}
.iog .change{stroke:var(--dim);stroke-dasharray:2 3}
.iog .since{stroke:var(--bad);stroke-width:1.6}
.iog .word{fill:var(--bad);font-weight:600}
.iog .run{fill:var(--line);stroke:var(--line);stroke-width:1.4}
.iog .run.off{fill:var(--paper)}
.iog .run.FAIL{fill:var(--bad);stroke:var(--bad)}
.iog .paper{fill:var(--paper)}
"""


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
        return "; ".join(part for part in (self.system, count, self.unit, span, self.under) if part)


def bounds(usual: Sequence[float], fixed: Sequence[float] = ()) -> tuple[float, float]:
    """Return bottom and top of an axis on which no outlier hides the other values.

    The values (> 0) are in the order of time: the newest and the ``fixed`` ones are always within.
    Of the others, those above twice the usual ones are beyond the top. The axis begins at zero, so
    that a drop looks as large as it is, and closer only if there is no large drop.
    """
    ordered = sorted(usual)
    if not ordered and not fixed:
        return 0.0, 1.0
    common = ordered[int(_USUAL * (len(ordered) - 1))] if ordered else 0.0
    cap = _BEYOND * max(common, *usual[-1:], *fixed)
    most = max([value for value in ordered if value <= cap] + list(fixed))
    least = min([*ordered, *fixed])
    return (least * _BELOW if least > _ZOOM * most else 0.0), most * _ABOVE


def scale_of(curve: Curve) -> tuple[float, float]:
    """Return bottom and top of a curve's axis: from its valid runs, if it has some."""
    valid = [run.value for run in curve.points if run.verdict.is_valid]
    marks = (curve.reference, curve.least, curve.most, curve.level)
    return bounds(
        valid or [run.value for run in curve.points], [v for v in marks if v is not None and v > 0]
    )


def bars(curve: Curve, newest: int) -> str:
    """Return the newest runs as a row of bars on the figure's scale: ``▇▇↑▇▃``."""
    bottom, top = scale_of(curve)

    def bar(value: float) -> str:
        share = (value - bottom) / (top - bottom)
        if not 0 <= share <= 1:
            return "↑" if share > 1 else "↓"
        return _BARS[round(share * (len(_BARS) - 1))]

    return "".join(bar(run.value) for run in curve.points[-newest:])


def ticks(low: float, high: float) -> list[float]:
    """Return two to six round values in a range."""
    if high <= low:
        return [low]
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / pace)
    return [k * pace for k in range(first, math.floor(high / pace) + 1)]


@dataclass(frozen=True, slots=True)
class Ordinate:
    """Where values lie on the vertical axis of a figure."""

    bottom: float
    top: float
    high: int = HIGH

    @property
    def depth(self) -> int:
        """Return the height of the field in which values are drawn."""
        return self.high - TOP - BOTTOM

    def y(self, value: float) -> float:
        """Return the height of a value; of one beyond the axis, that of its end."""
        share = (value - self.bottom) / (self.top - self.bottom)
        return TOP + self.depth * (1 - min(max(share, 0.0), 1.0))

    def beyond(self, value: float) -> int:
        """Return 1 for a value above the axis, -1 for one below it, else 0."""
        return (value > self.top) - (value < self.bottom)

    def grid(self, unit: str) -> Iterator[str]:
        """Yield the lines of round values with their texts, and the unit."""
        for tick in ticks(self.bottom, self.top):
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


def svg(curve: Curve, *, alone: bool = False) -> str:
    """Return the curve as SVG, with runs at equal distances; escapes text from outside.

    With ``alone`` the SVG is a complete file, with its own style.
    """
    scale = Ordinate(*scale_of(curve))
    head = begin(curve.title)
    if alone:
        paper = f'<rect class="paper" width="{WIDE}" height="{HIGH}"/>'
        head = head.replace("<text", f"<style>{STYLE}</style>{paper}<text", 1)
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
            *_runs(curve, scale),
            "</svg>",
        ]
    )


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


def _runs(curve: Curve, scale: Ordinate) -> Iterator[str]:
    """Yield the line through the runs, a mark for each run, and the first and last time."""
    runs = curve.points
    line = " ".join(f"{_x(curve, k):.1f},{scale.y(run.value):.1f}" for k, run in enumerate(runs))
    yield f'<polyline class="runs" points="{line}"/>'
    radius = 3.4 if len(runs) < 60 else 2.6
    for k, run in enumerate(runs):
        kind = run.verdict.value if run.verdict.is_valid else "off"  # drawn hollow
        label = (
            f"{run.time:%Y-%m-%d %H:%M} {format_value(run.value)} {curve.unit} "
            f"{run.verdict.value} {run.session}"
        )
        x, y = _x(curve, k), scale.y(run.value)
        if beyond := scale.beyond(run.value):
            yield arrow(x, y, beyond > 0, kind, f"beyond the axis: {label}")
            continue
        yield (
            f'<circle class="run {kind}" cx="{x:.1f}" cy="{y:.1f}" r="{radius}">'
            f"<title>{escape(visible(label))}</title></circle>"
        )
    ends = [(run, LEFT, "start") for run in runs[:1]]
    ends += [(run, WIDE - RIGHT, "end") for run in runs[1:][-1:]]
    for run, place, anchor in ends:
        time = f"{run.time:%Y-%m-%d %H:%M}"
        yield f'<text x="{place}" y="{HIGH - 8}" text-anchor="{anchor}">{time}</text>'


def short(value: float) -> str:
    """Return a round value as text for an axis."""
    return f"{value:,.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"
