"""Base class of the scenarios that run mdtest: create, stat, read and remove, each in its own
execution.

The parameters are IO500's. A later phase reads the number of created items from the stonewall
status file. ``-N 1`` shifts the tasks by one node between phases. On one node tasks cannot be
shifted. Data are then read after the page cache was emptied. Stat is left out: it would measure the
client's own cache, which an ordinary user cannot empty.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from iogauge.check.storage import StorageCheck
from iogauge.core import words
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan, Printed
from iogauge.tools.mdtest.options import MdtestOptions
from iogauge.tools.mdtest.output import parse_rank_csv, parse_table, with_rank_times

CREATE = Metric("create_rate", "ops/s")
STAT = Metric("stat_rate", "ops/s")
READ = Metric("read_rate", "ops/s")
REMOVE = Metric("remove_rate", "ops/s")

#: Seed of the data pattern (-G), the same in the writing and the verifying execution.
_SIGNATURE = 1181783497


def _parse(printed: Printed) -> ToolOutput:
    output = parse_table(printed.result)
    return with_rank_times(output, parse_rank_csv(printed.ranks, output.tasks))


class MdtestCheck(StorageCheck):
    """mdtest over files; a subclass sets the layout of the tree and the size of a file."""

    needs = words.MDTEST
    #: Divisor: the scenario uses this fraction of the case's files.
    share: int = 1
    #: Bytes in each file; with 0 nothing is read back.
    file_bytes: int = 0
    #: Options of mdtest for the tree, see :class:`iogauge.tools.mdtest.options.MdtestOptions`.
    tree: Mapping[str, Any] = MappingProxyType({})

    def promise(self) -> tuple[Metric, ...]:
        """Return the rates of the phases; stat needs two nodes."""
        return tuple(m for m in self.promise_all() if m is not STAT or self.nodes >= 2)

    def promise_all(self) -> tuple[Metric, ...]:
        """Return the rates at any scale."""
        return (CREATE, STAT, *((READ,) if self.file_bytes else ()), REMOVE)

    @property
    def items_per_task(self) -> int:
        """Return the files that each task may make; raises ValueError if the limits allow none."""
        items = int(self.site.limits.case_files // self.share // self.total_tasks)
        if items < 1:
            raise ValueError(
                f"limits.case_files is {self.site.limits.case_files}: expected one file at least "
                f"for each of {self.total_tasks} task(s)"
            )
        return items

    def plan(self) -> CasePlan:
        """Create until the stonewall or the last item, then stat, read and remove the items."""
        phases: list[PhasePlan] = []
        shifted = self.nodes >= 2
        wall = max(1, int(self.site.limits.phase_seconds))
        data = self.items_per_task * self.total_tasks * self.file_bytes

        def phase(name: str, metric: Metric, access: Access, **does: Any) -> None:
            ranks = f"mdtest-{name}.{REP}.ranks.csv"
            options = MdtestOptions(
                directory=f"{DIR}/tree",
                items=self.items_per_task,
                files_only=True,
                stride=1,
                data_type="timestamp",
                signature=_SIGNATURE if self.file_bytes else None,
                stonewall_status_file=f"mdtest.{REP}.stonewall",
                rank_details_csv=ranks,
                **does,
                **self.tree,
            )
            plan = PhasePlan(
                name=name,
                command=["mdtest", *options.arguments()],
                launch="tasks",
                parse=_parse,
                rates={metric.name: (name, "rate")},
                access=access,
                ranks=ranks,
                stored_bytes=data if "create" in does else 0,
            )
            phases.append(plan)

        metadata = Access(direction="metadata")
        phase("create", CREATE, metadata, create=True, sync_phase=True, stonewall_s=wall)
        if shifted:
            phase("stat", STAT, Access(direction="metadata", task_offset=1), stat=True)
        if self.file_bytes:
            access = Access(direction="read", task_offset=1 if shifted else None, evict=not shifted)
            phase("read", READ, access, read=True, verify_read=True)
        phase("remove", REMOVE, metadata, remove=True)
        phases[-1] = replace(phases[-1], syncs=True)
        files = self.items_per_task * self.total_tasks
        return CasePlan(
            tool="mdtest",
            repetitions=self.repetitions,
            tasks=self.total_tasks,
            nodes=self.nodes,
            repeat=phases,
            held_bytes=max(data, 4096 * files if self.file_bytes else 0),
            files=files + self.total_tasks + 2,
        )
