"""The only directory that a case may write in: how it is made, and how it and nothing beside it is removed.

Every step goes through the descriptor of an open directory, from the first one down. A name that
becomes a symbolic link between two looks is removed as a name, and not followed. Directories with a
mounted file system are not entered. Jobs, sessions and the janitor all remove in this way.

A session's directory is ``<target>/iogauge/<user>/<session>`` and holds a marker file that names
its owner. Only what lies below a directory with our marker is ever removed. That directory must be
owned by us and reached without a symbolic link. Every step starts from the descriptor of the
directory above, so that exactly the checked directory is used.
"""

import contextlib
import errno
import json
import os
import pwd
import re
import stat
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from iogauge.core import processes, untrusted
from iogauge.core.paths import replace_file
from iogauge.node.mounts import mount_id
from iogauge.workspace import permission
from iogauge.workspace.removal import GONE, NotRemoved, Removal, rmdir_if_empty

MARKER = ".iogauge-session"
ROOT = "iogauge"

#: Seconds for which a session counts as alive beyond its case's time limit, if it cannot be
#: checked.
_MARGIN_S = 86400

#: Seconds for which a session counts as alive if its marker does not help.
_UNKNOWN_S = 7 * 86400

#: More bytes than a marker can have.
_MOST_BYTES = 1 << 16
_DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class WorkdirError(OSError):
    """A directory is not ours to write in or to remove. The message names it, and the reason."""


def user_name() -> str:
    """Return the user's name as a path component.

    Session, job and janitor get the same name, whatever their environment. A node that does not
    know the user takes the name from the job's environment.
    """
    try:
        name = pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = os.environ.get("LOGNAME") or os.environ.get("USER") or ""
    name = re.sub(r"[^A-Za-z0-9_.-]", "_", name)
    if not name.strip("."):
        return f"uid{os.getuid()}"
    return name


def root_dir(target: str) -> str:
    """Return the path of the directory on a target that holds all of our data, of all users."""
    return os.path.join(target, ROOT)


def session_dir(target: str, session: str) -> str:
    """Return the path of a session's directory on a target."""
    return os.path.join(target, ROOT, user_name(), session)


def require_name(name: str) -> None:
    """Raise :class:`WorkdirError` unless a text is a safe directory name for tools and shells."""
    if not re.fullmatch(r"[A-Za-z0-9_%+=,~-][A-Za-z0-9_%+=,.~-]{0,200}", name):
        raise WorkdirError(
            f"{name!r} is not a name for a directory: letters, digits and _ % + = , . ~ - are, "
            "and no dot in front"
        )


@contextlib.contextmanager
def inside(fd: int, name: str, path: str) -> Iterator[int]:
    """Open a directory by its name in an open one; raises :class:`WorkdirError` if it is a link."""
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
    """Make a directory in its open parent with this mode, or accept an existing one."""
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
def _with_path(path: str) -> Iterator[None]:
    """Add the path to errors raised by descriptor-based calls."""
    try:
        yield
    except OSError as error:
        if error.errno is None or os.path.isabs(str(error.filename or "")):
            raise
        raise type(error)(error.errno, error.strerror, path) from None


@contextlib.contextmanager
def _removed_on_failure(fd: int, name: str) -> Iterator[None]:
    """On failure, remove the new directory again if it is empty."""
    try:
        yield
    except OSError:
        rmdir_if_empty(name, fd)
        raise


@contextlib.contextmanager
def root_of(fd: int, target: str) -> Iterator[int]:
    """Open the directory of :func:`root_dir` in an open target; make it if it is missing.

    Raises :class:`WorkdirError` if it is a link, on another file system, or open to swaps by
    others.
    """
    root = root_dir(target)
    make(fd, root, 0o1777)
    with _removed_on_failure(fd, ROOT), inside(fd, ROOT, root) as shared:
        info = os.fstat(shared)
        if mount_id(shared) != mount_id(fd):
            raise WorkdirError(
                f"another file system is mounted at {root}: not written to"
            )
        # Other users' sessions come here too, even if the file system changes the mode of a new
        # directory. A directory with content may serve another purpose: its mode stays.
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
) -> str:
    """Make the session's directory with its marker, and in it the case's; return the latter's path.

    ``host`` is the host of the session's process, if not this one. ``owner_process`` is that
    process, from :func:`iogauge.core.processes.identity`, if not this one. A job knows both from
    its case. The marker expires after ``time_limit_s``, the longest time that the case may take.
    For ``of_job`` see :func:`iogauge.workspace.permission.permitted`.

    Raises :class:`~iogauge.workspace.permission.NotAllowed` if the target may not be written in.
    Raises :class:`WorkdirError` if a component is a link or belongs to another user, and OSError if
    the target cannot be written.
    """
    for part in (session, case):
        require_name(part)
    owner = {
        "session": session,
        "user": user_name(),
        "host": host or os.uname().nodename,
        "process": owner_process or processes.identity(os.getpid()),
        "created": _utc(time.time()),
        "expires": _utc(time.time() + time_limit_s + _MARGIN_S),
    }
    for attempt in range(10):
        try:
            with permission.permitted(target, of_job) as place:
                return _create(place.fd, place.path, session, case, owner)
        except (
            FileNotFoundError
        ):  # another session of ours removed the empty parent meanwhile
            if attempt == 9 or not os.path.isdir(target):
                raise
            time.sleep(0.05)
    raise AssertionError("unreachable")


def _create(
    fd: int, target: str, session: str, case: str, owner: dict[str, Any]
) -> str:
    path = session_dir(target, session)
    with _with_path(path), contextlib.ExitStack() as stack:
        above = stack.enter_context(root_of(fd, target))
        for directory in (os.path.dirname(path), path):
            make(above, directory, 0o700)
            stack.enter_context(_removed_on_failure(above, os.path.basename(directory)))
            above = stack.enter_context(
                inside(above, os.path.basename(directory), directory)
            )
            if os.fstat(above).st_uid != os.getuid():
                raise WorkdirError(
                    f"{directory} belongs to another user: not written to"
                )
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
    """Write the marker, or postpone the expiry of an existing one.

    The marker of an ended session of the same name is replaced. Raises :class:`WorkdirError` if
    that session still runs.
    """
    before: dict[str, Any] = {}
    with contextlib.suppress(FileNotFoundError):
        before = _read(fd)
    if any(before.get(key) != owner[key] for key in ("host", "process")):
        here = before.get("host") == os.uname().nodename
        if here and "process" in before and processes.runs(before["process"]):
            raise WorkdirError(
                f"session {owner['session']} is also used by process {before['process']}, which is running: "
                "choose another name (IOGAUGE_SESSION)"
            )
    elif str(before.get("expires", "")) >= owner["expires"]:
        return
    else:
        owner = owner | before | {"expires": owner["expires"]}
    _write(fd, owner)


def _write(fd: int, owner: dict[str, Any]) -> None:
    replace_file(MARKER, json.dumps(owner).encode(), mode=0o600, dir_fd=fd, sync=True)
    # Even after a crash of the storage, our data must have a marker. Some storage cannot fsync it.
    try:
        os.fsync(fd)
    except OSError as error:
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise


def _read(fd: int) -> dict[str, Any]:
    """Return the content of an open directory's marker; empty if damaged, as on a full target."""
    marker = os.open(MARKER, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK, dir_fd=fd)
    with open(marker, "rb") as file:
        try:
            content = untrusted.parse_json(
                file.read(_MOST_BYTES).decode("utf-8", "replace")
            )
        except ValueError:
            return {}
    if isinstance(content, dict):
        return content
    return {}


@dataclass(frozen=True, slots=True)
class FoundSession:
    """A session's directory as found on a target."""

    path: str
    #: The content of its marker; empty if damaged.
    owner: dict[str, Any]
    #: Seconds since it changed.
    age_s: float


def sessions(target: str) -> list[FoundSession]:
    """Return this user's sessions on a target, oldest first; directories not ours are left out.

    Raises OSError if the target, or the directory of the user's sessions, cannot be read.
    """
    os.stat(target)
    base = os.path.dirname(session_dir(target, "x"))
    listed = []
    try:
        names = os.listdir(base)
    except FileNotFoundError:
        return []
    for name in names:
        path = os.path.join(base, name)
        with (
            contextlib.suppress(WorkdirError, FileNotFoundError, PermissionError),
            _owned(path) as owned,
        ):
            listed.append(FoundSession(path, owned.owner, time.time() - owned.changed))
    return sorted(listed, key=lambda session: -session.age_s)


def may_be_alive(session: FoundSession) -> bool:
    """Return whether a session may still run.

    It may if its process runs, or if its process cannot be checked and the marker has not expired.
    A process on another host cannot be checked. A process on this host can, whatever the clock
    says. A session whose marker is damaged counts for a week.
    """
    if session.owner.get("host") == os.uname().nodename:
        return processes.runs(session.owner.get("process"))
    expires = session.owner.get("expires")
    if isinstance(expires, str):
        return expires >= _utc(time.time())
    return session.age_s < _UNKNOWN_S


@dataclass(frozen=True, slots=True)
class _OwnedDirectory:
    """An open session directory of ours."""

    fd: int
    #: Descriptors of target, ``iogauge`` and the user's directory.
    above: tuple[int, int, int]
    #: The content of the marker; empty if damaged.
    owner: dict[str, Any]
    #: Time of its last change, in seconds since the epoch.
    changed: float


@contextlib.contextmanager
def _owned(path: str) -> Iterator[_OwnedDirectory]:
    """Open a session's directory; raises :class:`WorkdirError` if it is not ours."""
    parts = path.split(os.sep)
    if len(parts) < 4 or parts[-3] != ROOT:
        raise WorkdirError(
            f"{path} is not <target>/iogauge/<user>/<session>: not removed"
        )
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
            # A session killed before its marker was whole, or after its removal, left nothing else.
            if not all(name.startswith(f"{MARKER}.") for name in os.listdir(fd)):
                raise WorkdirError(
                    f"{path} has no marker {MARKER}: not removed"
                ) from None
        else:
            if not stat.S_ISREG(info.st_mode):
                raise WorkdirError(
                    f"{path}/{MARKER} is not a regular file: {path} is not removed"
                )
            if info.st_uid != os.getuid():
                raise WorkdirError(f"{path} belongs to another user: not removed")
            owner = _read(fd)
        yield _OwnedDirectory(fd, (chain[0], chain[1], chain[2]), owner, info.st_mtime)


def check_ours(path: str) -> None:
    """Raise :class:`WorkdirError` if a path is not a session directory of ours, OSError if gone."""
    with _owned(os.path.abspath(path)):
        pass


def remove(
    path: str,
    *,
    seconds: float | None = None,
    report: Callable[[int], None] | None = None,
) -> None:
    """Remove a session's directory, its marker last, and its parents if they are empty.

    ``seconds`` limits the time. ``report`` gets the number of removed
    names. A directory that is gone is no error. The marker goes last, so that an interrupted
    removal can be continued. Raises :class:`WorkdirError` if the directory is not ours, and
    :class:`~iogauge.workspace.directory.NotRemoved` if something is left.
    """
    path = os.path.abspath(path)  # the checked and the removed path must be spelt alike
    try:
        with _owned(path) as owned:
            Removal(seconds=seconds, report=report).run(owned.fd, path, {MARKER})
            with contextlib.suppress(FileNotFoundError):
                os.unlink(MARKER, dir_fd=owned.fd)
            if os.listdir(owned.fd):
                # Names that have appeared meanwhile must not lie there without a marker.
                _write(owned.fd, owned.owner)
                raise NotRemoved(
                    f"{path} could not be emptied: names keep appearing in it"
                )
            names = path.split(os.sep)[-3:]
            for fd, name in zip(reversed(owned.above), reversed(names), strict=True):
                rmdir_if_empty(name, fd)
    except OSError as error:
        if error.errno not in GONE or os.path.lexists(path):
            raise


def _empty(owned: _OwnedDirectory, case: str, path: str, work: Removal) -> None:
    with inside(owned.fd, case, path) as fd:
        if mount_id(fd) != mount_id(owned.fd):
            raise WorkdirError(f"another file system is mounted at {path}: not removed")
        work.run(fd, path)


def empty_case(path: str, *, report: Callable[[int], None] | None = None) -> None:
    """Empty a case's directory and keep it; raises as :func:`remove` does, and OSError if gone."""
    session, _, case = os.path.abspath(path).rpartition(os.sep)
    with _owned(session) as owned:
        _empty(owned, case, path, Removal(report=report))


def remove_case(
    path: str,
    *,
    seconds: float | None = None,
    report: Callable[[int], None] | None = None,
) -> None:
    """Remove a case's directory from a session of ours; raises as :func:`remove` does."""
    session, _, case = os.path.abspath(path).rpartition(os.sep)
    with contextlib.suppress(FileNotFoundError), _owned(session) as owned:
        work = Removal(seconds=seconds, report=report)
        _empty(owned, case, path, work)
        os.rmdir(case, dir_fd=owned.fd)
