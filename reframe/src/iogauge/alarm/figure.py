"""The runs of one metric as a figure: SVG that needs nothing else, and a line of text where no figure goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from html import escape
from typing import Final

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.judge.verdict import Verdict

#: Height of a text's bar, from nothing to the largest value.
_BARS: Final = "▁▂▃▄▅▆▇█"
_WIDE, _HIGH, _LEFT, _RIGHT, _TOP, _BOTTOM = 640, 210, 66, 14, 28, 26

#: Colours by light and by dark; a page that holds figures gives it once.
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
class Point:
    """A run's median, in the curve's unit."""

    time: datetime
    session: str
    value: float
    verdict: Verdict
    series: str
    fingerprint: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The runs of one metric of one line, the oldest first, and what they are to meet.

    ``least`` and ``most`` bound the values that meet the reference; None: no bound. ``since`` is the session with
    which an alarm began.
    """

    title: str
    unit: str
    points: Sequence[Point]
    reference: float | None = None
    least: float | None = None
    most: float | None = None
    since: str | None = None


def bars(values: Sequence[float]) -> str:
    """Values > 0 as a row of bars, each from nothing: ``▇▇▇▃``."""
    top = max(values, default=0.0)
    return "".join(_BARS[round(value / top * (len(_BARS) - 1))] for value in values)


def _ticks(low: float, high: float) -> list[float]:
    """Two to six round values of a range."""
    if high <= low:
        return [low]
    raw = (high - low) / 4
    power = 10.0 ** math.floor(math.log10(raw))
    pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
    first = math.ceil(low / pace)
    return [k * pace for k in range(first, math.floor(high / pace) + 1)]


def svg(curve: Curve, *, alone: bool = False) -> str:
    """The curve as SVG, runs in equal steps; text from outside is escaped. ``alone``: as a file of its own."""
    points = curve.points
    known = [p.value for p in points]
    known += [v for v in (curve.reference, curve.least, curve.most) if v is not None]
    top, low = max(known, default=1.0) * 1.08, min(known, default=0.0)
    # From nothing, so that a drop looks as large as it is; closer only where there is no drop to speak of.
    bottom = low * 0.97 if low > 0.8 * max(known, default=1.0) else 0.0
    wide, high = _WIDE - _LEFT - _RIGHT, _HIGH - _TOP - _BOTTOM

    def x(run: int) -> float:
        return _LEFT + wide * (run + 0.5) / max(len(points), 1)

    def y(value: float) -> float:
        return _TOP + high * (1 - (value - bottom) / (top - bottom))

    title = escape(visible(curve.title))
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" class="iog" viewBox="0 0 {_WIDE} {_HIGH}" role="img" '
        f'aria-label="{title}">'
    ]
    if alone:
        parts.append(
            f'<style>{STYLE}</style><rect class="paper" width="{_WIDE}" height="{_HIGH}"/>'
        )
    parts.append(f'<text class="title" x="{_LEFT}" y="16">{title}</text>')
    if curve.least is not None or curve.most is not None:
        above = y(top if curve.most is None else min(curve.most, top))
        below = y(bottom if curve.least is None else max(curve.least, bottom))
        parts.append(
            f'<rect class="band" x="{_LEFT}" y="{above:.1f}" width="{wide}" height="{max(below - above, 0):.1f}"/>'
        )
    for tick in _ticks(bottom, top):
        parts.append(
            f'<path class="grid" d="M{_LEFT} {y(tick):.1f}h{wide}"/>'
            f'<text x="{_LEFT - 6}" y="{y(tick) + 4:.1f}" text-anchor="end">{_short(tick)}</text>'
        )
    parts.append(f'<text x="4" y="16">{escape(visible(curve.unit))}</text>')
    if curve.reference is not None:
        parts.append(f'<path class="reference" d="M{_LEFT} {y(curve.reference):.1f}h{wide}"/>')
    for run in range(1, len(points)):
        if points[run].series != points[run - 1].series:
            parts.append(
                f'<path class="change" d="M{(x(run) + x(run - 1)) / 2:.1f} {_TOP}v{high}">'
                "<title>another series from here: the fingerprint changed</title></path>"
            )
    begin = next((k for k, p in enumerate(points) if p.session == curve.since), None)
    if begin is not None:
        at = x(begin) - wide * 0.5 / len(points)
        anchor, off = ("end", -5) if at > _LEFT + wide / 2 else ("start", 5)
        parts.append(
            f'<path class="since" d="M{at:.1f} {_TOP}v{high}"/>'
            f'<text class="word" x="{at + off:.1f}" y="{_HIGH - _BOTTOM - 6}" text-anchor="{anchor}">'
            f"since {points[begin].time:%Y-%m-%d %H:%M}</text>"
        )
    line = " ".join(f"{x(k):.1f},{y(p.value):.1f}" for k, p in enumerate(points))
    parts.append(f'<polyline class="runs" points="{line}"/>')
    for k, point in enumerate(points):
        kind = point.verdict.value if point.verdict.is_valid else "off"  # drawn hollow
        said = f"{point.time:%Y-%m-%d %H:%M} {format_value(point.value)} {curve.unit} {point.verdict.value}"
        parts.append(
            f'<circle class="{kind}" cx="{x(k):.1f}" cy="{y(point.value):.1f}" r="{3 if len(points) < 60 else 2}">'
            f"<title>{escape(visible(said))} {escape(visible(point.session))}</title></circle>"
        )
    if points:
        ends = [(points[0], _LEFT, "start")]
        ends += [(points[-1], _WIDE - _RIGHT, "end")] if len(points) > 1 else []
        parts += [
            f'<text x="{place}" y="{_HIGH - 7}" text-anchor="{anchor}">{p.time:%Y-%m-%d %H:%M}</text>'
            for p, place, anchor in ends
        ]
    return "".join([*parts, "</svg>"])


def _short(value: float) -> str:
    """A round value as an axis shows it."""
    return f"{value:,.10g}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"
