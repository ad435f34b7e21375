"""Clients that look and work together: what they see of their mounts, and their answers to questions.

What no client's mount claims is "not claimed", whatever was found.
"""

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from iogauge.core.groups import grouped
from iogauge.core.paths import expand
from iogauge.core.text import some
from iogauge.core.untrusted import Plain
from iogauge_extras.clients.line import ANSWER_S, Line, NodeError, started
from iogauge_extras.clients.questions import QUESTIONS, Question, unclaimed

#: Version of the questions: one that asks otherwise has another.
_VERSION = "3"

#: Seconds in which the mount of a client in a job must answer, on a busy node too, and for a step of a question.
_PATIENCE_S = 30.0
_LONG_S = 600.0

State = Literal["holds", "does not hold", "not claimed"]

#: Connections to clients by name, and what each of them sees of its mount.
Lines = Mapping[str, Line]
Seen = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Answer:
    """What a question found."""

    question: str
    state: State
    #: What was found otherwise, with the clients' names; empty if it holds.
    text: str = ""

    def __str__(self) -> str:
        return ": ".join(filter(None, [self.question, self.state, self.text]))


@dataclass(frozen=True, slots=True)
class Noted(Plain):
    """What clients of a job found: the words that asked them, their names, and their answers."""

    version: str
    command: tuple[str, ...]
    clients: tuple[str, ...]
    answers: tuple[Answer, ...]


def look(lines: Lines, path: str, seconds: float) -> dict[str, dict[str, Any]]:
    """Return each client's view of a path, with the seconds that its clock is at least ahead of this one's."""
    ahead = {}
    for name, line in lines.items():
        asked = time.time()
        line.ask("clock")
        clock = line.hear()
        # It looked after it was asked, and before it was heard.
        ahead[name] = min(0.0, clock - asked) + max(0.0, clock - time.time())
    for line in lines.values():
        line.ask("look", path, seconds)
    seen = {}
    for name, line in lines.items():
        seen[name] = line.hear(seconds + 2 * ANSWER_S) | {"ahead": ahead[name]}
    return seen


def _wrong(lines: Lines, question: Question, seconds: float) -> dict[str, str]:
    """Let clients do the steps of a question, until one is wrong; return by name what does not hold, or was refused."""
    names = [*lines]
    groups = {"all": names, "first": names[:1], "others": names[1:]}
    numbers = {name: number for number, name in enumerate(names)}
    before: list[Any] = []
    for step in question.steps:
        who, _, what = step.partition(" ")
        for name in groups[who]:
            own = numbers[name]
            words = what.format(own=own, next=(own + 1) % len(names)).split()
            lines[name].ask(*words, before=before)
        before = []
        wrong = {}
        for name in groups[who]:
            answer = lines[name].hear(seconds)
            before.append(answer)
            if isinstance(answer, str) and answer:
                wrong[name] = answer
        if wrong:
            return wrong
    return {}


def judged(question: Question, wrong: Mapping[str, str], seen: Seen) -> Answer:
    """Return the answer to a question from what does not hold, and how each client is mounted.

    If some claim it and others do not, it does not hold between them, and the text says who does not. Locks that are local
    exclude clients of one node, which says nothing of other nodes.
    """
    whys = {}
    for name, view in seen.items():
        whys[name] = unclaimed(question, view["type"], view["options"])
    if not wrong and not (question.local and all(whys.values())):
        return Answer(question.sentence, "holds")
    state: State = "does not hold"
    if all(whys.values()):
        state = "not claimed"
    texts = []
    for found in (wrong, whys):
        for text, names in grouped(found, found.__getitem__).items():
            if text:
                texts.append(f"{some(sorted(names))}: {text}")
    return Answer(question.sentence, state, "; ".join(texts))


def ask_all(
    lines: Lines,
    seen: Seen,
    path: str,
    questions: Iterable[str],
    entries: int = 0,
    seconds: float = ANSWER_S,
) -> tuple[Answer, ...]:
    """Return the answers of clients to some questions, from their work in a directory; raises NodeError if one has gone."""
    for number, (name, line) in enumerate(lines.items()):
        line.ask("sit", path, number, len(lines), entries)
        refused = line.hear()
        if refused:
            raise NodeError(f"{name}: {refused}")
    answers = []
    for name in questions:
        question = QUESTIONS[name]
        answers.append(judged(question, _wrong(lines, question, seconds), seen))
    return tuple(answers)


def judge_semantics(words: Sequence[str]) -> int:
    """Ask the clients of a job, by the agent's command ``semantics DIR NODES ENTRIES OUT INTERFACE START...``.

    Writes the answers to OUT as JSON; returns the exit status. Raises NodeError if a client has no target: the others' answers
    would not be those of all.
    """
    directory, nodes, entries, out, interface, *start = words
    path = expand(directory)
    with started([], [*start, "client"], int(nodes), interface) as lines:
        seen = look(lines, path, _PATIENCE_S)
        for name, view in seen.items():
            if view["problem"]:
                raise NodeError(f"{name}: {path} {view['problem']}")
        answers = ask_all(lines, seen, path, QUESTIONS, int(entries), _LONG_S)
    asked = ("semantics", path, nodes, entries, out)
    noted = Noted(_VERSION, asked, tuple(sorted(lines)), answers)
    Path(out).write_text(json.dumps(noted.to_json()))
    return 0
