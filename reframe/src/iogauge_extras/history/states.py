"""Judge every metric of every line of the history by :mod:`iogauge_extras.history.statistics`, and show them as text or JSON:
``iogauge status --trend``.

The result says whether a metric has become worse, since when, by how much and how surely. The
detector gets the logarithm of the value, signed so that more is better.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum
from typing import Final, NamedTuple

from iogauge.records import query
from iogauge.records.record import operations_of
from iogauge_extras.history import statistics

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
    the baseline's level in ``unit``, ``spread`` the standard deviation of its logarithms. ``false_alarms`` is the share of stable series that show
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
    spread: float = 0.0
    false_alarms: float = 1.0
    change: LevelChange | None = None
    recovered: datetime | None = None
    started: LevelChange | None = None
    repeats: str = ""


#: Runs after the baseline that are looked at: the newest ones, a year of nights.
NEWEST: Final = 365

#: Newest runs at a level that its size is computed from.
_SIZED: Final = 60


class Run(NamedTuple):
    """A run that counts, of which a long history has very many."""

    #: Its row in the index.
    row: int
    #: Microseconds since 1970.
    time: int
    value: float
    #: Numbers of its series, and of its metric with the unit, in the index.
    series: int
    metric: int


def states_of(
    history: sqlite3.Connection,
    choice: query.Choice,
    lines: Collection[str] | None = None,
    *,
    false_alarms: float = statistics.FALSE_ALARMS,
) -> list[Judged]:
    """Return the state of every metric of some lines (None: all) in a history.

    Each is judged by its newest series. A run counts if its value is valid (PASS, FAIL,
    UNREFERENCED), has the newest run's unit, and does not confirm another run. The first
    :data:`BASELINE` runs are the baseline, or the first :data:`LEAST` if there are no more runs than that.
    Raises ValueError as :func:`statistics.check_share` and :meth:`query.Choice.of_cases` do.
    """
    most = statistics.limit(false_alarms)
    found: list[Judged] = []
    runs_of: dict[tuple[str, str], Sequence[Run]] = {}
    for line, metric in _keys(history, choice, lines):
        runs = _runs(history, line, metric, choice.of_time)
        if not runs:
            continue
        last = runs[-1]
        newest = [run for run in runs if run.series == last.series]
        current = [run for run in newest if run.metric == last.metric]
        runs_of[line, metric] = current
        judged = _judged(history, line, metric, current, most)
        started = _started(history, runs, current)
        found.append(replace(judged, started=started))
    return [replace(one, repeats=_repeated(one, runs_of)) for one in found]


def _keys(
    history: sqlite3.Connection, choice: query.Choice, lines: Collection[str] | None
) -> list[tuple[str, str]]:
    """Return the lines and metrics that are chosen, in their order."""
    chosen = choice.of_cases(history)
    if lines is not None:
        chosen = query.every(chosen, query.among("line", lines))
    question = (
        "SELECT DISTINCT line, name FROM (SELECT DISTINCT place, metric FROM run) AS kind "
        "JOIN place ON place.id = kind.place JOIN metric ON metric.id = kind.metric "
        f"WHERE {chosen.text} ORDER BY line, name"
    )
    return [(row[0], row[1]) for row in history.execute(question, chosen.values)]


def _runs(
    history: sqlite3.Connection, line: str, metric: str, span: query.Condition
) -> list[Run]:
    """Return the runs of a metric that count, oldest first."""
    question = (
        "SELECT run.rowid, time, median, series, metric FROM run "
        "WHERE place IN (SELECT id FROM place WHERE line = ?) AND metric IN (SELECT id FROM metric WHERE name = ?) "
        f"AND {query.COUNTING} AND {span.text} ORDER BY time, file, start"
    )
    rows = history.execute(question, (line, metric, *span.values))
    return list(map(Run._make, rows))


def _judged(
    history: sqlite3.Connection,
    line: str,
    metric: str,
    runs: Sequence[Run],
    most: float,
) -> Judged:
    """Return the state of one series."""
    head = history.execute(_HEAD, (runs[-1].row,)).fetchone()
    judged = Judged(
        line=line, metric=metric, state=State.FEW, runs=len(runs), **dict(head)
    )
    if len(runs) <= LEAST:
        return judged
    count = BASELINE if len(runs) > BASELINE else LEAST
    sign = -1 if judged.better == "less" else 1
    baseline = [run.value for run in runs[:count]]
    signed = [sign * value for value in baseline]
    level, spread = statistics.location_and_spread(baseline)
    begin = max(count, len(runs) - NEWEST)
    values = [run.value for run in runs[begin:]]
    placed = statistics.placements([sign * value for value in values], signed)
    wide = statistics.stretch(signed)
    down = statistics.course(placed, count, wide, most)
    mirrored = [-place for place in placed]
    up = statistics.course(mirrored, count, wide, most)
    state, side, recovered, change = State.STEADY, down, None, None
    if down.standing is not None:
        state = State.ALARM
        first = begin + statistics.onset(values, level, down.standing)
        change = _change(history, runs, first, baseline, wide)
    elif up.standing is not None:
        state, side = State.IMPROVED, up
        first = begin + statistics.onset(values, level, up.standing)
        change = _change(history, runs, first, baseline, wide)
    elif down.last is not None:
        state = State.RECOVERED
        recovered = query.moment(runs[begin + down.last].time)
    return replace(
        judged,
        state=state,
        baseline=count,
        level=level,
        spread=spread,
        false_alarms=statistics.share_of(side.most),
        change=change,
        recovered=recovered,
    )


_HEAD: Final = """
SELECT series.name AS series, system, partition, "case", unit, better FROM run
JOIN place ON place.id = run.place JOIN metric ON metric.id = run.metric JOIN series ON series.id = run.series
WHERE run.rowid = ?
"""
_OF_RUN: Final = """
SELECT session.name AS session, fingerprint.name AS fingerprint FROM run
JOIN session ON session.id = run.session LEFT JOIN fingerprint ON fingerprint.id = run.fingerprint WHERE run.rowid = ?
"""

#: Runs around an onset, which is an estimate, whose fingerprints are compared; the nearest change counts.
_AROUND: Final = (0, -1, -2, -3, 1)


def _change(
    history: sqlite3.Connection,
    runs: Sequence[Run],
    first: int,
    old: Sequence[float],
    wide: float,
) -> LevelChange:
    """Return the change from old values to the level that begins with a run."""
    new = [run.value for run in runs[first:]][-_SIZED:]
    ratio, low, high = statistics.interval(old, new, wide)
    before = after = None
    for off in _AROUND:
        near = first + off
        if not 0 < near < len(runs):
            continue
        pair = [
            history.execute(_OF_RUN, (run.row,)).fetchone()["fingerprint"]
            for run in runs[near - 1 : near + 1]
        ]
        if pair[0] != pair[1]:
            before, after = pair
            break
    begin = history.execute(_OF_RUN, (runs[first].row,)).fetchone()
    return LevelChange(
        share=ratio - 1,
        low=low - 1,
        high=high - 1,
        time=query.moment(runs[first].time),
        session=begin["session"],
        before=before,
        after=after,
    )


def _started(
    history: sqlite3.Connection, runs: Sequence[Run], current: Sequence[Run]
) -> LevelChange | None:
    """Return the step from the previous series to the newest one, from up to 30 runs on each side."""
    last = current[-1]
    earlier = [run for run in runs if run.series != last.series]
    if not earlier or earlier[-1].metric != last.metric:
        return None
    previous = [run for run in earlier if run.series == earlier[-1].series]
    old = [run for run in previous if run.metric == last.metric][-BASELINE:]
    both = [*old, *current[:BASELINE]]
    return _change(history, both, len(old), [run.value for run in old], 1.0)


#: Proportional values differ by a constant factor, but for what the tools round.
_ROUNDED: Final = 1e-3


def _repeated(judged: Judged, runs_of: Mapping[tuple[str, str], Sequence[Run]]) -> str:
    """Return the operations per second that a bandwidth repeats, or nothing."""
    other = operations_of(judged.metric)
    mine, its = runs_of[judged.line, judged.metric], runs_of.get((judged.line, other))
    if not its or [run.time for run in mine] != [run.time for run in its]:
        return ""
    ratios = [a.value / b.value for a, b in zip(mine, its, strict=True)]
    return other if max(ratios) / min(ratios) < 1 + _ROUNDED else ""
