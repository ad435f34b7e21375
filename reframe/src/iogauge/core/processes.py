"""Processes: whether one still runs, and which have outlived the job of their case. Calls to storage with a time limit, so that
a target that hangs cannot hang the session.

A process number alone does not identify a process, as numbers are used again. Tools may leave
processes behind that belong to no process group: those of fio start sessions of their own. They
wait indefinitely if fio is killed before it tells them to begin.

A process that waits for a dead mount may be impossible to kill. So the session looks at a target in
a child process only, and abandons the child if it is silent for too long.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import io
import os
import re
import select
import signal
import sys
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

from iogauge.core.text import visible_lines

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

#: Variable that holds the case's directory, in every process that a job starts for its case.
_VARIABLE = b"IOG_DIR="

#: Further variable of the process that keeps the target's lock.
_KEEPS_LOCK = b"IOG_KEEPS=1"

#: Seconds to wait for killed processes; a process that waits for dead storage may never end.
_WAIT_S = 5.0


def _stat(pid: int) -> list[str]:
    """Return what /proc tells of a process behind its name; nothing if it is gone."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return file.read().rpartition(")")[2].split()
    except OSError:
        return []


def started(pid: int) -> int | None:
    """Return when a process began, in ticks since boot: 0 if it has ended, None if unknown."""
    fields = _stat(pid)
    if len(fields) < 20:
        return None
    if fields[0] in "ZX":
        return 0
    return int(fields[19])


def parent(pid: int) -> int:
    """Return the parent of a process; 0 if it is gone."""
    fields = _stat(pid)
    if len(fields) < 2:
        return 0
    return int(fields[1])


def identity(pid: int) -> list[int]:
    """Return what identifies a process for :func:`runs`, as plain data: [pid, start]."""
    return [pid, started(pid) or 0]


def runs(process: object) -> bool:
    """Return whether a process of :func:`identity` still runs; True if that cannot be found out."""
    match process:
        case [int(pid), int(start)] if 0 < pid < 1 << 31:
            try:
                os.kill(
                    pid, 0
                )  # unlike /proc, this sees other users' processes on every mount
            except ProcessLookupError:
                return False
            except PermissionError:
                pass
            return started(pid) in (start, None)
    return True


def _ancestors() -> set[int]:
    """Return this process and its ancestors: a job that cleans up, and wrappers of its Python."""
    ancestors, pid = set(), os.getpid()
    while pid > 0 and pid not in ancestors:
        ancestors.add(pid)
        pid = parent(pid)
    return ancestors


def of_case(directory: str) -> dict[int, str]:
    """Return other processes that work for a case in a directory or below it, with their programs.

    Only this user's processes on this host count. Ancestors of this process are left out, and so is
    the process that keeps the target's lock: it ends by itself and reports how that went.
    """
    return marked(_VARIABLE + os.fsencode(directory))


def marked(wanted: bytes) -> dict[int, str]:
    """Return other processes with a variable in their environment, or one that goes on with a slash, as :func:`of_case`."""
    spared = _ancestors()
    programs = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) in spared:
            continue
        with contextlib.suppress(OSError):
            if entry.stat().st_uid != os.getuid():
                continue
            environment = (entry / "environ").read_bytes()
            if (
                wanted not in environment
            ):  # most are not of the case, and a search takes no time
                continue
            variables = environment.split(b"\0")
            if _KEEPS_LOCK not in variables and any(
                variable == wanted or variable.startswith(wanted + b"/")
                for variable in variables
            ):
                programs[int(entry.name)] = (
                    (entry / "comm").read_text(errors="replace").strip()
                )
    return {pid: program for pid, program in programs.items() if started(pid)}


def end(directory: str) -> list[str]:
    """Kill the processes that work for a case in a directory or below it; return a message each."""
    ended, _ = kill(_VARIABLE + os.fsencode(directory), _WAIT_S)
    return [
        f"killed {program} (process {pid}), which was still at work there"
        for pid, program in ended.items()
    ]


def kill(wanted: bytes, seconds: float) -> tuple[dict[int, str], dict[int, str]]:
    """Kill the processes that are :func:`marked` until there are none, for so long; return those, and who is left."""
    ended: dict[int, str] = {}
    deadline = time.monotonic() + seconds
    left = marked(wanted)
    while left and time.monotonic() < deadline:
        for pid in left:
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        ended |= left
        time.sleep(0.02)
        left = marked(wanted)
    return ended, left


def flush() -> None:
    """Pass on what was printed. Whether somebody still reads it decides nothing."""
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def open_streams() -> None:
    """Let output that the caller closed lead nowhere, lest the next file take its place.

    What the encoding of a terminal lacks is printed as a question mark.
    """
    number = 0
    while number < 3:
        number = os.open(os.devnull, os.O_RDWR)
        os.set_inheritable(number, number < 3)
    os.close(number)
    sys.stdout = sys.stdout or os.fdopen(1, "w")
    sys.stderr = sys.stderr or os.fdopen(2, "w")
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            with contextlib.suppress(OSError):  # a pipe in the place of a file
                stream.reconfigure(errors="replace")


def hear_children() -> None:
    """Hear of the ends of children even if the caller ignores SIGCHLD: else the kernel drops their exit statuses, and each
    counts as a success.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)


class Fork:
    """A program in a process of its own that has its modules already: a fork of this process.

    The fork has its own arguments, environment, standard streams and exit status. It does none of
    what this process does at its end.
    """

    def __init__(
        self,
        main: Callable[[], object],
        words: Sequence[str],
        environment: Mapping[str, str],
        output: IO[str] | None = None,
        errors: IO[str] | None = None,
    ) -> None:
        """Start ``main`` with the command line ``words``; files may get what it prints."""
        flush()
        self._pid = os.fork()
        if self._pid == 0:
            _end_after(lambda: _run(main, words, environment, (output, errors)))

    def wait(self) -> int:
        """Return the exit status, as :class:`subprocess.Popen` does: of a signal, it is negative.

        Meanwhile it is told what tells this process alone to end. What this process ignores stays ignored.
        """
        before = {}
        for number in (signal.SIGTERM, signal.SIGHUP):
            handler = signal.getsignal(number)
            if handler is not signal.SIG_IGN:
                before[number] = handler
        try:
            for number in before:
                signal.signal(number, lambda number, _: os.kill(self._pid, number))
            _, status = os.waitpid(self._pid, 0)
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)
        return os.waitstatus_to_exitcode(status)

    def kill(self) -> None:
        """End it at once, and wait for its end."""
        os.kill(self._pid, signal.SIGKILL)
        self.wait()

    @classmethod
    def printed(
        cls,
        main: Callable[[], object],
        words: Sequence[str],
        environment: Mapping[str, str],
    ) -> tuple[int, str, str]:
        """Run a program to its end; return its exit status, its output and its errors."""
        from tempfile import TemporaryFile  # no agent pays for it

        new = functools.partial(TemporaryFile, "w+", encoding="utf-8", errors="replace")
        with new() as output, new() as errors:
            fork = cls(main, words, environment, output, errors)
            try:
                status = fork.wait()
            except BaseException:
                fork.kill()
                raise
            output.seek(0)
            errors.seek(0)
            return status, output.read(), errors.read()


def _run(
    main: Callable[[], object],
    words: Sequence[str],
    environment: Mapping[str, str],
    streams: Sequence[IO[str] | None],
) -> object:
    for number, file in enumerate(streams, 1):
        if file is not None:
            os.dup2(file.fileno(), number)
    # What was there before the fork, temporary directories too, is for the other process to end.
    atexit._clear()
    weakref.finalize._registry.clear()  # type: ignore[attr-defined]
    atexit.register(weakref.finalize._exitfunc)  # type: ignore[attr-defined]
    os.environ.clear()
    os.environ.update(environment)
    sys.argv[:] = words
    with contextlib.suppress(OSError):
        Path("/proc/self/comm").write_text(Path(words[0]).name, encoding="utf-8")
    return main()


def _end_after(work: Callable[[], object]) -> None:
    """Do the work and end this process as the interpreter does, with the status that it would have."""
    status = 1
    try:
        try:
            sys.exit(work())  # type: ignore[arg-type]
        except SystemExit as end:
            status = int(end.code is not None)
            if isinstance(end.code, int):
                status = end.code
            if isinstance(end.code, str):
                print(visible_lines(end.code), file=sys.stderr)
        except BaseException:
            sys.__excepthook__(*sys.exc_info())
        atexit._run_exitfuncs()
        flush()
    finally:
        os._exit(status & 0xFF)


_T = TypeVar("_T")

#: Seconds for which a target may be silent, unless IOGAUGE_SILENCE_S says otherwise.
SILENCE_S = 30.0

#: Seconds between two signs of life of a child that :func:`attended` runs.
ALIVE_S = 10.0

_PR_SET_PDEATHSIG = 1

#: Reports the progress of a child: how many items it has dealt with.
Report = Callable[[int], None]


class NoAnswer(OSError):
    """A target did not answer in time. The message names it, the time waited, and the remedy."""


def _forked(work: Callable[[], object], pipe: int, standard: Sequence[int]) -> int:
    """Run ``work`` in a child that ends with this process, and without its cleanup handlers; return the child's number.

    It keeps ``pipe`` of the open files, and ``standard`` streams lead nowhere. Its status is 0 if the work returns what is true.
    """
    import ctypes  # most commands of the agent call nothing

    libc = ctypes.CDLL(None)
    flush()
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    status = 1
    try:
        # Abandoned work must not go on when the storage is back.
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() == parent:
            null = os.open(os.devnull, os.O_RDWR)
            for number in standard:
                os.dup2(null, number)
            os.closerange(3, pipe)
            os.closerange(pipe + 1, os.sysconf("SC_OPEN_MAX"))
            status = int(not work())
            flush()
    finally:
        os._exit(status)


def _answer(work: Callable[[Report], object], pipe: Connection) -> None:
    """Send the result of the work, in a child of which nobody hears and for which nobody waits."""
    sys.stdout = sys.stderr = io.StringIO()
    os.setsid()  # a caller may wait for its process group
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)
    try:
        answer = ("done", work(lambda count: pipe.send(("at", count))))
    except Exception as error:
        answer = ("failed", error)
    pipe.send(answer)


def _silence_s(place: str) -> float:
    """Return the seconds for which a target may be silent; raises NoAnswer for an invalid value."""
    text = os.environ.get("IOGAUGE_SILENCE_S") or f"{SILENCE_S:.0f}"
    if not re.fullmatch(r"[1-9][0-9]{0,3}", text, re.ASCII):
        raise NoAnswer(
            f"{place} was not asked: IOGAUGE_SILENCE_S is {text[:30]!r}: expected seconds, from 1 to 9999"
        )
    return float(text)


def call_in_time(
    place: str, work: Callable[[], _T], seconds: float | None = None
) -> _T:
    """Return the result of ``work``, run in a child process: :func:`watch` without progress."""
    return watch(place, lambda _: work(), lambda _: None, seconds)


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
    from multiprocessing.connection import (
        Pipe,
    )  # most commands of the agent call nothing

    if seconds is None:
        seconds = _silence_s(place)
    source, pipe = Pipe(duplex=False)
    # Close inherited output so that nobody waits for an abandoned child.
    pid = _forked(lambda: _answer(work, pipe), pipe.fileno(), (0, 1, 2))
    pipe.close()
    kind = "at"
    try:
        while source.poll(seconds):
            try:
                kind, value = source.recv()
            except EOFError:
                raise NoAnswer(
                    f"{place}: the process that looked at it was killed: run again"
                ) from None
            if kind == "done":
                return value  # type: ignore[no-any-return]
            if kind == "failed":
                raise value
            progress(value)
        raise NoAnswer(
            f"{place} has not answered for {seconds:.0f} s: is its mount alive (df {place})? "
            f"When it is back, remove what is left with: iogauge clean --target {place}"
        )
    finally:
        source.close()
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
        # A process that waits for dead storage may never end, so it is not waited for.
        options = 0
        if kind == "at":
            options = os.WNOHANG
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, options)


def attended(work: Callable[[], bool], caller: int, alive: Callable[[], None]) -> bool:
    """Run ``work`` in a child process, which prints where this one does, and return its answer.

    Calls ``alive`` every :data:`ALIVE_S` seconds. Kills the child and returns False if there is something to read from the
    descriptor ``caller``: nobody waits for the answer any more.
    """
    source, pipe = os.pipe()
    pid = _forked(work, pipe, (0,))
    os.close(pipe)
    try:
        ready: list[int] = []
        while not ready:
            ready = select.select([source, caller], [], [], ALIVE_S)[0]
            if not ready:
                alive()
        if source in ready:
            return os.waitpid(pid, 0)[1] == 0
        os.kill(pid, signal.SIGKILL)
        # A process that waits for dead storage may never end, so it is not waited for.
        os.waitpid(pid, os.WNOHANG)
        return False
    finally:
        os.close(source)
