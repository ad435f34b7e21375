"""Records: what is kept of every case, whatever its verdict.

One JSON Lines file a session, a line a case, appended when the case is decided and flushed to disk before
the next one starts. Nothing is rewritten. The form of a record is described in docs/history.md.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import reprlib
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from iogauge import outside
from iogauge.verdict import Verdict

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
    with outside.open_file(file, _FILE_BYTES) as lines:
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

#: What whoever shows a record relies upon, and what may be there; other keys are as they are.
_Number = float | None
_Name = str | None
#: Keys without which nobody can say what a record is of.
CASE_KEYS: Final = (
    "session",
    "time",
    "system",
    "partition",
    "environment",
    "check",
    "case",
    "verdict",
)
_CASE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(CASE_KEYS, str),
    "verdict": Verdict,
    "reason": str,
    "metrics": list,
    "findings": list,
}
_OF_CASE: Final[Mapping[str, Any]] = {
    **dict.fromkeys(("hash", "tier", "line", "series"), _Name),
    "confirms": _Name,
    "parameters": dict,
    "overridden": dict,
    "fingerprint": dict,
}
_METRIC: Final[Mapping[str, Any]] = {
    "name": str,
    "unit": str,
    "median": float,
    "spread": _Number,
    "verdict": _CASE["verdict"],
    "reason": str,
    "reference": dict | None,
    "ceiling": _Number,
}
_FINDING: Final[Mapping[str, Any]] = {
    "guard": str,
    "outcome": str,
    "metric": _Name,
    "saw": str,
    "demands": str,
}
#: The largest figure that is believed, and the last moment: what is drawn and sorted stays finite.
_MOST: Final = 1e300
_LAST: Final = 200_000_000_000_000_000
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=timezone.utc)
_PRICE: Final[Mapping[str, Any]] = {
    "source": str,
    "currency": str,
    "per_gb_month": float,
    "capacity": float,
}


def read_whole(file: Path) -> Iterator[dict[str, Any] | Damaged]:
    """As :func:`read`; a record that lacks what every record has, or has another type there, is damaged.

    So is, as line 0, a file that cannot be read.
    """
    try:
        for number, found in read_numbered(file):
            try:
                if isinstance(found, dict):
                    _check_form(found)
            except (TypeError, ValueError) as error:
                yield Damaged(file, number, str(error))
            else:
                yield found
    except OSError as error:
        yield Damaged(file, 0, f"cannot be read: {error.strerror or error}")


def microseconds(text: object) -> int:
    """Microseconds since 1970 of a time such as 2026-01-31T12:00:00Z; raises ValueError, also for times before that."""
    try:
        moment = datetime.fromisoformat(str(text).replace("Z", "+00:00"))
        found = (moment - _EPOCH) // timedelta(microseconds=1)
    except (ValueError, TypeError, OverflowError):
        found = -1
    if not 0 <= found < _LAST:
        raise ValueError(f"time is {text!r:.60}: expected UTC such as 2026-01-31T12:00:00Z")
    return found


def _check_form(record: Mapping[str, Any]) -> None:
    """Raise TypeError for the first key that is missing or has another type than it must have."""

    def check(value: object, form: Mapping[str, Any], where: str) -> None:
        if not isinstance(value, Mapping):
            raise TypeError(f"{where.rstrip('.')} is {reprlib.repr(value)}: expected an object")
        for key, kind in form.items():
            if key not in value:
                raise TypeError(f"the key {where}{key} is missing")
            outside.build(kind, value[key], where + key)

    check(record, _CASE, "")
    for key in (*CASE_KEYS, "line", "series"):
        str(record.get(key)).encode()  # half a surrogate pair is no text
    check(record, {key: kind for key, kind in _OF_CASE.items() if key in record}, "")
    microseconds(record["time"])
    for number, metric in enumerate(record["metrics"]):
        where = f"metrics[{number}]."
        check(metric, _METRIC, where)
        metric["name"].encode()  # half a surrogate pair is no text
        if abs(metric["median"]) > _MOST:
            raise ValueError(f"{where}median is {metric['median']!r}: expected {_MOST:g} at most")
        if metric["reference"] is not None:
            check(metric["reference"], {"value": float, "lower": _Number}, f"{where}reference.")
            check({"upper": None, **metric["reference"]}, {"upper": _Number}, f"{where}reference.")
            if metric["reference"]["value"] <= 0:
                raise ValueError(f"{where}reference.value is not more than 0")
    for number, finding in enumerate(record["findings"]):
        check(finding, _FINDING, f"findings[{number}].")
    if record.get("target") is not None:
        check(record["target"], {"path": str}, "target.")
    if record.get("price") is not None:
        check(record["price"], _PRICE, "price.")


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
    return digest([measured, {name: _word(value) for name, value in parameters.items()}])


def series_of(line: str, subset: Mapping[str, Any]) -> str:
    """Twelve hex digits that name a series: a line, and what its fingerprint says where it matters."""
    return digest([line, dict(subset)])


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


def digest(value: object) -> str:
    """Twelve hex digits that name plain data, whatever the order of keys."""
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
