"""When bytes moved: the counters under the target's mount on the first node, several times a second.

A tool's seconds are its own word. Counters of the kernel say when its bytes really moved. The agent
that keeps the target's lock writes them down for as long as the job lasts.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Sequence
from typing import Final

from iogauge.plan.stage import ACTIVITY

#: Lines that may wait before they are written.
_WAITING: Final = 50


class Recorder:
    """Writes the bytes that block devices moved to the stage, whenever they have changed.

    ``devices`` are ``MAJOR:MINOR``. Without devices nothing is recorded.
    """

    def __init__(self, devices: Sequence[str]) -> None:
        """Open the counters; a device without counters is left out."""
        self._counters: list[int] = []
        self._lines: list[str] = []
        self._last = self._quiet = ""
        for device in devices:
            with contextlib.suppress(OSError):
                name = f"/sys/dev/block/{device}/stat"
                self._counters.append(os.open(name, os.O_RDONLY | os.O_CLOEXEC))

    def look(self) -> None:
        """Record the counters, unless nothing has changed; raises OSError of the stage alone."""
        if not self._counters:
            return
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            words = [os.pread(counter, 512, 0).split() for counter in self._counters]
            read = 512 * sum(int(of_device[2]) for of_device in words)
            written = 512 * sum(int(of_device[6]) for of_device in words)
        except (OSError, IndexError, ValueError):  # the device is gone
            return
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
