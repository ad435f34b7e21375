"""Files that appear whole or not at all: written beside their place, then renamed."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator


@contextlib.contextmanager
def written_beside(
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
    scratch = f"{os.fspath(path)}.{os.uname().nodename}.{os.getpid()}.{os.urandom(4).hex()}"
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
    """Replace the content of ``path`` in one step, see :func:`written_beside`; raises OSError."""
    with written_beside(path, data, mode=mode, dir_fd=dir_fd, sync=sync) as scratch:
        os.rename(scratch, path, src_dir_fd=dir_fd, dst_dir_fd=dir_fd)
