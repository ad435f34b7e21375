"""The agent that keeps the target's lock: it opens the case, and serves the job script of the first node until that ends.

Between two commands it looks at the target, and answers the first task of its node (:mod:`iogauge.job.control_pipe`).
"""

import contextlib
import json
import os
import select
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from iogauge.core import processes
from iogauge.core.text import complain, say
from iogauge.core.untrusted import read_json
from iogauge.job.control_pipe import ControlPipe
from iogauge.job.node_agent import begin_lease, server_here
from iogauge.job.opening import prepare
from iogauge.job.recorder import Recorder, note_found
from iogauge.node import files as contents
from iogauge.node.files import Block, Sample
from iogauge.node.identity import upper_of
from iogauge.node.kinds import kind_of
from iogauge.node.mounts import find_mount
from iogauge.node.view import View
from iogauge.plan.observations import CONTENTS, UNCOUNTED, note
from iogauge.plan.stage import ALIVE, OPENED, REFUSAL, REFUSED, WORD, JobOrder, Opened
from iogauge.workspace import directory, removal

#: Seconds that a sample may take on storage that answers slowly; less than the job script waits.
_ANSWER_S = 5.0


@dataclass(slots=True)
class Sampler:
    """Takes samples, and remembers which blocks of a directory were read after the last write."""

    type: str
    _written: dict[str, Sequence[Block]] = field(default_factory=dict)

    def take(self, repetition: int, after: str, directory: str) -> None:
        """Write a sample to the stage, or why there is none; raises OSError of the stage alone."""
        known = None
        sample = Sample(repetition=repetition, after="write")
        if after == "read":
            known = self._written.get(directory)
            sample = replace(sample, after="read")
        try:
            blocks, files = processes.call_in_time(
                directory,
                lambda: contents.take_sample(directory, known, kind_of(self.type).maps),
                _ANSWER_S,
            )
            sample = replace(sample, blocks=tuple(blocks), files=tuple(files))
        except processes.NoAnswer:
            why = f"{directory} did not answer in {_ANSWER_S:.0f} s"
            sample = replace(sample, problem=why)
        except OSError as error:
            sample = replace(sample, problem=str(error))
        if after != "read":
            self._written[directory] = sample.blocks
        note(CONTENTS, sample.to_json())


def open_case(order_file: str, run: Callable[[list[str]], int]) -> int:
    """Open a case by its order and keep the lock until the job script ends; return the status.

    ``run`` runs one of the agent's commands and returns its exit status.
    """
    order = JobOrder.from_json(read_json(order_file))
    with contextlib.ExitStack() as leaving:
        opened = prepare(order, leaving)
        Path(OPENED).write_text(json.dumps(opened.to_json()), encoding="utf-8")
        if opened.failed:
            complain(f"iogauge: {opened.failed}")
            return 1
        reasons = [*opened.refused, *filter(None, [opened.occupied])]
        for reason in reasons:
            complain(f"{REFUSAL}{reason}")
        if reasons:
            return REFUSED
        agent = _LeadAgent(order, opened, run)
        try:
            agent.serve(leaving)
        finally:
            agent.recorder.write()
    return 0


def _is_exact(kind: str, view: View | None) -> bool:
    """Return whether a file system says at any time how many inodes are in use; an overlay says it of its upper directory's."""
    if view and kind == "overlay":
        kind = find_mount(upper_of(view.mount) or view.path).type
    return kind_of(kind).counts_inodes


class _LeadAgent:
    """Serves the job script of an opened case, and looks at the target meanwhile."""

    def __init__(
        self, order: JobOrder, opened: Opened, run: Callable[[list[str]], int]
    ) -> None:
        view, self._run = opened.view, run
        held_by = None
        if _is_exact(order.type, view):
            held_by = opened.directory
        counters: Sequence[str] = ()
        if view:
            counters = view.counters
        self.recorder = Recorder(counters, held_by)
        self._directory = opened.directory
        self._sampler = Sampler(order.type)
        self._pipe: ControlPipe | None = None

    def serve(self, leaving: contextlib.ExitStack) -> None:
        """Obey the job script until it says "end", or is gone with all its children.

        The answer to a line is the line, after ``done`` or ``failed``, see :meth:`_obey`.
        """
        try:
            self._pipe = ControlPipe(self._directory)
            leaving.callback(self._pipe.close)
        except OSError as error:
            why = f"no named pipe in the stage directory: {error}"
            say(f"iogauge: no counters of this node: {why}")
            with contextlib.suppress(OSError):
                note(UNCOUNTED, why)
        waiting = b""
        print(WORD, flush=True)
        while True:
            chunk = self._heard()
            if not chunk:
                return
            *lines, waiting = (waiting + chunk).split(b"\n")
            for line in lines:
                if line == b"end":
                    return
                done = self._done(os.fsdecode(line))
                sys.stdout.flush()  # What the command said comes before the answer.
                # On a line of its own, even if the script has lost the end of one for which it waited in vain.
                answer = b"\nfailed "
                if done:
                    answer = b"\ndone "
                sys.stdout.buffer.write(answer + line + b"\n")
                sys.stdout.flush()

    def _heard(self) -> bytes:
        """Return what the job script says next; meanwhile look at the target, and answer the first task of this node."""
        waits: list[int | ControlPipe] = [0]
        if self._pipe:
            waits.append(self._pipe)
        while True:
            ready = select.select(waits, [], [], self.recorder.pause_s)[0]
            if self._pipe and self._pipe in ready:
                for task in self._pipe.answer():
                    self.recorder.take(task)
            if self._pipe:
                self._pipe.settle()
            self.recorder.look()
            if 0 in ready:
                return os.read(0, 4096)

    def _done(self, line: str) -> bool:
        """Obey a line and return whether that succeeded; print what the stage or the target objected."""
        word, _, rest = line.partition(" ")
        number, _, words = rest.partition(" ")
        try:
            return self._obey(word, number, words)
        except (OSError, ValueError) as error:
            say(f"iogauge: {word}: {error}")
            return False

    def _obey(self, word: str, number: str, words: str) -> bool:
        """Obey a word of the job script, in repetition ``number``; raises OSError or ValueError.

        ``phase FILE`` says that a phase begins whose tool prints to FILE. ``empty`` empties the case's directory. ``sample
        AFTER DIR`` reads a sample of the contents, ``layouts DIR`` the layouts of all files. ``lease`` begins to renew the
        lease of the agents. ``run WORDS`` runs a command of the agent, with a tab between two words; meanwhile a line
        ``alive`` comes now and then.
        """
        path = os.environ["IOG_DIR"]
        match word:
            case "phase":
                note_found(path)
                self.recorder.begin(words, server_here())
            case "empty":
                note_found(path)
                # The script waits for lines: it does not give up a slow removal that reports progress.
                directory.empty_case(path, report=removal.Progress(path, say))
            case "sample":
                after, _, place = words.partition(" ")
                self._sampler.take(int(number), after, place)
            case "layouts":
                from iogauge.job import target

                target.note_layouts(int(number), words)
            case "lease":
                begin_lease()
            case "run":
                return self._ran(words.split("\t"))
            case _:
                raise ValueError("not a word of the job script")
        return True

    def _ran(self, words: list[str]) -> bool:
        """Run a command of the agent in a process of its own.

        Nothing of it goes on while a phase is measured. It ends if the job script waits no longer, which then gets the
        lock released at once.
        """

        def work() -> bool:
            with contextlib.redirect_stderr(sys.stdout):
                return self._run(words) == 0

        return processes.attended(work, 0, lambda: say(ALIVE))
