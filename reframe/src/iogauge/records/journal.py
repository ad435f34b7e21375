"""Records: what is kept of every case, whatever its verdict.

One JSON Lines file a session, a line a case, appended when the case is decided and flushed to disk before
the next one starts. Nothing is rewritten. The form of a record is described in docs/history.md.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.records.record import Record, decode


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is not a record; line 0: the file cannot be read."""

    file: Path
    line: int
    problem: str


class NotRecorded(OSError):
    """A record could not be written; what was recorded before is as it was. The message names the file."""


def append(file: Path, line: bytes) -> None:
    """Append one record's line in a single write and flush it to disk; raises :class:`NotRecorded`.

    A line that an earlier write left unfinished is closed first, so that it costs no second record.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A named pipe in its place is not waited for.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(file, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            unfinished = size and os.pread(fd, 1, size - 1) != b"\n"
            data = (b"\n" if unfinished else b"") + line + b"\n"
            if os.write(fd, data) != len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            os.fsync(fd)
        finally:
            os.close(fd)
    except OSError as error:
        raise NotRecorded(
            error.errno,
            f"a record was not written: {error.strerror}: make room there, or set IOGAUGE_HOME to another "
            "directory",
            str(file),
        ) from error


def read(file: Path) -> Iterator[dict[str, Any] | Damaged]:
    """JSON of the records of one session in order; a line without is yielded as :class:`Damaged`.

    The values are not looked at. Raises OSError if the file cannot be read.
    """
    for _, found in read_numbered(file):
        yield found


def read_numbered(file: Path) -> Iterator[tuple[int, dict[str, Any] | Damaged]]:
    """As :func:`read`, each with the number of its line, counted from 1."""
    with untrusted.open_file(file, _FILE_BYTES) as lines:
        for number, line in enumerate(iter(lambda: lines.readline(_LINE_BYTES + 1), b""), 1):
            if len(line) > _LINE_BYTES:
                yield (
                    number,
                    Damaged(file, number, f"longer than {_LINE_BYTES} bytes; the rest is not read"),
                )
                return
            if line.isspace():
                continue
            try:
                yield number, decode(line)
            except ValueError as error:
                yield number, Damaged(file, number, str(error))


#: A record has a few thousand bytes; what is a thousand times as long is none.
_LINE_BYTES: Final = 32 << 20
_FILE_BYTES: Final = 1 << 40


def read_records(file: Path) -> Iterator[Record | Damaged]:
    """Records of one session in order; a line that is no record is yielded as :class:`Damaged`.

    Raises OSError if the file cannot be read.
    """
    for number, found in read_numbered(file):
        try:
            yield found if isinstance(found, Damaged) else Record.from_json(found)
        except (TypeError, ValueError) as error:
            yield Damaged(file, number, str(error))


def read_whole(file: Path) -> Iterator[Record | Damaged]:
    """As :func:`read_records`; a file that cannot be read is damaged in line 0."""
    try:
        yield from read_records(file)
    except OSError as error:
        yield Damaged(file, 0, f"cannot be read: {error.strerror or error}")
