"""What lies below the mount decides whether a figure is believed, on real devices."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import Rig
from e2e.test_never_pass import RANDOM_READ
from e2e.test_values import GENEROUS
from iogauge.workspace import permission
from support.devices import Devices, encryption, run

pytestmark = [
    pytest.mark.needs_loop,
    pytest.mark.needs_fio,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root"),
]


def encrypted(devices: Devices) -> Path:
    return encryption(devices, devices.loop(devices.image("image", 600)))


def zram(devices: Devices) -> Path:
    return devices.zram(600)


def half_in_memory(devices: Devices) -> Path:
    """btrfs over two devices, of which the second lies in memory."""
    memory = devices.mount("iogauge-test", "memory", "tmpfs")
    loops = [
        devices.loop(devices.image("image", 600)),
        devices.loop(Devices(memory, devices.leaving).image("image", 600)),
    ]
    return devices.made("btrfs", loops[0], "rw", "-d", "raid0", "-m", "raid1", str(loops[1]))


def over_a_block_device(devices: Devices) -> Path:
    return devices.made("ext4", devices.loop(devices.loop(devices.image("image", 600))))


def bound(devices: Devices) -> Path:
    """A directory of a file system, bound to another place."""
    storage = devices.formatted("ext4", mib=600)
    (storage / "below" / "site").mkdir(parents=True)
    point = devices.folder / "bound"
    point.mkdir()
    run("mount", "--bind", storage / "below" / "site", point)
    devices.leaving.callback(run, "umount", "--lazy", point)
    return point


def rig_on(make_rig: Callable[..., Rig], point: Path, **limits: str) -> Rig:
    (point / permission.MARKER).touch()
    rig = make_rig(target=point, limits={"case_files": 10_000, "case_bytes": "64 MiB", **limits})
    rig.write_references(GENEROUS)
    return rig


@pytest.mark.slow
@pytest.mark.parametrize(
    ("make", "cause"),
    [
        (encrypted, r"honour \(ext4 encrypts what lies here"),
        (zram, r"memory, not storage \(zram0, compressed memory\)"),
        (half_in_memory, r"memory, not storage \(loop\d+ on tmpfs"),
    ],
)
def test_what_lies_below_is_no_storage(devices, make_rig, make, cause):
    run = rig_on(make_rig, make(devices)).run(*RANDOM_READ)
    run.never_passed("INVALID")
    assert run.record["verdict"] == "INVALID"
    findings = " ".join(str(finding) for finding in run.record["findings"])
    assert re.search(cause, findings), findings


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        over_a_block_device,
        bound,
    ],
)
def test_what_lies_below_is_storage(devices, make_rig, make):
    # The device is the test's own: what others move there is a fault of the suite.
    run = rig_on(make_rig, make(devices), max_foreign="10 %").run(*RANDOM_READ)
    assert run.record["verdict"] == "PASS", run.record["reason"]
