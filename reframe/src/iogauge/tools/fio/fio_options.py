"""fio: a job file from its options."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

from iogauge.core import units

Pattern = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]
Engine = Literal["psync", "libaio"]

#: The case's directory, in fio's syntax for a variable.
DIRECTORY: Final = "${IOG_DIR}"
#: The word of an execution, which fio repeats in its report; fio's syntax for a variable.
TOKEN: Final = "${IOG_TOKEN}"

#: What fio prints if data do not fit their checksum. It names the file and the offset, and ends.
MISMATCH: Final = r"verify: bad |verify failed"
#: Options of a job that writes checksums: it does not read, and leaves no state in the stage.
WRITTEN_ALONE: Final = ("do_verify=0", "verify_state_save=0")
#: Options of a job that writes checksums and reads them back at once: it leaves no state in the stage.
READ_BACK: Final = ("verify_state_save=0",)
#: A submission that blocks belongs to the latency: fio's percentiles of completion leave it out.
_PERCENTILES: Final = {
    "lat_percentiles": "1",
    "clat_percentiles": "0",
    "percentile_list": "50:99:99.9",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """One fio job.

    What fio would silently cap, ignore or treat differently: ``iodepth`` of psync, and of libaio without ``direct``; a
    ``filename_format`` without $clientuid, $jobnum and $filenum; the rest of a file that is no whole block.
    """

    name: str
    pattern: Pattern
    #: Size of a request.
    block_bytes: int
    #: Size of a file, or of a process's part of the shared file.
    file_bytes: int
    directory: str = DIRECTORY
    engine: Engine = "psync"
    #: Requests in flight of each process.
    iodepth: int = 1
    #: Processes.
    numjobs: int = 1
    #: O_DIRECT.
    direct: bool = True
    #: Seconds; 0: each process goes through its files to the end.
    runtime_s: float = 0
    #: O_SYNC.
    sync: bool = False
    #: fsync(2) after the last write.
    fsync_at_end: bool = False
    #: Offsets may come twice.
    no_random_map: bool = False
    #: A write puts a checksum into every so many bytes, see :func:`verification`; 0: it does not.
    checksum_bytes: int = 0
    #: fio reports percentiles of the whole latency, from the submission of a request to its end.
    percentiles: bool = False
    #: The names of the files, the same in every job here: so a layout job writes what a read job reads. It may name a
    #: directory for each process (``k$jobnum/$clientuid.$filenum``).
    filename_format: str = "$clientuid.$jobnum.$filenum"
    #: All processes have one file, each a part of it, one after the other.
    shared: bool = False
    #: Percentage of reads in a pattern that also writes.
    reads: int = 0

    @property
    def bytes_total(self) -> int:
        """Return the bytes of all files of all processes of one fio."""
        return self.file_bytes * self.numjobs

    def job_file(self) -> str:
        """Return the text of the job file."""
        lines = [f"[{self.name}]"]
        for name, value in self._options.items():
            if value is True:
                value = 1
            if value:
                lines.append(f"{name}={value}")
        if self.checksum_bytes:
            lines += [*_checksums(self.checksum_bytes), *WRITTEN_ALONE]
        return "\n".join([*lines, ""])

    @property
    def _options(self) -> dict[str, object]:
        """Return the options by name; what is False, empty or 0 is left out."""
        size = units.tool_size
        names, whole = {"filename_format": self.filename_format}, self.file_bytes
        if self.shared:
            names, whole = {"filename": "shared"}, self.file_bytes * self.numjobs
        options: dict[str, object] = {
            "description": TOKEN,
            "directory": self.directory,
            **names,
            "unique_filename": "0",
            "ioengine": self.engine,
            "rw": self.pattern,
            "bs": size(self.block_bytes),
            "filesize": size(whole),
            "nrfiles": 1,
            "numjobs": self.numjobs,
            "group_reporting": True,
            "fallocate": "none",
            # Else fio looks for the target among all disks, and then reads its counters four times a second.
            "disk_util": "0",
            "iodepth": self.iodepth,
            "direct": str(int(self.direct)),
            "refill_buffers": True,
            "randrepeat": "0",
            "create_on_open": self.pattern == "write",
            "rwmixread": self.reads,
        }
        if self.runtime_s > 0:
            options["time_based"] = True
            options["runtime"] = duration(self.runtime_s)
        if self.shared:
            part = size(self.file_bytes)
            options |= {"size": part, "offset_increment": part}
        options |= {
            "sync": self.sync,
            "end_fsync": self.fsync_at_end,
            "norandommap": self.no_random_map,
        }
        if self.percentiles:
            options |= _PERCENTILES
        return options


def _checksums(interval_bytes: int) -> list[str]:
    return ["verify=crc32c", f"verify_interval={units.tool_size(interval_bytes)}"]


def verification(checksum_bytes: int, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options with which fio checks what it reads against the checksums in the data.

    Every ``checksum_bytes`` must begin with the header that a layout with ``checksum_bytes`` wrote.
    A write puts it there; ``more`` says whether it reads it back.
    """
    return tuple(f"--{line}" for line in (*_checksums(checksum_bytes), *more))


def layout_job(*, file_bytes: int, numjobs: int, checksum_bytes: int = 0) -> FioJob:
    """Return the job that writes another job's files: same directory, sizes and processes.

    fio lays missing files out by itself, but inside the run and by one process.
    """
    block_bytes = 2**20
    while file_bytes % block_bytes:
        block_bytes //= 2
    return FioJob(
        name="layout",
        pattern="write",
        block_bytes=block_bytes,
        file_bytes=file_bytes,
        numjobs=numjobs,
        fsync_at_end=True,
        checksum_bytes=checksum_bytes,
    )


def duration(seconds: float) -> str:
    """Return seconds as a value of fio's options, which are whole numbers (``get_mult_time``, parse.c): s, else ms."""
    milliseconds = round(seconds * 1000)
    if milliseconds % 1000:
        return f"{milliseconds}ms"
    return f"{milliseconds // 1000}s"


def reader_of(layout: FioJob, *, block_bytes: int, runtime_s: float) -> FioJob:
    """Return OIST's random read of the files that a job lays out: O_DIRECT, psync, one request in flight for each process."""
    return replace(
        layout,
        name="randread",
        pattern="randread",
        block_bytes=block_bytes,
        runtime_s=runtime_s,
        sync=True,
        fsync_at_end=False,
        no_random_map=True,
        checksum_bytes=0,
    )


def arguments(job_file: str, output: str) -> list[str]:
    """Return the arguments after ``fio`` on one node: one job file. On servers iog_client of servers.sh gives them.

    Each fio gets one job: with several in one file ``$jobnum`` keeps counting, and a read job would not find the files of its
    layout job.
    """
    return ["--output-format=json", f"--output={output}", job_file]
