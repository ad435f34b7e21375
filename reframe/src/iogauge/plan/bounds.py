"""What bounds the figures of a case: expected speed, ceilings, the references that follow from them; and the cost of a session."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from iogauge.core.measurement import Metric, Reference
from iogauge.core.units import (
    BANDWIDTH_UNITS,
    convert,
    dimension,
    format_bytes,
    with_unit,
)
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.site.doubts import DOUBTFUL_SHARE, Doubt
from iogauge.site.extras import PartitionExtras
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
    """Expected bandwidth of a phase, and its source."""

    bytes_s: float
    source: str


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
            return Ceiling(
                nodes * self.bytes_s, f"{nodes} client(s) x {rate}, {self.source}"
            )
        return Ceiling(self.bytes_s, f"{self.layer} {rate}, {self.source}")


@dataclass(frozen=True, slots=True)
class MeasuredCeilings:
    """The measured ceilings that hold for a case, and why others do not."""

    usable: tuple[MeasuredCeiling, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING_MEASURED: Final = MeasuredCeilings()


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
    assumed = Speed(ASSUMED_BYTES_S * plan.nodes, f"assumed: {ASSUMED_SPEED}")
    if probed := float(os.environ.get(PROBED, 0)):
        assumed = Speed(probed * plan.nodes, f"probed: {format_bytes(probed)}/s a node")
    topology = extras.topology
    way: Literal["read", "write"] = (
        "read" if phase.access.direction == "read" else "write"
    )
    limit = (
        topology.bandwidth_ceiling(way, plan.nodes, plan.servers) if topology else None
    )
    if topology is None or limit is None:
        return assumed
    expected = Speed(limit.value, "ceiling")
    if topology.efficiency:
        share = getattr(topology.efficiency, way)
        expected = Speed(limit.value * share, f"{share:.0%} of the ceiling")
    if phase.access.saturates == "bandwidth" or not phase.rates:
        return expected
    return min(expected, assumed, key=lambda estimate: estimate.bytes_s)


@dataclass(frozen=True, slots=True)
class MetricBounds:
    """What bounds a metric of a case at a site: how its phase touches data, on how many nodes and servers (None: all)."""

    metric: Metric
    access: Access
    extras: PartitionExtras
    nodes: int
    servers: int | None = None

    @classmethod
    def of(
        cls, plan: CasePlan, metric: Metric, extras: PartitionExtras
    ) -> MetricBounds:
        """Return the bounds of a metric of a plan; a computed metric touches no data."""
        phase = next(
            (one for one in plan.repeat if metric.name in one.rates),
            PhasePlan(name="", command=()),
        )
        return cls(
            metric, phase.access, extras, phase.on_nodes or plan.nodes, plan.servers
        )

    @property
    def ceiling(self) -> Ceiling | None:
        """Return the declared ceiling in the metric's own unit; None if none is declared.

        References rest on this one alone: what was measured may be low because something is broken.
        """
        topology, way = self.extras.topology, self.access.direction
        if topology is None or way not in ("read", "write"):
            return None
        if self._kind == "bandwidth":
            return self._in_unit(
                topology.bandwidth_ceiling(way, self.nodes, self.servers), "B/s"
            )
        if self._kind == "operations":
            return self._in_unit(
                topology.operations_ceiling(way, self.servers), "ops/s"
            )
        return None

    def lowest(self, measured: Sequence[MeasuredCeiling]) -> Ceiling | None:
        """Return the lowest of the declared ceiling and, for a bandwidth, the measured ones; None if there is none."""
        found = [self.ceiling]
        if self._kind == "bandwidth":
            way = self.access.direction
            found += [
                self._in_unit(one.over(self.nodes), "B/s")
                for one in measured
                if one.direction == way
            ]
        return min(filter(None, found), key=lambda ceiling: ceiling.value, default=None)

    @property
    def reference(self) -> Reference | None:
        """Return the reference of a target without history: its ceiling times its efficiency.

        The value is a lower bound. It is None unless the scenario drives the target to that limit:
        small random reads never reach a bandwidth.
        """
        limit, topology = self.ceiling, self.extras.topology
        if (
            limit is None
            or topology is None
            or topology.efficiency is None
            or not self._saturated
        ):
            return None
        share = getattr(topology.efficiency, self.access.direction)
        return Reference(
            value=limit.value * share,
            lower=0.0,
            upper=None,
            unit=self.metric.unit,
            source=f"{share:.0%} of the ceiling {limit.limited_by} ({topology.source})",
        )

    def doubt(self, reference: Reference) -> Doubt | None:
        """Return the doubt about a reference beside its ceiling; None if there is none, or no ceiling.

        If the scenario drives the target to its ceiling, the bound must be a fifth of it. A bound below a
        hundredth of what a single client, server or device carries is refused.
        """
        limit, topology, unit = self.ceiling, self.extras.topology, self.metric.unit
        if limit is None or topology is None:
            return None
        ceiling = f"the ceiling {with_unit(limit.value, unit)} ({limit.limited_by})"
        if reference.value > MOST_SHARE * limit.value:
            return Doubt(
                f"the reference is {reference.value / limit.value:.0%} of {ceiling}",
                f"at most {MOST_SHARE:.0%}",
                "More than the ceiling is INVALID (G6): correct the reference or the topology",
            )
        least = max(reference.least, 0.0)
        if not self._saturated or least >= DOUBTFUL_SHARE * limit.value:
            return None
        way: Literal["read", "write"] = (
            "read" if self.access.direction == "read" else "write"
        )
        part = topology.smallest_part(way) if self._kind == "bandwidth" else None
        return Doubt(
            f"{with_unit(least, unit)} pass, {least / limit.value:.2g} of {ceiling}",
            f"at least {DOUBTFUL_SHARE:g} of the ceiling, to which this scenario drives the target",
            "Raise the reference, or correct the topology",
            refused=part is not None
            and convert(least, unit, "B/s") < _LEAST_OF_PART * part,
        )

    @property
    def _kind(self) -> str:
        return dimension(self.metric.unit)

    @property
    def _saturated(self) -> bool:
        """Return whether the scenario drives a healthy target to this metric's limit."""
        return self.access.saturates == self._kind

    def _in_unit(self, limit: Ceiling | None, unit: str) -> Ceiling | None:
        return limit and Ceiling(
            convert(limit.value, unit, self.metric.unit), limit.limited_by
        )
