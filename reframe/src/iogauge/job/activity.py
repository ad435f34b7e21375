"""When bytes moved: the counters under the target's mount on the first node, several times a second.

They are those of block devices, of the client of NFS, or of Lustre's client if root runs the job.

A tool's seconds are its own word. Counters of the kernel say when its bytes really moved. The agent
that keeps the target's lock writes them down for as long as the job lasts.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from iogauge.node import lustre_client
from iogauge.node.mounts import unescape
from iogauge.plan.stage import ACTIVITY

#: Lines that may wait before they are written.
_WAITING: Final = 50


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
    stats = lustre_client.read(fsname, {"llite": ("stats",)}, root)
    if not stats:
        raise ValueError(f"no statistics of {fsname}: root alone may read them")
    sums = {"read": 0, "write": 0}
    for text in stats.values():
        for way, count in _SUM.findall(text):
            sums[way] += int(count)
    return sums["read"], sums["write"]


class Recorder:
    """Writes the bytes that were moved under the target's mount to the stage, if they have changed.

    ``counters`` are block devices (``MAJOR:MINOR``), the point of a mounted NFS, or the name of a
    Lustre file system. Without counters nothing is recorded.
    """

    def __init__(self, counters: Sequence[str]) -> None:
        """Open the counters; what cannot be read is left out."""
        self._looks: list[Callable[[], _Moved]] = []
        self._lines: list[str] = []
        self._last = self._quiet = ""
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

    def look(self) -> None:
        """Record the counters, unless nothing has changed; raises OSError of the stage alone."""
        if not self._looks:
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            seen = [look() for look in self._looks]
        except (OSError, IndexError, ValueError):  # the device is gone
            return
        read, written = (sum(ways) for ways in zip(*seen, strict=True))
        moved = f"{read}\t{written}\n"
        if moved != self._last:
            if self._quiet:  # so that a quiet time ends at its last look
                self._lines.append(self._quiet)
            self._lines.append(f"{now:.2f}\t{moved}")
        self._quiet = f"{now:.2f}\t{moved}" if moved == self._last else ""
        self._last = moved
        if len(self._lines) > _WAITING:
            self.write()

    def write(self) -> None:
        """Write the waiting lines; raises OSError."""
        with open(ACTIVITY, "a", encoding="ascii") as file:
            file.writelines(self._lines)
        self._lines.clear()
