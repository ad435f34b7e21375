"""Base classes of the scenarios that run IOR: write, then read, in two executions. Each task writes its own file, or all write
one together.

With two executions the page cache can be emptied between them, and a failure names its phase.
Readers are shifted to the next node (``-C -Q 1``) if there are two nodes or more. Each then reads
data that another node wrote. If a document printed another command, the scenario offers it as
variant ``published``: one execution, word for word, judged by the same guards.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge.cases.storage import StorageCheck
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.core.units import format_bytes, tool_size
from iogauge.core.vocabulary import IOR
from iogauge.evidence.model import SECONDS
from iogauge.node.lustre.request import Layout, Pins
from iogauge.plan import case
from iogauge.tools.ior.ior_options import MISMATCH, IorOptions
from iogauge.tools.ior.ior_output import parse_json, with_rank_times

WRITE = Metric("write_bw", "MiB/s")
READ = Metric("read_bw", "MiB/s")
WRITE_IOPS = Metric("write_iops", "ops/s")
READ_IOPS = Metric("read_iops", "ops/s")

#: Transfers up to this size also count as operations.
_SMALL = 64 << 10

#: IOR's warning of files that exist already; -E does not silence it.
_EXISTS = r"exists already and will be overwritten"
#: What it says of every file that PnetCDF makes, which is made to be written and read.
_WRITE_ONLY = r"File write only not implemented in NCMPI"


def _parse(printed: case.Printed) -> ToolOutput:
    # IOR complains on standard output; text on standard error may be the MPI library's.
    output = parse_json(printed.result, printed.stdout)
    if not printed.ranks:
        return output
    return with_rank_times(output, printed.ranks)


def _option(words: Sequence[str], flag: str) -> str | None:
    """Return the value of an IOR option in ``-i 3`` or ``-i=3``; a flag gives the next word."""
    for word, after in zip(words, [*words[1:], ""], strict=True):
        if word == flag:
            return after
        if word.startswith(f"{flag}="):
            return word.partition("=")[2]
    return None


class IorCheck(StorageCheck):
    """IOR with a combination of API, files, order and cache; a subclass sets them."""

    #: Transfer size, bytes; 0: as the scenario says.
    #: :type: int
    transfer_bytes = builtins.variable(int, value=0)

    #: Bytes that all tasks together write, and read, in a repetition; 0: the scenario's share of
    #: the limits.
    #: :type: int
    total_bytes = builtins.variable(int, value=0)

    needs = IOR
    #: IOR's back end.
    back_end: str = "POSIX"
    #: A file for each task, or a file that all tasks share.
    file_per_process: bool = True
    #: Offsets in a shuffled order, or ascending.
    random: bool = False
    #: O_DIRECT, or through the page cache. O_DIRECT needs the partition's feature ``o_direct``.
    o_direct: bool = False
    #: All tasks take part in each transfer (MPI-IO and the libraries that use it).
    collective: bool = False
    #: Transfer size, bytes.
    transfer: int = 1 << 20
    #: Divisor: the scenario writes and reads this fraction of ``limits.case_bytes``.
    share: int = 1
    #: Written data are read.
    reads: bool = True
    #: What the seconds of a direction are called, if they are what counts: then no limit of the target is expected.
    times: Mapping[str, Metric] = MappingProxyType({})
    #: A task's file is a sequence of blocks of one transfer each (``-s``).
    segmented: bool = False
    #: A repetition that is not judged comes first.
    warm_up: bool = True
    #: Divisor: the warm-up of a segmented scenario writes this fraction of the bytes, and checks them.
    warm_up_part: int = 1
    #: The scenario varies the tasks on a node, which may exceed its cores.
    sweeps_tasks: bool = False
    #: Hints to the MPI library ask for the layout.
    hinted: bool = False
    #: Words after ``ior`` in the document. ``{file}``, ``{summary}`` and the sizes ``{transfer}``,
    #: ``{block}``, ``{segments}`` and ``{tasks}`` (on a node) are filled in.
    published: str = ""
    #: Ranks go round the nodes in the published form (``--map-by node``).
    published_cyclic: bool = False

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, and the scenario's sizes."""
        return {
            **super().declared(),
            "transfer_bytes": self.transfer,
            "total_bytes": self.site.limits.case_bytes // self.share,
        }

    def promise(self) -> tuple[Metric, ...]:
        """Return both bandwidths, and the operations if transfers are small; seconds first, if they count."""
        metrics = [*self.times.values(), WRITE]
        if self.reads:
            metrics.append(READ)
        if self.transfer <= _SMALL:
            metrics.append(WRITE_IOPS)
            if self.reads:
                metrics.append(READ_IOPS)
        return tuple(metrics)

    def layout(self) -> Layout | None:
        """Return the layout that the case's directory gives its files, or None for the target's."""
        return None

    def pins(self) -> Pins | None:
        """Return the storage target of each file, or None if the target chooses."""
        return None

    def servers_used(self) -> int | None:
        """Return the number of object storage servers that hold the files, or None for all."""
        return None

    def tool_words(self) -> Sequence[str]:
        """Return the words that start the tool, before its arguments."""
        return ["ior"]

    def file_name(self, task: int) -> str:
        """Return the name of a task's file in the case's directory (aiori's ``%s.%08d``)."""
        if self.file_per_process:
            return f"data.{task:08d}"
        return "data"

    def bytes_of_task(self) -> int:
        """Return a task's share of the bytes, whole transfers; raises ValueError if it is too small."""
        transfer = self.transfer_bytes
        block = int(self.total_bytes // self.total_tasks // transfer * transfer)
        if block < 2 * transfer:
            # The scenario's files are this fraction of what the site allows.
            fraction = self.site.limits.case_bytes // max(1, self.total_bytes)
            least = 2 * transfer * self.total_tasks
            remedy = (
                f"raise limits.case_bytes to {format_bytes(least * max(1, fraction))}"
            )
            if "total_bytes" in self._overridden:
                remedy = f"set total_bytes to {least} at least"
            raise ValueError(
                f"{format_bytes(self.total_bytes)} for {self.total_tasks} task(s) leave less than two "
                f"transfers of {format_bytes(transfer)} each: {remedy} or lower the tasks"
            )
        return block

    def options(self) -> IorOptions:
        """Return the options of both phases; raises ValueError if the sizes do not fit."""
        transfer, block = self.transfer_bytes, self.bytes_of_task()
        options = IorOptions(
            api=self.back_end,
            test_file=f"{case.DIR}/data",
            transfer_bytes=transfer,
            block_bytes=block,
            file_per_process=self.file_per_process,
            random_offsets=self.random,
            o_direct=self.o_direct,
            collective=self.collective,
            barriers=True,
            keep=True,
        )
        if self.segmented:
            options = replace(options, block_bytes=transfer, segments=block // transfer)
        if self.site.target.compresses:
            # IOR's default data repeat in every block, and a target that compresses would store almost nothing.
            options = replace(options, data_type="random")
        return options

    def _rates(self, direction: str) -> dict[str, tuple[str, str]]:
        """Return the metrics of a direction, each with its phase and quantity in IOR's output."""
        rates = {f"{direction}_bw": (direction, "bw")}
        if self.transfer <= _SMALL:
            rates[f"{direction}_iops"] = (direction, "iops")
        if direction in self.times:
            rates[self.times[direction].name] = (direction, SECONDS)
        return rates

    def _verification(
        self, options: IorOptions, read_back: bool = False
    ) -> case.Verification | None:
        """Return how the warm-up checks the data of an execution, or None without a warm-up.

        A warm-up of fewer segments names them after the others: IOR takes the last number.
        """
        if not self.warm_up:
            return None
        words = options.verification(read_back)
        if self.warm_up_part == 1:
            return case.Verification(words, MISMATCH)
        segments = max(1, options.segments // self.warm_up_part)
        fewer = replace(options, segments=segments).bytes_per_task * self.total_tasks
        return case.Verification((*words, "-s", str(segments)), MISMATCH, fewer)

    def _expected(self, overwrites: bool) -> str | None:
        """Return the warnings of IOR that are no fault, as a pattern."""
        known = [_EXISTS] * overwrites + [_WRITE_ONLY] * (self.back_end == "NCMPI")
        return "|".join(known) or None

    def ior_phase(
        self,
        name: str,
        options: IorOptions,
        access: case.Access,
        words: Sequence[str] = (),
        verifies: case.Verification | None = None,
    ) -> case.PhasePlan:
        """Return one execution of IOR; ``words`` replace those of :meth:`tool_words`."""
        stem = f"ior-{name}.{case.REP}"
        output, ranks = f"{stem}.json", f"{stem}.ranks.csv"
        rates = {}
        if name in ("write", "read"):
            rates = self._rates(name)
        options = replace(options, summary_file=output, rank_details_csv=ranks)
        return case.PhasePlan(
            name=name,
            command=[*(words or self.tool_words()), *options.arguments()],
            launch="tasks",
            parse=_parse,
            rates=rates,
            access=access,
            output=output,
            ranks=ranks,
            data_bytes=options.bytes_per_task * self.total_tasks,
            expected=self._expected(options.use_existing),
            verifies=verifies,
        )

    def _access(self, direction: Literal["read", "write"]) -> case.Access:
        access = case.Access(direction=direction, o_direct=self.o_direct)
        # A sweep's points below the site's own number of tasks need not drive the target to its limit.
        few = self.sweeps_tasks and self.tasks_per_node < self.site.scale.tasks_per_node
        if self.transfer > _SMALL and not self.times and not few:
            access = replace(access, saturates="bandwidth")
        return access

    def sound_phases(self, options: IorOptions) -> list[case.PhasePlan]:
        """Write with fsync, empty the page cache if readers would find it full, and read."""
        writer = replace(
            options, write=True, fsync=True, use_existing=self.pins() is not None
        )
        write = self.ior_phase(
            "write",
            writer,
            replace(self._access("write"), fsync=True),
            verifies=self._verification(writer, read_back=not self.reads),
        )
        if not self.reads:
            return [write]
        reader = replace(options, read=True)
        access = self._access("read")
        # IOR refuses to reorder tasks over shuffled offsets in a shared file. Through PnetCDF each task reads its own part all
        # the same, and finds wrong data in it (aiori-NCMPI.c has no rankOffset there).
        shift = self.nodes >= 2 and (self.file_per_process or not self.random)
        if shift and self.back_end != "NCMPI":
            reader = replace(reader, reorder_tasks=True, task_offset=1)
            access = replace(access, task_offset=1)
        else:
            access = replace(access, evict=not self.o_direct)
        verifies = self._verification(reader)
        return [write, self.ior_phase("read", reader, access, verifies=verifies)]

    def published_phases(self, options: IorOptions) -> list[case.PhasePlan]:
        """Return the document's command as one execution."""
        output = f"ior-write.{case.REP}.json"
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
        access = replace(self._access("write"), fsync=_option(words, "-e") is not None)
        write = case.PhasePlan(
            name="write",
            command=["ior", *words],
            launch="tasks",
            parse=_parse,
            rates=self._rates("write"),
            access=access,
            output=output,
            data_bytes=options.bytes_per_task * self.total_tasks,
            samples=int(_option(words, "-i") or 1),
            expected=self._expected(_option(words, "-E") is not None),
        )
        if not self.reads:
            return [write]
        reads = self._access("read")
        if _option(words, "-C") is not None:
            reads = replace(reads, task_offset=int(_option(words, "-Q") or 1))
        return [write, write.also("read", self._rates("read"), reads)]

    def plan(self) -> case.CasePlan:
        """Return the plan of the current variant."""
        options = self.options()
        published = self.variant == "published"
        kept = 1
        if published:
            phases = self.published_phases(options)
            if {"-m", "-k"} <= set(phases[0].command):
                kept = phases[0].samples
        else:
            phases = self.sound_phases(options)
        files = 1
        if self.file_per_process:
            files = self.total_tasks
        # Each rank of Open MPI makes FILE.locktest.RANK when it opens a file, to test locks (its component
        # sharedfp/lockedfile). On a file system with an MDS each such file is a create and an unlink.
        passing_files = self.total_tasks
        if self.back_end == "POSIX":
            passing_files = 0
        held_bytes = options.bytes_per_task * self.total_tasks * kept
        plan = replace(
            self.case("ior", phases, held_bytes, files * kept),
            warm_up=self.warm_up and not published,
            passing_files=passing_files,
            layout=self.layout(),
            pins=self.pins(),
            shared_file=not self.file_per_process,
            servers=self.servers_used(),
            cyclic=published and self.published_cyclic,
            sweeps_tasks=self.sweeps_tasks,
            hinted=self.hinted,
        )
        if published:
            plan = replace(plan, repetitions=1)
        return plan


class PinnedFilesCheck(IorCheck):
    """A file for each task, each on one storage target, round robin, if Lustre stripes them."""

    def pins(self) -> Pins | None:
        """Return a target for every task's file, or None if nothing is striped."""
        if self.site.target.striped_by != "lustre":
            return None
        return Pins(
            names=tuple(self.file_name(task) for task in range(self.total_tasks)),
            kind="file",
            servers=self.servers_used(),
        )
