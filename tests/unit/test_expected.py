"""G25: settings that a site demands, as the nodes have them."""

import pytest
from pydantic import TypeAdapter, ValidationError

from iogauge.guards.finding import Outcome
from iogauge.guards.preflight import expected_settings
from iogauge.site.extras import Expected


@pytest.mark.parametrize(
    ("key", "expected", "fact", "wrong"),
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
    found = expected_settings(
        expect={key: expected}, facts=facts, host="n7", path="/work", fsname="work"
    )
    assert (found.outcome is Outcome.INVALID) is wrong


@pytest.mark.parametrize(
    ("key", "expected", "command"),
    [
        ("tunable.osc.checksums", 1, "lctl set_param osc.work-*.checksums=1"),
        ("mount.options", "flock", "mount -o remount,flock /work"),
        ("layout.stripe_count", 1, "lfs setstripe -c 1 /work"),
        ("layout.stripe_count", "1,4", "correct expect.layout.stripe_count"),
        ("kernel", "6.1", "correct expect.kernel"),
    ],
)
def test_the_command_that_sets_it_is_named(key, expected, command):
    found = expected_settings(
        expect={key: expected},
        facts={key: "other"},
        host="n7",
        path="/work",
        fsname="work",
    )
    assert found.outcome is Outcome.INVALID
    assert f"n7: {key} is other" in str(found)
    assert command in str(found)


def test_one_command_sets_count_and_size_of_stripes():
    """On Lustre 2.17 a second setstripe puts the usual value in place of what the first one set."""
    expect = {"layout.stripe_count": 2, "layout.stripe_bytes": 1048576}
    facts = {"layout.stripe_count": 1, "layout.stripe_bytes": 4194304}
    found = expected_settings(
        expect=expect, facts=facts, host="n7", path="/work", fsname="work"
    )
    assert found.remedy.startswith("lfs setstripe -c 2 -S 1048576 /work. Or correct")


def test_what_nobody_told_has_not_changed():
    """A client of Lustre whose CPU others had did not answer in time."""
    expect = {"lustre.osts": 4, "tunable.osc.checksums": "1"}
    told = {"unanswered.lustre": True, "kernel": "6.1"}
    found = expected_settings(
        expect=expect, facts=told, host="n7", path="/work", fsname="work"
    )
    assert found.outcome is Outcome.WARN
    assert "n7 did not tell lustre.osts, tunable.osc.checksums" in str(found)
    told["lustre.osts"] = 3
    found = expected_settings(
        expect=expect, facts=told, host="n7", path="/work", fsname="work"
    )
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
