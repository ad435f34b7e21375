"""Another file system of the same type: in the target's place, over it, below it, on another node, in mid-run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from e2e.rig import Rig, Run, command, mounted
from e2e.test_several_hosts import run_on
from e2e.test_values import METADATA
from e2e.test_values import RANDOM_READ as CASE
from iogauge.node.view import look
from support import hosts as support
from support.hosts import Hosts

pytestmark = [pytest.mark.needs_fio, pytest.mark.slow]


class Disks:
    """Two ext4 file systems on one loop device, one of them mounted at ``point`` at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.point = folder, folder / "point"
        # No other test takes this one while it is free.
        self.device = f"/dev/loop{1000 + os.getpid() % 1000}"
        for name in ("a", "b"):
            with mounted(self.point, "ext4", 256 << 20, folder / f"{name}.img"):
                (self.point / "bench").mkdir()

    @property
    def target(self) -> Path:
        return self.point / "bench"

    @property
    def uuid(self) -> str:
        return look(str(self.point)).uuid

    def insert(self, name: str) -> str:
        """Put one of them under the device's name, mount it, and return its UUID."""
        self.remove()
        words = ["losetup", "--direct-io=on"]
        image = str(self.folder / f"{name}.img")
        # Hosts of other tests, made meanwhile, keep copies of the mount until they end.
        for _ in range(150):
            done = subprocess.run([*words, self.device, image], check=False, capture_output=True)
            if done.returncode == 0:
                break
            time.sleep(0.2)
        if b"resource busy" in done.stderr:
            pytest.skip(f"{self.device} is held by the hosts of another test")
        done.check_returncode()
        subprocess.run(["mount", self.device, str(self.point)], check=True)
        return self.uuid

    def remove(self) -> None:
        while os.path.ismount(self.point):
            subprocess.run(["umount", str(self.point)], check=True)
        subprocess.run(["losetup", "-d", self.device], check=False, capture_output=True)


@pytest.fixture
def disks(storage: Path) -> Iterator[Disks]:
    folder = storage / "disks"
    folder.mkdir()
    try:
        made = Disks(folder)
        made.insert("a")
    except (OSError, subprocess.SubprocessError) as error:
        shutil.rmtree(folder)
        pytest.skip(f"no ext4 can be mounted here: {error}")
    yield made
    made.remove()
    shutil.rmtree(folder)


def run_again(rig: Rig) -> Run:
    """The same case once more, in the same history."""
    return rig.finish(rig.start(command(*CASE)))


def refused_before_a_byte(run: Run, target: Path, *causes: str) -> None:
    run.never_passed("before a byte was written", *causes)
    assert run.record["verdict"] == "INVALID"
    assert not (target / "iogauge").exists()


def test_a_device_name_that_moved_begins_a_new_series_with_that_cause(make_rig, disks):
    a = disks.insert("a")
    rig = make_rig(target=disks.target)
    first = rig.run(*CASE).record
    b = disks.insert("b")
    again = run_again(rig).records[-1]
    assert (first["verdict"], again["verdict"]) == ("UNREFERENCED", "UNREFERENCED")
    assert first["fingerprint"]["mount.source"] == again["fingerprint"]["mount.source"]
    assert (first["fingerprint"]["fs.uuid"], again["fingerprint"]["fs.uuid"]) == (a, b)
    disks.insert("a")
    run_again(rig)
    for state in json.loads(rig.iogauge("status", "--trend", "--json").out):
        assert state["runs"] == 2
        assert f"fs.uuid: {b} -> {a}" in state["started"]["changed"]


def test_a_declared_uuid_is_demanded_before_a_byte(make_rig, disks):
    a = disks.insert("a")
    rig = make_rig(target=disks.target, declared={"uuid": a})
    assert rig.run(*CASE).record["verdict"] == "UNREFERENCED"
    assert f"UUID {a} (target.uuid)" in rig.iogauge("check", "--all").out
    b = disks.insert("b")
    refused_before_a_byte(rig.run(*CASE), disks.target, f"sees UUID {b}", f"with UUID {a}")
    planned = rig.iogauge("run", "--dry-run", *CASE)
    assert planned.rc == 1
    assert re.search(rf"refused.*{b}", " ".join(planned.out.split()))


def test_a_target_that_is_exchanged_in_the_last_phase_is_seen(make_rig, disks):
    """What is mounted over it has all its directories, so that no path misses anything."""
    a = disks.insert("a")
    rig = make_rig(target=disks.target, declared={"source": None})
    other = disks.folder / "other"
    exchange = f"cp -a {disks.point}/. {other} && mount --bind {other} {disks.point}"
    rig.damage("fio", "*remove.1.json", exchange)
    with mounted(other, "ext4", 256 << 20, disks.folder / "c.img"):
        run = rig.run(*METADATA)
        last = disks.uuid
        disks.remove()
    assert last != a
    run.never_passed(f"sees UUID {last}", "after the last phase", a)
    assert run.record["verdict"] == "INVALID"


@pytest.mark.needs_ior
def test_a_node_with_another_file_system_in_place_refuses_before_a_byte(make_rig, disks, storage):
    reason = support.why_not()
    if reason is not None:
        pytest.skip(reason)
    a = disks.insert("a")
    other = disks.folder / "other"
    with ExitStack() as stack:
        stack.enter_context(mounted(other, "ext4", 64 << 20, disks.folder / "c.img"))
        cluster = stack.enter_context(Hosts(2, storage, disks.point, other))
        b = look(str(other)).uuid
        rig = make_rig(target=disks.target, tools=("ior", "mdtest"), declared={"source": None})
        settings = rig.settings()
        extras = settings["systems"][0]["partitions"][0]["extras"]
        extras |= {"scale": {"nodes": 2, "tasks_per_node": 1}, "hosts": cluster.names}
        rig.write_settings(settings)
        healthy = run_on(cluster, rig, "-n", "^MdtestEasy")
        (record, *_) = healthy.records
        said = {f["guard"]: f["outcome"] for f in record["findings"] if f["metric"] is None}
        # The site declares neither source nor UUID.
        assert said["G9"] == "warn", healthy.out
        assert record["fingerprint"]["fs.uuid"] == a
        shutil.rmtree(rig.home / "history")
        words = ["mount", "--bind", str(other), str(disks.point)]
        assert cluster.run("n2", words).returncode == 0
        run = run_on(cluster, rig, "-n", "^MdtestEasy")
        run.never_passed(f"n2 sees UUID {b}", f"n1 sees UUID {a}", "before a byte was written")
        assert run.record["verdict"] == "INVALID"
        assert cluster.run("n2", ["umount", str(disks.point)]).returncode == 0
