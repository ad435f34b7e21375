"""Needle sweeps: every storage target or every node was measured alone; which of them stands out?

A probe is one target or one node. It is measured in several rounds, and in a round all probes take their
turn, so that what drifts touches all alike. The median of its rounds stands for a probe. Robust z-scores on
the logarithm: Iglewicz and Hoaglin, How to Detect and Handle Outliers (ASQC 1993), who give the limit 3.5.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.units import format_value
from iogauge.tools.fio.output import parse_json
from iogauge.tools.parsing import excerpt, unique

#: A probe stands out beyond so many robust standard deviations.
Z_LIMIT: Final = 3.5

#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SIGMA: Final = 1.4826

#: Smallest standard deviation of ln(rate) that is taken as real; probes that agree to the last digit would
#: make every difference an outlier.
LEAST_SCALE: Final = 0.01

#: Probes that a verdict names.
_NAMED: Final = 10

#: What rounds.sh prints before each of fio's results.
_TURN: Final = re.compile(r"^needle ([1-9][0-9]{0,8}) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """One target or node: median rate of its rounds in MiB/s, its ``share`` of the median of all, robust z."""

    name: str
    rate: float
    share: float
    z: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """All probes, the slowest first, and their ``median`` in MiB/s.

    ``scale`` is the robust standard deviation of ln(rate); ``slow`` and ``fast`` are the outliers, the
    farthest first.
    """

    probes: tuple[Probe, ...]
    median: float
    scale: float
    slow: tuple[Probe, ...]
    fast: tuple[Probe, ...]
    max_deviation: float

    @property
    def slowest(self) -> Probe:
        """The slowest probe, outlier or not."""
        return self.probes[0]

    def describe(self) -> str:
        """The outliers by name, or the slowest where there is none, for the reason of a verdict."""
        parts = [self._say(probe) for probe in self.slow[:_NAMED]]
        if len(self.slow) > _NAMED:
            parts.append(f"and {len(self.slow) - _NAMED} more that are slow")
        if not self.slow:
            parts.append(f"slowest is {self._say(self.slowest)}")
            below = sum(probe.share < 1 - self.max_deviation for probe in self.probes)
            if below:
                parts.append(
                    f"{below} of {len(self.probes)} are below {1 - self.max_deviation:.0%} of the median "
                    f"and none stands out: they differ by {self.scale:.0%} (robust standard deviation)"
                )
        parts += [f"faster than the others: {self._say(probe)}" for probe in self.fast[:_NAMED]]
        if len(self.fast) > _NAMED:
            parts.append(f"and {len(self.fast) - _NAMED} more that are fast")
        return "; ".join(parts)

    def _say(self, probe: Probe) -> str:
        rate, median = format_value(probe.rate), format_value(self.median)
        return (
            f"{probe.name}: {rate} MiB/s, {probe.share:.0%} of the median {median} MiB/s "
            f"(z = {probe.z:.1f})"
        )


def judge_probes(rates: Mapping[str, Sequence[float]], *, max_deviation: float) -> Needle:
    """Which probes stand out. ``rates`` are those of every round, in MiB/s, by probe.

    x is the median of a probe's rounds, m the median of all x, s = 1.4826 x median(abs(ln(x/m))), at least
    0.01, z = ln(x/m) / s. Slow is a probe with z < -3.5 and x < (1 - max_deviation) m, fast one with z > 3.5
    and x > (1 + max_deviation) m. Where half of all probes or more are slow, none stands out; of two
    probes neither can (z is at most 0.7).

    Raises :class:`ToolOutputError` for fewer than two probes, for one with fewer rounds than another, and
    for a rate that is not finite and positive.
    """
    if len(rates) < 2:
        raise ToolOutputError(
            f"needle: {len(rates)} probe(s) ({', '.join(rates) or 'none'}): expected two or more to compare"
        )
    rounds = max(map(len, rates.values()))
    for name, values in rates.items():
        if len(values) != rounds or not rounds:
            raise ToolOutputError(
                f"needle: {name} has {len(values)} round(s), others have {rounds}: expected as many for all"
            )
        for number, value in enumerate(values, 1):
            if not math.isfinite(value) or value <= 0:
                raise ToolOutputError(
                    f"needle: {name}, round {number}: {value!r} MiB/s: a rate is finite and positive"
                )
    medians = {name: statistics.median(values) for name, values in rates.items()}
    median = statistics.median(medians.values())
    logs = {name: math.log(rate / median) for name, rate in medians.items()}
    scale = max(LEAST_SCALE, MAD_TO_SIGMA * statistics.median(map(abs, logs.values())))
    probes = sorted(
        (
            Probe(name=name, rate=rate, share=rate / median, z=logs[name] / scale)
            for name, rate in medians.items()
        ),
        key=lambda probe: (probe.rate, probe.name),
    )
    slow = [p for p in probes if p.z < -Z_LIMIT and p.share < 1 - max_deviation]
    fast = [p for p in reversed(probes) if p.z > Z_LIMIT and p.share > 1 + max_deviation]
    return Needle(
        probes=tuple(probes),
        median=median,
        scale=scale,
        slow=tuple(slow),
        fast=tuple(fast),
        max_deviation=max_deviation,
    )


def medians(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Median of every probe's rounds, to five digits: what a record keeps of each."""
    return {name: float(f"{statistics.median(values):.5g}") for name, values in rates.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sweep:
    """What a sweep was asked to do. ``targets``: names of fio's jobs; none: the probes are ``nodes`` hosts."""

    direction: Literal["read", "write"]
    rounds: int
    max_deviation: float
    targets: tuple[str, ...] = ()
    nodes: int = 1


def parse_sweep(text: str, sweep: Sweep) -> ToolOutput:
    """What rounds.sh printed: for each turn a line ``needle ROUND HOST`` and fio's JSON.

    One phase, named after the direction, with ``slowest`` (unit "1": slowest probe over the median of all)
    and ``median`` (MiB/s); the note of ``slowest`` names the outliers. ``seconds``, bytes and operations are
    those of all probes together; ``parameters["rates"]`` holds the MiB/s of every round by probe, beside the
    options that fio had in all turns.

    Raises :class:`ToolOutputError` where a probe is missing in a round, comes twice or is unknown, and for
    all that :func:`iogauge.tools.fio.output.parse_json` and :func:`judge_probes` refuse.
    """
    turns = list(_TURN.finditer(text))
    if not turns:
        raise ToolOutputError(f"needle: no turn in the output; it begins: {excerpt(text)}")
    ends = [turn.start() for turn in turns[1:]] + [len(text)]
    found: dict[tuple[str, int], Phase] = {}
    outputs = []
    hosts: dict[str, None] = {}
    for turn, end in zip(turns, ends, strict=True):
        number, host = int(turn[1]), turn[2]
        where = f"needle, round {number}" + ("" if sweep.targets else f", {host}")
        try:
            output = parse_json(
                text[turn.end() : end], {target: target for target in sweep.targets}
            )
        except ToolOutputError as error:
            raise ToolOutputError(f"{where}: {error}") from error
        outputs.append(output)
        hosts[host] = None
        for phase in output.phases:
            if not sweep.targets and phase.name != sweep.direction:
                raise ToolOutputError(f"{where}: {phase.name}, expected {sweep.direction}")
            name = phase.name if sweep.targets else host
            if (name, number) in found:
                raise ToolOutputError(f"{where}: {name} was measured twice")
            found[name, number] = phase
    names = sweep.targets or tuple(hosts)
    if not sweep.targets and len(names) != sweep.nodes:
        raise ToolOutputError(
            f"needle: {len(names)} node(s) ({', '.join(names)}): expected {sweep.nodes}"
        )
    expected = [(name, number) for name in names for number in range(1, sweep.rounds + 1)]
    for name, number in [*expected, *found]:
        if (name, number) not in found:
            raise ToolOutputError(f"needle: {name} is missing in round {number} of {sweep.rounds}")
        if name not in names or not 1 <= number <= sweep.rounds:
            raise ToolOutputError(f"needle: {name}, round {number}: nobody asked for it")
    rates = {
        name: tuple(found[name, r].rates["bw"].value for r in range(1, sweep.rounds + 1))
        for name in names
    }
    needle = judge_probes(rates, max_deviation=sweep.max_deviation)
    tasks = [output.tasks for output in outputs[: sweep.nodes]]
    options = {
        name: value
        for name, value in outputs[0].parameters.items()
        if isinstance(value, str) and all(o.parameters.get(name) == value for o in outputs)
    }
    return ToolOutput(
        tool="fio",
        version=", ".join(unique(output.version for output in outputs)),
        phases=(
            Phase(
                name=sweep.direction,
                rates={
                    "slowest": Quantity(needle.slowest.share, "1"),
                    "median": Quantity(needle.median, "MiB/s"),
                },
                seconds=sum(phase.seconds for phase in found.values()),
                bytes_moved=sum(phase.bytes_moved or 0 for phase in found.values()),
                operations=sum(phase.operations or 0 for phase in found.values()),
            ),
        ),
        tasks=None if sweep.targets or None in tasks else sum(task or 0 for task in tasks),
        nodes=len(hosts),
        warnings=unique(warning for output in outputs for warning in output.warnings),
        parameters={**options, "rates": rates},
        notes={"slowest": needle.describe()},
    )
