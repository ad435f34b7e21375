"""Needle: every storage target or every node was measured alone; which of them is slow?

A probe is a target or a node. All take turns in several rounds, and each rate is divided by the median of its round: what all
share is no difference between them. The rounds only raise a suspicion. The suspects are then measured again beside two
healthy probes (:mod:`iogauge_extras.needle.turns`). A suspect is slow beyond doubt if it is the slowest in so many of these
turns that chance does not explain it: of k probes that are alike, each is the slowest in 1/k of them.
"""

import math
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any, Final, Literal

from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
    Unsettled,
)
from iogauge.core.text import some
from iogauge.core.units import format_value
from iogauge.tools.fio.fio_output import join_options
from iogauge.tools.parsing import excerpt, unique
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

#: Number of probes that a verdict names.
_NAMED: Final = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A target or node."""

    name: str
    #: Its median rate; of a probe that was measured again, that of those turns.
    rate: float
    #: Its share of the median of all; of a probe that was measured again, of the others beside it.
    share: float
    #: Turns in which it was measured again, 0 if it was not.
    turns: int = 0
    #: Those of them in which it was the slowest, and how many there must be.
    slowest_in: int = 0
    needed: int = 0

    @property
    def proven(self) -> bool:
        """Return whether the probe is slower than the others beyond doubt."""
        return 0 < self.needed <= self.slowest_in

    def describe(self) -> str:
        """Return the probe's rate, its share, and what the turns showed."""
        begin = f"{self.name}: {format_value(self.rate)} MiB/s, {self.share:.0%} of"
        if not self.turns:
            return f"{begin} the median of all"
        return (
            f"{begin} the others beside it, measured again {self.turns} times, the slowest in {self.slowest_in} "
            f"({self.needed} are proof)"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """All probes of a pass, the slowest first, and the median of their rates."""

    probes: tuple[Probe, ...]
    median: float
    max_deviation: float

    def _below(self, proven: bool) -> list[Probe]:
        least = 1 - self.max_deviation
        return [p for p in self.probes if p.share < least and p.proven is proven]

    @property
    def slow(self) -> list[Probe]:
        """Return the probes below 1 - ``max_deviation`` that are slower beyond doubt."""
        return self._below(True)

    @property
    def open(self) -> list[Probe]:
        """Return the probes below 1 - ``max_deviation`` of which that is not proven."""
        return self._below(False)

    @property
    def slowest(self) -> Probe:
        """Return the slowest probe of those that are slow, or of all if none is."""
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

    def describe(self) -> str:
        """Return what the probes show, for a verdict's reason: the slow ones, or else the slowest."""
        probes = [*self.slow, *self.open]
        if not probes:
            return f"slowest is {self.slowest.describe()}"
        return some([probe.describe() for probe in probes], _NAMED)


def turns_needed(turns: int, others: int, suspects: int) -> int:
    """Return in how many turns a suspect must be slower than so many others; more than ``turns`` if nothing is proof.

    With fewer, chance names one of the suspects in more than :data:`FALSE_ALARMS` of passes (a binomial tail).
    """
    chance, tail = 1 / (1 + others), 0.0
    for least in range(turns, -1, -1):
        tail += (
            math.comb(turns, least) * chance**least * (1 - chance) ** (turns - least)
        )
        if tail > FALSE_ALARMS / suspects:
            return least + 1
    return 0


def decide(
    rates: Mapping[str, Sequence[float]],
    measured_again: Mapping[str, Sequence[float]],
    *,
    max_deviation: float,
) -> Needle:
    """Return the probes, and which of them are slow.

    ``rates`` holds the rate of every round by probe, ``measured_again`` that of every later turn of those that
    :func:`iogauge_extras.needle.turns.again` names. All probes have as many rates, finite and positive. Raises
    :class:`ToolOutputError` for fewer than two probes.
    """
    if len(rates) < 2:
        names = ", ".join(rates) or "none"
        raise ToolOutputError(
            f"needle: {len(rates)} probe(s) ({names}): expected two or more to compare"
        )
    found = {}
    for name, share in shares(rates).items():
        rate = statistics.median(rates[name])
        found[name] = Probe(name=name, rate=rate, share=share)
    median = statistics.median(probe.rate for probe in found.values())
    chosen = Again()
    if measured_again:
        chosen = again(rates, max_deviation)
    for name in chosen.suspects:
        own = measured_again[name]
        others = [measured_again[other] for other in chosen.others]
        ratios = []
        slowest_in = 0
        for rate, *beside in zip(own, *others, strict=True):
            ratios.append(rate / statistics.geometric_mean(beside))
            slowest_in += rate < min(beside)
        found[name] = Probe(
            name=name,
            rate=statistics.median(own),
            share=statistics.median(ratios),
            turns=len(own),
            slowest_in=slowest_in,
            needed=turns_needed(len(own), len(others), len(chosen.suspects)),
        )
    probes = sorted(found.values(), key=lambda probe: (probe.share, probe.name))
    return Needle(probes=tuple(probes), median=median, max_deviation=max_deviation)


def medians(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the median of every probe's rounds to five digits, as a record keeps them."""
    found = {}
    for name, values in rates.items():
        found[name] = float(f"{statistics.median(values):.5g}")
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The planned rounds. The probes are ``targets``, fio's jobs, or else ``nodes`` hosts."""

    direction: Literal["read", "write"]
    rounds: int
    max_deviation: float
    targets: tuple[str, ...] = ()
    nodes: int = 1


def parse_rounds(text: str, planned: Rounds) -> ToolOutput:
    """Parse the output of rounds.sh: for each turn a line ``needle ROUND PROBE`` and fio's JSON.

    The result has one phase, named after the direction. Its rates are ``slowest`` (unit "1": slowest probe over the
    median of all) and ``median`` (MiB/s). The note of ``slowest`` says which probes are slow. Seconds,
    bytes and operations are sums over all turns. Of the ``parameters``, ``rates`` holds the rate of every round by probe,
    ``rounds`` those of every round, the repeated measurement included. Beside them are the options that fio had in all
    turns, and ``jobs``.

    Raises :class:`ToolOutputError` if a probe is missing in a round, comes twice or is unknown. The same holds if
    others were measured again than :func:`iogauge_extras.needle.turns.again` says.
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
    needle = decide(rates, later, max_deviation=planned.max_deviation)
    rounds = []
    for _, row in sorted(table.items()):
        rounds.append(medians({name: (rate,) for name, rate in row.items()}))
    output = _as_output(turns, planned, needle)
    nodes = 1
    if not planned.targets:
        nodes = len(hosts)
    parameters = {**output.parameters, "rates": rates, "rounds": rounds}
    return replace(output, nodes=nodes, parameters=parameters)


def _as_output(turns: Sequence[Turn], planned: Rounds, needle: Needle) -> ToolOutput:
    """Return all turns as the output of one execution, with the options that fio had in all of them."""
    outputs = [turn.output for turn in turns]
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
    phase = Phase(
        name=planned.direction,
        rates={
            "slowest": Quantity(needle.slowest.share, "1"),
            "median": Quantity(needle.median, "MiB/s"),
        },
        seconds=sum(turn.phase.seconds for turn in turns),
        bytes_moved=sum(turn.phase.bytes_moved or 0 for turn in turns),
        operations=sum(turn.phase.operations or 0 for turn in turns),
    )
    unsettled = {}
    if needle.unsettled:
        unsettled["slowest"] = needle.unsettled
    # fio's client, which is one program, says the version.
    return replace(
        outputs[0],
        phases=(phase,),
        tasks=tasks,
        warnings=unique(chain.from_iterable(output.warnings for output in outputs)),
        parameters={**options, "jobs": jobs},
        notes={"slowest": needle.describe()},
        unsettled=unsettled,
        at_once=False,
    )
