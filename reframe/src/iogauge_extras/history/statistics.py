"""The statistics of a history: changes of level and how sure they are, bounds, and intervals. Pure functions of arrays.

The first runs of a series are its baseline. After each later run the mean of the newest runs is
compared with it, by the likelihood ratio of a t test. Values far off are cut before the test.
docs/design.md derives the formulas; benchmarks/detectors.py measures how well they work.

All values are natural logarithms, signed so that more is better. A difference of logarithms is the
logarithm of a ratio. Arrays are (series, runs): all series of a history are judged at once.

:func:`change_points` looks back at one whole series before runs become a reference. The bounds are for references, :func:`interval` is for two sides of a comparison.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from iogauge_extras.history.quantiles import normal_quantile, t_quantile

Doubles = NDArray[np.float64]
Counts = NDArray[np.intp]
_Scale = TypeVar("_Scale", float, Doubles)

#: At most a share FALSE_ALARMS of stable series raises an alarm in HORIZON runs after the baseline.
HORIZON: Final = 30
FALSE_ALARMS: Final = 0.05

#: Confidence of the interval for the size of a change.
CONFIDENCE: Final = 0.95

#: Share of runs that others disturb; their log values are spread evenly over :data:`_REACH`.
_DISTURBED: Final = 0.02
_REACH: Final = 2.0

#: Least scale: even identical runs count as having a spread of 1 %, which leaves room between median and bound.
FLOOR: Final = 0.01

#: Rounds of the fit, after which the estimates have settled.
_ROUNDS: Final = 15

#: Deviations are cut at this many scales, so that a single disturbed run is no evidence.
CUT: Final = 2.5

#: Numbers of newest runs that are compared with the baseline: a short and a long window. The short
#: window suits scales up to the first of :data:`_SUITS`, the long window scales from the second on.
#: A window that does not suit the scale starts with the handicap.
_WINDOWS: Final = (5, 15)
_SUITS: Final = (0.06, 0.08)
_HANDICAP: Final = math.log(10)

#: The newest runs have recovered if they lie this many standard errors above the runs before them.
_WELL: Final = 3.0

#: This many runs in a row at the cut are sufficient evidence.
_ROW: Final = 3
_ROW_EVIDENCE: Final = 10.0

#: An alarm stands until the evidence falls below this value.
CALM: Final = 0.5

#: More evidence by which the share of false alarms falls to 1 / e; near 1 for independent runs.
_FALL: Final = 1.4

#: Evidence that raises an alarm, by run after the baseline (columns) and scale of the baseline
#: (rows). From ``python benchmarks/detectors.py --calibrate``. The first run raises no alarm; all
#: others are equally likely to raise a false one. At most 5 % of stable series have a false alarm
#: within 30 runs.
_AT_RUN: Final = (2, 4, 7, 12, 20, 30)
_AT_SCALE: Final = (0.01, 0.02, 0.035, 0.05, 0.06, 0.07, 0.08, 0.1, 0.14, 0.2, 0.3)
_LIMITS: Final = (
    (5.17, 5.17, 5.49, 5.55, 5.56, 5.47),
    (4.98, 5.27, 5.53, 5.59, 5.58, 5.53),
    (4.95, 5.19, 5.47, 5.58, 5.65, 5.54),
    (5.03, 5.16, 5.56, 5.53, 5.51, 5.52),
    (4.77, 4.95, 5.24, 5.22, 5.21, 5.11),
    (4.16, 4.05, 4.33, 4.40, 4.42, 4.34),
    (4.78, 4.57, 4.34, 4.14, 4.37, 4.37),
    (4.87, 4.51, 4.30, 3.98, 4.10, 4.07),
    (4.95, 4.37, 3.98, 3.66, 3.76, 3.69),
    (5.03, 4.41, 3.79, 3.43, 3.49, 3.48),
    (5.01, 4.36, 3.77, 3.33, 3.40, 3.36),
)


@dataclass(frozen=True, slots=True)
class Strength:
    """Evidence of a loss and of a gain after each run that follows the baseline.

    ``location`` and ``scale`` are the estimates from the baseline.
    """

    loss: Doubles
    gain: Doubles
    location: Doubles
    scale: Doubles


def fit(
    values: Doubles,
    valid: NDArray[np.bool_] | None = None,
    least: Doubles | float = FLOOR,
) -> tuple[Doubles, Doubles]:
    """Return location and scale of each row.

    Maximum likelihood for normal values of which 2 % are disturbed, by expectation and maximisation
    (Dempster, Laird, Rubin 1977). It starts from median and MAD, and the scale has n - 1. The scale
    is at least ``least``. ``valid`` masks the values that count; a row needs at least one such
    value.
    """
    mask = np.ones(values.shape, bool) if valid is None else valid
    masked = np.where(mask, values, np.nan)
    location = np.nanmedian(masked, axis=1)
    scale = np.maximum(
        1.4826 * np.nanmedian(np.abs(masked - location[:, None]), axis=1), least
    )
    filled = np.where(mask, values, 0.0)
    for _ in range(_ROUNDS):
        u = (filled - location[:, None]) / scale[:, None]
        sound = np.exp(-0.5 * u * u)
        weight = mask * sound / (sound + _disturbed(scale)[:, None])
        count = weight.sum(axis=1)
        location = (weight * filled).sum(axis=1) / count
        square = (weight * (filled - location[:, None]) ** 2).sum(axis=1)
        scale = np.maximum(np.sqrt(square / np.maximum(count - 1, 1)), least)
    return location, scale


def _disturbed(scale: _Scale) -> _Scale:
    """Return the density of a disturbed run relative to a sound run at its level."""
    return _DISTURBED / _REACH / (1 - _DISTURBED) * math.sqrt(2 * math.pi) * scale


def evidence(values: Doubles, baseline: int) -> Strength:
    """Return the evidence of a loss and of a gain.

    Each row holds ``baseline`` runs and those that follow. Later runs do not influence the evidence
    at earlier ones, so shorter rows may be padded with any finite values.
    """
    location, scale = fit(values[:, :baseline])
    u = np.clip((values[:, baseline:] - location[:, None]) / scale[:, None], -CUT, CUT)
    noisy = np.interp(np.log(scale), np.log(_SUITS), (0, 1))[:, None]
    short, long = (_ratio(u, length, baseline) for length in _WINDOWS)
    back = _back(u)
    loss, gain = (
        np.maximum(
            np.maximum(
                sign * short - _HANDICAP * noisy,
                np.where(
                    sign * back > _WELL, -np.inf, sign * long - _HANDICAP * (1 - noisy)
                ),
            ),
            np.where(_in_a_row(sign * u <= -CUT), _ROW_EVIDENCE, -np.inf),
        )
        for sign in (1, -1)
    )
    return Strength(loss, gain, location, scale)


def _back(u: Doubles) -> Doubles:
    """Return by how much the runs of the short window lie above the other runs of the long window.

    In standard errors.
    """
    short, long = _WINDOWS
    total = np.concatenate((np.zeros((len(u), 1)), np.cumsum(u, axis=1)), axis=1)
    to = np.arange(1, u.shape[1] + 1)
    middle, begin = np.maximum(to - short, 0), np.maximum(to - long, 0)
    newest = (total[:, to] - total[:, middle]) / (to - middle)
    others = np.maximum(middle - begin, 1)
    earlier = (total[:, middle] - total[:, begin]) / others
    error = np.sqrt(1 / (to - middle) + 1 / others)
    above: Doubles = np.where(middle > begin, (newest - earlier) / error, 0.0)
    return above


def _in_a_row(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return whether a condition holds at a run and at the two runs before it."""
    in_a_row: NDArray[np.bool_] = holds.copy()
    for back in range(1, _ROW):
        in_a_row[:, back:] &= holds[:, :-back]
    in_a_row[:, : _ROW - 1] = False
    return in_a_row


def _ratio(u: Doubles, length: int, baseline: int) -> Doubles:
    """Return the log likelihood ratio of the t test, positive for a loss.

    Hypothesis: the newest ``length`` runs (or all, if there are fewer) have a level of their own.
    Against it: they have the baseline's level, which is 0 with a scale of 1.
    """
    zero = np.zeros((len(u), 1))
    total, square = (
        np.concatenate((zero, np.cumsum(v, axis=1)), axis=1) for v in (u, u * u)
    )
    to = np.arange(1, u.shape[1] + 1)
    begin = np.maximum(to - length, 0)
    count = to - begin
    mean = (total[:, to] - total[:, begin]) / count
    within = np.maximum(square[:, to] - square[:, begin] - count * mean**2, 0)
    freedom = baseline + count - 2
    variance = (baseline - 1 + within) / freedom
    t_squared = mean**2 / (variance * (1 / count + 1 / baseline))
    ratio: Doubles = -np.sign(mean) * (freedom + 1) / 2 * np.log1p(t_squared / freedom)
    return ratio


def check_share(false_alarms: float) -> None:
    """Raise ValueError for a share outside 0.001 to 0.2.

    Only in this range has the law been verified that limits scale by.
    """
    if not 0.001 <= false_alarms <= 0.2:
        raise ValueError(
            f"share of false alarms is {false_alarms!r}: expected 0.001 to 0.2"
        )


def limits(scale: Doubles, runs: int, false_alarms: float = FALSE_ALARMS) -> Doubles:
    """Return the evidence that raises an alarm, by row and run.

    Rows are the values of ``scale``, columns the ``runs`` runs after the baseline. At most a share
    ``false_alarms`` of stable series reaches the limit within 30 runs. The first run alone never
    raises an alarm. Beyond the table's ends its outermost values hold. Raises ValueError as
    :func:`check_share` does.
    """
    check_share(false_alarms)
    at = np.log(np.arange(1, runs + 1))
    table = np.array([np.interp(at, np.log(_AT_RUN), row) for row in _LIMITS])
    place = np.interp(np.log(scale), np.log(_AT_SCALE), np.arange(len(_AT_SCALE)))
    low = np.minimum(place.astype(np.intp), len(_AT_SCALE) - 2)
    part = (place - low)[:, None]
    limit: Doubles = table[low] * (1 - part) + table[low + 1] * part
    limit[:, :1] = np.inf
    return limit + _FALL * math.log(FALSE_ALARMS / false_alarms)


def share_of(excess: float, false_alarms: float) -> float:
    """Return the share of stable series whose evidence exceeds the limit by ``excess`` within 30
    runs.

    The limit is that for ``false_alarms``.
    """
    return min(1.0, false_alarms * math.exp(-excess / _FALL))


def per_run(false_alarms: float) -> float:
    """Return the share of stable series with a false alarm in one run, from that in 30 runs."""
    return -math.expm1(math.log1p(-false_alarms) / HORIZON)


@dataclass(frozen=True, slots=True)
class Alarms:
    """Alarms of each row in one direction. Runs are counted from 0 after the baseline; -1 is no
    alarm.

    ``first`` is the run that raised the alarm that still stands. ``last`` is the run that raised
    the newest alarm, standing or not. ``excess`` is how far the strongest evidence lies above the
    limit.
    """

    first: Counts
    last: NDArray[np.intp]
    excess: Doubles


def alarms(strength: Doubles, limit: Doubles, runs: Counts) -> Alarms:
    """Return the alarms of rows of which the first ``runs`` values count.

    An alarm stands until the evidence falls below :data:`CALM`.
    """
    at = np.arange(strength.shape[1])
    counts = at < runs[:, None]
    over = counts & (strength > limit)
    calm = counts & (strength < CALM)
    last_calm = np.where(calm, at, -1).max(axis=1, initial=-1)
    standing = over & (at > last_calm[:, None])
    first = np.where(standing.any(axis=1), standing.argmax(axis=1), -1)
    last = np.where(over, at, -1).max(axis=1, initial=-1)
    excess = np.where(counts, strength - limit, -np.inf).max(axis=1, initial=-np.inf)
    return Alarms(first, last, excess)


def onset(
    values: Doubles, location: float, scale: float, *, begin: int, end: int
) -> int:
    """Return the index of the run with which a drop most likely began, from ``begin`` to ``end``.

    Computed by a profile likelihood. ``values`` are one whole row. For a gain, change the sign of
    all values.
    """
    sizes = -np.log1p(-np.linspace(0.02, 0.98, 49)) / scale
    u = ((values[begin:] - location) / scale)[:, None]
    here, there = (np.exp(-0.5 * v * v) + _disturbed(scale) for v in (u, u + sizes))
    summed = np.cumsum(np.log(there / here)[::-1], axis=0)[::-1]
    return begin + int(summed[: end - begin + 1].max(axis=1).argmax())


def step(values: Doubles, first: Counts, runs: Counts) -> tuple[Doubles, Doubles]:
    """Return the change of level (log) of each row at its run ``first``, and half its 95 %
    interval.

    Of a row's ``runs`` values those before ``first`` are one sample, the others the second.
    Locations come from :func:`fit`. The scale is that of the larger sample; the interval uses
    Student's t with its degrees of freedom.
    """
    at = np.arange(values.shape[1])
    early = at < first[:, None]
    late = ~early & (at < runs[:, None])
    n0, n1 = early.sum(axis=1), late.sum(axis=1)
    swapped = n1 > n0
    larger = np.where(swapped[:, None], late, early)
    m_larger, scale = fit(values, larger)
    m_smaller, _ = fit(values, (early | late) & ~larger, least=scale)
    error = scale * np.sqrt(1 / n0 + 1 / n1)
    freedom = np.maximum(np.maximum(n0, n1) - 1, 1)
    difference = np.where(swapped, m_larger - m_smaller, m_smaller - m_larger)
    kinds, which = np.unique(freedom, return_inverse=True)
    factors = np.array(
        [t_quantile((1 + CONFIDENCE) / 2, float(kind)) for kind in kinds]
    )
    return difference, error * factors[which]


def change_points(values: Sequence[float]) -> list[int]:
    """Return the indices at which the level of a metric's values (> 0) changed.

    Binary segmentation of the logarithms. A split must pay 4.2 sigma² ln n: then at most
    3 % of 20 runs at one level are split, and 1.5 % of 30 or more. It must separate levels that differ by 1 % at least. sigma is 1.4826
    MAD of successive differences over sqrt(2), at least 1 %. Values are first cut to within 3 sigma
    of the running median of 5, so that a single run makes no step. Parts have at least 5 runs.
    """
    y = np.log(np.asarray(values, float))
    count, part = len(y), 5
    if count < 2 * part:
        return []
    differences = np.diff(y)
    sigma = (
        1.4826
        * float(np.median(np.abs(differences - np.median(differences))))
        / math.sqrt(2)
    )
    sigma = max(sigma, FLOOR)
    middle = np.median(
        np.lib.stride_tricks.sliding_window_view(np.pad(y, 2, "edge"), 5), axis=1
    )
    total = np.concatenate(
        ([0.0], np.cumsum(np.clip(y, middle - 3 * sigma, middle + 3 * sigma)))
    )
    points, open_parts = [], [(0, count)]
    while open_parts:
        begin, end = open_parts.pop()
        if end - begin < 2 * part:
            continue
        at = np.arange(begin + part, end - part + 1)
        left = (total[at] - total[begin]) / (at - begin)
        right = (total[end] - total[at]) / (end - at)
        gain = (at - begin) * (end - at) / (end - begin) * (left - right) ** 2
        best = int(gain.argmax())
        change = abs(left[best] - right[best])
        if gain[best] > 4.2 * sigma**2 * math.log(count) and change >= -math.log1p(
            -FLOOR
        ):
            points.append(int(at[best]))
            open_parts += [(begin, int(at[best])), (int(at[best]), end)]
    return sorted(points)


#: Asymptotic relative efficiencies of the median and of the median absolute deviation, against mean
#: and standard deviation of normal values (2/pi; Rousseeuw and Croux 1993).
MEDIAN_EFFICIENCY: Final = 2 / math.pi


_MAD_EFFICIENCY: Final = 0.3675


def location_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Return the median, and the robust standard deviation of the logarithms.

    The latter is 1.4826 times their MAD, at least 1 %.
    """
    logs = np.log(np.asarray(values, dtype=float))
    middle = float(np.median(logs))
    spread = 1.4826 * float(np.median(np.abs(logs - middle)))
    return float(np.median(values)), max(spread, FLOOR)


def variation(spread: float) -> float:
    """Return the coefficient of variation of log-normal values, from the deviation of the
    logarithms.
    """
    return math.sqrt(math.expm1(spread**2))


def tolerance_factor(
    coverage: float, confidence: float, location_runs: float, freedom: float
) -> float:
    """Return the factor k of the one-sided tolerance bound m - k s of normal values.

    With the given confidence the share ``coverage`` of the values lies on the good side of the
    bound. k = t'(g; v, z sqrt(n)) / sqrt(n), with t' the noncentral t. ``location_runs`` is the
    number of values n that m is worth. ``freedom`` is the degrees of freedom v of s. For mean and
    standard deviation these are n and n - 1.
    """
    root = math.sqrt(location_runs)
    shift = normal_quantile(coverage) * root
    return t_quantile(confidence, freedom, shift) / root


def robust_factor(runs: int, coverage: float, confidence: float) -> float:
    """Return :func:`tolerance_factor` for the median and the MAD of a number of runs."""
    return tolerance_factor(
        coverage, confidence, MEDIAN_EFFICIENCY * runs, _MAD_EFFICIENCY * (runs - 1)
    )


#: Resamples of a bootstrap, and the seed: the same records give the same interval.
_RESAMPLES, _SEED = 4999, 20270101


def interval(
    a: Sequence[float], b: Sequence[float]
) -> tuple[float | None, float | None]:
    """Return the 95 % interval of median(b) / median(a); None without two values on each side."""
    if min(len(a), len(b)) < 2:
        return None, None

    draw = np.random.default_rng(_SEED)
    medians = [
        np.median(
            np.asarray(side, float)[
                draw.integers(0, len(side), (_RESAMPLES, len(side)))
            ],
            axis=1,
        )
        for side in (a, b)
    ]
    edges = [50 * (1 - CONFIDENCE), 50 * (1 + CONFIDENCE)]
    low, high = np.percentile(medians[1] / medians[0], edges)
    return float(low), float(high)
