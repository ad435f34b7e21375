"""The README's first commands on a Debian that has nothing but what the README asks for, in a tree of its own."""

import os
import shutil
from pathlib import Path

import pytest

from support.project import copied
from support.shell import completed

pytestmark = pytest.mark.nightly

PACKAGES = "ca-certificates,gcc,git,make,python3-venv"
#: The tree is a mount of its own, and goes with the process that sees it.
ENTER = """set -e
mount --bind "$1" "$1"
mount -t proc proc "$1/proc"
mount --rbind /dev "$1/dev"
mount --rbind /sys "$1/sys"
exec chroot "$1" setpriv --reuid me --regid me --clear-groups \
    env HOME=/home/me USER=me sh -c 'cd /home/me/iogauge && exec sh -c "$0"' "$2"
"""
#: How this machine reaches the package indices.
CONNECTION = ("etc/resolv.conf", "etc/pip.conf", "etc/ssl/certs/ca-certificates.crt")


@pytest.fixture(scope="module")
def debian(tmp_path_factory):
    """A fresh Debian whose user 1000 has this project and a directory /scratch/me."""
    if os.getuid() != 0 or shutil.which("debootstrap") is None:
        pytest.skip("root with debootstrap only")
    root = tmp_path_factory.mktemp("bare") / "root"
    done = completed(
        ["debootstrap", "--variant=minbase", f"--include={PACKAGES}", "bookworm", root]
    )
    if done.returncode:
        pytest.skip(f"no Debian to be had: {done.stdout[-200:]}")
    for name in CONNECTION:
        if Path("/", name).exists():
            shutil.copy(Path("/", name), root / name)
    completed(["chroot", root, "useradd", "--uid", "1000", "--user-group", "me"])
    for place in (root / "home/me/iogauge", root / "scratch/me"):
        place.mkdir(parents=True)
    copied(root / "home/me/iogauge")
    completed(["chown", "-R", "1000:1000", root / "home/me", root / "scratch/me"])
    yield root
    shutil.rmtree(root)


def run(root, command):
    words = ["unshare", "--mount", "--propagation", "private", "sh", "-c", ENTER]
    return completed([*words, "sh", root, command], timeout=3600)


def test_one_command_leads_to_a_table(debian):
    """Spack builds the programs; where GitHub is not reached, fio comes from Debian's packages."""
    case = "-n FioRandomRead%block=128 -S repetitions=1"
    done = run(debian, f"make bench TARGET=/scratch/me ARGS='{case}'")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "iogauge: nothing proven: 1 " in done.stdout
    assert ("tried: Spack: " in done.stdout) != (" ior     /home" in done.stdout)
    assert list((debian / "scratch/me").iterdir()) == []


def test_a_second_command_builds_nothing(debian):
    done = run(debian, "IOGAUGE_BUILD=no ci/bring && . ./activate && iogauge --version")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "  fio     /home/me/iogauge/" in done.stdout
