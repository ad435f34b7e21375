"""Base class of the scenarios that run IOR: write, then read, each its own execution.

The two phases are separate executions so that the page cache can be emptied between them, and so that a
failure names its phase. Readers are shifted to the next node (``-C -Q 1``) where there are two or more:
each then reads what another node wrote. A scenario that a document printed another command for offers that
as variant ``published``: one execution, word for word, with what the guards then say of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge.check.storage import StorageCheck
from iogauge.core.measurement import Metric, Reference, ToolOutput
from iogauge.core.units import tool_size
from iogauge.core.words import DARSHAN, IOR, IOR_HDF5, IOR_MPIIO, IOR_NCMPI
from iogauge.node.layouts import Layout, Pins
from iogauge.plan.case import DIR, REP, SET, Access, CasePlan, PhasePlan, Printed
from iogauge.tools import darshan, mpi
from iogauge.tools.ior.options import IorOptions
from iogauge.tools.ior.output import parse_json, rank_times_csv, with_rank_times

WRITE = Metric("write_bw", "MiB/s")
READ = Metric("read_bw", "MiB/s")
WRITE_IOPS = Metric("write_iops", "ops/s")
READ_IOPS = Metric("read_iops", "ops/s")
WRITERS = Metric("writers", "1")

#: Transfers up to this size are counted as operations, too.
_SMALL = 64 << 10

#: IOR's warning of files that are there, also where -E says that they shall be.
_EXISTS = r"exists already and will be overwritten"


def _parse(printed: Printed) -> ToolOutput:
    # IOR complains on standard output; what stands on standard error may be the MPI library's.
    output = parse_json(printed.result, printed.stdout)
    if not printed.ranks:
        return output
    return with_rank_times(output, rank_times_csv(printed.ranks, output.tasks))


def _option(words: Sequence[str], flag: str) -> str | None:
    """Value of one of IOR's options in ``-i 3`` or ``-i=3``; a flag without a value gives the next word."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


class IorCheck(StorageCheck):
    """IOR with one combination of API, files, order and cache; a subclass sets them."""

    #: Transfer size, bytes; 0: as the scenario says.
    #: :type: int
    transfer_bytes = builtins.variable(int, value=0)

    #: Bytes that all tasks together write, and read, in a repetition; 0: the scenario's share of what the
    #: limits allow.
    #: :type: int
    total_bytes = builtins.variable(int, value=0)

    needs = IOR
    #: IOR's back end.
    back_end: str = "POSIX"
    #: A file for each task, or one that all share.
    file_per_process: bool = True
    #: Offsets in a shuffled order, or one after the other.
    random: bool = False
    #: O_DIRECT, or through the page cache. Ask for the feature ``o_direct`` of the partition with it.
    o_direct: bool = False
    #: All tasks take part in each transfer (MPI-IO and what stands on it).
    collective: bool = False
    #: Transfer size, bytes.
    transfer: int = 1 << 20
    #: The scenario writes and reads one part in so many of ``limits.case_bytes``.
    share: int = 1
    #: What was written is read.
    reads: bool = True
    #: One block after the other of each task's file, a block being one transfer (``-s``).
    segmented: bool = False
    #: A repetition more goes before those that are judged.
    warm_up: bool = True
    #: The tasks on a node are what the scenario varies: there may be more than cores.
    sweeps_tasks: bool = False
    #: Words after ``ior`` in the document; ``{file}``, ``{summary}`` and the sizes ``{transfer}``,
    #: ``{block}``, ``{segments}`` and ``{tasks}`` (on a node) are filled in.
    published: str = ""
    #: Ranks go round the nodes in the published form (``--map-by node``).
    published_cyclic: bool = False

    def declared(self) -> dict[str, Any]:
        """As for every check, and the scenario's order and sizes.

        Where all writes come first, the files of all repetitions together hold what the limits allow.
        """
        limits, order = self.site.limits, {}
        if self.reads and self.variant != "published":
            order = {"writes_first": "yes" if limits.writes_first else "no"}
        first = (self.writes_first or order.get("writes_first")) == "yes" and bool(order)
        sets = (self.repetitions or limits.repetitions) + self.warm_up if first else 1
        return {
            **super().declared(),
            **order,
            "transfer_bytes": self.transfer,
            "total_bytes": limits.case_bytes // self.share // max(sets, 1),
        }

    def promise(self) -> tuple[Metric, ...]:
        """Bandwidth of writing and of reading; operations where they are small."""
        small = self.transfer <= _SMALL
        return (
            WRITE,
            *((READ,) if self.reads else ()),
            *((WRITE_IOPS,) if small else ()),
            *((READ_IOPS,) if small and self.reads else ()),
        )

    @property
    def _writes_first(self) -> bool:
        """Whether all repetitions write before the first one reads."""
        return self.writes_first == "yes" and self.reads and self.variant != "published"

    def layout(self) -> Layout | None:
        """Layout that the case's directory hands on to its files; None: as the target has it."""
        return None

    def pins(self) -> Pins | None:
        """Storage target of each file; None: as the target chooses."""
        return None

    def servers_used(self) -> int | None:
        """Object storage servers that hold the files; None: all."""
        return None

    def tool_words(self) -> Sequence[str]:
        """The tool as a job starts it: words before its arguments."""
        return ["ior"]

    def file_name(self, task: int) -> str:
        """Name of a task's file below the case's directory (aiori's ``%s.%08d``)."""
        return f"data.{task:08d}" if self.file_per_process else "data"

    def options(self) -> IorOptions:
        """What both phases have in common; raises ValueError where the sizes do not fit."""
        transfer = self.transfer_bytes
        block = self.total_bytes // self.total_tasks // transfer * transfer
        if block < 2 * transfer:
            raise ValueError(
                f"{self.total_bytes} bytes for {self.total_tasks} task(s) leave less than two transfers "
                f"of {transfer} bytes each: raise limits.case_bytes or lower the tasks"
            )
        return IorOptions(
            api=self.back_end,
            test_file=f"{SET if self._writes_first else DIR}/data",
            transfer_bytes=transfer,
            block_bytes=transfer if self.segmented else block,
            segments=block // transfer if self.segmented else 1,
            file_per_process=self.file_per_process,
            random_offsets=self.random,
            o_direct=self.o_direct,
            collective=self.collective,
            # IOR's usual data are alike in every block: a target that compresses would store next to nothing.
            data_type="random" if self.site.target.compresses else None,
            barriers=True,
            keep=True,
        )

    def _rates(self, direction: str) -> dict[str, tuple[str, str]]:
        """Metrics of a direction, and where IOR says them."""
        found = {f"{direction}_bw": (direction, "bw")}
        if self.transfer <= _SMALL:
            found[f"{direction}_iops"] = (direction, "iops")
        return found

    def ior_phase(
        self, name: str, options: IorOptions, access: Access, words: Sequence[str] = ()
    ) -> PhasePlan:
        """One execution of IOR; ``words`` start the tool where that is not the scenario's usual way."""
        output, ranks = f"ior-{name}.{REP}.json", f"ior-{name}.{REP}.ranks.csv"
        options = replace(options, summary_file=output, rank_details_csv=ranks)
        return PhasePlan(
            name=name,
            command=[*(words or self.tool_words()), *options.arguments()],
            launch="tasks",
            parse=_parse,
            rates=self._rates(name) if name in ("write", "read") else {},
            access=access,
            output=output,
            ranks=ranks,
            data_bytes=options.bytes_per_task * self.total_tasks,
            expected=_EXISTS if options.use_existing else None,
        )

    def _access(self, direction: Literal["read", "write"], **more: Any) -> Access:
        full: Literal["bandwidth"] | None = "bandwidth" if self.transfer > _SMALL else None
        return Access(direction=direction, o_direct=self.o_direct, saturates=full, **more)

    def sound_phases(self, options: IorOptions) -> list[PhasePlan]:
        """Write with fsync, empty the page cache where the readers would find it full, read."""
        write = self.ior_phase(
            "write",
            replace(options, write=True, fsync=True, use_existing=self.pins() is not None),
            self._access("write", fsync=True),
        )
        if not self.reads:
            return [write]
        # IOR refuses to reorder tasks over shuffled offsets in a shared file.
        shift = self.nodes >= 2 and (self.file_per_process or not self.random)
        reader: dict[str, Any] = {"reorder_tasks": True, "task_offset": 1} if shift else {}
        read = self.ior_phase(
            "read",
            replace(options, read=True, **reader),
            self._access(
                "read",
                task_offset=1 if shift else None,
                evict=not shift and not self.o_direct,
            ),
        )
        return [write, read]

    def published_phases(self, options: IorOptions) -> list[PhasePlan]:
        """The document's command, as one execution."""
        output = f"ior-write.{REP}.json"
        filled = self.published.format(
            file=options.test_file,
            summary=output,
            transfer=tool_size(options.transfer_bytes),
            block=tool_size(options.block_bytes),
            segments=options.segments,
            tasks=self.tasks_per_node,
            shift=self.tasks_per_node + 1,
        )
        words = filled.split()
        shifted = _option(words, "-C") is not None
        write = PhasePlan(
            name="write",
            command=["ior", *words],
            launch="tasks",
            parse=_parse,
            rates=self._rates("write"),
            access=self._access("write", fsync=_option(words, "-e") is not None),
            output=output,
            data_bytes=options.bytes_per_task * self.total_tasks,
            samples=int(_option(words, "-i") or 1),
            expected=_EXISTS if _option(words, "-E") is not None else None,
        )
        if not self.reads:
            return [write]
        read = replace(
            write,
            name="read",
            command=(),
            rates=self._rates("read"),
            access=self._access(
                "read", task_offset=int(_option(words, "-Q") or 1) if shifted else None
            ),
            within="write",
        )
        return [write, read]

    def plan(self) -> CasePlan:
        """The scenario in the variant at hand."""
        options = self.options()
        published = self.variant == "published"
        data = options.bytes_per_task * self.total_tasks
        phases = self.published_phases(options) if published else self.sound_phases(options)
        kept = phases[0].samples if {"-m", "-k"} <= set(phases[0].command) else 1
        if self._writes_first:
            kept = self.repetitions + self.warm_up
        return CasePlan(
            tool="ior",
            repetitions=1 if published else self.repetitions,
            warm_up=self.warm_up and not published,
            writes_first=self._writes_first,
            tasks=self.total_tasks,
            nodes=self.nodes,
            repeat=phases,
            held_bytes=data * kept,
            files=(self.total_tasks if self.file_per_process else 1) * kept,
            # Each rank of Open MPI makes FILE.locktest.RANK when it opens a file, to see whether locks work
            # (its component sharedfp/lockedfile); on a file system with an MDS each is a create and an unlink.
            passing_files=0 if self.back_end == "POSIX" else self.total_tasks,
            layout=self.layout(),
            pins=self.pins(),
            shared_file=not self.file_per_process,
            servers=self.servers_used(),
            cyclic=published and self.published_cyclic,
            sweeps_tasks=self.sweeps_tasks,
        )


class PinnedFilesCheck(IorCheck):
    """A file for each task, each on one storage target, round robin, where Lustre stripes them."""

    def pins(self) -> Pins | None:
        """A target for every task's file; where nothing is striped, the target has but one."""
        if self.site.target.striped_by != "lustre":
            return None
        return Pins(
            names=tuple(self.file_name(task) for task in range(self.total_tasks)),
            kind="file",
            stripe_bytes=None,
            servers=self.servers_used(),
        )


class SharedFileCheck(IorCheck):
    """A collective write of one file through MPI-IO or a library that stands on it.

    The tasks' transfers alternate in the file, as the rows of a distributed array do: where each task has a
    part of its own, MPI libraries leave out the aggregators (OMPIO writes from every rank then).
    """

    back_end = "MPIIO"
    file_per_process = False
    collective = True
    segmented = True
    reads = False
    tags = {"ior", "mpiio", "striping", "weekly", "acceptance"}

    needs = IOR_MPIIO

    def choose_back_end(self, api: str) -> None:
        """Use one of IOR's back ends, where the environment has it."""
        self.back_end = api
        feature = {"HDF5": IOR_HDF5, "NCMPI": IOR_NCMPI}
        self.valid_prog_environs = [f"+{feature.get(api, IOR_MPIIO)}"]


class AggregatorsCheck(SharedFileCheck):
    """A collective write with a given number of writers; a subclass sets ``aggregators``.

    The bandwidth is measured without Darshan; an execution more, under Darshan, counts the ranks that wrote.
    On Lustre the file has as many stripes as it has writers.
    """

    aggregators: int

    @builtins.run_after("init")
    def _select_darshan(self) -> None:
        self.valid_prog_environs = [f"+{IOR_MPIIO} +{DARSHAN}"]

    def promise(self) -> tuple[Metric, ...]:
        """Bandwidth, and how many ranks wrote."""
        return (WRITE, WRITERS)

    def standing_references(self) -> dict[str, Reference]:
        """As many ranks write as the hints ask for."""
        asked = Reference(
            self.aggregators, 0.0, 0.0, WRITERS.unit, "the number that the hints ask for"
        )
        return {WRITERS.name: asked}

    def layout(self) -> Layout | None:
        """As many stripes as writers, where Lustre stripes files."""
        if self.site.target.striped_by != "lustre":
            return None
        return Layout(stripe_count=self.aggregators)

    def _hints(self) -> dict[str, str]:
        """Hints in the words of the environment's MPI; raises ValueError where that is not known."""
        dialect = self.current_environ.extras.get("mpi")
        if dialect is None:
            raise ValueError(
                f"environment {self.current_environ.name!r} does not say whose MPI-IO hints its MPI "
                f"understands: set extras.mpi to one of {', '.join(mpi.DIALECTS)}"
            )
        return mpi.environment(
            dialect, mpi.MpiHints(aggregators=self.aggregators), nodes=self.nodes
        )

    def tool_words(self) -> Sequence[str]:
        """IOR with the hints in its environment."""
        return ["env", *(f"{name}={value}" for name, value in self._hints().items()), "ior"]

    def sound_phases(self, options: IorOptions) -> list[PhasePlan]:
        """Write; write once more under Darshan; let Darshan's parser say who wrote."""
        log = f"darshan.{REP}.log"
        watched = darshan.run_words(str(self.current_environ.extras["darshan"]), log)
        (write,) = super().sound_phases(options)
        again = self.ior_phase(
            "watched",
            replace(options, write=True, fsync=True),
            self._access("write", fsync=True),
            [*watched, *self.tool_words()],
        )
        count = PhasePlan(
            name="writers",
            command=["darshan-parser", log],
            launch="once",
            parse=lambda printed: darshan.as_output(printed.result, self.file_name(0)),
            rates={WRITERS.name: ("writers", "writers")},
            access=Access(direction="none"),
        )
        return [write, again, count]
