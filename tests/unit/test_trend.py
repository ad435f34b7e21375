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
from iogauge_extras.history import shown, states, statistics
from iogauge_extras.history.states import State
from support import records
from support.records import append

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SEEDS = st.integers(0, 10**6)


def noisy(seed, count, cv=0.05):
    """Values at one level."""
    chance = random.Random(seed)
    return [1000 * math.exp(chance.gauss(0, cv)) for _ in range(count)]


def dropped(seed, drop, after=10, cv=0.05):
    """Forty stable runs and some that are slower."""
    values = noisy(seed, 40 + after, cv)
    return values[:40] + [value * (1 - drop) for value in values[40:]]


# --- the statistics -------------------------------------------------------------------------------


@given(SEEDS, st.integers(1, 30))
def test_the_mean_placement_is_the_statistic_of_mann_and_whitney(seed, count):
    values = noisy(seed, 30 + count)
    baseline, newest = values[:30], values[30:]
    placed = statistics.placements(newest, baseline)
    expected = scipy.stats.mannwhitneyu(newest, baseline).statistic
    assert (math.fsum(placed) + count / 2) * 30 == pytest.approx(expected)
    error = math.sqrt((count + 31) / 12 / count / 30)
    assert statistics.standard_error(count, 30) == pytest.approx(error)


@given(SEEDS, st.floats(1e-3, 1e3))
def test_only_the_order_of_values_matters(seed, factor):
    values = dropped(seed, 0.2)
    other = [math.sqrt(value) * factor for value in values]
    one, two = (statistics.placements(v[30:], v[:30]) for v in (values, other))
    assert one == two
    assert statistics.stretch(values[:30]) == statistics.stretch(other[:30])


def test_correlated_neighbours_need_more():
    chance = random.Random(1)
    value, runs = 0.0, []
    for _ in range(30):
        value = 0.9 * value + chance.gauss(0, 1)
        runs.append(value)
    assert statistics.stretch(runs) > 1.5
    assert statistics.stretch([1.0] * 30) == 1
    assert statistics.stretch([1.0, 2.0] * 15) == 1


@pytest.mark.parametrize("share", [0, 0.0009, 0.21, 1, math.nan])
def test_a_share_of_false_alarms_that_was_not_verified_is_refused(share):
    with pytest.raises(ValueError, match=r"expected 0\.001 to 0\.2"):
        statistics.limit(share)


@given(st.floats(0.001, 0.2))
def test_a_share_and_its_limit_are_one(share):
    assert statistics.share_of(statistics.limit(share)) == pytest.approx(share)


@given(st.lists(st.floats(1, 1e6), min_size=3, max_size=9), st.floats(0.1, 10))
def test_the_interval_of_a_constant_ratio_holds_it(values, ratio):
    middle, low, high = statistics.interval(values, [v * ratio for v in values])
    assert low <= ratio * (1 + 1e-9) and high >= ratio * (1 - 1e-9)
    assert low <= middle <= high


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


@given(st.lists(st.floats(1e-3, 1e6), max_size=60))
def test_any_values_have_changes_in_order(values):
    found = statistics.change_points(values)
    assert found == sorted(set(found))
    assert all(5 <= k <= len(values) - 5 for k in found)


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
    assert one.state is State.ALARM
    assert abs(one.change.time - BEGIN - timedelta(days=40)) <= timedelta(days=1)
    assert one.change.session in ("s39", "s40", "s41")
    assert one.change.low < -0.15 < one.change.high < 0
    assert one.false_alarms < 0.005
    assert (one.runs, one.baseline) == (50, 30)
    assert one.level == pytest.approx(1000, rel=0.03)


def test_a_latency_that_grows_is_an_alarm(judge):
    one = judge([1 / v for v in dropped(1, 0.15)], better="less")
    assert one.state is State.ALARM
    assert one.change.low < 1 / 0.85 - 1 < one.change.high


@pytest.mark.parametrize(
    ("runs", "state"),
    [(55, State.ALARM), (64, State.RECOVERED), (100, State.RECOVERED)],
)
def test_what_has_gone_by_is_recovered(judge, runs, state):
    values = dropped(1, 0.2, 15) + noisy(2, 60)
    one = judge(values[:runs])
    assert one.state is state
    if state is State.RECOVERED:
        assert BEGIN + timedelta(days=40) < one.recovered < BEGIN + timedelta(days=64)


def test_a_slow_decline_is_not_learned(judge):
    values = noisy(3, 200, 0.02)
    one = judge([value * (1 - 0.1 * day / 200) for day, value in enumerate(values)])
    assert one.state is State.ALARM


# What it leaves alone.


@pytest.mark.parametrize("verdict", ["INVALID", "UNSTABLE", "CONTAMINATED", "ERROR"])
def test_only_valid_points_count(judge, verdict):
    one = judge(dropped(1, 0.3), verdict=["PASS"] * 40 + [verdict] * 10)
    assert (one.state, one.runs) == (State.STEADY, 40)


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "UNREFERENCED"])
def test_valid_points_count_whatever_the_reference_says(judge, verdict):
    assert judge(dropped(1, 0.3), verdict=verdict).state is State.ALARM


@pytest.mark.parametrize(
    ("runs", "state"), [(1, State.FEW), (20, State.FEW), (21, State.STEADY)]
)
def test_too_few_runs_are_said(home, runs, state):
    write(home, [5.0] * runs)
    found = states_in(home)
    assert found[0].state is state
    assert shown.too_few_runs(found) == (
        [
            f"site:lustre IorPosix shared sequential write_bw: {runs} of 20 runs of a baseline"
        ]
        * (runs < 21)
    )


# Series.


def test_a_new_series_starts_anew_and_the_step_is_named(judge):
    kernels = [{"kernel": "5", "mem.bytes": 1}] * 40 + [
        {"kernel": "6", "mem.bytes": 1}
    ] * 10
    one = judge(dropped(1, 0.2), fingerprint=kernels)
    assert (one.state, one.runs) == (State.FEW, 10)
    assert one.started.certain
    assert one.started.low < -0.2 < one.started.high
    assert one.started.session == "s40"
    known = {one.started.before: kernels[0], one.started.after: kernels[-1]}
    assert shown.changed_keys(one.started, known) == ["kernel: 5 -> 6"]
    assert shown.fingerprint_ids([one]) == set(known)


def test_confirmations_do_not_count(judge):
    one = judge(dropped(1, 0.3), confirms=[None] * 40 + ["s0"] * 10)
    assert (one.state, one.runs) == (State.STEADY, 40)


# Operations and bandwidth of one block size.


@pytest.mark.parametrize("drop", [0.15, 0.0])
def test_operations_and_bandwidth_of_one_block_size_are_one_fact(home, drop):
    write(home, dropped(1, drop), metrics={"write_bw": 0.004, "write_iops": 1.0})
    found = states_in(home)
    assert {one.metric: one.repeats for one in found} == {
        "write_bw": "write_iops",
        "write_iops": "",
    }
    word = "1 alarm" if drop else "1 steady"
    assert shown.summary(found) == f"1 series: {word}"
    assert shown.chance(found, 0.05).endswith("in 30 runs (1 series)")
    if drop:
        ((first, second),) = shown.rows(found, {}).values()
        assert first[1:3] == ("write_iops", "alarm")
        assert second[:3] == ("", "write_bw", "")
        assert not any(second[4:])


# The command.


TUNABLE = "tunable.osc.max_rpcs_in_flight"
CHANGED = [{TUNABLE: "8"}] * 40 + [{TUNABLE: "1"}] * 10


def run(*arguments):
    done = CliRunner().invoke(app, ["status", "--trend", *arguments])
    return done.exit_code, done.output


def test_an_alarm_fails_a_pipeline_and_names_the_tunable(home):
    write(home, dropped(1, 0.2), fingerprint=CHANGED)
    status, text = run()
    assert status == 1
    assert "1 series: 1 alarm" in text
    assert "chance alone raises at most 0.0017 new alarm(s) a run" in " ".join(
        text.split()
    )
    status, text = run("--json")
    (row,) = json.loads(text)
    assert (status, row["state"]) == (1, "alarm")
    assert row["change"]["changed"] == ["tunable.osc.max_rpcs_in_flight: 8 -> 1"]
    assert row["change"]["share"] == pytest.approx(-0.2, abs=0.05)


def test_what_is_steady_short_or_left_out_does_not(home):
    write(home, dropped(1, 0.2), fingerprint=CHANGED)
    assert run("--system", "other")[0] == run("-n", "mdtest")[0] == 2
    status, text = run("--since", "2026-02-01")
    assert (status, "19 of 20 runs" in text) == (0, True)
