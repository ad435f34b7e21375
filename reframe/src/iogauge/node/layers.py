"""The layers below a mount, down to the disks: what is memory, what is cached, what is copied.

Measured on Linux 6.18 with ``/proc/diskstats`` and ``/proc/PID/io``. ext4 with data=journal and
directories with fscrypt accept O_DIRECT, and read from the page cache. btrfs writes through the
page cache where data have checksums, but data are on the device when the write returns, and reads
are direct. Extents that btrfs compressed are read from the page cache; random data, which G18
demands of such targets, are stored as they are and read directly. Counters of a loop device count
what its file's page cache answered too.

An ordinary user cannot ask a loop device for its file's inode: to him the path is the file, also in
a directory that he may not look into.
"""

import contextlib
import os
import re
import stat
import struct
from collections.abc import Sequence
from dataclasses import replace

from iogauge.node import btrfs
from iogauge.node.counters import is_counted
from iogauge.node.identity import shows, uuid_of
from iogauge.node.kernel import asked, listed, text
from iogauge.node.kinds import Below, kind_of
from iogauge.node.mounts import (
    READ,
    Mount,
    existing_parent,
    find_mount,
    mount_by_name,
    mounted_over,
    option,
    unescape,
    upper_directory,
)

_GET_ATTRIBUTES = READ | 0x00086601
_LOOP_STATUS = 0x4C05

#: Attributes of an inode (linux/fs.h): compressed (``chattr +c``), encrypted by fscrypt, data
#: journalled (``chattr +j``). New files inherit those of their directory.
_COMPRESSED = 0x4
_ENCRYPTED = 0x800
_JOURNALLED = 0x4000

#: Whole devices that are memory, and devices that a program or another cache may serve.
_MEMORY = {
    "zram": "compressed memory",
    "ram": "memory",
    "nullb": "which keeps nothing",
}
_SERVED = {
    "zd": "a volume of ZFS, which its cache (ARC) serves",
    "nbd": "which a server may answer from memory",
    "ublkb": "which a program of this host serves",
}
#: Devices without hardware of their own in sysfs that lead to storage.
_STORAGE = ("drbd", "rbd", "emcpower", "scini", "VxVM", "VxDMP")
#: Where the kernel shows block devices by their numbers.
_BY_NUMBER = "sys/dev/block"


def resolve(path: str, mount: Mount, *, root: str = "/") -> Below:
    """Return the layers below a path, which lies on ``mount``; raises OSError if it disappears.

    ``root`` holds ``sys``, ``proc``, ``dev`` and the files behind loop devices.
    """
    below = _Walk(root).file_system(path, mount, frozenset())
    devices, disks = _counting(root, below.devices), _counting(root, below.disks)
    below = replace(below, devices=devices, disks=disks)
    if devices:
        return below
    ways = _counting(root, below.ways) or _ways(root)
    return replace(below, ways=ways)


def _ways(root: str) -> tuple[str, ...]:
    """Return the devices of this node that lead to storage and lie over no other device; a loop device is among them.

    A partition, or a device over others, counts their bytes once more.
    """
    numbers = []
    for name in listed(root, "sys/block"):
        directory = os.path.realpath(os.path.join(root, "sys/block", name))
        number = text(directory, "dev")
        is_memory = _leaf(os.path.basename(directory), directory).memory
        if number and not is_memory and not _beneath(directory):
            numbers.append(number)
    return _counting(root, numbers)


def _counting(root: str, numbers: Sequence[str]) -> tuple[str, ...]:
    """Return the devices whose counters tell what given ones move.

    An NVMe disk that may have several paths counts nothing itself before Linux 6.2: its paths do. They are hidden devices
    without a number, ``nvme0c1n1`` of ``nvme0n1`` (drivers/nvme/host/multipath.c).
    """
    counting: dict[str, None] = {}
    for number in numbers:
        disk = os.path.basename(_whole(root, number)[0])
        match = re.fullmatch(r"(nvme[0-9]+)(n[0-9]+)", disk)
        paths = []
        if match and not is_counted(root, number):
            for name in listed(root, "sys/block"):
                if re.fullmatch(f"{match[1]}c[0-9]+{match[2]}", name):
                    paths.append(name)
        counting |= dict.fromkeys(paths or [number])
    return tuple(counting)


def join(parts: Sequence[Below]) -> Below:
    """Return what lies side by side as one; any reason of one counts for all."""
    joined = Below()
    for part in parts:
        joined = Below(
            disks=tuple(dict.fromkeys(joined.disks + part.disks)),
            names={**joined.names, **part.names},
            memory=joined.memory or part.memory,
            cached=joined.cached or part.cached,
            fsync=joined.fsync or part.fsync,
            compresses=joined.compresses or part.compresses,
        )
    return joined


def _unknown(reason: str) -> Below:
    """Return layers of which neither the cache nor the storage is known."""
    return Below(cached=reason, fsync=reason)


def _number(device: int) -> str:
    return f"{os.major(device)}:{os.minor(device)}"


def _on(name: str, below: Below) -> Below:
    """Return layers with a device on top, which the reasons name."""

    def named(reason: str) -> str:
        return reason and f"{name} on {reason}"

    return replace(
        below,
        memory=named(below.memory),
        cached=named(below.cached),
        fsync=named(below.fsync),
    )


def _attributes(path: str) -> int:
    """Return the attributes of an inode (lsattr(1)); 0 if they cannot be read."""
    answer = asked(path, _GET_ATTRIBUTES, bytes(8)) or bytes(8)
    return int(struct.unpack_from("I", answer)[0])


def _mount(path: str) -> Mount | None:
    """Return the mount of an existing path; None if there is no such path."""
    if not os.path.exists(path):
        return None
    with contextlib.suppress(OSError):
        return find_mount(path)
    return None


def _is_closed(path: str) -> bool:
    """Return whether a path lies in a directory that this user may not look into."""
    try:
        os.stat(path)
    except OSError as error:
        is_deleted = path.endswith(" (deleted)")
        return isinstance(error, PermissionError) and not is_deleted
    return False


def _whole(root: str, number: str) -> tuple[str, str]:
    """Return the directory of a whole device in sysfs, and the name of the given one."""
    directory = os.path.realpath(os.path.join(root, _BY_NUMBER, number))
    name = os.path.basename(directory)
    if os.path.exists(os.path.join(directory, "partition")):
        directory = os.path.dirname(directory)
    return directory, name


def _beneath(directory: str) -> list[str]:
    """Return the numbers of the devices below a whole device: dm, md, bcache with its cache."""
    numbers = []
    for name in listed(directory, "slaves"):
        numbers.append(text(directory, "slaves", name, "dev"))
    if numbers:
        for name in listed(directory, "bcache/cache"):
            if re.match(r"cache\d", name):
                numbers.append(text(directory, "bcache/cache", name, "../dev"))
    return list(filter(None, numbers))


def _leaf(name: str, directory: str) -> Below:
    """Return the layer of a whole device with no other below: a disk, unless it is known better."""
    kind = name.rstrip("0123456789")
    if kind in _MEMORY:
        return Below(memory=f"{name}, {_MEMORY[kind]}")
    model = text(directory, "device/model")
    if model in ("scsi_debug", "RAMDISK-MCP"):
        return Below(memory=f"{name}, a disk in memory ({model})")
    if kind == "dm-":
        return Below(memory=f"{name}, which maps to no device")
    if kind in _SERVED:
        return _unknown(f"{name}, {_SERVED[kind]}")
    if "/devices/virtual/block/" in directory and not name.startswith(_STORAGE):
        return _unknown(f"{name}, a virtual device of unknown kind")
    number = text(directory, "dev")
    return Below(disks=(number,), names={number: name})


def _compressing(mount: Mount, attributes: int) -> str:
    """Return why a file system may shrink data; empty if no reason is known."""
    if mount.type == "zfs":
        return "zfs"
    word = option(mount, "compress(-force)?=(?!no$|none$).+")
    if word:
        return f"{mount.type} compress={word.partition('=')[2]}"
    if attributes & _COMPRESSED and mount.type in ("btrfs", "f2fs"):
        return f"{mount.type}, which compresses what lies here (chattr +c or btrfs property)"
    if mount.type == "f2fs" and option(mount, r"compress_extension=\*"):
        return "f2fs compress_extension=*"
    return ""


class _Walk:
    """A walk down through file systems and devices. ``above`` holds the mounts on the way."""

    def __init__(self, root: str) -> None:
        self.root = root

    def place(self, *parts: str) -> str:
        return os.path.join(self.root, *(part.lstrip("/") for part in parts))

    def file_system(self, path: str, mount: Mount, above: frozenset[int]) -> Below:
        """Return the layers below a path on a mount."""
        if mount.id in above:
            return _unknown(
                f"{mount.type} at {mount.point}, which hides what lies below it"
            )
        above |= {mount.id}
        if mount.type == "overlay":
            return self.overlay(mount, above)
        path = existing_parent(path)
        devices = self.devices(path, mount)
        under = join([self.device(device, above) for device in devices])
        if mount.type == "btrfs" and not devices:
            under = _unknown("btrfs, whose devices the kernel does not show here")
        if kind_of(mount.type).cache == "memory":
            under = replace(under, memory=f"{mount.type} at {mount.point}")
        elif mount.type.startswith("fuse"):
            behind = _on(mount.type, self.behind_program(path, mount, above))
            memory, fsync = under.memory or behind.memory, under.fsync or behind.fsync
            names = {**behind.names, **under.names}
            ways = behind.devices or behind.ways
            under = replace(under, memory=memory, fsync=fsync, names=names, ways=ways)
        return self.promises(path, mount, replace(under, devices=devices))

    def behind_program(self, path: str, mount: Mount, above: frozenset[int]) -> Below:
        """Return the layers below what a program shows elsewhere, of which no promise counts; none if it is unproven.

        Seen in mountinfo: bindfs and gocryptfs have a directory as their source, fuse2fs an image or a device; sshfs has
        HOST:DIRECTORY, and fuse-overlayfs its own name, with no word of its upper directory. A directory counts if the mount
        shows it. The path below it may lie on another mount, or be a link. If names are encrypted, the nearest is asked.
        """
        source = self.place(mount.source)
        if not mount.source.startswith("/") or not os.path.exists(source):
            return Below()
        info = os.stat(source)
        if stat.S_ISBLK(info.st_mode):
            number = _number(info.st_rdev)
            return replace(self.device(number, above), devices=(number,))
        if stat.S_ISCHR(info.st_mode):
            return Below()
        if stat.S_ISDIR(info.st_mode):
            if not shows(mount, mount.source, self.root):
                return Below()
            inside = os.path.relpath(path, self.place(mount.point))
            source = existing_parent(
                os.path.join(source, mount.root.lstrip("/"), inside)
            )
        beneath = _mount(source)
        if beneath is None:
            return Below()
        return self.file_system(source, beneath, above)

    def promises(self, path: str, mount: Mount, below: Below) -> Below:
        """Add what a file system itself does to data: copies, compression, O_DIRECT."""
        attributes, o_direct, copies = 0, "", (1.0, 1.0)
        if mount.type in ("ext2", "ext3", "ext4", "f2fs", "btrfs"):
            attributes = _attributes(path)
        journalled = self.journalled(mount, below, attributes)
        if journalled:
            o_direct, copies = journalled, (1.0, 2.0)
        elif attributes & _ENCRYPTED:
            o_direct = f"{mount.type} encrypts what lies here (fscrypt)"
        elif attributes & _COMPRESSED and mount.type == "f2fs":
            o_direct = "f2fs compresses what lies here (chattr +c)"
        if mount.type == "btrfs":
            is_whole = btrfs.device_count(path) <= len(below.devices)
            copies = btrfs.copies(btrfs.data_profiles(path), is_whole)
        return replace(
            below,
            o_direct=o_direct,
            copies=copies,
            compresses=_compressing(mount, attributes) or below.compresses,
            fsync=below.fsync or self.unflushed(mount, below),
        )

    def forgetful(self, below: Below, *caches: str) -> list[str]:
        """Return the names of the disks below that have one of these write caches, in the kernel's words."""
        names = []
        for disk in below.disks:
            cache = text(self.place(_BY_NUMBER, disk), "queue/write_cache")
            if cache in caches:
                names.append(below.names.get(disk, disk))
        return names

    def unflushed(self, mount: Mount, below: Below) -> str:
        """Return a reason if fsync leaves data in the cache of a disk that forgets them without power."""
        word = option(mount, "nobarrier|barrier=0|fsync_mode=nobarrier")
        # The kernel may not tell.
        forgets = self.forgetful(below, "write back", "")
        if not word or (below.disks and not forgets):
            return ""
        disks = ", ".join(forgets) or "its disk"
        return (
            f"{mount.type} with {word}: fsync does not empty the write cache of {disks}"
        )

    def journalled(self, mount: Mount, below: Below, attributes: int) -> str:
        """Return a reason if data go through a journal; ext4 ignores ``chattr +j`` with delalloc.

        A default that tune2fs(8) set is not among the mount options.
        """
        if mount.type not in ("ext3", "ext4"):
            return ""
        options = mount.options.split(",")
        for device in below.devices:
            name = below.names.get(device, "")
            options += text(self.place("proc/fs/ext4", name, "options")).split("\n")
        if "data=journal" in options:
            return f"{mount.type} with data=journal"
        if attributes & _JOURNALLED and "nodelalloc" in options:
            return f"{mount.type} journals data here (chattr +j, nodelalloc)"
        return ""

    def devices(self, path: str, mount: Mount) -> tuple[str, ...]:
        """Return the numbers of the block devices directly under a file system."""
        if mount.type == "btrfs":
            folder = self.place("sys/fs/btrfs", uuid_of(path, mount), "devices")
            if mounted_over(folder, root=self.root):
                return ()
            numbers = [text(folder, name, "dev") for name in listed(folder)]
            return tuple(filter(None, numbers))
        if not kind_of(mount.type).on_device:
            return ()
        numbers = [mount.device]
        if mount.type in ("ext3", "ext4"):
            numbers += self.journals(mount.device)
        for name in ("logdev", "rtdev"):
            word = option(mount, f"{name}=.+")
            if word and mount.type == "xfs":
                with contextlib.suppress(OSError):
                    device = self.place(unescape(word.partition("=")[2]))
                    numbers.append(_number(os.stat(device).st_rdev))
        return tuple(numbers)

    def journals(self, number: str) -> list[str]:
        """Return the devices that hold nothing but journals, if an ext4 has its journal on one of them.

        The kernel names a journal by its device, and one in a file system by its inode too: ``sda1-8``.
        """
        own = os.path.basename(os.path.realpath(self.place(_BY_NUMBER, number)))
        names = listed(self.root, "proc/fs/jbd2")
        task = text(self.root, "sys/fs/ext4", own, "journal_task")
        if task in ("", "<none>") or any(name.startswith(f"{own}-") for name in names):
            return []
        found = [text(self.root, "sys/class/block", name, "dev") for name in names]
        return list(filter(None, found))

    def overlay(self, mount: Mount, above: frozenset[int]) -> Below:
        """Return the layers below an overlay: those of its upper directory, which takes all writes."""
        upper = upper_directory(mount)
        if not upper:  # nothing can be written
            return Below()
        beneath = None
        if shows(mount, upper, self.root):
            beneath = _mount(self.place(upper))
        if beneath is None:
            return _unknown(
                f"an overlay, whose upper directory {upper} cannot be seen here"
            )
        below = self.file_system(self.place(upper), beneath, above)
        if option(mount, "volatile|fsync=volatile"):
            return replace(below, fsync="a volatile overlay ignores fsync")
        return below

    def device(self, number: str, above: frozenset[int]) -> Below:
        """Return the layers below a block device, which the reasons and ``names`` include."""
        directory, name = _whole(self.root, number)
        over = mounted_over(self.place(_BY_NUMBER, number), directory, root=self.root)
        if over:
            return _unknown(
                f"the device {number}: {over.type} is mounted at {over.point}, over what the kernel shows of it"
            )
        if not os.path.isdir(directory):
            return _unknown(f"the device {number}, which the kernel does not show here")
        disk = os.path.basename(directory)
        numbers = _beneath(directory)
        if re.fullmatch(r"loop\d+", disk):
            below = self.loop(disk, directory, above)
        elif numbers:
            below = _on(disk, join([self.device(number, above) for number in numbers]))
        else:
            below = _leaf(disk, directory)
        fsync = below.fsync or self.keeps_flushes(disk, directory, below)
        below = replace(below, fsync=fsync)
        if disk != name:
            below = _on(name, below)
        identity = text(directory, "dm/uuid")
        # By vdo(8), or by LVM.
        if identity.startswith("VDO-") or identity.endswith("-vpool"):
            below = replace(below, compresses="dm-vdo")
        return replace(below, names={number: name, **below.names})

    def keeps_flushes(self, name: str, directory: str, below: Below) -> str:
        """Return a reason if a device hands no flush on to a disk below it that has a write cache."""
        if text(directory, "queue/write_cache") != "write through":
            return ""
        forgets = self.forgetful(below, "write back")
        if not forgets:
            return ""
        return f"{name} hands no flush on (queue/write_cache: write through), but {', '.join(forgets)} has a write cache"

    def loop(self, name: str, directory: str, above: frozenset[int]) -> Below:
        """Return the layers below a loop device: those of its file, or of its block device."""
        file = text(directory, "loop/backing_file")
        below = self.behind(name, file, above)
        if below is None:
            return _unknown(
                f"{name}, whose file {file} cannot be seen here, or is another one"
            )
        below = _on(name, below)
        if text(directory, "loop/dio") != "1":
            reason = f"{name}, whose file {file} goes through the page cache until root runs 'losetup --direct-io=on /dev/{name}'"
        elif below.o_direct:
            reason = f"{name}, whose file {file} goes through the page cache: {below.o_direct}"
        elif below.compresses.startswith("btrfs"):
            # It compresses nothing that is written past the page cache.
            return replace(below, compresses="")
        else:
            return below
        return replace(below, cached=below.cached or reason)

    def behind(self, name: str, file: str, above: frozenset[int]) -> Below | None:
        """Return the layers below a loop device's file; None if the path is not that file."""
        path = self.place(file)
        if _is_closed(path):
            return self.image(path, mount_by_name(path), above)
        mount = _mount(path)
        if not file or mount is None:
            return None
        info = os.stat(path)
        is_device = stat.S_ISBLK(info.st_mode)
        status = asked(self.place("dev", name), _LOOP_STATUS, bytes(232))  # root's
        if status:
            device, inode, special = struct.unpack_from("QQQ", status)
            is_that = (device, inode) == (info.st_dev, info.st_ino)
            if is_device:
                is_that = special == info.st_rdev
            if not is_that:
                return None
        if is_device:
            return self.device(_number(info.st_rdev), above)
        return self.image(path, mount, above)

    def image(self, path: str, mount: Mount, above: frozenset[int]) -> Below:
        """Return the layers below a loop device's file on a mount."""
        below = self.file_system(path, mount, above)
        if not kind_of(mount.type).syncs:
            return join([below, _unknown(f"{mount.type} at {mount.point}")])
        if not kind_of(mount.type).honours_o_direct:
            reason = (
                f"{mount.type} at {mount.point}, which is not known to honour O_DIRECT"
            )
            return replace(below, cached=below.cached or reason)
        return below
