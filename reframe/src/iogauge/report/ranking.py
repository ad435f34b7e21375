"""What somebody must look at first: one order for the terminal, the page, the alarm and JUnit."""

from collections.abc import Collection, Iterable
from enum import IntEnum
from typing import Final

from iogauge.judge.verdict import Verdict
from iogauge.records.record import MetricRecord, Record


class Rank(IntEnum):
    """How grave a trouble is, the gravest first."""

    #: The storage returned other data than were written.
    WRONG_DATA = 0
    FAIL = 1
    #: A metric has become worse, and still meets its reference.
    DRIFT = 2
    #: Every case of the target ended as ERROR.
    DEAD_TARGET = 3
    INVALID = 4
    ERROR = 5
    CONTAMINATED = 6
    UNSTABLE = 7
    UNREFERENCED = 8
    #: A metric had become worse, and its newest run is as good as before.
    BACK = 9
    PASS = 10

    @property
    def is_noise(self) -> bool:
        """Return whether it shows nothing of the target: all such cases of a target are one trouble."""
        return Rank.CONTAMINATED <= self <= Rank.UNREFERENCED


#: The guard that compares what is read with what was written.
_CONTENTS: Final = "G8"


def loss_of(metric: MetricRecord) -> float:
    """Return the share of its reference that a metric lacks: 0.4 for 60 of 100 MiB/s; 0 without a loss."""
    if metric.reference is None:
        return 0.0
    share = metric.median / metric.reference.value - 1
    if metric.better == "more":
        share = -share
    return max(0.0, share)


def dead_targets(records: Iterable[Record]) -> frozenset[str]:
    """Return the partitions (``system:partition``) on which every case ended as ERROR."""
    alive: set[str] = set()
    dead: set[str] = set()
    for record in records:
        group = dead if record.verdict is Verdict.ERROR else alive
        group.add(record.where)
    return frozenset(dead - alive)


def rank_of(record: Record, verdict: Verdict, dead: Collection[str] = ()) -> Rank:
    """Return the rank of a record, or of one of its metrics with this verdict."""
    for finding in record.findings:
        is_wrong = finding.guard == _CONTENTS and finding.objects(Verdict.INVALID)
        if is_wrong and verdict is Verdict.INVALID:
            return Rank.WRONG_DATA
    if verdict is Verdict.ERROR and record.where in dead:
        return Rank.DEAD_TARGET
    return Rank[verdict.value]


def ranked(records: Iterable[Record]) -> list[Record]:
    """Return records, the gravest first; of two failures the one that loses more."""
    found = list(records)
    dead = dead_targets(found)

    def weight(record: Record) -> tuple[Rank, float]:
        rank = rank_of(record, record.verdict, dead)
        losses = [0.0]
        if rank is Rank.FAIL:
            losses += map(loss_of, record.metrics)
        return rank, -max(losses)

    return sorted(found, key=weight)
