"""The turns of a needle's pass: what was measured, and what is next: all probes round by round, then the suspects again.

The job asks what to measure next, the judge asks whether that was measured. A probe is a storage
target or a node. What decides is pure, and gives the same answer whoever asks.

rounds.sh asks, by ``agent.sh PYTHON turns JOBFILE ROUNDS MEASURED [SERVERS]``, and runs
fio once for each line of the answer: ``ROUND PROBE OPTION``. MEASURED is the file of what it has
printed so far. The probes are the jobs of the job file, or else the hosts in SERVERS.
"""

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
from iogauge.core.measurement import Phase, ToolOutput, ToolOutputError
from iogauge.plan.stage import ROUNDS
from iogauge.tools.fio.fio_output import parse_json

#: Fewest turns of each probe that is measured again.
LEAST_TURNS: Final = 9

#: Number of probes that are measured beside the suspects.
OTHERS: Final = 2

#: Number of suspects that are always measured again, if they are fewer than half of all probes, and the most: of more
#: none could be proven in :data:`LEAST_TURNS`.
_FEW: Final = 3
_SUSPECTS: Final = 40

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
    def rate(self) -> float:
        """Return MiB/s."""
        return self.phase.rates["bw"].value


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
    """Return a turn's output with the execution's word in place of the turn's own, to which rounds.sh adds an end."""
    found: Any = output.parameters["jobs"]
    jobs = {}
    for name, options in found.items():
        jobs[name] = dict(options)
        if "description" in options:
            word = options["description"].removesuffix(f".{number}.{probe}")
            jobs[name]["description"] = word
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
        row[turn.probe] = turn.rate
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
    rates = {}
    for name in names:
        rates[name] = tuple(rounds[number][name] for number in numbers)
    return rates


def orders(names: Sequence[str], rounds: int, token: str) -> list[tuple[str, ...]]:
    """Return the order of the probes in each round: a random one and its reverse, in turns.

    So a drift within the rounds does not hit the same probe each time. The same ``token`` draws the same orders.
    """
    source, found = random.Random(token), list[tuple[str, ...]]()
    for number in range(rounds):
        if number % 2:
            found.append(found[-1][::-1])
        else:
            found.append(tuple(source.sample(list(names), len(names))))
    return found


def turns_again(rounds: int) -> int:
    """Return how often each probe is measured again: three times as often as in the rounds."""
    return max(LEAST_TURNS, 3 * rounds)


def _most_suspects(probes: int, rounds: int) -> int:
    """Return how many suspects are measured again at most: for as long as the rounds took, or three of seven probes."""
    room = probes * rounds // turns_again(rounds) - OTHERS
    few = min((probes - 1) // 2, _FEW)
    return max(1, few, min(room, _SUSPECTS))


def shares(rates: Mapping[str, Sequence[float]]) -> dict[str, float]:
    """Return the rate of each probe over the median of all, without the drift that all share.

    ``rates`` holds as many rates of each probe as there are rounds. Each is divided by the median
    of its round. The median of these quotients stands for a probe.
    """
    middle = [_middle(column) for column in zip(*rates.values(), strict=True)]
    found = {}
    for name, row in rates.items():
        quotients = [rate / middle[at] for at, rate in enumerate(row)]
        found[name] = statistics.median(quotients)
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

    A suspect is below 1 - ``max_deviation`` of the median of all; the slowest are measured again. The others are the
    probes nearest to the median.
    """
    share = shares(rates)
    rising = sorted(share, key=lambda name: (share[name], name))
    below = [name for name in rising if share[name] < 1 - max_deviation]
    if not below:
        return Again()
    healthy = sorted(
        rising[len(below) :], key=lambda name: (abs(math.log(share[name])), name)
    )
    most = _most_suspects(len(share), len(rates[rising[0]]))
    return Again(tuple(below[:most]), tuple(healthy[:OTHERS]))


def next_turns(
    job_file: str, rounds: int, measured: str, servers: str = ""
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
    lines = []
    for number, order in enumerate(drawn, first):
        lines += [f"{number} {name} {options[name]}" for name in order]
    return lines


def _probes(job_file: str, servers: str) -> dict[str, str]:
    """Return fio's option for each probe."""
    if not servers:
        names = re.findall(r"^\[(\S+)\]$", untrusted.read_text(job_file), re.MULTILINE)
        return {name: f"--section={name}" for name in names}
    words = (line.split() for line in untrusted.read_text(servers).splitlines())
    return {line[0]: f"--client={line[1]}" for line in words}


def command(words: list[str]) -> int | None:
    """``turns JOBFILE ROUNDS MEASURED [SERVERS]``: print the next lines; return None for other words."""
    match words:
        case [job_file, rounds, measured, *servers]:
            lines = next_turns(job_file, int(rounds), measured, *servers)
            sys.stdout.writelines(f"{line}\n" for line in lines)
            return 0
    return None
