"""G25: settings that a site demands, as the nodes have them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from iogauge.guards import expected as guard
from iogauge.guards.finding import Outcome
from iogauge.site.extras import Expected


@pytest.mark.parametrize(
    "key, expected, fact, wrong",
    [
        ("tunable.osc.max_pages_per_rpc", 4096, "4096", False),
        ("tunable.osc.max_pages_per_rpc", 4096, "1024,4096", True),
        ("tunable.osc.max_rpcs_in_flight", ">= 8", "8,16", False),
        ("tunable.osc.max_dirty_mb", "<=64", "65", True),
        ("tunable.osc.max_dirty_mb", "<= 64", "unlimited", True),
        ("lustre.servers", 8, 4, True),
        ("mount.options", "flock", "localflock,rw", True),
        ("cpu.governor", "performance", "performance,powersave", True),
        ("layout.stripe_count", 1, "1,4", True),
        ("layout.stripe_count", "1,4", "1,4", False),
    ],
)
def test_what_differs(key, expected, fact, wrong):
    facts = {} if fact is None else {key: fact}
    found = guard.settings({key: expected}, facts, "n7")
    assert (found.outcome is Outcome.INVALID) is wrong
    assert not wrong or f"n7: {key} is {fact}; demanded: {key} {expected}" in str(found)


def test_what_nobody_told_has_not_changed():
    """A client of Lustre whose CPU others had did not answer in time."""
    expect = {"lustre.osts": 4, "tunable.osc.checksums": "1"}
    told = {"unanswered.lustre": True, "kernel": "6.1"}
    found = guard.settings(expect, told, "n7")
    assert found.outcome is Outcome.WARN
    assert "n7 did not tell lustre.osts, tunable.osc.checksums" in str(found)
    told["lustre.osts"] = 3
    found = guard.settings(expect, told, "n7")
    assert found.outcome is Outcome.INVALID
    assert "checksums" not in str(found)


@pytest.mark.parametrize(
    "key", ["tunable.osc.checksums", "lustre.servers", "layout.stripe_bytes"]
)
def test_a_fact_can_be_expected(key):
    assert TypeAdapter(Expected).validate_python(key) == key


@pytest.mark.parametrize(
    "key", ["tunable.ost.checksums", "lustre.server", "stripe_count", "nodes"]
)
def test_what_is_no_fact_is_a_mistake(key):
    with pytest.raises(ValidationError):
        TypeAdapter(Expected).validate_python(key)
