"""Mounts and the room of a path, from the kernel.

Pure functions take text (``/proc/self/mountinfo``). The few functions that look at the machine come last.
"""

import os
import re
from dataclasses import dataclass

from iogauge.node.kernel import text

#: Inodes and bytes beyond all file systems.
_NO_LIMIT = 2**63 - 1

#: How a counter of a block device is named: ``MAJOR:MINOR``, or a path of an NVMe disk by its name.
BLOCK_DEVICE = re.compile("[0-9]+:[0-9]+|nvme[0-9]+c[0-9]+n[0-9]+")


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


def option(mount: Mount, pattern: str) -> str:
    """Return the first mount option that matches as a whole, or nothing."""
    for word in mount.options.split(","):
        if re.fullmatch(pattern, word):
            return word
    return ""


def fsname_of(source: str) -> str:
    """Return the file system's name in a Lustre source (``10.0.0.1@tcp:/scratch``); else ``*``."""
    match = re.search(r":/([A-Za-z0-9_-]{1,8})(?:/|$)", source)
    if match is None:
        return "*"
    return match[1]


def unescape(escaped: str) -> str:
    """Return a text of mountinfo without its octal escapes."""
    return re.sub(r"\\([0-7]{3})", lambda match: chr(int(match[1], 8)), escaped)


def parse_mountinfo(table: str) -> list[Mount]:
    """Return mounts in order of ``/proc/self/mountinfo`` (proc(5)); other lines are skipped."""
    mounts = []
    for line in table.splitlines():
        left, dash, right = line.partition(" - ")
        head, tail = left.split(" "), right.split(" ")
        if (
            not dash
            or len(head) < 6
            or len(tail) < 2
            or not re.fullmatch("[0-9]{1,18}", head[0])
        ):
            continue
        mount = Mount(
            id=int(head[0]),
            point=unescape(head[4]),
            source=unescape(tail[1]),
            type=tail[0],
            options=",".join([head[5], *tail[2:3]]),
            root=unescape(head[3]),
            device=head[2],
        )
        mounts.append(mount)
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
        if not self.bytes_total:
            return 1.0
        return 1 - self.bytes_free / self.bytes_total


def existing_parent(path: str) -> str:
    """Return the path, resolved, or its nearest existing parent."""
    path = os.path.realpath(path)
    while not os.path.exists(path):
        path = os.path.dirname(path)
    return path


def find_mount(path: str) -> Mount:
    """Return the mount that holds ``path`` on this host, by the kernel's own mount identifier.

    Opens the path or its nearest existing parent, so that an automount comes up. Raises OSError.
    """
    fd = os.open(existing_parent(path), os.O_PATH | os.O_CLOEXEC)
    try:
        return mount_of(fd)
    finally:
        os.close(fd)


def mount_by_name(path: str) -> Mount:
    """Return the mount that a path leads to by its name, if the path itself may not be looked at."""
    at = [mount for mount in of_this_host() if is_within(path, mount.point)]
    return max(reversed(at), key=lambda mount: len(mount.point))


def mount_id(fd: int) -> int:
    """Return the kernel's identifier of the mount of an open file (proc(5), ``mnt_id``); raises OSError."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        match = re.search(r"(?m)^mnt_id:\s*(\d+)$", file.read())
    if match is None:
        raise OSError("/proc/self/fdinfo names no mount")
    return int(match[1])


def mount_of(fd: int) -> Mount:
    """Return the mount of an open file; raises OSError if this process does not see it."""
    number = mount_id(fd)
    for mount in of_this_host():
        if mount.id == number:
            return mount
    raise OSError(f"/proc/self/mountinfo has no mount {number}")


def of_this_host(root: str = "/") -> list[Mount]:
    """Return the mounts that this process sees."""
    return parse_mountinfo(text(root, "proc/self/mountinfo"))


def is_within(path: str, directory: str) -> bool:
    """Return whether a path is a directory, or lies below it by its name."""
    return f"{path}/".startswith(f"{directory.rstrip('/')}/")


def mounted_over(*paths: str, root: str = "/") -> Mount | None:
    """Return what is mounted over paths of /sys or /proc below ``root``, or in them; None if they are the kernel's own.

    lxcfs shows a /proc/diskstats of its own. A bind mount may show another device of the kernel.
    """
    for mount in of_this_host(root):
        place = os.path.join(root, mount.point.lstrip("/"))
        top = {"sysfs": "/sys", "proc": "/proc"}.get(mount.type, "-")
        is_own = mount.point == f"{top}{mount.root}".rstrip("/")
        if is_own or not mount.point.startswith(("/sys", "/proc")):
            continue
        for path in paths:
            if is_within(path, place) or is_within(place, path):
                return mount
    return None


def space_of(path: str) -> Space:
    """Return the room at ``path`` for an ordinary user (statvfs(3)); raises OSError.

    Some file systems report the largest number as "no limit": then inodes have no limit here.
    """
    info = os.statvfs(path)
    used = (info.f_blocks - info.f_bfree) * info.f_frsize
    free = info.f_bavail * info.f_frsize
    files, files_free = info.f_files, info.f_favail
    if not 0 < files < _NO_LIMIT:
        files = files_free = 0
    return Space(
        bytes_total=max(0, min(used + free, _NO_LIMIT)),
        bytes_free=max(0, min(free, _NO_LIMIT)),
        inodes_total=files,
        inodes_free=files_free,
    )


def cache_id(path: str) -> str:
    """Return the name of a path's page cache: the kernel's boot identifier, the mount's device."""
    return f"{text('/proc/sys/kernel/random/boot_id')}:{os.stat(path).st_dev}"


def upper_directory(mount: Mount) -> str:
    """Return the directory that an overlay writes to, empty if the mount is no overlay."""
    upper = option(mount, "upperdir=.+")
    if mount.type != "overlay":
        return ""
    return unescape(upper.partition("=")[2])


#: Direction of an ioctl that only reads: bit 31, but bit 30 on these machines (their asm/ioctl.h).
READ = 1 << 31
if os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha")):
    READ = 1 << 30
