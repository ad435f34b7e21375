"""The parts of a target, the most that it can carry, and other sizes of the same kind.

A ceiling is the smallest rate of clients, servers and devices. An undeclared part does not limit. A
target without declared parts has no ceiling: a limit is never guessed.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from fractions import Fraction as Exact
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from iogauge.core.units import (
    format_bytes,
    parse_bandwidth,
    parse_bytes,
    parse_fraction,
    parse_seconds,
)

ByteSize = Annotated[int, BeforeValidator(parse_bytes)]
BytesPerSecond = Annotated[float, BeforeValidator(parse_bandwidth), Field(gt=0)]
PositiveSeconds = Annotated[float, BeforeValidator(parse_seconds), Field(gt=0)]
Fraction = Annotated[float, BeforeValidator(parse_fraction)]
Count = Annotated[int, Field(ge=1, strict=True)]

Direction = Literal["read", "write"]


class SiteModel(BaseModel):
    """Base of all that a site declares: unknown keys are mistakes, and values never change."""

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Servers(SiteModel):
    """Object storage servers and the network interface of each."""

    count: Count
    nic: BytesPerSecond
    #: Memory of each server, from which it may answer (G3).
    memory: Annotated[ByteSize, Field(gt=0)] | None = None
    #: Servers in each box, if the storage comes in boxes: neighbours in the order of their targets.
    per_box: Count | None = None

    @model_validator(mode="after")
    def _whole_boxes(self) -> Servers:
        if self.per_box and self.count % self.per_box:
            raise ValueError(
                f"per_box is {self.per_box}, and count {self.count}: count must be a multiple of per_box"
            )
        return self

    @property
    def boxes(self) -> int:
        """Return the number of boxes; 0 if the servers do not come in boxes."""
        return self.count // self.per_box if self.per_box else 0


class Clients(SiteModel):
    """Network interface of each client node."""

    nic: BytesPerSecond


class Devices(SiteModel):
    """Storage devices (or storage targets) and the rates of each."""

    count: Count = 1
    read: BytesPerSecond | None = None
    write: BytesPerSecond | None = None
    read_iops: Annotated[float, Field(gt=0, strict=True)] | None = None
    write_iops: Annotated[float, Field(gt=0, strict=True)] | None = None


class Efficiency(SiteModel):
    """Share of the ceiling that a healthy target must reach if it has no reference yet.

    A share below 5 % is refused, because hardly anything could fail.
    """

    read: Annotated[Fraction, Field(ge=0.05)]
    write: Annotated[Fraction, Field(ge=0.05)]


@dataclass(frozen=True, slots=True)
class Ceiling:
    """The most that a topology can carry, in bytes/s or operations/s, and the limiting part."""

    value: float
    limited_by: str


class Topology(SiteModel):
    """Clients, servers and devices of a target; ``source`` says where the figures come from."""

    source: str = Field(min_length=1)
    clients: Clients | None = None
    servers: Servers | None = None
    devices: Devices | None = None
    #: Storage targets (OSTs) of all servers.
    targets: Count | None = None
    #: Numbers of storage targets that are out: this partition stands for the degraded file system.
    out: tuple[Annotated[int, Field(ge=0, lt=65536, strict=True)], ...] = ()
    #: Metadata targets (MDTs) of all servers.
    metadata_targets: Count | None = None
    efficiency: Efficiency | None = None

    @property
    def size(self) -> int | None:
        """Return the number of servers, or of devices if no servers are declared, or None."""
        counted = self.servers or self.devices
        return counted.count if counted else None

    def _part(self, servers: int | None) -> float:
        """Return the share of the devices on so many servers; all if None."""
        return servers / self.servers.count if servers and self.servers else 1.0

    def bandwidth_ceiling(
        self, direction: Direction, nodes: int, servers: int | None = None
    ) -> Ceiling | None:
        """Return the smallest rate of clients, servers and devices in bytes/s, or None if none is
        declared.

        ``servers`` is the number of object storage servers that take part, each with as many
        devices.
        """
        parts: list[Ceiling] = []
        if self.clients:
            nic = self.clients.nic
            parts.append(Ceiling(nodes * nic, f"{nodes} client(s) x {format_bytes(nic)}/s"))
        if self.servers:
            count, nic = servers or self.servers.count, self.servers.nic
            parts.append(Ceiling(count * nic, f"{count} server(s) x {format_bytes(nic)}/s"))
        if self.devices:
            rate = self.devices.read if direction == "read" else self.devices.write
            if rate:
                devices = self.devices.count * self._part(servers)
                text = f"{devices:g} device(s) x {format_bytes(rate)}/s"
                parts.append(Ceiling(devices * rate, text))
        return min(parts, key=lambda part: part.value, default=None)

    def smallest_part(self, direction: Direction) -> float | None:
        """Return the bytes/s of the slowest single client, server or device, or None if undeclared."""
        device = getattr(self.devices, direction, None)
        nics = [part.nic for part in (self.clients, self.servers) if part]
        return min([*nics, *([device] if device else [])], default=None)

    def operations_ceiling(
        self, direction: Direction, servers: int | None = None
    ) -> Ceiling | None:
        """Return the operations/s of the devices of so many servers, or None if undeclared."""
        if self.devices is None:
            return None
        rate = self.devices.read_iops if direction == "read" else self.devices.write_iops
        if rate is None:
            return None
        devices = self.devices.count * self._part(servers)
        return Ceiling(devices * rate, f"{devices:g} device(s) x {rate:g} ops/s")


class OtherSizes(SiteModel):
    """Sizes in which the partition's kind of file system exists as well: each is a partition."""

    #: Servers of each, or devices if no servers are declared (:attr:`Topology.size`).
    counts: tuple[Count, ...] = Field(min_length=1)
    #: Checks by which the sizes are compared (AgainstBaseline, SizeScaling).
    checks: tuple[str, ...] = Field(min_length=1)


#: Counts in a partition's extras that grow with its size: keys from the outside in.
_COUNTS: Final = (
    ("topology", "servers", "count"),
    ("topology", "devices", "count"),
    ("topology", "targets"),
    ("expect", "lustre.servers"),
    ("expect", "lustre.osts"),
)


def name_of_size(partition: str, count: int) -> str:
    """Return the name of the partition that is another one in another size."""
    return f"{partition}-{count}"


def unfit_sizes(extras: dict[str, Any], size: int, counts: tuple[int, ...]) -> str:
    """Return why a partition of a size cannot exist in others, or nothing.

    ``extras`` are the partition's, as written.
    """
    target = extras["target"]
    for key in ("source", "uuid", "lock"):
        if target.get(key):
            return f"target.{key} is {target[key]!r}, and each size has its own: leave it out"
    if str(target["path"]).startswith("$"):
        return f"target.path is {target['path']}: space of a job has no other sizes"
    for count in counts:
        if count == size:
            return f"counts names {count}, the size of this partition: leave it out"
        for keys in _COUNTS:
            value = _inner(extras, keys[:-1]).get(keys[-1], 0)
            if isinstance(value, int) and (value * Exact(count, size)).denominator > 1:
                where = ".".join(keys)
                return f"{where} is {value} at size {size}, and no whole number at size {count}"
    return ""


def _inner(values: dict[str, Any], keys: tuple[str, ...]) -> dict[str, Any]:
    for key in keys:
        values = values.get(key) or {}
    return values


def _grown_bytes(text: str, by: Exact) -> str:
    return f"{int(parse_bytes(text) * by)} B"


def _grow_case(sizes: dict[str, Any], by: Exact) -> None:
    """Let the nodes and the bytes of a case grow; a case of one node stays as it is."""
    if sizes.get("nodes") == 1:
        return
    if "nodes" in sizes:
        sizes["nodes"] = math.ceil(sizes["nodes"] * by)
    if "case_bytes" in sizes:
        sizes["case_bytes"] = _grown_bytes(sizes["case_bytes"], by)


def in_size(partition: dict[str, Any], size: int, count: int) -> dict[str, Any]:
    """Return a partition of a size in another one: a file system of its own, mounted beside.

    Servers, devices, targets, clients and the bytes of a case grow in proportion. Nodes are
    rounded up, so that the clients do not limit a size more than they limit the partition.
    """
    by, grown = Exact(count, size), copy.deepcopy(partition)
    extras, own = grown["extras"], partition["name"]
    del extras["sizes"]
    extras["size_of"] = own
    grown["name"] = name_of_size(own, count)
    grown["descr"] = f"{partition.get('descr', own)}: size {count} in place of {size}"
    extras["target"]["path"] += f"-{count}"
    extras["topology"]["source"] += f". Size {count}: in proportion to {size}, partition {own}"
    for keys in _COUNTS:
        values = _inner(extras, keys[:-1])
        if isinstance(values.get(keys[-1]), int):
            values[keys[-1]] = int(values[keys[-1]] * by)
    scale = extras["scale"]
    scale["nodes"] = math.ceil(scale.get("nodes", 1) * by)
    _grow_case(extras["limits"], by)
    for sizes in (*extras.get("tiers", {}).values(), *extras.get("cases", {}).values()):
        _grow_case(sizes, by)
    sweeps = extras.get("sweeps", {})
    if "servers" in sweeps:
        exact = [servers * by for servers in sweeps["servers"]]
        sweeps["servers"] = [int(servers) for servers in exact if servers.denominator == 1]
    if "price" in extras:
        extras["price"]["capacity"] = _grown_bytes(extras["price"]["capacity"], by)
    return grown


def in_all_sizes(data: dict[str, Any]) -> dict[str, Any]:
    """Return a site's settings with a partition for each size that its partitions declare.

    A partition that is declared under the name of a size stays as declared. Another one is compared
    with the same size of the baseline, or with the partition that declares it.
    """
    for system in data["systems"]:
        declared = {partition["name"]: partition for partition in system["partitions"]}
        sizes = {
            name: OtherSizes.model_validate(partition["extras"]["sizes"])
            for name, partition in declared.items()
            if partition.get("extras", {}).get("sizes")
        }
        for name, others in sizes.items():
            extras = declared[name]["extras"]
            beside = extras.get("baseline", {}).get("partition", "")
            size = Topology.model_validate(extras["topology"]).size
            for count in others.counts:
                if size is None or name_of_size(name, count) in declared:
                    continue
                partition = in_size(declared[name], size, count)
                twin = beside in sizes and count in sizes[beside].counts
                partition["extras"]["baseline"] = {
                    "partition": name_of_size(beside, count) if twin else name,
                    "checks": list(others.checks),
                }
                system["partitions"].append(partition)
    return data
