"""The history as columns, the series of its records, and the cache that makes a million records quick to load.

A record whose facts were not answered in time belongs to the series of its neighbours, unless what
it knows contradicts them. A series is divided by the file system, and by the layouts that the
target passes on, only if two known values differ.

The cache is a folder with a file for each month in which sessions began: their rows as parquet, after a head
that says which session files, at which size and time of change, the rows were made from. A session file
that has changed since is read again, the others are not. A file of the cache that is damaged, of another
version, or of another history is made anew; the cache may be deleted at any time. A file is written beside
the old one and renamed, so that readers and writers need no lock: of two writers at once one does its work
in vain.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import polars as pl

from iogauge.core import untrusted
from iogauge.core.paths import replace_file
from iogauge.core.text import digest
from iogauge.evidence.fingerprint import agree, identity
from iogauge.judge.verdict import Verdict
from iogauge.node.identity import differ
from iogauge.records.journal import Damaged, read_numbered
from iogauge.records.record import Record
from iogauge.records.rows import (
    COLUMNS,
    DIVIDING,
    ORDER,
    ORIGIN,
    STORED,
    as_object,
    rows_of,
    to_frame,
)


def _others(one: str, other: str) -> bool:
    """Return whether two values of ``fs.uuid`` have no file system in common."""
    return all(differ(a, b) for a in one.split(" | ") for b in other.split(" | "))


def rejoined(
    rows: pl.DataFrame,
    contents: Callable[[Collection[str]], Mapping[str, Mapping[str, Any]]],
) -> pl.DataFrame:
    """Return rows, in order of time, in which incomplete records have the series of a neighbour.

    That is the complete record of the same line before them, or else the one after them, if the
    fingerprints agree. ``contents`` gives fingerprints by their ids. The columns ``line``,
    ``fingerprint`` and ``incomplete`` are needed.
    """
    lines = rows.filter("incomplete")["line"].unique()
    if lines.is_empty():
        return rows
    kinds = ["line", "fingerprint", "incomplete", "series"]
    numbered = rows.with_row_index("row")
    some = numbered.filter(pl.col("line").is_in(lines.implode()))
    prints = contents(some["fingerprint"].drop_nulls().unique().to_list())
    of_line: dict[str, list[tuple[int, str | None, bool, str]]] = {}
    for row, line, name, incomplete, series in some.select("row", *kinds).iter_rows():
        of_line.setdefault(line, []).append((row, name, incomplete, series))
    found: dict[int, str] = {}
    for entries in of_line.values():
        for ordered in (
            entries[::-1],
            entries,
        ):  # the neighbour before wins over the one after
            near: tuple[str | None, str] | None = None
            for row, name, incomplete, series in ordered:
                if not incomplete:
                    near = (name, series)
                elif near and agree(
                    prints.get(near[0] or "", {}), prints.get(name or "", {})
                ):
                    found[row] = near[1]
    table = pl.DataFrame(
        {"row": list(found), "own": list(found.values())},
        schema={"row": numbered.schema["row"], "own": rows.schema["series"]},
    )
    joined = numbered.join(table, on="row", how="left", maintain_order="left")
    return joined.with_columns(series=pl.coalesce("own", "series")).drop("row", "own")


def divided(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows, in order of time, whose series begin anew with another file system or layout.

    The first known value of a series keeps the series' name, the others get one of their own. A row
    without a value belongs to the one before it, or else to the one after it. The columns of
    :data:`DIVIDING` are dropped.
    """
    for column in DIVIDING:
        rows = _by(rows, column, _others if column == "file_system" else str.__ne__)
    return rows


def _by(
    rows: pl.DataFrame, column: str, other: Callable[[str, str], bool]
) -> pl.DataFrame:
    """Return rows whose series are divided by one column, which is dropped."""
    seen: dict[str, list[str]] = {}
    names: list[tuple[str, str, str]] = []
    pairs = rows.select("series", column).drop_nulls().unique(maintain_order=True)
    for series, name in pairs.iter_rows():
        first = seen.setdefault(series, [])
        number = next(
            (i for i, one in enumerate(first) if not other(name, one)), len(first)
        )
        first += [name] if number == len(first) else []
        names.append(
            (series, name, digest([series, first[number]]) if number else series)
        )
    if all(len(first) == 1 for first in seen.values()):
        return rows.drop(column)
    kinds = {"series": rows.schema["series"], column: rows.schema[column]}
    table = pl.DataFrame(names, schema=kinds | {"own": kinds["series"]}, orient="row")
    joined = rows.join(table, on=["series", column], how="left", maintain_order="left")
    own = pl.col("own").forward_fill().backward_fill().over("series")
    return joined.with_columns(series=pl.coalesce(own, "series")).drop("own", column)


#: Grows when the same session file makes other rows.
_VERSION: Final = 6
_FORM: Final = hashlib.sha256(f"{_VERSION} {STORED}".encode()).hexdigest()[:12]

#: Beginning of a session file's name, and names in the cache: a month's file, and one that is being written.
_BEGIN: Final = re.compile(r"(\d{4})(\d{2})\d{2}T")
_OURS: Final = re.compile(r"(\d{4}-\d{2}|other)\.cache(\..+)?")

#: Stored columns from which the column ``series`` is made.
_OF_SERIES: Final = ("line", "fingerprint", "incomplete", *DIVIDING)

#: Columns that say where a row's record stands, see :func:`records`.
PLACE: Final = ("source", "number")

#: Bytes that a file of the cache may have.
_MONTH_BYTES: Final = 4 << 30

#: Rows that are turned into columns at a time.
_CHUNK_ROWS: Final = 50_000

#: Seconds for which a file of no month is left alone: another process may be writing it.
_GRACE_S: Final = 3600

#: Size and time of change (ns) of a session file.
_State = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Source:
    """A session file as it was when it was read, and its lines that are no records."""

    state: _State
    damaged: Sequence[tuple[int, str]]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Month:
    """Rows of some session files, as parquet in the order of time, and these files by path below the history."""

    sources: Mapping[str, _Source]
    table: bytes

    def rows(self, columns: Sequence[str]) -> pl.DataFrame:
        """Return some columns of the rows."""
        return pl.read_parquet(io.BytesIO(self.table), columns=list(columns))

    def unchanged(self, found: Mapping[str, _State]) -> dict[str, _Source]:
        """Return the session files that are still as they were read."""
        return {
            p: source
            for p, source in self.sources.items()
            if found.get(p) == source.state
        }

    def to_bytes(self, folder: Path) -> bytes:
        """Return what the cache keeps: digest of the rest, head, table."""
        sources = {
            path: [*one.state, one.damaged] for path, one in self.sources.items()
        }
        head = json.dumps(
            {"form": _FORM, "folder": str(folder), "sources": sources}
        ).encode()
        return b"\n".join((_digest(head, self.table), head, self.table))


def _digest(head: bytes, table: bytes) -> bytes:
    digest = hashlib.blake2b(head, digest_size=16)
    digest.update(table)
    return digest.hexdigest().encode()


def source_id(path: str) -> int:
    """A number that stands for a session file, by its path below the history."""
    digest = hashlib.blake2b(os.fsencode(path), digest_size=8).digest()
    return int.from_bytes(digest, "big", signed=True)


# The cache.
def _months(folder: Path, cache: Path | None) -> Iterator[_Month]:
    """Yield what the session files say now, and bring the cache up to date if that is allowed."""
    folder = folder.resolve()
    place = cache or folder.parent / "cache" / folder.name
    found: dict[str, dict[str, _State]] = {}
    for path, state in sorted(_session_files(folder).items()):
        begin = _BEGIN.match(path.rpartition("/")[2])
        name = f"{begin[1]}-{begin[2]}.cache" if begin else "other.cache"
        found.setdefault(name, {})[path] = state
    for name, states in sorted(found.items()):
        month = _read_month(place / name, folder)
        if (
            month is None
            or month.sources != month.unchanged(states)
            or len(month.sources) < len(states)
        ):
            month = _renewed(folder, month, states)
            with contextlib.suppress(OSError):
                place.mkdir(parents=True, exist_ok=True)
                replace_file(place / name, month.to_bytes(folder))
        yield month
    with contextlib.suppress(OSError):
        _clear_away(place, found.keys())


def _read_month(file: Path, folder: Path) -> _Month | None:
    """Read a file of the cache; None if it is missing, damaged, of another version or history."""
    try:
        digest, head, table = untrusted.read_bytes(file, _MONTH_BYTES).split(b"\n", 2)
        if digest != _digest(head, table):
            return None
        known = json.loads(head)
        if (known["form"], known["folder"]) != (_FORM, str(folder)):
            return None
        if dict(pl.read_parquet_schema(io.BytesIO(table))) != STORED:
            return None
        sources = {
            path: _Source(
                state=(int(size), int(mtime_ns)),
                damaged=[(int(line), str(problem)) for line, problem in lines],
            )
            for path, (size, mtime_ns, lines) in known["sources"].items()
        }
    except (
        OSError,
        ValueError,
        LookupError,
        TypeError,
        AttributeError,
        RecursionError,
    ):
        return None
    except pl.exceptions.PolarsError:
        return None
    return _Month(sources=sources, table=table)


def _renewed(folder: Path, month: _Month | None, found: Mapping[str, _State]) -> _Month:
    """Return a month with what is new in its session files; those that are as they were are not read."""
    same = month.unchanged(found) if month else {}
    frames, read = _parse(folder, [path for path in found if path not in same])
    if month and same:
        ids = [source_id(path) for path in same]
        frames.append(month.rows(list(STORED)).filter(pl.col("source").is_in(ids)))
    table = io.BytesIO()
    rows = pl.concat(frames).sort(ORDER)
    rows.write_parquet(table, compression="zstd", compression_level=1, statistics=False)
    return _Month(sources={**same, **read}, table=table.getvalue())


def _clear_away(place: Path, names: Collection[str]) -> None:
    """Remove files of months without sessions, and what writers left behind; raises OSError."""
    for file in place.iterdir():
        ours = _OURS.fullmatch(file.name) and file.name not in names
        if ours and file.stat().st_mtime < time.time() - _GRACE_S:
            file.unlink(missing_ok=True)


# Session files to rows.
def _parse(
    folder: Path, paths: Iterable[str]
) -> tuple[list[pl.DataFrame], dict[str, _Source]]:
    """Read session files, given by their paths below the history: their rows, and the files."""
    frames: list[pl.DataFrame] = []
    rows: list[tuple[Any, ...]] = []
    ids: dict[object, str] = {}
    sources: dict[str, _Source] = {}
    for path in paths:
        source, damaged, shown = source_id(path), [], set()
        try:
            # Before the file is read: what is appended meanwhile changes it.
            stat = (folder / path).stat()
            state = (stat.st_size, stat.st_mtime_ns)
            for number, record in read_numbered(folder / path):
                if isinstance(record, Damaged):
                    damaged.append((number, record.problem))
                    continue
                try:
                    fingerprint = as_object(record.get("fingerprint"), "fingerprint")
                    name = _identity(fingerprint, ids) if fingerprint else None
                    content = (
                        json.dumps(fingerprint) if name and name not in shown else None
                    )
                    Record.from_json(record)
                    rows += rows_of(record, (name, source, number), content)
                    shown.add(name)
                except (TypeError, ValueError, RecursionError) as error:
                    damaged.append((number, str(error)))
                if len(rows) >= _CHUNK_ROWS:
                    frames.append(to_frame(rows))
                    rows = []
        except OSError as error:
            state = (-1, -1)  # what no file has, so that it is tried again
            damaged.append((0, error.strerror or str(error)))
        sources[path] = _Source(state=state, damaged=damaged)
    return [*frames, to_frame(rows)], sources


def _identity(fingerprint: Mapping[str, Any], ids: dict[object, str]) -> str:
    """Return a fingerprint's id; ``ids`` saves computing the same again."""
    key = (*fingerprint.items(), *map(type, fingerprint.values()))
    try:
        if key not in ids:
            ids[key] = identity(fingerprint)
        return ids[key]
    except TypeError:  # with a list or an object in it
        return identity(fingerprint)


def _session_files(folder: Path) -> dict[str, _State]:
    """Session files below a folder."""
    found = {}
    for path in folder.rglob("*.jsonl"):
        try:
            stat = path.stat()
            state = (stat.st_size, stat.st_mtime_ns)
        except FileNotFoundError:
            continue
        except OSError:  # reading it says what is wrong
            state = (0, 0)
        found[path.relative_to(folder).as_posix()] = state
    return found


# What is asked.
def load(
    folder: Path, cache: Path | None = None, *, columns: Collection[str] | None = None
) -> pl.DataFrame:
    """All metrics of all records below a folder, one row a metric, in the order of time.

    A record without metrics has one row without. The columns are those of docs/results.md; ``columns``
    names those that are wanted, which saves time and memory, and may also name ``source``, ``number`` and
    ``position``. Texts are categories: each is kept once. Damaged lines are left out: :func:`damaged` lists them. ``cache`` is where the columnar form is
    kept from one call to the next, else the history's name below ``cache`` beside it; without the right to write
    there nothing is kept. Raises ValueError for a column that does not exist.
    """
    wanted = list(COLUMNS if columns is None else columns)
    unknown = [name for name in wanted if name not in COLUMNS and name not in ORIGIN]
    if unknown:
        raise ValueError(
            f"no column {', '.join(unknown)}: expected some of {', '.join(COLUMNS)}"
        )
    needed = {*wanted, *(_OF_SERIES if "series" in wanted else [])}
    needed |= {"position"} if "record" in wanted else set()
    stored = [name for name in STORED if name in needed]

    def months() -> Iterator[pl.DataFrame]:
        for month in _months(folder, cache):
            yield _short(
                month.rows([name for name in STORED if name in {*stored, *ORDER}])
            )

    frame = _merged(months, stored)
    if "series" in wanted:
        frame = divided(rejoined(frame, lambda ids: fingerprints(folder, ids, cache)))
    if "record" in wanted:
        running = (pl.col("position") == 0).cum_sum().cast(pl.Int64) - 1
        frame = frame.with_columns(record=running)
    return frame.select(wanted)


def _short(rows: pl.DataFrame) -> pl.DataFrame:
    """Rows in which each text is kept once, and a verdict is a byte."""
    verdicts = [name for name in ("verdict", "metric_verdict") if name in rows.columns]
    known = pl.Enum([verdict.value for verdict in Verdict])
    return rows.with_columns(
        pl.col(verdicts).cast(known),
        pl.col(pl.String).exclude(verdicts).cast(pl.Categorical),
    )


def _merged(
    months: Callable[[], Iterator[pl.DataFrame]], columns: Sequence[str]
) -> pl.DataFrame:
    """Columns of months, each in order, as one in order; only what overlaps in time is sorted."""
    done = [_short(to_frame([])).select(columns)]
    last: pl.DataFrame | None = None
    for frame in filter(len, months()):
        if last is not None and frame["time"][0] < last["time"][0]:
            return pl.concat(months()).sort(ORDER).select(columns)
        if last is not None:
            cut = last["time"].search_sorted(frame["time"][0], "left")
            done.append(last[:cut].select(columns))
            if cut < last.height:
                frame = pl.concat([last[cut:], frame]).sort(ORDER)
        last = frame
    return pl.concat([*done, *([] if last is None else [last.select(columns)])])


def fingerprints(
    folder: Path, ids: Collection[str] | None = None, cache: Path | None = None
) -> dict[str, dict[str, Any]]:
    """Content of the fingerprints with these ids (all: None), by id; ids that no record has are left out."""
    wanted = None if ids is None else set(ids)
    found: dict[str, dict[str, Any]] = {}
    for month in _months(folder, cache):
        known = (
            month.rows(["fingerprint", "content"]).drop_nulls().unique("fingerprint")
        )
        for name, content in known.iter_rows():
            if name not in found and (wanted is None or name in wanted):
                found[name] = json.loads(content)
    return found


def damaged(folder: Path, cache: Path | None = None) -> list[Damaged]:
    """Lines below a folder that are no records, or whose values have not the form that they must have."""
    found = [
        Damaged(folder / path, line, problem)
        for month in _months(folder, cache)
        for path, source in month.sources.items()
        for line, problem in source.damaged
    ]
    return sorted(found, key=lambda one: (one.file, one.line))


def records(folder: Path, rows: pl.DataFrame) -> dict[tuple[int, int], dict[str, Any]]:
    """The records at the ``source`` and ``number`` of some rows, by these two.

    A record whose file has gone meanwhile is left out. Raises OSError for a file that cannot be read.
    """
    asked: dict[int, set[int]] = {}
    for source, number in rows.select(PLACE).iter_rows():
        asked.setdefault(source, set()).add(number)
    found = {}
    for path in _session_files(folder):
        numbers = asked.get(source := source_id(path))
        if numbers:
            for number, record in read_numbered(folder / path):
                if number in numbers and isinstance(record, dict):
                    found[source, number] = record
    return found


def valid_records(folder: Path, rows: pl.DataFrame) -> dict[tuple[int, int], Record]:
    """As :func:`records`; a record whose values have not the form that they must have is left out too."""
    found = {}
    for place, values in records(folder, rows).items():
        with contextlib.suppress(
            TypeError, ValueError
        ):  # iogauge history --damaged tells of it
            found[place] = Record.from_json(values)
    return found
