"""A file system with a device out: the same case as on the healthy file system, and compared with its record."""

from __future__ import annotations

import copy
import shutil
from collections.abc import Callable
from typing import Any

import pytest

from e2e.rig import Rig, Run, mount_of
from e2e.test_derived import derive, keep
from support.devices import Devices
from support.devices import run as system

pytestmark = [pytest.mark.needs_fio, pytest.mark.needs_loop]

CASE = ("-n", "^FioSequential%files=per-process%cache=direct%block=1MiB$")


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig], module_devices: Devices) -> tuple[Rig, Run, Run]:
    """Two partitions, each a btrfs that mirrors two devices, and a run on each; one device of the second is out."""
    if shutil.which("mkfs.btrfs") is None:
        pytest.skip("mkfs.btrfs is not on PATH")
    points = {}
    for name in ("healthy", "degraded"):
        first, second = (
            module_devices.loop(module_devices.image(f"{name}{n}", 1024)) for n in (1, 2)
        )
        system("mkfs.btrfs", "-q", "--data", "raid1", "--metadata", "raid1", first, second)
        options = "rw"
        if name == "degraded":
            # One that was never mounted whole: a mount that another test's hosts keep holds its devices.
            system("wipefs", "--all", "--quiet", second)
            options = "degraded"
        points[name] = module_devices.mount(first, name, "btrfs", options)
    rig = make_module_rig(tools=("fio",), target=points["healthy"] / "t")
    settings = rig.settings()
    (healthy,) = settings["systems"][0]["partitions"]
    healthy["name"] = "healthy"
    degraded: dict[str, Any] = copy.deepcopy(healthy)
    degraded["name"] = "degraded"
    _, source = mount_of(points["degraded"])
    (points["degraded"] / "t").mkdir()
    degraded["extras"]["target"] |= {"path": str(points["degraded"] / "t"), "source": source}
    degraded["extras"]["baseline"] = {"partition": "healthy", "checks": ["FioSequential"]}
    settings["systems"][0]["partitions"].append(degraded)
    rig.write_settings(settings)
    whole = rig.run(*CASE, "--system=rig:healthy")
    part = rig.run(*CASE, "--system=rig:degraded")
    rig.assert_clean()
    return rig, whole, part


def test_both_are_believed(rig: tuple[Rig, Run, Run]) -> None:
    """The second copy of each block has no device: the one that is there moves all bytes once."""
    _, whole, part = rig
    for run in (whole, part):
        assert run.record["verdict"] == "UNREFERENCED", run.record["reason"]
        seen = [f for f in run.record["findings"] if "the kernel counts" in f["demands"]]
        assert [(f["metric"], f["outcome"]) for f in seen] == [
            ("write_bw", "ok"),
            ("read_bw", "ok"),
        ]


def test_a_device_that_is_out_starts_a_series(rig: tuple[Rig, Run, Run]) -> None:
    _, whole, part = rig
    options = [run.record["fingerprint"]["mount.options"].split(",") for run in (whole, part)]
    assert ["degraded" in one for one in options] == [False, True]
    assert whole.record["series"] != part.record["series"]


def test_the_degraded_is_compared_with_the_healthy(rig: tuple[Rig, Run, Run]) -> None:
    made, whole, part = rig
    keep(made, *whole.records, *part.records)
    done = derive(made, "-n", "^AgainstBaseline", "--system=rig:degraded")
    before, after = (
        {metric["name"]: metric["median"] for metric in run.record["metrics"]}
        for run in (whole, part)
    )
    found = {metric["name"]: metric["median"] for metric in done.record["metrics"]}
    for name, value in after.items():
        assert found[f"{name}_ratio"] == pytest.approx(value / before[name]), done.out
