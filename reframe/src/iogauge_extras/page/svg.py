"""The grammar of all figures: a scale, marks at places of it, and the figure around them, as SVG.

All figures have one style and the same axes. Text from outside is escaped here, and nowhere else.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Final

from iogauge.core.text import visible

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
        share = (place(max(value, self.low)) - low) / (high - low) if high > low else 0.5
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
    last = len(ordered) - 1 if len(ordered) <= _FEW else int(_USUAL * (len(ordered) - 1))
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
    return mark("polyline", kind, tip, points=" ".join(f"{x:.1f},{y:.1f}" for x, y in points))


def arrow(x: float, y: float, up: bool, kind: str, label: str) -> str:
    """Return the mark of a value beyond the axis."""
    tip = -7 if up else 7
    return mark("path", f"run clip {kind}", label, d=f"M{x:.1f} {y + tip:.1f}l5 {-tip}h-10z")


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
