"""One case at a time on a target: a lock that names its holder, outlives none of them and never blocks for ever.

The lock is a directory, ``<place>/iogauge/.lock/held``, that holds one file. The file's name is the holder's, random
and never used again; its content is a line of JSON that says who holds the lock, and a number that the holder
rewrites again and again, its beat. ``place`` is the target, or what the site names in ``target.lock``. Nothing but
mkdir, rename, unlink and rmdir is asked of the file system: flock is local to a client on many mounts of Lustre.

**Taking** it: make a directory of one's own beside ``held`` with the file in it, and rename that to ``held``. rename(2)
puts a directory over nothing or over an empty directory (some file systems: over nothing), never over one with
something in it. So ``held`` is taken whole, with its content, by one. The taker looks whether its file is in place:
what sweeps may have emptied its directory before the rename, and then it has taken nothing.

**Giving it up**, and **breaking** it, are one step: unlink ``held/<name>``. Because the name is the holder's alone, the
step can only ever remove the lock that was meant. Somebody who had decided that a holder is dead, slept for an hour
and then breaks its lock finds no such file, whoever holds the lock by then; of two that break it one does, and the
other finds it done. What is left, an empty ``held``, is as good as none. A holder whose unlink succeeds held the lock from
its taking until then: the name cannot have been away meanwhile. One whose file is gone was taken for dead. It has lost
the lock, touches nothing, and says so.

**Dead** is a holder whose processes have all ended, as far as that can be asked: same host name, boot and
namespace of processes. Any other is dead when its file stays the same for its lease. The one that waits counts that in
looks that it took itself, with a pause of known length before each. It compares no clocks, of whichever node: a clock
that is set, a node that sleeps and storage that hangs for both add nothing. Storage that hangs for the holder alone, or a
holder that is stopped, for longer than the lease lets another one in; the holder then learns it as above.

**Waiting** ends: with the lock, after so many seconds of the waiter's monotonic clock, or when what it waits for has
gone away. It is not fair: of those that wait, the first to look has it.

**Leaving**: whoever gives the lock up removes, if they are empty, ``held``, ``.lock`` and ``iogauge``, and what takers
that died left beside ``held``. It cannot tell these from the living, whose directory is there for a moment. So it
renames one first, away from the name that its owner knows: either that comes before the owner's own rename, and the owner
begins again, or it finds nothing. To unlink the file by its path would not do: the kernel may have found the
directory before it became ``held``, and look for the file in it afterwards. ``iogauge`` is sticky, so that
users cannot remove each other's directories; ``.lock`` is not, so that anybody can break the lock of the dead. Hence
an empty ``.lock`` of another user may stay, until that user's next session.

What stands in the way and is no lock (a file, a link, a directory with other names) is never removed. Every
step is taken from the descriptor of the directory above, so that nothing is made, renamed or removed elsewhere.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import re
import stat
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from iogauge.core import processes as core_processes
from iogauge.core import untrusted
from iogauge.core.processes import runs
from iogauge.core.text import visible
from iogauge.core.units import format_seconds
from iogauge.workspace import directory

#: Seconds without a sign of life after which a holder that cannot be asked is dead.
LEASE_S: Final = 120.0

#: Beats in a lease; seconds between two looks of one that waits, and between two words about it.
BEATS: Final = 12
_LOOK_S: Final = 1.0
_TOLD_S: Final = 30.0
_FOLDER: Final = ".lock"
_HELD: Final = "held"
_NAME: Final = re.compile(r"[0-9a-f]{32}")

#: What somebody else who takes or gives up the lock makes fail.
_RACES: Final = (errno.EEXIST, errno.ENOTEMPTY, errno.ENOENT, errno.ESTALE)

#: More than a lock's file can have.
_MOST_BYTES: Final = 1 << 16


class LockError(OSError):
    """The lock cannot be taken, however long one waits. The message says why."""


class Occupied(Exception):
    """Another one held the lock for as long as this one waited. The message names it."""


def _new_name() -> str:
    return uuid.uuid4().hex


def folder(place: str) -> str:
    """The directory that holds nothing but the lock of a place."""
    return os.path.join(directory.root_dir(place), _FOLDER)


@contextlib.contextmanager
def _opened(place: str, make: bool = False) -> Iterator[tuple[int, int, int]]:
    """Descriptors of a place, its ``iogauge`` and the lock's directory; makes the latter two if asked to.

    Raises OSError where they are missing, :class:`~iogauge.workspace.directory.WorkdirError` where they are links.
    """
    with contextlib.ExitStack() as stack:
        above = os.open(place, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, above)
        root = stack.enter_context(
            directory.root_of(above, place)
            if make
            else directory.inside(above, directory.ROOT, directory.root_dir(place))
        )
        if make:
            directory.make(root, folder(place), 0o777)
        yield above, root, stack.enter_context(directory.inside(root, _FOLDER, folder(place)))


def _node() -> list[str]:
    """What two processes must have in common for one to ask for the other: host name, boot, namespace."""
    with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
        return [os.uname().nodename, file.read().strip(), os.readlink("/proc/self/ns/pid")]


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds a lock: what was read of it. ``name`` is empty where it is no lock at all."""

    path: str
    name: str
    content: bytes

    @property
    def said(self) -> Mapping[str, Any]:
        """What its file says; nothing where that is damaged."""
        with contextlib.suppress(ValueError):
            said = untrusted.parse_json(self.content.split(b"\n")[0].decode("utf-8", "replace"))
            if isinstance(said, dict):
                return said
        return {}

    @property
    def lease_s(self) -> float:
        """Seconds without a sign of life that make it dead."""
        lease = self.said.get("lease_s")
        return float(lease) if isinstance(lease, int | float) and 0 < lease < 86400 else LEASE_S

    @property
    def gone(self) -> bool:
        """Whether its processes are known to have ended. False says nothing."""
        processes = self.said.get("processes")
        return (
            isinstance(processes, list)
            and bool(processes)
            and self.said.get("node") == _node()
            and not any(map(runs, processes))
        )

    def __str__(self) -> str:
        if not self.name:
            return f"{self.path}, which is no lock of this suite"
        named = (f"{k} {visible(str(self.said[k]))[:80]}" for k in _TOLD if self.said.get(k))
        return f"{', '.join(named) or 'somebody whose word is damaged'} ({self.path})"


#: What the file says of its holder, in the order in which it is told.
_TOLD: Final = ("user", "session", "case", "host", "job", "since")

#: Variables in which a scheduler tells a job its number.
_JOBS: Final = ("SLURM_JOB_ID", "PBS_JOBID", "LSB_JOBID", "JOB_ID")


def _look_s(holder: Holder | None) -> float:
    """Seconds to the next look at a holder."""
    return min(_LOOK_S, (holder.lease_s if holder else LEASE_S) / BEATS)


def standing(place: str) -> Holder | None:
    """Who holds the lock of a place, None where nobody does; raises OSError where that cannot be seen."""
    held = os.path.join(folder(place), _HELD)
    try:
        with _opened(place) as (_, _, fd):
            if not stat.S_ISDIR(os.stat(_HELD, dir_fd=fd, follow_symlinks=False).st_mode):
                return Holder(held, "", b"")
            with directory.inside(fd, _HELD, held) as inner:
                names = sorted(
                    os.listdir(inner), key=lambda name: (not _NAME.fullmatch(name), name)
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
    """What the file of a holder says; nothing where it cannot be read."""
    with contextlib.suppress(OSError):
        # Opened anew each time, which is when NFS looks at what others wrote. No lock may be a pipe to wait on.
        file = os.open(name, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
        try:
            return os.read(file, _MOST_BYTES)
        finally:
            os.close(file)
    return b""


def remove(holder: Holder) -> None:
    """Break the lock of a holder, if it still has it; raises :class:`LockError` where that cannot be done."""
    place = holder.path
    for _ in range(4):
        place = os.path.dirname(place)
    try:
        if holder.name:
            _unlink(place, holder.name)
    except FileNotFoundError:
        return
    except OSError as error:
        raise LockError(
            f"the lock of {holder} cannot be broken: {error.strerror or error}"
        ) from error


def _unlink(place: str, name: str) -> None:
    """Remove the file of a holder from ``held``; raises OSError, FileNotFoundError where it is not there."""
    held = os.path.join(folder(place), _HELD)
    with _opened(place) as (_, _, fd), directory.inside(fd, _HELD, held) as inner:
        os.unlink(name, dir_fd=inner)


def tidy(place: str) -> None:
    """Remove what is empty, and what takers that died have left, of the lock's directories."""
    with contextlib.suppress(OSError), _opened(place) as (above, root, fd):
        for name in filter(_NAME.fullmatch, os.listdir(fd)):
            with contextlib.suppress(OSError):
                _sweep(fd, name)
        with contextlib.suppress(OSError):
            os.rmdir(_HELD, dir_fd=fd)
        os.rmdir(_FOLDER, dir_fd=root)
        os.rmdir(directory.ROOT, dir_fd=above)


def _sweep(fd: int, name: str) -> None:
    """Remove the directory of a taker that has not become ``held``, under another name; nothing else."""
    with directory.inside(fd, name, name) as inner:
        if [file for file in os.listdir(inner) if not _NAME.fullmatch(file)]:
            return
    away = _new_name()
    os.rename(name, away, src_dir_fd=fd, dst_dir_fd=fd)
    with directory.inside(fd, away, away) as inner:
        for file in filter(_NAME.fullmatch, os.listdir(inner)):
            os.unlink(file, dir_fd=inner)
    os.rmdir(away, dir_fd=fd)


@dataclass(slots=True)
class Watch:
    """For how long a holder has given no sign of life, counted in pauses between looks at it."""

    seen: Holder | None = None
    quiet_s: float = 0.0

    def dead(self, holder: Holder, pause_s: float) -> bool:
        """Whether the holder is dead, after one more look, ``pause_s`` seconds or more after the last."""
        self.quiet_s = self.quiet_s + pause_s if holder == self.seen else 0.0
        self.seen = holder
        return bool(holder.name) and (holder.gone or self.quiet_s >= holder.lease_s)


def find_dead(place: str, pause: Callable[[float], object] = time.sleep) -> Holder | None:
    """The holder of a place's lock if it is dead, which is known at once or after one lease at most."""
    watch, pause_s = Watch(), 0.0
    first = holder = standing(place)
    while holder is not None and holder == first and holder.name:
        if watch.dead(holder, pause_s):
            return holder
        pause_s = _look_s(holder)
        pause(pause_s)
        holder = standing(place)
    return None


@dataclass(slots=True)
class Lock:
    """A lock that this process holds. It must beat, several times in a lease, until it is released."""

    place: str
    content: bytes
    name: str = field(default_factory=_new_name)
    beats: int = 0

    def claim(self) -> bool:
        """Take the lock if nobody has it, whole or not at all; raises OSError where none can be made."""
        try:
            with _opened(self.place, make=True) as (_, _, fd):
                with contextlib.suppress(OSError):
                    os.rmdir(_HELD, dir_fd=fd)
                try:
                    os.stat(_HELD, dir_fd=fd, follow_symlinks=False)
                    return False
                except FileNotFoundError:
                    self._put(fd)
        except OSError as error:
            # Another one was first, or has left and removed the directories on its way out.
            if error.errno not in _RACES or not os.path.isdir(self.place):
                raise
        return self.beat()

    def _put(self, fd: int) -> None:
        """Make a directory of our own with our file in it, and rename it to ``held``."""
        try:
            directory.make(fd, os.path.join(folder(self.place), self.name), 0o777)
            with directory.inside(fd, self.name, self.name) as own:
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
                with open(os.open(self.name, flags, 0o644, dir_fd=own), "wb") as file:
                    os.fchmod(file.fileno(), 0o644)
                    file.write(self.content + b"%020d\n" % self.beats)
                    file.flush()
                    # After a crash of the storage, too, it tells whose it is.
                    os.fsync(file.fileno())
            os.rename(self.name, _HELD, src_dir_fd=fd, dst_dir_fd=fd)
        finally:
            with contextlib.suppress(OSError), directory.inside(fd, self.name, self.name) as own:
                os.unlink(self.name, dir_fd=own)
            with contextlib.suppress(OSError):
                os.rmdir(self.name, dir_fd=fd)

    def beat(self) -> bool:
        """Give a sign of life; False where the lock was lost. Raises OSError where the file cannot be written."""
        self.beats += 1
        held = os.path.join(folder(self.place), _HELD)
        try:
            with _opened(self.place) as (_, _, fd), directory.inside(fd, _HELD, held) as inner:
                # Opened by its name, which nobody else's lock has, and closed, which is when NFS writes it back.
                file = os.open(self.name, os.O_WRONLY | os.O_NOFOLLOW, dir_fd=inner)
        except (FileNotFoundError, directory.WorkdirError):
            return False
        try:
            os.pwrite(file, b"%020d\n" % self.beats, len(self.content))
        finally:
            os.close(file)
        return True

    def release(self) -> bool:
        """Give the lock up; True where it was held without a break until now. Raises OSError where that cannot be told."""
        try:
            _unlink(self.place, self.name)
        except (FileNotFoundError, directory.WorkdirError):
            return False
        tidy(self.place)
        return True


def describe(*, session: str, case: str, lease_s: float, processes: Sequence[int]) -> bytes:
    """What a lock says of its holder; it is dead when all of the processes have ended."""
    said = {
        "user": directory.user_name(),
        "session": session,
        "case": case,
        "host": os.uname().nodename,
        "job": next((os.environ[name] for name in _JOBS if os.environ.get(name)), None),
        "since": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "lease_s": lease_s,
        "node": _node(),
        "processes": [*map(core_processes.identity, processes)],
    }
    return json.dumps(said).encode() + b"\n"


def take(
    place: str,
    content: bytes,
    *,
    wait_s: float,
    pause: Callable[[float], bool],
    say: Callable[[str], None],
) -> Lock:
    """Wait for the lock of a place and take it.

    ``content`` is from :func:`describe`. ``pause`` sleeps for so many seconds, or ends the waiting with True.
    Raises :class:`Occupied` after ``wait_s`` seconds, OSError where no lock can be made or one cannot be broken.
    """
    try:
        return _take(Lock(place, content), wait_s, pause, say)
    except BaseException:
        tidy(place)
        raise


def _take(
    lock: Lock, wait_s: float, pause: Callable[[float], bool], say: Callable[[str], None]
) -> Lock:
    watch, pause_s = Watch(), 0.0
    start = time.monotonic()
    told, holder = -_TOLD_S, None
    while not lock.claim():
        found = standing(lock.place)
        if found is not None:
            holder = found
            if watch.dead(holder, pause_s):
                remove(holder)
                say(f"the lock of {holder} was broken: {_why(holder, watch)}")
                holder = None
                continue
        waited = time.monotonic() - start
        if waited >= wait_s:
            raise Occupied(
                f"after {format_seconds(waited)} of waiting the lock of the target is held by "
                f"{holder or 'others, one after the other'}, whose last sign of life was seen "
                f"{format_seconds(watch.quiet_s)} ago"
            )
        if waited - told >= _TOLD_S and holder is not None:
            say(f"waiting for {holder}, {waited:.0f} of at most {wait_s:.0f} s")
            told = waited
        pause_s = _look_s(holder)
        if pause(pause_s):
            raise LockError("what waited for the lock has ended")
    return lock


def _why(holder: Holder, watch: Watch) -> str:
    if holder.gone:
        return "its processes have ended"
    return f"no sign of life for {format_seconds(watch.quiet_s)}"
