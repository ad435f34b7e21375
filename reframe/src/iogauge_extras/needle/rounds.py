"""The rounds of a needle's pass: in which order the probes take turns, and which are measured again.

The job asks what to measure next, the judge asks whether that was measured. A probe is a storage
target or a node. Each function is pure, and gives the same answer whoever asks.
"""

from __future__ import annotations

import math
import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

#: Fewest turns of each probe that is measured again.
LEAST_TURNS: Final = 9

#: Number of probes that are measured beside the suspects.
OTHERS: Final = 2

#: Number of suspects that are always measured again, if they are fewer than half of all probes.
_FEW: Final = 3


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
            found += [first, second, tuple(sorted(first, key=lambda name: -places[name]))]
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
    below = sorted((n for n in share if share[n] < 1 - max_deviation), key=lambda n: (share[n], n))
    if not below:
        return Again()
    most = _most_suspects(len(share), rounds)
    healthy = sorted(
        (n for n in share if n not in below), key=lambda n: (abs(math.log(share[n])), n)
    )
    return Again(tuple(below[:most]), tuple(healthy[:OTHERS]))
