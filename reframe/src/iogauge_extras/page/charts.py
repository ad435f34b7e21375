"""The figures of a metric's runs, and of the rates in one run: what is drawn, and where. Their form is figure.html.

A figure has no width of its own: places across it are per cent, and those down are pixels. So a phone draws it anew, with
letters of the same size.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from iogauge.judge.verdict import Verdict
from iogauge.records.record import ReferenceRecord

#: Where a vertical axis ends and begins, in pixels.
TOP, BASE = 30, 190

#: Space above the largest value, and below the smallest one, as factors.
_ABOVE, _BELOW = 1.08, 0.97
#: The axis begins at zero if a value is below this share of the largest.
_ZOOM: Final = 0.8


@dataclass(frozen=True, slots=True)
class Axis:
    """Where values lie, from below to above."""

    #: The least value, and the largest.
    low: float
    high: float

    def at(self, value: float) -> float:
        """Return the pixels down to a value."""
        share = 0.5
        if self.high > self.low:
            share = (value - self.low) / (self.high - self.low)
        return round(BASE + (TOP - BASE) * share, 1)

    @property
    def ticks(self) -> list[float]:
        """Return two to six round values."""
        if self.high <= self.low:
            return [self.low]
        raw = (self.high - self.low) / 4
        power = 10.0 ** math.floor(math.log10(raw))
        pace = next(m * power for m in (1, 2, 2.5, 5, 10) if m * power >= raw)
        first, last = math.ceil(self.low / pace), math.floor(self.high / pace)
        return [k * pace for k in range(first, last + 1)]


def short(value: float) -> str:
    """Return a round value as text for an axis."""
    if value == 0 or abs(value) >= 1e-3:
        return f"{value:,.10g}"
    return f"{value:.3g}"


@dataclass(frozen=True, slots=True)
class Run:
    """A run of a metric; of a case, the case's verdict with its first metric."""

    time: datetime
    session: str
    #: The median; 0 if there is none that statistics take.
    value: float
    verdict: Verdict
    series: str
    metric: str = ""
    unit: str = ""
    fingerprint: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Curve:
    """The runs of one metric of one line, and the values that they should have, in its unit."""

    title: str
    unit: str
    #: Oldest first.
    points: Sequence[Run]
    #: The reference of the newest run.
    reference: ReferenceRecord | None = None
    #: Level of the baseline.
    level: float | None = None
    #: Time of the first run of an alarm.
    since: datetime | None = None
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
        if valid < len(self.points):
            count += f", {valid} valid"
        parts = (self.system, count, self.unit.replace("1", ""), span, self.under)
        return "; ".join(filter(None, parts))

    @property
    def scale(self) -> Axis:
        """Return the axis. It begins at zero, so that a drop looks as large as it is, and closer only if there is no large drop."""
        values = [run.value for run in self.points] or [1.0]
        bounds = [self.level]
        if self.reference:
            of = self.reference
            bounds += [of.value, of.least, of.most]
        for bound in bounds:
            if bound is not None and bound > 0:
                values.append(bound)
        most = max(values)
        bottom = 0.0
        if min(values) > _ZOOM * most:
            bottom = min(values) * _BELOW
        return Axis(bottom, most * _ABOVE)

    def across(self, number: float) -> float:
        """Return the place of a run by its number, in per cent: they are at equal distances."""
        return round(100 * (number + 0.5) / max(len(self.points), 1), 2)


@dataclass(frozen=True, slots=True)
class Timeline:
    """Rates over the seconds of a run."""

    title: str
    unit: str
    #: Rates by their seconds, in order; one for each round.
    rounds: Sequence[Mapping[float, float]]
    #: Seconds of what happened, by its name.
    marks: Mapping[str, float]

    @property
    def scale(self) -> Axis:
        """Return the axis, with room for the texts of the marks."""
        most = [max(rates.values()) for rates in self.rounds if rates]
        return Axis(0.0, max(most) * 1.35)

    @property
    def last(self) -> float:
        """Return the last second."""
        return max(max(rates) for rates in self.rounds if rates)

    def across(self, second: float) -> float:
        """Return the place of a second, in per cent."""
        return round(100 * min(second / (self.last or 1.0), 1.0), 2)


def by_second(rates: Mapping[str, float]) -> dict[float, float]:
    """Return rates by their seconds, in order; raises ValueError for a name that is no number."""
    pairs = sorted((float(second), rate) for second, rate in rates.items())
    if not all(math.isfinite(second) for second, _ in pairs):
        raise ValueError("expected seconds")
    return dict(pairs)
