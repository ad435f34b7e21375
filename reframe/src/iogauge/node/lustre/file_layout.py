"""Layouts that files of Lustre have, and that directories pass on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from iogauge.core.units import format_bytes
from iogauge.core.untrusted import Plain


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
        if self.end_bytes is not None:
            size = min(size, self.end_bytes)
        return max(0, size - self.begin_bytes)

    def __str__(self) -> str:
        """Return the component in short: count, size, and what is not ordinary."""
        words = {-1: "all targets", 0: "default count"}
        count = words.get(self.stripe_count, str(self.stripe_count))
        size = "default size"
        if self.stripe_bytes:
            size = format_bytes(self.stripe_bytes)
        texts = [f"{count} x {size}"]
        if self.pattern == "mdt":
            texts = ["on the metadata target"]
        elif self.pattern != "raid0":
            texts.append(self.pattern)
        if self.pool:
            texts.append(f"pool {self.pool}")
        return ", ".join(texts)


def last_with_data(parts: Sequence[Part], file_bytes: int) -> Part | None:
    """Return the last component with data on storage targets, None without such a component."""
    for part in reversed(parts):
        if part.pattern != "mdt" and part.holds(file_bytes):
            return part
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class FileLayout:
    """The layout that a file has, or that a directory passes on to its files.

    A plain layout has one part. A ``composite`` layout has its components.
    """

    path: str
    parts: tuple[Part, ...]
    composite: bool = False

    @property
    def osts(self) -> tuple[int, ...]:
        """Return the targets that hold a part of the file, each once, in order."""
        found: dict[int, None] = {}
        for part in self.parts:
            found |= dict.fromkeys(part.objects)
        return tuple(found)

    @property
    def instantiated(self) -> tuple[Part, ...]:
        """Return the components that hold data of the file, or can."""
        return tuple(part for part in self.parts if part.instantiated)

    @property
    def last(self) -> Part:
        """Return the last component that has objects, else the last of all."""
        return (self.instantiated or self.parts)[-1]

    @property
    def start(self) -> int | None:
        """Return the first target of :attr:`last`; None if its data lie with the metadata."""
        return self.last.objects[0] if self.last.objects else None

    def __str__(self) -> str:
        """Return the layout in short, without targets and sizes of the file."""
        if not self.composite:
            return str(self.parts[0])
        texts = []
        for part in self.parts:
            text = f"to the end: {part}"
            if part.end_bytes is not None:
                text = f"to {format_bytes(part.end_bytes)}: {part}"
            if part.mirror:
                text += f" (mirror {part.mirror})"
            texts.append(text)
        return "; ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts(Plain):
    """The layouts of the files of a repetition, as the first node read them after the last write.

    ``total`` is the number of files. If there are more than ``files``, these are a random sample.
    ``problem`` says why the layouts were not answered, empty if they were.
    """

    repetition: int
    files: tuple[FileLayout, ...] = ()
    total: int = 0
    problem: str = ""
