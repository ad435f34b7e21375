"""Blocks whose content says whose they are, and what a block is that was read.

A block has a line with its owner, its number and its generation, and then bytes that follow from these: so a lost block, an old
one, a foreign and a damaged one are told apart.
"""

import functools
import random

BLOCK_BYTES = 1 << 20
_HEAD_BYTES = 128


@functools.cache
def _filler(owner: str) -> bytes:
    return random.Random(owner).randbytes(BLOCK_BYTES)


def block(owner: str, number: int, generation: int) -> bytes:
    """Return the content of a block."""
    head = f"{owner} {number} {generation}".encode().ljust(_HEAD_BYTES)
    # Another part of the same bytes for each block and generation: no page is like that of another.
    at = (number * 4099 + generation * 65537) % BLOCK_BYTES
    filler = _filler(owner)
    return (head + filler[at:] + filler[:at])[:BLOCK_BYTES]


def state_of(found: bytes, owner: str, number: int, due: int) -> str:
    """Return what a block is of which generation ``due`` was acknowledged: right, lost, old, foreign or damaged."""
    if not found.strip(b"\0"):
        return "lost"
    head = found[:_HEAD_BYTES].decode("ascii", "replace")
    whose, _, generation = head.rstrip().rpartition(" ")
    if not generation.isdecimal():
        return "damaged"
    if whose != f"{owner} {number}":
        return "foreign"
    if found != block(owner, number, int(generation)):
        return "damaged"
    # A write that was never acknowledged may have arrived.
    return "old" if int(generation) < due else "right"
