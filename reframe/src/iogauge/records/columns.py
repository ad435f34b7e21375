"""Records as rows of a table, for polars, and series that go on although some records know less than
others.

A record whose facts were not answered in time belongs to the series of its neighbours, unless what
it knows contradicts them. A series is divided by the file system, and by the layouts that the
target passes on, only if two known values differ.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Final

import polars as pl

from iogauge.core.text import digest
from iogauge.evidence.fingerprint import FILE_SYSTEM, LAYOUTS, agree, unanswered
from iogauge.judge.verdict import Verdict
from iogauge.node.mounts import differ
from iogauge.records.record import CASE_KEYS, keys_of, microseconds

#: Columns that divide a series, each with its key in the fingerprint.
DIVIDING: Final[Mapping[str, str]] = {
    "file_system": FILE_SYSTEM,
    **{key.replace(".", "_"): key for key in LAYOUTS},
}


def _others(one: str, other: str) -> bool:
    """Return whether two values of ``fs.uuid`` have no file system in common."""
    return all(differ(a, b) for a in one.split(" | ") for b in other.split(" | "))


def rejoined(
    rows: pl.DataFrame, contents: Callable[[Collection[str]], Mapping[str, Mapping[str, Any]]]
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
        for ordered in (entries[::-1], entries):  # the neighbour before wins over the one after
            near: tuple[str | None, str] | None = None
            for row, name, incomplete, series in ordered:
                if not incomplete:
                    near = (name, series)
                elif near and agree(prints.get(near[0] or "", {}), prints.get(name or "", {})):
                    found[row] = near[1]
    table = pl.DataFrame(
        {"row": list(found), "own": list(found.values())},
        schema={"row": numbered.schema["row"], "own": pl.String},
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


def _by(rows: pl.DataFrame, column: str, other: Callable[[str, str], bool]) -> pl.DataFrame:
    """Return rows whose series are divided by one column, which is dropped."""
    seen: dict[str, list[str]] = {}
    names: list[tuple[str, str, str]] = []
    pairs = rows.select("series", column).drop_nulls().unique(maintain_order=True)
    for series, name in pairs.iter_rows():
        first = seen.setdefault(series, [])
        number = next((i for i, one in enumerate(first) if not other(name, one)), len(first))
        first += [name] if number == len(first) else []
        names.append((series, name, digest([series, first[number]]) if number else series))
    if all(len(first) == 1 for first in seen.values()):
        return rows.drop(column)
    table = pl.DataFrame(names, schema=["series", column, "own"], orient="row")
    joined = rows.join(table, on=["series", column], how="left", maintain_order="left")
    own = pl.col("own").forward_fill().backward_fill().over("series")
    return joined.with_columns(series=pl.coalesce(own, "series")).drop("own", column)


#: Columns of :func:`iogauge.records.query.load`.
COLUMNS: Final[Mapping[str, Any]] = {
    "time": pl.Datetime("us", "UTC"),
    "session": pl.String,
    "system": pl.String,
    "partition": pl.String,
    "environment": pl.String,
    "check": pl.String,
    "case": pl.String,
    "variant": pl.String,
    "tier": pl.String,
    "nodes": pl.Int64,
    "tasks_per_node": pl.Int64,
    "line": pl.String,
    "series": pl.String,
    "verdict": pl.String,
    "metric": pl.String,
    "unit": pl.String,
    "better": pl.String,
    "median": pl.Float64,
    "spread": pl.Float64,
    "samples": pl.Int64,
    "metric_verdict": pl.String,
    "reference": pl.Float64,
    "lower": pl.Float64,
    "upper": pl.Float64,
    "expected": pl.Boolean,
    "confirms": pl.String,
    "fingerprint": pl.String,
    "record": pl.Int64,
}

#: Where a row comes from: the session file (``source_id`` of the query), its line, the metric's place in the record.
ORIGIN: Final[Mapping[str, Any]] = {"source": pl.Int64, "number": pl.Int64, "position": pl.Int32}
ORDER: Final = ("time", *ORIGIN)
#: What the cache keeps; ``content`` is a fingerprint as JSON, where a session file has it for the first time,
#: and the columns of :data:`DIVIDING` some of its keys. ``incomplete`` says whether it lacks keys for want of an
#: answer.
STORED: Final = {name: kind for name, kind in COLUMNS.items() if name != "record"} | {
    **ORIGIN,
    "content": pl.String,
    **dict.fromkeys(DIVIDING, pl.String),
    "incomplete": pl.Boolean,
}

_VERDICTS: Final = frozenset(verdict.value for verdict in Verdict)


# A record as rows.
def _text(values: Mapping[str, Any], name: str) -> str | None:
    value = values.get(name)
    if value is None or type(value) is str:
        return value
    raise ValueError(f"{name} is {value!r:.60}: expected text")


def _verdict(values: Mapping[str, Any]) -> str | None:
    value = _text(values, "verdict")
    if value is None or value in _VERDICTS:
        return value
    raise ValueError(f"verdict is {value!r:.60}: expected {', '.join(sorted(_VERDICTS))}")


def _count(values: Mapping[str, Any], name: str) -> int | None:
    value = values.get(name)
    if value is None or (type(value) is int and abs(value) < 2**63):
        return value
    raise ValueError(f"{name} is {value!r:.60}: expected a whole number")


def _number(values: Mapping[str, Any], name: str) -> float | None:
    value = values.get(name)
    if value is None:
        return None
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and abs(value) < 2**63:
        return float(value)
    raise ValueError(f"{name} is {value!r:.60}: expected a finite number")


def as_object(value: object, name: str) -> Mapping[str, Any]:
    if value is None:
        return {}
    if type(value) is dict:
        return value
    raise ValueError(f"{name} is {value!r:.60}: expected an object")


def _list(value: object, name: str) -> Sequence[Any]:
    if value is None:
        return []
    if type(value) is list:
        return value
    raise ValueError(f"{name} is {value!r:.60}: expected a list")


_CASE_TEXTS: Final = (
    *("session", "system", "partition", "environment"),
    *("check", "case", "variant", "tier"),
)


def rows_of(
    record: Mapping[str, Any], origin: tuple[str | None, int, int], content: str | None
) -> list[tuple[Any, ...]]:
    """The rows of a record, in the order of the stored columns; raises ValueError for what has no such form.

    ``origin`` is the fingerprint's id, the source and the number; the first row has the ``content``.
    """
    fingerprint = as_object(record.get("fingerprint"), "fingerprint")
    values = [
        v if isinstance(v := fingerprint.get(key), str) else None for key in DIVIDING.values()
    ]
    known = (*values, bool(unanswered(fingerprint)))
    for key in CASE_KEYS:
        if record.get(key) is None:
            raise ValueError(f"the key {key} is missing")
    case = (
        microseconds(record.get("time")),
        *(_text(record, name) for name in _CASE_TEXTS),
        _count(record, "nodes"),
        _count(record, "tasks_per_node"),
        *keys_of(record),
        _verdict(record),
    )
    expected = record.get("expected") is True
    confirms = _text(record, "confirms")
    metrics = _list(record.get("metrics"), "metrics")
    if not metrics:
        nothing = (None, None, None, None, None, 0, None, None, None, None)
        return [(*case, *nothing, expected, confirms, *origin, 0, content, *known)]
    rows = []
    for position, entry in enumerate(metrics):
        metric = as_object(entry, "metric")
        reference = as_object(metric.get("reference"), "reference")
        if (name := _text(metric, "name")) is None:
            raise ValueError("a metric has no name")
        rows.append(
            (
                *case,
                name,
                _text(metric, "unit"),
                _text(metric, "better") or "more",
                _number(metric, "median"),
                _number(metric, "spread"),
                len(_list(metric.get("samples"), "samples")),
                _verdict(metric),
                _number(reference, "value"),
                _number(reference, "lower"),
                _number(reference, "upper"),
                expected,
                confirms,
                *origin,
                position,
                None if position else content,
                *known,
            )
        )
    return rows


def _series(name: str, kind: Any, values: Sequence[Any]) -> pl.Series:
    if name == "time":
        return pl.Series(name, values, pl.Int64).cast(kind)
    try:
        return pl.Series(name, values, kind)
    except UnicodeEncodeError:  # half a surrogate pair, which JSON can say and UTF-8 cannot
        clean = [value and value.encode("utf-8", "replace").decode() for value in values]
        return pl.Series(name, clean, kind)


def to_frame(rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    columns = zip(*rows, strict=True) if rows else ([] for _ in STORED)
    return pl.DataFrame(
        [
            _series(name, kind, values)
            for (name, kind), values in zip(STORED.items(), columns, strict=True)
        ]
    )
