"""Base classes of the scenarios that run mdtest.

mdtest creates, stats, reads and removes, each in its own execution.
The parameters are IO500's. A later phase reads the number of created items from the stonewall
status file. ``-N 1`` shifts the tasks by one node between phases. On one node tasks cannot be
shifted. Data are then read after the page cache was emptied. Stat is left out: it would measure the
client's own cache, which an ordinary user cannot empty.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import words
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.evidence.model import DIRECTORIES_FOUND
from iogauge.node.lustre.request import DirectoryLayout, Layout
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan, Printed
from iogauge.plan.stage import STRIPE_DIRECTORY
from iogauge.tools.mdtest import (
    MdtestOptions,
    parse_rank_csv,
    parse_table,
    with_rank_times,
)
from iogauge.tools.parsing import answer

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
    output = parse_table(printed.result)
    return with_rank_times(output, parse_rank_csv(printed.ranks, output.tasks))


def _counting(file_bytes: int) -> Callable[[Printed], ToolOutput]:
    """Return a parser that also tells the bytes of files that were read whole: mdtest counts files."""

    def parse(printed: Printed) -> ToolOutput:
        output = _parse(printed)
        phases = [
            replace(phase, bytes_moved=phase.operations * file_bytes)
            if phase.operations
            else phase
            for phase in output.phases
        ]
        return replace(output, phases=tuple(phases))

    return parse


def files_of_each(
    check: StorageCheck, share: int, file_bytes: int, directories: int = 1
) -> int:
    """Return the files of each task, as many in each directory; raises ValueError if the limits allow none.

    ``share`` is the fraction of the case's files that all tasks may make, ``file_bytes`` the bytes of a file.
    """
    limits, tasks = check.site.limits, check.total_tasks
    files = limits.case_files // share
    if file_bytes:
        files = min(files, limits.case_bytes // max(file_bytes, 4096))
    items = int(files // tasks // directories * directories)
    if items < 1:
        raise ValueError(
            f"limits.case_files is {limits.case_files} and limits.case_bytes {limits.case_bytes}: expected "
            f"one file of {file_bytes} bytes at least for each of {tasks} task(s) in each "
            f"of {directories} directories"
        )
    return items


class MdtestCheck(StorageCheck):
    """mdtest over files; a subclass sets the layout of the tree and the size of a file."""

    needs = words.MDTEST
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
        return (CREATE, STAT, *((READ,) if self.file_bytes else ()), REMOVE)

    @property
    def directories(self) -> int:
        """Return the directories of the tree that hold files."""
        branching, depth = self.tree.get("branching", 1), self.tree.get("depth", 0)
        return (
            sum(branching**level for level in range(depth + 1)) if branching > 1 else 1
        )

    @property
    def items_per_task(self) -> int:
        """Return the files that each task may make; raises ValueError if the limits allow none."""
        return files_of_each(self, self.share, self.file_bytes, self.directories)

    def plan(self) -> CasePlan:
        """Create until the stonewall or the last item, then stat, read and remove the items."""
        phases: list[PhasePlan] = []
        # mdtest has a stonewall only without branches: a tree is made in full.
        branched = self.directories > 1
        wall = 0 if branched else max(1, int(self.site.limits.phase_seconds))
        files = self.items_per_task * self.total_tasks
        data = files * self.file_bytes

        def phase(name: str, metric: Metric, access: Access, **does: Any) -> None:
            ranks = f"mdtest-{name}.{REP}.ranks.csv"
            options = MdtestOptions(
                directory=_TREE,
                items=None if branched else self.items_per_task,
                items_per_directory=self.items_per_task // self.directories
                if branched
                else None,
                files_only=True,
                write_bytes=self.file_bytes,
                read_bytes=self.file_bytes,
                stride=1,
                data_type="timestamp",
                signature=_SIGNATURE if self.file_bytes else None,
                stonewall_status_file=None if branched else f"mdtest.{REP}.stonewall",
                rank_details_csv=ranks,
                **does,
                **self.tree,
            )
            phases.append(
                PhasePlan(
                    name=name,
                    command=["mdtest", *options.arguments()],
                    launch="tasks",
                    parse=_parse,
                    rates={metric.name: (name, "rate")}
                    if metric in self.promise()
                    else {},
                    access=access,
                    ranks=ranks,
                    stored_bytes=data if "create" in does else 0,
                    # The tool syncs what it creates (-Y); nothing is left then, unless its sync did nothing.
                    syncs=name in ("create", "remove") and metric in self.promise(),
                    lays_out=name == "create" and self.layout is not None,
                )
            )

        phase(
            "create", CREATE, _METADATA, create=True, sync_phase=True, stonewall_s=wall
        )
        if STAT in self.promise() and self.nodes >= 2:
            phase("stat", STAT, Access(direction="metadata", task_offset=1), stat=True)
        if self.file_bytes:
            offset = 1 if self.nodes >= 2 else None
            access = Access(direction="read", task_offset=offset, evict=offset is None)
            phase(
                "read",
                READ,
                access,
                read=True,
                verify_read=True,
            )
            phases[-1] = self._counted(phases[-1])
        phase("remove", REMOVE, _METADATA, remove=True)
        return self.case(
            "mdtest",
            phases,
            held_bytes=max(data, 4096 * files if self.file_bytes else 0),
            files=files + self.total_tasks + 1 + self.directories,
            layout=self.layout,
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


class MdtestOnMdtsCheck(MdtestCheck):
    """mdtest in directories that lie on chosen metadata targets of Lustre, or over several of them.

    A subclass sets ``directory_layout``. The job asks for it as the default of the directory that holds mdtest's
    own. After the files were made, it reads back where their directories lie.
    """

    directory_layout: DirectoryLayout

    def plan(self) -> CasePlan:
        """Make the directory, create, and ask where the files are; then as every mdtest."""
        topology = self.site.topology
        known = topology.metadata_targets if topology else None
        if self.site.target.striped_by != "lustre" or known is None or known < 2:
            raise ValueError(
                f"topology.metadata_targets is {known}, and the target is striped by {self.site.target.striped_by}: "
                "expected two metadata targets or more of a Lustre file system; there is nothing to choose from"
            )
        case = super().plan()
        create, *others = case.repeat
        asked = _by_agent(STRIPE_DIRECTORY, [*self.directory_layout.arguments(), _TREE])
        found = replace(_by_agent(DIRECTORIES_FOUND, [_TREE]), parse=parse_with_files)
        return replace(
            case,
            repeat=[asked, create, found, *others],
            directory_layout=self.directory_layout,
        )


def _by_agent(name: str, words: Sequence[str]) -> PhasePlan:
    return PhasePlan(name=name, command=[name, *words], launch="agent")


def parse_with_files(printed: Printed) -> ToolOutput:
    """Return the metadata targets that the agent printed, by directory; raises :class:`ToolOutputError`."""
    found = answer(Mapping[str, tuple[int, ...]], printed.result, DIRECTORIES_FOUND)
    return ToolOutput("lustre", "", (), parameters={"directories": found})
