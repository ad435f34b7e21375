"""The statistics of lasting changes: what they find, how often they are wrong, and what may not matter to them."""

import math

import numpy as np
import pytest
import scipy
from hypothesis import given
from hypothesis import strategies as st

from iogauge_extras.history import statistics as detector

SEEDS = st.integers(0, 10**6)


def noisy(seed, runs, cv=0.05, count=1):
    """Log values without any change."""
    return cv * np.random.default_rng(seed).standard_normal((count, runs))


# How often it is wrong.


# What may not matter.


@given(SEEDS)
def test_losses_and_gains_mirror_each_other(seed):
    values = noisy(seed, 50)
    values[:, 35:] -= 0.1
    one, other = detector.evidence(values, 30), detector.evidence(-values, 30)
    assert one.loss == pytest.approx(other.gain, abs=0.01)
    assert one.gain == pytest.approx(other.loss, abs=0.01)


@given(SEEDS)
def test_the_order_within_the_baseline_does_not_matter(seed):
    values = noisy(seed, 45)
    mixed = values.copy()
    np.random.default_rng(seed).shuffle(mixed[0, :30])
    assert detector.evidence(values, 30).loss == pytest.approx(
        detector.evidence(mixed, 30).loss, abs=0.01
    )


# Limits.


@given(SEEDS, st.floats(0.001, 0.2), st.floats(0.001, 0.2))
def test_fewer_false_alarms_take_more_evidence(seed, a, b):
    scale = np.exp(np.random.default_rng(seed).uniform(-6, 1, 3))
    low, high = sorted((a, b))
    assert (detector.limits(scale, 50, low) >= detector.limits(scale, 50, high)).all()


@given(st.lists(st.floats(-3, 3), min_size=20, max_size=60), st.floats(-5, 5))
def test_location_moves_with_the_values_and_scale_does_not(values, by):
    row = np.array([values])
    (m,), (s,) = detector.fit(row)
    (moved,), (same_scale,) = detector.fit(row + by)
    assert moved == pytest.approx(m + by, abs=1e-3)
    assert same_scale == pytest.approx(s, rel=1e-2)
    assert min(values) - 1e-9 <= m <= max(values) + 1e-9


# The evidence.


@given(SEEDS, st.integers(1, 30), st.floats(-2, 2))
def test_the_evidence_is_the_likelihood_ratio_of_the_t_test(seed, count, by):
    random = np.random.default_rng(seed)
    base = random.standard_normal(30)
    base = (base - base.mean()) / base.std(ddof=1)
    newest = random.standard_normal(count) - by
    found = detector._ratio(newest[None], 15, 30)[0, -1]
    window = newest[-15:]
    freedom = 30 + len(window) - 2
    t = (
        scipy.stats.ttest_ind(base, window).statistic
        if len(window) > 1
        else -window[0] / math.sqrt(31 / 30)
    )
    assert found == pytest.approx(
        math.copysign((freedom + 1) / 2 * math.log1p(t * t / freedom), t)
    )


@pytest.mark.parametrize("share", [0, 0.0009, 0.21, 1, math.nan])
def test_a_share_of_false_alarms_that_was_not_verified_is_refused(share):
    with pytest.raises(ValueError, match=r"expected 0\.001 to 0\.2"):
        detector.limits(np.array([0.05]), 30, share)


# One series as a whole.


@given(SEEDS, st.floats(1e-3, 1e3))
def test_changes_do_not_depend_on_the_unit(seed, factor):
    values = np.exp(noisy(seed, 80)[0])
    values[30:] *= 0.8
    assert detector.change_points(values.tolist()) == detector.change_points(
        (values * factor).tolist()
    )


@given(st.lists(st.floats(1e-3, 1e6), max_size=60))
def test_any_values_have_changes_in_order(values):
    found = detector.change_points(values)
    assert found == sorted(set(found))
    assert all(5 <= k <= len(values) - 5 for k in found)
