"""What btrfs says of itself: its devices, and how many copies of a byte they get."""

from __future__ import annotations

import struct
import sys
from collections.abc import Sequence
from typing import Final

from iogauge.node.identity import text_of
from iogauge.node.kernel import asked
from iogauge.node.mounts import READ

_FS_INFO: Final = READ | 0x0400941F
_SPACE_INFO: Final = 0xC0109414

#: Copies of a byte by the profile's bit (btrfs_tree.h). Parity of RAID5 and RAID6 is not among
#: them.
_DATA: Final = 1
_COPIES: Final = {4: 2, 5: 2, 6: 2, 9: 3, 10: 4}
_PARITY: Final = {7: 1, 8: 2}
#: Profiles that put each copy on a device of its own. DUP has both on one.
_MIRRORED: Final = sum(1 << bit for bit in _COPIES if bit != 5)


def identity(path: str) -> str:
    """Return the identifier of a btrfs, as sysfs names it; empty if the kernel does not tell."""
    return text_of(asked(path, _FS_INFO, bytes(1024))[16:32])


def device_count(path: str) -> int:
    """Return the number of devices that a btrfs was made of, with those that are missing; 0 if unknown."""
    info = asked(path, _FS_INFO, bytes(1024))
    return int.from_bytes(info[8:16], sys.byteorder) if info else 0


def data_profiles(path: str) -> list[int]:
    """Return the flags of all data block groups of a btrfs."""
    slots = 64
    answer = asked(path, _SPACE_INFO, struct.pack("QQ", slots, 0) + bytes(24 * slots))
    if not answer:
        return []
    spaces = struct.iter_unpack("QQQ", answer[16:])
    return [flags for flags, total, _ in spaces if flags & _DATA and total]


def copies(
    profiles: Sequence[int], devices: int, missing: int = 0
) -> tuple[float, float]:
    """Return the least and the most copies of a byte for the flags of all data block groups.

    RAID5 and RAID6 write whole stripes at best, a block with all its parity at worst. Of block groups that were made
    before devices went ``missing``, the ``devices`` that are left get the rest of the copies.
    """
    least, most = [], []
    for flags in profiles:
        lost = next((n for bit, n in _PARITY.items() if flags & 1 << bit), 0)
        each = next((n for bit, n in _COPIES.items() if flags & 1 << bit), 1)
        left = max(1, each - missing) if flags & _MIRRORED else each
        data = devices + missing - lost
        least.append(devices / data if lost and data > 0 else float(left))
        most.append(1.0 + lost if lost else float(each))
    return (min(least), max(most)) if profiles else (1.0, 1.0)
