"""What a partition's extras say."""

import copy

import pytest
from pydantic import ValidationError

from iogauge.site.extras import PartitionExtras, Target
from support.extras import EXTRAS

GOOD = EXTRAS | {"target": {"path": "/scratch", "type": "ext4"}}


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
        "acceptance": {"case_bytes": "64 GiB", "nodes": 4},
    }
    cases = {"Burst": {"case_bytes": "8 GiB"}, "Steady": {"tier": "acceptance"}}
    extras = PartitionExtras.of_partition({**GOOD, "tiers": tiers, "cases": cases})
    accepted = extras.for_check("IorPosix", "acceptance")
    assert (accepted.limits.case_bytes, accepted.scale.nodes) == (64 << 30, 4)
    assert accepted.limits.tier == "quick"
    # The tier that is declared, where a run asks for none.
    usual = extras.for_check("IorPosix")
    assert (usual.limits.case_bytes, usual.limits.repetitions) == (2 << 30, 1)
    assert extras.for_check("IorPosix", "daily") == extras
    assert extras.for_check("Burst", "acceptance").limits.case_bytes == 8 << 30
    steady = extras.for_check("Steady").limits
    assert (steady.tier, steady.case_bytes) == ("acceptance", 64 << 30)


@pytest.mark.parametrize(
    "target, striped_by",
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
    "path, lock, place",
    [
        ("/scratch", None, "/scratch"),
        ("/scratch", "/locks", "/locks"),
        ("$DW_JOB_STRIPED", None, None),
        ("$DW_JOB_STRIPED", "/locks", "/locks"),
    ],
)
def test_where_the_lock_is(path, lock, place):
    target = {"path": path, "type": "ext4", "lock": lock}
    extras = PartitionExtras.of_partition(changed("target", target))
    assert extras.target.lock_place == place


def test_partitions_on_one_file_system_have_one_lock():
    """Five partitions of a real Lustre ran at once and loaded each other."""

    def target(path, **more):
        return Target(path=path, type="lustre", **more)

    first = target("/s/a", uuid="x-0", source="mgs@tcp:/s")
    by_uuid = target("/s/b", uuid="x-0")
    by_source = target("/s/c", source="mgs@tcp:/s")
    declared = target("/s/d", uuid="x-0", lock="/s/locks")
    disks = [target(f"/disk{n}", source="/dev/sda1") for n in range(2)]
    assert by_uuid.locks([first, by_uuid]) == ("/s/a", "/s/b")
    assert first.locks([first, by_uuid]) == ("/s/a",)
    assert by_source.locks([by_source, target("/s/e", source="mgs@tcp:/s")]) == (
        "/s/c",
    )
    assert by_uuid.locks([first, by_uuid, declared]) == ("/s/locks", "/s/b")
    assert declared.locks([first, declared]) == ("/s/locks",)
    assert disks[1].locks(disks) == ("/disk1",)
    assert by_uuid.locks([target("/t", uuid="y-0"), by_uuid]) == ("/s/b",)


@pytest.mark.parametrize("lock", ["locks", "$HOME", "/a/../b", "/a b", ""])
def test_a_lock_that_is_no_absolute_path_is_refused(lock):
    with pytest.raises(ValidationError, match="lock"):
        PartitionExtras.of_partition(changed("target.lock", lock))
