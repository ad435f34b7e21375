"""How the first task of a node lets the node's agent look at its counters, just before the tool and just after it."""

import contextlib
import math
import os
import threading
import time
from collections.abc import Iterator
from typing import NamedTuple

from iogauge.node import kernel
from iogauge.node.counters import (
    Reading,
    not_the_kernels,
    processor_ticks,
    read_all,
)
from iogauge.plan.observations import (
    COUNTERS,
    TASKS,
    UNCOUNTED,
    append,
    line_of,
    note,
)

#: Named pipes in the stage directory, with ``.<host>``: questions, and the answers with ``.said`` behind.
AGENT = "agent"

#: Seconds after which the tasks of an execution have told what they had to.
_QUIET_S = 0.05


class Task(NamedTuple):
    """A process, and its start in ticks since boot: another one of its number began at another time."""

    process: int
    start: int


class ControlPipe:
    """Two named pipes, which join processes of one node even on a file system of a network.

    ``before EXECUTION`` and ``after EXECUTION`` are repeated when the agent has looked at all counters of the node, ``sync
    EXECUTION`` when what was written to the case's directory is on storage. An answer that begins with ``failed`` says why
    that is not so. ``task PROCESS START`` names the tool of this node's first task. A line that ends with ``end`` is what a
    task tells when it has ended: the agent writes those of all tasks to the stage at once.
    """

    def __init__(self, directory: str) -> None:
        """Make the pipes in the current directory, for a case whose files lie in ``directory``; raises OSError."""
        self._directory = directory
        place = f"{AGENT}.{os.uname().nodename}"
        self._places = f"{place}.said", place
        self._remove()
        self._before: dict[str, Reading | None] = {}
        self._waiting = b""
        self._looks = self._tasks = ""
        self._told_at = time.monotonic()
        uncounted = not_the_kernels()
        if uncounted:
            note(UNCOUNTED, uncounted)
        for pipe in self._places:
            os.mkfifo(pipe, 0o600)
        # Open for both ways: nobody waits for the other end, and the question is never at an end.
        self._says, self._asked = (
            os.open(pipe, os.O_RDWR | os.O_NONBLOCK | os.O_CLOEXEC)
            for pipe in self._places
        )

    def fileno(self) -> int:
        """Return the descriptor of the questions, for select(2)."""
        return self._asked

    def answer(self) -> Iterator[Task]:
        """Answer all that was asked, and yield the tasks that were named; raises OSError of the stage alone."""
        with contextlib.suppress(BlockingIOError):
            self._waiting += os.read(self._asked, 1 << 16)
        *lines, self._waiting = self._waiting.split(b"\n")
        for line in lines:
            self._told_at = time.monotonic()
            match line.decode(errors="replace").split(" "):
                case ["task", process, start] if (
                    process.isdecimal() and start.isdecimal()
                ):
                    yield Task(int(process), int(start))
                case [("before" | "after") as when, execution]:
                    self._look(when, execution)
                    self._say(line)
                case ["sync", _]:
                    # It may take minutes, and the agent goes on looking.
                    threading.Thread(target=self._sync, args=(line,)).start()
                case [*words, "end"]:
                    self._tasks += f"{' '.join(words)} end\n"

    def _say(self, line: bytes) -> None:
        with contextlib.suppress(BlockingIOError):  # nobody has read many answers
            os.write(self._says, line + b"\n")

    def _sync(self, question: bytes) -> None:
        """Bring what was written to storage, and answer."""
        try:
            # Twice: Linux lets a journal pass the limit of a control group, and makes what comes next wait for it.
            kernel.syncfs(self._directory)
            kernel.syncfs(self._directory)
        except OSError as error:
            self._say(b"failed %b: %b" % (question, str(error).encode()))
        else:
            self._say(question)

    def _look(self, when: str, execution: str) -> None:
        """Look at all counters before an execution, and after it at those that differ.

        Preparation and warm-up, repetition 0, are not judged and need none of Lustre, which may cost the start of a program.
        """
        counts = read_all(lustre=not execution.endswith(".0"))
        changed = counts
        if when == "before":
            self._before = counts
        else:
            changed = dict.fromkeys(self._before.keys() - counts.keys())
            for name, reading in counts.items():
                if self._before.get(name, ()) != reading:
                    changed[name] = reading
        look = [execution, when, changed, processor_ticks()]
        self._looks += line_of(COUNTERS, look)
        if when == "after":
            append(self._looks)
            self._looks = ""

    @property
    def pause_s(self) -> float:
        """Return the seconds after which to call :meth:`settle`, if nothing comes before."""
        if not self._tasks:
            return math.inf
        return _QUIET_S

    def settle(self) -> None:
        """Write what tasks told, once they tell no more; raises OSError of the stage.

        A thousand nodes must not open files of a shared stage for each of their tasks.
        """
        if self._tasks and time.monotonic() - self._told_at >= _QUIET_S:
            append(self._tasks, TASKS)
            self._tasks = ""

    def close(self) -> None:
        """Write what waits, and remove the pipes; raises OSError of the stage."""
        for _ in self.answer():
            pass
        if self._tasks:
            append(self._tasks, TASKS)
        self._remove()

    def _remove(self) -> None:
        for pipe in self._places:
            with contextlib.suppress(OSError):
                os.unlink(pipe)
