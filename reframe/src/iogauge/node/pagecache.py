"""Empty the page cache of files, and prove that it is empty.

POSIX_FADV_DONTNEED after fsync drops the clean pages of a file and needs no root. mincore(2) counts
the remaining pages. Both work on local file systems and on Lustre, and must run on every node that
cached the file. Neither reaches a server's cache, or a client's data outside the page cache.
"""

from __future__ import annotations

import ctypes
import functools
import mmap
import os
import time
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from iogauge.core.untrusted import build

_PAGE = mmap.PAGESIZE
_WINDOW = 1 << 30


@dataclass(frozen=True, slots=True)
class Eviction:
    """One node's eviction: files, bytes, bytes resident before and after, the first problem."""

    host: str
    files: int
    bytes: int
    resident_before: int
    resident_after: int
    problem: str = ""

    @property
    def proven_empty(self) -> bool:
        """Return whether all files were looked at, and no page of them is left."""
        return not self.problem and self.resident_after == 0 and self.files > 0

    def describe(self) -> str:
        """Return one line for a finding."""
        return (
            f"{self.host}: {self.resident_after} of {self.bytes} bytes resident in {self.files} file(s)"
            + (f", {self.problem}" if self.problem else "")
        )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON line; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Eviction:
        """Return the eviction that :meth:`to_json` made plain; raises TypeError on other data."""
        done: Eviction = build(Eviction, data)
        counts = (done.files, done.bytes, done.resident_before, done.resident_after)
        if min(counts) < 0:
            raise TypeError(f"{counts} must not be negative")
        return done


@functools.lru_cache(maxsize=1)
def _libc() -> ctypes.CDLL:
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [
        ctypes.c_void_p,
        ctypes.c_size_t,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_long,
    ]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    libc.mincore.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p]
    return libc


def resident_bytes(fd: int, size: int) -> int:
    """Return how many of a file's first ``size`` bytes are in the page cache (whole pages).

    mincore(2) is truthful only to the owner of a file and to users who may write it. Raises
    OSError.
    """
    libc, resident = _libc(), 0
    for offset in range(0, size, _WINDOW):
        length = min(_WINDOW, size - offset)
        address = libc.mmap(None, length, mmap.PROT_READ, mmap.MAP_SHARED, fd, offset)
        if address in (None, ctypes.c_void_p(-1).value):
            raise OSError(ctypes.get_errno(), "mmap")
        try:
            pages = (length + _PAGE - 1) // _PAGE
            vector = ctypes.create_string_buffer(pages)
            if libc.mincore(address, length, vector) != 0:
                raise OSError(ctypes.get_errno(), "mincore")
            resident += _PAGE * (pages - vector.raw[:pages].count(0))
        finally:
            libc.munmap(address, length)
    return resident


def _evict_file(path: str, wait_s: float) -> tuple[int, int, int]:
    """Evict one file; return its size and its bytes resident before and after."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        before = resident_bytes(fd, size)
        after, deadline, pause = before, time.monotonic() + wait_s, 0.0
        while True:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            after = resident_bytes(fd, size)
            if after == 0 or time.monotonic() > deadline:
                return size, before, after
            pause = min(0.5, pause + 0.02)
            time.sleep(pause)
    finally:
        os.close(fd)


def files_below(directory: str, skip: frozenset[str] = frozenset()) -> list[str]:
    """Return regular files below a directory, sorted; symbolic links are not followed."""
    paths = []
    for parent, _, names in os.walk(directory):
        paths += [os.path.join(parent, name) for name in names if name not in skip]
    return sorted(path for path in paths if os.path.isfile(path) and not os.path.islink(path))


def evict(paths: Iterable[str], wait_s: float = 10.0) -> Eviction:
    """Drop every page of the files from this host's page cache, and count the remaining ones.

    A page may be busy for a moment (write-back, a batch on another core): each file is tried until
    no page is left, for ``wait_s`` seconds at most. An OSError becomes the ``problem``.
    """
    files = size = before = after = 0
    problem = ""
    for path in paths:
        try:
            file_size, file_before, file_after = _evict_file(path, wait_s)
        except OSError as error:
            problem = problem or f"{path}: {error.strerror}"
            continue
        files, size = files + 1, size + file_size
        before, after = before + file_before, after + file_after
    return Eviction(os.uname().nodename, files, size, before, after, problem)
