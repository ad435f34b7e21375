"""What a case will do, before it does it: phases, their command lines, their cost.

A scenario says which phases it has; this module turns them into the lines of a job script and adds up the
footprint. Nothing here touches a file.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from iogauge.core.measurement import Quantity, ToolOutput
from iogauge.node.layouts import Layout, Pins

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


def access_of(plan: CasePlan, metric: str) -> Access:
    """How the phase that yields a metric touches data; a computed metric touches none."""
    found = (phase.access for phase in plan.repeat if metric in phase.rates)
    return next(found, Access(direction="none"))
