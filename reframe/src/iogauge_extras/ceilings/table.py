"""Each layer between the devices and the tasks: what is declared, what was measured, what is left of it.

A layer carries the lower of its two figures, and no more than the layers below it let through. What it takes away from
them is its loss. The file system and the tool take the rest: the highest valid figure is what they reached.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from iogauge.core.units import BANDWIDTH_UNITS, convert, format_bytes, with_unit
from iogauge.plan.bounds import MOST_SHARE
from iogauge.records.record import MetricRecord
from iogauge.report.layout import Table, columns
from iogauge.site import folders, settings
from iogauge.site.extras import PartitionExtras
from iogauge_extras.ceilings.measured import (
    DEVICES,
    NETWORK,
    WAYS,
    Figure,
    LayersSeen,
    Way,
    of_history,
)

_SERVERS: Final = "server network"

#: The layers, from the devices up.
_ORDER: Final = (DEVICES, _SERVERS, NETWORK)

#: Loss from which a layer counts as the limit of what is above it: less is rounding.
_LEAST_LOSS: Final = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerRow:
    """A layer in one direction; all rates are in bytes/s over all its parts."""

    name: str
    #: What the topology says that it carries; None if it does not say.
    declared: float | None
    #: What a measurement found; None without one.
    measured: float | None
    #: The measured rate, unless something is wrong with it.
    usable: float | None
    #: Day and nodes of the measurement; empty without one.
    when: str
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


def _least(rates: Iterable[float | None]) -> float | None:
    return min((rate for rate in rates if rate), default=None)


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
        for row in reversed(known):
            if (row.loss or 0) >= _LEAST_LOSS:
                return row
        return next(iter(known), None)

    @property
    def lost_above(self) -> float | None:
        """Return the share that file system and tool lose of what the layers carry; None if unknown."""
        carried = self.rows[-1].carries
        if self.reached is None or not carried:
            return None
        return 1 - self.reached.bytes_s / carried

    @property
    def sentence(self) -> str:
        """Return which layer limits, what was reached of it, and what is lost above the layers."""
        limit, reached, lost = self.limit, self.reached, self.lost_above
        if limit is None:
            return "no layer is declared or measured: declare topology or ceilings (docs/checks.md)"
        known = "declared"
        if limit.carries == limit.measured:
            known = "measured"
        text = f"limited by {limit.name} ({known}), {_rate(limit.carries)}"
        if reached:
            text += (
                f"; reached {_rate(reached.bytes_s)} by {reached.case} on {reached.day}"
            )
        if lost is not None:
            text += f"; file system and tool lose {max(lost, 0.0):.1%}"
        return text

    def cells(self) -> list[tuple[str, ...]]:
        """Return the cells of each layer from the devices up, and those of what was reached."""
        found: list[tuple[str, ...]] = []
        for row in self.rows:
            rates = (_rate(row.declared), _rate(row.measured), row.when)
            found.append((row.name, *rates, _rate(row.carries), _percent(row.loss)))
        if self.reached:
            name, rate = f"reached: {self.reached.case}", _rate(self.reached.bytes_s)
            when = f"{self.reached.day}, {self.nodes} node(s)"
            found.append((name, "", "", when, rate, _percent(self.lost_above)))
        return found


@dataclass(frozen=True, slots=True)
class Shown:
    """What a partition declares beside what its history shows."""

    partition: str
    extras: PartitionExtras
    seen: LayersSeen

    @property
    def problems(self) -> list[str]:
        """Return what is wrong with the measurements; of one that exceeds what is declared, the topology is wrong."""
        remedy = "It bounds no figure until you measure it: iogauge run -t ceiling"
        found = [f"{one.problem}. {remedy}" for one in self.seen.layers if one.problem]
        for layer in self.seen.layers:
            declared = declared_of(layer.name, layer.direction, self.extras, 1)
            if declared and layer.best and layer.best.bytes_s > MOST_SHARE * declared:
                found.append(
                    f"{layer.name}, {layer.direction}: {_rate(layer.best.bytes_s)}, {layer.best.source}, and "
                    f"{_rate(declared)} declared: correct the topology"
                )
        return found

    @property
    def chains(self) -> tuple[Chain, ...]:
        """Return the layers of each direction for the nodes that reached most, or those of the scale."""
        found = []
        for way in WAYS:
            reached, nodes = self.seen.reached.get(way), self.extras.scale.nodes
            if reached:
                nodes = reached.nodes
            rows = self.rows(way, nodes)
            found.append(Chain(direction=way, nodes=nodes, rows=rows, reached=reached))
        return tuple(found)

    def rows(self, way: Way, nodes: int) -> tuple[LayerRow, ...]:
        """Return the layers of a direction for so many nodes, from the devices up."""
        layers = {one.name: one for one in self.seen.layers if one.direction == way}
        rows: list[LayerRow] = []
        under: float | None = None
        for name in _ORDER:
            measured, usable, when, loss = None, None, "", None
            layer = layers.get(name)
            if layer and layer.best and layer.ceiling:
                measured = layer.ceiling.over(nodes).value
                when = f"{layer.best.day}, {layer.best.nodes} node(s)"
                if layer.problem:
                    when += ", not used"
                else:
                    usable = measured
            declared = declared_of(name, way, self.extras, nodes)
            carries = _least((under, declared, usable))
            if under and carries:
                loss = 1 - carries / under
            row = LayerRow(
                name=name,
                declared=declared,
                measured=measured,
                usable=usable,
                when=when,
                carries=carries,
                loss=loss,
            )
            rows.append(row)
            under = carries
        return tuple(rows)

    def lowest(self, way: Way, nodes: int) -> tuple[float | None, float | None]:
        """Return the lowest declared and the lowest usable measured layer for so many nodes, in bytes/s."""
        rows = self.rows(way, nodes)
        return _least(row.declared for row in rows), _least(row.usable for row in rows)


def declared_of(
    name: str, way: Way, extras: PartitionExtras, nodes: int
) -> float | None:
    """Return what a layer should carry in bytes/s, by the topology; None if it does not say."""
    topology = extras.topology
    if topology is None:
        return None
    if name == NETWORK and topology.clients:
        return float(nodes * topology.clients.nic)
    if name == _SERVERS and topology.servers:
        return float(topology.servers.count * topology.servers.nic)
    if name == DEVICES and topology.devices:
        rate: float | None = getattr(topology.devices, way)
        return rate and topology.devices.count * rate
    return None


def beside(shown: Shown | None, nodes: object, metric: MetricRecord) -> dict[str, str]:
    """Return the declared and the measured ceiling of a record's metric as text, in its unit.

    The one that the record was held against comes from the record, and ``held`` names it; the other
    comes from the layers of today.
    """
    found = {"declared": "", "measured": "", "held": ""}
    if shown and metric.unit in BANDWIDTH_UNITS:
        count = nodes if isinstance(nodes, int) else 1
        for way in WAYS:
            if metric.name.startswith(f"{way}_"):
                rates = shown.lowest(way, count)
                for kind, rate in zip(("declared", "measured"), rates, strict=True):
                    if rate:
                        value = convert(rate, "B/s", metric.unit)
                        found[kind] = with_unit(value, metric.unit)
    if metric.ceiling:
        kind = "declared"
        if "measured " in str(metric.ceiling_from):
            kind = "measured"
        found |= {kind: with_unit(metric.ceiling, metric.unit), "held": kind}
    return found


def of_site(folder: Path, site: Path) -> Iterator[Shown]:
    """Yield the layers of each partition of a site, beside a history in ``folder``; raises OSError or ValueError."""
    for name, extras in settings.partitions(site).items():
        seen = of_history(folder, site.name, name, extras.ceilings)
        yield Shown(f"{site.name}:{name}", extras, seen)


def of_systems(folder: Path, names: Sequence[str]) -> dict[str, Shown]:
    """Return the layers of every partition of the systems that have a site here, by ``system:partition``.

    A partition without declared or measured layers, and a site that cannot be read, are left out.
    """
    found: dict[str, Shown] = {}
    for site in folders.site_folders(*folders.site_dirs()):
        if site.name not in names:
            continue
        with contextlib.suppress(OSError, ValueError):
            for shown in of_site(folder, site):
                if any(chain.limit for chain in shown.chains):
                    found.setdefault(shown.partition, shown)
    return found


def table(shown: Shown, wide: bool = False) -> Table:
    """Return the chains of a partition, from the devices up to what was reached."""
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for chain in shown.chains:
        title = f"{shown.partition}, {chain.direction}, {chain.nodes} node(s)"
        blocks[title] = chain.cells()
    rates = ("declared", "measured", "carries", "lost")
    headings = columns(
        "layer", *rates[:2], "when", *rates[2:], right=rates, whole=rates
    )
    return Table(headings, blocks, wide=wide)


def remarks(shown: Shown) -> Iterator[str]:
    """Yield which layer limits each direction, and what is wrong with the measurements."""
    for chain in shown.chains:
        yield f"{chain.direction}: {chain.sentence}"
    yield from shown.problems
