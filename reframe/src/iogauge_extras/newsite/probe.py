"""What a node sees of itself and of a target.

``python -m iogauge_extras.newsite.probe PATH`` prints it as JSON: a node of a scheduler is asked so.
"""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from iogauge.core import commands, untrusted
from iogauge.core.paths import LIBRARY
from iogauge.core.words import Fingerprint
from iogauge.node import probes
from iogauge.node.host import usable_cores
from iogauge.node.kernel import memory_bytes
from iogauge.node.lustre.directory import look_at_directory
from iogauge.node.lustre.programs import LustreError
from iogauge.node.view import View, look, with_lustre
from iogauge.site.machine import LOCAL_TYPES

NODE_SECONDS: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeProbe(untrusted.Plain):
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
    def fstype(self) -> str:
        """Return the type of the file system."""
        return self.view.mount.type if self.view.mount else "unknown"

    @property
    def remote(self) -> bool:
        """Return whether the file system is reached over a network."""
        return self.fstype not in LOCAL_TYPES

    @property
    def servers(self) -> int:
        """Return the number of object storage servers, 0 if unknown."""
        return len({target.server for target in self.view.targets if target.server})

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


def look_here(path: str) -> NodeProbe:
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
    return NodeProbe(
        host=os.uname().nodename,
        cores=usable_cores(),
        memory_bytes=memory_bytes(),
        facts=facts,
        view=view,
        layout=layout,
        mdts=mdts,
        troubles=tuple(troubles),
    )


def look_through(words: Sequence[str], path: str) -> NodeProbe:
    """Return what a node sees that a scheduler's command gives, such as ``srun``; raises OSError.

    A node's core count is of all its cores: the command may give its process fewer.
    """
    command = [*words, sys.executable, "-m", "iogauge_extras.newsite.probe", path]
    sources = [str(LIBRARY.parent), os.environ.get("PYTHONPATH", "")]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sources))}
    try:
        printed = commands.output(
            *command, seconds=NODE_SECONDS, environment=environment
        )
    except OSError:
        ask = ["sh", "-c", '[ -x "$0" ] || echo unseen', sys.executable]
        if "unseen" not in commands.output(*words, *ask, seconds=NODE_SECONDS):
            raise
        raise OSError(
            f"it does not see {sys.executable}. Put the clone and IOGAUGE_HOME on a file system that all nodes mount"
        ) from None
    try:
        seen = NodeProbe.from_json(json.loads(printed))
    except (ValueError, TypeError, KeyError) as error:
        raise OSError(
            f"{words[0]} printed no facts of a node: found {printed[:200]!r}, expected JSON. "
            f"Run '{words[0]} hostname' to see what the prologue prints"
        ) from error
    cores = seen.facts.get("cpu.cores")
    return replace(seen, cores=cores) if isinstance(cores, int) and cores > 0 else seen


if __name__ == "__main__":
    print(json.dumps(look_here(sys.argv[1]).to_json()))
