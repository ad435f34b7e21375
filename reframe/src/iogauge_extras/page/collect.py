"""Collect the alarm after a run: what failed and what became worse, in words that need no context, and the history of
those lines: runs, curves and days.

:func:`collect` reads the records of the sessions and the history. :mod:`iogauge_extras.page.receivers`
sends it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import numpy as np
import polars as pl

from iogauge.core.text import count, visible
from iogauge.core.units import format_value, with_unit
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.records.record import MetricRecord, Record, ReferenceRecord, short_name
from iogauge.records.selected import Unmeasured
from iogauge.report.outcome import Ending, SessionRecords, Word, of_damage, same_fault
from iogauge_extras.history import shown, states, statistics
from iogauge_extras.history.shown import one_of
from iogauge_extras.history.states import Judged, State
from iogauge_extras.page.charts import Curve, Run, bars
from iogauge_extras.page.sweeps import LARGEST

#: Runs in a figure, and days in a calendar.
SHOWN: Final = 60
DAYS: Final = 31

#: Control limits lie so many standard deviations of the baseline from its level.
_SIGMAS: Final = 3.0

#: Most changes of a fingerprint to name.
_NAMED: Final = 6

_COLUMNS: Final = (
    *("system", "partition", "case", "line", "series", "metric", "unit", "better", "record"),
    *("time", "session", "median", "metric_verdict", "verdict", "fingerprint", "confirms"),
    *("nodes", "tasks_per_node"),
)
UNCHANGED: Final = (
    "nothing that the fingerprint knows (software, client, mount, network) changed with it: look at the "
    "storage itself, its servers and its load"
)

#: The gravest first.
GRAVEST: Final = (
    *(Verdict.FAIL, Verdict.INVALID, Verdict.ERROR, Verdict.CONTAMINATED, Verdict.UNSTABLE),
    *(Verdict.UNREFERENCED, Verdict.PASS),
)


@dataclass(frozen=True, slots=True)
class Span:
    """A part of the history; None is no limit, and both ends belong to it."""

    since: datetime | None = None
    until: datetime | None = None

    def of(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows within the span."""
        if self.since:
            frame = frame.filter(pl.col("time") >= self.since)
        return frame.filter(pl.col("time") <= self.until) if self.until else frame


ALWAYS: Final = Span()


@dataclass(frozen=True, slots=True)
class Day:
    """The worst verdict of a case on each day of the calendar; a day without a run is not there."""

    where: str
    case: str
    worst: Mapping[date, Verdict]


class History:
    """The history of the lines that some records measured."""

    def __init__(self, folder: Path, records: Sequence[Record], span: Span = ALWAYS) -> None:
        """Load the rows of the records' lines; those after the span's end do not count."""
        lines = {record.line for record in records}
        frame = query.load(folder, columns=_COLUMNS)
        rows = Span(until=span.until).of(frame.filter(pl.col("line").is_in(sorted(lines))))
        judged = states.states_of(rows)
        self.judged = {(series.line, series.metric): series for series in judged}
        self._span = span
        ids = shown.fingerprint_ids(judged)
        ids |= set(rows["fingerprint"].drop_nulls().unique())
        self.fingerprints = query.fingerprints(folder, ids)
        self._rows: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        for row in rows.iter_rows(named=True):
            self._rows.setdefault((row["line"], row["metric"]), []).append(row)
        self._cases: dict[str, list[dict[str, Any]]] = {}
        for row in rows.unique("record", keep="first", maintain_order=True).iter_rows(named=True):
            self._cases.setdefault(row["line"], []).append(row)
        self._references: dict[tuple[str, str], ReferenceRecord] = {}
        for record in records:
            for metric in record.metrics:
                self._refer(record.line, metric)

    def measured(self) -> list[tuple[str, str]]:
        """Return line and metric of everything that has a value."""
        return [(line, metric) for line, metric in self._rows if metric]

    def repeats(self, line: str, metric: str) -> bool:
        """Return whether a metric repeats another one, whose curve then shows both."""
        series = self.judged.get((line, metric))
        return series is not None and bool(series.repeats)

    def _refer(self, line: str, metric: MetricRecord) -> None:
        """Remember the reference of a newest record's metric."""
        if metric.reference:
            self._references[line, metric.name] = metric.reference

    def runs(self, line: str, metric: str) -> list[dict[str, Any]]:
        """Return the runs of a metric (of the case if empty), oldest first, with an ``outcome``."""
        if metric:
            return [
                r | {"outcome": r["metric_verdict"]} for r in self._rows.get((line, metric), [])
            ]
        return [r | {"outcome": r["verdict"]} for r in self._cases.get(line, [])]

    def curve(self, line: str, metric: str, since: str = "") -> Curve:
        """Return the newest runs of a metric that have the unit of the last run.

        The curve's ``since`` is the session of the trend's alarm, or ``since`` if there is no such
        alarm.
        """
        every, series = self._rows[line, metric], self.judged.get((line, metric))
        first = self._span.since
        rows = [row for row in every[-SHOWN:] if first is None or row["time"] >= first] or every[
            -1:
        ]
        last = rows[-1]
        alarmed = series is not None and series.state is State.ALARM and series.change is not None
        reference = self._references.get((line, metric))

        def bound(share: float | None) -> float | None:
            """Return the value of a share of the reference; returns None if it cannot be drawn."""
            if share is None or reference is None:
                return None
            drawn = float(reference.value) * (1 + share)
            return drawn if abs(drawn) < LARGEST else None

        return Curve(
            title=f"{last['partition']} {short_name(last['case'])} {metric}",
            unit=str(last["unit"]),
            points=[
                Run(
                    row["time"],
                    row["session"],
                    row["median"],
                    Verdict(row["metric_verdict"]),
                    row["series"],
                    row["fingerprint"],
                )
                for row in rows
                if row["unit"] == last["unit"]
                and row["metric_verdict"] is not None
                and row["median"] is not None
                and row["median"] > 0
            ],
            reference=bound(0.0),
            least=bound(reference.lower if reference else None),
            most=bound(reference.upper if reference else None),
            since=series.change.session if alarmed and series and series.change else since or None,
            system=visible(str(last["system"])),
            key=line,
            under="; ".join(filter(None, [*self._repeating(line, metric), self._under(last)])),
            **self._limits(every, series),
        )

    def _repeating(self, line: str, metric: str) -> Iterator[str]:
        """Yield the newest value of each metric that repeats one: ``read_bw is proportional, newest 9.971 MiB/s``."""
        for name in [
            name for (of, name), s in self.judged.items() if (of, s.repeats) == (line, metric)
        ]:
            last = self._rows[line, name][-1]
            if last["median"] is not None:
                value = with_unit(last["median"], last["unit"])
                yield visible(f"{name} is proportional, newest {value}")

    def _limits(self, rows: Sequence[Mapping[str, Any]], series: Judged | None) -> dict[str, Any]:
        """Return level, control limits and steps of the newest series, if it has a baseline."""
        if series is None or series.level is None:
            return {}
        valid = [
            row
            for row in rows
            if row["series"] == series.series
            and row["unit"] == series.unit
            and row["confirms"] is None
            and row["median"]
            and Verdict(row["metric_verdict"]).is_valid
        ]
        values = [float(row["median"]) for row in valid]
        location, scale = statistics.fit(np.log(np.array([values[: series.baseline]])))
        low, high = (float(np.exp(location[0] + k * scale[0])) for k in (-_SIGMAS, _SIGMAS))
        steps = tuple(valid[k]["session"] for k in statistics.change_points(values))
        return {"level": series.level, "low": low, "high": high, "steps": steps}

    def _under(self, row: Mapping[str, Any]) -> str:
        """Return nodes, tasks, tools and stack of a run."""
        known = self.fingerprints.get(row["fingerprint"] or "", {})
        tools = [f"{key[5:]} {value}" for key, value in known.items() if key.startswith("tool.")]
        stack = [f"stack {known['stack']}"] if "stack" in known else []
        scale = (
            [f"{count(row['nodes'], 'node')} x {count(row['tasks_per_node'], 'task')}"]
            if row["nodes"] and row["tasks_per_node"]
            else []
        )
        return visible("; ".join([*scale, *tools, *stack]))

    def days(self) -> tuple[Day, ...]:
        """Return the worst verdict of each case on each of the last days of the span."""
        cases = [rows for rows in self._cases.values() if rows]
        if not cases:
            return ()
        newest = max(rows[-1]["time"] for rows in cases).date()
        oldest = newest - timedelta(days=DAYS - 1)
        if self._span.since:
            oldest = max(oldest, self._span.since.date())
        found = []
        for rows in cases:
            worst: dict[date, Verdict] = {}
            for row in rows:
                day, verdict = row["time"].date(), Verdict(row["verdict"])
                if day >= oldest:
                    worst[day] = min(worst.get(day, verdict), verdict, key=GRAVEST.index)
            last = rows[-1]
            where = visible(f"{last['system']}:{last['partition']}")
            found.append(Day(where, visible(short_name(last["case"])), worst))
        return tuple(found)

    def changed(self, before: str | None, after: str | None) -> str:
        """Return a sentence on how two fingerprints differ, or that they do not."""
        if before is None or after is None:
            return ""
        old, new = self.fingerprints.get(before, {}), self.fingerprints.get(after, {})
        keys = [visible(f"{key}: {a} -> {b}") for key, a, b in fingerprint.changed(old, new)]
        if not keys:
            return UNCHANGED if all(map(fingerprint.is_of_node, (old, new))) else ""
        more = f"; and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return "changed just before: " + "; ".join(keys[:_NAMED]) + more


#: Kind of trouble for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a line of bars.
BARS: Final = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One problem that somebody must look at; all text is safe for a terminal.

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

    @property
    def headline(self) -> str:
        """Return one line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        name = " ".join(word for word in (self.kind, self.where, self.case, self.metric) if word)
        value = self.measured or self.reason
        return f"{name}: {value}" if value else name

    @property
    def sentence(self) -> str:
        """Return one sentence: what is wrong where, since when, and what changed just before."""
        name = " ".join(word for word in (self.case, self.metric, "on", self.where) if word)
        since = self.since.partition(", session")[0]
        if self.kind == DRIFT:
            text = (
                f"{name} has become worse: {self.trend.partition(', session')[0] or self.measured}"
            )
        else:
            text = f"{name} is {self.kind}: {self.reason or self.measured}"
            text += f", since {since}" if since else ""
        return text + (f"; {self.cause}" if self.cause else "") + "."

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
    def facts(self) -> dict[str, str]:
        """Return what is known beside the headline, by name; a remedy that the reason has is left out."""
        told = (self.remedy.partition(": ")[2] or self.remedy) in self.reason
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
        return "\n".join([self.headline, *(f"  {n + ':':<10}{text}" for n, text in facts.items())])

    def to_json(self) -> dict[str, Any]:
        """Return the same facts as JSON values."""
        names = ("kind", "where", "case", "metric", "measured", "expected", "reason", "guilty")
        facts = {
            name: getattr(self, name) for name in (*names, "since", "trend", "cause", "remedy")
        }
        runs = self.curve.points[-BARS:] if self.curve else ()
        return facts | {
            "unit": self.curve.unit if self.curve else "",
            "runs": [p.value for p in runs],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """The state of some sessions; the ending may be FAILED without any trouble.

    ``missing`` counts what was asked for and has no record.
    """

    sessions: tuple[str, ...]
    systems: tuple[str, ...]
    ending: Ending
    troubles: tuple[Trouble, ...]
    curves: tuple[Curve, ...]
    days: tuple[Day, ...] = ()
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
    curves=(),
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
    drifts = _of_trend(history, named)
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
        curves=tuple(
            history.curve(*key) for key in history.measured() if not history.repeats(*key)
        ),
        days=history.days(),
        missing=len(absent) + len(lack.left_out) + len(lack.unmatched) + len(lack.gone),
    )


#: Kinds of troubles, the gravest first.
_GRAVEST: Final = (DRIFT, *(v.value for v in GRAVEST))


def _gravest_first(troubles: Sequence[Trouble]) -> list[Trouble]:
    """Return troubles by gravity; what only lacks a reference is one trouble a partition, with its number."""
    lacking: dict[str, list[Trouble]] = {}
    found = []
    for trouble in troubles:
        if trouble.kind == Verdict.UNREFERENCED.value:
            lacking.setdefault(trouble.where, []).append(trouble)
        else:
            found.append(trouble)
    for where, mine in lacking.items():
        text = (
            f"{count(len(mine), 'metric')} of {count(len({t.case for t in mine}), 'case')}: valid, and without a "
            "reference; iogauge calibrate proposes them"
        )
        found.append(Trouble(kind=Verdict.UNREFERENCED.value, where=where, case="", reason=text))
    return sorted(found, key=lambda trouble: _GRAVEST.index(trouble.kind))


def _of_records(
    records: SessionRecords, history: History, gate: bool, named: set[tuple[str, str]]
) -> list[Trouble]:
    """Return the troubles of the records that count; adds their lines and metrics to ``named``."""
    troubles: list[Trouble] = []
    for record in reversed(records):  # a failure is named once: by its confirmation, the newer one
        if records.counts(record):
            troubles += _of_record(record, history, gate, named)
    return troubles[::-1]


def _of_trend(history: History, named: Collection[tuple[str, str]]) -> list[Trouble]:
    """Return a trouble for each series that has become worse, but for those in ``named``."""
    worse = {key: series for key, series in history.judged.items() if series.state is State.ALARM}
    return [
        _drift(series, history)
        for (line, metric), series in worse.items()
        if (line, metric) not in named and (line, series.repeats) not in {*worse, *named}
    ]


def _of_absent(records: Iterable[Record], expected: Iterable[str]) -> list[Trouble]:
    """Return a trouble for each expected partition without a record."""
    measured = {f"{record.system}:{record.partition}" for record in records}
    return [
        Trouble(
            kind=Verdict.ERROR.value,
            where=visible(partition),
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
        where=visible(f"{damaged.file.parent.name}: {damaged.file.stem}"),
        case="",
        reason=visible(f"line {damaged.line} is no record: {damaged.problem}"),
    )


def _of_record(
    record: Record, history: History, gate: bool, named: set[tuple[str, str]]
) -> list[Trouble]:
    """Return the troubles of one case by metric; of the case if no metric explains its verdict."""
    line = record.line
    bad = [m for m in record.metrics if m.is_trouble(gate) and same_fault(record, m) is m]
    where = visible(f"{record.system}:{record.partition}")
    case = visible(record.short_name)
    if not bad:
        if not record.is_trouble(gate) or (line, "") in named:
            return []
        named.add((line, ""))
        since, cause, _ = _since_when(history.runs(line, ""), record.verdict, history)
        remedy = _remedies(record, "", record.verdict)
        return [
            Trouble(
                kind=record.verdict.value,
                where=where,
                case=case,
                reason=visible(record.reason),
                since=since,
                cause="" if remedy and cause == UNCHANGED else cause,
                remedy=remedy,
            )
        ]
    troubles = []
    for metric in reversed(bad):
        name = metric.name
        if (line, name) in named:
            continue
        named.add((line, name))
        since, cause, session = _since_when(history.runs(line, name), metric.verdict, history)
        remedy = _remedies(record, name, metric.verdict)
        series = history.judged.get((line, name))
        alarmed = series is not None and series.state is State.ALARM
        troubles.append(
            Trouble(
                kind=metric.verdict.value,
                where=where,
                case=case,
                metric=visible(name),
                measured=_measured(metric),
                expected=_expectation(metric),
                reason="" if metric.verdict is Verdict.FAIL else visible(metric.reason),
                guilty=_guilty(metric),
                since=since,
                trend=_trend_words(series) if series and alarmed else "",
                cause="" if remedy and cause == UNCHANGED else cause,
                remedy=remedy,
                # A record that the history takes for damaged has failed all the same.
                curve=history.curve(line, name, session) if history.runs(line, name) else None,
            )
        )
    return troubles


def _guilty(metric: MetricRecord) -> str:
    """Return which node, link or target makes a metric fail, as its case found it; empty if none is named."""
    failed = metric.verdict is Verdict.FAIL and metric.name.endswith("_slowest")
    return visible(metric.reason.partition("): ")[2]) if failed else ""


def _measured(metric: MetricRecord) -> str:
    spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
    text = f"{with_unit(metric.median, metric.unit)}{spread}"
    if metric.reference and metric.verdict is Verdict.FAIL:
        text += f", {against(metric)}"
    return visible(text)


def against(metric: MetricRecord) -> str:
    """Return how far a metric is from its reference: ``29.8 % below its reference``."""
    share = metric.median / metric.reference.value - 1 if metric.reference else 0.0
    return f"{abs(share):.1%} {'below' if share < 0 else 'above'} its reference"


def _expectation(metric: MetricRecord) -> str:
    reference = metric.reference
    if not reference:
        return "" if metric.verdict is not Verdict.UNREFERENCED else "no reference"
    text = f"reference {with_unit(reference.value, metric.unit)}"
    if reference.lower is not None:
        text += f", at least {format_value(reference.value * (1 + reference.lower))}"
    if reference.upper is not None:
        text += f", at most {format_value(reference.value * (1 + reference.upper))}"
    return visible(text + (f" ({reference.source})" if reference.source else ""))


def _since_when(
    runs: Sequence[dict[str, Any]], verdict: Verdict, history: History
) -> tuple[str, str, str]:
    """Return since when a verdict holds, what changed after the last PASS, and the first bad
    session.
    """
    bad = list(takewhile(lambda run: run["outcome"] == verdict.value, reversed(runs)))
    if not bad:
        return "", "", ""
    first = bad[-1]
    text = f"{_when(first['time'])}, session {first['session']}"
    if len(bad) > 1:
        text += f", {len(bad)} runs in a row"
    passed = [run for run in runs[: len(runs) - len(bad)] if run["outcome"] == Verdict.PASS.value]
    if not passed:
        valid = sum(run["outcome"] == Verdict.UNREFERENCED.value for run in runs[: -len(bad)])
        unproven = f"before that {valid} valid run(s) without a reference"
        text += "; " + (unproven if valid else "no PASS in the history")
        return visible(text), "", first["session"]
    last = passed[-1]
    text += f"; the last PASS: {_when(last['time'])}"
    if (
        last["median"] is not None
        and last["metric"] == first["metric"]
        and last["unit"] == first["unit"]
    ):
        text += f" with {with_unit(last['median'], last['unit'])}"
    return (
        visible(text),
        history.changed(last["fingerprint"], first["fingerprint"]),
        first["session"],
    )


def _when(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _remedies(record: Record, metric: str, verdict: Verdict) -> str:
    """Return the remedies of the guards that objected."""
    metrics: Collection[str | None] = (None, metric) if metric else ()
    remedies = [
        visible(f"{f.name}: {f.remedy}")
        for f in record.findings
        if f.objects(verdict) and f.remedy and (not metrics or f.metric in metrics)
    ]
    return "; ".join(dict.fromkeys(remedies))


def _trend_words(series: Judged) -> str:
    change = series.change
    if change is None or series.level is None:
        return ""
    return visible(
        f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%}) against the level of "
        f"{with_unit(series.level, series.unit)} since {_when(change.time)}, session {change.session}; "
        f"a false alarm in {one_of(series.false_alarms)} healthy series"
    )


#: What is said of a series whose newest run is as it was before.
_BACK: Final = "back at its level in the newest run; the alarm stands until more runs are good"


def _is_back(last: float, series: Judged) -> bool:
    """Return whether a run is nearer to the level than to a third of the loss."""
    if series.change is None or series.level is None:
        return False
    return abs(last / series.level - 1) < abs(series.change.share) / 3


def _drift(series: Judged, history: History) -> Trouble:
    curve, change = history.curve(series.line, series.metric), series.change
    last = curve.points[-1].value
    return Trouble(
        kind=DRIFT,
        where=visible(f"{series.system}:{series.partition}"),
        case=visible(short_name(series.case)),
        metric=visible(series.metric),
        measured=visible(with_unit(last, series.unit)),
        expected=""
        if series.level is None
        else visible(f"level of {with_unit(series.level, series.unit)}"),
        since="" if change is None else visible(f"{_when(change.time)}, session {change.session}"),
        reason=_BACK if _is_back(last, series) else "",
        trend=_trend_words(series),
        cause=UNCHANGED
        if change is None or change.before is None
        else history.changed(change.before, change.after),
        curve=curve,
    )
