"""Series that go on although records of before know less: divided by the file system only if two are
known.
"""

from __future__ import annotations

import polars as pl

from iogauge.core.text import digest
from iogauge.node.uuids import differ


def _others(one: str, other: str) -> bool:
    """Return whether two values of ``fs.uuid`` have no file system in common."""
    return all(differ(a, b) for a in one.split(" | ") for b in other.split(" | "))


def divided(rows: pl.DataFrame) -> pl.DataFrame:
    """Return rows, in order of time, whose series begin anew with another file system.

    The first known file system of a series keeps the series' name, the others get one of their own.
    A row without a file system belongs to the one before it, or else to the one after it. The
    column ``file_system`` is dropped.
    """
    seen: dict[str, list[str]] = {}
    names: list[tuple[str, str, str]] = []
    pairs = rows.select("series", "file_system").drop_nulls().unique(maintain_order=True)
    for series, name in pairs.iter_rows():
        first = seen.setdefault(series, [])
        number = next((i for i, one in enumerate(first) if not _others(name, one)), len(first))
        first += [name] if number == len(first) else []
        names.append((series, name, digest([series, first[number]]) if number else series))
    if all(len(first) == 1 for first in seen.values()):
        return rows.drop("file_system")
    table = pl.DataFrame(names, schema=["series", "file_system", "own"], orient="row")
    joined = rows.join(table, on=["series", "file_system"], how="left", maintain_order="left")
    own = pl.col("own").forward_fill().backward_fill().over("series")
    return joined.with_columns(series=pl.coalesce(own, "series")).drop("own", "file_system")
