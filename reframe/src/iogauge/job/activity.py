"""When bytes moved and files appeared: counters of the target on the first node, several times a second.

They are those of block devices, of the client of NFS, or of Lustre's client if root runs the job. Some file systems say
at any time how many inodes and bytes are in use; then these are counted too.

A tool's seconds are its own word. Counters of the kernel say when its bytes really moved. The agent
that keeps the target's lock writes them down for as long as the job lasts.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Final

from iogauge.node import lustre
from iogauge.node.mounts import unescape
from iogauge.plan.stage import (
    ACTIVITY,
    CLOSE_FOR_S,
    CLOSE_S,
    FOUND,
    MOST_FOUND,
    PAUSE_S,
    STARTING_FOR_S,
    STARTING_S,
)

#: Lines that may wait before they are written.
_WAITING: Final = 50

#: File systems whose inodes and bytes in use are exact at any time, and cost no message to a server.
EXACT: Final = ("ext2", "ext3", "ext4", "xfs", "overlay")

#: Seconds that a look may take. The bytes of a longer one moved later than its time says: a busy node made it wait.
_EXACT_S: Final = 0.01
#: What moves after a tool has begun, and hardly before.
_BEGUN_BYTES: Final = 4 << 20
_BEGUN_FILES: Final = 20
#: Looks that are tried before a phase.
_TRIES: Final = 5

#: Bytes that were read and written.
_Moved = tuple[int, int]

_SECTOR: Final = 512
#: The sum in a line of a Lustre client's ``stats``: name, samples, unit, least, most, sum.
_SUM: Final = re.compile(
    r"^(read|write)_bytes +[0-9]+ samples \[bytes\] [0-9]+ [0-9]+ ([0-9]+)", re.M
)


def _of_device(number: str) -> Callable[[], _Moved]:
    """Return what reads a block device, ``MAJOR:MINOR``; raises OSError without one."""
    file = os.open(f"/sys/dev/block/{number}/stat", os.O_RDONLY | os.O_CLOEXEC)

    def look() -> _Moved:
        words = os.pread(file, 512, 0).split()
        return _SECTOR * int(words[2]), _SECTOR * int(words[6])

    return look


def of_nfs(point: str, file: str = "/proc/self/mountstats") -> _Moved:
    """Return what the client of NFS has moved for a mount; raises ValueError without one."""
    here = False
    for line in Path(file).read_text(errors="surrogateescape").splitlines():
        words = line.split()
        if words[:1] == ["device"]:
            here = len(words) > 7 and unescape(words[4]) == point and words[7] in ("nfs", "nfs4")
        elif here and words[:1] == ["bytes:"]:
            return int(words[5]), int(words[6])
    raise ValueError(f"no mount of NFS at {point}")


def of_lustre(fsname: str, root: Path = Path("/")) -> _Moved:
    """Return what programs on this node have asked of a Lustre file system.

    It is what moves if they use O_DIRECT. Raises ValueError if the client does not tell this user.
    """
    stats = lustre.read_parameters(fsname, {"llite": ("stats",)}, root)
    if not stats:
        raise ValueError(f"no statistics of {fsname}: root alone may read them")
    sums = {"read": 0, "write": 0}
    for text in stats.values():
        for way, count in _SUM.findall(text):
            sums[way] += int(count)
    return sums["read"], sums["write"]


def note_found(directory: str) -> None:
    """Record how many files a directory holds, counted up to a limit; raises OSError of the stage alone.

    Only names are read: no client learns what a later phase asks of a file.
    """
    found = sum(1 for _ in islice(_files_below(directory), MOST_FOUND))
    now = time.clock_gettime(time.CLOCK_BOOTTIME)
    with open(FOUND, "a", encoding="ascii") as file:
        file.write(f"{now:.3f}\t{found}\n")


def _files_below(directory: str) -> Iterator[str]:
    """Yield files as their names are read; what cannot be read is left out."""
    with contextlib.suppress(OSError), os.scandir(directory) as entries:
        for entry in entries:
            if entry.is_dir(follow_symlinks=False):
                yield from _files_below(entry.path)
            else:
                yield entry.path


class Recorder:
    """Writes the bytes that were moved under the target's mount to the stage, if they have changed.

    ``counters`` are block devices (``MAJOR:MINOR``), the point of a mounted NFS, or the name of a
    Lustre file system. Without counters nothing is recorded. ``held_by`` is a directory on a target
    whose inodes and bytes are counted.
    """

    def __init__(self, counters: Sequence[str], held_by: str | None = None) -> None:
        """Open the counters; what cannot be read is left out."""
        self._looks: list[Callable[[], _Moved]] = []
        self._lines: list[str] = []
        self._last = self._quiet = ""
        self._starting_until = self._close_until = 0.0
        self._total = self._at_begin = (0, 0)
        self._held_by: int | None = None
        if held_by is not None:
            with contextlib.suppress(OSError):
                self._held_by = os.open(held_by, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        for name in counters:
            with contextlib.suppress(OSError, ValueError):
                self._watch(name)

    def _watch(self, name: str) -> None:
        look: Callable[[], _Moved]
        if re.fullmatch("[0-9]+:[0-9]+", name):
            look = _of_device(name)
        elif name.startswith("/"):
            look = partial(of_nfs, name)
        else:
            look = partial(of_lustre, name)
        look()
        self._looks.append(look)

    def begin(self) -> None:
        """Look often for a while: a phase begins."""
        for _ in range(_TRIES):
            if self.look():
                break
        self._at_begin, self._close_until = self._total, 0.0
        self._starting_until = time.monotonic() + STARTING_FOR_S

    @property
    def pause_s(self) -> float:
        """Return the seconds until the next look."""
        now = time.monotonic()
        if now < self._starting_until:
            return STARTING_S
        return CLOSE_S if now < self._close_until else PAUSE_S

    def look(self) -> bool:
        """Record the counters, unless nothing has changed; raises OSError of the stage alone.

        Returns False if the node was too busy for an exact look.
        """
        if not self._looks:
            return True
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            seen = [look() for look in self._looks]
            files, held = self._held()
        except (OSError, IndexError, ValueError):  # the device is gone
            return True
        if time.clock_gettime(time.CLOCK_BOOTTIME) - now > _EXACT_S:
            return False
        read, written = (sum(ways) for ways in zip(*seen, strict=True))
        moved = f"{read}\t{written}" + (f"\t{files}\t{held}\n" if files else "\n")
        self._total = read + written, files
        grown = [
            abs(after - before) for after, before in zip(self._total, self._at_begin, strict=True)
        ]
        if self._starting_until and (grown[0] >= _BEGUN_BYTES or grown[1] >= _BEGUN_FILES):
            self._starting_until, self._close_until = 0.0, time.monotonic() + CLOSE_FOR_S
        if moved != self._last:
            if self._quiet:  # so that a quiet time ends at its last look
                self._lines.append(self._quiet)
            self._lines.append(f"{now:.3f}\t{moved}")
        self._quiet = f"{now:.3f}\t{moved}" if moved == self._last else ""
        self._last = moved
        if len(self._lines) > _WAITING:
            self.write()
        return True

    def _held(self) -> tuple[int, int]:
        """Return the inodes and the bytes in use, 0 if the file system does not count them."""
        if self._held_by is None:
            return 0, 0
        status = os.fstatvfs(self._held_by)
        if not status.f_files:
            return 0, 0
        return status.f_files - status.f_ffree, (status.f_blocks - status.f_bfree) * status.f_frsize

    def write(self) -> None:
        """Write the waiting lines; raises OSError."""
        with open(ACTIVITY, "a", encoding="ascii") as file:
            file.writelines(self._lines)
        self._lines.clear()
