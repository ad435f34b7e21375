"""Mounts and the room of a path, from the kernel.

Pure functions take text (``/proc/self/mountinfo``). The few functions that look at the machine come last.
"""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from typing import Final

#: Inodes and bytes beyond all file systems.
_NO_LIMIT: Final = 2**63 - 1

#: How a counter of a block device is named: ``MAJOR:MINOR``, or a path of an NVMe disk by its name.
BLOCK_DEVICE: Final = re.compile("[0-9]+:[0-9]+|nvme[0-9]+c[0-9]+n[0-9]+")


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: identifier, mount point, source, type, options.

    ``root`` is the directory of the file system that is mounted: not ``/`` for a bind mount.
    ``device`` is its number, ``MAJOR:MINOR``: that of a block device on some kinds (:mod:`~iogauge.node.kinds`).
    """

    id: int
    point: str
    source: str
    type: str
    options: str
    root: str = "/"
    device: str = "0:0"

    @property
    def server(self) -> str:
        """Return the address that a mount of NFS uses (nfs(5), ``addr``), or the name of its server."""
        word = option(self, "addr=.+")
        return word.partition("=")[2] or self.source.partition(":/")[0]


def option(mount: Mount, pattern: str) -> str:
    """Return the first mount option that matches as a whole, or nothing."""
    return next(
        (word for word in mount.options.split(",") if re.fullmatch(pattern, word)), ""
    )


def no_barriers(mount: Mount) -> str:
    """Return the mount option by which a file system never empties the write cache of its disk, or nothing."""
    return option(mount, "nobarrier|barrier=0|fsync_mode=nobarrier")


def fsname_of(source: str) -> str:
    """Return the file system's name in a Lustre source (``10.0.0.1@tcp:/scratch``); else ``*``."""
    match = re.search(r":/([A-Za-z0-9_-]{1,8})(?:/|$)", source)
    return match[1] if match else "*"


def unescape(text: str) -> str:
    """Return a text of mountinfo without its octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), text)


def parse_mountinfo(text: str) -> list[Mount]:
    """Return mounts in order of ``/proc/self/mountinfo`` (proc(5)); other lines are skipped."""
    mounts = []
    for line in text.splitlines():
        left, dash, right = line.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if (
            not dash
            or len(head) < 6
            or len(tail) < 2
            or not re.fullmatch("[0-9]{1,18}", head[0])
        ):
            continue
        options = ",".join([head[5], *tail[2:3]])
        root, point, source = map(unescape, (*head[3:5], tail[1]))
        mounts.append(
            Mount(int(head[0]), point, source, tail[0], options, root, head[2])
        )
    return mounts


@dataclass(frozen=True, slots=True)
class Space:
    """Bytes and inodes of a file system for an ordinary user. ``inodes_total`` 0 means no limit."""

    bytes_total: int
    bytes_free: int
    inodes_total: int
    inodes_free: int

    @property
    def fill(self) -> float:
        """Return the used share of what an ordinary user may use (as ``df`` counts it)."""
        return 1 - self.bytes_free / self.bytes_total if self.bytes_total else 1.0


def existing_parent(path: str) -> str:
    """Return the path, resolved, or its nearest existing parent."""
    path = os.path.realpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def find_mount(path: str) -> Mount | None:
    """Return the mount that holds ``path`` on this host, by the kernel's own mount identifier.

    Opens the path or its nearest existing parent, so that an automount comes up. Raises OSError.
    """
    fd = os.open(existing_parent(path), os.O_PATH | os.O_CLOEXEC)
    try:
        return mount_of(fd)
    finally:
        os.close(fd)


def mount_by_name(path: str) -> Mount | None:
    """Return the mount that a path leads to by its name, if the path itself may not be looked at."""
    at = [m for m in of_this_host() if f"{path}/".startswith(f"{m.point.rstrip('/')}/")]
    return max(reversed(at), key=lambda mount: len(mount.point), default=None)


def mount_id(fd: int) -> int | None:
    """Return the kernel's identifier of the mount of an open file (proc(5), ``mnt_id``)."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        match = re.search(r"^mnt_id:\s*(\d+)$", file.read(), re.MULTILINE)
    return int(match[1]) if match else None


def mount_of(fd: int) -> Mount | None:
    """Return the mount of an open file."""
    number = mount_id(fd)
    return next((m for m in of_this_host() if m.id == number), None)


def of_this_host() -> list[Mount]:
    """Return the mounts that this process sees."""
    with open(
        "/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape"
    ) as file:
        return parse_mountinfo(file.read())


def space_of(path: str) -> Space:
    """Return the room at ``path`` for an ordinary user (statvfs(3)); raises OSError.

    Some file systems report the largest number as "no limit": then inodes have no limit here.
    """
    info = os.statvfs(path)
    used = (info.f_blocks - info.f_bfree) * info.f_frsize
    free = info.f_bavail * info.f_frsize
    inodes = (info.f_files, info.f_favail) if 0 < info.f_files < _NO_LIMIT else (0, 0)
    total, left = (max(0, min(count, _NO_LIMIT)) for count in (used + free, free))
    return Space(total, left, *inodes)


def cache_id(path: str) -> str:
    """Return the name of a path's page cache: the kernel's boot identifier, the mount's device."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return f"{file.read().strip()}:{os.stat(path).st_dev}"


def upper_directory(mount: Mount) -> str | None:
    """Return the directory that an overlay writes to, None if the mount is no overlay."""
    match = re.search(r"(?:^|,)upperdir=([^,]+)", mount.options)
    return unescape(match[1]) if match and mount.type == "overlay" else None


#: Direction of an ioctl that only reads: bit 31, but bit 30 on these machines (their asm/ioctl.h).
READ: Final = 1 << (
    30 if os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha")) else 31
)
