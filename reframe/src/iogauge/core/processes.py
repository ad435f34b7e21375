"""Processes: whether one still runs, and which have outlived the job of their case.

A process number alone does not identify a process, as numbers are used again. Tools may leave
processes behind that belong to no process group: those of fio start sessions of their own. They
wait indefinitely if fio is killed before it tells them to begin.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final

#: Variable that holds the case's directory, in every process that a job starts for its case.
_VARIABLE: Final = b"IOG_DIR="

#: Further variable of the process that keeps the target's lock.
_KEEPER: Final = b"IOG_KEEPS=1"

#: Seconds to wait for killed processes; a process that waits for dead storage may never end.
_WAIT_S: Final = 5.0


def started(pid: int) -> int | None:
    """Return when a process began, in ticks since boot: 0 if it has ended, None if unknown."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            words = file.read().rpartition(")")[2].split()
        return 0 if words[0] in "ZX" else int(words[19])
    except (OSError, ValueError, IndexError):
        return None


def identity(pid: int) -> list[int]:
    """Return what identifies a process for :func:`runs`, as plain data: [pid, start]."""
    return [pid, started(pid) or 0]


def runs(process: object) -> bool:
    """Return whether a process of :func:`identity` still runs; True if that cannot be found out."""
    match process:
        case [int(pid), int(start)] if 0 < pid < 1 << 31:
            try:
                os.kill(pid, 0)  # unlike /proc, this sees other users' processes on every mount
            except ProcessLookupError:
                return False
            except PermissionError:
                pass
            return started(pid) in (start, None)
    return True


def _ancestors() -> set[int]:
    """Return this process and its ancestors: a job that cleans up, and wrappers of its Python."""
    ancestors, pid = set(), os.getpid()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        try:
            with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
                pid = int(file.read().rpartition(")")[2].split()[1])
        except (OSError, ValueError, IndexError):
            break
    return ancestors


def of_case(directory: str) -> dict[int, str]:
    """Return other processes that work for a case in a directory or below it, with their programs.

    Only this user's processes on this host count. Ancestors of this process are left out, and so is
    the keeper of the target's lock: it ends by itself and reports how that went.
    """
    wanted = _VARIABLE + os.fsencode(directory)
    spared = _ancestors()
    programs = {}
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
                programs[int(entry.name)] = (entry / "comm").read_text(errors="replace").strip()
    return {pid: program for pid, program in programs.items() if started(pid)}


def end(directory: str) -> list[str]:
    """Kill the processes that work for a case in a directory or below it; return a message each."""
    ended: dict[int, str] = {}
    deadline = time.monotonic() + _WAIT_S
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
