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
#: Directory of a repetition whose files are kept while others write.
SET = f"{DIR}/{REP}"


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


#: What a job takes beside its phases, and a phase beside its tool: about what was measured on two cores.
_CASE_S: Final = 2.0
_START_S: Final = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """What a case costs. ``held_bytes`` and ``files``, passing ones among them, lie on the target at a time, at most."""

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
    changes settings of the client, which its job puts back. ``sweeps_tasks``: the tasks on a node are what
    the scenario varies, beyond the cores where the site says so. ``writes_first``: all executions of what
    ``repeat`` writes come before the first of what it reads; each has a directory of its own, :data:`SET`,
    and ``held_bytes`` and ``files`` are those of all. ``passing_files``: empty ones that the MPI library makes
    beside them for a moment whenever it opens a file.
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
    passing_files: int = 0
    inputs: Mapping[str, str] = field(default_factory=dict)
    computed: Mapping[str, Computed] = field(default_factory=dict)
    layout: Layout | None = None
    pins: Pins | None = None
    shared_file: bool = False
    servers: int | None = None
    cyclic: bool = False
    restores: bool = False
    sweeps_tasks: bool = False
    writes_first: bool = False

    @property
    def passes(self) -> tuple[Sequence[PhasePlan], ...]:
        """What is repeated: as a whole, or what writes, and then what comes after."""
        if not self.writes_first:
            return (self.repeat,)
        reads = next(n for n, phase in enumerate(self.repeat) if phase.access.direction == "read")
        return (self.repeat[:reads], self.repeat[reads:])

    @property
    def executions(self) -> int:
        """How often ``repeat`` is done, the warm-up included."""
        return self.repetitions + 1 - self.first_repetition

    @property
    def directory(self) -> str:
        """Directory of the files that one repetition writes, in the job script."""
        return SET if self.writes_first else DIR

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
    def most_files(self) -> int:
        """Files that lie on the target at a time, at most; the directories of :data:`SET` are some."""
        return self.files + self.passing_files + (self.executions if self.writes_first else 0)

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

    def footprint(self, bytes_s: Callable[[PhasePlan], float], phase_seconds: float) -> Footprint:
        """Cost of the case. ``bytes_s`` is the bandwidth that is expected of a phase that moves fixed data."""
        each = [(1, phase) for phase in self.prepare]
        each += [(self.executions, phase) for phase in self.repeat]

        def moved(direction: str) -> int:
            mine = [(times, p) for times, p in each if p.access.direction == direction]
            return sum(times * (p.data_bytes or 0) * p.samples for times, p in mine)

        def seconds(phase: PhasePlan) -> float:
            start = 0.0 if phase.within else _START_S * (2 if phase.access.evict else 1)
            if phase.data_bytes is not None:
                return start + phase.data_bytes * phase.samples / bytes_s(phase)
            return start + (phase_seconds if phase.access.direction != "none" else 0.0)

        return Footprint(
            held_bytes=self.held_bytes,
            files=self.most_files,
            written_bytes=moved("write") + sum(times * p.stored_bytes for times, p in each),
            read_bytes=moved("read"),
            nodes=self.nodes,
            seconds=_CASE_S + sum(times * seconds(phase) for times, phase in each),
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

    The process is not bound: a server of fio has children that share the node's cores. On one node the job script itself is there already, except under ALPS, whose job scripts run elsewhere.
    """
    if launcher == "alps":
        return ["aprun", "-n", str(nodes), "-N", "1"]
    if nodes == 1:
        return []
    if launcher == "srun":
        count = [f"--nodes={nodes}", f"--ntasks={nodes}", "--ntasks-per-node=1"]
        return ["srun", *count, "--cpu-bind=none"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        where = host_options(launcher, hosts)
        mapping = ["--map-by", "ppr:1:node", "--bind-to", "none"]
        return ["mpirun", "-np", str(nodes), *where, *mapping]
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


def reporting_variables(launcher: str) -> dict[str, str]:
    """Variables that make a launcher say on standard error which cores it bound each task to (G15).

    Those of Open MPI 4 and 5, for ``mpirun``: their option is an error to another MPI's mpirun, the variables
    mean nothing to it.
    """
    if launcher not in ("mpirun", "mpirun-openmpi"):
        return {}
    return {"OMPI_MCA_hwloc_base_report_bindings": "1", "PRTE_MCA_prte_display": "bindings"}


def binding_options(launcher: str, tasks_per_node: int, cores: int) -> list[str]:
    """Options that bind each rank to a core of its own, or to none where a node has fewer cores than ranks.

    In the dialect of a ReFrame launcher; nothing for one whose MPI library is not known by its name.
    """
    enough = tasks_per_node <= cores
    if launcher == "srun":
        return [f"--cpu-bind={'cores' if enough else 'none'}"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        return ["--bind-to", "core" if enough else "none"]
    return []


#: Seconds that a job gets to tidy up before its time limit: at least, and how many files it removes in one.
_TIDY_SECONDS: Final = 30
_TIDY_FILES_S: Final = 1000


def tidy_seconds(files: int, time_limit_s: float) -> int:
    """How long before its time limit a job has to be warned, to remove so many files; at most a quarter of it."""
    return int(min(_TIDY_SECONDS + files / _TIDY_FILES_S, time_limit_s / 4))


def job_options(
    scheduler: str, files: int, time_limit_s: float | None, given: Sequence[str]
) -> list[str]:
    """Options that make a scheduler warn the job script of its time limit, and not run it twice.

    In the dialect of a ReFrame scheduler, nothing for one without such options. ``given`` are options that
    the site or the user asks for; an option that is among them is left to them.
    """
    if scheduler not in ("slurm", "squeue"):
        return []
    found = []
    if time_limit_s:
        found.append(f"--signal=B:USR1@{tidy_seconds(files, time_limit_s)}")
    found.append("--no-requeue")
    stated = {re.sub(r"^--(no-)?|[= ].*", "", option.strip()) for option in given}
    return [option for option in found if re.sub(r"^--(no-)?|=.*", "", option) not in stated]


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


def _phase_lines(phase: PhasePlan, launch: Launch, directory: str) -> list[str]:
    """Lines of the job script that run one phase on the files of a directory."""
    if phase.within is not None:
        return []
    lines = []
    if phase.access.evict:
        words = [*launch.each_node, *launch.agent, "evict", directory, f"evict-{phase.name}.{REP}"]
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
    before, after, where = [], [], plan.directory
    if plan.writes_first:
        before.append(f"mkdir {shell_word(where)} || exit 1")
    if plan.layout is not None:
        before.append(
            f"iog_phase setstripe {shell_command(['lfs', 'setstripe', *plan.layout.arguments(), where])}"
        )
    if plan.pins is not None:
        words = [*launch.agent, "pin", PINS, where, f"{PINNED}.{REP}"]
        before.append(f"iog_phase pin {shell_command(words)}")
    if plan.striped:
        words = [*launch.agent, "stripes", where, f"{STRIPES}.{REP}"]
        after.append(f"iog_phase getstripe {shell_command(words)}")
    return before, after


def job_functions(plan: CasePlan, launch: Launch) -> list[str]:
    """Shell functions of a job script: ``iog_prepare``, ``iog_case``, and ``iog_write`` where all writes come first."""
    before, after = _striping_lines(plan, launch)

    def lines(phases: Sequence[PhasePlan], holds_first_write: bool) -> list[str]:
        out: list[str] = [*before] if holds_first_write else []
        written = not holds_first_write
        for phase in phases:
            out += _phase_lines(phase, launch, plan.directory)
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
    begin = [f'    [ "$IOG_REP" != 1 ] || {first}']
    end = [f'    [ "$IOG_REP" != {plan.repetitions} ] || {last}']
    functions = ["iog_prepare() {", *prepare, "}"]
    if plan.writes_first:
        writes, reads = plan.passes
        functions += ["iog_write() {", *begin, *lines(writes, True), "}"]
        return [*functions, "iog_case() {", *lines(reads, False), *end, "}"]
    if not plan.prepare:
        begin.append("    iog_reset")
    return [*functions, "iog_case() {", *begin, *lines(plan.repeat, not plan.prepare), *end, "}"]
