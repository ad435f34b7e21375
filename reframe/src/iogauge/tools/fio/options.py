"""fio: a job file from its options."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final, Literal

from iogauge.core import units

Pattern = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]
Engine = Literal["psync", "libaio", "io_uring", "filecreate", "filestat", "filedelete"]

#: Metadata engines, and their phases here (named like mdtest's phases).
METADATA_PHASES: Final[Mapping[str, str]] = MappingProxyType(
    {"filecreate": "create", "filestat": "stat", "filedelete": "remove"}
)
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
#: The same for random writes that end by time: after every 1,024 blocks, as fio reads nothing back when
#: the time is over. Of two writes of a block in flight the last one is not known, so they wait.
READ_BACK_BY_TURNS: Final = (*READ_BACK, "verify_backlog=1024", "serialize_overlap=1")
#: A submission that blocks belongs to the latency: fio's percentiles of completion leave it out.
_PERCENTILES: Final = {
    "lat_percentiles": "1",
    "clat_percentiles": "0",
    "percentile_list": "50:99:99.9",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """One fio job: sizes in bytes, times in seconds.

    Each of ``numjobs`` processes has its own ``files`` of ``file_bytes``. fio names them by
    ``filename_format``, the same in every job here: so a layout job writes what a read job reads.
    It may name a directory for each process (``k$jobnum/$clientuid.$filenum``). Without
    ``runtime_s`` each process goes through its files once. A metadata engine does so at most once,
    and stops after ``runtime_s``. With ``endless`` filecreate removes its files and begins again until then, and leaves
    none behind. The job begins ``delay_s`` after the others of its file. With ``checksum_bytes`` a write puts a
    checksum into every so many bytes, see :func:`verification`. With ``percentiles`` fio reports
    those of the whole latency, from the submission of a request to its end. With ``shared`` all
    processes have one file, and each has ``file_bytes`` of it, one part after the other. With ``once`` each process goes through its files at most once, and stops after
    ``runtime_s``. ``reads`` is the percentage of reads in a pattern that also writes.

    What fio would silently cap, ignore or treat differently: ``iodepth`` of psync, and of libaio without ``direct``; a
    ``filename_format`` without $clientuid, $jobnum and $filenum; the rest of a file that is no whole block; an ``rw``
    other than a metadata engine's own; more than one block in its files.
    """

    name: str
    pattern: Pattern
    block_bytes: int
    file_bytes: int
    directory: str = DIRECTORY
    files: int = 1
    engine: Engine = "psync"
    iodepth: int = 1
    numjobs: int = 1
    loops: int = 1
    direct: bool = True
    runtime_s: float = 0
    sync: bool = False
    fsync_at_end: bool = False
    no_random_map: bool = False
    checksum_bytes: int = 0
    percentiles: bool = False
    filename_format: str = "$clientuid.$jobnum.$filenum"
    shared: bool = False
    endless: bool = False
    delay_s: int = 0
    once: bool = False
    reads: int = 0

    @property
    def metadata(self) -> bool:
        """Return whether the engine does metadata operations, one for each file."""
        return self.engine in METADATA_PHASES

    @property
    def bytes_total(self) -> int:
        """Return the bytes of all files of all processes of one fio; 0 for metadata jobs."""
        return 0 if self.metadata else self.file_bytes * self.files * self.numjobs

    @property
    def _names(self) -> dict[str, str]:
        """Return the option that names the files."""
        if self.shared:
            return {"filename": "shared"}
        return {"filename_format": self.filename_format}

    def job_file(self) -> str:
        """Return the text of the job file."""
        size, data, writes = units.tool_size, not self.metadata, self.pattern == "write"
        part = self.shared and size(self.file_bytes)
        options: dict[str, object] = {
            "description": TOKEN,
            "directory": self.directory,
            **self._names,
            "unique_filename": "0",
            "ioengine": self.engine,
            "rw": self.pattern,
            "bs": size(self.block_bytes),
            "filesize": size(self.file_bytes * (self.numjobs if self.shared else 1)),
            "nrfiles": self.files,
            "numjobs": self.numjobs,
            "group_reporting": True,
            "fallocate": "none",
            # Else fio looks for the target among all disks, and then reads its counters four times a second.
            "disk_util": "0",
            "openfiles": not data,
            "iodepth": data and self.iodepth,
            "direct": data and str(int(self.direct)),
            "refill_buffers": data,
            "randrepeat": data and "0",
            "file_service_type": not data and "sequential",
            "create_on_open": writes or not data,
            "rwmixread": self.reads,
            "time_based": self.runtime_s > 0
            and (self.endless or data)
            and not self.once,
            "runtime": self.runtime_s > 0 and duration(self.runtime_s),
            "startdelay": self.delay_s > 0 and f"{self.delay_s}s",
            "unlink_each_loop": self.endless,
            "unlink": self.endless,
            "size": part,
            "offset_increment": part,
            "sync": self.sync,
            "end_fsync": self.fsync_at_end,
            "norandommap": self.no_random_map,
            **(_PERCENTILES if self.percentiles else {}),
            "loops": self.loops > 1 and self.loops,
        }
        told = [
            f"{name}={1 if one is True else one}"
            for name, one in options.items()
            if one
        ]
        more = (
            [*_checksums(self.checksum_bytes), *WRITTEN_ALONE]
            if self.checksum_bytes
            else []
        )
        return "\n".join([f"[{self.name}]", *told, *more, ""])


def _checksums(interval_bytes: int) -> list[str]:
    return ["verify=crc32c", f"verify_interval={units.tool_size(interval_bytes)}"]


def verification(checksum_bytes: int, more: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the options with which fio checks what it reads against the checksums in the data.

    Every ``checksum_bytes`` must begin with the header that a layout with ``checksum_bytes`` wrote.
    A write puts it there; ``more`` says whether it reads it back.
    """
    return tuple(f"--{line}" for line in (*_checksums(checksum_bytes), *more))


def layout_job(
    *,
    file_bytes: int,
    numjobs: int,
    checksum_bytes: int = 0,
    directory: str = DIRECTORY,
) -> FioJob:
    """Return the job that writes another job's files: same directory, sizes and processes.

    fio lays missing files out by itself, but inside the run and by one process.
    """
    block = next(
        size for size in (2**20, 2**16, 2**12, 512, 1) if file_bytes % size == 0
    )
    return FioJob(
        name="layout",
        directory=directory,
        pattern="write",
        block_bytes=block,
        file_bytes=file_bytes,
        numjobs=numjobs,
        fsync_at_end=True,
        checksum_bytes=checksum_bytes,
    )


def duration(seconds: float) -> str:
    """Return seconds as a value of fio's options, which are whole numbers (``get_mult_time``, parse.c): s, else ms."""
    milliseconds = round(seconds * 1000)
    return f"{milliseconds}ms" if milliseconds % 1000 else f"{milliseconds // 1000}s"


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


def metadata_job(
    engine: Literal["filecreate", "filestat", "filedelete"],
    *,
    files: int,
    numjobs: int = 1,
    loops: int = 1,
    runtime_s: float = 0,
    directory: str = DIRECTORY,
) -> FioJob:
    """Return a job that creates, stats or removes ``files`` empty files in each process.

    It does so ``loops`` times, for at most ``runtime_s`` seconds (0: to the end); only stat can be repeated. See the text of ``fio/output.py``.
    """
    return FioJob(
        name=METADATA_PHASES[engine],
        directory=directory,
        pattern="read" if engine == "filestat" else "write",
        block_bytes=4096,
        file_bytes=4096,
        files=files,
        engine=engine,
        numjobs=numjobs,
        loops=loops,
        runtime_s=runtime_s,
        direct=False,
    )


def arguments(job_file: str, output: str) -> list[str]:
    """Return the arguments after ``fio`` on one node: one job file. On servers iog_client of servers.sh gives them.

    Each fio gets one job, but for :func:`disturbed_jobs`: with several in one file ``$jobnum`` keeps counting, and a
    read job would not find the files of its layout job.
    """
    return ["--output-format=json", f"--output={output}", job_file]
