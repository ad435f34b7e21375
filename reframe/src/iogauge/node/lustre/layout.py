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
        end = size if self.end_bytes is None else min(size, self.end_bytes)
        return max(0, end - self.begin_bytes)

    def __str__(self) -> str:
        """Return the component in short: count, size, and what is not ordinary."""
        count = {-1: "all targets", 0: "default count"}.get(
            self.stripe_count, str(self.stripe_count)
        )
        size = format_bytes(self.stripe_bytes) if self.stripe_bytes else "default size"
        text = (
            "on the metadata target" if self.pattern == "mdt" else f"{count} x {size}"
        )
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
        sizes = [
            (part, part.holds(self.size or 0))
            for part in self.parts
            if part.instantiated
        ]
        return tuple((part, size) for part, size in sizes if size)

    def __str__(self) -> str:
        """Return the layout in short, without targets and sizes of the file."""
        if not self.composite:
            return str(self.parts[0])
        texts = []
        for part in self.parts:
            end = (
                "to the end"
                if part.end_bytes is None
                else f"to {format_bytes(part.end_bytes)}"
            )
            texts.append(
                f"{end}: {part}" + (f" (mirror {part.mirror})" if part.mirror else "")
            )
        return "; ".join(texts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layouts(Plain):
    """The layouts of the files of a repetition, as the first node read them after the last write.

    ``total`` is the number of files. If there are more than ``files``, these are a random sample of
    that ``seed``. ``problem`` says why the layouts were not answered, empty if they were.
    """

    repetition: int
    files: tuple[FileLayout, ...] = ()
    total: int = 0
    seed: int = 0
    problem: str = ""
