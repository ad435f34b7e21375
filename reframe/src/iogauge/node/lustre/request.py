"""Layouts that a case asks for, and files that it pins to targets: words for ``lfs``, which nothing here runs.

``lfs setstripe -c 99`` succeeds on four targets and gives four stripes (2.17). A target that takes no new files sends
them to its neighbour. So every request is read back and compared.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Literal

from iogauge.core.units import tool_size
from iogauge.core.untrusted import Plain
from iogauge.node.lustre.file_layout import Part
from iogauge.node.lustre.targets import StorageTarget


@dataclass(frozen=True, slots=True, kw_only=True)
class Layout:
    """A layout to request. None means the file system's default.

    ``stripe_count`` -1 means all targets; ``start`` is the index of the first one. The first ``metadata_bytes`` of each file
    lie with its metadata, and what follows them in the stripes.
    """

    stripe_count: int | None = None
    stripe_bytes: int | None = None
    start: int | None = None
    metadata_bytes: int = 0

    def arguments(self) -> list[str]:
        """Return the words after ``lfs setstripe``; sizes have a suffix, else they may be KiB."""
        words = []
        if self.metadata_bytes:
            words += ["-E", tool_size(self.metadata_bytes), "-L", "mdt", "-E", "-1"]
        if self.stripe_count is not None:
            words += ["-c", str(self.stripe_count)]
        if self.stripe_bytes is not None:
            words += ["-S", tool_size(self.stripe_bytes)]
        if self.start is not None:
            words += ["-i", str(self.start)]
        return words

    @property
    def begins_on_metadata(self) -> bool:
        """Return whether the first bytes of each file lie with its metadata."""
        return self.metadata_bytes > 0

    @property
    def parts(self) -> tuple[Part, ...]:
        """Return the components of a file; 0 stands for what is not requested."""
        count, size = self.stripe_count or 0, self.stripe_bytes or 0
        striped = Part(stripe_count=count, stripe_bytes=size)
        if not self.metadata_bytes:
            return (striped,)
        first = Part(stripe_count=0, stripe_bytes=0, pattern="mdt")
        return first.within(0, self.metadata_bytes), striped.within(
            self.metadata_bytes, None
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Pins(Plain):
    """Files or directories of a case, each pinned to one storage target.

    ``names`` are relative to the case's directory. They go round the active targets. With
    ``servers`` they go round the targets of that many servers; with ``targets`` (indices) round
    exactly these.
    """

    names: tuple[str, ...]
    kind: Literal["file", "directory"]
    servers: int | None = None
    targets: tuple[int, ...] = ()


def place(pins: Pins, targets: Sequence[StorageTarget]) -> dict[str, int]:
    """Return the target index for each name, round robin.

    With ``servers``, servers are ordered by their lowest target. One target of each server comes
    before the second target of any, so that few names are spread over all servers. Raises
    :class:`ValueError` if a target is inactive or missing, or if servers are unknown or too few.
    """
    active = sorted((t for t in targets if t.active), key=lambda target: target.index)
    indices = [target.index for target in active]
    for index in pins.targets:
        if index not in indices:
            raise ValueError(
                f"storage target {index} is inactive or not there: active are {indices}"
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
        chosen = []
        for turn in rounds:
            chosen += [index for index in turn if index is not None]
    if not chosen:
        raise ValueError("no storage target is active")
    return {name: chosen[i % len(chosen)] for i, name in enumerate(pins.names)}
