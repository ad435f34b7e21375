"""What btrfs says of itself: its devices, and how many copies of a byte they get."""

import struct
import sys
from collections.abc import Sequence

from iogauge.node.kernel import asked
from iogauge.node.mounts import READ

_FS_INFO = READ | 0x0400941F
_SPACE_INFO = 0xC0109414

_DATA = 1
#: Copies of a byte, or a block with all its parity, by the profile's flag (btrfs_tree.h): RAID1, DUP, RAID10, RAID5, RAID6,
#: RAID1C3, RAID1C4.
_COPIES = {16: 2, 32: 2, 64: 2, 128: 2, 256: 3, 512: 3, 1024: 4}
#: RAID5 and RAID6 write whole stripes at best.
_PARITY = 128 | 256


def device_count(path: str) -> int:
    """Return the number of devices that a btrfs was made of, with those that are missing; 0 if unknown."""
    info = asked(path, _FS_INFO, bytes(1024))
    return int.from_bytes(info[8:16], sys.byteorder)


def data_profiles(path: str) -> list[int]:
    """Return the flags of all data block groups of a btrfs."""
    slots = 64
    answer = asked(path, _SPACE_INFO, struct.pack("QQ", slots, 0) + bytes(24 * slots))
    if not answer:
        return []
    spaces = struct.iter_unpack("QQQ", answer[16:])
    return [flags for flags, total, _ in spaces if flags & _DATA and total]


def copies(profiles: Sequence[int], is_whole: bool) -> tuple[float, float]:
    """Return the least and the most copies of a byte for the flags of all data block groups.

    If a device is missing, fewer may be written.
    """
    least, most = [], [1]
    for flags in profiles:
        copies = 1
        for flag, number in _COPIES.items():
            if flags & flag:
                copies = number
        most.append(copies)
        if flags & _PARITY or not is_whole:
            copies = 1
        least.append(copies)
    return float(min(least, default=1)), float(max(most))
