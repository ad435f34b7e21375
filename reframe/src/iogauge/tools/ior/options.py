"""IOR: a command line from its options, and the back ends of a build."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from iogauge.core import units
from iogauge.core.measurement import ToolOutputError
from iogauge.tools.parsing import excerpt

DataType = Literal["timestamp", "offset", "incompressible", "random"]

#: IOR 4's words by ``dataPacketType`` number (aiori.h). The word in its JSON ("data packet type")
#: is shifted by one in 4.0.0: it says "g" for timestamp and "i" for random.
DATA_TYPES: Final[tuple[DataType, ...]] = ("timestamp", "offset", "incompressible", "random")
#: Signature and seed of data that are checked; any would do.
_SIGNATURE: Final = 1181783497
_SEED: Final = 7
#: What IOR prints if the data are wrong. Its exit status is the number of errors modulo 256.
MISMATCH: Final = r"Incorrect data on (?:read|write)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IorOptions:
    """Options of one execution of IOR; sizes in bytes.

    Without ``write`` and ``read`` IOR does both. ``verify_write`` and ``verify_read`` need
    ``write`` and ``read``, ``task_offset`` needs ``reorder_tasks``: else IOR ignores them.
    """

    api: str = "POSIX"
    test_file: str
    transfer_bytes: int
    block_bytes: int
    segments: int = 1
    file_per_process: bool = False
    write: bool = False
    read: bool = False
    fsync: bool = False
    reorder_tasks: bool = False
    task_offset: int | None = None
    random_offsets: bool = False
    random_offset_seed: int | None = None
    barriers: bool = False
    keep: bool = False
    use_existing: bool = False
    verify_write: bool = False
    verify_read: bool = False
    signature: int | None = None
    data_type: DataType | None = None
    o_direct: bool = False
    collective: bool = False
    summary_file: str | None = None
    rank_details_csv: str | None = None

    @property
    def bytes_per_task(self) -> int:
        """Return the bytes that each task moves in each phase."""
        return self.block_bytes * self.segments

    def verification(self, read_back: bool = False) -> tuple[str, ...]:
        """Return the words with which IOR also checks the data, see :data:`MISMATCH`.

        A read compares them (``-R``); with ``read_back`` a write reads them (``-W``). Write and
        read need one signature (``-G``): IOR takes it from its clock, and without it writes random
        data of seed 0. Random offsets need one seed: IOR refuses to compare without.
        """
        checked = replace(
            self,
            verify_write=read_back,
            verify_read=self.read,
            signature=_SIGNATURE,
            random_offset_seed=_SEED if self.random_offsets else None,
        )
        plain = self.arguments()
        return tuple(word for word in checked.arguments() if word not in plain)

    def arguments(self) -> list[str]:
        """Return the arguments after ``ior``, in stable order: what, where, how, limits, output."""
        size = units.tool_size
        args = ["-a", self.api, "-o", self.test_file]
        args += ["-t", size(self.transfer_bytes), "-b", size(self.block_bytes)]
        args += ["-s", str(self.segments)]
        for given, flag in (
            (self.file_per_process, "-F"),
            (self.write, "-w"),
            (self.read, "-r"),
            (self.verify_write, "-W"),
            (self.verify_read, "-R"),
            (self.fsync, "-e"),
            (self.collective, "-c"),
            (self.barriers, "-g"),
            (self.reorder_tasks, "-C"),
            (self.random_offsets, "-z"),
            (self.keep, "-k"),
            (self.use_existing, "-E"),
            (self.o_direct, "--posix.odirect"),
        ):
            if given:
                args.append(flag)
        if self.task_offset is not None:
            args += ["-Q", str(self.task_offset)]
        if self.data_type is not None:
            args += ["-l", self.data_type]
        if self.signature is not None:
            args.append(f"-G={self.signature}")
        if self.random_offset_seed is not None:
            args.append(f"--random-offset-seed={self.random_offset_seed}")
        for directive, value in (
            ("saveRankPerformanceDetailsCSV", self.rank_details_csv),
            ("summaryFile", self.summary_file),
            ("summaryFormat", "JSON"),
        ):
            if value is not None:
                args += ["-O", f"{directive}={value}"]
        return args


def parse_help(text: str) -> frozenset[str]:
    """Return the back ends of ``ior --help`` (3.3, 4.0); raises :class:`ToolOutputError` for other text."""
    apis = re.search(r"API for I/O\s+\[([A-Za-z0-9_|.-]+)\]", text)
    if apis is None:
        raise ToolOutputError(
            f"this is not the help text of IOR: no 'API for I/O [...]'; it begins: {excerpt(text)}"
        )
    return frozenset(apis[1].split("|"))
