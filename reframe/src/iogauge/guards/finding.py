"""Guards: may a measurement be believed?

One function a rule, numbered as in docs/guards.md. Each takes plain values and returns a
:class:`Finding`: what was seen, what is demanded (with the formula), and what to do about it. No guard
reads a file or knows ReFrame; no guard compares with a reference.

Notation: N nodes, T tasks per node, V bytes per node and phase, M memory per node, Q task offset.
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


def finding_of(
    guard: str,
    holds: bool,
    saw: str,
    demands: str,
    remedy: str,
    otherwise: Outcome = Outcome.INVALID,
) -> Finding:
    return Finding(guard, Outcome.OK if holds else otherwise, saw, demands, remedy)
