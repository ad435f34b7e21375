"""Guards of the figures: duration, tail, ceiling, bytes, spread (G4 to G6, G8, G17)."""

import dataclasses
import re
import statistics
from collections.abc import Iterator
from typing import Any

from iogauge.core.measurement import Phase
from iogauge.core.units import (
    convert,
    dimension,
    format_bytes,
    format_seconds,
    format_value,
    with_unit,
)
from iogauge.core.vocabulary import Tier
from iogauge.evidence.model import SERIES
from iogauge.guards.finding import Finding, Guard, Outcome
from iogauge.guards.views import CaseView, PhaseView
from iogauge.plan.bounds import MOST_SHARE, MetricBounds

#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND = 10

_PERCENTILE = Guard(
    name="G4 percentile",
    must="at least ten operations of the shortest repetition lie beyond a percentile of the latency: p99 needs 1,000 operations, "
    "p99.9 needs 10,000",
    remedy="Raise limits.phase_seconds",
    against="a: p99.9 of 2,000 requests was the second worst, and differed threefold",
    seen_on="ext4, Lustre 2.17",
    limit="`limits.phase_seconds`",
    demands=f"{_BEYOND} or more",
    more="In tier quick fewer give a remark.",
)


def beyond(phase: PhaseView) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency; the shortest repetition counts."""
    counts = [part.operations or 0 for part in phase.tool_phases]
    fewest = min(filter(None, counts), default=0)
    otherwise = Outcome.WARN if phase.case.tier == "quick" else None
    for metric, (_, quantity) in phase.plan.rates.items():
        if quantity in _TAILS and fewest:
            there = fewest * _TAILS[quantity]
            saw = f"{there:.1f} of {fewest} operation(s) lie beyond the percentile"
            finding = _PERCENTILE.decide(there >= _BEYOND, saw, otherwise)
            yield dataclasses.replace(finding, metric=metric)


_SPREAD = Guard(
    name="G17 spread",
    must="coefficient of variation (n - 1) over the repetitions is at most `limits.max_spread`",
    remedy="Others may use the target: repeat at a quiet time, or raise limits.repetitions",
    against="a: a shared disk, whose repetitions differed by 40 %",
    seen_on="ext4, NFS, Lustre 2.17",
    otherwise=Outcome.UNSTABLE,
    limit="`limits.max_spread` 10 %",
    more="If the slowest percent of the requests differ more, you get only a remark.",
)


def spread(case: CaseView) -> Iterator[Finding]:
    """Yield G17 for each metric of a case."""
    limit = case.extras.limits.max_spread
    guard = _SPREAD.saying(f"at most {limit:.0%} over at least 2 repetitions")
    alone = guard.saying(
        remedy="Compare runs (iogauge history). If the check can repeat, raise limits.repetitions"
    ).warn("one value a run: spread unknown")
    of_tail = {metric.name for metric in case.metrics if metric.tail}
    for name, values in case.values.items():
        finding = alone
        if len(values) > 1:
            cv = statistics.stdev(values) / statistics.fmean(values)
            saw = f"coefficient of variation {cv:.1%} over {len(values)} repetitions"
            # The slowest percent of the requests differ more.
            otherwise = Outcome.WARN if name in of_tail else None
            finding = guard.decide(cv <= limit, saw, otherwise)
        yield dataclasses.replace(finding, metric=name)


_STEADINESS = Guard(
    name="G17 steadiness",
    must="within a repetition no second is below half of the median",
    remedy="A change to a lower level may be burst credits that were used up: compare with what was bought",
    against="a: nfsd stopped for 3 s",
    seen_on="ext4, NFS",
    otherwise=Outcome.WARN,
    demands="no dip below 50 % of the median",
    more="The rule applies to scenarios that sample the bandwidth over time.",
)


def steadiness(phase: PhaseView) -> Finding | None:
    """Return G17 for executions with a bandwidth over time."""
    unsteady, sampled = list[str](), False
    for number, output in enumerate(phase.outputs, 1):
        series: Any = output.parameters.get(SERIES)
        if series:
            sampled = True
            unsteady += [f"repetition {number}: {text}" for text in series.unsteady]
    if not sampled:
        return None
    return _STEADINESS.unless("steady over time", "; ".join(unsteady))


#: Seconds that a phase must last, by tier (G4). Below the first number the figure is not believed.
#: Below the second number it gets a remark.
MIN_SECONDS: dict[Tier, tuple[float, float]] = {
    "quick": (0.02, 30.0),
    "daily": (30.0, 60.0),
    "acceptance": (60.0, 60.0),
}

_DURATION = Guard(
    name="G4 duration",
    must=f"the shortest repetition lasts {MIN_SECONDS['daily'][0]:g} s in tier daily, {MIN_SECONDS['acceptance'][0]:g} s in "
    "acceptance",
    remedy="Raise limits.case_bytes, limits.case_files or limits.phase_seconds",
    against="a: a write of 1 GiB that ended in a controller's cache after 0.4 s",
    seen_on="ext4, Lustre 2.17",
    limit="`limits.tier`",
    more=f"Tier quick demands {MIN_SECONDS['quick'][0]:g} s, and gives a remark below {MIN_SECONDS['quick'][1]:g} s. A phase of "
    "IO500 that does not write gets remarks only.",
)


def duration(phase: PhaseView) -> Finding | None:
    """Return G4 for phases that are timed."""
    if not phase.timed:
        return None
    tier = phase.case.tier
    least, wanted = MIN_SECONDS[tier]
    shortest = min(part.seconds for part in phase.tool_phases)
    needed = wanted
    if shortest < least:
        needed = least
    times = needed / max(shortest, 1e-6)
    guard = _DURATION.saying(
        f"{least:g} s in tier {tier}, {wanted:g} s to compare systems",
        f"{_DURATION.remedy} {times:.3g}-fold in the settings of your site",
    )
    saw = f"the shortest repetition lasted {format_seconds(shortest)}"
    # A phase that follows is as long as an earlier phase left work for it.
    refused = shortest < least and not phase.plan.follows
    otherwise = Outcome.INVALID if refused else Outcome.WARN
    return guard.decide(shortest >= wanted, saw, otherwise)


_MAX_IMBALANCE = 0.3

_TAIL = Guard(
    name="G5 tail",
    must=f"(max - min) / mean of task times <= {_MAX_IMBALANCE:g}",
    remedy="Look for a slow node, link or storage target",
    against="a: an OST throttled to 2 %",
    seen_on="ext4, Lustre 2.17",
    otherwise=Outcome.WARN,
)


def tail(phase: PhaseView) -> Finding | None:
    """Return G5 for phases of which the tool reports the seconds of each task."""
    shares = []
    for part in phase.tool_phases:
        if part.rank_seconds and sum(part.rank_seconds) > 0:
            mean = statistics.fmean(part.rank_seconds)
            shares.append((max(part.rank_seconds) - min(part.rank_seconds)) / mean)
    if not (phase.timed and shares):
        return None
    saw = f"(max - min) / mean of task times = {max(shares):.2f}"
    return _TAIL.decide(max(shares) <= _MAX_IMBALANCE, saw)


#: Share of the ceiling below which a scenario that drives it gets a remark.
_LOW = 0.5

_CEILING = Guard(
    name="G6 ceiling",
    must=f"a bandwidth is at most {MOST_SHARE:.0%} of the smallest of N x client NIC, servers x NIC, devices",
    remedy="The data came from a cache, or the topology in the settings is wrong",
    against="a: 5 GiB/s over a link of 100 Gbit/s declared as 10",
    seen_on="ext4",
    limit="`topology`",
    more=f"Below {_LOW:.0%} it gets a remark if the scenario saturates the target.",
)


def ceiling(phase: PhaseView) -> Iterator[Finding]:
    """Yield the largest sample of each metric against the ceiling of that metric."""
    case = phase.case
    for metric in case.metrics:
        if metric.name not in phase.plan.rates:
            continue
        value, unit = max(case.values[metric.name]), metric.unit
        limit = MetricBounds.of(case.plan, metric, case.extras).ceiling
        if limit is None:
            guard = _CEILING.saying("topology in the site's settings")
            finding = guard.ok("no ceiling declared")
        else:
            share, source = value / limit.value, limit.limited_by
            saw = f"{with_unit(value, unit)} is {share:.0%} of the ceiling ({source})"
            # Only a scenario that drives this limit has a remark if it stays far below.
            idle = phase.access.saturates == dimension(unit) and share < _LOW
            guard = _CEILING.saying(
                f"at most {MOST_SHARE:.0%} of {format_value(limit.value)} {unit}"
            )
            finding = guard.decide(share <= MOST_SHARE, saw)
            if idle:
                remedy = "Less than half of what the topology can carry: look for the bottleneck"
                finding = guard.saying(remedy=remedy).warn(saw)
        yield dataclasses.replace(finding, metric=metric.name)


#: IOR's warning if tasks see a shared file with different sizes, and what it adds. It asks for them as soon as the file
#: is written.
_UNLIKE = "inconsistent file size by different tasks"
_OF_SIZE = re.compile(
    rf"WARNING: ({_UNLIKE}|(Expected aggregate file size|Stat\(\) of aggregate file size|"
    r"Using actual aggregate bytes moved) += \d+)\W*"
)

#: How far a printed bandwidth may be from bytes by seconds, as a share: digits of both are rounded.
_PRINTED = 0.05

_BYTES = Guard(
    name="G8 bytes",
    must="all planned bytes moved in every repetition, the tool's bandwidth is bytes by seconds, and the tool gave no warning",
    remedy="Read the tool's output in the stage directory",
    against="a: fio's file was shorter than asked, and half of the reads did nothing; a tool printed ten times its bandwidth",
    seen_on="ext4, GlusterFS, NFS, Lustre 2.17",
    but="or a remark",
    demands="no warning",
    more="IOR warns if tasks see a shared file with different sizes. You get a remark if all bytes were read afterwards: a "
    "client of GlusterFS or NFS may keep a file's size for a moment.",
)


def bytes_moved(phase: PhaseView) -> Finding | None:
    """Return G8 for reads and writes, and for any phase with an unexpected warning."""
    expected, planned = phase.plan.expected, phase.plan.data_bytes
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
    guard, saw, problems = _BYTES, "bytes moved as asked", list[str]()
    if planned is not None:
        guard = _BYTES.saying(f"{planned} bytes (N x T x b x s) and no warning")
        for part in phase.tool_phases:
            if part.bytes_moved != planned:
                count = "an unknown number of"
                if part.bytes_moved is not None:
                    count = str(part.bytes_moved)
                problems.append(f"{count} bytes moved")
    for part in phase.tool_phases:
        problems += _not_its_bandwidth(part)
    problems += [f"{saw}, warning of the tool: {warning}" for warning in warnings]
    doubt = ""
    if unlike:
        doubt = f"{saw}; clients saw the file with different sizes, then read all of it"
    return guard.unless(saw, *problems, doubt=doubt)


def _not_its_bandwidth(part: Phase) -> Iterator[str]:
    """Yield what is wrong with a bandwidth that is not the bytes by the seconds of its phase."""
    stated = part.rates.get("bw")
    if stated is None or not part.bytes_moved:
        return
    bytes_s = convert(stated.value, stated.unit, "B/s")
    counted = part.bytes_moved / part.seconds
    if abs(bytes_s - counted) > _PRINTED * counted:
        yield (
            f"the tool's bandwidth is {with_unit(stated.value, stated.unit)}; its bytes by its seconds are "
            f"{format_bytes(counted)}/s"
        )


def _read_whole(phase: PhaseView) -> bool:
    """Return whether a phase writes bytes that another phase reads, all of them in each repetition."""
    wrote = phase.plan.data_bytes
    if phase.access.direction != "write" or not wrote:
        return False
    for other in phase.case.phases:
        if other.access.direction != "read" or other.plan.data_bytes != wrote:
            continue
        read = [part.bytes_moved for part in other.tool_phases]
        if read == [wrote] * len(phase.tool_phases):
            return True
    return False
