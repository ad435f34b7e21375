"""elbencho: a command line from its options, and bytes and seconds from its JSON lines.

elbencho appends a line to ``--jsonfile`` for each phase. All its values are texts. A line has the
state when the first process was done, and when the last one was: the latter is what IOR and fio
report. Before 3.0-37 a line has no ``config``: processes and block are then those of the command.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from iogauge.core import units
from iogauge.core.measurement import Moment, Phase, Quantity, ToolOutput, ToolOutputError
from iogauge.tools.parsing import excerpt, load_json_object, member

#: What elbencho prints of wrong data; it names the offset and ends.
MISMATCH: Final = r"Data verification failed"
#: The number that elbencho adds to each offset to make the data that it checks.
_SALT: Final = 1181783497
#: Seconds by which its two words for a time may differ: it cuts its milliseconds.
_ROUNDING_S: Final = 0.002

_PHASES: Final = {"WRITE": "write", "READ": "read"}
_NUMBER: Final = re.compile(r"\d{1,18}")
_SIZE: Final = re.compile(r"(\d{1,18})([kmgt]?)")
_SHIFTS: Final = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}
_VERSION: Final = re.compile(r"\d{1,6}(?:[.-]\d{1,6}){1,4}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ElbenchoOptions:
    """One execution of elbencho: each of its processes writes or reads a file of its own.

    Sizes are bytes. elbencho names the files ``r0-f0``, ``r1-f0`` and so on. With ``hosts``, a file with a server on each
    line, ``threads`` are those of each server, and the servers take the files in the order of the lines; ``secret`` is
    the file with the word that they want to hear. Raises
    :class:`ValueError` for values that elbencho refuses or treats otherwise.
    """

    directory: str
    write: bool
    threads: int
    file_bytes: int
    block_bytes: int
    direct: bool
    json_file: str
    hosts: str = ""
    secret: str = ""

    def __post_init__(self) -> None:
        """Refuse values that elbencho would refuse or change."""
        if self.threads < 1:
            raise ValueError(f"threads is {self.threads}: expected at least 1")
        if self.block_bytes < 1 or self.file_bytes < self.block_bytes:
            raise ValueError(
                f"file_bytes is {self.file_bytes} and block_bytes {self.block_bytes}: expected a block of 1 byte "
                "at least, and a file of a block at least"
            )
        if self.file_bytes % self.block_bytes:
            raise ValueError(
                f"file_bytes is {self.file_bytes}: expected a multiple of block_bytes ({self.block_bytes})"
            )

    def arguments(self) -> list[str]:
        """Return the arguments after ``elbencho``."""
        size = units.tool_size
        # Without these it writes them below /var/tmp, where nobody removes them.
        results = os.path.splitext(self.json_file)[0]
        return [
            "-w" if self.write else "-r",
            *(["--hostsfile", self.hosts, "--svcpwfile", self.secret] if self.hosts else []),
            *("-t", str(self.threads)),
            *("-n", "0", "-N", "1"),
            *("-s", size(self.file_bytes)),
            *("-b", size(self.block_bytes)),
            *(["--direct"] if self.direct else []),
            "--nolive",
            *("--jsonfile", self.json_file),
            *("--csvfile", f"{results}.csv", "--resfile", f"{results}.txt"),
            self.directory,
        ]


def verification() -> tuple[str, ...]:
    """Return the words with which a write makes data that can be checked, and a read checks them."""
    return ("--verify", str(_SALT))


def parse(text: str) -> ToolOutput:
    """Parse the JSON file of one execution: one phase, ``write`` or ``read``.

    ``rates`` has ``bw`` and ``iops``. Raises :class:`ToolOutputError` if there is not exactly one
    phase, or if its bytes, its rate and its milliseconds do not agree.
    """
    lines = [line for line in text.splitlines() if line.strip()]
    if len(lines) != 1:
        raise ToolOutputError(
            f"elbencho: expected one line of JSON, for one phase, found {len(lines)}: {excerpt(text)}"
        )
    try:
        data, end = load_json_object(lines[0].strip(), 0)
    except ValueError as error:
        raise ToolOutputError(f"elbencho: no JSON ({error}): {excerpt(lines[0])}") from None
    if end != len(lines[0].strip()):
        raise ToolOutputError(f"elbencho: text after its JSON: {excerpt(lines[0].strip()[end:])}")
    name = member(data, "phase_type", "elbencho")
    config = data["config"] if "config" in data else _of_command(data)
    if not isinstance(name, str) or name not in _PHASES:
        raise ToolOutputError(
            f"elbencho: the phase is {excerpt(repr(name))}, expected {' or '.join(_PHASES)}"
        )
    version = member(config, "version", "elbencho")
    if not isinstance(version, str) or not _VERSION.fullmatch(version):
        raise ToolOutputError(
            f"elbencho: the version is {excerpt(repr(version))}, expected numbers"
        )
    return ToolOutput(
        tool="elbencho",
        version=version,
        phases=(_phase(_PHASES[name], member(data, "last_done", "elbencho"), config),),
        tasks=_count(config, "threads") * _count(config, "hosts"),
        nodes=_count(config, "hosts"),
        command=_command(config),
        moments=(_begin(data),),
    )


def _of_command(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a newer elbencho says of a run: from the words that started it, which are written as ours."""
    words = _command(data).split()
    if "--hostsfile" in words:
        raise ToolOutputError(
            f"elbencho {data.get('version')}: no 'config', which tells its hosts: expected 3.0-37 or newer on several nodes"
        )
    given = {
        option: words[words.index(option) + 1]
        for option in ("-t", "-b")
        if option in words and words.index(option) + 1 < len(words)
    }
    block = _SIZE.fullmatch(given.get("-b", ""))
    if block is None:
        raise ToolOutputError(
            f"elbencho: no 'config', and no size after -b in its command: {excerpt(' '.join(words))}"
        )
    return {
        "version": data.get("version"),
        "command": data.get("command"),
        "hosts": "1",
        "threads": given.get("-t"),
        "block_size": str(int(block[1]) << _SHIFTS[block[2]]),
    }


def _count(container: object, key: str) -> int:
    """Return the whole number above 0 that a text at a key says."""
    value = member(container, key, "elbencho")
    if not isinstance(value, str) or not _NUMBER.fullmatch(value) or not int(value):
        raise ToolOutputError(
            f"elbencho: {key!r} is {excerpt(repr(value))}, expected a whole number above 0, as text"
        )
    return int(value)


def _phase(name: str, done: object, config: object) -> Phase:
    moved, rate, shown_ms = (_count(done, key) for key in ("bytes", "bytes/s", "elapsed_time_ms"))
    block = _count(config, "block_size")
    seconds = moved / rate
    if abs(seconds - shown_ms / 1000) > _ROUNDING_S + seconds / 100:
        raise ToolOutputError(
            f"elbencho: {name}: {moved} bytes at {rate} bytes/s take {seconds:.3f} s, but it says {shown_ms} ms"
        )
    operations = moved // block
    return Phase(
        name,
        {"bw": Quantity(rate / 2**20, "MiB/s"), "iops": Quantity(operations / seconds, "ops/s")},
        seconds,
        bytes_moved=moved,
        operations=operations,
        transfer_bytes=block,
    )


def _command(config: Any) -> str:
    said = member(config, "command", "elbencho")
    try:
        return " ".join(shlex.split(said)) if isinstance(said, str) else ""
    except ValueError:
        raise ToolOutputError(f"elbencho: its command is cut off: {excerpt(said)}") from None


def _begin(data: object) -> Moment:
    said = member(data, "iso_start_date", "elbencho")
    try:
        date = datetime.strptime(str(said), "%Y-%m-%dT%H:%M:%S.%f%z")
        return Moment("iso_start_date", date.timestamp())
    except (ValueError, OverflowError):
        raise ToolOutputError(
            f"elbencho: 'iso_start_date' is {excerpt(repr(said))}, expected a date with a zone"
        ) from None
