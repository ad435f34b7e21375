"""What can be found out about a machine for a new site: its nodes, its queues, the target.

``python -m iogauge.site.survey PATH`` prints what the node that runs it sees, as JSON: a node of a
scheduler is asked so.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from iogauge.core.paths import LIBRARY
from iogauge.core.words import Fingerprint
from iogauge.node import directories, probes
from iogauge.node.cores import usable_cores
from iogauge.node.layouts import LustreError
from iogauge.node.lustre_targets import look, with_lustre
from iogauge.node.mounts import View
from iogauge.site.machine import memory_bytes

#: Seconds for a question to the scheduler, and for a node that has to be waited for.
ASK_SECONDS: Final = 30
NODE_SECONDS: Final = 60

#: Columns of sinfo: partition, nodes, sockets, cores of each, memory in MiB, longest job, state.
_SINFO: Final = "%P|%D|%X|%Y|%m|%l|%a"


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeSeen:
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
        seen = directories.look(view, None, True)
        mdts = len(seen.metadata)
        if seen.default and len(seen.default.parts) == 1:
            (part,) = seen.default.parts
            layout |= {"layout.stripe_count": part.stripe_count} if part.stripe_count else {}
            layout |= {"layout.stripe_bytes": part.stripe_bytes} if part.stripe_bytes else {}
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


def _to_json(seen: NodeSeen) -> dict[str, Any]:
    names = ("host", "cores", "memory_bytes", "facts", "layout", "mdts", "troubles")
    return {name: getattr(seen, name) for name in names} | {"view": seen.view.to_json()}


def _from_json(data: dict[str, Any]) -> NodeSeen:
    troubles = tuple(str(text) for text in data.pop("troubles"))
    return NodeSeen(**{**data, "view": View.from_json(data["view"]), "troubles": troubles})


def look_through(words: Sequence[str], path: str) -> NodeSeen:
    """Return what a node sees that a scheduler's command gives, such as ``srun``; raises OSError.

    A node's core count is of all its cores: the command may give its process fewer.
    """
    command = [*words, sys.executable, "-m", "iogauge.site.survey", path]
    sources = [str(LIBRARY.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sources))}
    printed = _printed(command, NODE_SECONDS, environment)
    try:
        seen = _from_json(json.loads(printed))
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(f"{words[0]} printed no look of a node: {printed[:200]!r}") from error
    cores = seen.facts.get("cpu.cores")
    return replace(seen, cores=cores) if isinstance(cores, int) and cores > 0 else seen


def _printed(
    words: Sequence[str], seconds: float, environment: dict[str, str] | None = None
) -> str:
    """Return what a program prints; raises OSError with its complaint if it fails or is late."""
    try:
        done = subprocess.run(
            words,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
            stdin=subprocess.DEVNULL,
            env=environment,
        )
    except subprocess.TimeoutExpired as error:
        raise OSError(f"{words[0]}: no answer in {seconds:g} s") from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it printed nothing").splitlines()
        raise OSError(f"{words[0]}: exit status {done.returncode}: {said[-1]}")
    return done.stdout


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
            name, nodes, sockets * cores, mebibytes << 20, parse_limit(words[5]), "*" in words[0]
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
    queues = parse_sinfo(_printed(["sinfo", "--noheader", f"--format={_SINFO}"], ASK_SECONDS))
    settings = ""
    with contextlib.suppress(OSError):
        settings = _printed(["scontrol", "show", "config"], ASK_SECONDS)
    storage = re.search(r"AccountingStorageType\s*=\s*(\S+)", settings)
    mpi = re.search(r"MpiDefault\s*=\s*(\S+)", settings)
    return Slurm(
        queues,
        accounting=bool(storage) and "none" not in storage[1] if storage else False,
        starts_mpi=bool(mpi) and mpi[1] != "none" if mpi else False,
    )


def other_scheduler() -> str:
    """Return the command of a scheduler that is here and is not asked; empty if there is none."""
    return next((name for name in ("qsub", "bsub", "flux", "oarsub") if shutil.which(name)), "")


if __name__ == "__main__":
    print(json.dumps(_to_json(look_here(sys.argv[1]))))
