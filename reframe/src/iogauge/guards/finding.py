"""Guards: may a measurement be believed?

A rule takes plain values and returns a :class:`Finding`: what was seen, the demand (with its
formula), and the remedy. A second function below each rule reads the case and decides whether the
rule applies. :mod:`iogauge.guards.catalogue` lists all rules. No guard reads a file, knows ReFrame,
or compares with a reference.

Notation: N nodes, T tasks per node, b x s bytes per task, V bytes per node and phase, M memory per
node, Q task offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from iogauge.core.words import NO_WITNESS


class Outcome(Enum):
    """A guard's decision: believe, believe with a remark, or do not believe."""

    OK = "ok"
    WARN = "warn"
    INVALID = "invalid"
    UNSTABLE = "unstable"
    CONTAMINATED = "contaminated"


@dataclass(frozen=True, slots=True)
class Finding:
    """A guard's answer about one metric, or about the whole case if ``metric`` is None."""

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
    """The demand of a guard in one case, and the remedy if it does not hold."""

    guard: str
    demands: str
    remedy: str = ""

    def ok(self, saw: str) -> Finding:
        """Return a finding that believes what was seen."""
        return Finding(self.guard, Outcome.OK, saw, self.demands)

    def warn(self, saw: str) -> Finding:
        """Return a finding that believes, with a remark on what was seen."""
        return Finding(self.guard, Outcome.WARN, saw, self.demands, self.remedy)

    def invalid(self, saw: str) -> Finding:
        """Return a finding that does not believe."""
        return Finding(self.guard, Outcome.INVALID, saw, self.demands, self.remedy)

    def unwitnessed(self, missing: str, required: bool) -> Finding:
        """Return the remark that a witness is missing, or an objection if the site requires one (``limits.witness``)."""
        saw = f"{NO_WITNESS}: {missing}"
        return self.invalid(saw) if required else self.warn(saw)

    def decide(self, holds: bool, saw: str, otherwise: Outcome = Outcome.INVALID) -> Finding:
        """Return OK if the demand holds, else ``otherwise``. Keep the remedy in both findings."""
        outcome = Outcome.OK if holds else otherwise
        return Finding(self.guard, outcome, saw, self.demands, self.remedy)
