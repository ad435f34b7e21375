"""Two Darshan logs side by side: what was done, the ratio of the values, and what else differed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from iogauge.core.measurement import Quantity
from iogauge.core.text import visible
from iogauge.core.units import format_bytes, format_value
from iogauge.report.layout import Table, columns

#: Values whose ratio differs from 1 by no more than this count as alike.
TOLERANCE: Final = 0.10


class CompareError(ValueError):
    """A side cannot be read, or two cannot be compared; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs; the text of a side without it is empty."""

    name: str
    a: str
    b: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What a log tells: its values by name, and the facts under which they were measured."""

    name: str
    values: Mapping[str, Quantity]
    facts: Mapping[str, str]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class FigureRow:
    """A value of both logs; None if a log lacks it, or if there is no ratio. ``mark`` is ``differs``, or empty if they are alike."""

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None
    mark: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two sides of which ``b`` is put in relation to ``a``; a subclass has their figures."""

    a: str
    b: str
    changes: tuple[Difference, ...]
    notes: tuple[str, ...]

    def to_json(self) -> str:
        """Return a JSON object; values are numbers in the unit of their row."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)

    def below(self, table: Table, *remarks: str) -> Table:
        """Return a table of the figures, and below it what else differs, remarks and notes."""
        changed = [f"  {c.name}: {c.a or '-'} -> {c.b or '-'}" for c in self.changes]
        head = "What else differs:" + ("" if changed else " nothing that was recorded")
        lines = [head, *changed, *remarks, *(f"note: {note}" for note in self.notes)]
        return replace(table, footer=[line.replace("\n", " ") for line in lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison(Comparison):
    """Two logs, value by value."""

    rows: tuple[FigureRow, ...]

    def render(self) -> Table:
        """Return text for a terminal."""
        values = [
            (
                row.name,
                amount(row.a, row.unit),
                amount(row.b, row.unit),
                "-" if row.ratio is None else f"{row.ratio:.3f}",
                row.mark,
            )
            for row in self.rows
        ]
        right = ("A", "B", "B / A")
        headings = columns("value", *right, "", right=right, whole=(*right, ""))
        head = f"A: {visible(self.a)}; B: {visible(self.b)}"
        return self.below(Table(headings, {head: values}))


def compare(a: Figures, b: Figures) -> LogComparison:
    """Return rows for the values of either log, and the facts that differ."""
    return LogComparison(
        a=a.name,
        b=b.name,
        changes=tuple(
            Difference(name, a.facts.get(name, ""), b.facts.get(name, ""))
            for name in {**a.facts, **b.facts}
            if a.facts.get(name, "") != b.facts.get(name, "")
        ),
        rows=tuple(
            _row(name, a.values.get(name), b.values.get(name))
            for name in {**a.values, **b.values}
        ),
        notes=tuple(
            f"{side}: {note}"
            for side, one in (("A", a), ("B", b))
            for note in one.notes
        ),
    )


def _row(name: str, a: Quantity | None, b: Quantity | None) -> FigureRow:
    first, second = a.value if a else None, b.value if b else None
    ratio = second / first if first and second is not None else None
    alike = (
        round(abs(ratio - 1), 9) <= TOLERANCE if ratio is not None else first == second
    )
    unit = (a or b or Quantity(0, "")).unit
    return FigureRow(name, unit, first, second, ratio, "" if alike else "differs")


def amount(value: float | None, unit: str) -> str:
    """Return a value with its unit as text; ``-`` for none."""
    if value is None:
        return "-"
    show: Callable[[float], str] = format_bytes if unit == "B" else format_value
    if value == int(value) and unit == "1":
        return str(int(value))
    return show(value) + ("" if unit in ("B", "1", "") else f" {unit}")
