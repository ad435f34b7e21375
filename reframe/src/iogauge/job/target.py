"""What a node sees of the target and of the settings that the site expects, and whether the file system is that of the case.
On Lustre: put files on storage targets, note layouts.
"""

import os
from dataclasses import replace
from typing import Any

from iogauge.core import processes
from iogauge.core.paths import expand
from iogauge.core.untrusted import read_json
from iogauge.guards import expected
from iogauge.guards.finding import Finding, Outcome, refusals
from iogauge.guards.preflight import identity
from iogauge.node.lustre import lov
from iogauge.node.lustre.file_layout import Layouts
from iogauge.node.lustre.inherited import passed_on
from iogauge.node.lustre.lfs import NAMES_PER_COMMAND, LustreError, change
from iogauge.node.lustre.request import Layout, Pins, place
from iogauge.node.lustre.targets import StorageTarget
from iogauge.node.mounts import existing_parent
from iogauge.node.view import View, look
from iogauge.plan.observations import LAYOUTS, note
from iogauge.plan.stage import OPENED, ORDER, JobOrder, Opened

#: Seconds for the inventory of a node. What a busy node does not tell by then, the judge asks of the later looks.
_SECONDS = 2.0


def as_expected(view: View, order: JobOrder) -> list[Finding]:
    """Return what this node has of the expected settings; nothing if the site expects none."""
    if not order.expect:
        return []
    from iogauge.node import inventory  # most sites expect nothing

    path = expand(order.target)
    facts = inventory.collect(path, deadline=_SECONDS)
    if view.on_lustre:
        facts |= passed_on(path, view.mount).stripes
    return [expected.settings(order.expect, facts, os.uname().nodename)]


def look_again(path: str) -> tuple[View, str]:
    """Return this node's view of a case's directory, and why the case must not run there, or "".

    The order and the first node's view lie in the current directory. A node without the directory
    may see another file system there. Raises OSError if it sees the right one without it.
    """
    view = replace(look(existing_parent(path)), path=path)
    order = JobOrder.from_json(read_json(ORDER))
    opened = Opened.from_json(read_json(OPENED))
    found = identity(order, [*filter(None, [opened.view]), view])
    if found.outcome is Outcome.INVALID:
        return view, str(found)
    os.stat(path)
    return view, "; ".join(refusals(as_expected(view, order)))


#: Seconds that the layouts of a repetition may take; less than the job script waits.
_ANSWER_S = 50.0


def pin(pins_file: str, directory: str) -> dict[str, Any]:
    """Put every name on its storage target; return the requested targets.

    The storage targets are those of the look before the first byte. Files must not exist yet. Where
    they landed is read after they are written.
    """
    pins = Pins.from_json(read_json(pins_file))
    placed = place(pins, _targets())
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    for target in dict.fromkeys(placed.values()):
        chosen = [paths[name] for name in pins.names if placed[name] == target]
        layout = Layout(stripe_count=1, start=target)
        for first in range(0, len(chosen), NAMES_PER_COMMAND):
            change(
                "setstripe",
                *layout.arguments(),
                *chosen[first : first + NAMES_PER_COMMAND],
            )
    return {"placed": placed}


def _targets() -> tuple[StorageTarget, ...]:
    """Return the storage targets that this case was opened with; raises OSError, ValueError."""
    opened = Opened.from_json(read_json(OPENED))
    if opened.view is None:
        return ()
    return opened.view.targets


def note_layouts(repetition: int, directory: str) -> None:
    """Write the layouts of a directory's files to the stage, or why there are none.

    Raises OSError of the stage alone.
    """
    try:
        seen = processes.call_in_time(
            directory, lambda: lov.look_at_lov(directory, repetition), _ANSWER_S
        )
    except (OSError, LustreError) as error:
        seen = Layouts(repetition=repetition, problem=str(error))
    note(LAYOUTS, seen.to_json())
