"""Guards of the figures: duration, tail, ceiling, units, bytes, order, spread (G4 to G8, G17, G21)."""

from __future__ import annotations

import dataclasses
import re
import statistics
from collections.abc import Iterator
from typing import Any, Final

from iogauge.core.units import (
    convert,
    dimension,
    format_bytes,
    format_seconds,
    format_value,
    with_unit,
)
from iogauge.core.words import Tier
from iogauge.evidence.model import SERIES
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.rules import rule
from iogauge.guards.views import CaseView, PhaseView
from iogauge.plan.bounds import MOST_SHARE, MetricBounds
from iogauge.plan.stage import FILL
from iogauge.site.doubts import DOUBTFUL_LIMIT, generous
from iogauge.tools.fio.output import in_flight


def within(
    name: str,
    case: CaseView,
    key: str,
    figure: float,
    saw: str,
    otherwise: Outcome | None = None,
) -> Finding:
    """Return whether a figure is within a limit of the site, ``limits.key``; one above 50 % gives a remark."""
    limit: float = getattr(case.extras.limits, key)
    demanded = rule(name, limit=limit)
    if figure <= limit and limit > DOUBTFUL_LIMIT:
        return dataclasses.replace(demanded, remedy="").warn(
            f"{saw}. {generous(key, limit)}"
        )
    return demanded.decide(figure <= limit, saw, otherwise)


#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS: Final = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND: Final = 10


def beyond(seen: PhaseView) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency; the shortest repetition counts."""
    counts = [phase.operations for phase in seen.tool_phases if phase.operations]
    otherwise = Outcome.WARN if seen.case.tier == "quick" else None
    for metric, (_, quantity) in seen.phase.rates.items():
        if quantity in _TAILS and counts:
            there = min(counts) * _TAILS[quantity]
            saw = f"{there:.1f} of {min(counts)} operation(s) lie beyond the percentile"
            demanded = rule("G4 percentile", beyond=_BEYOND, times=_BEYOND / there)
            found = demanded.decide(there >= _BEYOND, saw, otherwise)
            yield dataclasses.replace(found, metric=metric)


def _of_tail(case: CaseView, name: str) -> Outcome | None:
    """Return a remark for a metric of the slowest percent of the requests, which differ more."""
    return Outcome.WARN if any(m.tail for m in case.metrics if m.name == name) else None


def spread(seen: tuple[CaseView, str]) -> Finding:
    """Return G17 for a metric of a case."""
    case, name = seen
    samples = case.values[name]
    if len(samples) < 2:
        demanded = rule("G17 spread", "once", limit=case.extras.limits.max_spread)
        return demanded.warn("one repetition: spread unknown")
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    saw = f"coefficient of variation {cv:.1%} over {len(samples)} repetitions"
    return within("G17 spread", case, "max_spread", cv, saw, _of_tail(case, name))


def drift(seen: PhaseView) -> Iterator[Finding]:
    """Yield G17 for each metric of a phase that repeats an earlier one, before a disturbance."""
    case = seen.case
    earlier = (phase for phase in case.plan.repeat if phase.name == seen.phase.again)
    before = {way: name for phase in earlier for name, way in phase.rates.items()}
    for name, way in seen.phase.rates.items():
        if way in before:
            first, last = (
                statistics.median(case.values[one]) for one in (before[way], name)
            )
            off = abs(last - first) / statistics.fmean((first, last))
            saw = f"{format_value(first)} before, {format_value(last)} after, {off:.1%} apart"
            otherwise = _of_tail(case, name)
            found = within("G17 drift", case, "max_spread", off, saw, otherwise)
            yield dataclasses.replace(found, metric=name)


def steadiness(seen: PhaseView) -> Finding | None:
    series: list[Any] = [one for o in seen.outputs if (one := o.parameters.get(SERIES))]
    saw = []
    for number, one in enumerate(series, 1):
        where = f"repetition {number}: " if len(series) > 1 else ""
        saw += [f"{where}{text}" for text in one.unsteady]
    return (
        rule("G17 steadiness").unless("steady over time", "; ".join(saw))
        if series
        else None
    )


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed.
#: Below the second number it gets a remark.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}


def duration(seen: PhaseView) -> Finding | None:
    if not seen.timed:
        return None
    tier = seen.case.tier
    least, wanted = MIN_SECONDS[tier]
    shortest = min(phase.seconds for phase in seen.tool_phases)
    times = (
        (least if shortest < least else wanted) / shortest
        if shortest > 0
        else float("inf")
    )
    case = "compare" if wanted > least else ""
    demanded = rule(
        "G4 duration", case, least=least, wanted=wanted, tier=tier, times=times
    )
    saw = f"the shortest repetition lasted {format_seconds(shortest)}"
    # A phase that follows is as long as an earlier one left work for it.
    refused = shortest < least and not seen.phase.follows
    return demanded.decide(shortest >= wanted, saw, None if refused else Outcome.WARN)


_MAX_IMBALANCE: Final = 0.3


def tail(seen: PhaseView) -> Finding | None:
    ranks = [phase.rank_seconds for phase in seen.tool_phases]
    means = [(times, statistics.fmean(times)) for times in ranks if len(times) > 1]
    if not (seen.timed and any(ranks)):
        return None
    worst = max(
        ((max(times) - min(times)) / mean for times, mean in means if mean > 0),
        default=0,
    )
    demanded = rule("G5 tail", imbalance=_MAX_IMBALANCE)
    saw = f"(max - min) / mean of task times = {worst:.2f}"
    return demanded.decide(worst <= _MAX_IMBALANCE, saw)


def ceiling(seen: PhaseView) -> Iterator[Finding]:
    """Yield the largest sample of each metric against the ceiling of that metric."""
    case, access = seen.case, seen.access
    for metric in (one for one in case.metrics if one.name in seen.phase.rates):
        value, unit = max(case.values[metric.name]), metric.unit
        limit = MetricBounds.of(case.plan, metric, case.extras).lowest(
            case.measured.usable
        )
        if limit is None:
            found = rule("G6 ceiling", "undeclared").ok("no ceiling declared")
        else:
            share, by = value / limit.value, limit.limited_by
            low = share <= MOST_SHARE
            way = "low" if low else "measured" if "measured" in by else ""
            demanded = rule(
                "G6 ceiling", way, limit=format_value(limit.value), unit=unit
            )
            saw = f"{with_unit(value, unit)} is {share:.0%} of the ceiling ({by})"
            # Only a scenario that drives this limit has a remark if it stays far below.
            idle = access.saturates == dimension(unit) and share < 0.5
            found = demanded.decide(
                low and not idle, saw, Outcome.WARN if low else None
            )
        yield dataclasses.replace(found, metric=metric.name)


def measured_ceilings(seen: CaseView) -> Finding | None:
    """Return G6 if the partition declares layers, and the case moves the target's data."""
    moves = any(phase.moves_data for phase in seen.phases)
    problems = seen.measured.problems
    if not (moves and seen.extras.ceilings and (problems or seen.measured.usable)):
        return None
    return rule("G6 measured ceilings").unless(
        "the measured ceilings hold", "; ".join(problems)
    )


_UNITS: Final = 0.01


def unit_sanity(seen: PhaseView) -> Iterator[Finding]:
    """Yield G7 for each execution that tells bytes and operations.

    If no latency is judged, few requests in flight are those of a busy node: fio waits for a processor between requests.
    """
    latency = any(way.startswith("latency") for _, way in seen.phase.rates.values())
    busy = seen.case.busy
    for one, phase in seen.reported:
        if not ("bw" in phase.rates and phase.operations and phase.transfer_bytes):
            continue
        if flight := in_flight(one.output):
            share = flight[0] / flight[1]
            saw = f"ops/s x mean latency is {flight[0]:.3g} request(s) in flight, fio keeps {flight[1]}"
            if share > 1.1:
                yield rule("G7 units", "latency" if latency else "rate").invalid(saw)
                continue
            if latency and share < 0.5:
                yield rule("G7 units", "busy" if busy else "latency").found(
                    Outcome.CONTAMINATED if busy else Outcome.INVALID,
                    f"{saw}, while {busy}" if busy else saw,
                )
                continue
        rate = phase.operations / phase.seconds
        bytes_s = convert(phase.rates["bw"].value, phase.rates["bw"].unit, "B/s")
        off = abs(rate * phase.transfer_bytes - bytes_s) / bytes_s
        yield rule("G7 units", tolerance=_UNITS).decide(
            off <= _UNITS,
            f"{format_value(rate)} ops/s x {format_bytes(phase.transfer_bytes)} differs from "
            f"{format_bytes(bytes_s)}/s by {off:.2%}",
        )


#: IOR's warning if tasks see a shared file with different sizes, and what it adds. It asks for them as soon as the file
#: is written.
_UNLIKE: Final = "inconsistent file size by different tasks"
_OF_SIZE: Final = re.compile(
    rf"WARNING: ({_UNLIKE}|(Expected aggregate file size|Stat\(\) of aggregate file size|"
    r"Using actual aggregate bytes moved) += \d+)\W*"
)


def bytes_moved(seen: PhaseView) -> Finding | None:
    """Return G8 for reads and writes, and for any phase with an unexpected warning."""
    told, planned = seen.phase.expected, seen.phase.data_bytes
    heard = [warning for output in seen.outputs for warning in output.warnings]
    warnings = [one for one in heard if told is None or not re.search(told, one)]
    if not seen.moves_data and not warnings:
        return None
    unlike = any(_UNLIKE in warning for warning in warnings) and _read_whole(seen)
    warnings = [one for one in warnings if not (unlike and _OF_SIZE.fullmatch(one))]
    moved = [phase.bytes_moved for phase in seen.tool_phases]
    wrong = [count for count in moved if planned is not None and count != planned]
    count = "an unknown number of" if wrong[:1] == [None] else wrong[0] if wrong else ""
    saw = f"{count} bytes moved" if wrong else "bytes moved as asked"
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    doubt = f"{saw}; clients saw the file with different sizes, then read all of it"
    demanded = rule(
        "G8 bytes", "unplanned" if planned is None else "", expected=planned
    )
    problem = saw if wrong or warnings else ""
    return demanded.unless(saw, problem, doubt=doubt if unlike else "")


def _read_whole(seen: PhaseView) -> bool:
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


def read_after_write(seen: PhaseView) -> Finding | None:
    """Return G21. If one execution writes and reads, its read starts at the end of the execution.

    What is prepared, in repetition 0, stays for all repetitions: then other writes do not matter.
    """
    if seen.access.direction != "read":
        return None
    plan, runs = seen.case.plan, seen.case.evidence.runs
    made = ("write", "metadata")
    prepared = [phase for phase in plan.prepare if phase.access.direction in made]
    writers = {
        phase.within or phase.name
        for phase in prepared or plan.repeat
        if phase.access.direction in made
    }
    name = seen.phase.within or seen.phase.name
    reads = [run for run in runs if run.name == name and run.repetition > 0]
    writes: dict[int, list[float]] = {}
    for run in runs:
        if run.name in writers:
            writes.setdefault(run.repetition, []).append(run.ended)
    last = max((ended for each in writes.values() for ended in each), default=0.0)
    wrong = [] if reads else ["no read"]
    for read in reads:
        started = read.ended if name in writers else read.started
        ended = writes.get(read.repetition) or writes.get(0)
        if not ended:
            wrong.append(
                f"repetition {read.repetition} reads what this run did not write"
            )
        elif min(ended) > started:
            wrong.append(
                f"repetition {read.repetition} reads before its data were written"
            )
        elif plan.writes_first and last > started:
            wrong.append(
                f"repetition {read.repetition} reads before all repetitions have written"
            )
    fine = f"{len(reads)} read(s), each after a write"
    return rule("G21 order", "writes" if plan.writes_first else "").unless(fine, *wrong)


#: How far the fill may be from its level, as a share of the target.
_OFF_LEVEL: Final = 0.01


def fill_level(seen: CaseView) -> Iterator[Finding]:
    """Yield G13 for a case that fills the target."""
    for output in seen.evidence.outputs.get(FILL, ()):
        filled: Any = output.parameters["filled"]
        wanted, reached = filled["level"] / 100, filled["fill"]
        files = f"{format_bytes(filled['bytes'])} of it in files of this case"
        holds = abs(reached - wanted) <= _OFF_LEVEL
        saw = f"{reached:.1%} full, {files}"
        yield rule("G13 fill level", wanted=wanted).decide(holds, saw)
