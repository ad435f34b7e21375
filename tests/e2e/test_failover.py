"""I/O across a failure for real: ext4 on a loop device that freezes, and storage that loses what it has acknowledged."""

import re

import pytest

from e2e.rig import verdict_of

pytestmark = [pytest.mark.needs_loop]

#: Seconds of the stream, and before the failure.
SECONDS, AFTER = 24, 6


@pytest.fixture
def disk(devices):
    """A file system of its own."""
    return devices.formatted("ext4", mib=400)


@pytest.fixture
def rig(make_rig, disk):
    return make_rig(
        tools=("fio",),
        tasks=1,
        target=disk / "target",
        limits={"phase_seconds": f"{SECONDS} s", "case_bytes": "128 MiB"},
    )


def fail(rig, command):
    """Run the check, with a command that lets the storage fail."""
    rig.declare(failover={"command": command, "after": f"{AFTER} s"})
    rig.write_references({"Failover": {"outage_s": [1, None, 9, "s"]}})
    return rig.run("-n", "^Failover$")


def test_a_frozen_file_system_is_an_outage_and_loses_nothing(rig, disk):
    done = fail(rig, f"fsfreeze -f {disk}; sleep 4; fsfreeze -u {disk}")
    rig.assert_clean()
    record = done.record
    found = {metric["name"]: metric for metric in record["metrics"]}
    assert verdict_of(found["outage_s"]) == "PASS", record["reason"]
    assert 4 <= found["outage_s"]["median"] < 8
    assert found["outage_median_s"]["median"] == found["outage_s"]["median"]
    assert found["recovery_s"]["median"] >= 4
    assert found["succeeded"]["median"] == 1
    assert found["meanwhile_bw"]["median"] < 0.3 * found["before_bw"]["median"]
    # A machine that others keep busy need not come back to 95 % of what it had.
    if verdict_of(found["recovery_s"]) == "UNSTABLE":
        assert "95% of" in record["reason"]
    else:
        assert record["verdict"] == "UNREFERENCED", record["reason"]
        assert found["after_bw"]["median"] > 0.1 * found["before_bw"]["median"]
    assert (found["intact"]["median"], verdict_of(found["intact"])) == (1, "PASS")
    (over_time,) = found["before_bw"]["rounds"]
    assert min(over_time.values()) == 0 and float(max(over_time, key=float)) >= SECONDS


def test_storage_that_goes_back_to_an_older_state_is_invalid(rig, disk, devices):
    """What was acknowledged for three seconds is gone when it comes back, as from a server without its write cache.

    Its directories are of two times then: what can be removed is for nobody to say.
    """
    (image,) = devices.folder.glob("image*")
    done = fail(
        rig,
        f"cp {image} {image}.old; sleep 3; fsfreeze -f {disk}; cat {image}.old 1<>{image}; sleep 3; fsfreeze -u {disk}",
    )
    damaged = "Bad message|Structure needs cleaning|No such file"
    if done.record["verdict"] == "ERROR" and re.search(damaged, done.record["reason"]):
        pytest.skip("the directory itself came back damaged: nothing in it can be read")
    done.never_passed(r"that \w+ had acknowledged with fsync are wrong, as")
    intact = done.record["metrics"][-1]
    assert (intact["name"], verdict_of(intact)) == ("intact", "INVALID")
    assert 0 < intact["median"] < 1
