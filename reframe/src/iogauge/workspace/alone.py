"""One case at a time on the disks of a node, whatever its target's directory.

Two targets may be directories of one file system, or two file systems of one disk. The locks of their directories are separate
(:mod:`iogauge.workspace.lock`). So a case also takes a name for each disk, or for the file system if no disk is seen.
The names lie in the kernel's space of abstract sockets (unix(7)). This needs no directory and no right, and the name
ends with its process. It holds among the processes of one network namespace: other nodes do not see it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import pwd
import socket
import struct
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from iogauge.core.units import format_seconds
from iogauge.node.view import View
from iogauge.workspace.lock import LockError, Occupied

_PREFIX: Final = b"\0iogauge-"
_MOST_BYTES: Final = 80
_LOOK_S: Final = 1.0
_MESSAGE_S: Final = 30.0
#: Waiting processes that may ask a holder who it is; the others learn no name.
_WAITING: Final = 128
_CREDENTIALS: Final = struct.Struct("iII")


def names(view: View) -> tuple[str, ...]:
    """Return what a case on a target needs for itself, always in one order; empty if nothing is known."""
    disks = tuple(sorted(f"disk {number}" for number in set(view.below.disks)))
    return disks or ((f"file system {view.uuid}",) if view.uuid else ())


@contextlib.contextmanager
def alone(
    wanted: Sequence[str],
    *,
    wait_s: float,
    pause: Callable[[float], bool],
    say: Callable[[str], None],
) -> Iterator[None]:
    """Wait for all names, and hold them.

    ``pause`` sleeps for a number of seconds; it returns True to end the wait. Raises
    :class:`~iogauge.workspace.lock.Occupied` after ``wait_s`` seconds,
    :class:`~iogauge.workspace.lock.LockError` if the wait was ended.
    """
    start, last_message = time.monotonic(), -_MESSAGE_S
    with contextlib.ExitStack() as held:
        for name in wanted:
            while not _take(name, held):
                waited = time.monotonic() - start
                if waited >= wait_s:
                    raise Occupied(
                        f"after {format_seconds(waited)} of waiting {_shown(name)} of this node, on which the target lies, "
                        f"is in use by another case of this suite: {_holder(name)}"
                    )
                if waited - last_message >= _MESSAGE_S:
                    say(
                        f"waiting for {_shown(name)}, in use by {_holder(name)}, {waited:.0f} of at most {wait_s:.0f} s"
                    )
                    last_message = waited
                if pause(_LOOK_S):
                    raise LockError("what waited for the lock has ended")
        yield


def _address(name: str) -> bytes:
    """Return the abstract address of a name. An address has 107 bytes at most; a long name is cut and has a checksum."""
    text = name.encode(errors="surrogateescape")
    return _PREFIX + (
        text if len(text) <= _MOST_BYTES else b"%b-%08x" % (text[:_MOST_BYTES], zlib.crc32(text))
    )


def _take(name: str, held: contextlib.ExitStack) -> bool:
    """Take a name until ``held`` is closed; return False if another process has it."""
    with contextlib.ExitStack() as mine:
        own = mine.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        try:
            own.bind(_address(name))
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            return False
        own.listen(_WAITING)
        held.push(mine.pop_all())
    return True


def _shown(name: str) -> str:
    """Return a name as people know it: ``disk /dev/vda`` for ``disk 254:0``."""
    kind, _, number = name.partition(" ")
    with contextlib.suppress(OSError, ValueError):
        link = os.readlink(f"/sys/dev/block/{number}") if kind == "disk" else ""
        return f"disk /dev/{os.path.basename(link)}" if link else name
    return name


def _holder(name: str) -> str:
    """Return the process that has a name, and its user."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_address(name))
            told = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return "a process that cannot be seen"
    pid, uid, _ = _CREDENTIALS.unpack(told)
    with contextlib.suppress(KeyError):
        return f"process {pid} of user {pwd.getpwuid(uid).pw_name}"
    return f"process {pid} of user {uid}"
