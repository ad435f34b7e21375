"""What clients found together, and what of it their mounts claim.

A file system may not claim something: NFS promises close-to-open consistency alone (nfs(5), DATA AND METADATA COHERENCE), and
a mount option can make locks local (``localflock``, ``local_lock``). What no client claims is "not claimed", whatever was found.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

from iogauge.core.groups import grouped
from iogauge.core.paths import expand
from iogauge.core.text import some
from iogauge.core.untrusted import Plain
from iogauge_extras.clients.line import ANSWER_S, TWICE, Line, NodeError, started
from iogauge_extras.clients.questions import QUESTIONS

#: Version of the questions: one that asks otherwise has another.
_VERSION: Final = "2"

#: Seconds in which the mount of a client in a job must answer, on a busy node too, and for a step of a question.
_PATIENCE_S: Final = 30.0
_LONG_S: Final = 600.0

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
    """Return each client's view of a path, with the seconds that its clock is ahead of this one's."""
    asked = {}
    for name, line in lines.items():
        line.tell({"ask": "look", "path": path, "seconds": seconds})
        asked[name] = time.time()
    seen = {}
    for name, line in lines.items():
        seen[name] = line.hear(seconds + ANSWER_S)["answer"]
        # A client looks at its clock when it is asked; its answer may be late.
        seen[name]["ahead"] = seen[name]["clock"] - asked[name]
    return seen


def _found(lines: Lines, seconds: float, question: str, **words: Any) -> dict[str, str]:
    """Let clients answer a question together; return by name what does not hold, or was refused."""
    for name, line in lines.items():
        line.tell({"ask": question, "name": name, "names": [*lines], **words})
    answers: dict[str, str] = {}
    while len(answers) < len(lines):
        gathered = {}
        for name in lines.keys() - answers.keys():
            said = lines[name].hear(seconds)
            if "value" in said:
                gathered[name] = said["value"]
            else:
                answers[name] = said["answer"]
        for name in gathered:
            lines[name].tell(gathered)
    return answers


_LOCAL: Final = {"flock": "flock", "fcntl": "posix"}
_BEYOND_NFS: Final = ("append", "unlinked", "rename", "times", "mmap")
#: Seen on GlusterFS with its default caches.
_BEYOND_FUSE: Final = ("unlinked", "times", "mmap")


def unclaimed(question: str, kind: str, options: str) -> str:
    """Return why a mount does not claim what a question asks; empty if it does."""
    mounted = set(options.split(","))
    is_nfs = kind in ("nfs", "nfs4")
    if question in _LOCAL:
        local = {"localflock", "noflock", "local_lock=all"}
        # Lustre shows "nolock" where its locks work.
        if is_nfs:
            local |= {"nolock", f"local_lock={_LOCAL[question]}"}
        if local & mounted:
            return f"mounted with {min(local & mounted)}"
        if kind == "lustre" and "flock" not in mounted:
            return "mounted without flock"
    if is_nfs and question in _BEYOND_NFS:
        return "NFS promises close-to-open consistency alone"
    if kind.startswith("fuse") and question in _BEYOND_FUSE:
        return "a FUSE client may keep what it knows for a second"
    return ""


def judged(question: str, found: Mapping[str, str], seen: Seen) -> Answer:
    """Return the answer to a question from what clients found, and how each of them is mounted.

    If some claim it and others do not, it does not hold between them, and the text says who does not.
    """
    sentence = (QUESTIONS[question].__doc__ or "").rstrip(".")
    wrong = grouped(found, lambda name: found[name])
    wrong.pop("", None)
    if not wrong:
        return Answer(sentence, "holds")
    whys = {}
    for name in found:
        whys[name] = unclaimed(question, seen[name]["type"], seen[name]["options"])
    reasons = grouped(found, lambda name: whys[name])
    state: State = "does not hold" if "" in reasons else "not claimed"
    reasons.pop("", None)
    texts = []
    for text, names in [*wrong.items(), *reasons.items()]:
        texts.append(f"{some(sorted(names))}: {text}")
    return Answer(sentence, state, "; ".join(texts))


def ask_all(
    lines: Lines,
    seen: Seen,
    path: str,
    questions: Iterable[str],
    entries: int = 0,
    seconds: float = ANSWER_S,
) -> tuple[Answer, ...]:
    """Return the answers of clients to some questions, from their work in a directory; raises NodeError if one has gone."""
    answers = []
    for question in questions:
        found = _found(lines, seconds, question, path=path, entries=entries)
        answers.append(judged(question, found, seen))
    return tuple(answers)


def judge_semantics(words: Sequence[str]) -> int:
    """Ask the clients of a job, by the agent's command ``semantics DIR NODES ENTRIES OUT INTERFACE START...``.

    On one node there are two clients. Writes the answers to OUT as JSON; returns the exit status. Raises NodeError if a
    client has no target: the others' answers would not be those of all.
    """
    directory, nodes, entries, out, interface, *start = words
    path = expand(directory)
    count = int(nodes)
    if count == 1:
        start, count = [*TWICE, *start], 2
    with started([*start, "client"], count, interface) as lines:
        seen = look(lines, path, _PATIENCE_S)
        for name, view in seen.items():
            if view["problem"]:
                raise NodeError(f"{name}: {path} {view['problem']}")
        answers = ask_all(lines, seen, path, QUESTIONS, int(entries), _LONG_S)
    asked = ("semantics", path, nodes, entries, out)
    noted = Noted(_VERSION, asked, tuple(sorted(lines)), answers)
    Path(out).write_text(json.dumps(noted.to_json()))
    return 0
