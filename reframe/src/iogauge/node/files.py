"""Files on a node: empty their page cache and prove that it is empty; take a sample of their contents.

POSIX_FADV_DONTNEED after fsync drops the clean pages of a file and needs no root. mincore(2) counts
the remaining pages. Both work on local file systems and on Lustre, and must run on every node that
cached the file. Neither reaches a server's cache, or a client's data outside the page cache.

A block is read with O_DIRECT, so that it comes from storage. If the file system refuses that, its
pages are dropped before (POSIX_FADV_DONTNEED). No read-ahead follows, and no page stays behind.
"""

import ctypes
import errno
import fcntl
import functools
import mmap
import os
import struct
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, islice
from typing import Literal

from iogauge.core.untrusted import Plain

_PAGE = mmap.PAGESIZE
_WINDOW = 1 << 30


@dataclass(frozen=True, slots=True)
class Eviction(Plain):
    """One node's eviction: files, bytes, bytes that stay resident, the first problem."""

    host: str
    files: int
    bytes: int
    resident: int
    problem: str = ""

    @property
    def proven_empty(self) -> bool:
        """Return whether all files were looked at, and no page of them is left."""
        return not self.problem and self.resident == 0 and self.files > 0

    def describe(self) -> str:
        """Return one line for a finding."""
        text = f"{self.host}: {self.resident} of {self.bytes} bytes resident in {self.files} file(s)"
        if self.problem:
            text += f", {self.problem}"
        return text


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


def resident_bytes(fd: int, size: int, start: int = 0) -> int:
    """Return how many of a file's ``size`` bytes from a page on are in the page cache (whole pages).

    mincore(2) is truthful only to the owner of a file and to users who may write it. Raises
    OSError.
    """
    libc, resident = _libc(), 0
    for offset in range(start, start + size, _WINDOW):
        length = min(_WINDOW, start + size - offset)
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


def _evict_file(path: str, wait_s: float) -> tuple[int, int]:
    """Evict one file; return its size, and its bytes that stay resident."""
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        size = os.fstat(fd).st_size
        deadline, pause = time.monotonic() + wait_s, 0.0
        while True:
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            resident = resident_bytes(fd, size)
            if resident == 0 or time.monotonic() > deadline:
                return size, resident
            pause = min(0.5, pause + 0.02)
            time.sleep(pause)
    finally:
        os.close(fd)


def entries(
    directory: str, choose: Callable[[int], int] = lambda waiting: -1
) -> Iterator[tuple[str, os.DirEntry[str]]]:
    """Yield all that lies below a directory, by its name there; raises OSError. ``choose`` says which directory is next."""
    waiting = [""]
    while waiting:
        below = waiting.pop(choose(len(waiting)))
        with os.scandir(os.path.join(directory, below)) as found:
            for entry in found:
                name = os.path.join(below, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                yield name, entry


def files_below(directory: str) -> list[str]:
    """Return the regular files below a directory by their names there, sorted; raises OSError."""
    found = entries(directory)
    return sorted(name for name, entry in found if entry.is_file(follow_symlinks=False))


def evict(paths: Iterable[str], wait_s: float = 10.0) -> Eviction:
    """Drop every page of the files from this host's page cache, and count the remaining ones.

    A page may be busy for a moment (write-back, a batch on another core): each file is tried until
    no page is left, for ``wait_s`` seconds at most. An OSError becomes the ``problem``.
    """
    files = size = resident = 0
    problem = ""
    for path in paths:
        try:
            held, left = _evict_file(path, wait_s)
        except OSError as error:
            problem = problem or f"{path}: {error.strerror}"
            continue
        files, size, resident = files + 1, size + held, resident + left
    return Eviction(os.uname().nodename, files, size, resident, problem)


#: Bytes of a block, and blocks of a sample.
BLOCK = 4096
_BLOCKS = 32
#: Most entries of directories that a sample looks at: a huge tree costs no more.
_ENTRIES = 4096
#: Seconds after which a sample is as large as it is.
_SECONDS = 2.0
_EMPTY = f"{zlib.crc32(bytes(BLOCK)):08x}"
#: The digest of a block of a file that is not there any more.
GONE = "gone"

#: What lies below a block, as far as the file system says: FIEMAP of the kernel's documentation. Data may be cached.
BlockKind = Literal["", "hole", "unwritten", "compressed", "cached"]
_FIEMAP = 0xC020660B
_ENCODED, _ENCRYPTED, _UNWRITTEN = 0x8, 0x80, 0x800


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a file: its name below the case's directory, its offset, its digest, its kind."""

    file: str
    offset: int
    digest: str
    kind: BlockKind = ""

    @property
    def empty(self) -> bool:
        """Return whether it consists of zeros."""
        return self.digest == _EMPTY

    @property
    def place(self) -> str:
        """Return file and offset, for a finding."""
        return f"{self.file} at {self.offset}"


@dataclass(frozen=True, slots=True)
class Held:
    """A file, its size, and the bytes that it takes on storage (st_blocks)."""

    file: str
    size: int
    stored: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample(Plain):
    """Blocks of a repetition's files after the last write or read, and the files themselves.

    ``problem`` is why there is no sample.
    """

    repetition: int
    after: Literal["write", "read"]
    blocks: tuple[Block, ...] = ()
    files: tuple[Held, ...] = ()
    problem: str = ""


def _any(count: int) -> int:
    return int.from_bytes(os.urandom(7), "little") % count


def _files(directory: str, end: float) -> list[str]:
    """Return regular files below a directory, by their names there, as far as the limits allow."""
    found: list[str] = []
    for seen, (name, entry) in enumerate(entries(directory, _any), 1):
        if seen > _ENTRIES or time.monotonic() > end:
            break
        if entry.is_file(follow_symlinks=False):
            found.append(name)
    return found


def _open(path: str, direct: bool) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    if direct:
        flags |= os.O_DIRECT
    try:
        return os.open(path, flags | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is the owner's
        return os.open(path, flags)


def _read(path: str, offset: int) -> memoryview:
    """Return a block, short at the end of the file."""
    try:
        return _block(path, offset, True)
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
    return _block(path, offset, False)


def _block(path: str, offset: int, direct: bool) -> memoryview:
    page = mmap.mmap(-1, BLOCK)  # O_DIRECT wants it aligned
    fd = _open(path, direct)
    try:
        if not direct:
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
            os.posix_fadvise(fd, offset, BLOCK, os.POSIX_FADV_DONTNEED)
        count = os.preadv(fd, [page], offset)
        if not direct:
            os.posix_fadvise(fd, offset, BLOCK, os.POSIX_FADV_DONTNEED)
        return memoryview(page)[:count]
    finally:
        os.close(fd)


def _kind(path: str, offset: int) -> BlockKind:
    """Return what lies below a block; empty if it is data on storage alone, or if the file system does not say."""
    fd = _open(path, False)
    try:
        asked = bytearray(struct.pack("=QQIIII56x", offset, BLOCK, 0, 0, 1, 0))
        fcntl.ioctl(fd, _FIEMAP, asked)
        data: BlockKind = ""
        if resident_bytes(fd, BLOCK, offset):
            data = "cached"
    except OSError:
        return ""
    finally:
        os.close(fd)
    (count,) = struct.unpack_from("=I", asked, 20)
    start, flags = struct.unpack_from("=Q32xI", asked, 32)
    if count == 0 or start > offset:
        return "hole"
    if flags & _UNWRITTEN:
        return "unwritten"
    if flags & _ENCODED and not flags & _ENCRYPTED:
        return "compressed"
    return data


def _blocks_of(files: Sequence[Held]) -> list[tuple[str, int]]:
    """Return places of blocks at random, as many in each file."""
    full = [held for held in files if held.size]
    places = set()
    for held in islice(cycle(full), _BLOCKS):
        places.add((held.file, _any((held.size + BLOCK - 1) // BLOCK) * BLOCK))
    return sorted(places)


def _held(directory: str, names: list[str], end: float) -> list[Held]:
    """Return some of the files at random, with what they hold once they are written back."""
    held: list[Held] = []
    while names and len(held) < _BLOCKS and time.monotonic() < end:
        name = names.pop(_any(len(names)))
        fd = _open(os.path.join(directory, name), False)
        try:
            os.fsync(fd)
            info = os.fstat(fd)
        finally:
            os.close(fd)
        held.append(Held(name, info.st_size, 512 * info.st_blocks))
    return held


def take_sample(
    directory: str, known: Sequence[Block] | None = None, mapped: bool = True
) -> tuple[list[Block], list[Held]]:
    """Return blocks of the files below a directory, and the files.

    Blocks and files are chosen at random; with ``known`` those blocks are read again. ``mapped``
    means that the file system's map of a file (FIEMAP) can be believed. Raises OSError.
    """
    end = time.monotonic() + _SECONDS
    held = []
    places = [(block.file, block.offset) for block in known or ()]
    if known is None:
        held = _held(directory, _files(directory, end), end)
        places = _blocks_of(held)
    blocks = []
    for file, offset in places:
        if time.monotonic() > end:
            break
        path = os.path.join(directory, file)
        try:
            data = _read(path, offset)
        except FileNotFoundError:
            blocks.append(Block(file, offset, GONE))
            continue
        block = Block(file, offset, f"{zlib.crc32(data):08x}")
        if mapped:
            block = replace(block, kind=_kind(path, offset))
        blocks.append(block)
    if not blocks and time.monotonic() > end:
        raise TimeoutError(
            errno.ETIMEDOUT, f"nothing was read in {_SECONDS:g} s", directory
        )
    return blocks, held
