"""The queues of Slurm: their nodes and limits, and what of a partition's cases they would never start."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from reframe.utility.typecheck import Duration

from iogauge.cli.doctor import Check
from iogauge.core import commands
from iogauge.core.units import format_seconds
from iogauge.site.extras import PartitionExtras

#: Seconds for a question to the scheduler.
ASK_SECONDS: Final = 30

#: Columns of sinfo: partition, nodes, sockets, cores of each, memory in MiB, longest job, state.
_SINFO: Final = "%P|%D|%X|%Y|%m|%l|%a"


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition of Slurm: its nodes, and what the smallest of them has; 0 if not known."""

    name: str
    nodes: int
    #: Physical cores of a node.
    cores: int
    memory_bytes: int
    #: Longest job; None if there is no limit.
    limit_seconds: int | None
    default: bool


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
        counts = [int(re.sub(r"\D.*", "", word) or 0) for word in words[1:5]]
        nodes, sockets, cores = counts[:3]
        name = words[0].rstrip("*")
        here = Queue(
            name,
            nodes,
            sockets * cores,
            counts[3] << 20,
            parse_limit(words[5]),
            "*" in words[0],
        )
        other = queues.get(name)
        if other is not None:
            here = replace(
                here,
                nodes=here.nodes + other.nodes,
                cores=min(here.cores, other.cores),
                memory_bytes=min(here.memory_bytes, other.memory_bytes),
            )
        queues[name] = here
    return tuple(sorted(queues.values(), key=lambda queue: not queue.default))


def queues() -> tuple[Queue, ...]:
    """Return Slurm's queues that are up, the default one first; raises OSError if it does not answer."""
    words = ["sinfo", "--noheader", f"--format={_SINFO}"]
    return parse_sinfo(commands.output(*words, seconds=ASK_SECONDS))


def _named(access: Sequence[str]) -> str:
    """Return the queue that options of sbatch name; empty if they name none."""
    for option, value in zip(access, [*access[1:], ""], strict=False):
        match = re.fullmatch(r"(?:--partition=|-p ?)(.+)", option)
        if match:
            return match[1]
        if option in ("-p", "--partition"):
            return value
    return ""


def never_start(partition: Mapping[str, Any]) -> Iterator[Check]:
    """Yield why jobs of a partition of Slurm would wait for ever: no such queue, too long, too many nodes."""
    if partition["scheduler"] not in ("slurm", "squeue"):
        return
    subject = f"partition {partition['name']}"
    try:
        known = queues()
    except OSError:
        return  # the nodes cannot be asked either, which is said
    names = _named(partition.get("access", ())).split(",")
    wanted = [queue for queue in known if queue.name in names]
    if names == [""]:
        wanted = [queue for queue in known if queue.default]
    if not wanted:
        text = f"its queue is {names[0] or 'the default one'}, and Slurm has none such that is up"
        remedy = f"name one in access: {', '.join(queue.name for queue in known)}"
        yield Check("problem", subject, text, remedy)
        return
    limits = [queue.limit_seconds for queue in wanted]
    asked = float(Duration(partition["time_limit"]))
    longest = max((limit for limit in limits if limit is not None), default=None)
    if longest is not None and None not in limits and asked > longest:
        text = (
            f"time_limit is {partition['time_limit']}, and {wanted[0].name} allows "
            f"{format_seconds(longest)}: its jobs would never start"
        )
        remedy = "lower time_limit (and limits.case_bytes), or name another queue"
        yield Check("problem", subject, text, remedy)
    extras = PartitionExtras.of_partition(partition["extras"])
    nodes = [extras.scale.nodes]
    for sizes in (*extras.tiers.values(), *extras.cases.values()):
        nodes.append(sizes.nodes or 1)
    most = max(queue.nodes for queue in wanted)
    if max(nodes) > most:
        text = f"a case has {max(nodes)} nodes, and {wanted[0].name} has {most}: its job would never start"
        yield Check("problem", subject, text, "lower nodes, or name another queue")
