"""What a page says first: how many cases are accepted, and what follows from the records."""

from __future__ import annotations

from collections import Counter
from typing import Final, NamedTuple

from iogauge.core.text import count
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord
from iogauge.report.endings import UNPROVEN, SessionRecords, Word
from iogauge_extras.page.collect import against
from iogauge_extras.page.trouble import DRIFT, Alarm


class Tile(NamedTuple):
    """A number that one look must tell; it has the style of a verdict."""

    name: str
    style: str
    sign: str
    meaning: str
    number: int


def tiles(alarm: Alarm, records: SessionRecords) -> list[Tile]:
    """Return how many cases are accepted, failed, invalid, unproven and missing."""
    counts = Counter(record.verdict for record in records if records.counts(record))
    unproven = sum(counts[verdict] for verdict in UNPROVEN)
    failed = counts[Verdict.FAIL] + counts[Verdict.ERROR]
    accepted, invalid = counts[Verdict.PASS], counts[Verdict.INVALID]
    return [
        Tile("accepted", "PASS", "✓", "proven, and as the reference demands", accepted),
        Tile("failed", "FAIL", "✗", "below the reference, or the tool failed", failed),
        Tile("invalid", "INVALID", "⊘", "the number is not the storage's", invalid),
        Tile("unproven", "UNREFERENCED", "?", "no reference, or too much noise", unproven),
        Tile("missing", "MISSING", "–", "asked for, and not measured", alarm.missing),
    ]


_CONCLUSIONS: Final = {
    Word.OK: "Everything that was asked for is accepted.",
    Word.PARTLY_PROVEN: "Accepted in part: what is unproven or missing stays open.",
    Word.NOTHING_PROVEN: "Nothing is accepted: no case is proven against a reference.",
    Word.FAILED: "Not accepted.",
}


def conclusion(alarm: Alarm, records: SessionRecords) -> str:
    """Return what follows from the records, in sentences: the decision, and its gravest reason."""
    said = [_CONCLUSIONS[alarm.ending.word]]
    failed = [
        (_loss(metric), metric, record)
        for record in records
        if records.counts(record)
        for metric in record.metrics
        if metric.verdict is Verdict.FAIL and metric.reference
    ]
    if failed:
        _, metric, record = min(failed, key=lambda found: found[0])
        said.append(
            f"The gravest failure: {metric.name} of {record.short_name} on {record.where} is {against(metric)}."
        )
    if drifts := sum(trouble.kind == DRIFT for trouble in alarm.troubles):
        said.append(f"{count(drifts, 'metric')} became worse over time.")
    invalid = [r for r in records if r.verdict is Verdict.INVALID]
    guards = Counter(
        guard
        for record in invalid
        for guard in {f.name for f in record.findings if f.objects(Verdict.INVALID)}
    ).most_common(3)
    if guards:
        names = ", ".join(f"{guard} ({times} x)" for guard, times in guards)
        said.append(f"Guards refuse {count(len(invalid), 'case')}, most often {names}.")
    return " ".join(said)


def _loss(metric: MetricRecord) -> float:
    """Return ln(value over reference), signed so that a loss is below 0."""
    value = float(metric.median) / float(metric.reference.value) if metric.reference else 1.0
    return (value - 1) if metric.better == "more" else (1 - value)
