"""Judge every metric of every line of the history by :mod:`iogauge_extras.history.statistics`, and show them as text or JSON:
``iogauge status --trend``.

The result says whether a metric has become worse, since when, by how much and how surely. The
detector gets the logarithm of the value, signed so that more is better.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray

from iogauge.judge.verdict import Verdict
from iogauge.records.record import operations_of
from iogauge_extras.history import statistics
from iogauge_extras.history.statistics import Counts, Doubles

#: Runs at the beginning of a series with which later ones are compared.
BASELINE: Final = 30

#: Runs that suffice as a baseline while there are no more than BASELINE. Fewer are not judged.
LEAST: Final = 20


class State(Enum):
    """The state of a series; only ALARM fails a pipeline."""

    ALARM = "alarm"
    IMPROVED = "improved"
    RECOVERED = "recovered"
    STEADY = "steady"
    FEW = "too few runs"


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of level: ``share`` of the old value (-0.1 is a tenth less), with its 95 % interval.

    ``time`` and ``session`` belong to the first run at the new level. ``before`` and ``after`` are
    the fingerprints on both sides of a change of fingerprint near it, None if none changed.
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
        """Return whether the interval excludes zero change."""
        return self.low > 0 or self.high < 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One metric of one line: the state of its newest series.

    ``runs`` counts the valid runs of that series, ``baseline`` those of its baseline. ``level`` is
    the baseline's level in ``unit``. ``false_alarms`` is the share of stable series that show
    evidence as strong within 30 runs (1 if the series was not judged). ``change`` describes an
    alarm or an improvement. ``recovered`` is the time of the last run above the limit, of a series
    that has recovered. ``started`` is the step from the previous series. ``repeats`` is the metric of
    the same line that this one repeats: a bandwidth that was proportional to the operations per
    second in every run. Both are one fact, which is listed and counted once.
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
    baseline: int = 0
    level: float | None = None
    false_alarms: float = 1.0
    change: LevelChange | None = None
    recovered: datetime | None = None
    started: LevelChange | None = None
    repeats: str = ""


@dataclass(frozen=True, slots=True)
class _Series:
    """Positions, in sorted columns, of each key's newest series and of the series before it."""

    current: Counts
    start: Counts
    count: Counts
    earlier: Counts
    earlier_start: Counts
    earlier_count: Counts


def _codes(column: pl.Series) -> NDArray[np.int64]:
    return column.cast(pl.String).fill_null("").rank("dense").to_numpy().astype(np.int64)


def _divide(key: NDArray[np.int64], series: NDArray[np.int64]) -> _Series:
    """Split rows that are sorted by key, then by time."""
    end = np.flatnonzero(np.append(key[1:] != key[:-1], True))
    group = np.zeros(len(key), np.intp)
    group[end[:-1] + 1] = 1
    group = np.cumsum(group)
    newest = series == series[end][group]

    def pack(mask: NDArray[np.bool_]) -> tuple[Counts, ...]:
        rows = np.flatnonzero(mask)
        count = np.bincount(group[rows], minlength=len(end))
        return rows, np.cumsum(count) - count, count

    older = np.flatnonzero(~newest)
    before = np.full(len(end), -1, np.int64)
    before[group[older]] = series[older]  # the last assignment wins, so the series that ended last
    return _Series(*pack(newest), *pack(~newest & (series == before[group])))


def states_of(
    frame: pl.DataFrame, *, false_alarms: float = statistics.FALSE_ALARMS
) -> list[Judged]:
    """Return the state of every metric of every line in a frame of ``query.load``.

    Each is judged by its newest series. A run counts if its value is valid (PASS, FAIL,
    UNREFERENCED), has the newest run's unit, and does not confirm another run. The first
    :data:`BASELINE` runs are the baseline, or the first :data:`LEAST` if there are no more runs than that.
    Raises ValueError as :func:`statistics.check_share` does.
    """
    statistics.check_share(false_alarms)
    rows = _valid(frame)
    if rows.is_empty():
        return []
    table, split = _sorted(rows)
    started, repeats = _started(table, split), _repeats(table, split)
    last = table.order[split.current[split.start + split.count - 1]]
    heads = rows[last].select(HEAD).to_dicts()

    def judged(key: int, state: State, **more: Any) -> Judged:
        return Judged(
            **heads[key],
            state=state,
            runs=int(split.count[key]),
            started=started.get(key),
            repeats=repeats.get(key, ""),
            **more,
        )

    size = np.where(split.count > BASELINE, BASELINE, LEAST)
    too_few = split.count <= LEAST
    by_key = {int(key): judged(int(key), State.FEW) for key in np.flatnonzero(too_few)}
    for length in (BASELINE, LEAST):
        chosen = np.flatnonzero(~too_few & (size == length))
        chosen = chosen[np.argsort(split.count[chosen], kind="stable")]
        for begin in range(0, len(chosen), _TOGETHER):
            chunk = chosen[begin : begin + _TOGETHER]
            for key, more in _judge_rows(table, split, chunk, length, false_alarms):
                by_key[key] = judged(key, **more)
    return [by_key[key] for key in sorted(by_key)]


#: Columns that name a series.
HEAD: Final = ("line", "series", "system", "partition", "case", "metric", "unit", "better")
#: Series in one matrix.
_TOGETHER: Final = 2000


@dataclass(frozen=True, slots=True)
class _Rows:
    """The valid rows of a frame, and their signed logarithms sorted by key and time."""

    frame: pl.DataFrame
    order: Counts
    values: Doubles
    sign: Doubles

    def cell(self, column: str, place: int) -> Any:
        return self.frame[column][int(self.order[place])]


def _valid(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that count: valid ones that confirm no other run.

    A confirmation is not a random sample: a failure on the same day caused it.
    """
    return frame.filter(
        pl.col("confirms").is_null(),
        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),
        pl.col("median").is_finite() & (pl.col("median") > 0),
    )


def _sorted(rows: pl.DataFrame) -> tuple[_Rows, _Series]:
    """Return the rows by line, metric and time, and the position of each series among them.

    Each unit has a series of its own.
    """
    metric, unit = _codes(rows["metric"]), _codes(rows["unit"])
    key = _codes(rows["line"]) * (metric.max() + 1) + metric
    series = _codes(rows["series"]) * (unit.max() + 1) + unit
    order = np.lexsort((rows["time"].to_physical().to_numpy(), key))
    sign = np.where((rows["better"] == "less").to_numpy(), -1.0, 1.0)[order]
    values = np.log(rows["median"].to_numpy())[order] * sign
    return _Rows(rows, order, values, sign), _divide(key[order], series[order])


#: Proportional values differ by a constant factor, but for what the tools round.
_ROUNDED: Final = 1e-3


def _repeats(table: _Rows, split: _Series) -> dict[int, str]:
    """Return, by the key of a bandwidth, the operations per second that it repeats."""
    first = table.order[split.current[split.start]]
    names = list(zip(table.frame["line"][first], table.frame["metric"][first], strict=True))
    keys = {name: key for key, name in enumerate(names)}
    times = table.frame["time"].to_physical().to_numpy()
    found = {}
    for key, (line, metric) in enumerate(names):
        other = keys.get((line, operations_of(metric)), key)
        if other == key or split.count[other] != split.count[key]:
            continue
        mine, its = (
            split.current[split.start[k] : split.start[k] + split.count[k]] for k in (key, other)
        )
        if (times[table.order[mine]] == times[table.order[its]]).all() and float(
            np.ptp(table.values[mine] - table.values[its])
        ) < _ROUNDED:
            found[key] = names[other][1]
    return found


def _judge_rows(
    table: _Rows, split: _Series, chosen: Counts, baseline: int, false_alarms: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Judge some keys together, as rows of one matrix that are padded at the end."""
    count = split.count[chosen]
    at = np.minimum(np.arange(count.max()), count[:, None] - 1)
    places = split.current[split.start[chosen][:, None] + at]
    values = table.values[places]
    strength = statistics.evidence(values, baseline)
    limit = statistics.limits(strength.scale, values.shape[1] - baseline, false_alarms)
    down = statistics.alarms(strength.loss, limit, count - baseline)
    up = statistics.alarms(strength.gain, limit, count - baseline)
    worse = down.first >= 0
    changed = np.flatnonzero(worse | (up.first >= 0))
    flip = np.where(worse, 1.0, -1.0)
    raised = baseline + np.where(worse, down.first, up.first)
    begins = {
        int(row): statistics.onset(
            flip[row] * values[row, : count[row]],
            flip[row] * strength.location[row],
            strength.scale[row],
            begin=baseline,
            end=int(raised[row]),
        )
        for row in changed
    }
    first = np.array([begins[int(row)] for row in changed], np.intp)
    sizes = statistics.step(values[changed], first, count[changed])
    changes = _changes(table, places[changed], first, count[changed], sizes)
    by_row = dict(zip(changed.tolist(), changes, strict=True))
    level = np.exp(strength.location * table.sign[places[:, 0]])
    for row, key in enumerate(chosen.tolist()):
        state, recovered, side = State.STEADY, None, down
        if row in by_row:
            state, side = (State.ALARM, down) if worse[row] else (State.IMPROVED, up)
        elif down.last[row] >= 0:
            state = State.RECOVERED
            recovered = table.cell("time", places[row, baseline + down.last[row]])
        yield (
            key,
            {
                "state": state,
                "baseline": baseline,
                "level": float(level[row]),
                "false_alarms": statistics.share_of(float(side.excess[row]), false_alarms),
                "change": by_row.get(row),
                "recovered": recovered,
            },
        )


def _changes(
    table: _Rows,
    places: Counts,
    first: Counts,
    count: Counts,
    sizes: tuple[Doubles, Doubles],
) -> list[LevelChange]:
    """Return the changes that begin at run ``first`` of each row.

    An onset is an estimate. So the fingerprints are taken from the nearest change of fingerprint,
    at most three runs earlier or one later.
    """
    changes = []
    for row, k in enumerate(first.tolist()):
        sign = float(table.sign[places[row, k]])
        middle, reach = (float(part[row]) for part in sizes)
        before = after = None
        for near in (k, k - 1, k - 2, k - 3, k + 1):
            if 0 < near < count[row]:
                old, new = (table.cell("fingerprint", places[row, j]) for j in (near - 1, near))
                if old != new:
                    before, after = old, new
                    break
        changes.append(
            LevelChange(
                share=_share(sign * middle),
                low=_share(sign * middle - reach),
                high=_share(sign * middle + reach),
                time=table.cell("time", places[row, k]),
                session=table.cell("session", places[row, k]),
                before=before,
                after=after,
            )
        )
    return changes


def _share(logarithm: float) -> float:
    """Convert a difference of logarithms to a relative change."""
    return math.expm1(min(logarithm, 700.0))


def _started(table: _Rows, split: _Series) -> dict[int, LevelChange]:
    """Return, by key, the step from the previous series to the newest one.

    It is computed from up to 30 runs on each side.
    """
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
    sizes = statistics.step(table.values[places], old, old + new)
    changes = _changes(table, places, old, old + new, sizes)
    units = table.frame["unit"].to_numpy()[table.order]
    same = units[places[np.arange(len(keys)), old - 1]] == units[places[np.arange(len(keys)), old]]
    return {int(key): change for key, change, fits in zip(keys, changes, same, strict=True) if fits}
