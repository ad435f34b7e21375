"""A file system that is filled up to a level on purpose: only if the site allows it, and never for longer than the case."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from e2e.rig import MIB, Rig, wait_for
from support.devices import Devices

pytestmark = [pytest.mark.needs_fio, pytest.mark.needs_loop]

LEVEL = 80


def fillable(rig: Rig, fill_bytes: str | None = "900 MiB") -> None:
    """Declare the levels, and the bytes that may be taken."""
    data = rig.settings()
    (partition,) = data["systems"][0]["partitions"]
    partition["extras"]["sweeps"] = {"fill_levels": [0, LEVEL]}
    if fill_bytes:
        partition["extras"]["limits"]["fill_bytes"] = fill_bytes
    rig.write_settings(data)


@pytest.fixture(scope="module")
def rig(make_module_rig: Callable[..., Rig], module_devices: Devices) -> Rig:
    """A site on a file system of 1 GiB of its own."""
    target = module_devices.formatted("ext4") / "target"
    return make_module_rig(tools=("fio",), tasks=1, target=target, limits={"case_bytes": "32 MiB"})


def fill_of(path: Path) -> float:
    info = os.statvfs(path)
    return 1 - info.f_bavail / (info.f_blocks - info.f_bfree + info.f_bavail)


def test_the_target_is_as_full_as_declared_while_it_is_measured(rig: Rig) -> None:
    fillable(rig)
    planned = rig.iogauge("plan", "-n", f"^FillLevel%fill={LEVEL}")
    assert "932 MiB" in planned.out, planned.out
    before = fill_of(rig.target)
    rig.program(
        "fio",
        f'df --output=pcent "$IOG_DIR" | tail -n 1 >>{rig.base}/df\nexec "$real" "$@"',
    )
    done = rig.run("-n", f"^FillLevel%fill={LEVEL}")
    (rig.bin / "fio").unlink()
    rig.assert_clean()
    assert fill_of(rig.target) == pytest.approx(before, abs=0.002)
    assert done.record["verdict"] == "UNREFERENCED", done.record["reason"]
    # The case has 32 MiB of 1 GiB, and df rounds up.
    full = [int(word.rstrip("%")) for word in (rig.base / "df").read_text().split()]
    assert full and all(LEVEL - 1 <= share <= LEVEL + 5 for share in full), full
    (said,) = {f["saw"] for f in done.record["findings"] if "full, within" in f["demands"]}
    assert re.match(r"80\.\d% full, \d+ MiB of it in files of this case", said), said


@pytest.mark.parametrize(
    ("fill_bytes", "cause"),
    [
        (None, r"limits.fill_bytes is not set: filling needs the site's permission"),
        ("100 MiB", r"\d+ MiB are missing, and limits.fill_bytes allows 100 MiB"),
    ],
)
def test_nothing_is_filled_without_permission(rig: Rig, fill_bytes: str | None, cause: str) -> None:
    fillable(rig, fill_bytes)
    before = fill_of(rig.target)
    rig.program("fio", f'touch {rig.base}/ran\nexec "$real" "$@"')
    done = rig.run("-n", f"^FillLevel%fill={LEVEL}")
    (rig.bin / "fio").unlink()
    done.never_passed(cause)
    assert done.record["verdict"] == ("INVALID" if fill_bytes else "ERROR")
    assert not (rig.base / "ran").exists()
    assert fill_of(rig.target) == pytest.approx(before, abs=0.001)
    rig.assert_clean()


def test_what_fills_the_target_goes_after_a_kill(rig: Rig) -> None:
    fillable(rig)
    rig.program("fio", f"touch {rig.base}/holds\nsleep 300")
    process = rig.start(["reframe", "-c", "checks/", "-r", "-n", f"^FillLevel%fill={LEVEL}"])
    wait_for((rig.base / "holds").exists, 60, "fio to start on a full target")
    assert fill_of(rig.target) > LEVEL / 100 - 0.02

    rig.kill(process.pid)
    process.communicate(timeout=100)
    (rig.bin / "fio").unlink()
    left = sum(path.stat().st_blocks * 512 for path in rig.leftovers() if path.is_file())
    assert left > 600 * MIB
    assert rig.iogauge("clean").rc == 0
    rig.assert_clean()
    assert fill_of(rig.target) < 0.05
