"""Guards of the figures: duration, tail, ceiling, units, bytes, order, spread (G4 to G8, G13, G17, G21)."""

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
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.plan.bounds import MOST_SHARE, MetricBounds
from iogauge.plan.stage import FILL
from iogauge.site.doubts import DOUBTFUL_LIMIT, generous
from iogauge.tools.fio.output import in_flight


def within(
    guard: Guard,
    case: CaseView,
    key: str,
    figure: float,
    saw: str,
    otherwise: Outcome | None = None,
) -> Finding:
    """Return whether a figure is within a limit of the site, ``limits.key``; one above 50 % gives a remark."""
    limit: float = getattr(case.extras.limits, key)
    if figure > limit or limit <= DOUBTFUL_LIMIT:
        return guard.decide(figure <= limit, saw, otherwise)
    finding = guard.warn(f"{saw}. {generous(key, limit)}")
    return dataclasses.replace(finding, remedy="")


#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS: Final = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND: Final = 10

_PERCENTILE: Final = Guard(
    "G4 percentile",
    "at least ten operations of the shortest repetition lie beyond a percentile of the latency: p99 needs 1,000 operations, "
    "p99.9 needs 10,000",
    "Raise limits.phase_seconds",
    "a: p99.9 of 2,000 requests was the second worst, and differed threefold",
    "ext4, Lustre 2.17",
    limit="`limits.phase_seconds`",
    demands=f"{_BEYOND} or more",
    more="In tier quick fewer give a remark.",
)


def beyond(phase: PhaseView) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency; the shortest repetition counts."""
    counts = [part.operations for part in phase.tool_phases if part.operations]
    otherwise = Outcome.WARN if phase.case.tier == "quick" else None
    for metric, (_, quantity) in phase.phase.rates.items():
        if quantity not in _TAILS or not counts:
            continue
        there = min(counts) * _TAILS[quantity]
        saw = f"{there:.1f} of {min(counts)} operation(s) lie beyond the percentile"
        guard = _PERCENTILE.saying(
            remedy=f"{_PERCENTILE.remedy} {_BEYOND / there:.3g}-fold"
        )
        finding = guard.decide(there >= _BEYOND, saw, otherwise)
        yield dataclasses.replace(finding, metric=metric)


def _of_tail(case: CaseView, name: str) -> Outcome | None:
    """Return a remark for a metric of the slowest percent of the requests, which differ more."""
    for metric in case.metrics:
        if metric.name == name and metric.tail:
            return Outcome.WARN
    return None


_TAILS_DIFFER: Final = "A limit above 50 % gives a remark. If the slowest percent of the requests differ more, you also get only a remark."
_SPREAD: Final = Guard(
    "G17 spread",
    "coefficient of variation (n - 1) over the repetitions is at most `limits.max_spread`",
    "Others may use the target: repeat at a quiet time, or raise limits.repetitions",
    "a: a shared disk, whose repetitions differed by 40 %",
    "ext4, NFS, Lustre 2.17",
    Outcome.UNSTABLE,
    limit="`limits.max_spread` 10 %",
    more=_TAILS_DIFFER,
)


def spread(metric: tuple[CaseView, str]) -> Finding:
    """Return G17 for a metric of a case."""
    case, name = metric
    samples, limit = case.values[name], case.extras.limits.max_spread
    guard = _SPREAD.saying(f"at most {limit:.0%} over at least 2 repetitions")
    if len(samples) < 2:
        guard = guard.saying(remedy="Raise limits.repetitions")
        return guard.warn("one repetition: spread unknown")
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    saw = f"coefficient of variation {cv:.1%} over {len(samples)} repetitions"
    return within(guard, case, "max_spread", cv, saw, _of_tail(case, name))


_DRIFT: Final = Guard(
    "G17 drift",
    "without the disturbance, the medians before and after it differ by `limits.max_spread` at most",
    "The target changed meanwhile, so the disturber did not cause all of the loss. Repeat at a quiet time, or raise "
    "limits.phase_seconds",
    "a: a disk in a cloud ran out of burst credits while it was disturbed",
    "ext4",
    Outcome.UNSTABLE,
    limit="`limits.max_spread` 10 %",
    more=_TAILS_DIFFER,
)


def drift(phase: PhaseView) -> Iterator[Finding]:
    """Yield G17 for each metric of a phase that repeats an earlier one, before a disturbance."""
    case, before = phase.case, dict[tuple[str, str], str]()
    limit = case.extras.limits.max_spread
    guard = _DRIFT.saying(f"alone, before and after, at most {limit:.0%} apart")
    for earlier in case.plan.repeat:
        if earlier.name == phase.phase.again:
            before |= {way: name for name, way in earlier.rates.items()}
    for name, way in phase.phase.rates.items():
        if way not in before:
            continue
        first = statistics.median(case.values[before[way]])
        last = statistics.median(case.values[name])
        off = abs(last - first) / statistics.fmean((first, last))
        saw = (
            f"{format_value(first)} before, {format_value(last)} after, {off:.1%} apart"
        )
        finding = within(guard, case, "max_spread", off, saw, _of_tail(case, name))
        yield dataclasses.replace(finding, metric=name)


_STEADINESS: Final = Guard(
    "G17 steadiness",
    "within a repetition no second is below half of the median, and the level does not change by a fifth",
    "A change to a lower level may be burst credits that were used up: compare with what was bought",
    "a: nfsd stopped for 3 s",
    "ext4, NFS",
    Outcome.WARN,
    demands="no dip below 50 % of the median, no change of level by 20 %",
    more="The rule applies to scenarios that sample the bandwidth over time.",
)


def steadiness(phase: PhaseView) -> Finding | None:
    """Return G17 for executions with a bandwidth over time."""
    sampled: list[Any] = [out.parameters.get(SERIES) for out in phase.outputs]
    sampled = [series for series in sampled if series]
    if not sampled:
        return None
    saw = []
    for number, series in enumerate(sampled, 1):
        where = f"repetition {number}: " if len(sampled) > 1 else ""
        saw += [f"{where}{text}" for text in series.unsteady]
    return _STEADINESS.unless("steady over time", "; ".join(saw))


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed.
#: Below the second number it gets a remark.
MIN_SECONDS: Final[dict[Tier, tuple[float, float]]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}

_DURATION: Final = Guard(
    "G4 duration",
    "the shortest repetition lasts {daily:g} s in tier daily, {acceptance:g} s in acceptance".format(
        **{tier: least for tier, (least, _) in MIN_SECONDS.items()}
    ),
    "Raise limits.case_bytes, limits.case_files or limits.phase_seconds",
    "a: a write of 1 GiB that ended in a controller's cache after 0.4 s",
    "ext4, Lustre 2.17",
    limit="`limits.tier`",
    more="Tier quick demands {:g} s, and gives a remark below {:g} s. A phase of IO500 that does not write gets remarks "
    "only.".format(*MIN_SECONDS["quick"]),
)


def duration(phase: PhaseView) -> Finding | None:
    """Return G4 for phases that are timed."""
    if not phase.timed:
        return None
    tier = phase.case.tier
    least, wanted = MIN_SECONDS[tier]
    shortest = min(part.seconds for part in phase.tool_phases)
    needed = least if shortest < least else wanted
    times = needed / shortest if shortest > 0 else float("inf")
    demands = f"{least:g} s in tier {tier}"
    if wanted > least:
        demands += f", {wanted:g} s to compare systems"
    remedy = (
        f"{_DURATION.remedy} {times:.3g}-fold in the settings of your site. Site local has none: describe this machine as a "
        "site first"
    )
    saw = f"the shortest repetition lasted {format_seconds(shortest)}"
    # A phase that follows is as long as an earlier phase left work for it.
    refused = shortest < least and not phase.phase.follows
    guard = _DURATION.saying(demands, remedy)
    return guard.decide(shortest >= wanted, saw, None if refused else Outcome.WARN)


_MAX_IMBALANCE: Final = 0.3

_TAIL: Final = Guard(
    "G5 tail",
    f"(max - min) / mean of task times <= {_MAX_IMBALANCE:g}",
    "Look for a slow node, link or storage target",
    "a: an OST throttled to 2 %",
    "ext4, Lustre 2.17",
    Outcome.WARN,
)


def tail(phase: PhaseView) -> Finding | None:
    """Return G5 for phases of which the tool reports the seconds of each task."""
    ranks = [part.rank_seconds for part in phase.tool_phases]
    if not (phase.timed and any(ranks)):
        return None
    worst = 0.0
    for seconds in ranks:
        mean = statistics.fmean(seconds) if len(seconds) > 1 else 0.0
        if mean > 0:
            worst = max(worst, (max(seconds) - min(seconds)) / mean)
    saw = f"(max - min) / mean of task times = {worst:.2f}"
    return _TAIL.decide(worst <= _MAX_IMBALANCE, saw)


#: Share of the ceiling below which a scenario that drives it gets a remark.
_LOW: Final = 0.5

_CEILING: Final = Guard(
    "G6 ceiling",
    f"a bandwidth is at most {MOST_SHARE:.0%} of the smallest of N x client NIC, servers x NIC, devices, as declared or as "
    "measured",
    "The data came from a cache, or the topology in the settings is wrong",
    "a: 5 GiB/s over a link of 100 Gbit/s declared as 10",
    "ext4",
    limit="`topology`",
    more=f"Below {_LOW:.0%} it gets a remark if the scenario saturates the target.",
)


def ceiling(phase: PhaseView) -> Iterator[Finding]:
    """Yield the largest sample of each metric against the ceiling of that metric."""
    case = phase.case
    for metric in case.metrics:
        if metric.name not in phase.phase.rates:
            continue
        value, unit = max(case.values[metric.name]), metric.unit
        bounds = MetricBounds.of(case.plan, metric, case.extras)
        limit = bounds.lowest(case.measured.usable)
        if limit is None:
            guard = _CEILING.saying("topology in the site's settings")
            finding = guard.ok("no ceiling declared")
        else:
            share, source = value / limit.value, limit.limited_by
            saw = f"{with_unit(value, unit)} is {share:.0%} of the ceiling ({source})"
            # Only a scenario that drives this limit has a remark if it stays far below.
            idle = phase.access.saturates == dimension(unit) and share < _LOW
            remedy, otherwise = "", Outcome.INVALID
            if share <= MOST_SHARE:
                remedy = "Less than half of what the topology can carry: look for the bottleneck"
                otherwise = Outcome.WARN
            elif "measured" in source:
                remedy = (
                    "The data came from a cache, or the layer carries more than was measured: measure it again (iogauge run "
                    "-t ceiling), and see 'iogauge site ceilings'"
                )
            demands = f"at most {MOST_SHARE:.0%} of {format_value(limit.value)} {unit}"
            guard = _CEILING.saying(demands, remedy)
            finding = guard.decide(share <= MOST_SHARE and not idle, saw, otherwise)
        yield dataclasses.replace(finding, metric=metric.name)


_MEASURED: Final = Guard(
    "G6 measured ceilings",
    "each layer that `ceilings` declares was measured, the measurement is not too old, and no valid figure exceeds it",
    "Measure the layers again: iogauge run -t ceiling; then see 'iogauge site ceilings'",
    "a: a ceiling measured before the disks were replaced",
    "ext4",
    Outcome.WARN,
    limit="`ceilings.max_age_days` 90",
    demands="a measured ceiling that holds",
    more="Otherwise the measurement is not used.",
)


def measured_ceilings(case: CaseView) -> Finding | None:
    """Return G6 if the partition declares layers, and the case moves the target's data."""
    moves = any(phase.moves_data for phase in case.phases)
    problems = case.measured.problems
    known = problems or case.measured.usable
    if not (moves and case.extras.ceilings and known):
        return None
    return _MEASURED.unless("the measured ceilings hold", "; ".join(problems))


#: How far operations x size may be from the bandwidth, as a share.
_UNITS: Final = 0.01
#: Requests in flight, as shares of what fio keeps there.
_MOST_IN_FLIGHT: Final = 1.1
_LEAST_IN_FLIGHT: Final = 0.5

_UNIT_SANITY: Final = Guard(
    "G7 units",
    f"operations per second x transfer size equals bandwidth within {_UNITS:.0%}",
    "The tool's output mixes units or phases: keep it and report it",
    "a: 9216KiB/s read as MiB/s",
    "ext4, Lustre 2.17",
    but="or CONTAMINATED on a busy node",
    demands=f"|iops x transfer - bandwidth| / bandwidth <= {_UNITS:.0%}",
    more=f"Operations per second x mean latency is at most {_MOST_IN_FLIGHT:.0%} of the requests that fio keeps in flight. It is "
    f"at least {_LEAST_IN_FLIGHT:.0%} of them if a latency is judged; on a busy node fewer are CONTAMINATED, because fio waits "
    "for a processor between requests.",
)


def unit_sanity(phase: PhaseView) -> Iterator[Finding]:
    """Yield G7 for each execution that reports bytes and operations.

    If no latency is judged, few requests in flight are those of a busy node: fio waits for a processor between requests.
    """
    ways = [way for _, way in phase.phase.rates.values()]
    latency, busy = any(way.startswith("latency") for way in ways), phase.case.busy
    demands = f"at most {_MOST_IN_FLIGHT:.0%} of the requests in flight"
    if latency:
        demands = f"between {_LEAST_IN_FLIGHT:.0%} and {_MOST_IN_FLIGHT:.0%} of the requests in flight"
    disagree = _UNIT_SANITY.saying(
        f"ops/s x mean latency {demands}",
        "Rate and latency cannot both be true. Look for another tool of this name",
    )
    for execution, part in phase.reported:
        if not ("bw" in part.rates and part.operations and part.transfer_bytes):
            continue
        flight = in_flight(execution.output)
        if flight:
            share = flight[0] / flight[1]
            saw = f"ops/s x mean latency is {flight[0]:.3g} request(s) in flight, fio keeps {flight[1]}"
            few = latency and share < _LEAST_IN_FLIGHT
            if few and busy:
                yield disagree.saying(
                    remedy="See what else runs on the node, and run again when it is at rest"
                ).found(Outcome.CONTAMINATED, f"{saw}, while {busy}")
                continue
            if few or share > _MOST_IN_FLIGHT:
                yield disagree.invalid(saw)
                continue
        rate = part.operations / part.seconds
        bytes_s = convert(part.rates["bw"].value, part.rates["bw"].unit, "B/s")
        off = abs(rate * part.transfer_bytes - bytes_s) / bytes_s
        yield _UNIT_SANITY.decide(
            off <= _UNITS,
            f"{format_value(rate)} ops/s x {format_bytes(part.transfer_bytes)} differs from "
            f"{format_bytes(bytes_s)}/s by {off:.2%}",
        )


#: IOR's warning if tasks see a shared file with different sizes, and what it adds. It asks for them as soon as the file
#: is written.
_UNLIKE: Final = "inconsistent file size by different tasks"
_OF_SIZE: Final = re.compile(
    rf"WARNING: ({_UNLIKE}|(Expected aggregate file size|Stat\(\) of aggregate file size|"
    r"Using actual aggregate bytes moved) += \d+)\W*"
)

_BYTES: Final = Guard(
    "G8 bytes",
    "all planned bytes moved in every repetition, and the tool gave no warning",
    "Read the tool's output in the stage directory",
    "a: fio's file was shorter than asked, and half of the reads did nothing",
    "ext4, GlusterFS, NFS, Lustre 2.17",
    but="or a remark",
    demands="no warning",
    more="IOR warns if tasks see a shared file with different sizes. You get a remark if all bytes were read afterwards: a "
    "client of GlusterFS or NFS may keep a file's size for a moment.",
)


def bytes_moved(phase: PhaseView) -> Finding | None:
    """Return G8 for reads and writes, and for any phase with an unexpected warning."""
    expected, planned = phase.phase.expected, phase.phase.data_bytes
    warnings = []
    for output in phase.outputs:
        for warning in output.warnings:
            if expected is None or not re.search(expected, warning):
                warnings.append(warning)
    if not phase.moves_data and not warnings:
        return None
    unlike = any(_UNLIKE in warning for warning in warnings) and _read_whole(phase)
    if unlike:
        warnings = [text for text in warnings if not _OF_SIZE.fullmatch(text)]
    guard, saw, wrong = _BYTES, "bytes moved as asked", False
    if planned is not None:
        guard = _BYTES.saying(f"{planned} bytes (N x T x b x s) and no warning")
        for part in phase.tool_phases:
            if part.bytes_moved != planned:
                count = part.bytes_moved
                shown = "an unknown number of" if count is None else count
                saw, wrong = f"{shown} bytes moved", True
                break
    if warnings:
        saw += f", warning of the tool: {warnings[0]}"
    if wrong or warnings:
        return guard.invalid(saw)
    if unlike:
        return guard.warn(
            f"{saw}; clients saw the file with different sizes, then read all of it"
        )
    return guard.ok(saw)


def _read_whole(phase: PhaseView) -> bool:
    """Return whether a phase writes bytes that another phase reads, all of them in each repetition."""
    wrote = phase.phase.data_bytes
    if phase.access.direction != "write" or not wrote:
        return False
    for other in phase.case.phases:
        if other.access.direction != "read" or other.phase.data_bytes != wrote:
            continue
        read = [part.bytes_moved for part in other.tool_phases]
        if read == [wrote] * len(phase.tool_phases):
            return True
    return False


_ORDER: Final = Guard(
    "G21 order",
    "every read starts after a finished write of its own repetition",
    "Let the case write its data itself, before it reads them (phases.tsv has the order)",
    "a: a read of files that an earlier run had left",
    "ext4, Lustre 2.17",
    demands="a write of this run that has finished before each read",
    more="If repetitions do not write, the preparing write counts. With `writes_first` every read starts after all writes.",
)


def read_after_write(phase: PhaseView) -> Finding | None:
    """Return G21. If one execution writes and reads, its read starts at the end of the execution.

    What is prepared, in repetition 0, stays for all repetitions: then other writes do not matter.
    """
    if phase.access.direction != "read":
        return None
    plan, runs = phase.case.plan, phase.case.evidence.runs
    made = ("write", "metadata")
    writing = [part for part in plan.prepare if part.access.direction in made]
    writing = writing or [part for part in plan.repeat if part.access.direction in made]
    writers = {part.within or part.name for part in writing}
    name = phase.phase.within or phase.phase.name
    reads = [run for run in runs if run.name == name and run.repetition > 0]
    writes: dict[int, list[float]] = {}
    for run in runs:
        if run.name in writers:
            writes.setdefault(run.repetition, []).append(run.ended)
    last = max((ended for several in writes.values() for ended in several), default=0.0)
    wrong = "" if reads else "no read"
    for read in reads:
        started = read.ended if name in writers else read.started
        ended = writes.get(read.repetition) or writes.get(0)
        if not ended:
            wrong = f"repetition {read.repetition} reads what this run did not write"
        elif min(ended) > started:
            wrong = f"repetition {read.repetition} reads before its data were written"
        elif plan.writes_first and last > started:
            wrong = f"repetition {read.repetition} reads before all repetitions have written"
        if wrong:
            break
    guard = _ORDER
    if plan.writes_first:
        guard = guard.saying(
            "all writes of this run have finished before the first read"
        )
    return guard.unless(f"{len(reads)} read(s), each after a write", wrong)


#: How far the fill may be from its level, as a share of the target.
_OFF_LEVEL: Final = 0.01

_FILL: Final = Guard(
    "G13 fill level",
    f"if the case fills the target up to a level, the fill is within {_OFF_LEVEL:.0%} of that level before the first phase",
    "Others have written or removed files meanwhile: repeat at a quiet time",
    "a: another user freed space while the target was filled",
    "ext4",
    limit="`sweeps.fill_levels`",
)


def fill_level(case: CaseView) -> Iterator[Finding]:
    """Yield G13 for a case that fills the target."""
    for output in case.evidence.outputs.get(FILL, ()):
        filled: Any = output.parameters["filled"]
        wanted, reached = filled["level"] / 100, filled["fill"]
        files = f"{format_bytes(filled['bytes'])} of it in files of this case"
        holds = abs(reached - wanted) <= _OFF_LEVEL
        guard = _FILL.saying(f"{wanted:.0%} full, within {_OFF_LEVEL:.0%}")
        yield guard.decide(holds, f"{reached:.1%} full, {files}")
