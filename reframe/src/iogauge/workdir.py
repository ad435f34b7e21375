"""The one directory that a case may write in, and how it is made and removed.

A session's directory is ``<target>/iogauge/<user>/<session>`` and holds a marker file that names its
owner. Nothing is ever removed that is not below a directory with our marker, owned by us, reached without
a symbolic link.
"""

from __future__ import annotations

import contextlib
import getpass
import json
import os
import re
import shutil
import socket
import stat
import time
from dataclasses import dataclass
from typing import Any, Final

MARKER: Final = ".iogauge-session"
_ROOT: Final = "iogauge"


class WorkdirError(OSError):
    """A directory is not ours to write in or to remove. The message names it, and why."""


def user_name() -> str:
    """Name of the user as a path component."""
    with contextlib.suppress(KeyError, OSError):
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", getpass.getuser())
        if name.strip("."):
            return name
    return f"uid{os.getuid()}"


def root_dir(target: str) -> str:
    """Path of the directory on a target that holds all that is ours, of all users."""
    return os.path.join(target, _ROOT)


def make_shared(path: str, mode: int) -> None:
    """Make a directory for all users, or accept one that is there; raises OSError where it cannot be.

    It has its mode from the beginning, so that nobody is turned away meanwhile.
    """
    mask = os.umask(0)
    try:
        _make(path, mode)
    finally:
        os.umask(mask)


def make_root(target: str) -> None:
    """Make the directory of :func:`root_dir`, or accept one that is there; raises OSError where it cannot be."""
    root = root_dir(target)
    make_shared(root, 0o1777)
    if os.stat(root).st_uid == os.getuid():
        os.chmod(root, 0o1777)  # other users' sessions come here too


def session_dir(target: str, session: str) -> str:
    """Path of a session's directory on a target."""
    return os.path.join(target, _ROOT, user_name(), session)


def _make(path: str, mode: int) -> None:
    """Make a directory, or accept one that is a real directory of ours (or the shared root)."""
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, mode)
    info = os.lstat(path)
    if not stat.S_ISDIR(info.st_mode):
        raise WorkdirError(
            f"{path} is not a directory (symbolic links are not followed): remove it"
        )


def create(target: str, session: str, case: str, host: str = "") -> str:
    """Make the session's directory with its marker, and the case's directory in it; returns the latter.

    ``host`` is where the session's own process runs, if not here: a job knows it from its case.
    Raises :class:`WorkdirError` where a component is a link or belongs to another user, OSError where the
    target cannot be written.
    """
    for part in (session, case):
        if not part or part.startswith(".") or os.sep in part:
            raise WorkdirError(f"{part!r} is not a name for a directory")
    path = session_dir(target, session)
    user_dir = os.path.dirname(path)
    for attempt in range(10):
        try:
            make_root(target)
            for directory in (user_dir, path):
                _make(directory, 0o700)
                if os.lstat(directory).st_uid != os.getuid():
                    raise WorkdirError(f"{directory} belongs to another user: not written to")
            marker = os.path.join(path, MARKER)
            owner = {
                "session": session,
                "user": user_name(),
                "host": host or socket.gethostname(),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            }
            with contextlib.suppress(FileExistsError), open(marker, "x", encoding="utf-8") as file:
                json.dump(owner, file)
            case_dir = os.path.join(path, case)
            os.mkdir(case_dir, 0o700)
            return case_dir
        except FileNotFoundError:  # another session of ours removed the empty parent meanwhile
            if attempt == 9 or not os.path.isdir(target):
                raise
            time.sleep(0.05)
    raise AssertionError("unreachable")


@dataclass(frozen=True, slots=True)
class Session:
    """A session's directory as found on a target."""

    path: str
    owner: dict[str, Any]
    age_s: float


def sessions(target: str) -> list[Session]:
    """Sessions of this user on a target, oldest first; directories without our marker are not listed."""
    base = os.path.dirname(session_dir(target, "x"))
    found = []
    try:
        names = os.listdir(base)
    except OSError:
        return []
    for name in names:
        path = os.path.join(base, name)
        try:
            marker = check_ours(path)
            age = time.time() - os.lstat(marker).st_mtime
            with open(marker, encoding="utf-8") as file:
                owner = json.load(file)
        except OSError:
            continue
        except ValueError:  # on a full target the marker is there, and empty
            owner = {}
        found.append(Session(path, owner if isinstance(owner, dict) else {}, age))
    return sorted(found, key=lambda s: -s.age_s)


def may_be_alive(session: Session) -> bool:
    """Whether a session may still run: its process is here, or it is of another host, which cannot be asked."""
    if session.owner.get("host") != socket.gethostname():
        return True
    pid = str(session.owner.get("session", "")).rpartition("-")[2]
    return pid.isdigit() and os.path.exists(f"/proc/{pid}")


def check_ours(path: str) -> str:
    """Path of the marker of a session's directory; raises :class:`WorkdirError` where it is not ours."""
    path = os.path.abspath(path)
    parts = path.split(os.sep)
    if len(parts) < 4 or parts[-3] != _ROOT:
        raise WorkdirError(f"{path} is not <target>/iogauge/<user>/<session>: not removed")
    for directory in (os.path.dirname(os.path.dirname(path)), os.path.dirname(path), path):
        if not stat.S_ISDIR(os.lstat(directory).st_mode):
            raise WorkdirError(
                f"{directory} is not a directory, or is a symbolic link: not removed"
            )
    marker = os.path.join(path, MARKER)
    try:
        info = os.lstat(marker)
    except FileNotFoundError:
        raise WorkdirError(f"{path} has no marker {MARKER}: not removed") from None
    if not stat.S_ISREG(info.st_mode):
        raise WorkdirError(f"{marker} is not a regular file: {path} is not removed")
    if info.st_uid != os.getuid() or os.lstat(path).st_uid != os.getuid():
        raise WorkdirError(f"{path} belongs to another user: not removed")
    return marker


def remove(path: str) -> None:
    """Remove a session's directory, its marker last, and its parents where they are empty.

    Raises :class:`WorkdirError` where it is not ours; removing what is gone is no error. The marker goes
    last so that an interrupted removal can be taken up again.
    """
    path = os.path.abspath(path)  # what is checked and what is removed must be spelt alike
    try:
        _remove(path)
    except FileNotFoundError:
        if os.path.lexists(path):
            raise


def _remove(path: str) -> None:
    if not os.path.lexists(path):
        return
    marker = check_ours(path)
    for _ in range(5):  # a tool that is being killed may still create files
        for entry in list(os.scandir(path)):
            if entry.path == marker:
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)
        if set(os.listdir(path)) <= {MARKER}:
            break
        time.sleep(0.2)
    else:
        raise WorkdirError(
            f"{path} could not be emptied: files keep appearing, or are not removable"
        )
    os.unlink(marker)
    for directory in (path, os.path.dirname(path), os.path.dirname(os.path.dirname(path))):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
