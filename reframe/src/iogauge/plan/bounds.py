"""What bounds the figures of a case: expected speed, ceilings, the references that follow from them; and the cost of a session."""

from __future__ import annotations

import os
from collections.abc import Mapping
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
#: Variable with the bytes/s that a node of the system reached so far, for a plan.
MEASURED: Final = "IOGAUGE_MEASURED"
ASSUMED_SPEED: Final = f"{format_bytes(ASSUMED_BYTES_S)}/s a node"


@dataclass(frozen=True, slots=True)
class Speed:
    """Expected bandwidth of a phase, and its source."""

    bytes_s: float
    source: str


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
    measured = float(os.environ.get(MEASURED, 0))
    if measured:
        source = f"measured here: {format_bytes(measured)}/s a node"
        assumed = Speed(measured * plan.nodes, source)
    topology = extras.topology
    if topology is None:
        return assumed
    way = _way(phase.access)
    limit = topology.bandwidth_ceiling(way, plan.nodes, plan.servers)
    if limit is None:
        return assumed
    expected = Speed(limit.value, "ceiling")
    if topology.efficiency:
        share = getattr(topology.efficiency, way)
        expected = Speed(limit.value * share, f"{share:.0%} of the ceiling")
    if phase.access.saturates == "bandwidth" or not phase.rates:
        return expected
    return min(expected, assumed, key=lambda estimate: estimate.bytes_s)


def _way(access: Access) -> Literal["read", "write"]:
    """Return the direction whose limits hold for a phase."""
    if access.direction == "read":
        return "read"
    return "write"


@dataclass(frozen=True, slots=True)
class MetricBounds:
    """What bounds a metric of a case at a site."""

    metric: Metric
    #: How its phase touches data.
    access: Access
    extras: PartitionExtras
    nodes: int
    #: Object storage servers that hold the files; None: all.
    servers: int | None = None

    @classmethod
    def of(
        cls, plan: CasePlan, metric: Metric, extras: PartitionExtras
    ) -> MetricBounds:
        """Return the bounds of a metric of a plan; a computed metric touches no data."""
        access = Access(direction="none")
        for phase in plan.repeat:
            if metric.name in phase.rates:
                access = phase.access
                break
        return cls(metric, access, extras, plan.nodes, plan.servers)

    @property
    def ceiling(self) -> Ceiling | None:
        """Return the declared ceiling in the metric's own unit; None if none is declared."""
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

    @property
    def reference(self) -> Reference | None:
        """Return the reference of a target without history: its ceiling times its efficiency.

        The value is a lower bound. It is None unless the scenario drives the target to that limit:
        small random reads never reach a bandwidth.
        """
        limit, topology = self.ceiling, self.extras.topology
        if limit is None or topology is None or not self._saturated:
            return None
        if topology.efficiency is None:
            return None
        share = getattr(topology.efficiency, self.access.direction)
        return Reference(
            value=limit.value * share,
            lower=0.0,
            upper=None,
            unit=self.metric.unit,
            source=f"{share:.0%} of the ceiling {limit.limited_by} ({topology.source})",
            of_ceiling=share,
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
        refused = False
        if self._kind == "bandwidth":
            part = topology.smallest_part(_way(self.access))
            bytes_s = convert(least, unit, "B/s")
            refused = part is not None and bytes_s < _LEAST_OF_PART * part
        return Doubt(
            f"{with_unit(least, unit)} pass, {least / limit.value:.2g} of {ceiling}",
            f"at least {DOUBTFUL_SHARE:g} of the ceiling, to which this scenario drives the target",
            "Raise the reference, or correct the topology",
            refused=refused,
        )

    @property
    def _kind(self) -> str:
        return dimension(self.metric.unit)

    @property
    def _saturated(self) -> bool:
        """Return whether the scenario drives a healthy target to this metric's limit."""
        return self.access.saturates == self._kind

    def _in_unit(self, limit: Ceiling | None, unit: str) -> Ceiling | None:
        if limit is None:
            return None
        value = convert(limit.value, unit, self.metric.unit)
        return Ceiling(value, limit.limited_by)
