"""iperf3: streams between nodes, from the turns of a plan to the rates that the receivers counted.

Written against iperf 3.12. The receiver counts: fio's ``net`` engine was tried as well. Its receiver loses the bytes of
short reads (1 % to 15 % of them on a loopback, fio 3.33).
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from iogauge.core import untrusted
from iogauge.core.measurement import (
    Moment,
    Phase,
    Quantity,
    ToolOutput,
    ToolOutputError,
)
from iogauge.core.units import format_bytes
from iogauge.tools.parsing import excerpt, member, non_negative, positive, unique
from iogauge_extras.ceilings import guilty

#: The phase of every output, and its quantities.
PHASE: Final = "network"
PAIR_MEDIAN, PAIR_SLOWEST = "pair_median", "pair_slowest"

#: Largest relative difference between figures of iperf3 that should be equal.
_TOLERANCE: Final = 0.01

End = Literal["sent", "received"]
ENDS: Final[tuple[End, End]] = ("sent", "received")


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamPlan(untrusted.Plain):
    """What is measured between ``nodes`` nodes: seconds of a turn, and connections of a pair.

    Each node sends to the next ``distances`` nodes of the ring of their sorted names, one pair at a time.
    """

    nodes: int
    distances: int
    seconds: int
    connections: int

    def turns(self, hosts: Sequence[str]) -> list[tuple[str, str]]:
        """Return the pairs of sender and receiver in order."""
        ring, count = sorted(hosts), len(hosts)
        return [
            (host, ring[(at + distance) % count])
            for distance in range(1, self.distances + 1)
            for at, host in enumerate(ring)
        ]


def distances_within(nodes: int, turns: int) -> int:
    """Return how many distances of the ring so many turns allow; 0 if not even the first."""
    return min(nodes - 1, turns // nodes)


def server_arguments(address: str, port: int) -> list[str]:
    """Return the words of a receiver that ends after one stream."""
    return ["iperf3", "-s", "-1", "-B", address, "-p", str(port), "--forceflush"]


def client_arguments(
    own: str, address: str, port: int, seconds: int, connections: int
) -> list[str]:
    """Return the words of a sender, from its own address to a receiver's."""
    words = ["iperf3", "-c", address, "-B", own, "-p", str(port), "-t", str(seconds)]
    words += ["-P", str(connections), "-i", "0", "-J", "--connect-timeout", "5000"]
    return words


@dataclass(frozen=True, slots=True)
class _Stream:
    """A stream's report: bytes and seconds as the receiver counted them, and bytes that passed beside: late or again.

    ``cores`` is the share of the cores that iperf3 could use, at the busier end.
    """

    version: str
    received: int
    beside: int
    seconds: float
    began: float
    cores: float


def _stream(report: object, planned: StreamPlan, where: str) -> _Stream:
    if isinstance(report, Mapping) and report.get("error"):
        raise ToolOutputError(
            f"{where}: iperf3 says: {excerpt(str(report['error'])).rstrip(': ')}: the nodes must reach each other on "
            "extras.interface, ports 20000 to 32000; check the firewall"
        )
    start, end = member(report, "start", where), member(report, "end", where)
    version = str(member(start, "version", where)).removeprefix("iperf ")
    asked = member(start, "test_start", where)
    wanted = {
        "duration": planned.seconds,
        "num_streams": planned.connections,
        "reverse": 0,
    }
    for key, want in wanted.items():
        got = non_negative(asked, key, where)
        if got != want:
            raise ToolOutputError(f"{where}: {key} is {got:g}, expected {want}")
    kind = member(asked, "protocol", where)
    if kind != "TCP":
        raise ToolOutputError(
            f"{where}: protocol is {excerpt(repr(kind))}, expected TCP"
        )
    sent, counted = member(end, "sum_sent", where), member(end, "sum_received", where)
    received = positive(counted, "bytes", where)
    seconds = positive(counted, "seconds", where)
    rate = positive(counted, "bits_per_second", where)
    if received > positive(sent, "bytes", where):
        raise ToolOutputError(
            f"{where}: {received:.0f} bytes were received, and fewer sent"
        )
    if abs(received * 8 / seconds - rate) > _TOLERANCE * rate:
        raise ToolOutputError(
            f"{where}: {received:.0f} bytes in {seconds:g} s differ from {rate:.0f} bits/s"
        )
    times = member(start, "timestamp", where)
    used = member(end, "cpu_utilization_percent", where)
    # What the sender's kernel still had at the end passes late, and a link that loses data sends it again.
    beside = sent["bytes"] - received
    if sent.get("retransmits"):
        lost = non_negative(sent, "retransmits", where)
        beside += lost * non_negative(start, "tcp_mss_default", where)
    here, there = "host_total", "remote_total"
    percent = max(non_negative(used, here, where), non_negative(used, there, where))
    threads = 1
    if _threaded(version):
        threads = planned.connections
    cores = percent / 100 / threads
    began = non_negative(times, "timesecs", where)
    return _Stream(version, int(received), int(beside), seconds, began, cores)


def _threaded(version: str) -> bool:
    """Return whether a version has a thread for each connection: 3.16 and later."""
    numbers = re.match(r"(\d{1,4})\.(\d{1,4})", version)
    return numbers is not None and (int(numbers[1]), int(numbers[2])) >= (3, 16)


@dataclass(frozen=True, slots=True)
class Wire:
    """Bytes of a turn at one end: as the receivers say, as the node's interface counted them, and what passed ``beside``.

    The sender says more: it counts what it has given to its kernel, of which some is never sent.
    """

    turn: str
    host: str
    way: End
    claimed: int
    counted: int
    beside: int = 0


def parse(text: str, planned: StreamPlan, max_deviation: float = 0.2) -> ToolOutput:
    """Parse what the job's streams left: one phase, with the rates that the receivers counted.

    ``pair_median`` (MiB/s) is the median of all pairs, ``pair_slowest`` the slowest over the median of those that no
    slow node or link explains: half of all pairs may be those of one node. A pair is slow ``max_deviation`` below the
    others. Its note names who is guilty. ``parameters`` has ``pairs`` (MiB/s by their names) and ``wires``, see :class:`Wire`. ``cores`` is the largest share of the cores that an iperf3 could use. Raises
    :class:`ToolOutputError`, also if a turn is missing.
    """
    try:
        document = untrusted.parse_json(text)
    except ValueError as error:
        raise ToolOutputError(f"streams: {error}") from None
    hosts = member(document, "hosts", "streams")
    done = member(document, "turns", "streams")
    names: list[str] = []
    if isinstance(hosts, list):
        names = list(map(str, hosts))
    if len(set(names)) != planned.nodes:
        raise ToolOutputError(
            f"streams: {excerpt(repr(hosts))}, expected {planned.nodes} hosts"
        )
    turns = planned.turns(names)
    if not isinstance(done, list) or len(done) != len(turns):
        raise ToolOutputError(f"streams: expected {len(turns)} turns in the output")
    pairs: dict[str, float] = {}
    found: list[_Stream] = []
    wires: list[Wire] = []
    for pair, said in zip(turns, done, strict=True):
        name = " to ".join(pair)
        where = f"streams, {name}"
        stream = _stream(member(said, "report", where), planned, where)
        counted = member(said, "counted", where)
        for host, way in zip(pair, ENDS, strict=True):
            passed = int(non_negative(member(counted, host, where), way, where))
            wires.append(Wire(name, host, way, stream.received, passed, stream.beside))
        pairs[name] = stream.received / stream.seconds / 2**20
        found.append(stream)
    slowest = min(pairs, key=lambda name: pairs[name])
    accused = guilty.find([pairs], max_deviation)
    healthy = []
    for name, rate in pairs.items():
        if not any(one.explains(name) for one in accused):
            healthy.append(rate)
    nobody = f"{len(pairs)} pairs, slowest is {slowest}: {format_bytes(pairs[slowest] * 2**20)}/s"
    quantities = {
        PAIR_MEDIAN: Quantity(statistics.median(pairs.values()), "MiB/s"),
        PAIR_SLOWEST: Quantity(pairs[slowest] / statistics.median(healthy), "1"),
    }
    versions = unique(stream.version for stream in found)
    if len(versions) > 1:
        raise ToolOutputError(
            f"streams: iperf3 {' and '.join(versions)}, expected one version"
        )
    received = sum(stream.received for stream in found)
    seconds = sum(stream.seconds for stream in found)
    return ToolOutput(
        tool="iperf3",
        version=versions[0],
        phases=(Phase(PHASE, quantities, seconds, bytes_moved=received),),
        nodes=planned.nodes,
        parameters={
            "pairs": {name: float(f"{rate:.5g}") for name, rate in pairs.items()},
            "wires": tuple(wires),
            "cores": max(stream.cores for stream in found),
        },
        notes={PAIR_SLOWEST: "; ".join(map(str, accused)) or nobody},
        moments=tuple(Moment("timesecs", stream.began) for stream in found),
    )
