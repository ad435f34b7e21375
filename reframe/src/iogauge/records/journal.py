"""Append records to a session's file and read them back, whatever their verdict.

Each session has one JSON Lines file, with one line a case. A record is appended when its case is
decided, and flushed to disk before the next case starts. Nothing is rewritten. docs/results.md
describes the form of a record.
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
    """A line that is not a record; ``line`` is 0 if the file cannot be read."""

    file: Path
    line: int
    problem: str


class NotRecorded(OSError):
    """A record could not be written; earlier records are unchanged. The message names the file."""


def append(file: Path, line: bytes) -> None:
    """Append a record's line in a single write and flush it to disk; raises :class:`NotRecorded`.

    A line that an earlier write left unfinished is ended first, so that it does not spoil this
    record.
    """
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # O_NONBLOCK: do not wait if a named pipe is there instead of the file.
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
    """Yield the JSON of one session's records in order.

    Lines that cannot be parsed as records are yielded as :class:`Damaged`. The values are not
    checked. Raises OSError if the file cannot be read.
    """
    for _, values in read_numbered(file):
        yield values


def read_numbered(file: Path) -> Iterator[tuple[int, dict[str, Any] | Damaged]]:
    """Yield as :func:`read` does, each with the number of its line, counted from 1."""
    with untrusted.open_file(file, _FILE_BYTES) as lines:
        for number, line in enumerate(
            iter(lambda: lines.readline(_LINE_BYTES + 1), b""), 1
        ):
            if len(line) > _LINE_BYTES:
                yield (
                    number,
                    Damaged(
                        file,
                        number,
                        f"longer than {_LINE_BYTES} bytes; the rest is not read",
                    ),
                )
                return
            if line.isspace():
                continue
            try:
                yield number, decode(line)
            except ValueError as error:
                yield number, Damaged(file, number, str(error))


#: A record has a few thousand bytes; a line a thousand times as long is not a record.
_LINE_BYTES: Final = 32 << 20
_FILE_BYTES: Final = 1 << 40


def read_records(file: Path) -> Iterator[Record | Damaged]:
    """Yield the records of one session in order.

    Lines that cannot be parsed as records are yielded as :class:`Damaged`. Raises OSError if the
    file cannot be read.
    """
    for number, values in read_numbered(file):
        try:
            yield values if isinstance(values, Damaged) else Record.from_json(values)
        except (TypeError, ValueError) as error:
            yield Damaged(file, number, str(error))


def read_whole(file: Path) -> Iterator[Record | Damaged]:
    """Yield as :func:`read_records` does; a file that cannot be read is damaged in line 0."""
    try:
        yield from read_records(file)
    except OSError as error:
        yield Damaged(file, 0, f"cannot be read: {error.strerror or error}")
