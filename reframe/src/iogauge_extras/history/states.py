"""Judge every metric of every line of the history by :mod:`iogauge_extras.history.statistics`, and show them as text or JSON:
``iogauge status --trend``.

The result says whether a metric has become worse, since when, by how much and how surely. The
detector gets the logarithm of the value, signed so that more is better.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Final

import numpy as np
import polars as pl

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


def states_of(
    frame: pl.DataFrame,
    lines: Collection[str] | None = None,
    *,
    false_alarms: float = statistics.FALSE_ALARMS,
) -> list[Judged]:
    """Return the state of every metric of some lines (None: all) in a frame of ``query.load``.

    Each is judged by its newest series. A run counts if its value is valid (PASS, FAIL,
    UNREFERENCED), has the newest run's unit, and does not confirm another run. The first
    :data:`BASELINE` runs are the baseline, or the first :data:`LEAST` if there are no more runs than that.
    Raises ValueError as :func:`statistics.check_share` does.
    """
    statistics.check_share(false_alarms)
    ours = pl.lit(True) if lines is None else pl.col("line").is_in(list(lines))
    parts = 1 + frame.height // TOGETHER
    number = pl.col("line").cast(pl.Categorical).to_physical()
    found: list[Judged] = []
    for nth in range(parts):
        some = frame.filter(number % parts == nth).filter(ours)
        found += _judged(counting(some), false_alarms)
    return sorted(found, key=lambda one: (one.line, one.metric))


def _judged(rows: pl.DataFrame, false_alarms: float) -> Iterator[Judged]:
    """Yield the state of every metric of some lines."""
    current, earlier = _divide(rows)
    table = _Rows.of(current)
    started, repeats = _started(current, earlier), _repeats(table)
    heads = current[table.start + table.count - 1].select(HEAD).to_dicts()
    # By length, so that little of a matrix is filled up.
    kinds = np.where(table.count > BASELINE, np.frexp(table.count)[1], 0)
    found: dict[int, dict[str, Any]] = {}
    for kind in np.unique(kinds[table.count > LEAST]):
        chosen = np.flatnonzero((table.count > LEAST) & (kinds == kind))
        found |= _judge_rows(table, chosen, BASELINE if kind else LEAST, false_alarms)
    for key, head in enumerate(heads):
        yield Judged(
            **head,
            runs=int(table.count[key]),
            started=started.get((head["line"], head["metric"])),
            repeats=repeats.get((head["line"], head["metric"]), ""),
            **found.get(key, {"state": State.FEW}),
        )


#: Columns that name a series.
HEAD: Final = (
    "line",
    "series",
    "system",
    "partition",
    "case",
    "metric",
    "unit",
    "better",
)
#: Rows that are judged together, some lines after others, so that a long history needs little memory.
TOGETHER: Final = 200_000


#: What is judged: a metric of a line.
_KEY: Final = ("line", "metric")


@dataclass(frozen=True, slots=True)
class _Rows:
    """Rows in the order of their keys, the signed logarithms of their values, and the place and number of each key's."""

    frame: pl.DataFrame
    values: Doubles
    start: Counts
    count: Counts

    @classmethod
    def of(cls, frame: pl.DataFrame) -> _Rows:
        """Return the rows of a frame in the order of their keys."""
        lengths = frame.group_by(_KEY, maintain_order=True).len()["len"]
        count = lengths.to_numpy().astype(np.intp)
        return cls(frame, frame["value"].to_numpy(), np.cumsum(count) - count, count)

    def cell(self, column: str, place: int) -> Any:
        return self.frame[column][int(place)]

    def places(self, keys: Counts, length: int) -> Counts:
        """Return the places of the first rows of keys; beyond a key's last row it is that row."""
        at = np.minimum(np.arange(length), self.count[keys][:, None] - 1)
        found: Counts = self.start[keys][:, None] + at
        return found


def counting(frame: pl.DataFrame) -> pl.DataFrame:
    """Return the rows that count: valid ones that confirm no other run.

    A confirmation is not a random sample: a failure on the same day caused it.
    """
    return frame.filter(
        pl.col("confirms").is_null(),
        pl.col("metric_verdict").is_in([v.value for v in Verdict if v.is_valid]),
        pl.col("median").is_finite() & (pl.col("median") > 0),
    ).select(*HEAD, "time", "session", "fingerprint", "median")


def _divide(rows: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """Return the rows of each key's newest series and those of the series before it, by key and time.

    Each unit has a series of its own.
    """
    last = (
        pl.col(n).eq_missing(pl.col(n).last().over(_KEY)) for n in ("series", "unit")
    )
    of_last = pl.all_horizontal(*last)
    sign = pl.when(pl.col("better") == "less").then(-1.0).otherwise(1.0)
    short = rows.with_columns(
        pl.col(pl.String).cast(pl.Categorical)
    )  # a text once, not in each row
    ordered = short.sort(*_KEY, "time", maintain_order=True).with_columns(
        sign=sign, value=pl.col("median").log() * sign, newest=of_last
    )
    return ordered.filter("newest"), ordered.filter(~pl.col("newest")).filter(of_last)


#: Proportional values differ by a constant factor, but for what the tools round.
_ROUNDED: Final = 1e-3


def _repeats(table: _Rows) -> dict[tuple[str, str], str]:
    """Return, by the key of a bandwidth, the operations per second that it repeats."""
    names = table.frame[table.start].select(_KEY).rows()
    of_key = {
        name: slice(begin, begin + count)
        for name, begin, count in zip(names, table.start, table.count, strict=True)
    }
    times = table.frame["time"].to_physical().to_numpy()
    found = {}
    for (line, metric), mine in of_key.items():
        its = of_key.get((line, other := operations_of(metric)), mine)
        if (
            its != mine
            and np.array_equal(times[mine], times[its])
            and float(np.ptp(table.values[mine] - table.values[its])) < _ROUNDED
        ):
            found[line, metric] = other
    return found


def _judge_rows(
    table: _Rows, chosen: Counts, baseline: int, false_alarms: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Judge some keys together, as rows of one matrix that are padded at the end."""
    count = table.count[chosen]
    places = table.places(chosen, count.max())
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
    level = np.exp(strength.location * table.frame["sign"].to_numpy()[places[:, 0]])
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
                "false_alarms": statistics.share_of(
                    float(side.excess[row]), false_alarms
                ),
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
        sign = table.cell("sign", places[row, k])
        middle, reach = (float(part[row]) for part in sizes)
        before = after = None
        for near in (k, k - 1, k - 2, k - 3, k + 1):
            if 0 < near < count[row]:
                old, new = (
                    table.cell("fingerprint", places[row, j]) for j in (near - 1, near)
                )
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


def _started(
    current: pl.DataFrame, earlier: pl.DataFrame
) -> dict[tuple[str, str], LevelChange]:
    """Return, by key, the step from the previous series to the newest one.

    It is computed from up to 30 runs on each side.
    """
    if earlier.is_empty():
        return {}
    newest = current.join(earlier, on=_KEY, how="semi", maintain_order="left")
    sides = (
        earlier.group_by(_KEY, maintain_order=True).tail(BASELINE),
        newest.group_by(_KEY, maintain_order=True).head(BASELINE),
    )
    both = pl.concat(sides).sort(*_KEY, "newest", maintain_order=True)
    table = _Rows.of(both)
    old = np.add.reduceat(~both["newest"].to_numpy(), table.start, dtype=np.intp)
    places = table.places(np.arange(len(old)), 2 * BASELINE)
    sizes = statistics.step(table.values[places], old, table.count)
    changes = _changes(table, places, old, table.count, sizes)
    first = table.start + old
    alike = both["unit"][first - 1].eq_missing(both["unit"][first])
    names = both[table.start].select(_KEY).rows()
    return {
        name: change
        for name, change, fits in zip(names, changes, alike, strict=True)
        if fits
    }
