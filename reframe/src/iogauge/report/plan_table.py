"""Show what the selected cases will cost: a row a case, or a row a check if there are many.

The cases are read from what a dry run writes into their stage directories.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from iogauge.core.groups import grouped
from iogauge.core.text import some
from iogauge.core.units import duration, format_bytes, in_order
from iogauge.guards.finding import Finding, Outcome
from iogauge.plan.stage import PlannedCase
from iogauge.records.record import short_name
from iogauge.report.layout import Table, columns

#: More cases than this are shown as one row a check and partition.
MOST_ROWS: Final = 40


def _cells(cases: Sequence[PlannedCase]) -> tuple[str, ...]:
    """Return the largest space and number of files; the sums of writes, reads and node-minutes."""
    held = files = written = read = 0
    minutes = 0.0
    for case in cases:
        held = max(held, case.order.held_bytes)
        files = max(files, case.order.files)
        written += case.cost.written_bytes
        read += case.cost.read_bytes
        minutes += case.cost.node_minutes
    return (
        format_bytes(held),
        str(files),
        _moved("write", written, cases),
        _moved("read", read, cases),
        f"{minutes:.1f}",
    )


def _moved(direction: str, known: float, cases: Sequence[PlannedCase]) -> str:
    """Return the bytes that are known before; of phases of a set time nobody knows them."""
    timed = any(direction in case.cost.timed for case in cases)
    if not timed:
        return format_bytes(known)
    if not known:
        return "by time"
    return f"{format_bytes(known)} and more"


def table(cases: Sequence[PlannedCase]) -> Table:
    """Return a table of the footprints and their sum, by partition and target."""
    figures = ("holds", "files", "writes", "reads", "node-minutes")
    blocks: dict[str, list[tuple[str, ...]]] = {}
    by_target = grouped(cases, lambda case: (case.partition, case.order.target))
    for (partition, target), here in by_target.items():
        here.sort(key=lambda case: in_order(name_of(case)))
        rows = []
        if len(cases) > MOST_ROWS:
            checks = grouped(here, lambda case: case.check)
            for check, mine in checks.items():
                rows.append((f"{check}: {len(mine)} case(s)", *_cells(mine)))
        else:
            for case in here:
                rows.append((name_of(case), *_cells([case])))
        blocks[f"{partition}, target {target}"] = rows
    blocks[""] = [(f"{len(cases)} case(s), one at a time", *_cells(cases))]
    return Table(columns("case", *figures, right=figures), blocks)


def listing(rows: Sequence[tuple[str, str]]) -> Table:
    """Return a table of cases, and of what each lacks here."""
    return Table(columns("case", "runs here"), {"cases": rows})


def name_of(case: PlannedCase) -> str:
    """Return the name that the tables have for a case."""
    return short_name(case.name)


def remarks(cases: Sequence[PlannedCase]) -> list[str]:
    """Say how long the cases will take, on what this estimate rests, and what the columns mean."""
    rests: Counter[str] = Counter()
    for case in cases:
        rests.update(case.rests_on)
    rested = "all phases have a fixed duration"
    if rests:
        sources = [
            f"{source} ({count} case(s))" for source, count in rests.most_common()
        ]
        rested = f"bandwidths used: {', '.join(sources)}"
    seconds = sum(case.cost.seconds for case in cases)
    expected = f"expected: {duration(seconds)} one after the other, without waiting for nodes; {rested}"
    return [expected, "'holds' and 'files': the most that is on the target at one time"]


def doubts(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each doubt about references; the first of several cases stands for all."""
    return _by_text((case, case.doubts) for case in cases)


def refused(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each reference that would prove nothing, as :func:`doubts` does."""
    return _by_text((case, case.refused) for case in cases)


def _by_text(remarks: Iterable[tuple[PlannedCase, Iterable[str]]]) -> list[str]:
    names: dict[str, list[str]] = {}
    for case, texts in remarks:
        for text in texts:
            names.setdefault(text, []).append(name_of(case))
    return [f"{some(mine, 1)}: {text}" for text, mine in names.items()]


_SEVERITY: Final = {Outcome.OK: 0, Outcome.WARN: 1}


def _badness(found: tuple[PlannedCase, Finding]) -> tuple[int, int]:
    """Return how bad a finding is, and how large its case."""
    case, finding = found
    return _SEVERITY.get(finding.outcome, 2), case.order.held_bytes


def worst(
    findings: Sequence[tuple[PlannedCase, Sequence[Finding]]],
) -> list[tuple[Finding, list[str]]]:
    """Return the worst finding of each guard over the cases of a target, and whom it concerns.

    Of findings that are equally bad, that of the largest case stands. Names are given of cases whose findings are not OK.
    """
    guards: dict[str, list[tuple[PlannedCase, Finding]]] = {}
    for case, found in findings:
        for finding in found:
            guards.setdefault(finding.name, []).append((case, finding))
    chosen = []
    for group in guards.values():
        worst = max(group, key=_badness)[1]
        names = []
        for case, finding in group:
            if finding.outcome is worst.outcome is not Outcome.OK:
                names.append(name_of(case))
        chosen.append((worst, names))
    return chosen


def over_time(cases: Iterable[PlannedCase]) -> list[str]:
    """Return a line for each partition whose time limit would end cases, as far as is expected."""
    late = [case for case in cases if 0 < case.order.time_limit_s < case.cost.seconds]
    by_limit = grouped(late, lambda case: (case.partition, case.order.time_limit_s))
    lines = []
    for (partition, limit), group in by_limit.items():
        longest = max(group, key=lambda case: case.cost.seconds)
        lines.append(
            f"over the time limit: {partition}: {len(group)} case(s) need more than time_limit "
            f"{duration(limit)}, most of all {name_of(longest)} ({duration(longest.cost.seconds)}). "
            "Raise the partition's time_limit, or lower limits.case_bytes"
        )
    return lines
