"""Read a history, judge its series and show them: ``iogauge trend``."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Final

import numpy as np
import polars as pl
from rich.console import Console, RenderableType
from rich.markup import escape

from iogauge.core.units import format_value
from iogauge.records import query
from iogauge.records.record import short_name
from iogauge.trend.offline import LEAST_CHANGE, METHODS
from iogauge.trend.states import HEAD, State, newest_series, states_of
from iogauge.trend.view import (
    HEADINGS,
    chance,
    fingerprint_ids,
    rows,
    summary,
    to_json,
    too_few_runs,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Options of ``iogauge trend``; an empty text and None restrict nothing."""

    system: str
    name: str
    since: datetime | None
    baseline: int
    false_alarms: float
    offline: bool
    method: str
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


def command(console: Console, folder: Path, question: Question, draw: Draw) -> int:
    """Judge the history below a folder and print the result.

    Returns the exit status: 1 for an alarm. Raises ValueError for an option that makes no sense,
    and :class:`MissingExtra` if the method's package is missing.
    """
    if question.method not in METHODS:
        raise ValueError(f"method {question.method!r}: expected {' or '.join(METHODS)}")
    try:
        re.compile(question.name)
    except re.error as error:
        raise ValueError(f"--name {question.name!r} is no regular expression: {error}") from error
    frame = query.load(folder, columns=_COLUMNS)
    if question.system:
        frame = frame.filter(pl.col("system") == question.system)
    if question.since:
        frame = frame.filter(pl.col("time") >= question.since)
    if question.name:
        cases = [c for c in frame["case"].unique() if c and re.search(question.name, c)]
        frame = frame.filter(pl.col("case").is_in(cases))
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
        points = METHODS[question.method](values)
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
