"""What a case will do, before it does it: phases, their command lines, their cost.

A scenario says which phases it has; this module turns them into the lines of a job script and adds up the
footprint. Nothing here touches a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from iogauge.measurement import ToolOutput

#: The case's directory on the target, and the number of the repetition, in the job script.
DIR = "$IOG_DIR"
REP = "$IOG_REP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a phase touches data, as far as the guards need to know.

    ``task_offset``: readers are shifted by so many nodes against the writers, None: not at all.
    ``evict``: the page cache is emptied before the phase. ``saturates``: what a healthy target is driven
    to the limit of, so that the ceiling, times the site's efficiency, can serve as a reference.
    """

    direction: Literal["read", "write", "metadata"]
    o_direct: bool = False
    fsync: bool = False
    task_offset: int | None = None
    evict: bool = False
    saturates: Literal["bandwidth", "operations"] | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """What one execution of a tool left, as text: its result, what it printed, the times of its tasks.

    ``result`` is the tool's output file, or its standard output where it has none; ``stdout`` is what was
    printed beside it. To ``stderr`` a launcher and its MPI library print too.
    """

    result: str
    stdout: str
    stderr: str
    ranks: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """One execution of a tool in a repetition.

    ``command`` may hold :data:`DIR` and :data:`REP`. ``launch``: ``tasks`` starts it with the partition's
    launcher on all tasks, ``once`` runs it on the first node. ``output``: file that the tool writes its
    result to, None: its standard output; ``ranks``: file with the times of every task. ``rates`` maps a
    metric to the tool's phase and quantity. ``data_bytes``: bytes that the phase moves over all tasks,
    None: as many as it can in its time.
    """

    name: str
    command: Sequence[str]
    launch: Literal["tasks", "once"]
    parse: Callable[[Printed], ToolOutput]
    rates: Mapping[str, tuple[str, str]]
    access: Access
    output: str | None = None
    ranks: str | None = None
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a case costs. ``held_bytes`` and ``files`` lie on the target at a time, at most."""

    held_bytes: int
    files: int
    written_bytes: int
    read_bytes: int
    nodes: int
    seconds: float

    @property
    def node_minutes(self) -> float:
        """Estimated node-minutes."""
        return self.nodes * self.seconds / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """All that a case will do: ``prepare`` once, then ``repeat`` in every repetition.

    With ``warm_up``, ``repeat`` is done once more before the first repetition; what it measures is kept
    and not judged (G16).
    """

    tool: str
    repetitions: int
    tasks: int
    nodes: int
    repeat: Sequence[PhasePlan]
    prepare: Sequence[PhasePlan] = ()
    warm_up: bool = True
    held_bytes: int
    files: int
    inputs: Mapping[str, str] = field(default_factory=dict)

    @property
    def phases(self) -> list[PhasePlan]:
        """Preparing and repeated phases."""
        return [*self.prepare, *self.repeat]

    @property
    def first_repetition(self) -> int:
        """Number of the first execution of ``repeat``: 0 is the warm-up, 1 the first that is judged."""
        return 0 if self.warm_up else 1

    def footprint(self, assumed_bytes_s: float, phase_seconds: float) -> Footprint:
        """Cost of the case; its duration rests on an assumed bandwidth where a phase moves fixed data."""

        def moved(direction: str) -> int:
            once = sum(p.data_bytes or 0 for p in self.prepare if p.access.direction == direction)
            each = sum(p.data_bytes or 0 for p in self.repeat if p.access.direction == direction)
            return once + executions * each

        executions = self.repetitions + 1 - self.first_repetition
        written, read = moved("write"), moved("read")
        timed = sum(1 for p in self.repeat if p.data_bytes is None)
        return Footprint(
            held_bytes=self.held_bytes,
            files=self.files,
            written_bytes=written,
            read_bytes=read,
            nodes=self.nodes,
            seconds=(written + read) / assumed_bytes_s + executions * timed * phase_seconds,
        )


_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")


def shell_word(word: str) -> str:
    """A word for a shell script. Only ``$IOG_DIR`` and ``$IOG_REP`` are expanded; the rest is literal."""
    if _PLAIN.fullmatch(word):
        return word
    parts = re.split(r"(\$IOG_DIR|\$IOG_REP)", word)
    if len(parts) == 1:
        return shlex.quote(word)
    text = "".join(
        f"${{{part[1:]}}}"
        if part in (DIR, REP) and re.match("[A-Za-z0-9_]", after)
        else part
        if part in (DIR, REP)
        else re.sub(r'([\\"`$])', r"\\\1", part)
        for part, after in zip(parts, [*parts[1:], ""], strict=True)
    )
    return f'"{text}"'


def shell_command(words: Sequence[str]) -> str:
    """A command line of words, see :func:`shell_word`."""
    return " ".join(shell_word(word) for word in words)


def per_node_launcher(launcher: str, nodes: int) -> list[str]:
    """Words that start one process on every node of the allocation, in the dialect of a ReFrame launcher.

    On one node the job script itself is there already, except under ALPS, whose job scripts run elsewhere.
    """
    if launcher == "alps":
        return ["aprun", "-n", str(nodes), "-N", "1"]
    if nodes == 1:
        return []
    if launcher == "srun":
        return ["srun", f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["mpirun", "-np", str(nodes), "--map-by", "ppr:1:node"]
    if launcher in ("mpiexec", "mpirun-intelmpi"):
        return [launcher.removesuffix("-intelmpi"), "-n", str(nodes), "-ppn", "1"]
    raise ValueError(
        f"launcher {launcher!r} cannot start one process a node on {nodes} nodes: expected srun, "
        "mpirun, mpirun-openmpi, mpiexec, mpirun-intelmpi or alps"
    )


def block_options(launcher: str, tasks_per_node: int) -> list[str]:
    """Options that place ranks in blocks, a node after the other, in the dialect of a ReFrame launcher."""
    if launcher == "srun":
        return ["--distribution=block"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--map-by", f"ppr:{tasks_per_node}:node"]
    return []


def job_functions(
    plan: CasePlan, run_tasks: str, agent: Sequence[str], account: str, launcher: str
) -> list[str]:
    """Shell functions ``iog_prepare`` and ``iog_case`` of a job script.

    ``run_tasks`` is the launcher's own command line for all tasks of the job, ``agent`` the words that
    start the agent, ``account`` the path of account.sh.
    """
    each_node = per_node_launcher(launcher, plan.nodes)

    def lines(phases: Sequence[PhasePlan]) -> list[str]:
        out = []
        for phase in phases:
            if phase.access.evict:
                words = [*each_node, *agent, "evict", DIR, f"evict-{phase.name}.{REP}"]
                out.append(f"    iog_phase evict-{phase.name} {shell_command(words)}")
            start = f"{run_tasks} " if phase.launch == "tasks" and run_tasks else ""
            counted = ["sh", account, f"fetched-{phase.name}.{REP}"] if phase.access.evict else []
            command = shell_command([*counted, *phase.command])
            out.append(f"    iog_phase {phase.name} {start}{command}")
        return out

    functions = [
        "iog_case() {",
        *([] if plan.prepare else ["    iog_reset"]),
        *lines(plan.repeat),
        "}",
    ]
    views = (
        [f"    iog_phase view {shell_command([*each_node, *agent, 'view', DIR, 'view'])}"]
        if plan.nodes > 1
        else []
    )
    if views or plan.prepare:
        functions = ["iog_prepare() {", *views, *lines(plan.prepare), "}", *functions]
    return functions
