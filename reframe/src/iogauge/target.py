"""What a partition's ``extras`` say: the target, the nodes that use it, the limits of a case.

Everything that a site declares beyond ReFrame's own keys is modelled here and nowhere else. Checks never
hold a size or a path of a site; sites never hold a line of Python.
"""

from __future__ import annotations

import re
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, Literal

from pydantic import Field, field_validator, model_validator

from iogauge.topology import Bytes, Count, Fraction, Seconds, SiteModel, Topology
from iogauge.units import format_bytes

#: How much a run must prove. ``quick`` shows that a target works and gives rough figures; ``daily`` gives
#: figures to compare from day to day; ``acceptance`` gives figures to sign.
Tier = Literal["quick", "daily", "acceptance"]

#: How a client of this file system caches data, see :mod:`iogauge.filesystem`.
CacheKind = Literal["page-cache", "opaque", "memory"]

_REFRAME_ADDS: Final = ("scheduler", "launcher")


class Target(SiteModel):
    """A file system under test as the partition sees it."""

    #: Directory below which ``iogauge/<user>/<session>`` is made. Absolute.
    path: str
    #: File-system type as the kernel names it in mountinfo (``lustre``, ``ext4``, ``fuse.glusterfs``).
    type: str = Field(min_length=1)
    #: What is mounted (``10.0.0.1@tcp:/scratch``, ``/dev/sdb1``); not compared where left out.
    source: str | None = None
    #: Overrides what is known of the type: the file system really bypasses caches under O_DIRECT.
    honours_o_direct: bool | None = None
    #: Overrides what is known of the type: where a client keeps data that it has read or written.
    cache: CacheKind | None = None

    @field_validator("path")
    @classmethod
    def _absolute(cls, path: str) -> str:
        pure = PurePosixPath(path)
        if not pure.is_absolute() or ".." in pure.parts:
            raise ValueError(f"{path!r} must be an absolute path without '..'")
        # IOR and mdtest split a path at '@', fio at ':'; the others end up in job scripts and job files.
        odd = sorted(set(re.findall(r"[^A-Za-z0-9_./+,=%~-]", path)))
        if odd:
            raise ValueError(
                f"{path!r} holds {' '.join(map(repr, odd))}: letters, digits and _ . / + , = % ~ - "
                "are safe with every tool"
            )
        return path


class Node(SiteModel):
    """One client node of the partition."""

    cores: Count
    memory: Annotated[Bytes, Field(gt=0)]


class Scale(SiteModel):
    """How many nodes and tasks a case uses unless it says otherwise."""

    nodes: Count = 1
    tasks_per_node: Count


class Limits(SiteModel):
    """What a case may cost, and what a measurement must show to be believed."""

    #: Bytes that one case may hold on the target at a time.
    case_bytes: Bytes
    #: Files that one case may hold on the target at a time.
    case_files: Count
    #: Seconds that a time-based phase runs (fio's runtime, mdtest's stonewall).
    phase_seconds: Seconds
    #: Repetitions of each case; their median is judged.
    repetitions: Count = 3
    tier: Tier
    #: Fill of the target after the case, at most (G13).
    max_fill: Fraction = 0.85
    #: Free space that must remain, as a share of the target (G13).
    keep_free: Fraction = 0.10
    #: Coefficient of variation over the repetitions, at most (G17).
    max_spread: Fraction = 0.10
    #: Write and read at least this many times the memory where only size defeats a cache (G1).
    memory_factor: Annotated[float, Field(ge=1, strict=True)] = 2.0

    @model_validator(mode="after")
    def _sizes_make_sense(self) -> Limits:
        if self.case_bytes < 1 << 20:
            raise ValueError(f"case_bytes is {format_bytes(self.case_bytes)}: needs at least 1 MiB")
        return self


class PartitionExtras(SiteModel):
    """All keys that a partition may have under ``extras``."""

    target: Target
    node: Node
    scale: Scale
    limits: Limits
    topology: Topology | None = None

    @classmethod
    def of_partition(cls, extras: dict[str, Any]) -> PartitionExtras:
        """From a ReFrame partition's ``extras``, to which ReFrame itself adds scheduler and launcher.

        Raises pydantic's ValidationError.
        """
        return cls.model_validate({k: v for k, v in extras.items() if k not in _REFRAME_ADDS})
