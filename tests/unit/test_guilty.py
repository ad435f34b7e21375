"""Who is guilty: the slow node, end or link is named, and nobody else; simulated over 3 to 1,000 nodes."""

import itertools
import random

import pytest

from iogauge_extras.ceilings.guilty import find
from support.depth import FULL


def measured(nodes, rounds, *, slow={}, noise=0.05, disturbed=0.0, seed=1, distances=0):  # noqa: B006
    """Rates of all pairs, or of some distances of the ring; ``slow`` are factors by sender and receiver, ``*`` is any."""
    by_chance = random.Random(seed)
    names = [f"n{number}" for number in range(nodes)]
    steps = range(1, (distances or nodes - 1) + 1)
    found = []
    for _ in range(rounds):
        one = {}
        for (at, a), step in itertools.product(enumerate(names), steps):
            b = names[(at + step) % nodes]
            factors = [slow.get(key, 1.0) for key in ((a, b), (a, "*"), ("*", b))]
            hit = by_chance.uniform(0.2, 0.9) if by_chance.random() < disturbed else 1.0
            one[f"{a} to {b}"] = (
                1000 * min(factors) * hit * by_chance.lognormvariate(0, noise)
            )
        found.append(one)
    return found


def named(rounds):
    return [(one.kind, one.name) for one in find(rounds, 0.2)]


NODE = {("n2", "*"): 0.5, ("*", "n2"): 0.5}


@pytest.mark.parametrize("nodes", [3, 8, 40])
@pytest.mark.parametrize("rounds", [1, 3])
def test_a_slow_node_is_named_and_nobody_else(nodes, rounds):
    for seed in range(6 if FULL else 2):
        found = measured(nodes, rounds, slow=NODE, seed=seed)
        assert named(found) == [("node", "n2")]


def test_two_slow_nodes_and_one_end_of_a_third():
    slow = NODE | {("n5", "*"): 0.3, ("*", "n5"): 0.3, ("n7", "*"): 0.6}
    assert named(measured(12, 2, slow=slow)) == [
        ("node", "n5"),
        ("node", "n2"),
        ("sender", "n7"),
    ]


def test_a_link():
    slow = {("n1", "n2"): 0.4, ("n2", "n1"): 0.4}
    assert named(measured(6, 3, slow=slow)) == [("link", "n1 and n2")]


def test_a_node_45_times_slower_among_pairs_that_differ_by_half():
    """Four nodes, one execution: six pairs at 168 to 170, the others at 842 to 1608."""
    rates = dict.fromkeys(
        (f"{a} to {b}" for a, b in itertools.permutations(("n1", "n2", "n3", "n4"), 2)),
        1190.0,
    )
    rates |= {pair: 169.0 for pair in rates if "n3" in pair}
    rates |= {
        "n1 to n2": 842.0,
        "n4 to n1": 1608.0,
        "n2 to n3": 168.0,
        "n3 to n4": 170.0,
    }
    (guilty,) = find([rates], 0.2)
    said = "n3 is slow: 6 of its 6 pairs at 168.0 to 170.0 MiB/s, the others at 842.0 to 1608"
    assert str(guilty) == said


@pytest.mark.parametrize(
    ("nodes", "runs", "distances"),
    [(3, 300, 0), (4, 300, 0), (8, 80, 0), (100, 6, 3), (1000, 1, 2)],
)
@pytest.mark.parametrize(
    ("noise", "disturbed"), [(0.03, 0.0), (0.15, 0.02), (0.4, 0.0), (0.05, 0.1)]
)
def test_nobody_is_accused_of_noise(nodes, runs, distances, noise, disturbed):
    """Below 1 % of the runs, whether pairs scatter by 3 or by 40 %, or each tenth turn is disturbed."""
    runs = runs if FULL else 1 + runs // 4
    accused = sum(
        bool(
            named(
                measured(
                    nodes,
                    1 + 2 * (seed % 2),
                    noise=noise,
                    disturbed=disturbed,
                    seed=seed,
                    distances=distances,
                )
            )
        )
        for seed in range(runs)
    )
    assert accused <= max(0.01 * runs, 1)
