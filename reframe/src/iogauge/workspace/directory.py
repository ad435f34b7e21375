"""The one directory that a case may write in, and how it is made and removed.

A session's directory is ``<target>/iogauge/<user>/<session>`` and holds a marker file that names its
owner. Nothing is ever removed that is not below a directory with our marker, owned by us, reached without
a symbolic link. Every step is taken from the descriptor of the directory above, so that what was checked is
what is used.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import pwd
import re
import socket
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final

from iogauge.core import processes, untrusted
from iogauge.core.files import replace_file
from iogauge.node.mounts import mount_id
from iogauge.workspace import permission, removal
from iogauge.workspace.removal import NotRemoved, Removal

MARKER: Final = ".iogauge-session"
ROOT: Final = "iogauge"

#: How long after a case's time limit its session counts as alive where it cannot be asked.
_MARGIN_S: Final = 86400

#: How long a directory counts as that of a living session where its marker says nothing.
_UNKNOWN_S: Final = 7 * 86400

#: How often a directory in which names keep appearing is emptied anew.
_ROUNDS: Final = 10

#: More than a marker can have.
_MOST_BYTES: Final = 1 << 16
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkdirError(OSError):
    """A directory is not ours to write in or to remove. The message names it, and why."""


def user_name() -> str:
    """Name of the user as a path component: session, job and janitor find the same, whatever their environment says.

    A node that does not know the user goes by what the job brought along.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = os.environ.get("LOGNAME") or os.environ.get("USER") or ""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    return name if name.strip(".") else f"uid{os.getuid()}"


def root_dir(target: str) -> str:
    """Path of the directory on a target that holds all that is ours, of all users."""
    return os.path.join(target, ROOT)


def session_dir(target: str, session: str) -> str:
    """Path of a session's directory on a target."""
    return os.path.join(target, ROOT, user_name(), session)


def require_name(name: str) -> None:
    """Raise :class:`WorkdirError` unless a text is a plain name for a directory, for every tool and shell."""
    if not re.fullmatch(r"[A-Za-z0-9_%+=,~-][A-Za-z0-9_%+=,.~-]{0,200}", name):
        raise WorkdirError(
            f"{name!r} is not a name for a directory: letters, digits and _ % + = , . ~ - are, "
            "and no dot in front"
        )


@contextlib.contextmanager
def inside(fd: int, name: str, path: str) -> Iterator[int]:
    """Open a directory by its name in an open one; raises :class:`WorkdirError` where it is a link."""
    try:
        inner = os.open(name, _DIRECTORY, dir_fd=fd)
    except OSError as error:
        if error.errno in (errno.ENOTDIR, errno.ELOOP):
            raise WorkdirError(
                f"{path} is not a directory (symbolic links are not followed): remove it"
            ) from None
        raise type(error)(error.errno, error.strerror, path) from None
    try:
        yield inner
    finally:
        os.close(inner)


def make(fd: int, path: str, mode: int) -> None:
    """Make a directory in an open one, its path's parent, or accept what is there; it has its mode from the beginning."""
    mask = os.umask(0)
    try:
        os.mkdir(os.path.basename(path), mode, dir_fd=fd)
    except FileExistsError:
        pass
    except OSError as error:
        raise type(error)(error.errno, error.strerror, path) from None
    finally:
        os.umask(mask)


@contextlib.contextmanager
def _naming(path: str) -> Iterator[None]:
    """Errors of what is done by a descriptor name no path: give them this one."""
    try:
        yield
    except OSError as error:
        if error.errno is None or os.path.isabs(str(error.filename or "")):
            raise
        raise type(error)(error.errno, error.strerror, path) from None


@contextlib.contextmanager
def _or_removed(fd: int, name: str) -> Iterator[None]:
    """Where what is begun in a directory fails, remove that by its name in an open one, if it is empty."""
    try:
        yield
    except OSError:
        removal.rmdir_if_empty(name, fd)
        raise


@contextlib.contextmanager
def root_of(fd: int, target: str) -> Iterator[int]:
    """Open the directory of :func:`root_dir` in an open target, and make it where it is missing.

    Raises :class:`WorkdirError` where it is a link, of another file system, or open to swaps by others.
    """
    root = root_dir(target)
    make(fd, root, 0o1777)
    with _or_removed(fd, ROOT), inside(fd, ROOT, root) as shared:
        info = os.fstat(shared)
        if mount_id(shared) != mount_id(fd):
            raise WorkdirError(f"another file system is mounted at {root}: not written to")
        # Other users' sessions come here too, also where the file system gives a new directory another mode. One
        # with something in it may be the caller's for something else, put here by himself or by somebody else.
        if info.st_uid == os.getuid() and not os.listdir(shared):
            os.fchmod(shared, 0o1777)
        elif info.st_mode & 0o022 and not info.st_mode & stat.S_ISVTX:
            raise WorkdirError(
                f"others could put something else in our place in {root}: have it made sticky "
                f"(chmod +t {root})"
            )
        yield shared


def create(
    target: str,
    session: str,
    case: str,
    host: str = "",
    *,
    owner_process: object = None,
    of_job: bool = False,
    time_limit_s: float = 0,
    removals_per_second: int = removal.PER_SECOND,
) -> str:
    """Make the session's directory with its marker, and the case's directory in it; returns the latter.

    ``host`` is where the session's own process runs, if not here, and ``owner_process`` that process, as from
    :func:`iogauge.core.processes.named`, if not this one: a job knows them from its case.
    ``time_limit_s``: how long the case may take, after which the marker expires. ``of_job``: see
    :func:`iogauge.workspace.permission.opened`. Raises :class:`~iogauge.workspace.permission.NotAllowed` where the target may not be
    written in, :class:`WorkdirError` where a component is a link or belongs to another user, OSError where
    the target cannot be written.
    """
    for part in (session, case):
        require_name(part)
    owner = {
        "session": session,
        "user": user_name(),
        "host": host or socket.gethostname(),
        "process": owner_process or processes.named(os.getpid()),
        "created": _utc(time.time()),
        "expires": _utc(time.time() + time_limit_s + _MARGIN_S),
        "removals_per_second": removals_per_second,
    }
    for attempt in range(10):
        try:
            with permission.opened(target, of_job) as place:
                return _create(place.fd, place.path, session, case, owner)
        except FileNotFoundError:  # another session of ours removed the empty parent meanwhile
            if attempt == 9 or not os.path.isdir(target):
                raise
            time.sleep(0.05)
    raise AssertionError("unreachable")


def _create(fd: int, target: str, session: str, case: str, owner: dict[str, Any]) -> str:
    path = session_dir(target, session)
    with _naming(path), contextlib.ExitStack() as stack:
        above = stack.enter_context(root_of(fd, target))
        for directory in (os.path.dirname(path), path):
            make(above, directory, 0o700)
            stack.enter_context(_or_removed(above, os.path.basename(directory)))
            above = stack.enter_context(inside(above, os.path.basename(directory), directory))
            if os.fstat(above).st_uid != os.getuid():
                raise WorkdirError(f"{directory} belongs to another user: not written to")
        _mark(above, owner)
        case_dir = os.path.join(path, case)
        try:
            os.mkdir(case, 0o700, dir_fd=above)
        except FileExistsError as error:
            raise FileExistsError(error.errno, error.strerror, case_dir) from None
        return case_dir


def _utc(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))


def _mark(fd: int, owner: dict[str, Any]) -> None:
    """Write the marker, or put off the expiry of the one that is there.

    One of a session of the same name that has ended is taken over; raises :class:`WorkdirError` where that runs.
    """
    before: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        before = _read(fd)
    if any(before.get(key) != owner[key] for key in ("host", "process")):
        here = before.get("host") == socket.gethostname()
        if here and "process" in before and processes.runs(before["process"]):
            raise WorkdirError(
                f"session {owner['session']} is that of process {before['process']} as well, which runs: "
                "give this one another name (IOGAUGE_SESSION)"
            )
    elif str(before.get("expires", "")) >= owner["expires"]:
        return
    else:
        owner = owner | before | {"expires": owner["expires"]}
    _write(fd, owner)


def _write(fd: int, owner: dict[str, Any]) -> None:
    replace_file(MARKER, json.dumps(owner).encode(), mode=0o600, dir_fd=fd, sync=True)
    # After a crash of the storage, too, nothing of ours lies there without a marker; some know no such thing.
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _read(fd: int) -> dict[str, Any]:
    """Content of the marker in an open directory; empty where it is damaged, as on a full target."""
    marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    with open(marker, "rb") as file:
        try:
            found = untrusted.parse_json(file.read(_MOST_BYTES).decode("utf-8", "replace"))
        except ValueError:
            return {}
    return found if isinstance(found, dict) else {}


@dataclass(frozen=True, slots=True)
class Session:
    """A session's directory as found on a target."""

    path: str
    owner: dict[str, Any]
    age_s: float


def sessions(target: str) -> list[Session]:
    """Sessions of this user on a target, oldest first; what is not ours is not listed.

    Raises OSError where the target, or the directory of the user's sessions, cannot be looked at.
    """
    os.stat(target)
    base = os.path.dirname(session_dir(target, "x"))
    found = []
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return []
    for name in names:
        path = os.path.join(base, name)
        with (
            contextlib.suppress(WorkdirError, FileNotFoundError, PermissionError),
            _ours(path) as ours,
        ):
            found.append(Session(path, ours.owner, time.time() - ours.changed))
    return sorted(found, key=lambda s: -s.age_s)


def may_be_alive(session: Session) -> bool:
    """Whether a session may still run: its process does, or cannot be asked and has not expired.

    A process on another host cannot be asked; one here can, whatever the clock says. A marker of before there
    was an expiry, or a process in it, has none. One that says nothing counts for a week.
    """
    if not session.owner.keys() & {"host", "expires", "session"}:
        return session.age_s < _UNKNOWN_S
    here = session.owner.get("host") == socket.gethostname()
    if here and "process" in session.owner:
        return processes.runs(session.owner["process"])
    expires = session.owner.get("expires")
    if isinstance(expires, str) and expires < _utc(time.time()):
        return False
    if not here:
        return True
    pid = str(session.owner.get("session", "")).rpartition("-")[2]
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")


@dataclass(frozen=True, slots=True)
class _Ours:
    """A session's directory that is ours, open: its descriptor, those above it, what its marker says, and since when."""

    fd: int
    above: tuple[int, int, int]
    owner: dict[str, Any]
    changed: float


@contextlib.contextmanager
def _ours(path: str) -> Iterator[_Ours]:
    """Open a session's directory; raises :class:`WorkdirError` where it is not ours."""
    parts = path.split(os.sep)
    if len(parts) < 4 or parts[-3] != ROOT:
        raise WorkdirError(f"{path} is not <target>/iogauge/<user>/<session>: not removed")
    target = os.sep.join(parts[:-3]) or os.sep
    with contextlib.ExitStack() as stack:
        fd = os.open(target, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        stack.callback(os.close, fd)
        chain, so_far = [fd], target
        for name in parts[-3:]:
            so_far = os.path.join(so_far, name)
            chain.append(stack.enter_context(inside(chain[-1], name, so_far)))
        fd = chain[-1]
        info = os.fstat(fd)
        owner: dict[str, Any] = {}
        if info.st_uid != os.getuid():
            raise WorkdirError(f"{path} belongs to another user: not removed")
        try:
            info = os.stat(MARKER, dir_fd=fd, follow_symlinks=False)
        except FileNotFoundError:
            # Who was killed before the marker was whole, or after it was removed, has left nothing else.
            if not all(name.startswith(f"{MARKER}.") for name in os.listdir(fd)):
                raise WorkdirError(f"{path} has no marker {MARKER}: not removed") from None
        else:
            if not stat.S_ISREG(info.st_mode):
                raise WorkdirError(f"{path}/{MARKER} is not a regular file: {path} is not removed")
            if info.st_uid != os.getuid():
                raise WorkdirError(f"{path} belongs to another user: not removed")
            owner = _read(fd)
        yield _Ours(fd, (chain[0], chain[1], chain[2]), owner, info.st_mtime)


def check_ours(path: str) -> None:
    """Raise :class:`WorkdirError` where a path is not a session's directory of ours, OSError where it is gone."""
    with _ours(os.path.abspath(path)):
        pass


def _pace(owner: dict[str, Any]) -> int:
    pace = owner.get("removals_per_second")
    return pace if isinstance(pace, int) and pace > 0 else removal.PER_SECOND


def remove(
    path: str,
    *,
    seconds: float | None = None,
    tell: Callable[[int], None] | None = None,
) -> None:
    """Remove a session's directory, its marker last, and its parents where they are empty.

    As fast as the marker says; no longer than ``seconds``; ``tell`` hears how many names are removed.
    Raises :class:`WorkdirError` where it is not ours, :class:`~iogauge.workspace.removal.NotRemoved` where something is
    left; removing what is gone is no error. The marker goes last so that an interrupted removal can be
    taken up again.
    """
    path = os.path.abspath(path)  # what is checked and what is removed must be spelt alike
    try:
        with _ours(path) as ours:
            names = path.split(os.sep)[-3:]
            for _ in range(_ROUNDS):
                work = Removal(per_second=_pace(ours.owner), seconds=seconds, tell=tell)
                work.run(ours.fd, path, keep=frozenset({MARKER}))
                try:
                    os.unlink(MARKER, dir_fd=ours.fd)
                except OSError as error:
                    if error.errno not in removal.GONE:  # otherwise another one removes it too
                        raise NotRemoved(
                            f"{path} could not be emptied: {MARKER}: {error.strerror}"
                        ) from error
                if not os.listdir(ours.fd):
                    break
                # What has appeared meanwhile must not lie there without a marker.
                _write(ours.fd, ours.owner)
            else:
                raise NotRemoved(f"{path} could not be emptied: names keep appearing in it")
            for fd, name in zip(reversed(ours.above), reversed(names), strict=True):
                removal.rmdir_if_empty(name, fd)
    except OSError as error:
        if error.errno not in removal.GONE or os.path.lexists(path):
            raise


def _empty(ours: _Ours, case: str, path: str, work: Removal) -> None:
    with inside(ours.fd, case, path) as fd:
        if mount_id(fd) != mount_id(ours.fd):
            raise WorkdirError(f"another file system is mounted at {path}: not removed")
        work.run(fd, path)


def empty_case(path: str, *, tell: Callable[[int], None] | None = None) -> None:
    """Remove what is in a case's directory, and keep that; raises as :func:`remove` does, and OSError where it is gone."""
    session, _, case = os.path.abspath(path).rpartition(os.sep)
    with _ours(session) as ours:
        _empty(ours, case, path, Removal(per_second=_pace(ours.owner), tell=tell))


def remove_case(
    path: str,
    *,
    seconds: float | None = None,
    tell: Callable[[int], None] | None = None,
) -> None:
    """Remove a case's directory from a session's that is ours; raises as :func:`remove` does."""
    session, _, case = os.path.abspath(path).rpartition(os.sep)
    with contextlib.suppress(FileNotFoundError), _ours(session) as ours:
        work = Removal(per_second=_pace(ours.owner), seconds=seconds, tell=tell)
        _empty(ours, case, path, work)
        os.rmdir(case, dir_fd=ours.fd)
