"""Each layer between the devices and the tasks: what is declared, what is left of it, and what was reached.

A layer carries what is declared, and no more than the layers below it let through. What it takes away from them is its
loss. The file system and the tool take the rest: the highest valid figure is what they reached.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal

from iogauge.core.units import BANDWIDTH_UNITS, convert, format_bytes
from iogauge.records import query
from iogauge.records.record import short_name
from iogauge.report.layout import Table, columns
from iogauge.site import settings
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


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A layer in one direction; all rates are in bytes/s over all its parts."""

    name: str
    #: What the topology says that it carries; None if it does not say.
    declared: float | None
    #: What is left above the layer; None as long as nothing is known of it and of those below it.
    carries: float | None
    #: Share that it takes away from those below it; None if unknown.
    loss: float | None


def _rate(bytes_s: float | None) -> str:
    if bytes_s is None:
        return ""
    return f"{format_bytes(bytes_s)}/s"


def _percent(share: float | None) -> str:
    if share is None:
        return ""
    return f"{share:.1%}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All layers of a direction for so many nodes, and what was reached of them."""

    direction: Way
    nodes: int
    rows: Sequence[LayerRow]
    reached: Figure | None

    @property
    def lost_above(self) -> float | None:
        """Return the share that file system and tool lose of what the layers carry; None if unknown."""
        carried = self.rows[-1].carries
        if self.reached is None or not carried:
            return None
        return 1 - self.reached.bytes_s / carried

    def cells(self) -> list[tuple[str, ...]]:
        """Return the cells of each layer from the devices up, and those of what was reached."""
        found: list[tuple[str, ...]] = []
        for row in self.rows:
            rates = (_rate(row.declared), _rate(row.carries))
            found.append((row.name, *rates, _percent(row.loss)))
        if self.reached:
            name = f"reached on {self.reached.day}: {self.reached.case}"
            rate = _rate(self.reached.bytes_s)
            found.append((name, "", rate, _percent(self.lost_above)))
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """What a partition declares beside what its history shows."""

    partition: str
    extras: PartitionExtras
    reached: Mapping[Way, Figure]

    @property
    def chains(self) -> Sequence[Chain]:
        """Return the layers of each direction for the nodes that reached most, or those of the scale."""
        found = []
        for way in WAYS:
            reached, nodes = self.reached.get(way), self.extras.scale.nodes
            if reached:
                nodes = reached.nodes
            rows = self.rows(way, nodes)
            found.append(Chain(direction=way, nodes=nodes, rows=rows, reached=reached))
        return found

    def rows(self, way: Way, nodes: int) -> Sequence[LayerRow]:
        """Return the layers of a direction for so many nodes, from the devices up."""
        topology = self.extras.topology
        declared: dict[str, float | None] = {
            "devices": None,
            "server network": None,
            "client network": None,
        }
        if topology and topology.devices:
            rate: float | None = getattr(topology.devices, way)
            declared["devices"] = rate and topology.devices.count * rate
        if topology and topology.servers:
            rate = topology.servers.count * topology.servers.nic
            declared["server network"] = rate
        if topology and topology.clients:
            declared["client network"] = nodes * topology.clients.nic
        rows = []
        under: float | None = None
        for name, rate in declared.items():
            carries = min(filter(None, (under, rate)), default=None)
            loss = None
            if under and carries:
                loss = 1 - carries / under
            rows.append(LayerRow(name, rate, carries, loss))
            under = carries
        return rows


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
                best = reached.get(way)
                if row["metric"].startswith(f"{way}_") and (
                    best is None or figure.bytes_s > best.bytes_s
                ):
                    reached[way] = figure
    return reached


def of_site(folder: Path, site: Path) -> Iterator[Shown]:
    """Yield the layers of each partition of a site, beside a history in ``folder``; raises OSError or ValueError."""
    for name, extras in settings.partitions(site).items():
        reached = reached_by(folder, site.name, name)
        yield Shown(f"{site.name}:{name}", extras, reached)


def table(shown: Shown) -> Table:
    """Return the chains of a partition, from the devices up to what was reached."""
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for chain in shown.chains:
        title = f"{shown.partition}, {chain.direction}, {chain.nodes} node(s)"
        blocks[title] = chain.cells()
    rates = ("declared", "carries", "lost")
    headings = columns("layer", "declared", "carries", "lost", right=rates)
    return Table(headings, blocks)
