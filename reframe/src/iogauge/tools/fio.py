"""fio: job files and arguments for it, and its JSON as values.

Written against fio 3.33 and 3.37, and what they were seen to do. Sizes in a job file are binary (``bs=4k`` is 4096 bytes, fio's default kb_base=1024).

fio's metadata engines (observed with fio 3.33 and strace):

* filecreate, filestat and filedelete do one operation per file and count it as one I/O of the block
  size. The direction under which it is reported is that of ``rw=``, whatever the engine does: here
  create and remove are ``rw=write``, stat is ``rw=read``. The bytes are fiction, and left out.
* They need ``openfiles=1`` and a file size of one block, so that the number of I/Os is that of
  files.
* filecreate makes empty files. filestat and filedelete end with error 2 where a file is missing.
* **filestat is a warm stat**: fio itself stats every file before it starts the clock, on the same
  node. On a parallel file system it measures the client's cache, unless another node made the files
  and the cache was dropped after fio's setup, which cannot be done. Use mdtest -N for a cold one.
* Their latency is in ``clat_ns`` only.

fio's servers (observed with fio 3.33):

* The client reads the job file, and expands its ``${VARIABLES}``; a server needs none of them.
* ``$clientuid`` is the IPv4 address at which the server was reached, the same in every run; without
  a server it is empty. ``unique_filename``, on unless a job says otherwise, puts that address in
  front of the whole name, so that ``k0/x`` becomes ``10.0.0.1.k0/x``: job files here switch it off.
* fio makes the directories in a ``filename_format`` where they are missing, and takes those that are
  there.
* A server that cannot be reached, or cannot run the job, is left out: fio complains on its standard
  output and ends with status 0. A server that dies during the run makes it end with 1.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

from iogauge import units
from iogauge.measurement import Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools import excerpt, load_json_object, member, non_negative, positive, unique

Pattern = Literal["read", "write", "randread", "randwrite"]
Engine = Literal["psync", "libaio", "io_uring", "filecreate", "filestat", "filedelete"]

#: Metadata engines, and the phase that each one is here (the names are those of mdtest's phases).
METADATA_PHASES: Final[Mapping[str, str]] = MappingProxyType(
    {"filecreate": "create", "filestat": "stat", "filedelete": "remove"}
)
_METADATA_PATTERN: Final = {"filecreate": "write", "filestat": "read", "filedelete": "write"}
_PATTERNS: Final = ("read", "write", "randread", "randwrite")
_ENGINES: Final = ("psync", "libaio", "io_uring", *METADATA_PHASES)
_DIRECTIONS: Final = ("read", "write", "trim")
#: Largest relative difference between figures of fio that say the same (rounding of short runs).
_TOLERANCE: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class FioJob:
    """One fio job: sizes in bytes, times in seconds.

    Every one of ``numjobs`` processes has its own ``files`` of ``file_bytes``; fio names them by
    ``filename_format``, which is the same in every job here, so that a layout job writes what a
    read job reads; it may name a directory for each process (``k$jobnum/$clientuid.$filenum``).
    Without ``runtime_s`` each process goes through its files once. Raises :class:`ValueError` for
    combinations that fio refuses, caps or ignores.
    """

    name: str
    directory: str
    pattern: Pattern
    block_bytes: int
    file_bytes: int
    files: int = 1
    engine: Engine = "psync"
    iodepth: int = 1
    numjobs: int = 1
    loops: int = 1
    direct: bool = True
    runtime_s: int = 0
    ramp_s: int = 0
    sync: bool = False
    fsync_at_end: bool = False
    no_random_map: bool = False
    unlink: bool = False
    filename_format: str = "$clientuid.$jobnum.$filenum"

    def __post_init__(self) -> None:
        """Refuse what fio would refuse, cap or ignore."""
        if not re.fullmatch(r"[A-Za-z][\w-]*", self.name) or self.name == "global":
            raise ValueError(f"name is {self.name!r}: expected letters, digits, - and _")
        if not self.directory or re.search(r"[\s:;#\"'\\]", self.directory):
            raise ValueError(
                f"directory is {self.directory!r}: expected a path without blanks, quotes, ':', "
                "';' "
                "and '#' (fio reads ':' as a separator)"
            )
        if not re.fullmatch(
            r"(?!\.{1,2}/)[\w.$-]+(/(?!\.{1,2}(/|$))[\w.$-]+)*", self.filename_format
        ):
            raise ValueError(
                f"filename_format is {self.filename_format!r}: expected a file name, after "
                "directories below the job's if need be"
            )
        for variable, sharers in (
            ("$clientuid", "servers"),
            ("$jobnum", "processes"),
            ("$filenum", "the files of a process"),
        ):
            if variable not in self.filename_format:
                raise ValueError(
                    f"filename_format is {self.filename_format!r}: expected {variable} in it, or "
                    f"{sharers} are one and the same file"
                )
        if self.pattern not in _PATTERNS or self.engine not in _ENGINES:
            raise ValueError(
                f"pattern {self.pattern!r} with engine {self.engine!r}: expected one of "
                f"{_PATTERNS} "
                f"and one of {_ENGINES}"
            )
        for name, value, least in (
            ("block_bytes", self.block_bytes, 1),
            ("file_bytes", self.file_bytes, 1),
            ("files", self.files, 1),
            ("iodepth", self.iodepth, 1),
            ("numjobs", self.numjobs, 1),
            ("loops", self.loops, 1),
            ("runtime_s", self.runtime_s, 0),
            ("ramp_s", self.ramp_s, 0),
        ):
            if value < least:
                raise ValueError(f"{name} is {value}: expected at least {least}")
        if self.file_bytes % self.block_bytes:
            raise ValueError(
                f"file_bytes is {self.file_bytes}: expected a multiple of block_bytes "
                f"({self.block_bytes})"
            )
        if self.metadata:
            self._check_metadata()
        else:
            self._check_data()

    @property
    def metadata(self) -> bool:
        """Whether the engine does metadata operations, one for each file."""
        return self.engine in METADATA_PHASES

    @property
    def bytes_total(self) -> int:
        """Bytes of all files of all processes of one fio; 0 for metadata jobs (empty files)."""
        return 0 if self.metadata else self.file_bytes * self.files * self.numjobs

    def _check_metadata(self) -> None:
        if self.pattern != _METADATA_PATTERN[self.engine]:
            raise ValueError(
                f"pattern is {self.pattern!r}: {self.engine} is reported under the direction of "
                "the "
                f"pattern, which is {_METADATA_PATTERN[self.engine]!r} here"
            )
        if self.file_bytes != self.block_bytes:
            raise ValueError(
                f"file_bytes is {self.file_bytes}: {self.engine} needs one block "
                f"({self.block_bytes}) in a file, so that I/Os are files"
            )
        for name, given in (
            ("iodepth", self.iodepth > 1),
            ("runtime_s", self.runtime_s),
            ("ramp_s", self.ramp_s),
            ("sync", self.sync),
            ("fsync_at_end", self.fsync_at_end),
            ("no_random_map", self.no_random_map),
        ):
            if given:
                raise ValueError(f"{name} means nothing to {self.engine}: drop it")

    def _check_data(self) -> None:
        if self.iodepth > 1 and self.engine == "psync":
            raise ValueError(
                f"iodepth is {self.iodepth}: fio caps it at 1 for psync; use libaio or io_uring, "
                "or "
                "numjobs"
            )
        if self.iodepth > 1 and self.engine == "libaio" and not self.direct:
            raise ValueError("libaio is synchronous without direct: set direct or use io_uring")
        if self.ramp_s and not self.runtime_s:
            raise ValueError("ramp_s needs runtime_s: set it")
        if self.fsync_at_end and not self.pattern.endswith("write"):
            raise ValueError(f"fsync_at_end acts on writes, but the pattern is {self.pattern!r}")
        if self.no_random_map and not self.pattern.startswith("rand"):
            raise ValueError(f"no_random_map acts on random patterns, not on {self.pattern!r}")

    def job_file(self) -> str:
        """The job file, to be written as it is."""
        size = units.tool_size
        lines = [
            f"[{self.name}]",
            f"directory={self.directory}",
            f"filename_format={self.filename_format}",
            "unique_filename=0",
            f"ioengine={self.engine}",
            f"rw={self.pattern}",
            f"bs={size(self.block_bytes)}",
            f"filesize={size(self.file_bytes)}",
            f"nrfiles={self.files}",
            f"numjobs={self.numjobs}",
            "group_reporting=1",
            "fallocate=none",
        ]
        if self.metadata:
            lines += ["openfiles=1", "file_service_type=sequential", "create_on_open=1"]
        else:
            lines += [
                f"iodepth={self.iodepth}",
                f"direct={int(self.direct)}",
                "refill_buffers=1",
                "randrepeat=0",
            ]
            if self.pattern == "write":
                lines.append("create_on_open=1")
        for given, line in (
            (self.runtime_s, f"time_based=1\nruntime={self.runtime_s}s"),
            (self.ramp_s, f"ramp_time={self.ramp_s}s"),
            (self.sync, "sync=1"),
            (self.fsync_at_end, "end_fsync=1"),
            (self.no_random_map, "norandommap=1"),
            (self.unlink, "unlink=1"),
            (self.loops > 1, f"loops={self.loops}"),
        ):
            if given:
                lines.append(line)
        return "\n".join(lines) + "\n"


def layout_job(*, directory: str, file_bytes: int, numjobs: int, files: int = 1) -> FioJob:
    """The job that writes the files of a read job of the same directory, sizes and processes.

    fio lays missing files out by itself, but inside the run and by one process.
    """
    block = next(size for size in (2**20, 2**16, 2**12, 512, 1) if file_bytes % size == 0)
    return FioJob(
        name="layout",
        directory=directory,
        pattern="write",
        block_bytes=block,
        file_bytes=file_bytes,
        files=files,
        numjobs=numjobs,
        fsync_at_end=True,
    )


def random_read_job(
    *,
    directory: str,
    block_bytes: int,
    file_bytes: int,
    numjobs: int,
    runtime_s: int,
    ramp_s: int = 2,
) -> FioJob:
    """OIST's random read: O_DIRECT, psync, one request in flight for each process."""
    return FioJob(
        name="randread",
        directory=directory,
        pattern="randread",
        block_bytes=block_bytes,
        file_bytes=file_bytes,
        numjobs=numjobs,
        runtime_s=runtime_s,
        ramp_s=ramp_s,
        sync=True,
        no_random_map=True,
    )


def metadata_job(
    engine: Literal["filecreate", "filestat", "filedelete"],
    *,
    directory: str,
    files: int,
    numjobs: int = 1,
    loops: int = 1,
) -> FioJob:
    """Create, stat or remove ``files`` empty files in each process, ``loops`` times over.

    See the module's text. Only stat can be done more than once.
    """
    if loops > 1 and engine != "filestat":
        raise ValueError(f"loops is {loops}: only filestat can be done more than once")
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
        direct=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class FioOptions:
    """How fio is called on one node: one job file. On servers iog_client of servers.sh calls it.

    One job for each fio: with several in one file ``$jobnum`` goes on counting, and a read job
    would not find the files of its layout job.
    """

    job_file: str
    output: str | None = None

    def __post_init__(self) -> None:
        """Refuse what fio would misread."""
        for name, path in (("job_file", self.job_file), ("output", self.output)):
            if path is not None and (not path or path.startswith("-") or re.search(r"\s", path)):
                raise ValueError(f"{name} is {path!r}: expected a path without blanks")

    def arguments(self) -> list[str]:
        """The arguments after ``fio``."""
        args = ["--output-format=json"]
        if self.output is not None:
            args.append(f"--output={self.output}")
        return [*args, self.job_file]


# --- JSON -----------------------------------------------------------------------------------------

_DOCUMENT: Final = re.compile(r'\{\s*"fio version"\s*:')
#: fio's own words, of a server behind its host's name.
_COMPLAINT: Final = re.compile(r"(<[^<>]*> )?fio:")
_ALL: Final = "All clients"
_NO_NAMES: Final[Mapping[str, str]] = MappingProxyType({})


def parse_json(text: str, names: Mapping[str, str] = _NO_NAMES) -> ToolOutput:
    """What ``fio --output-format=json`` says, of a local run or of one on servers.

    One phase for each direction (read, write, trim) in which a reported job did I/O, named after
    the direction; a job of a metadata engine gives create, stat or remove. ``names`` overrides
    that: it maps a job's name to the name of its phase (the job must have one direction then).

    A reported job must stand for all its processes: several entries of one name in a local run, as
    fio writes them without ``group_reporting``, are refused, because their percentiles cannot be
    merged. Entries of different names are phases of their own. Of a run on several servers the
    entry "All clients" is taken, and checked against the sum of the servers; it has no percentiles,
    so that ``latency_p99`` is missing there. There all servers must have run one job.

    Rates: ``bw`` (MiB/s, of ``bw_bytes``), ``iops`` (ops/s); for metadata ``rate`` (ops/s) instead
    of both; ``latency_mean`` (us, completion latency where fio has no total) and ``latency_p99``
    (us, completion). ``seconds`` is ``runtime``, ``operations`` ``total_ios``, ``bytes_moved``
    ``io_bytes``. ``bw``, ``bw_bytes``, ``iops``, ``io_bytes`` and ``runtime`` have to agree within
    1 % (and the rounding of ``runtime`` to ms), or :class:`ToolOutputError` is raised, as for a job
    with an error, a run without I/O, and a document that is missing, cut or invalid.

    ``nodes`` counts the hosts of the servers, as the client was told to name them.

    ``parameters``: fio's global and job options (of the first job), engine, and of servers
    hostnames, client_seconds and client_bytes, one for each server, and ``clients``, by host: iops
    and, but for metadata, bw_bytes (B/s). ``notes`` are the lines before the JSON that are no
    complaint; those that begin with "fio:", or with a server's "<host> fio:", are ``warnings``.
    """
    document, around = _load(text)
    version = member(document, "fio version", "fio JSON")
    if not isinstance(version, str):
        raise ToolOutputError("fio JSON: 'fio version' should be text")
    shared = document.get("global options", {})
    shared = shared if isinstance(shared, dict) else {}
    remote = "client_stats" in document
    entries = member(document, "client_stats" if remote else "jobs", "fio JSON")
    lines = [line.strip() for line in around.splitlines() if line.strip()]
    warnings = unique(line for line in lines if _COMPLAINT.match(line))
    said = f"; fio said: {warnings[0][:300]}" if warnings else ""
    if not isinstance(entries, list) or not entries:
        raise ToolOutputError(f"fio JSON: the list of jobs is empty{said}")
    for number, entry in enumerate(entries):
        _check_error(entry, f"fio JSON, job {number}")
    parts = [entry for entry in entries if entry["jobname"] != _ALL]
    if not parts:
        raise ToolOutputError("fio JSON: no entry of a single job")
    reported = _of_servers(entries, parts, said) if remote else _of_jobs(parts)
    options = {**shared, **_options(parts[0])}
    phases: list[Phase] = []
    short = 0
    for entry, named in reported:
        engine = str({**shared, **_options(named)}.get("ioengine", "psync"))
        name = str(named["jobname"])
        found = _phases_of(entry, engine, names.get(name), f"fio JSON, job {name!r}")
        phases += found
        short += sum(
            int(non_negative(entry[way], "short_ios", f"fio JSON, job {name!r}"))
            for way in _DIRECTIONS
            if isinstance(entry.get(way), dict) and "short_ios" in entry[way]
        )
    doubled = {p.name for p in phases if sum(q.name == p.name for q in phases) > 1}
    if doubled and names:
        raise ToolOutputError(f"fio JSON: several phases named {sorted(doubled)}: check the names")
    if short:
        warnings += (f"fio: {short} short I/Os",)
    parameters: dict[str, object] = dict(options)
    parameters["engine"] = options.get("ioengine", "psync")
    parameters["notes"] = unique(line for line in lines if not _COMPLAINT.match(line))
    hosts = [str(member(e, "hostname", "fio JSON, client_stats")) for e in parts if remote]
    if remote:
        parameters["hostnames"] = tuple(hosts)
        parameters["clients"] = _rates_of_clients(parts, str(parameters["engine"]))
        parameters["client_seconds"] = tuple(_busiest(entry, "runtime") / 1e3 for entry in parts)
        parameters["client_bytes"] = tuple(int(_busiest(entry, "io_bytes")) for entry in parts)
    return ToolOutput(
        tool="fio",
        version=version.removeprefix("fio-"),
        phases=tuple(phases),
        tasks=_tasks(parts, shared, remote),
        nodes=len(set(hosts)) if remote else 1,
        warnings=warnings,
        parameters=parameters,
    )


def _load(text: str) -> tuple[dict[str, Any], str]:
    """fio's document, and the text around it."""
    if not text.strip():
        raise ToolOutputError("fio wrote nothing: it failed before its first job; read its stderr")
    starts = [match.start() for match in _DOCUMENT.finditer(text)]
    if not starts:
        raise ToolOutputError(
            "no fio JSON in the output (is --output-format=json set?); it begins: " + excerpt(text)
        )
    if len(starts) > 1:
        raise ToolOutputError(
            f"{len(starts)} fio JSON documents in one output, expected 1 (was --status-interval "
            "set, "
            "or fio started several times?)"
        )
    try:
        document, end = load_json_object(text, starts[0])
    except ToolOutputError as error:
        raise ToolOutputError(f"fio JSON: {error}; expected finite numbers") from None
    except ValueError as error:
        if match := re.search(r'"([^"\n]+)"\s*:\s*(-?(?:nan|inf))\b', text[starts[0] :]):
            raise ToolOutputError(
                f"fio JSON: {match[1]!r} is {match[2]}, expected a finite number"
            ) from None
        if text.rstrip().endswith("}") and text.count("{") == text.count("}"):
            raise ToolOutputError(f"fio JSON is not valid JSON: {error}") from None
        raise ToolOutputError(
            f"fio JSON is cut off or invalid ({error}); last line "
            f"{excerpt(text.rstrip().splitlines()[-1])!r}"
        ) from None
    return document, text[: starts[0]] + "\n" + text[end:]


def _check_error(entry: object, where: str) -> None:
    name = member(entry, "jobname", where)
    error = member(entry, "error", where)
    if error != 0 or isinstance(error, bool):
        host = entry.get("hostname") if isinstance(entry, dict) else None
        raise ToolOutputError(
            f"fio job {name!r}{f' on {host}' if host else ''} failed with errno "
            f"{excerpt(repr(error))}; "
            "its rates mean nothing; read fio's stderr"
        )


def _options(entry: Mapping[str, Any]) -> Mapping[str, Any]:
    options = entry.get("job options", {})
    return options if isinstance(options, dict) else {}


def _of_jobs(parts: Sequence[dict[str, Any]]) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Every local job, once; raises where one name has several entries."""
    seen: set[str] = set()
    for entry in parts:
        name = str(entry["jobname"])
        if name in seen:
            raise ToolOutputError(
                f"fio JSON: several entries of job {name!r}: set group_reporting=1, or the "
                "latencies "
                "of its processes cannot be merged"
            )
        seen.add(name)
    return [(entry, entry) for entry in parts]


def _of_servers(
    entries: Sequence[dict[str, Any]], parts: Sequence[dict[str, Any]], said: str
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """The entry that stands for all servers, and one that holds the job's name and options."""
    if len({str(entry["jobname"]) for entry in parts}) > 1:
        raise ToolOutputError("fio JSON: the servers ran several jobs: give fio one job at a time")
    servers = [(str(entry.get("hostname")), str(entry.get("port"))) for entry in parts]
    if len(set(servers)) < len(servers):
        raise ToolOutputError(
            "fio JSON: several entries of one server: set group_reporting=1, or its processes "
            "cannot be counted"
        )
    if len(parts) == 1:
        return [(parts[0], parts[0])]
    every = [entry for entry in entries if entry["jobname"] == _ALL]
    if len(every) != 1:
        raise ToolOutputError(
            f"fio JSON: {len(every)} entries 'All clients' over those of {len(parts)} servers, "
            f"expected 1: a server's report is missing{said}"
        )
    for way in _DIRECTIONS:
        for key in ("io_bytes", "total_ios"):
            where = f"fio JSON, 'All clients', {way}"
            total = non_negative(member(every[0], way, where), key, where)
            found = sum(non_negative(member(part, way, where), key, where) for part in parts)
            if total != found:
                raise ToolOutputError(
                    f"{where}: {key!r} is {total:.0f}, but the {len(parts)} servers sum up to "
                    f"{found:.0f}: a server's report is missing"
                )
    return [(every[0], parts[0])]


def _rates_of_clients(
    parts: Sequence[Mapping[str, Any]], engine: str
) -> dict[str, dict[str, float]]:
    """By host, the sum over its servers and directions of iops and bw_bytes (B/s)."""
    clients: dict[str, dict[str, float]] = {}
    for entry in parts:
        rates = clients.setdefault(str(entry["hostname"]), {})
        for key in ("iops",) if engine in METADATA_PHASES else ("iops", "bw_bytes"):
            where = f"fio JSON, client {entry['hostname']}"
            found = (non_negative(member(entry, way, where), key, where) for way in _DIRECTIONS)
            rates[key] = rates.get(key, 0) + sum(found)
    return clients


def _phases_of(entry: dict[str, Any], engine: str, name: str | None, where: str) -> list[Phase]:
    ways = [
        way
        for way in _DIRECTIONS
        if non_negative(member(entry, way, where), "total_ios", f"{where}, {way}")
    ]
    if not ways:
        raise ToolOutputError(f"{where}: 0 I/Os: nothing was measured")
    metadata = engine in METADATA_PHASES
    if len(ways) > 1 and (name is not None or metadata):
        raise ToolOutputError(f"{where}: I/O in {' and '.join(ways)}, expected one direction")
    return [
        _phase(entry[way], name or METADATA_PHASES.get(engine, way), metadata, f"{where}, {way}")
        for way in ways
    ]


def _phase(stats: Mapping[str, Any], name: str, metadata: bool, where: str) -> Phase:
    operations = positive(stats, "total_ios", where)
    moved = positive(stats, "io_bytes", where)
    milliseconds = non_negative(stats, "runtime", where)
    if milliseconds < 1:
        raise ToolOutputError(
            f"{where}: 'runtime' is {milliseconds:g} ms: the run was too short to be timed; do more I/O"
        )
    bw_bytes_s = positive(stats, "bw_bytes", where)
    iops = positive(stats, "iops", where)
    bw_kib_s = non_negative(stats, "bw", where)
    for what, found, expected, slack in (
        ("'bw' (KiB/s)", bw_kib_s * 1024, bw_bytes_s, 2048.0),
        ("'iops' times the mean I/O size", iops * moved / operations, bw_bytes_s, 0.0),
        ("'io_bytes' over 'runtime'", moved / milliseconds * 1e3, bw_bytes_s, 0.0),
    ):
        # fio computes with unrounded times: one ms is the least that 'runtime' can be wrong by.
        allowed = slack + expected * (_TOLERANCE + 1 / milliseconds)
        if abs(found - expected) > allowed:
            raise ToolOutputError(
                f"{where}: {what} gives {found:.0f} B/s, but 'bw_bytes' is {expected:.0f}: the "
                "output "
                "is damaged"
            )
    if operations != int(operations) or moved != int(moved):
        raise ToolOutputError(f"{where}: 'total_ios' and 'io_bytes' should be whole numbers")
    if metadata:
        rates = {"rate": Quantity(iops, "ops/s")}
    else:
        rates = {"bw": Quantity(bw_bytes_s / 2**20, "MiB/s"), "iops": Quantity(iops, "ops/s")}
    rates |= _latencies(stats, where)
    return Phase(
        name=name,
        rates=rates,
        seconds=milliseconds / 1e3,
        bytes_moved=None if metadata else int(moved),
        operations=int(operations),
        transfer_bytes=None if metadata or moved % operations else int(moved // operations),
    )


def _latencies(stats: Mapping[str, Any], where: str) -> dict[str, Quantity]:
    """Mean and 99th percentile in us, those of the two that fio gives."""
    latencies: dict[str, Quantity] = {}
    for key in ("lat_ns", "clat_ns"):
        values = stats.get(key)
        if isinstance(values, dict) and values.get("N") and "latency_mean" not in latencies:
            mean = positive(values, "mean", f"{where}, {key}")
            latencies["latency_mean"] = Quantity(mean / 1e3, "us")
    completion = stats.get("clat_ns")
    percentiles = completion.get("percentile") if isinstance(completion, dict) else None
    if isinstance(percentiles, dict) and "99.000000" in percentiles:
        p99 = positive(percentiles, "99.000000", f"{where}, clat_ns percentiles")
        latencies["latency_p99"] = Quantity(p99 / 1e3, "us")
    return latencies


def _busiest(entry: Mapping[str, Any], key: str) -> float:
    """The largest value of a key over the directions of an entry."""
    where = f"fio JSON, job {entry.get('jobname')!r}"
    return max(non_negative(member(entry, way, where), key, where) for way in _DIRECTIONS)


def _tasks(
    parts: Sequence[Mapping[str, Any]], shared: Mapping[str, Any], remote: bool
) -> int | None:
    """Processes that fio ran: numjobs of the job on every server; None for several local jobs."""
    if not remote and len(parts) > 1:
        return None
    total = 0
    for entry in parts:
        numjobs = str({**shared, **_options(entry)}.get("numjobs", "1"))
        if not re.fullmatch(r"[1-9]\d{0,8}", numjobs):
            return None
        total += int(numjobs)
    return total
