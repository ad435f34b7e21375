"""What somebody must be told after a run, in words that need no context: what failed and what became worse.

:func:`collect` reads the records of the sessions and the history. :mod:`iogauge_extras.page.receivers`
sends it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, visible
from iogauge.core.units import format_value, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record, short_name
from iogauge.records.selected import Unmeasured
from iogauge.report.endings import UNPROVEN, Ending, SessionRecords, Word, of_damage
from iogauge.report.layout import GRAVEST
from iogauge.report.outcome import measured, same_fault
from iogauge_extras.history.shown import one_of
from iogauge_extras.history.states import Judged, State
from iogauge_extras.page.charts import Curve, bars
from iogauge_extras.page.past import ALWAYS, UNCHANGED, History, Span

#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a line of bars.
BARS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text becomes safe for a terminal.

    ``kind`` is a verdict, or :data:`DRIFT`. A text is empty if there is nothing to say. ``curve``
    is None if the metric has no valid run.
    """

    kind: str
    where: str
    case: str
    metric: str = ""
    measured: str = ""
    expected: str = ""
    reason: str = ""
    guilty: str = ""
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    curve: Curve | None = None

    def __post_init__(self) -> None:
        """Make the texts safe."""
        for name in _TEXTS:
            object.__setattr__(self, name, visible(getattr(self, name)))

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        name = " ".join(
            word for word in (self.kind, self.where, self.case, self.metric) if word
        )
        value = self.measured or self.reason
        return f"{name}: {value}" if value else name

    @property
    def brief(self) -> str:
        """Return a few words: ``write_bw 29.8 % below its reference``, ``DRIFT read_bw 12 % worse``."""
        if self.kind == DRIFT:
            if self.reason:
                return f"{DRIFT} {self.metric}: {self.reason}"
            return f"{DRIFT} {self.metric} {self.trend.partition(' (')[0]} since {self.since[:10]}"
        if self.kind == Verdict.FAIL.value and self.metric:
            return (
                self.guilty.partition(";")[0]
                or f"{self.metric} {self.measured.rpartition(', ')[2]}"
            )
        return ""

    @property
    def gist(self) -> str:
        """Return case and few words: ``mysite:scratch IorPosix shared direct: DRIFT read_bw -24.2% since 2027-01-31``."""
        return (
            f"{self.where} {self.case}: {self.brief}" if self.brief else self.headline
        )

    @property
    def facts(self) -> dict[str, str]:
        """Return what is known beside the headline, by name; a remedy that the reason has is left out."""
        told = all(
            (one.partition(": ")[2] or one) in self.reason
            for one in self.remedy.split("; ")
        )
        facts = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "guilty": self.guilty,
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": "" if told else self.remedy,
        }
        return {name: text for name, text in facts.items() if text}

    @property
    def paragraph(self) -> str:
        """Return the headline, and a line for each known fact."""
        facts = self.facts | ({"runs": bars(self.curve, BARS)} if self.curve else {})
        return "\n".join(
            [self.headline, *(f"  {n + ':':<10}{text}" for n, text in facts.items())]
        )

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        unit, runs = (
            (self.curve.unit, self.curve.points[-BARS:]) if self.curve else ("", ())
        )
        facts = {name: getattr(self, name) for name in _TEXTS}
        return facts | {"unit": unit, "runs": [run.value for run in runs]}


_TEXTS: Final = tuple(one.name for one in fields(Trouble) if one.name != "curve")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The state of some sessions; the ending may be FAILED without any trouble.

    ``missing`` counts what was asked for and has no record.
    """

    sessions: tuple[str, ...]
    systems: tuple[str, ...]
    ending: Ending
    troubles: tuple[Trouble, ...]
    history: History | None = None
    missing: int = 0

    @property
    def failed(self) -> bool:
        """Return whether somebody must be told."""
        return bool(self.ending.status)

    @property
    def title(self) -> str:
        """Return one line that sums up the sessions."""
        return f"iogauge {', '.join(self.systems) or '-'}: {self.ending}"

    @property
    def text(self) -> str:
        """Return the title, what was not run, and a paragraph for each trouble."""
        title = "\n".join([self.title, *self.ending.remarks])
        return "\n\n".join([title, *(trouble.paragraph for trouble in self.troubles)])


#: What ``iogauge alarm --test`` sends.
TEST: Final = Alarm(
    sessions=(),
    systems=("test",),
    ending=Ending(Word.OK, "a test of the alarm's way, nothing has happened"),
    troubles=(),
)


def collect(
    folder: Path,
    records: SessionRecords,
    *,
    gate: bool,
    expected: Iterable[str] = (),
    damaged: Sequence[journal.Damaged] = (),
    unmeasured: Unmeasured | None = None,
    span: Span = ALWAYS,
) -> Alarm:
    """Return what the records of some sessions, and the trend of what they measured, have to say.

    ``folder`` is the history. ``expected`` are partitions (``system:partition``) that must have
    been measured. ``damaged`` are lines of the sessions that are not records: each is a trouble,
    since it may have been one. In a gate everything but PASS is a trouble. Failures that a second
    run refuted are not, nor are those that a reference says to expect. ``unmeasured`` is what the
    sessions were asked for and did not measure. ``span`` is the part of the history that counts.
    """
    history = History(folder, records, span)
    named: set[tuple[str, str]] = set()
    failures = _of_records(records, history, gate, named)
    drifts = [*_of_trend(history, named), *_of_falls(records, history)]
    absent = _of_absent(records, expected)
    lack = unmeasured or Unmeasured()
    damage = [_of_damage(line) for line in damaged]
    troubles = _gravest_first([*failures, *drifts, *absent, *damage])
    problems = [
        *([f"{len(drifts)} metric(s) have become worse ({DRIFT})"] if drifts else []),
        *(f"nothing was measured on {trouble.where}" for trouble in absent),
        *of_damage(damaged),
    ]
    ending = records.ending(gate, unmeasured, problems)
    if troubles and not ending.status:  # a record that contradicts itself
        ending = records.ending(gate, unmeasured, [f"{len(troubles)} trouble(s)"])
    return Alarm(
        sessions=tuple(dict.fromkeys(r.session for r in records)),
        systems=tuple(sorted({visible(r.system) for r in records})),
        ending=ending,
        troubles=tuple(troubles),
        history=history,
        missing=len(absent) + len(lack.left_out) + len(lack.unmatched) + len(lack.gone),
    )


#: Kinds of troubles, the gravest first.
_GRAVEST: Final = (DRIFT, *(v.value for v in GRAVEST))


def _gravest_first(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Return troubles by gravity; what only lacks a reference is one trouble a partition, with its number."""
    ordered = sorted(troubles, key=lambda trouble: _GRAVEST.index(trouble.kind))
    by_lack = grouped(ordered, lambda one: one.kind == Verdict.UNREFERENCED.value)
    found, lacking = by_lack.get(False, []), by_lack.get(True, [])
    for where, mine in grouped(lacking, lambda trouble: trouble.where).items():
        text = (
            f"{count(len(mine), 'metric')} of {count(len({t.case for t in mine}), 'case')}: valid, and without a "
            "reference; iogauge calibrate proposes them"
        )
        found.append(
            Trouble(kind=Verdict.UNREFERENCED.value, where=where, case="", reason=text)
        )
    return found


def _of_records(
    records: SessionRecords, history: History, gate: bool, named: set[tuple[str, str]]
) -> list[Trouble]:
    """Return the troubles of the records that count; adds their lines and metrics to ``named``."""
    # A failure is named once: by its confirmation, the newer one.
    newest_first = [record for record in reversed(records) if records.counts(record)]
    troubles = [
        one for r in newest_first for one in _of_record(r, history, gate, named)
    ]
    return troubles[::-1]


def _of_trend(history: History, named: Collection[tuple[str, str]]) -> list[Trouble]:
    """Return a trouble for each series that has become worse, but for those in ``named``."""
    worse = {
        key: series
        for key, series in history.judged.items()
        if series.state is State.ALARM
    }
    return [
        _drift(series, history)
        for (line, metric), series in worse.items()
        if (line, metric) not in named
        and (line, series.repeats) not in {*worse, *named}
    ]


#: Valid runs before one that counts as a fall although there are too few for a trend, and the loss that is one. A run of
#: healthy noise falls so in less than 1 of 1000 (normal, Laplace, correlated).
_FALL_AFTER: Final = 5
_FALL_LOSS: Final = 0.25


def _of_falls(records: SessionRecords, history: History) -> Iterator[Trouble]:
    """Yield a trouble for each metric that fell in a series which is too short for a trend."""
    for record in records:
        for metric in record.metrics:
            series = history.judged.get((record.line, metric.name))
            if series is None or series.state is not State.FEW or series.repeats:
                continue
            if metric.verdict is not Verdict.UNREFERENCED:
                continue
            before = _valid_before(record, metric.name, series.series, history)
            if fell(metric.median, before, metric.better):
                level = statistics.median(before)
                yield Trouble(
                    kind=DRIFT,
                    where=record.where,
                    case=record.short_name,
                    metric=metric.name,
                    measured=measured(metric),
                    expected=f"level of {with_unit(level, metric.unit)}, of {len(before)} runs",
                    since=f"{record.minute} UTC, session {record.session}",
                    reason=f"{metric.median / level - 1:+.1%}, worse than in every run before",
                    curve=history.curve(record.line, metric.name),
                )


def _valid_before(
    record: Record, metric: str, series: str, history: History
) -> list[float]:
    """Return the valid values of a metric in one series before a record."""
    values: list[float] = []
    for run in history.runs(record.line, metric):
        if run["session"] == record.session:
            break
        valid = run["metric_verdict"] == Verdict.UNREFERENCED.value
        if valid and run["series"] == series:
            values.append(run["median"])
    return values


def fell(value: float, before: Sequence[float], better: str) -> bool:
    """Return whether a value is worse than all before it, by a quarter and by more than they differ.

    Needs 5 values. The scale is logarithmic; ``better`` is "more" or "less".
    """
    if len(before) < _FALL_AFTER or min(value, *before) <= 0:
        return False
    sign = 1 if better == "more" else -1
    levels = [sign * math.log(one) for one in before]
    reach = max(max(levels) - min(levels), -math.log(1 - _FALL_LOSS))
    return sign * math.log(value) < min(levels) - reach


def _of_absent(records: Iterable[Record], expected: Iterable[str]) -> list[Trouble]:
    """Return a trouble for each expected partition without a record."""
    measured = {record.where for record in records}
    return [
        Trouble(
            kind=Verdict.ERROR.value,
            where=partition,
            case="",
            reason="nothing was measured here: the run did not begin, or selected no case; see the job's log",
        )
        for partition in dict.fromkeys(expected)
        if partition not in measured
    ]


def _of_damage(damaged: journal.Damaged) -> Trouble:
    """Return the trouble of a line that is not a record."""
    return Trouble(
        kind=Verdict.ERROR.value,
        where=f"{damaged.file.parent.name}: {damaged.file.stem}",
        case="",
        reason=f"line {damaged.line} is no record: {damaged.problem}",
    )


def _of_record(
    record: Record, history: History, gate: bool, named: set[tuple[str, str]]
) -> Iterator[Trouble]:
    """Yield the troubles of one case by metric; of the case if no metric explains its verdict."""
    metrics = reversed(record.metrics)
    bad: list[MetricRecord | None]
    bad = [m for m in metrics if m.is_trouble(gate) and same_fault(record, m) is m]
    for metric in bad or [None] * record.is_trouble(gate):
        key = (record.line, metric.name if metric else "")
        if key in named:
            continue
        named.add(key)
        about, runs = metric or record, history.runs(*key)
        since, cause, session = _since_when(runs, about.verdict, history)
        remedy = _remedies(record, key[1], about.verdict)
        more: dict[str, Any] = {"reason": about.reason}
        if metric:
            series, fails = history.judged.get(key), metric.verdict is Verdict.FAIL
            missed = f", {against(metric)}" if fails and metric.reference else ""
            more = {
                "metric": metric.name,
                "measured": measured(metric) + missed,
                "expected": _expectation(metric),
                "reason": "" if fails else about.reason,
                "guilty": _guilty(metric),
                "trend": _trend_words(series)
                if series and series.state is State.ALARM
                else "",
                # A record that the history takes for damaged has failed all the same.
                "curve": history.curve(*key, session) if runs else None,
            }
        more |= {
            "since": since,
            "cause": "" if remedy and cause == UNCHANGED else cause,
        }
        more |= {"where": record.where, "case": record.short_name, "remedy": remedy}
        yield Trouble(kind=about.verdict.value, **more)


def _guilty(metric: MetricRecord) -> str:
    """Return which node, link or target makes a metric fail, as its case found it; empty if none is named."""
    failed = metric.verdict is Verdict.FAIL and metric.name.endswith("_slowest")
    return metric.reason.partition("): ")[2] if failed else ""


def against(metric: MetricRecord) -> str:
    """Return how far a metric is from its reference: ``29.8 % below its reference``."""
    share = metric.median / metric.reference.value - 1 if metric.reference else 0.0
    return f"{abs(share):.1%} {'below' if share < 0 else 'above'} its reference"


def _expectation(metric: MetricRecord) -> str:
    reference = metric.reference
    if not reference:
        return "" if metric.verdict is not Verdict.UNREFERENCED else "no reference"
    text = f"reference {with_unit(reference.value, metric.unit)}"
    for words, bound in (("least", reference.least), ("most", reference.most)):
        text += "" if bound is None else f", at {words} {format_value(bound)}"
    return text + (f" ({reference.source})" if reference.source else "")


def _since_when(
    runs: Sequence[dict[str, Any]], verdict: Verdict, history: History
) -> tuple[str, str, str]:
    """Return since when a verdict holds, what changed after the last PASS, and the first bad
    session.
    """
    verdicts = [run["metric_verdict"] for run in runs]
    good = len(runs) - len(list(takewhile(verdict.value.__eq__, reversed(verdicts))))
    if good == len(runs):
        return "", "", ""
    first, before = runs[good], verdicts[:good]
    text = f"{_when(first['time'])}, session {first['session']}"
    if len(runs) - good > 1:
        text += f", {len(runs) - good} runs in a row"
    if Verdict.PASS.value not in before:
        valid = before.count(Verdict.UNREFERENCED.value)
        unproven = f"before that {valid} valid run(s) without a reference"
        return (
            f"{text}; {unproven if valid else 'no PASS in the history'}",
            "",
            first["session"],
        )
    last = runs[max(n for n, one in enumerate(before) if one == Verdict.PASS.value)]
    text += f"; the last PASS: {_when(last['time'])}"
    if last["median"] is not None and all(
        last[key] == first[key] for key in ("metric", "unit")
    ):
        text += f" with {with_unit(last['median'], last['unit'])}"
    return (
        text,
        history.changed(last["fingerprint"], first["fingerprint"]),
        first["session"],
    )


def _when(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _remedies(record: Record, metric: str, verdict: Verdict) -> str:
    """Return the remedies of the guards that objected."""
    remedies = [
        f"{f.name}: {f.remedy}"
        for f in record.findings
        if f.objects(verdict)
        and f.remedy
        and (not metric or f.metric in (None, metric))
    ]
    return "; ".join(dict.fromkeys(remedies))


def _trend_words(series: Judged) -> str:
    change = series.change
    if change is None or series.level is None:
        return ""
    return (
        f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%}) against the level of "
        f"{with_unit(series.level, series.unit)} since {_when(change.time)}, session {change.session}; "
        f"a false alarm in {one_of(series.false_alarms)} healthy series"
    )


#: What is said of a series whose newest run is as it was before.
_BACK: Final = (
    "back at its level in the newest run; the alarm stands until more runs are good"
)


def _is_back(last: float, series: Judged) -> bool:
    """Return whether a run is nearer to the level than to a third of the loss."""
    if series.change is None or series.level is None:
        return False
    return abs(last / series.level - 1) < abs(series.change.share) / 3


def _drift(series: Judged, history: History) -> Trouble:
    curve, change, level = (
        history.curve(series.line, series.metric),
        series.change,
        series.level,
    )
    last = curve.points[-1].value
    cause = UNCHANGED
    if change and change.before is not None:
        cause = history.changed(change.before, change.after)
    return Trouble(
        kind=DRIFT,
        where=f"{series.system}:{series.partition}",
        case=short_name(series.case),
        metric=series.metric,
        measured=with_unit(last, series.unit),
        expected="" if level is None else f"level of {with_unit(level, series.unit)}",
        since=f"{_when(change.time)}, session {change.session}" if change else "",
        reason=_BACK if _is_back(last, series) else "",
        trend=_trend_words(series),
        cause=cause,
        curve=curve,
    )


# What a page says first: how many cases are accepted, and what follows from the records.
def tiles(
    alarm: Alarm, records: SessionRecords
) -> list[tuple[str, str, str, str, int]]:
    """Return name, style, sign, meaning and number of the cases that are accepted, failed, invalid, unproven, missing."""
    counts = Counter(record.verdict for record in records if records.counts(record))
    unproven = sum(counts[verdict] for verdict in UNPROVEN)
    failed = counts[Verdict.FAIL] + counts[Verdict.ERROR]
    accepted, invalid = counts[Verdict.PASS], counts[Verdict.INVALID]
    return [
        ("accepted", "PASS", "✓", "proven, and as the reference demands", accepted),
        ("failed", "FAIL", "✗", "below the reference, or the tool failed", failed),
        ("invalid", "INVALID", "⊘", "the number is not the storage's", invalid),
        ("unproven", "UNREFERENCED", "?", "no reference, or too much noise", unproven),
        ("missing", "MISSING", "–", "asked for, and not measured", alarm.missing),
    ]


_CONCLUSIONS: Final = {
    Word.OK: "Everything that was asked for is accepted.",
    Word.PARTLY_PROVEN: "Accepted in part: what is unproven or missing stays open.",
    Word.NOTHING_PROVEN: "Nothing is accepted: no case is proven against a reference.",
    Word.FAILED: "Not accepted.",
}


def conclusion(alarm: Alarm) -> str:
    """Return what follows from the records, in sentences: the decision, and what weighs most."""
    first = [f"First of all: {trouble.gist}" for trouble in alarm.troubles[:1]]
    return " ".join([_CONCLUSIONS[alarm.ending.word], *first])
