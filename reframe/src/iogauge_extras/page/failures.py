"""Troubles that records show: failures, noise, what is absent, and what is damaged."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import takewhile
from typing import Any

from iogauge.core.units import format_value, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record
from iogauge.report.endings import SessionRecords
from iogauge.report.outcome import measured, same_fault
from iogauge.report.ranking import Rank, dead_targets, loss_of, rank_of
from iogauge_extras.page.drifts import trend_words
from iogauge_extras.page.past import UNCHANGED, History, circumstances, utc_minute
from iogauge_extras.page.trouble import Trouble


@dataclass(frozen=True, slots=True)
class _Bad:
    """A metric that is not in order, or a case that no metric explains."""

    record: Record
    #: None for a case.
    metric: MetricRecord | None
    #: Name of the metric; empty for a case.
    name: str
    verdict: Verdict
    reason: str


def of_records(records: SessionRecords, history: History) -> list[Trouble]:
    """Return the troubles of the records that count, also of those that fail a gate only."""
    counted = [record for record in records if records.counts(record)]
    dead = dead_targets(counted)
    named: set[tuple[str, str]] = set()
    troubles = []
    # A failure is named once: by its newest run.
    for record in reversed(counted):
        for bad in _bad_metrics(record):
            rank = rank_of(record, bad.verdict, dead)
            key = (record.line, bad.name)
            if rank.is_noise:
                cause = circumstances("", record)
                troubles.append(replace(_plain(bad), rank=rank, cause=cause))
            elif key not in named:
                named.add(key)
                repeats = _repeats(counted, bad)
                trouble = _of_failure(bad, history)
                troubles.append(replace(trouble, rank=rank, repeats=repeats))
    return troubles[::-1]


def _bad_metrics(record: Record) -> Iterator[_Bad]:
    """Yield what is not in order, the last metric first."""
    explained = False
    for metric in reversed(record.metrics):
        if metric.is_trouble(gate=True) and same_fault(record, metric) is metric:
            explained = True
            yield _Bad(record, metric, metric.name, metric.verdict, metric.reason)
    if not explained and record.is_trouble(gate=True):
        yield _Bad(record, None, "", record.verdict, record.reason)


def _plain(bad: _Bad) -> Trouble:
    """Return what the record alone says."""
    remedies: dict[str, None] = {}
    for finding in bad.record.findings:
        concerned = not bad.name or finding.metric in (None, bad.name)
        if concerned and finding.remedy and finding.objects(bad.verdict):
            remedies[f"{finding.name}: {finding.remedy}"] = None
    return Trouble(
        kind=bad.verdict.value,
        where=bad.record.where,
        case=bad.record.short_name,
        metric=bad.name,
        reason=bad.reason,
        remedy="; ".join(remedies),
    )


def _of_failure(bad: _Bad, history: History) -> Trouble:
    """Return what the record and the history say."""
    record, metric = bad.record, bad.metric
    trouble = _plain(bad)
    runs = history.runs(record.line, bad.name)
    begin = _begin(runs, bad.verdict, history)
    cause = begin.cause
    if bad.verdict is Verdict.FAIL:
        cause = circumstances(cause, record)
    elif cause == UNCHANGED:  # the reason says more than that
        cause = ""
    trouble = replace(trouble, since=begin.since, cause=cause)
    if metric is None:
        return trouble
    value = measured(metric)
    if bad.verdict is Verdict.FAIL:
        value += _against(metric)
        trouble = replace(
            trouble, reason="", loss=loss_of(metric), guilty=metric.notes or ""
        )
    series = history.judged.get((record.line, bad.name))
    if series and series.change:
        trouble = replace(trouble, trend=trend_words(series.change, series.unit))
    if runs:  # none of a record that the history takes for damaged
        curve = history.curve(record.line, bad.name, begin.time)
        trouble = replace(trouble, curve=curve)
    return replace(trouble, measured=value, expected=_expectation(metric))


def _repeats(records: Sequence[Record], bad: _Bad) -> str:
    """Return how many runs of a case in one session passed; empty if there was one run."""
    session, line = bad.record.session, bad.record.line
    verdicts = []
    for record in records:
        if (record.session, record.line) == (session, line):
            found = [m.verdict for m in record.metrics if m.name == bad.name]
            verdicts += found or [record.verdict]
    if len(verdicts) < 2:
        return ""
    passed = verdicts.count(Verdict.PASS)
    return f"{passed} of {len(verdicts)} runs of this session passed"


def _against(metric: MetricRecord) -> str:
    """Return how far a metric is from its reference: ``, 29.8% below its reference``; empty without one."""
    if metric.reference is None:
        return ""
    share = metric.median / metric.reference.value - 1
    side = "above"
    if share < 0:
        side = "below"
    return f", {abs(share):.1%} {side} its reference"


def _expectation(metric: MetricRecord) -> str:
    reference = metric.reference
    if reference is None:
        return ""
    text = f"reference {with_unit(reference.value, metric.unit)}"
    for words, bound in (("least", reference.least), ("most", reference.most)):
        if bound is not None:
            text += f", at {words} {format_value(bound)}"
    if reference.source:
        text += f" ({reference.source})"
    return text


@dataclass(frozen=True, slots=True)
class _Begin:
    """Since when a verdict holds."""

    #: First bad run and last PASS, in words; empty if the history has no run of that verdict.
    since: str = ""
    #: What changed between the last PASS and the first bad run.
    cause: str = ""
    #: Time of the first bad run.
    time: datetime | None = None


def _begin(
    runs: Sequence[dict[str, Any]], verdict: Verdict, history: History
) -> _Begin:
    """Return since when the runs have a verdict, oldest run first."""
    verdicts = [run["metric_verdict"] for run in runs]
    bad = len(list(takewhile(verdict.value.__eq__, reversed(verdicts))))
    if not bad:
        return _Begin()
    first, before = runs[-bad], runs[:-bad]
    text = f"{utc_minute(first['time'])}, session {first['session']}"
    if bad > 1:
        text += f", {bad} runs in a row"
    passed = [run for run in before if run["metric_verdict"] == Verdict.PASS.value]
    if not passed:
        valid = verdicts[:-bad].count(Verdict.UNREFERENCED.value)
        if valid:
            text += f"; before that {valid} valid run(s) without a reference"
        else:
            text += "; no PASS in the history"
        return _Begin(text, "", first["time"])
    last = passed[-1]
    text += f"; the last PASS: {utc_minute(last['time'])}"
    same = (last["metric"], last["unit"]) == (first["metric"], first["unit"])
    if last["median"] is not None and same:
        text += f" with {with_unit(last['median'], last['unit'])}"
    cause = history.changed(last["fingerprint"], first["fingerprint"])
    return _Begin(text, cause, first["time"])


def of_absent(records: Iterable[Record], expected: Iterable[str]) -> Iterator[Trouble]:
    """Yield a trouble for each expected partition without a record."""
    measured_on = {record.where for record in records}
    for partition in dict.fromkeys(expected):
        if partition not in measured_on:
            yield Trouble(
                kind=Verdict.ERROR.value,
                rank=Rank.DEAD_TARGET,
                where=partition,
                reason="nothing was measured here: the run did not begin, or selected no case; see the job's log",
            )


def of_damage(damaged: journal.Damaged) -> Trouble:
    """Return the trouble of a line that is not a record."""
    return Trouble(
        kind=Verdict.ERROR.value,
        where=f"{damaged.file.parent.name}: {damaged.file.stem}",
        reason=f"line {damaged.line} is no record: {damaged.problem}",
    )
