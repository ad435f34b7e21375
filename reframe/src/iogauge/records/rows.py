"""The rows of a history: one for each metric of a record, and their columns."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

import polars as pl

from iogauge.evidence.fingerprint import FILE_SYSTEM, LAYOUTS, SETTINGS, unanswered
from iogauge.judge.verdict import Verdict
from iogauge.records.record import CASE_KEYS, keys_of, microseconds

#: Columns that divide a series, each with its key in the fingerprint.
DIVIDING: Final[Mapping[str, str]] = {
    "file_system": FILE_SYSTEM,
    **{key.replace(".", "_"): key for key in (*LAYOUTS, SETTINGS)},
}


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
ORIGIN: Final[Mapping[str, Any]] = {
    "source": pl.Int64,
    "number": pl.Int64,
    "position": pl.Int32,
}
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
    raise ValueError(
        f"verdict is {value!r:.60}: expected {', '.join(sorted(_VERDICTS))}"
    )


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
        v if isinstance(v := fingerprint.get(key), str) else None
        for key in DIVIDING.values()
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
    except (
        UnicodeEncodeError
    ):  # half a surrogate pair, which JSON can say and UTF-8 cannot
        clean = [
            value and value.encode("utf-8", "replace").decode() for value in values
        ]
        return pl.Series(name, clean, kind)


def to_frame(rows: Sequence[tuple[Any, ...]]) -> pl.DataFrame:
    columns = zip(*rows, strict=True) if rows else ([] for _ in STORED)
    return pl.DataFrame(
        [
            _series(name, kind, values)
            for (name, kind), values in zip(STORED.items(), columns, strict=True)
        ]
    )
