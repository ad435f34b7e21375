"""Declarations under which a PASS means little: references and limits that hardly anything can miss."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from iogauge.core.units import dimension
from iogauge.core.yamlfile import Mistake, show

#: A mistake: that a number passes which is so many times worse than its reference. A bound of exactly a tenth is none yet.
MOST_SLACK: Final = 10.001

#: Share of its ceiling that a target reaches if it is healthy: published systems reach 70 % to 94 %
#: (site-configs/), and G6 remarks on less than 50 %.
DOUBTFUL_SHARE: Final = 0.2


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


def of_reference(key: str, part: int) -> str:
    """Return the key of a part of a reference, as mistakes name it."""
    return f"{key} ({('value', 'lower bound', 'upper bound', 'unit')[part]})"


def loose(key: str, leaf: list[Any]) -> Iterator[Mistake]:
    """Yield a mistake if a number passes a sound leaf that is :data:`MOST_SLACK` times worse than its value.

    A rate is worse if it is less, a time if it is more. A ratio may be either, so that its narrower side counts. A
    missing bound is not reported: only the metric tells which bound it needs.
    """
    lower, upper, unit = leaf[1:]
    less = more = math.inf
    if lower is not None and lower > -1:
        less = 1 / (1 + lower)
    if upper is not None:
        more = 1 + upper
    times, side = less, 1
    kind = dimension(unit)
    if kind == "time":
        times, side = more, 2
    elif kind == "ratio":
        times, side = min(less, more), 0
    if times < MOST_SLACK or leaf[side] is None:
        return
    found: Any = leaf
    if side:
        key, found = of_reference(key, side), leaf[side]
    allowed = "a bound that a number 10 times worse than the value does not meet"
    yield Mistake(key, show(found), allowed)
