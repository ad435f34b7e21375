"""Each layer between the devices and the tasks: what is declared, what is left of it, and what was reached.

A layer carries what is declared, and no more than the layers below it let through. What it takes away from them is its
loss. The file system and the tool take the rest: the highest valid figure is what they reached.
"""

import time
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from iogauge.core.units import BANDWIDTH_UNITS, convert, format_bytes
from iogauge.records import query
from iogauge.records.record import short_name
from iogauge.report.layout import Table, columns
from iogauge.site.extras import PartitionExtras

Way = Literal["read", "write"]
WAYS: Final[tuple[Way, ...]] = ("read", "write")

#: Days for which figures count.
DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Figure:
    """The highest valid figure of a direction, in bytes/s, with its case, the day (UTC) and its nodes."""

    case: str
    day: str
    nodes: int
    bytes_s: float


def _rate(bytes_s: float | None) -> str:
    if bytes_s is None:
        return ""
    return f"{format_bytes(bytes_s)}/s"


def _lost(left: float | None, under: float | None) -> str:
    """Return the share of what is under a layer that it takes away; empty if one of them is not known."""
    if not left or not under:
        return ""
    return f"{1 - left / under:.1%}"


def declared(extras: PartitionExtras, way: Way, nodes: int) -> dict[str, float | None]:
    """Return what each layer carries over all its parts, in bytes/s, from the devices up; None if the topology does not say."""
    layers: dict[str, float | None] = {
        "devices": None,
        "server network": None,
        "client network": None,
    }
    topology = extras.topology
    if topology and topology.devices:
        rate: float | None = getattr(topology.devices, way)
        layers["devices"] = rate and topology.devices.count * rate
    if topology and topology.servers:
        layers["server network"] = topology.servers.count * topology.servers.nic
    if topology and topology.clients:
        layers["client network"] = nodes * topology.clients.nic
    return layers


def rows(
    layers: Mapping[str, float | None], reached: Figure | None
) -> list[tuple[str, ...]]:
    """Return the cells of each layer from the devices up, and those of what file system and tool reached of them."""
    found: list[tuple[str, ...]] = []
    under: float | None = None
    for name, rate in layers.items():
        carries = min(filter(None, (under, rate)), default=None)
        found.append((name, _rate(rate), _rate(carries), _lost(carries, under)))
        under = carries
    if reached:
        name = f"reached on {reached.day}: {reached.case}"
        rate = reached.bytes_s
        found.append((name, "", _rate(rate), _lost(rate, under)))
    return found


def reached_by(folder: Path, system: str, partition: str) -> dict[Way, Figure]:
    """Return the highest valid bandwidth of each direction in a partition's history; raises OSError."""
    oldest = round((time.time() - DAYS * 86400) * 1e6)
    valid = query.every(
        query.Condition("system = ? AND partition = ?", (system, partition)),
        query.Condition(
            f"verdict IN ({query.VALID}) AND metric_verdict IN ({query.VALID})"
        ),
        query.among("unit", list(BANDWIDTH_UNITS)),
        # What is derived from several cases has no nodes: no layer of so many nodes carried it.
        query.Condition("nodes IS NOT NULL"),
        query.Condition("time >= ?", (oldest,)),
    )
    reached: dict[Way, Figure] = {}
    with closing(query.connect(folder)) as history:
        # Of many runs of a case the fastest says most: a long history has millions.
        fastest = query.rows(
            history,
            '"case", nodes, metric, unit, max(median) AS median, time',
            valid,
            'GROUP BY "case", nodes, metric, unit',
        )
        for row in fastest:
            figure = Figure(
                case=short_name(row["case"]),
                day=f"{query.moment(row['time']):%Y-%m-%d}",
                nodes=row["nodes"],
                bytes_s=convert(row["median"], row["unit"], "B/s"),
            )
            for way in WAYS:
                best = reached.get(way, figure)
                if row["metric"].startswith(f"{way}_"):
                    reached[way] = max(best, figure, key=lambda one: one.bytes_s)
    return reached


def table(
    partition: str, extras: PartitionExtras, reached: Mapping[Way, Figure]
) -> Table:
    """Return the layers of a partition in each direction, for the nodes that reached most, or those of the scale."""
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for way in WAYS:
        best, nodes = reached.get(way), extras.scale.nodes
        if best:
            nodes = best.nodes
        title = f"{partition}, {way}, {nodes} node(s)"
        blocks[title] = rows(declared(extras, way, nodes), best)
    rates = ("declared", "carries", "lost")
    return Table(columns("layer", *rates, right=rates), blocks)
