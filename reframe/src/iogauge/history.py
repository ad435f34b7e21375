"""Records: what is kept of every case, whatever its verdict.

One JSON Lines file a session, a line a case, appended when the case is decided and flushed to disk before
the next one starts. Nothing is rewritten. The form of a record is described in docs/history.md.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    import polars

#: Version of the record's form; grows when a key changes its meaning, stays when keys are added.
SCHEMA: Final = 1

#: What says what is measured, beside the parameters; with the value where a record is older than the key.
_MEASURED: Final[Mapping[str, Any]] = {
    "system": None,
    "partition": None,
    "environment": None,
    "check": None,
    "variant": "sound",
    "tier": None,
    "nodes": None,
    "tasks_per_node": None,
    "overridden": {},
}


@dataclass(frozen=True, slots=True)
class Damaged:
    """A line that is not a record; line 0: the file cannot be read."""

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
    """Records of one session in order; a line that is none is yielded as :class:`Damaged`.

    Raises OSError where the file cannot be read.
    """
    for _, found in read_numbered(file):
        yield found


def read_numbered(file: Path) -> Iterator[tuple[int, dict[str, Any] | Damaged]]:
    """As :func:`read`, each with the number of its line, counted from 1."""
    with open(file, "rb") as lines:
        for number, line in enumerate(lines, 1):
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


# What records have in common.


def line_of(record: Mapping[str, Any]) -> str:
    """Twelve hex digits that name what a record measured: where, which case, at which scale.

    A record that is older than ``parameters`` has them in the case's name.
    """
    parameters = record.get("parameters")
    if not isinstance(parameters, Mapping):
        parameters = dict(re.findall(r"%([\w.]+)=(\S+)", str(record.get("case"))))
    if pinned := record.get("pinned"):  # a line for each node
        parameters = {**parameters, ".nid": pinned}
    measured = {name: record.get(name, old) for name, old in _MEASURED.items()}
    return _digest([measured, {name: _word(value) for name, value in parameters.items()}])


def series_of(line: str, subset: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a series: a line, and what its fingerprint says where it matters."""
    return _digest([line, dict(subset)])


def keys_of(record: Mapping[str, Any]) -> tuple[str, str]:
    """Line and series of a record.

    For a record that is older than these keys they are computed: the series from the tools and the stack's
    fingerprint, which is what such a record knows of the software.
    """
    line, series = record.get("line"), record.get("series")
    if not (isinstance(line, str) and line):
        line = line_of(record)
    if not (isinstance(series, str) and series):
        stack = record.get("stack")
        subset = {
            "tools": record.get("tools"),
            "stack": stack.get("fingerprint") if isinstance(stack, Mapping) else None,
        }
        series = series_of(line, {name: value for name, value in subset.items() if value})
    return line, series


def _word(value: object) -> str:
    """A parameter's value as text, so that 4 in a record is 4 in the name of a case."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)


def _digest(value: object) -> str:
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


# All records. Their modules are imported where they are used: polars takes 0.15 s, which no run of checks
# should wait for.


def load(
    folder: Path, cache: Path | None = None, *, columns: Collection[str] | None = None
) -> polars.DataFrame:
    """All metrics of all records below a folder, one row a metric, in the order of time.

    A record without metrics has one row without. The columns are those of docs/history.md; ``columns``
    names those that are wanted, which saves time and memory. Damaged lines are left out:
    :func:`damaged` lists them. ``cache`` is where the columnar form is kept from one call to the next, else
    the history's name below ``cache`` beside it; without the right to write there nothing is kept.
    Raises ValueError for a column that does not exist.
    """
    from iogauge import historycache

    return historycache.load(folder, cache, columns)


def fingerprints(
    folder: Path, ids: Collection[str] | None = None, cache: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Content of the fingerprints with these ids (all: None), by id; ids that no record has are left out."""
    from iogauge import historycache

    return historycache.fingerprints(folder, ids, cache)


def damaged(folder: Path, cache: Path | None = None) -> list[Damaged]:
    """Lines below a folder that are no records, or whose values have not the form that they must have."""
    from iogauge import historycache

    return historycache.damaged(folder, cache)
