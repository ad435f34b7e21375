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


@dataclass(frozen=True, slots=True)
class LayerRow:
    """A layer in one direction, in bytes/s over all its parts; ``carries`` is what is left above it.

    ``carries`` is None as long as nothing is known of this layer and those below it. ``usable`` is what was measured,
    unless something is wrong with it.
    """

    name: str
    declared: float | None
    measured: float | None
    usable: float | None
    when: str
    carries: float | None
    loss: float | None


def _rate(bytes_s: float | None) -> str:
    return "" if bytes_s is None else f"{format_bytes(bytes_s)}/s"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _least(rates: Iterable[float | None]) -> float | None:
    return min((rate for rate in rates if rate), default=None)


@dataclass(frozen=True, slots=True)
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
        taking = [row for row in known if (row.loss or 0) >= _LEAST_LOSS]
        return next(iter(taking[-1:] or known[:1]), None)

    @property
    def lost_above(self) -> float | None:
        """Return the share that file system and tool lose of what the layers carry; None if unknown."""
        carried = self.rows[-1].carries
        return 1 - self.reached.bytes_s / carried if self.reached and carried else None

    @property
    def sentence(self) -> str:
        """Return which layer limits, what was reached of it, and what is lost above the layers."""
        if (limit := self.limit) is None:
            return ""
        known = "measured" if limit.carries == limit.measured else "declared"
        said = f"limited by {limit.name} ({known}), {_rate(limit.carries)}"
        if self.reached:
            said += f"; reached {_rate(self.reached.bytes_s)} by {self.reached.case} on {self.reached.day}"
        if self.lost_above is not None:
            said += f"; file system and tool lose {max(self.lost_above, 0.0):.1%}"
        return said


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
            reached = self.seen.reached.get(way)
            nodes = reached.nodes if reached else self.extras.scale.nodes
            found.append(Chain(way, nodes, self.rows(way, nodes), reached))
        return tuple(found)

    def rows(self, way: Way, nodes: int) -> tuple[LayerRow, ...]:
        """Return the layers of a direction for so many nodes, from the devices up."""
        layers = {
            layer.name: layer for layer in self.seen.layers if layer.direction == way
        }
        rows: list[LayerRow] = []
        below: float | None = None
        for name in _ORDER:
            layer = layers.get(name)
            ceiling = layer.ceiling if layer else None
            declared = declared_of(name, way, self.extras, nodes)
            measured = ceiling.over(nodes).value if ceiling else None
            usable = measured if layer and not layer.problem else None
            carries = _least((below, declared, usable))
            when = (
                f"{layer.best.day}, {layer.best.nodes} node(s)"
                if layer and layer.best
                else ""
            )
            when += ", not used" if measured and not usable else ""
            loss = 1 - carries / below if below and carries else None
            rows.append(LayerRow(name, declared, measured, usable, when, carries, loss))
            below = carries
        return tuple(rows)

    def lowest(self, way: Way, nodes: int) -> tuple[float | None, float | None]:
        """Return the lowest declared and the lowest usable measured layer for so many nodes, in bytes/s."""
        rows = self.rows(way, nodes)
        return _least(row.declared for row in rows), _least(row.usable for row in rows)


def declared_of(
    name: str, way: Way, extras: PartitionExtras, nodes: int
) -> float | None:
    """Return what a layer should carry in bytes/s, by the topology; None if it does not say."""
    parts = ("clients", "servers", "devices")
    clients, servers, devices = (getattr(extras.topology, part, None) for part in parts)
    if name == NETWORK and clients:
        return float(nodes * clients.nic)
    if name == _SERVERS and servers:
        return float(servers.count * servers.nic)
    rate: float | None = getattr(devices, way, None)
    return devices.count * rate if name == DEVICES and devices and rate else None


def beside(shown: Shown | None, nodes: object, metric: MetricRecord) -> dict[str, str]:
    """Return the declared and the measured ceiling of a record's metric as text, in its unit.

    The one that the record was held against comes from the record, and ``held`` names it; the other
    comes from the layers of today.
    """
    found = {"declared": "", "measured": "", "held": ""}
    for way in WAYS if shown and metric.unit in BANDWIDTH_UNITS else ():
        rates = shown.lowest(way, nodes if type(nodes) is int else 1) if shown else ()
        known = zip(("declared", "measured"), rates, strict=True)
        for kind, rate in known if metric.name.startswith(f"{way}_") else ():
            if rate:
                found[kind] = with_unit(convert(rate, "B/s", metric.unit), metric.unit)
    if metric.ceiling:
        kind = "measured" if "measured " in str(metric.ceiling_from) else "declared"
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
        with contextlib.suppress(OSError, ValueError):
            for shown in of_site(folder, site) if site.name in names else ():
                if any(chain.limit for chain in shown.chains):
                    found.setdefault(shown.partition, shown)
    return found


def table(shown: Shown, wide: bool = False) -> Table:
    """Return the chains of a partition, from the devices up to what was reached."""
    blocks: dict[str, list[tuple[str, ...]]] = {}
    for chain in shown.chains:
        rows: list[tuple[str, ...]] = []
        for row in chain.rows:
            figures = (
                _rate(row.declared),
                _rate(row.measured),
                row.when,
                _rate(row.carries),
            )
            rows.append((row.name, *figures, _percent(row.loss)))
        if chain.reached:
            day, rate = (
                f"{chain.reached.day}, {chain.nodes} node(s)",
                _rate(chain.reached.bytes_s),
            )
            reached = f"reached: {chain.reached.case}"
            rows.append((reached, "", "", day, rate, _percent(chain.lost_above)))
        blocks[f"{shown.partition}, {chain.direction}, {chain.nodes} node(s)"] = rows
    rates = ("declared", "measured", "carries", "lost")
    headings = columns(
        "layer", *rates[:2], "when", *rates[2:], right=rates, whole=rates
    )
    return Table(headings, blocks, wide=wide)


def remarks(shown: Shown) -> Iterator[str]:
    """Yield which layer limits each direction, and what is wrong with the measurements."""
    unknown = "no layer is declared or measured: declare topology or ceilings (docs/checks.md)"
    for chain in shown.chains:
        yield f"{chain.direction}: {chain.sentence or unknown}"
    yield from shown.problems
