"""The load of a probe on one node: at most 32 MiB and 100 files, verified, direct if the target honours it.

Times are without those in which this process waited for a processor (proc(5), ``schedstat``), so that a busy node is no slow
target. A read counts only if it came from below the client: the page cache is proven empty before it, and, if the kernel accounts
for the bytes of a process there, its count agrees (proc(5), ``read_bytes``).
"""

import contextlib
import errno
import mmap
import os
import random
import re
import statistics
import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from iogauge.node import files
from iogauge.node.kernel import text
from iogauge.node.kinds import Kind
from iogauge_extras.probe.slowdown import Line

#: Bytes of a transfer, and of a small one.
_BLOCK = 1 << 20
_SMALL = 4096

#: The most that a probe writes, and reads in small pieces, makes and removes.
_BYTES = 16 * _BLOCK
_SMALL_READS = 32
_FILES = 100

#: Seconds after which a part of the load ends early, with what it did until then.
_PART_S = 1.0

#: Called after each answer of the target.
Alive = Callable[[], object]

#: Share of the bytes that the kernel must count.
_COUNTED = 0.95


class WrongData(OSError):
    """What was read is not what was written. The message names the file."""


def _waited() -> str:
    """Return the nanoseconds that this process has waited for a processor; 0 if the kernel does not say."""
    return [*text("/proc/self/schedstat").split(), "0", "0"][1]


def _now() -> float:
    """Return a clock in seconds that stands still while this process waits for a processor."""
    while True:
        waited = _waited()
        now = time.monotonic()
        if _waited() == waited:
            return now - int(waited) / 1e9


def _fetched() -> int:
    """Return the bytes that this process has fetched from storage; 0 if the kernel does not say."""
    counted = re.findall(r"(?m)^read_bytes: (\d+)", text("/proc/self/io"))
    return int("".join(counted) or 0)


T = TypeVar("T")


def _until_late(
    items: Iterable[T], step: Callable[[T], object], alive: Alive
) -> list[float]:
    """Do a step with each item until the time is over, and report each; return their seconds."""
    times: list[float] = []
    for item in items:
        begun = _now()
        step(item)
        times.append(_now() - begun)
        alive()
        if sum(times) > _PART_S:
            break
    return times


def _flush_s(fd: int) -> float:
    """Flush a file or a directory, which some file systems cannot; return the seconds."""
    begun = _now()
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    return _now() - begun


def _metadata(directory: str, alive: Alive) -> tuple[float, float]:
    """Make files in a new directory and remove them; return how many of each a second."""
    directory += "/names"
    os.mkdir(directory, 0o700)
    names = [f"{directory}/file{number}" for number in range(_FILES)]
    fd = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        made = _until_late(names, lambda name: open(name, "xb").close(), alive)
        create_s = sum(made) + _flush_s(fd)
        gone = _until_late(names[: len(made)], os.unlink, alive)
        return len(made) / create_s, len(gone) / (sum(gone) + _flush_s(fd))
    finally:
        os.close(fd)


def _unproven(kind: Kind, path: str) -> str:
    """Empty the page cache of a file; return why a read of it may come from a cache all the same."""
    evicted = files.evict([path])
    if not evicted.proven_empty:
        return f"its page cache is not empty: {evicted.describe()}"
    if kind.cache != "page-cache" and not kind.honours_o_direct:
        return kind.why or f"the site declares target.cache: {kind.cache}"
    return kind.why


def measure(directory: str, kind: Kind, now: int, alive: Alive = bool) -> Line:
    """Return what a small load in an empty directory measured now, and why its reads prove nothing.

    ``alive`` is called after each answer of the target: on a busy node a load takes long without any fault of the storage.
    It leaves its files there. Raises :class:`WrongData`, or OSError if the target refuses something.
    """
    path = f"{directory}/data"
    flags = os.O_DIRECT if kind.honours_o_direct else 0
    # O_DIRECT needs memory of whole pages.
    wanted, found = memoryview(mmap.mmap(-1, _BYTES)), memoryview(mmap.mmap(-1, _BYTES))
    wanted[:] = os.urandom(_BYTES)

    def write(place: int) -> None:
        if os.pwrite(fd, wanted[place : place + _BLOCK], place) != _BLOCK:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)

    def read(place: int, size: int = _BLOCK) -> None:
        os.preadv(fd, [found[place : place + size]], place)

    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | flags, 0o600)
    with contextlib.closing(open(fd, "r+b", buffering=0)):
        written = _until_late(range(0, _BYTES, _BLOCK), write, alive)
        write_s = sum(written) + _flush_s(fd)
        size = len(written) * _BLOCK
        unproven = _unproven(kind, path)
        before = _fetched()
        times = _until_late(range(0, size, _BLOCK), read, alive)
        done = len(times) * _BLOCK
        if not flags:
            files.evict([path])
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
        places = random.sample(range(0, done, _SMALL), _SMALL_READS)
        small = _until_late(places, lambda place: read(place, _SMALL), alive)
        counted = _fetched() - before
    if wanted[:done] != found[:done]:
        raise WrongData(errno.EIO, "what was read is not what was written", path)
    if kind.accounts and counted < _COUNTED * done:
        unproven = f"the kernel counts {counted} of {done} bytes read"
    read_mib_s = read_ms = 0.0
    if not unproven:
        read_mib_s = done / 2**20 / sum(times)
        read_ms = 1000 * statistics.median(small)
    create, unlink = _metadata(directory, alive)
    return Line(
        time=now,
        write=round(size / 2**20 / write_s, 2),
        read=round(read_mib_s, 2),
        read_ms=round(read_ms, 4),
        create=round(create, 1),
        unlink=round(unlink, 1),
        moved=size + done + len(small) * _SMALL,
        unproven=unproven,
    )
