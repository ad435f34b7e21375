"""IOR: a command line from its options, and the back ends of a build."""

import re
from dataclasses import dataclass, replace
from typing import Final, Literal

from iogauge.core.measurement import ToolOutputError
from iogauge.tools.arguments import arguments, option
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

    api: str = option("-a", "POSIX")
    test_file: str = option("-o")
    transfer_bytes: int = option("-t", size=True)
    block_bytes: int = option("-b", size=True)
    segments: int = option("-s", 1)
    file_per_process: bool = option("-F", False)
    write: bool = option("-w", False)
    read: bool = option("-r", False)
    verify_write: bool = option("-W", False)
    verify_read: bool = option("-R", False)
    fsync: bool = option("-e", False)
    collective: bool = option("-c", False)
    barriers: bool = option("-g", False)
    reorder_tasks: bool = option("-C", False)
    random_offsets: bool = option("-z", False)
    keep: bool = option("-k", False)
    use_existing: bool = option("-E", False)
    o_direct: bool = option("--posix.odirect", False)
    task_offset: int | None = option("-Q", None)
    data_type: DataType | None = option("-l", None)
    signature: int | None = option("-G=", None)
    random_offset_seed: int | None = option("--random-offset-seed=", None)
    rank_details_csv: str | None = option("-O saveRankPerformanceDetailsCSV=", None)
    summary_file: str | None = option("-O summaryFile=", None)
    summary_format: str = option("-O summaryFormat=", "JSON")

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
        )
        if self.random_offsets:
            checked = replace(checked, random_offset_seed=_SEED)
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
