"""Quantities computed from the records of several cases: curves, comparisons, cost.

Every formula stands in docs/derived.md with its source. Nothing here reads a file or knows ReFrame:
:func:`newest_points` picks the operands out of records that the caller hands over, newest first; the
formulas take points and say which they used.
"""

from __future__ import annotations

import calendar
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from iogauge.core.measurement import Metric
from iogauge.records.record import MetricRecord, Record

#: Name under which a derived case's findings say which points it lacks.
POINTS: Final = "points"

#: Share of the plateau from which on a curve counts as saturated.
SATURATED: Final = 0.95


class NotComputable(ValueError):
    """A quantity cannot be computed from the points there are; the message says what is lacking."""


class NotMeasured(NotComputable):
    """As :class:`NotComputable`, because cases that it rests on have not been run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Median of one case's metric, in the metric's unit, and the record that holds it.

    ``x`` is the value of what the cases vary, 0 where they are not ordered by one thing.
    """

    x: float
    value: float
    partition: str
    session: str
    case: str
    time: str


@dataclass(frozen=True, slots=True)
class Derived:
    """A computed quantity and the points that decided it."""

    value: float
    used: tuple[Point, ...]


# Curves.
def _curve(points: Sequence[Point]) -> list[Point]:
    """Points by x; raises :class:`NotComputable` below two."""
    if len(points) < 2:
        raise NotComputable(f"needs two valid points at least, has {len(points)}")
    return sorted(points, key=lambda point: point.x)


def plateau(points: Sequence[Point]) -> Derived:
    """The highest value of a curve, in the metric's unit."""
    best = max(_curve(points), key=lambda point: point.value)
    return Derived(best.value, (best,))


def saturation(points: Sequence[Point]) -> float:
    """The smallest x whose value is at least 95 % of the plateau."""
    enough = SATURATED * plateau(points).value
    return min(point.x for point in points if point.value >= enough)


def linearity(points: Sequence[Point]) -> Derived:
    """How proportional a curve is up to saturation: 1 - max |r / median(r) - 1|, r = value / x.

    1: perfectly proportional; 0: off by its own size, or more. A curve that is saturated at its first point
    has no such part.
    """
    end = saturation(points)
    rising = [point for point in _curve(points) if point.x <= end]
    if len(rising) < 2:
        raise NotComputable(
            f"the first point, {end:g}, is saturated: nothing rises; add smaller points to the sweep"
        )
    rates = [point.value / point.x for point in rising]
    middle = statistics.median(rates)
    worst = max(abs(rate / middle - 1) for rate in rates)
    return Derived(max(0.0, 1 - worst), tuple(rising))


def hold(points: Sequence[Point]) -> Derived:
    """What is left of the plateau beyond saturation: the smallest value there over the plateau, at most 1."""
    top, end = plateau(points), saturation(points)
    beyond = [point for point in _curve(points) if point.x > end]
    if not beyond:
        raise NotComputable(
            f"still rising at the largest point, {end:g}: add larger points to the sweep"
        )
    least = min(beyond, key=lambda point: point.value)
    return Derived(least.value / top.value, (*top.used, least))


def scale_out(points: Sequence[Point]) -> Derived:
    """Efficiency of the largest against the smallest point: (v_n / v_1) / (x_n / x_1)."""
    found = _curve(points)
    first, last = found[0], found[-1]
    return Derived((last.value / first.value) / (last.x / first.x), (first, last))


def fit(points: Sequence[Point]) -> Derived:
    """R^2 of the straight line through the origin, v = k x with k = sum(x v) / sum(x^2).

    R^2 = 1 - sum((v - k x)^2) / sum((v - mean v)^2); 0 where the mean describes the points as well, or
    better. A line through the origin has no serial part.
    """
    found = _curve(points)
    slope = math.fsum(p.x * p.value for p in found) / math.fsum(p.x**2 for p in found)
    mean = statistics.fmean(p.value for p in found)
    about_mean = math.fsum((p.value - mean) ** 2 for p in found)
    about_line = math.fsum((p.value - slope * p.x) ** 2 for p in found)
    share = about_line / about_mean if about_mean else 1.0
    return Derived(max(0.0, 1 - share), tuple(found))


def speedup(points: Sequence[Point], first: float) -> Derived:
    """The best value over that of the point ``first``, with which the others are compared."""
    found = _curve(points)
    base = next((point for point in found if point.x == first), None)
    if base is None:
        raise NotComputable(f"needs the point {first:g}, which all others are compared with")
    best = max(found, key=lambda point: point.value)
    return Derived(best.value / base.value, (base, best))


def best_x(points: Sequence[Point]) -> Derived:
    """Where the best value lies; the smallest x of several."""
    best = max(_curve(points), key=lambda point: point.value)
    return Derived(best.x, (best,))


# Comparisons of two sides.
def best_of(points: Sequence[Point], better: Literal["more", "less"]) -> Point:
    """The best of one side's points, whatever was varied; raises :class:`NotComputable` without any."""
    if not points:
        raise NotComputable("needs one valid case at least on each side")
    choose = max if better == "more" else min
    return choose(points, key=lambda point: point.value)


def ratio(this: Point, baseline: Point) -> Derived:
    """This side's value over the baseline's."""
    return Derived(this.value / baseline.value, (this, baseline))


def time_ratio(this: Point, baseline: Point) -> Derived:
    """Time that this side takes over the baseline's for equal work, both values being rates."""
    return Derived(baseline.value / this.value, (this, baseline))


def scale_out_against(this: Point, baseline: Point, servers: int, of_baseline: int) -> Derived:
    """Efficiency of more servers: (v / v_baseline) / (servers / servers of the baseline)."""
    return Derived(this.value / baseline.value / (servers / of_baseline), (this, baseline))


def cost_per_gb_s_month(per_gb_month: float, capacity_bytes: float, bytes_s: float) -> float:
    """What 1 GB/s costs a month: price of a GB and month x capacity in GB / bandwidth in GB/s."""
    return per_gb_month * (capacity_bytes / 1e9) / (bytes_s / 1e9)


# Operands.
@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The cases whose records are operands: those of one check in one place, at the declared scale."""

    check: str
    partition: str
    environment: str
    tier: str
    #: Parameter that is varied; empty: every case is a point of its own.
    varied: str = ""
    #: Points that are declared; others in the history are none. Empty: all.
    expected: Sequence[float] = ()
    #: Metrics that are wanted; empty: all that the records have.
    metrics: Sequence[Metric] = ()
    #: Parameters that must have these values.
    fixed: Mapping[str, object] = field(default_factory=dict)
    #: Keys of a record in which all points must agree with the newest.
    alike: Sequence[str] = ()

    def may_hold(self, values: Mapping[str, Any]) -> bool:
        """Return whether the JSON of a record names the check and the place, so that it is worth a closer look."""
        place = (values.get("check"), values.get("partition"), values.get("environment"))
        return place == (self.check, self.partition, self.environment)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A point without a valid value, and why; ``metric`` None: it has none of the metrics."""

    point: str
    why: str
    metric: str | None
    measured: bool

    def __str__(self) -> str:
        return f"{self.point} ({self.why})"


@dataclass(frozen=True, slots=True)
class Operands:
    """Newest valid points by metric, and what was left out."""

    metrics: Mapping[str, Metric]
    points: Mapping[str, tuple[Point, ...]]
    left_out: tuple[LeftOut, ...]

    def without(self, metric: str) -> tuple[LeftOut, ...]:
        """What a metric's points lack."""
        return tuple(left for left in self.left_out if left.metric in (None, metric))


@dataclass(frozen=True, slots=True)
class _Case:
    """One record as far as it matters here."""

    x: float
    name: str
    same_tier: bool
    metrics: Mapping[str, MetricRecord]
    alike: tuple[tuple[str, object], ...]
    record: Record

    def point(self, value: float) -> Point:
        record = self.record
        return Point(
            x=self.x,
            value=value,
            partition=record.partition,
            session=record.session,
            case=record.case,
            time=record.time,
        )


def _case(record: Record, source: Source, oldest: float) -> _Case | None:
    """A record as a case of the source; None if it is another's, or too old.

    Raises KeyError, TypeError or ValueError for a record without the parameters and keys that the source names.
    """
    place = (source.check, source.partition, source.environment)
    if (record.check, record.partition, record.environment) != place:
        return None
    if calendar.timegm(time.strptime(record.time, "%Y-%m-%dT%H:%M:%SZ")) < oldest:
        return None
    if not {"parameters", "overridden", "tier"} <= {*record.order}:  # older, or never decided
        return None
    if record.pinned:  # one node's, not the target's
        return None
    # The tier is compared below.
    if set(record.overridden) - {"tier"} or any(
        record.parameters[k] != value for k, value in source.fixed.items()
    ):
        return None
    if record.tier not in (source.tier, ""):  # empty: refused before the tier was known
        return None
    x = float(record.parameters[source.varied]) if source.varied else 0.0
    if source.expected and x not in source.expected:
        return None
    values = record.to_json() if source.alike else {}
    return _Case(
        x=x,
        name=_name(source, x) if source.varied else record.case,
        same_tier=record.tier == source.tier,
        metrics={m.name: m for m in record.metrics},
        alike=tuple((key, values[key]) for key in source.alike),
        record=record,
    )


def _name(source: Source, x: float) -> str:
    return f"{source.varied}={x:g}"


def newest_points(records: Iterable[Record], source: Source, oldest: float) -> Operands:
    """The newest valid value of every point and metric, and what has none.

    ``records`` come newest first and are read no further than needed; ``oldest`` in seconds since the epoch.
    A record without what the source names is passed over.
    """
    metrics = {metric.name: metric for metric in source.metrics}
    found: dict[str, dict[str, Point]] = {name: {} for name in metrics}
    refused: dict[tuple[str | None, str], str] = {}
    agreed: tuple[tuple[str, object], ...] | None = None
    for record in records:
        try:
            case = _case(record, source, oldest)
        except (KeyError, TypeError, ValueError, OverflowError):
            continue
        if case is None:
            continue
        if not case.metrics:
            refused.setdefault((None, case.name), f"{record.verdict.value} in {record.session}")
        for one in source.metrics or map(_metric, case.metrics.values()):
            name, metric = one.name, metrics.setdefault(one.name, one)
            points = found.setdefault(name, {})
            if case.name in points:
                continue
            value = _value(case, metric, agreed)
            if isinstance(value, str):
                refused.setdefault((name, case.name), value)
            else:
                points[case.name] = case.point(value)
                agreed = case.alike
        if (
            source.expected
            and found
            and all(len(p) == len(source.expected) for p in found.values())
        ):
            break
    left = _left_out(found, refused, [_name(source, x) for x in source.expected])
    return Operands(metrics, {name: tuple(p.values()) for name, p in found.items()}, tuple(left))


def _metric(measured: MetricRecord) -> Metric:
    return Metric(measured.name, measured.unit, measured.better)


def _value(
    case: _Case, metric: Metric, agreed: tuple[tuple[str, object], ...] | None
) -> float | str:
    """A case's value of a metric, or why it is no operand."""
    session, found = case.record.session, case.metrics.get(metric.name)
    verdict = found.verdict if found else case.record.verdict
    if not verdict.is_valid:
        return f"{verdict.value} in {session}"
    if found and _metric(found) != metric:
        return f"in {found.unit}, not {metric.unit}, in {session}"
    if not found or not case.same_tier or found.median <= 0:
        return f"without a value in {session}"
    if agreed is not None and case.alike != agreed:
        was = ", ".join(f"{key}={value}" for key, value in case.alike)
        now = ", ".join(f"{key}={value}" for key, value in agreed)
        return f"with {was} in {session}, newer points with {now}"
    return float(found.median)


def _left_out(
    found: Mapping[str, Mapping[str, Point]],
    refused: Mapping[tuple[str | None, str], str],
    expected: Sequence[str],
) -> Iterable[LeftOut]:
    """For every metric the points without a valid value; all that was refused where there is no metric."""
    for metric in found or [None]:
        seen = [*expected, *(point for name, point in refused if name in (metric, None))]
        for point in dict.fromkeys(seen):
            if metric is not None and point in found[metric]:
                continue
            why = refused.get((metric, point)) or refused.get((None, point))
            yield LeftOut(point, why or "not measured", metric, why is not None)
