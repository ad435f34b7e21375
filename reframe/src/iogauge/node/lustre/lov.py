"""The binary form of a file's layout, read and written by extended attributes.

``getxattr(2)`` gives it to any user. It is that of Lustre's ``lustre_user.h``: ``lov_user_md_v1`` and ``v3``,
``lov_comp_md_v1``. The client gives the fields as they lie on the servers, which is little-endian.

The client hides the first target of a file's layout (``lmm_stripe_offset``) from this call. The
first object tells it. A directory's default keeps it to itself.
"""

import errno
import os
import struct
from collections.abc import Iterator
from dataclasses import replace

from iogauge.node.files import files_below
from iogauge.node.lustre.file_layout import FileLayout, Layouts, Part
from iogauge.node.lustre.lfs import LustreError

#: The extended attribute. It starts no program and needs no right but to look the file up.
ATTRIBUTE = "lustre.lov"

#: The most files whose layouts are read; of more, as many are chosen at random. If none of them
#: differs, fewer than 0.1 % of all do, with 95 % confidence (3 / 3000, the rule of three).
MOST_FILES = 3000
_V1 = 0x0BD10BD0
_V3 = 0x0BD30BD0
_COMPOSITE = (0x0BD60BD0, 0x0BD80BD0)

#: Of magic, pattern, object identifier (2), stripe size, stripe count, generation: pattern, size, count. Then perhaps a pool. Of
#: an object's identifier (2), generation and target: the index of its target.
_PLAIN = struct.Struct("<4xI16xIH2x")
_POOL = struct.Struct("<16s")
_OBJECT = struct.Struct("<20xI")

#: Of magic, size, generation, flags, number of components and more: size and number.
_HEAD = struct.Struct("<4xI6xH16x")

#: Identifier, flags, begin, end, offset, size, and what is not read here.
_ENTRY = struct.Struct("<IIQQII16x")

_PATTERNS = {
    0x1: "raid0",
    0x4: "parity",
    0x100: "mdt",
    0x200: "overstriped",
    0x800: "compress",
}
#: Flags of a component: its mirror is out of date, it has objects, it is room for the one before it to grow.
_STALE, _INSTANTIATED, _EXTENSION = 0x1, 0x10, 0x40
_NO_END = 2**64 - 1

#: Stripe counts from here on mean "all targets", the largest once each (LOV_ALL_STRIPES).
_ALL = 0xFFE0


def parse_lov(data: bytes, path: str) -> FileLayout:
    """Return the layout of a file.

    Raises :class:`LustreError` that names the file if the data are cut, or are no layout, or if the file has no objects.
    """
    layout = _parsed(data, path, of_file=True)
    if not layout.instantiated:
        raise LustreError(
            f"{ATTRIBUTE} of {path}: no component has objects, so it holds no data"
        )
    return layout


def read_lov(path: str, name: str) -> FileLayout:
    """Return the layout of the file at ``path``, called ``name``; raises :class:`LustreError`."""
    return parse_lov(_attribute(path), name)


def look_at_lov(directory: str, repetition: int) -> Layouts:
    """Return the layouts of the files below a directory, of so many as :data:`MOST_FILES`.

    Raises OSError if the directory cannot be listed, and :class:`LustreError`.
    """
    chosen = names = files_below(directory)
    if len(names) > MOST_FILES:
        from random import sample  # few cases need it, each agent would pay

        chosen = sorted(sample(names, MOST_FILES))
    files = tuple(read_lov(os.path.join(directory, name), name) for name in chosen)
    return Layouts(repetition=repetition, files=files, total=len(names))


def read_default_lov(directory: str) -> FileLayout | None:
    """Return the layout that a directory passes on to new files, None if it has none of its own.

    Lustre gives the file system's default if the directory has none. Raises :class:`LustreError`.
    """
    data = _attribute(directory)
    if not data:
        return None
    return _parsed(data, directory, of_file=False)


def adopt_default(directory: str, model: str) -> None:
    """Give a directory the default layout that files in another one get; raises :class:`LustreError`.

    A directory copies the default of the one above it when it is made, and keeps it if that one changes later.
    """
    wanted, own = map(_attribute, (model, directory))
    try:
        if wanted != own and wanted:
            os.setxattr(directory, ATTRIBUTE, wanted)
        elif wanted != own:
            os.removexattr(directory, ATTRIBUTE)
    except OSError as error:
        raise LustreError(
            f"{directory} did not take the default layout of {model}: {error.strerror}"
        ) from error


def _attribute(path: str) -> bytes:
    """Return the attribute, nothing of a directory without it; raises :class:`LustreError`."""
    try:
        return os.getxattr(path, ATTRIBUTE)
    except OSError as error:
        if error.errno == errno.ENODATA and os.path.isdir(path):
            return b""
        why = {
            errno.ENODATA: "it was made without objects, so it cannot hold data",
            errno.EOPNOTSUPP: "it is not on Lustre, or this client does not give layouts",
        }.get(error.errno or 0, str(error.strerror))
        raise LustreError(
            f"the layout of {path} was not answered ({ATTRIBUTE}): {why}"
        ) from error


def _parsed(data: bytes, path: str, of_file: bool) -> FileLayout:
    try:
        if _magic(data) not in _COMPOSITE:
            return FileLayout(path=path, parts=(_part(data, of_file, of_file),))
        return FileLayout(
            path=path, parts=tuple(_components(data, of_file)), composite=True
        )
    except (ValueError, struct.error) as error:
        raise LustreError(f"{ATTRIBUTE} of {path}: {error}") from error


def _magic(data: bytes) -> int:
    return int.from_bytes(data[:4], "little")


def _components(data: bytes, of_file: bool) -> Iterator[Part]:
    size, count = _HEAD.unpack_from(data)
    table = data[_HEAD.size :][: count * _ENTRY.size]
    if size != len(data) or not count:
        raise ValueError(
            f"{count} component(s) in {len(data)} bytes, said to be {size}"
        )
    for identity, flags, begin, end, offset, length in _ENTRY.iter_unpack(table):
        if flags & _EXTENSION:
            part = Part(stripe_count=0, stripe_bytes=0, pattern="extension")
        else:
            done = bool(of_file and flags & _INSTANTIATED)
            part = _part(data[offset : offset + length], of_file, done)
        if flags & _STALE:  # a mirror that missed a write: nobody reads it
            part = replace(part, objects=(), instantiated=False)
        mirror = identity >> 16 & 0x7FFF
        part = part.within(begin, end, mirror=mirror)
        if end == _NO_END:
            part = replace(part, end_bytes=None)
        yield part


def _part(data: bytes, of_file: bool, done: bool) -> Part:
    """Return a component from its description; ``done`` means that it must have objects."""
    magic = _magic(data)
    if magic not in (_V1, _V3):
        raise ValueError(f"no layout begins with {data[:4].hex() or 'nothing'}")
    pattern, size, count = _PLAIN.unpack_from(data)
    words, rest, pool = _pattern(pattern), data[_PLAIN.size :], b""
    if magic == _V3:
        pool, rest = _POOL.unpack_from(rest)[0].partition(b"\0")[0], rest[_POOL.size :]
    objects = 0
    if done and words != "mdt":
        objects = count
    if len(rest) != objects * _OBJECT.size or (of_file and not size):
        raise ValueError(f"{objects} stripe(s) of {size} bytes in {len(rest)} bytes")
    if count >= _ALL:
        count = -1
    return Part(
        stripe_count=count,
        stripe_bytes=size,
        pattern=words,
        pool=pool.decode("ascii") or None,
        objects=tuple(ost for (ost,) in _OBJECT.iter_unpack(rest)),
        instantiated=done,
    )


def _pattern(pattern: int) -> str:
    """Return the pattern in words as ``lfs getstripe`` has them; a default may prescribe none."""
    if pattern in (0, 0xFFFFFFFF):
        return "raid0"
    words = [word for bit, word in _PATTERNS.items() if pattern & bit]
    if not words or pattern & 0xFFFF & ~sum(_PATTERNS):
        raise ValueError(f"no pattern is 0x{pattern:08x}")
    return ",".join(words)
