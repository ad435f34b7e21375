"""Which guards the judge asks, and when: of a case, of its layouts, of a phase, of a metric.

Findings come in the order of these lines. What a rule demands stands in rules.ini.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from iogauge.guards import (
    cache,
    contents,
    figures,
    nodes,
    origin,
    others,
    preflight,
    striping,
    witness,
)
from iogauge.guards.finding import Finding
from iogauge.guards.seen import CaseSeen, LayoutSeen, MetricSeen, PhaseSeen

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Guard(Generic[Seen]):
    """A rule that the judge applies, by its name in rules.ini; ``speak`` yields its findings, if it applies."""

    name: str
    speak: Callable[[Seen], Iterator[Finding]]


OF_CASE: Final[tuple[Guard[CaseSeen], ...]] = (
    Guard("G9 identity", preflight.identity_of),
    Guard("G19 lock", others.exclusive_of),
    Guard("G19 neighbours", others.neighbours_of),
    Guard("G22 environment", origin.environment_of),
    Guard("G15 placement", nodes.placement_of),
    Guard("G15 nodes", nodes.as_declared_of),
    Guard("G19 foreign load", others.foreign_load_of),
    Guard("G20 connections", nodes.connections_of),
    Guard("G14 quota", preflight.quota_of),
    Guard("G12 health", preflight.health_of),
    Guard("G25 settings", preflight.expected_settings_of),
    Guard("G12 servers", preflight.servers_of),
    Guard("G6 measured ceilings", figures.measured_ceilings_of),
    Guard("G10 passed on", striping.passed_on_of),
    Guard("G13 fill level", preflight.fill_level_of),
    Guard("G10 metadata targets", striping.on_metadata_targets_of),
    Guard("G10 directories", striping.directories_of),
    Guard("G8 verification", contents.verification_of),
    Guard("G8 contents", contents.unchanged_of),
    Guard("G8 holes", contents.stored_of),
    Guard("G8 MPI-IO", contents.counted_of),
)

#: Rules for the layouts that were read back in each repetition.
OF_LAYOUT: Final[tuple[Guard[LayoutSeen], ...]] = (
    Guard("G10 layout", striping.layout_of),
    Guard("G10 components", striping.components_of),
    Guard("G11 coverage", striping.coverage_of),
    Guard("G23 stripes", preflight.stripes_against_size_of),
)

#: A finding holds for each metric of the phase, or only for the metric that it names. It also holds
#: for metrics that are computed from these.
OF_PHASE: Final[tuple[Guard[PhaseSeen], ...]] = (
    Guard("G1 client cache", cache.client_cache_of),
    Guard("G21 order", figures.read_after_write_of),
    Guard("G3 server cache", cache.server_cache_of),
    Guard("G24 modes", nodes.client_modes_of),
    Guard("G18 data", contents.data_entropy_of),
    Guard("G9 storage", witness.storage_of),
    Guard("G2 write-back", cache.write_back_of),
    Guard("G4 duration", figures.duration_of),
    Guard("G4 percentile", figures.beyond_of),
    Guard("G4 clock", witness.seconds_witnessed_of),
    Guard("G4 clock by phase", witness.phase_seconds_witnessed_of),
    Guard("G5 tail", figures.tail_of),
    Guard("G17 drift", figures.drift_of),
    Guard("G17 steadiness", figures.steadiness_of),
    Guard("G19 load on purpose", others.on_purpose_of),
    Guard("G19 files of others", others.foreign_files_of),
    Guard("G7 units", figures.unit_sanity_of),
    Guard("G8 bytes", figures.bytes_moved_of),
    Guard("G8 witness", witness.bytes_witnessed_of),
    Guard("G8 witness by phase", witness.phase_witnessed_of),
    Guard("G11 bytes by target", witness.targets_witnessed_of),
    Guard("G26 streams", nodes.streams_of),
    Guard("G22 tool", origin.tool_integrity_of),
    Guard("G6 ceiling", figures.ceiling_of),
)

OF_METRIC: Final[tuple[Guard[MetricSeen], ...]] = (Guard("G17 spread", figures.spread_of),)

#: Rules that the job applies before it writes a byte, with G9, G12 and the quotas: see :mod:`iogauge.job.opening`, and
#: :mod:`iogauge.job.target` for the directories on metadata targets.
OF_TARGET: Final = {
    "G9 devices": preflight.devices,
    "G13 room": preflight.room,
    "G13 share": preflight.share_of_free,
    "G13 storage targets": preflight.target_room,
    "G14 inodes": preflight.inodes,
    "G12 pool": preflight.pool,
    "G12 metadata targets": preflight.metadata_health,
    "G10 metadata placement": preflight.metadata_placement,
    "G10 metadata default": preflight.metadata_default,
    "G14 metadata targets": preflight.metadata_room,
    "G15 cores": preflight.cores,
}
