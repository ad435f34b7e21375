"""What clients must agree on: each question is a function that all clients run at once, and its first line a sentence.

It returns what does not hold on this client, or nothing. Clients wait for each other by :meth:`Seat.gather`.
"""

from __future__ import annotations

import contextlib
import fcntl
import mmap
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from iogauge_extras.clients.line import Line

#: Bytes of a file, appended lines of a client, names that all try to make.
_SIZE: Final = 1 << 20
_LINES: Final = 200
_NAMES: Final = 50

#: Seconds after which a file of another client counts as seen at once, for which it is looked for, and for which a free lock is.
_AT_ONCE_S: Final = 1.0
_FIND_S: Final = 5.0
_FREE_S: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Seat:
    """One of the clients that work in one directory."""

    line: Line
    directory: str
    name: str
    #: Names of all clients.
    names: Sequence[str]
    #: Names in the directory that is listed while others make files.
    entries: int

    @property
    def is_first(self) -> bool:
        """Return whether this client begins."""
        return self.name == self.names[0]

    def path(self, name: str) -> str:
        """Return the path of a file in the directory."""
        return f"{self.directory}/{name}"

    def gather(self, value: object = None) -> Mapping[str, Any]:
        """Wait until all have come here; return what each of them gave, by name."""
        self.line.tell({"value": value})
        gathered: Mapping[str, Any] = self.line.hear(None)
        return gathered


def _content(seed: str, size: int = _SIZE) -> bytes:
    """Return the content that a file of this seed must have."""
    return random.Random(seed).randbytes(size)


def _write(path: str, seed: str, size: int = _SIZE) -> None:
    with open(path, "wb") as file:
        file.write(_content(seed, size))
        file.flush()
        os.fsync(file.fileno())


def _rename(own: Seat) -> str:
    """A file that one client wrote, synced and renamed is seen by the others whole and at once."""
    path = own.path("renamed")
    # Who looked in vain before may remember that.
    os.path.exists(path)
    own.gather()
    if own.is_first:
        _write(f"{path}.new", "renamed")
        os.rename(f"{path}.new", path)
    own.gather()
    begun = time.monotonic()
    while time.monotonic() - begun < _FIND_S:
        with contextlib.suppress(FileNotFoundError):
            found = Path(path).read_bytes()
            seconds = time.monotonic() - begun
            if found != _content("renamed"):
                return f"saw other content, of {len(found)} bytes"
            if seconds > _AT_ONCE_S:
                return f"did not see it before {seconds:.1f} s"
            return ""
        time.sleep(0.01)
    return f"did not see it in {_FIND_S:g} s"


def _append(own: Seat) -> str:
    """Lines that all append at once (O_APPEND) are all there, and whole."""
    path = own.path("appended")
    with open(path, "ab", buffering=0) as file:
        for number in range(_LINES):
            file.write(f"{own.name} {number} ".ljust(63, ".").encode() + b"\n")
        os.fsync(file.fileno())
    own.gather()
    found = set(Path(path).read_text(errors="replace").split("\n")[:-1])
    lost = []
    for name in own.names:
        for number in range(_LINES):
            line = f"{name} {number} ".ljust(63, ".")
            if line not in found:
                lost.append(f"{name} {number}")
            found.discard(line)
    if lost or found:
        return f"reads {len(found)} torn lines, and {len(lost)} of {_LINES * len(own.names)} not at all: {' '.join(lost[:1])}"
    return ""


def _lock(file: IO[bytes], take: Callable[..., object]) -> bool:
    """Lock a file unless somebody else has; return whether it is locked now."""
    with contextlib.suppress(BlockingIOError):
        take(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    return False


def _locks(own: Seat, take: Callable[..., object]) -> str:
    with open(own.path(take.__name__), "wb") as file:
        if own.is_first:
            _lock(file, take)
        own.gather()
        if not own.is_first and _lock(file, take):
            return f"got the lock that {own.names[0]} held"
        own.gather()
        if own.is_first:
            take(file, fcntl.LOCK_UN)
        begun = time.monotonic()
        while not _lock(file, take):
            if time.monotonic() - begun > _FREE_S:
                return "cannot get a lock that is free"
            time.sleep(0.01)
    return ""


def _flock(own: Seat) -> str:
    """A lock by flock(2) on one client excludes the others."""
    return _locks(own, fcntl.flock)


def _fcntl(own: Seat) -> str:
    """A lock by fcntl(2) on one client excludes the others."""
    return _locks(own, fcntl.lockf)


def _exclusive(own: Seat) -> str:
    """Of all who make a name with O_EXCL at once, one wins."""
    won = []
    for number in range(_NAMES):
        with contextlib.suppress(FileExistsError):
            open(own.path(f"won.{number}"), "xb").close()
            won.append(number)
    winners: Counter[int] = Counter()
    for numbers in own.gather(won).values():
        winners.update(numbers)
    wrong = [number for number in range(_NAMES) if winners[number] != 1]
    return f"{len(wrong)} of {_NAMES} names had no winner, or several" if wrong else ""


def _unlinked(own: Seat) -> str:
    """A file that another client removed stays readable for those who have it open."""
    path = own.path("unlinked")
    if own.is_first:
        _write(path, "unlinked")
        own.gather()
        # A client of NFS keeps a file that it has open itself.
        own.gather()
        os.unlink(path)
        own.gather()
        return ""
    own.gather()
    with open(path, "rb") as file:
        own.gather()
        own.gather()
        right = file.read() == _content("unlinked")
    return "" if right else "read other content"


def _stat(path: str) -> list[int]:
    """Return size and time of a file, opened anew: close-to-open."""
    with open(path, "rb") as file:
        status = os.fstat(file.fileno())
    return [status.st_size, status.st_mtime_ns]


def _times(own: Seat) -> str:
    """All clients see the same size and time of change of a file that was written again."""
    path = own.path("times")
    if own.is_first:
        _write(path, "times", 12345)
    own.gather()
    _stat(path)
    own.gather()
    if own.is_first:
        _write(path, "more", 54321)
    own.gather()
    seen = own.gather(_stat(path))
    first, mine = seen.get(own.names[0]), seen[own.name]
    return "" if mine == first else f"sees {mine}, {own.names[0]} sees {first}"


def _mapped(own: Seat) -> str:
    """What one client writes, another reads through mmap(2), and the other way round."""
    path = own.path("mapped")
    other = own.names[own.names.index(own.name) - 1]
    _write(f"{path}.{own.name}", own.name)
    own.gather()
    with (
        open(f"{path}.{other}", "r+b") as file,
        mmap.mmap(file.fileno(), _SIZE) as mapped,
    ):
        if mapped[:] != _content(other):
            return f"maps other content than {other} wrote"
        mapped[:] = _content(f"{other} again")
        mapped.flush()
    own.gather()
    if Path(f"{path}.{own.name}").read_bytes() != _content(f"{own.name} again"):
        return "does not read what was written through a mapping"
    return ""


def _fill(path: str, count: int) -> None:
    for number in range(count):
        open(f"{path}.{number}", "wb").close()


def _listing(own: Seat) -> str:
    """A directory of many names lists whole while others make files in it."""
    path = own.path("many")
    os.makedirs(path, exist_ok=True)
    share = own.entries // len(own.names)
    _fill(f"{path}/{own.name}", share)
    own.gather()
    if not own.is_first:
        _fill(f"{path}/more.{own.name}", share // 10)
        return ""
    listed = os.listdir(path)
    names = set(listed)
    lacking = 0
    for name in own.names:
        lacking += sum(f"{name}.{number}" not in names for number in range(share))
    if lacking or len(names) < len(listed):
        return f"{lacking} names lack, {len(listed) - len(names)} come twice, of {len(listed)}"
    return ""


QUESTIONS: Final[Mapping[str, Callable[[Seat], str]]] = {
    "rename": _rename,
    "append": _append,
    "flock": _flock,
    "fcntl": _fcntl,
    "exclusive": _exclusive,
    "unlinked": _unlinked,
    "times": _times,
    "mmap": _mapped,
    "listing": _listing,
}
