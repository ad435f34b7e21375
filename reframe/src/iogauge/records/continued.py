"""Series that go on although records of before know less: divided only if two known values differ.

This holds for the file system and for the layouts that the target passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import polars as pl

from iogauge.core.text import digest
from iogauge.evidence.fingerprint import FILE_SYSTEM, LAYOUTS
from iogauge.node.uuids import differ

#: Columns that divide a series, each with its key in the fingerprint.
DIVIDING: Final[Mapping[str, str]] = {
    "file_system": FILE_SYSTEM,
    **{key.replace(".", "_"): key for key in LAYOUTS},
}


def _others(one: str, other: str) -> bool:
    """Return whether two values of ``fs.uuid`` have no file system in common."""
    return all(differ(a, b) for a in one.split(" | ") for b in other.split(" | "))


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
