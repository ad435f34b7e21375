"""The lines of a job script, and options of launchers and schedulers, each in its own dialect."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from iogauge.plan import stage
from iogauge.plan.case import AGENT, DIR, REP, STAGE, CasePlan, PhasePlan

_PLAIN = re.compile(r"[A-Za-z0-9_@%+=:,./-]+")
#: The job script's own variables, and the character after each if it could belong to the name.
_OURS = re.compile(r"\$(IOG_DIR|IOG_REP|IOG_STAGE)(?=([A-Za-z0-9_])?)")
#: What is special within double quotes, but for these variables.
_SPECIAL = re.compile(rf'[\\"`]|\$(?!{_OURS.pattern[2:]})')


def shell_word(word: str) -> str:
    """Quote a word for a shell script; only the job script's own variables are expanded."""
    if _PLAIN.fullmatch(word):
        return word
    if not _OURS.search(word):
        return shlex.quote(word)

    def expanded(variable: re.Match[str]) -> str:
        if variable[2]:
            return f"${{{variable[1]}}}"
        return f"${variable[1]}"

    return '"' + _OURS.sub(expanded, _SPECIAL.sub(r"\\\g<0>", word)) + '"'


def shell_command(words: Sequence[str]) -> str:
    """Return the command line of words, see :func:`shell_word`."""
    return " ".join(shell_word(word) for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """How to start processes in a job."""

    #: The command line that starts all tasks.
    run_tasks: str
    #: Words that start a process on each node; none on one node.
    each_node: Sequence[str]
    #: Words that start the agent.
    agent: Sequence[str]
    #: The path of witness.sh.
    witness: str
    #: The directory of saved settings.
    restore: str = ""
    #: The network interface for servers; None: any.
    interface: str | None = None

    def on_each_node(self, *command: str) -> list[str]:
        """Return words that run a command of the agent on every node."""
        if not self.each_node:
            return ["iog_do", *command]
        return [*self.each_node, *self.agent, *command]


def _step(name: str, words: Sequence[str]) -> str:
    """Return the line that runs a command as a phase of the job script."""
    return f"iog_phase {name} {shell_command(words)}"


def _tool_words(phase: PhasePlan, launch: Launch) -> list[str]:
    """Return the words of a phase's command."""
    words = [*phase.command]
    if words[0] == AGENT:
        words[:1] = launch.agent
    if phase.asks:
        words += ["--", *launch.agent]
    return words


def _phase_lines(phase: PhasePlan, launch: Launch) -> list[str]:
    """Return lines of the job script that run one phase."""
    if phase.within is not None:
        return []
    lines = []
    if phase.access.evict:
        stem = stage.evict_stem(phase.name, REP)
        words = launch.on_each_node("evict", DIR, stem)
        lines.append(_step(f"evict-{phase.name}", words))
    if phase.verifies is not None:
        lines.append(f"iog_verify {shell_command(phase.verifies.words)}")
    if phase.launch == "agent":
        words = [*launch.agent, *phase.command, launch.restore]
        return [*lines, _step(phase.name, words)]
    if phase.launch == "nodes":
        start = [*launch.each_node, *launch.agent]
        words = [*launch.agent, *phase.command, launch.interface or "", *start]
        return [*lines, _step(phase.name, words)]
    command = shell_command(_tool_words(phase, launch))
    if phase.verifies is not None:
        command += ' "${IOG_VERIFY[@]}"'
    witness = _witness(phase, launch)
    if phase.launch in ("tasks", "once") and phase.witnessed:
        command = f"{shell_command(witness)} {command}"
    if phase.launch == "tasks" and launch.run_tasks:
        command = f"{launch.run_tasks} {command}"
    function = "iog_phase"
    if phase.launch == "clients":
        function = "iog_client"
    lines.append(f"{function} {phase.name} {command}")
    if phase.on_servers and phase.witnessed:
        look = [*launch.each_node, *witness, "--look"]
        before = _step(stage.look_phase("before", phase.name), [*look, "before"])
        after = _step(stage.look_phase("after", phase.name), [*look, "after"])
        return [before, *lines, after]
    return lines


def _witness(phase: PhasePlan, launch: Launch) -> list[str]:
    words = ["/bin/sh", launch.witness, STAGE, f"{phase.name}.{REP}"]
    if phase.syncs:
        words += ["--sync", DIR]
    return words


def _with_samples(
    phases: Sequence[tuple[PhasePlan, list[str]]], plan: CasePlan
) -> list[str]:
    """Return the lines of phases, and a sample of the contents after the last write and read.

    After preparing phases there is none if the warm-up writes: both are repetition 0.
    """
    preparing = any(phase in plan.prepare for phase, _ in phases)
    writes = any(phase.access.direction == "write" for phase in plan.repeat)
    sampled = plan.sampled and not (preparing and plan.warm_up and writes)
    last = {phase.access.direction: phase for phase, _ in phases}
    lines = []
    for phase, own in phases:
        lines += own
        way = phase.access.direction
        if sampled and way in ("write", "read") and last[way] is phase:
            lines.append(f"iog_sample {way} {shell_word(DIR)}")
    return lines


def _striping_lines(plan: CasePlan, launch: Launch) -> list[str]:
    """Return lines that request the layout before the first write."""
    before = []
    if plan.layout is not None and not plan.hinted:
        words = ["lfs", "setstripe", *plan.layout.arguments(), DIR]
        before.append(_step("setstripe", words))
    if plan.pins is not None:
        words = [*launch.agent, "pin", stage.PINS, DIR, f"{stage.PINNED}.{REP}"]
        before.append(_step("pin", words))
    return before


def job_functions(
    plan: CasePlan, launch: Launch, notes_layouts: bool = False
) -> list[str]:
    """Return the shell functions ``iog_prepare`` and ``iog_case``.

    ``notes_layouts`` means that the files' layouts are noted after the last write.
    """

    def lines(phases: Sequence[PhasePlan], holds_first_write: bool) -> list[str]:
        own_lines = []
        writing: list[str] | None = None
        for phase in phases:
            own = _phase_lines(phase, launch)
            own_lines.append((phase, own))
            if phase.access.direction == "write" or phase.lays_out:
                writing = own
        before = []
        if holds_first_write:
            before = _striping_lines(plan, launch)
            if notes_layouts and writing is not None:
                writing.append(f"iog_layouts {shell_word(DIR)}")
        return [f"    {line}" for line in [*before, *_with_samples(own_lines, plan)]]

    facts = [_step(out, launch.on_each_node("facts", DIR, out)) for out in stage.FACTS]
    start, first, last = facts
    prepare = [f"    {start}"]
    if plan.restores:
        words = [*launch.agent, "restore", launch.restore]
        prepare.append(f"    iog_at_close {shell_command(words)}")
    served = any(phase.on_servers for phase in plan.phases)
    if plan.nodes > 1 or served:
        tool = ""
        if served:
            tool = plan.tool
        words = [tool, str(plan.nodes), launch.interface or "", *launch.each_node]
        prepare.append(f"    iog_agents {shell_command(words)}")
    if plan.prepare:
        prepare += lines(plan.prepare, True)
    begin = [f'    [ "$IOG_REP" != 1 ] || {first}']
    end = [f'    [ "$IOG_REP" != {plan.repetitions} ] || {last}']
    functions = ["iog_prepare() {", *prepare, "}"]
    if not plan.prepare:
        begin.append("    iog_reset")
    case = [*begin, *lines(plan.repeat, not plan.prepare), *end]
    return [*functions, "iog_case() {", *case, "}"]


def host_options(launcher: str, hosts: Sequence[str]) -> list[str]:
    """Return options that make a launcher start tasks on the hosts of :data:`HOSTFILE`."""
    if not hosts:
        return []
    if launcher not in ("mpirun", "mpirun-openmpi"):
        raise ValueError(
            f"launcher {launcher!r} with extras.hosts: expected mpirun or mpirun-openmpi, which take a "
            "host file"
        )
    return ["--hostfile", stage.HOSTFILE]


def per_node_launcher(
    launcher: str, nodes: int, hosts: Sequence[str] = ()
) -> list[str]:
    """Return words that start one process on every node, in the dialect of a ReFrame launcher.

    The process is not bound: the children of a fio server share the node's cores. On one node the
    job script runs there already.
    """
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
        "mpirun, mpirun-openmpi, mpiexec or mpirun-intelmpi"
    )


def placing_options(
    launcher: str, tasks_per_node: int, cyclic: bool = False
) -> list[str]:
    """Return options that place ranks node after node, or round the nodes (``cyclic``).

    They are in the dialect of a ReFrame launcher; empty for a launcher without such an option.
    """
    if launcher == "srun":
        if cyclic:
            return ["--distribution=cyclic"]
        return ["--distribution=block"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        if cyclic:
            return ["--map-by", "node"]
        return ["--map-by", f"ppr:{tasks_per_node}:node"]
    return []


def reporting_variables(launcher: str) -> dict[str, str]:
    """Return variables that make a launcher report each task's cores on standard error (G15).

    They are those of Open MPI 4 and 5, for ``mpirun``. Another MPI's mpirun rejects Open MPI's
    option, but ignores the variables.
    """
    if launcher not in ("mpirun", "mpirun-openmpi"):
        return {}
    return {
        "OMPI_MCA_hwloc_base_report_bindings": "1",
        "PRTE_MCA_prte_display": "bindings",
    }


def binding_options(launcher: str, tasks_per_node: int, cores: int) -> list[str]:
    """Return options that bind each rank to its own core, or to no core if a node has too few.

    They are in the dialect of a ReFrame launcher; empty if its name does not tell the MPI library.
    """
    own_core = tasks_per_node <= cores
    if launcher == "srun":
        if own_core:
            return ["--cpu-bind=cores"]
        return ["--cpu-bind=none"]
    if launcher in ("mpirun", "mpirun-openmpi"):
        if own_core:
            return ["--bind-to", "core"]
        return ["--bind-to", "none"]
    return []


#: Least seconds for a job's cleanup before its time limit, and files that it removes in a second.
_TIDY_SECONDS: Final = 30
_TIDY_FILES_S: Final = 1000


def tidy_seconds(files: int, time_limit_s: float) -> int:
    """Return how many seconds before its limit to warn a job; at most a quarter of the limit."""
    return int(min(_TIDY_SECONDS + files / _TIDY_FILES_S, time_limit_s / 4))


def job_options(
    scheduler: str, files: int, time_limit_s: float | None, given: Sequence[str]
) -> list[str]:
    """Return options that make a scheduler warn a job of its time limit, and not run it twice.

    They are in the dialect of a ReFrame scheduler; empty for a scheduler without such options.
    ``given`` are options of the site or the user: these take precedence.
    """
    if scheduler not in ("slurm", "squeue"):
        return []
    options = []
    if time_limit_s:
        options.append(f"--signal=B:USR1@{tidy_seconds(files, time_limit_s)}")
    options.append("--no-requeue")

    def name(option: str) -> str:
        return re.sub(r"^--(no-)?|[= ].*", "", option.strip())

    stated = set(map(name, given))
    return [option for option in options if name(option) not in stated]
