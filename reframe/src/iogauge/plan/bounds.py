"""What bounds the figures of a case: expected speed, ceilings, the references that follow from them; and the cost of a session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from iogauge.core.measurement import Metric, Reference
from iogauge.core.units import BANDWIDTH_UNITS, convert, dimension, format_bytes, with_unit
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.plan.stage import TimedPhases
from iogauge.site.doubts import DOUBTFUL_SHARE, Doubt
from iogauge.site.extras import Budget, PartitionExtras
from iogauge.site.topology import Ceiling

#: Most that a value, or its reference, may be of its ceiling (G6).
MOST_SHARE: Final = 1.02

#: Share of a single client's, server's or device's rate below which a bound proves nothing. A file on
#: a single device, or written by a single client, reaches far more.
_LEAST_OF_PART: Final = 0.01

#: Bandwidth of a node if nothing is declared.
ASSUMED_BYTES_S: Final = 200 * 2**20
#: Variable with the bytes/s of a node that `iogauge site new` has just measured, for its own plan.
PROBED: Final = "IOGAUGE_PROBED"
ASSUMED_SPEED: Final = f"{format_bytes(ASSUMED_BYTES_S)}/s a node"


@dataclass(frozen=True, slots=True)
class Speed:
    """Expected bandwidth of a phase, and its source; ``assumed`` means that the site declares nothing."""

    bytes_s: float
    source: str
    assumed: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredCeiling:
    """The most that a layer carried when it was measured: bytes/s of each client, or of the target.

    ``direction`` is that of the target's data. ``source`` says when, on how many nodes, and how often.
    """

    layer: str
    direction: Literal["read", "write"]
    bytes_s: float
    of_each_client: bool
    source: str

    def over(self, nodes: int) -> Ceiling:
        """Return what so many clients get through the layer, in bytes/s."""
        rate = f"{format_bytes(self.bytes_s)}/s"
        if self.of_each_client:
            return Ceiling(nodes * self.bytes_s, f"{nodes} client(s) x {rate}, {self.source}")
        return Ceiling(self.bytes_s, f"{self.layer} {rate}, {self.source}")


@dataclass(frozen=True, slots=True)
class MeasuredCeilings:
    """The measured ceilings that hold for a case, and why others do not."""

    usable: tuple[MeasuredCeiling, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING_MEASURED: Final = MeasuredCeilings()


@dataclass(frozen=True, slots=True)
class Cost:
    """Total cost of cases."""

    node_seconds: float = 0.0
    written_bytes: int = 0
    cases: int = 0

    def __add__(self, other: Cost) -> Cost:
        return Cost(
            self.node_seconds + other.node_seconds,
            self.written_bytes + other.written_bytes,
            self.cases + other.cases,
        )


def speed(
    phase: PhasePlan,
    plan: CasePlan,
    extras: PartitionExtras,
    references: Mapping[str, Reference],
) -> Speed:
    """Return the expected bandwidth of a phase that moves a fixed amount of data.

    The ceiling counts for phases that drive a target to it, and for phases that only lay files out.
    Other phases, with small transfers, get the assumed speed, at most the ceiling.
    """
    for metric in phase.rates:
        reference = references.get(metric)
        if reference and reference.unit in BANDWIDTH_UNITS:
            return Speed(convert(reference.value, reference.unit, "B/s"), "references")
    assumed = Speed(ASSUMED_BYTES_S * plan.nodes, f"assumed: {ASSUMED_SPEED}", assumed=True)
    if probed := float(os.environ.get(PROBED, 0)):
        assumed = Speed(probed * plan.nodes, f"probed: {format_bytes(probed)}/s a node")
    topology = extras.topology
    way: Literal["read", "write"] = "read" if phase.access.direction == "read" else "write"
    limit = topology.bandwidth_ceiling(way, plan.nodes, plan.servers) if topology else None
    if topology is None or limit is None:
        return assumed
    expected = Speed(limit.value, "ceiling")
    if topology.efficiency:
        share = topology.efficiency.read if way == "read" else topology.efficiency.write
        expected = Speed(limit.value * share, f"{share:.0%} of the ceiling")
    if phase.access.saturates == "bandwidth" or not phase.rates:
        return expected
    return min(expected, assumed, key=lambda estimate: estimate.bytes_s)


def timed(plan: CasePlan, extras: PartitionExtras) -> tuple[TimedPhases, ...]:
    """Return what the phases of a case that end by time may move, by direction."""
    found = []
    ways: tuple[Literal["write", "read"], ...] = ("write", "read")
    for way in ways:
        seconds = plan.timed_seconds(way, extras.limits.phase_seconds)
        topology = extras.topology
        limit = topology.bandwidth_ceiling(way, plan.nodes, plan.servers) if topology else None
        if seconds:
            most = None if limit is None else round(seconds * limit.value)
            found.append(TimedPhases(way, seconds, most))
    return tuple(found)


def excess(budget: Budget, cost: Cost) -> list[str]:
    """Return by how much a cost exceeds a budget: a text for each exceeded limit."""
    over = []
    hours = cost.node_seconds / 3600
    if budget.node_hours is not None and hours > budget.node_hours:
        more = hours - budget.node_hours
        over.append(
            f"node_hours: {hours:.3g} planned, {budget.node_hours:g} allowed, {more:.3g} over"
        )
    if budget.written is not None and cost.written_bytes > budget.written:
        more_bytes = cost.written_bytes - budget.written
        over.append(
            f"written: {format_bytes(cost.written_bytes)} planned, {format_bytes(budget.written)} "
            f"allowed, {format_bytes(more_bytes)} over"
        )
    return over


def lower_ceiling(
    metric: Metric,
    direction: str,
    extras: PartitionExtras,
    nodes: int,
    servers: int | None,
    measured: Sequence[MeasuredCeiling],
) -> Ceiling | None:
    """Return the lower of the declared ceiling and the measured ones; None if there is none.

    Arguments as for :func:`metric_ceiling`. Only a bandwidth has measured ceilings.
    """
    declared = metric_ceiling(metric, direction, extras, nodes, servers)
    found = [declared] if declared else []
    if dimension(metric.unit) == "bandwidth":
        for one in measured:
            if one.direction == direction:
                limit = one.over(nodes)
                value = convert(limit.value, "B/s", metric.unit)
                found.append(Ceiling(value, limit.limited_by))
    return min(found, key=lambda ceiling: ceiling.value, default=None)


def metric_ceiling(
    metric: Metric, direction: str, extras: PartitionExtras, nodes: int, servers: int | None = None
) -> Ceiling | None:
    """Return the declared ceiling of a metric in the metric's own unit; None if none is declared.

    ``servers`` is the number of object storage servers that hold the files, None means all. References
    rest on this one alone: what was measured may be low because something is broken.
    """
    if extras.topology is None or direction not in ("read", "write"):
        return None
    way = "read" if direction == "read" else "write"
    if dimension(metric.unit) == "bandwidth":
        limit = extras.topology.bandwidth_ceiling(way, nodes, servers)  # type: ignore[arg-type]
        unit = "B/s"
    elif dimension(metric.unit) == "operations":
        limit = extras.topology.operations_ceiling(way, servers)  # type: ignore[arg-type]
        unit = "ops/s"
    else:
        return None
    return limit and Ceiling(convert(limit.value, unit, metric.unit), limit.limited_by)


def ceiling_reference(
    metric: Metric,
    access: Access,
    extras: PartitionExtras,
    nodes: int,
    servers: int | None = None,
) -> Reference | None:
    """Return the reference of a target without history: its ceiling times its efficiency.

    The value is a lower bound. It is None unless the scenario drives the target to that limit:
    small random reads never reach a bandwidth.
    """
    limit = metric_ceiling(metric, access.direction, extras, nodes, servers)
    topology = extras.topology
    if limit is None or topology is None or topology.efficiency is None:
        return None
    if access.saturates != dimension(metric.unit):
        return None
    share = topology.efficiency.read if access.direction == "read" else topology.efficiency.write
    return Reference(
        value=limit.value * share,
        lower=0.0,
        upper=None,
        unit=metric.unit,
        source=f"{share:.0%} of the ceiling {limit.limited_by} ({topology.source})",
    )


def reference_doubt(
    metric: Metric,
    reference: Reference,
    access: Access,
    extras: PartitionExtras,
    nodes: int,
    servers: int | None = None,
) -> Doubt | None:
    """Return the doubt about a reference beside its ceiling; None if there is none, or no ceiling.

    If the scenario drives the target to its ceiling, the bound must be a fifth of it. A bound below a
    hundredth of what a single client, server or device carries is refused.
    """
    limit = metric_ceiling(metric, access.direction, extras, nodes, servers)
    if limit is None or extras.topology is None:
        return None
    ceiling = f"the ceiling {with_unit(limit.value, metric.unit)} ({limit.limited_by})"
    if reference.value > MOST_SHARE * limit.value:
        return Doubt(
            f"the reference is {reference.value / limit.value:.0%} of {ceiling}",
            f"at most {MOST_SHARE:.0%}",
            "More than the ceiling is INVALID (G6): correct the reference or the topology",
        )
    least = max(reference.least, 0.0)
    if access.saturates != dimension(metric.unit) or least >= DOUBTFUL_SHARE * limit.value:
        return None
    way: Literal["read", "write"] = "read" if access.direction == "read" else "write"
    part = extras.topology.smallest_part(way) if access.saturates == "bandwidth" else None
    return Doubt(
        f"{with_unit(least, metric.unit)} pass, {least / limit.value:.2g} of {ceiling}",
        f"at least {DOUBTFUL_SHARE:g} of the ceiling, to which this scenario drives the target",
        "Raise the reference, or correct the topology",
        refused=part is not None and convert(least, metric.unit, "B/s") < _LEAST_OF_PART * part,
    )
