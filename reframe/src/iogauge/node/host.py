"""The clock of a node, beside the seconds since boot, and its cores.

Launchers bind a task to a core, not to one of its threads.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from iogauge.core import untrusted

#: The kernel's description of each CPU.
CPUS = Path("/sys/devices/system/cpu")


def core_count(cpus: Iterable[int], tree: Path) -> int:
    """Count the physical cores of CPUs, which are hardware threads.

    If the kernel does not tell the core of a CPU, this CPU counts as a core.
    """
    return len({_threads_of_core(cpu, tree) for cpu in cpus})


def _threads_of_core(cpu: int, tree: Path) -> str:
    """Return the kernel's list of the CPUs that share a core with this one."""
    for name in ("core_cpus_list", "thread_siblings_list"):  # since Linux 5.3, and before
        with contextlib.suppress(OSError):
            return (tree / f"cpu{cpu}" / "topology" / name).read_text(encoding="ascii").strip()
    return str(cpu)


def usable_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return core_count(os.sched_getaffinity(0), CPUS)


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
