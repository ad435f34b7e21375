"""The detector of lasting changes: what it finds, what it leaves alone, and what may not matter to it."""

import json
import math
import random
from contextlib import closing
from datetime import datetime, timedelta, timezone

import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from iogauge.cli.app import app
from iogauge.records import query
from iogauge_extras.history import states, statistics
from support import records
from support.records import append

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SEEDS = st.integers(0, 10**6)


def noisy(seed, count, cv=0.05):
    """Values at one level."""
    chance = random.Random(seed)
    return [1000 * math.exp(chance.gauss(0, cv)) for _ in range(count)]


def dropped(seed, drop, after=10):
    """Forty stable runs and some that are slower."""
    values = noisy(seed, 40 + after)
    return values[:40] + [value * (1 - drop) for value in values[40:]]


# --- the statistics -------------------------------------------------------------------------------


def test_values_within_half_a_per_cent_are_ties():
    logs = [math.log(share) for share in (1.004, 1.0, 0.996, 0.99, 1.01)]
    assert statistics.placements(logs, [0.0] * 30) == [0, 0, 0, -0.5, 0.5]


def test_correlated_neighbours_need_more():
    chance = random.Random(1)
    value, runs = 0.0, []
    for _ in range(30):
        value = 0.9 * value + chance.gauss(0, 1)
        runs.append(value)
    assert statistics.stretch(runs) > 1.5
    assert statistics.stretch([1.0] * 30) == 1
    assert statistics.stretch([1.0, 2.0] * 15) == 1


def test_the_limits_of_an_interval_are_those_of_the_test():
    a, b = noisy(1, 12), noisy(2, 9)
    _, low, high = statistics.interval(a, b)
    for limit in (low, high):
        scaled = [value / limit for value in b]
        assert scipy.stats.mannwhitneyu(a, scaled).pvalue == pytest.approx(
            0.05, abs=0.03
        )


@given(SEEDS, st.integers(10, 50))
def test_a_step_is_found_where_it_is(seed, at):
    values = noisy(seed, 60, 0.02)
    stepped = values[:at] + [value * 0.85 for value in values[at:]]
    assert min(abs(at - point) for point in statistics.change_points(stepped)) <= 1


# --- a history ------------------------------------------------------------------------------------


def write(home, values, **columns):
    """A history with a run a day; a column has a value for all runs, or a list."""
    for day, value in enumerate(values):
        own = {}
        for name, given_values in columns.items():
            own[name] = (
                given_values[day] if isinstance(given_values, list) else given_values
            )
        fingerprint = own.pop("fingerprint", {})
        of_metrics = own.pop("metrics", {"write_bw": 1.0})
        verdict, better = own.pop("verdict", "PASS"), own.pop("better", "more")
        metrics = [
            records.metric(
                name,
                verdict,
                median=value * share,
                samples=[],
                reference=None,
                better=better,
            )
            for name, share in of_metrics.items()
        ]
        time = (BEGIN + timedelta(days=day)).strftime("%Y-%m-%dT%H:%M:%SZ")
        made = records.record(
            verdict, session=f"s{day}", time=time, system="site", metrics=metrics, **own
        )
        file = home / "history" / "site" / f"s{day // 10}.jsonl"
        append(file, made.with_fingerprint(fingerprint).to_json())


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def states_in(home):
    with closing(query.connect(home / "history")) as history:
        return states.states_of(history, query.Choice())


@pytest.fixture
def judge(home):
    def judged(values, **columns):
        write(home, values, **columns)
        (one,) = states_in(home)
        return one

    return judged


# What it finds.


def test_a_drop_is_an_alarm_with_its_day_size_and_certainty(judge):
    one = judge(dropped(1, 0.15))
    assert one.change
    assert abs(one.change.time - BEGIN - timedelta(days=40)) <= timedelta(days=1)
    assert one.change.session in ("s39", "s40", "s41")
    assert one.change.low < -0.15 < one.change.high < 0
    assert one.change.level == pytest.approx(1000, rel=0.03)


def test_a_latency_that_grows_is_an_alarm(judge):
    one = judge([1 / v for v in dropped(1, 0.15)], better="less")
    assert one.change.low > 0


@pytest.mark.parametrize(
    ("runs", "stands"),
    [(55, True), (64, False), (100, False)],
)
def test_what_has_gone_by_is_no_alarm(judge, runs, stands):
    values = dropped(1, 0.2, 15) + noisy(2, 60)
    assert bool(judge(values[:runs]).change) is stands


def test_a_slow_decline_is_not_learned(judge):
    values = noisy(3, 200, 0.02)
    one = judge([value * (1 - 0.1 * day / 200) for day, value in enumerate(values)])
    assert one.change


# What it leaves alone.


@pytest.mark.parametrize("verdict", ["INVALID", "UNSTABLE", "CONTAMINATED", "ERROR"])
def test_only_valid_points_count(judge, verdict):
    one = judge(dropped(1, 0.3), verdict=["PASS"] * 40 + [verdict] * 10)
    assert not one.few and one.change is None


@pytest.mark.parametrize(("runs", "few"), [(1, True), (20, True), (21, False)])
def test_too_few_runs_are_not_judged(judge, runs, few):
    one = judge([5.0] * runs)
    assert one.few is few and one.change is None


# Series.


def test_a_new_series_starts_anew(judge):
    kernels = [{"kernel": "5", "mem.bytes": 1}] * 40 + [
        {"kernel": "6", "mem.bytes": 1}
    ] * 10
    assert judge(dropped(1, 0.2), fingerprint=kernels).few


def test_confirmations_do_not_count(judge):
    one = judge(dropped(1, 0.3), confirms=[None] * 40 + ["s0"] * 10)
    assert not one.few and one.change is None


# Operations and bandwidth of one block size.


def test_operations_and_bandwidth_of_one_block_size_are_one_fact(home):
    write(home, dropped(1, 0.15), metrics={"write_bw": 0.004, "write_iops": 1.0})
    assert [bool(one.change) for one in states_in(home)] == [True, True]
    _, text = run("--since", "2026-01-01", "--json")
    (case,) = json.loads(text)["cases"]
    assert case["why"].count("DRIFT") == case["why"].count("DRIFT write_iops") == 1


# The command.


TUNABLE = "tunable.osc.max_rpcs_in_flight"
CHANGED = [{TUNABLE: "8"}] * 40 + [{TUNABLE: "1"}] * 10


def run(*arguments):
    done = CliRunner().invoke(app, ["status", *arguments])
    return done.exit_code, done.output


def test_an_alarm_fails_a_pipeline_and_names_the_tunable(home):
    write(home, dropped(1, 0.2), fingerprint=CHANGED)
    status, text = run("--since", "2026-01-01", "--json")
    (case,) = json.loads(text)["cases"]
    assert status == 1
    assert "DRIFT write_bw" in case["why"]
    assert "tunable.osc.max_rpcs_in_flight: 8 -> 1" in case["note"]
    assert run("--system", "other")[0] == run("-n", "mdtest")[0] == 2
