"""A node's clock, beside the seconds since boot that a job counts in."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iogauge.core import untrusted


@dataclass(frozen=True, slots=True)
class Clock:
    """One look at a clock: seconds since the epoch, seconds since boot, seconds east of UTC.

    ``boot`` is the first number of /proc/uptime, as job.sh reads it.
    """

    epoch: float
    boot: float
    utc_offset: int

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON file; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: object) -> Clock:
        """Return the look that :meth:`to_json` made plain; raises TypeError on other data."""
        clock: Clock = untrusted.build(Clock, data)
        return clock


def read_clock() -> Clock:
    """Look at this node's clock; raises OSError if the kernel does not tell the time since boot."""
    boot = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    now = time.time()
    return Clock(now, boot, time.localtime(now).tm_gmtoff)
