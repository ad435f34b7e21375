"""What a case will do, before it does it: phases, their command lines, their cost.

A scenario says which phases it has; this module turns them into the lines of a job script and adds up the
footprint. Nothing here touches a file.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from iogauge.lustre import Layout, Pins
from iogauge.measurement import Quantity, ToolOutput

#: The case's directory on the target, and the number of the repetition, in the job script.
DIR = "$IOG_DIR"
REP = "$IOG_REP"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a phase touches data, as far as the guards need to know.

    ``task_offset``: readers are shifted by so many nodes against the writers, None: not at all.
    ``evict``: the page cache is emptied before the phase. ``saturates``: what a healthy target is driven
    to the limit of, so that the ceiling, times the site's efficiency, can serve as a reference. Direction
    ``none`` moves nothing that is timed: it counts.
    """

    direction: Literal["read", "write", "metadata", "none"]
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
    launcher on all tasks, ``once`` runs it on the first node, ``clients`` hands it to the fio servers of
    all nodes, ``agent`` gives it to the agent on the first node. ``output``: file that the tool writes its result to, None: its standard output; ``ranks``:
    file with the times of every task. ``parse`` None: only its exit status counts. ``rates`` maps a metric
    to the tool's phase and quantity. ``data_bytes``: bytes that the phase moves over all tasks in each
    sample, None: as many as it can in its time. ``stored_bytes``: what the files that it makes hold at most,
    where making them is what is timed. ``samples``: repetitions that the tool does by itself.
    ``within``: phase of the same repetition in whose execution this one takes place; it has no command.
    ``expected``: regular expression of the tool's warnings that go with what the phase does on purpose.
    """

    name: str
    command: Sequence[str]
    launch: Literal["tasks", "once", "clients", "agent"]
    parse: Callable[[Printed], ToolOutput] | None
    rates: Mapping[str, tuple[str, str]]
    access: Access
    output: str | None = None
    ranks: str | None = None
    data_bytes: int | None = None
    stored_bytes: int = 0
    samples: int = 1
    within: str | None = None
    expected: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A metric that follows from others of the same case, sample by sample."""

    sources: tuple[str, ...]
    compute: Callable[..., Quantity]


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
    and not judged (G16). ``layout`` is what the case's directory hands on to its files, ``pins`` the
    storage target of each file or directory; either is read back after the first write. ``shared_file``:
    all tasks write one. ``servers``: object storage servers that hold the files, None: all.
    ``cyclic``: ranks go round the nodes instead of filling one after the other. ``restores``: the case
    changes settings of the client, which its job puts back.
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
    computed: Mapping[str, Computed] = field(default_factory=dict)
    layout: Layout | None = None
    pins: Pins | None = None
    shared_file: bool = False
    servers: int | None = None
    cyclic: bool = False
    restores: bool = False

    @property
    def striped(self) -> bool:
        """Whether the case asks for a layout, which is then read back."""
        return self.layout is not None or self.pins is not None

    @property
    def pieces(self) -> int | None:
        """Parts of what the case holds of which each lies on one storage target; None: not known.

        Stripes that are asked for; at least one of each file. How the target lays out a shared file by itself
        is not known.
        """
        stripes = self.layout.stripe_count if self.layout is not None else None
        files = 1 if self.shared_file else self.files
        if stripes is None:
            return None if self.shared_file else files
        return None if stripes < 1 else files * stripes

    @property
    def samples(self) -> int:
        """Samples of every metric."""
        return self.repetitions * max(phase.samples for phase in self.repeat)

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
            def total(phases: Sequence[PhasePlan]) -> int:
                mine = [p for p in phases if p.access.direction == direction]
                return sum((p.data_bytes or 0) * p.samples for p in mine)

            once, each = total(self.prepare), total(self.repeat)
            return once + executions * each

        executions = self.repetitions + 1 - self.first_repetition
        written, read = moved("write"), moved("read")
        written += sum(p.stored_bytes for p in self.prepare)
        written += executions * sum(p.stored_bytes for p in self.repeat)
        timed = sum(1 for p in self.repeat if p.data_bytes is None and p.access.direction != "none")
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


#: File in the stage directory with the hosts of a partition that no scheduler gives nodes.
HOSTFILE: Final = "hosts.txt"


def host_options(launcher: str, hosts: Sequence[str]) -> list[str]:
    """Options that make a launcher start tasks on the hosts of :data:`HOSTFILE`."""
    if not hosts:
        return []
    if launcher not in ("mpirun", "mpirun-openmpi"):
        raise ValueError(
            f"launcher {launcher!r} with extras.hosts: expected mpirun or mpirun-openmpi, which take a "
            "host file"
        )
    return ["--hostfile", HOSTFILE]


def per_node_launcher(launcher: str, nodes: int, hosts: Sequence[str] = ()) -> list[str]:
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
        where = host_options(launcher, hosts)
        return ["mpirun", "-np", str(nodes), *where, "--map-by", "ppr:1:node"]
    if launcher in ("mpiexec", "mpirun-intelmpi"):
        return [launcher.removesuffix("-intelmpi"), "-n", str(nodes), "-ppn", "1"]
    raise ValueError(
        f"launcher {launcher!r} cannot start one process a node on {nodes} nodes: expected srun, "
        "mpirun, mpirun-openmpi, mpiexec, mpirun-intelmpi or alps"
    )


def placing_options(launcher: str, tasks_per_node: int, cyclic: bool = False) -> list[str]:
    """Options that place ranks in blocks, a node after the other, or round the nodes (``cyclic``).

    In the dialect of a ReFrame launcher; nothing for one that has no such option.
    """
    if launcher == "srun":
        return [f"--distribution={'cyclic' if cyclic else 'block'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--map-by", "node" if cyclic else f"ppr:{tasks_per_node}:node"]
    return []


#: File in the stage directory with what the agent shall pin where, and stems of its answers.
PINS: Final = "pins.json"
PINNED: Final = "pinned"
#: Stems of the nodes' answers: before the run, before the first phase that is judged, after the last.
FACTS: Final = ("facts-start", "facts-before", "facts-after")
STRIPES: Final = "stripes"


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """What starts processes in a job: ``run_tasks`` all tasks (a command line), ``each_node`` one a node.

    ``agent`` are the words that start the agent, ``account`` is the path of account.sh, ``restore`` the
    directory that keeps settings to be put back, ``interface`` the network interface that fio's servers
    listen on.
    """

    run_tasks: str
    each_node: Sequence[str]
    agent: Sequence[str]
    account: str
    restore: str = ""
    interface: str | None = None


def _phase_lines(phase: PhasePlan, launch: Launch) -> list[str]:
    """Lines of the job script that run one phase."""
    if phase.within is not None:
        return []
    lines = []
    if phase.access.evict:
        words = [*launch.each_node, *launch.agent, "evict", DIR, f"evict-{phase.name}.{REP}"]
        lines.append(f"iog_phase evict-{phase.name} {shell_command(words)}")
    if phase.launch == "agent":
        words = [*launch.agent, *phase.command, launch.restore]
        return [*lines, f"iog_phase {phase.name} {shell_command(words)}"]
    if phase.launch == "clients":
        return [*lines, f"iog_client {phase.name} {shell_command(phase.command)}"]
    start = f"{launch.run_tasks} " if phase.launch == "tasks" and launch.run_tasks else ""
    counted = ["sh", launch.account, f"fetched-{phase.name}.{REP}"] if phase.access.evict else []
    command = shell_command([*counted, *phase.command])
    return [*lines, f"iog_phase {phase.name} {start}{command}"]


def _striping_lines(plan: CasePlan, launch: Launch) -> tuple[list[str], list[str]]:
    """Lines that ask for the layout, before anything is written, and lines that read back what was obtained."""
    before, after = [], []
    if plan.layout is not None:
        before.append(
            f"iog_phase setstripe {shell_command(['lfs', 'setstripe', *plan.layout.arguments(), DIR])}"
        )
    if plan.pins is not None:
        words = [*launch.agent, "pin", PINS, DIR, f"{PINNED}.{REP}"]
        before.append(f"iog_phase pin {shell_command(words)}")
    if plan.striped:
        words = [*launch.agent, "stripes", DIR, f"{STRIPES}.{REP}"]
        after.append(f"iog_phase getstripe {shell_command(words)}")
    return before, after


def job_functions(plan: CasePlan, launch: Launch) -> list[str]:
    """Shell functions ``iog_prepare`` and ``iog_case`` of a job script."""
    before, after = _striping_lines(plan, launch)

    def lines(phases: Sequence[PhasePlan], holds_first_write: bool) -> list[str]:
        out: list[str] = [*before] if holds_first_write else []
        written = not holds_first_write
        for phase in phases:
            out += _phase_lines(phase, launch)
            if not written and phase.access.direction == "write":
                out += after
                written = True
        return [f"    {line}" for line in out]

    start, first, last = (
        f"iog_phase {out} {shell_command([*launch.each_node, *launch.agent, 'facts', DIR, out])}"
        for out in FACTS
    )
    prepare = [f"    {start}"]
    if plan.restores:
        words = [*launch.agent, "restore", launch.restore]
        prepare.append(f"    iog_at_close {shell_command(words)}")
    if plan.nodes > 1:
        words = [*launch.each_node, *launch.agent, "view", DIR, "view"]
        prepare.append(f"    iog_phase view {shell_command(words)}")
    if any(phase.launch == "clients" for phase in plan.phases):
        words = [str(plan.nodes), launch.interface or "", *launch.each_node]
        prepare.append(f"    iog_servers {shell_command(words)}")
    if plan.prepare:
        prepare += lines(plan.prepare, True)
    case = [f'    [ "$IOG_REP" != 1 ] || {first}', *([] if plan.prepare else ["    iog_reset"])]
    case += lines(plan.repeat, not plan.prepare)
    case.append(f'    [ "$IOG_REP" != {plan.repetitions} ] || {last}')
    return ["iog_prepare() {", *prepare, "}", "iog_case() {", *case, "}"]
