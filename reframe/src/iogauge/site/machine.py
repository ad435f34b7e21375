"""Programs, cores, memory, queues and file systems of this machine and of its nodes.

Only the site ``local`` uses this module: a machine that nobody has described. Declared settings are
kept, and the others are filled in from the machine. The answers of programs about themselves are
cached beside the records until the program file changes.

``python -m iogauge.site.machine PATH`` prints what the node that runs it sees, as JSON: a node of a
scheduler is asked so.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import shutil
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from iogauge.core import commands, processes, untrusted
from iogauge.core.paths import LIBRARY
from iogauge.core.words import (
    DARSHAN,
    WRF_IO,
    Fingerprint,
)
from iogauge.node import below, probes
from iogauge.node.host import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import Below, traits
from iogauge.node.lustre.directory import look_at_directory
from iogauge.node.lustre.programs import LustreError
from iogauge.node.mounts import Mount, Space, find_mount, space_of
from iogauge.node.view import View, look, with_lustre
from iogauge.site.programs import darshan_library, machine, mpi_environment
from iogauge.tools.mpi import dialect_of

#: Bytes that a quick case may hold, at most, on a target that nobody has described.
QUICK_BYTES = 1 << 30

#: Files of a quick case. A local file system answers metadata operations from memory, and needs
#: many files for a meaningful figure. Over a network a tenth is plenty.
QUICK_FILES_LOCAL, QUICK_FILES = 20_000, 4_000

#: Key that is added to an environment's ``extras``: for each feature that the machine's programs do
#: not give, why, and what brings it.
LACKS: Final = "lacks"


#: File systems of one machine; others are reached over a network.
LOCAL_TYPES: Final = frozenset(
    {"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "tmpfs", "overlay", "zfs", "bcachefs"}
)


def wrf_header() -> str | None:
    """Return the path of the header that lies beside WRF-IO on PATH, where the recipe of this suite puts it; None without."""
    program = Path(shutil.which("wrf_io") or "/nonexistent")
    header = program.parent.parent / "share" / "wrf-io" / "wrf_header.txt"
    return str(header) if header.exists() else None


def target_path() -> str:
    """Return ``$IOGAUGE_TARGET``, or the current directory."""
    path = os.environ.get("IOGAUGE_TARGET") or os.environ.get("PWD") or os.getcwd()
    return processes.call_in_time(path, lambda: os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class _PathFacts:
    mount: Mount
    below: Below
    space: Space


def _look(path: str) -> _PathFacts:
    if not os.path.isdir(path):
        raise NotADirectoryError(f"target {path!r} is not a directory")
    mount = find_mount(path)
    if mount is None:
        raise OSError(f"no mount holds {path!r}")
    return _PathFacts(mount, below.resolve(path, mount), space_of(path))


def complete(partition: dict[str, Any], environments: list[dict[str, Any]]) -> None:
    """Fill in a partition's and its environments' keys; raises OSError for a bad target."""
    extras = partition.setdefault("extras", {})
    target = extras.setdefault("target", {})
    path = target.setdefault("path", target_path())
    looked = processes.call_in_time(path, lambda: _look(path))
    target.setdefault("type", looked.mount.type)
    target.setdefault("source", looked.mount.source)
    known = traits(looked.mount.type).over(looked.below)
    if known.why:
        target.setdefault("cache", known.cache)
        target.setdefault("honours_o_direct", known.honours_o_direct)
    if looked.below.compresses:
        target.setdefault("compresses", True)
    cores = usable_cores()
    extras.setdefault("node", {"cores": cores, "memory": f"{memory_bytes()} B"})
    tasks = extras.setdefault("scale", {}).setdefault("tasks_per_node", min(cores, 8))
    points = sorted({*(1 << n for n in range(tasks.bit_length())), tasks})
    sweeps = {"tasks_per_node": points, "tasks_per_client": [tasks], "aggregators": [1, tasks]}
    extras.setdefault("sweeps", {name: sorted({*values}) for name, values in sweeps.items()})
    room = looked.space
    limits = extras.setdefault("limits", {})
    share = (room.bytes_free // 20) >> 20 << 20
    limits.setdefault(
        "case_bytes", os.environ.get("IOGAUGE_CASE_BYTES") or f"{min(QUICK_BYTES, share)} B"
    )
    files = QUICK_FILES_LOCAL if target["type"] in LOCAL_TYPES else QUICK_FILES
    limits.setdefault(
        "case_files", min(files, room.inodes_free // 20) if room.inodes_total else files
    )
    # A case takes a twentieth at most, unless the user requests more (IOGAUGE_CASE_BYTES).
    limits.setdefault("max_of_free", "50 %")
    limits.setdefault("phase_seconds", "2 s")
    limits.setdefault("tier", "quick")
    limits.setdefault("max_spread", "20 %")
    here = machine()
    partition["launcher"] = "mpirun" if "mpirun" in here.programs else "local"
    declared = {name for name, _ in partition.get("env_vars", [])}
    partition["env_vars"] = partition.get("env_vars", []) + [
        [name, value] for name, value in mpi_environment().items() if name not in declared
    ]
    built = here.stack
    library = (built and built.darshan) or darshan_library()
    mpi = dialect_of(here.programs["mpirun"].version) if "mpirun" in here.programs else None
    header = wrf_header()
    found = (("mpi", mpi), (DARSHAN, library), (WRF_IO, header))
    detected = {name: value for name, value in found if value}
    for environment in environments:
        if environment["name"] in partition.get("environs", []):
            has = [*here.features, *(name for name in (DARSHAN, WRF_IO) if name in detected)]
            environment["features"] = sorted({*environment.get("features", []), *has})
            environment["extras"] = detected | environment.get("extras", {})
            lacks = {name: why for name, why in here.lacks().items() if name not in has}
            environment["extras"][LACKS] = lacks
            if built:
                environment["extras"]["installed"] = built.to_record()


def probe_write(directory: str, seconds: float = 0.5, most: int = 256 << 20) -> float:
    """Return a rough bandwidth of writing to a directory in bytes/s, to size cases with, not to
    report.

    Writes 4 MiB blocks, with O_DIRECT if it is accepted, until the time or ``most`` bytes are used
    up. Raises OSError.
    """
    block = mmap.mmap(-1, 4 << 20)
    path = os.path.join(directory, "probe")
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    try:
        fd = os.open(path, flags | os.O_DIRECT, 0o600)
    except OSError:
        fd = os.open(path, flags, 0o600)
    try:
        written, start = 0, time.monotonic()
        while written < most and time.monotonic() - start < seconds:
            written += os.write(fd, block)
        os.fsync(fd)
        return written / (time.monotonic() - start)
    finally:
        os.close(fd)
        os.unlink(path)


def quick_case_bytes(speed_bytes_s: float, path: str) -> int:
    """Return the bytes of a quick case: a second of writing, whole MiB, within the free space."""
    wanted = int(speed_bytes_s) >> 20 << 20
    most = min(QUICK_BYTES, (space_of(path).bytes_free // 20) >> 20 << 20)
    return max(min(wanted, most), 16 << 20)


NODE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen(untrusted.Plain):
    """What a node sees: itself, and the target.

    ``facts`` are those of a fingerprint. ``layout`` holds the default layout of the target, as
    ``expect`` names it. ``mdts`` is the number of metadata targets, 0 if unknown. ``troubles`` say
    what it could not find out.
    """

    host: str
    cores: int
    memory_bytes: int
    facts: Fingerprint
    view: View
    layout: Fingerprint
    mdts: int
    troubles: tuple[str, ...] = ()

    @property
    def servers(self) -> int:
        """Return the number of object storage servers, 0 if unknown."""
        addresses = {target.server for target in self.view.targets if target.server}
        return len(addresses)

    @property
    def nic_bytes_s(self) -> tuple[float, str] | None:
        """Return the rate of the network interface that leads to storage, and its name; else None.

        That is the interface of the route to the server, else the fastest one.
        """
        found: dict[str, float] = {}
        for key, value in self.facts.items():
            if match := re.fullmatch(r"nic\.(.+)\.speed_mbps", key):
                found[match[1]] = float(str(value)) * 1e6 / 8
            match = re.fullmatch(r"ib\.(.+)\.rate", key)
            if match and (rate := re.match(r"([\d.]+) Gb/sec", str(value))):
                found[match[1]] = float(rate[1]) * 1e9 / 8
        way = str(self.facts.get("nic.target", ""))
        if way in found:
            return found[way], way
        fastest = max(found, key=lambda name: found[name], default=None)
        return (found[fastest], fastest) if fastest else None


def look_here(path: str) -> NodeSeen:
    """Return what this node sees of itself and of a target; raises OSError if there is no target."""
    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is not a directory on {os.uname().nodename}")
    view, troubles = look(path), []
    layout: Fingerprint = {}
    mdts = 0
    facts = probes.collect(path)
    if view.on_lustre:
        try:
            view = with_lustre(view, True)
        except LustreError as error:
            troubles.append(f"storage targets: {error}")
        seen = look_at_directory(view)
        mdts = len(seen.metadata)
        layout = seen.stripes
        troubles += [f"Lustre: {text}" for text in seen.unanswered]
    return NodeSeen(
        host=os.uname().nodename,
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        facts=facts,
        view=view,
        layout=layout,
        mdts=mdts,
        troubles=tuple(troubles),
    )


def look_through(words: Sequence[str], path: str) -> NodeSeen:
    """Return what a node sees that a scheduler's command gives, such as ``srun``; raises OSError.

    A node's core count is of all its cores: the command may give its process fewer.
    """
    command = [*words, sys.executable, "-m", "iogauge.site.machine", path]
    sources = [str(LIBRARY.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sources))}
    try:
        printed = commands.output(*command, seconds=NODE_SECONDS, environment=environment)
    except OSError:
        ask = ["sh", "-c", '[ -x "$0" ] || echo unseen', sys.executable]
        if "unseen" not in commands.output(*words, *ask, seconds=NODE_SECONDS):
            raise
        raise OSError(
            f"it does not see {sys.executable}. Put the clone and IOGAUGE_HOME on a file system that all nodes mount"
        ) from None
    try:
        seen = NodeSeen.from_json(json.loads(printed))
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(
            f"{words[0]} printed no facts of a node: found {printed[:200]!r}, expected JSON. "
            f"Run '{words[0]} hostname' to see what the prologue prints"
        ) from error
    cores = seen.facts.get("cpu.cores")
    return replace(seen, cores=cores) if isinstance(cores, int) and cores > 0 else seen


if __name__ == "__main__":
    print(json.dumps(look_here(sys.argv[1]).to_json()))
