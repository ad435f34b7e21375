"""Fill the target up to a level, with files in the case's own directory, which go when the case goes.

Space is taken by fallocate(2), which writes no byte. On a file system without it the C library writes a byte into each
block. How much is missing is asked again before each file: others may write, and nothing is ever filled beyond the level.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Final

from iogauge.core.paths import expand
from iogauge.core.units import format_bytes
from iogauge.core.untrusted import Plain
from iogauge.job.target import refuse
from iogauge.node.lustre.programs import LustreError, run_lfs
from iogauge.node.mounts import find_mount, space_of

#: Bytes of a file, at most: what is missing is asked before each.
FILE_BYTES: Final = 1 << 30
#: Less than this is not filled.
_LEAST_BYTES: Final = 1 << 20
#: Share of its bytes that a file must take on storage: a target that compresses takes none for zeros.
_STORED: Final = 0.95


@dataclass(frozen=True, slots=True)
class Filled(Plain):
    """How far a target was filled: the level in percent, the share that is full, and the bytes of the files."""

    level: int
    fill: float
    bytes: int = 0


def fill(
    level: int, most_bytes: int, need_bytes: int, directory: str
) -> tuple[Filled, str]:
    """Fill the file system of a directory up to ``level`` percent; return what was done, and the objection or "".

    ``most_bytes`` are the most that the site allows. ``need_bytes`` are those of the case, of which 1.2 x must be left.
    Raises OSError if the file system does not give the space.
    """
    space = space_of(os.path.dirname(directory))
    remaining = (100 - level) * space.bytes_total // 100
    missing = space.bytes_free - remaining
    done = Filled(level, space.fill)
    if missing < -space.bytes_total // 100:
        return done, (
            f"fill level {level} %: the target is {space.fill:.1%} full already; leave the level out of "
            "sweeps.fill_levels, or free space"
        )
    if missing > most_bytes:
        return done, (
            f"fill level {level} %: {format_bytes(missing)} are missing, and limits.fill_bytes allows "
            f"{format_bytes(most_bytes)}; raise it, or leave the level out of sweeps.fill_levels"
        )
    if remaining < 1.2 * need_bytes:
        return done, (
            f"fill level {level} %: {format_bytes(remaining)} would be left, and the case needs 1.2 x "
            f"{format_bytes(need_bytes)}; lower limits.case_bytes, or the level"
        )
    os.mkdir(directory, 0o700)
    mount = find_mount(directory)
    if mount is not None and mount.type == "lustre":
        try:
            run_lfs("setstripe", "-c", "-1", directory)
        except LustreError as error:
            raise OSError(f"{directory}: {error}") from error
    taken = _take(directory, remaining, most_bytes)
    return Filled(level, space_of(directory).fill, taken), ""


def _take(directory: str, remaining: int, most_bytes: int) -> int:
    """Make files until ``remaining`` bytes are free; return their bytes."""
    taken = number = 0
    while True:
        size = min(
            FILE_BYTES, space_of(directory).bytes_free - remaining, most_bytes - taken
        )
        if size < _LEAST_BYTES:
            return taken
        path = os.path.join(directory, f"{number:06d}")
        fd = os.open(
            path,
            os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC,
            0o600,
        )
        try:
            os.posix_fallocate(fd, 0, size)
            os.fsync(fd)
            stored = 512 * os.fstat(fd).st_blocks
        finally:
            os.close(fd)
        if stored < _STORED * size:
            raise OSError(
                f"{path}: {format_bytes(stored)} on storage for {format_bytes(size)}: a target that compresses cannot "
                "be filled this way; leave FillLevel out"
            )
        taken, number = taken + size, number + 1


def command(words: list[str]) -> int | None:
    """``fill LEVEL MOST NEED DIR KEEP``: fill the target, print how far that went, or refuse the case."""
    match words:
        case [level, most_bytes, need_bytes, directory, _]:
            filled, objection = fill(
                int(level), int(most_bytes), int(need_bytes), expand(directory)
            )
            print(json.dumps(filled.to_json()))
            return refuse(objection)
    return None
