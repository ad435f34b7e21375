"""What a type of file system promises of its client's cache, and what a stack below a mount takes away."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

#: How a client of a file system caches data.
Cache = Literal["page-cache", "opaque", "memory"]


@dataclass(frozen=True, slots=True)
class Traits:
    """What is known of the cache in a client of a file-system type.

    ``cache`` is ``page-cache`` if the client keeps all data in the kernel's page cache, which can
    be dropped and proven empty. It is ``opaque`` if the client keeps data elsewhere too: a daemon,
    an ARC, a page pool. It is ``memory`` if there is no storage behind it. ``honours_o_direct``
    means that O_DIRECT bypasses every cache of the client. ``accounts`` means that the kernel counts
    bytes that it moves for a process as the process's own (proc(5), ``read_bytes`` and
    ``write_bytes``). On Lustre and NFS other threads read ahead for it.

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


#: Known types, by the name in mountinfo. ZFS keeps an ARC, and before 2.3 ignores O_DIRECT. FUSE
#: file systems may cache in their daemon and drop the flag. Spectrum Scale has its page pool.
TRAITS: Final[dict[str, Traits]] = {
    **dict.fromkeys(
        ("ext2", "ext3", "ext4", "xfs", "f2fs", "btrfs", "overlay"),
        Traits("page-cache", True, True),
    ),
    **dict.fromkeys(("lustre", "nfs", "nfs4", "ceph", "gfs2", "ocfs2"), Traits("page-cache", True)),
    "beegfs": Traits("page-cache", False),
    "zfs": Traits("opaque", False),
    "gpfs": Traits("opaque", True),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), Traits("memory", False)),
}
UNKNOWN: Final = Traits("opaque", False)

#: Types that lie on the block device whose number their mount has. A client sets a number of its own, and it may look like
#: a device's: that of Lustre is a hash of its UUID (2.10 to 2.17, llite_lib.c). btrfs and bcachefs lie on several devices.
ON_DEVICE: Final = ("ext2", "ext3", "ext4", "xfs", "f2fs", "gfs2", "ocfs2", "fuseblk")


def traits(fstype: str, cache: Cache | None = None, honours_o_direct: bool | None = None) -> Traits:
    """Return a type's traits with the site's overrides; ``fuse.*`` and unknown types are opaque."""
    default = TRAITS.get(fstype, UNKNOWN)
    return Traits(
        cache or default.cache,
        default.honours_o_direct if honours_o_direct is None else honours_o_direct,
        default.accounts,
    )


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
