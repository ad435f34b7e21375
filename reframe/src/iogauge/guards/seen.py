"""What guards read: a case with all that its job left, and its parts.

Only values that several guards share are derived here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from iogauge.core.measurement import Metric, Phase, ToolOutput
from iogauge.core.words import Tier
from iogauge.evidence.model import Evidence, Striping, tool_phases
from iogauge.node.mounts import Traits, traits
from iogauge.plan.case import Access, CasePlan, PhasePlan
from iogauge.site.extras import PartitionExtras


@dataclass(frozen=True)
class CaseSeen:
    """A case: its plan, what its job left, what the site declares, and the samples of each metric."""

    plan: CasePlan
    evidence: Evidence
    extras: PartitionExtras
    tier: Tier
    metrics: Sequence[Metric]
    values: Mapping[str, Sequence[float]]

    @property
    def phases(self) -> list[PhaseSeen]:
        """The phases that are repeated and judged."""
        return [PhaseSeen(self, phase) for phase in self.plan.repeat]

    @property
    def layouts(self) -> list[LayoutSeen]:
        """The layouts that were read back, one for each repetition; none if the case asked for none."""
        if not self.plan.striped:
            return []
        return [LayoutSeen(self, striping) for striping in self.evidence.striping]

    @cached_property
    def traits(self) -> Traits:
        """How the target caches, as far as the site and the nodes know."""
        if any(view.cached_below for view in self.evidence.views):
            return Traits("opaque", False)
        target = self.extras.target
        return traits(target.type, target.cache, target.honours_o_direct)

    @property
    def tasks_per_node(self) -> int:
        """Tasks on each node."""
        return self.plan.tasks // self.plan.nodes


@dataclass(frozen=True)
class LayoutSeen:
    """The layouts of one repetition's files in a case."""

    case: CaseSeen
    striping: Striping

    @property
    def active(self) -> list[int]:
        """Numbers of the storage targets that are active."""
        opened = self.case.evidence.opened
        return [target.index for target in (opened.targets if opened else ()) if target.active]


@dataclass(frozen=True)
class PhaseSeen:
    """One phase of a case, with its outputs in order of repetitions."""

    case: CaseSeen
    phase: PhasePlan

    @property
    def access(self) -> Access:
        """How the phase touches data."""
        return self.phase.access

    @property
    def moves_data(self) -> bool:
        """Whether the phase reads or writes."""
        return self.access.direction in ("read", "write")

    @property
    def outputs(self) -> Sequence[ToolOutput]:
        """What the tool left in each repetition."""
        return self.case.evidence.outputs[self.phase.name]

    @property
    def tool(self) -> str:
        """Name of the tool that ran."""
        return self.outputs[0].tool if self.outputs else self.case.plan.tool

    @cached_property
    def reported(self) -> list[tuple[ToolOutput, Phase]]:
        """The tool's phases that yield a metric, each with the output in which it stands."""
        names = sorted({name for name, _ in self.phase.rates.values()})
        return [
            (output, phase)
            for output in self.outputs
            for name in names
            for phase in tool_phases(output, name, self.phase.samples)
        ]

    @property
    def tool_phases(self) -> list[Phase]:
        """The tool's phases that yield a metric."""
        return [phase for _, phase in self.reported]

    @property
    def bytes_per_node(self) -> int:
        """V: bytes that the phase moves on each node."""
        return (self.phase.data_bytes or 0) // self.case.plan.nodes


@dataclass(frozen=True)
class MetricSeen:
    """The samples of one metric of a case."""

    case: CaseSeen
    name: str
