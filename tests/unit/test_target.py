"""What a partition's extras say."""

import copy

import pytest
from pydantic import ValidationError

from iogauge.site.extras import PartitionExtras

GOOD = {
    "target": {"path": "/scratch", "type": "ext4"},
    "node": {"cores": 4, "memory": "16 GiB"},
    "scale": {"tasks_per_node": 2},
    "limits": {
        "case_bytes": "1 GiB",
        "case_files": 100,
        "phase_seconds": "2 s",
        "tier": "quick",
    },
}


def changed(path, value):
    data = copy.deepcopy(GOOD)
    *parents, last = path.split(".")
    place = data
    for part in parents:
        place = place[part]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return data


@pytest.mark.parametrize("path", [f"{part}.x" for part in GOOD])
def test_an_unknown_key_is_refused_at_every_level(path):
    with pytest.raises(ValidationError, match="Extra inputs"):
        PartitionExtras.of_partition(changed(path, 1))


def test_the_smallest_case_is_one_mebibyte():
    extras = PartitionExtras.of_partition(changed("limits.case_bytes", "1 MiB"))
    assert extras.limits.case_bytes == 1 << 20
    with pytest.raises(
        ValidationError, match="case_bytes is 1024 KiB: needs at least 1 MiB"
    ):
        PartitionExtras.of_partition(changed("limits.case_bytes", "1048575 B"))


# --- beyond what every site needs -----------------------------------------------------------------


def test_a_tier_may_have_sizes_of_its_own_and_a_check_others_in_every_tier():
    tiers = {
        "quick": {"case_bytes": "2 GiB", "repetitions": 1},
        "acceptance": {"case_bytes": "64 GiB", "nodes": 4, "writes_first": True},
    }
    cases = {"Burst": {"case_bytes": "8 GiB"}, "Steady": {"tier": "acceptance"}}
    extras = PartitionExtras.of_partition({**GOOD, "tiers": tiers, "cases": cases})
    accepted = extras.for_check("IorPosix", "acceptance")
    assert (accepted.limits.case_bytes, accepted.scale.nodes) == (64 << 30, 4)
    assert accepted.limits.writes_first and accepted.limits.tier == "quick"
    # The tier that is declared, where a run asks for none.
    usual = extras.for_check("IorPosix")
    assert (usual.limits.case_bytes, usual.limits.repetitions) == (2 << 30, 1)
    assert extras.for_check("IorPosix", "daily") == extras
    assert extras.for_check("Burst", "acceptance").limits.case_bytes == 8 << 30
    steady = extras.for_check("Steady").limits
    assert (steady.tier, steady.case_bytes) == ("acceptance", 64 << 30)


@pytest.mark.parametrize(
    ("extras", "message"),
    [
        ({"sweeps": {"servers": [1, 2, 1]}}, "servers names a point twice"),
        ({"sweeps": {"stripe_sizes": ["100000 B"]}}, "multiple of 65536"),
        ({"hosts": ["n1", "-x"]}, "String should match"),
        ({"interface": "eth0; rm"}, "String should match"),
        ({"rights": ["root"]}, "lustre-checksums"),
    ],
)
def test_what_makes_no_sense_is_refused(extras, message):
    with pytest.raises(ValidationError, match=message):
        PartitionExtras.of_partition({**GOOD, **extras})


@pytest.mark.parametrize(
    ("target", "striped_by"),
    [
        ({"type": "lustre"}, "lustre"),
        ({"type": "ext4"}, "none"),
        ({"type": "ext4", "striping": "lustre"}, "lustre"),
        ({"type": "lustre", "striping": "none"}, "none"),
    ],
)
def test_who_stripes_follows_from_the_type_unless_declared(target, striped_by):
    extras = PartitionExtras.of_partition({**GOOD, "target": {"path": "/s", **target}})
    assert extras.target.striped_by == striped_by


@pytest.mark.parametrize("path", ["$DW/x", "$DW$DW", "$(id)"])
def test_no_other_use_of_a_dollar_is_a_path(path):
    with pytest.raises(ValidationError, match="absolute path"):
        PartitionExtras.of_partition({**GOOD, "target": {"path": path, "type": "dvs"}})


@pytest.mark.parametrize(
    ("path", "lock", "place", "places"),
    [
        ("/scratch", None, "/scratch", ("/scratch",)),
        ("/scratch", "/locks", "/locks", ("/scratch", "/locks")),
        ("/scratch", "/scratch", "/scratch", ("/scratch",)),
        ("$DW_JOB_STRIPED", None, None, ()),
        ("$DW_JOB_STRIPED", "/locks", "/locks", ("/locks",)),
    ],
)
def test_where_the_lock_is(path, lock, place, places):
    target = {"path": path, "type": "ext4", "lock": lock}
    extras = PartitionExtras.of_partition(changed("target", target))
    assert (extras.target.lock_place, extras.target.places) == (place, places)


@pytest.mark.parametrize("lock", ["locks", "$HOME", "/a/../b", "/a b", ""])
def test_a_lock_that_is_no_absolute_path_is_refused(lock):
    with pytest.raises(ValidationError, match="lock"):
        PartitionExtras.of_partition(changed("target.lock", lock))
