"""Streams between the nodes of a job: one process a node, and one that tells them what to do.

``python -m iogauge.job.agent streams PLAN OUT INTERFACE START...`` runs on the first node. It listens on
its address, and starts an agent on each node by the words START, with ``streams join ADDRESS PORT WORD INTERFACE``.
Then it goes through the turns of the plan (:class:`iogauge_extras.ceilings.iperf3.StreamPlan`). The results go to OUT.

All talk is one line of JSON, to and fro. A node ends its iperf3, and then itself, when the connection
closes: nothing outlives the process that tells them, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import json
import os
import random
import shutil
import signal
import socket
import struct
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.text import visible
from iogauge_extras.ceilings.iperf3 import (
    StreamPlan,
    StreamTurn,
    client_arguments,
    server_arguments,
)

#: Seconds for which all nodes may take to join, and an answer may take beside its turn.
_JOIN_S: Final = 60.0
_ANSWER_S: Final = 30.0

#: Share of a turn at each end of which some streams may not run: they begin one after the other.
_ASIDE: Final = 0.2

#: ioctl(2) that tells the IPv4 address of an interface, and prctl(2)'s signal at the parent's death.
_SIOCGIFADDR: Final = 0x8915
_PR_SET_PDEATHSIG: Final = 1

#: Ports of the receivers: below those that the kernel gives to others.
_PORTS: Final = range(20000, 32000)


class StreamsError(OSError):
    """A node did not join, did not answer, or cannot measure; the message says which, and why."""


def _address_of(interface: str) -> str | None:
    """Return the IPv4 address of an interface, or None if it has none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            asked = struct.pack("256s", interface.encode()[:15])
            return socket.inet_ntoa(fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)[20:24])
        except OSError:
            return None


def _place(interface: str) -> tuple[str, str]:
    """Return this node's address and the interface that has it; raises :class:`StreamsError`.

    Without an interface it is the address of the host's name.
    """
    host = os.uname().nodename
    if interface:
        if (address := _address_of(interface)) is None:
            raise StreamsError(
                f"{host}: no IPv4 address on {interface}: name an interface that all nodes have in extras.interface"
            )
        return address, interface
    try:
        address = socket.gethostbyname(host)
    except OSError as error:
        raise StreamsError(
            f"{host}: its name has no IPv4 address ({error.strerror}): name an interface in extras.interface"
        ) from error
    for _, name in socket.if_nameindex():
        if _address_of(name) == address:
            return address, name
    raise StreamsError(
        f"{host}: its name has the address {address}, which no interface has: name one in extras.interface"
    )


# --- the process that tells the nodes -------------------------------------------------------------


class _Line:
    """A connection to a node: a question is a line of JSON, and so is its answer."""

    def __init__(self, connection: socket.socket, host: str = "") -> None:
        self.host = host
        self._socket = connection
        self._file = connection.makefile("rwb")

    def tell(self, **question: Any) -> None:
        """Send a line."""
        self._file.write(json.dumps(question).encode() + b"\n")
        self._file.flush()

    def hear(self, seconds: float) -> dict[str, Any]:
        """Return the next line; raises :class:`StreamsError` if there is none, or it is a complaint."""
        self._socket.settimeout(seconds)
        who = self.host or "a node"
        try:
            line = self._file.readline(64 << 20)
        except OSError as error:
            raise StreamsError(f"{who} did not answer within {seconds:g} s") from error
        if not line:
            raise StreamsError(f"{who} has gone")
        try:
            answer = untrusted.parse_json(line.decode("utf-8", "replace"))
        except ValueError as error:
            raise StreamsError(f"{who} said something else: {error}") from error
        if not isinstance(answer, dict) or "failed" in answer:
            raise StreamsError(str(answer["failed"] if isinstance(answer, dict) else answer))
        return answer


def measure(plan_file: str, out: str, interface: str, start: Sequence[str]) -> None:
    """Measure all turns of a plan, and write what was measured.

    ``start`` are the words that start the agent on every node. Raises OSError or ValueError.
    """
    plan = StreamPlan.from_json(untrusted.read_json(plan_file))
    address, _ = _place(interface)
    word = uuid.uuid4().hex
    with socket.create_server((address, 0)) as listening:
        port = str(listening.getsockname()[1])
        words = [*start, "streams", "join", address, port, word, interface]
        with _ending(subprocess.Popen(words, stdin=subprocess.DEVNULL)) as launched:
            nodes = _joined(listening, plan.nodes, word, launched)
            turns = plan.turns(list(nodes))
            done = [_turn(turn, plan.seconds, plan.connections_of(turn), nodes) for turn in turns]
            for node in nodes.values():
                node.tell(ask="end")
    text = json.dumps({"hosts": sorted(nodes), "turns": done})
    scratch = Path(f"{out}.{os.getpid()}")
    scratch.write_text(text, encoding="utf-8")
    scratch.replace(out)


@contextlib.contextmanager
def _ending(process: subprocess.Popen[bytes]) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process time to end by itself, and end it then."""
    try:
        yield process
        process.wait(_ANSWER_S)
    finally:
        for end in (process.terminate, process.kill):
            if process.poll() is None:
                end()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(5)


def _joined(
    listening: socket.socket, count: int, word: str, launched: subprocess.Popen[bytes]
) -> dict[str, _Line]:
    """Return a connection to each of the nodes, by host."""
    nodes: dict[str, _Line] = {}
    listening.settimeout(1)
    end = time.monotonic() + _JOIN_S
    while len(nodes) < count:
        if launched.poll() is not None or time.monotonic() > end:
            why = "what started them has ended" if launched.poll() is not None else "in time"
            raise StreamsError(
                f"{len(nodes)} of {count} nodes joined ({', '.join(sorted(nodes)) or 'none'}): {why}; read "
                "the lines before this one, and see whether the nodes reach each other on extras.interface"
            )
        with contextlib.suppress(TimeoutError):
            connection, _ = listening.accept()
            line = _Line(connection)
            said = line.hear(_ANSWER_S)
            if said.get("word") != word:
                continue
            line.host = str(said["host"])
            if line.host in nodes:
                raise StreamsError(f"{line.host} joined twice: expected {count} different nodes")
            nodes[line.host] = line
    return nodes


def _turn(
    turn: StreamTurn, seconds: int, connections: int, nodes: dict[str, _Line]
) -> dict[str, Any]:
    """Measure the streams of a turn at the same time; return their reports, and what was counted."""
    to_serve: dict[str, list[str]] = {}
    for sender, receiver in turn.streams:
        to_serve.setdefault(receiver, []).append(sender)
    senders = {sender for sender, _ in turn.streams}
    involved = senders | to_serve.keys()
    for receiver, froms in to_serve.items():
        nodes[receiver].tell(ask="serve", count=len(froms))
    ports: dict[str, dict[str, Any]] = {r: nodes[r].hear(_ANSWER_S) for r in to_serve}
    before = _counted(involved, nodes)
    places: dict[str, list[tuple[str, int]]] = {}
    order: dict[str, list[str]] = {}
    for sender, receiver in turn.streams:
        place = (str(ports[receiver]["address"]), int(ports[receiver]["ports"].pop()))
        places.setdefault(sender, []).append(place)
        order.setdefault(sender, []).append(f"{sender} {receiver}")
    for sender in senders:
        nodes[sender].tell(
            ask="send", places=places[sender], seconds=seconds, connections=connections
        )
    one_receives = len(to_serve) == 1 and len(senders) > 1
    if one_receives:
        (watcher,) = to_serve
        nodes[watcher].tell(ask="watch", seconds=seconds)
    reports: dict[str, Any] = {}
    watched: dict[str, Any] = {}
    for sender in senders:
        answer = nodes[sender].hear(seconds + _ANSWER_S)
        reports.update(zip(order[sender], answer["reports"], strict=True))
        watched[sender] = answer["watched"]
    if one_receives:
        watched[watcher] = nodes[watcher].hear(_ANSWER_S)
    after = _counted(involved, nodes)
    return {
        "streams": reports,
        "watched": watched,
        "counted": {
            host: {way: after[host][way] - before[host][way] for way in ("sent", "received")}
            for host in involved
        },
    }


def _counted(hosts: set[str], nodes: dict[str, _Line]) -> dict[str, dict[str, Any]]:
    for host in hosts:
        nodes[host].tell(ask="count")
    return {host: nodes[host].hear(_ANSWER_S) for host in hosts}


# --- the process on each node ---------------------------------------------------------------------


def _die_with_parent() -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


def _start(words: Sequence[str]) -> subprocess.Popen[str]:
    if shutil.which(words[0]) is None:
        raise StreamsError(
            f"{words[0]} is not on PATH there: expected it on every node; install it (apt install iperf3), or take "
            "the feature iperf3 away from the environment"
        )
    return subprocess.Popen(
        words,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        preexec_fn=_die_with_parent,
    )


@dataclass
class _Node:
    """This node: its address and interface, and the receivers that run."""

    address: str
    interface: str
    receivers: list[subprocess.Popen[str]]

    def serve(self, count: int) -> dict[str, Any]:
        """Start so many receivers; return where they listen."""
        self.end()
        ports = [self._receiver() for _ in range(count)]
        return {"address": self.address, "ports": ports}

    def _receiver(self) -> int:
        said = ""
        for port in random.sample(_PORTS, 5):
            process = _start(server_arguments(self.address, port))
            assert process.stdout is not None
            for said in process.stdout:
                if "Server listening" in said:
                    self.receivers.append(process)
                    return port
                if "error" in said:
                    break
            process.kill()
            process.wait()
        raise StreamsError(f"{os.uname().nodename}: iperf3 does not listen: {said.strip()[:200]}")

    def send(
        self, places: Sequence[tuple[str, int]], seconds: int, connections: int
    ) -> dict[str, Any]:
        """Send to all places at once; return iperf3's reports in their order."""
        senders = [
            _start(client_arguments(self.address, to, port, seconds, connections))
            for to, port in places
        ]
        watched = self.watch(seconds)
        texts = [sender.communicate()[0] for sender in senders]
        return {"reports": [self._report(text) for text in texts], "watched": watched}

    def watch(self, seconds: int) -> dict[str, Any]:
        """Return the bytes/s on the interface in the middle of a turn, in which all streams run."""
        aside = _ASIDE * seconds
        time.sleep(aside)
        before, began = self.count(), time.monotonic()
        time.sleep(seconds - 2 * aside)
        after, ended = self.count(), time.monotonic()
        return {way: (after[way] - before[way]) / (ended - began) for way in before}

    def _report(self, text: str) -> Any:
        try:
            return untrusted.parse_json(text[text.index("{") :])
        except ValueError:
            raise StreamsError(
                f"{os.uname().nodename}: iperf3 left no report: {text.strip()[:200]}"
            ) from None

    def count(self) -> dict[str, Any]:
        """Return the bytes that the kernel counted on the interface."""
        # Not /sys: in a container it may show the interfaces of another network.
        for line in Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == self.interface:
                words = numbers.split()
                return {"received": int(words[0]), "sent": int(words[8])}
        raise StreamsError(f"{os.uname().nodename}: /proc/net/dev has no {self.interface}")

    def end(self) -> None:
        """End the receivers that still run, and forget all."""
        for process in self.receivers:
            process.kill()
            process.communicate()
        self.receivers.clear()


def join(address: str, port: str, word: str, interface: str) -> None:
    """Do what the first node asks, until it says that it is the end, or has gone."""
    host = os.uname().nodename
    with socket.create_connection((address, int(port)), timeout=_JOIN_S) as connection:
        connection.settimeout(None)
        lines = connection.makefile("rwb")

        def answer(**values: Any) -> None:
            lines.write(json.dumps(values).encode() + b"\n")
            lines.flush()

        answer(word=word, host=host)
        node = None
        try:
            node = _Node(*_place(interface), receivers=[])
            for line in lines:
                match untrusted.parse_json(line.decode("utf-8", "replace")):
                    case {"ask": "serve", "count": int(count)}:
                        answer(**node.serve(count))
                    case {
                        "ask": "send",
                        "places": list(places),
                        "seconds": int(seconds),
                        "connections": int(connections),
                    }:
                        to = [(str(host), int(at)) for host, at in places]
                        answer(**node.send(to, seconds, connections))
                    case {"ask": "watch", "seconds": int(seconds)}:
                        answer(**node.watch(seconds))
                    case {"ask": "count"}:
                        answer(**node.count())
                    case _:
                        return
        except (OSError, ValueError) as error:
            print(visible(f"iogauge: streams: {error}"), file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                answer(failed=f"{host}: {error}")
        finally:
            if node:
                node.end()


def command(words: list[str]) -> int | None:
    """Measure streams between nodes, or join those who do; return None for other words."""
    match words:
        case ["join", address, port, word, interface]:
            join(address, port, word, interface)
            return 0
        case [plan_file, out, interface, *start]:
            measure(plan_file, out, interface, start)
            return 0
    return None
