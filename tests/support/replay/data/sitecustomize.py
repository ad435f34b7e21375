"""Data in the files of a replay, which have a size and no blocks: what is read differs from block to block."""

import os

_preadv = os.preadv


def preadv(fd, buffers, offset):
    """Read, and put made-up data where there are none."""
    count = _preadv(fd, buffers, offset)
    for buffer in buffers:
        buffer[:8] = (os.fstat(fd).st_ino + offset + 1).to_bytes(8, "little")
    return count


os.preadv = preadv
