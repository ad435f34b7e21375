"""Append records to a session's file and read them back, whatever their verdict.

Each session has one JSON Lines file, with one line a case. A record is appended when its case is
decided, and flushed to disk before the next case starts. Nothing is rewritten. docs/results.md
describes the form of a record.
"""

import errno
import itertools
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

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
            data = line + b"\n"
            if size and os.pread(fd, 1, size - 1) != b"\n":
                data = b"\n" + data
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


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a session's file: its number from 1, its place in bytes, and what it holds."""

    number: int
    start: int
    text: bytes
    entry: Record | Damaged


def read_lines(file: Path) -> Iterator[Line]:
    """Yield the lines of one session in order, but for blank ones; raises OSError if the file cannot be read."""
    start = 0
    with untrusted.open_file(file, _FILE_BYTES) as lines:
        for number in itertools.count(1):
            text = lines.readline(_LINE_BYTES + 1)
            if not text:
                return
            if len(text) > _LINE_BYTES:
                problem = f"longer than {_LINE_BYTES} bytes; the rest is not read"
                yield Line(number, start, b"", Damaged(file, number, problem))
                return
            if not text.isspace():
                yield Line(number, start, text, _entry(file, number, text))
            start += len(text)


def _entry(file: Path, number: int, text: bytes) -> Record | Damaged:
    try:
        return Record.from_json(decode(text))
    except (TypeError, ValueError, RecursionError) as error:
        return Damaged(file, number, str(error))


def read_at(file: Path, starts: Iterable[int]) -> Iterator[tuple[int, Record]]:
    """Yield the records that begin at some places of a file; what is no record there is left out.

    Raises OSError if the file cannot be read.
    """
    with untrusted.open_file(file, _FILE_BYTES) as lines:
        for start in starts:
            lines.seek(start)
            entry = _entry(file, 0, lines.readline(_LINE_BYTES))
            if isinstance(entry, Record):
                yield start, entry


#: A record has a few thousand bytes; a line a thousand times as long is not a record.
_LINE_BYTES = 32 << 20
_FILE_BYTES = 1 << 40


def read_whole(file: Path) -> Iterator[Record | Damaged]:
    """Yield the records of one session in order, and as :class:`Damaged` what is none; a file that cannot be read is damaged in
    line 0.
    """
    try:
        for line in read_lines(file):
            yield line.entry
    except OSError as error:
        yield Damaged(file, 0, f"cannot be read: {error.strerror or error}")
