"""A guard in words (:class:`Guard`), and what it answers (:class:`Finding`).

A :class:`Guard` stands above the function that decides it, beside the limits that both use. No guard reads a file, knows
ReFrame, or compares with a reference.

Notation: N nodes, T tasks per node, b x s bytes per task, V bytes per node and phase, M memory per node, Q task offset.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from iogauge.core.vocabulary import NO_WITNESS


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
        if self.outcome is Outcome.OK or not self.remedy:
            return text
        return f"{text}. {self.remedy}"


def refusals(findings: Iterable[Finding]) -> tuple[str, ...]:
    """Return the findings that refuse a case before its first byte."""
    refused = [each for each in findings if each.outcome is Outcome.INVALID]
    return tuple(map(str, refused))


@dataclass(frozen=True, slots=True, kw_only=True)
class Guard:
    """What a guard demands and advises, for its findings, ``iogauge explain`` and docs/guards.md."""

    #: Number and subject, such as ``G8 contents``.
    name: str
    #: What must hold, in one line.
    must: str
    #: What to do if it does not hold.
    remedy: str
    #: Against whom: ``a`` is accident, ``b`` somebody's environment; then a situation that happened.
    against: str
    #: Real storage or programs on which it spoke. Without any it may only remark.
    seen_on: str = ""
    #: The outcome if it does not hold.
    otherwise: Outcome = Outcome.INVALID
    #: What else may follow, or when.
    but: str = ""
    #: Keys of the site that set a limit, with their defaults.
    limit: str = ""
    #: Exceptions and details.
    more: str = ""
    #: What a finding demands, if it is not ``must``.
    demands: str = ""

    @property
    def number(self) -> str:
        """Return the guard's number, such as ``G8``."""
        return self.name.partition(" ")[0]

    @property
    def follows(self) -> str:
        """Return in words what follows if it does not hold."""
        outcome = self.otherwise.name
        if self.otherwise is Outcome.WARN:
            outcome = "remark"
        if self.but:
            return f"{outcome}, {self.but}"
        return outcome

    def saying(self, demands: str = "", remedy: str = "") -> Guard:
        """Return the guard with words of a special case."""
        return replace(
            self, demands=demands or self.demands, remedy=remedy or self.remedy
        )

    def found(self, outcome: Outcome, saw: str) -> Finding:
        """Return a finding, with the remedy unless all is well."""
        subject = self.name.partition(" ")[2]
        remedy = "" if outcome is Outcome.OK else self.remedy
        demands = self.demands or self.must
        return Finding(self.number, outcome, saw, demands, remedy, subject=subject)

    def ok(self, saw: str) -> Finding:
        """Return a finding that believes what was seen."""
        return self.found(Outcome.OK, saw)

    def warn(self, saw: str) -> Finding:
        """Return a finding that believes, with a remark on what was seen."""
        return self.found(Outcome.WARN, saw)

    def invalid(self, saw: str) -> Finding:
        """Return a finding that does not believe."""
        return self.found(Outcome.INVALID, saw)

    def decide(
        self, holds: bool, saw: str, otherwise: Outcome | None = None
    ) -> Finding:
        """Return OK if the demand holds, else ``otherwise``, by default the guard's own outcome."""
        if holds:
            return self.ok(saw)
        return self.found(otherwise or self.otherwise, saw)

    def unless(self, fine: str, *problems: str, doubt: str = "") -> Finding:
        """Return OK if there is no problem, of which the first counts, and a remark if there is a doubt alone."""
        problem = next(filter(None, problems), "")
        if problem:
            return self.found(self.otherwise, problem)
        if doubt:
            return self.warn(doubt)
        return self.ok(fine)

    def unwitnessed(self, missing: str, required: bool) -> Finding:
        """Return the remark that a witness is missing, or an objection if one is ``required``."""
        outcome = Outcome.INVALID if required else Outcome.WARN
        return self.found(outcome, f"{NO_WITNESS}: {missing}")
