"""States of series, as tables and JSON."""

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
from iogauge.trend.states import LEAST, Change, Judged, State

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
        f"by chance, if all {judged} judged were stable: at most {judged * detector.per_run(false_alarms):.2g} "
        f"new alarm(s) a run, {judged * false_alarms:.2g} in {detector.HORIZON} runs"
    )
