"""The detector of lasting changes: what it finds, what it leaves alone, and what may not matter to it."""

import json
from datetime import datetime, timedelta, timezone

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from iogauge.cli.app import app
from iogauge_extras.history import shown, states
from iogauge_extras.history.states import State
from support import records
from support.records import append

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SEEDS = st.integers(0, 10**6)


def noisy(seed, runs, cv=0.05, count=1):
    """Log values without any change."""
    return cv * np.random.default_rng(seed).standard_normal((count, runs))


def dropped(seed, drop, after=10, cv=0.05):
    """Forty stable runs and some that are slower."""
    values = np.exp(noisy(seed, 40 + after, cv)[0]) * 1000
    values[40:] *= 1 - drop
    return [float(v) for v in values]


def frame(values, **columns):
    """A line as the history gives it: a run a day."""
    n = len(values)
    fixed = {
        "line": "line",
        "series": "first",
        "system": "site",
        "partition": "scratch",
        "case": "Ior %cache=direct",
        "metric": "write_bw",
        "unit": "MiB/s",
        "better": "more",
        "metric_verdict": "PASS",
        "fingerprint": "same",
        "confirms": None,
    }
    data = {
        name: value if isinstance(value, list) else [value] * n
        for name, value in (fixed | columns).items()
    }
    data["time"] = [BEGIN + timedelta(days=k) for k in range(n)]
    data["session"] = [f"s{k}" for k in range(n)]
    data["median"] = list(values)
    return pl.DataFrame(data).with_columns(
        pl.col("time").cast(pl.Datetime("us", "UTC")),
        pl.col("confirms").cast(pl.String),
    )


def judge(values, **columns):
    (one,) = states.states_of(frame(values, **columns))
    return one


# What it finds.


def test_a_drop_is_an_alarm_with_its_day_size_and_certainty():
    one = judge(dropped(1, 0.15))
    assert one.state is State.ALARM
    assert (one.change.time, one.change.session) == (BEGIN + timedelta(days=40), "s40")
    assert one.change.low < -0.15 < one.change.high < 0
    assert one.false_alarms < 0.001
    assert (one.runs, one.baseline) == (50, 30)
    assert one.level == pytest.approx(1000, rel=0.03)


def test_a_latency_that_grows_is_an_alarm():
    one = judge([1 / v for v in dropped(1, 0.15)], better="less", unit="ms")
    assert one.state is State.ALARM
    assert one.change.low < 1 / 0.85 - 1 < one.change.high


def test_what_has_gone_by_is_recovered():
    values = dropped(1, 0.2) + dropped(2, 0)
    assert judge(values[:50]).state is State.ALARM
    one = judge(values)
    assert one.state is State.RECOVERED
    assert one.recovered is not None
    assert BEGIN + timedelta(days=40) < one.recovered < BEGIN + timedelta(days=60)


# What it leaves alone.


@pytest.mark.parametrize("verdict", ["INVALID", "UNSTABLE", "CONTAMINATED", "ERROR"])
def test_only_valid_points_count(verdict):
    verdicts = ["PASS"] * 40 + [verdict] * 10
    one = judge(dropped(1, 0.3), metric_verdict=verdicts)
    assert (one.state, one.runs) == (State.STEADY, 40)


@pytest.mark.parametrize("verdict", ["PASS", "FAIL", "UNREFERENCED"])
def test_valid_points_count_whatever_the_reference_says(verdict):
    assert judge(dropped(1, 0.3), metric_verdict=verdict).state is State.ALARM


@pytest.mark.parametrize(
    ("runs", "state"), [(1, State.FEW), (20, State.FEW), (21, State.STEADY)]
)
def test_too_few_runs_are_said(runs, state):
    found = states.states_of(frame([5.0] * runs))
    assert found[0].state is state
    assert shown.too_few_runs(found) == (
        [f"site:scratch Ior direct write_bw: {runs} of 20 runs of a baseline"]
        * (runs < 21)
    )


# Series.


def test_a_new_series_starts_anew_and_the_step_is_named():
    values = dropped(1, 0.2)
    one = judge(
        values, series=["a"] * 40 + ["b"] * 10, fingerprint=["old"] * 40 + ["new"] * 10
    )
    assert (one.state, one.series, one.runs) == (State.FEW, "b", 10)
    assert one.started.certain
    assert one.started.low < -0.2 < one.started.high
    assert one.started.session == "s40"
    known = {
        "old": {"kernel": "5", "mem.bytes": 1},
        "new": {"kernel": "6", "mem.bytes": 1},
    }
    assert shown.changed_keys(one.started, known) == ["kernel: 5 -> 6"]
    assert shown.fingerprint_ids([one]) == {"old", "new"}


def test_what_changed_just_before_a_drop_is_named():
    one = judge(dropped(1, 0.2), fingerprint=["x"] * 39 + ["y"] * 11)
    assert (one.change.before, one.change.after) == ("x", "y")


# What may not matter.


def same(a, b):
    fine = a.state is b.state and a.false_alarms == pytest.approx(
        b.false_alarms, rel=0.02
    )
    if a.change is None or b.change is None:
        return fine and a.change is b.change
    return fine and a.change.time == b.change.time


@given(SEEDS, st.floats(-0.3, 0.3))
def test_times_are_judged_as_rates_are(seed, drop):
    values = dropped(seed, drop)
    one, other = judge(values), judge([1 / v for v in values], better="less")
    assert same(one, other)
    if one.change and other.change:
        assert (1 + one.change.share) * (1 + other.change.share) == pytest.approx(1)


@given(st.lists(st.tuples(SEEDS, st.integers(1, 60)), min_size=1, max_size=12))
def test_neighbours_and_padding_do_not_matter(lines):
    frames = [
        frame(dropped(seed, 0.1, after=20)[:runs], line=f"{k:02}")
        for k, (seed, runs) in enumerate(lines)
    ]
    together = states.states_of(pl.concat(frames))
    for one, alone in zip(together, frames, strict=True):
        (expected,) = states.states_of(alone)
        assert (one.line, one.state, one.runs) == (
            expected.line,
            expected.state,
            expected.runs,
        )
        assert same(one, expected)


# Options.


# Showing.


# Operations and bandwidth of one block size.


def two(values, bandwidth):
    """The operations and the bandwidth of the same runs."""
    operations = frame(values, metric="write_iops", unit="ops/s")
    return pl.concat([frame(bandwidth), operations])


@pytest.mark.parametrize("drop", [0.15, 0.0])
def test_operations_and_bandwidth_of_one_block_size_are_one_fact(drop):
    values = dropped(1, drop)
    found = states.states_of(
        two(values, [v * 0.004 * (1 + 1e-5 * (-1) ** k) for k, v in enumerate(values)])
    )
    assert {one.metric: one.repeats for one in found} == {
        "write_bw": "write_iops",
        "write_iops": "",
    }
    word = "1 alarm" if drop else "1 steady"
    assert shown.summary(found) == f"1 series: {word}"
    assert shown.chance(found, 0.05).endswith("in 30 runs (1 series)")
    if drop:
        ((first, second),) = shown.rows(found, {}).values()
        assert first[:3] == ("Ior direct", "write_iops", "alarm") and first[3].endswith(
            " ops/s"
        )
        assert second[:3] == ("", "write_bw", "") and second[3].endswith(" MiB/s")
        assert not any(second[4:])


# The command.


@pytest.fixture
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("IOGAUGE_HOME", str(tmp_path))
    return tmp_path


def write(home, values, changed_at):
    for k, value in enumerate(values):
        fingerprint = {"tunable.osc.max_rpcs_in_flight": "8" if k < changed_at else "1"}
        made = records.record(
            session=f"s{k}",
            time=(BEGIN + timedelta(days=k)).strftime("%Y-%m-%dT%H:%M:%SZ"),
            system="site",
            metrics=[records.metric(median=value, samples=[value], reference=None)],
        )
        append(
            home / "history" / "site" / f"s{k // 10}.jsonl",
            made.with_fingerprint(fingerprint).to_json(),
        )


def run(*arguments):
    done = CliRunner().invoke(app, ["status", "--trend", *arguments])
    return done.exit_code, done.output


def test_an_alarm_fails_a_pipeline_and_names_the_tunable(home):
    write(home, dropped(1, 0.2), 40)
    status, text = run()
    assert status == 1
    assert "1 series: 1 alarm" in text
    assert "2026-02-10 s40" in " ".join(text.split())
    assert "chance alone raises at most 0.0017 new alarm(s) a run" in " ".join(
        text.split()
    )
    status, text = run("--json")
    (row,) = json.loads(text)
    assert (status, row["state"]) == (1, "alarm")
    assert row["change"]["changed"] == ["tunable.osc.max_rpcs_in_flight: 8 -> 1"]
    assert row["change"]["share"] == pytest.approx(-0.2, abs=0.05)


def test_what_is_steady_short_or_left_out_does_not(home):
    write(home, dropped(1, 0.2), 40)
    assert run("--system", "other")[0] == run("-n", "mdtest")[0] == 2
    status, text = run("--since", "2026-02-01")
    assert (status, "19 of 20 runs" in text) == (0, True)
