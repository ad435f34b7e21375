"""Kinds of file systems: what their clients cache, which of the kernel's counts are exact on them, what they write beside data.
Layers below a mount can only take promises away.

One row a type, by its name in mountinfo. FUSE programs, and types without a row, promise nothing: they may cache in
their daemon and drop O_DIRECT, and the kernel's syncfs(2) ends at the daemon (fuse_sync_fs). No count is exact there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

#: How a client of a file system caches data.
Cache = Literal["page-cache", "opaque", "memory"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """What is known of a type of file system. A promise that is not kept makes figures untrue: each was seen kept."""

    #: ``page-cache``: the client keeps all data in the kernel's page cache, which can be dropped and proven empty.
    #: ``opaque``: it keeps data elsewhere too, in a daemon, an ARC, a page pool. ``memory``: there is no storage behind it.
    cache: Cache = "opaque"
    #: O_DIRECT bypasses every cache of the client.
    honours_o_direct: bool = False
    #: fsync(2) and syncfs(2) reach what lies below.
    syncs: bool = False
    #: The bytes that the kernel moves for a process are exact (proc(5), ``read_bytes`` and ``write_bytes``). On Lustre and
    #: NFS other threads read ahead for it.
    accounts: bool = False
    #: st_blocks is what a file takes, as soon as it is written back.
    counts_blocks: bool = False
    #: The inodes in use are exact at any time, and cost no message to a server. An overlay says those of its upper directory.
    counts_inodes: bool = False
    #: The inodes in use fall as files are removed; XFS counts that later.
    frees: bool = False
    #: A file has a map of its holes and compressed blocks (FIEMAP).
    maps: bool = False
    #: The number of the mount is that of its block device, whose counters then confirm bytes. A client of servers sets a
    #: number of its own; that of Lustre is a hash and may look like a device's. btrfs and bcachefs lie on several devices.
    on_device: bool = False
    #: It is a file system of one machine; others are reached over a network.
    is_local: bool = False
    #: No page is left of a direct transfer; btrfs may write through the page cache, for its checksums.
    past_pages: bool = False
    #: Bytes written beside the data for an operation that makes, removes or writes. Seen with mdtest, -Y, and fio: ext4 0.6
    #: KiB, and 2.1 KiB with inodes of 1,024 bytes (mkfs.ext4 -I); XFS 0.3 KiB, whatever the size of its inodes. Both also
    #: below an overlay. btrfs 14 KiB. f2fs has a page of 4 KiB for each inode.
    journal: int = 1024
    #: Part of the data that is written beside them, at most, if they are synced at the end: btrfs 42 % for 4 KiB.
    beside: float = 0.05
    #: What breaks these promises below; empty if all is well.
    why: str = ""
    #: Why fsync proves nothing; empty if all is well.
    unsynced: str = ""

    def over(self, below: Below) -> Kind:
        """Return the kind on top of layers, which can only take promises away."""
        broken = below.memory or below.cached or below.o_direct
        cache = self.cache
        if below.memory:
            cache = "memory"
        elif below.cached and cache != "memory":
            cache = "opaque"
        return replace(
            self,
            cache=cache,
            honours_o_direct=self.honours_o_direct and not broken,
            why=self.why or broken,
            unsynced=self.unsynced or below.fsync,
        )


_PAGES = Kind(cache="page-cache", honours_o_direct=True, syncs=True)
_LOCAL = replace(
    _PAGES,
    accounts=True,
    counts_blocks=True,
    maps=True,
    on_device=True,
    is_local=True,
    past_pages=True,
)
_XFS = replace(_LOCAL, counts_inodes=True)
_EXT = replace(_XFS, frees=True, journal=2304)
_TREES = replace(_LOCAL, past_pages=False, journal=16384, beside=0.5)
_MEMORY = Kind(cache="memory", syncs=True, is_local=True)

#: ZFS keeps an ARC, and before 2.3 ignores O_DIRECT. Spectrum Scale has its page pool.
KINDS: dict[str, Kind] = {
    **dict.fromkeys(("ext2", "ext3", "ext4"), _EXT),
    "xfs": _XFS,
    "f2fs": replace(_TREES, counts_blocks=False),
    "btrfs": replace(_TREES, on_device=False),
    # Its upper directory may lie on ext4, on XFS, or on trees.
    "overlay": replace(
        _TREES, on_device=False, counts_inodes=True, journal=_EXT.journal
    ),
    "lustre": replace(_PAGES, counts_blocks=True),
    **dict.fromkeys(("nfs", "nfs4", "ceph"), _PAGES),
    "beegfs": replace(_PAGES, honours_o_direct=False),
    "zfs": Kind(syncs=True, is_local=True),
    "bcachefs": Kind(is_local=True),
    "gpfs": Kind(honours_o_direct=True, syncs=True),
    "fuseblk": Kind(on_device=True),
    **dict.fromkeys(("tmpfs", "ramfs", "devtmpfs", "hugetlbfs"), _MEMORY),
}

#: Bytes written for an operation if each is synchronous by a mount option. Seen: ext4 137 KiB, XFS 27 KiB.
SYNCHRONOUS = 160 << 10


def kind_of(
    fstype: str, cache: Cache | None = None, honours_o_direct: bool | None = None
) -> Kind:
    """Return what is known of a type, with what a site declares."""
    kind = KINDS.get(fstype, Kind())
    if cache:
        kind = replace(kind, cache=cache)
    if honours_o_direct is not None:
        kind = replace(kind, honours_o_direct=honours_o_direct)
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Below:
    """What lies below the mount of a path; :func:`iogauge.node.layers.resolve` finds it.

    ``devices`` are the block devices directly under the file system, as ``MAJOR:MINOR``: all of a
    btrfs, those under the upper directory of an overlay. If the paths of an NVMe disk count in its place, they are its
    paths, by name (``nvme0c0n1``). It is empty for network file systems.
    ``disks`` are the whole disks at the bottom: their counters (``/proc/diskstats``) show what
    reached storage. ``names`` gives the kernel's names. ``ways`` are the devices by which the bytes of a file system
    without ``devices`` may leave the node: those under what a program (FUSE) shows, or all disks of the node.

    The following are reasons in plain English, or empty. ``memory``: data end in memory. ``cached``:
    this kernel's page cache, a daemon or something unknown serves the file system itself.
    ``fsync``: fsync may return before data are on storage. ``o_direct``: O_DIRECT is accepted, but
    goes through the page cache. ``compresses``: data may shrink on their way.

    ``copies`` are the least and the most bytes that reach ``devices`` for each byte of a file.
    """

    devices: tuple[str, ...] = ()
    disks: tuple[str, ...] = ()
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
        if len(self.devices) != 1 or len(self.disks) != 1:
            return ()
        disk, device = self.names.get(self.disks[0]), self.names.get(self.devices[0])
        if disk and device and re.fullmatch(rf"{re.escape(disk)}p?[0-9]+", device):
            return self.disks
        return ()
