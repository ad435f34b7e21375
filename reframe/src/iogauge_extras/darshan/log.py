"""Darshan's log as values.

The module reads the text of ``darshan-parser`` (Darshan 3.5.0), which reads the logs of all earlier
versions. Counters keep Darshan's names without the module: ``BYTES_WRITTEN`` of module ``POSIX``.

``python -m iogauge_extras.darshan.log LOG`` prints such text with PyDarshan. It is a process of its own, as Darshan's C library
crashes on many damaged logs.
"""

from __future__ import annotations

import math
import re
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from iogauge.core.measurement import Moment, Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.darshan import KEEP_RANKS
from iogauge.tools.parsing import excerpt, moment

#: Rank of a record that sums up all ranks.
ALL_RANKS: Final = -1


#: Modules that are read; each has a section of its own in the text, if the log has it.
_READ: Final = ("POSIX", "MPI-IO", "LUSTRE", "STDIO", "HEATMAP")

#: Modules whose records differ in length.
_UNEVEN: Final = ("LUSTRE", "HEATMAP")
_TEXTS: Final = ("_STRIPE_PATTERN", "_FLAGS", "_POOL_NAME")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """Activity of one rank (or :data:`ALL_RANKS`) on one file through one module.

    Times are in seconds, sizes in bytes. A counter of -1 means that Darshan could not watch it.
    """

    module: str
    rank: int
    file: str
    mount: str
    fs_type: str
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DarshanLog:
    """One execution of a program.

    ``modules`` maps the modules that watched it to whether their records are complete.
    ``slowest_seconds`` is the I/O time of the slowest rank by module (``agg_time_by_slowest``), if
    the parser was asked for it (``--perf``).
    """

    format_version: str
    library_version: str
    command: str
    tasks: int
    moments: tuple[Moment, ...]
    run_seconds: float
    modules: Mapping[str, bool]
    records: tuple[FileRecord, ...]
    slowest_seconds: Mapping[str, float]

    def of(self, module: str) -> list[FileRecord]:
        """Return the records of one module."""
        return [record for record in self.records if record.module == module]


_HEADER: Final = re.compile(
    r"# (darshan log version|exe|start_time|end_time|nprocs|run time|metadata: lib_ver)(?::| =) (.*)"
)
_ANNOUNCED: Final = re.compile(r"# (\S+) module: \d+ bytes")
_SECTION: Final = re.compile(r"# (\S+) module data")
_INCOMPLETE: Final = re.compile(r"# \*WARNING\*: The (\S+) module contains incomplete data!")
_SLOWEST: Final = re.compile(r"# agg_time_by_slowest: (\S+) # seconds")


@dataclass(slots=True)
class _ParsedText:
    """Parts of the text read so far."""

    header: dict[str, str] = field(default_factory=dict)
    announced: dict[str, None] = field(default_factory=dict)
    incomplete: set[str] = field(default_factory=set)
    begun: set[str] = field(default_factory=set)
    slowest: dict[str, float] = field(default_factory=dict)
    section: str = ""

    def comment(self, line: str) -> None:
        if line.startswith("#<module>"):
            self.begun.add(self.section)
        elif match := _SECTION.fullmatch(line):
            self.section = match[1]
        elif match := _INCOMPLETE.fullmatch(line):
            self.incomplete.add(match[1])
        elif match := _SLOWEST.fullmatch(line):
            self.slowest[self.section] = _number(match[1], "agg_time_by_slowest")
        elif not self.section and (match := _ANNOUNCED.match(line)):
            self.announced[match[1]] = None
        elif not self.section and (match := _HEADER.fullmatch(line)):
            self.header.setdefault(match[1], match[2])


def parse(text: str) -> DarshanLog:
    """Parse the output of ``darshan-parser`` in one pass.

    The records of POSIX, MPI-IO, LUSTRE, STDIO and HEATMAP are kept. Raises :class:`ToolOutputError` for
    text that is damaged, cut off, or not the parser's. A cut exactly between two records of the
    last module is invisible in the text: check the parser's exit status, too.
    """
    read = _ParsedText()
    parts: dict[tuple[str, str, str], tuple[str, str, str, dict[str, float]]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if line.startswith("#"):
            read.comment(line)
        elif line:
            words = line.split("\t")
            if len(words) < 8:
                raise ToolOutputError(
                    f"darshan-parser, line {number}: {len(words)} columns, expected 8: "
                    f"{excerpt(line)!r}: the text is cut off or damaged"
                )
            module, rank, record, counter, value = words[:5]
            if module not in _READ or counter.endswith(_TEXTS):
                continue
            key = (module, rank, record)
            if key not in parts:
                parts[key] = ("\t".join(words[5:-2]), words[-2], words[-1], {})
            parts[key][3][counter.partition("_")[2]] = _number(value, counter)
    return _log(read, parts)


def _log(
    read: _ParsedText, parts: Mapping[tuple[str, str, str], tuple[str, str, str, dict[str, float]]]
) -> DarshanLog:
    missing = {"darshan log version", "exe", "start_time", "end_time", "nprocs", "run time"}
    missing -= set(read.header)
    if missing:
        raise ToolOutputError(
            f"not what darshan-parser prints: no {sorted(missing)[0]!r} in the header; was there a log, "
            "and was the library built with the tool's MPI?"
        )
    cut = [m for m in read.announced if m in _READ and m not in read.begun]
    if cut:
        raise ToolOutputError(
            f"darshan-parser: the log has a module {cut[0]}, but the text ends before its records: it is "
            "cut off, or the module is incomplete (then --show-incomplete shows what there is)"
        )
    lengths: dict[str, int] = {}
    records = []
    for (module, rank, _), (file, mount, fs_type, counters) in parts.items():
        expected = lengths.setdefault(module, len(counters))
        if len(counters) != expected and module not in _UNEVEN:
            raise ToolOutputError(
                f"darshan-parser: {len(counters)} {module} counters of rank {rank}, file {file!r}, where "
                f"others have {expected}: the text is cut off or damaged"
            )
        records.append(
            FileRecord(
                module=module,
                rank=int(_number(rank, "rank")),
                file=file,
                mount=mount,
                fs_type=fs_type,
                counters=counters,
            )
        )
    tasks, run_seconds = (_number(read.header[name], name) for name in ("nprocs", "run time"))
    if tasks < 1 or tasks != int(tasks) or run_seconds < 0:
        raise ToolOutputError(
            f"darshan-parser: nprocs is {tasks:g}, run time {run_seconds:g} s: expected one task or more, "
            "and a time"
        )
    times = {name: _number(read.header[name], name) for name in ("start_time", "end_time")}
    return DarshanLog(
        format_version=read.header["darshan log version"],
        library_version=read.header.get("metadata: lib_ver", ""),
        command=read.header["exe"].strip(),
        tasks=int(tasks),
        moments=tuple(moment(times, name, "darshan-parser") for name in times),
        run_seconds=run_seconds,
        modules={m: m not in read.incomplete for m in [*read.announced, *sorted(read.incomplete)]},
        records=tuple(records),
        slowest_seconds=read.slowest,
    )


def _number(text: str, name: str) -> float:
    try:
        value = int(text) if text.lstrip("-").isdecimal() else float(text)
        # Counters have 64 bits; variances are squares of them.
        finite = math.isfinite(value) and abs(value) < (2**64 if isinstance(value, int) else 1e100)
    except (ValueError, OverflowError):
        finite = False
    if not finite:
        raise ToolOutputError(
            f"darshan-parser: {name} is {excerpt(text)!r}, expected a finite number"
        )
    return value


def writers(log: DarshanLog, file: str) -> int:
    """Return how many ranks wrote bytes to a file through POSIX, on whoever's behalf.

    ``file`` is the file's path or its end, from a slash on. Raises :class:`ToolOutputError` if it
    does not match one file of the log, if records are missing, or if Darshan summed up the ranks.
    """
    if not log.modules.get("POSIX", True):
        raise ToolOutputError(
            "darshan: the POSIX module ran out of room and left files out: let it watch fewer "
            "(DARSHAN_EXCLUDE_DIRS), or put 'MAX_RECORDS 65536 POSIX' in a file and name that in "
            "DARSHAN_CONFIG_PATH"
        )
    posix = log.of("POSIX")
    matching = [r for r in posix if r.file == file or r.file.endswith("/" + file.lstrip("/"))]
    names = {record.file for record in matching}
    if len(names) != 1:
        listed = excerpt("\n".join(sorted(names or {record.file for record in posix})))
        raise ToolOutputError(
            f"darshan: {len(names)} files named {file!r} in the POSIX records, expected 1; there are {listed}"
        )
    wrote = {record.rank for record in matching if record.counters.get("BYTES_WRITTEN", 0) > 0}
    if ALL_RANKS in wrote:
        raise ToolOutputError(
            f"darshan: the records of {file!r} are summed up over all ranks, the writers cannot be counted: "
            f"set {KEEP_RANKS}=1 for the ranks"
        )
    return len(wrote)


@dataclass(frozen=True, slots=True, kw_only=True)
class Heat:
    """Bytes that each rank moved through one module, by bins of ``bin_seconds`` since the start.

    A rank that moved nothing may be missing.
    """

    bin_seconds: float
    read: Mapping[int, tuple[float, ...]]
    written: Mapping[int, tuple[float, ...]]


def heat(log: DarshanLog, module: str) -> Heat | None:
    """Return the heat map of ``POSIX``, ``MPIIO`` or ``STDIO``; None if the log has none."""
    found = [r for r in log.of("HEATMAP") if r.file == f"heatmap:{module}"]
    widths = {record.counters.get("F_BIN_WIDTH_SECONDS", 0.0) for record in found}
    if len(widths) != 1 or not min(widths) > 0:
        return None

    def bins(record: FileRecord, way: str) -> tuple[float, ...]:
        values = {
            int(name.rpartition("_")[2]): value
            for name, value in record.counters.items()
            if name.startswith(f"{way}_BIN_") and name.rpartition("_")[2].isdecimal()
        }
        return tuple(values[n] for n in sorted(values))

    return Heat(
        bin_seconds=min(widths),
        read={record.rank: bins(record, "READ") for record in found},
        written={record.rank: bins(record, "WRITE") for record in found},
    )


def as_output(text: str, file: str) -> ToolOutput:
    """Return the number of ranks that wrote a file: phase ``writers`` with the rate ``writers``.

    ``text`` is the output of ``darshan-parser``; for ``file`` and errors see :func:`writers`. A
    file that no rank wrote is an error, too.
    """
    log = parse(text)
    count = writers(log, file)
    if count == 0:
        raise ToolOutputError(f"darshan: no rank wrote a byte to {file!r}: was it the right log?")
    phase = Phase(name="writers", rates={"writers": Quantity(count, "1")}, seconds=log.run_seconds)
    return ToolOutput(
        tool="darshan",
        version=log.library_version,
        phases=(phase,),
        tasks=log.tasks,
        command=log.command,
        parameters={"modules": tuple(log.modules)},
        moments=log.moments,
    )


def _printed(file: str) -> Iterator[str]:
    """Yield a log as darshan-parser prints it (``--base --perf``), with PyDarshan."""
    import darshan as pydarshan  # an extra; brings pandas
    import pandas
    from darshan.backend import cffi_backend as backend

    report: Any = pydarshan.DarshanReport(file, read_all=False, dtype="dict")
    report.read_name_records()
    job = report.metadata["job"]
    yield f"# darshan log version: {job['log_ver']}"
    yield f"# exe: {report.metadata['exe']}"
    for name in ("start_time", "end_time"):
        yield f"# {name}: {job[name + '_sec']}"
    yield f"# nprocs: {job['nprocs']}"
    yield f"# run time: {job['run_time']:.4f}"
    yield f"# metadata: lib_ver = {job['metadata'].get('lib_ver', '')}"
    for module, known in report.modules.items():
        yield f"# {module} module: {known['len']} bytes (compressed), ver={known['ver']}"
        if known["partial_flag"]:
            yield f"# *WARNING*: The {module} module contains incomplete data!"
    mounts = sorted(report.mounts, key=lambda mount: -len(mount[0]))
    for module in report.modules:
        if module not in _READ:
            continue
        yield f"# {module} module data"
        yield "#<module>"
        records = []
        while (record := backend.log_get_record(report.log, module, dtype="dict")) is not None:
            records.append(record)
            path = report.name_records[record["id"]]
            place = next((m for m in mounts if path.startswith(m[0])), ("UNKNOWN", "UNKNOWN"))
            for name, value in _counters(module, record):
                words = (module, record["rank"], record["id"], name, value, path, *place)
                yield "\t".join(map(str, words))
        if module in ("POSIX", "MPI-IO", "STDIO"):
            frames = {
                kind: pandas.DataFrame(
                    [{n: r[n] for n in ("id", "rank")} | r[kind] for r in records]
                )
                for kind in ("counters", "fcounters")
            }
            derived = backend.accumulate_records(frames, module, job["nprocs"]).derived_metrics
            yield f"# agg_time_by_slowest: {derived.agg_time_by_slowest:.6f} # seconds"


def _counters(module: str, record: Mapping[str, Any]) -> Iterator[tuple[str, object]]:
    """Yield the counters of a record of PyDarshan under darshan-parser's names."""
    if module == "HEATMAP":
        yield "HEATMAP_F_BIN_WIDTH_SECONDS", f"{record['bin_width_seconds']:.6f}"
        for way in ("READ", "WRITE"):
            for number, value in enumerate(record[f"{way.lower()}_bins"]):
                yield f"HEATMAP_{way}_BIN_{number}", value
    elif module == "LUSTRE":
        parts = record["components"]
        yield "LUSTRE_NUM_COMPONENTS", len(parts)
        yield "LUSTRE_NUM_STRIPES", sum(len(part["ost_ids"]) for part in parts)
        for number, part in enumerate(parts, 1):
            for name, value in part["counters"].items():
                yield name.replace("LUSTRE_COMP_", f"LUSTRE_COMP{number}_"), value
            for place, target in enumerate(part["ost_ids"]):
                yield f"LUSTRE_COMP{number}_OST_ID_{place}", target
    else:
        yield from record["counters"].items()
        for name, value in record["fcounters"].items():
            yield name, f"{value:.6f}"


if __name__ == "__main__":
    for printed in _printed(sys.argv[1]):
        print(printed)
