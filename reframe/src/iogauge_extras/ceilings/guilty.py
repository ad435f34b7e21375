"""Who is guilty: the node, the end of a node or the link that makes pairs of nodes slow.

A candidate is accused on three conditions. All its pairs are below the others' level by more than ``max_deviation``.
Chance alone does not put so many slow pairs at one place. Its pairs differ from the others beyond the scatter within
both. The worst candidate is taken out, and the rest looked at again: two slow nodes are named as two.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from iogauge.core.units import format_value
from iogauge_extras.history.quantiles import t_quantile

#: Probability of an accusation in a healthy network, for each of the two tests.
FALSE_ACCUSATIONS: Final = 0.003

#: Smallest standard deviation of ln(rate) that counts.
_LEAST_SCALE: Final = 0.02

#: Candidates of each kind that are looked at: those with the slowest pairs.
_LOOKED_AT: Final = 6

GuiltyKind = Literal["node", "sender", "receiver", "link"]

#: A pair's sender, receiver and ln(rate).
_Turn = tuple[str, str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Guilty:
    """What makes its pairs slow; ``own`` and ``others`` are the least and the largest rate, in MiB/s."""

    kind: GuiltyKind
    name: str
    pairs: int
    own: tuple[float, float]
    others: tuple[float, float]

    def explains(self, pair: str) -> bool:
        """Return whether a pair, ``SENDER to RECEIVER``, is slow because of this."""
        sender, _, receiver = pair.partition(" to ")
        return self.name in _names(self.kind, sender, receiver)

    def __str__(self) -> str:
        """Return a sentence: ``n3 is slow: 6 of its 6 pairs at 168 to 170 MiB/s, the others at 842 to 1608``."""
        verbs = {"sender": "sends slowly", "receiver": "receives slowly"}
        what = f"{self.name} {verbs.get(self.kind, 'is slow')}"
        of = f"{self.pairs} of its {self.pairs} pairs"
        if self.kind == "link":
            what, of = f"the link {what}", "both directions"
        own, others = _range(self.own), _range(self.others)
        return f"{what}: {of} at {own} MiB/s, the others at {others}"


def _names(kind: GuiltyKind, sender: str, receiver: str) -> tuple[str, ...]:
    """Return the names of a kind that a pair belongs to."""
    return {
        "node": (sender, receiver),
        "sender": (sender,),
        "receiver": (receiver,),
        "link": (" and ".join(sorted((sender, receiver))),),
    }[kind]


def _range(both: tuple[float, float]) -> str:
    least, most = map(format_value, both)
    if least == most:
        return least
    return f"{least} to {most}"


def find(rounds: Sequence[Mapping[str, float]], max_deviation: float) -> list[Guilty]:
    """Return what is guilty, the slowest first; ``rounds`` are rates by ``SENDER to RECEIVER``, all positive."""
    turns: list[_Turn] = []
    for rates in rounds:
        for pair, rate in rates.items():
            sender, _, receiver = pair.partition(" to ")
            turns.append((sender, receiver, math.log(rate)))
    nodes = {name for a, b, _ in turns for name in (a, b)}
    found: list[Guilty] = []
    while len(found) < max(1, len(nodes) // 2):
        worst = _worst(turns, math.log(1 - max_deviation))
        if worst is None:
            break
        guilty, turns = worst
        found.append(guilty)
    return found


def _worst(turns: Sequence[_Turn], least: float) -> tuple[Guilty, list[_Turn]] | None:
    """Return the slowest candidate that is beyond doubt, and the turns without it."""
    for kind, candidates in _candidates(turns):
        best: tuple[float, Guilty, list[_Turn]] | None = None
        slowest = sorted(candidates, key=lambda name: _middle(candidates[name]))
        for name in slowest[:_LOOKED_AT]:
            mine = candidates[name]
            ours = set(mine)
            others = [turn for turn in turns if turn not in ours]
            if not _beyond_doubt(mine, others, len(candidates), least):
                continue
            guilty = Guilty(
                kind=kind,
                name=name,
                pairs=len({turn[:2] for turn in mine}),
                own=_ends(mine),
                others=_ends(others),
            )
            gap = _middle(mine) - _middle(others)
            if best is None or gap < best[0]:
                best = (gap, guilty, others)
        if best:  # what a whole node explains is no fault of one of its ends
            return best[1:]
    return None


def _middle(turns: Sequence[_Turn]) -> float:
    return statistics.median(turn[2] for turn in turns)


def _candidates(
    turns: Sequence[_Turn],
) -> Iterator[tuple[GuiltyKind, dict[str, list[_Turn]]]]:
    """Yield the turns of each node, of each end of a node, and of each link."""
    kinds: tuple[GuiltyKind, ...] = ("node", "sender", "receiver", "link")
    for kind in kinds:
        found: dict[str, list[_Turn]] = {}
        for turn in turns:
            for name in _names(kind, *turn[:2]):
                found.setdefault(name, []).append(turn)
        yield kind, found


def _beyond_doubt(
    mine: Sequence[_Turn], others: Sequence[_Turn], tests: int, least: float
) -> bool:
    """Return whether chance does not explain that all turns of a candidate are slow, and by so much."""
    own, rest = [turn[2] for turn in mine], [turn[2] for turn in others]
    if len(rest) < 2:
        return False
    limit = statistics.median(rest) + least
    if max(own) >= limit:
        return False
    slow = sum(value < limit for value in rest)
    if tests * ((slow + 0.5) / (len(rest) + 1)) ** len(own) > FALSE_ACCUSATIONS:
        return False
    squares = 0.0
    for values in (own, rest):
        mean = statistics.fmean(values)
        squares += sum((value - mean) ** 2 for value in values)
    freedom = len(own) + len(rest) - 2
    scale = max(_LEAST_SCALE, math.sqrt(squares / freedom))
    scale *= math.sqrt(1 / len(own) + 1 / len(rest))
    t = (statistics.fmean(own) - statistics.fmean(rest)) / scale
    return t < t_quantile(FALSE_ACCUSATIONS / tests, freedom)


def _ends(turns: Sequence[_Turn]) -> tuple[float, float]:
    values = [math.exp(turn[2]) for turn in turns]
    return min(values), max(values)
