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
    """A named quantity that a scenario promises to measure: unit (see ``units``), direction.

    ``tail`` means that a few requests decide it, so that it differs from repetition to repetition.
    """

    name: str
    unit: str
    better: Literal["more", "less"] = "more"
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
    """One timed phase of one repetition.

    ``rates`` maps a quantity (``bw``, ``iops``, ``rate``, ``latency``) to its value.
    ``bytes_moved`` is the number of bytes that all tasks moved, as the tool reports it.
    ``rank_seconds`` is the time of every task, if the tool reports it.
    """

    name: str
    rates: Mapping[str, Quantity]
    seconds: float
    bytes_moved: int | None = None
    operations: int | None = None
    transfer_bytes: int | None = None
    rank_seconds: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Disturber:
    """What loaded the target on purpose while a phase was measured.

    ``phase`` is what it did itself. It began ``lead_s`` seconds before the measured phase. ``active`` is the share of
    its half-seconds in which it finished an operation.
    """

    phase: Phase
    lead_s: float
    active: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A time that a tool prints, and its name there, in seconds since the epoch.

    With ``local`` the tool printed local time without a zone: ``seconds`` are those of the same
    digits in UTC.
    """

    name: str
    seconds: float
    local: bool = False


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The whole report of one execution of a tool.

    ``tasks`` and ``nodes`` are the tool's own counts. ``warnings`` are the tool's own complaints:
    each makes a measurement INVALID unless the scenario expects it. ``parameters`` are those that
    the tool says it ran with, for the guards. ``notes`` maps a quantity to a remark for readers of
    its verdict, ``unsettled`` to what the output leaves open about it. ``moments`` are times within
    the execution.

    ``totals`` are the bytes that all phases of the execution read and wrote together, if the names
    of its phases do not tell (IO500). ``beside`` are bytes that the tool moved beside them, at most.
    ``disturber`` is not among the phases, and ``totals`` count its bytes. ``at_once`` means that all phases began and
    ended together, as reads and writes of one job do.
    """

    tool: str
    version: str
    phases: tuple[Phase, ...]
    tasks: int | None = None
    nodes: int | None = None
    command: str = ""
    warnings: tuple[str, ...] = ()
    parameters: Mapping[str, object] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    unsettled: Mapping[str, Unsettled] = field(default_factory=dict)
    moments: tuple[Moment, ...] = ()
    totals: Mapping[str, int] = field(default_factory=dict)
    beside: Mapping[str, int] = field(default_factory=dict)
    disturber: Disturber | None = None
    at_once: bool = False

    @property
    def timed(self) -> float:
        """Return the seconds that all phases took."""
        return (max if self.at_once else sum)(phase.seconds for phase in self.phases)

    @property
    def stretches(self) -> int:
        """Return how many phases followed each other."""
        return 1 if self.at_once else len(self.phases)

    @property
    def but_trees(self) -> list[Phase]:
        """Return the phases without the directories that mdtest makes for its files."""
        return [phase for phase in self.phases if not phase.name.startswith("tree_")]


@dataclass(frozen=True, slots=True)
class Reference:
    """What a metric must reach: value, relative bounds (None: unbounded), unit, and source.

    The bounds are ReFrame's: ``lower`` in [-1, 0] and ``upper`` >= 0 are shares of the value.
    ``xfail`` is the reason for an expected failure, ``until`` the last day (UTC) on which it is
    expected. References in a site's file that have ``xfail`` always have ``until``.
    """

    value: float
    lower: float | None
    upper: float | None
    unit: str
    source: str
    xfail: str | None = None
    until: date | None = None

    @property
    def least(self) -> float:
        """Return the smallest value that meets the reference."""
        return -math.inf if self.lower is None else self.value * (1 + self.lower)

    @property
    def most(self) -> float:
        """Return the largest value that meets the reference."""
        return math.inf if self.upper is None else self.value * (1 + self.upper)

    def met_by(self, value: float) -> bool:
        """Return whether a value lies within the bounds, ends included."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        least = "" if self.lower is None else f", at least {format_value(self.least)}"
        most = "" if self.upper is None else f", at most {format_value(self.most)}"
        return f"{with_unit(self.value, self.unit)}{least}{most}"
