"""Streams between the nodes of a job: one process a node, and one that tells them what to do.

``agent.sh PYTHON streams PLAN OUT INTERFACE START...`` runs on the first node. It listens on
its address, and starts an agent on each node by the words START, with ``streams join ADDRESS PORT WORD INTERFACE``.
Then it goes through the turns of the plan (:class:`iogauge_extras.ceilings.iperf3.StreamPlan`). The results go to OUT.

All talk is one line of JSON, to and fro. A node ends its iperf3, and then itself, when the connection
closes: nothing outlives the process that tells them, however that ends.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iogauge.core import untrusted
from iogauge.core.text import visible
from iogauge.job.server import address_of
from iogauge_extras.ceilings.iperf3 import (
    StreamPlan,
    client_arguments,
    server_arguments,
)

#: Seconds for which all nodes may take to join, and an answer may take beside its turn.
_JOIN_S: Final = 60.0
_ANSWER_S: Final = 30.0

#: prctl(2)'s signal at the parent's death.
_PR_SET_PDEATHSIG: Final = 1

#: Ports of the receivers: below those that the kernel gives to others.
_PORTS: Final = range(20000, 32000)


class StreamsError(OSError):
    """A node did not join, did not answer, or cannot measure; the message says which, and why."""


def _place(interface: str) -> tuple[str, str]:
    """Return this node's address and the interface that has it; raises OSError.

    Without an interface it is the address of the host's name.
    """
    address = address_of(interface)
    for _, name in socket.if_nameindex():
        with contextlib.suppress(OSError):
            if interface in ("", name) and address_of(name) == address:
                return address, name
    raise StreamsError(
        f"{os.uname().nodename}: no interface has {address}: name one that all nodes have in extras.interface"
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

    def ask(
        self, what: str, within: float = _ANSWER_S, /, **words: Any
    ) -> dict[str, Any]:
        """Ask for something; return the answer, as :meth:`hear` does."""
        self.tell(ask=what, **words)
        return self.hear(within)

    def hear(self, seconds: float | None) -> dict[str, Any]:
        """Return the next line; raises :class:`StreamsError` if there is none, or it is a complaint."""
        self._socket.settimeout(seconds)
        who = self.host or "the other end"
        try:
            line = self._file.readline(64 << 20)
        except OSError as error:
            raise StreamsError(f"{who} did not answer within {seconds} s") from error
        if not line:
            raise StreamsError(f"{who} has gone")
        try:
            answer = untrusted.parse_json(line.decode("utf-8", "replace"))
        except ValueError as error:
            raise StreamsError(f"{who} said something else: {error}") from error
        if not isinstance(answer, dict):
            raise StreamsError(str(answer))
        if "failed" in answer:
            raise StreamsError(str(answer["failed"]))
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
            done = [_turn(nodes[sender], nodes[to], plan) for sender, to in turns]
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
            raise StreamsError(
                f"{len(nodes)} of {count} nodes joined ({', '.join(sorted(nodes)) or 'none'}): read the lines before "
                "this one, and see whether the nodes reach each other on extras.interface"
            )
        with contextlib.suppress(TimeoutError):
            line = _Line(listening.accept()[0])
            said = line.hear(_ANSWER_S)
            if said.get("word") == word:
                line.host = str(said["host"])
                nodes[line.host] = line
    return nodes


def _turn(sender: _Line, receiver: _Line, plan: StreamPlan) -> dict[str, Any]:
    """Measure the stream of a pair; return its report, and what both ends counted."""
    place = receiver.ask("serve")
    how = {"seconds": plan.seconds, "connections": plan.connections}
    sent = sender.ask("send", plan.seconds + _ANSWER_S, **place, **how)
    received = receiver.ask("served")
    counted = {sender.host: sent["counted"], receiver.host: received["counted"]}
    return {"report": sent["report"], "counted": counted}


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
    """This node: its address and interface, the receiver that runs, and what was counted before it."""

    address: str
    interface: str
    receiver: subprocess.Popen[str] | None = None
    before: dict[str, int] = field(default_factory=dict)

    def serve(self) -> dict[str, Any]:
        """Start a receiver, and count what passed so far; return where it listens."""
        said = ""
        for port in random.sample(_PORTS, 5):
            self.end()
            self.receiver = _start(server_arguments(self.address, port))
            assert self.receiver.stdout is not None
            for said in self.receiver.stdout:
                if "Server listening" in said:
                    self.before = self.count()
                    return {"address": self.address, "port": port}
                if "error" in said:
                    break
        raise StreamsError(
            f"{os.uname().nodename}: iperf3 does not listen: {said.strip()[:200]}"
        )

    def served(self) -> dict[str, Any]:
        """Wait for the receiver; return what the interface counted meanwhile."""
        if self.receiver:
            self.receiver.communicate(timeout=_ANSWER_S)
        return {"counted": self._grown()}

    def send(
        self, address: str, port: int, seconds: int, connections: int
    ) -> dict[str, Any]:
        """Send to a place; return iperf3's report, and what the interface counted meanwhile."""
        self.before = self.count()
        words = client_arguments(self.address, address, port, seconds, connections)
        report = _report(_start(words).communicate()[0])
        return {"report": report, "counted": self._grown()}

    def _grown(self) -> dict[str, int]:
        after = self.count()
        return {way: after[way] - self.before[way] for way in after}

    def count(self) -> dict[str, int]:
        """Return the bytes that the kernel counted on the interface."""
        # Not /sys: in a container it may show the interfaces of another network.
        for line in Path("/proc/net/dev").read_text(encoding="utf-8").splitlines():
            name, _, numbers = line.partition(":")
            if name.strip() == self.interface:
                words = numbers.split()
                return {"received": int(words[0]), "sent": int(words[8])}
        raise StreamsError(
            f"{os.uname().nodename}: /proc/net/dev has no {self.interface}"
        )

    def end(self) -> None:
        """End the receiver if it still runs."""
        if self.receiver:
            self.receiver.kill()
            self.receiver.communicate()
            self.receiver = None


def _report(text: str) -> Any:
    try:
        return untrusted.parse_json(text[text.index("{") :])
    except ValueError:
        said = text.strip()[:200]
        raise StreamsError(
            f"{os.uname().nodename}: iperf3 left no report: {said}"
        ) from None


def join(address: str, port: str, word: str, interface: str) -> None:
    """Do what the first node asks, until it says that it is the end, or has gone."""
    host = os.uname().nodename
    with (
        socket.create_connection((address, int(port)), timeout=_JOIN_S) as connection,
        contextlib.ExitStack() as leaving,
    ):
        line = _Line(connection)
        line.tell(word=word, host=host)
        try:
            node = _Node(*_place(interface))
            leaving.callback(node.end)
            able: dict[str, Callable[..., dict[str, Any]]]
            able = {"serve": node.serve, "served": node.served, "send": node.send}
            while True:
                words = line.hear(None)
                asked = able.get(words.pop("ask", ""))
                if asked is None:
                    break
                line.tell(**asked(**words))
        except (OSError, ValueError, TypeError, subprocess.TimeoutExpired) as error:
            print(visible(f"iogauge: streams: {error}"), file=sys.stderr, flush=True)
            with contextlib.suppress(OSError):
                line.tell(failed=f"{host}: {error}")


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
