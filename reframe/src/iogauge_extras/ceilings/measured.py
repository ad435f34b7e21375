"""Ceilings that were measured: the most that each layer carried, by valid records of a partition.

A measured ceiling bounds figures (G6) only while it holds. It is not used if it is too old, or if a valid figure of
the same partition exceeds it: then the measurement was low, not the layer. Whoever asks is told why.
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final, Literal

from iogauge.core import paths
from iogauge.core.units import BANDWIDTH_UNITS, convert, format_bytes
from iogauge.judge.verdict import Verdict
from iogauge.plan.bounds import MOST_SHARE, MeasuredCeiling, MeasuredCeilings
from iogauge.records import query
from iogauge.records.record import Record, microseconds, short_name
from iogauge.site.extras import Ceilings

Way = Literal["read", "write"]
WAYS: Final[tuple[Way, ...]] = ("read", "write")

#: Days for which figures count, if a partition declares no other number.
DAYS: Final = Ceilings.model_fields["max_age_days"].default

#: Verdicts of valid measurements.
_VALID: Final = (Verdict.PASS, Verdict.FAIL, Verdict.UNREFERENCED)

NETWORK: Final = "client network"
DEVICES: Final = "devices"

#: The layer that each check measures: metric, layer, directions of the target's data.
_METRICS: Final[Mapping[str, tuple[str, str, tuple[Way, ...]]]] = {
    "NetworkCeiling": ("pair_median", NETWORK, ("read", "write")),
    "DeviceCeiling": ("devices_bw", DEVICES, ("read",)),
}


@dataclass(frozen=True, slots=True)
class Figure:
    """A valid figure of a record, in bytes/s, with its case, the time, its nodes and samples.

    ``place`` is where its record lies; ``record`` is known of the highest figure of a direction.
    """

    case: str
    time: str
    nodes: int
    samples: int
    bytes_s: float
    place: tuple[int, int] = (0, 0)
    record: Record | None = None

    @property
    def day(self) -> str:
        """Return the day (UTC) on which it was measured."""
        return self.time[:10]

    @property
    def source(self) -> str:
        """Return when it was measured, on how many nodes, and how often."""
        return f"measured {self.day} on {self.nodes} node(s), best of {self.samples} sample(s)"


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """A layer in one direction: the best measurement that is not too old, and what is wrong with it.

    ``problem`` says why the measurement is not used, empty if it is.
    """

    name: str
    direction: Way
    best: Figure | None
    problem: str = ""

    @property
    def ceiling(self) -> MeasuredCeiling | None:
        """Return the measured ceiling, of which more clients than one carry more; None if there is none."""
        if self.best is None:
            return None
        return MeasuredCeiling(
            layer=self.name,
            direction=self.direction,
            bytes_s=self.best.bytes_s,
            of_each_client=self.name != DEVICES,
            source=self.best.source,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LayersSeen:
    """The layers that a partition declares, and the highest valid figure of each direction."""

    layers: tuple[Layer, ...]
    reached: Mapping[Way, Figure]


def declared_layers(declared: Ceilings) -> list[tuple[str, Way]]:
    """Return the layers that may be measured, from the devices up, in each direction."""
    found: list[tuple[str, Way]] = [(DEVICES, "read")] if declared.devices else []
    return [*found, *((NETWORK, way) for way in WAYS if declared.network)]


def _figures(records: Iterable[Record]) -> dict[tuple[str, Way], list[Figure]]:
    """Return what records of ceilings say of each layer in each direction."""
    found: dict[tuple[str, Way], list[Figure]] = {}
    for record in records:
        name, layer, ways = _METRICS[record.check]
        for metric in record.metrics:
            if metric.name == name and metric.verdict in _VALID:
                values = [*(metric.samples or ()), *(metric.probes or {}).values()]
                best = convert(
                    max(map(float, values), default=metric.median), metric.unit, "B/s"
                )
                samples, nodes = len(metric.samples or ()), int(record.nodes or 1)
                figure = Figure(record.short_name, record.time, nodes, samples, best)
                for way in ways:
                    found.setdefault((layer, way), []).append(figure)
    return found


def look(
    ours: Sequence[Record],
    others: Sequence[tuple[Way, Figure]],
    declared: Ceilings | None,
    now: float,
) -> LayersSeen:
    """Return the declared layers of a partition, by its valid records of ceilings (``ours``).

    ``others`` are the bandwidths of all other valid records. ``now`` is in seconds since 1970.
    """
    days = declared.max_age_days if declared else DAYS
    oldest = (now - days * 86400) * 1e6
    found = _figures(ours)
    young = [
        (way, figure) for way, figure in others if microseconds(figure.time) >= oldest
    ]
    layers = []
    for name, way in declared_layers(declared) if declared else []:
        figures = found.get((name, way), [])
        fresh = [figure for figure in figures if microseconds(figure.time) >= oldest]
        best = max(fresh, key=lambda figure: figure.bytes_s, default=None)
        layer = Layer(name=name, direction=way, best=best)
        problem = f"{name}, {way}: not measured"
        if best:
            problem = _exceeded(layer, young)
        elif figures:
            last = max(figures, key=lambda figure: figure.time)
            problem = f"{name}, {way}: {last.source}, more than {days} days ago"
        layers.append(replace(layer, problem=problem))
    rising = sorted(young, key=lambda other: other[1].bytes_s)
    return LayersSeen(layers=tuple(layers), reached=dict(rising))


def _exceeded(layer: Layer, others: Sequence[tuple[Way, Figure]]) -> str:
    """Return which valid figure exceeds a measurement, empty if none does."""
    for way, figure in sorted(others, key=lambda other: other[1].time, reverse=True):
        limit = layer.ceiling.over(figure.nodes) if layer.ceiling else None
        if (
            limit
            and way == layer.direction
            and figure.bytes_s > MOST_SHARE * limit.value
        ):
            return (
                f"{layer.name}, {way}: {figure.case} reached {format_bytes(figure.bytes_s)}/s on {figure.day}, "
                f"more than {limit.limited_by}: the measurement was low"
            )
    return ""


def of_history(
    folder: Path, system: str, partition: str, declared: Ceilings | None
) -> LayersSeen:
    """Return the declared layers of a partition as its history shows them.

    Raises OSError for a file that cannot be read.
    """
    valid = query.every(
        query.Condition("system = ? AND partition = ?", (system, partition)),
        query.Condition(
            f"verdict IN ({query.VALID}) AND metric_verdict IN ({query.VALID})"
        ),
        query.among("unit", list(BANDWIDTH_UNITS)),
        # What is derived from several cases has no nodes: no layer of so many nodes carried it.
        query.Condition("nodes IS NOT NULL"),
    )
    layers = query.among('"check"', list(_METRICS))
    days = declared.max_age_days if declared else DAYS
    oldest = round((time.time() - days * 86400) * 1e6)
    not_layers = query.Condition(
        f"time >= ? AND NOT {layers.text}", (oldest, *layers.values)
    )
    with closing(query.connect(folder)) as history:
        measuring = query.rows(
            history, "DISTINCT file, start", query.every(valid, layers)
        )
        places = [(row["file"], row["start"]) for row in measuring]
        ours = list(query.records(folder, history, places).values())
        # Of many runs of a case the fastest says most: a long history has millions.
        fastest = query.rows(
            history,
            '"case", nodes, metric, unit, max(median) AS median, time, samples, file, start',
            query.every(valid, not_layers),
            'GROUP BY "case", nodes, metric, unit',
        )
        seen = look(ours, _others(fastest), declared, time.time())
        best = [figure.place for figure in seen.reached.values()]
        found = query.records(folder, history, best)
    reached = {
        way: replace(figure, record=found.get(figure.place))
        for way, figure in seen.reached.items()
    }
    return replace(seen, reached=reached)


def _others(rows: Iterable[sqlite3.Row]) -> list[tuple[Way, Figure]]:
    """Return the bandwidths of rows of the history, by direction."""
    others: list[tuple[Way, Figure]] = []
    for row in rows:
        figure = Figure(
            case=short_name(row["case"]),
            time=f"{query.moment(row['time']):%Y-%m-%dT%H:%M:%SZ}",
            nodes=row["nodes"],
            samples=row["samples"] or 1,
            bytes_s=convert(row["median"], row["unit"], "B/s"),
            place=(row["file"], row["start"]),
        )
        for way in WAYS:
            if row["metric"].startswith(f"{way}_"):
                others.append((way, figure))
    return others


def of_partition(system: str, partition: str, declared: Ceilings) -> MeasuredCeilings:
    """Return the measured ceilings that bound a partition's figures, and why others do not; raises OSError."""
    layers = of_history(paths.history_dir(), system, partition, declared).layers
    usable = (layer.ceiling for layer in layers if not layer.problem)
    return MeasuredCeilings(
        usable=tuple(ceiling for ceiling in usable if ceiling),
        problems=tuple(layer.problem for layer in layers if layer.problem),
    )
