"""Draw the runs of one metric: as SVG that needs no other file, and as a line of text."""

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

#: Bars of text, from zero to the largest value.
_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 210, 66, 14, 28, 26

#: Colours for light and dark screens; a page with several figures contains it once.
STYLE: Final = """
.iog{--ink:#1f2328;--dim:#59636e;--grid:#d1d9e0;--band:#1a7f3726;--line:#0969da;--bad:#cf222e;--paper:#fff}
@media(prefers-color-scheme:dark){.iog{--ink:#f0f6fc;--dim:#9198a1;--grid:#3d444d;--band:#3fb95030;--line:#4493f8;--bad:#ff7b72;--paper:#0d1117}}
.iog text{fill:var(--dim);font:13px system-ui,sans-serif}
.iog .title{fill:var(--ink);font-weight:600}
.iog .grid{stroke:var(--grid)}
.iog .band{fill:var(--band)}
.iog .reference{stroke:var(--dim);stroke-dasharray:5 4}
.iog .runs{fill:none;stroke:var(--line);stroke-width:1.6}
.iog .change{stroke:var(--dim);stroke-dasharray:2 3}
.iog .since{stroke:var(--bad);stroke-width:1.4}
.iog .word{fill:var(--bad)}
.iog circle{fill:var(--line);stroke:var(--line);stroke-width:1.4}
.iog circle.off{fill:var(--paper)}
.iog circle.FAIL{fill:var(--bad);stroke:var(--bad)}
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

    ``least`` and ``most`` bound the values that meet the reference; None is no bound. ``since`` is
    the session with which an alarm began.
    """

    title: str
    unit: str
    points: Sequence[Run]
    reference: float | None = None
    least: float | None = None
    most: float | None = None
    since: str | None = None


def bars(values: Sequence[float]) -> str:
    """Return values > 0 as a row of bars, each starting at zero: ``▇▇▇▃``."""
    top = max(values, default=0.0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _ticks(low: float, high: float) -> list[float]:
    """Return two to six round values in a range."""
    if high <= low:
        return [low]
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / pace)
    return [k * pace for k in range(first, math.floor(high / pace) + 1)]


class _Scale:
    """Where a curve's runs and values lie in the figure."""

    wide, high = _WIDE - _LEFT - _RIGHT, _HIGH - _TOP - _BOTTOM

    def __init__(self, curve: Curve) -> None:
        bounds = (curve.reference, curve.least, curve.most)
        values = [run.value for run in curve.points] + [v for v in bounds if v is not None]
        most, least = max(values, default=1.0), min(values, default=0.0)
        self.runs = len(curve.points)
        self.top = most * 1.08
        # From zero, so that a drop looks as large as it is; closer only if there is no large drop.
        self.bottom = least * 0.97 if least > 0.8 * most else 0.0

    def x(self, run: int) -> float:
        """Return the middle of a run."""
        return _LEFT + self.wide * (run + 0.5) / max(self.runs, 1)

    def y(self, value: float) -> float:
        """Return the height of a value."""
        return _TOP + self.high * (1 - (value - self.bottom) / (self.top - self.bottom))


def svg(curve: Curve, *, alone: bool = False) -> str:
    """Return the curve as SVG, with runs at equal distances; escapes text from outside.

    With ``alone`` the SVG is a complete file, with its own style.
    """
    scale, title = _Scale(curve), escape(visible(curve.title))
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog" viewBox="0 0 {_WIDE} {_HIGH}" role="img" '
        f'aria-label="{title}">'
    )
    style = f'<style>{STYLE}</style><rect class="paper" width="{_WIDE}" height="{_HIGH}"/>'
    return "".join(
        [
            head,
            *([style] if alone else []),
            f'<text class="title" x="{_LEFT}" y="16">{title}</text>',
            *_band(curve, scale),
            *_grid(curve, scale),
            *_marks(curve, scale),
            *_runs(curve, scale),
            "</svg>",
        ]
    )


def _band(curve: Curve, scale: _Scale) -> Iterator[str]:
    """Yield the area of the values that meet the reference, if they are bounded."""
    if curve.least is None and curve.most is None:
        return
    above = scale.y(scale.top if curve.most is None else min(curve.most, scale.top))
    below = scale.y(scale.bottom if curve.least is None else max(curve.least, scale.bottom))
    yield (
        f'<rect class="band" x="{_LEFT}" y="{above:.1f}" width="{scale.wide}" '
        f'height="{max(below - above, 0):.1f}"/>'
    )


def _grid(curve: Curve, scale: _Scale) -> Iterator[str]:
    """Yield the lines of round values with their texts, the unit, and the line of the reference."""
    for tick in _ticks(scale.bottom, scale.top):
        y = scale.y(tick)
        yield f'<path class="grid" d="M{_LEFT} {y:.1f}h{scale.wide}"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
    yield f'<text x="4" y="16">{escape(visible(curve.unit))}</text>'
    if curve.reference is not None:
        y = scale.y(curve.reference)
        yield f'<path class="reference" d="M{_LEFT} {y:.1f}h{scale.wide}"/>'


def _marks(curve: Curve, scale: _Scale) -> Iterator[str]:
    """Yield a line at each change of series, and a line with the time at which an alarm began."""
    runs = curve.points
    for number in range(1, len(runs)):
        if runs[number].series != runs[number - 1].series:
            between = (scale.x(number) + scale.x(number - 1)) / 2
            yield (
                f'<path class="change" d="M{between:.1f} {_TOP}v{scale.high}">'
                "<title>another series from here: the fingerprint changed</title></path>"
            )
    begin = next((k for k, run in enumerate(runs) if run.session == curve.since), None)
    if begin is not None:
        at = scale.x(begin) - scale.wide * 0.5 / len(runs)
        anchor, off = ("end", -5) if at > _LEFT + scale.wide / 2 else ("start", 5)
        yield (
            f'<path class="since" d="M{at:.1f} {_TOP}v{scale.high}"/>'
            f'<text class="word" x="{at + off:.1f}" y="{_HIGH - _BOTTOM - 6}" text-anchor="{anchor}">'
            f"since {runs[begin].time:%Y-%m-%d %H:%M}</text>"
        )


def _runs(curve: Curve, scale: _Scale) -> Iterator[str]:
    """Yield the line through the runs, a circle for each run, and the first and last time."""
    runs = curve.points
    line = " ".join(f"{scale.x(k):.1f},{scale.y(run.value):.1f}" for k, run in enumerate(runs))
    yield f'<polyline class="runs" points="{line}"/>'
    radius = 3 if len(runs) < 60 else 2
    for k, run in enumerate(runs):
        kind = run.verdict.value if run.verdict.is_valid else "off"  # drawn hollow
        label = (
            f"{run.time:%Y-%m-%d %H:%M} {format_value(run.value)} {curve.unit} {run.verdict.value}"
        )
        yield (
            f'<circle class="{kind}" cx="{scale.x(k):.1f}" cy="{scale.y(run.value):.1f}" r="{radius}">'
            f"<title>{escape(visible(label))} {escape(visible(run.session))}</title></circle>"
        )
    ends = [(run, _LEFT, "start") for run in runs[:1]]
    ends += [(run, _WIDE - _RIGHT, "end") for run in runs[1:][-1:]]
    for run, place, anchor in ends:
        time = f"{run.time:%Y-%m-%d %H:%M}"
        yield f'<text x="{place}" y="{_HIGH - 7}" text-anchor="{anchor}">{time}</text>'


def _short(value: float) -> str:
    """Return a round value as text for an axis."""
    return f"{value:,.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"
