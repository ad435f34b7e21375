"""Say the states of series as rows of text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.evidence import fingerprint
from iogauge.records.record import short_name
from iogauge.trend import detector
from iogauge.trend.states import LEAST, Judged, LevelChange, State

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
    """Return the series to look at by system and partition, surest alarms first."""
    found: dict[str, list[tuple[str, ...]]] = {}
    for series in sorted(
        judged, key=lambda series: (list(State).index(series.state), series.false_alarms)
    ):
        here = found.setdefault(f"{series.system}:{series.partition}", [])
        name, change = (short_name(series.case), series.metric), series.change
        if series.state in _SHOWN:
            was = "-" if series.level is None else f"{format_value(series.level)} {series.unit}"
            here.append(
                (
                    *(*name, series.state.value, was),
                    "-" if change is None else _size(change),
                    _since(change, series.recovered),
                    _chance(series.false_alarms),
                    _changed(change, fingerprints) or "-",
                )
            )
        if series.started is not None and series.started.certain:
            size, since = _size(series.started), _since(series.started, None)
            why = _changed(series.started, fingerprints) or "the series"
            here.append((*name, "changed with", "-", size, since, "-", why))
    return {place: lines for place, lines in found.items() if lines}


def _changed(change: LevelChange | None, fingerprints: Fingerprints) -> str:
    return "; ".join(changed_keys(change, fingerprints)) if change else ""


def _size(change: LevelChange) -> str:
    return f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%})"


def _since(change: LevelChange | None, recovered: datetime | None) -> str:
    if change is not None:
        return f"{change.time:%Y-%m-%d} {change.session}"
    return f"alarm until {recovered:%Y-%m-%d}" if recovered else "-"


def _chance(share: float) -> str:
    return "1 of > 10000" if share < 1e-4 else f"1 of {1 / share:.0f}"


def too_few_runs(judged: Sequence[Judged]) -> list[str]:
    """Return a line for each series with too few runs.

    For example ``case metric: 7 of 20 runs of a baseline``.
    """
    return [
        visible(
            f"{series.system}:{series.partition} {short_name(series.case)} {series.metric}: "
            f"{series.runs} of {LEAST} runs of a baseline"
        )
        for series in judged
        if series.state is State.FEW
    ]


def summary(judged: Sequence[Judged]) -> str:
    """Return the number of series by state: ``12 series: 1 alarm, 11 steady``."""
    counts = [(state.value, sum(series.state is state for series in judged)) for state in State]
    return f"{len(judged)} series: " + (
        ", ".join(f"{n} {word}" for word, n in counts if n) or "none"
    )


def chance(judged: Sequence[Judged], false_alarms: float) -> str:
    """Say how many alarms chance alone raises in the judged series; returns "" without any."""
    count = sum(series.state is not State.FEW for series in judged)
    if not count:
        return ""
    return (
        f"if nothing changes, chance alone raises at most {count * detector.per_run(false_alarms):.2g} "
        f"new alarm(s) a run and {count * false_alarms:.2g} in {detector.HORIZON} runs ({count} series)"
    )
