"""mdtest: a command line from its options."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from iogauge.core import units

DATA_TYPES: Final = ("timestamp", "offset", "incompressible", "random")


@dataclass(frozen=True, slots=True, kw_only=True)
class MdtestOptions:
    """Options of one execution of mdtest: IO500's easy and hard forms, and forms between them.

    Without ``create``, ``stat``, ``read`` and ``remove`` mdtest does all of them. ``items`` is for
    each task (-n). -P is always given: without it mdtest prints only rates, and
    ``output.parse_table`` must derive the seconds. A tree has ``depth`` levels below its root (-z) and
    ``branching`` directories in each directory (-b). Raises :class:`ValueError` for values that
    mdtest refuses (``md_validate_tests``) or ignores.
    """

    directory: str
    items: int | None = None
    items_per_directory: int | None = None
    files_only: bool = False
    leaf_only: bool = False
    unique_dir: bool = False
    time_unique_dir: bool = False
    depth: int = 0
    branching: int = 1
    create: bool = False
    stat: bool = False
    read: bool = False
    remove: bool = False
    write_bytes: int = 0
    read_bytes: int = 0
    verify_read: bool = False
    signature: int | None = None
    data_type: str | None = None
    stride: int = 0
    sync_phase: bool = False
    stonewall_s: int = 0
    stonewall_status_file: str | None = None
    repetitions: int = 1
    api: str | None = None
    rank_details_csv: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that mdtest would refuse or ignore."""
        self._check_items()
        self._check_phases()
        for name, path in (
            ("directory", self.directory),
            ("stonewall_status_file", self.stonewall_status_file),
            ("rank_details_csv", self.rank_details_csv),
        ):
            if path is not None and (not path or re.search(r"[\s'\"\\]", path)):
                raise ValueError(f"{name} is {path!r}: expected a path without blanks and quotes")
        if "@" in self.directory:
            raise ValueError(
                f"directory is {self.directory!r}: mdtest takes '@' as the separator of directories"
            )
        if self.api is not None and not re.fullmatch(r"[A-Za-z0-9]+", self.api):
            raise ValueError(f"api is {self.api!r}: expected a name such as POSIX")
        if self.data_type is not None and self.data_type not in DATA_TYPES:
            raise ValueError(f"data_type is {self.data_type!r}: expected one of {DATA_TYPES}")

    def _check_items(self) -> None:
        for name, value, least in (
            ("items", self.items, 1),
            ("items_per_directory", self.items_per_directory, 1),
            ("write_bytes", self.write_bytes, 0),
            ("read_bytes", self.read_bytes, 0),
            ("stride", self.stride, 0),
            ("depth", self.depth, 0),
            ("branching", self.branching, 1),
            ("stonewall_s", self.stonewall_s, 0),
            ("repetitions", self.repetitions, 1),
        ):
            if value is not None and value < least:
                raise ValueError(f"{name} is {value}: expected at least {least}")
        if self.items is None and self.items_per_directory is None:
            raise ValueError("give items (-n) or items_per_directory (-I): mdtest has no default")
        if self.items is not None and self.items_per_directory is not None:
            if self.unique_dir:
                raise ValueError("with unique_dir give items or items_per_directory, not both")
            if self.items % self.items_per_directory:
                raise ValueError(
                    f"items is {self.items}: expected a multiple of items_per_directory "
                    f"({self.items_per_directory})"
                )

    def _check_phases(self) -> None:
        everything = not (self.create or self.stat or self.read or self.remove)
        creates, reads = self.create or everything, self.read or everything
        if self.branching > 1 and (self.stonewall_s or self.stonewall_status_file):
            raise ValueError(
                f"branching is {self.branching}: mdtest has a stonewall (-W, -x) only without branches"
            )
        if self.stonewall_s and not creates:
            raise ValueError("stonewall_s (-W) acts on the create phase: set create or drop it")
        if self.verify_read and not reads:
            raise ValueError("verify_read (-X) needs the read phase: set read")
        if self.verify_read and not self.read_bytes:
            raise ValueError("verify_read (-X) needs read_bytes above 0")
        if creates and reads and self.read_bytes > self.write_bytes:
            raise ValueError(
                f"read_bytes is {self.read_bytes}: expected at most write_bytes "
                f"({self.write_bytes})"
            )
        if self.signature is not None and not 0 < self.signature < 2**31:
            raise ValueError(f"signature is {self.signature}: expected 1 to 2147483647")

    def arguments(self) -> list[str]:
        """Return the arguments after ``mdtest``, in a stable order: what, how, where, output."""
        args: list[str] = []
        size = units.tool_size
        for option, value in (
            ("-a", self.api),
            ("-n", self.items),
            ("-I", self.items_per_directory),
        ):
            if value is not None:
                args += [option, str(value)]
        for given, flag in (
            (self.files_only, "-F"),
            (self.leaf_only, "-L"),
            (self.unique_dir, "-u"),
            (self.time_unique_dir, "-t"),
            (self.create, "-C"),
            (self.stat, "-T"),
            (self.read, "-E"),
            (self.remove, "-r"),
            (self.verify_read, "-X"),
            (self.sync_phase, "-Y"),
        ):
            if given:
                args.append(flag)
        args.append("-P")
        for option, value in (
            ("-w", size(self.write_bytes) if self.write_bytes else None),
            ("-e", size(self.read_bytes) if self.read_bytes else None),
            ("-G", self.signature),
            ("-N", self.stride or None),
            ("-z", self.depth or None),
            ("-b", self.branching if self.branching != 1 else None),
            ("-W", self.stonewall_s or None),
            ("-x", self.stonewall_status_file),
            ("-i", self.repetitions if self.repetitions != 1 else None),
            ("-d", self.directory),
        ):
            if value is not None:
                args += [option, str(value)]
        if self.data_type is not None:
            args.append(f"--dataPacketType={self.data_type}")
        if self.rank_details_csv is not None:
            args.append(f"--saveRankPerformanceDetails={self.rank_details_csv}")
        return args
