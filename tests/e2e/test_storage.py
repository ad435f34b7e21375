"""NFS, exported by this machine to itself: what is healthy passes."""

import shutil
import uuid
from pathlib import Path

import pytest

from e2e.rig import GENEROUS
from support.devices import run

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.needs_loop,
    pytest.mark.needs_ior,
    pytest.mark.needs_fio,
    pytest.mark.needs_root,
]

LOCAL = "127.0.0.1"
#: The server's threads, where an NFS server runs.
THREADS = Path("/proc/fs/nfsd/threads")
#: Nobody else uses the storage of a test.
LIMITS = {"case_bytes": "64 MiB", "max_foreign": "10 %"}
CASES = "IorPosix%files=per-process%order=sequential|FioRandomRead%block=4KiB"


@pytest.mark.parametrize("version", ["3", "4.2"])
def test_what_is_healthy_passes(make_rig, devices, version):
    """Direct, through the page cache, small requests; with a second witness for each byte."""
    if shutil.which("exportfs") is None:
        pytest.skip("needs exportfs, of Debian's package nfs-kernel-server")
    if not THREADS.exists() or THREADS.read_text().strip() == "0":
        pytest.skip("no NFS server runs here: rpc.nfsd 4; rpc.mountd")
    served = devices.formatted("ext4")
    options = f"rw,sync,no_root_squash,no_subtree_check,fsid={uuid.uuid4()}"
    run("exportfs", "-o", options, f"{LOCAL}:{served}")
    devices.leaving.callback(run, "exportfs", "-u", f"{LOCAL}:{served}")
    target = devices.mount(f"{LOCAL}:{served}", "nfs", "nfs", f"vers={version}")
    rig = make_rig(target=target / "t", tools=("fio", "ior"), tasks=1, limits=LIMITS)
    rig.write_references(GENEROUS)
    ran = rig.run("-n", CASES)
    assert [record["verdict"] for record in ran.records] == ["PASS"] * 3, ran.out
    assert "no second witness" not in str(ran.records)
