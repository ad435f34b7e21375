"""Guards: may a measurement be believed?

A rule takes plain values and returns a :class:`Finding`: what was seen, what is demanded (with the formula), and
what to do about it. Below each rule stands the function that says when it speaks and what it reads;
:mod:`iogauge.guards.catalogue` lists them all. No guard reads a file or knows ReFrame; no guard compares with a
reference.

Notation: N nodes, T tasks per node, b x s bytes per task, V bytes per node and phase, M memory per node, Q task
offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """What a guard decides: believe, believe with a remark, or do not believe."""

    OK = "ok"
    WARN = "warn"
    INVALID = "invalid"
    UNSTABLE = "unstable"
    CONTAMINATED = "contaminated"


@dataclass(frozen=True, slots=True)
class Finding:
    """One guard's answer. ``metric`` is the metric that it speaks of; None: the whole case."""

    guard: str
    outcome: Outcome
    saw: str
    demands: str
    remedy: str = ""
    metric: str | None = None

    def __str__(self) -> str:
        text = f"{self.guard}: {self.saw}; demanded: {self.demands}"
        return f"{text}. {self.remedy}" if self.remedy and self.outcome is not Outcome.OK else text


@dataclass(frozen=True, slots=True)
class Rule:
    """What a guard demands of one case, and what to do if that does not hold."""

    guard: str
    demands: str
    remedy: str = ""

    def ok(self, saw: str) -> Finding:
        """Believe what was seen; there is nothing to do."""
        return Finding(self.guard, Outcome.OK, saw, self.demands)

    def warn(self, saw: str) -> Finding:
        """Believe, and remark upon what was seen."""
        return Finding(self.guard, Outcome.WARN, saw, self.demands, self.remedy)

    def invalid(self, saw: str) -> Finding:
        """Do not believe."""
        return Finding(self.guard, Outcome.INVALID, saw, self.demands, self.remedy)

    def decide(self, holds: bool, saw: str, otherwise: Outcome = Outcome.INVALID) -> Finding:
        """Believe if the demand holds. The remedy is kept in either case: it tells how to stay there."""
        outcome = Outcome.OK if holds else otherwise
        return Finding(self.guard, outcome, saw, self.demands, self.remedy)
