"""What a session found, one row a metric: the table, and the same as JSON."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from rich.markup import escape

from iogauge.core.groups import grouped
from iogauge.core.text import visible_lines
from iogauge.core.units import SIZE_UNITS, format_value, of_runs, with_unit
from iogauge.core.vocabulary import NO_REFERENCE, POINTS
from iogauge.guards.finding import Outcome
from iogauge.judge.verdict import Verdict
from iogauge.records.record import (
    FindingRecord,
    MetricRecord,
    Record,
    operations_of,
    same_spread,
)
from iogauge.report.endings import Ending
from iogauge.report.layout import Table, columns


def newest(records: Sequence[Record]) -> list[Record]:
    """Return the newest record of each line, in the order of their first records."""
    found: dict[str, Record] = {}
    for record in records:
        line = record.line
        if line not in found or record.time >= found[line].time:
            found[line] = record
    return list(found.values())


def repeated(record: Record, metric: MetricRecord) -> MetricRecord | None:
    """Return the operations per second that a bandwidth repeats, None if it does not.

    Samples that are proportional have the same spread.
    """
    name = operations_of(metric.name)
    for other in record.metrics:
        if other.name == name and same_spread(other.spread, metric.spread):
            return other
    return None


def same_fault(record: Record, metric: MetricRecord) -> MetricRecord:
    """Return the operations per second that are slow or unsteady as the bandwidth that repeats them, or the metric itself."""
    if metric.verdict in (Verdict.FAIL, Verdict.UNSTABLE):
        other = repeated(record, metric)
        alike = other and other.verdict is metric.verdict
        if other and alike and other.is_trouble(gate=True):
            return other
    return metric


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the table: what a record says of a metric."""

    record: Record
    verdict: Verdict
    #: Why the verdict is not PASS.
    reasons: tuple[str, ...]
    metric: str = "-"
    measured: str = "-"
    #: Empty without one; so is the ceiling.
    reference: str = ""
    ceiling: str = ""
    #: None if it has no value.
    of: MetricRecord | None = None
    #: What guards noticed that changes no verdict.
    remarks: tuple[str, ...] = ()

    @property
    def scenario(self) -> str:
        """Return the name of the case."""
        return self.record.short_name

    @property
    def place(self) -> str:
        """Return what the rows of a block have in common."""
        return f"{self.record.where} at {self.record.target_path}"


def plain(text: str) -> str:
    """Return text from outside for a rich console; its markup and control characters do nothing."""
    return escape(visible_lines(text))


def _with_remedy(text: str, finding: FindingRecord) -> str:
    if not finding.remedy:
        return text
    return f"{text}. {finding.remedy}"


def _reasons(record: Record, metric: MetricRecord) -> tuple[str, ...]:
    """Return why a metric has its verdict; nothing for PASS.

    The bandwidth of a block size is its operations per second, times the block. If both fail alike,
    that is one fault with one reason.
    """
    about = same_fault(record, metric)
    objections = []
    for finding in record.findings:
        if finding.metric in (None, about.name) and finding.objects(about.verdict):
            text = f"{finding.name}: {finding.saw}; demanded: {finding.demands}"
            objections.append(_with_remedy(text, finding))
    if objections or about.verdict is Verdict.PASS or not about.reason:
        return tuple(objections)
    return (about.reason,)


def _remarks(record: Record, metric: MetricRecord) -> tuple[str, ...]:
    """Return what guards noticed that changes no verdict."""
    name = same_fault(record, metric).name
    remarks = []
    for finding in record.findings:
        short = finding.guard == "G4" and record.tier == "quick"
        noticed = finding.outcome == Outcome.WARN.value and not short
        if noticed and finding.metric in (None, name):
            text = f"{finding.name}, a remark: {finding.saw}"
            remarks.append(_with_remedy(text, finding))
    return tuple(remarks)


def folded(lines: Iterable[Row]) -> list[Row]:
    """Return rows, those of ``--repeat`` as one row a case, metric and verdict, in the first one's place.

    Its measured values are the least, the most and their median; its reasons are those of all runs.
    """

    def same(row: Row) -> tuple[object, ...]:
        record = row.record
        run: object = id(record)
        if "%.repeat_no=" in record.case:
            run = (record.session, *record.place)
        return (run, record.short_name, row.metric, row.verdict)

    return list(map(_folded, grouped(lines, same).values()))


def _folded(found: Sequence[Row]) -> Row:
    row = found[0]
    if len(found) == 1:
        return row
    values: list[float] = []
    reasons: list[str] = []
    remarks: list[str] = []
    for run in found:
        if run.of:
            values.append(run.of.median)
        reasons += run.reasons
        remarks += run.remarks
    text = f"{len(found)} runs"
    if row.of and values:
        text = of_runs(values, row.of.unit)
    return replace(
        row,
        measured=text,
        reasons=tuple(dict.fromkeys(reasons)),
        remarks=tuple(dict.fromkeys(remarks)),
    )


def rows(records: Iterable[Record]) -> list[Row]:
    """Return the rows of a session's records; a case without metrics has one row."""
    lines: list[Row] = []
    for record in records:
        if not record.metrics:
            lines.append(Row(record, record.verdict, (record.reason,)))
        for metric in record.metrics:
            ceiling = format_value(metric.ceiling) if metric.ceiling else ""
            lines.append(
                Row(
                    record,
                    metric.verdict,
                    _reasons(record, metric),
                    metric=metric.name,
                    measured=measured(metric),
                    reference=_bound(metric),
                    ceiling=ceiling,
                    of=metric,
                    remarks=_remarks(record, metric),
                )
            )
        lines += _not_computed(record)
    return lines


def measured(metric: MetricRecord) -> str:
    """Return the median with its unit and its spread."""
    text = with_unit(metric.median, metric.unit)
    if metric.spread is not None:
        text += f" ±{metric.spread:.1%}"
    return text


def _bound(metric: MetricRecord) -> str:
    """Return the reference of a metric, with its bound or with the share of the ceiling that it is."""
    reference = metric.reference
    if not reference:
        return ""
    value = format_value(reference.value)
    if reference.of_ceiling:
        return f"{value} ({reference.of_ceiling:.0%} of ceiling)"
    allowed = reference.lower if metric.better == "more" else reference.upper
    if allowed:
        value += f" {allowed:+.0%}"
    return value


def _not_computed(record: Record) -> list[Row]:
    """Return rows for the metrics that a derived case could not compute, if it computed others."""
    computed = {metric.name for metric in record.metrics}
    lines: list[Row] = []
    if not computed:
        return lines
    for finding in record.findings:
        if (
            finding.guard == POINTS
            and finding.metric
            and finding.metric not in computed
        ):
            verdict = Verdict.UNREFERENCED
            if finding.objects(Verdict.INVALID):
                verdict = Verdict.INVALID
            lines.append(Row(record, verdict, (finding.saw,), finding.metric))
    return lines


#: A figure in a sentence: a decimal fraction, a percentage or bytes. Other numbers may name a node, a rank or a target.
_FIGURE: Final = re.compile(
    r"(?<![\w.-])-?\d+(?:\.\d+(?!\.?\w)|(?=\s?%|\s[KMGTP]?i?B(?![\w/])))(?:\s[KMGTP]?i?B(?![\w/]))?"
)


def _size(figure: str) -> float:
    """Return what a figure is sorted by: its number, or its bytes."""
    number, _, unit = figure.partition(" ")
    return float(number) * SIZE_UNITS.get(unit, 1)


def _joined(sentences: Sequence[str]) -> str:
    """Return sentences that differ at most in their figures as one, with the least and the most of each figure."""
    places = zip(*map(_FIGURE.findall, sentences), strict=True)
    texts = []
    for figures in places:
        ends = sorted(figures, key=_size)
        texts.append(" to ".join(dict.fromkeys([ends[0], ends[-1]])))
    shown = iter(texts)
    return _FIGURE.sub(lambda _: next(shown), sentences[0])


def notes_of(sentences: Iterable[str]) -> dict[str, str]:
    """Return the note of each sentence: one for those that are alike."""
    alike = grouped(sentences, lambda sentence: _FIGURE.sub("#", sentence))
    notes = {}
    for same in alike.values():
        notes.update(dict.fromkeys(same, _joined(same)))
    return notes


class Notes:
    """Sentences below a table by their numbers: one for those that are alike."""

    def __init__(self, sentences: Iterable[str]) -> None:
        """Number the sentences in their order."""
        self._of = notes_of(sentences)
        self.texts = list(dict.fromkeys(self._of.values()))

    def numbers(self, sentences: Iterable[str]) -> list[int]:
        """Return the numbers of some of the sentences, each once."""
        notes = dict.fromkeys(self._of[sentence] for sentence in sentences)
        return [self.texts.index(note) + 1 for note in notes]


def remarks_of(lines: Sequence[Row]) -> list[str]:
    """Return the remarks of rows, each once, with the number of its rows."""
    remarks: list[str] = []
    for line in lines:
        remarks += line.remarks
    notes = Notes(remarks)
    rows: Counter[int] = Counter()
    for line in lines:
        rows.update(notes.numbers(line.remarks))
    return [
        f"{note} ({rows[number]} of {len(lines)} rows)"
        for number, note in enumerate(notes.texts, 1)
    ]


def table(records: Iterable[Record], *, dated: bool = False) -> Table:
    """Return what records found as a table by target, ``dated`` with their time; the reasons are numbered below it."""
    lines = folded(rows(records))
    reasons: list[str] = []
    for line in lines:
        reasons += to_act_on(line)
    notes = Notes(reasons)
    bounds = []
    for bound in ("reference", "ceiling"):
        if any(getattr(line, bound) for line in lines):
            bounds.append(bound)

    def scenario(line: Row) -> str:
        if dated:
            return f"{line.record.minute}  {line.scenario}"
        return line.scenario

    def cells(line: Row, last: Row | None) -> tuple[str, ...]:
        numbers = notes.numbers(to_act_on(line))
        why = ""
        if numbers:
            why = f"[{','.join(map(str, numbers))}]"
        name = scenario(line)
        if last is not None and scenario(last) == name:
            name = ""
        figures = [getattr(line, bound) or "-" for bound in bounds]
        return (name, line.metric, line.measured, *figures, line.verdict.value, why)

    blocks = {}
    for where, mine in grouped(lines, lambda line: line.place).items():
        blocks[where] = list(map(cells, mine, [None, *mine]))
    headings = ("scenario", "metric", "median ±spread", *bounds, "verdict", "why")
    shown = columns(*headings, right=bounds)
    return Table(shown, blocks, notes.texts, footer=remarks_of(lines))


def to_act_on(line: Row) -> tuple[str, ...]:
    """Return the reasons of a row, but for the lack of a reference, which its verdict says."""
    return tuple(reason for reason in line.reasons if reason != NO_REFERENCE)


#: Keys of a metric that :func:`to_json` shows as they are recorded.
_FIGURES: Final = ("median", "unit", "spread", "reference", "ceiling")


def to_json(records: Iterable[Record], ending: Ending) -> str:
    """Return the ending of a session and each metric, with its reasons, as JSON."""
    metrics = []
    for row in rows(records):
        record = row.record
        figures = row.of.to_json() if row.of else {}
        metric = None if row.metric == "-" else row.metric
        metrics.append(
            {
                "case": record.short_name,
                "system": record.system,
                "partition": record.partition,
                "environment": record.environment,
                "target": record.target_path,
                "metric": metric,
                **{key: figures.get(key) for key in _FIGURES},
                "verdict": row.verdict.value,
                "reasons": [*row.reasons, *row.remarks],
            }
        )
    told = {**ending.to_json(), "remarks": ending.remarks, "metrics": metrics}
    return json.dumps(told, indent=2)
