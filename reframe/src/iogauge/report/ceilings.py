"""Each layer between the devices and the tasks: what is declared, what was measured, what is left of it.

A layer carries the lower of its two figures, and no more than the layers below it let through. What it takes away from
them is its loss. The file system and the tool take the rest: the highest valid figure is what they reached.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.core.units import format_bytes
from iogauge.records.ceilings import DEVICES, MEMORY, NETWORK, WAYS, Figure, Layer, LayersSeen, Way
from iogauge.report.layout import Column, Group, Table
from iogauge.site.extras import PartitionExtras

_SERVERS: Final = "server network"

#: The layers, from the devices up.
_ORDER: Final = (DEVICES, _SERVERS, NETWORK, MEMORY)

#: Loss from which a layer counts as the limit of what is above it: less is rounding.
_LEAST_LOSS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A layer in one direction, in bytes/s over all its parts; ``carries`` is what is left above it.

    ``carries`` is None as long as nothing is known of this layer and those below it.
    """

    name: str
    declared: float | None
    measured: float | None
    when: str
    carries: float | None
    loss: float | None

    @property
    def cells(self) -> tuple[str, ...]:
        """Return the row's cells."""
        return (
            self.name,
            _rate(self.declared),
            _rate(self.measured),
            self.when,
            _rate(self.carries),
            "" if self.loss is None else f"{self.loss:.1%}",
        )


def _rate(bytes_s: float | None) -> str:
    return "" if bytes_s is None else f"{format_bytes(bytes_s)}/s"


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """All layers of a direction for so many nodes, and what was reached of them."""

    direction: Way
    nodes: int
    rows: tuple[LayerRow, ...]
    reached: Figure | None

    @property
    def limit(self) -> LayerRow | None:
        """Return the layer that limits: the last that takes something away, else the lowest known."""
        known = [row for row in self.rows if row.carries is not None]
        taking = [row for row in known if row.loss is not None and row.loss >= _LEAST_LOSS]
        found = taking or known[:1]
        return found[-1] if found else None

    @property
    def lost_above(self) -> float | None:
        """Return the share that file system and tool lose of what the layers carry; None if unknown."""
        if self.limit is None or self.reached is None or not self.rows[-1].carries:
            return None
        return 1 - self.reached.bytes_s / self.rows[-1].carries


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """A partition's chains, and what is wrong with its measurements."""

    partition: str
    chains: tuple[Chain, ...]
    problems: tuple[str, ...]

    @classmethod
    def of(cls, partition: str, extras: PartitionExtras, seen: LayersSeen) -> Shown:
        """Return what a partition declares beside what its history shows."""
        problems = [
            f"{layer.problem}. It bounds no figure until you measure it: iogauge run -t ceiling"
            for layer in seen.layers
            if layer.problem
        ]
        problems += _above_declared(extras, seen.layers)
        return cls(
            partition=partition,
            chains=tuple(_chain(way, extras, seen) for way in WAYS),
            problems=tuple(problems),
        )


def declared_of(name: str, way: Way, extras: PartitionExtras, nodes: int) -> float | None:
    """Return what a layer should carry in bytes/s, by the topology; None if it does not say."""
    topology = extras.topology
    if topology is None:
        return None
    if name == NETWORK and topology.clients:
        return nodes * topology.clients.nic
    if name == _SERVERS and topology.servers:
        return topology.servers.count * topology.servers.nic
    rate: float | None = getattr(topology.devices, way, None)
    if name == DEVICES and topology.devices and rate:
        return topology.devices.count * rate
    return None


def _above_declared(extras: PartitionExtras, layers: Sequence[Layer]) -> Iterator[str]:
    """Yield the measurements that exceed what is declared: then the topology is wrong."""
    for layer in layers:
        declared = declared_of(layer.name, layer.direction, extras, 1)
        if declared and layer.best and layer.best.bytes_s > 1.02 * declared:
            yield (
                f"{layer.name}, {layer.direction}: {_rate(layer.best.bytes_s)}, {layer.best.source}, and "
                f"{_rate(declared)} declared: correct the topology"
            )


def _chain(way: Way, extras: PartitionExtras, seen: LayersSeen) -> Chain:
    reached = seen.reached.get(way)
    nodes = reached.nodes if reached else extras.scale.nodes
    layers = {layer.name: layer for layer in seen.layers if layer.direction == way}
    rows: list[LayerRow] = []
    below: float | None = None
    for name in _ORDER:
        layer = layers.get(name)
        ceiling = layer.ceiling if layer else None
        declared = declared_of(name, way, extras, nodes)
        measured = ceiling.over(nodes).value if ceiling else None
        usable = measured if layer and not layer.problem else None
        own = min([rate for rate in (declared, usable) if rate], default=None)
        carries = min([rate for rate in (below, own) if rate], default=None)
        loss = None if below is None or carries is None else 1 - carries / below
        when = f"{layer.best.day}, {layer.best.nodes} node(s)" if layer and layer.best else ""
        if layer and layer.problem and layer.best:
            when += ", not used"
        rows.append(
            LayerRow(
                name=name,
                declared=declared,
                measured=measured,
                when=when,
                carries=carries,
                loss=loss,
            )
        )
        below = carries
    return Chain(direction=way, nodes=nodes, rows=tuple(rows), reached=reached)


def table(shown: Shown, wide: bool = False) -> Table:
    """Return the chains of a partition, from the devices up to what was reached."""
    columns = (
        Column("layer"),
        Column("declared", right=True, whole=True),
        Column("measured", right=True, whole=True),
        Column("when"),
        Column("carries", right=True, whole=True),
        Column("lost", right=True, whole=True),
    )
    groups = []
    for chain in shown.chains:
        rows = [row.cells for row in chain.rows]
        if chain.reached:
            lost, day = chain.lost_above, f"{chain.reached.day}, {chain.nodes} node(s)"
            rate = _rate(chain.reached.bytes_s)
            share = "" if lost is None else f"{lost:.1%}"
            rows.append((f"reached: {chain.reached.case}", "", "", day, rate, share))
        heading = f"{shown.partition}, {chain.direction}, {chain.nodes} node(s)"
        groups.append(Group(heading, rows))
    return Table(columns, groups, wide=wide)


def remarks(shown: Shown) -> Iterator[str]:
    """Yield which layer limits each direction, and what is wrong with the measurements."""
    for chain in shown.chains:
        if (limit := chain.limit) is None:
            yield (
                f"{chain.direction}: no layer is declared or measured: declare topology or ceilings "
                "(docs/ceilings.md)"
            )
            continue
        known = "measured" if limit.carries == limit.measured else "declared"
        yield f"{chain.direction}: limited by {limit.name} ({known}), {_rate(limit.carries)}"
    yield from shown.problems
