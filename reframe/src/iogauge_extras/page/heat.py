"""Draw rates of pairs as a map of cells: nodes against nodes, or against storage targets, as SVG."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from iogauge.core.units import with_unit
from iogauge.records.record import Record
from iogauge_extras.page.bars import probes_of
from iogauge_extras.page.svg import TOP, WIDE, figure, mark, word

#: Rows and columns that are drawn: those with the slowest cells.
_MOST: Final = 48
_LEFT, _HIGH, _CHARACTER = 100, 18, 8

Cells = Mapping[tuple[str, str], float]


def maps(records: Sequence[Record]) -> Iterator[tuple[str, str, Cells, Record]]:
    """Yield title, unit, cells and newest record of each map: pairs of nodes, and targets from several nodes."""
    found: dict[str, tuple[str, dict[tuple[str, str], float], Record]] = {}
    for record in sorted(records, key=lambda one: one.time):
        host = str(record.fingerprint.get("nodes", ""))
        for metric in record.metrics:
            title = f"{record.check} {metric.name} on {record.where}"
            for name, rate in probes_of(metric).items():
                sender, to, receiver = name.partition(" to ")
                place = (sender, receiver) if to else (host, name)
                before = found.get(title, ("", {}, record))[1]
                found[title] = metric.unit, before | {place: rate}, record
    for title, (unit, cells, record) in found.items():
        if len({row for row, _ in cells}) > 1 and len({column for _, column in cells}) > 1:
            yield title, unit, cells, record


def drawn(title: str, unit: str, cells: Cells, named: Collection[str]) -> str:
    """Return the map: the darker a cell, the slower beside the median of the faster half; ``named`` rows or columns are red."""
    middle = statistics.median(sorted(cells.values())[len(cells) // 2 :])
    rows, columns = (_slowest(cells, side) for side in (0, 1))
    width = (WIDE - _LEFT - 16) / len(columns)
    parts = []
    for nth, row in enumerate(rows):
        y = TOP + _HIGH * nth
        parts.append(word(_LEFT - 6, y + 13, row[-12:], "number", "end"))
        for at, column in enumerate(columns):
            if (rate := cells.get((row, column))) is not None:
                share = rate / middle if middle else 1.0
                kind = "cell slow" if {row, column} & {*named} and share < 1 else "cell"
                strength = {"fill-opacity": round(max(0.1, min(1.0, 1.1 - share)), 2)}
                tip = f"{row}, {column}: {with_unit(rate, unit)}, {share:.0%} of the faster half's median"
                place = {"x": _LEFT + at * width, "y": y, "width": width - 1, "height": _HIGH - 1}
                parts.append(mark("rect", kind, tip, **place, **strength))
    room = max(1, int(len(max(columns, key=len)) * _CHARACTER / width) + 1)
    for at in range(0, len(columns), room):
        parts.append(word(_LEFT + at * width, TOP - 6, columns[at]))
    return figure(title, parts, TOP + _HIGH * len(rows) + 8)


def _slowest(cells: Cells, side: int) -> list[str]:
    """Return the names of a side by name, of many those with the slowest cells."""
    least: dict[str, float] = {}
    for place, rate in cells.items():
        least[place[side]] = min(rate, least.get(place[side], rate))
    return sorted(sorted(least, key=lambda name: least[name])[:_MOST])
