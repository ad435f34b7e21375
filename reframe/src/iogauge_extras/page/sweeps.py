"""Curves over a parameter, from the newest record of each line: scaling, block size, stripe count.

A check that was measured at several values of one parameter makes a plot for each unit and
partition: bandwidth over tasks, operations over block size. If several partitions of a system
have the same sweep, one plot more for each metric shows them together.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten
from typing import Any, Final, NamedTuple

from iogauge.core.groups import grouped
from iogauge.core.units import UnitError, parse_bytes, with_unit
from iogauge.core.untrusted import numbers
from iogauge.records.record import MetricRecord, Record, ReferenceRecord
from iogauge.report.outcome import newest

#: Parameters that count what shares the work: twice as many should carry twice as much.
_COUNTS: Final = frozenset(
    {
        "tasks",
        "nodes",
        "servers",
        "boxes",
        "hosts",
        "aggregators",
        "stripe_count",
        "numjobs",
    }
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
    ends = (reference.value, reference.least, reference.most) if reference else ()
    return reference if all(abs(end or 0.0) < LARGEST for end in ends) else None


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
        """Return the ceiling that all dots share with what limits it; empty if they share none."""
        found = {
            dot.metric.ceiling: str(dot.metric.ceiling_from or "") for dot in self.dots
        }
        known = {
            value: text
            for value, text in found.items()
            if value and 0 < value < LARGEST
        }
        return known if len(found) == 1 and not self.together else {}

    @property
    def caption(self) -> str:
        """Return n, unit, span of time, nodes, tools and stack."""
        records = [dot.record for dot in self.dots]
        days = sorted({record.time[:10] for record in records})
        samples = sorted({len(dot.samples) for dot in self.dots})
        nodes = sorted({r.nodes for r in records if type(r.nodes) is int and r.nodes})
        plural = "" if samples == [1] else "s"
        parts = [
            f"n = {len(records)} medians of {_range(samples)} sample{plural}",
            self.shown_unit,
            " to ".join(dict.fromkeys([days[0], days[-1]])),
        ]
        if nodes:
            parts.append(f"{_range(nodes)} node{'' if nodes == [1] else 's'}")
        parts.append(stack_of(records))
        for source in self.sources:
            shown = shorten(source, _LONGEST, placeholder=" …")
            parts.append(f"reference: {shown}")
        return "; ".join(filter(None, parts))

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
    return (
        f"reference {with_unit(reference.value, dot.metric.unit)}: {reference.source}"
    )


def texts(values: object) -> list[str]:
    """Return the values of a list from a record as text; what is no list has none."""
    return [str(value) for value in values] if isinstance(values, (list, tuple)) else []


def stack_of(records: Sequence[Record]) -> str:
    """Return the tools of some records, and the names of their stacks."""
    tools = dict.fromkeys(
        str(tool) for record in records for tool in texts(record.tools)
    )
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
    if (
        name in _SCALE and name not in fixed
    ):  # a sweep of the check itself may move the scale
        fixed |= {key: getattr(record, key) for key in _SCALE}
    fixed.pop(name, None)
    return tuple(sorted((key, str(value)) for key, value in fixed.items()))


def plots(records: Sequence[Record]) -> list[Plot]:
    """Return the plots of all sweeps that some records hold."""

    def alike(record: Record) -> tuple[str, ...]:
        more = (str(record.variant), str(record.tier), str(sorted(record.overridden)))
        return (record.system, record.environment, record.check, *more)

    usable = [
        record for record in newest(records) if record.metrics and not record.pinned
    ]
    found: list[Plot] = []
    for group in grouped(usable, alike).values():
        names = [name for record in group for name in record.parameters]
        for name in dict.fromkeys([*names, *_SCALE]):
            found += _over(group, name)
    return found


class _Key(NamedTuple):
    """What the dots of one curve have in common."""

    partition: str
    others: tuple[tuple[str, str], ...]
    metric: str
    unit: str


def _over(records: Sequence[Record], name: str) -> Iterator[Plot]:
    """Yield the plots of a check over one parameter; several if there are too many curves for one."""
    first = records[0]
    dots = _dots(records, name)
    several = len({dot.x for mine in dots.values() for dot in mine}) > 1
    # One value is a figure if a document has it of several systems: side by side, as the document shows them.
    sides = {record.partition for record in records if record.metrics[0].reference}
    if not several and (name not in first.parameters or len(sides) < 2):
        return
    curves: dict[_Key, list[Dot]] = {}
    for key, mine in dots.items():
        if len({dot.x for dot in mine}) > 1 or not several:
            curves[key] = sorted(mine, key=lambda dot: dot.x)
    for (unit, _), keys in grouped(curves, _axis).items():
        for title, by, chosen in _titled(first, keys, several):
            traces = _traces({key: curves[key] for key in chosen}, by)
            for at in range(0, len(traces), _MOST):
                yield Plot(
                    system=first.system,
                    title=title,
                    x_name=name.replace("_", " "),
                    unit=unit,
                    traces=tuple(traces[at : at + _MOST]),
                    proportional=name in _COUNTS and several,
                    together=by == "partition",
                )


def _dots(records: Sequence[Record], name: str) -> dict[_Key, list[Dot]]:
    """Return the dots of each curve over a parameter."""
    dots: dict[_Key, list[Dot]] = {}
    for record in records:
        value = _varied(record, name)
        x = _number(value)
        if x is None:
            continue
        others = _others(record, name)
        for metric in record.metrics:
            if metric.median > 0:
                key = _Key(record.partition, others, metric.name, metric.unit)
                dots.setdefault(key, []).append(Dot(x, str(value), metric, record))
    return dots


def _axis(key: _Key) -> tuple[str, str]:
    """Return what curves of one plot have in common: other quantities than rates have a plot each."""
    return key.unit, "" if key.unit in _TOGETHER else key.metric


def _titled(
    first: Record, keys: Sequence[_Key], several: bool
) -> Iterator[tuple[str, str, list[_Key]]]:
    """Yield title, name of the curves, and curves of each plot: a plot a partition, and one a metric of several partitions."""
    places = grouped(keys, lambda key: key.partition)
    alone = _axis(keys[0])[1]
    for place, mine in places.items():
        if several:
            name = f"{first.check} {alone}".strip()
            yield f"{name} on {first.system}:{place}", "metric", mine
    if len(places) > 1:
        for metric, mine in grouped(keys, lambda key: key.metric).items():
            yield f"{first.check} {metric} on {first.system}", "partition", mine


def _traces(curves: Mapping[_Key, Sequence[Dot]], by: str) -> list[Trace]:
    """Return curves with their names: what of the keys differs."""
    others = {key.others for key in curves}
    fields = Counter(field for fixed in others for field in fixed)
    traces = []
    for key, dots in curves.items():
        differing = [f"{k}={v}" for k, v in key.others if fields[k, v] < len(others)]
        traces.append(Trace(" ".join([getattr(key, by), *differing]), tuple(dots)))
    return traces
