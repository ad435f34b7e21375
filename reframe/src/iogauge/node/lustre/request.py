"""Layouts that a case asks for, and files that it pins to targets: words for ``lfs``, which nothing here runs.

``lfs setstripe -c 99`` succeeds on four targets and gives four stripes (2.17). A target that takes no new files sends
them to its neighbour. So every request is read back and compared.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import zip_longest
from typing import Any, Final, Literal

from iogauge.core.units import tool_size
from iogauge.core.untrusted import build
from iogauge.node.lustre.targets import StorageTarget

#: Stripe sizes and component ends are multiples of this (LOV_MIN_STRIPE_SIZE).
STRIPE_STEP: Final = 1 << 16

#: Stripes are smaller than this ("over 4GB limit").
STRIPE_LIMIT: Final = 1 << 32

#: Most stripes of a file (LOV_MAX_STRIPE_COUNT).
MAX_STRIPES: Final = 2000


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
