"""The scheduler of this machine and its modules: queues, accounts, what starts MPI programs."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
from dataclasses import dataclass
from typing import Final

from iogauge.cli.queues import ASK_SECONDS, Queue, queues
from iogauge.core import commands


@dataclass(frozen=True, slots=True)
class Modules:
    """The modules that are loaded in this shell, in their order, and ReFrame's name of their system."""

    system: str
    loaded: list[str]


def modules() -> Modules | None:
    """Return the modules of this shell; None if none is loaded. Their system is empty if it is not known."""
    loaded = [name for name in os.environ.get("LOADEDMODULES", "").split(":") if name]
    system = ""
    if "LMOD_CMD" in os.environ:
        system = "lmod"
    elif "MODULES_CMD" in os.environ:
        system = "tmod4"
    elif "3.2" in os.environ.get("MODULE_VERSION", os.environ.get("MODULESHOME", "")):
        system = "tmod32"
    return Modules(system, loaded) if loaded else None


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


def slurm() -> Slurm | None:
    """Return the Slurm of this host; None without its programs. Raises OSError if it does not answer."""
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        return None
    known = queues()
    text = ""
    with contextlib.suppress(OSError):
        text = commands.output("scontrol", "show", "config", seconds=ASK_SECONDS)
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", text, re.MULTILINE))
    storage = settings.get("AccountingStorageType", _UNSET)
    mpi = settings.get("MpiDefault", _UNSET)
    old = settings.get("SLURM_VERSION", "").startswith("22.05")
    return Slurm(
        known,
        accounting=_UNSET != storage != "accounting_storage/none",
        starts_mpi=mpi not in (_UNSET, "none"),
        breaks_mpi=old and "pmix" in mpi,
    )


#: What Slurm prints for a setting without a value.
_UNSET: Final = "(null)"


def other_scheduler() -> str:
    """Return the command of a scheduler that is here and is not asked; empty if there is none."""
    return next(
        (name for name in ("qsub", "bsub", "flux", "oarsub") if shutil.which(name)), ""
    )
