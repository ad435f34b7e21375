"""What a node sees of the target and of the settings that the site expects, and whether the file system is that of the case.
On Lustre: put files on storage targets, directories on metadata targets, note layouts, switch checksums.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any, Final

from iogauge.core import processes
from iogauge.core.paths import expand
from iogauge.core.text import visible
from iogauge.guards.finding import Finding, Outcome
from iogauge.guards.preflight import (
    expected_settings,
    identity,
    metadata_default,
    metadata_placement,
)
from iogauge.node.lustre import checksums, lov
from iogauge.node.lustre.directory import parse_getdirstripe, passed_on
from iogauge.node.lustre.layout import Layouts
from iogauge.node.lustre.programs import NAMES_PER_COMMAND, LustreError, run_lfs
from iogauge.node.lustre.request import Layout, Pins, place
from iogauge.node.lustre.targets import StorageTarget, of_metadata_targets
from iogauge.node.mounts import existing_parent, find_mount, fsname_of
from iogauge.node.view import View, look
from iogauge.plan.observations import LAYOUTS, note
from iogauge.plan.stage import OPENED, ORDER, REFUSAL, REFUSED, JobOrder, Opened

#: Seconds for the probes of a node. What a busy node does not tell by then, the judge asks of the later looks.
_SECONDS: Final = 2.0


def refuse(objection: str) -> int:
    """Print an objection to the case, if there is one; return the exit status."""
    if not objection:
        return 0
    print(visible(f"{REFUSAL}{objection}"), file=sys.stderr)
    return REFUSED


def as_expected(view: View, order: JobOrder) -> list[Finding]:
    """Return what this node has of the expected settings; nothing if the site expects none."""
    if not order.expect:
        return []
    from iogauge.node import probes  # most sites expect nothing

    path = expand(order.target)
    stripes = passed_on(path, view.mount).stripes if view.on_lustre else {}
    return [
        expected_settings(
            expect=order.expect,
            facts={**stripes, **probes.collect(path, deadline=_SECONDS)},
            host=os.uname().nodename,
            path=path,
            fsname=fsname_of(view.mount.source) if view.mount else "*",
        )
    ]


def identify(views: Sequence[View], order: JobOrder) -> Finding:
    """Return whether views are of the file system that an order declares."""
    return identity(order, views)


def look_again(path: str) -> tuple[View, str]:
    """Return this node's view of a case's directory, and why the case must not run there, or "".

    The order and the first node's view lie in the current directory. A node without the directory
    may see another file system there. Raises OSError if it sees the right one without it.
    """
    view = replace(look(existing_parent(path)), path=path)
    order = JobOrder.from_json(json.loads(Path(ORDER).read_text(encoding="utf-8")))
    opened = Opened.from_json(json.loads(Path(OPENED).read_text(encoding="utf-8")))
    found = identify([*filter(None, [opened.view]), view], order)
    if found.outcome is Outcome.INVALID:
        return view, str(found)
    os.stat(path)
    wrong = [one for one in as_expected(view, order) if one.outcome is Outcome.INVALID]
    return view, "; ".join(map(str, wrong))


#: Seconds that the layouts of a repetition may take; less than the job script waits.
_ANSWER_S: Final = 50.0


def pin(pins_file: str, directory: str) -> dict[str, Any]:
    """Put every name on its storage target; return the requested targets.

    The storage targets are those of the look before the first byte. Files must not exist yet. Where
    they landed is read after they are written.
    """
    pins = Pins.from_json(json.loads(Path(pins_file).read_text(encoding="utf-8")))
    placed = place(pins, _targets())
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    left = [name for name in pins.names if not _made(pins, paths[name], placed[name])]
    for target in dict.fromkeys(placed[name] for name in left):
        chosen = [paths[name] for name in left if placed[name] == target]
        layout = Layout(
            stripe_count=1, start=target, stripe_bytes=pins.stripe_bytes, pool=pins.pool
        )
        for first in range(0, len(chosen), NAMES_PER_COMMAND):
            run_lfs(
                "setstripe",
                *layout.arguments(),
                *chosen[first : first + NAMES_PER_COMMAND],
            )
    return {"placed": placed}


def _made(pins: Pins, path: str, target: int) -> bool:
    """Whether the kernel made a file on its target, without a program; else ``lfs`` has the say.

    A directory's layout is not tried: clients before 2.17 take target 0 for "any" there. Nor is a pool:
    servers of 2.15 forget the pool of a file whose targets are listed.
    """
    if pins.kind == "directory" or pins.pool is not None:
        return False
    try:
        lov.create(path, target, pins.stripe_bytes)
    except OSError:
        return False
    return True


def spread(count: int, directory: str) -> str:
    """Make a directory on each metadata target; return the objection if one is not there, or ""."""
    placed: dict[str, tuple[int, ...]] = {}
    problem = ""
    try:
        for index, name in enumerate(of_metadata_targets(count)):
            path = os.path.join(directory, name)
            run_lfs("mkdir", "-i", str(index), path)
            placed[name], _ = parse_getdirstripe(run_lfs("getdirstripe", "-y", path))
    except LustreError as error:
        problem = str(error)
    found = metadata_placement(count, placed, problem)
    return "" if found.outcome is Outcome.OK else str(found)


def stripe_directory(words: Sequence[str], directory: str) -> str:
    """Make a directory whose new directories lie on metadata targets as words for ``lfs setdirstripe`` say.

    Returns the objection if Lustre does not allow it, or "".
    """
    os.makedirs(directory, exist_ok=True)
    try:
        run_lfs("setdirstripe", *words, directory)
    except LustreError as error:
        return str(metadata_default(words, str(error)))
    return ""


#: Most directories that are asked where they lie: one for each task would start as many programs.
_DIRECTORIES: Final = 32


def with_files(top: str) -> dict[str, tuple[int, ...]]:
    """Return the metadata targets of the directories below ``top`` that hold files, by their relative paths.

    Of more than 32 those of a random sample. Raises LustreError, OSError.
    """
    holding = sorted(folder for folder, _, names in os.walk(top) if names)
    import random  # dear, and few cases need it

    chosen = random.sample(holding, min(_DIRECTORIES, len(holding)))
    return {
        os.path.relpath(path, top): parse_getdirstripe(
            run_lfs("getdirstripe", "-y", path)
        )[0]
        for path in chosen
    }


def _targets() -> tuple[StorageTarget, ...]:
    """Return the storage targets that this case was opened with; raises OSError, ValueError."""
    opened = Opened.from_json(json.loads(Path(OPENED).read_text(encoding="utf-8")))
    targets = opened.view.targets if opened.view else ()
    return opened.directory_seen.usable(targets) if opened.directory_seen else targets


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


def passed_on_by(paths: Sequence[str]) -> dict[str, Any]:
    """Return what directories pass on to new files, by their names, or why that was not answered."""

    def look(path: str) -> dict[str, Any]:
        try:
            layout = lov.read_default_lov(path)
        except LustreError as error:
            return {"problem": str(error)}
        return {"layout": None if layout is None else asdict(layout)}

    return {os.path.basename(path): look(path) for path in paths}


def switch_checksums(state: str, directory: str, folder: str) -> None:
    """Switch the checksums of the client on or off; keep the old values in a folder."""
    mount = find_mount(expand(directory))
    checksums.switch_checksums(
        state == "on", mount.source if mount else "", Path(folder)
    )
