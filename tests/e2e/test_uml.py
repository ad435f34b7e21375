"""NFS in a guest of User Mode Linux: its kernel serves and mounts it, whatever that of this machine can do."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from support.project import ROOT
from support.shell import completed

pytestmark = [pytest.mark.nightly, pytest.mark.needs_root, pytest.mark.needs_ior]

PROGRAMS = ("linux.uml", "exportfs", "mount.nfs", "rpcbind")


def test_what_holds_on_nfs_holds_in_a_guest(tmp_path):
    """The tests of test_storage.py run there, and none is skipped."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        pytest.skip(
            f"not on PATH: {', '.join(missing)} (user-mode-linux, nfs-kernel-server)"
        )
    if " amx_tile" in Path("/proc/cpuinfo").read_text():
        pytest.skip("User Mode Linux starts on no processor with AMX")
    kernel = Path(shutil.which("linux.uml")).resolve()
    disk = tmp_path / "disk"
    with disk.open("wb") as file:
        file.truncate(4 << 30)
    words = [
        str(kernel),
        "mem=2G",
        "root=/dev/root",
        "rootfstype=hostfs",
        "rw",
        f"ubda={disk}",
        f"uml_dir={tmp_path}/",
        "con=null",
        "con0=null,fd:1",
        f"init={ROOT}/tests/support/guest-init",
        f"PLACE={ROOT}",
        f"PYTHON={sys.executable}",
        f"MODULES={kernel.parents[1]}/lib/uml/modules",
        f"PATH={os.environ['PATH']}",
    ]
    done = completed(words, stdin=subprocess.DEVNULL, timeout=3000)
    assert "\n3 passed in " in done.stdout.replace("\r", ""), done.stdout
