"""elbencho: command lines from options, and bytes, files and seconds from its JSON lines.

elbencho appends a line to ``--jsonfile`` for each phase. All its values are texts. A line has the
state when the first process was done, and when the last one was: the latter is what IOR and fio
report. Before 3.0-37 a line has no ``config``, and is refused.
"""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final, Literal

from iogauge.core import units
from iogauge.core.measurement import (
    Moment,
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.plan.stage import SERVERS_SECRET
from iogauge.tools.parsing import answer, excerpt, member

#: What elbencho prints of wrong data; it names the offset and ends.
MISMATCH: Final = r"Data verification failed"
#: The number that elbencho adds to each offset to make the data that it checks.
_SALT: Final = 1181783497
#: Seconds by which its two words for a time may differ: it cuts its milliseconds.
_ROUNDING_S: Final = 0.002

_NUMBER: Final = re.compile(r"\d{1,18}")
_VERSION: Final = re.compile(r"\d{1,6}(?:[.-]\d{1,6}){1,4}")
#: Where the milliseconds of a phase are, until the last process was done; less than one is 0.
_DONE_MS: Final = ("last_done", "elapsed_time_ms")

#: What is done with files, and how elbencho calls that phase.
Action = Literal["write", "create", "stat", "read", "remove", "mix"]
_ACTIONS: Final[Mapping[Action, tuple[str, str]]] = {
    "write": ("-w", "WRITE"),
    "create": ("-w", "WRITE"),
    "stat": ("--stat", "STAT"),
    "read": ("-r", "READ"),
    "remove": ("-F", "RMFILES"),
    "mix": ("-w", "RWMIX"),
}
#: Actions that end with syncfs(2), which elbencho times as a phase of its own, and what it calls that.
_SYNCED: Final = ("create", "remove")
_SYNC: Final = "SYNC"

#: How data get into the memory of a GPU: copied from the node's, or past it by GPUDirect Storage (cuFile).
Gpu = Literal["", "copied", "gds"]
_GPU: Final[Mapping[Gpu, tuple[str, ...]]] = {
    "": (),
    "copied": ("--gpuids", "all"),
    "gds": ("--gpuids", "all", "--gds"),
}
#: Words before elbencho's without which cuFile may silently copy through the node's memory (its compatibility mode).
STRICT: Final = (
    "env",
    "CUFILE_ALLOW_COMPAT_MODE=false",
    "CUFILE_FORCE_COMPAT_MODE=false",
)
#: What nothing that elbencho prints says.
UNTOLD: Final = (
    "elbencho does not tell whether cuFile copied through the node's memory: the job forbids it, but a cufile.json with "
    "posix_gds_min_kb, or without rdma_write_support, demands it. Look at gdscheck -p"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ElbenchoOptions:
    """One execution of elbencho over files of ``file_bytes`` bytes, which it writes, creates, looks up, reads or removes.

    ``mix`` reads ``reads`` percent of the blocks of files that are there, and writes the others: of each hundred, a
    process reads some in a row, then writes the rest.

    Sizes are bytes. Each process has ``files`` of them, in one directory for all processes. There the first are
    named ``r0-f0``, ``r1-f0`` and so on. With ``own_directory`` each has a directory of its own, which it makes before it
    creates files. Creating and removing end with syncfs(2) on each node. ``hosts`` is a file with a
    server on each line. Then ``threads`` are those of each server, and the servers take the files in the order of the
    lines.
    """

    directory: str
    action: Action
    threads: int
    file_bytes: int
    block_bytes: int
    json_file: str
    files: int = 1
    own_directory: bool = False
    reads: int = 0
    direct: bool = False
    gpu: Gpu = ""
    hosts: str = ""

    @property
    def syncs(self) -> bool:
        """Return whether the execution ends with syncfs(2)."""
        return self.action in _SYNCED

    def arguments(self) -> list[str]:
        """Return the arguments after ``elbencho``."""
        # Without the last two files it writes them below /var/tmp, where nobody removes them.
        stem = os.path.splitext(self.json_file)[0]
        return [
            *(["-d"] if self.own_directory and self.action == "create" else []),
            _ACTIONS[self.action][0],
            *(["--rwmixpct", str(self.reads)] if self.reads else []),
            *(
                ["--hostsfile", self.hosts, "--svcpwfile", SERVERS_SECRET]
                if self.hosts
                else []
            ),
            *("-t", str(self.threads)),
            *("-n", str(int(self.own_directory)), "-N", str(self.files)),
            *("-s", units.tool_size(self.file_bytes) if self.file_bytes else "0"),
            *(["-b", units.tool_size(self.block_bytes)] if self.block_bytes else []),
            *(["--direct"] if self.direct else []),
            *_GPU[self.gpu],
            *(["--sync"] if self.syncs else []),
            "--nolive",
            *("--jsonfile", self.json_file),
            *("--csvfile", f"{stem}.csv", "--resfile", f"{stem}.txt"),
            self.directory,
        ]


def verification() -> tuple[str, ...]:
    """Return the words with which a write makes data that can be checked, and a read checks them."""
    return ("--verify", str(_SALT))


def parse(text: str, action: Action, files: int = 0) -> ToolOutput:
    """Parse the JSON file of one execution: one phase, named as the ``action``, or the write and the read of a ``mix``.

    ``rates`` has ``bw`` and ``iops`` of whole files. Of many ``files`` of all processes it has ``rate`` (ops/s). Its
    seconds are those of the phase and of the syncfs(2) after it, if there is one. A read has ``bytes_moved`` if its files have
    bytes. Raises :class:`ToolOutputError` if a phase is missing or is there twice, or if it did not do all files. Bytes
    or files, rate and milliseconds must agree.
    """
    wanted = _ACTIONS[action][1]
    lines = [
        answer(Mapping[str, Any], line, "elbencho")
        for line in text.splitlines()
        if line.strip()
    ]
    # The name of a mix ends with the percent of its reads.
    names = [
        re.sub(r"^(RWMIX)\d+$", r"\1", str(line.get("phase_type"))) for line in lines
    ]
    if names.count(wanted) != 1:
        raise ToolOutputError(
            f"elbencho: {action}: expected one phase {wanted}, found {excerpt(' '.join(names))}"
        )
    at = names.index(wanted)
    data, rest = lines[at], names[at + 1 :]
    expected = [_SYNC] if action in _SYNCED else []
    if rest != expected:
        raise ToolOutputError(
            f"elbencho: {action}: after {wanted} expected {' '.join(expected) or 'no phase'}, "
            f"found {excerpt(' '.join(rest))}"
        )
    if "config" not in data:
        raise ToolOutputError(
            f"elbencho {excerpt(str(data.get('version')))}: no 'config' in its lines, which tells processes and blocks: "
            "install 3.0-37 or newer"
        )
    version, command = (_said(data, "config", key) for key in ("version", "command"))
    if not _VERSION.fullmatch(version):
        raise ToolOutputError(
            f"elbencho: the version is {excerpt(version)!r}, expected numbers"
        )
    if files:
        synced_ms = sum(_count(line, *_DONE_MS, least=0) for line in lines[at + 1 :])
        phases = [_of_files(action, data, files, synced_ms)]
    elif action == "mix":
        phases = [_of_bytes("write", data), _of_bytes("read", data, "rwmix_read")]
    else:
        phases = [_of_bytes(action, data)]
    threads, hosts = (_count(data, "config", key) for key in ("threads", "hosts"))
    return ToolOutput(
        tool="elbencho",
        version=version,
        phases=tuple(phases),
        tasks=threads * hosts,
        nodes=hosts,
        command=_command(command),
        moments=(_begin(_said(data, "iso_start_date")),),
        at_once=action == "mix",
    )


def _of_bytes(name: str, data: Mapping[str, Any], *below: str) -> Phase:
    block, shown_ms = _count(data, "config", "block_size"), _count(data, *_DONE_MS)
    moved, rate = (
        _count(data, "last_done", *below, key) for key in ("bytes", "bytes/s")
    )
    seconds = moved / rate
    if abs(seconds - shown_ms / 1000) > _ROUNDING_S + seconds / 100:
        raise ToolOutputError(
            f"elbencho: {name}: {moved} bytes at {rate} bytes/s take {seconds:.3f} s, but it says {shown_ms} ms"
        )
    operations = moved // block
    return Phase(
        name,
        {
            "bw": Quantity(rate / 2**20, "MiB/s"),
            "iops": Quantity(operations / seconds, "ops/s"),
        },
        seconds,
        bytes_moved=moved,
        operations=operations,
        transfer_bytes=block,
    )


def _of_files(
    action: Action, data: Mapping[str, Any], files: int, synced_ms: int
) -> Phase:
    entries, rate = (_count(data, "last_done", key) for key in ("entries", "entries/s"))
    shown_ms = _count(data, *_DONE_MS, least=0)
    if entries != files:
        raise ToolOutputError(f"elbencho: {action}: {entries} files, expected {files}")
    # It cuts both numbers to whole ones.
    if (
        not 1000 * entries / (shown_ms + 1) - 1 <= rate
        or rate * shown_ms > 1000 * entries
    ):
        raise ToolOutputError(
            f"elbencho: {action}: {entries} files in {shown_ms} ms, but it says {rate} a second"
        )
    seconds = min(entries / rate, (shown_ms + 1) / 1000) + synced_ms / 1000
    moves = action == "read" and "bytes" in data["last_done"]
    return Phase(
        action,
        {"rate": Quantity(entries / seconds, "ops/s")},
        seconds,
        bytes_moved=_count(data, "last_done", "bytes") if moves else None,
        operations=entries,
    )


def _said(data: object, *path: str) -> str:
    """Return the text at a path of keys: all values of elbencho are texts."""
    for key in path:
        data = member(data, key, "elbencho")
    if not isinstance(data, str):
        raise ToolOutputError(
            f"elbencho: {path[-1]!r} is {excerpt(repr(data))}, expected a text"
        )
    return data


def _count(data: object, *path: str, least: int = 1) -> int:
    """Return the whole number, ``least`` or more, that a text at a path of keys says."""
    value = _said(data, *path)
    if not _NUMBER.fullmatch(value) or int(value) < least:
        raise ToolOutputError(
            f"elbencho: {path[-1]!r} is {excerpt(repr(value))}, expected a whole number, {least} or more, as text"
        )
    return int(value)


def _command(said: str) -> str:
    try:
        return " ".join(shlex.split(said))
    except ValueError:
        raise ToolOutputError(
            f"elbencho: its command is cut off: {excerpt(said)}"
        ) from None


def _begin(said: str) -> Moment:
    try:
        date = datetime.strptime(said, "%Y-%m-%dT%H:%M:%S.%f%z")
        return Moment("iso_start_date", date.timestamp())
    except (ValueError, OverflowError):
        raise ToolOutputError(
            f"elbencho: 'iso_start_date' is {excerpt(repr(said))}, expected a date with a zone"
        ) from None
