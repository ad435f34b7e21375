"""Whether a process is still there, and what of a case has outlived its job.

The number of a process alone does not name it, as numbers are used again. And a tool may leave processes behind that no
process group holds: fio's make sessions of their own, and wait for ever where fio was killed before it told
them to begin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

#: Variable in which everything that a job starts for its case finds the case's directory.
_VARIABLE: Final = b"IOG_DIR="

#: What keeps the target's lock has this as well.
_KEEPER: Final = b"IOG_KEEPS=1"

#: Seconds to wait for processes that were killed; one that waits for dead storage may never end.
_PATIENCE_S: Final = 5.0


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


def _line() -> set[int]:
    """This process and those it descends from: a job that tidies up, and whatever wraps its Python."""
    found, pid = set(), os.getpid()
    while pid > 0 and pid not in found:
        found.add(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return found


def of_case(directory: str) -> dict[int, str]:
    """Other processes of this user on this host that work for a case in a directory, or below it: their programs.

    Those that this one descends from are none. Nor is what keeps the target's lock: it ends by itself, and tells
    how that went.
    """
    wanted = _VARIABLE + os.fsencode(directory)
    spared = _line()
    found = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid != os.getuid():
                continue
            words = (entry / "environ").read_bytes().split(b"\0")
            if _KEEPER not in words and any(
                word == wanted or word.startswith(wanted + b"/") for word in words
            ):
                found[int(entry.name)] = (entry / "comm").read_text(errors="replace").strip()
    return {pid: program for pid, program in found.items() if started(pid)}


def end(directory: str) -> list[str]:
    """Kill what works for a case in a directory, or below it; says what that was."""
    ended: dict[int, str] = {}
    deadline = time.monotonic() + _PATIENCE_S
    while (left := of_case(directory)) and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
        time.sleep(0.02)
    return [
        f"killed {program} (process {pid}), which was still at work there"
        for pid, program in ended.items()
    ]
