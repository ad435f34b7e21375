"""Names of file systems: read without root and udev, and compared as the systems are."""

import contextlib
import os
import shutil

import pytest
from hypothesis import given
from hypothesis import strategies as st

from iogauge.node import identity
from iogauge.node.identity import (
    differ,
    folded,
    lustre_name,
    nfs_name,
    text_of,
    uuid_of,
)
from iogauge.node.mounts import Mount, find_mount
from iogauge.node.view import look
from support.devices import Devices
from support.shell import completed

ANY_UUID = st.uuids().map(str)
NIDS = st.lists(
    st.tuples(
        st.sampled_from(["10.0.0.1", "10.0.0.2", "fe80::1", "fe80::2:3"]),
        st.sampled_from(["tcp", "o2ib", "o2ib1"]),
    ).map("@".join),
    min_size=1,
    unique=True,
)


# --- texts ------------------------------------------------------------------------------------------


@given(st.uuids())
def test_sixteen_bytes_are_written_as_a_uuid(value):
    assert text_of(value.bytes) == ("" if value.int == 0 else str(value))


@pytest.mark.parametrize(
    "source, name",
    [
        ("10.0.0.2@tcp:10.0.0.1@tcp:/scratch", "scratch@10.0.0.1@tcp,10.0.0.2@tcp"),
        ("10.0.0.1@o2ib,10.1.0.1@tcp:10.0.0.2@o2ib,10.1.0.2@tcp:/fs1/home/x",
         "fs1@10.0.0.1@o2ib,10.0.0.2@o2ib,10.1.0.1@tcp,10.1.0.2@tcp"),
        ("fe80::2@tcp:fe80::1@tcp:/s", "s@fe80::1@tcp,fe80::2@tcp"),
        ("server:/export", ""),
    ],
)  # fmt: skip
def test_lustre_is_named_by_its_source(source, name):
    assert lustre_name(source) == name


VOLUMES = """NV SERVER   PORT DEV          FSID                              FSC
v4 0a000001  801 0:52         5d2f4b1ec0f04a6d:9a1b             no
v3 0a000002  801 0:53         0:0                               no
v4 0a000001  801 0:54         10:0                              no
v4 0a000002  801 0:56         10:0                              no
"""


def test_nfs_is_named_by_the_servers_number_for_it():
    assert nfs_name(VOLUMES, os.makedev(0, 52)) == "nfs-5d2f4b1ec0f04a6d:9a1b"
    # Somebody chose these numbers, on two servers.
    chosen = [nfs_name(VOLUMES, os.makedev(0, minor)) for minor in (54, 56)]
    assert chosen == ["nfs-10:0@0a000001", "nfs-10:0@0a000002"]
    assert nfs_name(VOLUMES, os.makedev(0, 53)) == ""
    assert nfs_name(VOLUMES, os.makedev(0, 55)) == ""


@pytest.mark.parametrize(
    "kind, source, name",
    [
        ("fuse.glusterfs", "node1:/vol/sub", "glusterfs-vol"),
        ("gpfs", "/dev/gpfs0", "gpfs-gpfs0"),
        ("tmpfs", "tmpfs", ""),
        ("9p", "share", ""),
    ],
)
def test_other_types_are_named_by_what_lasts(kind, source, name):
    assert uuid_of("/proc/self", Mount(1, "/proc", source, kind, "rw")) == name


# --- the same or another one ------------------------------------------------------------------------


@given(ANY_UUID, ANY_UUID)
def test_uuids_differ_if_any_digit_does(one, other):
    assert differ(one, other) == (one != other)
    assert not differ(one, folded(one))
    assert differ(folded(one), other) == (folded(one) != folded(other))
    assert not differ(one, "")
    assert not differ("", other)


NAMES = st.one_of(
    ANY_UUID,
    ANY_UUID.map(folded),
    NIDS.map(lambda nids: f"fs@{','.join(nids)}"),
    st.sampled_from(["", "nfs-1:0", "nfs-1:0@a", "nfs-1:0@b", "glusterfs-vol"]),
)


@given(NAMES, NAMES)
def test_the_comparison_does_not_depend_on_the_order(one, other):
    assert differ(one, other) == differ(other, one)
    assert not differ(one, one)


@pytest.mark.parametrize(
    "one, other, others",
    [
        ("fs@1@tcp,2@tcp", "fs@2@tcp", False),
        ("fs@1@tcp", "fs@1@tcp0", False),
        ("fs@1@tcp", "fs@9@o2ib", False),
        ("fs@1@tcp,9@o2ib", "fs@1@tcp,8@o2ib", False),
        ("fs@1@tcp", "fs@2@tcp", True),
        ("fs@1@tcp", "fs2@1@tcp", True),
        ("nfs-1:0", "nfs-2:0", True),
        ("nfs-1:0@0a000001", "nfs-1:0@0a000002", True),
        ("nfs-1:0@0a000001", "nfs-1:0", False),
        ("upper-fsid-1", "fsid-1", True),
    ],
)
def test_nids_of_one_server_are_of_one_file_system(one, other, others):
    assert differ(one, other) is others


# --- real file systems ------------------------------------------------------------------------------


def blkid(device):
    words = ["blkid", "-p", "-s", "UUID", "-o", "value", device]
    return completed(words, check=True).stdout.strip()


@pytest.mark.parametrize("kind, disks", [("ext4", 1), ("xfs", 1), ("btrfs", 2)])
def test_the_uuid_is_what_blkid_says_by_every_way(tmp_path, monkeypatch, kind, disks):
    if os.getuid() != 0 or shutil.which("blkid") is None:
        pytest.skip("needs root and blkid")
    with contextlib.ExitStack() as leaving:
        devices = Devices(tmp_path, leaving)
        loop, *more = (devices.loop(devices.image(f"disk{n}")) for n in range(disks))
        point = devices.made(kind, loop, "rw", *map(str, more))
        mount = find_mount(str(point))
        expected = blkid(mount.source)
        assert look(str(point)).uuid == expected
        monkeypatch.setattr(
            identity, "_ANY", (0xDEAD, bytes(17), 1)
        )  # as Linux before 6.9
        assert uuid_of(str(point), mount) == expected
        monkeypatch.setattr(identity, "_OF_TYPE", {})  # as Linux before 6.0, for ext4
        (links := tmp_path / "by-uuid").mkdir()
        monkeypatch.setattr(identity, "_BY_UUID", str(links))
        assert uuid_of(str(point), mount) == (
            folded(expected) if kind == "ext4" else ""
        )
        (links / expected).symlink_to(mount.source)
        # Btrfs has a device number of its own.
        assert uuid_of(str(point), mount) == ("" if kind == "btrfs" else expected)
