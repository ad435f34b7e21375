"""The agent on Lustre: put files on storage targets, directories on metadata targets, note layouts, switch checksums."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final

from iogauge.core import deadline
from iogauge.core.paths import expand
from iogauge.guards.finding import Outcome
from iogauge.guards.preflight import metadata_placement
from iogauge.node import directories, layouts, lustre
from iogauge.node.layouts import Layouts, LustreError, Pins
from iogauge.node.lustre import NAMES_PER_COMMAND, run_lfs
from iogauge.node.mounts import StorageTarget, find_mount
from iogauge.plan.stage import LAYOUTS, OPENED, Opened

#: Seconds that the layouts of a repetition may take; less than the job script waits.
_PATIENCE_S: Final = 50.0


def pin(pins_file: str, directory: str) -> dict[str, Any]:
    """Put every name on its storage target; return the requested targets.

    The storage targets are those of the look before the first byte. Files must not exist yet. Where
    they landed is read after they are written.
    """
    pins = Pins.from_json(json.loads(Path(pins_file).read_text(encoding="utf-8")))
    placed = layouts.place(pins, _targets())
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    left = [name for name in pins.names if not _made(pins, paths[name], placed[name])]
    for target in dict.fromkeys(placed[name] for name in left):
        chosen = [paths[name] for name in left if placed[name] == target]
        layout = layouts.Layout(
            stripe_count=1, start=target, stripe_bytes=pins.stripe_bytes, pool=pins.pool
        )
        for first in range(0, len(chosen), NAMES_PER_COMMAND):
            run_lfs("setstripe", *layout.arguments(), *chosen[first : first + NAMES_PER_COMMAND])
    return {"placed": placed}


def _made(pins: Pins, path: str, target: int) -> bool:
    """Whether the kernel made a file on its target, without a program; else ``lfs`` has the say.

    A directory's layout is not tried: clients before 2.17 take target 0 for "any" there. Nor is a pool:
    servers of 2.15 forget the pool of a file whose targets are listed.
    """
    if pins.kind == "directory" or pins.pool is not None:
        return False
    try:
        layouts.create(path, target, pins.stripe_bytes)
    except OSError:
        return False
    return True


def spread(count: int, directory: str) -> str:
    """Make a directory on each metadata target; return the objection if one is not there, or ""."""
    placed: dict[str, tuple[int, ...]] = {}
    problem = ""
    try:
        for index, name in enumerate(directories.of_metadata_targets(count)):
            path = os.path.join(directory, name)
            run_lfs("mkdir", "-i", str(index), path)
            placed[name], _ = directories.parse_getdirstripe(run_lfs("getdirstripe", "-y", path))
    except LustreError as error:
        problem = str(error)
    found = metadata_placement(count=count, placed=placed, problem=problem)
    return "" if found.outcome is Outcome.OK else str(found)


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
        seen = deadline.call(
            directory, lambda: layouts.look_at_lov(directory, repetition), _PATIENCE_S
        )
    except (OSError, LustreError) as error:
        seen = Layouts(repetition=repetition, problem=str(error))
    with open(LAYOUTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(seen.to_json()) + "\n")


def passed_on_by(paths: Sequence[str]) -> dict[str, Any]:
    """Return what directories pass on to new files, by their names, or why that was not answered."""

    def look(path: str) -> dict[str, Any]:
        try:
            layout = layouts.read_default_lov(path)
        except LustreError as error:
            return {"problem": str(error)}
        return {"layout": None if layout is None else asdict(layout)}

    return {os.path.basename(path): look(path) for path in paths}


def switch_checksums(state: str, directory: str, folder: str) -> None:
    """Switch the checksums of the client on or off; keep the old values in a folder."""
    mount = find_mount(expand(directory))
    lustre.switch_checksums(state == "on", mount.source if mount else "", Path(folder))
