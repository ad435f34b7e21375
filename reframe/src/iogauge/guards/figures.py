"""Guards of the figures: duration, tail, ceiling, units, bytes, order, spread (G4 to G8, G17, G21)."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.measurement import Stonewall
from iogauge.core.units import (
    convert,
    dimension,
    format_bytes,
    format_seconds,
    format_value,
    with_unit,
)
from iogauge.core.words import Tier
from iogauge.evidence.model import SERIES, OverTime
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rule
from iogauge.guards.seen import CaseSeen, MetricSeen, PhaseSeen
from iogauge.plan.bounds import MOST_SHARE, lower_ceiling
from iogauge.site.doubts import DOUBTFUL_LIMIT, generous
from iogauge.tools.fio.output import in_flight


def within(
    name: str,
    figure: float,
    limit: float,
    saw: str,
    *,
    key: str,
    case: str = "",
    otherwise: Outcome | None = None,
) -> Finding:
    """Return whether a figure is within a limit of the site, ``limits.key``; one above 50 % gives a remark."""
    demanded = rule(name, case, limit=limit)
    if figure <= limit and limit > DOUBTFUL_LIMIT:
        return dataclasses.replace(demanded, remedy="").warn(f"{saw}. {generous(key, limit)}")
    return demanded.decide(figure <= limit, saw, otherwise)


#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS: Final = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND: Final = 10


def beyond(*, operations: int, share: float, tier: Tier) -> Finding:
    """G4: ``operations`` are those of the shortest repetition, of which a ``share`` lies beyond the percentile."""
    saw = f"{operations * share:.1f} of {operations} operation(s) lie beyond the percentile"
    times = _BEYOND / (operations * share)
    otherwise = Outcome.WARN if tier == "quick" else None
    return rule("G4 percentile", beyond=_BEYOND, times=times).decide(times <= 1, saw, otherwise)


def beyond_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency."""
    counts = [phase.operations for phase in seen.tool_phases if phase.operations]
    for metric, (_, quantity) in seen.phase.rates.items():
        if quantity in _TAILS and counts:
            found = beyond(operations=min(counts), share=_TAILS[quantity], tier=seen.case.tier)
            yield dataclasses.replace(found, metric=metric)


def spread(*, samples: Sequence[float], limit: float, tail: bool = False) -> Finding:
    """G17: ``tail`` tells that the metric is of the slowest percent of the requests."""
    if len(samples) < 2:
        return rule("G17 spread", "once", limit=limit).warn("one repetition: spread unknown")
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    saw = f"coefficient of variation {cv:.1%} over {len(samples)} repetitions"
    otherwise = Outcome.WARN if tail else None
    return within("G17 spread", cv, limit, saw, key="max_spread", otherwise=otherwise)


def spread_of(seen: MetricSeen) -> Iterator[Finding]:
    yield spread(
        samples=seen.case.values[seen.name],
        limit=seen.case.extras.limits.max_spread,
        tail=any(metric.tail for metric in seen.case.metrics if metric.name == seen.name),
    )


def drift(
    *, before: Sequence[float], after: Sequence[float], limit: float, tail: bool = False
) -> Finding:
    """G17: the samples before and after the disturbance; ``tail`` as for :func:`spread`."""
    first, last = statistics.median(before), statistics.median(after)
    off = abs(last - first) / statistics.fmean((first, last))
    saw = f"{format_value(first)} before, {format_value(last)} after, {off:.1%} apart"
    otherwise = Outcome.WARN if tail else None
    return within("G17 drift", off, limit, saw, key="max_spread", otherwise=otherwise)


def drift_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G17 for each metric of a phase that repeats an earlier one."""
    case = seen.case
    earlier = (phase for phase in case.plan.repeat if phase.name == seen.phase.again)
    before = {way: name for phase in earlier for name, way in phase.rates.items()}
    tails = {metric.name for metric in case.metrics if metric.tail}
    for name, way in seen.phase.rates.items():
        if way in before:
            found = drift(
                before=case.values[before[way]],
                after=case.values[name],
                limit=case.extras.limits.max_spread,
                tail=name in tails,
            )
            yield dataclasses.replace(found, metric=name)


def steadiness(*, series: Sequence[OverTime]) -> Finding:
    """G17: the bandwidth over time of each repetition."""
    saw = []
    for number, one in enumerate(series, 1):
        where = f"repetition {number}: " if len(series) > 1 else ""
        saw += [f"{where}{text}" for text in one.unsteady]
    return rule("G17 steadiness").unless("; ".join(saw), "steady over time")


def steadiness_of(seen: PhaseSeen) -> Iterator[Finding]:
    told = [output.parameters.get(SERIES) for output in seen.outputs]
    if series := [one for one in told if isinstance(one, OverTime)]:
        yield steadiness(series=series)


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed.
#: Below the second number it gets a remark.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}


def duration(*, seconds: Sequence[float], tier: Tier, follows: bool = False) -> Finding:
    """G4: ``follows`` means that the phase is as long as an earlier one left work for it."""
    least, wanted = MIN_SECONDS[tier]
    shortest = min(seconds)
    times = (least if shortest < least else wanted) / shortest if shortest > 0 else float("inf")
    case = "compare" if wanted > least else ""
    demanded = rule("G4 duration", case, least=least, wanted=wanted, tier=tier, times=times)
    saw = f"the shortest repetition lasted {format_seconds(shortest)}"
    refused = shortest < least and not follows
    return demanded.decide(shortest >= wanted, saw, None if refused else Outcome.WARN)


def duration_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.tool_phases and seen.access.direction != "none":
        yield duration(
            seconds=[phase.seconds for phase in seen.tool_phases],
            tier=seen.case.tier,
            follows=seen.phase.follows,
        )


_MAX_IMBALANCE: Final = 0.3
_MIN_WEAR_OUT: Final = 0.7
_MIN_PAIRS: Final = 0.5


def tail(
    *,
    rank_seconds: Sequence[Sequence[float]],
    stonewalls: Sequence[tuple[Stonewall, float, int]] = (),
) -> Finding | None:
    """G5: ``stonewalls`` holds (stonewall, bandwidth of the phase in MiB/s, tasks); None if the tool reported neither."""
    worst = 0.0
    for times in rank_seconds:
        if len(times) > 1 and statistics.fmean(times) > 0:
            worst = max(worst, (max(times) - min(times)) / statistics.fmean(times))
    parts = [f"(max - min) / mean of task times = {worst:.2f}"] if any(rank_seconds) else []
    holds = worst <= _MAX_IMBALANCE
    for wall, phase_mib_s, tasks in stonewalls:
        if wall.mean_task_mib_s:
            ratio = phase_mib_s / (wall.mean_task_mib_s * tasks)
            holds = holds and ratio >= _MIN_WEAR_OUT
            parts.append(f"wear-out ratio {ratio:.2f}")
        if wall.min_pairs is not None and wall.max_pairs:
            ratio = wall.min_pairs / wall.max_pairs
            holds = holds and ratio >= _MIN_PAIRS
            parts.append(f"fewest over most transfers {ratio:.2f}")
    if not parts:
        return None
    limits = {"imbalance": _MAX_IMBALANCE, "wear_out": _MIN_WEAR_OUT, "pairs": _MIN_PAIRS}
    return rule("G5 tail", **limits).decide(holds, ", ".join(parts))


def tail_of(seen: PhaseSeen) -> Iterator[Finding]:
    if seen.tool_phases and seen.access.direction != "none":
        finding = tail(
            rank_seconds=[phase.rank_seconds for phase in seen.tool_phases],
            stonewalls=[
                (phase.stonewall, phase.rates["bw"].value, output.tasks or seen.case.plan.tasks)
                for output, phase in seen.reported
                if phase.stonewall is not None and "bw" in phase.rates
            ],
        )
        if finding is not None:
            yield finding


def ceiling(
    *, value: float, limit: float | None, limited_by: str, unit: str, saturating: bool = True
) -> Finding:
    """G6: ``limit`` is the ceiling in ``unit``, None if none is declared; ``limited_by`` names what limits."""
    if limit is None:
        return rule("G6 ceiling", "undeclared").ok("no ceiling declared")
    share = value / limit
    case = "low" if share <= MOST_SHARE else "measured" if "measured" in limited_by else ""
    demanded = rule("G6 ceiling", case, limit=format_value(limit), unit=unit)
    saw = f"{with_unit(value, unit)} is {share:.0%} of the ceiling ({limited_by})"
    if share > MOST_SHARE:
        return demanded.invalid(saw)
    return demanded.decide(not saturating or share >= 0.5, saw, Outcome.WARN)


def ceiling_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield the largest sample of each metric against the ceiling of that metric."""
    case, access = seen.case, seen.access
    for metric in case.metrics:
        if metric.name not in seen.phase.rates:
            continue
        plan, usable = case.plan, case.measured.usable
        nodes = seen.phase.on_nodes or plan.nodes
        limit = lower_ceiling(metric, access.direction, case.extras, nodes, plan.servers, usable)
        finding = ceiling(
            value=max(case.values[metric.name]),
            limit=limit.value if limit else None,
            limited_by=limit.limited_by if limit else "",
            unit=metric.unit,
            saturating=access.saturates == dimension(metric.unit),
        )
        yield dataclasses.replace(finding, metric=metric.name)


def measured_ceilings(*, problems: Sequence[str]) -> Finding:
    """G6: ``problems`` of the measured ceilings, each in words."""
    return rule("G6 measured ceilings").unless("; ".join(problems), "the measured ceilings hold")


def measured_ceilings_of(seen: CaseSeen) -> Iterator[Finding]:
    """Yield G6 if the partition declares layers, and the case moves the target's data."""
    moves = any(phase.moves_data for phase in seen.phases)
    if moves and seen.extras.ceilings and (seen.measured.problems or seen.measured.usable):
        yield measured_ceilings(problems=seen.measured.problems)


_UNITS: Final = 0.01


def unit_sanity(
    *,
    operations_s: float,
    transfer_bytes: int,
    bytes_s: float,
    in_flight: tuple[float, int] | None = None,
    latency: bool = False,
    busy: str = "",
) -> Finding:
    """G7: ``in_flight`` holds the two numbers of requests in flight, None if they are unknown.

    ``latency`` says whether a latency is judged. Without one, fewer in flight are those of a busy node: fio waits for a
    processor between requests. ``busy`` says that it is one.
    """
    if in_flight is not None:
        share, few = in_flight[0] / in_flight[1], "busy" if busy else "latency"
        saw = f"ops/s x mean latency is {in_flight[0]:.3g} request(s) in flight, fio keeps {in_flight[1]}"
        if share > 1.1:
            return rule("G7 units", "latency" if latency else "rate").invalid(saw)
        if latency and share < 0.5:
            kind = Outcome.CONTAMINATED if busy else Outcome.INVALID
            return rule("G7 units", few).found(kind, f"{saw}, while {busy}" if busy else saw)
    off = abs(operations_s * transfer_bytes - bytes_s) / bytes_s
    return rule("G7 units", tolerance=_UNITS).decide(
        off <= _UNITS,
        f"{format_value(operations_s)} ops/s x {format_bytes(transfer_bytes)} differs from "
        f"{format_bytes(bytes_s)}/s by {off:.2%}",
    )


def unit_sanity_of(seen: PhaseSeen) -> Iterator[Finding]:
    for output, phase in seen.reported:
        if "bw" in phase.rates and phase.operations and phase.transfer_bytes:
            yield unit_sanity(
                in_flight=in_flight(output),
                latency=any(way.startswith("latency") for _, way in seen.phase.rates.values()),
                busy=seen.case.busy,
                operations_s=phase.operations / phase.seconds,
                transfer_bytes=phase.transfer_bytes,
                bytes_s=convert(phase.rates["bw"].value, phase.rates["bw"].unit, "B/s"),
            )


#: IOR's warning if tasks see a shared file with different sizes, and what it adds.
_UNLIKE: Final = "inconsistent file size by different tasks"
_OF_SIZE: Final = re.compile(
    rf"WARNING: ({_UNLIKE}|(Expected aggregate file size|Stat\(\) of aggregate file size|"
    r"Using actual aggregate bytes moved) += \d+)\W*"
)


def bytes_moved(
    *,
    expected: int | None,
    reported: Sequence[int | None],
    warnings: Sequence[str] = (),
    read_whole: bool = False,
) -> Finding:
    """G8: ``read_whole`` tells that all of it was read afterwards. IOR asks for the size as soon as the file is written."""
    unlike = read_whole and any(_UNLIKE in warning for warning in warnings)
    if unlike:
        warnings = [warning for warning in warnings if not _OF_SIZE.fullmatch(warning)]
    wrong = [r for r in reported if expected is not None and r != expected]
    saw = (
        f"{wrong[0] if wrong[0] is not None else 'an unknown number of'} bytes moved"
        if wrong
        else "bytes moved as asked"
    )
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    demanded = rule("G8 bytes", "unplanned" if expected is None else "", expected=expected)
    if unlike and not wrong and not warnings:
        return demanded.warn(
            f"{saw}; clients saw the file with different sizes, then read all of it"
        )
    return demanded.decide(not wrong and not warnings, saw)


def _read_whole(seen: PhaseSeen) -> bool:
    """Return whether a phase writes bytes that another phase reads, all of them in each repetition."""
    wrote = seen.phase.data_bytes
    return bool(wrote) and any(
        other.access.direction == "read"
        and other.phase.data_bytes == wrote
        and len(other.tool_phases) == len(seen.tool_phases)
        and all(phase.bytes_moved == wrote for phase in other.tool_phases)
        for other in seen.case.phases
        if seen.access.direction == "write"
    )


def bytes_moved_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Apply G8 to reads and writes, and to any phase with an unexpected warning."""
    expected = seen.phase.expected
    warnings = [
        warning
        for output in seen.outputs
        for warning in output.warnings
        if expected is None or not re.search(expected, warning)
    ]
    if seen.moves_data or warnings:
        yield bytes_moved(
            expected=seen.phase.data_bytes,
            reported=[phase.bytes_moved for phase in seen.tool_phases],
            warnings=warnings,
            read_whole=_read_whole(seen),
        )


def read_after_write(
    *,
    reads: Sequence[tuple[int, float]],
    writes: Sequence[tuple[int, float]],
    writes_first: bool = False,
) -> Finding:
    """G21: ``reads`` holds (repetition, start), ``writes`` (repetition, end), in seconds of one clock.

    The preparing repetition is number 0. With ``writes_first`` every read starts after all writes.
    """
    last = max((ended for _, ended in writes), default=0.0)
    wrong = "" if reads else "no read"
    for repetition, started in reversed(reads):
        own = [ended for number, ended in writes if number == repetition]
        ended = own or [ended for number, ended in writes if number == 0]
        if not ended:
            wrong = f"repetition {repetition} reads what this run did not write"
        elif min(ended) > started:
            wrong = f"repetition {repetition} reads before its data were written"
        elif writes_first and last > started:
            wrong = f"repetition {repetition} reads before all repetitions have written"
    fine = f"{len(reads)} read(s), each after a write"
    return rule("G21 order", "writes" if writes_first else "").unless(wrong, fine)


def read_after_write_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G21. If one execution writes and reads, its read starts at the end of the execution.

    What is prepared stays for all repetitions: then other writes do not matter.
    """
    if seen.access.direction != "read":
        return
    plan, runs = seen.case.plan, seen.case.evidence.runs
    made = ("write", "metadata")
    prepared = [phase for phase in plan.prepare if phase.access.direction in made]
    writers = {
        phase.within or phase.name
        for phase in prepared or plan.repeat
        if phase.access.direction in made
    }
    name = seen.phase.within or seen.phase.name
    executions = [run for run in runs if run.name == name and run.repetition > 0]
    yield read_after_write(
        reads=[
            (one.repetition, one.ended if name in writers else one.started) for one in executions
        ],
        writes=[(run.repetition, run.ended) for run in runs if run.name in writers],
        writes_first=plan.writes_first,
    )
