"""A day of an administrator, on a real Slurm of four nodes and a disk that is slowed: from a check to the vendor's bundle."""

from __future__ import annotations

import os
import re
import subprocess
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from e2e.rig import ROOT, Run
from e2e.test_slurm import LIMIT, NODES, RANDOM_READ, Cluster
from support import slurm as support
from support.hosts import Hosts
from support.slurm import Slurm

CAPPED = ROOT / "benchmarks" / "capped-fs"

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.slow,
    pytest.mark.needs_slurm,
    pytest.mark.needs_fio,
    pytest.mark.needs_loop,
    pytest.mark.skipif(
        not os.access("/sys/fs/cgroup/blkio/blkio.throttle.read_bps_device", os.W_OK),
        reason="mounts and slows a disk: needs root and cgroup v1 blkio",
    ),
]


@pytest.fixture
def disk(storage: Path) -> Iterator[Path]:
    place = storage / "day"
    subprocess.run([CAPPED, "up", place, "1G", "40"], check=True, timeout=600)
    yield place
    subprocess.run([CAPPED, "down", place], check=True, timeout=600)


def test_a_day(storage, disk, make_rig):
    if (reason := support.why_not(False)) is not None:
        pytest.skip(reason)
    with Hosts(NODES + 1, storage) as hosts, Slurm(hosts, False) as slurm:
        limits = {"repetitions": 1, "phase_seconds": "1 s", "case_bytes": "32 MiB"}
        rig = make_rig(target=disk / "mnt", limits=limits, time_limit=LIMIT)
        cluster = Cluster(rig, slurm, scheduler="squeue")
        told = disk / "told"
        data = yaml.safe_load((rig.site / "settings.yaml").read_text())
        (partition,) = data["systems"][0]["partitions"]
        partition["extras"]["alarm"] = {"command": f"tee {told}"}
        rig.write_settings(data)

        def iogauge(*words: str, status: int = 0) -> Run:
            path = f"{rig.environment()['PATH']}:/usr/sbin:/sbin"
            command = slurm.hosts.command(slurm.head, ["iogauge", *words])
            run = rig.finish(rig.start(command, **{**slurm.environment, "PATH": path}), 240)
            assert run.rc == status, f"{words}\n{run.out}"
            return run

        only = ("--system=rig", "-n", f"^{RANDOM_READ}")
        assert "ready: rig" in iogauge("check", "rig").out
        iogauge("alarm", "--test", "--expect", "rig:default")
        assert "a test of the alarm's way" in told.read_text()

        # In the window somebody exchanges a controller, and the storage is slow.
        assert "Do the work" in iogauge("window", "start", "--runs=3", *only).out
        subprocess.run([CAPPED, "cap", disk, "20"], check=True, timeout=600)
        page = disk / "window.html"
        said = iogauge("window", "end", f"--html={page}").out
        assert re.search(r"the work made 2 worse and 0 better, of 2", said), said
        assert "after the work" in page.read_text()
        ratio = float(re.findall(r"read_bw.*?3/3\s+([\d.]+)", said)[0])
        assert ratio == pytest.approx(0.5, rel=0.2)

        # A reference of before: the alarm says so, and the vendor gets the raw outputs.
        rig.write_references(
            "$sources: {RandomRead: before}\nRandomRead:\n  'rig:default': {read_bw: [40, -0.2, null, MiB/s], read_iops: [320, -0.2, null, ops/s]}\n"
        )
        assert "1 failed (FAIL)" in iogauge("run", *only, status=1).out
        said = iogauge("alarm", "--send", status=1).out
        assert "below its reference" in said and "below its reference" in told.read_text()
        file = disk / "vendor.tar.gz"
        iogauge("report", f"--bundle={file}", "--yes", status=1)
        with tarfile.open(file) as tar:
            names = tar.getnames()
        assert {"vendor/page.html", "vendor/commands.sh", "vendor/SHA256SUMS"} <= set(names)
        assert any(re.search(r"raw/.*fio-randread\.1\.json$", name) for name in names), names

        # The repair.
        subprocess.run([CAPPED, "cap", disk, "40"], check=True, timeout=600)
        assert "ok: 1 passed" in iogauge("run", *only).out
        assert "1 passed" in iogauge("status", "--system=rig").out
        cluster.assert_nothing_left()
