"""Guards of how values spread: percentiles, repetitions, the time of a repetition (G4, G17)."""

from __future__ import annotations

import dataclasses
import statistics
from collections.abc import Iterator, Sequence
from typing import Final

from iogauge.core.units import format_seconds, format_value
from iogauge.core.words import Tier
from iogauge.evidence.series import SERIES, Series
from iogauge.guards.finding import Finding, Outcome, Rule
from iogauge.guards.seen import MetricSeen, PhaseSeen
from iogauge.site.doubts import DOUBTFUL_LIMIT

#: Share of the operations beyond each percentile, and the fewest that make it (G4).
_TAILS: Final = {"latency_p99": 0.01, "latency_p999": 0.001}
_BEYOND: Final = 10


def beyond(*, operations: int, share: float, tier: Tier) -> Finding:
    """G4: ten operations of the shortest repetition lie beyond a percentile of the latency: p99 needs
    1,000, p99.9 10,000. Tier quick yields a remark.
    """
    saw = f"{operations * share:.1f} of {operations} operation(s) lie beyond the percentile"
    remedy = f"Raise limits.phase_seconds {_BEYOND / (operations * share):.3g}-fold"
    otherwise = Outcome.WARN if tier == "quick" else Outcome.INVALID
    return Rule("G4", f"{_BEYOND} or more", remedy).decide(
        operations * share >= _BEYOND, saw, otherwise
    )


def beyond_of(seen: PhaseSeen) -> Iterator[Finding]:
    """Yield G4 for each metric that is a percentile of the latency."""
    counts = [phase.operations for phase in seen.tool_phases if phase.operations]
    for metric, (_, quantity) in seen.phase.rates.items():
        if quantity in _TAILS and counts:
            found = beyond(operations=min(counts), share=_TAILS[quantity], tier=seen.case.tier)
            yield dataclasses.replace(found, metric=metric)


def spread(*, samples: Sequence[float], limit: float, tail: bool = False) -> Finding:
    """G17: coefficient of variation (n - 1) over the repetitions. A limit above 50 % yields a remark,
    and so do the slowest percent of the requests that spread more.
    """
    rule = Rule(
        "G17",
        f"at most {limit:.0%} over at least 2 repetitions",
        "Others may use the target: repeat at a quiet time, or raise limits.repetitions",
    )
    if len(samples) < 2:
        return rule.warn("one repetition: spread unknown")
    cv = statistics.stdev(samples) / statistics.fmean(samples)
    saw = f"coefficient of variation {cv:.1%} over {len(samples)} repetitions"
    if cv <= limit and limit > DOUBTFUL_LIMIT:
        return rule.warn(f"{saw}, and limits.max_spread hardly excludes any")
    return rule.decide(cv <= limit, saw, Outcome.WARN if tail else Outcome.UNSTABLE)


def spread_of(seen: MetricSeen) -> Iterator[Finding]:
    yield spread(
        samples=seen.case.values[seen.name],
        limit=seen.case.extras.limits.max_spread,
        tail=any(metric.tail for metric in seen.case.metrics if metric.name == seen.name),
    )


def steadiness(*, series: Sequence[Series]) -> Finding:
    """G17: within a repetition no second is below half of the median, and the level does not change by a
    fifth. It is asked of the scenarios that sample the bandwidth over time.
    """
    saw = []
    for number, one in enumerate(series, 1):
        where = f"repetition {number}: " if len(series) > 1 else ""
        if change := one.change:
            levels = f"{_mib_s(change.before)} to {_mib_s(change.after)}"
            saw.append(f"{where}from {levels} after {format_seconds(change.at_s)}")
        if dips := one.dips:
            longest = dips[0]
            saw.append(
                f"{where}{len(dips)} dip(s), the longest of {format_seconds(longest.seconds)} after "
                f"{format_seconds(longest.begin_s)}, down to {longest.lowest:.0%} of the median"
            )
    return Rule(
        "G17",
        "no dip below 50 % of the median, no change of level by 20 %",
        "A change to a lower level may be burst credits that were used up: compare with what was bought",
    ).decide(not saw, "; ".join(saw) or "steady over time", Outcome.WARN)


def _mib_s(bytes_s: float) -> str:
    return f"{format_value(bytes_s / 2**20)} MiB/s"


def steadiness_of(seen: PhaseSeen) -> Iterator[Finding]:
    series = [found for o in seen.outputs if isinstance(found := o.parameters.get(SERIES), Series)]
    if series:
        yield steadiness(series=series)
