"""Records: what is kept of every case, whatever its verdict.

One JSON Lines file a session, a line a case, appended when the case is decided and flushed to disk before
the next one starts. Nothing is rewritten. The form of a record is described in docs/history.md.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

from iogauge.core import untrusted
from iogauge.records.record import check_form

#: Version of the record's form; grows when a key changes its meaning, stays when keys are added.
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is not a record; line 0: the file cannot be read."""

    file: Path
    line: int
    problem: str


class NotRecorded(OSError):
    """A record could not be written; what was recorded before is as it was. The message names the file."""


def append(file: Path, record: dict[str, Any]) -> None:
    """Append one record in a single write and flush it to disk; raises :class:`NotRecorded`.

    A line that an earlier write left unfinished is closed first, so that it costs no second record.
    """
    line = json.dumps({"schema": SCHEMA, **record}, allow_nan=False, separators=(",", ":")) + "\n"
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        # A named pipe in its place is not waited for.
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK
        fd = os.open(file, flags, 0o644)
        try:
            size = os.fstat(fd).st_size
            if size and os.pread(fd, 1, size - 1) != b"\n":
                line = "\n" + line
            data = line.encode()
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
    """Records of one session in order; a line that is none is yielded as :class:`Damaged`.

    Raises OSError where the file cannot be read.
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
                record = _JSON.decode(line.decode("utf-8"))
            except (ValueError, RecursionError) as error:
                yield number, Damaged(file, number, f"not JSON: {error}")
                continue
            if not isinstance(record, dict) or "schema" not in record:
                yield number, Damaged(file, number, "not a record")
            elif record["schema"] != SCHEMA:
                problem = f"schema {record['schema']!r}, this version reads {SCHEMA}"
                yield number, Damaged(file, number, problem)
            else:
                yield number, record


def _no_number(name: str) -> NoReturn:
    raise ValueError(f"{name} is no number")


_JSON: Final = json.JSONDecoder(parse_constant=_no_number)

#: A record has a few thousand bytes; what is a thousand times as long is none.
_LINE_BYTES: Final = 32 << 20
_FILE_BYTES: Final = 1 << 40


def read_whole(file: Path) -> Iterator[dict[str, Any] | Damaged]:
    """As :func:`read`; a record that lacks what every record has, or has another type there, is damaged.

    So is, as line 0, a file that cannot be read.
    """
    try:
        for number, found in read_numbered(file):
            try:
                if isinstance(found, dict):
                    check_form(found)
            except (TypeError, ValueError) as error:
                yield Damaged(file, number, str(error))
            else:
                yield found
    except OSError as error:
        yield Damaged(file, 0, f"cannot be read: {error.strerror or error}")
