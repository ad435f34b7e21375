"""Which guards the judge asks, and when: of a case, of its layouts, of a phase, of a metric.

Findings come in the order of these lines. What a rule demands stands in rules.ini. The job itself applies the other rules,
before it writes a byte: see :mod:`iogauge.job.opening` and :mod:`iogauge.job.target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from iogauge.guards import (
    cache,
    clock,
    contents,
    figures,
    nodes,
    origin,
    others,
    preflight,
    striping,
    within,
    witness,
)
from iogauge.guards.finding import Finding
from iogauge.guards.seen import CaseSeen, LayoutSeen, PhaseSeen

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Guard(Generic[Seen]):
    """A rule that the judge applies, by its name in rules.ini; ``speak`` returns its findings, if it applies."""

    name: str
    speak: Callable[[Seen], Finding | Iterator[Finding] | None]

    def asked(self, seen: Seen) -> list[Finding]:
        """Return what the rule says of what was seen."""
        said = self.speak(seen)
        return [said] if isinstance(said, Finding) else list(said or ())


OF_CASE: Final[tuple[Guard[CaseSeen], ...]] = (
    Guard("G9 identity", preflight.identity_of),
    Guard("G19 lock", others.exclusive),
    Guard("G19 neighbours", others.neighbours),
    Guard("G22 environment", origin.environment),
    Guard("G15 placement", nodes.placement),
    Guard("G15 nodes", nodes.as_declared),
    Guard("G19 foreign load", others.foreign_load),
    Guard("G20 connections", nodes.connections),
    Guard("G14 quota", preflight.quota_of),
    Guard("G12 health", preflight.health_of),
    Guard("G25 settings", preflight.expected_settings_of),
    Guard("G12 servers", preflight.servers_of),
    Guard("G6 measured ceilings", figures.measured_ceilings),
    Guard("G10 passed on", striping.passed_on),
    Guard("G13 fill level", figures.fill_level),
    Guard("G10 metadata targets", striping.on_metadata_targets),
    Guard("G10 directories", striping.directories),
    Guard("G8 verification", contents.verification),
    Guard("G8 contents", contents.unchanged),
    Guard("G8 holes", contents.stored),
)

#: Rules for the layouts that were read back in each repetition.
OF_LAYOUT: Final[tuple[Guard[LayoutSeen], ...]] = (
    Guard("G10 layout", striping.layout),
    Guard("G10 components", striping.components),
    Guard("G11 coverage", striping.coverage),
    Guard("G23 stripes", preflight.stripes_against_size_of),
)

#: A finding holds for each metric of the phase, or only for the metric that it names. It also holds
#: for metrics that are computed from these.
OF_PHASE: Final[tuple[Guard[PhaseSeen], ...]] = (
    Guard("G1 client cache", cache.client_cache),
    Guard("G21 order", figures.read_after_write),
    Guard("G3 server cache", cache.server_cache),
    Guard("G18 data", contents.data_entropy),
    Guard("G9 storage", witness.storage),
    Guard("G2 write-back", cache.write_back),
    Guard("G4 duration", figures.duration),
    Guard("G4 percentile", figures.beyond),
    Guard("G4 clock", clock.seconds_witnessed),
    Guard("G4 clock by phase", within.phase_seconds_witnessed),
    Guard("G5 tail", figures.tail),
    Guard("G17 drift", figures.drift),
    Guard("G17 steadiness", figures.steadiness),
    Guard("G19 load on purpose", others.on_purpose),
    Guard("G19 files of others", others.foreign_files),
    Guard("G7 units", figures.unit_sanity),
    Guard("G8 bytes", figures.bytes_moved),
    Guard("G8 witness", witness.bytes_witnessed),
    Guard("G8 witness by phase", within.phase_witnessed),
    Guard("G11 bytes by target", witness.targets_witnessed),
    Guard("G26 streams", nodes.streams),
    Guard("G22 tool", origin.tool_integrity),
    Guard("G6 ceiling", figures.ceiling),
)

OF_METRIC: Final[tuple[Guard[tuple[CaseSeen, str]], ...]] = (Guard("G17 spread", figures.spread),)
