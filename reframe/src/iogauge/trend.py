"""Has a metric become worse than it was, since when, by how much, and how sure is that?

One detector watches every metric of every line of the history. The first runs of a series are its
baseline; each later run adds to the evidence that the level has dropped, by Bayes' rule, over everything
that is not known: level and noise of the baseline, size and onset of the drop. docs/statistics.md derives
what is computed here, and benchmarks/detectors.py says how well it does.

Values are natural logarithms throughout, signed so that more is better; a difference of logarithms is the
logarithm of a ratio. Arrays are (series, runs): all series of a history are judged at once.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from importlib import import_module
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from scipy.special import stdtrit

from iogauge import fingerprint, history, historyview
from iogauge.derive import VALID
from iogauge.report import short_name
from iogauge.units import format_value, visible

Floats = NDArray[np.float32]
Doubles = NDArray[np.float64]

#: Runs at the beginning of a series with which later ones are compared.
BASELINE: Final = 30
#: As few as that do as long as there are not more; below, nothing is judged.
LEAST: Final = 20
#: Stable runs after the baseline in which, at most, a share :data:`FALSE_ALARMS` of series raises an alarm.
HORIZON: Final = 30
FALSE_ALARMS: Final = 0.05
#: Confidence of the interval for the size of a change.
CONFIDENCE: Final = 0.95
#: The least change that the offline view reports, as a share.
LEAST_CHANGE: Final = 0.05

#: Degrees of freedom of the noise's core: a Student t resists runs that lie far off.
_NU: Final = 5
#: Share of runs that something from outside disturbs, spread evenly over :data:`_REACH` in log value.
_DISTURBED: Final = 0.02
_REACH: Final = 2.0
#: Least scale: identical runs have a spread of 1 % all the same.
_FLOOR: Final = 0.01
#: Drops that are looked for, as shares, and the prior weight of each; the last weight is that of a drop so
#: large that only its side counts.
_DROPS: Final = (0.10, 0.25)
_WEIGHTS: Final = (0.80, 0.15, 0.05)
#: Odds of each component are held at most at that, so that a recovery is noticed.
_MOST: Final = 1e6
#: What one run may contribute at most to the odds, and the least evidence that raises an alarm (the logarithm
#: of 60): as a rule one run alone cannot.
_MOST_OF_ONE: Final = np.float32(40)
LEAST_EVIDENCE: Final = 4.1
#: Where level and log scale are looked for, in standard errors around the baseline's estimates.
_LEVELS: Final = np.linspace(-2.25, 2.25, 9)
_SCALES: Final = np.linspace(-2.0, 2.0, 3)

#: Log evidence that raises an alarm, by run after the baseline (columns) and scale of the baseline (rows).
#: From ``python benchmarks/detectors.py --calibrate``: every run is as likely as any other to raise the
#: false alarm, and 5 % of stable series at most have one within 30 runs.
_AT_RUN: Final = (1, 2, 4, 7, 12, 20, 30)
_AT_SCALE: Final = (0.01, 0.02, 0.035, 0.05, 0.07, 0.1, 0.14, 0.2, 0.3)
_LIMITS: Final = (
    (4.10, 4.10, 4.10, 4.10, 4.10, 4.10, 4.10),
    (4.10, 4.10, 4.10, 4.10, 4.10, 4.10, 4.10),
    (4.10, 4.90, 5.10, 5.18, 5.20, 5.13, 5.26),
    (4.10, 4.42, 5.19, 5.42, 5.51, 5.50, 5.51),
    (4.10, 4.10, 4.85, 5.45, 5.73, 5.74, 5.79),
    (4.10, 4.10, 4.48, 5.07, 5.59, 5.90, 6.02),
    (4.10, 4.10, 4.10, 4.78, 5.29, 5.66, 5.86),
    (4.10, 4.10, 4.10, 4.46, 4.95, 5.40, 5.58),
    (4.10, 4.10, 4.10, 4.10, 4.44, 4.92, 5.14),
)


class State(Enum):
    """What is to be said of a series; only ALARM fails a pipeline."""

    ALARM = "alarm"
    IMPROVED = "improved"
    RECOVERED = "recovered"
    STEADY = "steady"
    FEW = "too few runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """A change of level: ``share`` of the value before (-0.1: a tenth less), and its 95 % interval.

    ``time`` and ``session`` are those of the first run at the new level; ``before`` and ``after`` name the
    fingerprints on both sides of what changed there, None where nothing did.
    """

    share: float
    low: float
    high: float
    time: datetime
    session: str
    before: str | None
    after: str | None

    @property
    def certain(self) -> bool:
        """Whether the interval excludes that nothing changed."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One metric of one line: the state of its newest series.

    ``runs`` are the valid ones of that series, ``baseline`` how many of them are its baseline; ``level`` is
    that of the baseline, in ``unit``. ``false_alarms`` is the share of stable series in which evidence as
    strong turns up within 30 runs (1: none). ``change`` is what an alarm or improvement consists of;
    ``recovered``, of a series that is well again, the last run whose evidence was above the limit; ``started`` is the step from the series
    before.
    """

    line: str
    series: str
    system: str
    partition: str
    case: str
    metric: str
    unit: str
    better: str
    state: State
    runs: int
    baseline: int
    level: float | None
    false_alarms: float
    change: Change | None
    recovered: datetime | None
    started: Change | None


# Statistics of arrays.


@dataclass(frozen=True, slots=True)
class Evidence:
    """Log odds of a loss and of a gain after each run that follows the baseline, and the baseline's estimates."""

    loss: Floats
    gain: Floats
    location: Doubles
    scale: Doubles


def fit(values: Doubles, valid: NDArray[np.bool_] | None = None) -> tuple[Doubles, Doubles]:
    """Location and scale of each row: maximum likelihood of a Student t with 5 degrees of freedom.

    By iteratively reweighted least squares (Lange, Little, Taylor 1989), from median and MAD, with n - 1 in the
    scale and 0.01 as its least. ``valid`` masks the values that count; a row needs one.
    """
    mask = np.ones(values.shape, bool) if valid is None else valid
    known = np.where(mask, values, np.nan)
    location = np.nanmedian(known, axis=1)
    scale = 1.4826 * np.nanmedian(np.abs(known - location[:, None]), axis=1)
    scale = np.maximum(scale, _FLOOR)
    filled = np.where(mask, values, 0.0)
    count = mask.sum(axis=1)
    for _ in range(12):
        off = filled - location[:, None]
        weight = mask * (_NU + 1) / (_NU + (off / scale[:, None]) ** 2)
        location = (weight * filled).sum(axis=1) / weight.sum(axis=1)
        square = (weight * (filled - location[:, None]) ** 2).sum(axis=1)
        scale = np.maximum(np.sqrt(square / np.maximum(count - 1, 1)), _FLOOR)
    return location, scale


def _core(u: Floats) -> Floats:
    """Density of a Student t with 5 degrees of freedom at u, over that at 0."""
    a: Floats = 1 / (1 + u * u * np.float32(1 / _NU))
    return a * a * a


#: Density of a Student t with 5 degrees of freedom at 0.
_PEAK: Final = math.gamma((_NU + 1) / 2) / math.gamma(_NU / 2) / math.sqrt(_NU * math.pi)
#: Variance of the location's estimate times n over the squared scale: the inverse of Fisher's information.
_LOCATION: Final = (_NU + 3) / (_NU + 1)
#: The same of the log scale.
_LOG_SCALE: Final = (_NU + 3) / (2 * _NU)


def evidence(values: Doubles, baseline: int) -> Evidence:
    """Evidence of a loss and of a gain, for rows of ``baseline`` runs and those that follow them.

    log sum over sizes and onsets of prior x likelihood ratio, averaged over level and scale with their
    posterior. A row's fate does not depend on what follows, so that shorter rows may be padded with
    anything finite.
    """
    rows, runs = values.shape
    location, scale = fit(values[:, :baseline])
    off = (values - location[:, None]).astype(np.float32)
    spread = np.exp(np.repeat(_SCALES, len(_LEVELS)) * math.sqrt(_LOG_SCALE / baseline))
    shift = np.tile(_LEVELS, len(_SCALES)) * math.sqrt(_LOCATION / baseline)
    inverse = (1 / (scale[:, None] * spread)).astype(np.float32)
    level = (scale[:, None] * shift).astype(np.float32)
    # Densities are in units of the core's peak; 1 / spread is what differs of it between the nodes.
    plateau = _DISTURBED / _REACH / (1 - _DISTURBED) / _PEAK / inverse
    narrow = (1 / spread).astype(np.float32)
    log_weight = np.zeros((rows, len(spread)), np.float32)
    for run in range(baseline):
        here = _core((off[:, run, None] - level) * inverse) + plateau
        log_weight += np.log(here * narrow)
    weight = np.exp(log_weight - log_weight.max(axis=1, keepdims=True))
    weight /= weight.sum(axis=1, keepdims=True)
    steps = [np.float32(-math.log1p(-drop)) * inverse for drop in _DROPS]
    gross = np.float32((1 - 5 * _DISTURBED) / _DISTURBED) * plateau
    nothing = np.float32(1e-3)
    odds = [[np.zeros_like(weight) for _ in _WEIGHTS] for _ in range(2)]
    found = np.empty((2, rows, runs - baseline), np.float32)
    for run in range(baseline, runs):
        u = (off[:, run, None] - level) * inverse
        here = _core(u) + plateau
        ratio = 1 / here
        for side, sign in enumerate((1, -1)):
            total = np.zeros_like(weight)
            for one, prior in enumerate(_WEIGHTS):
                if one < len(steps):
                    there = _core(u + sign * steps[one]) + plateau
                else:
                    there = np.where(sign * u < -1, gross, nothing) + np.float32(0.1) * here
                step = np.minimum(there * ratio, _MOST_OF_ONE)
                odds[side][one] = np.minimum((odds[side][one] + 1) * step, _MOST)
                total += prior * odds[side][one]
            if side == 0:
                weight = weight * here * narrow
                weight /= weight.sum(axis=1, keepdims=True)
            found[side, :, run - baseline] = np.log((weight * total).sum(axis=1))
    return Evidence(found[0], found[1], location, scale)


def _check_share(false_alarms: float) -> None:
    if not 0.001 <= false_alarms <= 0.2:
        raise ValueError(f"share of false alarms is {false_alarms!r}: expected 0.001 to 0.2")


def limits(scale: Doubles, runs: int, false_alarms: float = FALSE_ALARMS) -> Doubles:
    """Log evidence that raises an alarm, for rows of that scale, at each of ``runs`` runs after the baseline.

    A share ``false_alarms`` of stable series is to reach it within 30 runs; beyond the table's ends its outermost
    values hold. Raises ValueError for a share outside 0.001 to 0.2, where the law that it scales by was verified.
    """
    _check_share(false_alarms)
    at = np.log(np.arange(1, runs + 1))
    table = np.array([np.interp(at, np.log(_AT_RUN), row) for row in _LIMITS])
    place = np.interp(np.log(scale), np.log(_AT_SCALE), np.arange(len(_AT_SCALE)))
    low = np.minimum(place.astype(np.intp), len(_AT_SCALE) - 2)
    part = (place - low)[:, None]
    found: Doubles = table[low] * (1 - part) + table[low + 1] * part
    return np.maximum(found + math.log(FALSE_ALARMS / false_alarms), LEAST_EVIDENCE)


@dataclass(frozen=True, slots=True)
class Alarms:
    """Of each row, for one direction: runs are counted from 0 after the baseline, -1: none.

    ``first`` is the run at which an alarm that still stands was raised, ``last`` the run at which the newest alarm
    was raised, standing or not. ``excess`` is by how much the strongest evidence lies above the limit.
    """

    first: NDArray[np.intp]
    last: NDArray[np.intp]
    excess: Doubles


def alarms(found: Floats, limit: Doubles, runs: NDArray[np.intp]) -> Alarms:
    """Alarms of rows whose first ``runs`` values count.

    An alarm stands until the evidence has fallen to even odds (0).
    """
    at = np.arange(found.shape[1])
    counts = at < runs[:, None]
    over = counts & (found > limit)
    calm = counts & (found < 0)
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
    sizes = -np.log1p(-np.linspace(0.02, 0.98, 49))
    plateau = _DISTURBED / _REACH / (1 - _DISTURBED) / _PEAK * scale
    u = ((values[begin:] - location) / scale).astype(np.float32)[:, None]
    there = _core(u + (sizes / scale).astype(np.float32)) + plateau
    ratio = np.log(there / (_core(u) + plateau))
    summed = np.cumsum(ratio[::-1], axis=0)[::-1]
    return begin + int(summed[: end - begin + 1].max(axis=1).argmax())


def step(
    values: Doubles, first: NDArray[np.intp], runs: NDArray[np.intp]
) -> tuple[Doubles, Doubles]:
    """Difference of level (log) of each row from its run ``first`` on, and half its 95 % interval.

    Of a row's ``runs`` values those before ``first`` are one sample, the others the second. Locations by
    :func:`fit`; scale of the larger sample, Student's t with its degrees of freedom.
    """
    at = np.arange(values.shape[1])
    early = at < first[:, None]
    late = ~early & (at < runs[:, None])
    m0, s0 = fit(values, early)
    m1, s1 = fit(values, late)
    n0, n1 = early.sum(axis=1), late.sum(axis=1)
    error = np.where(n0 >= n1, s0, s1) * np.sqrt(_LOCATION * (1 / n0 + 1 / n1))
    freedom = np.maximum(np.maximum(n0, n1) - 1, 1)
    return m1 - m0, error * stdtrit(freedom, (1 + CONFIDENCE) / 2)


# The history.


@dataclass(frozen=True, slots=True)
class _Series:
    """Rows of the newest series of each key, and of the one before it: positions in the sorted columns."""

    current: NDArray[np.intp]
    start: NDArray[np.intp]
    count: NDArray[np.intp]
    earlier: NDArray[np.intp]
    earlier_start: NDArray[np.intp]
    earlier_count: NDArray[np.intp]


def _codes(column: pl.Series) -> NDArray[np.int64]:
    return column.cast(pl.String).fill_null("").rank("dense").to_numpy().astype(np.int64)


def _divide(key: NDArray[np.int64], series: NDArray[np.int64]) -> _Series:
    """Split rows that are sorted by key, then by time."""
    end = np.flatnonzero(np.append(key[1:] != key[:-1], True))
    group = np.zeros(len(key), np.intp)
    group[end[:-1] + 1] = 1
    group = np.cumsum(group)
    newest = series == series[end][group]

    def pack(mask: NDArray[np.bool_]) -> tuple[NDArray[np.intp], ...]:
        rows = np.flatnonzero(mask)
        count = np.bincount(group[rows], minlength=len(end))
        return rows, np.cumsum(count) - count, count

    older = np.flatnonzero(~newest)
    before = np.full(len(end), -1, np.int64)
    before[group[older]] = series[older]  # the last assignment wins: the series that ended last
    return _Series(*pack(newest), *pack(~newest & (series == before[group])))


def judge(
    frame: pl.DataFrame, *, baseline: int = BASELINE, false_alarms: float = FALSE_ALARMS
) -> list[Judged]:
    """Every metric of every line in a frame as ``history.load`` gives it, judged by its newest series.

    Runs count where their value is valid (PASS, FAIL, UNREFERENCED) and has the newest run's unit. The first
    ``baseline`` runs are the baseline, or the first 20 as long as there are no more than that. Raises
    ValueError for a baseline below 20, and as :func:`limits` does.
    """
    if baseline < LEAST:
        raise ValueError(f"baseline of {baseline} runs: expected {LEAST} at least")
    _check_share(false_alarms)
    rows = _valid(frame)
    if rows.is_empty():
        return []
    table, split = _sorted(rows)
    started = _started(table, split)
    last = table.order[split.current[split.start + split.count - 1]]
    heads = rows[last].select(_HEAD).to_dicts()

    def judged(one: int, state: State, **more: Any) -> Judged:
        return Judged(
            **heads[one],
            state=state,
            runs=int(split.count[one]),
            started=started.get(one),
            **(_UNJUDGED | more),
        )

    size = np.where(split.count > baseline, baseline, LEAST)
    few = split.count <= LEAST
    found = {int(one): judged(int(one), State.FEW) for one in np.flatnonzero(few)}
    for length in {baseline, LEAST}:
        chosen = np.flatnonzero(~few & (size == length))
        chosen = chosen[np.argsort(split.count[chosen], kind="stable")]
        for begin in range(0, len(chosen), _TOGETHER):
            chunk = chosen[begin : begin + _TOGETHER]
            for one, more in _judge_rows(table, split, chunk, length, false_alarms):
                found[one] = judged(one, **more)
    return [found[one] for one in sorted(found)]


_HEAD: Final = ("line", "series", "system", "partition", "case", "metric", "unit", "better")
_UNJUDGED: Final = {
    "baseline": 0,
    "level": None,
    "false_alarms": 1.0,
    "change": None,
    "recovered": None,
}
#: Series in one matrix.
_TOGETHER: Final = 2000


@dataclass(frozen=True, slots=True)
class _Rows:
    """The valid rows of a frame, and their signed logarithms sorted by key and time."""

    frame: pl.DataFrame
    order: NDArray[np.intp]
    values: Doubles
    sign: Doubles

    def cell(self, column: str, place: int) -> Any:
        return self.frame[column][int(self.order[place])]


def _valid(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that count in statistics."""
    return frame.filter(
        pl.col("metric_verdict").is_in(sorted(VALID)),
        pl.col("median").is_finite() & (pl.col("median") > 0),
    )


def _sorted(rows: pl.DataFrame) -> tuple[_Rows, _Series]:
    """Rows by line, metric and time, and where the series lie among them; a unit has a series of its own."""
    metric, unit = _codes(rows["metric"]), _codes(rows["unit"])
    key = _codes(rows["line"]) * (metric.max() + 1) + metric
    series = _codes(rows["series"]) * (unit.max() + 1) + unit
    order = np.lexsort((rows["time"].to_physical().to_numpy(), key))
    sign = np.where((rows["better"] == "less").to_numpy(), -1.0, 1.0)[order]
    values = np.log(rows["median"].to_numpy())[order] * sign
    return _Rows(rows, order, values, sign), _divide(key[order], series[order])


def newest_series(frame: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """Of every metric of every line what it is, and the valid runs of its newest series in the order of time."""
    rows = _valid(frame)
    if rows.is_empty():
        return
    table, split = _sorted(rows)
    for start, count in zip(split.start, split.count, strict=True):
        runs = rows[table.order[split.current[start : start + count]]]
        yield runs.select(_HEAD).row(-1, named=True), runs


def _judge_rows(
    table: _Rows, split: _Series, chosen: NDArray[np.intp], baseline: int, false_alarms: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Judge some keys together: rows of one matrix, padded at the end."""
    count = split.count[chosen]
    at = np.minimum(np.arange(count.max()), count[:, None] - 1)
    places = split.current[split.start[chosen][:, None] + at]
    values = table.values[places]
    found = evidence(values, baseline)
    limit = limits(found.scale, values.shape[1] - baseline, false_alarms)
    down = alarms(found.loss, limit, count - baseline)
    up = alarms(found.gain, limit, count - baseline)
    worse = down.first >= 0
    changed = np.flatnonzero(worse | (up.first >= 0))
    flip = np.where(worse, 1.0, -1.0)
    raised = baseline + np.where(worse, down.first, up.first)
    begins = {
        int(row): onset(
            flip[row] * values[row, : count[row]],
            flip[row] * found.location[row],
            found.scale[row],
            begin=baseline,
            end=int(raised[row]),
        )
        for row in changed
    }
    first = np.array([begins[int(row)] for row in changed], np.intp)
    sizes = step(values[changed], first, count[changed])
    changes = _changes(table, places[changed], first, count[changed], sizes)
    by_row = dict(zip(changed.tolist(), changes, strict=True))
    level = np.exp(found.location * table.sign[places[:, 0]])
    for row, one in enumerate(chosen.tolist()):
        state, recovered, side = State.STEADY, None, down
        if row in by_row:
            state, side = (State.ALARM, down) if worse[row] else (State.IMPROVED, up)
        elif down.last[row] >= 0:
            state = State.RECOVERED
            recovered = table.cell("time", places[row, baseline + down.last[row]])
        yield (
            one,
            {
                "state": state,
                "baseline": baseline,
                "level": float(level[row]),
                "false_alarms": min(1.0, false_alarms * math.exp(-side.excess[row])),
                "change": by_row.get(row),
                "recovered": recovered,
            },
        )


def _changes(
    table: _Rows,
    places: NDArray[np.intp],
    first: NDArray[np.intp],
    count: NDArray[np.intp],
    sizes: tuple[Doubles, Doubles],
) -> list[Change]:
    """Changes with which run ``first`` of each row began.

    An onset is an estimate: the fingerprints are those around the nearest change within three runs before it
    or one after.
    """
    found = []
    for row, k in enumerate(first.tolist()):
        sign = float(table.sign[places[row, k]])
        middle, reach = (float(one[row]) for one in sizes)
        before = after = None
        for near in (k, k - 1, k - 2, k - 3, k + 1):
            if 0 < near < count[row]:
                old, new = (table.cell("fingerprint", places[row, j]) for j in (near - 1, near))
                if old != new:
                    before, after = old, new
                    break
        found.append(
            Change(
                share=_share(sign * middle),
                low=_share(sign * middle - reach),
                high=_share(sign * middle + reach),
                time=table.cell("time", places[row, k]),
                session=table.cell("session", places[row, k]),
                before=before,
                after=after,
            )
        )
    return found


def _share(logarithm: float) -> float:
    """Share by which a value changed whose logarithm changed by that."""
    return math.expm1(min(logarithm, 700.0))


def _started(table: _Rows, split: _Series) -> dict[int, Change]:
    """By key: the step from the series before to the newest one, between the 30 runs on each side."""
    keys = np.flatnonzero(split.earlier_count)
    if not len(keys):
        return {}
    old = np.minimum(split.earlier_count[keys], BASELINE)
    new = np.minimum(split.count[keys], BASELINE)
    at = np.minimum(np.arange(2 * BASELINE), (old + new)[:, None] - 1)
    ends = (split.earlier_start + split.earlier_count)[keys]
    early = at < old[:, None]
    places = np.where(
        early,
        split.earlier[np.where(early, (ends - old)[:, None] + at, 0)],
        split.current[np.where(early, 0, split.start[keys][:, None] + at - old[:, None])],
    )
    sizes = step(table.values[places], old, old + new)
    changes = _changes(table, places, old, old + new, sizes)
    units = table.frame["unit"].to_numpy()[table.order]
    same = units[places[np.arange(len(keys)), old - 1]] == units[places[np.arange(len(keys)), old]]
    return {int(key): change for key, change, fits in zip(keys, changes, same, strict=True) if fits}


# The offline view: all changes of a series, seen from its end.


def change_points(values: Sequence[float], least: float = LEAST_CHANGE) -> list[int]:
    """Indices at which the level of a metric's values (> 0) changed, by binary segmentation of their logarithms.

    A split must pay 3 sigma² ln n (a step has a place and a size) and separate levels that differ by ``least``
    at least. sigma is 1.4826 MAD of successive differences over sqrt(2), 1 % at least; values are first cut
    to within 3 sigma of the running median of 5, so that one run makes no step. Parts have 5 runs at least.
    """
    y = np.log(np.asarray(values, float))
    count, part = len(y), 5
    if count < 2 * part:
        return []
    differences = np.diff(y)
    sigma = 1.4826 * float(np.median(np.abs(differences - np.median(differences)))) / math.sqrt(2)
    sigma = max(sigma, _FLOOR)
    middle = np.median(np.lib.stride_tricks.sliding_window_view(np.pad(y, 2, "edge"), 5), axis=1)
    total = np.concatenate(([0.0], np.cumsum(np.clip(y, middle - 3 * sigma, middle + 3 * sigma))))
    found, open_parts = [], [(0, count)]
    while open_parts:
        begin, end = open_parts.pop()
        if end - begin < 2 * part:
            continue
        at = np.arange(begin + part, end - part + 1)
        left = (total[at] - total[begin]) / (at - begin)
        right = (total[end] - total[at]) / (end - at)
        gain = (at - begin) * (end - at) / (end - begin) * (left - right) ** 2
        best = int(gain.argmax())
        if gain[best] > 3 * sigma**2 * math.log(count) and abs(
            left[best] - right[best]
        ) >= -math.log1p(-least):
            found.append(int(at[best]))
            open_parts += [(begin, int(at[best])), (int(at[best]), end)]
    return sorted(found)


class MissingExtra(Exception):
    """An optional package is not installed; the message says how to get it."""


def change_points_otava(values: Sequence[float], least: float = LEAST_CHANGE) -> list[int]:
    """The same by apache-otava (E-divisive with a t test, window 50, p < 0.001); raises :class:`MissingExtra`."""
    try:
        otava = import_module("otava.analysis")
    except ImportError as error:
        raise MissingExtra(
            "method otava needs the package apache-otava, which is not installed: "
            "pip install 'iogauge[otava]', or use --method binary"
        ) from error
    if len(values) < 2:
        return []
    points, _ = otava.compute_change_points(
        [float(v) for v in values], window_len=50, max_pvalue=0.001, min_magnitude=least
    )
    return [int(point.index) for point in points]


# Showing.


#: States that are shown.
_STYLE: Final = {
    State.ALARM: "bold red",
    State.IMPROVED: "green",
    State.RECOVERED: "cyan",
}

Fingerprints = Mapping[str, Mapping[str, Any]]


def changed_keys(change: Change, known: Fingerprints) -> list[str]:
    """What the fingerprints on both sides of a change differ in, as ``key: old -> new``; starred keys first."""
    if change.before is None or change.after is None:
        return []
    old, new = known.get(change.before, {}), known.get(change.after, {})
    return [f"{key}: {a} -> {b}" for key, a, b in fingerprint.changed(old, new)]


def fingerprint_ids(found: Sequence[Judged]) -> set[str]:
    """Ids of the fingerprints that it takes to show what changed."""
    changes = [c for one in found for c in (one.change, one.started) if c is not None]
    return {i for change in changes for i in (change.before, change.after) if i is not None}


def to_json(found: Sequence[Judged], known: Fingerprints) -> str:
    """A JSON array; shares are of the value before, times ISO 8601 in UTC."""

    def plain(change: Change | None) -> dict[str, Any] | None:
        if change is None:
            return None
        more = {"time": change.time.isoformat(), "changed": changed_keys(change, known)}
        return asdict(change) | more

    rows = []
    for one in found:
        row = asdict(one) | {"state": one.state.value}
        row["change"], row["started"] = plain(one.change), plain(one.started)
        row["recovered"] = one.recovered.isoformat() if one.recovered else None
        rows.append(row)
    return json.dumps(rows, indent=2, allow_nan=False)


def table(found: Sequence[Judged], known: Fingerprints) -> Table:
    """What is to be looked at, alarms first; text from outside is escaped."""
    view = Table(title="Trend", title_justify="left", pad_edge=False)
    for heading, options in (
        ("state", {"no_wrap": True}),
        ("partition", {"overflow": "fold"}),
        ("scenario", {"overflow": "fold"}),
        ("metric", {"no_wrap": True}),
        ("was", {"justify": "right", "no_wrap": True}),
        ("change (95 %)", {"no_wrap": True}),
        ("since", {"overflow": "fold"}),
        ("in stable series", {"justify": "right", "no_wrap": True}),
        ("changed just before", {"overflow": "fold", "ratio": 1}),
    ):
        view.add_column(heading, **options)
    for one in sorted(found, key=lambda one: list(State).index(one.state)):
        if style := _STYLE.get(one.state):
            change = one.change
            view.add_row(
                f"[{style}]{one.state.value}[/]",
                *_who(one),
                "-"
                if one.level is None
                else f"{format_value(one.level)} {escape(visible(one.unit))}",
                "-" if change is None else _size(change),
                _since(change, one.recovered),
                _chance(one.false_alarms),
                "-"
                if change is None
                else escape(visible("; ".join(changed_keys(change, known))) or "-"),
            )
        if one.started is not None and one.started.certain:
            view.add_row(
                "changed with",
                *_who(one),
                "-",
                _size(one.started),
                _since(one.started, None),
                "-",
                escape(visible("; ".join(changed_keys(one.started, known))) or "the series"),
            )
    return view


def _who(one: Judged) -> tuple[str, str, str]:
    return (
        escape(visible(f"{one.system}:{one.partition}")),
        escape(visible(short_name(one.case))),
        escape(visible(one.metric)),
    )


def _size(change: Change) -> str:
    return f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%})"


def _since(change: Change | None, recovered: datetime | None) -> str:
    if change is not None:
        return f"{change.time:%Y-%m-%d} {escape(visible(change.session))}"
    return f"alarm until {recovered:%Y-%m-%d}" if recovered else "-"


def _chance(share: float) -> str:
    return "< 0.01 %" if share < 1e-4 else f"{share:.2%}"


def few(found: Sequence[Judged]) -> list[str]:
    """Which series have too few runs to be judged, as ``case metric: 7 of 20 runs of a baseline``."""
    return [
        visible(
            f"{one.system}:{one.partition} {short_name(one.case)} {one.metric}: "
            f"{one.runs} of {LEAST} runs of a baseline"
        )
        for one in found
        if one.state is State.FEW
    ]


def summary(found: Sequence[Judged]) -> str:
    """Series by state: ``12 series: 1 alarm, 11 steady``."""
    counts = [(state.value, sum(one.state is state for one in found)) for state in State]
    return f"{len(found)} series: " + (
        ", ".join(f"{n} {word}" for word, n in counts if n) or "none"
    )


# The command.


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Options of ``iogauge trend``; an empty text does not restrict."""

    system: str
    name: str
    since: str
    baseline: int
    false_alarms: float
    offline: bool
    method: str
    as_json: bool


#: Methods of the offline view.
METHODS: Final[dict[str, Callable[[Sequence[float]], list[int]]]] = {
    "binary": change_points,
    "otava": change_points_otava,
}
_COLUMNS: Final = (
    *_HEAD,
    "time",
    "session",
    "median",
    "metric_verdict",
    "fingerprint",
)
#: Series with too few runs that are named.
_NAMED: Final = 10


def command(console: Console, folder: Path, asked: Question) -> int:
    """Judge the history below a folder and print what was found; returns the exit status, 1 for an alarm.

    Raises ValueError for an option that makes no sense, :class:`MissingExtra` where the method's package is missing.
    """
    if asked.method not in METHODS:
        raise ValueError(f"method {asked.method!r}: expected {' or '.join(METHODS)}")
    try:
        re.compile(asked.name)
    except re.error as error:
        raise ValueError(f"--name {asked.name!r} is no regular expression: {error}") from error
    frame = history.load(folder, columns=_COLUMNS)
    if asked.system:
        frame = frame.filter(pl.col("system") == asked.system)
    if asked.since:
        frame = frame.filter(pl.col("time") >= historyview.moment(asked.since))
    if asked.name:
        cases = [c for c in frame["case"].unique() if c and re.search(asked.name, c)]
        frame = frame.filter(pl.col("case").is_in(cases))
    if asked.offline:
        return _offline(console, frame, asked)
    found = judge(frame, baseline=asked.baseline, false_alarms=asked.false_alarms)
    known = history.fingerprints(folder, fingerprint_ids(found))
    if asked.as_json:
        print(to_json(found, known))
    else:
        view = table(found, known)
        if view.row_count:
            console.print(view)
        short = few(found)
        for line in short[:_NAMED]:
            console.print(escape(line), soft_wrap=True)
        if len(short) > _NAMED:
            console.print(f"and {len(short) - _NAMED} more with too few runs")
        console.print(f"iogauge: {summary(found)}")
    return 1 if any(one.state is State.ALARM for one in found) else 0


def _offline(console: Console, frame: pl.DataFrame, asked: Question) -> int:
    """Print all changes of the newest series; an alarm is none of its business."""
    rows = []
    for head, runs in newest_series(frame):
        values = runs["median"].to_list()
        points = METHODS[asked.method](values)
        bounds = [0, *points, len(values)]
        levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)]
        for point, (old, new) in zip(points, pairwise(levels), strict=True):
            rows.append(
                {
                    **head,
                    "time": runs["time"][point].isoformat(),
                    "session": runs["session"][point],
                    "before": old,
                    "after": new,
                }
            )
    if asked.as_json:
        print(json.dumps(rows, indent=2, allow_nan=False))
        return 0
    view = Table(title="Changes of level", title_justify="left", pad_edge=False)
    for heading in ("partition", "scenario", "metric", "since", "before", "after", "change"):
        view.add_column(heading, overflow="fold")
    for row in rows:
        cells = (
            f"{row['system']}:{row['partition']}",
            short_name(row["case"]),
            row["metric"],
            f"{row['time'][:10]} {row['session']}",
            f"{format_value(row['before'])} {row['unit']}",
            f"{format_value(row['after'])} {row['unit']}",
            f"{row['after'] / row['before'] - 1:+.1%}",
        )
        view.add_row(*(escape(visible(cell)) for cell in cells))
    if rows:
        console.print(view)
    console.print(f"iogauge: {len(rows)} change(s) of {LEAST_CHANGE:.0%} or more")
    return 0
