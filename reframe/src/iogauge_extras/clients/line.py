"""Clients on several nodes that one process starts by a launcher and then talks to: all talk is lines of JSON.

A client ends when its connection closes: nothing outlives the process that started it, however that ends.
"""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import tempfile
import time
import uuid
from collections.abc import Iterator, Sequence
from typing import Any

from iogauge.core import untrusted
from iogauge.core.text import because, visible
from iogauge.job.server import address_of

#: Seconds for which all clients may take to join, and the first line of one may take.
_JOIN_S = 60.0
_FIRST_LINE_S = 5.0
#: Seconds in which a client must answer, and in which all must end when nobody asks them any more.
ANSWER_S = 30.0
_END_S = 10.0

#: The longest line.
_MOST_BYTES = 64 << 20

#: Starts what follows twice on a host.
_TWICE = ("sh", "-c", '"$@" & "$@"; wait', "sh")


class NodeError(OSError):
    """A client did not join, or did not answer; the message says which, and why."""


class Line:
    """A connection to the client on a host, or on its side to who has started it."""

    def __init__(self, connection: socket.socket, host: str = "the other end") -> None:
        self.host = host
        self.connection = connection
        self._file = connection.makefile("rwb")

    def ask(self, method: str, *words: object, before: Sequence[object] = ()) -> None:
        """Ask a client for what a method of it returns; ``before`` is what all answered to the step before."""
        self.tell([method, words, before])

    def tell(self, value: object) -> None:
        """Send a line."""
        self._file.write(json.dumps(value).encode() + b"\n")
        self._file.flush()

    def hear(self, seconds: float | None = ANSWER_S) -> Any:
        """Return the next line; raises :class:`NodeError` if there is none."""
        self.connection.settimeout(seconds)
        try:
            line = self._file.readline(_MOST_BYTES)
            if line:
                return untrusted.parse_json(line.decode("utf-8", "replace"))
        except TimeoutError as error:
            raise NodeError(f"{self.host} did not answer in {seconds:g} s") from error
        except ValueError as error:
            raise NodeError(f"{self.host} said something else: {error}") from error
        raise NodeError(f"{self.host} has gone")


@contextlib.contextmanager
def started(
    launch: Sequence[str], client: Sequence[str], count: int, interface: str
) -> Iterator[dict[str, Line]]:
    """Start so many clients, but two instead of a single one; yield the connections by host, and end the clients.

    ``launch`` are the words of a launcher, and ``client`` those that start one; they get an address, a port and a password behind them. They share no stream with
    this process: a client that hangs on dead storage must keep nobody waiting. Raises :class:`NodeError` if they do not all
    join, with the last line that they complained of.
    """
    if count == 1:
        launch, count = [*launch, *_TWICE], 2
    password = uuid.uuid4().hex
    address = address_of(interface)
    with (
        socket.create_server((address, 0)) as listening,
        tempfile.TemporaryFile() as errors,
    ):
        port = str(listening.getsockname()[1])
        launched = subprocess.Popen(
            [*launch, *client, address, port, password],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=errors,
            start_new_session=True,
        )
        lines: dict[str, Line] = {}
        try:
            lines = _joined(listening, count, password, launched)
            yield lines
        except NodeError as error:
            errors.seek(0)
            # Open MPI puts its complaints between rows of dashes.
            said = re.findall(r".*\w.*", errors.read().decode("utf-8", "replace"))
            raise NodeError(f"{error}{because(visible(''.join(said[-1:])))}") from error
        finally:
            for line in lines.values():
                with contextlib.suppress(OSError):
                    line.connection.shutdown(socket.SHUT_RDWR)
            with contextlib.suppress(subprocess.TimeoutExpired):
                launched.wait(_END_S)
            for number in (signal.SIGTERM, signal.SIGKILL):
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(launched.pid, number)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    launched.wait(5)


def _joined(
    listening: socket.socket,
    count: int,
    password: str,
    launched: subprocess.Popen[bytes],
) -> dict[str, Line]:
    """Return the connections by host; of several clients on one host, all but the first have a number behind it."""
    lines: dict[str, Line] = {}
    listening.settimeout(1)
    end = time.monotonic() + _JOIN_S
    while len(lines) < count:
        if launched.poll() is not None or time.monotonic() > end:
            raise NodeError(
                f"{len(lines)} of {count} clients joined ({', '.join(sorted(lines)) or 'none'}): see whether the nodes reach "
                "each other on extras.interface"
            )
        # Others may knock, too: a scanner of ports says nothing, or something else.
        with contextlib.suppress(TimeoutError, NodeError):
            line = Line(listening.accept()[0])
            match line.hear(_FIRST_LINE_S):
                case [given, str(host)] if given == password:
                    same = sum(name.partition("#")[0] == host for name in lines)
                    line.host = f"{host}#{same + 1}" if same else host
                    lines[line.host] = line
    return lines


def join(address: str, port: str, password: str) -> Line:
    """Return this client's connection to who has started it."""
    line = Line(socket.create_connection((address, int(port)), timeout=_JOIN_S))
    line.tell([password, os.uname().nodename])
    return line
