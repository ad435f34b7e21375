#!/usr/bin/env python3
"""How often a needle cries wolf, and what it finds: simulated passes, decided by the suite's own code.

    benchmarks/needle.py [--passes N]

Prints how sure a needle is, and ends with 1 if it names more than one healthy case in a hundred (turns that differ by
half prove nothing), or misses a probe at a hundredth of its rate, or at half of it beside turns that differ by 15 % or
less. A case is two passes, write and read, each with its rounds in
their orders and with the turns afterwards. Noises are those that storage was seen to have: see
NOISES. Every rate is a function of its place in time, so that drift and neighbours hit what they
would hit in a job.
"""

from __future__ import annotations

import argparse
import itertools
import math
import random
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from iogauge_extras.needle.slow_probes import Needle, decide
from iogauge_extras.needle.turns import again, orders, turns_again

#: The share below which a probe is slow: limits.max_deviation of most sites.
MAX_DEVIATION = 0.2
ROUNDS = 3
SIZES = (3, 4, 8, 16, 64, 400)


@dataclass(frozen=True)
class Noise:
    """Standard deviations of ln(rate), and shares of disturbed turns.

    ``own`` is of each turn, ``shared`` of each round, ``place`` the drift from the first to the
    last turn of a round, ``wander`` of a slow change that follows the turns in time (autocorrelated,
    0.9 from one to the next). ``outliers`` is the probability of a turn at a third of its rate;
    ``tails`` draws from Student's t with 3 degrees of freedom. ``disturbed`` halves a third of the
    turns of one round, one after the other. ``apart`` is what healthy probes differ by for good.
    """

    own: float
    shared: float = 0.0
    place: float = 0.0
    wander: float = 0.0
    outliers: float = 0.0
    tails: bool = False
    disturbed: bool = False
    apart: float = 0.0


def sigma(cv: float) -> float:
    """Return the standard deviation of ln(rate) of a coefficient of variation."""
    return math.sqrt(math.log(1 + cv**2))


NOISES: Mapping[str, Noise] = {
    "turns 2 %": Noise(sigma(0.02)),
    "turns 5 %": Noise(sigma(0.05)),
    "turns 8 %": Noise(sigma(0.08)),
    "turns 15 %": Noise(sigma(0.15)),
    "turns 30 %": Noise(sigma(0.30)),
    "turns 48 %": Noise(sigma(0.48)),
    "15 %, shared drift 35 %": Noise(sigma(0.15), shared=0.35),
    "8 %, drift in a round 15 %": Noise(sigma(0.08), place=0.15),
    "8 %, autocorrelated 20 %": Noise(sigma(0.08), wander=0.2),
    "8 %, one turn in 20 at a third": Noise(sigma(0.08), outliers=0.05),
    "15 %, heavy tails": Noise(sigma(0.15), tails=True),
    "8 %, a third of one round halved": Noise(sigma(0.08), disturbed=True),
    "8 %, probes differ by 5 %": Noise(sigma(0.08), apart=0.05),
    "all of it": Noise(
        sigma(0.15),
        shared=0.35,
        place=0.15,
        wander=0.1,
        outliers=0.05,
        tails=True,
        disturbed=True,
    ),
}

#: The share of healthy cases that may be named, and that of slow probes that must be.
FALSE, FOUND = 0.01, 0.95
UNSURE = ("turns 48 %",)
#: The noises in which slow probes are looked for.
FOUND_IN = (
    "turns 5 %",
    "turns 8 %",
    "turns 15 %",
    "turns 30 %",
    "turns 48 %",
    "all of it",
)


class Storage:
    """Probes whose rates follow a noise; ``slow`` are shares of the rates of some."""

    def __init__(
        self,
        probes: int,
        noise: Noise,
        source: random.Random,
        slow: Mapping[str, float],
    ) -> None:
        self.noise, self.source = noise, source
        self.names = [f"p{number:03}" for number in range(probes)]
        self.log = {
            name: source.gauss(0, noise.apart) + math.log(slow.get(name, 1))
            for name in self.names
        }
        self.wander = source.gauss(0, noise.wander)

    def _turn(self, name: str) -> float:
        noise, source = self.noise, self.source
        self.wander = 0.9 * self.wander + math.sqrt(1 - 0.81) * source.gauss(
            0, noise.wander
        )
        own = source.gauss(0, noise.own)
        if noise.tails:
            own /= math.sqrt(sum(source.gauss(0, 1) ** 2 for _ in range(3)))
        if source.random() < noise.outliers:
            own -= math.log(3)
        return self.log[name] + self.wander + own

    def measured(
        self, rounds: Sequence[Sequence[str]], disturbed: bool
    ) -> dict[str, list[float]]:
        """Return the rates of probes that are measured in these orders."""
        rates: dict[str, list[float]] = {name: [] for name in rounds[0]}
        hit = self.source.randrange(len(rounds)) if disturbed else -1
        for number, order in enumerate(rounds):
            shared, start = (
                self.source.gauss(0, self.noise.shared),
                self.source.randrange(len(order)),
            )
            for place, name in enumerate(order):
                turn = (
                    shared
                    + self.noise.place * (place / len(order) - 0.5)
                    + self._turn(name)
                )
                if number == hit and (place - start) % len(order) < math.ceil(
                    len(order) / 3
                ):
                    turn -= math.log(2)
                rates[name].append(100 * math.exp(turn))
        return rates


def one_pass(storage: Storage, word: str, rounds: int = ROUNDS) -> Needle:
    """Return what one pass over the storage finds, as a job and its judge would."""
    rates = storage.measured(
        orders(storage.names, rounds, word), storage.noise.disturbed
    )
    rates = {name: rates[name] for name in storage.names}
    chosen, later = again(rates, MAX_DEVIATION), {}
    if chosen.suspects:
        later = storage.measured(
            orders(chosen.names, turns_again(rounds), f"{word} again"), False
        )
    return decide(rates, later, max_deviation=MAX_DEVIATION)


def outcome(needle: Needle) -> str:
    """Return what the verdict on ``*_slowest`` would be."""
    return "FAIL" if needle.slow else "UNSTABLE" if needle.open else "PASS"


def passes(
    probes: int,
    noise: Noise,
    seed: str,
    slow: float | None = None,
    rounds: int = ROUNDS,
) -> Iterator[Needle]:
    """Yield passes without end; ``p000`` has the share ``slow`` of its rate."""
    source = random.Random(seed)
    for number in range(1 << 30):
        shares = {} if slow is None else {"p000": slow}
        storage = Storage(probes, noise, source, shares)
        yield one_pass(storage, ("write.fio", "read.fio")[number % 2], rounds)


def least(share: float, count: int) -> float:
    """The share of so many tries that chance alone falls below once in a thousand times, if the true one is ``share``."""
    return share - 3.1 * math.sqrt(share * (1 - share) / count)


def healthy(name: str, probes: int, count: int) -> tuple[str, bool]:
    """A line about healthy cases of two passes, and whether few enough name a probe."""
    endless = passes(probes, NOISES[name], f"{name} {probes}")
    found = [outcome(needle) for needle in itertools.islice(endless, 2 * count)]
    cases = list(zip(found[::2], found[1::2], strict=True))
    failed = sum("FAIL" in case for case in cases) / count
    undecided = sum("FAIL" not in s and "UNSTABLE" in s for s in cases) / count
    text = f"{name}, {probes} healthy probes: {failed:.2%} of cases name one, {undecided:.0%} decide nothing"
    return text, name in UNSURE or 1 - failed >= least(1 - FALSE, count)


def with_slow(name: str, slow: float, probes: int, count: int) -> tuple[str, bool]:
    """A line about passes over a slow probe, and whether enough name it."""
    endless = passes(probes, NOISES[name], f"{name} {probes} {slow}", slow)
    found = list(itertools.islice(endless, count))
    named = sum("p000" in [p.name for p in n.slow] for n in found) / count
    undecided = sum(outcome(n) == "UNSTABLE" for n in found) / count
    sure = slow == 0.01 or (slow == 0.5 and name in FOUND_IN[:3])
    text = f"{name}, one of {probes} probes at {slow:.0%}: {named:.0%} of passes name it, {undecided:.0%} decide nothing"
    return text, not sure or named >= least(FOUND, count)


def lines(count: int) -> Iterator[tuple[str, bool]]:
    """A line for each noise, number of probes and slowness, and whether the promise holds there; fewer passes over many probes."""
    for probes in SIZES:
        few = count if probes <= 16 else max(2, count * 4 // math.isqrt(4 * probes))
        for name in NOISES:
            yield healthy(name, probes, few)
        for name, slow in itertools.product(FOUND_IN, (0.7, 0.5, 0.01)):
            yield with_slow(name, slow, probes, few // 2)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--passes", type=int, default=2000, help="up to 16 probes; fewer for more"
    )
    broken = False
    for text, holds in lines(parser.parse_args().passes):
        print(text if holds else f"{text}: BROKEN", flush=True)
        broken |= not holds
    return broken


if __name__ == "__main__":
    sys.exit(main())
