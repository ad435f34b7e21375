"""The agent on Lustre: put files on storage targets, directories on metadata targets, note layouts, switch checksums."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final

from iogauge.core import deadline
from iogauge.core.paths import expand
from iogauge.guards.finding import Outcome
from iogauge.guards.metadata import metadata_placement
from iogauge.node import client_settings, directories, layouts, lov
from iogauge.node.layouts import Layouts, LustreError, Pins
from iogauge.node.lustre_targets import NAMES_PER_COMMAND, run_lfs
from iogauge.node.mounts import StorageTarget, find_mount
from iogauge.plan.stage import LAYOUTS, OPENED, Opened

#: Seconds that the layouts of a repetition may take; less than the job script waits.
_PATIENCE_S: Final = 50.0


def pin(pins_file: str, directory: str) -> dict[str, Any]:
    """Put every name on its storage target; return the requested targets.

    The storage targets are those of the look before the first byte. Files must not exist yet: ``lfs
    setstripe`` makes them. Where they landed is read after they are written.
    """
    pins = Pins.from_json(json.loads(Path(pins_file).read_text(encoding="utf-8")))
    placed = layouts.place(pins, _targets())
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    for target in dict.fromkeys(placed.values()):
        chosen = [paths[name] for name in pins.names if placed[name] == target]
        layout = layouts.Layout(
            stripe_count=1, start=target, stripe_bytes=pins.stripe_bytes, pool=pins.pool
        )
        for first in range(0, len(chosen), NAMES_PER_COMMAND):
            run_lfs("setstripe", *layout.arguments(), *chosen[first : first + NAMES_PER_COMMAND])
    return {"placed": placed}


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
        seen = deadline.call(directory, lambda: lov.look(directory, repetition), _PATIENCE_S)
    except (OSError, LustreError) as error:
        seen = Layouts(repetition=repetition, problem=str(error))
    with open(LAYOUTS, "a", encoding="utf-8") as file:
        file.write(json.dumps(seen.to_json()) + "\n")


def switch_checksums(state: str, directory: str, folder: str) -> None:
    """Switch the checksums of the client on or off; keep the old values in a folder."""
    mount = find_mount(expand(directory))
    client_settings.switch_checksums(state == "on", mount.source if mount else "", Path(folder))
