"""Compute quantities from the records of several cases: curves, comparisons, cost.

docs/checks.md has every formula with its source. Nothing here reads a file or knows ReFrame.
:func:`newest_points` picks the operands from records that the caller passes, newest first. The
formulas take points and say which of them they used.
"""

import calendar
import contextlib
import math
import statistics
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from iogauge.core.measurement import Metric
from iogauge.evidence.fingerprint import FILE_SYSTEM
from iogauge.node.identity import differ
from iogauge.records.record import MetricRecord, Record

#: Share of the plateau at which a curve counts as saturated.
SATURATED: Final = 0.95


class NotComputable(ValueError):
    """A quantity cannot be computed from the available points; the message says what is missing."""


class NotMeasured(NotComputable):
    """Not computable because cases that the quantity rests on have not been run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """Median of one case's metric, in the metric's unit, and the record that holds it.

    ``x`` is the value of the varied parameter, 0 if the cases are not ordered by one parameter.
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


def _curve(points: Sequence[Point]) -> list[Point]:
    """Return the points ordered by x; raises :class:`NotComputable` if there are fewer than two."""
    if len(points) < 2:
        raise NotComputable(f"needs at least two valid points, has {len(points)}")
    return sorted(points, key=lambda point: point.x)


def _best(points: Sequence[Point]) -> Point:
    """Return the point with the highest value of a curve; of several the one with the smallest x."""
    return max(_curve(points), key=lambda point: point.value)


def plateau(points: Sequence[Point]) -> Derived:
    """Return the highest value of a curve, in the metric's unit."""
    best = _best(points)
    return Derived(best.value, (best,))


def saturation(points: Sequence[Point]) -> float:
    """Return the smallest x whose value is at least 95 % of the plateau."""
    enough = SATURATED * _best(points).value
    return min(point.x for point in points if point.value >= enough)


def linearity(points: Sequence[Point]) -> Derived:
    """Return how proportional a curve is up to saturation: 1 - max |r / median(r) - 1|, r = value /
    x.

    1 is perfectly proportional, 0 is off by its own size or more. Raises :class:`NotComputable` for
    a curve that is saturated at its first point.
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
    """Return the share of the plateau that is left beyond saturation.

    It is the smallest value there over the plateau, at most 1. Raises :class:`NotComputable` for a curve that still
    rises at its largest point.
    """
    best, end = _best(points), saturation(points)
    beyond = [point for point in points if point.x > end]
    if not beyond:
        raise NotComputable(
            f"still rising at the largest point, {end:g}: add larger points to the sweep"
        )
    least = min(beyond, key=lambda point: point.value)
    return Derived(least.value / best.value, (best, least))


def scale_out(points: Sequence[Point]) -> Derived:
    """Return the efficiency of the largest against the smallest point.

    It is (v_n / v_1) / (x_n / x_1).
    """
    first, *_, last = _curve(points)
    return Derived((last.value / first.value) / (last.x / first.x), (first, last))


def fit(points: Sequence[Point]) -> Derived:
    """Return R^2 of the straight line through the origin, v = k x with k = sum(x v) / sum(x^2).

    R^2 = 1 - sum((v - k x)^2) / sum((v - mean v)^2). It is 0 if the mean describes the points as
    well or better. A line through the origin has no serial part.
    """
    curve = _curve(points)
    slope = math.fsum(p.x * p.value for p in curve) / math.fsum(p.x**2 for p in curve)
    mean = statistics.fmean(p.value for p in curve)
    about_mean = math.fsum((p.value - mean) ** 2 for p in curve)
    about_line = math.fsum((p.value - slope * p.x) ** 2 for p in curve)
    share = about_line / about_mean if about_mean else 1.0
    return Derived(max(0.0, 1 - share), tuple(curve))


def speedup(points: Sequence[Point], first: float) -> Derived:
    """Return the best value over that of the point ``first``, the base of the comparison."""
    curve = _curve(points)
    base = next((point for point in curve if point.x == first), None)
    if base is None:
        raise NotComputable(
            f"needs the point {first:g}, which all others are compared with"
        )
    best = _best(curve)
    return Derived(best.value / base.value, (base, best))


def best_x(points: Sequence[Point]) -> Derived:
    """Return the x of the best value; the smallest x if there are several."""
    best = _best(points)
    return Derived(best.x, (best,))


def best_of(points: Sequence[Point], metric: Metric) -> Point:
    """Return the best of one side's points of a metric, whatever was varied.

    Raises :class:`NotComputable` if there is no point.
    """
    if not points:
        raise NotComputable("needs one valid case at least on each side")
    choose = max if metric.better == "more" else min
    return choose(points, key=lambda point: point.value)


def ratio(sides: Sequence[Point]) -> Derived:
    """Return this side's value over the baseline's."""
    this, baseline = sides
    return Derived(this.value / baseline.value, (this, baseline))


def time_ratio(sides: Sequence[Point]) -> Derived:
    """Return this side's time over the baseline's for equal work, if both values are rates."""
    this, baseline = sides
    return Derived(baseline.value / this.value, (this, baseline))


def scale_out_against(
    sides: Sequence[Point], servers: float, of_baseline: float
) -> Derived:
    """Return the efficiency of more servers: (v / v_baseline) / (servers / servers of the baseline)."""
    of_both = ratio(sides)
    return Derived(of_both.value / (servers / of_baseline), of_both.used)


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """The cases whose records are operands: of one check in one place, at the declared scale."""

    check: str
    partition: str
    environment: str
    tier: str
    #: Parameter that is varied; if empty, every case is a point of its own, at ``x``.
    varied: str = ""
    x: float = 0.0
    #: Declared points; other points in the history are ignored. If empty, all points count.
    expected: Sequence[float] = ()
    #: Wanted metrics; if empty, all metrics of the records.
    metrics: Sequence[Metric] = ()
    #: Parameters that must have these values.
    fixed: Mapping[str, object] = field(default_factory=dict)
    #: Keys of a record in which all points must agree with the newest.
    alike: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A point without a valid value of a metric, and why."""

    point: str
    why: str
    measured: bool

    def __str__(self) -> str:
        return f"{self.point} ({self.why})"


@dataclass(frozen=True, slots=True)
class _Case:
    """A record as a point of a source."""

    record: Record
    #: As a point, but for the value.
    point: Point
    name: str
    #: What all points must have in common.
    alike: tuple[tuple[str, object], ...]
    #: Why it has no value; empty if it may have one.
    refused: str = ""

    def value(
        self,
        metric: Metric | None,
        tier: str,
        agreed: tuple[tuple[str, object], ...] | None,
    ) -> float | str:
        """Return the value of a metric, or the reason why there is no usable one."""
        session = self.record.session
        if self.refused:
            return f"{self.refused} in {session}"
        verdict, measured = self.record.verdict, None
        for candidate in self.record.metrics:
            if metric and candidate.name == metric.name:
                verdict, measured = candidate.verdict, candidate
        if not verdict.is_valid:
            return f"{verdict.value} in {session}"
        if metric and measured and _metric(measured) != metric:
            return f"in {measured.unit}, not {metric.unit}, in {session}"
        if not measured or self.record.tier != tier or measured.median <= 0:
            return f"without a value in {session}"
        if agreed is not None and self.alike != agreed:
            was = ", ".join(f"{key}={value}" for key, value in self.alike)
            now = ", ".join(f"{key}={value}" for key, value in agreed)
            return f"with {was} in {session}, newer points with {now}"
        return float(measured.median)


def _case(
    record: Record, source: Source, oldest: float, uuid: str | None
) -> _Case | None:
    """Return a record as a case of the source; returns None if it is not one, or too old.

    Raises KeyError, TypeError or ValueError for a record without the source's parameters and keys.
    """
    place = (source.check, source.partition, source.environment)
    if (record.check, record.partition, record.environment) != place:
        return None
    measured = calendar.timegm(time.strptime(record.time, "%Y-%m-%dT%H:%M:%SZ"))
    # Older records lack these keys, and so do those that were never decided.
    if measured < oldest or not {"parameters", "overridden", "tier"} <= {
        *record.model_fields_set
    }:
        return None
    # A pinned one is a value of a node, not of the target. The tier is empty if the case was refused before it was known.
    if record.pinned or set(record.overridden) - {"tier"}:
        return None
    if record.tier not in (source.tier, ""):
        return None
    if any(record.parameters[k] != value for k, value in source.fixed.items()):
        return None
    x, name = source.x, record.case
    if source.varied:
        x = float(record.parameters[source.varied])
        name = _name(source, x)
    if source.expected and x not in source.expected:
        return None
    values = record.to_json()
    # The points of one curve are of one file system.
    measured_on = str(record.fingerprint.get(FILE_SYSTEM, "unknown"))
    alike = [(key, values[key]) for key in source.alike]
    alike.append((FILE_SYSTEM, measured_on))
    refused = ""
    if uuid and measured_on != "unknown" and differ(uuid, measured_on):
        refused = f"of another file system, {measured_on},"
    point = Point(
        x=x,
        value=0.0,
        partition=record.partition,
        session=record.session,
        case=record.case,
        time=record.time,
    )
    return _Case(record, point, name, tuple(alike), refused)


def _name(source: Source, x: float) -> str:
    return f"{source.varied}={x:g}"


def _metric(measured: MetricRecord) -> Metric:
    return Metric(measured.name, measured.unit, measured.better)


@dataclass(frozen=True, slots=True)
class Operands:
    """The cases of a source, newest first."""

    source: Source
    cases: Sequence[_Case]

    @property
    def metrics(self) -> dict[str, Metric]:
        """Return the wanted metrics, or all of the records."""
        found = {metric.name: metric for metric in self.source.metrics}
        for case in self.cases:
            if not self.source.metrics and not case.refused:
                for measured in case.record.metrics:
                    found.setdefault(measured.name, _metric(measured))
        return found

    def of(self, name: str) -> tuple[list[Point], list[LeftOut]]:
        """Return the newest valid points of a metric, and those that it lacks: all that were measured, if there is no such metric."""
        metric = self.metrics.get(name)
        points: dict[str, Point] = {}
        why: dict[str, str] = {}
        agreed: tuple[tuple[str, object], ...] | None = None
        for case in self.cases:
            if case.name in points:
                continue
            value = case.value(metric, self.source.tier, agreed)
            if isinstance(value, str):
                why.setdefault(case.name, value)
            else:
                points[case.name] = replace(case.point, value=value)
                agreed = case.alike
        left_out = []
        declared = [_name(self.source, x) for x in self.source.expected]
        for point in dict.fromkeys([*declared, *why]):
            if point not in points:
                reason = why.get(point, "not measured")
                left_out.append(LeftOut(point, reason, point in why))
        return list(points.values()), left_out


def newest_points(
    records: Iterable[Record], source: Source, oldest: float, uuid: str | None = None
) -> Operands:
    """Return the records that are operands of a source.

    ``records`` come newest first. ``oldest`` is in seconds since the epoch. A record without the source's parameters
    and keys is skipped. A point of another file system than ``uuid``, that of the target today, has no value; None if
    it is unknown.
    """
    cases = []
    for record in records:
        with contextlib.suppress(KeyError, TypeError, ValueError, OverflowError):
            cases.append(_case(record, source, oldest, uuid))
    return Operands(source, [case for case in cases if case])
