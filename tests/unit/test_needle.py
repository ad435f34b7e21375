"""Needles: the probe that stands out is named, and no other; what is damaged is refused."""

import copy
import json
import math
import signal
import statistics
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.rig import wait_for
from iogauge.core.measurement import ToolOutputError
from iogauge.core.paths import JOB_FILES
from iogauge_extras.needle.slow_probes import Rounds, decide, parse_rounds, turns_needed
from iogauge_extras.needle.turns import again, orders, shares, turns_again
from support.project import ROOT
from support.shell import script

SAMPLE = json.loads((ROOT / "tests" / "data" / "samples" / "fio_file.json").read_text())
ROUNDS_SH = JOB_FILES / "rounds.sh"


def judge(rates, later=None, max_deviation=0.2):
    return decide(rates, later or {}, max_deviation=max_deviation)


def again_as_before(rates):
    """Later turns that show what the rounds showed: 1 % more, and 1 % less."""
    chosen = again(rates, 0.2)
    turns = turns_again(len(next(iter(rates.values()))))
    return {
        name: [
            statistics.median(rates[name]) * (1.01 if k % 2 else 0.99)
            for k in range(turns)
        ]
        for name in chosen.names
    }


def slow(found):
    return [probe.name for probe in found.slow]


# --- the orders --------------------------------------------------------------------------------------


@given(st.integers(1, 40), st.integers(1, 12), st.text(max_size=5))
def test_orders_are_whole_and_the_same_for_the_same_word(n, rounds, word):
    names = [f"p{number}" for number in range(n)]
    found = orders(names, rounds, word)
    assert len(found) == rounds
    assert all(sorted(order) == sorted(names) for order in found)
    assert orders(names, rounds, word) == found


@given(st.integers(2, 40), st.integers(1, 6), st.text(max_size=5))
def test_no_probe_has_the_late_places(n, pairs, word):
    found = orders([f"p{number}" for number in range(n)], 2 * pairs, word)
    places = {sum(order.index(name) for order in found) for name in found[0]}
    assert places == {pairs * (n - 1)}


# --- the suspects ------------------------------------------------------------------------------------


def test_shares_by_hand():
    """Medians of the rounds: 100 and 200. Quotients of b: 0.8 and 1, median 0.9; of all: 1."""
    found = shares({"a": [100, 200], "b": [80, 200], "c": [125, 250]})
    assert found == pytest.approx({"a": 1, "b": 0.9, "c": 1.25})


# --- the decision ------------------------------------------------------------------------------------

EVEN = {f"p{i}": [100.0, 101.0, 99.0] for i in range(5)}
SLOW = EVEN | {"slow": [50.0, 51.0, 49.0]}


@pytest.mark.parametrize("faster, proven", [(1, True), (2, False)])
def test_turns_that_differ_too_much_prove_nothing(faster, proven):
    """The same median, 70 %: proven if it was the slowest in eight of nine turns, left open by seven."""
    row = [70.0] * (9 - faster) + [120.0] * faster
    found = judge(SLOW, {"slow": row, "p0": [100.0] * 9, "p1": [101.0] * 9})
    slowest = found.probes[0]
    assert slowest.share == pytest.approx(0.7, rel=0.01)
    assert (slowest.slowest_in, slowest.needed) == (9 - faster, 8)
    assert slow(found) == (["slow"] if proven else [])
    assert [p.name for p in found.open] == ([] if proven else ["slow"])
    assert (found.unsettled.value == found.slowest.share) is not proven


@pytest.mark.parametrize(
    "turns, others, suspects, needed",
    [(9, 2, 1, 8), (9, 2, 5, 8), (9, 2, 40, 9), (9, 2, 99, 10), (9, 1, 1, 9)],
)
def test_so_many_turns_are_no_chance(turns, others, suspects, needed):
    """Of 9 turns beside two that are alike, 8 and 9 of them by chance: 9.7e-4 and 5.1e-5."""
    assert turns_needed(turns, others, suspects) == needed


def test_most_are_slow_and_the_others_are_fast():
    """The median is that of the many: only the reference of the median tells that they are slow."""
    found = judge({f"p{i}": [100.0 if i < 3 else 50.0] for i in range(10)})
    assert slow(found) == []
    assert found.slowest.share == 1


def test_one_probe_is_compared_with_nothing():
    with pytest.raises(ToolOutputError, match=r"1 probe\(s\) \(a\)"):
        judge({"a": [1.0]})


POSITIVE = st.floats(min_value=1e-3, max_value=1e6)
RATES = st.integers(1, 3).flatmap(
    lambda rounds: st.dictionaries(
        st.text("abcdef", min_size=1),
        st.lists(POSITIVE, min_size=rounds, max_size=rounds),
        min_size=2,
        max_size=30,
    )
)


@given(RATES, st.floats(0.05, 0.95), st.data())
def test_what_holds_of_every_needle(rates, deviation, data):
    chosen = again(rates, deviation)
    turns = turns_again(len(next(iter(rates.values()))))
    row = st.lists(POSITIVE, min_size=turns, max_size=turns)
    later = {name: data.draw(row) for name in chosen.names}
    found = judge(rates, later, deviation)
    assert {probe.name for probe in found.probes} == set(rates)
    assert {p.name for p in found.probes if p.turns} == set(chosen.suspects)
    assert set(slow(found)) <= set(chosen.suspects)
    assert all(probe.share < 1 - deviation for probe in found.slow + found.open)
    assert [p.share for p in found.probes] == sorted(p.share for p in found.probes)
    assert found.slow or found.slowest == found.probes[0]
    assert chosen.suspects or not found.slow + found.open
    assert judge(dict(reversed(rates.items())), later, deviation) == found


# --- how sure it is ----------------------------------------------------------------------------------


#: Creates a second of two real metadata targets by round: healthy, and with a throttled disk below the second.
TWO_MDTS = {
    "healthy": {"mdt0000": [104.51, 106.86], "mdt0001": [90.833, 131.64]},
    "slowed": {"mdt0000": [125.14, 91.906], "mdt0001": [85.09, 80.265]},
}


@pytest.mark.parametrize("state, suspects", [("healthy", ()), ("slowed", ("mdt0001",))])
def test_of_two_the_slow_one_is_no_measure(state, suspects):
    """At 78 % of the other, it was at 87 % of the median of both."""
    assert again(TWO_MDTS[state], 0.2).suspects == suspects


#: MiB/s of four real targets, one turn each; the client's connection to the third was throttled.
THROTTLED = {"ost0": [84.2], "ost1": [77.7], "ost2": [1.7], "ost3": [64.0]}


def test_a_real_throttled_target_is_named():
    found = judge(THROTTLED, again_as_before(THROTTLED))
    assert slow(found) == ["ost2"]
    assert found.slowest.share == pytest.approx(1.7 / math.sqrt(77.7 * 64), rel=0.02)


# --- what rounds.sh prints ---------------------------------------------------------------------------


def entry(name, mib_s, way="write", **more):
    """A recorded entry of fio's with another name and rate: a second of 1 MiB blocks."""
    job = copy.deepcopy(SAMPLE["jobs"][0]) | {"jobname": name} | more
    idle, busy = copy.deepcopy(job["trim"]), copy.deepcopy(job["read"])
    blocks = 1000
    for latency in ("slat_ns", "clat_ns", "lat_ns"):
        busy[latency] |= {
            "N": blocks,
            "min": 1,
            "max": 10**9,
            "mean": 1e6,
            "stddev": 1.0,
        }
    busy |= {
        "io_bytes": blocks << 20,
        "total_ios": blocks,
        "short_ios": 0,
        "runtime": round(blocks / mib_s * 1000),
        "bw_bytes": round(mib_s * 2**20),
        "bw": round(mib_s * 1024),
        "iops": mib_s,
        "lat_ns": {"N": blocks, "mean": 1e9 / mib_s},
    }
    return job | {"read": idle, "write": idle, way: busy}


def document(*entries, key="jobs"):
    rest = {k: v for k, v in SAMPLE.items() if k not in ("jobs", "client_stats")}
    return json.dumps(
        {"fio version": SAMPLE["fio version"], **rest, key: list(entries)}, indent=1
    )


def targets(rounds):
    return "".join(
        f"needle {number} {name}\n{document(entry(name, rate))}\n"
        for number, turns in enumerate(rounds, 1)
        for name, rate in turns
    )


NAMES = ("ost0000", "ost0001", "ost000a")
ONCE = [("ost0000", 100.0), ("ost0001", 90.0), ("ost000a", 110.0)]
LOW = [("ost000a", 110.0), ("ost0001", 20.0), ("ost0000", 100.0)]
TWICE = [LOW, [(n, x * 2) for n, x in LOW]]
ROUNDS = Rounds(direction="write", rounds=2, max_deviation=0.2, targets=NAMES)


@pytest.mark.parametrize(
    "text, cause",
    [
        ("", "no turn in the output"),
        (targets([ONCE]), "ost0000 is missing in round 2"),
        (targets([ONCE, ONCE, ONCE]), "ost0000, round 3: it was not planned"),
        (targets([ONCE, [*ONCE, ONCE[0]]]), "round 2: ost0000 was measured twice"),
        (targets([ONCE, ONCE])[:-200], "round 2, ost000a: fio JSON is cut"),
        (
            targets([ONCE, ONCE]).replace("needle 2 ost0001\n", ""),
            "2 fio JSON documents",
        ),
        (targets(TWICE), "needle: ost0001 is missing in round 3"),
        (targets(TWICE + [LOW] * 8), "is missing in round 11"),
        (targets(TWICE + [LOW] * 10), "round 12: it was not planned"),
    ],
)
def test_a_pass_that_is_not_whole(text, cause):
    with pytest.raises(ToolOutputError, match=cause):
        parse_rounds(text, ROUNDS)


# --- rounds.sh ------------------------------------------------------------------------------------------

AGENT = ["--", "/bin/sh", str(JOB_FILES / "agent.sh"), sys.executable]
JOB = "[ost0]\nrw=write\n\n[ost1]\nrw=write\n\n[ost2]\nrw=write\n"
SERVERS = "n1 10.0.0.1,7 11\nn2 10.0.0.2,8 12\nn3 10.0.0.3,7 13\n"


def run_rounds(base, fio, *words):
    """rounds.sh with a program in the place of fio."""
    script(base / "fio", f"#!/bin/sh\n{fio}\n")
    (base / "w.fio").write_text(JOB)
    (base / "rounds.json").write_text('{"max_deviation": 0.2}')
    return subprocess.Popen(
        ["sh", str(ROUNDS_SH), "w.fio", *words, *AGENT],
        cwd=base,
        env={"PATH": f"{base}:/usr/bin:/bin", "IOG_TOKEN": "t"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def answer(base, name, rate):
    key = "client_stats" if name.startswith("n") else "jobs"
    more = {"hostname": name, "port": 1} if name.startswith("n") else {}
    (base / f"{name}.json").write_text(
        document(entry(name, rate, **more), key=key) + "\n"
    )


def turns_of(printed):
    words = (
        line.split() for line in printed.splitlines() if line.startswith("needle ")
    )
    return [(int(number), name) for _, number, name in words]


#: Notes its words and its token, and answers for its probe. A program that reads its standard input would swallow
#: the list of turns.
FIO = """echo "$IOG_TOKEN $*" >>words
cat >/dev/null
case $2 in
    --section=*) cat "${2#*=}.json" ;;
    --client=10.0.0.*,?) n=${2#*.*.*.} && cat "n${n%,*}.json" ;;
esac"""


@pytest.mark.parametrize("servers", [False, True])
def test_alike_probes_are_measured_in_their_orders(tmp_path, servers):
    names = ["n1", "n2", "n3"] if servers else ["ost0", "ost1", "ost2"]
    (tmp_path / "servers.txt").write_text(SERVERS)
    for name in names:
        answer(tmp_path, name, 100.0)
    printed, said = run_rounds(
        tmp_path, FIO, "3", *(["servers.txt"] if servers else [])
    ).communicate(timeout=600)
    assert said == ""
    wanted = [
        (k, n) for k, order in enumerate(orders(names, 3, "t 1"), 1) for n in order
    ]
    assert turns_of(printed) == wanted
    option = {name: f"--section={name}" for name in names}
    if servers:
        option = {
            "n1": "--client=10.0.0.1,7",
            "n2": "--client=10.0.0.2,8",
            "n3": "--client=10.0.0.3,7",
        }
    assert (tmp_path / "words").read_text().splitlines() == [
        f"t.{number}.{name} --output-format=json {option[name]} w.fio"
        for number, name in wanted
    ]


def test_a_suspect_is_measured_again_beside_two_others(tmp_path):
    for name, rate in (("ost0", 100.0), ("ost1", 20.0), ("ost2", 101.0)):
        answer(tmp_path, name, rate)
    process = run_rounds(tmp_path, FIO, "2")
    printed, said = process.communicate(timeout=600)
    assert (process.returncode, said) == (0, "")
    order = orders(("ost1", "ost0", "ost2"), 9, "t 3")
    assert turns_of(printed)[6:] == [
        (k, n) for k, names in enumerate(order, 3) for n in names
    ]
    asked = Rounds(
        direction="write", rounds=2, max_deviation=0.2, targets=("ost0", "ost1", "ost2")
    )
    assert (
        parse_rounds(printed, asked)
        .notes["slowest"]
        .startswith("ost1: 20.00 MiB/s, 20% of")
    )


def test_the_first_failure_ends_it(tmp_path):
    for name in ("ost0", "ost1", "ost2"):
        answer(tmp_path, name, 100.0)
    process = run_rounds(tmp_path, f"case $2 in *ost1) exit 7 ;; esac\n{FIO}", "2")
    process.communicate(timeout=600)
    assert process.returncode == 7
    begun = turns_of((tmp_path / "w.fio.turns").read_text())
    assert begun[-1] == (1, "ost1")


def test_a_signal_ends_fio_first(tmp_path):
    fio = "trap 'echo >ended; exit 0' TERM\necho >began\nwhile :; do sleep 0.05; done"
    process = run_rounds(tmp_path, fio, "9")
    wait_for((tmp_path / "began").exists, 20, "fio")
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=600)
    assert process.returncode == 143
    assert (tmp_path / "ended").exists()
