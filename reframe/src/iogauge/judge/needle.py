"""Needle: every storage target or every node was measured alone; which of them stand out?

A probe is a target or a node. It is measured in several rounds. In each round all probes take
turns, so that drift touches all alike. The median of its rounds stands for a probe. Robust z-scores
on the logarithm: Iglewicz and Hoaglin, How to Detect and Handle Outliers (ASQC 1993), who give the
limit 3.5.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.core.units import format_value
from iogauge.tools.fio.output import join_options, parse_json
from iogauge.tools.parsing import excerpt, unique

#: A probe stands out beyond this many robust standard deviations.
Z_LIMIT: Final = 3.5

#: Standard deviation of a normal distribution over its median absolute deviation.
MAD_TO_SIGMA: Final = 1.4826

#: Smallest standard deviation of ln(rate) that counts. If probes agreed to the last digit, every
#: difference would be an outlier.
LEAST_SCALE: Final = 0.01

#: Number of probes that a verdict names.
_NAMED: Final = 10

#: The line that rounds.sh prints before each of fio's results.
_TURN: Final = re.compile(r"^needle ([1-9][0-9]{0,8}) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Probe:
    """A target or node: its median rate in MiB/s, its ``share`` of the median of all, robust z."""

    name: str
    rate: float
    share: float
    z: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """All probes, the slowest first, and their ``median`` in MiB/s.

    ``scale`` is the robust standard deviation of ln(rate). ``slow`` and ``fast`` are the outliers,
    the farthest first.
    """

    probes: tuple[Probe, ...]
    median: float
    scale: float
    slow: tuple[Probe, ...]
    fast: tuple[Probe, ...]
    max_deviation: float

    @property
    def slowest(self) -> Probe:
        """Return the slowest probe, outlier or not."""
        return self.probes[0]

    def describe(self) -> str:
        """Return the outliers, or the slowest probe if there are none, for a verdict's reason."""
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


def outliers(rates: Mapping[str, Sequence[float]], *, max_deviation: float) -> Needle:
    """Return the probes and those that stand out. ``rates`` holds the MiB/s of every round by
    probe.

    x is the median of a probe's rounds, m the median of all x. s = 1.4826 x median(abs(ln(x/m))),
    at least 0.01; z = ln(x/m) / s. A probe is slow if z < -3.5 and x < (1 - max_deviation) m. It is
    fast if z > 3.5 and x > (1 + max_deviation) m. If half of all probes or more are slow, none
    stands out. With two probes none can, because z is at most 0.7.

    Raises :class:`ToolOutputError` for fewer than two probes, for a probe with fewer rounds than
    another, and for a rate that is not finite and positive.
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
    rate_of = {name: statistics.median(values) for name, values in rates.items()}
    median = statistics.median(rate_of.values())
    logs = {name: math.log(rate / median) for name, rate in rate_of.items()}
    scale = max(LEAST_SCALE, MAD_TO_SIGMA * statistics.median(map(abs, logs.values())))
    probes = sorted(
        (
            Probe(name=name, rate=rate, share=rate / median, z=logs[name] / scale)
            for name, rate in rate_of.items()
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
    """Return the median of every probe's rounds to five digits, as a record keeps them."""
    return {name: float(f"{statistics.median(values):.5g}") for name, values in rates.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Rounds:
    """The planned rounds. The probes are ``targets``, fio's jobs, or else ``nodes`` hosts."""

    direction: Literal["read", "write"]
    rounds: int
    max_deviation: float
    targets: tuple[str, ...] = ()
    nodes: int = 1


def parse_rounds(text: str, planned: Rounds) -> ToolOutput:
    """Parse the output of rounds.sh: for each turn a line ``needle ROUND HOST`` and fio's JSON.

    The result has one phase, named after the direction. Its rates are ``slowest`` (unit "1":
    slowest probe over the median of all) and ``median`` (MiB/s). The note of ``slowest`` names the
    outliers. Seconds, bytes and operations are sums over all probes. ``parameters["rates"]`` holds
    the MiB/s of every round by probe, beside the options that fio had in all turns, and ``jobs``.

    Raises :class:`ToolOutputError` if a probe is missing in a round, comes twice or is unknown.
    Errors of :func:`iogauge.tools.fio.output.parse_json` and :func:`outliers` pass through.
    """
    measured = _turns(text, planned)
    names = planned.targets or measured.hosts
    _check_complete(measured, names, planned)
    rates = {
        name: tuple(
            measured.phases[name, number].rates["bw"].value
            for number in range(1, planned.rounds + 1)
        )
        for name in names
    }
    needle = outliers(rates, max_deviation=planned.max_deviation)
    return _as_output(measured, planned, rates, needle)


@dataclass(frozen=True, slots=True)
class _Turns:
    """The outputs of all turns, their phases by probe and round, and the hosts in order."""

    outputs: list[ToolOutput]
    phases: dict[tuple[str, int], Phase]
    hosts: tuple[str, ...]


def _turns(text: str, planned: Rounds) -> _Turns:
    """Cut the output into turns and parse each; raises :class:`ToolOutputError`."""
    turns = list(_TURN.finditer(text))
    if not turns:
        raise ToolOutputError(f"needle: no turn in the output; it begins: {excerpt(text)}")
    ends = [turn.start() for turn in turns[1:]] + [len(text)]
    phases: dict[tuple[str, int], Phase] = {}
    outputs = []
    hosts: dict[str, None] = {}
    for turn, end in zip(turns, ends, strict=True):
        number, host = int(turn[1]), turn[2]
        where = f"needle, round {number}" + ("" if planned.targets else f", {host}")
        try:
            output = parse_json(
                text[turn.end() : end], {target: target for target in planned.targets}
            )
        except ToolOutputError as error:
            raise ToolOutputError(f"{where}: {error}") from error
        outputs.append(_of_turn(output, f".{number}.{host}"))
        hosts[host] = None
        for phase in output.phases:
            if not planned.targets and phase.name != planned.direction:
                raise ToolOutputError(f"{where}: {phase.name}, expected {planned.direction}")
            name = phase.name if planned.targets else host
            if (name, number) in phases:
                raise ToolOutputError(f"{where}: {name} was measured twice")
            phases[name, number] = phase
    return _Turns(outputs, phases, tuple(hosts))


def _of_turn(output: ToolOutput, end: str) -> ToolOutput:
    """Return a turn's output with the word of the whole execution, to which rounds.sh adds an end."""
    found: Any = output.parameters["jobs"]
    jobs = {
        name: {k: v.removesuffix(end) if k == "description" else v for k, v in options.items()}
        for name, options in found.items()
    }
    return replace(output, parameters={**output.parameters, "jobs": jobs})


def _check_complete(measured: _Turns, names: Sequence[str], planned: Rounds) -> None:
    """Raise :class:`ToolOutputError` unless exactly the planned probes have all their rounds."""
    if not planned.targets and len(names) != planned.nodes:
        raise ToolOutputError(
            f"needle: {len(names)} node(s) ({', '.join(names)}): expected {planned.nodes}"
        )
    expected = [(name, number) for name in names for number in range(1, planned.rounds + 1)]
    for name, number in [*expected, *measured.phases]:
        if (name, number) not in measured.phases:
            raise ToolOutputError(
                f"needle: {name} is missing in round {number} of {planned.rounds}"
            )
        if name not in names or not 1 <= number <= planned.rounds:
            raise ToolOutputError(f"needle: {name}, round {number}: nobody asked for it")


def _as_output(
    measured: _Turns, planned: Rounds, rates: Mapping[str, Sequence[float]], needle: Needle
) -> ToolOutput:
    """Return all turns as the output of one execution."""
    outputs, phases = measured.outputs, measured.phases.values()
    tasks = [output.tasks for output in outputs[: planned.nodes]]
    options = {
        name: value
        for name, value in outputs[0].parameters.items()
        if isinstance(value, str) and all(o.parameters.get(name) == value for o in outputs)
    }
    turns: list[Any] = [output.parameters["jobs"] for output in outputs]
    names = unique(name for turn in turns for name in turn)
    jobs = {name: join_options([turn.get(name, {}) for turn in turns]) for name in names}
    return ToolOutput(
        tool="fio",
        version=", ".join(unique(output.version for output in outputs)),
        phases=(
            Phase(
                name=planned.direction,
                rates={
                    "slowest": Quantity(needle.slowest.share, "1"),
                    "median": Quantity(needle.median, "MiB/s"),
                },
                seconds=sum(phase.seconds for phase in phases),
                bytes_moved=sum(phase.bytes_moved or 0 for phase in phases),
                operations=sum(phase.operations or 0 for phase in phases),
            ),
        ),
        tasks=None if planned.targets or None in tasks else sum(task or 0 for task in tasks),
        nodes=len(measured.hosts),
        warnings=unique(warning for output in outputs for warning in output.warnings),
        parameters={**options, "jobs": jobs, "rates": rates},
        notes={"slowest": needle.describe()},
        moments=tuple(moment for output in outputs for moment in output.moments),
    )
