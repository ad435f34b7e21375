"""Storage that stops answering must not take the session with it.

A process that waits for a dead mount may not even be killed. So whatever the session itself wants of a
target is done by a child process, which is left behind when it says nothing for too long.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import pickle
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

#: How long a target may say nothing, in seconds.
PATIENCE_S: Final = 30.0

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
_LENGTH: Final = struct.Struct(">Q")

#: How a child says that it is getting on: with how much it has done.
Tell = Callable[[int], None]


class NoAnswer(OSError):
    """A target did not answer in time. The message names it, how long it was waited for, what to do."""


def _nothing(_: int) -> None:
    pass


def _child(work: Callable[[Tell], object], pipe: int, parent: int) -> None:
    """Do the work, write down what comes of it, and end this process without tidying up."""
    try:
        # What nobody waits for any more must not go on when the storage is back.
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        # Whoever reads what the parent prints must not wait for a child that was left behind.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        sys.stdout = sys.stderr = io.StringIO()
        os.setsid()  # nor must a caller that waits for its process group
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

        def tell(count: int) -> None:
            os.write(pipe, _packed("at", count))

        try:
            answer = _packed("done", work(tell))
        except Exception as error:
            answer = _packed("failed", error)
        with os.fdopen(pipe, "wb") as out:
            out.write(answer)
    finally:
        os._exit(0)


def _packed(kind: str, value: object) -> bytes:
    data = pickle.dumps((kind, value))
    return _LENGTH.pack(len(data)) + data


def _messages(data: bytearray) -> list[tuple[str, Any]]:
    """Whole messages at the beginning of what was read, which they are taken from."""
    found = []
    while len(data) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        if len(data) < end:
            break
        found.append(pickle.loads(data[_LENGTH.size : end]))
        del data[:end]
    return found


def ask(place: str, work: Callable[[], _T], seconds: float = PATIENCE_S) -> _T:
    """What ``work`` returns, done in a child process: :func:`follow` without a word on the way."""
    return follow(place, lambda _: work(), _nothing, seconds)


def follow(
    place: str,
    work: Callable[[Tell], _T],
    hear: Callable[[int], None],
    seconds: float = PATIENCE_S,
) -> _T:
    """What ``work`` returns, done in a child process; its exceptions are raised here.

    ``work`` gets a function to say how far it is, which is handed on to ``hear``. Raises :class:`NoAnswer`
    where it neither says so nor ends for ``seconds``; then the child is killed as far as that is possible.
    What is returned or raised must be plain data.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    source, pipe = os.pipe()
    parent = os.getpid()
    pid = os.fork()
    if pid == 0:
        _child(work, pipe, parent)
    os.close(pipe)
    ended, data = False, bytearray()
    last = time.monotonic()
    try:
        while True:
            left = last + seconds - time.monotonic()
            if left <= 0 or not select.select([source], [], [], left)[0]:
                raise NoAnswer(
                    f"{place} does not answer since {seconds:.0f} s: is its mount alive (df {place})? "
                    f"When it is back, remove what is left with: iogauge clean --target {place}"
                )
            last = time.monotonic()
            block = os.read(source, 1 << 16)
            data += block
            for kind, value in _messages(data):
                if kind == "done":
                    ended = True
                    return value  # type: ignore[no-any-return]
                if kind == "failed":
                    ended = True
                    raise value
                hear(value)
            if not block:
                raise NoAnswer(f"{place}: the process that looked at it was killed: run again")
    finally:
        os.close(source)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # A process that waits for dead storage may never end, and is not waited for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0 if ended else os.WNOHANG)
