"""Curves over a parameter, from the newest record of each line: scaling, block size, stripe count.

A check that was measured at several values of one parameter makes a plot for each unit and
partition: bandwidth over tasks, operations over block size. If several partitions of a system
have the same sweep, one plot more for each metric shows them together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from textwrap import shorten
from typing import Any, Final

from iogauge.core.units import UnitError, parse_bytes, with_unit
from iogauge.core.untrusted import numbers
from iogauge.records.record import MetricRecord, Record, ReferenceRecord
from iogauge.report.outcome import newest

#: Parameters that count what shares the work: twice as many should carry twice as much.
_COUNTS: Final = frozenset(
    {"tasks", "nodes", "servers", "boxes", "hosts", "aggregators", "stripe_count", "numjobs"}
)

#: Keys of a record that are varied like a parameter, from outside of the check.
_SCALE: Final = ("nodes", "tasks_per_node")

#: Values from here on are not drawn.
LARGEST: Final = 1e300

#: Most curves in one plot.
_MOST: Final = 6

#: Most characters of a reference's source beside a plot: it says which points a document shows only as a graph.
_LONGEST: Final = 480

#: Quantities whose curves are drawn together, by unit; others have a plot of their own.
_TOGETHER: Final = ("MiB/s", "MB/s", "GiB/s", "GB/s", "ops/s")


def drawable(metric: MetricRecord) -> ReferenceRecord | None:
    """Return the reference of a metric, unless its values are too large for a figure."""
    reference = metric.reference
    if reference is None:
        return None
    ends = [reference.value * (1 + (share or 0.0)) for share in (reference.lower, reference.upper)]
    return reference if all(abs(end) < LARGEST for end in ends) else None


@dataclass(frozen=True, slots=True)
class Dot:
    """A case's median at ``x``, with its metric and its record."""

    x: float
    text: str
    metric: MetricRecord
    record: Record

    @property
    def value(self) -> float:
        """Return the median, in the metric's unit."""
        return float(self.metric.median)

    @property
    def samples(self) -> list[float]:
        """Return the value of each repetition."""
        return numbers(self.metric.samples)

    @property
    def reference(self) -> ReferenceRecord | None:
        """Return the reference of the metric, for example the published value."""
        return drawable(self.metric)


@dataclass(frozen=True, slots=True)
class Trace:
    """One curve of a plot: its name and its dots, by x."""

    name: str
    dots: tuple[Dot, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plot:
    """Curves over the parameter ``x_name``; ``proportional`` if twice of it should carry twice as
    much.

    ``together`` says that the curves are of several partitions, of which each has its own ceiling.
    """

    system: str
    title: str
    x_name: str
    unit: str
    traces: tuple[Trace, ...]
    proportional: bool
    together: bool = False

    @property
    def dots(self) -> list[Dot]:
        """Return the dots of all curves."""
        return [dot for trace in self.traces for dot in trace.dots]

    @property
    def shown_unit(self) -> str:
        """Return the unit as a figure has it: a ratio has none."""
        return self.unit.replace("1", "")

    @property
    def ceilings(self) -> dict[float, str]:
        """Return the ceilings that all dots share, each with what limits it."""
        found = {dot.metric.ceiling: str(dot.metric.ceiling_from or "") for dot in self.dots}
        found = {value: text for value, text in found.items() if not value or 0 < value < LARGEST}
        if self.together or len(found) > 1 or None in found:
            return {}
        return {value: text for value, text in found.items() if value is not None}

    @property
    def caption(self) -> str:
        """Return n, unit, span of time, nodes, tools and stack."""
        records = [dot.record for dot in self.dots]
        days = sorted({record.time[:10] for record in records})
        samples = {len(dot.samples) for dot in self.dots}
        nodes = sorted({int(r.nodes) for r in records if type(r.nodes) is int and r.nodes})
        return "; ".join(
            part
            for part in (
                f"n = {len(records)} medians of {_range(sorted(samples))} sample{'s' * (samples != {1})}",
                self.shown_unit,
                " to ".join(dict.fromkeys([days[0], days[-1]])) if days else "",
                f"{_range(nodes)} node{'s' * (nodes != [1])}" if nodes else "",
                stack_of(records),
                *(
                    f"reference: {shorten(source, _LONGEST, placeholder=' …')}"
                    for source in self.sources
                ),
            )
            if part
        )

    @property
    def sources(self) -> list[str]:
        """Return where the references come from."""
        found = (str(dot.reference.source or "") for dot in self.dots if dot.reference)
        return [source for source in dict.fromkeys(found) if source]


def spaced(text: str) -> str:
    """Return a size with a space before its unit; other text as it is."""
    return re.sub(r"(?<=[0-9])(?=[KMGT]i?B$)", " ", text)


def label_of(name: str, dot: Dot) -> str:
    """Return what a tooltip says of a dot."""
    metric, record = dot.metric, dot.record
    return (
        f"{name} at {spaced(dot.text)}: {with_unit(dot.value, metric.unit)}, n = {len(dot.samples)}, "
        f"{metric.verdict.value}, {record.time[:16].replace('T', ' ')} UTC, {record.session}"
    )


def held_of(dot: Dot) -> str:
    """Return what a tooltip says of a dot's reference."""
    reference = dot.reference
    if reference is None:
        return ""
    return f"reference {with_unit(reference.value, dot.metric.unit)}: {reference.source}"


def texts(values: object) -> list[str]:
    """Return the values of a list from a record as text; what is no list has none."""
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []


def stack_of(records: Sequence[Record]) -> str:
    """Return the tools of some records, and the names of their stacks."""
    tools = dict.fromkeys(str(tool) for record in records for tool in texts(record.tools))
    stacks = dict.fromkeys(
        f"stack {record.stack.get('name') or record.stack.get('fingerprint')}"
        for record in records
        if isinstance(record.stack, Mapping)
    )
    return ", ".join([*tools, *stacks])


def _range(values: Sequence[int]) -> str:
    ends = dict.fromkeys([*values[:1], *values[-1:]])
    return " to ".join(map(str, ends)) or "0"


def _number(value: object) -> float | None:
    """Return a parameter's value as a number: a count, or the bytes of ``128KiB``."""
    if isinstance(value, bool):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    try:
        return float(parse_bytes(str(value))) if str(value)[:1].isdigit() else None
    except UnitError:
        return None


def _varied(record: Record, name: str) -> object:
    """Return the value of a parameter, or of the scale from outside."""
    return (
        getattr(record, name)
        if name in _SCALE and name not in record.parameters
        else (record.parameters.get(name))
    )


def _others(record: Record, name: str) -> tuple[tuple[str, str], ...]:
    """Return what must be alike along a curve over ``name``, but for partition and metric."""
    fixed: dict[str, Any] = dict(record.parameters)
    if name in _SCALE and name not in fixed:  # a sweep of the check itself may move the scale
        fixed |= {key: getattr(record, key) for key in _SCALE}
    fixed.pop(name, None)
    return tuple(sorted((key, str(value)) for key, value in fixed.items()))


def plots(records: Sequence[Record]) -> list[Plot]:
    """Return the plots of all sweeps that some records hold."""
    groups: dict[tuple[str, ...], list[Record]] = {}
    for record in newest(records):
        if record.metrics and not record.pinned:
            key = (record.system, record.environment, record.check)
            more = (str(record.variant), str(record.tier), str(sorted(record.overridden)))
            groups.setdefault((*key, *more), []).append(record)
    found: list[Plot] = []
    for group in groups.values():
        names = dict.fromkeys(name for record in group for name in record.parameters)
        for name in (*names, *(key for key in _SCALE if key not in names)):
            found += _over(group, name)
    return found


def _over(records: Sequence[Record], name: str) -> Iterator[Plot]:
    """Yield the plots of a check over one parameter."""
    numbered = [(record, _number(_varied(record, name))) for record in records]
    several = len({x for _, x in numbered if x is not None}) > 1
    # One value is a figure if a document has it of several systems: side by side, as the document shows them.
    sides = {record.partition for record, _ in numbered if record.metrics[0].reference}
    if not several and (name not in records[0].parameters or len(sides) < 2):
        return
    curves: dict[tuple[str, tuple[tuple[str, str], ...], str, str], list[Dot]] = {}
    for record, x in numbered:
        for metric in record.metrics if x is not None else ():
            if metric.median <= 0:
                continue
            key = (record.partition, _others(record, name), metric.name, metric.unit)
            dot = Dot(float(x or 0), str(_varied(record, name)), metric, record)
            curves.setdefault(key, []).append(dot)
    curves = {
        key: sorted(dots, key=lambda dot: dot.x)
        for key, dots in curves.items()
        if len({dot.x for dot in dots}) > 1 or not several
    }
    if not curves:
        return
    first = records[0]
    plot = Plot(
        system=first.system,
        title=first.check,
        x_name=name.replace("_", " "),
        unit="",
        traces=(),
        proportional=name in _COUNTS and several,
    )
    partitions = list(dict.fromkeys(key[0] for key in curves))
    units = list(dict.fromkeys((key[3], "" if key[3] in _TOGETHER else key[2]) for key in curves))
    for unit, alone in units:
        mine = {k: d for k, d in curves.items() if k[3] == unit and alone in ("", k[2])}
        for partition in partitions if several else ():
            here = {k: d for k, d in mine.items() if k[0] == partition}
            what = f"{first.check} {alone}".strip()
            title = f"{what} on {first.system}:{partition}"
            yield from _parts(replace(plot, title=title, unit=unit), here, lambda k: k[2])
        metrics = dict.fromkeys(key[2] for key in mine)
        for name_of in metrics if len({key[0] for key in mine}) > 1 else ():
            both = {k: d for k, d in mine.items() if k[2] == name_of}
            title = f"{first.check} {name_of} on {first.system}"
            yield from _parts(
                replace(plot, title=title, unit=unit, together=True), both, lambda k: k[0]
            )


_Curves = Mapping[tuple[str, tuple[tuple[str, str], ...], str, str], Sequence[Dot]]


def _parts(plot: Plot, curves: _Curves, name: Callable[[Any], str]) -> Iterator[Plot]:
    """Yield the plot with its curves; several plots if there are too many curves for one."""
    all_others = {key[1] for key in curves}
    differing = {
        field
        for others in all_others
        for field in others
        if any(field not in o for o in all_others)
    }
    traces = [
        Trace(
            " ".join([name(key), *(f"{k}={v}" for k, v in key[1] if (k, v) in differing)]),
            tuple(dots),
        )
        for key, dots in curves.items()
    ]
    for first in range(0, len(traces), _MOST):
        yield replace(plot, traces=tuple(traces[first : first + _MOST]))
