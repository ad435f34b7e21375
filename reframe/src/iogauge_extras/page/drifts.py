"""Troubles that the history alone shows: what has become worse, and what fell before there is a trend."""

import statistics
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final

from iogauge.core.units import with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records.record import (
    MetricRecord,
    Record,
    operations_of,
)
from iogauge.report.outcome import measured
from iogauge.report.ranking import Rank
from iogauge_extras.history.states import Judged, LevelChange
from iogauge_extras.page.past import UNCHANGED, History, circumstances, utc_minute
from iogauge_extras.page.trouble import DRIFT, Trouble


def of_trend(
    history: History, failing: Collection[tuple[str, str]]
) -> Iterator[Trouble]:
    """Yield a trouble for each series that has become worse, unless its line and metric are ``failing``."""
    worse = [series for series in history.judged.values() if series.change]
    known = {*failing, *((series.line, series.metric) for series in worse)}
    for series in worse:
        key = (series.line, series.metric)
        is_known = key in failing
        if key in history.repeats:
            is_known |= (series.line, operations_of(series.metric)) in known
        if series.change and not is_known:
            yield _of_change(series, series.change, history)


def trend_words(change: LevelChange, unit: str) -> str:
    """Return the size of a change, with its interval, the level before it, and its begin."""
    return (
        f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%}) against the level of "
        f"{with_unit(change.level, unit)} since {utc_minute(change.time)}, session {change.session}"
    )


def _of_change(series: Judged, change: LevelChange, history: History) -> Trouble:
    newest = history.newest[series.line]
    curve = history.curve(series.line, series.metric)
    last = curve.points[-1].value
    rank, reason = Rank.DRIFT, ""
    # Nearer to the level than to a third of the loss.
    if abs(last / change.level - 1) < abs(change.share) / 3:
        rank = Rank.BACK
        reason = "back at its level in the newest run; the alarm stands until more runs are good"
    cause = UNCHANGED
    if change.before is not None:
        cause = history.changed(change.before, change.after)
    return Trouble(
        kind=DRIFT,
        rank=rank,
        loss=abs(change.share),
        where=newest.where,
        case=newest.short_name,
        metric=series.metric,
        measured=f"{with_unit(last, series.unit)}, {change.share:+.1%} against its level",
        expected=f"level of {with_unit(change.level, series.unit)}",
        reason=reason,
        since=f"{utc_minute(change.time)}, session {change.session}",
        trend=trend_words(change, series.unit),
        cause=circumstances(cause, newest),
        curve=curve,
    )


#: Valid runs before one that counts as a fall although there are too few for a trend, and the loss that is one. A run of
#: healthy noise falls so in less than 1 of 1000 (normal, Laplace, correlated).
_FALL_AFTER: Final = 5
_FALL_LOSS: Final = 0.25


def of_falls(records: Iterable[Record], history: History) -> Iterator[Trouble]:
    """Yield a trouble for each metric that fell in a series which is too short for a trend."""
    for record in records:
        for metric in record.metrics:
            before = _valid_before(record, metric, history)
            if not fell(metric.median, before, metric.better):
                continue
            level = statistics.median(before)
            yield Trouble(
                kind=DRIFT,
                rank=Rank.DRIFT,
                loss=abs(metric.median / level - 1),
                cause=circumstances(UNCHANGED, record),
                where=record.where,
                case=record.short_name,
                metric=metric.name,
                measured=f"{measured(metric)}, {metric.median / level - 1:+.1%}, worse than in every run before",
                expected=f"level of {with_unit(level, metric.unit)}, of {len(before)} runs",
                since=f"{record.minute} UTC, session {record.session}",
                curve=history.curve(record.line, metric.name),
            )


def _valid_before(
    record: Record, metric: MetricRecord, history: History
) -> list[float]:
    """Return the valid values of a metric before a record, in a series without a reference that is too short for a trend."""
    key = (record.line, metric.name)
    series = history.judged.get(key)
    values: list[float] = []
    if series is None or not series.few or key in history.repeats:
        return values
    if metric.verdict is not Verdict.UNREFERENCED:
        return values
    for run in history.runs(record.line, metric.name):
        if run.session == record.session:
            break
        valid = run.verdict is Verdict.UNREFERENCED
        if valid and run.series == series.series:
            values.append(run.value)
    return values


def fell(value: float, before: Sequence[float], better: str) -> bool:
    """Return whether a value is worse than all before it, by a quarter and by more than they differ.

    Needs 5 values. Differences are ratios; ``better`` is "more" or "less".
    """
    if len(before) < _FALL_AFTER or min(value, *before) <= 0:
        return False
    if better == "less":
        value = 1 / value
        before = [1 / level for level in before]
    least = min(before)
    return value < least * min(least / max(before), 1 - _FALL_LOSS)
