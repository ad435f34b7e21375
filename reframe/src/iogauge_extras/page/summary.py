"""What a page says first: how many cases are accepted, and what follows from the records."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final

from iogauge.core.text import count
from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord
from iogauge.report.endings import SessionRecords, Word
from iogauge_extras.page.collect import against
from iogauge_extras.page.trouble import DRIFT, Alarm


@dataclass(frozen=True, slots=True)
class Tile:
    """A number that one look must tell, with the verdicts that it counts."""

    name: str
    count: int
    sign: str
    style: str
    meaning: str


def tiles(alarm: Alarm, records: SessionRecords) -> list[Tile]:
    """Return how many cases are accepted, failed, invalid, unproven and missing."""
    counts = Counter(record.verdict for record in records if records.counts(record))
    unproven = (Verdict.UNREFERENCED, Verdict.UNSTABLE, Verdict.CONTAMINATED)
    failed = counts[Verdict.FAIL] + counts[Verdict.ERROR]
    return [
        Tile("accepted", counts[Verdict.PASS], "✓", "PASS", "proven, and as the reference demands"),
        Tile("failed", failed, "✗", "FAIL", "below the reference, or the tool failed"),
        Tile("invalid", counts[Verdict.INVALID], "⊘", "INVALID", "the number is not the storage's"),
        Tile(
            "unproven",
            sum(counts[v] for v in unproven),
            "?",
            "UNREFERENCED",
            "no reference, or too much noise",
        ),
        Tile("missing", alarm.missing, "–", "MISSING", "asked for, and not measured"),
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
    worst = min(
        (
            (_loss(metric), metric, record)
            for record in records
            if records.counts(record)
            for metric in record.metrics
            if metric.verdict is Verdict.FAIL and metric.reference
        ),
        key=lambda found: found[0],
        default=None,
    )
    if worst:
        _, metric, record = worst
        said.append(
            f"The gravest failure: {metric.name} of {record.short_name} on {record.system}:{record.partition} "
            f"is {against(metric)}."
        )
    drifts = [trouble for trouble in alarm.troubles if trouble.kind == DRIFT]
    if drifts:
        said.append(f"{count(len(drifts), 'metric')} became worse over time.")
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
