"""Mounts, file-system types, space and quota."""

import re

import pytest

from iogauge.node import mounts
from iogauge.node.lustre import quotas
from iogauge.node.lustre.quotas import Quota
from support.project import DATA

LUSTRE = DATA / "lustre"
MOUNTINFO = r"""
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
23 22 0:5 / /proc rw,nosuid shared:2 master:1 - proc proc rw
30 22 0:40 / /scratch rw,noatime - lustre 10.0.0.1@tcp:/scratch rw,flock
31 30 8:2 / /scratch/local rw - xfs /dev/sdb1 rw
32 22 8:1 /home/data /srv/bind rw shared:1 - ext4 /dev/sda1 rw
33 22 0:41 / /mnt/with\040blank\011tab rw - nfs4 server:/a\040b rw
34 22 0:42 / /over rw - ext4 /dev/sdc1 rw
35 34 0:43 / /over rw - tmpfs tmpfs rw,size=1g
36 22 0:44 / /back\134slash rw - fuse.glusterfs vol rw
37 22 0:45 / /autofs rw - autofs systemd-1
not a line of mountinfo
"""
MOUNTS = mounts.parse_mountinfo(MOUNTINFO)


@pytest.mark.parametrize(
    "point, source, fstype",
    [
        ("/", "/dev/sda1", "ext4"),
        ("/scratch", "10.0.0.1@tcp:/scratch", "lustre"),
        ("/srv/bind", "/dev/sda1", "ext4"),
        ("/mnt/with blank\ttab", "server:/a b", "nfs4"),
        ("/back\\slash", "vol", "fuse.glusterfs"),
    ],
)
def test_a_mount_is_read(point, source, fstype):
    assert (source, fstype) in [(m.source, m.type) for m in MOUNTS if m.point == point]


def block(file, command):
    """Output of one command in a recorded terminal session."""
    blocks = re.split(r"^\$ ", (LUSTRE / file).read_text(), flags=re.MULTILINE)
    (found,) = [
        b for b in blocks if b.splitlines() and b.splitlines()[0].endswith(command)
    ]
    return found.partition("\n")[2].rpartition("[exit")[0]


SOFT = "lfs quota -q -u 2000 /mnt/lustre/bench # soft limit 10 MiB"


@pytest.mark.parametrize(
    "command, bytes_left, files_left",
    [
        ("lfs quota -q -u 2000 /mnt/lustre/bench # hard limit 20 MiB", 0, None),
        ("lfs quota -q -u 2000 /mnt/lustre/bench # 1100 files", None, 66),
        (
            "lfs quota -q -p 1000 /mnt/lustre/bench # project, hard limit 20 MiB",
            20448 << 10,
            None,
        ),
        (SOFT, None, None),
    ],
)
def test_recorded_limits(command, bytes_left, files_left):
    quota = quotas.parse_lfs_quota(block("quota-limits.txt", command), "x")
    assert quota == Quota("x", bytes_left, files_left)


@pytest.mark.parametrize("word", ["expired", "none"])
def test_after_its_grace_a_soft_limit_is_a_hard_one(word):
    """The words of Lustre 2.17 and 2.12 (diff2str of utils/lfs.c); the grace was not waited for."""
    text = block("quota-limits.txt", SOFT).replace("      1w", f"{word:>8}")
    assert quotas.parse_lfs_quota(text, "x") == Quota("x", 0, None)
    files = text.replace(
        "1034*       0       0       -", f"1034*    1000       0 {word}"
    )
    assert quotas.parse_lfs_quota(files, "x") == Quota("x", 0, 0)


@pytest.mark.parametrize(
    "text, bytes_left, files_left",
    [
        ("/m 100 0 300 - 5 0 20 -", 200 << 10, 15),
        ("/m\n 100 0 300 - 5 0 20 -", 200 << 10, 15),
        ("/m 100* 50 300 6d23h 25* 0 20 -", 200 << 10, 0),
        ("/m 100 100 300 - 25* 9 0 1w", 200 << 10, None),
        ("/m [100] 0 300 - 5 0 20 -", 200 << 10, 15),
        ("/m 300 0 300 - 20 0 20 -", 0, 0),
        ("/1 100 0 300 - 5 0 0 -", 200 << 10, None),
    ],
)
def test_quota(text, bytes_left, files_left):
    assert quotas.parse_lfs_quota(text, "u") == Quota("u", bytes_left, files_left)
