"""IOR: a command line from its options, and the capabilities of a build."""

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
_HINTED_APIS: Final = ("MPIIO", "HDF5", "NCMPI")
_RESERVED: Final = re.compile(r"[\s\"\\]")
#: Signature and seed of data that are checked; any would do.
_SIGNATURE: Final = 1181783497
_SEED: Final = 7
#: What IOR prints if the data are wrong. Its exit status is the number of errors modulo 256.
MISMATCH: Final = r"Incorrect data on (?:read|write)"


@dataclass(frozen=True, slots=True, kw_only=True)
class IorOptions:
    """Options of one execution of IOR; sizes in bytes, times in the unit of their name.

    Without ``write`` and ``read`` IOR does both. ``verify_write`` and ``verify_read`` need
    ``write`` and ``read``. Raises :class:`ValueError` for values that IOR accepts and ignores, or treats
    unexpectedly; it refuses others itself.
    """

    api: str = "POSIX"
    test_file: str
    transfer_bytes: int
    block_bytes: int
    segments: int = 1
    file_per_process: bool = False
    unique_dir: bool = False
    write: bool = False
    read: bool = False
    fsync: bool = False
    reorder_tasks: bool = False
    task_offset: int | None = None
    random_offsets: bool = False
    random_offset_seed: int | None = None
    random_prefill_bytes: int | None = None
    barriers: bool = False
    repetitions: int = 1
    keep: bool = False
    use_existing: bool = False
    stonewall_s: int = 0
    wear_out: bool = False
    stonewall_status_file: str | None = None
    min_duration_s: int = 0
    verify_write: bool = False
    verify_read: bool = False
    signature: int | None = None
    data_type: DataType | None = None
    o_direct: bool = False
    collective: bool = False
    summary_file: str | None = None
    rank_details_csv: str | None = None

    def __post_init__(self) -> None:
        """Refuse values that IOR would silently ignore or treat differently."""
        for name, path in (
            ("test_file", self.test_file),
            ("stonewall_status_file", self.stonewall_status_file),
            ("summary_file", self.summary_file),
            ("rank_details_csv", self.rank_details_csv),
        ):
            # IOR does not escape them in its JSON, takes '@' between files, and ',' and '#' between words of -O.
            if path is not None and (
                not path
                or _RESERVED.search(path)
                or (name != "test_file" and re.search("[,#]", path))
            ):
                raise ValueError(f"{name} is {path!r}: IOR would read it otherwise")
        if "@" in self.test_file:
            raise ValueError(f"test_file is {self.test_file!r}: IOR would split it at '@'")
        for wrong, problem in (
            (
                self.task_offset is not None and not self.reorder_tasks,
                "task_offset (-Q) does nothing without reorder_tasks (-C)",
            ),
            (
                self.unique_dir and not (self.file_per_process and self.test_file.startswith("/")),
                "unique_dir (-u) needs file_per_process, and an absolute path: it cuts the first letter of another",
            ),
            (
                self.verify_read and not self.read,
                "verify_read (-R) without read leaves the read out of the summary",
            ),
            (
                self.verify_write and not self.write,
                "verify_write (-W) without write removes the file before it checks it",
            ),
            (
                bool(self.min_duration_s) and self.reads and not self.o_direct,
                "min_duration_s reads the same bytes again, from the page cache",
            ),
            (
                self.collective and self.api.upper() not in _HINTED_APIS,
                f"collective (-c) has no effect with api {self.api}",
            ),
            (self.signature == 0, "signature 0 means none"),
        ):
            if wrong:
                raise ValueError(problem)

    @property
    def writes(self) -> bool:
        """Return whether IOR will run a write phase."""
        return self.write or not self.read

    @property
    def reads(self) -> bool:
        """Return whether IOR will run a read phase."""
        return self.read or not self.write

    @property
    def bytes_per_task(self) -> int:
        """Return the bytes that each task moves in each phase without a stonewall."""
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
        args += _flags(
            (self.file_per_process, "-F"),
            (self.unique_dir, "-u"),
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
        )
        prefill = self.random_prefill_bytes
        value: str | int | None
        for option, value in (
            ("-Q", self.task_offset),
            ("-i", self.repetitions if self.repetitions != 1 else None),
            ("-D", self.stonewall_s or None),
            ("-l", self.data_type),
        ):
            if value is not None:
                args += [option, str(value)]
        for option, value in (
            ("-G", self.signature),
            ("--random-offset-seed", self.random_offset_seed),
            ("--randomPrefill", size(prefill) if prefill is not None else None),
        ):
            if value is not None:
                args.append(f"{option}={value}")
        for directive, value in (
            ("stoneWallingWearOut", 1 if self.wear_out else None),
            ("stoneWallingStatusFile", self.stonewall_status_file),
            ("minTimeDuration", self.min_duration_s or None),
            ("saveRankPerformanceDetailsCSV", self.rank_details_csv),
            ("summaryFile", self.summary_file),
            ("summaryFormat", "JSON"),
        ):
            if value is not None:
                args += ["-O", f"{directive}={value}"]
        return args


def _flags(*pairs: tuple[bool, str]) -> list[str]:
    return [flag for given, flag in pairs if given]


@dataclass(frozen=True, slots=True)
class IorCapabilities:
    """Features of an ior binary, from its help text (which does not name the version)."""

    apis: frozenset[str]
    options: frozenset[str]

    @property
    def lustre(self) -> bool:
        """Return whether ``--posix.lustre.*`` exists: ior was configured ``--with-lustre``."""
        return "--posix.lustre.stripecount" in self.options

    @property
    def o_direct(self) -> bool:
        """Return whether ``--posix.odirect`` exists."""
        return "--posix.odirect" in self.options


def parse_help(text: str) -> IorCapabilities:
    """Parse ``ior --help`` (3.3, 4.0); raises :class:`ToolOutputError` for other text."""
    apis = re.search(r"API for I/O\s+\[([A-Za-z0-9_|.-]+)\]", text)
    if apis is None:
        raise ToolOutputError(
            f"this is not the help text of IOR: no 'API for I/O [...]'; it begins: {excerpt(text)}"
        )
    pairs = re.findall(r"(?m)^  (?:(-\w), )?(--?[A-Za-z][\w.-]*)", text)
    options = frozenset(option for pair in pairs for option in pair if option)
    return IorCapabilities(frozenset(apis[1].split("|")), options)
