"""What lies below the mount decides whether a figure is believed, on real devices."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from e2e.rig import Rig
from e2e.test_never_pass import RANDOM_READ
from e2e.test_values import GENEROUS
from iogauge.workspace import permission
from support.devices import Devices, encryption, overlay, run

pytestmark = [
    pytest.mark.needs_loop,
    pytest.mark.needs_fio,
    pytest.mark.skipif(os.getuid() != 0, reason="needs root"),
]


@pytest.fixture
def devices(storage: Path) -> Iterator[Devices]:
    folder = storage / f"devices{len(list(storage.iterdir()))}"
    folder.mkdir()
    with contextlib.ExitStack() as leaving:
        yield Devices(folder, leaving)


def journalled(devices: Devices) -> Path:
    return devices.made("ext4", devices.loop(devices.image("image", 600)), "data=journal")


def encrypted(devices: Devices) -> Path:
    return encryption(devices, devices.loop(devices.image("image", 600)))


def hidden(devices: Devices) -> Path:
    """On a loop device whose file lies in memory, where nobody sees it."""
    memory = devices.mount("iogauge-test", "memory", "tmpfs")
    loop = devices.loop(Devices(memory, devices.leaving).image("image", 600))
    point = devices.made("ext4", loop)
    devices.mount("iogauge-test", "memory", "tmpfs")
    return point


def partition(devices: Devices) -> Path:
    loop = devices.loop(devices.image("image", 600), direct=False)
    run("addpart", loop, 1, 2048, 1_000_000)
    return devices.made("ext4", Path(f"{loop}p1"))


def volatile(devices: Devices) -> Path:
    storage = devices.made("ext4", devices.loop(devices.image("image", 600)))
    return overlay(devices, storage, "volatile")


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


def mirrored(devices: Devices) -> Path:
    loops = [devices.loop(devices.image(f"image{number}", 600)) for number in range(2)]
    return devices.made("btrfs", loops[0], "rw", "-d", "raid1", "-m", "raid1", str(loops[1]))


def over(devices: Devices) -> Path:
    return overlay(devices, devices.made("xfs", devices.loop(devices.image("image", 600))))


def bound(devices: Devices) -> Path:
    """A directory of a file system, bound to another place."""
    storage = devices.made("ext4", devices.loop(devices.image("image", 600)))
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
    ("make", "words", "cause"),
    [
        (encrypted, RANDOM_READ, r"honour \(ext4 encrypts what lies here"),
        (zram, RANDOM_READ, r"memory, not storage \(zram0, compressed memory\)"),
        (half_in_memory, RANDOM_READ, r"memory, not storage \(loop\d+ on tmpfs"),
    ],
)
def test_what_lies_below_is_no_storage(
    devices: Devices,
    make_rig: Callable[..., Rig],
    make: Callable[[Devices], Path],
    words: tuple[str, ...],
    cause: str,
) -> None:
    run = rig_on(make_rig, make(devices)).run(*words)
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
def test_what_lies_below_is_storage(
    devices: Devices, make_rig: Callable[..., Rig], make: Callable[[Devices], Path]
) -> None:
    # The device is the test's own: what others move there is a fault of the suite.
    run = rig_on(make_rig, make(devices), max_foreign="10 %").run(*RANDOM_READ)
    assert run.record["verdict"] == "PASS", run.record["reason"]
