"""IOR: a command line from its options, and the back ends of a build."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from iogauge.core.measurement import ToolOutputError
from iogauge.tools.arguments import arguments, said
from iogauge.tools.parsing import excerpt

DataType = Literal["timestamp", "offset", "incompressible", "random"]

#: IOR 4's words by ``dataPacketType`` number (aiori.h). The word in its JSON ("data packet type")
#: is shifted by one in 4.0.0: it says "g" for timestamp and "i" for random.
DATA_TYPES: Final[tuple[DataType, ...]] = (
    "timestamp",
    "offset",
    "incompressible",
    "random",
)
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

    api: str = said("-a", "POSIX")
    test_file: str = said("-o")
    transfer_bytes: int = said("-t", size=True)
    block_bytes: int = said("-b", size=True)
    segments: int = said("-s", 1)
    file_per_process: bool = said("-F", False)
    write: bool = said("-w", False)
    read: bool = said("-r", False)
    verify_write: bool = said("-W", False)
    verify_read: bool = said("-R", False)
    fsync: bool = said("-e", False)
    collective: bool = said("-c", False)
    barriers: bool = said("-g", False)
    reorder_tasks: bool = said("-C", False)
    random_offsets: bool = said("-z", False)
    keep: bool = said("-k", False)
    use_existing: bool = said("-E", False)
    o_direct: bool = said("--posix.odirect", False)
    task_offset: int | None = said("-Q", None)
    data_type: DataType | None = said("-l", None)
    signature: int | None = said("-G=", None)
    random_offset_seed: int | None = said("--random-offset-seed=", None)
    rank_details_csv: str | None = said("-O saveRankPerformanceDetailsCSV=", None)
    summary_file: str | None = said("-O summaryFile=", None)
    summary_format: str = said("-O summaryFormat=", "JSON")

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
        """Return the arguments after ``ior``."""
        return arguments(self)


def parse_help(text: str) -> frozenset[str]:
    """Return the back ends of ``ior --help`` (3.3, 4.0); raises :class:`ToolOutputError` for other text."""
    apis = re.search(r"API for I/O\s+\[([A-Za-z0-9_|.-]+)\]", text)
    if apis is None:
        raise ToolOutputError(
            f"this is not the help text of IOR: no 'API for I/O [...]'; it begins: {excerpt(text)}"
        )
    return frozenset(apis[1].split("|"))
