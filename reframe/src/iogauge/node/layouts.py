"""Layouts of Lustre, requested and obtained, on targets (OSTs), and the binary form of a file's layout.

The module builds words for ``lfs``; it runs no program. Written against Lustre 2.17.0, whose exit statuses say little. ``lfs setstripe -c 99`` succeeds on
four targets and gives four stripes. A target that takes no new files sends them to its neighbour.
So every request is read back and compared.

``getxattr(2)`` gives a file's layout in its binary form to any user. The form is that of Lustre's
``lustre_user.h``: ``lov_user_md_v1`` and ``v3``, ``lov_comp_md_v1``. The client gives the fields as they lie on the servers, which is little-endian; newer clients turn
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
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import pairwise, zip_longest
from typing import Any, Final, Literal

from iogauge.core.units import format_bytes, tool_size
from iogauge.core.untrusted import build
from iogauge.node.mounts import StorageTarget

#: Stripe sizes and component ends are multiples of this (LOV_MIN_STRIPE_SIZE).
STRIPE_STEP: Final = 1 << 16

#: Stripes are smaller than this ("over 4GB limit").
STRIPE_LIMIT: Final = 1 << 32

#: Most stripes of a file (LOV_MAX_STRIPE_COUNT).
MAX_STRIPES: Final = 2000


class LustreError(ValueError):
    """Output of ``lfs`` or ``lctl`` cannot be trusted, or a program failed. Shown to the user."""


def excerpt(text: str) -> str:
    shown = " | ".join(line.strip() for line in text.splitlines() if line.strip())
    return repr(shown[:120]) if shown else "an empty answer"


def _check_size(what: str, size: int | None) -> None:
    if size is not None and not (0 < size < STRIPE_LIMIT and size % STRIPE_STEP == 0):
        raise ValueError(
            f"{what} is {size}: expected a multiple of {STRIPE_STEP} bytes (64 KiB) below 4 GiB"
        )


def _check_count(what: str, count: int) -> None:
    if count != -1 and not 1 <= count <= MAX_STRIPES:
        raise ValueError(f"{what} is {count}: expected 1 to {MAX_STRIPES}, or -1 for all targets")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """One part of a progressive layout: up to ``end_bytes`` of the file (None: to its end).

    ``stripe_count`` -1 means all targets; ``stripe_bytes`` None the file system's default. With ``on_metadata`` its data
    lie with the metadata: it has no stripes (0).
    """

    end_bytes: int | None
    stripe_count: int
    stripe_bytes: int | None = None
    on_metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout to request. None means the file system's default.

    A plain layout has ``stripe_count`` (-1: all targets), ``stripe_bytes``, ``start`` (index of the
    first target). A progressive layout has ``components`` instead. Both may have ``pool``. Raises
    :class:`ValueError` for values that Lustre refuses, rounds or ignores.
    """

    stripe_count: int | None = None
    stripe_bytes: int | None = None
    start: int | None = None
    pool: str | None = None
    components: tuple[Component, ...] = ()

    def __post_init__(self) -> None:
        """Refuse values that Lustre would refuse, round or ignore."""
        if self.arguments() == []:
            raise ValueError(
                "a layout that asks for nothing: give a stripe count, a size or a pool"
            )
        if self.stripe_count is not None:
            _check_count("stripe_count", self.stripe_count)
        _check_size("stripe_bytes", self.stripe_bytes)
        if self.start is not None and self.start < 0:
            raise ValueError(f"start is {self.start}: expected the index of a target, 0 or more")
        if self.pool is not None and not re.fullmatch(r"[A-Za-z0-9_-]{1,15}", self.pool):
            raise ValueError(
                f"pool is {self.pool!r}: expected up to 15 letters, digits, _ and -, without the "
                "name of the file system"
            )
        if self.components:
            self._check_components()

    def _check_components(self) -> None:
        if (self.stripe_count, self.stripe_bytes, self.start) != (None, None, None):
            raise ValueError(
                "a progressive layout has counts and sizes in its components only: leave out "
                "stripe_count, stripe_bytes and start"
            )
        ends = [component.end_bytes for component in self.components]
        if ends[-1] is not None or None in ends[:-1]:
            raise ValueError(
                f"components end at {ends}: expected None (the end of the file) for the last one only"
            )
        begin = 0
        for component in self.components:
            if component.on_metadata:
                if begin or component.end_bytes is None or component.stripe_count:
                    raise ValueError(
                        "only the first component can lie with the metadata: it has an end, and 0 stripes"
                    )
            else:
                _check_count("stripe_count of a component", component.stripe_count)
            _check_size("stripe_bytes of a component", component.stripe_bytes)
            end = component.end_bytes
            if end is None:
                continue
            step = component.stripe_bytes or STRIPE_STEP
            if end <= begin or end % step:
                raise ValueError(
                    f"a component ends at {end}: expected a multiple of {step} above {begin}"
                )
            begin = end

    def arguments(self) -> list[str]:
        """Return the words after ``lfs setstripe``; sizes have a suffix, else they may be KiB."""
        pool = ["-p", self.pool] if self.pool is not None else []
        words: list[str] = []
        for component in self.components:
            end = "-1" if component.end_bytes is None else tool_size(component.end_bytes)
            words += ["-E", end]
            if component.on_metadata:
                words += ["-L", "mdt"]
                continue
            words += ["-c", str(component.stripe_count)]
            if component.stripe_bytes is not None:
                words += ["-S", tool_size(component.stripe_bytes)]
            words += pool
        if self.components:
            return words
        if self.stripe_count is not None:
            words += ["-c", str(self.stripe_count)]
        if self.stripe_bytes is not None:
            words += ["-S", tool_size(self.stripe_bytes)]
        if self.start is not None:
            words += ["-i", str(self.start)]
        return words + pool

    @property
    def begins_on_metadata(self) -> bool:
        """Return whether the first bytes of each file lie with its metadata."""
        return bool(self.components) and self.components[0].on_metadata


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectoryLayout:
    """Where the new directories below a directory lie: on the metadata target ``target``, or on ``stripes`` of them.

    -1 ``stripes`` mean all metadata targets. Raises :class:`ValueError` for other numbers below 1, and for stripes that
    begin on a chosen target.
    """

    stripes: int = 1
    target: int | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that Lustre would refuse or round."""
        _check_count("stripes", self.stripes)
        if self.target is not None and (self.target < 0 or self.stripes != 1):
            raise ValueError(
                f"target is {self.target} with {self.stripes} stripe(s): expected the index of a metadata "
                "target, 0 or more, and one stripe"
            )

    def arguments(self) -> list[str]:
        """Return the words after ``lfs setdirstripe`` that make it the default of a directory."""
        where = [] if self.target is None else ["-i", str(self.target)]
        return ["-D", "-c", str(self.stripes), *where]


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """A component of a file's layout, or the whole of a plain layout, from ``begin_bytes`` on.

    ``end_bytes`` None means the end of the file, ``stripe_count`` -1 all targets. In a directory's
    default 0 stripes, or stripes of 0 bytes, mean the file system's default. ``objects`` are the
    targets of the stripes, in order. They are empty until the component is ``instantiated``, and if
    its data lie with the metadata (pattern ``mdt``).
    """

    stripe_count: int
    stripe_bytes: int
    pattern: str = "raid0"
    pool: str | None = None
    objects: tuple[int, ...] = ()
    instantiated: bool = False
    begin_bytes: int = 0
    end_bytes: int | None = None
    mirror: int = 0

    def within(self, begin: int, end: int | None, mirror: int = 0) -> Part:
        """Return the same component with an extent of the file."""
        return replace(self, begin_bytes=begin, end_bytes=end, mirror=mirror)

    def holds(self, size: int) -> int:
        """Return how many bytes of a file of ``size`` bytes lie in this component's extent."""
        end = size if self.end_bytes is None else min(size, self.end_bytes)
        return max(0, end - self.begin_bytes)

    def __str__(self) -> str:
        """Return the component in short: count, size, and what is not ordinary."""
        count = {-1: "all targets", 0: "default count"}.get(
            self.stripe_count, str(self.stripe_count)
        )
        size = format_bytes(self.stripe_bytes) if self.stripe_bytes else "default size"
        text = "on the metadata target" if self.pattern == "mdt" else f"{count} x {size}"
        more = [] if self.pattern in ("raid0", "mdt") else [self.pattern]
        more += [f"pool {self.pool}"] if self.pool else []
        return ", ".join([text, *more])


def last_with_data(parts: Sequence[Part], file_bytes: int) -> Part | None:
    """Return the last component with data on storage targets, None without such a component."""
    held = [part for part in parts if part.pattern != "mdt" and part.holds(file_bytes)]
    return held[-1] if held else None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The layout that a file has, or that a directory passes on to its files.

    A plain layout has one part. A ``composite`` layout has its components; ``size`` is then the size
    of the file in bytes, None if unknown.
    """

    path: str
    parts: tuple[Part, ...]
    composite: bool = False
    size: int | None = None

    def __post_init__(self) -> None:
        """Refuse a layout of nothing."""
        if not self.parts:
            raise TypeError(f"{self.path}: a layout without parts")

    @property
    def osts(self) -> tuple[int, ...]:
        """Return the targets that hold a part of the file, each once, in order."""
        return tuple(dict.fromkeys(ost for part in self.parts for ost in part.objects))

    @property
    def instantiated(self) -> tuple[Part, ...]:
        """Return the components that hold data, or can."""
        return tuple(part for part in self.parts if part.instantiated)

    @property
    def last(self) -> Part:
        """Return the last component that has objects, else the last of all."""
        return (self.instantiated or self.parts)[-1]

    @property
    def start(self) -> int | None:
        """Return the first target of :attr:`last`; None if its data lie with the metadata."""
        return self.last.objects[0] if self.last.objects else None

    @property
    def held(self) -> tuple[tuple[Part, int], ...]:
        """Return the components that hold bytes of the file, with their number."""
        sizes = [(part, part.holds(self.size or 0)) for part in self.parts if part.instantiated]
        return tuple((part, size) for part, size in sizes if size)

    def __str__(self) -> str:
        """Return the layout in short, without targets and sizes of the file."""
        if not self.composite:
            return str(self.parts[0])
        texts = []
        for part in self.parts:
            end = "to the end" if part.end_bytes is None else f"to {format_bytes(part.end_bytes)}"
            texts.append(f"{end}: {part}" + (f" (mirror {part.mirror})" if part.mirror else ""))
        return "; ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts:
    """The layouts of the files of a repetition, as the first node read them after the last write.

    ``total`` is the number of files. If there are more than ``files``, these are a random sample of
    that ``seed``. ``problem`` says why the layouts were not answered, empty if they were.
    """

    repetition: int
    files: tuple[FileLayout, ...] = ()
    total: int = 0
    seed: int = 0
    problem: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON file; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Layouts:
        """Return the layouts that :meth:`to_json` made plain; raises TypeError on other data."""
        layouts: Layouts = build(Layouts, data)
        if not 0 <= len(layouts.files) <= layouts.total:
            raise TypeError(f"{len(layouts.files)} layouts of {layouts.total} files")
        return layouts


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins:
    """Files or directories of a case, each pinned to one storage target.

    ``names`` are relative to the case's directory. They go round the active targets. With
    ``servers`` they go round the targets of that many servers; with ``targets`` (indices) round
    exactly these. With ``pool`` they are made in it. Raises :class:`ValueError` for names that lead elsewhere or are repeated.
    """

    names: tuple[str, ...]
    kind: Literal["file", "directory"]
    stripe_bytes: int | None = None
    servers: int | None = None
    targets: tuple[int, ...] = ()
    pool: str | None = None

    def __post_init__(self) -> None:
        """Refuse names that lead out of the case's directory, and contradictory choices."""
        for name in self.names:
            if not name or any(part in ("", ".", "..") for part in name.split("/")):
                raise ValueError(f"{name!r} is not a path below the case's directory")
        if not self.names or len(set(self.names)) != len(self.names):
            raise ValueError(f"{len(self.names)} names to pin: expected one or more, each once")
        if self.kind not in ("file", "directory"):
            raise ValueError(f"kind is {self.kind!r}: expected file or directory")
        _check_size("stripe_bytes", self.stripe_bytes)
        if self.servers is not None and (self.servers < 1 or self.targets):
            raise ValueError(
                f"servers is {self.servers} with targets {self.targets}: expected 1 or more, and one "
                "of the two"
            )

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON file; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Pins:
        """Return the pins that :meth:`to_json` made plain; raises TypeError or ValueError."""
        pins: Pins = build(Pins, data)
        return pins


def place(pins: Pins, targets: Sequence[StorageTarget]) -> dict[str, int]:
    """Return the target index for each name, round robin.

    With ``servers``, servers are ordered by their lowest target. One target of each server comes
    before the second target of any, so that few names are spread over all servers. Raises
    :class:`ValueError` if a target is inactive or missing, or if servers are unknown or too few.
    """
    active = sorted((t for t in targets if t.active), key=lambda target: target.index)
    indices = [target.index for target in active]
    if missing := [index for index in pins.targets if index not in indices]:
        raise ValueError(
            f"storage target {missing[0]} is inactive or not there: active are {indices}"
        )
    chosen = list(pins.targets) or indices
    if pins.servers is not None:
        of_server: dict[str, list[int]] = {}
        for target in active:
            if target.server is None:
                raise ValueError(
                    f"the server of {target.uuid} is not known: lctl get_param osc.*.ost_conn_uuid "
                    "must name it"
                )
            of_server.setdefault(target.server, []).append(target.index)
        if pins.servers > len(of_server):
            raise ValueError(
                f"{pins.servers} servers asked for, {len(of_server)} known: {', '.join(of_server)}"
            )
        rounds = zip_longest(*list(of_server.values())[: pins.servers])
        chosen = [index for turn in rounds for index in turn if index is not None]
    if not chosen:
        raise ValueError("no storage target is active")
    return {name: chosen[i % len(chosen)] for i, name in enumerate(pins.names)}


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
