"""The files of the stage directory: all data that cross between a job and its judge.

This module is the border. ReFrame's host writes the order and the inputs; the nodes write all other
files. job.sh lists the names that it writes, and a test compares the two.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iogauge.core.untrusted import Plain
from iogauge.core.vocabulary import Value
from iogauge.node.lustre.inherited import Directory
from iogauge.node.lustre.request import Layout, Pins
from iogauge.node.view import View

# Written by ReFrame's host before the job.

#: The :class:`JobOrder`.
ORDER: Final = "case.json"
#: The :class:`PlannedCase`, for ``iogauge run --dry-run``; no job reads it.
FOOTPRINT: Final = "footprint.json"
#: Hosts of a partition without a scheduler.
HOSTFILE: Final = "hosts.txt"
#: Files and directories that the agent puts on storage targets.
PINS: Final = "pins.json"

#: What rounds.sh must know beside its words: ``max_deviation``, which must start no series.
ROUNDS: Final = "rounds.json"

# Written by the job script.

#: The fate of each execution of a phase, see :func:`parse_runs`.
RUNS: Final = "phases.tsv"
#: What a phase says to whoever waits for it.
SAYS: Final = "says.txt"
#: Directories of other cases that were on the target at the same time.
NEIGHBOURS: Final = "neighbours.txt"
#: Standard error of the job script, under ReFrame's name.
JOB_COMPLAINTS: Final = "rfm_job.err"
#: Name of the signal that ended the job.
SIGNAL: Final = "told.txt"
#: The started servers: a line ``host address,port pid`` for each.
SERVERS: Final = "servers.txt"

#: What the launcher of the agents said, and a word that changes while the job script lives: an agent ends without it.
AGENTS_ERRORS: Final = "agents.err"
LEASE: Final = "agents.lease"

# Written by the agent on the first node.

#: :class:`Opened`.
OPENED: Final = "open.json"
# Words under which the nodes note their answers to commands (:mod:`iogauge.plan.observations`).

#: A node's view of the target.
VIEW: Final = "view"
#: Fingerprint and counters: before the run, before the first judged phase, after the last.
FACTS: Final = ("facts-start", "facts-before", "facts-after")
#: Targets of pinned files; with ``.<repetition>``.
PINNED: Final = "pinned"


#: Printed by the agent when the case's directory exists; the job script waits for it.
WORD: Final = "opened"
#: What the agent prints while it runs a command for the job script.
ALIVE: Final = "alive"
#: The agent's exit status if it refuses, to tell a refusal from a crash, and what it prints first.
REFUSED: Final = 3
REFUSAL: Final = "iogauge: refused: "


def evict_stem(phase: str, repetition: int | str) -> str:
    """Return the word of the answers of ``evict`` before a phase."""
    return f"evict-{phase}.{repetition}"


def look_phase(when: str, phase: str) -> str:
    """Return the name of the look at all nodes ``before`` or ``after`` a phase of servers."""
    return f"look-{when}-{phase}"


def printed_file(phase: str, repetition: int | str) -> str:
    """Return the file with the standard output of an execution of a phase."""
    return f"{phase}.{repetition}.out"


def complaints_file(phase: str, repetition: int | str) -> str:
    """Return the file with the standard error of an execution of a phase."""
    return f"{phase}.{repetition}.err"


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOrder(Plain):
    """The agent's order to open a case: the declared target, the case's size, the limits."""

    #: The target's path, which may begin with a variable.
    target: str
    #: The declared type of its file system.
    type: str
    #: The declared source of its mount; None: any.
    source: str | None
    #: The declared name of the file system; None: any.
    uuid: str | None
    #: What lays files out: ``lustre`` or ``none``.
    striping: str
    #: The declared count of storage targets; None: unknown.
    targets: int | None
    #: The directory of saved settings.
    restore: str
    session: str
    #: Where ReFrame's process runs.
    host: str
    #: That process, from :func:`iogauge.core.processes.identity`; None: unknown.
    process: tuple[int, int] | None
    case: str
    #: Directories, which may begin with a variable. The first that this node sees has the target's lock; none: it needs none.
    locks: tuple[str, ...]
    #: Most seconds to wait for the lock.
    lock_wait_s: float
    #: Seconds without a sign of life after which a holder is dead.
    lock_lease_s: float
    #: The most bytes at a time.
    held_bytes: int
    #: The most files at a time.
    files: int
    #: Parts that lie on one storage target each; None: unknown.
    pieces: int | None
    pins: Pins | None
    #: The requested layout; None: the target's own.
    layout: Layout | None
    #: The size of a file that all tasks share; 0: there is none.
    shared_bytes: int
    #: Share of the target that may be full.
    max_fill: float
    #: Share of the target's free bytes that the case may hold.
    max_of_free: float
    #: Seconds that the job may take.
    time_limit_s: float
    #: Settings that the nodes must have, by their keys in a fingerprint.
    expect: Mapping[str, Value] = field(default_factory=dict)
    #: Whether the run is a gate, and the target the same for each job: then another file system must not meet the declaration.
    gate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint(Plain):
    """Cost of a case; the warm-up is included."""

    #: Without phases that end by time.
    written_bytes: int
    #: Without phases that end by time.
    read_bytes: int
    nodes: int
    #: Estimated, without waiting for nodes.
    seconds: float
    #: Seconds of the phases that end by time, by direction.
    timed: Mapping[str, float] = field(default_factory=dict)

    @property
    def node_minutes(self) -> float:
        """Return the estimated node-minutes."""
        return self.nodes * self.seconds / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase(Plain):
    """A case and its cost, as a dry run leaves it for ``iogauge run --dry-run``."""

    order: JobOrder
    name: str
    check: str
    partition: str
    cost: Footprint
    #: Sources of the expected bandwidths.
    rests_on: tuple[str, ...]
    #: References that prove little against their ceilings.
    doubts: tuple[str, ...] = ()
    #: References that prove nothing: such a case does not run.
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Plain):
    """The agent's look at the target before the first byte, and its decision."""

    session: str
    case: str
    #: The case's directory, as this node names it.
    directory: str = ""
    view: View | None = None
    #: What the target passes on; None: it is not on Lustre.
    directory_seen: Directory | None = None
    #: Findings against the case.
    refused: tuple[str, ...] = ()
    #: The holder of the lock; empty unless the wait was in vain.
    occupied: str = ""
    #: The case took the target's lock.
    locked: bool = False
    #: Why the target could not be looked at; empty if it could.
    failed: str = ""


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One execution of a phase."""

    #: 0: it prepares, or warms up.
    repetition: int
    name: str
    #: Exit status.
    status: int
    #: Seconds since boot.
    started: float
    #: Seconds since boot.
    ended: float
    #: The word of this execution alone, for the tool to repeat.
    token: str


_RUN: Final = re.compile(
    r"([0-9]{1,9})\t([^\t]+)\t(-?[0-9]{1,9})\t([0-9]{1,18}(?:\.[0-9]+)?)\t([0-9]{1,18}(?:\.[0-9]+)?)\t(\S+)"
)


def parse_runs(text: str) -> dict[tuple[int, str], PhaseRun]:
    """Parse ``phases.tsv`` of job.sh by repetition and name; raises :class:`ToolOutputError`, also for repeated lines."""
    from iogauge.core.measurement import (
        ToolOutputError,
    )  # the agent reads no runs: it starts sooner

    if text and not text.endswith("\n"):
        raise ToolOutputError(
            f"{RUNS}: the last line is incomplete: {text.splitlines()[-1][-80:]!r}; expected whole lines. Run the case again"
        )
    runs: dict[tuple[int, str], PhaseRun] = {}
    for line in text.splitlines():
        match = _RUN.fullmatch(line)
        if match is None:
            raise ToolOutputError(f"{RUNS}: damaged line {line[:200]!r}")
        times = float(match[4]), float(match[5])
        run = PhaseRun(int(match[1]), match[2], int(match[3]), *times, match[6])
        if (run.repetition, run.name) in runs:
            raise ToolOutputError(
                f"{RUNS}: {run.name}, repetition {run.repetition}: appears twice"
            )
        runs[run.repetition, run.name] = run
    return runs
