"""``reframe`` and ``iogauge`` without the start of an interpreter: forks of a process that has imported both.

Most of a short run is the import of ReFrame (about 1 s of CPU time). A fork of a process that has done nothing but
that import is the command itself from there on: its own main function, environment, arguments, session, exit status.
Below ``nsenter`` or ``unshare`` the fork joins the namespaces that these make.
A command starts cold if its environment could change an import, or if its rig is ``cold``. ``IOGAUGE_TEST_COLD=1`` starts
all of them cold.
"""

from __future__ import annotations

import array
import contextlib
import functools
import json
import os
import re
import selectors
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

from support.project import ROOT, TESTS

_SERVER = TESTS / "support" / "warm_server.py"
#: Room for arguments and environment of a command, which /proc shows in place of the server's.
_ROOM_BYTES = 100_000
#: Variables that are read after the import. All others could change what an import does.
_READ_LATE = re.compile(
    r"(RFM|IOGAUGE|OMPI|PRTE|SLURM|REPLAY|LFS|PYTEST)_\w+|PATH|PYTHONPATH|TMPDIR"
)


_COMMANDS = ("reframe", "iogauge")
_ONE_AT_A_TIME = threading.Lock()


class Process:
    """What tests use of :class:`subprocess.Popen`, for a command that another process forks."""

    def __init__(self, pid, output, status):
        self.pid = pid
        self.stdout = os.fdopen(output, encoding="utf-8", errors="replace")
        self.returncode: int | None = None
        self._status = status
        self._read = b""

    def wait(self, timeout=None):
        """Wait for the end; raises TimeoutExpired."""
        if self.returncode is None:
            with selectors.DefaultSelector() as selector:
                selector.register(self._status, selectors.EVENT_READ)
                if not selector.select(timeout):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
            try:
                line = _line(self._status)
            except EOFError:
                text = self._read.decode("utf-8", "replace")
                raise AssertionError(f"the command did not begin:\n{text}") from None
            self.returncode = os.waitstatus_to_exitcode(int(line))
            os.close(self._status)
        return self.returncode

    def poll(self):
        """The exit status; None while the command runs."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            return self.wait(0)
        return None

    def communicate(self, timeout=None):
        """Wait for the end and return all output; raises TimeoutExpired, and may then be called again."""
        end = None if timeout is None else time.monotonic() + timeout
        number = self.stdout.fileno()
        with selectors.DefaultSelector() as selector:
            selector.register(number, selectors.EVENT_READ)
            while True:
                if not selector.select(
                    None if end is None else max(0.0, end - time.monotonic())
                ):
                    raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
                block = os.read(number, 1 << 16)
                if not block:
                    break
                self._read += block
        self.wait(None if end is None else max(0.0, end - time.monotonic()))
        self.stdout.close()
        text = self._read.decode("utf-8", "replace")
        return text.replace("\r\n", "\n").replace("\r", "\n"), None


def _line(descriptor):
    text = b""
    while not text.endswith(b"\n"):
        byte = os.read(descriptor, 1)
        if not byte:
            raise EOFError("the process that forks commands has ended")
        text += byte
    return text


class Server:
    """The process that forks."""

    def __init__(self):
        ours, theirs = socket.socketpair()
        self.environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        source = ROOT / "reframe" / "src"
        words = [sys.executable, str(_SERVER), str(theirs.fileno()), str(source)]
        room = "-" * _ROOM_BYTES
        subprocess.run(
            [*words, room],
            env={
                k: v for k, v in self.environment.items() if not _READ_LATE.fullmatch(k)
            }
            | {"PATH": self.environment["PATH"], "IOGAUGE_ROOM": room},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            check=True,
            pass_fds=[theirs.fileno()],
            start_new_session=True,
        )
        theirs.close()
        self._control = ours

    def suits(self, environment):
        """Whether an environment is the server's in all that an import may have read."""
        names = {*environment, *self.environment}
        return all(
            environment.get(name) == self.environment.get(name)
            for name in names
            if not _READ_LATE.fullmatch(name)
        )

    def start(
        self,
        words,
        cwd,
        environment,
        like=0,
    ):
        """Start ``reframe`` or ``iogauge`` with arguments, in the namespaces of the process ``like`` if one is named."""
        name, *arguments = words
        script = Path(sys.executable).with_name(name)
        told = {
            "name": name,
            "argv": [str(script), *arguments],
            "shown": [sys.executable, str(script), *arguments],
            "path": str(script.parent),
            "cwd": str(cwd),
            "environment": environment,
            "like": like,
        }
        text = json.dumps(told).encode()
        output, their_output = os.pipe()
        status, their_status = os.pipe()
        ends = array.array("i", [their_output, their_status])
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, ends)]
        with _ONE_AT_A_TIME:
            self._control.sendmsg([b"%8d" % len(text)], rights)
            self._control.sendall(text)
        os.close(their_output)
        os.close(their_status)
        return Process(int(_line(status)), output, status)


@functools.cache
def _server():
    return Server()


def server():
    """The only server of this process; it ends when this process does. Threads share it."""
    with _ONE_AT_A_TIME:
        return _server()


def start(words, cwd, environment):
    """Start a command by a fork, also below ``nsenter`` or ``unshare``; None if it must start cold."""
    at = next((n for n, word in enumerate(words) if word in _COMMANDS), None)
    if at is None or not hasattr(os, "pidfd_open") or not server().suits(environment):
        return None
    if at == 0:
        return server().start(words, cwd, environment)
    if words[0] not in ("nsenter", "unshare"):
        return None
    # It holds the namespaces until the fork has joined them.
    holder = subprocess.Popen(
        [*words[:at], "sh", "-c", "echo ready; exec cat"],
        cwd=cwd,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with holder:
        assert holder.stdout is not None
        ready = holder.stdout.readline() == "ready\n"
        return (
            server().start(words[at:], cwd, environment, holder.pid) if ready else None
        )
