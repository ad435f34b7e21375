"""The alarm after a run: what failed and what has become worse, in words that stand by themselves.

:func:`collect` reads the records of the sessions and the history; a :class:`Trouble` says case, metric, value,
what was expected, since when, and what had changed just before. Where it goes is the business of ``send``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import takewhile
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.alarm.figure import Curve, Point, bars
from iogauge.core.text import visible
from iogauge.core.units import format_value
from iogauge.evidence import fingerprint
from iogauge.judge.verdict import Verdict
from iogauge.records import journal, query
from iogauge.records.record import MetricRecord, Record, ReferenceRecord, short_name
from iogauge.report.outcome import SessionRecords
from iogauge.trend import states, view
from iogauge.trend.states import Judged, State

#: Word for a series that has become worse although its newest run met its reference.
DRIFT: Final = "DRIFT"

#: Runs in a figure, and in a line of bars.
SHOWN, BARS = 60, 30

#: Changes of the fingerprint that are named.
_NAMED: Final = 6

#: Figures of a record that are larger are not drawn.
_MOST: Final = 1e300
_COLUMNS: Final = (
    *("system", "partition", "case", "line", "series", "metric", "unit", "better", "record"),
    *("time", "session", "median", "metric_verdict", "verdict", "fingerprint", "confirms"),
)
_UNCHANGED: Final = (
    "nothing that the fingerprint knows (software, client, mount, network) changed with it: look at the "
    "storage itself, its servers and its load"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """One thing that somebody must look at; all text is fit for a terminal.

    ``kind`` is a verdict, or :data:`DRIFT`. Texts are empty where there is nothing to say; ``curve`` is None where
    the metric has no valid run.
    """

    kind: str
    where: str
    case: str
    metric: str = ""
    measured: str = ""
    expected: str = ""
    reason: str = ""
    since: str = ""
    trend: str = ""
    cause: str = ""
    remedy: str = ""
    curve: Curve | None = None

    @property
    def headline(self) -> str:
        """One line: ``FAIL mysite:scratch IorPosix shared direct write_bw: 24.9 MiB/s``."""
        name = " ".join(word for word in (self.kind, self.where, self.case, self.metric) if word)
        said = self.measured or self.reason
        return f"{name}: {said}" if said else name

    @property
    def paragraph(self) -> str:
        """Everything, the headline first, a line for each thing that is known."""
        told = {
            "expected": self.expected,
            "reason": self.reason if self.measured else "",
            "since": self.since,
            "trend": self.trend,
            "cause": self.cause,
            "remedy": self.remedy,
            "runs": bars([p.value for p in self.curve.points[-BARS:]]) if self.curve else "",
        }
        lines = [f"  {name + ':':<10}{text}" for name, text in told.items() if text]
        return "\n".join([self.headline, *lines])

    def to_json(self) -> dict[str, Any]:
        """The same as values of JSON."""
        names = ("kind", "where", "case", "metric", "measured", "expected", "reason", "since")
        told = {name: getattr(self, name) for name in (*names, "trend", "cause", "remedy")}
        runs = self.curve.points[-BARS:] if self.curve else ()
        return told | {
            "unit": self.curve.unit if self.curve else "",
            "runs": [p.value for p in runs],
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Alarm:
    """What there is to say of some sessions; ``failed`` even where there is no trouble with a name."""

    sessions: tuple[str, ...]
    systems: tuple[str, ...]
    summary: str
    failed: bool
    troubles: tuple[Trouble, ...]
    curves: tuple[Curve, ...]

    @property
    def title(self) -> str:
        """One line that sums it up."""
        word = "FAILED" if self.failed else "ok"
        return f"iogauge {', '.join(self.systems) or '-'}: {word}: {self.summary}"

    @property
    def text(self) -> str:
        """The title, and a paragraph for each trouble."""
        return "\n\n".join([self.title, *(trouble.paragraph for trouble in self.troubles)])


def collect(
    folder: Path,
    records: SessionRecords,
    *,
    gate: bool,
    expected: Iterable[str] = (),
    damaged: Iterable[journal.Damaged] = (),
) -> Alarm:
    """What the records of some sessions and the trend of what they measured have to say.

    ``folder`` is the history; ``expected`` are partitions (``system:partition``) that must have been measured,
    ``damaged`` are lines of the sessions that are no records: each is a trouble, as it may have told of one.
    As a gate everything but PASS is a trouble. Failures that a second run refuted are none, nor are those that
    a reference says to expect.
    """
    frame = query.load(folder, columns=_COLUMNS)
    mine = {record.line for record in records}
    rows = frame.filter(pl.col("line").is_in(sorted(mine)))
    judged = {(one.line, one.metric): one for one in states.states_of(rows)}
    known = _Known(folder, rows, judged)
    found: list[Trouble] = []
    told: set[tuple[str, str]] = set()
    for record in reversed(records):  # of a failure and its confirmation only the second is told
        if records.counts(record):
            found += _of_record(record, known, gate, told)
    found.reverse()
    found += [
        _drift(one, known)
        for key, one in judged.items()
        if one.state is State.ALARM and key not in told
    ]
    measured = {f"{record.system}:{record.partition}" for record in records}
    found += [
        Trouble(
            kind=Verdict.ERROR.value,
            where=visible(place),
            case="",
            reason="nothing was measured here: the run did not begin, or selected no case; see the job's log",
        )
        for place in dict.fromkeys(expected)
        if place not in measured
    ]
    found += [
        Trouble(
            kind=Verdict.ERROR.value,
            where=visible(f"{one.file.parent.name}: {one.file.stem}"),
            case="",
            reason=visible(f"line {one.line} is no record: {one.problem}"),
        )
        for one in damaged
    ]
    failed = bool(found) or records.exit_status(gate) != 0
    return Alarm(
        sessions=tuple(dict.fromkeys(r.session for r in records)),
        systems=tuple(sorted({visible(r.system) for r in records})),
        summary=records.summary(),
        failed=failed,
        troubles=tuple(found),
        curves=tuple(known.curve(*key) for key in known.measured()),
    )


class _Known:
    """The history of the lines that the sessions measured."""

    def __init__(
        self, folder: Path, rows: pl.DataFrame, judged: Mapping[tuple[str, str], Judged]
    ) -> None:
        self.judged = judged
        ids = view.fingerprint_ids(list(judged.values()))
        ids |= set(rows["fingerprint"].drop_nulls().unique())
        self.fingerprints = query.fingerprints(folder, ids)
        self._rows: dict[tuple[str, str | None], list[dict[str, Any]]] = {}
        for row in rows.iter_rows(named=True):
            self._rows.setdefault((row["line"], row["metric"]), []).append(row)
        self._cases: dict[str, list[dict[str, Any]]] = {}
        for row in rows.unique("record", keep="first", maintain_order=True).iter_rows(named=True):
            self._cases.setdefault(row["line"], []).append(row)
        self._references: dict[tuple[str, str], ReferenceRecord] = {}

    def measured(self) -> list[tuple[str, str]]:
        """Line and metric of everything that has a value."""
        return [(line, metric) for line, metric in self._rows if metric]

    def refer(self, line: str, metric: MetricRecord) -> None:
        """Take the reference of a newest record's metric."""
        if metric.reference:
            self._references[line, metric.name] = metric.reference

    def runs(self, line: str, metric: str) -> list[dict[str, Any]]:
        """Runs of a metric, or of the case where no metric is named, the oldest first, as ``outcome`` each."""
        if metric:
            return [
                r | {"outcome": r["metric_verdict"]} for r in self._rows.get((line, metric), [])
            ]
        return [r | {"outcome": r["verdict"]} for r in self._cases.get(line, [])]

    def curve(self, line: str, metric: str, since: str = "") -> Curve:
        """The newest runs of a metric, those in the unit of the last; an alarm knows better since when."""
        rows = self._rows[line, metric][-SHOWN:]
        last, one = rows[-1], self.judged.get((line, metric))
        alarmed = one is not None and one.state is State.ALARM and one.change is not None
        reference = self._references.get((line, metric))

        def bound(share: float | None) -> float | None:
            """What a share of the reference's value is; None where nothing can be drawn."""
            if share is None or reference is None:
                return None
            drawn = float(reference.value) * (1 + share)
            return drawn if abs(drawn) < _MOST else None

        return Curve(
            title=f"{last['partition']} {short_name(last['case'])} {metric}",
            unit=str(last["unit"]),
            points=[
                Point(
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
            since=one.change.session if alarmed and one and one.change else since or None,
        )

    def changed(self, before: str | None, after: str | None) -> str:
        """What differs between two fingerprints, as a sentence; that nothing does is one too."""
        if before is None or after is None:
            return ""
        old, new = self.fingerprints.get(before, {}), self.fingerprints.get(after, {})
        keys = [visible(f"{key}: {a} -> {b}") for key, a, b in fingerprint.changed(old, new)]
        if not keys:
            return _UNCHANGED
        more = f"; and {len(keys) - _NAMED} more" if len(keys) > _NAMED else ""
        return "changed just before: " + "; ".join(keys[:_NAMED]) + more


def _of_record(
    record: Record, known: _Known, gate: bool, told: set[tuple[str, str]]
) -> list[Trouble]:
    """Troubles of one case, a metric each; of the case where no metric explains its verdict."""
    line = record.line
    for metric in record.metrics:
        known.refer(line, metric)
    bad = [m for m in record.metrics if m.is_trouble(gate)]
    where = visible(f"{record.system}:{record.partition}")
    case = visible(record.short_name)
    if not bad:
        if not record.is_trouble(gate) or (line, "") in told:
            return []
        told.add((line, ""))
        since, cause, _ = _since(known.runs(line, ""), record.verdict, known)
        remedy = _remedies(record, "", record.verdict)
        reason = visible(record.reason)
        return [
            Trouble(
                kind=record.verdict.value,
                where=where,
                case=case,
                reason=reason,
                since=since,
                cause="" if remedy and cause == _UNCHANGED else cause,
                remedy=remedy,
            )
        ]
    found = []
    for metric in reversed(bad):
        name = metric.name
        if (line, name) in told:
            continue
        told.add((line, name))
        since, cause, session = _since(known.runs(line, name), metric.verdict, known)
        remedy = _remedies(record, name, metric.verdict)
        one = known.judged.get((line, name))
        alarmed = one is not None and one.state is State.ALARM
        found.append(
            Trouble(
                kind=metric.verdict.value,
                where=where,
                case=case,
                metric=visible(name),
                measured=_measured(metric),
                expected=_expectation(metric),
                reason="" if metric.verdict is Verdict.FAIL else visible(metric.reason),
                since=since,
                trend=_trend_words(one) if one and alarmed else "",
                cause="" if remedy and cause == _UNCHANGED else cause,
                remedy=remedy,
                # A record that the history takes for damaged has failed all the same.
                curve=known.curve(line, name, session) if known.runs(line, name) else None,
            )
        )
    return found


def _measured(metric: MetricRecord) -> str:
    spread = "" if metric.spread is None else f" ±{metric.spread:.1%}"
    text = f"{format_value(metric.median)} {metric.unit}{spread}"
    if metric.reference and metric.verdict is Verdict.FAIL:
        text += f", {metric.median / metric.reference.value - 1:+.1%} against the reference"
    return visible(text)


def _expectation(metric: MetricRecord) -> str:
    reference = metric.reference
    if not reference:
        return "" if metric.verdict is not Verdict.UNREFERENCED else "no reference"
    text = f"reference {format_value(reference.value)} {metric.unit}"
    if reference.lower is not None:
        text += f", at least {format_value(reference.value * (1 + reference.lower))}"
    if reference.upper is not None:
        text += f", at most {format_value(reference.value * (1 + reference.upper))}"
    return visible(text + (f" ({reference.source})" if reference.source else ""))


def _since(runs: Sequence[dict[str, Any]], verdict: Verdict, known: _Known) -> tuple[str, str, str]:
    """Since when a case or metric has had a verdict, what changed between the last PASS and then, the session."""
    bad = list(takewhile(lambda run: run["outcome"] == verdict.value, reversed(runs)))
    if not bad:
        return "", "", ""
    first = bad[-1]
    text = f"{_when(first['time'])}, session {first['session']}"
    if len(bad) > 1:
        text += f", {len(bad)} runs in a row"
    passed = [run for run in runs[: len(runs) - len(bad)] if run["outcome"] == Verdict.PASS.value]
    if not passed:
        return visible(f"{text}; no PASS in the history"), "", first["session"]
    last = passed[-1]
    text += f"; the last PASS: {_when(last['time'])}"
    if (
        last["median"] is not None
        and last["metric"] == first["metric"]
        and last["unit"] == first["unit"]
    ):
        text += f" with {format_value(last['median'])} {last['unit']}"
    return visible(text), known.changed(last["fingerprint"], first["fingerprint"]), first["session"]


def _when(time: datetime) -> str:
    return f"{time.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"


def _remedies(record: Record, metric: str, verdict: Verdict) -> str:
    """What the guards that objected advise."""
    mine: Collection[str | None] = (None, metric) if metric else ()
    found = [
        visible(f"{f.guard}: {f.remedy}")
        for f in record.findings
        if f.objects(verdict) and f.remedy and (not mine or f.metric in mine)
    ]
    return "; ".join(dict.fromkeys(found))


def _trend_words(one: Judged) -> str:
    change = one.change
    if change is None or one.level is None:
        return ""
    certainty = max(one.false_alarms, 1e-4)
    return visible(
        f"{change.share:+.1%} ({change.low:+.1%} to {change.high:+.1%}) against the level of "
        f"{format_value(one.level)} {one.unit} since {_when(change.time)}, session {change.session}; as strong in "
        f"{'less than ' if one.false_alarms < certainty else ''}{certainty:.2%} of stable series"
    )


def _drift(one: Judged, known: _Known) -> Trouble:
    curve, change = known.curve(one.line, one.metric), one.change
    last = curve.points[-1].value
    return Trouble(
        kind=DRIFT,
        where=visible(f"{one.system}:{one.partition}"),
        case=visible(short_name(one.case)),
        metric=visible(one.metric),
        measured=visible(f"{format_value(last)} {one.unit}"),
        expected=""
        if one.level is None
        else visible(f"level of {format_value(one.level)} {one.unit}"),
        since="" if change is None else visible(f"{_when(change.time)}, session {change.session}"),
        trend=_trend_words(one),
        cause=_UNCHANGED
        if change is None or change.before is None
        else known.changed(change.before, change.after),
        curve=curve,
    )
