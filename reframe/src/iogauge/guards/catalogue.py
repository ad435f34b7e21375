"""Every guard on one line: its rule, the outcome if it does not hold, and the function that applies
it.

Findings come in the order of these lines. ci/docs.py makes the table of docs/guards.md from these
lines and the first sentence of each rule's docstring.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from iogauge.guards import cache, figures, nodes, origin, others, preflight, striping, witness
from iogauge.guards.finding import Finding
from iogauge.guards.seen import CaseSeen, LayoutSeen, MetricSeen, PhaseSeen

Seen = TypeVar("Seen")


@dataclass(frozen=True)
class Entry:
    """A rule with number and name, the outcome if it does not hold, its settings, and where the outcome was seen.

    ``seen_on`` names the real file systems or programs on which the rule spoke. A rule that rests on a recorded or an
    imagined form alone gives remarks.
    """

    number: str
    name: str
    rule: Callable[..., Finding | None]
    otherwise: str
    limits: str
    seen_on: str


@dataclass(frozen=True)
class Guard(Entry, Generic[Seen]):
    """A rule that the judge applies; ``speak`` yields its findings, if it applies."""

    speak: Callable[[Seen], Iterator[Finding]]


_BEFORE: Final = "INVALID, before a byte is written"
_MEMORY: Final = "`limits.memory_factor` 2"
_LOCK: Final = "`limits.lock_wait` 10 min ([one case at a time](safety.md#one-case-at-a-time))"

# fmt: off
#: Rules that the job applies before it writes a byte, with G9, G12 and the quotas: see
#: :mod:`iogauge.job.opening`, and :mod:`iogauge.job.target` for the directories on metadata targets.
OF_TARGET: Final = (
    Entry("G9", "devices", preflight.devices, _BEFORE, "`ceilings.devices`", "ext4, loop, zram"),
    Entry("G13", "room", preflight.room, _BEFORE, "`limits.max_fill` 85 %, `limits.keep_free` 10 %", "ext4"),
    Entry("G13", "share", preflight.share_of_free, _BEFORE, "`limits.max_of_free` 1 %", "ext4"),
    Entry("G13", "storage targets", preflight.target_room, _BEFORE, "`limits.max_fill` 85 %", "Lustre 2.17"),
    Entry("G14", "inodes", preflight.inodes, _BEFORE, "", "ext4"),
    Entry("G12", "pool", preflight.pool, _BEFORE, "`target.pool`", "Lustre 2.17"),
    Entry("G12", "metadata targets", preflight.metadata_health, _BEFORE, "`topology.metadata_targets`", "Lustre 2.17"),
    Entry("G10", "metadata placement", preflight.metadata_placement, _BEFORE, "", "Lustre 2.17"),
    Entry("G10", "metadata default", preflight.metadata_default, _BEFORE, "", "Lustre 2.17"),
    Entry("G14", "metadata targets", preflight.metadata_room, _BEFORE, "", "Lustre 2.17"),
    Entry("G15", "cores", preflight.cores, _BEFORE, "`node.cores`", "Open MPI 4.1"),
    Entry("G25", "settings", preflight.expected_settings, _BEFORE, "`expect`", "ext4, Lustre 2.17"),
)

OF_CASE: Final[tuple[Guard[CaseSeen], ...]] = (
    Guard("G9", "identity", preflight.identity, "INVALID, the first before a byte is written", "`target.type`, `target.source`, `target.uuid`", "ext4, XFS, btrfs, overlay, Lustre 2.17", preflight.identity_of),
    Guard("G19", "lock", nodes.exclusive, "CONTAMINATED", _LOCK, "ext4, Lustre 2.17", nodes.exclusive_of),
    Guard("G19", "neighbours", nodes.neighbours, "CONTAMINATED", "", "ext4", nodes.neighbours_of),
    Guard("G22", "environment", figures.environment, "INVALID, or a remark", "", "ext4", figures.environment_of),
    Guard("G15", "placement", nodes.placement, "remark", "`scale.tasks_per_node`", "Open MPI 4.1, Slurm 22.05", nodes.placement_of),
    Guard("G15", "nodes", nodes.as_declared, "remark", "`node.cores`, `node.memory`", "ext4", nodes.as_declared_of),
    Guard("G19", "foreign load", others.foreign_load, "CONTAMINATED", "`limits.max_foreign` 10 %", "ext4, XFS, btrfs, GlusterFS, Lustre 2.17", others.foreign_load_of),
    Guard("G20", "connections", nodes.connections, "INVALID", "", "Lustre 2.17", nodes.connections_of),
    Guard("G14", "quota", preflight.quota, _BEFORE, "", "Lustre 2.17", preflight.quota_of),
    Guard("G12", "health", preflight.health, _BEFORE, "`topology.targets`", "Lustre 2.17", preflight.health_of),
    Guard("G12", "servers", preflight.servers, "remark", "`topology.servers.count`", "recorded", preflight.servers_of),
    Guard("G6", "measured ceilings", figures.measured_ceilings, "remark", "`ceilings.max_age_days` 90", "ext4", figures.measured_ceilings_of),
    Guard("G10", "passed on", striping.passed_on, "remark", "", "Lustre 2.17", striping.passed_on_of),
    Guard("G13", "fill level", preflight.fill_level, "INVALID", "`sweeps.fill_levels`", "ext4", preflight.fill_level_of),
    Guard("G10", "metadata targets", striping.on_metadata_targets, "INVALID", "`topology.metadata_targets`", "Lustre 2.17", striping.on_metadata_targets_of),
    Guard("G10", "directories", striping.directories, "INVALID, or a remark", "`io500.striping`", "Lustre 2.17", striping.directories_of),
    Guard("G8", "verification", cache.verification, "INVALID", "", "ext4", cache.verification_of),
    Guard("G8", "contents", cache.unchanged, "INVALID", "", "ext4", cache.unchanged_of),
    Guard("G8", "holes", cache.stored, "INVALID", "", "ext4, XFS, btrfs, Lustre 2.17", cache.stored_of),
    Guard("G8", "MPI-IO", cache.counted, "remark", "", "ext4", cache.counted_of),
)

#: Rules for the layouts that were read back in each repetition.
OF_LAYOUT: Final[tuple[Guard[LayoutSeen], ...]] = (
    Guard("G10", "layout", striping.layout, "INVALID, or a remark", "`target.pool`", "Lustre 2.17", striping.layout_of),
    Guard("G10", "components", striping.components, "remark", "", "Lustre 2.17", striping.components_of),
    Guard("G11", "coverage", striping.coverage, "INVALID, or a remark", "", "Lustre 2.17", striping.coverage_of),
    Guard("G23", "stripes", preflight.stripes_against_size, _BEFORE, "", "Lustre 2.17", preflight.stripes_against_size_of),
)

#: A finding holds for each metric of the phase, or only for the metric that it names. It also holds
#: for metrics that are computed from these.
OF_PHASE: Final[tuple[Guard[PhaseSeen], ...]] = (
    Guard("G1", "client cache", cache.client_cache, "INVALID", _MEMORY, "ext4, XFS, btrfs, GlusterFS, Lustre 2.17", cache.client_cache_of),
    Guard("G21", "order", figures.read_after_write, "INVALID", "", "ext4", figures.read_after_write_of),
    Guard("G3", "server cache", cache.server_cache, "remark", "`topology.servers.memory`", "none", cache.server_cache_of),
    Guard("G24", "modes", nodes.client_modes, "remark", "", "Lustre 2.17", nodes.client_modes_of),
    Guard("G18", "data", cache.data_entropy, "INVALID", "`target.compresses`", "btrfs", cache.data_entropy_of),
    Guard("G9", "storage", preflight.storage, "INVALID", "`target.cache`", "tmpfs, ext4, overlay", preflight.storage_of),
    Guard("G2", "write-back", cache.write_back, "INVALID", _MEMORY, "ext4, overlay", cache.write_back_of),
    Guard("G4", "duration", figures.duration, "INVALID", "`limits.tier`", "ext4", figures.duration_of),
    Guard("G4", "percentile", figures.beyond, "INVALID", "`limits.phase_seconds`", "ext4", figures.beyond_of),
    Guard("G4", "clock", witness.seconds_witnessed, "INVALID", "", "ext4, XFS, GlusterFS", witness.seconds_witnessed_of),
    Guard("G4", "clock by phase", origin.phase_seconds_witnessed, "INVALID", "", "ext4", origin.phase_seconds_witnessed_of),
    Guard("G5", "tail", figures.tail, "remark", "", "ext4", figures.tail_of),
    Guard("G17", "drift", figures.drift, "UNSTABLE", "`limits.max_spread` 10 %", "ext4", figures.drift_of),
    Guard("G17", "steadiness", figures.steadiness, "remark", "", "ext4", figures.steadiness_of),
    Guard("G19", "load on purpose", nodes.on_purpose, "INVALID", "", "ext4", nodes.on_purpose_of),
    Guard("G19", "files of others", others.foreign_files, "CONTAMINATED, or INVALID", "`limits.max_foreign` 10 %", "ext4, XFS, overlay", others.foreign_files_of),
    Guard("G7", "units", figures.unit_sanity, "INVALID", "", "ext4", figures.unit_sanity_of),
    Guard("G8", "bytes", figures.bytes_moved, "INVALID, or a remark", "", "ext4, GlusterFS", figures.bytes_moved_of),
    Guard("G8", "witness", witness.bytes_witnessed, "INVALID", "`limits.witness`", "ext4, XFS, btrfs, GlusterFS, Lustre 2.17", witness.bytes_witnessed_of),
    Guard("G8", "witness by phase", origin.phase_witnessed, "INVALID, or a remark", "", "ext4", origin.phase_witnessed_of),
    Guard("G11", "bytes by target", witness.targets_witnessed, "INVALID", "", "Lustre 2.17", witness.targets_witnessed_of),
    Guard("G26", "streams", nodes.streams, "INVALID", "", "four hosts", nodes.streams_of),
    Guard("G22", "tool", figures.tool_integrity, "INVALID", "", "ext4, GlusterFS", figures.tool_integrity_of),
    Guard("G6", "ceiling", figures.ceiling, "INVALID", "`topology`", "ext4", figures.ceiling_of),
)

OF_METRIC: Final[tuple[Guard[MetricSeen], ...]] = (
    Guard("G17", "spread", figures.spread, "UNSTABLE", "`limits.max_spread` 10 %", "ext4", figures.spread_of),
)
# fmt: on

ALL: Final[tuple[Entry, ...]] = (*OF_TARGET, *OF_CASE, *OF_LAYOUT, *OF_PHASE, *OF_METRIC)
