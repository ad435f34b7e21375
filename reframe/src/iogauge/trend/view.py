"""Show the states of series as tables and JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime
from typing import Any, Final

from rich.markup import escape
from rich.table import Table

from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.evidence import fingerprint
from iogauge.records.record import short_name
from iogauge.trend import detector
from iogauge.trend.states import LEAST, Judged, LevelChange, State

#: States that are shown.
_STYLE: Final = {
    State.ALARM: "bold red",
    State.IMPROVED: "green",
    State.RECOVERED: "cyan",
}

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


def table(judged: Sequence[Judged], fingerprints: Fingerprints) -> Table:
    """Return a table of the series to look at, surest alarms first; escapes text from outside."""
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
    for series in sorted(
        judged, key=lambda series: (list(State).index(series.state), series.false_alarms)
    ):
        if style := _STYLE.get(series.state):
            change = series.change
            view.add_row(
                f"[{style}]{series.state.value}[/]",
                *_name_cells(series),
                "-"
                if series.level is None
                else f"{format_value(series.level)} {escape(visible(series.unit))}",
                "-" if change is None else _size(change),
                _since(change, series.recovered),
                _chance(series.false_alarms),
                "-"
                if change is None
                else escape(visible("; ".join(changed_keys(change, fingerprints))) or "-"),
            )
        if series.started is not None and series.started.certain:
            view.add_row(
                "changed with",
                *_name_cells(series),
                "-",
                _size(series.started),
                _since(series.started, None),
                "-",
                escape(
                    visible("; ".join(changed_keys(series.started, fingerprints))) or "the series"
                ),
            )
    return view


def _name_cells(series: Judged) -> tuple[str, str, str]:
    return (
        escape(visible(f"{series.system}:{series.partition}")),
        escape(visible(short_name(series.case))),
        escape(visible(series.metric)),
    )


def _size(change: LevelChange) -> str:
    return f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%})"


def _since(change: LevelChange | None, recovered: datetime | None) -> str:
    if change is not None:
        return f"{change.time:%Y-%m-%d} {escape(visible(change.session))}"
    return f"alarm until {recovered:%Y-%m-%d}" if recovered else "-"


def _chance(share: float) -> str:
    return "< 0.01 %" if share < 1e-4 else f"{share:.2%}"


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
        f"by chance, if all {count} judged were stable: at most {count * detector.per_run(false_alarms):.2g} "
        f"new alarm(s) a run, {count * false_alarms:.2g} in {detector.HORIZON} runs"
    )
