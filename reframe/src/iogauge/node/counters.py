"""What the kernel of this node counts of its storage: the one reader of every counter.

=============  ======================================  ==================================
name           where                                   counts
=============  ======================================  ==================================
``8:0``        /proc/diskstats, or /sys/dev/block      bytes and requests of a block device
``/mnt``       /proc/self/mountstats                   bytes of a mounted NFS
``net``        /proc/net/dev, /sys/class/infiniband    bytes of all networks
``fs-OST0000`` osc.*.stats, mdc.*.stats                bytes and requests of a Lustre target
=============  ======================================  ==================================

A counter that cannot be read is missing, or None: it is not one that says zero. Written against Linux 6.18 and Lustre 2.17.0.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from iogauge.core import commands
from iogauge.node.kernel import listed, text
from iogauge.node.mounts import BLOCK_DEVICE, mounted_over, unescape


class Reading(NamedTuple):
    """Bytes read and written since the counter began, and requests that ended; None if it counts bytes alone."""

    read: int = 0
    written: int = 0
    requests: int | None = 0

    def __add__(self, other: Reading) -> Reading:  # type: ignore[override]
        """Return the sums of two counters that count the same."""
        requests = None
        if self.requests is not None and other.requests is not None:
            requests = self.requests + other.requests
        return Reading(self.read + other.read, self.written + other.written, requests)

    def since(self, before: Reading) -> Reading:
        """Return the growth since an earlier look."""
        requests = None
        if self.requests is not None and before.requests is not None:
            requests = self.requests - before.requests
        return Reading(self.read - before.read, self.written - before.written, requests)

    def way(self, direction: str) -> int:
        """Return the bytes of a direction, ``read`` or ``write``."""
        if direction == "read":
            return self.read
        return self.written


class Ticks(NamedTuple):
    """What the processors of a node did, in ticks: they worked, or were idle, also while something waited for storage.

    The time that a host gave to other virtual machines counts as work.
    """

    work: int
    idle: int


#: All counters of a node by name; None for a device that did not tell.
Readings = Mapping[str, Reading | None]

#: The counters of all block devices.
_DISKS = "proc/diskstats"
_NUMBERED = "sys/dev/block"
#: Name of what all networks moved.
NETWORKS = "net"

_SECTOR = 512
#: Seconds in which lctl must have told of all devices of the client.
_LCTL_S = 30.0
#: A device of a Lustre client: its target, and the client's instance. A metadata server has devices of its own for the
#: storage targets (``fs-OST0000-osc-MDT0000``), which are not the client's.
_CLIENT = re.compile(r"(.+-(?:OST|MDT)[0-9a-f]{4})-(?:osc|mdc)-(?!MDT).+")
#: name, samples, unit, least, most, sum, sum of squares.
_STATS = re.compile(
    r"^(?P<way>read|write)_bytes +(?P<samples>[0-9]+) samples \[bytes\] [0-9]+ [0-9]+ (?P<sum>[0-9]+)(?P<squares> [0-9]*)?$",
    re.M,
)


def read_all(
    root: Path = Path("/"), *, lustre: bool = True
) -> dict[str, Reading | None]:
    """Return all counters of this node. Those of Lustre cost an ordinary user the start of a program."""
    counts: dict[str, Reading | None] = {}
    counts |= _block_devices(root)
    # The kernel makes this directory for its client of NFS: without it there is none among the mounts.
    if (root / "proc/fs/nfsfs").is_dir():
        counts |= _of_mounts(text(root / "proc/self/mountstats"))
    networks = _networks(root)
    if networks:
        counts[NETWORKS] = networks
    if lustre:
        counts |= _of_targets(root)
    return counts


def processor_ticks(root: Path = Path("/")) -> Ticks | None:
    """Return what the processors of this node did since it booted (/proc/stat); None if it does not say."""
    words = text(root / "proc/stat").partition("\n")[0].split()
    if words[:1] != ["cpu"] or len(words) < 9:
        return None
    counts = [int(word) for word in words[1:9]]
    idle = counts[3] + counts[4]
    return Ticks(sum(counts) - idle, idle)


def _block_devices(root: Path) -> dict[str, Reading]:
    """Return the counters of /proc/diskstats, or those of sysfs if a container shows another one there (lxcfs).

    Linux 4.18 added discards and 5.5 flushes behind the fields that are read.
    """
    if mounted_over(str(root / _DISKS), root=str(root)):
        return _of_sysfs(root)
    counts: dict[str, Reading] = {}
    for line in text(root / _DISKS).splitlines():
        words = line.split()
        if len(words) < 11:
            continue
        name = ":".join(words[:2])
        # Paths of an NVMe disk have no number of their own: all of them are 0:0.
        if BLOCK_DEVICE.fullmatch(words[2]):
            name = words[2]
        counts[name] = _of_fields(words[3:])
    return counts


def _of_sysfs(root: Path) -> dict[str, Reading]:
    """Return the counters of the devices that have a number; none if something is mounted over them."""
    counts: dict[str, Reading] = {}
    if mounted_over(str(root / _NUMBERED), root=str(root)):
        return counts
    for number in listed(str(root), _NUMBERED):
        words = text(root / _NUMBERED, number, "stat").split()
        if len(words) >= 8:
            counts[number] = _of_fields(words)
    return counts


def not_the_kernels() -> str:
    """Return why no disk of this node is counted; empty if the kernel itself shows their counters."""
    if mounted_over(f"/{_DISKS}") and mounted_over(f"/{_NUMBERED}"):
        return f"other file systems are mounted over /{_DISKS} and /{_NUMBERED}, where the kernel should show them"
    return ""


def is_counted(root: str | Path, device: str) -> bool:
    """Return whether the kernel says that it counts what a device moves (sysfs, ``queue/iostats``)."""
    folder = "sys/block"
    if ":" in device:
        folder = "sys/dev/block"
    # A partition has the queue of its disk.
    for queue in ("queue", "../queue"):
        if text(root, folder, device, queue, "iostats") == "0":
            return False
    return True


def silent(root: Path = Path("/")) -> tuple[str, ...]:
    """Return the block devices that the kernel does not count now, as it says.

    It says so of device-mapper before Linux 6.5, and of md before 5.14, although it counts them: what has moved, counts.
    """
    found = []
    for name, reading in _block_devices(root).items():
        if is_counted(root, name):
            continue
        driver = os.path.basename(os.path.realpath(root / "sys/dev/block" / name))
        if reading == Reading() or not driver.startswith(("dm-", "md")):
            found.append(name)
    return tuple(found)


def _of_fields(words: Sequence[str] | Sequence[bytes]) -> Reading:
    """Return the count of a block device's fields, from its reads on (Documentation/admin-guide/iostats.rst)."""
    counts = [int(word) for word in words[:7]]
    requests = counts[0] + counts[4]
    return Reading(_SECTOR * counts[2], _SECTOR * counts[6], requests)


def _of_mounts(text: str) -> dict[str, Reading]:
    """Return the counters of every mounted NFS by its point.

    Of the eight sums after ``bytes:`` (Linux 2.6.19, fs/nfs/iostat.h) the fifth and sixth are those of the server.
    """
    counts, point = {}, ""
    for line in text.splitlines():
        words = line.split()
        # device SOURCE mounted on POINT with fstype TYPE
        if words[:1] == ["device"]:
            point = ""
            if len(words) > 7 and words[7] in ("nfs", "nfs4"):
                point = unescape(words[4])
        elif point and words[:1] == ["bytes:"] and len(words) > 6:
            counts[point] = Reading(int(words[5]), int(words[6]), None)
    return counts


def _networks(root: Path) -> Reading | None:
    """Return what all networks received and sent; None if nothing is known.

    A client in the kernel or in a program reaches its servers through them, RDMA through ports of InfiniBand.
    """
    total: Reading | None = None
    ports = list(_ports(root))
    for count in (*ports, *_interfaces(root, by_port=bool(ports))):
        total = (total or Reading(requests=None)) + count
    return total


def _ports(root: Path) -> Iterator[Reading]:
    """Yield the counts of RDMA ports, which count words of four bytes (InfiniBand specification, PortCounters)."""
    for folder in sorted((root / "sys/class/infiniband").glob("*/ports/*/counters")):
        with contextlib.suppress(OSError, ValueError):
            received = int((folder / "port_rcv_data").read_text())
            sent = int((folder / "port_xmit_data").read_text())
            # Counters of 32 bits stop there, and say nothing any more.
            if 2**32 - 1 not in (received, sent):
                yield Reading(4 * received, 4 * sent, None)


def _interfaces(root: Path, by_port: bool) -> Iterator[Reading]:
    """Yield the counts of network interfaces, without those whose bytes another one counts."""
    for line in text(root / "proc/net/dev").splitlines()[2:]:
        name, _, fields = line.partition(":")
        place, words = root / "sys/class/net" / name.strip(), fields.split()
        # An interface over others, as a bond or a VLAN, counts their bytes once more.
        if len(words) < 9 or any(place.glob("lower_*")):
            continue
        # Of InfiniBand (ARPHRD_INFINIBAND): the ports have counted its bytes.
        if not (by_port and text(place / "type").strip() == "32"):
            yield Reading(int(words[0]), int(words[8]), None)


def _of_targets(root: Path) -> dict[str, Reading | None]:
    """Return the counts of the Lustre client by target, None for one of which a device does not tell.

    Two mounts of a file system have two devices for each target.
    """
    devices = {}
    for kind in ("osc", "mdc"):
        for name in listed(str(root), "sys/fs/lustre", kind):
            match = _CLIENT.fullmatch(name)
            if match:
                devices[f"{kind}.{name}"] = match[1]
    told = _told(list(devices), root)
    counts: dict[str, Reading | None] = {}
    for device, target in devices.items():
        count, total = told.get(device), counts.get(target, Reading())
        counts[target] = None
        if count is not None and total is not None:
            counts[target] = total + count
    return counts


def _told(devices: Sequence[str], root: Path) -> dict[str, Reading]:
    """Return the counts that devices of a Lustre client tell this user, by ``osc.NAME``.

    Root reads them in debugfs. For others, lctl of 2.17 asks the kernel; older clients tell them nothing.
    """
    debugfs = root / "sys/kernel/debug/lustre"
    told, left = {}, []
    for device in devices:
        kind, _, name = device.partition(".")
        try:
            told[device] = _sums(
                (debugfs / kind / name / "stats").read_text(errors="replace")
            )
        except (OSError, ValueError):
            left.append(device)
    if left:
        told |= _asked(left, whole=os.access(debugfs, os.X_OK))
    return told


def _asked(devices: Sequence[str], whole: bool) -> dict[str, Reading]:
    """Ask lctl for devices, each by its whole name.

    For a pattern, lctl of 2.17 gives an ordinary user values under wrong names. It also drops the last character of each
    line, which is one of the sum of squares: a line without that sum is not ``whole``. Its exit status is 2 even if it answers.
    """
    questions = ["ignore_errors", *(f"get_param {device}.stats" for device in devices)]
    path = f"{os.environ.get('PATH', os.defpath)}:/usr/sbin:/sbin"
    try:
        given = "\n".join([*questions, ""])
        environment = os.environ | {"PATH": path}
        done = commands.run(
            "lctl", seconds=_LCTL_S, environment=environment, given=given
        )
    except OSError:
        return {}
    told = {}
    for part in re.split(r"^(?=(?:osc|mdc)\.)", done.stdout, flags=re.M):
        name, found, stats = part.partition(".stats=\n")
        with contextlib.suppress(ValueError):
            if found and name in devices:
                told[name] = _sums(stats, whole)
    return told


def _sums(stats: str, whole: bool = True) -> Reading:
    """Return the count of a device's ``stats``; raises ValueError for a line that is damaged.

    A device that has moved nothing since it began has no line of its own.
    """
    lines = re.findall(r"^(?:read|write)_bytes .*$", stats, re.M)
    found = list(_STATS.finditer(stats))
    is_whole = whole or all(line["squares"] for line in found)
    if len(found) != len(lines) or not is_whole:
        raise ValueError("not the statistics of a device")
    sums, requests = {"read": 0, "write": 0}, 0
    for line in found:
        sums[line["way"]] = int(line["sum"])
        requests += int(line["samples"])
    return Reading(sums["read"], sums["write"], requests)


# One counter, several times a second.


def follow(name: str) -> Callable[[], Reading]:
    """Return what reads one counter in little time: a block device, the point of an NFS, or all targets of a Lustre file system.

    Raises OSError or ValueError without it; the returned function does so, too.
    """
    if name.startswith("/"):
        return partial(of_nfs, name)
    if not BLOCK_DEVICE.fullmatch(name):
        return partial(of_lustre, name)
    folder = "block"
    if ":" in name:
        folder = "dev/block"
    file = os.open(f"/sys/{folder}/{name}/stat", os.O_RDONLY | os.O_CLOEXEC)
    return lambda: _of_fields(os.pread(file, 512, 0).split())


def of_nfs(point: str, file: str = "/proc/self/mountstats") -> Reading:
    """Return what the client of NFS has moved for a mount; raises OSError, or ValueError without one."""
    counts = _of_mounts(Path(file).read_text(errors="surrogateescape"))
    if point not in counts:
        raise ValueError(f"no mount of NFS at {point}")
    return counts[point]


def of_lustre(fsname: str, root: Path = Path("/")) -> Reading:
    """Return what programs on this node have asked of a Lustre file system, which moves if they use O_DIRECT.

    Raises ValueError if the client does not tell this user.
    """
    folder = root / "sys/kernel/debug/lustre/llite"
    stats = list(filter(None, map(text, folder.glob(f"{fsname}-*/stats"))))
    if not stats:
        raise ValueError(f"no statistics of {fsname}: root alone may read them")
    return sum(map(_sums, stats), Reading())
