"""Judge every metric of every line of a history by :mod:`iogauge_extras.history.statistics`.

The result says whether a metric has become worse, since when, by how much and how surely.
"""

import math
import sqlite3
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from statistics import median
from typing import Final, NamedTuple

from iogauge.records import query
from iogauge_extras.history import statistics

#: Runs at the beginning of a series with which later ones are compared.
BASELINE: Final = 30

#: Runs that suffice as a baseline while there are no more than BASELINE. Fewer are not judged.
LEAST: Final = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class LevelChange:
    """A change of level."""

    #: Share of the old value (-0.1 is a tenth less), and its 95 % interval.
    share: float
    low: float
    high: float
    #: Median of the baseline, in the unit of the series.
    level: float
    #: Of the first run at the new level.
    time: datetime
    session: str
    #: Fingerprints on both sides of a change of fingerprint near it; None if none changed.
    before: str | None
    after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One metric of one line: what its newest series shows."""

    line: str
    series: str
    metric: str
    unit: str
    better: str
    #: Whether there are too few runs to judge.
    few: bool
    #: How it has become worse; None if it has not.
    change: LevelChange | None = None


#: Runs after the baseline that are looked at: the newest ones, a year of nights.
NEWEST: Final = 365

#: Newest runs at a level that its size is computed from.
_SIZED: Final = 60


class Run(NamedTuple):
    """A run that counts: its row in the index, the time in microseconds since 1970, and the value."""

    row: int
    time: int
    value: float


def states_of(
    history: sqlite3.Connection,
    choice: query.Choice,
    lines: Collection[str] | None = None,
) -> list[Judged]:
    """Return the state of every metric of some lines (None: all) in a history.

    Each is judged by its newest series. A run counts if its value is valid (PASS, FAIL,
    UNREFERENCED), has the newest run's unit, and does not confirm another run. The first
    :data:`BASELINE` runs are the baseline, or the first :data:`LEAST` if there are no more runs than that.
    Raises ValueError as :meth:`query.Choice.of_cases` does.
    """
    runs_of = series_runs(history, choice, lines)
    return [_judged(history, *key, runs) for key, runs in runs_of.items()]


def series_runs(
    history: sqlite3.Connection,
    choice: query.Choice,
    lines: Collection[str] | None = None,
) -> dict[tuple[str, str], list[Run]]:
    """Return the runs of the newest series of every line and metric that are looked at, oldest first.

    They are the first :data:`BASELINE` that count, and the :data:`NEWEST` after them.
    """
    chosen, span = choice.of_cases(history), choice.of_time
    if lines is not None:
        chosen = query.every(chosen, query.among("line", lines))
    kinds = history.execute(
        f"""SELECT line, name, kind.series, kind.metric FROM (
            SELECT series, metric, max(time) AS last, max(rowid) AS one FROM run
            WHERE {query.COUNTING} AND {span.text} GROUP BY series, metric) AS kind
        JOIN run ON run.rowid = one JOIN place ON place.id = run.place JOIN metric ON metric.id = kind.metric
        WHERE {chosen.text} ORDER BY line, name, last, one""",
        (*span.values, *chosen.values),
    )
    newest = {tuple(kind[:2]): tuple(kind[2:]) for kind in kinds}
    question = (
        "SELECT rowid, time, median FROM run "
        f"WHERE series = ? AND metric = ? AND {query.COUNTING} AND {span.text} "
    )
    found = {}
    for key, kind in newest.items():
        values = (*kind, *span.values)
        rows = history.execute(question + _LAST, values)
        runs = [Run(*row) for row in rows][::-1]
        if len(runs) == BASELINE + NEWEST:
            rows = history.execute(question + _FIRST, values)
            runs[:BASELINE] = [Run(*row) for row in rows]
        found[key] = runs
    return found


_FIRST: Final = f"ORDER BY time, file, start LIMIT {BASELINE}"
_LAST: Final = f"ORDER BY time DESC, file DESC, start DESC LIMIT {BASELINE + NEWEST}"


def _judged(
    history: sqlite3.Connection, line: str, metric: str, runs: Sequence[Run]
) -> Judged:
    """Return the state of one series."""
    head = history.execute(_HEAD, (runs[-1].row,)).fetchone()
    few = len(runs) <= LEAST
    judged = Judged(line=line, metric=metric, few=few, **dict(head))
    if few:
        return judged
    count = BASELINE if len(runs) > BASELINE else LEAST
    sign = -1 if judged.better == "less" else 1
    baseline = [run.value for run in runs[:count]]
    level = median(baseline)
    logs = [sign * math.log(run.value) for run in runs]
    placed = statistics.placements(logs[count:], logs[:count])
    wide = statistics.stretch(logs[:count])
    raised = statistics.course(placed, count, wide)[-1]
    if raised is None:
        return judged
    values = [run.value for run in runs[count:]]
    first = count + statistics.onset(values, level, raised)
    new = [run.value for run in runs[first:]][-_SIZED:]
    ratio, low, high = statistics.interval(baseline, new, wide)
    before, after = _fingerprints(history, runs, first)
    begin = history.execute(_OF_RUN, (runs[first].row,)).fetchone()
    change = LevelChange(
        level=level,
        share=ratio - 1,
        low=low - 1,
        high=high - 1,
        time=query.moment(runs[first].time),
        session=begin["session"],
        before=before,
        after=after,
    )
    return replace(judged, change=change)


_HEAD: Final = """
SELECT series.name AS series, unit, better FROM run
JOIN metric ON metric.id = run.metric JOIN series ON series.id = run.series WHERE run.rowid = ?
"""
_OF_RUN: Final = """
SELECT session.name AS session, fingerprint.name AS fingerprint FROM run
JOIN session ON session.id = run.session LEFT JOIN fingerprint ON fingerprint.id = run.fingerprint WHERE run.rowid = ?
"""

#: Runs around an onset, which is an estimate, whose fingerprints are compared; the nearest change counts.
_AROUND: Final = (0, -1, -2, -3, 1)


def _fingerprints(
    history: sqlite3.Connection, runs: Sequence[Run], first: int
) -> tuple[str | None, str | None]:
    """Return the fingerprints on both sides of the change of fingerprint that is nearest to a run; None if there is none."""
    for off in _AROUND:
        near = first + off
        if not 0 < near < len(runs):
            continue
        pair = [
            history.execute(_OF_RUN, (run.row,)).fetchone()["fingerprint"]
            for run in runs[near - 1 : near + 1]
        ]
        if pair[0] != pair[1]:
            return pair[0], pair[1]
    return None, None
