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
_INT32: Final = range(-(2**31), 2**31)


@dataclass(frozen=True, slots=True, kw_only=True)
class IorOptions:
    """Options of one execution of IOR; sizes in bytes, times in the unit of their name.

    Without ``write`` and ``read`` IOR does both. ``verify_write`` and ``verify_read`` need
    ``write`` and ``read``. Raises :class:`ValueError` for values that IOR refuses
    (``ValidateTests`` in ior.c). The same goes for values that IOR accepts but ignores, or treats
    unexpectedly.
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
        """Refuse values that IOR would refuse or silently treat differently."""
        self._check_sizes()
        self._check_order()
        self._check_files()
        self._check_stonewall()
        self._check_backend()

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

    def _check_sizes(self) -> None:
        t, b = self.transfer_bytes, self.block_bytes
        for name, value in (("transfer_bytes", t), ("block_bytes", b)):
            if value <= 0 or value % 8:
                raise ValueError(
                    f"{name} is {value}: IOR needs a multiple of 8 bytes above 0; "
                    "choose such a size"
                )
        if b % t:
            raise ValueError(
                f"block_bytes is {b}: expected a multiple of transfer_bytes ({t}); "
                "change one of the two"
            )
        for name, value, least in (
            ("segments", self.segments, 1),
            ("repetitions", self.repetitions, 1),
            ("stonewall_s", self.stonewall_s, 0),
            ("min_duration_s", self.min_duration_s, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}: expected at least {least}")
        if self.random_offsets and b == t:
            raise ValueError(
                f"random_offsets shuffles the transfers inside a block, but block_bytes ({b}) "
                "equals transfer_bytes: choose a larger block"
            )
        prefill = self.random_prefill_bytes
        if prefill is not None:
            if not self.random_offsets:
                raise ValueError("random_prefill_bytes needs random_offsets: drop it or set both")
            if prefill <= 0 or b % prefill:
                raise ValueError(
                    f"random_prefill_bytes is {prefill}: expected a divisor of block_bytes ({b})"
                )

    def _check_order(self) -> None:
        if self.random_offsets and self.reorder_tasks and not self.file_per_process:
            raise ValueError(
                "random_offsets (-z) with reorder_tasks on a shared file is refused by IOR: set "
                "file_per_process or read without reordering"
            )
        if self.task_offset is not None:
            if not self.reorder_tasks:
                raise ValueError(
                    f"task_offset is {self.task_offset}, but -Q does nothing without -C: set "
                    "reorder_tasks"
                )
            if self.task_offset < 1:
                raise ValueError(f"task_offset is {self.task_offset}: expected at least 1")
        if self.random_offset_seed is not None and (
            not self.random_offsets or self.random_offset_seed < 0
        ):
            raise ValueError(
                f"random_offset_seed is {self.random_offset_seed}: expected at least 0, together "
                "with random_offsets"
            )
        if self.random_offsets and self.verify_read and self.random_offset_seed is None:
            raise ValueError("verify_read with random_offsets needs random_offset_seed: set it")
        if self.signature is not None and (self.signature == 0 or self.signature not in _INT32):
            raise ValueError(
                f"signature is {self.signature}: IOR takes 0 for 'none', expected another "
                "32-bit number"
            )
        if self.verify_read and not self.read:
            raise ValueError(
                "verify_read (-R) without read makes IOR read, but leaves the read out of its "
                "summary: set read"
            )
        if self.verify_write and not self.write:
            raise ValueError(
                "verify_write (-W) without write removes the file before it checks it (ior.c): "
                "set write"
            )
        if self.verify_read and not self.writes and self.signature is None:
            raise ValueError(
                "verify_read without a write phase needs the signature (-G) that was written: set "
                "it"
            )
        if self.data_type is not None and self.data_type not in DATA_TYPES:
            raise ValueError(f"data_type is {self.data_type!r}: expected one of {DATA_TYPES}")

    def _check_files(self) -> None:
        for name, path in (
            ("test_file", self.test_file),
            ("stonewall_status_file", self.stonewall_status_file),
            ("summary_file", self.summary_file),
            ("rank_details_csv", self.rank_details_csv),
        ):
            if path is None:
                continue
            if not path or _RESERVED.search(path):
                raise ValueError(
                    f"{name} is {path!r}: expected a path without blanks, quotes and backslashes "
                    "(IOR does not escape them in its JSON)"
                )
            if name != "test_file" and re.search("[,#]", path):
                raise ValueError(f"{name} is {path!r}: IOR's -O reads ',' and '#' as separators")
        if "@" in self.test_file:
            raise ValueError(
                f"test_file is {self.test_file!r}: IOR takes '@' as the separator of several files"
            )
        if self.unique_dir and not self.file_per_process:
            raise ValueError("unique_dir (-u) has no effect without file_per_process: set both")
        if self.unique_dir and not self.test_file.startswith("/"):
            raise ValueError(
                f"test_file is {self.test_file!r}: unique_dir cuts the first letter of a relative "
                "path, expected an absolute one"
            )

    def _check_stonewall(self) -> None:
        if self.wear_out and not self.stonewall_s:
            raise ValueError("wear_out needs a stonewall: set stonewall_s")
        if self.stonewall_status_file is not None:
            if not self.keep:
                raise ValueError("stonewall_status_file needs keep (-k): IOR refuses it otherwise")
            if self.writes and not self.wear_out:
                raise ValueError(
                    "stonewall_status_file with a write phase needs wear_out: IOR refuses it "
                    "otherwise"
                )
        if self.stonewall_s and self.writes and self.reads and not self.wear_out:
            raise ValueError(
                "a stonewall over write and read without wear_out leaves files that the read phase "
                "runs past ('EOF prematurely'): set wear_out"
            )
        if self.min_duration_s and self.reads and not self.o_direct:
            raise ValueError(
                f"min_duration_s is {self.min_duration_s}: it reads the same bytes again, from the "
                "page cache; move more data, or set o_direct"
            )

    def _check_backend(self) -> None:
        if not re.fullmatch(r"[A-Za-z0-9]+", self.api):
            raise ValueError(f"api is {self.api!r}: expected a name such as POSIX or MPIIO")
        api = self.api.upper()
        if api == "NCMPI" and self.file_per_process:
            raise ValueError("api NCMPI has no file_per_process: drop it")
        if api in ("HDF5", "NCMPI") and self.random_offsets:
            raise ValueError(f"api {api} has no random_offsets: drop it")
        if self.collective and api not in _HINTED_APIS:
            raise ValueError(f"collective (-c) has no effect with api {api}: use MPIIO")
        if self.o_direct and api != "POSIX":
            raise ValueError(f"o_direct (--posix.odirect) is an option of api POSIX, not of {api}")

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
