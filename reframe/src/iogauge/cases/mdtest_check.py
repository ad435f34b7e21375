"""Base classes of the scenarios that run mdtest.

mdtest creates, stats, reads and removes, each in its own execution.
The parameters are IO500's. A later phase reads the number of created items from the stonewall
status file. ``-N 1`` shifts the tasks by one node before the stat, and once more before the read. On
one node tasks cannot be shifted, and on two the read comes back to who wrote. Data are then read after
the page cache was emptied. On one node stat is left out: it would measure the client's own cache, which
an ordinary user cannot empty.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.node.lustre.request import Layout
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan, Printed
from iogauge.tools.mdtest import MdtestOptions, parse

CREATE = Metric("create_rate", "ops/s")
STAT = Metric("stat_rate", "ops/s")
READ = Metric("read_rate", "ops/s")
REMOVE = Metric("remove_rate", "ops/s")

#: A repetition does not use the directory of the one before again: the clients of a network keep a name for a second or more.
_TREE: Final = f"{DIR}/tree.{REP}"

#: Seed of the data pattern (-G), the same in the writing and the verifying execution.
_SIGNATURE = 1181783497
#: How most phases touch data.
_METADATA: Final = Access(direction="metadata")


def _parse(printed: Printed) -> ToolOutput:
    return parse(printed.result, printed.ranks)


def reading(nodes: int) -> Access:
    """Return how files are read on so many nodes; two shifts on two nodes come back to who wrote them."""
    if nodes < 3:
        return Access(direction="read", evict=True)
    return Access(direction="read", task_offset=1, shifts=2)


def _counting(file_bytes: int) -> Callable[[Printed], ToolOutput]:
    """Return a parser that also tells the bytes of files that were read whole: mdtest counts files."""

    def parse(printed: Printed) -> ToolOutput:
        output = _parse(printed)
        phases = []
        for phase in output.phases:
            if phase.operations:
                phase = replace(phase, bytes_moved=phase.operations * file_bytes)
            phases.append(phase)
        return replace(output, phases=tuple(phases))

    return parse


class MdtestCheck(StorageCheck):
    """mdtest over files; a subclass sets the layout of the tree and the size of a file."""

    needs = vocabulary.MDTEST
    #: Divisor: the scenario uses this fraction of the case's files.
    share: int = 1
    #: Bytes in each file; with 0 nothing is read back.
    file_bytes: int = 0
    #: Options of mdtest for the tree, see :class:`iogauge.tools.mdtest.MdtestOptions`.
    tree: Mapping[str, Any] = MappingProxyType({})
    #: Layout that is requested for the files, read back from each of them; None means the target's own.
    layout: Layout | None = None

    def promise(self) -> tuple[Metric, ...]:
        """Return the rates of the phases; the plan has a stat on two nodes or more."""
        if self.file_bytes:
            return (CREATE, STAT, READ, REMOVE)
        return (CREATE, STAT, REMOVE)

    @property
    def items_per_task(self) -> int:
        """Return the files that each task may make; raises ValueError if the limits allow none."""
        limits, tasks = self.site.limits, self.total_tasks
        files = limits.case_files // self.share
        if self.file_bytes:
            files = min(files, limits.case_bytes // max(self.file_bytes, 4096))
        if files < tasks:
            raise ValueError(
                f"limits.case_files is {limits.case_files} and limits.case_bytes {limits.case_bytes}: expected "
                f"one file of {self.file_bytes} bytes at least for each of {tasks} task(s)"
            )
        return int(files // tasks)

    def plan(self) -> CasePlan:
        """Create until the stonewall or the last item, then stat, read and remove the items."""
        files = self.items_per_task * self.total_tasks
        held_bytes = files * self.file_bytes
        options = self._options()
        creating = replace(options, create=True, sync_phase=True)
        create = self._phase("create", CREATE, _METADATA, creating)
        phases = [
            replace(
                create,
                stored_bytes=held_bytes,
                syncs=CREATE in self.promise(),
                lays_out=self.layout is not None,
            )
        ]
        if self.nodes >= 2 and STAT in self.promise():
            access = replace(_METADATA, task_offset=1)
            looking = replace(options, stat=True)
            phases.append(self._phase("stat", STAT, access, looking))
        if self.file_bytes:
            verifying = replace(options, read=True, verify_read=True)
            read = self._phase("read", READ, reading(self.nodes), verifying)
            phases.append(self._counted(read))
            held_bytes = max(held_bytes, 4096 * files)
        removing = replace(options, remove=True)
        remove = self._phase("remove", REMOVE, _METADATA, removing)
        phases.append(replace(remove, syncs=REMOVE in self.promise()))
        case = self.case(
            "mdtest",
            phases,
            held_bytes=held_bytes,
            files=files + self.total_tasks + 2,
        )
        return replace(case, layout=self.layout)

    def _options(self) -> MdtestOptions:
        """Return the options of all executions."""
        options = MdtestOptions(
            directory=_TREE,
            files_only=True,
            write_bytes=self.file_bytes,
            read_bytes=self.file_bytes,
            items=self.items_per_task,
            stride=1,
            stonewall_status_file=f"mdtest.{REP}.stonewall",
            data_type="timestamp",
            **self.tree,
        )
        if self.file_bytes:
            options = replace(options, signature=_SIGNATURE)
        return options

    def _phase(
        self, name: str, metric: Metric, access: Access, options: MdtestOptions
    ) -> PhasePlan:
        """Return an execution of mdtest."""
        ranks = f"mdtest-{name}.{REP}.ranks.csv"
        options = replace(options, rank_details_csv=ranks)
        if options.create:
            wall_s = max(1, int(self.site.limits.phase_seconds))
            options = replace(options, stonewall_s=wall_s)
        rates = {}
        if metric in self.promise():
            rates[metric.name] = (name, "rate")
        return PhasePlan(
            name=name,
            command=["mdtest", *options.arguments()],
            launch="tasks",
            parse=_parse,
            rates=rates,
            access=access,
            ranks=ranks,
        )

    def _counted(self, read: PhasePlan) -> PhasePlan:
        """Return the phase of the reads, which claims the bytes of the files that it reads.

        mdtest's data compress well. With a layout for
        small files (Data on MDT), Lustre sends the data with the answer to open(2): no counter of a client has them.
        """
        target = self.site.target
        if target.compresses or target.striped_by == "lustre":
            return read
        return replace(read, parse=_counting(self.file_bytes))
