"""The clock of a node, beside the seconds since boot, and its cores. Its activity and that of its target: counters before and
after the judged phases.

Launchers bind a task to a core, not to one of its threads.

A :class:`Load` is one look at one node; ``evidence/task_counters`` compares two looks. The kernel's log names lost
connections to servers of Lustre; users see it if the site lets them. Invisible data are left out and marked as such.

Written against Lustre 2.17.0.
"""

import contextlib
import os
import re
import time
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from iogauge.core.untrusted import Plain
from iogauge.node.counters import silent
from iogauge.node.identity import uuid_of
from iogauge.node.kernel import text
from iogauge.node.mounts import existing_parent, find_mount, fsname_of

#: The kernel's description of each CPU.
CPUS = Path("/sys/devices/system/cpu")


def core_count(cpus: Iterable[int], tree: Path) -> int:
    """Count the physical cores of CPUs, which are hardware threads.

    If the kernel does not tell the core of a CPU, this CPU counts as a core.
    """
    files = ("core_cpus_list", "thread_siblings_list")  # since Linux 5.3, and before
    cores = set()
    for cpu in cpus:
        told = [text(tree, f"cpu{cpu}/topology", file) for file in files]
        cores.add(told[0] or told[1] or str(cpu))
    return len(cores)


def usable_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return core_count(os.sched_getaffinity(0), CPUS)


#: Seconds that reading the kernel's log may take.
_LOG_SECONDS = 0.2
#: Characters of a line of the kernel's log; its own limit is near 1000.
_LOG_LINE = 2000

#: Lustre's own words for a lost connection (ptlrpc/import.c), without the addresses in them.
_COMPLAINT = re.compile(
    r"(?P<target>\S+)-(?:osc|mdc)-(?!MDT)\S+: (?:This client was (?P<evicted>evicted by [^;\s]+)"
    r"|Connection to (?P<lost>\S+) \(at [^)]*\) was lost)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Plain):
    """One look at a node."""

    host: str
    #: The one-minute load.
    load1: float
    #: Number of the last line of the kernel's log, None if unreadable.
    log_end: int | None = None
    #: Its lines about lost connections, by number.
    complaints: tuple[tuple[int, str], ...] = ()
    #: The file system (:mod:`iogauge.node.identity`), "" if unknown.
    uuid: str = ""
    #: Block devices that the kernel does not count, as it says.
    silent: tuple[str, ...] = ()


def parse_log(log: str, fsname: str) -> tuple[int | None, tuple[tuple[int, str], ...]]:
    """Return the last record's number in ``/dev/kmsg``, and a file system's lost connections."""
    last, complaints = None, []
    for line in log.splitlines():
        head, separator, message = line.partition(";")
        words = head.split(",")
        if not separator or len(words) < 3 or not re.fullmatch("[0-9]{1,18}", words[1]):
            continue
        last = int(words[1])
        match = _COMPLAINT.search(message[:_LOG_LINE])
        if match and (fsname == "*" or match["target"].startswith(f"{fsname}-")):
            what = match["evicted"] or f"lost {match['lost']}"
            complaints.append((last, f"{match['target']} {what}"))
    return last, tuple(complaints)


def kernel_log() -> str:
    """Return the kernel's log; raises OSError if it is unreadable or reading takes too long."""
    fd, parts = os.open("/dev/kmsg", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), []
    deadline = time.monotonic() + _LOG_SECONDS
    try:
        while time.monotonic() < deadline:
            try:
                parts.append(os.read(fd, 16384))
            except BlockingIOError:
                return b"".join(parts).decode(errors="replace")
            except BrokenPipeError:  # lines were overwritten while we read
                continue
    finally:
        os.close(fd)
    raise TimeoutError("the kernel's log is too long")


def look(path: str) -> Load:
    """Look at this node and the file system of ``path``; unreadable data are left out."""
    seen = Load(host=os.uname().nodename, load1=os.getloadavg()[0], silent=silent())
    with contextlib.suppress(OSError):
        mount = find_mount(path)
        seen = replace(seen, uuid=uuid_of(existing_parent(path), mount))
        if mount.type == "lustre":
            log_end, complaints = parse_log(kernel_log(), fsname_of(mount.source))
            seen = replace(seen, log_end=log_end, complaints=complaints)
    return seen
