"""Layouts of Lustre: the layout to request, the layout obtained, the placement on targets (OSTs).

The module builds words for ``lfs`` and parses output of ``lfs`` and ``lctl``; it runs no program.
Written against Lustre 2.17.0, whose exit statuses say little. ``lfs setstripe -c 99`` succeeds on
four targets and gives four stripes. A target that takes no new files sends them to its neighbour.
So every request is read back (:mod:`iogauge.node.lov`) and compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import zip_longest
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

    ``stripe_count`` -1 means all targets; ``stripe_bytes`` None the file system's default.
    """

    end_bytes: int | None
    stripe_count: int
    stripe_bytes: int | None = None


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
            words += ["-E", end, "-c", str(component.stripe_count)]
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
