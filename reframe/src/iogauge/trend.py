"""Has a metric become worse than it was, since when, by how much, how sure is that, and what had changed?

Judges every metric of every line of the history by :mod:`iogauge.changepoint`, and shows what it found. What a
metric is judged by is the logarithm of its value, signed so that more is better.
"""

from __future__ import annotations

import json
import math
import re
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
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from iogauge import changepoint, fingerprint, history
from iogauge.changepoint import Counts, Doubles
from iogauge.derive import VALID
from iogauge.report import short_name
from iogauge.units import format_value, visible

#: Runs at the beginning of a series with which later ones are compared.
BASELINE: Final = 30
#: As few as that do as long as there are not more; below, nothing is judged.
LEAST: Final = 20


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


# The history.


@dataclass(frozen=True, slots=True)
class _Series:
    """Rows of the newest series of each key, and of the one before it: positions in the sorted columns."""

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
    before[group[older]] = series[older]  # the last assignment wins: the series that ended last
    return _Series(*pack(newest), *pack(~newest & (series == before[group])))


def judge(
    frame: pl.DataFrame, *, baseline: int = BASELINE, false_alarms: float = changepoint.FALSE_ALARMS
) -> list[Judged]:
    """Every metric of every line in a frame as ``history.load`` gives it, judged by its newest series.

    Runs count where their value is valid (PASS, FAIL, UNREFERENCED), confirms no other run, and has the newest
    run's unit. The first
    ``baseline`` runs are the baseline, or the first 20 as long as there are no more than that. Raises
    ValueError for a baseline below 20, and as :func:`changepoint.check_share` does.
    """
    if baseline < LEAST:
        raise ValueError(f"baseline of {baseline} runs: expected {LEAST} at least")
    changepoint.check_share(false_alarms)
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
    order: Counts
    values: Doubles
    sign: Doubles

    def cell(self, column: str, place: int) -> Any:
        return self.frame[column][int(self.order[place])]


def _valid(frame: pl.DataFrame) -> pl.DataFrame:
    """Rows that count in statistics: valid, and no confirmation, which a failure on the same day chose."""
    return frame.filter(
        pl.col("confirms").is_null(),
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
    table: _Rows, split: _Series, chosen: Counts, baseline: int, false_alarms: float
) -> Iterator[tuple[int, dict[str, Any]]]:
    """Judge some keys together: rows of one matrix, padded at the end."""
    count = split.count[chosen]
    at = np.minimum(np.arange(count.max()), count[:, None] - 1)
    places = split.current[split.start[chosen][:, None] + at]
    values = table.values[places]
    found = changepoint.evidence(values, baseline)
    limit = changepoint.limits(found.scale, values.shape[1] - baseline, false_alarms)
    down = changepoint.alarms(found.loss, limit, count - baseline)
    up = changepoint.alarms(found.gain, limit, count - baseline)
    worse = down.first >= 0
    changed = np.flatnonzero(worse | (up.first >= 0))
    flip = np.where(worse, 1.0, -1.0)
    raised = baseline + np.where(worse, down.first, up.first)
    begins = {
        int(row): changepoint.onset(
            flip[row] * values[row, : count[row]],
            flip[row] * found.location[row],
            found.scale[row],
            begin=baseline,
            end=int(raised[row]),
        )
        for row in changed
    }
    first = np.array([begins[int(row)] for row in changed], np.intp)
    sizes = changepoint.step(values[changed], first, count[changed])
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
                "false_alarms": changepoint.share_of(float(side.excess[row]), false_alarms),
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
    sizes = changepoint.step(table.values[places], old, old + new)
    changes = _changes(table, places, old, old + new, sizes)
    units = table.frame["unit"].to_numpy()[table.order]
    same = units[places[np.arange(len(keys)), old - 1]] == units[places[np.arange(len(keys)), old]]
    return {int(key): change for key, change, fits in zip(keys, changes, same, strict=True) if fits}


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
    """What is to be looked at, alarms and the surest of them first; text from outside is escaped."""
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
    for one in sorted(found, key=lambda one: (list(State).index(one.state), one.false_alarms)):
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


def chance(found: Sequence[Judged], false_alarms: float) -> str:
    """How many alarms chance alone raises in the series that were judged; empty where none was."""
    judged = sum(one.state is not State.FEW for one in found)
    if not judged:
        return ""
    return (
        f"by chance, if all {judged} judged were stable: at most {judged * changepoint.per_run(false_alarms):.2g} "
        f"new alarm(s) a run, {judged * false_alarms:.2g} in {changepoint.HORIZON} runs"
    )


# The command.


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Options of ``iogauge trend``; an empty text and None do not restrict."""

    system: str
    name: str
    since: datetime | None
    baseline: int
    false_alarms: float
    offline: bool
    method: str
    as_json: bool


#: Methods of the offline view.
METHODS: Final[dict[str, Callable[[Sequence[float]], list[int]]]] = {
    "binary": changepoint.change_points,
    "otava": changepoint.change_points_otava,
}
_COLUMNS: Final = (
    *_HEAD,
    "time",
    "session",
    "median",
    "metric_verdict",
    "fingerprint",
    "confirms",
)
#: Series with too few runs that are named.
_NAMED: Final = 10


def command(console: Console, folder: Path, asked: Question) -> int:
    """Judge the history below a folder and print what was found; returns the exit status, 1 for an alarm.

    Raises ValueError for an option that makes no sense, :class:`changepoint.MissingExtra` where the method's package is missing.
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
        frame = frame.filter(pl.col("time") >= asked.since)
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
        if words := chance(found, asked.false_alarms):
            console.print(escape(words), soft_wrap=True)
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
    least = f"{changepoint.LEAST_CHANGE:.0%}"
    console.print(escape(f"iogauge: {len(rows)} change(s) of {least} or more"))
    return 0
