"""Troubles that records show: failures, noise, what is absent, and what is damaged."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from iogauge.core.units import format_value, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record
from iogauge.report.endings import SessionRecords
from iogauge.report.outcome import measured, same_fault
from iogauge.report.ranking import Rank, dead_targets, loss_of, rank_of
from iogauge_extras.page.charts import Run
from iogauge_extras.page.drifts import trend_words
from iogauge_extras.page.past import UNCHANGED, History, circumstances, utc_minute
from iogauge_extras.page.trouble import Trouble

#: A metric that is not in order; None for a case that no metric explains.
Bad = MetricRecord | None


def of_records(records: SessionRecords, history: History) -> list[Trouble]:
    """Return the troubles of the records that count, also of those that fail a gate only."""
    counted = [record for record in records if records.counts(record)]
    dead = dead_targets(counted)
    named: set[tuple[str, str]] = set()
    troubles = []
    # A failure is named once: by its newest run.
    for record in reversed(counted):
        for metric in _bad_metrics(record):
            trouble = _plain(record, metric, dead)
            key = (record.line, trouble.metric)
            if trouble.rank.is_noise:
                trouble = replace(trouble, cause=circumstances("", record))
            elif key in named:
                continue
            else:
                named.add(key)
                trouble = _since(trouble, record, metric, history)
                repeats = _repeats(counted, record, trouble.metric)
                trouble = replace(trouble, repeats=repeats)
            troubles.append(trouble)
    return troubles[::-1]


def _bad_metrics(record: Record) -> Iterator[Bad]:
    """Yield what is not in order, the last metric first."""
    explained = False
    for metric in reversed(record.metrics):
        if metric.is_trouble(gate=True) and same_fault(record, metric) is metric:
            explained = True
            yield metric
    if not explained and record.verdict.is_trouble(gate=True):
        yield None


def _plain(record: Record, metric: Bad, dead: Collection[str]) -> Trouble:
    """Return what the record alone says."""
    bad = metric or record
    name = metric.name if metric else ""
    remedies: dict[str, None] = {}
    for finding in record.findings:
        concerned = not name or finding.metric in (None, name)
        if concerned and finding.remedy and finding.objects(bad.verdict):
            remedies[f"{finding.name}: {finding.remedy}"] = None
    return Trouble(
        kind=bad.verdict.value,
        rank=rank_of(record, bad.verdict, dead),
        where=record.where,
        case=record.short_name,
        metric=name,
        reason=bad.reason,
        remedy="; ".join(remedies),
    )


def _since(trouble: Trouble, record: Record, metric: Bad, history: History) -> Trouble:
    """Return a trouble with what the history says: since when, why, how much."""
    runs = history.runs(record.line, trouble.metric)
    since, cause, begin = _begin(runs, Verdict(trouble.kind), history)
    failed = trouble.kind == Verdict.FAIL.value
    if failed:
        cause = circumstances(cause, record)
    elif cause == UNCHANGED:  # the reason says more than that
        cause = ""
    trouble = replace(trouble, since=since, cause=cause)
    if metric is None:
        return trouble
    value = measured(metric)
    if failed:
        value += _against(metric)
        trouble = replace(
            trouble, reason="", loss=loss_of(metric), guilty=metric.notes or ""
        )
    series = history.judged.get((record.line, metric.name))
    if series and series.change:
        trouble = replace(trouble, trend=trend_words(series.change, series.unit))
    if runs:  # none of a record that the history takes for damaged
        curve = history.curve(record.line, metric.name, begin)
        trouble = replace(trouble, curve=curve)
    return replace(trouble, measured=value, expected=_expectation(metric))


def _repeats(records: Sequence[Record], bad: Record, name: str) -> str:
    """Return how many runs of a case in one session passed; empty if there was one run."""
    verdicts = []
    for record in records:
        if (record.session, record.line) == (bad.session, bad.line):
            found = [m.verdict for m in record.metrics if m.name == name]
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


def _begin(
    runs: Sequence[Run], verdict: Verdict, history: History
) -> tuple[str, str, datetime | None]:
    """Return since when the runs, oldest first, have a verdict.

    That is the first bad run and the last PASS in words, what changed between them, and the time of the first bad run.
    """
    before = list(runs)
    while before and before[-1].verdict is verdict:
        before.pop()
    bad = runs[len(before) :]
    if not bad:
        return "", "", None
    first = bad[0]
    text = f"{utc_minute(first.time)}, session {first.session}"
    if len(bad) > 1:
        text += f", {len(bad)} runs in a row"
    verdicts = [run.verdict for run in before]
    if Verdict.PASS not in verdicts:
        valid = verdicts.count(Verdict.UNREFERENCED)
        known = "no PASS in the history"
        if valid:
            known = f"before that {valid} valid run(s) without a reference"
        return f"{text}; {known}", "", first.time
    while before[-1].verdict is not Verdict.PASS:
        before.pop()
    last = before[-1]
    text += f"; the last PASS: {utc_minute(last.time)}"
    if last.value and (last.metric, last.unit) == (first.metric, first.unit):
        text += f" with {with_unit(last.value, last.unit)}"
    cause = history.changed(last.fingerprint, first.fingerprint)
    return text, cause, first.time


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
