"""The statistics of a history: changes of level, bounds and intervals, by ranks. Pure functions of numbers.

The first runs of a series are its baseline. A later run's placement is the share of the baseline that it exceeds,
less one half: it is 0 on average if nothing has changed, whatever the distribution of the noise. The mean of the
newest placements is the statistic of Mann and Whitney (1947). It is divided by its standard error, which is larger
if neighbouring runs of the baseline resemble each other. docs/design.md derives the formulas, and
benchmarks/detectors.py measures what they hold on which noise.

Values are signed so that more is better.
"""

from __future__ import annotations

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Final

from iogauge_extras.history.quantiles import normal_quantile

#: At most a share FALSE_ALARMS of stable series of independent runs raises an alarm in HORIZON runs.
HORIZON: Final = 30
FALSE_ALARMS: Final = 0.05

#: Confidence of intervals.
CONFIDENCE: Final = 0.95

#: Newest runs whose mean placement is compared with the baseline.
WINDOW: Final = 15

#: Newest runs that show a repair: an alarm ends when their mean placement is less than CALM standard errors off.
REPAIR: Final = 6
CALM: Final = 1.4

#: So many newest runs that are all worse than the whole baseline are an alarm, and more if neighbours resemble each other.
COLLAPSE: Final = 4

#: Standard errors of the correlation of neighbours that independent runs show by chance; only what exceeds them counts.
CHANCE: Final = 1.1

#: Standard errors that raise an alarm, by the share of stable series that reach them in HORIZON runs:
#: ``python benchmarks/detectors.py --limits``.
LIMITS: Final = ((0.001, 3.65), (0.005, 3.14), (0.01, 2.96), (0.05, 2.40), (0.2, 1.77))

#: A spread of less than 1 % counts as 1 %, which leaves room between median and bound.
FLOOR: Final = 0.01

#: A bound lies so many times as far from the median as the worst run.
ROOM: Final = 1.5


def check_share(false_alarms: float) -> None:
    """Raise ValueError for a share of false alarms that :data:`LIMITS` does not cover."""
    least, most = LIMITS[0][0], LIMITS[-1][0]
    if not least <= false_alarms <= most:
        raise ValueError(
            f"share of false alarms is {false_alarms!r}: expected {least} to {most}"
        )


def limit(false_alarms: float) -> float:
    """Return the standard errors that raise an alarm; raises ValueError as :func:`check_share` does."""
    check_share(false_alarms)
    for (share, high), (more, low) in itertools.pairwise(LIMITS):
        if false_alarms <= more:
            part = math.log(false_alarms / share) / math.log(more / share)
            return high + part * (low - high)
    return LIMITS[-1][1]


def share_of(errors: float) -> float:
    """Return the share of stable series that reach so many standard errors in HORIZON runs."""
    for (share, high), (more, low) in itertools.pairwise(LIMITS):
        if errors >= low:
            return float(share * (more / share) ** ((high - errors) / (high - low)))
    return 1.0


def per_run(false_alarms: float) -> float:
    """Return the share of stable series with a false alarm in one run, from that in HORIZON runs."""
    return -math.expm1(math.log1p(-false_alarms) / HORIZON)


def placements(values: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Return for each value the share of the baseline below it, ties half, less one half."""
    ordered, count = sorted(baseline), 2 * len(baseline)
    return [
        (bisect_left(ordered, value) + bisect_right(ordered, value)) / count - 0.5
        for value in values
    ]


def stretch(baseline: Sequence[float]) -> float:
    """Return by how much correlation of neighbours widens the standard error of a mean.

    That is ((1 + r) / (1 - r))^(1/2), with the correlation r of neighbouring ranks in the baseline, without its bias
    for few runs, less :data:`CHANCE` / n^(1/2).
    """
    placed, count = placements(baseline, baseline), len(baseline)
    square = math.fsum(one * one for one in placed)
    if not square:
        return 1.0
    together = math.fsum(a * b for a, b in itertools.pairwise(placed))
    found = together / square
    unbiased = found + (1 + 4 * max(found, 0.0)) / count
    counting = min(max(unbiased - CHANCE / math.sqrt(count), 0.0), 0.9)
    return math.sqrt((1 + counting) / (1 - counting))


def standard_error(newest: int, baseline: int) -> float:
    """Return the standard error of the mean placement of some independent runs."""
    return math.sqrt((newest + baseline + 1) / (12 * newest * baseline))


@dataclass(frozen=True, slots=True, kw_only=True)
class Course:
    """The alarms of one direction; runs are counted from the first one after the baseline, None is no alarm."""

    #: Run that raised the alarm which still stands.
    standing: int | None = None
    #: Run that raised the newest alarm, standing or not.
    last: int | None = None
    #: Most standard errors off at any run.
    most: float = 0.0


def course(placed: Sequence[float], baseline: int, wide: float, most: float) -> Course:
    """Return the alarms of a loss in the placements of the runs after a baseline.

    ``wide`` is the :func:`stretch` of the baseline, ``most`` the :func:`limit`. For a gain, change the sign of all placements.
    """
    # Standard errors by number of runs, of which the last one is that of the whole window.
    collapse = COLLAPSE * wide**2
    errors = [1.0] + [wide * standard_error(m, baseline) for m in range(1, WINDOW + 1)]
    window = repair = 0.0
    standing = last = None
    worst = 0.0
    below = 0
    for run, place in enumerate(placed):
        window += place
        repair += place
        if run >= WINDOW:
            window -= placed[run - WINDOW]
        if run >= REPAIR:
            repair -= placed[run - REPAIR]
        in_window, in_repair = min(run + 1, WINDOW), min(run + 1, REPAIR)
        off = -window / in_window / errors[in_window]
        below = below + 1 if place <= -0.5 else 0
        lasting = -repair / in_repair / errors[in_repair] > CALM
        worst = max(worst, off)
        if not lasting:
            standing = None
        elif below >= collapse or (run > 1 and off >= most):
            last = run
            if standing is None:
                standing = run
    return Course(standing=standing, last=last, most=worst)


def onset(values: Sequence[float], level: float, raised: int) -> int:
    """Return the run with which a change from a level most likely began, at or before the run that raised the alarm.

    A value counts 0 at the old level and 1 at the new one, which is that of the runs after the alarm. The change begins
    where the sum of these, less one half each, is largest (a cumulative sum of Page, 1954).
    """
    new = median(values[raised : raised + REPAIR])
    best, begin, total = -math.inf, raised, 0.0
    for run in range(raised, -1, -1):
        part = (level - values[run]) / (level - new) if new != level else 1.0
        total += min(max(part, -1.0), 2.0) - 0.5
        if total > best:
            best, begin = total, run
    return begin


def interval(
    a: Sequence[float], b: Sequence[float], wide: float = 1.0
) -> tuple[float, float, float]:
    """Return the ratio of b to a, and its interval of :data:`CONFIDENCE`, by the ranks of all ratios of two runs.

    It is the estimate of Hodges and Lehmann (1963), with the limits that the test of Mann and Whitney accepts.
    Three runs a side reach 90 % only, and two 67 %: then the limits are the smallest and the largest ratio.
    """
    ratios = sorted(y / x for x in a for y in b)
    count = len(ratios)
    reach = normal_quantile((1 + CONFIDENCE) / 2) * wide
    outside = count / 2 - reach * count * standard_error(len(a), len(b))
    first = max(0, math.floor(outside))
    return median(ratios), ratios[first], ratios[count - 1 - first]


#: Fewest runs between two changes of level, and standard errors that make one: 5 % of 20 to 60 steady runs have it.
_PART: Final = 5
_STEP: Final = 2.9


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which the level of a metric's values (> 0) changed: binary segmentation by the test of ranks.

    The levels differ by 1 % at least, and the parts have five runs at least.
    """
    count = len(values)
    placed = placements(values, values)
    best, place, total = 0.0, 0, 0.0
    for at in range(1, count - _PART + 1):
        total += placed[at - 1]
        if at < _PART:
            continue
        # The difference of the mean ranks of both parts, in its standard errors (Pettitt, 1979).
        errors = abs(total) * count / math.sqrt(at * (count - at) * (count + 1) / 12)
        if errors > best:
            best, place = errors, at
    if not place:
        return []
    before, after = values[:place], values[place:]
    wide = stretch(max(before, after, key=len))
    small = abs(math.log(median(after) / median(before))) < FLOOR
    if best < _STEP * wide or small:
        return []
    later = [place + point for point in change_points(after)]
    return [*change_points(before), place, *later]


def location_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the robust standard deviation of the logarithms.

    The latter is 1.4826 times their median absolute deviation, at least 1 %.
    """
    logs = [math.log(value) for value in values]
    middle = median(logs)
    spread = 1.4826 * median(abs(log - middle) for log in logs)
    return median(values), max(spread, FLOOR)


def variation(spread: float) -> float:
    """Return the coefficient of variation of log-normal values, from the deviation of the logarithms."""
    return math.sqrt(math.expm1(spread**2))


def bound(values: Sequence[float], sign: int) -> float:
    """Return the bound of a reference: :data:`ROOM` times as far from the median as the worst run, on a scale of logarithms.

    ``sign`` is 1 if more is better, else -1. The bound is 3 % from the median at least. docs/results.md says which share of healthy runs meets it.
    """
    worst = min(values, key=lambda value: sign * value)
    middle = median(values)
    far = max(ROOM * abs(math.log(worst / middle)), 3 * FLOOR)
    return middle * math.exp(-sign * far)
