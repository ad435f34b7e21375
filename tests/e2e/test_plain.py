"""``reframe -c checks/ -r`` on a healthy machine: no case is INVALID, and no tool fails.

By night on each kind of file system that can be made here, at rest and while both cores are busy.
"""

from __future__ import annotations

import contextlib
import multiprocessing
from collections.abc import Iterator

import pytest

from support.devices import Devices, overlay

pytestmark = [
    pytest.mark.needs_ior,
    pytest.mark.needs_fio,
    pytest.mark.needs_loop,
    pytest.mark.slow,
    pytest.mark.nightly,
]

#: Where nothing can be proven of a case on this machine, it says so by another word.
BELIEVED = {"PASS", "UNREFERENCED", "UNSTABLE", "CONTAMINATED"}


def _spin() -> None:
    while True:
        pass


@contextlib.contextmanager
def _busy(processes: int) -> Iterator[None]:
    """Programs that keep so many cores busy."""
    context = multiprocessing.get_context("spawn")
    started = [context.Process(target=_spin, daemon=True) for _ in range(processes)]
    try:
        for one in started:
            one.start()
        yield
    finally:
        for one in started:
            one.kill()
            one.join()


@pytest.mark.parametrize("busy", [0, 2], ids=["at rest", "busy"])
@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "overlay"])
def test_nothing_healthy_is_refused(make_rig, tmp_path, kind, busy):
    with contextlib.ExitStack() as leaving:
        devices = Devices(tmp_path, leaving)
        loop = devices.loop(devices.image("image", 12 << 10))
        point = devices.made("ext4" if kind == "overlay" else kind, loop)
        if kind == "overlay":
            point = overlay(devices, point)
        rig = make_rig(
            target=point / "t",
            tools=("fio", "ior", "md-workbench", "mdtest"),
            # A machine that nobody has described gets up to twice as much: a 32nd of it still takes as long as G4 demands.
            limits={"phase_seconds": "3 s", "case_bytes": "512 MiB"},
        )
        leaving.enter_context(_busy(busy))
        found = rig.run(timeout=3000)
        wrong = [
            f"{one['case']}: {one['reason']}"
            for one in found.records
            if one["verdict"] not in BELIEVED
        ]
        assert len(found.records) > 30 and not wrong, "\n".join(wrong)
        assert found.rc == 0, found.out[-3000:]
