"""Plan of a case: its phases, their command lines, their cost; expected speed of a phase, and limits of a session.

A scenario names its phases. This module turns them into lines of a job script and adds up the
footprint. Nothing here touches a file.

An estimate rests on the site's declarations, the best source first. These are the reference of the
phase's bandwidth, the ceiling times the declared efficiency, and the ceiling alone. Without any it
is :data:`ASSUMED_BYTES_S` for each node. Each estimate names its source.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal

from iogauge.core.measurement import Quantity, ToolOutput
from iogauge.node.lustre.request import DirectoryLayout, Layout, Pins

#: The case's directory on the target, and the repetition's number, in the job script.
DIR = "$IOG_DIR"
REP = "$IOG_REP"
#: The stage directory, for programs that a launcher may start elsewhere.
STAGE = "$IOG_STAGE"

#: In place of a command's first word: the agent, by the words that start it.
AGENT = "$IOG_AGENT"

#: The word of an execution, in the job script (job.sh).
TOKEN = "$IOG_TOKEN"

#: Directory of a repetition whose files are kept while others write.
SET = f"{DIR}/{REP}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """How a phase touches data, for the guards.

    ``task_offset`` shifts readers by that many nodes against the writers; None means no shift.
    ``evict`` means that the page cache is emptied before the phase. ``saturates`` names the limit
    to which the phase drives a healthy target. The ceiling, times the site's efficiency, can then
    serve as a reference. Direction ``elsewhere`` moves timed data, and none of the target. Direction
    ``none`` moves no timed data: it counts.
    """

    direction: Literal["read", "write", "metadata", "elsewhere", "none"]
    o_direct: bool = False
    fsync: bool = False
    task_offset: int | None = None
    evict: bool = False
    saturates: Literal["bandwidth", "operations"] | None = None


@dataclass(frozen=True, slots=True)
class Printed:
    """Text that one execution of a tool left: its result, its output, the times of its tasks.

    ``result`` is the tool's output file, or its standard output if it has no file. ``stdout`` is
    the other output. A launcher and its MPI library print to ``stderr`` too. ``files`` are the texts
    of the tool's folder, by their names. ``servers`` are the addresses of a Lustre's storage servers
    by the names of their targets, ``ost000a``, as far as they are known.
    """

    result: str
    stdout: str
    stderr: str
    ranks: str = ""
    files: Mapping[str, str] = field(default_factory=dict)
    servers: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Verification:
    """A tool's own check of its data: words after its command, and what it prints of wrong data.

    ``complaint`` is a regular expression, found in the line that reports wrong data. ``data_bytes``
    are the bytes that all tasks move then, None if as many as ever.
    """

    words: tuple[str, ...]
    complaint: str
    data_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class PhasePlan:
    """One execution of a tool in a repetition.

    ``command`` may contain :data:`DIR` and :data:`REP`. ``launch`` is ``tasks`` for all tasks by
    the partition's launcher, or ``once`` for the first node. It is ``clients`` for a job on the fio servers of all
    nodes, or ``parts`` for jobs on some of them, side by side. It is ``servers`` for a program on the first node
    that uses the tool's servers itself. It is ``agent`` for the agent on the first node, or ``nodes`` for the agent
    that starts others on all nodes.

    ``output`` is the tool's result file, None its standard output; ``ranks`` the file with the
    times of every task; ``folder`` a folder of further texts. Without ``parse`` only the exit status counts. ``rates`` maps a metric to
    the tool's phase and quantity. ``data_bytes`` are the bytes that all tasks move in each sample;
    None means as many as the time allows. ``stored_bytes`` is the most that the files it makes can
    hold, if making them is what is timed. ``samples`` counts repetitions that the tool does by
    itself.

    ``within`` names another phase of the repetition whose execution includes this one, which then
    has no command. ``expected`` is a regular expression for warnings of the tool that the phase
    causes on purpose. ``verifies`` is how the tool checks the data, in the warm-up alone, or when it
    prepares. ``syncs``
    means that the tool leaves metadata in memory: syncfs(2) after it belongs to its time.
    ``pauses`` means that the tool stops its clock between the first and the last byte. ``asks``
    means that the command asks the agent, whose words come after it and ``--``. ``series`` returns
    an output with figures that follow from its bytes over time, as the first node counts them. ``follows`` means
    that the phase takes as long as an earlier phase left work for it: no least time is demanded.
    ``of_devices`` means that it reads block devices past the file system.
    ``lasts_s`` are the seconds of a phase that has a time limit of its own, not the site's. ``beside`` is the direction
    of what loads the target on purpose meanwhile. ``again`` names an earlier phase that did the same. ``lays_out`` means
    that after it the files with the requested layout are there, though it moves no timed data. ``on_nodes`` is the number
    of nodes that the phase measures, None means all; others take part if something loads the target ``beside`` it.
    """

    name: str
    command: Sequence[str]
    launch: Literal[
        "tasks", "once", "clients", "parts", "servers", "agent", "nodes"
    ] = "once"
    parse: Callable[[Printed], ToolOutput] | None = None
    rates: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    access: Access = Access(direction="none")
    output: str | None = None
    ranks: str | None = None
    folder: str | None = None
    data_bytes: int | None = None
    stored_bytes: int = 0
    samples: int = 1
    within: str | None = None
    expected: str | None = None
    verifies: Verification | None = None
    syncs: bool = False
    pauses: bool = False
    asks: bool = False
    series: Callable[..., ToolOutput] | None = None
    follows: bool = False
    of_devices: bool = False
    lasts_s: float | None = None
    beside: Literal["write", "metadata"] | None = None
    again: str | None = None
    lays_out: bool = False
    on_nodes: int | None = None

    @property
    def witnessed(self) -> bool:
        """Return whether the kernel's word is wanted: the phase is timed, on the target or by a process here, or it writes
        what a timed phase reads.
        """
        way = self.access.direction
        if way == "write" and self.launch in ("once", "clients"):
            return True
        return (
            bool(self.rates)
            and (way != "elsewhere" or self.launch == "once")
            and way != "none"
        )

    @property
    def sized_bytes(self) -> int | None:
        """Return the bytes that the phase moves, or can write at most; None if the time decides."""
        writes = self.access.direction == "write"
        return (
            (self.stored_bytes or None)
            if writes and self.data_bytes is None
            else self.data_bytes
        )

    @property
    def warming(self) -> PhasePlan:
        """Return the phase as it runs in the warm-up, which may move fewer bytes."""
        fewer = self.verifies.data_bytes if self.verifies else None
        return self if fewer is None else replace(self, data_bytes=fewer)

    def also(
        self,
        name: str,
        rates: Mapping[str, tuple[str, str]],
        access: Access,
        **more: Any,
    ) -> PhasePlan:
        """Return a phase that the same execution measures, too."""
        shared = {"command": (), "within": self.name, **more}
        return replace(self, name=name, rates=rates, access=access, **shared)

    @property
    def on_servers(self) -> bool:
        """Return whether servers on the nodes do the work."""
        return self.launch in ("clients", "parts", "servers")


@dataclass(frozen=True, slots=True, kw_only=True)
class Computed:
    """A metric computed from others of the same case, sample by sample."""

    sources: tuple[str, ...]
    compute: Callable[..., Quantity]


#: Seconds of a job beside its phases, and of a phase beside its tool: as measured on two cores.
_CASE_S: Final = 2.0
_START_S: Final = 0.5
#: The same of what a launcher starts on several nodes, and how often it does so beside the phases: it asks for facts
#: three times, and for the view of all nodes.
_LAUNCH_S: Final = 1.0
_LAUNCHES: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Footprint:
    """Cost of a case; ``held_bytes`` and ``files`` (with passing files) are the most at a time."""

    held_bytes: int
    files: int
    written_bytes: int
    read_bytes: int
    nodes: int
    seconds: float

    @property
    def node_minutes(self) -> float:
        """Return the estimated node-minutes."""
        return self.nodes * self.seconds / 60


@dataclass(frozen=True, slots=True, kw_only=True)
class CasePlan:
    """Plan of a whole case: ``prepare`` once, then ``repeat`` in every repetition.

    With ``warm_up``, ``repeat`` runs once more before the first repetition; its results are kept
    and not judged (G16). ``layout`` is the layout that the case's directory passes on to its files.
    ``pins`` is the storage target of each file or directory. Either is read back after the first
    write. ``mdts`` is the number of metadata targets that have a directory of their own each, 0 for
    none. ``shared_file`` means that all tasks write one file. ``servers`` counts the object
    storage servers that hold the files, None means all. ``cyclic`` places ranks round the nodes
    instead of filling one after the other. ``restores`` means that the case changes client
    settings, which its job restores. ``sweeps_tasks`` means that the scenario varies the tasks on a
    node, beyond the cores if the site allows it. ``hinted`` means that the MPI library is asked for the
    layout, and the directory is not. ``directories`` are the layouts that are requested for directories in which the tool
    makes its files, by name; those of no request are None. They are read back before the tool starts, because it removes
    its files. ``directory_layout`` is where the directories with the tool's files shall lie.

    ``fill_bytes`` are the most that fill the target up to a level, beside ``held_bytes``: the job finds out how many it
    takes. ``below`` names the directory of the measured files in that of the case, empty if they are the only ones.

    ``writes_first`` means that all writing executions of ``repeat`` come before the first reading
    one. Each repetition then has a directory of its own, :data:`SET`, and ``held_bytes`` and
    ``files`` count all of them. ``passing_files`` are empty files that the MPI library makes for a
    moment whenever it opens a file.
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
    mdts: int = 0
    directories: Mapping[str, Layout | None] = field(default_factory=dict)
    directory_layout: DirectoryLayout | None = None
    shared_file: bool = False
    servers: int | None = None
    cyclic: bool = False
    restores: bool = False
    sweeps_tasks: bool = False
    hinted: bool = False
    fill_bytes: int = 0
    below: str = ""
    writes_first: bool = False
    #: The versions of the tools in the Spack stack that the case names, by tool; empty without a stack.
    stack_versions: Mapping[str, str] = field(default_factory=dict)

    @property
    def passes(self) -> tuple[Sequence[PhasePlan], ...]:
        """Return the repeated phases: as a whole, or the writing ones and then the others."""
        if not self.writes_first:
            return (self.repeat,)
        reads = next(
            n for n, phase in enumerate(self.repeat) if phase.access.direction == "read"
        )
        return (self.repeat[:reads], self.repeat[reads:])

    @property
    def executions(self) -> int:
        """Return how often ``repeat`` runs, the warm-up included."""
        return self.repetitions + 1 - self.first_repetition

    @property
    def directory(self) -> str:
        """Return the directory of one repetition's files, in the job script."""
        if self.writes_first:
            return SET
        return f"{DIR}/{self.below}" if self.below else DIR

    @property
    def striped(self) -> bool:
        """Return whether the case requests a layout, which is then read back."""
        return self.layout is not None or self.pins is not None

    @property
    def keeps_files(self) -> bool:
        """Return whether an execution leaves the files whose layouts are read."""
        return any(p.access.direction == "write" or p.lays_out for p in self.phases)

    @property
    def places(self) -> bool:
        """Return whether the case itself decides where its files lie: a site's pool leaves that to the file system."""
        own = self.layout is not None and self.layout != Layout(pool=self.layout.pool)
        return own or self.pins is not None

    @property
    def shared_bytes(self) -> int:
        """Return the size of the file that all tasks share, 0 if they share none."""
        return self.held_bytes // self.files if self.shared_file else 0

    def in_pool(self, pool: str | None) -> CasePlan:
        """Return the plan with its files in a pool of storage targets, if one is declared."""
        if pool is None:
            return self
        if self.pins is not None:
            return replace(self, pins=replace(self.pins, pool=pool))
        layout = replace(self.layout, pool=pool) if self.layout else Layout(pool=pool)
        return replace(self, layout=layout)

    @property
    def sampled(self) -> bool:
        """Return whether written files stay for a look at their contents after each phase.

        Of an execution that writes and reads, nothing stays.
        """
        writes = any(phase.access.direction == "write" for phase in self.phases)
        return writes and not any(phase.within for phase in self.phases)

    @property
    def pieces(self) -> int | None:
        """Return the number of parts that lie on one storage target each, or None if unknown.

        It is the number of requested stripes; at least one for each file. The target's own layout
        of a shared file is unknown.
        """
        stripes = self.layout.stripe_count if self.layout is not None else None
        files = 1 if self.shared_file else self.files
        if stripes is None:
            return None if self.shared_file else files
        return None if stripes < 1 else files * stripes

    @property
    def most_files(self) -> int:
        """Return the most files at a time on the target; directories of :data:`SET` count too."""
        return (
            self.files
            + self.passing_files
            + (self.executions if self.writes_first else 0)
        )

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
        return 0 if self.warm_up else 1

    def timed_seconds(self, phase_seconds: float) -> dict[str, float]:
        """Return the seconds of all executions of phases that end by time alone, by direction."""
        each = [(1, phase) for phase in self.prepare]
        each += [(self.executions, phase) for phase in self.repeat]
        found: dict[str, float] = {}
        for times, phase in each:
            for way in ("write", "read") if phase.sized_bytes is None else ():
                if way in (phase.access.direction, phase.beside):
                    seconds = times * (phase.lasts_s or phase_seconds)
                    found[way] = found.get(way, 0.0) + seconds
        return found

    @property
    def _overhead_s(self) -> float:
        """Return the seconds of the job beside its phases."""
        if self.nodes == 1:
            return _CASE_S
        served = any(phase.on_servers for phase in self.phases)
        return _CASE_S + (_LAUNCHES + served) * _LAUNCH_S

    def footprint(
        self, bytes_s: Callable[[PhasePlan], float], phase_seconds: float
    ) -> Footprint:
        """Return the case's cost; ``bytes_s`` gives the expected bandwidth of a sized phase."""
        each = [(1, phase) for phase in self.prepare]
        each += [(self.repetitions, phase) for phase in self.repeat]
        if self.warm_up:
            each += [(1, phase.warming) for phase in self.repeat]

        def moved(direction: str) -> int:
            matching = [
                (times, p) for times, p in each if p.access.direction == direction
            ]
            return sum(times * (p.data_bytes or 0) * p.samples for times, p in matching)

        def starting(phase: PhasePlan) -> float:
            if phase.within:
                return 0.0
            spread = self.nodes > 1 and phase.launch not in ("once", "agent")
            one = _LAUNCH_S if spread else _START_S
            # A look at all nodes before and after what servers do, and an eviction on all of them.
            looks = 2 * _LAUNCH_S if phase.on_servers and phase.witnessed else 0.0
            evicts = (
                (_LAUNCH_S if self.nodes > 1 else _START_S)
                if phase.access.evict
                else 0.0
            )
            return one + looks + evicts

        def seconds(phase: PhasePlan) -> float:
            start = starting(phase)
            if (size := phase.sized_bytes) is not None:
                return start + size * phase.samples / bytes_s(phase)
            timed = phase.access.direction != "none" and not phase.within
            return start + ((phase.lasts_s or phase_seconds) if timed else 0.0)

        return Footprint(
            held_bytes=self.held_bytes + self.fill_bytes,
            files=self.most_files,
            written_bytes=moved("write")
            + sum(times * p.stored_bytes for times, p in each),
            read_bytes=moved("read"),
            nodes=self.nodes,
            seconds=self._overhead_s
            + sum(times * seconds(phase) for times, phase in each),
        )
