"""Calls to storage with a time limit, so that a target that hangs cannot hang the session.

A process that waits for a dead mount may be impossible to kill. So the session looks at a target in
a child process only, and abandons the child if it is silent for too long.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import Any, Final, TypeVar

_T = TypeVar("_T")

#: Seconds for which a target may be silent, unless IOGAUGE_SILENCE_S says otherwise.
SILENCE_S: Final = 30.0

_PR_SET_PDEATHSIG: Final = 1
_LENGTH: Final = struct.Struct(">Q")

#: Reports the progress of a child: how many items it has dealt with.
Report = Callable[[int], None]


class NoAnswer(OSError):
    """A target did not answer in time. The message names it, the time waited, and the remedy."""


def _nothing(_: int) -> None:
    pass


def _child(work: Callable[[Report], object], pipe: int, parent: int) -> None:
    """Do the work, write its result to the pipe, and end this process without cleanup handlers."""
    import ctypes

    try:
        # Abandoned work must not go on when the storage is back.
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            return
        # Close inherited output so that nobody waits for an abandoned child.
        null = os.open(os.devnull, os.O_RDWR)
        for standard in (0, 1, 2):
            os.dup2(null, standard)
        os.closerange(3, pipe)
        os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
        sys.stdout = sys.stderr = io.StringIO()
        os.setsid()  # nor may a caller that waits for its process group wait for the child
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_DFL)

        def report(count: int) -> None:
            os.write(pipe, _packed("at", count))

        try:
            answer = _packed("done", work(report))
        except Exception as error:
            answer = _packed("failed", error)
        with os.fdopen(pipe, "wb") as out:
            out.write(answer)
    finally:
        os._exit(0)


def _packed(kind: str, value: object) -> bytes:
    import pickle

    data = pickle.dumps((kind, value))
    return _LENGTH.pack(len(data)) + data


def _messages(data: bytearray) -> list[tuple[str, Any]]:
    """Remove the complete messages from the beginning of the data, and return them."""
    import pickle

    messages = []
    while len(data) >= _LENGTH.size:
        end = _LENGTH.size + _LENGTH.unpack_from(data)[0]
        if len(data) < end:
            break
        messages.append(pickle.loads(data[_LENGTH.size : end]))
        del data[:end]
    return messages


def _silence_s(place: str) -> float:
    """Return the seconds for which a target may be silent; raises NoAnswer for an invalid value."""
    text = os.environ.get("IOGAUGE_SILENCE_S", "")
    if not text:
        return SILENCE_S
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text, re.ASCII):
        raise NoAnswer(
            f"{place} was not asked: IOGAUGE_SILENCE_S is {text[:30]!r}: expected seconds, from 1 to 9999"
        )
    return float(text)


def call(place: str, work: Callable[[], _T], seconds: float | None = None) -> _T:
    """Return the result of ``work``, run in a child process: :func:`watch` without progress."""
    return watch(place, lambda _: work(), _nothing, seconds)


def watch(
    place: str,
    work: Callable[[Report], _T],
    progress: Callable[[int], None],
    seconds: float | None = None,
) -> _T:
    """Run ``work`` in a child process and return its result; its exceptions are raised here.

    ``work`` gets a function to report its progress, which is passed on to ``progress``. Raises
    :class:`NoAnswer` if ``work`` neither reports nor ends for ``seconds``; the child is then killed
    if possible. Without ``seconds``, IOGAUGE_SILENCE_S or :data:`SILENCE_S` applies. Results and
    exceptions must be plain data.
    """
    # Here and not above: most commands of the agent call nothing. Before the fork: the child has them too.
    import ctypes  # noqa: F401
    import pickle  # noqa: F401

    if seconds is None:
        seconds = _silence_s(place)
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
                    f"{place} has not answered for {seconds:.0f} s: is its mount alive (df {place})? "
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
                progress(value)
            if not block:
                raise NoAnswer(f"{place}: the process that looked at it was killed: run again")
    finally:
        os.close(source)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # A process that waits for dead storage may never end, so it is not waited for.
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0 if ended else os.WNOHANG)
