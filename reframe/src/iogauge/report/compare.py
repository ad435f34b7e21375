"""Compare two executions: what was measured, the ratio of the values, and what else differed.

It compares two Darshan logs, or two records of the history. A log and a record have nothing in
common to compare.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Final, Literal

from rich.console import Group as Lines
from rich.text import Text

from iogauge.core.measurement import Quantity
from iogauge.core.text import visible
from iogauge.core.units import UnitError, convert, format_bytes, format_value
from iogauge.report.layout import Column, Group, Table

#: Values whose ratio differs from 1 by no more than this count as alike.
TOLERANCE: Final = 0.10


class CompareError(ValueError):
    """A subject cannot be read, or two cannot be compared; the message says what to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """One side: its values by name, and the facts under which they were measured.

    ``better`` holds for each value whether more or less is better. ``doubts`` holds the verdict of
    each value that is not valid.
    """

    kind: Literal["Darshan log", "record"]
    name: str
    values: Mapping[str, Quantity]
    facts: Mapping[str, str]
    better: Mapping[str, str] = field(default_factory=dict)
    doubts: Mapping[str, str] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A value of both sides in one unit; None if a side lacks it, or if there is no ratio.

    ``mark`` is empty for values that are alike, else ``differs``; or ``better`` or ``worse`` if the
    better direction is known. A value that is not valid is marked with its verdict (``UNSTABLE``,
    ``INVALID``), whatever the ratio.
    """

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    mark: str


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs; the text of a side without it is empty."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True)
class Comparison:
    """Everything that was compared; ``b`` is put in relation to ``a``."""

    kind: str
    a: str
    b: str
    changes: tuple[Difference, ...]
    rows: tuple[ComparedRow, ...]
    notes: tuple[str, ...]


def compare(a: Subject, b: Subject) -> Comparison:
    """Return rows for the values of either side, and the facts that differ.

    Raises :class:`CompareError`.
    """
    if a.kind != b.kind:
        raise CompareError(
            f"{a.name} is a {a.kind}, {b.name} a {b.kind}: give two Darshan logs or two records"
        )
    changes = tuple(
        Difference(name, a.facts.get(name, ""), b.facts.get(name, ""))
        for name in {**a.facts, **b.facts}
        if a.facts.get(name, "") != b.facts.get(name, "")
    )
    better, doubts = {**b.better, **a.better}, {**b.doubts, **a.doubts}
    rows = tuple(
        _row(name, a.values.get(name), b.values.get(name), better.get(name), doubts.get(name))
        for name in {**a.values, **b.values}
    )
    notes = tuple(
        f"{side}: {note}" for side, subject in (("A", a), ("B", b)) for note in subject.notes
    )
    return Comparison(a.kind, a.name, b.name, changes, rows, notes)


def _row(
    name: str, a: Quantity | None, b: Quantity | None, better: str | None, doubt: str | None
) -> ComparedRow:
    unit = (a or b or Quantity(0, "")).unit
    first, second = a.value if a else None, b.value if b else None
    if a is None or b is None:
        return ComparedRow(name, unit, first, second, None, doubt or "differs")
    try:
        second = convert(b.value, b.unit, unit)
    except UnitError:
        return ComparedRow(
            f"{name} ({a.unit} in A, {b.unit} in B)", "", first, second, None, "differs"
        )
    ratio = second / a.value if a.value else None
    if ratio is None:
        mark = "differs" if second else ""
    elif round(abs(ratio - 1), 9) <= TOLERANCE:
        mark = ""
    elif better is None:
        mark = "differs"
    else:
        mark = "better" if (ratio > 1) == (better == "more") else "worse"
    return ComparedRow(name, unit, first, second, ratio, doubt or mark)


def to_json(comparison: Comparison) -> str:
    """Return the comparison as a JSON object; values are numbers in the unit of their row."""
    return json.dumps(asdict(comparison), indent=2, allow_nan=False)


def render(comparison: Comparison, wide: bool = False) -> Lines:
    """Return the comparison for a terminal: subjects, changes, and the values with their ratio."""
    changed = [(c.name, c.a or "-", c.b or "-") for c in comparison.changes]
    values = [
        (
            row.name,
            amount(row.a, row.unit),
            amount(row.b, row.unit),
            "-" if row.ratio is None else f"{row.ratio:.3f}",
            row.mark,
        )
        for row in comparison.rows
    ]
    doubtful = {row.mark: "yellow" for row in comparison.rows if row.mark}
    right = [Column(name, right=True, whole=True) for name in ("A", "B", "B / A")]
    what_changed = Table(
        [Column("what"), Column("A"), Column("B")], [Group("What changed", changed)], wide=wide
    )
    measured = Table(
        [Column("value"), *right, Column("", whole=True)],
        [Group("What was measured", values)],
        styles=doubtful | {"better": "green", "worse": "bold red"},
        wide=wide,
    )
    return Lines(
        Text(f"A: {visible(comparison.a)}\nB: {visible(comparison.b)}\n", overflow="fold"),
        what_changed if changed else Text("What changed: nothing that was recorded"),
        Text(),
        measured,
        *(Text(visible(f"note: {note}"), style="yellow") for note in comparison.notes),
    )


def amount(value: float | None, unit: str) -> str:
    """Return a value with its unit as text; ``-`` for none."""
    if value is None:
        return "-"
    show: Callable[[float], str] = format_bytes if unit == "B" else format_value
    if value == int(value) and unit == "1":
        return str(int(value))
    return show(value) + ("" if unit in ("B", "1", "") else f" {unit}")
