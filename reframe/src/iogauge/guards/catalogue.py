"""Which guards the judge asks, and when: of a case, of its layouts, of a phase, of a metric.

Findings come in the order of these lines. What a rule demands stands in rules.ini. The job itself applies the other rules,
before it writes a byte: see :mod:`iogauge.job.opening` and :mod:`iogauge.job.target`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final, TypeVar

from iogauge.evidence.model import Striping
from iogauge.guards import (
    cache,
    clock,
    contents,
    figures,
    moved,
    nodes,
    origin,
    others,
    preflight,
    striping,
    within,
)
from iogauge.guards.finding import Finding
from iogauge.guards.views import CaseView, PhaseView

Seen = TypeVar("Seen")


#: Rules by their names in rules.ini: each returns its findings about what was seen, if it applies.
Guards = Mapping[str, Callable[[Seen], Finding | Iterator[Finding] | None]]

OF_CASE: Final[Guards[CaseView]] = {
    "G9 identity": preflight.identity_of,
    "G19 lock": others.exclusive,
    "G19 neighbours": others.neighbours,
    "G22 environment": origin.environment,
    "G15 placement": nodes.placement,
    "G15 nodes": nodes.as_declared,
    "G19 foreign load": others.foreign_load,
    "G20 connections": nodes.connections,
    "G14 quota": preflight.quota_of,
    "G12 health": preflight.health_of,
    "G25 settings": preflight.expected_settings_of,
    "G12 servers": preflight.servers_of,
    "G6 measured ceilings": figures.measured_ceilings,
    "G10 passed on": striping.passed_on,
    "G13 fill level": figures.fill_level,
    "G10 metadata targets": striping.on_metadata_targets,
    "G10 directories": striping.directories,
    "G8 verification": contents.verification,
    "G8 contents": contents.unchanged,
    "G8 holes": contents.stored,
}

#: Rules for the layouts that were read back in each repetition.
OF_LAYOUT: Final[Guards[tuple[CaseView, Striping]]] = {
    "G10 layout": striping.layout,
    "G10 components": striping.components,
    "G11 coverage": striping.coverage,
    "G23 stripes": striping.stripes,
}

#: A finding holds for each metric of the phase, or only for the metric that it names. It also holds
#: for metrics that are computed from these.
OF_PHASE: Final[Guards[PhaseView]] = {
    "G1 client cache": cache.client_cache,
    "G21 order": figures.read_after_write,
    "G3 server cache": cache.server_cache,
    "G18 data": contents.data_entropy,
    "G9 storage": moved.storage,
    "G2 write-back": cache.write_back,
    "G4 duration": figures.duration,
    "G4 percentile": figures.beyond,
    "G4 clock": clock.seconds_witnessed,
    "G4 clock by phase": within.phase_seconds_witnessed,
    "G5 tail": figures.tail,
    "G17 drift": figures.drift,
    "G17 steadiness": figures.steadiness,
    "G19 load on purpose": others.on_purpose,
    "G19 files of others": others.foreign_files,
    "G7 units": figures.unit_sanity,
    "G8 bytes": figures.bytes_moved,
    "G8 witness": moved.bytes_witnessed,
    "G8 witness by phase": within.phase_witnessed,
    "G11 bytes by target": moved.targets_witnessed,
    "G26 streams": nodes.streams,
    "G22 tool": origin.tool_integrity,
    "G6 ceiling": figures.ceiling,
}

OF_METRIC: Final[Guards[tuple[CaseView, str]]] = {"G17 spread": figures.spread}
