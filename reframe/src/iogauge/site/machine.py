"""Programs, cores, memory and file systems of this machine.

Only the site ``local`` uses this module: a machine that nobody has described. Declared settings are
kept, and the others are filled in from the machine.
"""

from __future__ import annotations

import mmap
import os
import time
from typing import TYPE_CHECKING, Any, Final

from iogauge.core import processes, vocabulary
from iogauge.node.activity import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import kind_of
from iogauge.node.mounts import Space
from iogauge.site.programs import machine, mpi_environment
from iogauge.tools.mpi import dialect_of

if TYPE_CHECKING:
    from iogauge.node.view import View

#: Bytes that a quick case may hold, at most, on a target that nobody has described.
QUICK_BYTES = 1 << 30

#: Files of a quick case. A local file system answers metadata operations from memory, and needs
#: many files for a meaningful figure. Over a network a tenth is plenty.
QUICK_FILES_LOCAL, QUICK_FILES = 20_000, 4_000

#: Key that is added to an environment's ``extras``: for each feature that the machine's programs do
#: not give, why, and what brings it.
LACKS: Final = "lacks"


def target_path() -> str:
    """Return ``$IOGAUGE_TARGET``, or the current directory; ReFrame reads settings in another one.

    Raises OSError if the variable is empty, or names a symbolic link.
    """
    here = os.environ.get("PWD") or os.getcwd()
    named = os.environ.get("IOGAUGE_TARGET", here)
    if not named:
        raise OSError("IOGAUGE_TARGET is empty: name a directory, or unset it")
    path = os.path.join(here, named)

    def real() -> str:
        if os.path.islink(path):
            raise OSError(
                f"{path} is a symbolic link, which is never followed: name {os.path.realpath(path)}"
            )
        return os.path.realpath(path)

    return processes.call_in_time(path, real)


def look_at(path: str) -> View:
    """Return this host's view of a target; raises OSError if it is no directory, or keeps no data."""
    # Only a machine that nobody has described needs it.
    from iogauge.node.view import look

    if not os.path.isdir(path):
        raise NotADirectoryError(f"{path} is not a directory here")
    view = look(path)
    if not view.space.bytes_total:
        raise OSError(f"{path} is on {view.mount.type}, which keeps no data")
    return view


def complete(partition: dict[str, Any], environments: list[dict[str, Any]]) -> None:
    """Fill in a partition's and its environments' keys; raises OSError for a bad target."""
    extras = partition.setdefault("extras", {})
    declared = extras.get("target", {})
    path = declared.get("path") or target_path()
    view = processes.call_in_time(path, lambda: look_at(path))
    extras["target"] = _target(path, view) | declared
    cores = usable_cores()
    extras["scale"] = {"tasks_per_node": min(cores, 8)} | extras.get("scale", {})
    limits = _limits(extras["target"]["type"], view.space)
    extras["limits"] = limits | extras.get("limits", {})
    extras.setdefault("node", {"cores": cores, "memory": f"{memory_bytes()} B"})
    extras.setdefault("sweeps", _sweeps(extras["scale"]["tasks_per_node"]))
    _add_programs(partition, environments)


def _target(path: str, view: View) -> dict[str, Any]:
    """Return what is seen of a target; raises OSError if somebody has named memory."""
    kind = view.mount.type
    known = kind_of(kind).over(view.below)
    if known.cache == "memory" and "IOGAUGE_TARGET" in os.environ:
        raise OSError(f"{path} is memory, not storage ({known.why or kind})")
    target: dict[str, Any] = {"path": path, "type": kind, "source": view.mount.source}
    if known.why:
        target["cache"] = known.cache
        target["honours_o_direct"] = known.honours_o_direct
    if view.below.compresses:
        target["compresses"] = True
    return target


def quick_bytes(wanted: float, room: Space, most: int = QUICK_BYTES) -> int:
    """Return the bytes of a quick case, whole MiB: what is wanted, a twentieth of the free space at most."""
    size = min(int(wanted), room.bytes_free // 20, most)
    return max(size >> 20, 16) << 20


def quick_files(kind: str, room: Space) -> int:
    """Return the files of a quick case on a type of file system."""
    files = QUICK_FILES
    if kind_of(kind).is_local:
        files = QUICK_FILES_LOCAL
    if room.inodes_total:
        files = min(files, room.inodes_free // 20)
    return files


def _limits(kind: str, room: Space) -> dict[str, Any]:
    """Return the limits of quick cases, for which IOGAUGE_CASE_BYTES may request other bytes."""
    size = quick_bytes(QUICK_BYTES, room)
    return {
        "case_bytes": os.environ.get("IOGAUGE_CASE_BYTES") or f"{size} B",
        "case_files": quick_files(kind, room),
        "max_of_free": "50 %",
        "phase_seconds": "2 s",
        "tier": "quick",
        "max_spread": "20 %",
    }


def _sweeps(tasks: int) -> dict[str, list[int]]:
    """Return the points of the scenarios that vary the tasks: powers of two, and all of them."""
    points = {tasks}
    for power in range(tasks.bit_length()):
        points.add(1 << power)
    return {
        "tasks_per_node": sorted(points),
        "tasks_per_client": [tasks],
        "aggregators": sorted({1, tasks}),
    }


def _add_programs(
    partition: dict[str, Any], environments: list[dict[str, Any]]
) -> None:
    """Let a partition and its environments use the programs of this machine."""
    here = machine()
    mpirun, built = here.programs.get("mpirun"), here.stack
    partition["launcher"] = "mpirun" if mpirun else "local"
    variables = mpi_environment() | dict(partition.get("env_vars", []))
    partition["env_vars"] = list(map(list, variables.items()))
    detected: dict[str, Any] = {}
    lacks, has = here.lacks(), {*here.features}
    if mpirun and dialect_of(mpirun.version):
        detected["mpi"] = dialect_of(mpirun.version)
    if built and built.darshan:
        detected[vocabulary.DARSHAN] = built.darshan
        has.add(vocabulary.DARSHAN)
        lacks.pop(vocabulary.DARSHAN)
    if built:
        detected["installed"] = built.to_record()
    for environment in environments:
        if environment["name"] in partition.get("environs", []):
            environment["features"] = sorted({*environment.get("features", []), *has})
            extras = environment.get("extras", {})
            environment["extras"] = detected | extras | {LACKS: lacks}


def write_speed(directory: str, seconds: float = 0.5, most: int = 256 << 20) -> float:
    """Return a rough bandwidth of writing to a directory in bytes/s, to size cases with, not to
    report.

    Writes 4 MiB blocks, with O_DIRECT if it is accepted, until the time or ``most`` bytes are used
    up. Raises OSError.
    """
    block = mmap.mmap(-1, 4 << 20)
    path = os.path.join(directory, "speed")
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
