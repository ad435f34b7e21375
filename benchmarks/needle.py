#!/usr/bin/env python3
"""How often a needle cries wolf, and what it finds: simulated passes, decided by the suite's own code.

    benchmarks/needle.py [--passes N] [--seed TEXT]

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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

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
#: The noises of the table of what is found.
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
    many: int = 1,
) -> Iterator[Needle]:
    """Yield passes without end; ``many`` probes from ``p000`` on have the share ``slow`` of their rate."""
    source = random.Random(seed)
    for number in range(1 << 30):
        shares = (
            {}
            if slow is None
            else dict.fromkeys((f"p{k:03}" for k in range(many)), slow)
        )
        storage = Storage(probes, noise, source, shares)
        yield one_pass(storage, ("write.fio", "read.fio")[number % 2], rounds)


def _percent(share: float) -> str:
    return "0" if share == 0 else f"{share:.2%}" if share < 0.01 else f"{share:.0%}"


def least(share: float, count: int) -> float:
    """The share of so many tries that chance alone falls below once in a thousand times, if the true one is ``share``."""
    return share - 3.1 * math.sqrt(share * (1 - share) / count)


class Tables:
    """The tables, and what of the promise does not hold."""

    def __init__(self, count: int, seed: str) -> None:
        self.count, self.seed = count, seed
        self.broken: list[str] = []

    def number(self, probes: int) -> int:
        """Passes over so many probes: fewer over many."""
        if probes <= 16:
            return self.count
        return max(1, self.count * 4 // math.isqrt(4 * probes))

    def healthy(self, name: str, probes: int) -> str:
        """Shares of healthy cases that name one, and that decide nothing."""
        endless = passes(probes, NOISES[name], f"{self.seed} {name} {probes}")
        found = [outcome(n) for n in itertools.islice(endless, 2 * self.number(probes))]
        cases = list(zip(found[::2], found[1::2], strict=True))
        failed = sum("FAIL" in case for case in cases) / len(cases)
        undecided = sum("FAIL" not in s and "UNSTABLE" in s for s in cases) / len(cases)
        if name not in UNSURE and 1 - failed < least(1 - FALSE, len(cases)):
            self.broken.append(
                f"{name}: {failed:.1%} of healthy cases with {probes} probes are named"
            )
        return f"{_percent(failed)} / {_percent(undecided)}"

    def with_slow(self, name: str, slow: float, probes: int) -> str:
        """Shares of passes that name the slow probe, and that decide nothing."""
        seed = f"{self.seed} {name} {probes} {slow}"
        endless = passes(probes, NOISES[name], seed, slow)
        found = list(itertools.islice(endless, max(1, self.number(probes) // 2)))
        named = sum("p000" in [p.name for p in n.slow] for n in found) / len(found)
        undecided = sum(outcome(n) == "UNSTABLE" for n in found) / len(found)
        sure = slow == 0.01 or (slow == 0.5 and name in FOUND_IN[:3])
        if sure and named < least(FOUND, len(found)):
            self.broken.append(f"{name}: {named:.0%} of probes at {slow:.0%} are named")
        return f"{_percent(named)} / {_percent(undecided)}"

    def servers(self, name: str, slow: float | None, many: int, probes: int) -> str:
        """Share of passes that name a server of four targets, of which ``many`` of the first one are slow."""
        total = self.count // 20
        endless = passes(probes, NOISES[name], f"{name} {probes}", slow, many=many)
        servers = {f"p{k:03}": f"s{k // 4}" for k in range(probes)}
        named = sum(
            bool(n.slow_servers(servers)) for n in itertools.islice(endless, total)
        )
        if many < 4 and 1 - named / total < least(1 - FALSE, total):
            self.broken.append(
                f"{name}: a healthy server is named in {named} of {total} passes"
            )
        return _percent(named / total)


def show(
    title: str, sizes: Sequence[int], rows: Mapping[str, Callable[[int], str]]
) -> None:
    """Print a table with a column for each number of probes."""
    print(
        f"\n{title}\n\n| noise | {' | '.join(map(str, sizes))} |\n|---|{'---|' * len(sizes)}"
    )
    for name, cell in rows.items():
        print(f"| {name} | {' | '.join(map(cell, sizes))} |", flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "--passes", type=int, default=2000, help="up to 16 probes; fewer for more"
    )
    parser.add_argument("--seed", default="needle")
    given = parser.parse_args()
    tables = Tables(given.passes, given.seed)
    healthy = {name: partial(tables.healthy, name) for name in NOISES}
    show(
        "Healthy probes: a case (two passes) names one / decides nothing",
        SIZES,
        healthy,
    )
    slow = {
        f"{name}, {share:.0%}": partial(tables.with_slow, name, share)
        for name, share in itertools.product(FOUND_IN, (0.7, 0.5, 0.01))
    }
    show("One slow probe: a pass names it / decides nothing", SIZES, slow)
    servers = {
        f"{name}, {many} slow": partial(tables.servers, name, share, many)
        for name, (share, many) in itertools.product(
            FOUND_IN, ((None, 0), (0.5, 1), (0.5, 4))
        )
    }
    title = "Servers of four targets: of healthy ones, with a slow target, with a slow server"
    show(title, (8, 16, 64, 400, 1000), servers)
    for line in tables.broken:
        print(f"needle: {line}")
    return bool(tables.broken)


if __name__ == "__main__":
    sys.exit(main())
