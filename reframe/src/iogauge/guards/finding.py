"""What a guard answers: :class:`Finding`, with what was seen, the demand and the remedy.

No guard reads a file, knows ReFrame, or compares with a reference.

Notation: N nodes, T tasks per node, b x s bytes per task, V bytes per node and phase, M memory per
node, Q task offset.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Outcome(Enum):
    """A guard's decision: believe, believe with a remark, or do not believe."""

    OK = "ok"
    WARN = "warn"
    INVALID = "invalid"
    UNSTABLE = "unstable"
    CONTAMINATED = "contaminated"


@dataclass(frozen=True, slots=True)
class Finding:
    """A guard's answer about one metric, or about the whole case if ``metric`` is None.

    ``guard`` is the guard's number (``G8``), ``subject`` its name among the guards of this number (``contents``).
    """

    guard: str
    outcome: Outcome
    saw: str
    demands: str
    remedy: str = ""
    metric: str | None = None
    subject: str = ""

    @property
    def name(self) -> str:
        """Return number and subject."""
        return f"{self.guard} {self.subject}".rstrip()

    def __str__(self) -> str:
        text = f"{self.name}: {self.saw}; demanded: {self.demands}"
        return (
            f"{text}. {self.remedy}"
            if self.remedy and self.outcome is not Outcome.OK
            else text
        )
