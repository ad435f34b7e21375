"""The scheduler of this machine and its modules: queues, accounts, what starts MPI programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from iogauge.core import commands


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules that are loaded in this shell, in their order, and ReFrame's name of their system."""

    system: str
    loaded: list[str]


def modules() -> Modules | None:
    """Return the modules of this shell; None if none is loaded, or if their system is not known."""
    loaded = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    systems = {"LMOD_CMD": "lmod", "MODULES_CMD": "tmod4"}
    system = next((systems[name] for name in systems if name in os.environ), "")
    return Modules(system, loaded) if loaded and system else None


#: Seconds for a question to the scheduler, and for a node that has to be waited for.
ASK_SECONDS: Final = 30


#: Columns of sinfo: partition, nodes, sockets, cores of each, memory in MiB, longest job, state.
_SINFO: Final = "%P|%D|%X|%Y|%m|%l|%a"


_said = partial(commands.output, seconds=ASK_SECONDS)


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition of Slurm: its nodes, and what the smallest of them has; 0 if not known."""

    name: str
    nodes: int
    cores: int
    memory_bytes: int
    limit_seconds: int | None
    default: bool


@dataclass(frozen=True, slots=True)
class Slurm:
    """A Slurm of which this host is a client: its queues, the default one first."""

    queues: tuple[Queue, ...]
    #: Whether jobs leave accounts, which ReFrame's scheduler ``slurm`` needs.
    accounting: bool
    #: Whether srun starts MPI programs by itself (MpiDefault).
    starts_mpi: bool
    #: Whether srun starts MPI programs through a PMIx plugin that loses some of them.
    breaks_mpi: bool = False


def parse_limit(text: str) -> int | None:
    """Return the seconds of a time limit of Slurm (``1-12:00:00``, ``30:00``); None if infinite."""
    match = re.fullmatch(r"(?:(\d+)-)?(?:(\d+):)?(\d+):(\d+)", text)
    if match is None:
        return None
    days, hours, minutes, seconds = (int(part or 0) for part in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + seconds


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Return the queues that are up from the output of sinfo, the default one first."""
    queues: dict[str, Queue] = {}
    for line in text.splitlines():
        words = line.strip().split("|")
        if len(words) != 7 or words[6] != "up":
            continue
        # Lines of one queue are of different nodes; a plus sign stands for "at least".
        nodes, sockets, cores, mebibytes = (
            int(re.sub(r"\D.*", "", word) or 0) for word in words[1:5]
        )
        name = words[0].rstrip("*")
        here = Queue(
            name,
            nodes,
            sockets * cores,
            mebibytes << 20,
            parse_limit(words[5]),
            "*" in words[0],
        )
        if other := queues.get(name):
            here = replace(
                here,
                nodes=here.nodes + other.nodes,
                cores=min(here.cores, other.cores),
                memory_bytes=min(here.memory_bytes, other.memory_bytes),
            )
        queues[name] = here
    return tuple(sorted(queues.values(), key=lambda queue: not queue.default))


def slurm() -> Slurm | None:
    """Return the Slurm of this host; None without its programs. Raises OSError if it does not answer."""
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        return None
    queues = parse_sinfo(_said("sinfo", "--noheader", f"--format={_SINFO}"))
    settings = ""
    with contextlib.suppress(OSError):
        settings = _said("scontrol", "show", "config")
    storage = re.search(r"AccountingStorageType\s*=\s*(\S+)", settings)
    mpi = re.search(r"MpiDefault\s*=\s*(\S+)", settings)
    return Slurm(
        queues,
        accounting=bool(storage) and "none" not in storage[1] if storage else False,
        starts_mpi=bool(mpi) and mpi[1] != "none" if mpi else False,
        breaks_mpi=bool(
            mpi and "pmix" in mpi[1] and re.search(r"VERSION\s*=\s*22\.05", settings)
        ),
    )


def other_scheduler() -> str:
    """Return the command of a scheduler that is here and is not asked; empty if there is none."""
    return next(
        (name for name in ("qsub", "bsub", "flux", "oarsub") if shutil.which(name)), ""
    )
