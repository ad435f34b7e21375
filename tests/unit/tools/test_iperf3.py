"""iperf3's streams between nodes: the turns, and what their reports say."""

import json
from pathlib import Path

import pytest

from iogauge.core.measurement import ToolOutputError
from iogauge_extras.ceilings import iperf3

#: iperf 3.12 between three hosts: they send 480, 480 and 240 Mbit/s, n1 receives 320 Mbit/s at most.
SAMPLE = Path(__file__).parents[2] / "data" / "samples" / "iperf3_streams.json"
PLAN = iperf3.StreamPlan(nodes=3, distances=2, seconds=2, connections=2)


def test_turns_are_all_pairs():
    pairs = PLAN.turns(["c", "a", "b"])
    every = {(x, y) for x in "abc" for y in "abc" if x != y}
    assert set(pairs) == every
    assert len(pairs) == len(every)


@pytest.mark.parametrize(
    ("nodes", "turns", "distances"), [(3, 6, 2), (3, 5, 1), (3, 2, 0), (2, 99, 1)]
)
def test_as_many_distances_as_the_time_allows(nodes, turns, distances):
    assert iperf3.distances_within(nodes, turns) == distances


def test_rates_are_those_of_the_receivers():
    output = iperf3.parse(SAMPLE.read_text(), PLAN)
    (phase,) = output.phases
    rates = {name: quantity.value for name, quantity in phase.rates.items()}
    assert rates == {
        "pair_median": pytest.approx(47.16, abs=0.01),
        "pair_slowest": pytest.approx(28.12 / 47.16, abs=0.001),
    }
    assert (output.version, output.nodes) == ("3.12", 3)
    assert output.notes["pair_slowest"] == "6 pairs, slowest is n3 to n2: 28.1 MiB/s"


def report(data):
    return data["turns"][0]["report"]


def _error(data):
    report(data)["error"] = "unable to connect to server"


def _other_rate(data):
    report(data)["end"]["sum_received"]["bits_per_second"] *= 1.02


def _more_received(data):
    report(data)["end"]["sum_sent"]["bytes"] = 1


def _no_turn(data):
    del data["turns"][-1]


def _no_host(data):
    data["hosts"].pop()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (_error, "n1 to n2: iperf3 says: unable to connect"),
        (_other_rate, "differ from"),
        (_more_received, "fewer sent"),
        (_no_turn, "expected 6 turns"),
        (_no_host, "expected 3 hosts"),
    ],
)
def test_what_is_no_report_of_the_plan_is_refused(change, words):
    data = json.loads(SAMPLE.read_text())
    change(data)
    with pytest.raises(ToolOutputError, match=words):
        iperf3.parse(json.dumps(data), PLAN)


def test_what_is_sent_late_or_again_is_counted():
    data = json.loads(SAMPLE.read_text())
    report(data)["end"]["sum_sent"]["retransmits"] = 1607
    first, second, *_ = iperf3.parse(json.dumps(data), PLAN).parameters["wires"]
    assert first.beside == second.beside == 123309940 - 119551780 + 1607 * 8948


@pytest.mark.parametrize(("version", "share"), [("3.12", 1.9), ("3.17.1", 0.95)])
def test_a_core_for_each_connection_since_3_16(version, share):
    data = json.loads(SAMPLE.read_text())
    for turn in data["turns"]:
        turn["report"]["start"]["version"] = f"iperf {version}"
    report(data)["end"]["cpu_utilization_percent"]["remote_total"] = 190.0
    assert iperf3.parse(json.dumps(data), PLAN).parameters["cores"] == pytest.approx(
        share
    )
