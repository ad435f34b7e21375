"""Plan of a case: its phases, their command lines, their cost.

A scenario names its phases; :mod:`iogauge.plan.script` turns them into lines of a job script. Nothing here touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from iogauge.core.measurement import Quantity, ToolOutput
from iogauge.node.lustre.request import Layout, Pins
from iogauge.plan.stage import Footprint

#: The case's directory on the target, and the repetition's number, in the job script.
DIR = "$IOG_DIR"
REP = "$IOG_REP"
#: The stage directory, for programs that a launcher may start elsewhere.
STAGE = "$IOG_STAGE"
#: In place of a command's first word: the agent, by the words that start it.
AGENT = "$IOG_AGENT"

#: The word of an execution, in the job script (job.sh).
TOKEN = "$IOG_TOKEN"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a phase touches data, for the guards."""

    #: ``none`` moves no timed data: it counts.
    direction: Literal["read", "write", "metadata", "none"]
    #: Requests bypass the caches of the client.
    o_direct: bool = False
    #: Written data are synced before the clock stops.
    fsync: bool = False
    #: Nodes by which readers are shifted against the writers; None: they are not.
    task_offset: int | None = None
    #: How often the tool has shifted them by then: mdtest does so before the stat, and once more before the read.
    shifts: int = 1
    #: The page cache is emptied before the phase.
    evict: bool = False
    #: The limit to which the phase drives a healthy target: the ceiling, times the site's efficiency, can then serve as a
    #: reference. None: no limit.
    saturates: Literal["bandwidth", "operations"] | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """Text that one execution of a tool left."""

    #: The tool's output file, or its standard output if it has no file.
    result: str
    #: Its standard output, if that is not the result.
    stdout: str
    #: Its standard error, to which a launcher and the MPI library print too.
    stderr: str
    #: The times of its tasks; empty if it writes none.
    ranks: str = ""
    #: The texts of the tool's folder, by their names.
    files: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verification:
    """A tool's own check of its data."""

    #: Words after the tool's command.
    words: tuple[str, ...]
    #: A regular expression, found in the line that reports wrong data.
    complaint: str
    #: Bytes that all tasks move then; None: as many as ever.
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """One execution of a tool in a repetition."""

    name: str
    #: Words of the command, which may contain :data:`DIR` and :data:`REP`; empty if the phase is ``within`` another.
    command: Sequence[str]
    #: ``tasks``: all tasks, by the partition's launcher; ``once``: the first node; ``clients``: a job on the fio servers of
    #: all nodes; ``servers``: a program on the first node that uses the tool's servers itself; ``agent``: the agent on the
    #: first node; ``nodes``: the agent that starts others on all nodes.
    launch: Literal["tasks", "once", "clients", "servers", "agent", "nodes"] = "once"
    #: Turns the text into values; None: only the exit status counts.
    parse: Callable[[Printed], ToolOutput] | None = None
    #: The tool's phase and quantity, by metric.
    rates: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    access: Access = Access(direction="none")
    #: The tool's result file; None: its standard output.
    output: str | None = None
    #: The file with the times of every task; None: there is none.
    ranks: str | None = None
    #: A folder of further texts; None: there is none.
    folder: str | None = None
    #: Bytes that all tasks move in each sample; None: as many as the time allows.
    data_bytes: int | None = None
    #: The most bytes that the files it makes can hold, if making them is what is timed.
    stored_bytes: int = 0
    #: Repetitions that the tool does by itself.
    samples: int = 1
    #: The phase of the repetition whose execution includes this one; None: it has its own.
    within: str | None = None
    #: A regular expression for warnings of the tool that the phase causes on purpose; None: no warning is.
    expected: str | None = None
    #: How the tool checks the data, in the warm-up alone, or when it prepares; None: it does not.
    verifies: Verification | None = None
    #: The tool leaves metadata in memory: syncfs(2) after it belongs to its time.
    syncs: bool = False
    #: The tool stops its clock between the first and the last byte.
    pauses: bool = False
    #: The command asks the agent, whose words come after it and ``--``.
    asks: bool = False
    #: Returns an output with figures that follow from its bytes over time, as the first node counts them.
    series: Callable[..., ToolOutput] | None = None
    #: It takes as long as an earlier phase left work for it: no least time is demanded.
    follows: bool = False
    #: Seconds of a phase that has a time limit of its own; None: the site's.
    lasts_s: float | None = None
    #: After it the files with the requested layout are there, though it moves no timed data.
    lays_out: bool = False

    @property
    def witnessed(self) -> bool:
        """Return whether the kernel's counts are wanted: the phase is timed, on the target or by a process here, or it writes
        what a timed phase reads.
        """
        way = self.access.direction
        if way == "write" and self.launch in ("once", "clients"):
            return True
        return bool(self.rates) and way != "none"

    @property
    def sized_bytes(self) -> int | None:
        """Return the bytes that the phase moves, or can write at most; None if the time decides."""
        if self.data_bytes is None and self.access.direction == "write":
            return self.stored_bytes or None
        return self.data_bytes

    @property
    def warming(self) -> PhasePlan:
        """Return the phase as it runs in the warm-up, which may move fewer bytes."""
        if self.verifies is None or self.verifies.data_bytes is None:
            return self
        return replace(self, data_bytes=self.verifies.data_bytes)

    def also(
        self, name: str, rates: Mapping[str, tuple[str, str]], access: Access
    ) -> PhasePlan:
        """Return a phase that the same execution measures, too."""
        return replace(
            self, name=name, rates=rates, access=access, command=(), within=self.name
        )

    @property
    def on_servers(self) -> bool:
        """Return whether servers on the nodes do the work."""
        return self.launch in ("clients", "servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A metric computed from others of the same case, sample by sample."""

    #: Metrics.
    sources: tuple[str, ...]
    #: Gets a quantity of each source.
    compute: Callable[..., Quantity]


#: Seconds of a job without its phases, and of a start of a program on one node and on several, as measured on two cores.
_CASE_S: Final = 2.0
_START_S: Final = 0.5
_LAUNCH_S: Final = 1.0
#: Starts on several nodes without the phases: for facts three times, and for the view of all nodes.
_LAUNCHES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """Plan of a whole case: ``prepare`` once, then ``repeat`` in every repetition."""

    tool: str
    repetitions: int
    #: Tasks of the job, over all nodes.
    tasks: int
    nodes: int
    repeat: Sequence[PhasePlan]
    prepare: Sequence[PhasePlan] = ()
    #: ``repeat`` runs once more before the first repetition; its results are kept and not judged (G16).
    warm_up: bool = True
    #: The most bytes at a time on the target.
    held_bytes: int
    #: The most files at a time on the target.
    files: int
    #: Empty files that the MPI library makes for a moment whenever it opens a file.
    passing_files: int = 0
    #: Texts of files in the stage directory, by name.
    inputs: Mapping[str, str] = field(default_factory=dict)
    #: Metrics that no phase gives, by name.
    computed: Mapping[str, Computed] = field(default_factory=dict)
    #: The layout that the case's directory passes on to its files, read back after the first write; None: the target's.
    layout: Layout | None = None
    #: The storage target of each file or directory, read back after the first write; None: the target chooses.
    pins: Pins | None = None
    #: All tasks write one file.
    shared_file: bool = False
    #: Object storage servers that hold the files; None: all.
    servers: int | None = None
    #: Ranks are placed round the nodes, and do not fill one after the other.
    cyclic: bool = False
    #: The case changes client settings, which its job restores.
    restores: bool = False
    #: The scenario varies the tasks on a node, beyond the cores if the site allows it.
    sweeps_tasks: bool = False
    #: The MPI library is asked for the layout, and the directory is not.
    hinted: bool = False
    #: The tool itself reads all its data again and compares them: no sample is taken.
    checks_all: bool = False
    #: The versions of the tools in the Spack stack that the case names, by tool; empty without a stack.
    stack_versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def striped(self) -> bool:
        """Return whether the case requests a layout, which is then read back."""
        return self.layout is not None or self.pins is not None

    @property
    def keeps_files(self) -> bool:
        """Return whether an execution leaves the files whose layouts are read."""
        return any(p.access.direction == "write" or p.lays_out for p in self.phases)

    @property
    def shared_bytes(self) -> int:
        """Return the size of the file that all tasks share, 0 if they share none."""
        if self.shared_file:
            return self.held_bytes // self.files
        return 0

    @property
    def sampled(self) -> bool:
        """Return whether written files stay for a look at their contents after each phase.

        Of an execution that writes and reads, nothing stays.
        """
        writes = any(phase.access.direction == "write" for phase in self.phases)
        if self.checks_all:
            return False
        return writes and not any(phase.within for phase in self.phases)

    @property
    def pieces(self) -> int | None:
        """Return the number of parts that lie on one storage target each, or None if unknown.

        It is the number of requested stripes; at least one for each file. The target's own layout
        of a shared file is unknown.
        """
        stripes = None
        if self.layout is not None:
            stripes = self.layout.stripe_count
        if stripes is None and not self.shared_file:
            return self.files
        if stripes is None or stripes < 1:
            return None
        if self.shared_file:
            return stripes
        return self.files * stripes

    @property
    def most_files(self) -> int:
        """Return the most files at a time on the target."""
        return self.files + self.passing_files

    @property
    def samples(self) -> int:
        """Return the number of samples of every metric."""
        return self.repetitions * max(phase.samples for phase in self.repeat)

    @property
    def phases(self) -> list[PhasePlan]:
        """Return preparing and repeated phases."""
        return [*self.prepare, *self.repeat]

    @property
    def first_repetition(self) -> int:
        """Return the number of the first execution of ``repeat``: 0 (warm-up) or 1 (judged)."""
        return int(not self.warm_up)

    @property
    def in_order(self) -> list[tuple[int, PhasePlan]]:
        """Return every execution that is started, with its repetition, in order; that of a preparing phase is 0."""
        order = [(0, phase) for phase in self.prepare]
        for repetition in range(self.first_repetition, self.repetitions + 1):
            order += [(repetition, phase) for phase in self.repeat if not phase.within]
        return order

    @property
    def _executed(self) -> list[tuple[int, PhasePlan]]:
        """Return how often each phase is executed."""
        executed = [(1, phase) for phase in self.prepare]
        for phase in self.repeat:
            executed.append((self.repetitions, phase))
            if self.warm_up:
                executed.append((1, phase.warming))
        return executed

    def footprint(
        self, bytes_s: Callable[[PhasePlan], float], phase_seconds: float
    ) -> Footprint:
        """Return the case's cost; ``bytes_s`` gives the expected bandwidth of a sized phase."""
        moved = {"read": 0, "write": 0}
        timed: dict[str, float] = {}
        start_s, total_s = _START_S, _CASE_S
        if self.nodes > 1:
            start_s = _LAUNCH_S
            total_s += _LAUNCHES * _LAUNCH_S
        for times, phase in self._executed:
            way = phase.access.direction
            lasts_s = phase.lasts_s or phase_seconds
            size = phase.sized_bytes
            if way in moved:
                moved[way] += times * (phase.data_bytes or 0) * phase.samples
                if size is None:
                    timed[way] = timed.get(way, 0.0) + times * lasts_s
            moved["write"] += times * phase.stored_bytes
            seconds = 0.0
            if not phase.within:
                seconds = start_s
            if size is not None:
                seconds += size * phase.samples / bytes_s(phase)
            elif way != "none" and not phase.within:
                seconds += lasts_s
            total_s += times * seconds
        return Footprint(
            written_bytes=moved["write"],
            read_bytes=moved["read"],
            nodes=self.nodes,
            seconds=total_s,
            timed=timed,
        )
