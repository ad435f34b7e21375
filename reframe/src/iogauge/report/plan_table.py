"""Show what the selected cases will cost: a row a case, or a row a check if there are many.

The cases are read from what a dry run writes into their stage directories.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.guards.finding import Finding, Outcome
from iogauge.plan.bounds import ASSUMED_SPEED, Cost, excess
from iogauge.plan.stage import PlannedCase, TimedPhases
from iogauge.records import record
from iogauge.report.layout import Column, Group, Table
from iogauge.site.extras import Budget

#: More cases than this are shown as one row a check and partition.
MOST_ROWS: Final = 40

#: Number of cases to name if a budget is exceeded.
_DEAREST: Final = 3


def duration(seconds: float) -> str:
    """Return a duration for people: ``45 s``, ``12 min``, ``3 h 20 min``."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"


def _cells(cases: Sequence[PlannedCase]) -> tuple[str, ...]:
    """Return the largest space and number of files; the sums of writes, reads and node-minutes."""
    return (
        format_bytes(max(case.order.held_bytes + case.order.fill_bytes for case in cases)),
        str(max(case.order.files for case in cases)),
        _moved("write", sum(case.written_bytes for case in cases), cases),
        _moved("read", sum(case.read_bytes for case in cases), cases),
        f"{sum(case.node_minutes for case in cases):.1f}",
    )


def _moved(direction: str, known: float, cases: Sequence[PlannedCase]) -> str:
    """Return the bytes that are known before; of phases of a set time nobody knows them."""
    timed = any(phases.direction == direction for case in cases for phases in case.timed)
    return "by time" if timed and not known else format_bytes(known)


_COLUMNS: Final = (
    Column("case"),
    Column("holds", right=True),
    Column("files", right=True),
    Column("writes", right=True),
    Column("reads", right=True),
    Column("node-minutes", right=True),
)


def by_size(text: str) -> tuple[tuple[float, str], ...]:
    """Return a key that sorts names by the sizes and numbers in them: 4KiB before 32KiB."""
    parts = re.findall(r"(\d+(?:\.\d+)?)([KMGTP]?)|(\D+)", text)
    return tuple(
        (float(number) * 1024 ** " KMGTP".index(unit or " "), "") if number else (-1.0, word)
        for number, unit, word in parts
    )


def table(cases: Sequence[PlannedCase], wide: bool = False) -> Table:
    """Return a table of the footprints and their sum, by partition and target."""
    many = len(cases) > MOST_ROWS
    places: dict[tuple[str, str], list[PlannedCase]] = {}
    for case in cases:
        places.setdefault((case.partition, case.order.target), []).append(case)
    groups = []
    for (partition, target), here in places.items():
        rows: dict[str, list[PlannedCase]] = {}
        for number, case in enumerate(sorted(here, key=_sorting)):
            key = case.check if many else f"{number} {record.short_name(case.name)}"
            rows.setdefault(key, []).append(case)
        named = (
            (f"{key}: {len(group)} case(s)" if many else key.split(" ", 1)[1], *_cells(group))
            for key, group in rows.items()
        )
        groups.append(Group(f"{partition}, target {target}", list(named)))
    groups.append(Group("", [(f"{len(cases)} case(s), one at a time", *_cells(cases))]))
    return Table(_COLUMNS, groups, wide=wide)


def listing(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of cases, and of what each lacks here."""
    return Table((Column("case"), Column("runs here")), [Group("cases", rows)])


def _sorting(case: PlannedCase) -> tuple[tuple[float, str], ...]:
    return by_size(record.short_name(case.name))


def to_json(cases: Sequence[PlannedCase]) -> str:
    """Return the footprint of each case as JSON, in bytes, minutes and seconds."""
    return json.dumps(
        [
            {
                "case": record.short_name(case.name),
                "check": case.check,
                "partition": case.partition,
                "target": case.order.target,
                "held_bytes": case.order.held_bytes + case.order.fill_bytes,
                "files": case.order.files,
                "written_bytes": case.written_bytes,
                "read_bytes": case.read_bytes,
                "nodes": case.nodes,
                "node_minutes": case.node_minutes,
                "seconds": case.seconds,
                "rests_on": case.rests_on,
                "doubts": case.doubts,
                "refused": case.refused,
            }
            for case in sorted(cases, key=_sorting)
        ],
        indent=2,
    )


#: What the time is worth if the site declares nothing about the target's speed.
_GUESS: Final = (
    "The time is a guess: {cases} case(s) have neither a reference nor a ceiling, so {speed} is assumed. "
    "A faster target needs less time, a slower target needs more. To plan better, declare topology "
    "(docs/keys.md)"
)


def remarks(cases: Sequence[PlannedCase]) -> list[str]:
    """Say how long the cases will take, on what this estimate rests, and what the columns mean."""
    rests = Counter(source for case in cases for source in case.rests_on)
    sources = ", ".join(f"{source} ({count} case(s))" for source, count in rests.most_common())
    seconds = sum(case.seconds for case in cases)
    guessed = sum(any(one.startswith("assumed: ") for one in case.rests_on) for case in cases)
    return [
        f"expected: {duration(seconds)} one after the other, without waiting for nodes; "
        + (f"bandwidths used: {sources}" if sources else "all phases have a fixed duration"),
        *([_GUESS.format(cases=guessed, speed=ASSUMED_SPEED)] if guessed else []),
        "'holds' and 'files': the most that is on the target at one time",
    ]


def doubts(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each doubt about references; the first of several cases stands for all."""
    return _by_text((case, text) for case in cases for text in case.doubts)


def refused(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each reference that would prove nothing, as :func:`doubts` does."""
    return _by_text((case, text) for case in cases for text in case.refused)


def _by_text(said: Iterable[tuple[PlannedCase, str]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for case, text in said:
        names.setdefault(text, []).append(record.short_name(case.name))
    return [f"{first_and_more(cases)}: {text}" for text, cases in names.items()]


def first_and_more(names: Sequence[str]) -> str:
    """Return the first of several names, and how many more there are."""
    return f"{names[0]} and {len(names) - 1} more" if names[1:] else names[0]


def timed(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each amount that phases of a set time may move; nobody knows it before."""

    def text(phases: TimedPhases) -> str:
        most = "Nobody knows how many they are: the site declares no ceiling"
        if phases.most_bytes is not None:
            most = f"At the ceiling they are {format_bytes(phases.most_bytes)}"
        return (
            f"{phases.direction}s for {duration(phases.seconds)} as fast as the target can. The table and the "
            f"budget leave these bytes out. {most}"
        )

    return _by_text((case, text(phases)) for case in cases for phases in case.timed)


_SEVERITY: Final = {Outcome.OK: 0, Outcome.WARN: 1}


def worst(
    findings: Sequence[tuple[PlannedCase, Sequence[Finding]]],
) -> list[tuple[Finding, list[str]]]:
    """Return the worst finding of each guard over the cases of a target, and whom it concerns.

    Of findings that are equally bad, that of the largest case stands (G14: the one with the most
    files). Names are given of cases whose findings are not OK.
    """
    by_guard: dict[tuple[str, int], list[tuple[PlannedCase, Finding]]] = {}
    for case, found in findings:
        seen: Counter[str] = Counter()
        for finding in found:  # a guard may have several demands
            by_guard.setdefault((finding.guard, seen[finding.guard]), []).append((case, finding))
            seen[finding.guard] += 1

    def badness(pair: tuple[PlannedCase, Finding]) -> tuple[int, int]:
        case, finding = pair
        size = case.order.files if finding.guard == "G14" else case.order.held_bytes
        return _SEVERITY.get(finding.outcome, 2), size

    chosen = []
    for group in by_guard.values():
        _, finding = max(group, key=badness)
        bad = [case for case, one in group if one.outcome is finding.outcome is not Outcome.OK]
        chosen.append((finding, [record.short_name(case.name) for case in bad]))
    return chosen


def _written(case: PlannedCase) -> tuple[float, str]:
    """Return the bytes that a case writes, as a number to compare and as text."""
    return case.written_bytes, format_bytes(case.written_bytes)


def _node_hours(case: PlannedCase) -> tuple[float, str]:
    """Return the time that a case takes of the nodes, as a number to compare and as text."""
    return case.node_minutes, f"{case.node_minutes / 60:.3g} node-hours"


def over_budget(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each exceeded budget: by how much, and the most expensive cases."""
    by_partition: dict[str, list[PlannedCase]] = {}
    for case in cases:
        if case.budget:
            by_partition.setdefault(case.partition, []).append(case)
    lines = []
    for partition, group in by_partition.items():
        budget = Budget.model_construct(None, **(group[0].budget or {}))
        costs = [Cost(case.node_minutes * 60, case.written_bytes, 1) for case in group]
        for text in excess(budget, sum(costs, Cost())):
            written = text.startswith("written")
            spent = _written if written else _node_hours
            dearest = sorted(group, key=spent, reverse=True)[:_DEAREST]
            names = ", ".join(
                f"{record.short_name(case.name)} ({spent(case)[1]})" for case in dearest
            )
            lines.append(f"over budget: {partition}: {text}. Most by: {names}")
    return lines


def over_time(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each partition whose time limit would end cases, as far as is expected."""
    by_limit: dict[tuple[str, float], list[PlannedCase]] = {}
    for case in cases:
        if 0 < case.order.time_limit_s < case.seconds:
            by_limit.setdefault((case.partition, case.order.time_limit_s), []).append(case)
    lines = []
    for (partition, limit), group in by_limit.items():
        longest = max(group, key=lambda case: case.seconds)
        lines.append(
            f"over the time limit: {partition}: {len(group)} case(s) need more than time_limit "
            f"{duration(limit)}, most of all {record.short_name(longest.name)} ({duration(longest.seconds)}). "
            "Raise the partition's time_limit, or lower limits.case_bytes"
        )
    return lines


def within_budget(cases: Sequence[PlannedCase]) -> list[str]:
    """Return a line for each partition with a budget: the part that the cases will use."""
    lines = []
    for partition in dict.fromkeys(case.partition for case in cases if case.budget):
        group = [case for case in cases if case.partition == partition]
        budget = group[0].budget or {}
        hours = sum(case.node_minutes for case in group) / 60
        written = sum(case.written_bytes for case in group)
        parts = (
            [f"{hours:.3g} of {budget['node_hours']:g} node-hours"] if budget["node_hours"] else []
        )
        if budget["written"]:
            parts.append(
                f"{format_bytes(written)} of {format_bytes(int(budget['written']))} written"
            )
        lines.append(f"budget of {partition}: {', '.join(parts)}")
    return lines
