"""The states of a history as text or JSON: ``iogauge status --trend``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from iogauge.cli.screen import say, show
from iogauge.core.paths import history_dir
from iogauge.core.text import visible
from iogauge.core.units import with_unit
from iogauge.evidence import fingerprint
from iogauge.records import query
from iogauge.records.record import short_name
from iogauge.report.layout import Table, columns
from iogauge_extras.history import statistics
from iogauge_extras.history.states import (
    LEAST,
    Judged,
    LevelChange,
    State,
    states_of,
)

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
    changes = [
        c for series in judged for c in (series.change, series.started) if c is not None
    ]
    return {
        i for change in changes for i in (change.before, change.after) if i is not None
    }


def to_json(judged: Sequence[Judged], fingerprints: Fingerprints) -> str:
    """Return the states as a JSON array; shares are of the old value, times ISO 8601 in UTC."""

    def plain(change: LevelChange | None) -> dict[str, Any] | None:
        if change is None:
            return None
        more = {
            "time": change.time.isoformat(),
            "changed": changed_keys(change, fingerprints),
        }
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


def rows(
    judged: Sequence[Judged], fingerprints: Fingerprints
) -> dict[str, list[tuple[str, ...]]]:
    """Return the facts to look at by system and partition, surest alarms first.

    A bandwidth that repeats operations per second has a row with its level, which continues theirs.
    """
    found: dict[str, list[tuple[str, ...]]] = {}
    for series, *others in sorted(
        facts(judged),
        key=lambda fact: (list(State).index(fact[0].state), fact[0].false_alarms),
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
            here += [
                ("", other.metric, "", _level(other), "", "", "", "")
                for other in others
            ]
    return {place: lines for place, lines in found.items() if lines}


def facts(judged: Sequence[Judged]) -> list[list[Judged]]:
    """Return each series with those that repeat it, in the order of the first ones."""
    found = {(s.line, s.metric): [s] for s in judged if not s.repeats}
    for series in judged:
        if series.repeats:
            found[series.line, series.repeats].append(series)
    return list(found.values())


def _level(series: Judged) -> str:
    return "-" if series.level is None else with_unit(series.level, series.unit)


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
    counts = [
        (state.value, sum(series.state is state for series in counted))
        for state in State
    ]
    return f"{len(counted)} series: " + (
        ", ".join(f"{n} {word}" for word, n in counts if n) or "none"
    )


def chance(judged: Sequence[Judged], false_alarms: float) -> str:
    """Say how many alarms chance alone raises in the judged series; returns "" without any.

    A series that repeats another one raises no alarm of its own.
    """
    count = sum(
        series.state is not State.FEW and not series.repeats for series in judged
    )
    if not count:
        return ""
    return (
        f"if nothing changes, chance alone raises at most {count * statistics.per_run(false_alarms):.2g} "
        f"new alarm(s) a run and {count * false_alarms:.2g} in {statistics.HORIZON} runs ({count} series)"
    )


#: At most this many series with too few runs are named.
_NAMED: Final = 10


def show_trend(
    system: str,
    name: str,
    since: datetime | None,
    false_alarms: float,
    as_json: bool,
    wide: bool,
) -> int:
    """Judge the history and print the result; an empty text and None restrict nothing.

    Returns the exit status: 1 for an alarm. Raises ValueError for an option that makes no sense.
    """
    choice = query.Choice(system=system, name=name, since=since)
    with closing(query.connect(history_dir())) as history:
        judged = states_of(history, choice, false_alarms=false_alarms)
        fingerprints = query.fingerprints(history, fingerprint_ids(judged))
    if as_json:
        print(to_json(judged, fingerprints))
    else:
        if shown := rows(judged, fingerprints):
            headings = columns(*HEADINGS, whole=("metric",))
            show(Table(headings, shown, wide=wide))
        too_few = too_few_runs(judged)
        for line in too_few[:_NAMED]:
            say(line)
        if len(too_few) > _NAMED:
            say(f"and {len(too_few) - _NAMED} more with too few runs")
        say(f"iogauge: {summary(judged)}")
        if words := chance(judged, false_alarms):
            say(words)
    return 1 if any(series.state is State.ALARM for series in judged) else 0
