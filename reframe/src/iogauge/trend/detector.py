"""Has the level of a series of runs changed, where, by how much, and how sure is that? Pure functions of arrays.

The first runs of a series are its baseline. After each later run the mean of the newest runs is compared
with it, by the likelihood ratio of a t test on values that are cut where they lie far off. docs/statistics.md
derives what is computed here, and benchmarks/detectors.py says how well it does.

Values are natural logarithms throughout, signed so that more is better; a difference of logarithms is the
logarithm of a ratio. Arrays are (series, runs): all series of a history are judged at once.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

Doubles = NDArray[np.float64]
Counts = NDArray[np.intp]
_Scale = TypeVar("_Scale", float, Doubles)

#: Stable runs after the baseline in which, at most, a share :data:`FALSE_ALARMS` of series raises an alarm.
HORIZON: Final = 30
FALSE_ALARMS: Final = 0.05

#: Confidence of the interval for the size of a change.
CONFIDENCE: Final = 0.95

#: Share of runs that something from outside disturbs, spread evenly over :data:`_REACH` in log value.
_DISTURBED: Final = 0.02
_REACH: Final = 2.0

#: Least scale: identical runs have a spread of 1 % all the same.
FLOOR: Final = 0.01

#: Rounds of the fit; the estimates have settled by then.
_ROUNDS: Final = 15

#: Deviations are cut at so many scales, so that one disturbed run is no evidence.
CUT: Final = 2.5

#: So many of the newest runs are compared with the baseline. The first suit a scale up to the first of
#: :data:`_SUITS`, the others one from the second on; what does not suit starts with the handicap.
_WINDOWS: Final = (5, 15)
_SUITS: Final = (0.06, 0.08)
_HANDICAP: Final = math.log(10)

#: Standard errors by which the newest runs of the short window are well again, compared with those before them.
_WELL: Final = 3.0

#: So many runs in a row at the cut are evidence of themselves.
_ROW: Final = 3
_ROW_EVIDENCE: Final = 10.0

#: An alarm stands until the evidence is below.
CALM: Final = 0.5

#: Evidence by which the share of false alarms falls to 1 / e of it; for independent runs it is near 1.
_FALL: Final = 1.4

#: Evidence that raises an alarm, by run after the baseline (columns) and scale of the baseline (rows). From
#: ``python benchmarks/detectors.py --calibrate``: every run but the first, which raises none, is as likely as
#: any other to raise the false alarm, and 5 % of stable series at most have one within 30 runs.
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
class Evidence:
    """Evidence of a loss and of a gain after each run that follows the baseline, and the baseline's estimates."""

    loss: Doubles
    gain: Doubles
    location: Doubles
    scale: Doubles


def fit(
    values: Doubles, valid: NDArray[np.bool_] | None = None, least: Doubles | float = FLOOR
) -> tuple[Doubles, Doubles]:
    """Location and scale of each row: maximum likelihood of a normal, of which 2 % of the runs are disturbed.

    By expectation and maximisation (Dempster, Laird, Rubin 1977) from median and MAD, with n - 1 in the
    scale, which is ``least`` at least. ``valid`` masks the values that count; a row needs one.
    """
    mask = np.ones(values.shape, bool) if valid is None else valid
    known = np.where(mask, values, np.nan)
    location = np.nanmedian(known, axis=1)
    scale = np.maximum(1.4826 * np.nanmedian(np.abs(known - location[:, None]), axis=1), least)
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
    """Density of a disturbed run, over that of a sound one at its level."""
    return _DISTURBED / _REACH / (1 - _DISTURBED) * math.sqrt(2 * math.pi) * scale


def evidence(values: Doubles, baseline: int) -> Evidence:
    """Evidence of a loss and of a gain, for rows of ``baseline`` runs and those that follow them.

    A row's fate does not depend on what follows, so that shorter rows may be padded with anything finite.
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
                np.where(sign * back > _WELL, -np.inf, sign * long - _HANDICAP * (1 - noisy)),
            ),
            np.where(_in_a_row(sign * u <= -CUT), _ROW_EVIDENCE, -np.inf),
        )
        for sign in (1, -1)
    )
    return Evidence(loss, gain, location, scale)


def _back(u: Doubles) -> Doubles:
    """Standard errors by which the newest runs of the short window lie above the others of the long one."""
    short, long = _WINDOWS
    total = np.concatenate((np.zeros((len(u), 1)), np.cumsum(u, axis=1)), axis=1)
    to = np.arange(1, u.shape[1] + 1)
    middle, begin = np.maximum(to - short, 0), np.maximum(to - long, 0)
    newest = (total[:, to] - total[:, middle]) / (to - middle)
    others = np.maximum(middle - begin, 1)
    earlier = (total[:, middle] - total[:, begin]) / others
    error = np.sqrt(1 / (to - middle) + 1 / others)
    found: Doubles = np.where(middle > begin, (newest - earlier) / error, 0.0)
    return found


def _in_a_row(holds: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Whether something holds at a run and at the two before it."""
    found: NDArray[np.bool_] = holds.copy()
    for back in range(1, _ROW):
        found[:, back:] &= holds[:, :-back]
    found[:, : _ROW - 1] = False
    return found


def _ratio(u: Doubles, length: int, baseline: int) -> Doubles:
    """Log likelihood ratio of the t test, positive for a loss: the newest ``length`` runs, or all that there are,
    have a level of their own, against that they have the baseline's, which is 0 with a scale of 1.
    """
    zero = np.zeros((len(u), 1))
    total, square = (np.concatenate((zero, np.cumsum(v, axis=1)), axis=1) for v in (u, u * u))
    to = np.arange(1, u.shape[1] + 1)
    begin = np.maximum(to - length, 0)
    count = to - begin
    mean = (total[:, to] - total[:, begin]) / count
    within = np.maximum(square[:, to] - square[:, begin] - count * mean**2, 0)
    freedom = baseline + count - 2
    variance = (baseline - 1 + within) / freedom
    t_squared = mean**2 / (variance * (1 / count + 1 / baseline))
    found: Doubles = -np.sign(mean) * (freedom + 1) / 2 * np.log1p(t_squared / freedom)
    return found


def check_share(false_alarms: float) -> None:
    """Raise ValueError for a share outside 0.001 to 0.2, where the law that limits scale by was verified."""
    if not 0.001 <= false_alarms <= 0.2:
        raise ValueError(f"share of false alarms is {false_alarms!r}: expected 0.001 to 0.2")


def limits(scale: Doubles, runs: int, false_alarms: float = FALSE_ALARMS) -> Doubles:
    """Evidence that raises an alarm, for rows of that scale, at each of ``runs`` runs after the baseline.

    A share ``false_alarms`` of stable series at most is to reach it within 30 runs; the first run alone raises
    none, and beyond the table's ends its outermost values hold. Raises ValueError as :func:`check_share`.
    """
    check_share(false_alarms)
    at = np.log(np.arange(1, runs + 1))
    table = np.array([np.interp(at, np.log(_AT_RUN), row) for row in _LIMITS])
    place = np.interp(np.log(scale), np.log(_AT_SCALE), np.arange(len(_AT_SCALE)))
    low = np.minimum(place.astype(np.intp), len(_AT_SCALE) - 2)
    part = (place - low)[:, None]
    found: Doubles = table[low] * (1 - part) + table[low + 1] * part
    found[:, :1] = np.inf
    return found + _FALL * math.log(FALSE_ALARMS / false_alarms)


def share_of(excess: float, false_alarms: float) -> float:
    """Share of stable series whose evidence is so much above the limit for ``false_alarms`` within 30 runs."""
    return min(1.0, false_alarms * math.exp(-excess / _FALL))


def per_run(false_alarms: float) -> float:
    """Share of stable series in which one run raises a false alarm, given the share in 30 runs."""
    return -math.expm1(math.log1p(-false_alarms) / HORIZON)


@dataclass(frozen=True, slots=True)
class Alarms:
    """Of each row, for one direction: runs are counted from 0 after the baseline, -1: none.

    ``first`` is the run at which an alarm that still stands was raised, ``last`` the run at which the newest alarm
    was raised, standing or not. ``excess`` is by how much the strongest evidence lies above the limit.
    """

    first: Counts
    last: NDArray[np.intp]
    excess: Doubles


def alarms(found: Doubles, limit: Doubles, runs: Counts) -> Alarms:
    """Alarms of rows whose first ``runs`` values count.

    An alarm stands until the evidence has fallen below :data:`CALM`.
    """
    at = np.arange(found.shape[1])
    counts = at < runs[:, None]
    over = counts & (found > limit)
    calm = counts & (found < CALM)
    last_calm = np.where(calm, at, -1).max(axis=1, initial=-1)
    standing = over & (at > last_calm[:, None])
    first = np.where(standing.any(axis=1), standing.argmax(axis=1), -1)
    last = np.where(over, at, -1).max(axis=1, initial=-1)
    excess = np.where(counts, found - limit, -np.inf).max(axis=1, initial=-np.inf)
    return Alarms(first, last, excess)


def onset(values: Doubles, location: float, scale: float, *, begin: int, end: int) -> int:
    """Index of the run with which a drop began, the likeliest of ``begin`` to ``end``, by a profile likelihood.

    ``values`` are one row, to its end; for a gain hand over everything with its sign turned.
    """
    sizes = -np.log1p(-np.linspace(0.02, 0.98, 49)) / scale
    u = ((values[begin:] - location) / scale)[:, None]
    here, there = (np.exp(-0.5 * v * v) + _disturbed(scale) for v in (u, u + sizes))
    summed = np.cumsum(np.log(there / here)[::-1], axis=0)[::-1]
    return begin + int(summed[: end - begin + 1].max(axis=1).argmax())


def step(values: Doubles, first: Counts, runs: Counts) -> tuple[Doubles, Doubles]:
    """Difference of level (log) of each row from its run ``first`` on, and half its 95 % interval.

    Of a row's ``runs`` values those before ``first`` are one sample, the others the second. Locations by
    :func:`fit`; scale of the larger sample, Student's t with its degrees of freedom.
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
    return difference, error * stdtrit(freedom, (1 + CONFIDENCE) / 2)
