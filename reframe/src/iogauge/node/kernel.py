"""What the kernel of this node tells: the text of its files, the names in its directories, answers about a file."""

import contextlib
import fcntl
import os
import re


def text(*parts: str | os.PathLike[str]) -> str:
    """Return the text of a file, empty if it cannot be read."""
    with (
        contextlib.suppress(OSError),
        open(os.path.join(*parts), "rb", buffering=0) as file,
    ):
        return os.fsdecode(file.read()).strip()
    return ""


def listed(*parts: str) -> list[str]:
    """Return the names in a directory, sorted; none if it cannot be read."""
    with contextlib.suppress(OSError):
        return sorted(os.listdir(os.path.join(*parts)))
    return []


def asked(path: str, request: int, question: bytes) -> bytes:
    """Return the answer of an ioctl(2) on a file or directory; empty if there is none."""
    with contextlib.suppress(OSError):
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            answer = bytearray(question)
            fcntl.ioctl(fd, request, answer, True)
            return bytes(answer)
        finally:
            os.close(fd)
    return b""


def syncfs(path: str) -> None:
    """Bring all that was written to the file system of a path to storage (syncfs(2)); raises OSError."""
    import ctypes  # few commands of an agent call it

    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        if libc.syncfs(fd):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), path)
    finally:
        os.close(fd)


def memory_bytes(root: str = "/") -> int:
    """Return the memory of this node, ``MemTotal`` of /proc/meminfo; raises OSError without it."""
    match = re.search(
        r"^MemTotal:\s+(\d+) kB", text(root, "proc/meminfo"), re.MULTILINE
    )
    if match is None:
        raise OSError("/proc/meminfo has no MemTotal")
    return int(match[1]) * 1024
