"""Records: what is kept of every case, whatever its verdict.

One JSON Lines file a session, a line a case, appended when the case is decided and flushed to disk before
the next one starts. Nothing is rewritten.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Version of the record's form; grows when a key changes its meaning.
SCHEMA: Final = 1


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is not a record."""

    file: Path
    line: int
    problem: str


def append(file: Path, record: dict[str, Any]) -> None:
    """Append one record in a single write and flush it to disk; raises OSError.

    A line that an earlier write left unfinished is closed first, so that it costs no second record.
    """
    line = json.dumps({"schema": SCHEMA, **record}, allow_nan=False, separators=(",", ":")) + "\n"
    file.parent.mkdir(parents=True, exist_ok=True)
    fd = os.open(file, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        size = os.fstat(fd).st_size
        if size and os.pread(fd, 1, size - 1) != b"\n":
            line = "\n" + line
        data = line.encode()
        if os.write(fd, data) != len(data):
            raise OSError(f"{file}: record was not written whole: file system full?")
        os.fsync(fd)
    finally:
        os.close(fd)


def read(file: Path) -> Iterator[dict[str, Any] | Damaged]:
    """Records of one session in order; a line that is none is yielded as :class:`Damaged`."""
    with open(file, encoding="utf-8", errors="replace") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                record = json.loads(line)
            except (ValueError, RecursionError) as error:
                yield Damaged(file, number, f"not JSON: {error}")
                continue
            if not isinstance(record, dict) or "schema" not in record:
                yield Damaged(file, number, "not a record")
            elif record["schema"] != SCHEMA:
                yield Damaged(
                    file, number, f"schema {record['schema']!r}, this version reads {SCHEMA}"
                )
            else:
                yield record
