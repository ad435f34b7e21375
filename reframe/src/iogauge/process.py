"""Whether a process is still there: its number alone does not say so, as numbers are used again."""

from __future__ import annotations

import os


def started(pid: int) -> int | None:
    """When a process began, in ticks since boot: 0 for one that has ended, None where nobody tells."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return 0 if words[0] in "ZX" else int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def named(pid: int) -> list[int]:
    """What names a process for :func:`runs`, as plain data: [pid, start]."""
    return [pid, started(pid) or 0]


def runs(process: object) -> bool:
    """Whether a process, as from :func:`named`, is still there; True where that cannot be told."""
    match process:
        case [int(pid), int(start)] if 0 < pid < 1 << 31:
            try:
                os.kill(pid, 0)  # unlike /proc, this tells of other users' processes on every mount
            except ProcessLookupError:
                return False
            except PermissionError:
                pass
            return started(pid) in (start, None)
    return True
