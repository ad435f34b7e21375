"""Series that go on although some records know less than others.

A record whose facts were not answered in time belongs to the series of its neighbours, unless what it
knows contradicts them. A series is divided by the file system, and by the layouts that the target passes
on, only if two known values differ.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

import polars as pl

from iogauge.core.text import digest
from iogauge.evidence.fingerprint import FILE_SYSTEM, LAYOUTS, agree
from iogauge.node.uuids import differ

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
