"""One case at a time on a target.

The lock records its holder, does not outlive it, and never blocks indefinitely. It is a directory,
``<place>/iogauge/.lock/held``, that holds one file. The file's name is the holder's: random, never
used again, with the number of its beats at the end. Each beat renames the file: its old name is gone
for ever. The file's content is a line of JSON about the holder. ``place`` is the target, or the
directory that the site names in ``target.lock``. The lock needs only mkdir, rename, unlink and rmdir:
flock is local to a client on many mounts of Lustre.

**Taking.** The taker makes a directory of its own beside ``held`` with its file in it, and renames
it to ``held``. rename(2) replaces nothing or an empty directory (some file systems: nothing), never
a directory with content. So exactly one process takes ``held``, whole and with its content. The
taker then checks that its file is in place. A cleaner may have emptied its directory before the
rename; then it has taken nothing.

**Giving up** and **breaking** are one step: unlink ``held/<name>``. The name belongs to one beat of
one holder, so the step can only remove the lock of a holder that has not beaten since. Suppose that a
process decides that a holder is dead, sleeps for an hour and then breaks its lock. It finds no such
file, whoever holds the lock by then. Nor does a process that the cache of its client shows an old
name: whether a file can be unlinked or renamed decides the server, and no cache. If two processes
break a lock, one does and the other finds it done. The empty ``held``
that remains counts as no lock. A holder whose unlink succeeds has held the lock since taking it:
the file cannot have been away meanwhile. A holder whose file is gone was taken for dead. It has
lost the lock, touches nothing, and says so.

**Dead** is a holder whose processes have all ended, if that can be checked: same host name, boot
and namespace of processes. Any other holder is dead if its file keeps its name for its lease. The
waiting process counts that time in looks of its own, with a pause of known length before each. It
compares no clocks: a clock that is set, a node that sleeps or storage that hangs for both adds
nothing. Another process may get the lock if storage hangs for the holder alone, or if the holder is
stopped, for longer than the lease. The holder then learns so as described above.

**Waiting** ends with the lock, after a number of seconds of the waiter's monotonic clock, or when
the process that needs the lock has ended. The first waiting process to look gets the lock. A process
that has not waited yet lets those go first that wait: it gives them time to look, if one of them has left a
directory ``waiting`` beside ``held``. Whoever gets the lock removes it, and who still waits makes it anew.

**Leaving**: a process that gives the lock up removes ``held``, ``.lock`` and ``iogauge`` if they
are empty. It also removes directories beside ``held`` that dead takers left. It cannot distinguish
these from directories of living takers, which exist for a moment. So it first renames a directory
away from the name that its owner knows. If that comes before the owner's own rename, the owner
begins again; otherwise it finds nothing. Unlinking the file by its path would not do: the kernel
may have found the directory before it became ``held``, and look for the file in it afterwards.
``iogauge`` is sticky, so that users cannot remove each other's directories. ``.lock`` is not, so
that anybody can break the lock of a dead holder. Hence an empty ``.lock`` of another user may stay
until that user's next session.

Other things in the way (a file, a link, a directory with other names) are never removed. Every step
starts from the descriptor of the directory above, so that nothing is made, renamed or removed
elsewhere.
"""

import contextlib
import errno
import glob
import json
import os
import re
import stat
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from iogauge.core import processes as core_processes
from iogauge.core import untrusted
from iogauge.core.processes import runs
from iogauge.core.text import visible
from iogauge.core.units import format_seconds
from iogauge.workspace import directory

#: Seconds without a sign of life after which a holder is dead, if its processes cannot be checked.
LEASE_S = 120.0

#: Beats in a lease; seconds between two looks of a waiting process, and between two messages.
BEATS = 12
_LOOK_S = 1.0
_MESSAGE_S = 30.0
_FOLDER = ".lock"

#: How the names of sessions begin that measure for seconds, without the lock and only while nobody has it.
PROBE = "probe-"

#: Seconds for which a new holder waits for their directories to go: one takes 5. An older one is left of a dead probe.
_PROBES_S = 15.0
_PROBE_ENDED_S = 60.0
_HELD = "held"
_WAITING = "waiting"
#: A name: digits that are the holder's alone, and eight for its beats.
_NAME = re.compile(r"[0-9a-f]{32}")

#: Errors if another process takes or gives up the lock at the same time.
_RACES = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ESTALE)

#: More bytes than a lock's file can have.
_MOST_BYTES = 1 << 16


class LockError(OSError):
    """The lock cannot be taken, however long one waits. The message gives the reason."""


class Occupied(Exception):
    """Another process held the lock throughout the wait. The message names it."""


def _new_name() -> str:
    return f"{os.urandom(12).hex()}{0:08x}"


def folder(place: str) -> str:
    """Return the directory that holds only the lock of a place."""
    return os.path.join(directory.root_dir(place), _FOLDER)


@contextlib.contextmanager
def _open_folders(place: str, make: bool = False) -> Iterator[tuple[int, int, int]]:
    """Open a place, its ``iogauge`` and the lock's directory; make the latter two if asked.

    Raises OSError if they are missing, :class:`~iogauge.workspace.directory.WorkdirError` if they
    are links.
    """
    with contextlib.ExitStack() as stack:
        above = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, above)
        if make:
            root = stack.enter_context(directory.root_of(above, place))
            directory.make(root, folder(place), 0o777)
        else:
            path = directory.root_dir(place)
            root = stack.enter_context(directory.inside(above, directory.ROOT, path))
        fd = stack.enter_context(directory.inside(root, _FOLDER, folder(place)))
        yield above, root, fd


def _node() -> list[str]:
    """Return the marks that processes share if they can check each other: host, boot, namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return [
            os.uname().nodename,
            file.read().strip(),
            os.readlink("/proc/self/ns/pid"),
        ]


@dataclass(frozen=True, slots=True)
class Holder:
    """The holder of a lock, as read from its file."""

    path: str
    #: Empty if it is no lock.
    name: str
    content: bytes

    @property
    def details(self) -> Mapping[str, Any]:
        """Return the content of its file; empty if the file is damaged."""
        with contextlib.suppress(ValueError):
            details = untrusted.parse_json(
                self.content.split(b"\n")[0].decode("utf-8", "replace")
            )
            if isinstance(details, dict):
                return details
        return {}

    @property
    def lease_s(self) -> float:
        """Return the seconds without a sign of life after which it is dead."""
        lease = self.details.get("lease_s")
        if isinstance(lease, int | float) and 0 < lease < 86400:
            return float(lease)
        return LEASE_S

    @property
    def alive(self) -> bool | None:
        """Return whether any of its processes runs; None if that cannot be known here."""
        processes = self.details.get("processes")
        if (
            not isinstance(processes, list)
            or not processes
            or self.details.get("node") != _node()
        ):
            return None
        return any(map(runs, processes))

    @property
    def gone(self) -> bool:
        """Return whether its processes are known to have ended. False may mean unknown."""
        return self.alive is False

    def __str__(self) -> str:
        if not self.name:
            return f"{self.path}, which is no lock of this suite"
        details = self.details
        named = []
        for key in _DETAILS:
            if details.get(key):
                named.append(f"{key} {visible(str(details[key]))[:80]}")
        return f"{', '.join(named) or 'somebody whose file is damaged'} ({self.path})"


#: Fields of the file that describe its holder, in the order in which messages name them.
_DETAILS = ("user", "session", "case", "host", "job", "since")

#: Variables in which a scheduler passes a job its number.
_JOBS = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def _look_s(holder: Holder | None) -> float:
    """Return the seconds until the next look at a holder."""
    lease_s = LEASE_S
    if holder is not None:
        lease_s = holder.lease_s
    return min(_LOOK_S, lease_s / BEATS)


def standing(place: str) -> Holder | None:
    """Return the holder of a place's lock, or None; raises OSError if that cannot be seen."""
    held = os.path.join(folder(place), _HELD)
    try:
        with _open_folders(place) as (_, _, fd):
            if not stat.S_ISDIR(
                os.stat(_HELD, dir_fd=fd, follow_symlinks=False).st_mode
            ):
                return Holder(held, "", b"")
            with directory.inside(fd, _HELD, held) as inner:
                names = sorted(
                    os.listdir(inner),
                    key=lambda name: (not _NAME.fullmatch(name), name),
                )
                if not names:
                    return None
                path = os.path.join(held, names[0])
                if not _NAME.fullmatch(names[0]):
                    return Holder(path, "", b"")
                return Holder(path, names[0], _content(inner, names[0]))
    except FileNotFoundError:
        return None


def _content(fd: int, name: str) -> bytes:
    """Return the content of a holder's file; empty if it cannot be read."""
    with contextlib.suppress(OSError):
        # Never wait for a pipe.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        try:
            return os.read(file, _MOST_BYTES)
        finally:
            os.close(file)
    return b""


def remove(holder: Holder) -> bool:
    """Break the lock of a holder; return False if it has beaten or lost the lock since.

    Raises :class:`LockError` on failure.
    """
    place = holder.path
    for _ in range(4):
        place = os.path.dirname(place)
    try:
        _unlink(place, holder.name)
    except FileNotFoundError:
        return False
    except OSError as error:
        raise LockError(
            f"the lock of {holder} cannot be broken: {error.strerror or error}"
        ) from error
    return True


def _unlink(place: str, name: str) -> None:
    """Remove a holder's file from ``held``; raises OSError, FileNotFoundError if it is gone."""
    held = os.path.join(folder(place), _HELD)
    with _open_folders(place) as (_, _, fd), directory.inside(fd, _HELD, held) as inner:
        os.unlink(name, dir_fd=inner)


def tidy(place: str) -> None:
    """Remove empty directories of the lock, and directories that dead takers left."""
    with contextlib.suppress(OSError), _open_folders(place) as (above, root, fd):
        for name in filter(_NAME.fullmatch, os.listdir(fd)):
            with contextlib.suppress(OSError):
                _clear_away(fd, name)
        with contextlib.suppress(OSError):
            os.rmdir(_HELD, dir_fd=fd)
        os.rmdir(_FOLDER, dir_fd=root)
        os.rmdir(directory.ROOT, dir_fd=above)


def _clear_away(fd: int, name: str) -> None:
    """Rename a taker's directory that has not become ``held``, then remove it; nothing else."""
    with directory.inside(fd, name, name) as inner:
        if not all(map(_NAME.fullmatch, os.listdir(inner))):
            return
    away = _new_name()
    os.rename(name, away, src_dir_fd=fd, dst_dir_fd=fd)
    with directory.inside(fd, away, away) as inner:
        for file in filter(_NAME.fullmatch, os.listdir(inner)):
            os.unlink(file, dir_fd=inner)
    os.rmdir(away, dir_fd=fd)


@dataclass(slots=True)
class Lock:
    """A lock that this process holds. Until its release it must beat several times in a lease."""

    place: str
    #: From :func:`describe`.
    details: Mapping[str, Any]
    #: The content of its file.
    content: bytes = b""
    #: The name of its file, of the last beat.
    name: str = field(default_factory=_new_name)

    def try_take(self) -> bool:
        """Take the lock if it is free; raises OSError if no lock can be made."""
        try:
            with _open_folders(self.place, make=True) as (_, _, fd):
                with contextlib.suppress(OSError):
                    os.rmdir(_HELD, dir_fd=fd)
                try:
                    os.stat(_HELD, dir_fd=fd, follow_symlinks=False)
                    return False
                except FileNotFoundError:
                    self._put(fd)
        except OSError as error:
            # Another process was first, or left and removed the directories on its way out.
            if error.errno not in _RACES or not os.path.isdir(self.place):
                raise
        return self.beat()

    def _put(self, fd: int) -> None:
        """Make a directory of our own with our file in it, and rename it to ``held``."""
        since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        self.content = json.dumps({**self.details, "since": since}).encode() + b"\n"
        try:
            directory.make(fd, os.path.join(folder(self.place), self.name), 0o777)
            with directory.inside(fd, self.name, self.name) as own:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(self.name, flags, 0o644, dir_fd=own), "wb") as file:
                    os.fchmod(file.fileno(), 0o644)
                    file.write(self.content)
                    file.flush()
                    # Even after a crash of the storage, it must name its holder.
                    os.fsync(file.fileno())
            os.rename(self.name, _HELD, src_dir_fd=fd, dst_dir_fd=fd)
            with contextlib.suppress(OSError):
                os.rmdir(_WAITING, dir_fd=fd)
        finally:
            with (
                contextlib.suppress(OSError),
                directory.inside(fd, self.name, self.name) as own,
            ):
                os.unlink(self.name, dir_fd=own)
            with contextlib.suppress(OSError):
                os.rmdir(self.name, dir_fd=fd)

    @property
    def awaited(self) -> bool:
        """Return whether another process waits for the lock, or died while it did."""
        return os.path.isdir(os.path.join(folder(self.place), _WAITING))

    def wait(self) -> None:
        """Tell those who have not waited yet that this process waits."""
        with contextlib.suppress(OSError), _open_folders(self.place) as (_, _, fd):
            os.mkdir(_WAITING, 0o777, dir_fd=fd)

    def beat(self) -> bool:
        """Give a sign of life; return False if the lock was lost. Raises OSError on failure."""
        held = os.path.join(folder(self.place), _HELD)
        own, beats = self.name[:-8], int(self.name[-8:], 16)
        name = f"{own}{beats + 1:08x}"
        try:
            with (
                _open_folders(self.place) as (_, _, fd),
                directory.inside(fd, _HELD, held) as inner,
            ):
                try:
                    os.rename(self.name, name, src_dir_fd=inner, dst_dir_fd=inner)
                except FileNotFoundError:
                    # NFS may have been asked twice, and have answered the second time alone.
                    if name not in os.listdir(inner):
                        return False
        except (FileNotFoundError, directory.WorkdirError):
            return False
        self.name = name
        return True

    def release(self) -> bool:
        """Give the lock up; return whether it was held until now. Raises OSError if unknown."""
        if not self.beat():
            return False
        _unlink(self.place, self.name)
        tidy(self.place)
        return True


def await_probes(target: str, pause: Callable[[float], object] = time.sleep) -> None:
    """Wait until no probe is on a target whose lock this process has; what stays is a neighbour."""
    end = time.monotonic() + _PROBES_S
    users = directory.root_dir(target)
    while any(map(_is_new, glob.glob(os.path.join(users, "*", f"{PROBE}*", "*")))):
        if time.monotonic() > end:
            return
        pause(_LOOK_S)


def _is_new(path: str) -> bool:
    """Return whether a probe may be at work in its directory, which it made and filled in seconds."""
    with contextlib.suppress(OSError):
        return time.time() - os.stat(path).st_mtime < _PROBE_ENDED_S
    return False


def describe(
    *, session: str, case: str, lease_s: float, processes: Sequence[int]
) -> dict[str, Any]:
    """Return what a lock's file says of its holder, who is dead when all processes have ended."""
    return {
        "user": directory.user_name(),
        "session": session,
        "case": case,
        "host": os.uname().nodename,
        "job": next((os.environ[name] for name in _JOBS if os.environ.get(name)), None),
        "lease_s": lease_s,
        "node": _node(),
        "processes": [*map(core_processes.identity, processes)],
    }


def take(
    place: str,
    details: Mapping[str, Any],
    *,
    wait_s: float,
    pause: Callable[[float], bool],
    say: Callable[[str], None],
) -> Lock:
    """Wait for the lock of a place and take it.

    ``details`` come from :func:`describe`. ``pause`` sleeps for a number of seconds; it returns
    True to end the wait. Raises :class:`Occupied` after ``wait_s`` seconds, OSError if no lock can
    be made or a lock cannot be broken.
    """
    try:
        return _take(Lock(place, details), wait_s, pause, say)
    except BaseException:
        with contextlib.suppress(OSError):
            os.rmdir(os.path.join(folder(place), _WAITING))
        tidy(place)
        raise


def _take(
    lock: Lock,
    wait_s: float,
    pause: Callable[[float], bool],
    say: Callable[[str], None],
) -> Lock:
    #: The holder at the last look, and the seconds for which it has shown no sign of life: those of the pauses between looks.
    holder: Holder | None = None
    quiet_s = pause_s = 0.0
    start = time.monotonic()
    last_message = -_MESSAGE_S
    if lock.awaited:
        pause(2 * _LOOK_S)
    while not lock.try_take():
        lock.wait()
        present = standing(lock.place)
        if present is not None:
            quiet_s += pause_s
            if present != holder:
                quiet_s = 0.0
            holder = present
            dead = holder.gone or quiet_s >= holder.lease_s
            if holder.name and dead and remove(holder):
                why = f"no sign of life for {format_seconds(quiet_s)}"
                if holder.gone:
                    why = "its processes have ended"
                say(f"the lock of {holder} was broken: {why}")
                holder = None
                continue
        waited = time.monotonic() - start
        if waited >= wait_s:
            raise Occupied(
                f"after {format_seconds(waited)} of waiting the lock of the target is held by "
                f"{holder or 'others, one after the other'}, whose last sign of life was seen "
                f"{format_seconds(quiet_s)} ago"
            )
        if waited - last_message >= _MESSAGE_S and holder is not None:
            say(f"waiting for {holder}, {waited:.0f} of at most {wait_s:.0f} s")
            last_message = waited
        pause_s = _look_s(holder)
        if pause(pause_s):
            raise LockError("what waited for the lock has ended")
    return lock
