"""Judge every metric of every line of the history by :mod:`iogauge_extras.history.statistics`, and show them as text or JSON:
``iogauge status --trend``.

The result says whether a metric has become worse, since when, by how much and how surely. The
detector gets the logarithm of the value, signed so that more is better.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from enum import Enum
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl
from numpy.typing import NDArray
from rich.console import Console, RenderableType
from rich.markup import escape

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import names, query
from iogauge.records.record import operations_of, short_name
from iogauge.report.history_table import of_system
from iogauge_extras.history import statistics
from iogauge_extras.history.statistics import LEAST_CHANGE, Counts, Doubles

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
    baseline: int
    level: float | None
    false_alarms: float
    change: LevelChange | None
    recovered: datetime | None
    started: LevelChange | None
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
    frame: pl.DataFrame, *, baseline: int = BASELINE, false_alarms: float = statistics.FALSE_ALARMS
) -> list[Judged]:
    """Return the state of every metric of every line in a frame of ``query.load``.

    Each is judged by its newest series. A run counts if its value is valid (PASS, FAIL,
    UNREFERENCED), has the newest run's unit, and does not confirm another run. The first
    ``baseline`` runs are the baseline, or the first 20 if there are no more than ``baseline`` runs.
    Raises ValueError for a baseline below 20, and as :func:`statistics.check_share` does.
    """
    if baseline < LEAST:
        raise ValueError(f"baseline of {baseline} runs: expected {LEAST} at least")
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
            **(_UNJUDGED | more),
        )

    size = np.where(split.count > baseline, baseline, LEAST)
    too_few = split.count <= LEAST
    by_key = {int(key): judged(int(key), State.FEW) for key in np.flatnonzero(too_few)}
    for length in {baseline, LEAST}:
        chosen = np.flatnonzero(~too_few & (size == length))
        chosen = chosen[np.argsort(split.count[chosen], kind="stable")]
        for begin in range(0, len(chosen), _TOGETHER):
            chunk = chosen[begin : begin + _TOGETHER]
            for key, more in _judge_rows(table, split, chunk, length, false_alarms):
                by_key[key] = judged(key, **more)
    return [by_key[key] for key in sorted(by_key)]


HEAD: Final = ("line", "series", "system", "partition", "case", "metric", "unit", "better")
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


def newest_series(frame: pl.DataFrame) -> Iterator[tuple[dict[str, Any], pl.DataFrame]]:
    """Yield the head and the valid runs, oldest first, of each metric's newest series.

    A series that repeats another one is left out.
    """
    rows = _valid(frame)
    if rows.is_empty():
        return
    table, split = _sorted(rows)
    repeats = _repeats(table, split)
    for key, (start, count) in enumerate(zip(split.start, split.count, strict=True)):
        if key not in repeats:
            runs = rows[table.order[split.current[start : start + count]]]
            yield runs.select(HEAD).row(-1, named=True), runs


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


#: States that are shown.
_SHOWN: Final = (State.ALARM, State.IMPROVED, State.RECOVERED)

Fingerprints = Mapping[str, Mapping[str, Any]]


def changed_keys(change: LevelChange, fingerprints: Fingerprints) -> list[str]:
    """Return how the fingerprints on both sides of a change differ, as ``key: old -> new``.

    Starred keys come first.
    """
    if change.before is None or change.after is None:
        return []
    old, new = fingerprints.get(change.before, {}), fingerprints.get(change.after, {})
    return [f"{key}: {a} -> {b}" for key, a, b in fingerprint.changed(old, new)]


def fingerprint_ids(judged: Sequence[Judged]) -> set[str]:
    """Return the ids of all fingerprints that are needed to show what changed."""
    changes = [c for series in judged for c in (series.change, series.started) if c is not None]
    return {i for change in changes for i in (change.before, change.after) if i is not None}


def to_json(judged: Sequence[Judged], fingerprints: Fingerprints) -> str:
    """Return the states as a JSON array; shares are of the old value, times ISO 8601 in UTC."""

    def plain(change: LevelChange | None) -> dict[str, Any] | None:
        if change is None:
            return None
        more = {"time": change.time.isoformat(), "changed": changed_keys(change, fingerprints)}
        return asdict(change) | more

    rows = []
    for series in judged:
        row = asdict(series) | {"state": series.state.value}
        row["change"], row["started"] = plain(series.change), plain(series.started)
        row["recovered"] = series.recovered.isoformat() if series.recovered else None
        rows.append(row)
    return json.dumps(rows, indent=2, allow_nan=False)


#: Headings of :func:`rows`; the first column is the case.
HEADINGS: Final = (
    *("scenario", "metric", "state", "was", "change (95 %)", "since"),
    *("false alarms", "changed just before"),
)


def rows(judged: Sequence[Judged], fingerprints: Fingerprints) -> dict[str, list[tuple[str, ...]]]:
    """Return the facts to look at by system and partition, surest alarms first.

    A bandwidth that repeats operations per second has a row with its level, which continues theirs.
    """
    found: dict[str, list[tuple[str, ...]]] = {}
    for series, *others in sorted(
        facts(judged), key=lambda fact: (list(State).index(fact[0].state), fact[0].false_alarms)
    ):
        here = found.setdefault(f"{series.system}:{series.partition}", [])
        name, change = (short_name(series.case), series.metric), series.change
        before = len(here)
        if series.state in _SHOWN:
            here.append(
                (
                    *(*name, series.state.value, _level(series)),
                    "-" if change is None else _size(change),
                    _since(change, series.recovered),
                    one_of(series.false_alarms),
                    _changed(change, fingerprints) or "-",
                )
            )
        if series.started is not None and series.started.certain:
            size, since = _size(series.started), _since(series.started, None)
            why = _changed(series.started, fingerprints) or "the series"
            here.append((*name, "changed with", "-", size, since, "-", why))
        if len(here) > before:
            here += [("", other.metric, "", _level(other), "", "", "", "") for other in others]
    return {place: lines for place, lines in found.items() if lines}


def facts(judged: Sequence[Judged]) -> list[list[Judged]]:
    """Return each series with those that repeat it, in the order of the first ones."""
    found = {(s.line, s.metric): [s] for s in judged if not s.repeats}
    for series in judged:
        if series.repeats:
            found[series.line, series.repeats].append(series)
    return list(found.values())


def _level(series: Judged) -> str:
    return "-" if series.level is None else f"{format_value(series.level)} {series.unit}"


def _names(fact: Sequence[Judged]) -> str:
    """Return the metrics of a fact: ``read_iops, read_bw``."""
    return ", ".join(series.metric for series in fact)


def _changed(change: LevelChange | None, fingerprints: Fingerprints) -> str:
    return "; ".join(changed_keys(change, fingerprints)) if change else ""


def _size(change: LevelChange) -> str:
    return f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%})"


def _since(change: LevelChange | None, recovered: datetime | None) -> str:
    if change is not None:
        return f"{change.time:%Y-%m-%d} {change.session}"
    return f"alarm until {recovered:%Y-%m-%d}" if recovered else "-"


def one_of(share: float) -> str:
    """Return the share of healthy series with a false alarm: ``1 of 500``."""
    return "1 of > 10000" if share < 1e-4 else f"1 of {1 / share:.0f}"


def too_few_runs(judged: Sequence[Judged]) -> list[str]:
    """Return a line for each fact with too few runs.

    For example ``case metric: 7 of 20 runs of a baseline``.
    """
    return [
        visible(
            f"{fact[0].system}:{fact[0].partition} {short_name(fact[0].case)} {_names(fact)}: "
            f"{fact[0].runs} of {LEAST} runs of a baseline"
        )
        for fact in facts(judged)
        if fact[0].state is State.FEW
    ]


def summary(judged: Sequence[Judged]) -> str:
    """Return the number of series by state: ``12 series: 1 alarm, 11 steady``.

    A series that repeats another one does not count.
    """
    counted = [series for series in judged if not series.repeats]
    counts = [(state.value, sum(series.state is state for series in counted)) for state in State]
    return f"{len(counted)} series: " + (
        ", ".join(f"{n} {word}" for word, n in counts if n) or "none"
    )


def chance(judged: Sequence[Judged], false_alarms: float) -> str:
    """Say how many alarms chance alone raises in the judged series; returns "" without any.

    A series that repeats another one raises no alarm of its own.
    """
    count = sum(series.state is not State.FEW and not series.repeats for series in judged)
    if not count:
        return ""
    return (
        f"if nothing changes, chance alone raises at most {count * statistics.per_run(false_alarms):.2g} "
        f"new alarm(s) a run and {count * false_alarms:.2g} in {statistics.HORIZON} runs ({count} series)"
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Options of ``iogauge status --trend``; an empty text and None restrict nothing."""

    system: str
    name: str
    since: datetime | None
    baseline: int
    false_alarms: float
    offline: bool
    as_json: bool


_COLUMNS: Final = (
    *HEAD,
    "time",
    "session",
    "median",
    "metric_verdict",
    "fingerprint",
    "confirms",
)

#: At most this many series with too few runs are named.
_NAMED: Final = 10


#: Makes a table of headings and rows under headings of their own; all text may come from outside.
Draw = Callable[[Sequence[str], Mapping[str, Sequence[Sequence[str]]]], RenderableType]


def show_trend(console: Console, folder: Path, question: Question, draw: Draw) -> int:
    """Judge the history below a folder and print the result.

    Returns the exit status: 1 for an alarm. Raises ValueError for an option that makes no sense.
    """
    frame = query.load(folder, columns=_COLUMNS)
    if question.system:
        frame = of_system(frame, question.system)
    if question.since:
        frame = frame.filter(pl.col("time") >= question.since)
    if question.name:
        frame = frame.filter(
            pl.col("case").is_in(names.chosen(question.name, frame["case"].unique()))
        )
    if question.offline:
        return _offline(console, frame, question, draw)
    judged = states_of(frame, baseline=question.baseline, false_alarms=question.false_alarms)
    fingerprints = query.fingerprints(folder, fingerprint_ids(judged))
    if question.as_json:
        print(to_json(judged, fingerprints))
    else:
        if shown := rows(judged, fingerprints):
            console.print(draw(HEADINGS, shown), soft_wrap=True)
        too_few = too_few_runs(judged)
        for line in too_few[:_NAMED]:
            console.print(escape(line), soft_wrap=True)
        if len(too_few) > _NAMED:
            console.print(f"and {len(too_few) - _NAMED} more with too few runs")
        console.print(f"iogauge: {summary(judged)}")
        if words := chance(judged, question.false_alarms):
            console.print(escape(words), soft_wrap=True)
    return 1 if any(series.state is State.ALARM for series in judged) else 0


def _offline(console: Console, frame: pl.DataFrame, question: Question, draw: Draw) -> int:
    """Print all changes of the newest series; never raises an alarm."""
    changes = []
    for head, runs in newest_series(frame):
        values = runs["median"].to_list()
        points = statistics.change_points(values)
        bounds = [0, *points, len(values)]
        levels = [float(np.median(values[a:b])) for a, b in pairwise(bounds)]
        for point, (old, new) in zip(points, pairwise(levels), strict=True):
            changes.append(
                {
                    **head,
                    "time": runs["time"][point].isoformat(),
                    "session": runs["session"][point],
                    "before": old,
                    "after": new,
                }
            )
    if question.as_json:
        print(json.dumps(changes, indent=2, allow_nan=False))
        return 0
    found: dict[str, list[tuple[str, ...]]] = {}
    for row in changes:
        found.setdefault(f"{row['system']}:{row['partition']}", []).append(
            (
                short_name(row["case"]),
                row["metric"],
                f"{row['time'][:10]} {row['session']}",
                f"{format_value(row['before'])} {row['unit']}",
                f"{format_value(row['after'])} {row['unit']}",
                f"{row['after'] / row['before'] - 1:+.1%}",
            )
        )
    if found:
        headings = ("scenario", "metric", "since", "before", "after", "change")
        console.print(draw(headings, found), soft_wrap=True)
    least = f"{LEAST_CHANGE:.0%}"
    console.print(escape(f"iogauge: {len(changes)} change(s) of {least} or more"))
    return 0
