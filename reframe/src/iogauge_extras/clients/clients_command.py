"""``iogauge check --clients``: every client of a partition in seconds."""

import os
import sys
from collections.abc import Iterator

from iogauge.cli.answers import Answer, Place, State
from iogauge.cli.nodes import launch
from iogauge.core.paths import JOB_FILES
from iogauge.core.text import some, visible
from iogauge_extras.clients import health, meeting
from iogauge_extras.clients.line import started
from iogauge_extras.clients.questions import QUESTIONS

#: Questions of seconds: all but the long listing.
_QUICK = tuple(name for name in QUESTIONS if name != "listing")

#: Seconds in which a mount must answer.
_LOOK_S = 2.0

#: How an answer is shown, and what to do.
_STATES: dict[meeting.State, tuple[State, str]] = {
    "holds": ("ok", ""),
    "not claimed": ("detail", ""),
    "does not hold": ("problem", "look at the mount options of the clients"),
}


def _answers(place: Place, lines: meeting.Lines) -> Iterator[Answer]:
    """Yield what clients have otherwise, and then what those that are well find together."""
    subject = f"clients of {place.name}"
    target = place.extras.target
    seen = meeting.look(lines, target.path, _LOOK_S)
    options = str(place.extras.expect.get("mount.options", ""))
    yield from health.compare(seen, target, options)
    yield Answer("ok", subject, f"{len(seen)}: {some([*seen])}")
    well = {name: view for name, view in seen.items() if not view["problem"]}
    if len(well) < 2:
        return
    working = {name: lines[name] for name in well}
    first = next(iter(working.values()))
    first.ask("make", target.path, f"clients-{os.uname().nodename}-{os.getpid()}")
    made = first.hear()
    if isinstance(made, str):
        raise OSError(f"they have no directory to meet in: {made}")
    for answer in meeting.ask_all(working, well, made[0], _QUICK):
        state, remedy = _STATES[answer.state]
        yield Answer(state, subject, visible(str(answer)), remedy)


def of_partition(place: Place) -> Iterator[Answer]:
    """Ask all clients of a partition at once, and let them work in one directory."""
    start = launch(place.partition, place.extras)
    count = 1
    if start:
        count = place.extras.scale.nodes
    agent = ["/bin/sh", str(JOB_FILES / "agent.sh"), sys.executable, "client"]
    try:
        with started(start, agent, count, place.extras.interface or "") as lines:
            yield from _answers(place, lines)
    except OSError as error:
        text = f"not all answered: {visible(str(error))}"
        remedy = "iogauge check says what they lack"
        yield Answer("problem", f"clients of {place.name}", text, remedy)
