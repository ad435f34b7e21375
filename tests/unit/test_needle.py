"""Needles: the probe that stands out is named, and no other; what is damaged is refused."""

import copy
import itertools
import json
import math
import re
import signal
import statistics
import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from e2e.rig import wait_for
from iogauge.core.measurement import ToolOutputError
from iogauge.core.paths import JOB_FILES
from iogauge_extras.needle.slow_probes import Rounds, decide, parse_rounds
from iogauge_extras.needle.turns import again, most_turns, orders, shares, turns_again
from support import programs
from support.shell import script

ROOT = Path(__file__).parents[2]
SAMPLE = json.loads((ROOT / "tests" / "data" / "samples" / "fio_file.json").read_text())
ROUNDS_SH = JOB_FILES / "rounds.sh"


def judge(rates, later=None, max_deviation=0.2):
    return decide(rates, later or {}, max_deviation=max_deviation)


def again_as_before(rates, max_deviation=0.2):
    """Later turns that show what the rounds showed: 1 % more, and 1 % less."""
    chosen = again(rates, max_deviation)
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


@given(st.integers(2, 40), st.integers(2, 12), st.text(max_size=5))
def test_no_probe_has_the_late_places(n, rounds, word):
    found = orders([f"p{number}" for number in range(n)], rounds, word)
    places = [sum(order.index(name) for order in found) for name in found[0]]
    assert max(places) - min(places) <= (1 if rounds % 2 and n % 2 == 0 else 0)


# --- the suspects ------------------------------------------------------------------------------------


def test_shares_by_hand():
    """Medians of the rounds: 100 and 200. Quotients of b: 0.8 and 1, median 0.9; of all: 1."""
    found = shares({"a": [100, 200], "b": [80, 200], "c": [125, 250]})
    assert found == pytest.approx({"a": 1, "b": 0.9, "c": 1.25})


@given(st.lists(st.floats(0.1, 10), min_size=3, max_size=3))
def test_drift_that_all_share_is_no_difference(drift):
    rates = {
        "a": [90, 95, 99],
        "b": [100, 102, 98],
        "c": [110, 101, 107],
        "d": [60, 70, 65],
    }
    drifted = {
        n: [x * y for x, y in zip(row, drift, strict=True)] for n, row in rates.items()
    }
    assert shares(drifted) == pytest.approx(shares(rates))


@given(st.integers(2, 60), st.integers(1, 12), st.floats(0, 1))
def test_no_pass_has_more_turns(probes, rounds, share):
    low = int(share * probes)
    rates = {
        f"p{i:02}": [10.0 + i if i < low else 100.0] * rounds for i in range(probes)
    }
    turns = probes * rounds + len(again(rates, 0.2).names) * turns_again(rounds)
    assert turns <= most_turns(probes, rounds)


# --- the decision ------------------------------------------------------------------------------------

EVEN = {f"p{i}": [100.0, 101.0, 99.0] for i in range(5)}
SLOW = EVEN | {"slow": [50.0, 51.0, 49.0]}


@pytest.mark.parametrize("spread", [1.0, 3.0])
def test_turns_that_differ_too_much_prove_nothing(spread):
    """The same median, 70 %: proven by turns that agree, left open by turns that do not."""
    factors = [0.5, 0.55, 0.6, 0.69, 0.7, 0.71, 1.2, 1.5, 1.6]
    row = [70 * (x / 0.7) ** (spread / 3) for x in factors]
    found = judge(SLOW, {"slow": row, "p0": [100.0] * 9, "p1": [100.0] * 9})
    assert found.probes[0].share == pytest.approx(0.7)
    assert slow(found) == (["slow"] if spread == 1 else [])
    assert [p.name for p in found.open] == ([] if spread == 1 else ["slow"])
    assert (found.unsettled.value == found.slowest.share) is (spread == 3)


def test_most_are_slow_and_the_others_are_fast():
    """The median is that of the many: only the reference of the median tells that they are slow."""
    found = judge({f"p{i}": [100.0 if i < 3 else 50.0] for i in range(10)})
    assert slow(found) == []
    assert len(found.fast) == 3
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
    assert {p.name for p in found.probes if p.t is not None} == set(chosen.suspects)
    assert set(slow(found)) <= set(chosen.suspects)
    assert all(probe.share < 1 - deviation for probe in found.slow + found.open)
    assert [p.share for p in found.probes] == sorted(p.share for p in found.probes)
    assert found.slow or found.slowest == found.probes[0]
    assert chosen.suspects or not found.slow + found.open + found.cleared
    assert judge(dict(reversed(rates.items())), later, deviation) == found


# --- how sure it is ----------------------------------------------------------------------------------

#: MiB/s of four real, healthy targets by round, in a fixed order: the drift within a round hit the
#: same target each time, and cannot be taken out of these.
RECORDED = {
    "10:37": {
        "write": [[86, 105, 114], [66, 88, 173], [97, 107, 242], [80, 74, 228]],
        "read": [[389, 333, 258], [336, 324, 149], [403, 324, 156], [352, 217, 223]],
    },
    "10:58": {
        "write": [[128, 136, 260], [145, 132, 256], [123, 189, 293], [112, 264, 279]],
        "read": [[515, 471, 271], [488, 462, 298], [486, 483, 324], [403, 286, 241]],
    },
    "10:59": {
        "write": [[176, 67, 84], [146, 57, 104], [134, 59, 111], [110, 56, 88]],
        "read": [[131, 94, 170], [147, 128, 198], [175, 118, 156], [133, 145, 198]],
    },
    "11:01": {
        "write": [[188, 179, 162], [182, 174, 206], [168, 157, 187], [162, 186, 173]],
        "read": [[307, 321, 397], [350, 371, 337], [317, 371, 345], [242, 280, 239]],
    },
}


def by_name(rows):
    return {f"ost{number}": row for number, row in enumerate(rows)}


@pytest.mark.parametrize(
    ("taken", "way", "share"),
    [
        ("10:37", "write", None),
        ("10:58", "read", None),
        ("10:59", "read", None),
        ("11:01", "read", 0.78),
    ],
)
def test_recorded_rounds_of_healthy_targets(taken, way, share):
    """Divided by their rounds, two of three suspicions are gone. One is left, and is no verdict."""
    rates = by_name(RECORDED[taken][way])
    found = again(rates, 0.2)
    assert found.suspects == (() if share is None else ("ost3",))
    if share is not None:
        assert shares(rates)["ost3"] == pytest.approx(share, abs=0.01)


#: Creates a second of two real metadata targets by round: healthy, and with a throttled disk below the second.
TWO_MDTS = {
    "healthy": {"mdt0000": [104.51, 106.86], "mdt0001": [90.833, 131.64]},
    "slowed": {"mdt0000": [125.14, 91.906], "mdt0001": [85.09, 80.265]},
}


@pytest.mark.parametrize(
    ("state", "suspects"), [("healthy", ()), ("slowed", ("mdt0001",))]
)
def test_of_two_the_slow_one_is_no_measure(state, suspects):
    """At 78 % of the other, it was at 87 % of the median of both."""
    assert again(TWO_MDTS[state], 0.2).suspects == suspects


#: MiB/s of four real targets, one turn each; the client's connection to the third was throttled.
THROTTLED = {"ost0": [84.2], "ost1": [77.7], "ost2": [1.7], "ost3": [64.0]}


def test_a_real_throttled_target_is_named():
    found = judge(THROTTLED, again_as_before(THROTTLED))
    assert slow(found) == ["ost2"]
    assert found.slowest.share == pytest.approx(1.7 / math.sqrt(77.7 * 64), rel=0.02)


@pytest.mark.parametrize(("many", "least", "most"), [(0, 0, 0), (1, 0, 0), (4, 28, 30)])
def test_a_server_is_named_if_all_its_targets_are_slow(many, least, most):
    simulation = programs.load("needle")
    found = simulation.passes(
        16, simulation.NOISES["turns 8 %"], "servers", 0.5, many=many
    )
    servers = {f"p{number:03}": f"10.0.0.{number // 4}@tcp" for number in range(16)}
    passes = list(itertools.islice(found, 30))
    named = [one for one in passes if one.slow_servers(servers)]
    assert least <= len(named) <= most
    for one in named:
        assert list(one.slow_servers(servers)) == ["10.0.0.0@tcp"]
        first, *others = one.describe(servers).split("; ")
        assert first.startswith(
            "the server 10.0.0.0@tcp is slow: all 4 of its targets (p00"
        )
        assert not any(re.match("p00[0-3]:", other) for other in others)
    unknown = dict.fromkeys([*servers][:15], "10.0.0.9@tcp")
    assert not any(one.slow_servers(unknown) for one in passes)


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


def test_a_pass_over_metadata_targets():
    """Recorded creates; the names of the files have the round in them, as fio repeats it."""
    sample = json.loads(
        (ROOT / "tests" / "data" / "samples" / "fio_filecreate.json").read_text()
    )
    names = ("mdt0000", "mdt0001")

    def created(number, name, named):
        found = copy.deepcopy(sample)
        (job,) = found["jobs"]
        job["jobname"] = name
        job["job options"]["filename_format"] = f"{named}.$clientuid.$jobnum.$filenum"
        return f"needle {number} {name}\n{json.dumps(found)}\n"

    asked = Rounds(direction="create", rounds=2, max_deviation=0.2, targets=names)
    text = "".join(created(number, name, number) for number in (1, 2) for name in names)
    output = parse_rounds(text, asked)
    (phase,) = output.phases
    assert (phase.name, phase.bytes_moved, phase.operations) == ("create", None, 40_000)
    assert (phase.rates["median"].unit, phase.rates["slowest"].unit) == ("ops/s", "1")
    assert phase.rates["median"].value == pytest.approx(54_945, rel=1e-4)
    assert "54945 ops/s" in output.notes["slowest"]
    jobs = output.parameters["jobs"]
    own = "${IOG_ROUND}.$clientuid.$jobnum.$filenum"
    assert [jobs[name]["filename_format"] for name in names] == [own, own]
    other = parse_rounds(
        text.replace(created(2, "mdt0001", 2), created(2, "mdt0001", 1)), asked
    )
    jobs = other.parameters["jobs"]
    assert (
        jobs["mdt0001"]["filename_format"]
        == f"{own}, 1{own.removeprefix('${IOG_ROUND}')}"
    )


@pytest.mark.parametrize(
    ("text", "cause"),
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


@given(st.integers(0, 20_000), st.integers(0, 20_000))
def test_a_damaged_pass_is_refused_or_whole(start, length):
    """What is cut out anywhere is either noticed or was of no meaning."""
    text = targets([ONCE, ONCE])
    whole = parse_rounds(text, ROUNDS).phases
    damaged = text[:start] + text[start + length :]
    try:
        found = parse_rounds(damaged, ROUNDS).phases
    except ToolOutputError:
        return
    assert found[0].rates == whole[0].rates


# --- rounds.sh ------------------------------------------------------------------------------------------

AGENT = ["--", "sh", str(JOB_FILES / "agent.sh"), sys.executable]
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
FIO = """echo "$IOG_TOKEN $IOG_ROUND $*" >>words
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
        f"t.{number}.{name} {number} --output-format=json {option[name]} w.fio"
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
