"""A sample of the contents of files: digests of blocks, and whether files have blocks at all.

A block is read with O_DIRECT, so that it comes from storage. If the file system refuses that, its
pages are dropped before (POSIX_FADV_DONTNEED). No read-ahead follows, and no page stays behind.
"""

from __future__ import annotations

import errno
import fcntl
import mmap
import os
import struct
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from iogauge.core.untrusted import build

#: Bytes of a block, and blocks of a sample.
BLOCK: Final = 4096
_BLOCKS: Final = 32
#: Most entries of directories that a sample looks at: a huge tree costs no more.
_ENTRIES: Final = 4096
#: Seconds after which a sample is as large as it is.
_SECONDS: Final = 2.0
_EMPTY: Final = f"{zlib.crc32(bytes(BLOCK)):08x}"
#: The digest of a block of a file that is not there any more.
GONE: Final = "gone"

#: What lies below a block, as far as the file system says: FIEMAP of the kernel's documentation.
Kind = Literal["", "hole", "unwritten", "compressed"]
_FIEMAP: Final = 0xC020660B
_ENCODED, _ENCRYPTED, _UNWRITTEN = 0x8, 0x80, 0x800


@dataclass(frozen=True, slots=True)
class Block:
    """A block of a file: its name below the case's directory, its offset, its digest, its kind."""

    file: str
    offset: int
    digest: str
    kind: Kind = ""

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
class Sample:
    """Blocks of a repetition's files after the last write or read, and the files themselves.

    ``direct`` means that all blocks were read with O_DIRECT. ``problem`` is why there is no sample.
    """

    repetition: int
    after: Literal["write", "read"]
    blocks: tuple[Block, ...] = ()
    files: tuple[Held, ...] = ()
    direct: bool = True
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON line; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Sample:
        """Return the sample that :meth:`to_json` made plain; raises TypeError on other data."""
        sample: Sample = build(Sample, data)
        numbers = [sample.repetition, *(block.offset for block in sample.blocks)]
        numbers += [number for held in sample.files for number in (held.size, held.stored)]
        if min(numbers) < 0:
            raise TypeError(f"{min(numbers)} must not be negative")
        return sample


def _any(count: int) -> int:
    return int.from_bytes(os.urandom(7), "little") % count


def _files(directory: str, end: float) -> list[str]:
    """Return regular files below a directory, by their names there, as far as the limits allow."""
    found: list[str] = []
    waiting, seen = [""], 0
    while waiting:
        below = waiting.pop(_any(len(waiting)))
        with os.scandir(os.path.join(directory, below)) as entries:
            for entry in entries:
                seen += 1
                if seen > _ENTRIES or time.monotonic() > end:
                    return found
                name = os.path.join(below, entry.name)
                if entry.is_dir(follow_symlinks=False):
                    waiting.append(name)
                elif entry.is_file(follow_symlinks=False):
                    found.append(name)
    return found


def _open(path: str, direct: bool) -> int:
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags | (os.O_DIRECT if direct else 0) | os.O_NOATIME)
    except PermissionError:  # O_NOATIME is the owner's
        return os.open(path, flags | (os.O_DIRECT if direct else 0))


def _read(path: str, offset: int) -> tuple[memoryview, bool]:
    """Return a block, short at the end of the file, and whether O_DIRECT read it."""
    page = mmap.mmap(-1, BLOCK)  # O_DIRECT wants it aligned
    for direct in (True, False):
        try:
            fd = _open(path, direct)
        except OSError as error:
            if direct and error.errno == errno.EINVAL:
                continue
            raise
        try:
            if not direct:
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_RANDOM)
                os.posix_fadvise(fd, offset, BLOCK, os.POSIX_FADV_DONTNEED)
            count = os.preadv(fd, [page], offset)
            if not direct:
                os.posix_fadvise(fd, offset, BLOCK, os.POSIX_FADV_DONTNEED)
            return memoryview(page)[:count], direct
        except OSError as error:
            if not direct or error.errno != errno.EINVAL:
                raise
        finally:
            os.close(fd)
    raise OSError(errno.EINVAL, "cannot be read", path)


def _kind(path: str, offset: int) -> Kind:
    """Return what lies below a block; empty if it is data, or if the file system does not say."""
    fd = _open(path, False)
    try:
        asked = bytearray(struct.pack("=QQIIII56x", offset, BLOCK, 0, 0, 1, 0))
        fcntl.ioctl(fd, _FIEMAP, asked)
    except OSError:
        return ""
    finally:
        os.close(fd)
    (count,) = struct.unpack_from("=I", asked, 20)
    start, _, _, flags = struct.unpack_from("=QQQ16xI", asked, 32)
    if count == 0 or start > offset:
        return "hole"
    if flags & _UNWRITTEN:
        return "unwritten"
    return "compressed" if flags & _ENCODED and not flags & _ENCRYPTED else ""


def _blocks_of(files: Sequence[Held]) -> list[tuple[str, int]]:
    """Return places of blocks at random, as many in each file."""
    full = [held for held in files if held.size]
    places = set()
    for number in range(_BLOCKS if full else 0):
        held = full[number % len(full)]
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


def look(
    directory: str, known: Sequence[Block] | None = None, mapped: bool = True
) -> tuple[list[Block], list[Held], bool]:
    """Return blocks of the files below a directory, the files, and whether O_DIRECT read them all.

    Blocks and files are chosen at random; with ``known`` those blocks are read again. ``mapped``
    means that the file system's map of a file (FIEMAP) can be believed. Raises OSError.
    """
    end = time.monotonic() + _SECONDS
    held = [] if known is not None else _held(directory, _files(directory, end), end)
    places = [(block.file, block.offset) for block in known or ()] or _blocks_of(held)
    blocks, all_direct = [], True
    for file, offset in places:
        if time.monotonic() > end:
            break
        path = os.path.join(directory, file)
        try:
            data, direct = _read(path, offset)
        except FileNotFoundError:
            blocks.append(Block(file, offset, GONE))
            continue
        kind = _kind(path, offset) if mapped else ""
        blocks.append(Block(file, offset, f"{zlib.crc32(data):08x}", kind))
        all_direct = all_direct and direct
    if not blocks and time.monotonic() > end:
        raise TimeoutError(errno.ETIMEDOUT, f"nothing was read in {_SECONDS:g} s", directory)
    return blocks, held, all_direct
