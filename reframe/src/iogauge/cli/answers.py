"""Questions of ``iogauge check`` and their answers.

A question is a row of a table in check: what is asked, what is expected, and the function that yields an answer for each thing that it
found, with what to do.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

from iogauge.cli.screen import say
from iogauge.core.groups import grouped
from iogauge.guards.finding import Finding, Outcome
from iogauge.site.extras import PartitionExtras

#: A detail and what is in order are shown with ``--all`` alone.
State = Literal["ok", "detail", "note", "problem"]


@dataclass(frozen=True, slots=True)
class Answer:
    """What was found out about one thing."""

    state: State
    #: What was looked at, such as ``target /scratch``.
    subject: str
    #: What was found.
    text: str
    #: What to do.
    remedy: str = ""
    #: What was asked, and what was expected; from the question.
    question: str = ""
    expected: str = ""

    def __str__(self) -> str:
        """Return the line with its remedy."""
        return ". ".join(filter(None, [f"{self.subject}: {self.text}", self.remedy]))


@dataclass(frozen=True, slots=True)
class Place:
    """A partition of a site whose cases can be started on this host."""

    #: The settings of the site, and of its partition.
    site: Mapping[str, Any]
    partition: Mapping[str, Any]
    extras: PartitionExtras

    @property
    def name(self) -> str:
        """Return the name of the partition."""
        return str(self.partition["name"])

    @property
    def is_local(self) -> bool:
        """Return whether the cases run on this host."""
        return self.partition["scheduler"] == "local" and not self.extras.hosts


@dataclass(frozen=True, slots=True)
class Question:
    """A question of check."""

    #: What it is about, which decides what ``find`` takes.
    about: str
    asks: str
    expects: str
    find: Callable[..., Iterable[Answer]]


def objections(
    subject: str, findings: Iterable[Finding], of: str = ""
) -> Iterator[Answer]:
    """Yield an answer for each finding that is not in order; ``of`` says whom it concerns."""
    for finding in findings:
        if finding.outcome is Outcome.OK:
            continue
        state: State = "problem"
        if finding.outcome is Outcome.WARN:
            state = "note"
        text = f"{replace(finding, remedy='')}{of}"
        yield Answer(state, subject, text, finding.remedy)


#: How an answer begins, and its colour, by its state.
_LOOKS: Final[dict[State, tuple[str, str]]] = {
    "ok": ("ok", "green"),
    "detail": ("", ""),
    "note": ("note", "yellow"),
}


def show_answers(answers: Iterable[Answer], everything: bool = False) -> int:
    """Print notes, then what is to be done, in order; return how many things are to be done."""
    states = grouped(dict.fromkeys(answers), lambda line: line.state)
    for state, (word, style) in _LOOKS.items():
        for line in states.get(state, ()):
            if everything or state == "note":
                say(f"{word:<5} {line}", style)
    problems = states.get("problem", [])
    for number, line in enumerate(problems, 1):
        say(f"to do {number} {line.subject}: {line.text}", "red")
        say(f"  -> {line.remedy or 'correct the file'}")
    return len(problems)
