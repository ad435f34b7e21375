"""The binary form of a file's layout, read and written by extended attributes.

``getxattr(2)`` gives it to any user. It is that of Lustre's ``lustre_user.h``: ``lov_user_md_v1`` and ``v3``,
``lov_comp_md_v1``. The client gives the fields as they lie on the servers, which is little-endian; newer clients turn
them for their host (llite/xattr.c). The magic number tells which of the two it is.

The client hides the first target of a file's layout (``lmm_stripe_offset``) from this call. The
first object tells it. A directory's default keeps it to itself.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import struct
from dataclasses import replace
from itertools import pairwise
from typing import Final

from iogauge.node.lustre.layout import FileLayout, Layouts, Part
from iogauge.node.lustre.programs import LustreError

#: The extended attribute. It starts no program and needs no right but to look the file up.
ATTRIBUTE: Final = "lustre.lov"

#: The most files whose layouts are read; of more, as many are chosen at random. If none of them
#: differs, fewer than 0.1 % of all do, with 95 % confidence (3 / 3000, the rule of three).
MOST_FILES: Final = 3000
_V1: Final = 0x0BD10BD0
_V3: Final = 0x0BD30BD0
_COMPOSITE: Final = (0x0BD60BD0, 0x0BD80BD0)
_FOREIGN: Final = 0x0BD70BD0

#: As :data:`_V3`, with the targets that a new file is asked to lie on (``LOV_USER_MAGIC_SPECIFIC``).
_SPECIFIC: Final = 0x0BD50BD0

#: No first target is asked for besides those that are listed (``LOV_OFFSET_DEFAULT``).
_ANY_START: Final = 0xFFFF

#: A new file gets no objects before its layout is set (``O_LOV_DELAY_CREATE``: ``O_NOCTTY | FASYNC``).
_DELAY_CREATE: Final = os.O_NOCTTY | os.O_ASYNC

#: Fields without their byte order: magic, pattern, object identifier (2), stripe size, stripe count,
#: generation; an object: identifier (2), generation, index of its target.
_PLAIN: Final = "IIQQIHH"
_POOL: Final = "16s"
_OBJECT: Final = "QQII"

#: Magic, size, generation, flags, number of entries, mirrors less one, and what is not read here.
_HEAD: Final = "IIIHHHBBHHQ"

#: Identifier, flags, begin, end, offset, size, generation, and what is not read here.
_ENTRY: Final = "IIQQIIIQBBBB"
_HEAD_BYTES: Final = struct.calcsize("=" + _HEAD)
_ENTRY_BYTES: Final = struct.calcsize("=" + _ENTRY)
_PLAIN_BYTES: Final = struct.calcsize("=" + _PLAIN)
_OBJECT_BYTES: Final = struct.calcsize("=" + _OBJECT)

_PATTERNS: Final = {
    0x1: "raid0",
    0x4: "parity",
    0x100: "mdt",
    0x200: "overstriped",
    0x800: "compress",
}
_RELEASED: Final = 0x80000000
_INSTANTIATED, _EXTENSION, _PARITY = 0x10, 0x40, 0x80
_NO_END: Final = 2**64 - 1

#: Stripe counts from here on mean "all targets", the largest once each (LOV_ALL_STRIPES).
_ALL: Final = 0xFFE0


class _Damaged(ValueError):
    """The binary form breaks a rule of Lustre's."""


def parse_lov(data: bytes, path: str) -> FileLayout:
    """Return the layout of a file.

    Raises :class:`LustreError` that names the file if the data are cut or damaged, or if the file
    has no objects. A damaged answer is never taken for another layout if a length, an extent or a
    count of objects contradicts it.
    """
    try:
        layout = _parsed(data, path, of_file=True)
    except _Damaged as error:
        raise LustreError(f"{ATTRIBUTE} of {path}: {error}") from error
    if not layout.instantiated:
        raise LustreError(f"{ATTRIBUTE} of {path}: no component has objects, so it holds no data")
    return layout


def parse_default_lov(data: bytes, path: str) -> FileLayout:
    """Return the layout that a directory passes on to new files; its parts have no objects.

    Raises :class:`LustreError` as :func:`parse_lov` does.
    """
    try:
        return _parsed(data, path, of_file=False)
    except _Damaged as error:
        raise LustreError(f"{ATTRIBUTE} of the directory {path}: {error}") from error


def read_lov(path: str, name: str) -> FileLayout:
    """Return the layout of the file at ``path``, called ``name``; raises :class:`LustreError`."""
    return parse_lov(_attribute(path), name)


def create(path: str, target: int, stripe_bytes: int | None) -> None:
    """Make a file with one stripe on a storage target, as ``llapi_layout_file_create(3)`` does.

    Raises OSError if the kernel refuses; then the file is not there. A file that exists is refused.
    """
    plain = struct.pack("=" + _PLAIN, _SPECIFIC, 0x1, 0, 0, stripe_bytes or 0, 1, _ANY_START)
    wanted = plain + bytes(struct.calcsize(_POOL)) + struct.pack("=" + _OBJECT, 0, 0, 0, target)
    opened = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _DELAY_CREATE, 0o666)
    try:
        os.setxattr(opened, ATTRIBUTE, wanted)
    except OSError:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(opened)


def look_at_lov(directory: str, repetition: int) -> Layouts:
    """Return the layouts of the files below a directory, of so many as :data:`MOST_FILES`.

    Raises OSError if the directory cannot be listed, and :class:`LustreError`.
    """
    names = sorted(_names(directory))
    seed, chosen = 0, names
    if len(names) > MOST_FILES:
        from random import Random, SystemRandom  # few cases need it, each agent would pay

        seed = SystemRandom().getrandbits(32)
        chosen = sorted(Random(seed).sample(names, MOST_FILES))
    files = tuple(_sized(os.path.join(directory, name), name) for name in chosen)
    return Layouts(repetition=repetition, files=files, total=len(names), seed=seed)


def _names(top: str, below: str = "") -> list[str]:
    """Return the regular files below a directory, relative to it, without a look at each inode."""
    names = []
    with os.scandir(os.path.join(top, below)) as entries:
        for entry in entries:
            name = os.path.join(below, entry.name)
            if entry.is_dir(follow_symlinks=False):
                names += _names(top, name)
            elif entry.is_file(follow_symlinks=False):
                names.append(name)
    return names


def _sized(path: str, name: str) -> FileLayout:
    """Return the layout of a file; its size too, if that decides which components hold data."""
    layout = read_lov(path, name)
    return replace(layout, size=os.stat(path).st_size) if layout.composite else layout


def read_default_lov(directory: str) -> FileLayout | None:
    """Return the layout that a directory passes on to new files, None if it has none of its own.

    Lustre gives the file system's default if the directory has none. Raises :class:`LustreError`.
    """
    try:
        return parse_default_lov(_attribute(directory), directory)
    except FileNotFoundError:
        return None


def adopt_default(directory: str, model: str) -> None:
    """Give a directory the default layout that files in another one get; raises :class:`LustreError`.

    A directory copies the default of the one above it when it is made, and keeps it if that one changes later.
    """
    wanted, own = (_default(path) for path in (model, directory))
    try:
        if wanted != own and wanted:
            os.setxattr(directory, ATTRIBUTE, wanted)
        elif wanted != own:
            os.removexattr(directory, ATTRIBUTE)
    except OSError as error:
        raise LustreError(
            f"{directory} did not take the default layout of {model}: {error.strerror}"
        ) from error


def _default(directory: str) -> bytes:
    try:
        return _attribute(directory)
    except FileNotFoundError:
        return b""


def _attribute(path: str) -> bytes:
    """Return the attribute; raises FileNotFoundError for a directory without it, LustreError else."""
    try:
        return os.getxattr(path, ATTRIBUTE)
    except OSError as error:
        if error.errno == errno.ENODATA and os.path.isdir(path):
            raise FileNotFoundError(error.errno, error.strerror, path) from error
        why = {
            errno.ENODATA: "it was made without objects, so it cannot hold data",
            errno.EOPNOTSUPP: "it is not on Lustre, or this client does not give layouts",
        }.get(error.errno or 0, str(error.strerror))
        raise LustreError(f"the layout of {path} was not answered ({ATTRIBUTE}): {why}") from error


def _parsed(data: bytes, path: str, of_file: bool) -> FileLayout:
    order = _byte_order(data)
    (magic,) = struct.unpack_from(order + "I", data)
    if magic not in _COMPOSITE:
        return FileLayout(path=path, parts=(_part(data, order, of_file, of_file),))
    if len(data) < _HEAD_BYTES:
        raise _Damaged(f"cut off after {len(data)} bytes")
    _, size, _, _, entries, mirrors, *_ = struct.unpack_from(order + _HEAD, data)
    table = _HEAD_BYTES + entries * _ENTRY_BYTES
    if not entries or not table <= size == len(data):
        raise _Damaged(f"{entries} component(s) in {len(data)} bytes, said to be {size}")
    rows = list(struct.iter_unpack(order + _ENTRY, data[_HEAD_BYTES:table]))
    _check_apart(
        [(0, table), *((offset, offset + length) for *_, offset, length in (r[:6] for r in rows))]
    )
    parts, flagged = [], 0
    for number, (identity, flags, begin, end, offset, length, *_) in enumerate(rows):
        reaches = end if end != _NO_END else begin
        if offset + length > len(data) or begin >= end or reaches >= 2**63:
            raise _Damaged(f"component {number + 1} lies at {offset}, with extent {begin} to {end}")
        flagged |= flags
        if flags & _EXTENSION:  # room for the component before it to grow: it never holds data
            part = Part(stripe_count=0, stripe_bytes=0, pattern="extension")
        else:
            done = bool(of_file and flags & _INSTANTIATED)
            part = _part(data[offset : offset + length], order, of_file, done)
        parts.append(
            part.within(begin, None if end == _NO_END else end, mirror=identity >> 16 & 0x7FFF)
        )
    if of_file and not flagged & _PARITY:  # codes lie over the extents of what they protect
        _check_extents(parts, mirrors)
    return FileLayout(path=path, parts=tuple(parts), composite=True)


def _byte_order(data: bytes) -> str:
    known = {_V1, _V3, _FOREIGN, *_COMPOSITE}
    for order in "<>":
        if len(data) >= 4 and struct.unpack_from(order + "I", data)[0] in known:
            return order
    raise _Damaged(f"no layout begins with {data[:4].hex() or 'nothing'}")


def _check_apart(blobs: list[tuple[int, int]]) -> None:
    """Refuse components that share bytes of their descriptions."""
    ordered = sorted(blobs)
    if any(end > begin for (_, end), (begin, _) in pairwise(ordered)):
        raise _Damaged("two components share their description")


def _check_extents(parts: list[Part], mirrors: int) -> None:
    """Refuse components that leave a gap in a mirror of the file, or lie over each other."""
    ends: dict[int, int | None] = {}
    for part in parts:
        if part.begin_bytes != ends.get(part.mirror, 0):
            raise _Damaged(f"a component begins at {part.begin_bytes}, not where another ends")
        ends[part.mirror] = part.end_bytes
    if len(ends) != mirrors + 1:
        raise _Damaged(f"{len(ends)} mirror(s), said to be {mirrors + 1}")


def _part(data: bytes, order: str, of_file: bool, done: bool) -> Part:
    """Return a component from its description; ``done`` means that it must have objects."""
    magic = struct.unpack_from(order + "I", data)[0] if len(data) >= 4 else 0
    if magic == _FOREIGN:
        raise _Damaged("the file is foreign: its data lie outside of Lustre")
    if len(data) < _PLAIN_BYTES:
        raise _Damaged(f"cut off after {len(data)} bytes")
    _, pattern, _, _, size, count, _ = struct.unpack_from(order + _PLAIN, data)
    if magic not in (_V1, _V3):
        raise _Damaged(f"no component begins with 0x{magic:08x}")
    if pattern & _RELEASED:
        raise _Damaged("the file is released: its data lie in an archive")
    begin, pool = _PLAIN_BYTES, None
    if magic == _V3:
        pool, begin = _pool(data, begin), begin + struct.calcsize(_POOL)
    words = _pattern(pattern)
    objects = count if done and "mdt" not in words else 0
    if len(data) != begin + objects * _OBJECT_BYTES:
        held = max(0, len(data) - begin) / _OBJECT_BYTES
        raise _Damaged(f"{held:.3g} object(s) for {objects} stripe(s)")
    if of_file and (size == 0 or (done and "mdt" not in words and not 0 < count < _ALL)):
        raise _Damaged(f"{count} stripe(s) of {size} bytes")
    osts = tuple(ost for *_, ost in struct.iter_unpack(order + _OBJECT, data[begin:]))
    return Part(
        stripe_count=-1 if count >= _ALL else count,
        stripe_bytes=size,
        pattern=words,
        pool=pool,
        objects=osts,
        instantiated=done,
    )


def _pool(data: bytes, begin: int) -> str | None:
    name = data[begin : begin + struct.calcsize(_POOL)].partition(b"\0")[0]
    if len(data) < begin + struct.calcsize(_POOL) or not re.fullmatch(rb"[!-~]{0,15}", name):
        raise _Damaged(f"the pool is called {name!r}")
    return name.decode("ascii") or None


def _pattern(pattern: int) -> str:
    """Return the pattern in words as ``lfs getstripe`` has them; a default may prescribe none."""
    low = pattern & 0xFFFF
    words = [word for bit, word in _PATTERNS.items() if low & bit]
    if pattern in (0, 0xFFFFFFFF):
        return "raid0"
    if low & ~sum(_PATTERNS) or not words or ("mdt" in words and words != ["mdt"]):
        raise _Damaged(f"no pattern is 0x{pattern:08x}")
    return ",".join(words)
