"""Physical cores of this node. Launchers bind a task to a core, not to one of its threads."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path

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
