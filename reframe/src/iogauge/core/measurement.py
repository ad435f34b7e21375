"""What a tool measured, in one form for every tool.

A tool's parser turns its output into a :class:`ToolOutput`: one :class:`Phase` for each timed phase,
in the order in which the tool ran them. Nothing here judges; that is what guards and verdict are for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import date
from typing import Literal

from iogauge.core.units import format_value


class ToolOutputError(ValueError):
    """A tool's output cannot be trusted: truncated, damaged, or not the tool's at all.

    The message names the tool, what was found and what was expected; it is shown to the user as the
    reason of an ERROR.
    """


@dataclass(frozen=True, slots=True)
class Metric:
    """A named quantity that a scenario promises to measure: unit (see ``units``) and direction."""

    name: str
    unit: str
    better: Literal["more", "less"] = "more"


@dataclass(frozen=True, slots=True)
class Quantity:
    """A value as the tool printed it, and the unit in which it did."""

    value: float
    unit: str


@dataclass(frozen=True, slots=True)
class Stonewall:
    """How far the tasks had come when the stonewall deadline was hit.

    ``seconds`` is the time to the deadline, ``mean_task_mib_s`` IOR's ``StoneWallbwMeanMIB``, which is
    per task: the aggregate is that times the number of tasks (IOR 4.0.0, ior.c).
    """

    seconds: float
    mean_task_mib_s: float | None = None
    min_pairs: int | None = None
    max_pairs: int | None = None


@dataclass(frozen=True, slots=True)
class Phase:
    """One timed phase of one repetition.

    ``rates`` maps a quantity (``bw``, ``iops``, ``rate``, ``latency``) to its value. ``bytes_moved`` is
    what the tool says it moved over all tasks; ``rank_seconds`` the time of every task, where the tool
    tells.
    """

    name: str
    rates: Mapping[str, Quantity]
    seconds: float
    bytes_moved: int | None = None
    operations: int | None = None
    transfer_bytes: int | None = None
    rank_seconds: tuple[float, ...] = ()
    stonewall: Stonewall | None = None


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """All that one execution of a tool reported.

    ``tasks`` and ``nodes`` are what the tool itself counted. ``warnings`` are the tool's own complaints
    (each makes a measurement INVALID unless the scenario expects it); ``parameters`` what it says it ran
    with, for the guards. ``notes``: by quantity, what a reader of its verdict should know.
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


@dataclass(frozen=True, slots=True)
class Reference:
    """What a metric must reach: value, relative bounds (None: open), unit, and where it comes from.

    The bounds are ReFrame's: ``lower`` in [-1, 0] and ``upper`` >= 0 are shares of the value. ``xfail`` is
    the reason why a failure is expected, ``until`` the last day (UTC) on which it is; those of a site's file
    always have one.
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
        """Smallest value that meets the reference."""
        return -math.inf if self.lower is None else self.value * (1 + self.lower)

    @property
    def most(self) -> float:
        """Largest value that meets the reference."""
        return math.inf if self.upper is None else self.value * (1 + self.upper)

    def met_by(self, value: float) -> bool:
        """Whether a value lies within the bounds, ends included."""
        return self.least <= value <= self.most

    def __str__(self) -> str:
        least = "" if self.lower is None else f", at least {format_value(self.least)}"
        most = "" if self.upper is None else f", at most {format_value(self.most)}"
        return f"{format_value(self.value)} {self.unit}{least}{most}"
