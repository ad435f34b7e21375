"""The page cache of real files on a real disk: emptied, and proven empty."""

import os
import tempfile
from pathlib import Path

import pytest

from iogauge.node import files, kinds, mounts
from iogauge.node.files import Eviction

MIB = 1 << 20


@pytest.fixture
def disk():
    """A directory on a file system with storage behind it."""
    with tempfile.TemporaryDirectory(prefix="iogauge-test-", dir="/var/tmp") as name:
        mount = mounts.find_mount(name)
        if mount is None or kinds.kind_of(mount.type).cache != "page-cache":
            pytest.skip(
                f"/var/tmp is on {mount and mount.type}: it has no page cache to empty"
            )
        yield Path(name)


def resident(path):
    with open(path, "rb") as file:
        return files.resident_bytes(file.fileno(), path.stat().st_size)


def write(file, size):
    """Write a file until all of it is resident: others may use up the memory."""
    for _ in range(100):
        file.write_bytes(os.urandom(size))
        if resident(file) == size:
            return
    pytest.skip("no page stays in the page cache of this machine")


def test_a_written_file_is_resident_until_it_is_evicted(disk):
    file = disk / "data"
    write(file, 8 * MIB)
    done = files.evict([str(file)])
    assert (done.files, done.bytes, done.problem) == (1, 8 * MIB, "")
    assert (done.resident, done.proven_empty) == (0, True)
    assert resident(file) == 0


def test_what_is_not_yet_on_disk_is_written_before_it_is_dropped(disk, monkeypatch):
    calls = []
    fsync, fadvise = os.fsync, os.posix_fadvise
    monkeypatch.setattr(os, "fsync", lambda fd: (calls.append("fsync"), fsync(fd)))
    monkeypatch.setattr(
        os, "posix_fadvise", lambda *a: (calls.append("drop"), fadvise(*a))
    )
    (disk / "data").write_bytes(b"x" * MIB)
    files.evict([str(disk / "data")])
    assert calls[:2] == ["fsync", "drop"]


def test_pages_that_stay_are_counted(disk, monkeypatch):
    monkeypatch.setattr(os, "posix_fadvise", lambda *_: None)
    write(disk / "data", MIB)
    done = files.evict([str(disk / "data")], wait_s=0.05)
    assert (done.resident, done.proven_empty) == (MIB, False)
    assert f"{MIB} of {MIB} bytes resident in 1 file(s)" in done.describe()


@pytest.mark.parametrize(
    ("files", "after", "problem", "proven"),
    [(1, 0, "", True), (0, 0, "", False), (1, 1, "", False), (1, 0, "x: gone", False)],
)
def test_what_proves_a_cache_empty(files, after, problem, proven):
    assert Eviction("h", files, 10, after, problem).proven_empty is proven
