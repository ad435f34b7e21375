"""The clock of a node, beside the seconds since boot, and its cores. Its activity and that of its target: counters before and
after the judged phases.

Launchers bind a task to a core, not to one of its threads.

A :class:`Load` is one look at one node; ``evidence/witness`` compares two looks. Bytes are counted
by job/witness.sh. Root alone sees connections to servers (``osc.*.import``, ``osc.*.state``), in Lustre's part of
debugfs. Users see the kernel's log if the site lets them. Invisible data are left out and marked as such.

Written against Lustre 2.17.0.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from iogauge.core.untrusted import Plain
from iogauge.node.identity import uuid_of
from iogauge.node.kernel import text
from iogauge.node.lustre.client import read_parameters
from iogauge.node.mounts import cache_id, existing_parent, find_mount, fsname_of

#: The kernel's description of each CPU.
CPUS = Path("/sys/devices/system/cpu")


def core_count(cpus: Iterable[int], tree: Path) -> int:
    """Count the physical cores of CPUs, which are hardware threads.

    If the kernel does not tell the core of a CPU, this CPU counts as a core.
    """
    files = ("core_cpus_list", "thread_siblings_list")  # since Linux 5.3, and before
    told = {
        cpu: [text(tree, f"cpu{cpu}/topology", file) for file in files] for cpu in cpus
    }
    return len({next(filter(None, lists), str(cpu)) for cpu, lists in told.items()})


def usable_cores() -> int:
    """Return the number of physical cores that this process may use."""
    return core_count(os.sched_getaffinity(0), CPUS)


@dataclass(frozen=True, slots=True)
class Clock(Plain):
    """One look at a clock: seconds since the epoch, seconds since boot, seconds east of UTC.

    ``boot`` is the first number of /proc/uptime, as job.sh reads it.
    """

    epoch: float
    boot: float
    utc_offset: int


def read_clock() -> Clock:
    """Look at this node's clock; raises OSError if the kernel does not tell the time since boot."""
    boot = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    now = time.time()
    return Clock(now, boot, time.localtime(now).tm_gmtoff)


#: Seconds by which the clock of this process may differ from the kernel's file, which tells hundredths.
_APART_S: Final = 1.0


def check_clock() -> None:
    """Raise OSError unless the clock of this process, by which it notes what it sees, is the kernel's."""
    told = float(Path("/proc/uptime").read_text(encoding="ascii").split()[0])
    own = time.clock_gettime(time.CLOCK_BOOTTIME)
    if abs(own - told) > _APART_S:
        raise OSError(
            f"the clock of the agent tells {own:.2f} s since boot, /proc/uptime {told:.2f} s: "
            "something between the agent and the kernel changes the time"
        )


#: Where a kernel shows what it shows to root alone.
_DEBUGFS: Final = "/sys/kernel/debug/lustre"

#: Seconds that reading the kernel's log may take.
_LOG_SECONDS: Final = 0.2
#: Characters of a line of the kernel's log; its own limit is near 1000.
_LOG_LINE: Final = 2000

#: Parameters to read, by the kind of device.
_PARAMETERS: Final = {
    "osc": ("import", "state"),
    "mdc": ("import", "state"),
}

#: Harmless states of a connection: idle ones are closed after 20 s and opened again.
HARMLESS: Final = frozenset({"NEW", "CONNECTING", "FULL", "IDLE"})

#: Lustre's own words for a lost connection (ptlrpc/import.c), without the addresses in them.
_COMPLAINT: Final = re.compile(
    r"(?P<device>\S+-(?:osc|mdc)-(?!MDT)\S+): (?:This client was (?P<evicted>evicted) by (?P<by>[^;\s]+)"
    r"|Connection to (?P<to>\S+) \(at [^)]*\) was (?P<lost>lost))"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Load(Plain):
    """One look at a node. ``time`` is in seconds since the epoch, ``load1`` the one-minute load.

    ``cache_id`` names kernel and mount, as in :class:`iogauge.node.view.View`.

    ``states`` maps devices to the states of their connections to servers. ``history`` is their past
    states, as (seconds since the epoch, device, state). ``timeouts`` counts their requests that
    timed out. All three are empty or None if connections are invisible.

    ``log_end`` is the number of the last line of the kernel's log, None if unreadable.
    ``complaints`` are its lines about lost connections, by number.
    ``uuid`` names the file system (:mod:`iogauge.node.identity`), "" if unknown.
    """

    host: str
    cache_id: str
    time: float
    load1: float
    states: Mapping[str, str] = field(default_factory=dict)
    history: tuple[tuple[int, str, str], ...] = ()
    timeouts: int | None = None
    log_end: int | None = None
    complaints: tuple[tuple[int, str], ...] = ()
    uuid: str = ""


def parse_log(text: str, fsname: str) -> tuple[int | None, tuple[tuple[int, str], ...]]:
    """Return the last record's number in ``/dev/kmsg``, and a file system's lost connections."""
    last, complaints = None, []
    for line in text.splitlines():
        head, separator, message = line.partition(";")
        words = head.split(",")
        if not separator or len(words) < 3 or not re.fullmatch("[0-9]{1,18}", words[1]):
            continue
        last = int(words[1])
        match = _COMPLAINT.search(message[:_LOG_LINE])
        if match and (fsname == "*" or match["device"].startswith(f"{fsname}-")):
            what = (
                f"evicted by {match['by']}"
                if match["evicted"]
                else f"lost {match['to']}"
            )
            complaints.append(
                (last, f"{match['device'].split('-osc-')[0].split('-mdc-')[0]} {what}")
            )
    return last, tuple(complaints)


def _connections(parameters: Mapping[str, str]) -> dict[str, Any]:
    """Return states, history and timeouts of the client's connections, fields of a :class:`Load`."""
    states: dict[str, str] = {}
    history: list[tuple[int, str, str]] = []
    timeouts: int | None = None
    for name, value in parameters.items():
        if not re.match(r"(osc\.\S+-osc-(?!MDT)|mdc\.)", name):
            continue
        device = name.split(".")[1]
        device = device.split("-osc-")[0].split("-mdc-")[0]
        if name.endswith(".state"):
            if match := re.search(r"^current_state:\s*(\w+)", value, re.MULTILINE):
                states[device] = match[1]
            history += [
                (int(when), device, state)
                for when, state in re.findall(
                    r"-\s*\[\s*([0-9]{1,18}),\s*(\w+)\s*\]", value
                )
            ]
        elif match := re.search(
            r"^\s+timeouts:\s*([0-9]{1,18})\b", value, re.MULTILINE
        ):
            timeouts = (timeouts or 0) + int(match[1])
    return {"states": states, "history": tuple(history), "timeouts": timeouts}


# Functions that read the machine.
def _kernel_log() -> str:
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
    fields: dict[str, Any] = {}
    with contextlib.suppress(OSError):
        fields["cache_id"] = cache_id(path)
    mount = None
    with contextlib.suppress(OSError):
        mount = find_mount(path)
        fields["uuid"] = uuid_of(existing_parent(path), mount)
    if mount is not None and mount.type == "lustre":
        fsname = fsname_of(mount.source)
        if os.geteuid() == 0 or os.access(_DEBUGFS, os.X_OK):
            fields |= _connections(read_parameters(fsname, _PARAMETERS))
        with contextlib.suppress(OSError):
            fields["log_end"], fields["complaints"] = parse_log(_kernel_log(), fsname)
    return Load(
        **{"cache_id": "", **fields},
        host=os.uname().nodename,
        time=time.time(),
        load1=os.getloadavg()[0],
    )
