"""The turns of a needle's pass: what was measured, and what is next: all probes round by round, then the suspects again.

The job asks what to measure next, the judge asks whether that was measured. A probe is a storage
target or a node. What decides is pure, and gives the same answer whoever asks.

rounds.sh asks, by ``agent.sh PYTHON turns JOBFILE ROUNDS MEASURED [SERVERS]``, and runs
fio once for each line of the answer: ``ROUND PROBE OPTION``. MEASURED is the file of what it has
printed so far. The probes are the jobs of the job file, or else the hosts in SERVERS.
"""

from __future__ import annotations

import json
import math
import os
import random
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.plan.stage import ROUNDS
from iogauge.tools.fio.output import parse_json

#: Fewest turns of each probe that is measured again.
LEAST_TURNS: Final = 9

#: Number of probes that are measured beside the suspects.
OTHERS: Final = 2

#: Number of suspects that are always measured again, if they are fewer than half of all probes.
_FEW: Final = 3

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


def by_round(turns: Sequence[Turn]) -> dict[int, dict[str, float]]:
    """Return the rates by probe of each round; raises :class:`ToolOutputError` if a probe was measured twice in one."""
    rounds: dict[int, dict[str, float]] = {}
    for turn in turns:
        row = rounds.setdefault(turn.round, {})
        if turn.probe in row:
            raise ToolOutputError(
                f"needle, round {turn.round}: {turn.probe} was measured twice"
            )
        row[turn.probe] = turn.quantity.value
    return rounds


def rates_of(
    rounds: Mapping[int, Mapping[str, float]], names: Sequence[str], numbers: range
) -> dict[str, tuple[float, ...]]:
    """Return the rates of each probe in some rounds, of which each must have these probes and no others.

    Raises :class:`ToolOutputError`.
    """
    for number in numbers:
        row = rounds.get(number, {})
        for name in [name for name in names if name not in row]:
            raise ToolOutputError(
                f"needle: {name} is missing in round {number}, the last is {numbers[-1]}"
            )
        for name in row.keys() - names:
            raise ToolOutputError(f"needle: {name}, round {number}: it was not planned")
    return {name: tuple(rounds[number][name] for number in numbers) for name in names}


def orders(names: Sequence[str], rounds: int, word: str) -> list[tuple[str, ...]]:
    """Return the order of the probes in each round.

    A drift within the rounds must not hit the same probe each time. So the places of a probe add
    up to the same over all rounds. With an even number of probes and an odd number of rounds they
    differ by 1. Rounds come in pairs: a random order, and its reverse. The last three of an odd number
    are a random order, the same turned by half, and the order that makes up for both. With one
    round nothing can be made up for. The same ``word`` draws the same orders.
    """
    source, found = random.Random(word), list[tuple[str, ...]]()
    while (left := rounds - len(found)) > 0:
        first = tuple(source.sample(list(names), len(names)))
        if left == 3:
            half = (len(first) + 1) // 2
            second = first[half:] + first[:half]
            places = {name: first.index(name) + second.index(name) for name in first}
            found += [
                first,
                second,
                tuple(sorted(first, key=lambda name: -places[name])),
            ]
        else:
            found += [first, first[::-1]][:left]
    return found


def turns_again(rounds: int) -> int:
    """Return how often each probe is measured again: three times as often as in the rounds."""
    return max(LEAST_TURNS, 3 * rounds)


def _most_suspects(probes: int, rounds: int) -> int:
    """Return how many suspects are measured again at most, see :func:`again`."""
    room = probes * rounds // turns_again(rounds) - OTHERS
    return max(1, min((probes - 1) // 2, _FEW), room)


def most_turns(probes: int, rounds: int) -> int:
    """Return the most turns of a pass: all rounds, and those of what is measured again."""
    later = min(probes, _most_suspects(probes, rounds) + OTHERS)
    return probes * rounds + later * turns_again(rounds)


def shares(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the rate of each probe over the median of all, without the drift that all share.

    ``rates`` holds as many rates of each probe as there are rounds. Each is divided by the median
    of its round. The median of these quotients stands for a probe.
    """
    middle = [_middle(column) for column in zip(*rates.values(), strict=True)]
    found = {
        name: statistics.median(
            value / of_round for value, of_round in zip(row, middle, strict=True)
        )
        for name, row in rates.items()
    }
    of_all = _middle(list(found.values()))
    return {name: value / of_all for name, value in found.items()}


def _middle(values: Sequence[float]) -> float:
    """Return the median; of two, the larger: a slow one would be half of what it is compared with."""
    return max(values) if len(values) == 2 else statistics.median(values)


@dataclass(frozen=True, slots=True)
class Again:
    """What is measured again: the suspects, the slowest first, and healthy probes beside them."""

    suspects: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """Return the suspects and the others."""
        return (*self.suspects, *self.others)


def again(rates: Mapping[str, Sequence[float]], max_deviation: float) -> Again:
    """Return what must be measured again after the rounds.

    A suspect is below 1 - ``max_deviation`` of the median of all. The slowest suspects are measured
    again for at most as long as the rounds took: m suspects and two others, each
    :func:`turns_again` times. Three suspects always are, or as many as are fewer than half of all
    probes, but one in any case. The others are the probes nearest to the median.
    """
    share = shares(rates)
    rounds = min(map(len, rates.values()))
    below = sorted(
        (n for n in share if share[n] < 1 - max_deviation), key=lambda n: (share[n], n)
    )
    if not below:
        return Again()
    most = _most_suspects(len(share), rounds)
    healthy = sorted(
        (n for n in share if n not in below), key=lambda n: (abs(math.log(share[n])), n)
    )
    return Again(tuple(below[:most]), tuple(healthy[:OTHERS]))


def next_turns(
    job_file: str, rounds: int, measured: str, servers: str | None
) -> list[str]:
    """Return the lines of the answer: none if no probe is a suspect.

    Raises OSError or ValueError for files that are missing or damaged.
    """
    options = _probes(job_file, servers)
    done = parse_turns(untrusted.read_text(measured))
    names, first = tuple(options), 1
    if done:
        deviation = json.loads(untrusted.read_text(ROUNDS))["max_deviation"]
        rates = rates_of(by_round(done), names, range(1, rounds + 1))
        names = again(rates, float(deviation)).names
        first, rounds = rounds + 1, turns_again(rounds)
    # Another order in each execution: what only a place in the order makes slow must not hit one probe in every sweep.
    drawn = orders(names, rounds, f"{os.environ['IOG_TOKEN']} {first}")
    return [
        f"{number} {name} {options[name]}"
        for number, order in enumerate(drawn, first)
        for name in order
    ]


def _probes(job_file: str, servers: str | None) -> dict[str, str]:
    """Return fio's option for each probe."""
    if servers is None:
        names = re.findall(r"^\[(\S+)\]$", untrusted.read_text(job_file), re.MULTILINE)
        return {name: f"--section={name}" for name in names}
    words = (line.split() for line in untrusted.read_text(servers).splitlines())
    return {line[0]: f"--client={line[1]}" for line in words}


def command(words: list[str]) -> int | None:
    """``turns JOBFILE ROUNDS MEASURED [SERVERS]``: print the next lines; return None for other words."""
    match words:
        case [job_file, rounds, measured, *servers]:
            lines = next_turns(
                job_file, int(rounds), measured, servers[0] if servers else None
            )
            sys.stdout.writelines(f"{line}\n" for line in lines)
            return 0
    return None
