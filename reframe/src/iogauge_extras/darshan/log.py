"""Who wrote a file, by Darshan's log.

The module reads the text of ``darshan-parser`` (Darshan 3.3.1 to 3.5.0), which reads the logs of all earlier versions.
"""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.text import visible
from iogauge.tools.darshan import KEEP_RANKS
from iogauge.tools.parsing import excerpt

#: Rank of a record that sums up all ranks.
ALL_RANKS: Final = -1

#: Modules that have a section of their own in the text, if the log has them.
_WITH_RECORDS: Final = ("POSIX", "MPI-IO", "STDIO", "DFS", "H5D", "PNETCDF_VAR")
_WRITTEN: Final = "POSIX_BYTES_WRITTEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class DarshanLog:
    """One execution of a program."""

    library_version: str
    command: str
    tasks: int
    run_seconds: float
    #: The modules that watched it, and whether their records are complete.
    modules: Mapping[str, bool]
    #: Bytes that each rank, or :data:`ALL_RANKS`, wrote through POSIX, by file; -1: Darshan could not watch it.
    written: Mapping[str, Mapping[int, float]]


_HEADER: Final = re.compile(
    r"(?m)^# (darshan log version|exe|start_time|end_time|nprocs|run time|metadata: lib_ver)(?::| =) (.*)$"
)
_NEEDED: Final = (
    "darshan log version",
    "end_time",
    "exe",
    "nprocs",
    "run time",
    "start_time",
)
#: A module that is newer than the parser has a number in place of a name.
_ANNOUNCED: Final = re.compile(
    r"(?m)^# (\S+(?= module: )|\S+ module \(id \d+\)).*: \d+ bytes"
)
_SECTION: Final = re.compile(r"(?m)^# (\S+) module data$")
_INCOMPLETE: Final = re.compile(
    r"(?m)^# \*WARNING\*: The (\S+) module contains incomplete data!$"
)


def parse(text: str) -> DarshanLog:
    """Parse the output of ``darshan-parser``.

    Raises :class:`ToolOutputError` for
    text that is damaged, cut off, or not the parser's. A cut exactly between two records of the
    last module is invisible in the text: check the parser's exit status, too.
    """
    written = _written(text)
    head, *sections = _SECTION.split(text)
    header = dict(reversed(_HEADER.findall(head)))
    for name in _NEEDED:
        if name not in header:
            raise ToolOutputError(
                f"not what darshan-parser prints: no {name!r} in the header; was there a log, "
                "and was the library built with the tool's MPI?"
            )
    with_records = [
        module
        for module, body in zip(sections[::2], sections[1::2], strict=True)
        if "\n#<module>" in body
    ]
    announced = _ANNOUNCED.findall(head)
    incomplete = sorted(set(_INCOMPLETE.findall(text)))
    for module in announced:
        if module in _WITH_RECORDS and module not in with_records:
            raise ToolOutputError(
                f"darshan-parser: the log has a module {module}, but the text ends before its records: it is "
                "cut off, or the module is incomplete (then --show-incomplete shows what there is)"
            )
    tasks, run_seconds = (
        _number(header[name], name) for name in ("nprocs", "run time")
    )
    if tasks < 1 or tasks != int(tasks) or run_seconds < 0:
        raise ToolOutputError(
            f"darshan-parser: nprocs is {tasks:g}, run time {run_seconds:g} s: expected one task or more, "
            "and a time"
        )
    return DarshanLog(
        library_version=header.get("metadata: lib_ver", ""),
        command=header["exe"].strip(),
        tasks=int(tasks),
        run_seconds=run_seconds,
        modules={
            module: module not in incomplete for module in (*announced, *incomplete)
        },
        written=written,
    )


def _written(text: str) -> dict[str, dict[int, float]]:
    """Return the bytes that each rank wrote through POSIX, by file; raises :class:`ToolOutputError`."""
    files: dict[tuple[str, str], str] = {}
    counters: dict[tuple[str, str], dict[str, float]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) < 8:
            raise ToolOutputError(
                f"darshan-parser, line {number}: {len(columns)} columns, expected 8: "
                f"{excerpt(line)!r}: the text is cut off or damaged"
            )
        module, rank, record, counter, value = columns[:5]
        if module == "POSIX":
            key = (rank, record)
            # A name may hold tabs.
            files.setdefault(key, "\t".join(columns[5:-2]))
            counters.setdefault(key, {})[counter] = _number(value, counter)
    written: dict[str, dict[int, float]] = {}
    most = max(map(len, counters.values()), default=0)
    for key, of_record in counters.items():
        rank, file = key[0], files[key]
        if len(of_record) != most:
            raise ToolOutputError(
                f"darshan-parser: {len(of_record)} POSIX counters of rank {rank}, file "
                f"{file!r}, where others have {most}: the text is cut off or damaged"
            )
        ranks = written.setdefault(file, {})
        ranks[int(_number(rank, "rank"))] = of_record.get(_WRITTEN, 0)
    return written


def _number(text: str, name: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    # Counters have 64 bits; variances are squares of them.
    most = 2.0**64 if text.lstrip("-").isdecimal() else 1e100
    if not abs(value) < most:
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
    names = [
        name
        for name in log.written
        if name == file or name.endswith("/" + file.lstrip("/"))
    ]
    if len(names) != 1:
        listed = excerpt("\n".join(sorted(names or log.written)))
        raise ToolOutputError(
            f"darshan: {len(names)} files named {file!r} in the POSIX records, expected 1; there are {listed}"
        )
    wrote = [rank for rank, moved in log.written[names[0]].items() if moved > 0]
    if ALL_RANKS in wrote:
        raise ToolOutputError(
            f"darshan: the records of {file!r} are summed up over all ranks, the writers cannot be counted: "
            f"set {KEEP_RANKS}=1 for the ranks"
        )
    return len(wrote)


def check_whole(errors: str) -> None:
    """Raise :class:`ToolOutputError` if darshan-parser complained: its exit status is 0 for a damaged log, too."""
    for line in errors.splitlines():
        if line.strip():
            raise ToolOutputError(
                f"the log is cut off or damaged (darshan-parser: {visible(line.strip()[:300])})"
            )


def as_output(text: str, errors: str, file: str) -> ToolOutput:
    """Return the number of ranks that wrote a file: phase ``writers`` with the rate ``writers``.

    ``text`` and ``errors`` are what ``darshan-parser`` prints; for ``file`` and errors see :func:`writers`. A
    file that no rank wrote is an error, too.
    """
    check_whole(errors)
    log = parse(text)
    count = writers(log, file)
    if count == 0:
        raise ToolOutputError(
            f"darshan: no rank wrote a byte to {file!r}: was it the right log?"
        )
    phase = Phase(
        name="writers", rates={"writers": Quantity(count, "1")}, seconds=log.run_seconds
    )
    return ToolOutput(
        tool="darshan",
        watched=True,
        version=log.library_version,
        phases=(phase,),
        tasks=log.tasks,
        command=log.command,
        parameters={"modules": tuple(log.modules)},
    )
