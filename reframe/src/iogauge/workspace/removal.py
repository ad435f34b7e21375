"""Remove trees of many files at a limited rate, without leaving the file system or following a link."""

import contextlib
import errno
import itertools
import math
import os
import resource
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass

from iogauge.node.mounts import mount_id

#: Names removed in a second, at most.
PER_SECOND = 5000
_WORKERS = 8

#: Names listed from a directory at a time, and names that a thread takes from the list.
_LISTED = 100_000
_BATCH = 100

#: Looks at a directory in which names keep appearing, and the time between them.
_LOOKS = 20
_PAUSE_S = 0.1

#: Errors for a name, and for an open directory, that another process has removed.
GONE = (errno.ENOENT, errno.ESTALE)


class NotRemoved(OSError):
    """A tree could not be emptied. The message says what is left, and why."""


#: Errors after which the next look at the directory tells what a name is now.
_CHANGED = (*GONE, errno.EISDIR, errno.ENOTDIR, errno.ENOTEMPTY, errno.ELOOP)


@dataclass(frozen=True, slots=True)
class _Directory:
    """An open directory that is being emptied."""

    fd: int
    name: str
    #: Names that stay in it.
    stay: set[str]

    def listed(self) -> tuple[list[str], list[str], bool]:
        """Return files and directories in it, without those that stay; and whether these are all."""
        files: list[str] = []
        inner: list[str] = []
        with os.scandir(self.fd) as entries:
            for entry in entries:
                if entry.name not in self.stay:
                    names = files
                    if entry.is_dir(follow_symlinks=False):
                        names = inner
                    names.append(entry.name)
                if len(files) + len(inner) >= _LISTED:
                    return files, inner, False
        return files, inner, True


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
        self._due = self._reported = time.monotonic()
        self._until = math.inf
        if seconds is not None:
            self._until = self._due + seconds
        self._late = False
        self._lock = threading.Lock()
        self._removed = 0
        self._problems: list[str] = []
        self._place: tuple[int, int | None] = (0, None)

    def run(self, fd: int, path: str, keep: Collection[str] = ()) -> int:
        """Empty an open directory, except for the names in ``keep``.

        Raises :class:`NotRemoved` if something is left, after removing all that can be removed.
        """
        # One directory is open for each level of the tree.
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        if soft != hard:
            with contextlib.suppress(ValueError, OSError):
                resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self._place = (os.fstat(fd).st_dev, mount_id(fd))
        self._empty(_Directory(fd, path, set(keep)))
        if self._late:
            raise NotRemoved(f"{path}: out of time with {self._removed} names removed")
        if self._problems:
            problem = self._problems[0]
            if len(self._problems) > 1:
                problem += f" (and {len(self._problems) - 1} more)"
            raise NotRemoved(f"{path} could not be emptied: {problem}")
        return self._removed

    def _empty(self, directory: _Directory) -> bool:
        """Remove what is in a directory; return whether nothing stays."""
        looks = 0
        try:
            while self._in_time():
                self._tell()
                files, inner, whole = directory.listed()
                if not files and not inner:
                    return not directory.stay
                looks += whole
                if looks > _LOOKS:
                    raise OSError(errno.EBUSY, "names keep appearing in it")
                if looks > 2:
                    time.sleep(_PAUSE_S)
                self._remove_files(directory, files)
                for name in inner:
                    self._remove_tree(directory, name)
        except OSError as error:
            if error.errno not in GONE:
                self._problems.append(f"{directory.name}: {error.strerror}")
                return False
        return not self._late

    def _remove_files(self, directory: _Directory, files: Sequence[str]) -> None:
        """Remove files in batches, which several threads take in turn."""
        batches = iter(
            [files[n : n + self._batch] for n in range(0, len(files), self._batch)]
        )

        def work() -> None:
            for name in itertools.chain.from_iterable(batches):
                self._remove(os.unlink, directory, name)

        threads = [threading.Thread(target=work, daemon=True) for _ in range(_WORKERS)]
        for thread in threads[: len(files)]:
            thread.start()
        for thread in threads[: len(files)]:
            while thread.is_alive():
                thread.join(1.0)
                self._tell()

    def _remove_tree(self, above: _Directory, name: str) -> None:
        """Empty a directory in another one and remove it, if it lies on the same mount."""
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
        with contextlib.ExitStack() as stack:
            try:
                fd = os.open(name, flags, dir_fd=above.fd)
                stack.callback(os.close, fd)
                place = (os.fstat(fd).st_dev, mount_id(fd))
            except OSError as error:  # such as too many open files
                self._stays(above, name, error)
                return
            if place != self._place:
                self._problems.append(
                    f"another file system is mounted at {name} in {above.name}"
                )
            elif self._empty(_Directory(fd, name, set())):
                self._remove(os.rmdir, above, name)
                return
            above.stay.add(name)

    def _remove(
        self, remove: Callable[..., None], directory: _Directory, name: str
    ) -> None:
        """Remove one name, when its time has come."""
        with self._lock:
            self._due = max(self._due, time.monotonic() - 0.2) + 1 / self._per_second
            due = self._due
        wait = due - time.monotonic()
        while self._in_time() and wait > 0:
            time.sleep(min(wait, 0.1))
            wait = due - time.monotonic()
        if self._late:
            return
        try:
            remove(name, dir_fd=directory.fd)
            with self._lock:
                self._removed += 1
        except OSError as error:
            self._stays(directory, name, error)

    def _stays(self, directory: _Directory, name: str, error: OSError) -> None:
        if error.errno not in _CHANGED:
            directory.stay.add(name)
            self._problems.append(f"{name} in {directory.name}: {error.strerror}")

    def _in_time(self) -> bool:
        self._late = self._late or time.monotonic() >= self._until
        return not self._late

    def _tell(self) -> None:
        now = time.monotonic()
        if self._report and now >= self._reported + 1:
            self._reported = now
            self._report(self._removed)


class Progress:
    """Reports every few seconds how far a removal is; a short removal reports nothing."""

    def __init__(
        self, path: str, say: Callable[[str], None], every_s: float = 5.0
    ) -> None:
        self._path, self._say, self._every = path, say, every_s
        self._start = self._last = time.monotonic()

    def __call__(self, count: int) -> None:
        """Take note of the number of removed names."""
        now = time.monotonic()
        if now - self._last >= self._every:
            self._last = now
            self._say(
                f"iogauge: removing {self._path}: {count} names in {now - self._start:.0f} s"
            )


def rmdir_if_empty(name: str, fd: int) -> None:
    """Remove a directory by its name in an open one; a directory with content stays."""
    with contextlib.suppress(OSError):
        os.rmdir(name, dir_fd=fd)
