"""Measurements, in one form for every tool.

A tool's parser turns its output into a :class:`ToolOutput`: one :class:`Phase` for each timed
phase, in the order in which the tool ran them. Nothing here judges: guards and verdict do.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from iogauge.core.units import format_value, with_unit


class ToolOutputError(ValueError):
    """A tool's output cannot be trusted: truncated, damaged, or not from the tool at all.

    The message names the tool, what was found and what was expected. The user sees it as the reason
    of an ERROR.
    """


@dataclass(frozen=True, slots=True)
class Metric:
    """A named quantity that a scenario promises to measure."""

    name: str
    #: Its unit, see ``units``.
    unit: str
    #: Direction in which a value is better.
    better: Literal["more", "less"] = "more"
    #: A few requests decide it, so that it differs from repetition to repetition.
    tail: bool = False


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value and its unit, as the tool printed them."""

    value: float
    unit: str

    def over(self, other: Quantity) -> Quantity:
        """Return how many times another quantity this one is."""
        return Quantity(self.value / other.value, "1")


@dataclass(frozen=True, slots=True)
class Unsettled:
    """The worst value of a quantity that the tool's turns leave open, and why it is not proven."""

    value: float
    why: str


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one repetition; None: the tool does not report it."""

    name: str
    #: Each quantity (``bw``, ``iops``, ``rate``, ``latency``) with its value.
    rates: Mapping[str, Quantity]
    seconds: float
    #: Bytes that all tasks moved, as the tool reports it.
    bytes_moved: int | None = None
    operations: int | None = None
    transfer_bytes: int | None = None
    #: The time of every task; empty if the tool does not report it.
    rank_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The whole report of one execution of a tool."""

    tool: str
    version: str
    phases: tuple[Phase, ...]
    #: The tool's own count of its tasks.
    tasks: int | None = None
    #: The tool's own count of its nodes.
    nodes: int | None = None
    command: str = ""
    #: The tool's own complaints: each makes a measurement INVALID unless the scenario expects it.
    warnings: tuple[str, ...] = ()
    #: What the tool says it ran with, for the guards.
    parameters: Mapping[str, object] = field(default_factory=dict)
    #: A remark on a quantity, for readers of its verdict.
    notes: Mapping[str, str] = field(default_factory=dict)
    #: What the output leaves open about a quantity.
    unsettled: Mapping[str, Unsettled] = field(default_factory=dict)
    #: Bytes that all phases read and wrote together, if the names of the phases do not tell (IO500).
    totals: Mapping[str, int] = field(default_factory=dict)
    #: Most bytes that the tool moved in addition to its phases.
    extra_bytes: Mapping[str, int] = field(default_factory=dict)
    #: All phases began and ended together, as reads and writes of one job do.
    at_once: bool = False
    #: ``parameters`` name all options of the jobs, also those that nobody gave.
    all_options: bool = False
    #: ``command`` is that of the tool that this one watched.
    watched: bool = False

    @property
    def timed(self) -> float:
        """Return the seconds that all phases took."""
        seconds = [phase.seconds for phase in self.phases]
        if self.at_once:
            return max(seconds)
        return sum(seconds)

    @property
    def stretches(self) -> int:
        """Return how many phases followed each other."""
        if self.at_once:
            return 1
        return len(self.phases)

    def named(self, name: str) -> list[Phase]:
        """Return the phases of a name."""
        return [phase for phase in self.phases if phase.name == name]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a metric must reach: value, relative bounds (None: unbounded), unit, and source.

    The bounds are ReFrame's: shares of the value.
    """

    value: float
    #: In [-1, 0].
    lower: float | None
    #: At least 0.
    upper: float | None
    unit: str
    source: str
    #: The reason for an expected failure.
    xfail: str | None = None
    #: The last day (UTC) on which it is expected. In a site's file ``xfail`` always has it.
    until: date | None = None
    #: The share of the declared ceiling that it is; None for a reference of the site's own.
    of_ceiling: float | None = None

    @property
    def least(self) -> float:
        """Return the smallest value that meets the reference."""
        if self.lower is None:
            return -math.inf
        return self.value * (1 + self.lower)

    @property
    def most(self) -> float:
        """Return the largest value that meets the reference."""
        if self.upper is None:
            return math.inf
        return self.value * (1 + self.upper)

    def met_by(self, value: float) -> bool:
        """Return whether a value lies within the bounds, ends included."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        text = with_unit(self.value, self.unit)
        if self.lower is not None:
            text += f", at least {format_value(self.least)}"
        if self.upper is not None:
            text += f", at most {format_value(self.most)}"
        return text
