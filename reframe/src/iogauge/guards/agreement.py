"""Agreement of a reported figure with the bounds that other sources leave of it: :func:`settle`.

A bound is an interval: what the source counted, less or more by the tolerance of its quantity. A source that is not exact
serves others too, or sees a part. It may contradict a figure; it never confirms one.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass

from iogauge.core.text import because
from iogauge.guards.finding import Finding, Guard, Outcome


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a source saw, and the least and the most that it leaves of a figure, in the figure's unit."""

    saw: str
    least: float = 0.0
    most: float = math.inf
    #: Whether the source confirms the figure.
    exact: bool = False
    #: Whether what differs is others'.
    shared: bool = False
    #: Whether a busy machine may delay what was seen: it counts if it contradicts more than half of the executions.
    often: bool = False
    #: Whether no load of a node explains a contradiction.
    firm: bool = False


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A figure of a tool, what the tool says in words, and the bounds of all sources."""

    says: str
    value: float
    bounds: Sequence[Bounds] = ()

    @property
    def against(self) -> list[Bounds]:
        """Return the bounds that leave no such figure."""
        return [
            bound
            for bound in self.bounds
            if not bound.least <= self.value <= bound.most
        ]

    @property
    def is_late(self) -> bool:
        """Return whether a bound contradicts it that a busy machine may delay."""
        return any(bound.often for bound in self.against)

    @property
    def is_confirmed(self) -> bool:
        """Return whether a source confirms it."""
        return any(bound.exact for bound in self.bounds)

    @property
    def of_a_part(self) -> ReportedFigure:
        """Return the figure with the bounds that hold if a part of the counts is lost: those from below."""
        bounds = [bound for bound in self.bounds if bound.most == math.inf]
        return ReportedFigure(self.says, self.value, bounds)


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a source and a tool may differ: a share of the larger figure, and beside it ``slack`` in the unit."""

    share: float
    slack: float = 0.0

    def most(self, count: float) -> float:
        """Return the most that a source leaves which cannot have missed anything."""
        return (count + self.slack) / (1 - self.share)

    def least(self, count: float) -> float:
        """Return the least that a source leaves which counted nothing else."""
        return (1 - self.share) * (count - self.slack)


#: Bytes that a tool moved; journals and logs write up to 16 MiB more.
BYTES = Tolerance(0.05)
BYTES_BESIDE = Tolerance(0.05, 16 << 20)
#: Seconds between the first and the last byte or file; two looks at a clock.
SECONDS = Tolerance(0.05)
CLOCK = Tolerance(0.0, 0.1)


def _most_are_late(executions: Sequence[Sequence[ReportedFigure]]) -> bool:
    late = 0
    for execution in executions:
        late += any(figure.is_late for figure in execution)
    return 2 * late > len(executions)


def settle(
    guard: Guard,
    executions: Sequence[Sequence[ReportedFigure]],
    *,
    fine: str,
    unseen: Finding | None = None,
    lost: Finding | None = None,
    busy: str = "",
) -> Finding:
    """Return the first contradiction of a figure, else ``lost`` if a count is lost, else ``unseen`` if no bound confirms.

    ``busy`` says why healthy tools would be contradicted too.
    """
    every = list(itertools.chain.from_iterable(executions))
    is_often = _most_are_late(executions)
    for figure in every:
        for bound in figure.against:
            if bound.often and not is_often:
                continue
            saw = f"{figure.says}; {bound.saw}"
            if busy and not bound.firm:
                return guard.saying(
                    f"{guard.demands or guard.must}, on a node at rest",
                    "See what else runs on the node, and run again when it is at rest",
                ).found(Outcome.CONTAMINATED, f"{saw}, while {busy}")
            outcome = Outcome.CONTAMINATED if bound.shared else Outcome.INVALID
            return guard.found(outcome, saw)
    if lost:
        return lost
    if unseen and not any(figure.is_confirmed for figure in every):
        return unseen
    return guard.ok(fine)


def lost_of(
    guard: Guard, complete: Sequence[bool], missing: str, required: bool
) -> Finding | None:
    """Return what follows from executions of which counts are lost, None if none is; ``missing`` names the nodes without."""
    lost = complete.count(False)
    if not lost:
        return None
    saw = f"{lost} of {len(complete)} executions have no witness{because(missing)}"
    remedy = (
        "The record of a task is lost. Look at the first lines of its standard error in the stage directory, and for a "
        "wrapper or a launcher that drops job/witness.sh"
    )
    if missing:
        remedy = "Mend what stands in brackets, and run again"
    words = guard.saying("the kernel's counts of every task", remedy)
    return words.unwitnessed(saw, required)
