"""Mounts, file-system types, space, inodes and quota of a path, from the kernel.

Pure functions take text (``/proc/self/mountinfo``, the output of ``lfs quota``). The few functions
that look at the machine come last.

The name of a file system is its own, whatever device or server it comes from. It is a UUID, or a word and a number. A look needs neither root nor udev, and is "" if the file
system has no name or none can be seen. docs/keys.md lists the names of each type.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from iogauge.core.untrusted import build
from iogauge.node.kinds import Cache, kind_of

#: Inodes and bytes beyond all file systems.
_NO_LIMIT: Final = 2**63 - 1

#: How a counter of a block device is named: ``MAJOR:MINOR``, or a path of an NVMe disk by its name.
BLOCK_DEVICE: Final = re.compile("[0-9]+:[0-9]+|nvme[0-9]+c[0-9]+n[0-9]+")


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of the cache in a client, as :class:`~iogauge.node.kinds.Kind` has it for the type.

    The type promises this only on a stack that keeps the promise. ``why`` names what breaks it
    below, ``unsynced`` why fsync proves nothing; both are empty if all is well.
    """

    cache: Cache
    honours_o_direct: bool
    accounts: bool = False
    why: str = ""
    unsynced: str = ""

    def over(self, below: Below) -> Traits:
        """Return the traits on top of a stack, which can only take promises away."""
        broken = below.memory or below.cached
        cache: Cache = "memory" if below.memory else "opaque" if below.cached else self.cache
        return Traits(
            "memory" if self.cache == "memory" else cache,
            self.honours_o_direct and not (broken or below.o_direct),
            self.accounts,
            self.why or broken or below.o_direct,
            self.unsynced or below.fsync,
        )


def traits(fstype: str, cache: Cache | None = None, honours_o_direct: bool | None = None) -> Traits:
    """Return a type's traits with the site's overrides; ``fuse.*`` and unknown types are opaque."""
    default = kind_of(fstype)
    return Traits(
        cache or default.cache,
        default.honours_o_direct if honours_o_direct is None else honours_o_direct,
        default.accounts,
    )


@dataclass(frozen=True, slots=True)
class Mount:
    """One line of mountinfo: identifier, mount point, source, type, options.

    ``root`` is the directory of the file system that is mounted: not ``/`` for a bind mount.
    ``device`` is its number, ``MAJOR:MINOR``: that of a block device for the types of which that is so (:mod:`~iogauge.node.kinds`).
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
    return next((word for word in mount.options.split(",") if re.fullmatch(pattern, word)), "")


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
        if not dash or len(head) < 6 or len(tail) < 2 or not re.fullmatch("[0-9]{1,18}", head[0]):
            continue
        options = ",".join([head[5], *tail[2:3]])
        root, point, source = map(unescape, (*head[3:5], tail[1]))
        mounts.append(Mount(int(head[0]), point, source, tail[0], options, root, head[2]))
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


@dataclass(frozen=True, slots=True)
class Quota:
    """Bytes and files that a quota still allows; None means no limit.

    ``over`` says by how much a soft limit is exceeded whose grace is not over yet, else it is empty.
    After the grace the soft limit is a hard one.
    """

    owner: str
    bytes_left: int | None
    files_left: int | None
    over: str = ""


#: The owners of quotas, by the first letter of their number's name.
_OWNERS: Final = {"u": "user", "g": "group", "p": "project"}

#: How Lustre says that the grace is over: 2.17 and 2.12.
_NO_GRACE: Final = ("expired", "none")


def parse_lfs_quotas(text: str) -> tuple[Quota, ...]:
    """Parse ``lfs quota PATH``: the quotas that follow a line such as ``Disk quotas for usr x (uid 7):``."""
    parts = re.split(
        r"^Disk quotas for .* \(([ugp])id ([0-9]{1,10})\):\s*$", text, flags=re.MULTILINE
    )
    found = (
        parse_lfs_quota(answer, f"{_OWNERS[letter]} {number}")
        for letter, number, answer in zip(parts[1::3], parts[2::3], parts[3::3], strict=True)
    )
    return tuple(quota for quota in found if quota)


def parse_lfs_quota(text: str, owner: str) -> Quota | None:
    """Parse one answer of ``lfs quota``.

    Its fields are kbytes, quota, limit, grace, files, quota, limit, grace. A value over quota
    carries a ``*`` (Lustre 2.17). The path may have a line of its own. A limit of 0 means no limit.
    Returns None if the text has no such line (quota not enforced, not Lustre).
    """
    fields = text.split()
    numbers = [f.rstrip("*").strip("[]") for f in fields]
    for start in range(len(fields) - 7):
        window = numbers[start : start + 8]
        if all(re.fullmatch("[0-9]{1,18}", window[i]) for i in (0, 1, 2, 4, 5, 6)):
            kilobytes, over = _left(window[:4], "KiB")
            files, over_files = _left(window[4:], "files")
            return Quota(
                owner,
                None if kilobytes is None else kilobytes * 1024,
                files,
                ", ".join(filter(None, [over, over_files])),
            )
    return None


def _left(columns: Sequence[str], unit: str) -> tuple[int | None, str]:
    """Return what a limit still allows, and by how much a soft limit is exceeded within its grace."""
    *counts, grace = columns
    used, soft, hard = map(int, counts)
    over = soft and used > soft
    if over and grace in _NO_GRACE:
        return 0, ""
    left = max(0, hard - used) if hard else None
    return left, f"{used} {unit} of {soft}, grace {grace}" if over else ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """What lies below the mount of a path; :func:`iogauge.node.below.resolve` finds it.

    ``devices`` are the block devices directly under the file system, as ``MAJOR:MINOR``: all of a
    btrfs, those under the upper directory of an overlay. If the paths of an NVMe disk count in its place, they are its
    paths, by name (``nvme0c0n1``). It is empty for network file systems.
    ``disks`` are the whole disks at the bottom: their counters (``/proc/diskstats``) show what
    reached storage. ``unsure`` are those of both that the kernel says it does not count (``queue/iostats`` 0 in sysfs). It
    says so of device-mapper before Linux 6.5, and of md before 5.14, although it counts them. ``names`` gives the kernel's
    names. ``ways`` are those disks of the node, whatever their use, by
    which the bytes of a file system without ``devices`` may leave the node.

    The following are reasons in plain English, or empty. ``memory``: data end in memory. ``cached``:
    this kernel's page cache, a daemon or something unknown serves the file system itself.
    ``fsync``: fsync may return before data are on storage. ``o_direct``: O_DIRECT is accepted, but
    goes through the page cache. ``compresses``: data may shrink on their way.

    ``copies`` are the least and the most bytes that reach ``devices`` for each byte of a file.
    """

    devices: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
    unsure: tuple[str, ...] = ()
    ways: tuple[str, ...] = ()
    names: Mapping[str, str] = field(default_factory=dict)
    memory: str = ""
    cached: str = ""
    fsync: str = ""
    o_direct: str = ""
    compresses: str = ""
    copies: tuple[float, float] = (1.0, 1.0)

    @property
    def disk_of_partition(self) -> tuple[str, ...]:
        """Return the disk if the file system lies on one partition of a disk; else nothing."""
        if len(self.devices) != 1 or len(self.disks) != 1 or self.devices == self.disks:
            return ()
        disk, device = (self.names.get(number, "") for number in (*self.disks, *self.devices))
        is_partition = re.fullmatch(rf"{re.escape(disk)}p?[0-9]+", device) and disk
        return self.disks if is_partition else ()


@dataclass(frozen=True, slots=True)
class View:
    """One host's view of a path: its mount and its room.

    ``cache_id`` names the page cache of the path: kernel and mounted file system. Two hosts that
    are containers of one kernel may share it. ``below`` is the stack below the mount. ``targets``
    are the storage targets, if files are striped over them. ``uuid`` names the file system itself
    (:mod:`iogauge.node.mounts`), "" if unknown. ``unanswered`` names the owners whose quota was
    asked for in vain.
    """

    host: str
    path: str
    mount: Mount | None
    space: Space
    quotas: tuple[Quota, ...] = ()
    cache_id: str = ""
    below: Below = field(default_factory=lambda: Below())
    targets: tuple[StorageTarget, ...] = ()
    uuid: str = ""
    unanswered: tuple[str, ...] = ()

    @property
    def on_lustre(self) -> bool:
        """Return whether the mount is a client of Lustre."""
        return self.mount is not None and self.mount.type == "lustre"

    @property
    def whole_space(self) -> Space | None:
        """Return the room of the whole file system; None if it may be that of a project, whose quota limits it."""
        of_project = any(quota.owner.startswith("project") for quota in self.quotas)
        return None if of_project or self.unanswered else self.space

    @property
    def counters(self) -> tuple[str, ...]:
        """Return the names of the kernel's counters directly under the mount; empty without any.

        They are block devices, the mount itself on NFS, the file system's name on Lustre
        (job/witness.sh).
        """
        if self.mount is not None and self.mount.type in ("nfs", "nfs4"):
            return (self.mount.point,)
        if self.mount is not None and self.on_lustre:
            return (fsname_of(self.mount.source),)
        return self.below.devices

    def to_json(self) -> dict[str, Any]:
        """Return plain data for a JSON file; :meth:`from_json` is its inverse."""
        return asdict(self)

    @staticmethod
    def from_json(data: dict[str, Any]) -> View:
        """Return the view that :meth:`to_json` made plain; raises TypeError on other data."""
        # Old views have no keys for targets, UUID, unanswered questions, soft limits, ways and devices that may not count.
        whole = {"targets": (), "uuid": "", "unanswered": (), "quotas": (), **data}
        if isinstance(whole.get("below"), dict):
            whole["below"] = {"unsure": (), "ways": (), **whole["below"]}
        whole["quotas"] = [{"over": "", **quota} for quota in whole["quotas"]]
        view: View = build(View, whole)
        space = view.space
        if min(space.bytes_total, space.bytes_free, space.inodes_total, space.inodes_free) < 0:
            raise TypeError(f"{space}: room is not negative")
        return view


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
    at = [m for m in _mounts() if f"{path}/".startswith(f"{m.point.rstrip('/')}/")]
    return max(reversed(at), key=lambda mount: len(mount.point), default=None)


def mount_id(fd: int) -> int | None:
    """Return the kernel's identifier of the mount of an open file (proc(5), ``mnt_id``)."""
    with open(f"/proc/self/fdinfo/{fd}", encoding="ascii") as file:
        match = re.search(r"^mnt_id:\s*(\d+)$", file.read(), re.MULTILINE)
    return int(match[1]) if match else None


def mount_of(fd: int) -> Mount | None:
    """Return the mount of an open file."""
    number = mount_id(fd)
    return next((m for m in _mounts() if m.id == number), None)


def _mounts() -> list[Mount]:
    with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageTarget:
    """One storage target (OST) as a client sees it.

    ``flags`` are those of ``lfs df`` (lfs-df(1)): D degraded, N no new files, R read-only, S out of
    space, I out of inodes, f flash. ``bytes_total`` and ``bytes_free`` are for an ordinary user
    (Used + Available, Available). ``server`` is the current server's address (NID), None if
    unknown. A server with several addresses counts as several.
    """

    index: int
    uuid: str
    active: bool
    flags: str = ""
    bytes_total: int = 0
    bytes_free: int = 0
    server: str | None = None

    @property
    def fill(self) -> float:
        """Return the used share of what an ordinary user may use."""
        return 1 - self.bytes_free / self.bytes_total if self.bytes_total else 1.0


#: Direction of an ioctl that only reads: bit 31, but bit 30 on these machines (their asm/ioctl.h).
READ: Final = 1 << (30 if os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha")) else 31)


def _request(kind: int, number: int, size: int) -> int:
    """Return the number of a request that reads ``size`` bytes (``_IOR``, asm-generic/ioctl.h)."""
    return READ | size << 16 | kind << 8 | number


#: Requests by type: number, bytes in front, size, place of the UUID. From linux/fs.h
#: (FS_IOC_GETFSUUID, Linux 6.9, any type; the first byte is the length), fs/ext4/ext4.h
#: (EXT4_IOC_GETFSUUID, Linux 6.0; the caller gives the length), linux/btrfs.h (BTRFS_IOC_FS_INFO),
#: xfs_fs.h (XFS_IOC_FSGEOMETRY_V1, the form that every kernel answers).
_ANY: Final = (_request(0x15, 0, 17), b"", 17, 1)
_OF_TYPE: Final = {
    "ext4": (_request(ord("f"), 44, 8), b"\x10\0\0\0", 24, 8),
    "btrfs": (_request(0x94, 31, 1024), b"", 1024, 16),
    "xfs": (_request(ord("X"), 100, 112), b"", 112, 64),
}

#: Types whose statfs(2) number is made of an identity: ext4's UUID, the cluster of Ceph, the
#: dataset of ZFS. XFS and F2FS make it of the device number, which names no file system.
_NUMBERED: Final = ("ext2", "ext3", "ext4", "ceph", "zfs")
_NUMBER: Final = "fsid-"

_BY_UUID: Final = "/dev/disk/by-uuid"
_NFS_VOLUMES: Final = "/proc/fs/nfsfs/volumes"


def text_of(raw: bytes) -> str:
    """Return the text of a UUID; other lengths are hexadecimal, and zeros are "" (no UUID)."""
    digits = raw.hex()
    if len(raw) == 16:
        parts = (digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:])
        digits = "-".join(parts)
    return digits if any(raw) else ""


def folded(name: str) -> str:
    """Return a UUID as ext4's statfs(2) shows it: both halves, little-endian, exclusive or.

    That is ``uuid_to_fsid`` of linux/statfs.h. Other names stay as they are.
    """
    if not re.fullmatch("[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", name):
        return name
    raw = bytes.fromhex(name.replace("-", ""))
    first, second = (int.from_bytes(half, "little") for half in (raw[:8], raw[8:]))
    return f"{_NUMBER}{first ^ second:016x}"


def lustre_name(source: str) -> str:
    """Return the name of a Lustre file system from a mount's source: fsname and MGS NIDs, sorted.

    A source is ``nid[,nid...][:nid...]:/fsname[/directory]`` (mount.lustre(8)); commas join the
    NIDs of a server, colons join servers. Returns "" for another text.
    """
    nids, slash, path = source.partition(":/")
    found = re.findall(r"[:,]?([^@,\s]+@[a-z0-9]+)(?=[:,]|$)", nids)
    if not slash or not found or not (fsname := path.partition("/")[0]):
        return ""
    return f"{fsname}@{','.join(sorted(set(found)))}"


def nfs_name(volumes: str, device: int) -> str:
    """Return the server's identifier of a mounted NFS volume, from ``/proc/fs/nfsfs/volumes``.

    It is the same on every client, by whatever name or address it knows the server. Returns "" if
    the volume is not listed, or the server gives none.
    """
    wanted = f"{os.major(device)}:{os.minor(device)}"
    for line in volumes.splitlines():
        words = line.split()
        if len(words) >= 5 and words[3] == wanted and re.fullmatch("[0-9a-f]+:[0-9a-f]+", words[4]):
            return f"nfs-{words[4]}" if words[4].strip("0") != ":" else ""
    return ""


def _networks(nids: str) -> dict[str, set[str]]:
    """Return the addresses of NIDs by LNet network."""
    networks: dict[str, set[str]] = {}
    for nid in nids.split(","):
        address, _, network = nid.rpartition("@")
        networks.setdefault("tcp" if network == "tcp0" else network, set()).add(address)
    return networks


def differ(one: str, other: str) -> bool:
    """Return whether two names are of different file systems; an unknown one ("") never differs.

    A node may know only some NIDs of an MGS, or those of another network. So Lustre file systems of
    one name differ if they have a network in common, and no address on it.
    """
    if not one or not other or one == other:
        return False
    (fsname, at, nids), (fsname2, at2, nids2) = one.partition("@"), other.partition("@")
    if at and at2 and fsname == fsname2:
        networks, networks2 = _networks(nids), _networks(nids2)
        common = networks.keys() & networks2.keys()
        return bool(common) and not any(networks[n] & networks2[n] for n in common)
    if _NUMBER in (one[: len(_NUMBER)], other[: len(_NUMBER)]):
        return folded(one) != folded(other)
    return True


def _asked(path: str, kind: str) -> str:
    """Return the UUID that the kernel gives for a file or directory; "" if it gives none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        for request, head, size, place in [_ANY, *filter(None, [_OF_TYPE.get(kind)])]:
            answer = bytearray(head.ljust(size, b"\0"))
            with contextlib.suppress(OSError):
                fcntl.ioctl(fd, request, answer)
                length = answer[0] if place == 1 else 16
                if text := text_of(bytes(answer[place : place + length])):
                    return text
    finally:
        os.close(fd)
    return ""


def _linked(device: int) -> str:
    """Return the UUID that udev knows for a device; "" if it knows none."""
    with contextlib.suppress(OSError), os.scandir(_BY_UUID) as links:
        for link in links:
            with contextlib.suppress(OSError):
                if link.stat().st_rdev == device:
                    return link.name
    return ""


def is_upper(mount: Mount, upper: str, root: str = "/") -> bool:
    """Return whether a path is an overlay's upper directory: what overlay shows of its root is there.

    Paths are below ``root``.
    """
    if not os.path.isabs(upper):
        return False

    def seen(*parts: str) -> tuple[int, int, int]:
        info = os.stat(os.path.join(root, *(part.lstrip("/") for part in parts)))
        return info.st_mode, info.st_mtime_ns, info.st_ctime_ns

    with contextlib.suppress(OSError):
        for _ in range(3):  # somebody may write meanwhile
            if seen(mount.point) == seen(upper, mount.root):
                return True
    return False


def _of_overlay(path: str, mount: Mount) -> str:
    """Return an overlay's own UUID (Linux 6.6), else ``upper-`` and that of its upper directory."""
    if own := _asked(path, mount.type):
        return own
    upper = upper_directory(mount)
    name = uuid_of(upper, find_mount(upper)) if upper and is_upper(mount, upper) else ""
    return f"upper-{name}" if name else ""


def uuid_of(path: str, mount: Mount | None) -> str:
    """Return the name of the file system at an existing path, from its mount; "" if it has none.

    Raises OSError if the path cannot be looked at.
    """
    if mount is None or traits(mount.type).cache == "memory":
        return ""
    match mount.type:
        case "lustre":
            return lustre_name(mount.source)
        case "nfs" | "nfs4":
            with contextlib.suppress(OSError), open(_NFS_VOLUMES, encoding="ascii") as file:
                return nfs_name(file.read(), os.stat(path).st_dev)
            return ""
        case "fuse.glusterfs":
            volume = mount.source.rpartition(":")[2].strip("/").partition("/")[0]
            return f"glusterfs-{volume}" if volume else ""
        case "gpfs":
            return f"gpfs-{os.path.basename(mount.source)}"
        case "overlay":
            return _of_overlay(path, mount)
    if name := _asked(path, mount.type):
        return name
    if kind_of(mount.type).on_device and (name := _linked(os.stat(path).st_dev)):
        return name
    number = os.statvfs(path).f_fsid if mount.type in _NUMBERED else 0
    return f"{_NUMBER}{number:016x}" if number else ""
