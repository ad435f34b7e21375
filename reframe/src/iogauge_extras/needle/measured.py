"""Many runs of fio, one after the other, as rounds.sh prints them: the probes of a needle in turn."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.fio.output import parse_json

#: The number of a needle's round, which rounds.sh gives to fio.
ROUND: Final = "${IOG_ROUND}"
#: The line that rounds.sh prints before each of fio's results.
_TURN: Final = re.compile(r"^needle ([1-9][0-9]{0,8}) (\S+)$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Turn:
    """One run of fio: the round, the probe that was measured alone, and fio's report."""

    round: int
    probe: str
    output: ToolOutput

    @property
    def phase(self) -> Phase:
        """Return the phase in which the probe was measured."""
        return self.output.phases[0]

    @property
    def quantity(self) -> Quantity:
        """Return MiB/s, or operations per second of a metadata engine."""
        rates = self.phase.rates
        return rates["bw"] if "bw" in rates else rates["rate"]

    @property
    def rate(self) -> float:
        """Return the number of :attr:`quantity`."""
        return self.quantity.value


def parse_turns(text: str) -> list[Turn]:
    """Return the turns in the order in which they were measured.

    Each turn is a line ``needle ROUND PROBE`` and the output of fio. Raises
    :class:`ToolOutputError`, also for a turn with reads and writes. Text before the first turn is
    no error here.
    """
    found = list(_TURN.finditer(text))
    starts = [turn.start() for turn in found]
    turns = []
    for turn, end in zip(found, [*starts[1:], len(text)], strict=False):
        number, probe = int(turn[1]), turn[2]
        where = f"needle, round {number}, {probe}"
        try:
            output = parse_json(text[turn.end() : end])
        except ToolOutputError as error:
            raise ToolOutputError(f"{where}: {error}") from error
        if len(output.phases) != 1:
            names = " and ".join(phase.name for phase in output.phases)
            raise ToolOutputError(f"{where}: {names}, expected one of them")
        turns.append(Turn(number, probe, _of_whole(output, number, probe)))
    return turns


def _of_whole(output: ToolOutput, number: int, probe: str) -> ToolOutput:
    """Return a turn's output with the words of the whole execution in place of the turn's own.

    rounds.sh adds an end to the execution's word, and gives the number for the names of files.
    """
    found: Any = output.parameters["jobs"]

    def whole(key: str, value: str) -> str:
        if key == "description":
            return value.removesuffix(f".{number}.{probe}")
        if key == "filename_format" and value.startswith(f"{number}."):
            return ROUND + value.removeprefix(str(number))
        return value

    jobs = {
        name: {key: whole(key, value) for key, value in options.items()}
        for name, options in found.items()
    }
    return replace(output, parameters={**output.parameters, "jobs": jobs})


def rates_of(turns: Sequence[Turn], first: int, last: int) -> dict[str, tuple[float, ...]]:
    """Return the rates of each probe in the rounds from ``first`` to ``last``, round by round.

    Raises :class:`ToolOutputError` if a probe of these rounds is missing in one of them, or was
    measured twice.
    """
    table: dict[str, dict[int, float]] = {}
    for turn in turns:
        if first <= turn.round <= last:
            row = table.setdefault(turn.probe, {})
            if turn.round in row:
                raise ToolOutputError(
                    f"needle, round {turn.round}: {turn.probe} was measured twice"
                )
            row[turn.round] = turn.rate
    for name, row in table.items():
        for number in range(first, last + 1):
            if number not in row:
                raise ToolOutputError(
                    f"needle: {name} is missing in round {number}, the last is {last}"
                )
    return {name: tuple(row[n] for n in range(first, last + 1)) for name, row in table.items()}


def in_order(turns: Sequence[Turn]) -> list[dict[str, float]]:
    """Return each round as the rates by probe, five digits, in the order of measuring."""
    rounds: dict[int, dict[str, float]] = {}
    for turn in turns:
        rounds.setdefault(turn.round, {})[turn.probe] = float(f"{turn.rate:.5g}")
    return [rounds[number] for number in sorted(rounds)]
