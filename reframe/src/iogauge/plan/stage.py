"""The files of the stage directory: all data that cross between a job and its judge.

This module is the border. ReFrame's host writes the order and the inputs; the nodes write all other
files. job.sh lists the names that it writes, and a test compares the two.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from iogauge.core.untrusted import Plain
from iogauge.core.words import Value
from iogauge.node.host import Clock
from iogauge.node.lustre.directory import Directory
from iogauge.node.lustre.request import DirectoryLayout, Layout, Pins
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
#: Seconds between two looks at the counters. The seconds of a short phase are confirmed as finely as its looks follow
#: each other. So looks are nearer to each other while a tool starts, and nearer still when its bytes or files begin to
#: move, most of all at first; each for a limited time. A look takes some 50 microseconds of a core.
PAUSE_S: Final = 0.2
STARTING_S: Final = 0.01
STARTING_FOR_S: Final = 10.0
FIRST_S: Final = 0.005
FIRST_FOR_S: Final = 0.15
CLOSE_S: Final = 0.02
CLOSE_FOR_S: Final = 2.0
# Words under which the nodes note their answers to commands (:mod:`iogauge.plan.observations`).

#: A node's view of the target.
VIEW: Final = "view"
#: Fingerprint and counters: before the run, before the first judged phase, after the last.
FACTS: Final = ("facts-start", "facts-before", "facts-after")
#: Targets of pinned files; with ``.<repetition>``.
PINNED: Final = "pinned"

#: The step that makes a directory on each metadata target.
SPREAD: Final = "spread"

#: The step that makes a directory whose new directories lie on chosen metadata targets.
STRIPE_DIRECTORY: Final = "stripe-directory"

#: The step that fills the target up to a level.
FILL: Final = "fill"

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
    """The agent's order to open a case: the declared target, the case's size, the limits.

    ``target`` and ``lock`` are paths that may begin with a variable. ``lock`` is None if the target
    needs no lock. ``process`` identifies ReFrame's process on ``host``, see
    :func:`iogauge.core.processes.identity`. ``striping`` is ``lustre`` or ``none``. ``targets`` is
    the declared count of storage targets, ``out`` those that are declared out. ``pieces`` counts the parts that lie on one storage
    target each. ``layout`` is the requested layout, ``directory_layout`` that of the directories with files, and
    ``pool`` the declared pool. ``shared_bytes`` is the size of a file that all tasks share, 0 without such a file.
    ``fill_bytes`` is the most that the case fills the target with beside them. ``mdts`` is the number of metadata targets that must be there, 0 if the case names none. ``restore`` is
    the directory of saved settings. ``max_fill`` and ``max_of_free`` are shares of the target.
    ``bound_tasks`` counts the tasks that the launcher binds to a core each on the node of the job script, 0 if
    there are none. ``cores`` is the declared count of cores. ``expect`` are settings, by their keys in a
    fingerprint. ``devices`` are block devices that the case reads past the file system. ``servers`` are asked for the servers'
    counters meanwhile.
    """

    target: str
    type: str
    source: str | None
    uuid: str | None
    striping: str
    targets: int | None
    restore: str
    session: str
    host: str
    process: tuple[int, int] | None
    case: str
    lock: str | None
    lock_wait_s: float
    lock_lease_s: float
    held_bytes: int
    files: int
    pieces: int | None
    pins: Pins | None
    layout: Layout | None
    pool: str | None
    shared_bytes: int
    max_fill: float
    max_of_free: float
    time_limit_s: float
    bound_tasks: int = 0
    cores: int = 0
    expect: Mapping[str, Value] = field(default_factory=dict)
    devices: tuple[str, ...] = ()
    mdts: int = 0
    fill_bytes: int = 0
    out: tuple[int, ...] = ()
    directory_layout: DirectoryLayout | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCase(Plain):
    """Cost of a case, as a dry run leaves it for ``iogauge run --dry-run``.

    ``rests_on`` names the sources of the expected bandwidths. ``timed`` are the seconds of each direction whose bytes are
    unknown; ``written_bytes`` and ``read_bytes`` leave them out. ``doubts`` say which references prove little beside their ceilings, ``refused`` which
    prove nothing: such a case does not run.
    """

    order: JobOrder
    name: str
    check: str
    partition: str
    written_bytes: int
    read_bytes: int
    passing_files: int
    nodes: int
    node_minutes: float
    seconds: float
    rests_on: tuple[str, ...]
    timed: Mapping[str, float] = field(default_factory=dict)
    doubts: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened(Plain):
    """The agent's look at the target before the first byte, and its decision.

    ``directory`` is the case's directory as this node names it. ``clock`` is a look at the clock of
    this node. ``directory_seen`` is what the target passes on, if it is on Lustre. ``refused`` are findings against the case. ``occupied`` names the holder of the lock if the wait
    was in vain. ``failed`` says why the target could not be looked at. ``locked`` means that the
    case took the target's lock. ``disks`` are the counters of the disks below the devices that the case reads past the
    file system; empty if one of these does not count.
    """

    session: str
    case: str
    directory: str = ""
    clock: Clock | None = None
    view: View | None = None
    directory_seen: Directory | None = None
    refused: tuple[str, ...] = ()
    occupied: str = ""
    locked: bool = False
    failed: str = ""
    disks: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PhaseRun:
    """One execution of a phase: repetition (0: prepare), exit status, seconds since boot.

    ``token`` is the word of this execution alone, for the tool to repeat.
    """

    repetition: int
    name: str
    status: int
    started: float
    ended: float
    token: str


_RUN: Final = re.compile(
    r"([0-9]{1,9})\t([^\t]+)\t(-?[0-9]{1,9})\t([0-9]{1,18}(?:\.[0-9]+)?)\t([0-9]{1,18}(?:\.[0-9]+)?)\t(\S+)"
)


def parse_runs(text: str) -> list[PhaseRun]:
    """Parse ``phases.tsv`` of job.sh; raises :class:`ToolOutputError`, also for repeated lines."""
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
    return list(runs.values())
