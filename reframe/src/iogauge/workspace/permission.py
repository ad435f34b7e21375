"""Permission to write in a directory: granted by an administrator, or because the caller owns it.

An administrator grants it with a file :data:`MARKER` in the directory, to everybody who can write there.
The file may name the file system, so that a copy of it elsewhere counts for nothing. Without that file the directory must belong to the caller. It must not be a mount point, lie directly below ``/`` or be
part of the system. Some directories are always refused: ``/``, home directories, paths with a
symbolic link.
"""

import contextlib
import json
import os
import pwd
import stat
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import PurePosixPath

from iogauge.core.paths import own_command, scratch_file
from iogauge.node.identity import differ, uuid_of
from iogauge.node.mounts import Mount, mount_of

MARKER = ".iogauge-allowed"

#: Directories of the system's own files: root owns these as well as its own data.
_SYSTEM = (
    *("/bin", "/boot", "/dev", "/etc", "/lib", "/lib32", "/lib64", "/libx32"),
    *("/proc", "/run", "/sbin", "/sys", "/usr", "/var"),
)
_NOT_SYSTEM = ("/dev/shm", "/var/tmp")
_KEYS = ("type", "source", "uuid")

#: More bytes than a marker needs.
_MOST_BYTES = 65536


class NotAllowed(OSError):
    """A directory may not be written in. The message names it, the reason, and the remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Marker:
    """The file system that an administrator's file names; an empty field fits any."""

    #: Its type, as in /proc/self/mountinfo.
    type: str = ""
    #: What is mounted, whole or behind the last colon.
    source: str = ""
    #: The file system itself (:mod:`iogauge.node.identity`).
    uuid: str = ""

    def to_yaml(self) -> str:
        """Return the text of the file."""
        text = ""
        for name in _KEYS:
            value = getattr(self, name)
            if value:
                text += f"{name}: {json.dumps(value)}\n"
        return text

    def meaning(self) -> str:
        """Return what the file allows, in words."""
        text = "everybody who can write there"
        if self.type:
            text += f" on {self.type}"
        if self.source:
            text += f" from {self.source}"
        if self.uuid:
            text += f" with UUID {self.uuid}"
        return text


def parse_marker(text: str) -> Marker:
    """Parse an administrator's file, which may be empty. Raises ValueError with the mistake."""
    from iogauge.core.yamlfile import YamlError, parse

    try:
        data = parse(text, "line")
    except YamlError as error:
        raise ValueError(" ".join(str(error).split())[:200]) from error
    if data is None:
        return Marker()
    if not isinstance(data, dict):
        raise ValueError(f"expected lines such as 'type: lustre', found {text[:40]!r}")
    for key, value in data.items():
        if key not in _KEYS:
            raise ValueError(
                f"{key}: unknown, expected {', '.join(_KEYS)}. Who may write there is said by its mode and its group"
            )
        if not isinstance(value, str) or not value:
            raise ValueError(f"{key} is {value!r}: expected text")
    return Marker(**data)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A directory as found, and who asks."""

    path: str
    #: The user of the process.
    uid: int
    #: Its user.
    owner: int
    mount: Mount
    #: The user whose home it is, or empty.
    home_of: str = ""
    #: None if no valid marker exists.
    marker: Marker | None = None
    #: Why an existing marker is not valid.
    ignored: str = ""
    #: A resource manager made it for this job.
    of_job: bool = False
    #: The file system; empty if it is unknown or the marker gives none.
    uuid: str = ""


def _below(path: str, tops: tuple[str, ...]) -> bool:
    return any(path == top or path.startswith(f"{top}/") for top in tops)


def _refuse_always(path: str, home_of: str) -> None:
    """Raise :class:`NotAllowed` for directories that no marker can allow."""
    if path == "/":
        raise NotAllowed(
            "/ is the root of the machine: iogauge never writes there. Name a directory below"
        )
    if home_of:
        whose = f"the home directory of {home_of}"
        if home_of == "you":
            whose = "your home directory"
        raise NotAllowed(
            f"{path} is {whose}: iogauge never writes there. Make a directory in it "
            f"(mkdir {path}/iogauge-target), and make that the target"
        )


def _by_marker(place: Place, marker: Marker) -> str:
    file = os.path.join(place.path, MARKER)
    mount = place.mount
    mounted = f"{mount.type} from {mount.source}"
    sources = ("", mount.source, mount.source.rpartition(":")[2])
    fits = marker.type in ("", mount.type) and marker.source in sources
    if (marker.type or marker.source) and not fits:
        wanted = f"{marker.type or 'any type'} from {marker.source or 'anywhere'}"
        raise NotAllowed(
            f"{place.path} is {mounted}; {file} allows {wanted}. Mount that, or have the file corrected"
        )
    if differ(marker.uuid, place.uuid):
        raise NotAllowed(
            f"{place.path} is on the file system {place.uuid}; {file} was written for {marker.uuid}: the file "
            "was copied, or another file system is mounted there. Mount the right one; if this is the right "
            f"one, have it allowed again (iogauge site allow --replace {place.path})"
        )
    return f"{file}: {marker.meaning()}"


def decide(place: Place) -> str:
    """Return why a user may write in a directory; raises :class:`NotAllowed` if that is forbidden."""
    path, user = place.path, _user_name(place.uid)
    _refuse_always(path, place.home_of)
    if place.marker is not None:
        return _by_marker(place, place.marker)
    allow = f"{own_command()} site allow {path}"
    ask = f"Allow it: {allow}"
    if place.uid != 0:
        ask = f"Ask its administrator to run: {allow}"
    ask += "; or name a directory of your own"
    if place.ignored:
        ask = f"{place.ignored}. {ask}"
    if place.owner != place.uid:
        raise NotAllowed(f"{path} belongs to user {place.owner}, not to {user}. {ask}")
    if place.of_job:
        return f"made for this job, and user {user} owns it"
    if len(PurePosixPath(path).parts) < 3:
        raise NotAllowed(
            f"{path} is directly below /: too much may depend on it. {ask}"
        )
    if place.mount.point == path:
        raise NotAllowed(f"{path} is a mount point, and so a whole file system. {ask}")
    if place.owner == 0 and _below(path, _SYSTEM) and not _below(path, _NOT_SYSTEM):
        raise NotAllowed(f"{path} is part of the system. {ask}")
    return f"user {user} owns it"


def _is_link(name: str, fd: int) -> bool:
    try:
        return stat.S_ISLNK(os.lstat(name, dir_fd=fd).st_mode)
    except OSError:
        return False


def open_directory(path: str) -> int:
    """Return a descriptor of a directory reached without a symbolic link; the caller closes it.

    Raises :class:`NotAllowed` for a link, OSError if a component is missing or cannot be passed.
    """
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or ".." in parts:
        raise NotAllowed(f"{path!r} is not an absolute path without '..'")
    fd = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    so_far = "/"
    for part in parts[1:]:
        so_far = os.path.join(so_far, part)
        try:
            inner = os.open(
                part,
                os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC,
                dir_fd=fd,
            )
        except OSError as error:
            if _is_link(part, fd):
                raise NotAllowed(
                    f"{path}: {so_far} is a symbolic link, and its destination may change: nothing is "
                    f"written there. Name the real path: {os.path.realpath(path)}"
                ) from None
            raise type(error)(error.errno, error.strerror, so_far) from None
        finally:
            os.close(fd)
        fd = inner
    return fd


@contextlib.contextmanager
def _closing(fd: int) -> Iterator[int]:
    try:
        yield fd
    finally:
        os.close(fd)


def _read_marker(fd: int, path: str, owner: int) -> tuple[Marker | None, str]:
    """Return an open directory's marker if valid; else None, and why an existing one is not."""
    file = os.path.join(path, MARKER)
    try:
        # Without O_NONBLOCK, opening a pipe would wait for a writer.
        inner = os.open(
            MARKER,
            os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            dir_fd=fd,
        )
    except FileNotFoundError:
        return None, ""
    except OSError as error:
        return None, f"{file} does not count: {error.strerror}"
    with _closing(inner):
        info = os.fstat(inner)
        if not stat.S_ISREG(info.st_mode):
            return None, f"{file} does not count: it is not a regular file"
        if info.st_uid not in (0, owner):
            return (
                None,
                f"{file} does not count: it belongs to user {info.st_uid}, neither root nor the directory's owner",
            )
        if info.st_mode & 0o022:
            return (
                None,
                f"{file} does not count: others may write it (chmod go-w {file})",
            )
        with open(os.dup(inner), "rb") as whole:
            data = whole.read(_MOST_BYTES + 1)
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"longer than {_MOST_BYTES} bytes")
        text = data.decode("utf-8", "replace")
        return parse_marker(text), ""
    except ValueError as error:
        raise NotAllowed(f"{file}: {error}. Have it corrected") from error


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _home_of(fd: int, path: str) -> str:
    """Return the user whose home directory this is, or an empty text.

    Homes of others are compared by name: a look at them could bring up every automount.
    """
    info = os.fstat(fd)
    near = {os.path.expanduser("~"): "you"}
    for uid in {os.geteuid(), info.st_uid}:
        with contextlib.suppress(KeyError):
            near[pwd.getpwuid(uid).pw_dir] = _user_name(uid)
    for home, user in near.items():
        with contextlib.suppress(OSError):
            if os.path.samestat(os.stat(home), info):
                return user
    for account in pwd.getpwall():
        if os.path.normpath(account.pw_dir) == path:
            return account.pw_name
    return ""


def _normal(path: str) -> str:
    """Return a path with one spelling: normpath(3) keeps two slashes in front."""
    path = os.path.normpath(path)
    if path.startswith("/"):
        return f"/{path.lstrip('/')}"
    return path


@dataclass(frozen=True, slots=True)
class PermittedDirectory:
    """A directory that may be written in: its descriptor, its path, and the reason."""

    fd: int
    path: str
    reason: str = field(compare=False)


def _opened(path: str) -> int:
    """Return a descriptor of a directory; raises OSError, which says what to do if there is none."""
    try:
        return open_directory(path)
    except FileNotFoundError:
        raise FileNotFoundError(
            f"there is no directory {path}. Make it, mount its file system, or name another target"
        ) from None


@contextlib.contextmanager
def permitted(path: str, of_job: bool = False) -> Iterator[PermittedDirectory]:
    """Open a directory that the caller may write in; exactly the checked directory is open.

    ``of_job`` means that a resource manager made it for this job. Raises :class:`NotAllowed`, or
    OSError if the directory cannot be reached.
    """
    path = _normal(path)
    with _closing(_opened(path)) as fd:
        info = os.fstat(fd)
        owner = info.st_uid
        marker, ignored = _read_marker(fd, path, owner)
        mount = mount_of(fd)
        uuid = ""
        if marker and marker.uuid:
            uuid = uuid_of(f"/proc/self/fd/{fd}", mount)
        place = Place(
            path=path,
            uid=os.geteuid(),
            owner=owner,
            mount=mount,
            home_of=_home_of(fd, path),
            marker=marker,
            ignored=ignored,
            of_job=of_job,
            uuid=uuid,
        )
        why = decide(place)
        if info.st_mode & stat.S_IWOTH and not info.st_mode & stat.S_ISVTX:
            why += (
                "; but everybody can rename what others have in it, and put something else in its place: "
                f"make it sticky (chmod +t {path})"
            )
        yield PermittedDirectory(fd, path, why)


def reason(path: str) -> str:
    """Return why the caller may write in a directory; raises as :func:`permitted` does."""
    with permitted(path) as place:
        return place.reason


def allow(path: str, replace: bool = False) -> Marker:
    """Write the marker that allows a directory, for the file system that is mounted there now.

    Raises :class:`NotAllowed` if no marker can allow it, or if one exists already.
    """
    path = _normal(path)
    with _closing(_opened(path)) as fd:
        _refuse_always(path, _home_of(fd, path))
        owner = os.fstat(fd).st_uid
        if os.geteuid() not in (0, owner):
            raise NotAllowed(
                f"{path} belongs to {_user_name(owner)}: only root and its owner can allow it"
            )
        mount = mount_of(fd)
        # Other nodes may name the servers otherwise; the part after the last colon is the same.
        source = mount.source.rpartition(":")[2]
        uuid = uuid_of(f"/proc/self/fd/{fd}", mount)
        marker = Marker(type=mount.type, source=source, uuid=uuid)
        if not replace:
            present, why = _read_marker(fd, path, owner)
            if present:
                why = f"It allows {present.meaning()}"
            if why:
                raise NotAllowed(
                    f"{path} has a {MARKER} already. {why}; --replace overwrites it"
                )
        with scratch_file(
            MARKER, marker.to_yaml().encode(), dir_fd=fd, sync=True
        ) as scratch:
            os.chmod(
                scratch, 0o644, dir_fd=fd
            )  # others must read it, whatever the umask
            os.rename(scratch, MARKER, src_dir_fd=fd, dst_dir_fd=fd)
    return marker
