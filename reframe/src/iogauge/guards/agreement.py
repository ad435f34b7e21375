"""The ledger: a tool's figure is a claim, what a source leaves of it is a word, and :func:`settle` holds them together.

A word is an interval: what the source counted, less or more by the tolerance of its quantity. A source that is not exact
serves others too, or sees a part. Its word may contradict a claim; it never confirms one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.core.text import because
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rule


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a source saw, and the least and the most of the claim that it leaves, in the claim's unit.

    ``exact`` sources confirm. What differs in a ``shared`` source is others'. A busy machine may delay what a
    source saw ``often`` or never: it contradicts only if it does so in more than half of the executions. No load of a node
    explains a ``firm`` word.
    """

    saw: str
    least: float = 0.0
    most: float = math.inf
    exact: bool = False
    shared: bool = False
    often: bool = False
    firm: bool = False

    def leaves(self, value: float) -> bool:
        """Return whether the source leaves a claim of this value."""
        return self.least <= value <= self.most


@dataclass(frozen=True, slots=True)
class ReportedFigure:
    """A figure of a tool, what the tool says in words, and the words of all sources about it."""

    says: str
    value: float
    words: Sequence[Bounds] = ()

    @property
    def against(self) -> list[Bounds]:
        """Return the words that leave no such figure."""
        return [word for word in self.words if not word.leaves(self.value)]


@dataclass(frozen=True, slots=True)
class Tolerance:
    """By how much a source and a tool may differ: a share of the larger figure, and beside it ``slack`` in the unit."""

    share: float
    slack: float = 0.0

    def most(self, saw: str, count: float, **kind: bool) -> Bounds:
        """Return the word of a source that cannot have missed anything."""
        most = (count + self.slack) / (1 - self.share) if self.share < 1 else math.inf
        return Bounds(saw, most=most, **kind)

    def least(self, saw: str, count: float, **kind: bool) -> Bounds:
        """Return the word of a source that counted nothing else."""
        return Bounds(saw, (1 - self.share) * (count - self.slack), **kind)


#: Bytes that a tool moved; journals and logs write up to 16 MiB more.
BYTES: Final = Tolerance(0.05)
BYTES_BESIDE: Final = Tolerance(0.05, 16 << 20)
#: Bytes that a node's interface counted, headers included, and those of others.
WIRE: Final = Tolerance(0.02)
#: Seconds between the first and the last byte or file; two looks at a clock; work beside what a tool times. An mdtest that
#: only asks for files' status does hardly anything else: at a load of 13 to 16 on two cores 45 runs worked 0.32 s longer at most.
SECONDS: Final = Tolerance(0.05)
CLOCK: Final = Tolerance(0.0, 0.1)
WORK: Final = Tolerance(0.2, 1.0)
WORK_OF_STAT: Final = Tolerance(0.1, 0.5)


def settle(
    name: str,
    executions: Sequence[Iterable[ReportedFigure] | None],
    *,
    fine: str,
    unseen: str = "",
    unheard: str = "",
    required: bool = False,
    busy: str = "",
    **figures: object,
) -> Finding:
    """Return what all words make of the claims of each execution: the first contradiction, else what is not confirmed.

    An execution without all of its witnesses is None, and ``unheard`` names the nodes without. ``unseen`` says why no word
    confirms a claim; if it is empty, none must. ``required`` comes from ``limits.witness``. ``busy`` says why healthy tools would be contradicted too.
    """
    told = [list(claims) for claims in executions if claims is not None]
    late = sum(
        any(w.often for claim in claims for w in claim.against) for claims in told
    )
    heard = [claim for claims in told for claim in claims]
    for claim in heard:
        against = [w for w in claim.against if not w.often or 2 * late > len(told)]
        for word in against[:1]:
            saw = f"{claim.says}; {word.saw}"
            if busy and not word.firm:
                return rule(name, "busy", **figures).found(
                    Outcome.CONTAMINATED, f"{saw}, while {busy}"
                )
            kind = Outcome.CONTAMINATED if word.shared else Outcome.INVALID
            return rule(name, **figures).found(kind, saw)
    if lost := sum(claims is None for claims in executions):
        missing = (
            f"{lost} of {len(executions)} executions have no witness{because(unheard)}"
        )
        return rule(name, "lost", **figures).unwitnessed(missing, required)
    if unseen and not any(word.exact for claim in heard for word in claim.words):
        return rule(name, "unseen", **figures).unwitnessed(unseen, required)
    return rule(name, **figures).ok(fine)
