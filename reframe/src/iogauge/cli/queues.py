"""The queues of Slurm: their nodes and limits, and which cases of a partition they would never start."""

import argparse
import re
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Final

from iogauge.cli.answers import Answer, Place
from iogauge.core import commands
from iogauge.core.units import format_seconds

#: Seconds for a question to the scheduler.
ASK_SECONDS: Final = 30

#: Columns of sinfo: partition, nodes, sockets, cores of each, memory in MiB, longest job, state.
_SINFO: Final = "%P|%D|%X|%Y|%m|%l|%a"

#: A line of a queue that is up. A star marks the default one, a plus sign stands for "at least".
_LINE: Final = re.compile(
    r"(?m)^\s*(?P<queue>[^|*\s]+)(?P<default>\*?)\|(?P<nodes>\d+)\|(?P<sockets>\d+)\+?\|(?P<cores>\d+)\+?\|(?P<mebibytes>\d+)\+?"
    r"\|(?P<limit>[^|]*)\|up\s*$"
)


@dataclass(frozen=True, slots=True)
class Queue:
    """A partition of Slurm: its nodes, and what the smallest of them has."""

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
    limit = timedelta(
        days=int(match[1] or 0),
        hours=int(match[2] or 0),
        minutes=int(match[3]),
        seconds=int(match[4]),
    )
    return round(limit.total_seconds())


def parse_sinfo(text: str) -> tuple[Queue, ...]:
    """Return the queues that are up from the output of sinfo, the default one first."""
    queues: dict[str, Queue] = {}
    for line in _LINE.finditer(text):
        name = line["queue"]
        here = Queue(
            name=name,
            nodes=int(line["nodes"]),
            cores=int(line["sockets"]) * int(line["cores"]),
            memory_bytes=int(line["mebibytes"]) << 20,
            limit_seconds=parse_limit(line["limit"]),
            default=bool(line["default"]),
        )
        # Lines of one queue are of different nodes.
        if name in queues:
            other = queues[name]
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


def _named(access: Sequence[str]) -> list[str]:
    """Return the queues that options of sbatch name; empty if they name none."""
    options = argparse.ArgumentParser(add_help=False)
    options.add_argument("-p", "--partition", nargs="?", default="", const="")
    known, _ = options.parse_known_args(access)
    return [name for name in known.partition.strip().split(",") if name]


#: The program that hands jobs to a scheduler.
_SUBMITS: Final = {
    "slurm": "sbatch",
    "squeue": "sbatch",
    "pbs": "qsub",
    "pbspro": "qsub",
    "torque": "qsub",
    "sge": "qsub",
    "lsf": "bsub",
    "flux": "flux",
    "oar": "oarsub",
}


def start(place: Place) -> Iterator[Answer]:
    """Compare a partition with the scheduler: no program, no such queue, too long, too many nodes."""
    subject = f"partition {place.name}"
    partition = place.partition
    scheduler = partition["scheduler"]
    program = _SUBMITS.get(scheduler)
    if program and not shutil.which(program):
        yield Answer(
            "problem",
            subject,
            f"scheduler is {scheduler}, and {program} is not on PATH",
            f"put {program} on PATH, or correct scheduler",
        )
    if program != "sbatch":
        return
    try:
        known = queues()
    except OSError:
        return  # the nodes cannot be asked either, which is said
    names = _named(partition.get("access", ()))
    wanted = [queue for queue in known if queue.name in names]
    if not names:
        wanted = [queue for queue in known if queue.default]
    if not wanted:
        named = ", ".join(names) or "the default one"
        yield Answer(
            "problem",
            subject,
            f"its queue is {named}, and Slurm has none such that is up",
            f"name one in access: {', '.join(queue.name for queue in known)}",
        )
        return
    first = wanted[0].name
    limits = [queue.limit_seconds or float("inf") for queue in wanted]
    from reframe.utility.typecheck import Duration  # a third of a second

    limit = partition["time_limit"]
    if Duration(limit) > max(limits):
        yield Answer(
            "problem",
            subject,
            f"time_limit is {limit}, and {first} allows {format_seconds(max(limits))}: its jobs would never start",
            "lower time_limit (and limits.case_bytes), or name another queue",
        )
    nodes = place.extras.scale.nodes
    for sizes in (*place.extras.tiers.values(), *place.extras.cases.values()):
        nodes = max(nodes, sizes.nodes or 1)
    most = max(queue.nodes for queue in wanted)
    if nodes > most:
        yield Answer(
            "problem",
            subject,
            f"a case has {nodes} nodes, and {first} has {most}: its job would never start",
            "lower nodes, or name another queue",
        )
