"""Remove trees of many files at a limited rate, without leaving the file system or following a link."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import threading
import time
from collections.abc import Callable
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
    """A directory that is being emptied; the top has ``parent`` None, and stays."""

    fd: int
    parent: _Directory | None
    name: str
    pending: int = 0
    looks: int = 0
    given_up: set[str] = field(default_factory=set)


class Removal:
    """One removal. :meth:`run` does it and returns the number of removed names."""

    def __init__(
        self,
        *,
        per_second: int = PER_SECOND,
        workers: int = _WORKERS,
        seconds: float | None = None,
        report: Callable[[int], None] | None = None,
    ) -> None:
        """Stop after ``seconds``; once a second, pass the number of removed names to ``report``."""
        self._per_second, self._workers, self._report = per_second, workers, report
        self._batch = max(1, min(_BATCH, per_second // 10))
        self._until = None if seconds is None else time.monotonic() + seconds
        self._condition = threading.Condition()
        #: Next tasks, the newest first: then few directories are open at a time.
        self._tasks: list[Callable[[], None]] = []
        self._busy = 0
        self._stopped = self._late = False
        self._open: set[int] = set()
        self._removed = 0
        self._due = time.monotonic()
        self._problems: list[str] = []
        self._error: BaseException | None = None
        self._place: tuple[int, int | None] = (0, None)
        self._keep: frozenset[str] = frozenset()

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
        self._keep = keep
        top = _Directory(os.dup(fd), None, path)
        self._open.add(top.fd)
        self._tasks.append(lambda: self._look(top))
        threads = [threading.Thread(target=self._work, daemon=True) for _ in range(self._workers)]
        try:
            for thread in threads:
                thread.start()
            self._wait()
        finally:
            with self._condition:
                self._stopped = True
                self._condition.notify_all()
            for thread in threads:
                thread.join()
            for left in self._open:
                os.close(left)
        if self._error is not None:
            raise self._error
        if self._late:
            raise NotRemoved(f"{path}: out of time with {self._removed} names removed")
        if self._problems:
            more = len(self._problems) - 1
            raise NotRemoved(
                f"{path} could not be emptied: {self._problems[0]}"
                + (f" (and {more} more)" if more else "")
            )
        return self._removed

    def _wait(self) -> None:
        """Wait for the threads, and report their progress."""
        reported = 0
        with self._condition:
            while (self._tasks or self._busy) and not self._stopped:
                self._condition.wait(1.0)
                if self._until is not None and time.monotonic() >= self._until:
                    self._late = True
                    break
                if self._report and self._removed != reported:
                    reported = self._removed
                    self._report(reported)

    def _work(self) -> None:
        while True:
            with self._condition:
                while not self._tasks and self._busy and not self._stopped:
                    self._condition.wait()
                if self._stopped or not self._tasks:
                    self._condition.notify_all()
                    return
                task = self._tasks.pop()
                self._busy += 1
            try:
                task()
            except BaseException as error:
                with self._condition:
                    self._error, self._stopped = self._error or error, True
            finally:
                with self._condition:
                    self._busy -= 1
                    self._condition.notify_all()

    def _add(self, *tasks: Callable[[], None]) -> None:
        with self._condition:
            self._tasks += tasks
            self._condition.notify_all()

    def _take(self) -> bool:
        """Wait until one more name may be removed; return False if the removal ends."""
        with self._condition:
            now = time.monotonic()
            self._due = max(self._due, now - 0.2) + 1 / self._per_second
            wait = self._due - now
        end = now + wait
        while wait > 0 and not self._stopped:
            time.sleep(min(wait, 0.1))
            wait = end - time.monotonic()
        return not self._stopped

    def _look(self, directory: _Directory) -> None:
        """Do :meth:`_list`, and carry on with other directories if this one cannot be listed."""
        try:
            self._list(directory)
        except OSError as error:
            if error.errno not in GONE:
                self._problem(f"{directory.name}: {error.strerror}")
            self._finish(directory, given_up=error.errno not in GONE)

    def _list(self, directory: _Directory) -> None:
        """List a directory and schedule the removal of its content; remove it if it is empty."""
        files: list[str] = []
        inner: list[str] = []
        spared = directory.given_up | (self._keep if directory.parent is None else frozenset())
        with os.scandir(directory.fd) as entries:
            for entry in entries:
                if entry.name not in spared:
                    (inner if entry.is_dir(follow_symlinks=False) else files).append(entry.name)
                if len(files) + len(inner) >= _LISTED:
                    break
            else:
                directory.looks += 1
        if not files and not inner:
            return self._finish(directory)
        if directory.looks > _LOOKS:
            self._problem(f"names keep appearing in {directory.name}")
            return self._finish(directory, given_up=True)
        if directory.looks > 2:
            time.sleep(_PAUSE_S)
        batches = [files[n : n + self._batch] for n in range(0, len(files), self._batch)]
        directory.pending = len(batches) + len(inner)
        self._add(
            *(lambda names=names: self._unlink(directory, names) for names in batches),
            *(lambda name=name: self._enter(directory, name) for name in inner),
        )
        return None

    def _done(self, directory: _Directory) -> None:
        """Count one part of a directory's content as done; after the last part, look again."""
        with self._condition:
            directory.pending -= 1
            if directory.pending:
                return
        self._add(lambda: self._look(directory))

    def _unlink(self, directory: _Directory, names: list[str]) -> None:
        for name in names:
            if not self._take():
                return
            try:
                os.unlink(name, dir_fd=directory.fd)
                self._count()
            except OSError as error:
                if error.errno not in (*GONE, errno.EISDIR):  # the next look sees a directory
                    self._give_up(directory, name, error)
        self._done(directory)

    def _enter(self, directory: _Directory, name: str) -> None:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        try:
            fd = os.open(name, flags, dir_fd=directory.fd)
        except OSError as error:
            # No longer a directory: the next look sees what it is now.
            if error.errno not in (*GONE, errno.ENOTDIR, errno.ELOOP):
                self._give_up(directory, name, error)
            return self._done(directory)
        with self._condition:
            self._open.add(fd)
        below = _Directory(fd, directory, name)
        try:
            place = (os.fstat(fd).st_dev, mount_id(fd))
        except OSError as error:  # such as too many open files
            if error.errno not in GONE:
                self._problem(f"{name} in {directory.name}: {error.strerror}")
            return self._finish(below, given_up=error.errno not in GONE)
        if place != self._place:
            self._problem(f"another file system is mounted at {name} in {directory.name}")
            return self._finish(below, given_up=True)
        return self._look(below)

    def _finish(self, directory: _Directory, given_up: bool = False) -> None:
        """Close a directory and, if nothing is left in it, remove it."""
        parent = directory.parent
        if parent is None:
            return
        with self._condition:
            self._open.discard(directory.fd)
        os.close(directory.fd)
        if given_up or directory.given_up:
            parent.given_up.add(directory.name)
        elif self._take():
            try:
                os.rmdir(directory.name, dir_fd=parent.fd)
                self._count()
            except OSError as error:
                # It has new content, or is no directory by now: the next look sees it.
                if error.errno not in (*GONE, errno.ENOTEMPTY, errno.ENOTDIR):
                    self._give_up(parent, directory.name, error)
        else:
            return
        self._done(parent)

    def _count(self) -> None:
        with self._condition:
            self._removed += 1

    def _give_up(self, directory: _Directory, name: str, error: OSError) -> None:
        directory.given_up.add(name)
        self._problem(f"{name} in {directory.name}: {error.strerror}")

    def _problem(self, text: str) -> None:
        with self._condition:
            self._problems.append(text)


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
