"""A server of fio on this node.

It listens on the address of one interface alone: it runs any job that anybody sends.
"""

import contextlib
import fcntl
import os
import socket
import struct
import subprocess
import time
import uuid
from pathlib import Path

from iogauge.core import processes

_SIOCGIFADDR = 0x8915
#: Attempts to find a free port, seconds that a server may take to listen, and to end.
_ATTEMPTS = 5
_LISTENS_S = 4.0
_ENDS_S = 1.0


def address_of(interface: str) -> str:
    """Return the IPv4 address of an interface, or of the host's name; raises OSError."""
    host = os.uname().nodename
    try:
        if interface:
            with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
                request = struct.pack("256s", interface.encode()[:15])
                return socket.inet_ntoa(fcntl.ioctl(one, _SIOCGIFADDR, request)[20:24])
        found = socket.getaddrinfo(host, None, socket.AF_INET)[0][4][0]
    except OSError as error:
        what = interface or "the name of the host"
        raise OSError(
            f"no IPv4 address of {what}: name an interface that all nodes have in extras.interface"
        ) from error
    if found == "0.0.0.0":
        raise OSError(
            "the name of the host has the address 0.0.0.0, which is every interface: name one in extras.interface"
        )
    return str(found)


class Server:
    """A running server. Its jobs have sessions of their own and outlive it: their environment identifies them."""

    def __init__(self, program: str, interface: str) -> None:
        """Start a server on a free port; raises OSError that says why there is none."""
        self._name = os.path.basename(program)
        address = address_of(interface)
        for _ in range(_ATTEMPTS):
            self._token = uuid.uuid4().hex
            # Below 32768 the kernel assigns no ports to others.
            port = 20000 + int(self._token, 16) % 12000
            if _listeners(port) == 0 and self._starts(program, address, port):
                self.address = f"{address},{port}"
                return
        raise OSError(f"{program} does not listen on {address}")

    def _starts(self, program: str, address: str, port: int) -> bool:
        """Start it; return whether it alone listens there. fio lets several servers of a user share a port."""
        environment = os.environ | {"IOG_SERVER": self._token}
        self._process = subprocess.Popen(
            [program, f"--server=ip:{address},{port}"],
            stdin=subprocess.DEVNULL,
            env=environment,
        )
        deadline = time.monotonic() + _LISTENS_S
        while time.monotonic() < deadline and self.runs() and not _listeners(port):
            time.sleep(0.1)
        # Two listeners would be ours and another job's, started at the same time.
        if self.runs() and _listeners(port) == 1:
            return True
        self.end()
        return False

    @property
    def pid(self) -> int:
        """Return its process."""
        return self._process.pid

    def runs(self) -> bool:
        """Return whether it still runs."""
        return self._process.poll() is None

    def end(self) -> None:
        """End the server and all of its jobs; raises OSError if they do not end."""
        self._process.kill()
        _, left = processes.kill(f"IOG_SERVER={self._token}".encode(), _ENDS_S)
        self._process.poll()
        if left:
            raise OSError(
                f"{self._name} does not end: processes {' '.join(map(str, left))}"
            )


def _listeners(port: int) -> int:
    """Return how many sockets of this node listen on a port (proc_net_tcp.rst: state 0A)."""
    found = 0
    for name in ("/proc/net/tcp", "/proc/net/tcp6"):
        with contextlib.suppress(OSError):
            lines = (line.split() for line in Path(name).read_text().splitlines()[1:])
            found += sum(w[1].endswith(f":{port:04X}") and w[3] == "0A" for w in lines)
    return found
