"""Remove trees of many files at a limited rate, without leaving the file system or following a link."""

from __future__ import annotations

import contextlib
import errno
import functools
import itertools
import os
import resource
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from iogauge.node.mounts import mount_id

#: Names removed in a second if no marker sets a limit (default of limits.removals_per_second).
PER_SECOND: Final = 5000
_WORKERS: Final = 8

#: Names listed from a directory at a time, and names that a thread takes from the list.
_LISTED: Final = 100_000
_BATCH: Final = 100

#: Looks at a directory in which names keep appearing, and the time between them.
_LOOKS: Final = 20
_PAUSE_S: Final = 0.1

#: Errors for a name, and for an open directory, that another process has removed.
GONE: Final = (errno.ENOENT, errno.ESTALE)


class NotRemoved(OSError):
    """A tree could not be emptied. The message says what is left, and why."""


@dataclass
class _Directory:
    """A directory that is being emptied. ``stay`` are names that it keeps; ``left`` means that it stays itself."""

    fd: int
    name: str
    stay: set[str]
    inner: list[str] = field(default_factory=list)
    looks: int = 0
    left: bool = False


class Removal:
    """One removal. :meth:`run` does it and returns the number of removed names."""

    def __init__(
        self,
        *,
        per_second: int = PER_SECOND,
        seconds: float | None = None,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Stop after ``seconds``; once a second, pass the number of removed names to ``report``."""
        self._per_second, self._report = per_second, report
        self._batch = max(1, min(_BATCH, per_second // 10))
        self._due = self._told = time.monotonic()
        self._until = None if seconds is None else self._due + seconds
        self._lock = threading.Lock()
        self._removed = 0
        self._problems: list[str] = []
        self._place: tuple[int, int | None] = (0, None)

    def run(self, fd: int, path: str, keep: frozenset[str] = frozenset()) -> int:
        """Empty an open directory, except for the names in ``keep``.

        Raises :class:`NotRemoved` if something is left, after removing all that can be removed.
        """
        # One directory is open for each level of the tree.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._place = (os.fstat(fd).st_dev, mount_id(fd))
        way = [_Directory(os.dup(fd), path, set(keep))]
        try:
            while way:
                self._step(way)
                if way and self._late:
                    raise NotRemoved(f"{path}: out of time with {self._removed} names removed")
        finally:
            for directory in way:
                os.close(directory.fd)
        if self._problems:
            more = f" (and {len(self._problems) - 1} more)" if len(self._problems) > 1 else ""
            raise NotRemoved(f"{path} could not be emptied: {self._problems[0]}{more}")
        return self._removed

    def _step(self, way: list[_Directory]) -> None:
        """Enter the next directory of the last one on the way, or look at that, or leave it."""
        directory = way[-1]
        self._tell()
        if directory.inner:
            self._enter(directory.inner.pop(), way)
            return
        try:
            done = self._look(directory)
        except OSError as error:
            done, directory.left = True, error.errno not in GONE
            if directory.left:
                self._problems.append(f"{directory.name}: {error.strerror}")
        if done:
            os.close(way.pop().fd)
            if way:
                self._leave(directory, way[-1])

    def _look(self, directory: _Directory) -> bool:
        """Remove the files of a directory, and note the directories in it; return whether it is done."""
        files: list[str] = []
        with os.scandir(directory.fd) as entries:
            for entry in entries:
                if entry.name not in directory.stay:
                    inner = entry.is_dir(follow_symlinks=False)
                    (directory.inner if inner else files).append(entry.name)
                if len(files) + len(directory.inner) >= _LISTED:
                    break
            else:
                directory.looks += 1
        if not files and not directory.inner:
            return True
        if directory.looks > _LOOKS:
            self._problems.append(f"names keep appearing in {directory.name}")
            directory.left = True
            return True
        if directory.looks > 2:
            time.sleep(_PAUSE_S)
        batches = [files[n : n + self._batch] for n in range(0, len(files), self._batch)]
        work = functools.partial(self._unlink, directory, iter(batches))
        threads = [threading.Thread(target=work, daemon=True) for _ in batches[:_WORKERS]]
        for thread in threads:
            thread.start()
        for thread in threads:
            while thread.is_alive():
                thread.join(1.0)
                self._tell()
        return False

    def _unlink(self, directory: _Directory, batches: Iterator[Sequence[str]]) -> None:
        """Remove files in batches, which several threads take in turn."""
        for name in itertools.chain.from_iterable(batches):
            if not self._take():
                return
            try:
                os.unlink(name, dir_fd=directory.fd)
                self._count()
            except OSError as error:
                if error.errno not in (*GONE, errno.EISDIR):  # the next look sees a directory
                    self._give_up(directory, name, error.strerror)

    def _enter(self, name: str, way: list[_Directory]) -> None:
        """Open a directory in the last one on the way, and go on there if it lies on the same mount."""
        above = way[-1]
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=above.fd)
            way.append(_Directory(fd, name, set()))
            place = (os.fstat(fd).st_dev, mount_id(fd))
        except OSError as error:  # such as too many open files
            # No longer a directory: the next look sees what it is now.
            if error.errno not in (*GONE, errno.ENOTDIR, errno.ELOOP):
                self._give_up(above, name, error.strerror)
        else:
            if place == self._place:
                return
            self._problems.append(f"another file system is mounted at {name} in {above.name}")
            above.stay.add(name)
        if way[-1] is not above:
            os.close(way.pop().fd)

    def _leave(self, directory: _Directory, above: _Directory) -> None:
        """Remove a directory that is done, if nothing stays in it."""
        if directory.left or directory.stay:
            above.stay.add(directory.name)
            return
        if not self._take():
            return
        try:
            os.rmdir(directory.name, dir_fd=above.fd)
            self._count()
        except OSError as error:
            # It has new content, or is no directory by now: the next look sees it.
            if error.errno not in (*GONE, errno.ENOTEMPTY, errno.ENOTDIR):
                self._give_up(above, directory.name, error.strerror)

    def _take(self) -> bool:
        """Wait until one more name may be removed; return False if no time is left."""
        with self._lock:
            self._due = max(self._due, time.monotonic() - 0.2) + 1 / self._per_second
            due = self._due
        while not self._late and (wait := due - time.monotonic()) > 0:
            time.sleep(min(wait, 0.1))
        return not self._late

    @property
    def _late(self) -> bool:
        return self._until is not None and time.monotonic() >= self._until

    def _count(self) -> None:
        with self._lock:
            self._removed += 1

    def _tell(self) -> None:
        now = time.monotonic()
        if self._report and now >= self._told + 1:
            self._told = now
            self._report(self._removed)

    def _give_up(self, directory: _Directory, name: str, why: str | None) -> None:
        directory.stay.add(name)
        self._problems.append(f"{name} in {directory.name}: {why}")


class Progress:
    """Reports every few seconds how far a removal is; a short removal reports nothing."""

    def __init__(self, path: str, say: Callable[[str], None], every_s: float = 5.0) -> None:
        self._path, self._say, self._every = path, say, every_s
        self._start = self._last = time.monotonic()

    def __call__(self, count: int) -> None:
        """Take note of the number of removed names."""
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._say(f"iogauge: removing {self._path}: {count} names in {now - self._start:.0f} s")


def rmdir_if_empty(name: str, fd: int) -> None:
    """Remove a directory by its name in an open one; a directory with content stays."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=fd)
