"""The statistics of a history: changes of level, bounds and intervals, by ranks. Pure functions of numbers.

The first runs of a series are its baseline. A later run's placement is the share of the baseline that it exceeds,
less one half: it is 0 on average if nothing has changed, whatever the distribution of the noise. The mean of the
newest placements is the statistic of Mann and Whitney (1947). Values that differ by less than 0.5 % count as equal. It is divided by its standard error, which is larger
if neighbouring runs of the baseline resemble each other. docs/design.md derives the formulas, and
benchmarks/detectors.py measures what they hold on which noise.

Where logarithms are asked for, they are signed so that more is better.
"""

import itertools
import math
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from statistics import NormalDist, median
from typing import Final

#: Standard errors on both sides of a value that have a confidence of 95 %.
REACH: Final = NormalDist().inv_cdf(0.975)

#: Newest runs whose mean placement is compared with the baseline.
WINDOW: Final = 15

#: Newest runs that show a repair: an alarm ends when their mean placement is less than CALM standard errors off.
REPAIR: Final = 6
CALM: Final = 1.4

#: So many newest runs that are all worse than the whole baseline are an alarm, and more if neighbours resemble each other.
COLLAPSE: Final = 4

#: Standard errors of the correlation of neighbours that independent runs show by chance; only what exceeds them counts.
CHANCE: Final = 1.1

#: Standard errors that raise an alarm: 5 % of stable series of independent runs reach them in 30 runs.
LIMIT: Final = 2.40

#: A spread of less than 1 % counts as 1 %, which leaves room between median and bound.
FLOOR: Final = 0.01

#: A bound lies so many times as far from the median as the worst run.
ROOM: Final = 1.5


#: Logarithms that differ by less are a tie: figures that are rounded, or hardly vary, have no smaller steps that matter.
TIE: Final = 0.005


def placements(logs: Sequence[float], baseline: Sequence[float]) -> list[float]:
    """Return for each logarithm the share of the baseline below it, ties half, less one half."""
    ordered, count = sorted(baseline), 2 * len(baseline)
    placed = []
    for log in logs:
        below = bisect_left(ordered, log - TIE)
        placed.append((below + bisect_right(ordered, log + TIE)) / count - 0.5)
    return placed


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


def course(placed: Sequence[float], baseline: int, wide: float) -> list[int | None]:
    """Return after each run the run that raised the alarm of a loss which stands then; None if none stands.

    ``placed`` are the placements of the runs after a baseline of so many runs, and ``wide`` is its :func:`stretch`. Runs
    are counted from the first one after the baseline.
    """
    # Standard errors by number of runs, of which the last one is that of the whole window.
    collapse = COLLAPSE * wide**2
    errors = [1.0] + [wide * standard_error(m, baseline) for m in range(1, WINDOW + 1)]
    window = repair = 0.0
    standing: int | None = None
    standings: list[int | None] = []
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
        if not lasting:
            standing = None
        elif standing is None and (below >= collapse or (run > 1 and off >= LIMIT)):
            standing = run
        standings.append(standing)
    return standings


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
    """Return the ratio of b to a, and its interval of 95 %, by the ranks of all ratios of two runs.

    It is the estimate of Hodges and Lehmann (1963), with the limits that the test of Mann and Whitney accepts.
    Three runs a side reach 90 % only, and two 67 %: then the limits are the smallest and the largest ratio.
    """
    ratios = sorted(y / x for x, y in itertools.product(a, b))
    count = len(ratios)
    outside = count / 2 - REACH * wide * count * standard_error(len(a), len(b))
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
    logs = [math.log(value) for value in values]
    placed = placements(logs, logs)
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
    before, after = logs[:place], logs[place:]
    wide = stretch(max(before, after, key=len))
    small = abs(median(after) - median(before)) < FLOOR
    if best < _STEP * wide or small:
        return []
    later = [place + point for point in change_points(values[place:])]
    return [*change_points(values[:place]), place, *later]


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
