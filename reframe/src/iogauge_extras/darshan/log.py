"""Darshan's log as values.

The module reads the text of ``darshan-parser`` (Darshan 3.3.1 to 3.5.0), which reads the logs of all earlier versions.
Counters keep Darshan's names without the module: ``BYTES_WRITTEN`` of module ``POSIX``.
"""

import math
import re
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iogauge.core import commands
from iogauge.core.groups import grouped
from iogauge.core.measurement import (
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.paths import project_root
from iogauge.core.text import visible
from iogauge.tools.darshan import KEEP_RANKS
from iogauge.tools.parsing import excerpt
from iogauge_extras.compare.logs import CompareError

#: Rank of a record that sums up all ranks.
ALL_RANKS: Final = -1


#: Modules that are read; each has a section of its own in the text, if the log has it. Their counters are the same.
COUNTED: Final = ("POSIX", "MPI-IO", "STDIO", "DFS", "H5D", "PNETCDF_VAR")


@dataclass(frozen=True, slots=True, kw_only=True)
class FileRecord:
    """Activity of one rank (or :data:`ALL_RANKS`) on one file.

    Times are in seconds, sizes in bytes. A counter of -1 means that Darshan could not watch it.
    """

    rank: int
    file: str
    counters: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class DarshanLog:
    """One execution of a program.

    ``modules`` maps the modules that watched it to whether their records are complete.
    """

    format_version: str
    library_version: str
    command: str
    tasks: int
    run_seconds: float
    modules: Mapping[str, bool]
    #: By module.
    records: Mapping[str, Sequence[FileRecord]]


def total(records: Iterable[FileRecord], *counters: str) -> float:
    """Return the sum of counters over records; counters that Darshan could not watch (-1) count as 0."""
    summed = 0.0
    for record in records:
        for counter in counters:
            summed += max(record.counters.get(counter, 0), 0)
    return summed


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

    The records of :data:`COUNTED` modules are kept. Raises :class:`ToolOutputError` for
    text that is damaged, cut off, or not the parser's. A cut exactly between two records of the
    last module is invisible in the text: check the parser's exit status, too.
    """
    records = _records(text)
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
        if module in COUNTED and module not in with_records:
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
        format_version=header["darshan log version"],
        library_version=header.get("metadata: lib_ver", ""),
        command=header["exe"].strip(),
        tasks=int(tasks),
        run_seconds=run_seconds,
        modules={
            module: module not in incomplete for module in (*announced, *incomplete)
        },
        records=records,
    )


def _records(text: str) -> dict[str, list[FileRecord]]:
    """Return the records of the modules that are read; raises :class:`ToolOutputError`."""
    places: dict[tuple[str, str, str], list[str]] = {}
    counters: dict[tuple[str, str, str], dict[str, float]] = {}
    for number, line in enumerate(text.split("\n"), 1):
        if not line or line.startswith("#"):
            continue
        columns = line.split("\t")
        if len(columns) < 8:
            raise ToolOutputError(
                f"darshan-parser, line {number}: {len(columns)} columns, expected 8: "
                f"{excerpt(line)!r}: the text is cut off or damaged"
            )
        module, counter = columns[0], columns[3]
        if module in COUNTED:
            key = (module, columns[1], columns[2])
            places.setdefault(key, columns[5:])
            own_name = counter.removeprefix(f"{module.replace('-', '')}_")
            value = _number(columns[4], counter)
            counters.setdefault(key, {})[own_name] = value
    records: dict[str, list[FileRecord]] = {}
    for key, place in places.items():
        module, rank, _ = key
        # A name may hold tabs; mount and type of the file system stand behind it.
        file = "\t".join(place[:-2])
        mine = records.setdefault(module, [])
        mine.append(
            FileRecord(
                rank=int(_number(rank, "rank")), file=file, counters=counters[key]
            )
        )
        found, expected = len(counters[key]), len(mine[0].counters)
        if found != expected:
            raise ToolOutputError(
                f"darshan-parser: {found} {module} counters of rank {rank}, file "
                f"{file!r}, where others have {expected}: the text is cut off or damaged"
            )
    return records


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
    posix = grouped(log.records.get("POSIX", ()), lambda record: record.file)
    names = [
        name for name in posix if name == file or name.endswith("/" + file.lstrip("/"))
    ]
    if len(names) != 1:
        listed = excerpt("\n".join(sorted(names or posix)))
        raise ToolOutputError(
            f"darshan: {len(names)} files named {file!r} in the POSIX records, expected 1; there are {listed}"
        )
    wrote = {
        record.rank for record in posix[names[0]] if total([record], "BYTES_WRITTEN")
    }
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


#: Seconds after which a reader of a log is stopped.
_ANSWER_S: Final = 300


def read_log(file: Path) -> DarshanLog:
    """Return what a Darshan log says, by darshan-parser on PATH or of the local stack; raises :class:`CompareError`."""
    built = project_root() / "environments" / "local" / ".spack-env" / "view" / "bin"
    path = shutil.which("darshan-parser") or shutil.which(
        "darshan-parser", path=str(built)
    )
    if path is None:
        raise CompareError(
            f"darshan-parser is neither on PATH nor in {built}. It comes with: ci/build-stack, or spack install darshan-util"
        )
    words = [path, "--base", "--show-incomplete", str(file)]
    try:
        done = commands.run(*words, seconds=_ANSWER_S)
    except TimeoutError as error:
        raise CompareError(
            f"{file}: {' '.join(words[:-1])} has read it for {_ANSWER_S} s: is it damaged?"
        ) from error
    if done.returncode != 0:
        complaint = done.stderr.strip().rstrip(".") or "it says nothing"
        raise CompareError(
            f"{file}: {path} cannot read it: {visible(complaint[:500])}. If the log is whole, the program may be too old: "
            "it must be 3.3 or newer, and as new as the log (spack install darshan-util)"
        )
    try:
        check_whole(done.stderr)
        return parse(done.stdout)
    except ToolOutputError as error:
        raise CompareError(f"{file}: {error}") from error
