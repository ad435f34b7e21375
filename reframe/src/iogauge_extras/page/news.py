"""What somebody must know after a run, in words that need no context: what failed and what became worse.

:func:`collect` reads the records of the sessions and the history. :mod:`iogauge_extras.page.receivers`
sends it.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

from iogauge.core.groups import grouped
from iogauge.core.text import count, some, visible
from iogauge.core.units import format_value, with_unit
from iogauge.judge.verdict import Verdict
from iogauge.records import journal
from iogauge.records.record import MetricRecord, Record, short_name
from iogauge.records.selected import Unmeasured
from iogauge.report.endings import UNPROVEN, Ending, SessionRecords, Word, of_damage
from iogauge.report.outcome import measured, notes_of, same_fault
from iogauge.report.ranking import Rank, dead_targets, load_of, loss_of, rank_of
from iogauge_extras.history.shown import one_of
from iogauge_extras.history.states import Judged, State
from iogauge_extras.page.charts import Curve, bars
from iogauge_extras.page.past import ALWAYS, UNCHANGED, History, Span

#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a line of bars.
BARS: Final = 30

#: A load of the node from which it may explain a loss, in its cores: half of them are busy.
_LOADED: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text becomes safe for a terminal.

    A text is empty if there is nothing to say.
    """

    #: A verdict, or :data:`DRIFT`.
    kind: str
    #: Its place among the others.
    rank: Rank = Rank.ERROR
    #: Share of the expected value that is lost; 0 if none is, or if it is not known.
    loss: float = 0.0
    #: System and partition: ``mysite:scratch``.
    where: str
    #: The case, or how many cases it stands for: ``17 cases``.
    case: str
    metric: str = ""
    measured: str = ""
    expected: str = ""
    reason: str = ""
    #: Names of the cases if there are several.
    cases: str = ""
    #: How many runs of this session passed, if it measured the case several times.
    repeats: str = ""
    #: The slow node, link or storage target.
    guilty: str = ""
    #: First bad run, and the last good run.
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    #: Runs of the metric; None if it has no valid run.
    curve: Curve | None = None

    def __post_init__(self) -> None:
        """Make the texts safe."""
        for name in _TEXTS:
            object.__setattr__(self, name, visible(getattr(self, name)))

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        words = [self.kind, self.where, self.case, self.metric]
        name = " ".join(word for word in words if word)
        value = self.measured or self.reason
        return f"{name}: {value}" if value else name

    @property
    def brief(self) -> str:
        """Return a few words: ``write_bw 29.8 % below its reference since 2027-01-31``; empty if none say more."""
        since = f" since {self.since[:10]}" if self.since else ""
        if self.rank is Rank.BACK:
            return f"{DRIFT} {self.metric}: {self.reason}"
        if self.kind == DRIFT:
            return f"{DRIFT} {self.metric} {self.trend.partition(' (')[0]}{since}"
        if self.kind == Verdict.FAIL.value and self.metric:
            missed = f"{self.metric} {self.measured.rpartition(', ')[2]}"
            return (self.guilty.partition(";")[0] or missed) + since
        return ""

    @property
    def gist(self) -> str:
        """Return the guilty part, its loss, and since when, for a first line."""
        if self.brief:
            return f"{self.where} {self.case}: {self.brief}"
        name = self.headline.removesuffix(f": {self.measured}")
        if self.measured and self.reason:
            return f"{name}: {self.reason}"
        return self.headline

    @property
    def facts(self) -> dict[str, str]:
        """Return what is known beside the headline, by name; a remedy that the reason has is left out."""
        steps = [step.partition(": ")[2] or step for step in self.remedy.split("; ")]
        facts = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "cases": self.cases,
            "repeats": self.repeats,
            "guilty": self.guilty,
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": self.remedy,
        }
        if all(step in self.reason for step in steps):
            facts["remedy"] = ""
        return {name: text for name, text in facts.items() if text}

    @property
    def paragraph(self) -> str:
        """Return the headline, and a line for each known fact."""
        facts = self.facts
        if self.curve:
            facts["runs"] = bars(self.curve, BARS)
        lines = [f"  {name + ':':<10}{text}" for name, text in facts.items()]
        return "\n".join([self.headline, *lines])

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        values: dict[str, Any] = {name: getattr(self, name) for name in _TEXTS}
        points = self.curve.points[-BARS:] if self.curve else ()
        values["unit"] = self.curve.unit if self.curve else ""
        values["runs"] = [run.value for run in points]
        return values


_TEXTS: Final = tuple(f.name for f in fields(Trouble) if f.type == "str")


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The state of some sessions; the ending may be FAILED without any trouble."""

    sessions: tuple[str, ...]
    systems: tuple[str, ...]
    ending: Ending
    #: The gravest first.
    troubles: tuple[Trouble, ...]
    history: History | None = None
    #: How much was asked for and has no record.
    missing: int = 0

    @property
    def failed(self) -> bool:
        """Return whether somebody must know."""
        return bool(self.ending.status)

    @property
    def gist(self) -> str:
        """Return the guilty part, its loss, and since when; without a trouble what the session has shown."""
        return self.troubles[0].gist if self.troubles else self.ending.sentence

    @property
    def headline(self) -> str:
        """Return the session's word, and what weighs most."""
        return f"{self.ending.word.value}: {self.gist}"

    @property
    def title(self) -> str:
        """Return the first line of a message: the systems, and the headline."""
        return f"iogauge {', '.join(self.systems) or '-'}: {self.headline}"

    @property
    def text(self) -> str:
        """Return the title, the ending, what was not run, and a paragraph for each trouble."""
        lines = [self.title]
        if self.troubles:
            lines.append(str(self.ending))
        lines += self.ending.remarks
        paragraphs = [trouble.paragraph for trouble in self.troubles]
        return "\n\n".join(["\n".join(lines), *paragraphs])


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
    failures, named = _of_records(records, history, gate)
    drifts = [*_of_trend(history, named), *_of_falls(records, history)]
    absent = _of_absent(records, expected)
    lack = unmeasured or Unmeasured()
    damage = [_of_damage(line) for line in damaged]
    troubles = _gravest_first([*failures, *drifts, *absent, *damage])
    problems = []
    if drifts:
        problems.append(f"{len(drifts)} metric(s) have become worse ({DRIFT})")
    problems += [f"nothing was measured on {trouble.where}" for trouble in absent]
    problems += of_damage(damaged)
    ending = records.ending(gate, unmeasured, problems)
    if troubles and not ending.status:  # a record that contradicts itself
        ending = records.ending(gate, unmeasured, [f"{len(troubles)} trouble(s)"])
    return Alarm(
        sessions=tuple(dict.fromkeys(record.session for record in records)),
        systems=tuple(sorted({visible(record.system) for record in records})),
        ending=ending,
        troubles=tuple(troubles),
        history=history,
        missing=len(absent) + len(lack.left_out) + len(lack.unmatched) + len(lack.gone),
    )


def _gravest_first(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Return troubles by rank and loss; those of one partition that say the same are one."""

    def same(trouble: Trouble) -> tuple[object, ...]:
        if Rank.CONTAMINATED <= trouble.rank <= Rank.UNREFERENCED:
            return trouble.kind, trouble.where
        if trouble.rank in (Rank.ERROR, Rank.DEAD_TARGET, Rank.INVALID):
            return trouble.kind, trouble.where, trouble.reason
        return (id(trouble),)

    joined = [_joined(found) for found in grouped(troubles, same).values()]
    return sorted(joined, key=lambda trouble: (trouble.rank, -trouble.loss))


def _joined(troubles: Sequence[Trouble]) -> Trouble:
    """Return one trouble for several, with each of their sentences once, and its cases."""
    first = troubles[0]
    lacking = first.rank is Rank.UNREFERENCED
    cases = list(dict.fromkeys(trouble.case for trouble in troubles))
    if len(troubles) == 1 and not lacking:
        return first
    notes = notes_of(trouble.reason for trouble in troubles)
    sentences = []
    for note, mine in grouped(troubles, lambda t: notes[t.reason]).items():
        names = dict.fromkeys(f"{t.case} {t.metric}".strip() for t in mine)
        sentences.append(f"{note} ({some(list(names), 3)})")
    reason = "; ".join(sentences)
    if lacking:
        metrics = count(len(troubles), "metric")
        reason = (
            f"{metrics} of {count(len(cases), 'case')}: valid, and without a reference; "
            "iogauge calibrate proposes them"
        )
    elif len(sentences) == 1:
        reason = next(iter(notes.values()))
    remedies = dict.fromkeys(t.remedy for t in troubles if t.remedy)
    name = count(len(cases), "case")
    if first.rank is Rank.DEAD_TARGET:
        name = f"all {name}"
    return Trouble(
        kind=first.kind,
        rank=first.rank,
        where=first.where,
        case="" if lacking else name,
        reason=reason,
        cases="" if lacking else ", ".join(cases),
        remedy="; ".join(remedies),
    )


def _of_records(
    records: SessionRecords, history: History, gate: bool
) -> tuple[list[Trouble], set[tuple[str, str]]]:
    """Return the troubles of the records that count, and their lines and metrics."""
    counted = [record for record in records if records.counts(record)]
    dead = dead_targets(counted)
    named: set[tuple[str, str]] = set()
    troubles: list[Trouble] = []
    # A failure is named once: by its newest run.
    for record in reversed(counted):
        for metric in _bad_metrics(record, gate):
            key = (record.line, metric.name if metric else "")
            if key in named:
                continue
            named.add(key)
            trouble = _of_record(record, metric, history)
            about = metric or record
            rank = rank_of(record, about.verdict, dead)
            repeats = _repeats(counted, record, key[1])
            troubles.append(replace(trouble, rank=rank, repeats=repeats))
    return troubles[::-1], named


def _bad_metrics(record: Record, gate: bool) -> list[MetricRecord | None]:
    """Return the metrics that are troubles, the last first; None stands for a case that no metric explains."""
    bad: list[MetricRecord | None] = []
    for metric in reversed(record.metrics):
        if metric.is_trouble(gate) and same_fault(record, metric) is metric:
            bad.append(metric)
    if not bad and record.is_trouble(gate):
        bad.append(None)
    return bad


def _repeats(records: Sequence[Record], newest: Record, metric: str) -> str:
    """Return how many runs of a case in one session passed; empty if there was one run."""
    verdicts = []
    for record in records:
        if (record.session, record.line) == (newest.session, newest.line):
            found = [m.verdict for m in record.metrics if m.name == metric]
            verdicts += found or [record.verdict]
    if len(verdicts) < 2:
        return ""
    passed = verdicts.count(Verdict.PASS)
    return f"{passed} of {len(verdicts)} runs of this session passed"


def _of_record(
    record: Record, metric: MetricRecord | None, history: History
) -> Trouble:
    """Return the trouble of a metric, or of a case if no metric explains its verdict."""
    name = metric.name if metric else ""
    verdict = metric.verdict if metric else record.verdict
    runs = history.runs(record.line, name)
    begin = _begin(runs, verdict, history)
    remedy = _remedies(record, name, verdict)
    cause = begin.cause
    if remedy and cause == UNCHANGED:
        cause = ""
    if verdict is Verdict.FAIL:
        cause = _with_load(cause, record)
    trouble = Trouble(
        kind=verdict.value,
        where=record.where,
        case=record.short_name,
        reason=metric.reason if metric else record.reason,
        since=begin.since,
        cause=cause,
        remedy=remedy,
    )
    if metric is None:
        return trouble
    if verdict is Verdict.FAIL:
        missed = f", {against(metric)}" if metric.reference else ""
        trouble = replace(trouble, reason="", loss=loss_of(metric))
    else:
        missed = ""
    series = history.judged.get((record.line, name))
    alarmed = series is not None and series.state is State.ALARM
    return replace(
        trouble,
        metric=name,
        measured=measured(metric) + missed,
        expected=_expectation(metric),
        guilty=_guilty(metric),
        trend=_trend_words(series) if series and alarmed else "",
        # A record that the history takes for damaged has failed all the same.
        curve=history.curve(record.line, name, begin.time) if runs else None,
    )


def _with_load(cause: str, record: Record) -> str:
    """Return a cause with the load of the nodes, if that may explain a loss."""
    load = load_of(record)
    if record.busy:
        text = f"{record.busy}: see what else runs there, and measure again without it"
    elif load is not None and load >= _LOADED:
        text = (
            f"the nodes were loaded before the run, {load:g} x their cores: see what else runs there, "
            "and measure again without it"
        )
    else:
        return cause
    return text if cause in ("", UNCHANGED) else f"{cause}; and {text}"


def _of_trend(history: History, named: Collection[tuple[str, str]]) -> list[Trouble]:
    """Return a trouble for each series that has become worse, but for those in ``named``."""
    worse = {}
    for key, series in history.judged.items():
        if series.state is State.ALARM:
            worse[key] = series
    known = {*worse, *named}
    drifts = []
    for key, series in worse.items():
        if key not in named and (series.line, series.repeats) not in known:
            drifts.append(_drift(series, history))
    return drifts


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
                    rank=Rank.DRIFT,
                    loss=abs(metric.median / level - 1),
                    cause=_with_load(UNCHANGED, record),
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
    measured_on = {record.where for record in records}
    return [
        Trouble(
            kind=Verdict.ERROR.value,
            rank=Rank.DEAD_TARGET,
            where=partition,
            case="",
            reason="nothing was measured here: the run did not begin, or selected no case; see the job's log",
        )
        for partition in dict.fromkeys(expected)
        if partition not in measured_on
    ]


def _of_damage(damaged: journal.Damaged) -> Trouble:
    """Return the trouble of a line that is not a record."""
    return Trouble(
        kind=Verdict.ERROR.value,
        where=f"{damaged.file.parent.name}: {damaged.file.stem}",
        case="",
        reason=f"line {damaged.line} is no record: {damaged.problem}",
    )


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
        if bound is not None:
            text += f", at {words} {format_value(bound)}"
    return text + (f" ({reference.source})" if reference.source else "")


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
    text = f"{_when(first['time'])}, session {first['session']}"
    if bad > 1:
        text += f", {bad} runs in a row"
    passed = [run for run in before if run["metric_verdict"] == Verdict.PASS.value]
    if not passed:
        valid = verdicts[:-bad].count(Verdict.UNREFERENCED.value)
        unproven = f"before that {valid} valid run(s) without a reference"
        text += f"; {unproven if valid else 'no PASS in the history'}"
        return _Begin(text, "", first["time"])
    last = passed[-1]
    text += f"; the last PASS: {_when(last['time'])}"
    same = (last["metric"], last["unit"]) == (first["metric"], first["unit"])
    if last["median"] is not None and same:
        text += f" with {with_unit(last['median'], last['unit'])}"
    cause = history.changed(last["fingerprint"], first["fingerprint"])
    return _Begin(text, cause, first["time"])


def _when(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _remedies(record: Record, metric: str, verdict: Verdict) -> str:
    """Return the remedies of the guards that objected."""
    remedies: dict[str, None] = {}
    for finding in record.findings:
        concerned = not metric or finding.metric in (None, metric)
        if concerned and finding.remedy and finding.objects(verdict):
            remedies[f"{finding.name}: {finding.remedy}"] = None
    return "; ".join(remedies)


def _trend_words(series: Judged) -> str:
    change = series.change
    if change is None or series.level is None:
        return ""
    return (
        f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%}) against the level of "
        f"{with_unit(series.level, series.unit)} since {_when(change.time)}, session {change.session}; "
        f"a false alarm in {one_of(series.false_alarms)} healthy series"
    )


#: What is known of a series whose newest run is as it was before.
_BACK: Final = (
    "back at its level in the newest run; the alarm stands until more runs are good"
)


def _is_back(last: float, series: Judged) -> bool:
    """Return whether a run is nearer to the level than to a third of the loss."""
    if series.change is None or series.level is None:
        return False
    return abs(last / series.level - 1) < abs(series.change.share) / 3


def _drift(series: Judged, history: History) -> Trouble:
    curve = history.curve(series.line, series.metric)
    change, level = series.change, series.level
    last = curve.points[-1].value
    back = _is_back(last, series)
    cause = UNCHANGED
    if change and change.before is not None:
        cause = history.changed(change.before, change.after)
    return Trouble(
        kind=DRIFT,
        rank=Rank.BACK if back else Rank.DRIFT,
        loss=abs(change.share) if change else 0.0,
        where=f"{series.system}:{series.partition}",
        case=short_name(series.case),
        metric=series.metric,
        measured=with_unit(last, series.unit),
        expected="" if level is None else f"level of {with_unit(level, series.unit)}",
        since=f"{_when(change.time)}, session {change.session}" if change else "",
        reason=_BACK if back else "",
        trend=_trend_words(series),
        cause=_with_load(cause, history.newest[series.line]),
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
    """Return what follows from the records: the decision, as a sentence."""
    return _CONCLUSIONS[alarm.ending.word]
