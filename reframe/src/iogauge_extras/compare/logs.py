"""Two Darshan logs side by side: what was done, the ratio of the values, and what else differed."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from iogauge.core.measurement import Quantity
from iogauge.core.units import format_bytes, with_unit
from iogauge.report.layout import Table, columns

#: Values whose ratio differs from 1 by no more than this count as alike; rounding of the ratio is no difference.
TOLERANCE: Final = 0.10 + 1e-9


class CompareError(ValueError):
    """A side cannot be read, or two cannot be compared; the message says what to do."""


@dataclass(frozen=True, slots=True)
class Difference:
    """A fact that differs; the text of a side without it is empty."""

    name: str
    a: str
    b: str


def differences(a: Mapping[str, str], b: Mapping[str, str]) -> Iterator[Difference]:
    """Yield the facts of two sides that differ."""
    for name in {**a, **b}:
        found = Difference(name, a.get(name, ""), b.get(name, ""))
        if found.a != found.b:
            yield found


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

    @property
    def title(self) -> str:
        """Return both sides."""
        return f"A: {self.a}; B: {self.b}"

    def to_json(self) -> str:
        """Return a JSON object; values are numbers in the unit of their row."""
        return json.dumps(asdict(self), indent=2, allow_nan=False)

    def below(self, table: Table, *remarks: str) -> Table:
        """Return a table of the figures, and below it what else differs, remarks and notes."""
        lines = ["What else differs:"]
        if not self.changes:
            lines = ["What else differs: nothing that was recorded"]
        for change in self.changes:
            lines.append(f"  {change.name}: {change.a or '-'} -> {change.b or '-'}")
        lines += remarks
        for note in self.notes:
            lines.append(f"note: {note}")
        return replace(table, footer=[line.replace("\n", " ") for line in lines])


@dataclass(frozen=True, slots=True, kw_only=True)
class LogComparison(Comparison):
    """Two logs, value by value."""

    rows: tuple[FigureRow, ...]

    def render(self) -> Table:
        """Return text for a terminal."""
        rows = []
        for row in self.rows:
            a, b = amount(row.a, row.unit), amount(row.b, row.unit)
            ratio = "-"
            if row.ratio is not None:
                ratio = f"{row.ratio:.3f}"
            rows.append((row.name, a, b, ratio, row.mark))
        right = ("A", "B", "B / A")
        headings = columns("value", *right, "", right=right)
        return self.below(Table(headings, {self.title: rows}))


def compare(a: Figures, b: Figures) -> LogComparison:
    """Return rows for the values of either log, and the facts that differ."""
    rows = []
    for name in {**a.values, **b.values}:
        rows.append(_row(name, a.values.get(name), b.values.get(name)))
    notes = [f"A: {note}" for note in a.notes]
    notes += [f"B: {note}" for note in b.notes]
    return LogComparison(
        a=a.name,
        b=b.name,
        changes=tuple(differences(a.facts, b.facts)),
        rows=tuple(rows),
        notes=tuple(notes),
    )


def _row(name: str, a: Quantity | None, b: Quantity | None) -> FigureRow:
    first = second = ratio = None
    unit = ""
    if a is not None:
        first, unit = a.value, a.unit
    if b is not None:
        second, unit = b.value, b.unit
    alike = first == second
    if first and second is not None:
        ratio = second / first
        alike = abs(ratio - 1) <= TOLERANCE
    mark = "differs"
    if alike:
        mark = ""
    return FigureRow(name, unit, first, second, ratio, mark)


def amount(value: float | None, unit: str) -> str:
    """Return a value with its unit as text; ``-`` for none."""
    if value is None:
        return "-"
    if unit == "B":
        return format_bytes(value)
    if unit == "1":
        return str(int(value))
    return with_unit(value, unit)
