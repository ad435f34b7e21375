"""Programs, cores, memory and file systems of this machine.

Only the site ``local`` uses this module: a machine that nobody has described. Declared settings are
kept, and the others are filled in from the machine. The answers of programs about themselves are
cached beside the records until the program file changes.
"""

from __future__ import annotations

import mmap
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from iogauge.core import processes, words
from iogauge.node import layers
from iogauge.node.host import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import Below, traits
from iogauge.node.mounts import Mount, Space, find_mount, space_of
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
    {
        "ext2",
        "ext3",
        "ext4",
        "xfs",
        "btrfs",
        "f2fs",
        "tmpfs",
        "overlay",
        "zfs",
        "bcachefs",
    }
)


def wrf_header() -> str | None:
    """Return the path of the header that lies beside WRF-IO on PATH, where the recipe of this suite puts it; None without."""
    program = Path(shutil.which("wrf_io") or "/nonexistent")
    header = program.parent.parent / "share" / "wrf-io" / "wrf_header.txt"
    if not header.exists():
        return None
    return str(header)


def target_path() -> str:
    """Return ``$IOGAUGE_TARGET``, or the current directory; ReFrame reads settings in another one."""
    path = os.path.join(
        os.environ.get("PWD") or os.getcwd(), os.environ.get("IOGAUGE_TARGET", "")
    )
    return processes.call_in_time(path, lambda: os.path.realpath(path))


@dataclass(frozen=True, slots=True)
class _PathFacts:
    mount: Mount
    underlying: Below
    space: Space


def _look(path: str) -> _PathFacts:
    if not os.path.isdir(path):
        raise NotADirectoryError(f"target {path!r} is not a directory")
    mount = find_mount(path)
    if mount is None:
        raise OSError(f"no mount holds {path!r}")
    return _PathFacts(mount, layers.resolve(path, mount), space_of(path))


def complete(partition: dict[str, Any], environments: list[dict[str, Any]]) -> None:
    """Fill in a partition's and its environments' keys; raises OSError for a bad target."""
    extras = partition.setdefault("extras", {})
    declared = {key: extras.get(key, {}) for key in ("target", "scale", "limits")}
    path = declared["target"].get("path") or target_path()
    looked = processes.call_in_time(path, lambda: _look(path))
    room, known = looked.space, traits(looked.mount.type).over(looked.underlying)
    target: dict[str, Any] = {
        "path": path,
        "type": looked.mount.type,
        "source": looked.mount.source,
    }
    if known.why:
        target["cache"] = known.cache
        target["honours_o_direct"] = known.honours_o_direct
    if looked.underlying.compresses:
        target["compresses"] = True
    target |= declared["target"]
    cores = usable_cores()
    scale = {"tasks_per_node": min(cores, 8)} | declared["scale"]
    files = QUICK_FILES_LOCAL if target["type"] in LOCAL_TYPES else QUICK_FILES
    if room.inodes_total:
        files = min(files, room.inodes_free // 20)
    share = (room.bytes_free // 20) >> 20 << 20
    limits = {
        "case_bytes": os.environ.get("IOGAUGE_CASE_BYTES")
        or f"{min(QUICK_BYTES, share)} B",
        "case_files": files,
        # A case takes a twentieth at most, unless the user requests more (IOGAUGE_CASE_BYTES).
        "max_of_free": "50 %",
        "phase_seconds": "2 s",
        "tier": "quick",
        "max_spread": "20 %",
    } | declared["limits"]
    extras |= {"target": target, "scale": scale, "limits": limits}
    extras.setdefault("node", {"cores": cores, "memory": f"{memory_bytes()} B"})
    tasks = scale["tasks_per_node"]
    points = sorted({*(1 << n for n in range(tasks.bit_length())), tasks})
    sweeps = {
        "tasks_per_node": points,
        "tasks_per_client": [tasks],
        "aggregators": [1, tasks],
    }
    extras.setdefault(
        "sweeps", {name: sorted({*values}) for name, values in sweeps.items()}
    )
    here = machine()
    mpirun = here.programs.get("mpirun")
    partition["launcher"] = "mpirun" if mpirun else "local"
    variables = mpi_environment() | dict(partition.get("env_vars", []))
    partition["env_vars"] = list(map(list, variables.items()))
    built = here.stack
    library = (built and built.darshan) or darshan_library()
    mpi = dialect_of(mpirun.version) if mpirun else None
    header = wrf_header()
    found = (("mpi", mpi), (words.DARSHAN, library), (words.WRF_IO, header))
    detected = {name: value for name, value in found if value}
    for environment in environments:
        if environment["name"] in partition.get("environs", []):
            has = [
                *here.features,
                *(name for name in (words.DARSHAN, words.WRF_IO) if name in detected),
            ]
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
