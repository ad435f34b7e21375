"""The agent: commands that a job runs on the nodes themselves, by ``python -m iogauge.job.agent``.

``open CASE.json`` waits for the target's lock, checks the target and makes the case's directory, or
refuses with status 3. It prints "opened", and keeps the lock until its standard input ends.
``open`` also restores settings of jobs that were killed before they could.

These commands write their answer to ``OUT.<host>.json``, a file for each node, because launchers
mix the nodes' output. ``view PATH OUT`` writes this host's view of a path. ``evict DIR OUT`` drops
the page cache of all files below a directory. ``pin PINS.json DIR OUT`` puts files or directories
on storage targets of Lustre. ``stripes DIR OUT`` reads back the layout of every file. ``facts DIR
OUT`` writes the node's fingerprint and counters, and never fails.

``checksums on|off DIR KEEP`` switches Lustre's checksums after saving the old values in the
directory KEEP; ``restore KEEP`` restores them. ``remove DIR SECONDS`` removes a case's directory,
or as much of it as the time allows (0: all). ``empty DIR`` removes its content.

A command that fails ends with status 1 and a line that gives the reason. Paths may begin with a
variable, see :func:`expand`.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

from iogauge.core import processes
from iogauge.core.text import visible
from iogauge.job.opening import expand, open_case, restore_settings
from iogauge.node import client_settings, counters, layouts, pagecache, probes
from iogauge.node.layouts import FileLayout, Pins
from iogauge.node.lustre_targets import (
    NAMES_PER_COMMAND,
    in_parallel,
    look,
    run_lfs,
    storage_targets,
)
from iogauge.node.mounts import find_mount
from iogauge.workspace import removal
from iogauge.workspace.directory import empty_case, remove_case


def _answer(out: str, answer: dict[str, Any]) -> int:
    """Write this node's answer; the file appears whole or not at all."""
    file = Path(f"{out}.{os.uname().nodename}.json")
    scratch = file.with_suffix(f".{os.getpid()}")
    scratch.write_text(json.dumps(answer), encoding="utf-8")
    scratch.replace(file)
    return 0


def _pin(pins_file: str, directory: str, out: str) -> int:
    """Put every name on its storage target, and write the requested and the obtained targets.

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
            return layouts.parse_default_start(run_lfs("getstripe", "-d", "-y", path), path)
        osts = layouts.parse_getstripe(run_lfs("getstripe", "-y", path), path).osts
        return osts[0] if len(osts) == 1 else None

    obtained = dict(zip(pins.names, in_parallel(landed, pins.names), strict=True))
    return _answer(out, {"placed": placed, "found": obtained})


def _stripes(directory: str, out: str) -> int:
    """Write the layouts of all regular files below a directory, by relative path, sorted."""
    run_lfs("getstripe", "-d", "-y", directory)  # Even without a file, Lustre must answer.
    names = sorted(os.path.relpath(path, directory) for path in pagecache.files_below(directory))

    def read(name: str) -> FileLayout:
        text = run_lfs("getstripe", "-y", os.path.join(directory, name))
        return layouts.parse_getstripe(text, name)

    return _answer(out, {"files": [layout.to_json() for layout in in_parallel(read, names)]})


def _facts(directory: str, out: str) -> int:
    """Write this node's facts and counters; always return 0, as no run depends on them."""
    try:
        path = expand(directory)
        counted = counters.look(path)
        _answer(out, {"load": counted.to_json(), "fingerprint": probes.collect(path)})
    except (OSError, ValueError) as error:
        print(visible(f"iogauge: facts: left out: {error}"), file=sys.stderr)
    return 0


def _checksums(state: str, directory: str, folder: str) -> int:
    mount = find_mount(expand(directory))
    client_settings.switch_checksums(state == "on", mount.source if mount else "", Path(folder))
    return 0


def _progress(directory: str) -> removal.Progress:
    return removal.Progress(
        directory, lambda text: print(visible(text), file=sys.stderr, flush=True)
    )


def _remove(directory: str, seconds: float) -> int:
    for message in processes.end(directory):
        print(visible(f"iogauge: {message}"), file=sys.stderr, flush=True)
    if not os.path.lexists(directory):
        text = (
            f"iogauge: {directory} was gone before this job could remove it: if its file system is not mounted "
            "any more, what was written lies there still; remove it with iogauge clean when it is"
        )
        print(visible(text), file=sys.stderr, flush=True)
    remove_case(directory, seconds=seconds or None, report=_progress(directory))
    return 0


def _empty(directory: str) -> int:
    empty_case(directory, report=_progress(directory))
    return 0


def _command(argv: list[str]) -> int | None:
    """Run one of the agent's commands; return its exit status, or None for another command."""
    match argv:
        case ["open", case_file]:
            return open_case(case_file)
        case ["view", path, out]:
            return _answer(out, look(expand(path)).to_json())
        case ["evict", directory, out]:
            done = pagecache.evict(pagecache.files_below(expand(directory)))
            return _answer(out, done.to_json())
        case ["pin", pins_file, directory, out]:
            return _pin(pins_file, expand(directory), out)
        case ["checksums", ("on" | "off") as state, directory, folder]:
            return _checksums(state, directory, folder)
        case ["restore", folder]:
            return restore_settings(folder)
        case ["empty", directory]:
            return _empty(directory)
        case ["remove", directory, seconds]:
            return _remove(directory, float(seconds))
        case ["stripes", directory, out]:
            return _stripes(expand(directory), out)
        case ["facts", directory, out]:
            return _facts(directory, out)
    return None


def main(argv: list[str]) -> int:
    """Run one of the agent's commands; return the exit status."""
    try:
        status = _command(argv)
    except (OSError, ValueError) as error:
        print(visible(f"iogauge: {' '.join(argv[:1])}: {error}"), file=sys.stderr)
        return 1
    if status is not None:
        return status
    usage = (
        "open FILE | view PATH OUT | evict DIR OUT | pin PINS DIR OUT | stripes DIR OUT | "
        "facts DIR OUT | empty DIR | remove DIR SECONDS | checksums on|off DIR KEEP | restore KEEP"
    )
    print(visible(f"usage: python -m iogauge.job.agent {usage}, not {argv}"), file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
