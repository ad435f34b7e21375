"""The agent: commands that a job runs on the nodes themselves, by ``agent.sh PYTHON COMMAND...``.

``open CASE.json`` waits for the target's lock, checks the target and makes the case's directory, or
refuses with status 3. It prints "opened", and keeps the lock until its standard input ends. Until then it runs other
commands, which the job script sends it.
``open`` also restores settings of jobs that were killed before they could.

``attend STAGE DIR PROGRAM INTERFACE`` attends a node while the case runs, with a server or without
(:mod:`iogauge.job.node_agent`); ``await NODES TOOL LAUNCHER SECONDS`` waits until all nodes are attended.

These commands note their answer under the word OUT (:mod:`iogauge.plan.observations`), because launchers
mix the nodes' output. ``evict DIR OUT`` drops
the page cache of all files below a directory. ``pin PINS.json DIR OUT`` puts files or directories
on storage targets of Lustre.
``facts DIR OUT`` writes the node's fingerprint and counters, and never fails.

``checksums on|off DIR KEEP`` switches Lustre's checksums after saving the old values in the
directory KEEP; ``restore KEEP`` restores them. ``remove DIR SECONDS`` removes a case's directory,
or as much of it as the time allows (0: all). ``empty DIR`` removes its content. ``turns`` says what
a needle measures next. ``failover`` writes across a failure, and checks what was acknowledged. ``turns`` and ``failover`` are extras (:mod:`iogauge.core.registry`).

A command that fails ends with status 1 and a line that gives the reason. Paths may begin with a
variable, see :func:`iogauge.core.paths.expand`.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from iogauge.core.paths import expand
from iogauge.core.text import complain

if TYPE_CHECKING:
    from iogauge.workspace.removal import Progress

# Each command imports what it needs: a job starts the agent several times on every node.


def _answer(out: str, answer: dict[str, Any]) -> int:
    """Note this node's answer under a word."""
    from iogauge.plan.observations import note

    note(out, answer)
    return 0


def _facts(directory: str, out: str) -> int:
    """Write this node's facts and counters; always return 0, as no run depends on them."""
    from iogauge.job.node_agent import server_here
    from iogauge.node import activity, between, inventory

    try:
        path = expand(directory)
        answer = {
            "load": activity.look(path).to_json(),
            "fingerprint": inventory.collect(
                path, processes=[*filter(None, [server_here()])]
            ),
            "versions": between.versions(),
        }
        _answer(out, answer)
    except (OSError, ValueError) as error:
        complain(f"iogauge: facts: left out: {error}")
    return 0


def _progress(directory: str) -> Progress:
    from iogauge.workspace.removal import Progress

    return Progress(directory, complain)


def _remove(directory: str, seconds: float) -> int:
    from iogauge.core import processes
    from iogauge.node.mounts import existing_parent, find_mount
    from iogauge.workspace.directory import remove_case

    for message in processes.end(directory):
        complain(f"iogauge: {message}")
    if not os.path.lexists(directory):
        at = find_mount(existing_parent(directory))
        complain(
            f"iogauge: remove: {directory} was gone, and {at.point} is {at.type} from {at.source}: if its file system is not "
            "mounted any more, or hidden, what was written lies there still; remove it with iogauge clean when it is"
        )
    remove_case(directory, seconds=seconds or None, report=_progress(directory))
    return 0


def _evict(directory: str) -> dict[str, Any]:
    from iogauge.node import files

    found = (os.path.join(directory, name) for name in files.files_below(directory))
    return files.evict(found).to_json()


def _empty(directory: str) -> int:
    from iogauge.workspace.directory import empty_case

    empty_case(directory, report=_progress(directory))
    return 0


def _of_an_extra(argv: list[str]) -> int | None:
    """Run a command that an extra provides; return its exit status, or None for another command."""
    from iogauge.core import registry

    if argv[:1] and argv[0] in registry.names("iogauge_agent"):
        status: int | None = registry.load("iogauge_agent", argv[0])(argv[1:])
        return status
    return None


def _command(argv: list[str]) -> int | None:
    """Run one of the agent's commands; return its exit status, or None for another command."""
    match argv:
        case ["open", order_file]:
            from iogauge.job.lead_agent import open_case

            return open_case(order_file, main)
        case ["attend", stage, directory, program, interface]:
            from iogauge.job.node_agent import attend

            return attend(stage, directory, program, interface)
        case ["await", nodes, tool, launcher, seconds]:
            from iogauge.job.node_agent import await_all

            return await_all(int(nodes), tool, int(launcher), float(seconds))
        case ["evict", directory, out]:
            return _answer(out, _evict(expand(directory)))
        case ["facts", directory, out]:
            return _facts(directory, out)
        case ["empty", directory]:
            return _empty(directory)
        case ["remove", directory, seconds]:
            return _remove(directory, float(seconds))
        case ["restore", folder]:
            from iogauge.job.opening import restore_settings

            return restore_settings(folder)
        case ["pin", pins_file, directory, out]:
            from iogauge.job.target import pin

            return _answer(out, pin(pins_file, expand(directory)))
        case ["checksums", ("on" | "off") as state, directory, folder]:
            from iogauge.node.lustre.checksums import switch_checksums
            from iogauge.node.mounts import find_mount

            source = find_mount(expand(directory)).source
            switch_checksums(state == "on", source, Path(folder))
            return 0
    return _of_an_extra(argv)


def main(argv: list[str]) -> int:
    """Run one of the agent's commands; return the exit status."""
    try:
        status = _command(argv)
    except (OSError, ValueError) as error:
        complain(f"iogauge: {' '.join(argv[:1])}: {error}")
        return 1
    if status is not None:
        return status
    complain(f"iogauge: {argv}: not a command of the agent")
    return 2
