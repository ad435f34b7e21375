"""``iogauge check --clients``: every client of a partition in seconds."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Final

from iogauge.cli.answers import Answer, Place, State, probe
from iogauge.cli.nodes import launch
from iogauge.core.paths import JOB_FILES
from iogauge.core.text import some, visible
from iogauge_extras.clients import health, meeting
from iogauge_extras.clients.line import TWICE, started
from iogauge_extras.clients.questions import QUESTIONS

#: Questions of seconds: all but the long listing.
_QUICK: Final = tuple(name for name in QUESTIONS if name != "listing")

#: Seconds in which a mount must answer.
_LOOK_S: Final = 2.0

_STATES: Final[dict[meeting.State, State]] = {
    "holds": "ok",
    "not claimed": "detail",
    "does not hold": "problem",
}


def _answers(place: Place, lines: meeting.Lines) -> Iterator[Answer]:
    """Yield what clients have otherwise, and then what those that are well find together."""
    subject = f"clients of {place.name}"
    target = place.extras.target
    seen = meeting.look(lines, target.path, _LOOK_S)
    options = str(place.extras.expect.get("mount.options", ""))
    for difference in health.compare(seen, target, options):
        state: State = "problem" if difference.grave else "note"
        who = f"client {some(difference.clients)}"
        yield Answer(state, who, difference.text, difference.remedy)
    yield Answer("ok", subject, f"{len(seen)}: {some([*seen])}")
    well = {name: line for name, line in lines.items() if not seen[name]["problem"]}
    if len(well) < 2:
        return
    first = next(iter(well.values()))
    session = f"clients-{os.uname().nodename}-{os.getpid()}"
    words = {"session": session, "case": "clients", "time_limit_s": 600}
    first.tell({"ask": "make", "path": target.path, **words})
    made = first.hear()
    if "refused" in made:
        raise OSError(f"they have no directory to meet in: {made['answer']}")
    for answer in meeting.ask_all(well, seen, made["answer"], _QUICK):
        remedy = ""
        if answer.state == "does not hold":
            remedy = "look at the mount options of the clients"
        yield Answer(_STATES[answer.state], subject, visible(str(answer)), remedy)


@probe(
    "Are all clients well, and do they agree?",
    "alike mounts that answer in 2 s, one clock, and what POSIX says of files that others use",
)
def of_partition(place: Place) -> Iterator[Answer]:
    """Ask all clients of a partition at once, and let them work in one directory."""
    count = place.extras.scale.nodes
    start = launch(place.partition, place.extras)
    if not start:
        start, count = [*TWICE], 2
    agent = ["/bin/sh", str(JOB_FILES / "agent.sh"), sys.executable, "client"]
    try:
        with started([*start, *agent], count, place.extras.interface or "") as lines:
            yield from _answers(place, lines)
    except OSError as error:
        text = f"not all answered: {visible(str(error))}"
        remedy = "iogauge check says what they lack"
        yield Answer("problem", f"clients of {place.name}", text, remedy)
