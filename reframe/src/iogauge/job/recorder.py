"""What the agent on the first node sees several times a second: when bytes moved and files appeared, and when the tool
printed. It also sees what the tool's processes ask the kernel for, and which libraries are preloaded in them.

The counters are those of block devices, of the client of NFS, or of Lustre's client if root runs the job. Some file systems say
at any time how many inodes and bytes are in use; then these are counted too. The kernel says of each process what it passed to
read(2), write(2) and their like, on every file system.

A tool's seconds are its own word. Counters of the kernel say when its bytes really moved. The agent
that keeps the target's lock writes them down for as long as the job lasts.
"""

import contextlib
import os
import time
from collections.abc import Callable, Sequence

from iogauge.core.processes import parent, started
from iogauge.job.control_pipe import Task
from iogauge.node.between import of_processes
from iogauge.node.counters import Reading, follow
from iogauge.node.files import entries
from iogauge.plan.observations import (
    ASKED,
    FOUND,
    LOADED,
    MOST_FOUND,
    MOVED,
    PRINTED,
    append,
    line_of,
    note,
)

#: Seconds between two looks. The seconds of a short phase are contradicted as finely as its looks follow each other. So looks
#: are close to each other for some time from when a phase begins. A look takes some 50 microseconds of a core.
_PAUSE_S = 0.2
_CLOSE_S = 0.01
_CLOSE_FOR_S = 3.0

#: Lines that may wait before they are written.
_WAITING = 50

#: Seconds that a look may take. The bytes of a longer one moved later than its time says: a busy node made it wait.
#: Looks that follow each other closely confirm the seconds of short phases, and so must be more exact.
_EXACT_S = 0.01
_CLOSE_EXACT_S = 0.002
#: Looks at a task's program after which its preloaded libraries are noted: a wrapper may become the tool late.
_LIBRARIES_AT = (3, 20, 100)
#: The look at which all tasks of the node are looked at, once: the last of their processes, which are tools and not the
#: shells that started them.
_ALL_AT = 20
#: Looks that are tried before a phase.
_TRIES = 5
#: Processes of a task that are looked at, at most; fio has one for each of its jobs. So a look does not take too long:
#: those that follow each other closely, and those five times a second.
_MOST_PROCESSES = 16
_MANY_PROCESSES = 512

#: Bytes that were read and written.
_Moved = tuple[int, int]


def note_found(directory: str) -> None:
    """Record how many files a directory holds, counted up to a limit; raises OSError of the stage alone.

    Only names are read: no client learns what a later phase asks of a file. The count ends at a symbolic link, which no
    tool makes: the files behind it lie elsewhere. A directory is read as a whole before those in it, so that a link beside
    them is found.
    """
    found = 0
    with contextlib.suppress(OSError):
        for _, entry in entries(directory):
            if entry.is_symlink() or found == MOST_FOUND:
                break
            if entry.is_file(follow_symlinks=False):
                found += 1
    note(FOUND, found)


def _content(file: str) -> bytes:
    """Return what a small file of /proc holds; raises OSError. A look must take little time, and this takes the least."""
    descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(descriptor, 4096)
    finally:
        os.close(descriptor)


def _tree(first: int, most: int) -> list[int]:
    """Return a process and those that descend from it, up to a number; empty if it is gone."""
    found: list[int] = []
    waiting = [first]
    while waiting and len(found) < most:
        pid = waiting.pop(0)
        with contextlib.suppress(OSError, ValueError):
            below = _content(f"/proc/{pid}/task/{pid}/children").split()
            found.append(pid)
            waiting += map(int, below)
    return found


def tasks_beside(task: int) -> list[int]:
    """Return all that descends from what started a task's shell, as the other tasks of its node; empty if there is nothing."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        launcher = parent(parent(task))
        if launcher > 1:
            return _tree(launcher, _MANY_PROCESSES)[1:]
    return []


def asked_by(processes: Sequence[int]) -> _Moved:
    """Return what processes passed to read(2), write(2) and their like, with the sums of children that they waited for."""
    read = written = 0
    for pid in processes:
        with contextlib.suppress(OSError, ValueError, IndexError):
            sums = _content(f"/proc/{pid}/io").split()
            read, written = read + int(sums[1]), written + int(sums[3])
    return read, written


class _Log:
    """What was seen of one kind, whenever it has changed."""

    def __init__(self, what: str, lines: list[str]) -> None:
        self._what, self._lines = what, lines
        self._last: object = None
        self._quiet: float | None = None

    def note(self, now: float, seen: object) -> None:
        """Note what was seen at a time."""
        if seen == self._last:
            self._quiet = now
        else:
            self.settle()
            self._lines.append(line_of(self._what, seen, now))
            self._last = seen

    def settle(self) -> None:
        """Note the last look of a quiet time, so that the time ends there; the next look begins another."""
        if self._quiet is not None:
            self._lines.append(line_of(self._what, self._last, self._quiet))
        self._last = self._quiet = None


class Recorder:
    """Writes what it sees to the stage, if it has changed.

    ``counters`` are block devices (``MAJOR:MINOR``), the point of a mounted NFS, or the name of a
    Lustre file system. ``held_by`` is a directory on a target whose inodes are counted.
    """

    def __init__(
        self,
        counters: Sequence[str],
        held_by: str | None = None,
    ) -> None:
        """Open the counters; what cannot be read is left out."""
        self._looks: list[Callable[[], Reading]] = []
        self._lines: list[str] = []
        kinds = (MOVED, ASKED, LOADED, PRINTED)
        self._logs = {what: _Log(what, self._lines) for what in kinds}
        self._output = ""
        self._close_until = 0.0
        #: The process of the first task; 0 before it runs.
        self._task = 0
        self._program, self._looks_at_task = "", 0
        self._asked_before = self._asked_most = (0, 0)
        self._held_by: int | None = None
        if held_by is not None:
            with contextlib.suppress(OSError):
                self._held_by = os.open(
                    held_by, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
                )
        for name in counters:
            with contextlib.suppress(OSError, ValueError):
                look = follow(name)
                look()
                self._looks.append(look)

    def take(self, task: Task) -> None:
        """Look at the tool of this node's first task from now on."""
        if started(task.process) == task.start:
            self._task = task.process

    def begin(self, output: str = "", server: int | None = None) -> None:
        """Look often for a while: a phase begins. Its tool prints to the file ``output``, or its ``server`` does the work."""
        self._output = output
        self._task, self._looks_at_task = server or 0, 0
        # A server has worked in earlier phases.
        self._asked_before = asked_by(_tree(self._task, _MANY_PROCESSES))
        self._asked_most = 0, 0
        for _ in range(_TRIES):
            if self.look():
                break
        self._close_until = time.monotonic() + _CLOSE_FOR_S

    @property
    def pause_s(self) -> float:
        """Return the seconds until the next look."""
        if time.monotonic() < self._close_until:
            return _CLOSE_S
        return _PAUSE_S

    def look(self) -> bool:
        """Record what is seen, unless nothing has changed; raises OSError of the stage alone.

        Returns False if the node was too busy for an exact look.
        """
        if len(self._lines) > _WAITING:
            self.write()
        self._look_at_output()
        self._look_at_task()
        if not self._looks:
            return True
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        try:
            seen = [look() for look in self._looks]
            files = self._inodes()
        except (OSError, IndexError, ValueError):  # the device is gone
            return True
        if self._late(now):
            return False
        moved = sum(seen, Reading())
        counts = [moved.read, moved.written]
        if files:
            counts.append(files)
        self._logs[MOVED].note(now, counts)
        return True

    def _late(self, began: float) -> bool:
        """Return whether a look took too long, so that its time says little."""
        exact_s = _CLOSE_EXACT_S
        if self.pause_s == _PAUSE_S:
            exact_s = _EXACT_S
        return time.clock_gettime(time.CLOCK_BOOTTIME) - began > exact_s

    def _look_at_output(self) -> None:
        """Note how much the tool has printed."""
        if not self._output:
            return
        now, size = time.clock_gettime(time.CLOCK_BOOTTIME), 0
        with contextlib.suppress(OSError):
            size = os.stat(self._output).st_size
        if not self._late(now):
            self._logs[PRINTED].note(now, size)

    def _look_at_task(self) -> None:
        """Note what the first task of this node has asked for."""
        now = time.clock_gettime(time.CLOCK_BOOTTIME)
        most = _MOST_PROCESSES
        if self.pause_s == _PAUSE_S:
            most = _MANY_PROCESSES
        processes = _tree(self._task, most)
        asked = asked_by(processes)
        if not processes or self._late(now):
            return
        # A child may end while the others are looked at.
        before, highest = self._asked_before, self._asked_most
        read = max(asked[0] - before[0], highest[0])
        written = max(asked[1] - before[1], highest[1])
        self._asked_most = read, written
        self._logs[ASKED].note(now, [read, written])
        with contextlib.suppress(OSError):
            program = os.readlink(f"/proc/{processes[-1]}/exe")
            if program != self._program:
                self._program, self._looks_at_task = program, 0
        self._looks_at_task += 1
        if self._looks_at_task == _ALL_AT:
            processes = tasks_beside(self._task)[-_MOST_PROCESSES:]
        if self._looks_at_task in _LIBRARIES_AT:
            self._logs[LOADED].note(now, of_processes(processes))

    def _inodes(self) -> int:
        """Return the inodes in use, 0 if the file system does not count them."""
        if self._held_by is None:
            return 0
        status = os.fstatvfs(self._held_by)
        return max(0, status.f_files - status.f_ffree)

    def write(self) -> None:
        """Write the waiting lines; raises OSError."""
        for log in self._logs.values():
            log.settle()
        lines, self._lines[:] = "".join(self._lines), []
        if lines:
            append(lines)
