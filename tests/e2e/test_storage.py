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
LIMITS = {"case_bytes": "256 MiB", "max_foreign": "10 %"}
BUFFERED = "IorPosix%files=per-process%order=sequential%cache=buffered"
CASES = "IorPosix%files=per-process%order=sequential|FioRandomRead%block=4KiB"


def served(make_rig, devices, version):
    """A rig on a file system that this machine exports and mounts."""
    if shutil.which("exportfs") is None:
        pytest.skip("needs exportfs, of Debian's package nfs-kernel-server")
    if not THREADS.exists() or THREADS.read_text().strip() == "0":
        pytest.skip("no NFS server runs here: rpc.nfsd 4; rpc.mountd")
    below = devices.formatted("ext4")
    options = f"rw,sync,no_root_squash,no_subtree_check,fsid={uuid.uuid4()}"
    run("exportfs", "-o", options, f"{LOCAL}:{below}")
    devices.leaving.callback(run, "exportfs", "-u", f"{LOCAL}:{below}")
    target = devices.mount(f"{LOCAL}:{below}", "nfs", "nfs", f"vers={version}")
    rig = make_rig(target=target / "t", tools=("fio", "ior"), tasks=1, limits=LIMITS)
    rig.write_references(GENEROUS)
    return rig


@pytest.mark.parametrize("version", ["3", "4.2"])
def test_what_is_healthy_passes(make_rig, devices, version):
    """Direct, through the page cache, small requests; with a second witness for each byte."""
    ran = served(make_rig, devices, version).run("-n", CASES)
    assert [record["verdict"] for record in ran.records] == ["PASS"] * 3, ran.out
    found = [one for record in ran.records for one in record["findings"]]
    bytes_seen = [one["saw"] for one in found if one["guard"] == "G8"]
    assert bytes_seen and "no second witness" not in str(bytes_seen)


def test_what_another_program_has_read_before_is_no_read_from_the_server(
    make_rig, devices
):
    rig = served(make_rig, devices, "4.2")
    reads = f"find {rig.target} -type f -size +1M -exec cat {{}} + >/dev/null"
    rig.program("ior", f'case " $* " in *" -r "*) {reads} ;; esac\nexec "$real" "$@"')
    ran = rig.run("-n", BUFFERED)
    assert ran.verdict == "INVALID", ran.out
    assert "did not travel between the tool and the storage" in ran.record["reason"]
