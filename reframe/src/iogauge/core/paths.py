"""Paths of the project and of its state, and files that appear whole or not at all."""

import contextlib
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

#: The package ``iogauge``; its parent must be on Python's path.
LIBRARY = Path(__file__).resolve().parents[1]
#: What an installed library holds of the project: checks/, site-configs/, pages (reframe/setup.py).
BUNDLED = LIBRARY / "project"
#: Folder of the shell files that job scripts source or run.
JOB_FILES = LIBRARY / "job"


#: A path that only the job knows: the variable in which a resource manager gives the path of its
#: space.
VARIABLE = re.compile(r"\$[A-Z][A-Z0-9_]*")
#: Characters that no target's path may have, see :class:`iogauge.site.extras.Target`.
ODD = re.compile(r"[^A-Za-z0-9_./+,=%~-]")


def expand(path: str) -> str:
    """Replace a variable that is a path's whole first component (``$DW_JOB_STRIPED/x``).

    Every other path is returned as it is. Raises OSError if the value is not an absolute path.
    """
    first, slash, rest = path.partition("/")
    if not VARIABLE.fullmatch(first):
        return path
    value = os.environ.get(first[1:], "")
    if not value.startswith("/"):
        found = repr(value) if value else "not set"
        raise OSError(
            f"{first} is {found} in this job: expected an absolute path, "
            "which the resource manager sets for a job that asks for the space"
        )
    odd = sorted(set(ODD.findall(value)))
    if odd:
        raise OSError(
            f"{first} is {value!r} in this job, which holds {' '.join(map(repr, odd))}: IOR and mdtest would "
            "write elsewhere (they split a path at '@', fio at ':')"
        )
    if not slash:
        return value
    return os.path.join(value, rest)


def configuration_dir() -> Path:
    """Return the folder of ReFrame's configuration: as loaded, else ``$RFM_CONFIG_PATH``, else the project's."""
    loaded = os.environ.get("IOGAUGE_CONFIGURATION")
    configured = os.environ.get("RFM_CONFIG_PATH", "").split(os.pathsep)[0]
    return Path(loaded or configured or project_root() / "site-configs")


def project_root() -> Path:
    """Return the folder of checks/ and site-configs/.

    That is ``$IOGAUGE_ROOT``, or what the installed library holds, or the clone of the library.
    """
    root = os.environ.get("IOGAUGE_ROOT")
    if root:
        return Path(root)
    if BUNDLED.is_dir():
        return BUNDLED
    return LIBRARY.parents[2]


def own_command() -> str:
    """Return how a user starts ``iogauge``: by its name, or by its path if PATH does not have it.

    make activates a shell of its own (MAKELEVEL), which is not the user's.
    """
    import shutil  # an agent starts without it

    on_path = "MAKELEVEL" not in os.environ and shutil.which("iogauge")
    installed = os.path.join(sys.prefix, "bin", "iogauge")
    if on_path or not os.access(installed, os.X_OK):
        return "iogauge"
    return installed


def state_dir() -> Path:
    """Return the folder of records, stage, output: ``$IOGAUGE_HOME``, or ``.iogauge`` in the clone.

    A user who may not write there has ``iogauge`` in ``$XDG_STATE_HOME``: a shared installation
    belongs to somebody else, and an installed library has no clone. A relative ``$IOGAUGE_HOME``
    ends the process: ReFrame changes its directory, and records would go astray.
    """
    home = os.environ.get("IOGAUGE_HOME")
    if home and not home.startswith("/"):
        raise SystemExit(
            f"iogauge: IOGAUGE_HOME is {home!r}: expected an absolute path"
        )
    if home:
        return Path(home)
    own = project_root() / ".iogauge"
    written = own.parent
    if own.exists():
        written = own
    if project_root() != BUNDLED and os.access(written, os.W_OK | os.X_OK):
        return own
    state = os.environ.get("XDG_STATE_HOME", "")
    if state.startswith("/"):
        return Path(state) / "iogauge"
    return Path.home() / ".local/state/iogauge"


def history_dir() -> Path:
    """Return the directory of the sessions' record files."""
    return state_dir() / "history"


def logs_dir() -> Path:
    """Return the folder of ReFrame's logs, a file for each call of it."""
    return state_dir() / "logs"


def stages_dir() -> Path:
    """Return the folder in which ReFrame keeps one folder of stage directories for each session."""
    return state_dir() / "reframe" / "stage"


@contextlib.contextmanager
def scratch_file(
    path: str | os.PathLike[str],
    data: bytes,
    *,
    mode: int = 0o644,
    dir_fd: int | None = None,
    sync: bool = False,
) -> Iterator[str]:
    """Write a new file beside ``path`` and yield its name: ``path``, a dot, and a unique ending.

    The file is removed in the end if it still has this name. The umask narrows ``mode``. ``sync``
    flushes the content to disk. Raises OSError.
    """
    scratch = (
        f"{os.fspath(path)}.{os.uname().nodename}.{os.getpid()}.{os.urandom(4).hex()}"
    )
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    fd = os.open(scratch, flags, mode, dir_fd=dir_fd)
    try:
        with open(fd, "wb") as file:
            file.write(data)
            file.flush()
            if sync:
                os.fsync(fd)
        yield scratch
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(scratch, dir_fd=dir_fd)


def replace_file(
    path: str | os.PathLike[str],
    data: bytes,
    *,
    mode: int = 0o644,
    dir_fd: int | None = None,
    sync: bool = False,
) -> None:
    """Replace the content of ``path`` in one step, see :func:`scratch_file`; raises OSError."""
    with scratch_file(path, data, mode=mode, dir_fd=dir_fd, sync=sync) as scratch:
        os.rename(scratch, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
