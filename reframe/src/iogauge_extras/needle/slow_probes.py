"""Needle: every storage target or every node was measured alone; which of them stand out?

A probe is a target or a node. It is measured in several rounds. In each round all probes take
turns, in an order of that round. Each rate is divided by the median of its round: what all share is
no difference between them. The rounds only raise a suspicion. The suspects are then measured again
beside two healthy probes, and those turns alone decide (:mod:`iogauge_extras.needle.turns`).
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from statistics import NormalDist
from types import MappingProxyType
from typing import Any, Final, Literal, NamedTuple

from iogauge.core.groups import grouped
from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
    Unsettled,
)
from iogauge.core.units import with_unit
from iogauge.tools.fio.output import join_options
from iogauge.tools.parsing import excerpt, unique
from iogauge_extras.history.quantiles import t_quantile
from iogauge_extras.needle.turns import (
    Again,
    Turn,
    again,
    by_round,
    parse_turns,
    rates_of,
    shares,
    turns_again,
)

#: Probability that a pass names any probe, if all are alike and some were measured again.
FALSE_ALARMS: Final = 0.005

#: A probe is remarked upon as fast beyond this many robust standard deviations.
FAST_LIMIT: Final = 3.5

#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SIGMA: Final = 1.4826

#: Smallest standard deviation of ln(rate) that counts. If turns agreed to the last digit, every
#: difference would be proven.
LEAST_SCALE: Final = 0.01

#: Number of probes that a verdict names.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A target or node."""

    name: str
    #: Its median rate; of a probe that was measured again, that of those turns.
    rate: float
    #: Its share of the median of all; of a probe that was measured again, of the two others in those turns.
    share: float
    #: Its share in the rounds.
    in_rounds: float
    #: The statistic of Student's test; None of a probe that was not measured again.
    t: float | None = None
    #: What ``t`` must fall below.
    limit: float = 0.0

    @property
    def proven(self) -> bool:
        """Return whether the probe is slower than the others beyond doubt."""
        return self.t is not None and self.t < self.limit


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """All probes of a pass, and what stands out."""

    #: The slowest first.
    probes: tuple[Probe, ...]
    #: Median of their rates, in ``unit``.
    median: float
    unit: str
    #: Robust standard deviation of ln(share) between probes.
    between: float
    #: That of the turns of one probe.
    within: float
    #: Turns of each suspect that was measured again, and rounds before.
    turns: int
    rounds: int
    #: Outliers, the fastest first.
    fast: tuple[Probe, ...]
    max_deviation: float

    def _below(self, proven: bool) -> tuple[Probe, ...]:
        return tuple(
            probe
            for probe in self.probes
            if probe.share < 1 - self.max_deviation and probe.proven is proven
        )

    @property
    def slow(self) -> tuple[Probe, ...]:
        """Return the probes below 1 - ``max_deviation`` that are slower beyond doubt."""
        return self._below(True)

    @property
    def open(self) -> tuple[Probe, ...]:
        """Return the probes below 1 - ``max_deviation`` of which that is not proven."""
        return self._below(False)

    @property
    def cleared(self) -> tuple[Probe, ...]:
        """Return the suspects that are not below 1 - ``max_deviation`` when measured again."""
        least = 1 - self.max_deviation
        return tuple(p for p in self.probes if p.t is not None and p.share >= least)

    def slow_servers(self, server_of: Mapping[str, str]) -> dict[str, list[Probe]]:
        """Return the servers whose targets, two or more, are all slow, with these; ``server_of`` knows every target.

        One of them at least is slow beyond doubt. What was not measured again is so slow in the rounds that chance
        does not explain it.
        """
        if not all(probe.name in server_of for probe in self.probes):
            return {}
        found = grouped(self.probes, lambda probe: server_of[probe.name])
        scale = max(LEAST_SCALE, self.within) * math.sqrt(math.pi / 2 / self.rounds)
        limit = NormalDist().inv_cdf(FALSE_ALARMS / len(self.probes)) * scale

        def is_slow(probe: Probe) -> bool:
            return probe in self.slow or (
                probe in self.open and probe.t is None and math.log(probe.share) < limit
            )

        slow = {}
        for server, mine in found.items():
            several = 1 < len(mine) < len(self.probes)
            if several and all(map(is_slow, mine)) and any(p.proven for p in mine):
                slow[server] = mine
        return slow

    @property
    def slowest(self) -> Probe:
        """Return the slowest probe of those named, or of all if none is named."""
        return (self.slow or self.probes)[0]

    @property
    def unsettled(self) -> Unsettled | None:
        """Return what the turns leave open about the slowest share, or None if nothing."""
        unproven = [probe for probe in self.probes if not probe.proven]
        if not unproven:
            return None
        return Unsettled(
            unproven[0].share,
            "cannot decide, as the turns differ too much to tell: raise limits.repetitions or "
            "limits.phase_seconds, or measure at a quiet time",
        )

    def describe(self, server_of: Mapping[str, str] = MappingProxyType({})) -> str:
        """Return what the probes show, for a verdict's reason: first the servers and probes that are slow."""
        servers = self.slow_servers(server_of)
        parts = [
            f"the server {server} is slow: all {len(mine)} of its targets ({', '.join(p.name for p in mine[:_NAMED])}) "
            f"at {mine[0].share:.0%} to {mine[-1].share:.0%} of the others"
            for server, mine in servers.items()
        ]
        said = list(chain.from_iterable(servers.values()))
        slow = [probe for probe in self.slow if probe not in said]
        parts += self._named(slow, "that are slow")
        unproven = [probe for probe in self.open if probe not in said]
        below = f"below {1 - self.max_deviation:.0%}, and not proven"
        parts += self._named(unproven, below)
        if not parts:
            parts.append(f"slowest is {self._say(self.slowest)}")
        seemed = "{0.name} seemed slow in the rounds ({0.in_rounds:.0%}), and is not when measured again {1} times ({0.share:.0%})"
        parts += _first(
            self.cleared, lambda p: seemed.format(p, self.turns), "that seemed slow"
        )
        parts += self._named(self.fast, "that are fast", "faster than the others: ")
        parts.append(
            f"the turns of each differ by {self.within:.0%}, their medians by {self.between:.0%} "
            "(robust standard deviations)"
        )
        return "; ".join(parts)

    def _named(self, probes: Sequence[Probe], what: str, before: str = "") -> list[str]:
        return _first(probes, lambda probe: before + self._say(probe), what)

    def _say(self, probe: Probe) -> str:
        said = (
            f"{probe.name}: {with_unit(probe.rate, self.unit)}, {probe.share:.0%} of "
        )
        if probe.t is None:
            return f"{said}the median of all"
        below = "not below"
        if probe.proven:
            below = "below"
        return (
            f"{said}the others beside it, measured again {self.turns} times (t = {probe.t:.1f}, "
            f"{below} {probe.limit:.1f})"
        )


def _first(
    probes: Sequence[Probe], say: Callable[[Probe], str], what: str
) -> list[str]:
    """Return the words of the first probes, and how many more there are."""
    parts = [say(probe) for probe in probes[:_NAMED]]
    if len(probes) > _NAMED:
        parts.append(f"and {len(probes) - _NAMED} more {what}")
    return parts


def decide(
    rates: Mapping[str, Sequence[float]],
    measured_again: Mapping[str, Sequence[float]],
    *,
    max_deviation: float,
    unit: str = "MiB/s",
) -> Needle:
    """Return the probes and those that stand out.

    ``rates`` holds the rate of every round by probe, ``measured_again`` that of every later turn of
    those that :func:`iogauge_extras.needle.turns.again` names.

    For each later turn, x is ln(rate of the suspect / geometric mean of the others). t is
    mean(x) / (s / sqrt(turns)). The suspect is slower beyond doubt if t is below Student's quantile
    of :data:`FALSE_ALARMS` / suspects, with turns - 1 degrees of freedom. s is the larger of two
    standard deviations: that of the suspect's own x, and that of all suspects' x together. It is at
    least 0.01. The share is exp(median(x)).

    All probes have as many rates, finite and positive. Raises :class:`ToolOutputError` for fewer than two probes.
    """
    if len(rates) < 2:
        raise ToolOutputError(
            f"needle: {len(rates)} probe(s) ({', '.join(rates) or 'none'}): expected two or more to compare"
        )
    in_rounds = shares(rates)
    proofs = _proofs(measured_again, again(rates, max_deviation))
    median_of = {name: statistics.median(values) for name, values in rates.items()}
    probes = []
    for name, in_round in in_rounds.items():
        rate, proof = median_of[name], proofs.get(name, _Proof(in_round))
        if name in proofs:
            rate = statistics.median(measured_again[name])
        probe = Probe(
            name=name,
            rate=rate,
            share=proof.share,
            in_rounds=in_round,
            t=proof.t,
            limit=proof.limit,
        )
        probes.append(probe)
    probes.sort(key=lambda probe: (probe.share, probe.name))
    between, within = _between(in_rounds), _within(rates)
    scale = max(LEAST_SCALE, between, within)
    fast = [
        probe
        for probe in reversed(probes)
        if probe.share > 1 + max_deviation
        and math.log(probe.share) / scale > FAST_LIMIT
    ]
    return Needle(
        probes=tuple(probes),
        median=statistics.median(median_of.values()),
        unit=unit,
        between=between,
        within=within,
        turns=len(next(iter(measured_again.values()), ())),
        rounds=len(next(iter(rates.values()))),
        fast=tuple(fast),
        max_deviation=max_deviation,
    )


class _Proof(NamedTuple):
    """The share of a probe; of one that was measured again also t and its limit."""

    share: float
    t: float | None = None
    limit: float = 0.0


def _proofs(rates: Mapping[str, Sequence[float]], chosen: Again) -> dict[str, _Proof]:
    """Return the proof about each suspect that was measured again."""
    if not rates:
        return {}
    columns = zip(*(rates[name] for name in chosen.others), strict=True)
    others = [statistics.fmean(map(math.log, column)) for column in columns]
    found = {}
    for name in chosen.suspects:
        pairs = zip(rates[name], others, strict=True)
        found[name] = [math.log(own) - other for own, other in pairs]
    variances = {name: statistics.variance(row) for name, row in found.items()}
    together, turns = statistics.fmean(variances.values()), len(others)
    limit = t_quantile(FALSE_ALARMS / len(found), turns - 1)
    proofs = {}
    for name, row in found.items():
        s = max(LEAST_SCALE, math.sqrt(max(variances[name], together)))
        t = statistics.fmean(row) / (s / math.sqrt(turns))
        proofs[name] = _Proof(math.exp(statistics.median(row)), t, limit)
    return proofs


def _between(share: Mapping[str, float]) -> float:
    """Return the robust standard deviation of ln(share) between probes."""
    return MAD_TO_SIGMA * statistics.median(
        abs(math.log(value)) for value in share.values()
    )


def _within(rates: Mapping[str, Sequence[float]]) -> float:
    """Return the standard deviation of ln(rate) between the turns of one probe, of the median probe.

    Each rate is divided by the median of its round. The median of chi-square over its degrees of
    freedom makes it the standard deviation of a normal distribution (Wilson and Hilferty, PNAS 17,
    1931).
    """
    free = len(next(iter(rates.values()))) - 1
    if free < 1:
        return 0.0
    middle = list(map(statistics.median, zip(*rates.values(), strict=True)))
    variances = []
    for row in rates.values():
        pairs = zip(row, middle, strict=True)
        variances.append(statistics.variance([math.log(x / y) for x, y in pairs]))
    return math.sqrt(statistics.median(variances) / (1 - 2 / (9 * free)) ** 3)


def medians(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of every probe's rounds to five digits, as a record keeps them."""
    return {
        name: float(f"{statistics.median(values):.5g}")
        for name, values in rates.items()
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The planned rounds. The probes are ``targets``, fio's jobs, or else ``nodes`` hosts."""

    direction: Literal["read", "write", "create"]
    rounds: int
    max_deviation: float
    targets: tuple[str, ...] = ()
    nodes: int = 1


def parse_rounds(
    text: str, planned: Rounds, server_of: Mapping[str, str] = MappingProxyType({})
) -> ToolOutput:
    """Parse the output of rounds.sh: for each turn a line ``needle ROUND PROBE`` and fio's JSON.

    The result has one phase, named after the direction. Its rates are ``slowest`` (unit "1":
    slowest probe over the median of all) and ``median`` (MiB/s, ops/s of creates). The note of ``slowest`` says which
    probes stand out, or which server: ``server_of`` are the servers of targets, as far as known. Seconds, bytes and operations are sums over all turns. Of the ``parameters``, ``rates`` holds
    the rate of every round by probe. ``rounds`` holds the rates of every round, the repeated measurement included,
    in the order of measuring. Beside them are the options that fio had in all turns, and ``jobs``.

    Raises :class:`ToolOutputError` if a probe is missing in a round, comes twice or is unknown. The same holds if
    others were measured again than :func:`iogauge_extras.needle.turns.again` says. Errors of
    :func:`parse_turns` and :func:`decide` pass through.
    """
    turns = parse_turns(text)
    if not turns:
        raise ToolOutputError(
            f"needle: no turn in the output; it begins: {excerpt(text)}"
        )
    hosts = unique(turn.probe for turn in turns)
    names, table = planned.targets or hosts, by_round(turns)
    if not planned.targets and len(hosts) != planned.nodes:
        raise ToolOutputError(
            f"needle: {len(hosts)} node(s) ({', '.join(hosts)}): expected {planned.nodes}"
        )
    for turn in turns:
        where = f"needle, round {turn.round}, {turn.probe}"
        jobs: Any = turn.output.parameters["jobs"]
        if turn.phase.name != planned.direction:
            raise ToolOutputError(
                f"{where}: {turn.phase.name}, expected {planned.direction}"
            )
        if planned.targets and [*jobs] != [turn.probe]:
            raise ToolOutputError(f"{where}: fio ran another job")
    rates = rates_of(table, names, range(1, planned.rounds + 1))
    chosen = again(rates, planned.max_deviation)
    last = planned.rounds
    if chosen.suspects:
        last += turns_again(planned.rounds)
    later = rates_of(table, chosen.names, range(planned.rounds + 1, last + 1))
    for turn in turns:
        if turn.round > last:
            raise ToolOutputError(
                f"needle: {turn.probe}, round {turn.round}: it was not planned"
            )
    unit = turns[0].quantity.unit
    needle = decide(rates, later, max_deviation=planned.max_deviation, unit=unit)
    in_order = []
    for _, row in sorted(table.items()):
        in_order.append({name: float(f"{rate:.5g}") for name, rate in row.items()})
    output = _as_output(turns, planned, needle)
    more = {"rates": rates, "rounds": in_order}
    nodes = 1 if planned.targets else len(hosts)
    return replace(
        output,
        nodes=nodes,
        parameters={**output.parameters, **more},
        notes={"slowest": needle.describe(server_of)},
    )


def _as_output(turns: Sequence[Turn], planned: Rounds, needle: Needle) -> ToolOutput:
    """Return all turns as the output of one execution, with the options that fio had in all of them."""
    outputs, phases = [turn.output for turn in turns], [turn.phase for turn in turns]
    options: dict[str, object] = {}
    for name, value in outputs[0].parameters.items():
        alike = all(output.parameters.get(name) == value for output in outputs)
        if isinstance(value, str) and alike:
            options[name] = value
    of_turns: list[Any] = [output.parameters["jobs"] for output in outputs]
    jobs = {}
    for name in unique(chain.from_iterable(of_turns)):
        jobs[name] = join_options([turn[name] for turn in of_turns if name in turn])
    # Each node has its own tasks; of targets there is one task, which nobody counts.
    tasks, counts = None, [output.tasks for output in outputs[: planned.nodes]]
    if not planned.targets and None not in counts:
        tasks = sum(filter(None, counts))
    moved = [phase.bytes_moved for phase in phases if phase.bytes_moved is not None]
    slowest = Quantity(needle.slowest.share, "1")
    phase = Phase(
        name=planned.direction,
        rates={"slowest": slowest, "median": Quantity(needle.median, needle.unit)},
        seconds=sum(phase.seconds for phase in phases),
        bytes_moved=sum(moved) if moved else None,
        operations=sum(phase.operations or 0 for phase in phases),
    )
    unsettled = {}
    if needle.unsettled:
        unsettled["slowest"] = needle.unsettled
    return ToolOutput(
        tool="fio",
        version=", ".join(unique(output.version for output in outputs)),
        phases=(phase,),
        tasks=tasks,
        warnings=unique(warning for output in outputs for warning in output.warnings),
        parameters={**options, "jobs": jobs},
        unsettled=unsettled,
        moments=tuple(moment for output in outputs for moment in output.moments),
    )
