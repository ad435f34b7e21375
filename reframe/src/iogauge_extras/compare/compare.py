"""Compare two executions: what was measured, the ratio of the values, and what else differed. Read what is compared.

A comparison is of two Darshan logs, or two records of the history. A log and a record have nothing in
common to compare.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Final, Literal

from rich.console import Group as Lines
from rich.text import Text

from iogauge.core import registry
from iogauge.core.measurement import Quantity
from iogauge.core.paths import history_dir
from iogauge.core.text import visible
from iogauge.core.units import UnitError, convert, format_bytes, format_value
from iogauge.records import journal
from iogauge.records.record import Record
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


#: Keys of a record that say nothing about how it was measured, or are compared as values.
_NOT_FACTS: Final = frozenset(
    {"schema", "session", "time", "hash", "metrics", "findings", "reason", "gate", "expected"}
    | {"selection", "accepts"}
)

#: ``place``, ``place:case`` or ``place#number``; a file's name may hold a colon.
_RECORDS: Final = re.compile(r"(.+?\.jsonl|[^:#]+)(?::(.*)|(#\d+))?")


def of_record(name: str, record: Record) -> Subject:
    """Return the medians of a record's metrics."""
    metrics = {m.name: m for m in record.metrics}
    doubts = {n: m.verdict.value for n, m in metrics.items() if not m.verdict.is_valid}
    notes = [f"{n} is {v}: {metrics[n].reason}" for n, v in doubts.items()]
    if not metrics:
        notes.append(f"nothing was measured: {record.verdict.value}: {record.reason}")
    return Subject(
        kind="record",
        name=name,
        values={n: Quantity(float(m.median), m.unit) for n, m in metrics.items()},
        facts=_flat({k: v for k, v in record.to_json().items() if k not in _NOT_FACTS}),
        better={n: m.better for n, m in metrics.items()},
        doubts=doubts,
        notes=tuple(notes),
    )


def _flat(value: object, prefix: str = "") -> dict[str, str]:
    """Return nested values as text by dotted name, without None and empty text."""
    if isinstance(value, Mapping):
        items: Iterable[tuple[object, object]] = value.items()
    elif isinstance(value, list):
        items = enumerate(value, 1)
    else:
        return {} if value is None or value == "" else {prefix: str(value)}
    texts: dict[str, str] = {}
    for name, inner in items:
        texts |= _flat(inner, f"{prefix}.{name}" if prefix else str(name))
    return texts


def choose(records: Sequence[Record], case: str, where: str) -> Record:
    """Return the only record of a case.

    A case is given by name (with or without ReFrame's parameter names), check or hash; ``#3`` is
    the third record. Without a case there must be only one record. Raises :class:`CompareError`,
    which lists the available records.
    """
    if case.startswith("#"):
        chosen = records[int(case[1:]) - 1 :][:1] if case[1:].isdecimal() and case != "#0" else []
    else:
        chosen = [r for r in records if not case or case in _names(r)]
    if len(chosen) == 1:
        return chosen[0]
    listed = "".join(f"\n  #{n}  {r.hash}  {r.short_name}" for n, r in enumerate(records, 1))
    raise CompareError(
        f"{where}: {len(chosen) or 'no'} records{f' of {case!r}' if case else ''}, expected 1; name one as "
        f"{where}:<case or hash>, or {where}:#<number> of{listed or ' none'}"
    )


def _names(record: Record) -> set[str]:
    return {record.case, record.short_name, str(record.hash), record.check}


def read_subject(text: str) -> Subject:
    """Return the subject that a person named.

    It is a Darshan log, ``file.jsonl[:case]`` or ``session[:case]``. A case may also be ``#`` with
    the number of its record. Raises :class:`CompareError`.
    """
    file = Path(text)
    # os.path.isfile returns False for a name that is too long; Path.is_file raises.
    if file.suffix == ".darshan" or (os.path.isfile(file) and file.suffix != ".jsonl"):
        try:
            found: Subject = registry.load("iogauge_answers", "darshan.subject")(text)
        except registry.Missing as error:
            raise CompareError(str(error)) from error
        return found
    match = _RECORDS.fullmatch(text)
    place, case = (match[1], match[2] or match[3] or "") if match else (text, "")
    if place.endswith(".jsonl"):
        files = [Path(place)]
    else:
        files = [f for f in sorted(history_dir().glob("*/*.jsonl")) if f.stem == place]
    if not files:
        newest = sorted(f.stem for f in history_dir().glob("*/*.jsonl"))[-3:]
        raise CompareError(
            f"{text}: neither a file nor a session in {history_dir()} (newest: "
            f"{', '.join(newest) or 'none'}). To compare sites, stacks or days, write system=NAME, "
            "stack=NAME or day=YYYY-MM-DD for each side (docs/results.md)"
        )
    try:
        records = [r for f in files for r in journal.read_records(f) if isinstance(r, Record)]
    except OSError as error:
        raise CompareError(f"{error.filename}: {error.strerror}") from error
    chosen = choose(records, case, place)
    return of_record(f"{chosen.session} {chosen.short_name}", chosen)
