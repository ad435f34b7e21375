"""The agent on Lustre: put files on storage targets, read layouts back, switch checksums."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from iogauge.core.paths import expand
from iogauge.node import client_settings, getstripe, layouts, pagecache
from iogauge.node.layouts import FileLayout, Pins
from iogauge.node.lustre_targets import (
    NAMES_PER_COMMAND,
    in_parallel,
    run_lfs,
    storage_targets,
)
from iogauge.node.mounts import find_mount


def pin(pins_file: str, directory: str) -> dict[str, Any]:
    """Put every name on its storage target; return the requested and the obtained targets.

    Files must not exist yet: ``lfs setstripe`` makes them.
    """
    pins = Pins.from_json(json.loads(Path(pins_file).read_text(encoding="utf-8")))
    placed = layouts.place(pins, storage_targets(directory))
    paths = {name: os.path.join(directory, name) for name in pins.names}
    for path in paths.values():
        if pins.kind == "directory":
            os.makedirs(path)
        else:
            os.makedirs(os.path.dirname(path), exist_ok=True)
    for target in dict.fromkeys(placed.values()):
        chosen = [paths[name] for name in pins.names if placed[name] == target]
        layout = layouts.Layout(stripe_count=1, start=target, stripe_bytes=pins.stripe_bytes)
        for first in range(0, len(chosen), NAMES_PER_COMMAND):
            run_lfs("setstripe", *layout.arguments(), *chosen[first : first + NAMES_PER_COMMAND])

    def landed(name: str) -> int | None:
        path = paths[name]
        if pins.kind == "directory":
            return getstripe.parse_default_start(run_lfs("getstripe", "-d", "-y", path), path)
        osts = getstripe.parse_getstripe(run_lfs("getstripe", "-y", path), path).osts
        return osts[0] if len(osts) == 1 else None

    obtained = dict(zip(pins.names, in_parallel(landed, pins.names), strict=True))
    return {"placed": placed, "found": obtained}


def stripes(directory: str) -> dict[str, Any]:
    """Return the layouts of all regular files below a directory, by relative path, sorted."""
    # Even without a file, Lustre must answer.
    run_lfs("getstripe", "-d", "-y", directory)
    names = sorted(os.path.relpath(path, directory) for path in pagecache.files_below(directory))

    def read(name: str) -> FileLayout:
        text = run_lfs("getstripe", "-y", os.path.join(directory, name))
        return getstripe.parse_getstripe(text, name)

    return {"files": [layout.to_json() for layout in in_parallel(read, names)]}


def switch_checksums(state: str, directory: str, folder: str) -> None:
    """Switch the checksums of the client on or off; keep the old values in a folder."""
    mount = find_mount(expand(directory))
    client_settings.switch_checksums(state == "on", mount.source if mount else "", Path(folder))
