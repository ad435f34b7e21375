"""Declarations under which a PASS means little: references and limits that hardly anything can miss."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from iogauge.core.measurement import Reference
from iogauge.core.units import dimension, format_value
from iogauge.core.yamlfile import Mistake, show

#: A doubt and a mistake: that a number passes which is so many times worse than its reference.
#: Healthy storage varies by tens of percent. A bound of exactly a tenth is not yet a mistake.
DOUBTFUL_SLACK: Final = 2.0
MOST_SLACK: Final = 10.001

#: Spread, deviation and load of others from which the limit hardly excludes anything, as shares.
DOUBTFUL_LIMIT: Final = 0.5

#: Share of its ceiling that a target reaches if it is healthy: published systems reach 70 % to 94 %
#: (site-configs/), and G6 remarks on less than 50 %.
DOUBTFUL_SHARE: Final = 0.2


def generous(name: str, limit: float) -> str:
    """Return the remark on a limit above :data:`DOUBTFUL_LIMIT`; ``name`` is its key in ``limits``."""
    return (
        f"limits.{name} is {limit:.0%}, above {DOUBTFUL_LIMIT:.0%}: almost no case exceeds this "
        "limit. Lower the limit"
    )


@dataclass(frozen=True, slots=True)
class Doubt:
    """What makes a reference prove little."""

    saw: str
    demands: str
    remedy: str
    #: The reference proves nothing.
    refused: bool = False

    def __str__(self) -> str:
        return f"{self.saw}; demanded: {self.demands}. {self.remedy}"


def slack(lower: float | None, upper: float | None, unit: str) -> float:
    """Return how many times worse than its value a number may be that meets a reference.

    A rate is worse if it is less, a time if it is more. A ratio may be either, so that its narrower
    side counts. Infinite if the side has no bound.
    """
    less = more = math.inf
    if lower is not None and lower > -1:
        less = 1 / (1 + lower)
    if upper is not None:
        more = 1 + upper
    kind = dimension(unit)
    if kind == "time":
        return more
    if kind == "ratio":
        return min(less, more)
    return less


def of_reference(key: str, part: int) -> str:
    """Return the key of a part of a reference, as mistakes name it."""
    return f"{key} ({('value', 'lower bound', 'upper bound', 'unit')[part]})"


def loose(key: str, leaf: list[Any], most: float = MOST_SLACK) -> Iterator[Mistake]:
    """Yield a mistake if a number passes a sound leaf that is ``most`` times worse than its value.

    A missing bound is not reported: only the metric tells which bound it needs.
    """
    lower, upper, unit = leaf[1:]
    side = {"time": 2, "ratio": 0}.get(dimension(unit), 1)
    if slack(lower, upper, unit) >= most and leaf[side] is not None:
        found: Any = leaf
        if side:
            key, found = of_reference(key, side), leaf[side]
        allowed = (
            f"a bound that a number {most:.4g} times worse than the value does not meet"
        )
        yield Mistake(key, show(found), allowed)


def doubt_of_bounds(reference: Reference) -> Doubt | None:
    """Return the doubt about a reference whose bounds are wide; None if they are not."""
    times = slack(reference.lower, reference.upper, reference.unit)
    if times < DOUBTFUL_SLACK:
        return None
    return Doubt(
        f"a number {format_value(times)} times worse than the reference passes",
        f"less than {DOUBTFUL_SLACK:g} times",
        "Narrow the bound in references.yaml (iogauge calibrate proposes one)",
        refused=times >= MOST_SLACK,
    )


def doubt_of_figure(figure: float, reference: Reference) -> Doubt | None:
    """Return the doubt about a reference that a figure exceeds by far, in its unit; None if it does not.

    A ratio has no better side.
    """
    kind = dimension(reference.unit)
    if kind == "ratio" or (kind != "time" and reference.least <= 0):
        return None
    times = reference.most / figure if kind == "time" else figure / reference.least
    if not MOST_SLACK <= times < math.inf:
        return None
    return Doubt(
        f"a number {format_value(times)} times worse than this figure passes",
        f"less than {MOST_SLACK:g} times",
        "Raise the reference (iogauge calibrate proposes one)",
    )
