"""What is found out for a new site: of this host, of a target, of Slurm, of the modules that are loaded."""

import contextlib
import os
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from iogauge.cli.queues import ASK_SECONDS, Queue, queues
from iogauge.core import commands
from iogauge.core.vocabulary import Fingerprint
from iogauge.node import inventory
from iogauge.node.activity import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.kinds import kind_of
from iogauge.node.lustre.inherited import look_at_directory
from iogauge.node.lustre.lfs import LustreError
from iogauge.node.view import View, with_lustre
from iogauge.site.machine import look_at
from iogauge.workspace import permission


@dataclass(slots=True, kw_only=True)
class Target:
    """A target of the new site, as this host sees it; what follows ``layout`` is filled in later."""

    path: str
    view: View
    #: Facts of a fingerprint.
    facts: Fingerprint
    #: The default layout, as ``expect`` names it.
    layout: Fingerprint
    #: What could not be found out.
    troubles: tuple[str, ...] = ()
    #: Name of its partition.
    partition: str = ""
    #: What nothing can exceed, with its unit: each client's network, or a local device; empty if nobody knows it.
    ceiling: str = ""
    #: Where the ceiling comes from.
    source: str = ""
    #: Bytes/s that a node may write, roughly; 0 if unknown.
    speed_bytes_s: float = 0.0

    @property
    def fstype(self) -> str:
        """Return the type of the file system."""
        return self.view.mount.type

    @property
    def remote(self) -> bool:
        """Return whether the file system is reached over a network."""
        return not kind_of(self.fstype).is_local

    @property
    def servers(self) -> int:
        """Return the number of object storage servers, 0 if unknown."""
        return len({target.server for target in self.view.targets if target.server})


def target(path: str) -> Target:
    """Return what this host sees of a target; raises OSError if there is none, if it keeps no data or may not be written in."""
    view = look_at(path)
    permission.reason(path)
    troubles: list[str] = []
    layout: Fingerprint = {}
    if view.on_lustre:
        try:
            view = with_lustre(view, True)
        except LustreError as error:
            troubles.append(f"storage targets: {error}")
        lustre = look_at_directory(view)
        layout = lustre.stripes
        troubles += [f"Lustre: {text}" for text in lustre.unanswered]
    return Target(
        path=path,
        view=view,
        facts=inventory.collect(path),
        layout=layout,
        troubles=tuple(troubles),
    )


def network(facts: Fingerprint) -> tuple[float, str]:
    """Return the Gbit/s of the fastest interface, and its name; 0 if none tells its rate."""
    fastest = 0.0, ""
    for key, value in facts.items():
        match = re.fullmatch(r"(?:nic|ib)\.(.+)\.(speed_mbps|rate)", key)
        number = re.match(r"[\d.]+", str(value))
        if match and number:
            gbit = float(number[0])
            if match[2] == "speed_mbps":
                gbit /= 1000
            fastest = max(fastest, (gbit, match[1]))
    return fastest


@dataclass(frozen=True, slots=True)
class Slurm:
    """A Slurm of which this host is a client: its queues, the default one first."""

    queues: tuple[Queue, ...]
    #: Whether jobs leave accounts, which ReFrame's scheduler ``slurm`` needs.
    accounting: bool
    #: Whether srun starts MPI programs by itself (MpiDefault).
    starts_mpi: bool


#: What Slurm prints for a setting without a value.
_UNSET: Final = "(null)"


def slurm() -> Slurm | None:
    """Return the Slurm of this host; None without its programs. Raises OSError if it does not answer."""
    if shutil.which("sinfo") is None or shutil.which("sbatch") is None:
        return None
    text = ""
    with contextlib.suppress(OSError):
        text = commands.output("scontrol", "show", "config", seconds=ASK_SECONDS)
    settings = dict(re.findall(r"^(\w+)\s*=\s*(\S+)", text, re.MULTILINE))
    storage = settings.get("AccountingStorageType", _UNSET)
    mpi = settings.get("MpiDefault", _UNSET)
    return Slurm(
        queues(),
        accounting=_UNSET != storage != "accounting_storage/none",
        starts_mpi=mpi not in (_UNSET, "none"),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """The new site, and what it has of this host."""

    name: str
    #: The folder in environments/ whose programs it can use.
    stack: str
    #: Another site that has this host; empty if there is none.
    claimed: str
    host: str
    day: str
    #: None for this machine alone.
    slurm: Slurm | None
    #: The queue of its cases, or this machine in the form of one.
    queue: Queue
    features: tuple[str, ...]
    mpirun: bool
    #: The modules of this shell in their order, and ReFrame's name of their system; empty if not known.
    modules: tuple[str, ...]
    modules_system: str
    targets: tuple[Target, ...]

    @property
    def nodes(self) -> int:
        """Return the nodes of a case."""
        return min(4, self.queue.nodes)


def this_machine() -> Queue:
    """Return this machine in the form of a queue of one node."""
    return Queue(
        name="",
        nodes=1,
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        limit_seconds=None,
        default=True,
    )


def modules() -> tuple[tuple[str, ...], str]:
    """Return the modules of this shell, and ReFrame's name of their system; empty if it is not known."""
    loaded = filter(None, os.environ.get("LOADEDMODULES", "").split(":"))
    system = ""
    if "LMOD_CMD" in os.environ:
        system = "lmod"
    elif "MODULES_CMD" in os.environ:
        system = "envmod"
    return tuple(loaded), system


#: Facts of a target that stay until somebody changes the storage.
_STAYS: Final = ("lustre.osts", "lustre.mdts", "lustre.servers")


def expected(target: Target) -> Fingerprint:
    """Return the settings that the new site expects of every node, as this host sees them."""
    facts: Fingerprint = {}
    for key in _STAYS:
        if key in target.facts:
            facts[key] = target.facts[key]
    return facts | target.layout


def unknown(site: Site) -> Iterator[str]:
    """Yield what could not be found out, each with what to do about it."""
    for target in site.targets:
        key = "topology.clients.nic" if target.remote else "topology.devices"
        if not target.ceiling:
            yield f"the ceiling of {target.path}: no interface or device tells its rate. Write {key}, or run again with --ceiling"
        if target.remote:
            yield "the network of the storage servers: write topology.servers, from the offer"
        if not target.speed_bytes_s:
            yield f"the speed of {target.path}: cases are of tier quick. Raise limits.case_bytes until a phase lasts 30 s"
        if not target.view.uuid:
            yield f"the identity of the file system: {target.fstype} shows no UUID"
        yield from target.troubles
    if site.modules and not site.modules_system:
        names = ", ".join(site.modules)
        yield f"the system of the modules that are loaded ({names}): write modules_system, and modules of the environment"
    if site.slurm is None:
        yield "a scheduler other than Slurm: if there is one, write scheduler and access (docs/sites.md)"
