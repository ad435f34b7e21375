"""A long write on a device whose burst ends in the middle of it: what the series in time shows."""

from __future__ import annotations

import os
import re
from collections.abc import Callable

import pytest

from e2e.rig import MIB, Rig
from support.devices import THROTTLE, Devices, capped

SECONDS = 16
BURST, REST = 40, 10
_FIGURES = ("write_bw", "write_best_minute", "write_worst_minute", "write_longest_dip")

pytestmark = pytest.mark.needs_fio


@pytest.mark.needs_loop
def test_a_burst_that_ends_is_found(make_rig: Callable[..., Rig], devices: Devices) -> None:
    target = devices.formatted("ext4")
    node = os.stat(devices.last).st_rdev
    slower = f"{os.major(node)}:{os.minor(node)} {REST * MIB}"
    rig = make_rig(
        tools=("fio",),
        tasks=1,
        target=target / "target",
        limits={"phase_seconds": f"{SECONDS} s", "case_bytes": "64 MiB"},
    )
    # The device slows down after half of the write.
    rig.program(
        "fio",
        f'case ${{@: -1}} in write.fio) (sleep {SECONDS / 2}; echo "{slower}" > '
        f"{THROTTLE}/blkio.throttle.write_bps_device) & ;; esac\n"
        'exec "$real" "$@"',
    )
    with capped(devices.last, written=BURST * MIB):
        done = rig.run("-n", "^Endurance$")
    record = done.record
    assert record["verdict"] in ("UNREFERENCED", "CONTAMINATED"), record["reason"]
    found = {metric["name"]: metric["median"] for metric in record["metrics"]}
    assert tuple(found) == _FIGURES
    # A window lasts one second here. If others keep the disk below busy for a part of one, the worst
    # window is lower than the level, and a disk that catches up makes the best one higher.
    assert found["write_best_minute"] == pytest.approx(BURST, rel=0.3)
    assert 0 < found["write_worst_minute"] < 1.15 * REST
    (steadiness,) = {f["saw"] for f in record["findings"] if "level" in f["demands"]}
    words = re.match(r"from ([\d.]+) MiB/s to ([\d.]+) MiB/s after ([\d.]+) s", steadiness)
    assert words, steadiness
    assert [float(word) for word in words.groups()] == pytest.approx(
        [BURST, REST, SECONDS / 2], rel=0.2
    )
    (minutes,) = record["metrics"][0]["rounds"]
    assert len(minutes) == SECONDS
    of_minutes = minutes.values()
    slowest, fastest = min(of_minutes), max(of_minutes)
    assert slowest < fastest
    assert found["write_worst_minute"] <= slowest * 1.001
    assert found["write_best_minute"] >= fastest * 0.999
    rig.assert_clean()
