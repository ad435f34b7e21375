"""How slow a target is against its own last weeks, from the lines of its probes.

A factor says how many times slower a group of figures is than the median of its baseline. The baseline holds the probes
of the last four weeks within an hour of the same hour of the week, or all of them if those are too few. A group is slow if
its factor is at least :data:`LEAST`, and its logarithm three robust standard deviations above that of the baseline. The target
is slow from the first of the slow probes that follow each other, if one group is slow in :data:`IN_A_ROW` of them, until the
first that is not.
"""

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pydantic import Field

from iogauge.core.form import Form
from iogauge_extras.history.statistics import location_and_spread

#: Figures of each group, with 1 if more is better, else -1.
GROUPS = {
    "data": {"write": 1, "read": 1, "read_ms": -1},
    "metadata": {"create": 1, "unlink": 1},
}

#: Probes that a baseline needs.
NEEDED = 30

#: The factor from which a probe may count as slow, and standard deviations of the logarithms: of 1,000 healthy probes on a
#: loaded node 7 were that far off, never three in a row. One outlier in the baseline does not move them.
LEAST = 2.0
_DEVIATIONS = 3.0

#: Slow probes, one after the other, that make a slow target.
IN_A_ROW = 3

_HOUR_S = 3600
_WEEK_S = 7 * 24 * _HOUR_S
BASELINE_S = 4 * _WEEK_S

#: Seconds between two probes beyond which one does not follow the other.
_GAP_S = 2 * _HOUR_S


class Line(Form):
    """One probe, or that in the middle of an hour of them."""

    #: Seconds since the epoch.
    time: int
    #: MiB/s, from the first write to the end of fsync; 0, as in the others: not measured.
    write: float = 0.0
    #: MiB/s of the same blocks in order.
    read: float = 0.0
    #: Median time of a read of 4 KiB at a random place, in milliseconds.
    read_ms: float = 0.0
    #: Files made in a second, and removed, each with the fsync of their directory.
    create: float = 0.0
    unlink: float = 0.0
    #: Bytes written and read.
    moved: int = 0
    #: Factors by group, as they were found then; empty if there was no baseline.
    factors: dict[str, float] = {}
    #: Groups that were slow.
    slow: tuple[str, ...] = Field(default=(), strict=False)
    #: Why nothing was measured: the target did not answer, or had wrong data.
    problem: str = ""
    #: Why its reads prove nothing; empty if they do.
    unproven: str = ""
    #: Probes of which it is the middle one.
    probes: int = 1


def baseline(lines: Sequence[Line], now: int) -> list[Line]:
    """Return the lines that a probe of now is compared with; fewer than :data:`NEEDED` if there are not enough.

    Slow ones of the last week are left out, so that an incident does not become usual before a week has passed.
    """
    usable = []
    near = []
    for line in lines:
        age = now - line.time
        is_news = bool(line.slow) and age < _WEEK_S
        if line.problem or is_news or not 0 < age <= BASELINE_S:
            continue
        usable.append(line)
        apart = age % _WEEK_S
        if min(apart, _WEEK_S - apart) <= _HOUR_S < age:
            near.append(line)
    return near if len(near) >= NEEDED else usable


def _factors(line: Line, medians: Mapping[str, float]) -> dict[str, float]:
    """Return how many times slower the groups of a line are than the medians, of what was measured."""
    factors = {}
    for group, figures in GROUPS.items():
        ratios = []
        for figure, sign in figures.items():
            value = getattr(line, figure)
            if value and medians[figure]:
                ratios.append((medians[figure] / value) ** sign)
        if ratios:
            factors[group] = statistics.geometric_mean(ratios)
    return factors


def compare(line: Line, lines: Sequence[Line]) -> Line:
    """Return a new line with its factors against earlier ones and its slow groups; without a baseline it has none."""
    known = baseline(lines, line.time)
    if len(known) < NEEDED:
        return line
    medians = {}
    for figure in (*GROUPS["data"], *GROUPS["metadata"]):
        medians[figure] = statistics.median(getattr(other, figure) for other in known)
    usual = [_factors(other, medians) for other in known]
    factors = {}
    slow = []
    for group, factor in _factors(line, medians).items():
        factors[group] = round(factor, 2)
        middle, spread = location_and_spread([of.get(group, 1.0) for of in usual])
        if factor >= max(LEAST, middle * math.exp(_DEVIATIONS * spread)):
            slow.append(group)
    return line.model_copy(update={"factors": factors, "slow": tuple(slow)})


def shown(factors: Mapping[str, float]) -> str:
    """Return factors as text: ``data 1.1 x, metadata 6.0 x``."""
    return ", ".join(f"{group} {factor:.1f} x" for group, factor in factors.items())


@dataclass(frozen=True, slots=True)
class Stretch:
    """A time in which a target was slow."""

    #: Seconds since the epoch, of the first and of the last slow probe.
    start: int
    end: int
    #: The largest factor of each group.
    factors: dict[str, float]
    #: Why nothing was measured meanwhile, if so.
    problem: str = ""

    def __str__(self) -> str:
        return self.problem or f"{shown(self.factors)} the usual time"


def stretches(lines: Sequence[Line]) -> list[Stretch]:
    """Return the times in which a target was slow, oldest first."""
    runs: list[list[Line]] = [[]]
    for line in lines:
        is_slow = bool(line.slow or line.problem)
        if not is_slow or (runs[-1] and line.time - runs[-1][-1].time > _GAP_S):
            runs.append([])
        if is_slow:
            runs[-1].append(line)
    found = []
    for run in runs:
        counts = dict.fromkeys(GROUPS, 0)
        factors: dict[str, float] = {}
        problem = ""
        for line in run:
            slow: Iterable[str] = line.slow
            if line.problem:
                problem, slow = line.problem, GROUPS
            for group in slow:
                counts[group] += line.probes
            for group, factor in line.factors.items():
                factors[group] = max(factor, factors.get(group, 0.0))
        if max(counts.values()) >= IN_A_ROW:
            found.append(Stretch(run[0].time, run[-1].time, factors, problem))
    return found


def current(lines: Sequence[Line]) -> Stretch | None:
    """Return the stretch that the newest line belongs to; None if the target is not slow now."""
    for stretch in stretches(lines)[-1:]:
        if stretch.end == lines[-1].time:
            return stretch
    return None
