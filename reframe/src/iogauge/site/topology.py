"""The parts of a target, and the most that it can carry.

A ceiling is the smallest rate of clients, servers and devices. An undeclared part does not limit. A
target without declared parts has no ceiling: a limit is never guessed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    model_validator,
)

from iogauge.core import units

ByteSize = Annotated[int, BeforeValidator(units.parse_bytes)]
BytesPerSecond = Annotated[float, BeforeValidator(units.parse_bandwidth), Field(gt=0)]
PositiveSeconds = Annotated[float, BeforeValidator(units.parse_seconds), Field(gt=0)]
Fraction = Annotated[float, BeforeValidator(units.parse_fraction)]
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
        if not self.per_box:
            return 0
        return self.count // self.per_box


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

    @classmethod
    def of(cls, count: float, what: str, rate: float) -> Ceiling:
        """Return what so many parts carry, each ``rate`` in bytes/s."""
        return cls(count * rate, f"{count:g} {what} x {units.format_bytes(rate)}/s")


class Topology(SiteModel):
    """Clients, servers and devices of a target; ``source`` says where the figures come from."""

    source: str = Field(min_length=1)
    clients: Clients | None = None
    servers: Servers | None = None
    devices: Devices | None = None
    #: Storage targets (OSTs) of all servers.
    targets: Count | None = None
    efficiency: Efficiency | None = None

    @property
    def size(self) -> int | None:
        """Return the number of servers, or of devices if no servers are declared, or None."""
        counted = self.servers or self.devices
        return counted.count if counted else None

    def _part(self, servers: int | None) -> float:
        """Return the share of the devices on so many servers; all if None."""
        if servers and self.servers:
            return servers / self.servers.count
        return 1.0

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
            parts.append(Ceiling.of(nodes, "client(s)", self.clients.nic))
        if self.servers:
            count = servers or self.servers.count
            parts.append(Ceiling.of(count, "server(s)", self.servers.nic))
        rate = getattr(self.devices, direction, None)
        if self.devices and rate:
            devices = self.devices.count * self._part(servers)
            parts.append(Ceiling.of(devices, "device(s)", rate))
        return min(parts, key=lambda part: part.value, default=None)

    def smallest_part(self, direction: Direction) -> float | None:
        """Return the bytes/s of the slowest single client, server or device, or None if undeclared."""
        device = getattr(self.devices, direction, None)
        rates = [part.nic for part in (self.clients, self.servers) if part]
        if device:
            rates.append(device)
        return min(rates, default=None)

    def operations_ceiling(
        self, direction: Direction, servers: int | None = None
    ) -> Ceiling | None:
        """Return the operations/s of the devices of so many servers, or None if undeclared."""
        if self.devices is None:
            return None
        rate = getattr(self.devices, f"{direction}_iops")
        if rate is None:
            return None
        devices = self.devices.count * self._part(servers)
        return Ceiling(devices * rate, f"{devices:g} device(s) x {rate:g} ops/s")
