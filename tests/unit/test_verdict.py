"""PASS needs proof: samples, guards and reference, all at once."""

import itertools
import math
from datetime import date, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.core.measurement import (
    Metric,
    Quantity,
    Reference,
    ToolOutputError,
    Unsettled,
)
from iogauge.guards.finding import Finding, Outcome
from iogauge.judge.verdict import (
    MetricVerdict,
    Verdict,
    beyond_scatter,
    check_samples,
    decide_metric,
    worst,
)

BW = Metric("bw", "MiB/s")
MET = Reference(100.0, -0.1, 0.1, "MiB/s", "measured")


def finding(outcome, metric=None, guard="G1"):
    return Finding(guard, outcome, "saw 5", "at most 3", "do that", metric)


def mb(*values):
    return [Quantity(value, "MiB/s") for value in values]


# --- samples --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "samples, message",
    [
        ({}, "bw is missing: 0 sample.* 3 expected"),
        ({"bw": mb(1, 1, 1, 1)}, "4 sample"),
        (
            {"bw": [*mb(1, 1), Quantity(1, "MB/s")]},
            "came in 'MB/s', declared is 'MiB/s'",
        ),
        ({"bw": mb(1, 0, 1)}, "is 0 MiB/s"),
        ({"bw": mb(1, 1, math.nan)}, "is nan MiB/s"),
    ],
)
def test_samples_that_prove_nothing_are_refused(samples, message):
    with pytest.raises(ToolOutputError, match=message):
        check_samples([BW], samples, 3)


QUANTITIES = st.lists(
    st.builds(
        Quantity,
        st.one_of(st.floats(), st.sampled_from([0.0, -0.0, 1.0, 5e-324])),
        st.sampled_from(["MiB/s", "MiB/s", "MiB/s", "MB/s", ""]),
    ),
    max_size=4,
)


@given(QUANTITIES, st.integers(0, 4))
def test_accepted_samples_are_proven(quantities, repetitions):
    sound = len(quantities) == repetitions and all(
        q.unit == "MiB/s" and 0 < q.value < math.inf for q in quantities
    )
    try:
        found = check_samples([BW], {"bw": quantities}, repetitions)
    except ToolOutputError:
        assert not sound
    else:
        assert sound
        assert found["bw"] == tuple(q.value for q in quantities)


# --- one metric -----------------------------------------------------------------------------------

OUTCOMES = st.sampled_from(list(Outcome))
BOUND = st.none() | st.floats(-1, 0)


def middle(values):
    ordered = sorted(values)
    half = len(ordered) // 2
    return (
        ordered[half] if len(ordered) % 2 else (ordered[half - 1] + ordered[half]) / 2
    )


@given(
    values=st.lists(st.floats(1, 1e6), min_size=1, max_size=5),
    seen=st.lists(
        st.tuples(OUTCOMES, st.sampled_from([None, "bw", "iops"])), max_size=4
    ),
    referenced=st.booleans(),
    value=st.floats(1, 1e6),
    lower=BOUND,
    upper=st.none() | st.floats(0, 10),
    xfail=st.none() | st.just("known"),
)
def test_the_verdict_is_that_of_an_independent_oracle(
    values, seen, referenced, value, lower, upper, xfail
):
    reference = (
        Reference(value, lower, upper, "MiB/s", "x", xfail) if referenced else None
    )
    decided = decide_metric(BW, values, [finding(o, m) for o, m in seen], reference)
    mine = {outcome for outcome, metric in seen if metric != "iops"}
    if Outcome.INVALID in mine:
        expected = Verdict.INVALID
    elif Outcome.CONTAMINATED in mine:
        expected = Verdict.CONTAMINATED
    elif Outcome.UNSTABLE in mine and not beyond_scatter(values, reference):
        expected = Verdict.UNSTABLE
    elif not referenced:
        expected = Verdict.UNREFERENCED
    else:
        low = lower is None or middle(values) >= value + value * lower - 1e-9 * value
        high = upper is None or middle(values) <= value + value * upper + 1e-9 * value
        edge = any(
            share is not None
            and math.isclose(middle(values), value * (1 + share), rel_tol=1e-8)
            for share in (lower, upper)
        )
        if edge:
            return
        expected = Verdict.PASS if low and high and not xfail else Verdict.FAIL
    assert decided.verdict is expected
    assert decided.samples == tuple(values)
    if decided.verdict is Verdict.PASS:
        assert referenced
        assert not mine & {Outcome.INVALID, Outcome.UNSTABLE}


@pytest.mark.parametrize(
    "values, beyond",
    [
        ([50, 60], True),
        ([80, 89], True),
        ([80, 85, 91], False),
        ([50, 95], False),
        ([], False),
    ],
)
def test_what_misses_by_more_than_it_scatters(values, beyond):
    assert beyond_scatter(values, Reference(100, -0.01, None, "MiB/s", "x")) is beyond
    assert not beyond_scatter(values, None)
    above = Reference(100, None, 0.01, "us", "x")
    assert [beyond_scatter(one, above) for one in ([105, 112], [110, 112])] == [
        False,
        True,
    ]


@pytest.mark.parametrize(
    "median, verdict",
    [
        (90.0, Verdict.PASS),
        (89.999, Verdict.FAIL),
        (110.0, Verdict.PASS),
        (110.1, Verdict.FAIL),
    ],
)
def test_the_ends_of_the_bounds_meet_the_reference(median, verdict):
    reference = Reference(100.0, -0.1, 0.1, "MiB/s", "x")
    assert decide_metric(BW, [1.0, median, 1e6], [], reference).verdict is verdict


@pytest.mark.parametrize("value", [math.nan, math.inf])
def test_a_reference_that_is_no_number_never_passes(value):
    reference = Reference(value, -0.1, 0.1, "MiB/s", "x")
    assert decide_metric(BW, [100.0], [], reference).verdict is Verdict.FAIL


def test_a_sample_that_is_no_number_never_passes():
    assert decide_metric(BW, [math.nan], [], MET).verdict is Verdict.FAIL


def test_no_samples_never_pass():
    with pytest.raises(ValueError, match="no median"):
        decide_metric(BW, [], [], MET)


def test_a_reference_in_another_unit_is_not_compared():
    with pytest.raises(ValueError, match="in GiB/s, not MiB/s"):
        decide_metric(BW, [100.0], [], Reference(100.0, -0.1, None, "GiB/s", "x"))


@pytest.mark.parametrize(
    "median, open_value, verdict",
    [
        (95.0, None, Verdict.PASS),
        (95.0, 95.0, Verdict.PASS),
        (95.0, 90.0, Verdict.PASS),
        (80.0, None, Verdict.FAIL),
        (80.0, 95.0, Verdict.FAIL),  # it is proven: another value is open
        (80.0, 70.0, Verdict.FAIL),
        (80.0, 80.0, Verdict.UNSTABLE),
        (95.0, 80.0, Verdict.UNSTABLE),
    ],
)
def test_a_value_that_the_turns_leave_open_is_unstable(median, open_value, verdict):
    unsettled = (
        None if open_value is None else Unsettled(open_value, "cannot decide: why")
    )
    found = decide_metric(BW, [median], [], MET, unsettled=unsettled)
    assert found.verdict is verdict
    assert ("cannot decide: why" in found.reason) is (verdict is Verdict.UNSTABLE)
    assert found.open is (open_value is not None and open_value < median)


def test_an_open_value_is_unstable_without_a_reference():
    found = decide_metric(BW, [95.0], [], None, unsettled=Unsettled(80.0, "open"))
    assert (found.verdict, found.reason) == (Verdict.UNSTABLE, "open")


# --- expected failures ----------------------------------------------------------------------------

EXPECTED = Reference(100.0, -0.1, None, "MiB/s", "x", "firmware bug")


def test_an_expected_failure_that_does_not_happen_is_one_that_counts():
    decided = decide_metric(BW, [100.0], [], EXPECTED)
    assert (decided.verdict, decided.failed_as_expected) == (Verdict.FAIL, False)
    assert "remove $xfail (firmware bug)" in decided.reason


def test_an_invalid_measurement_is_never_an_expected_failure():
    decided = decide_metric(BW, [50.0], [finding(Outcome.INVALID)], EXPECTED)
    assert (decided.verdict, decided.failed_as_expected) == (Verdict.INVALID, False)


LAST = date(2027, 3, 31)
ENDING = Reference(100.0, -0.1, None, "MiB/s", "x", "bug, until 2027-03-31", LAST)


def on(day, value):
    return decide_metric(BW, [value], [], ENDING, today=day)


def test_after_the_last_day_a_failure_is_one_like_any_other_and_says_so():
    expected = on(LAST, 50.0)
    assert expected.failed_as_expected
    assert (
        expected.reason == "median 50.00 MiB/s, reference 100.0 MiB/s, at least 90.00 "
        "(-50.0%), as expected: bug, until 2027-03-31"
    )
    decided = on(LAST + timedelta(days=1), 50.0)
    assert (decided.verdict, decided.failed_as_expected) == (Verdict.FAIL, False)
    assert "as expected" not in decided.reason
    assert (
        "the expected failure expired after 2027-03-31: remove $xfail (bug, until 2027-03-31)"
        in decided.reason
    )
    assert decided.reference is not None and decided.reference.xfail is None


# --- the order of verdicts ------------------------------------------------------------------------


def test_the_worst_verdict_is_the_case_s():
    order = [
        "PASS",
        "UNREFERENCED",
        "UNSTABLE",
        "CONTAMINATED",
        "FAIL",
        "INVALID",
        "ERROR",
    ]
    assert [v.value for v in sorted(Verdict, key=lambda v: v.rank)] == order
    for one, other in itertools.product(Verdict, repeat=2):
        assert worst([one, other]) is max(
            one, other, key=lambda v: order.index(v.value)
        )


@pytest.mark.parametrize(
    "samples, median, spread",
    [((), None, None), ((5.0,), 5.0, None), ((90.0, 100.0, 110.0), 100.0, 0.1)],
)
def test_median_and_spread(samples, median, spread):
    decided = MetricVerdict(BW, samples, Verdict.PASS, "")
    assert decided.median == median
    assert decided.spread == (spread if spread is None else pytest.approx(spread))
