"""Base class of the scenarios that run mdtest: create, stat, read, remove, each its own execution.

As in IO500, whose parameters these are, a later phase learns from the stonewall status file how many
items the creating phase made. ``-N 1`` shifts the tasks by one node between phases. On one node nothing
can be shifted: what is then measured as stat comes from the client that created the files, and is named
``stat_warm_rate``, because it is another quantity; data is read after the page cache was emptied.
"""

from __future__ import annotations

from dataclasses import replace

from iogauge import features
from iogauge.check.base import StorageCheck
from iogauge.measurement import Metric, ToolOutput
from iogauge.plan import DIR, REP, Access, CasePlan, PhasePlan
from iogauge.tools import mdtest

CREATE = Metric("create_rate", "ops/s")
STAT = Metric("stat_rate", "ops/s")
STAT_WARM = Metric("stat_warm_rate", "ops/s")
READ = Metric("read_rate", "ops/s")
REMOVE = Metric("remove_rate", "ops/s")


def _parse(text: str, log: str, ranks: str) -> ToolOutput:
    output = mdtest.parse_table(text + log)
    return mdtest.with_rank_times(output, mdtest.parse_rank_csv(ranks, output.tasks))


class MdtestCheck(StorageCheck):
    """mdtest over files; a subclass sets the layout of the tree and the size of a file."""

    needs = features.MDTEST
    #: Bytes in each file; with 0 nothing is read back.
    file_bytes: int = 0

    def promise(self) -> tuple[Metric, ...]:
        """Rates of the phases; stat is warm on one node."""
        stat = STAT if self.nodes >= 2 else STAT_WARM
        return (CREATE, stat, *((READ,) if self.file_bytes else ()), REMOVE)

    def promise_all(self) -> tuple[Metric, ...]:
        """Rates at any scale."""
        return (CREATE, STAT, STAT_WARM, *((READ,) if self.file_bytes else ()), REMOVE)

    def tree(self) -> mdtest.MdtestOptions:
        """Items and layout of the tree, without phases."""
        raise TypeError(f"{type(self).__name__} must define tree()")

    @property
    def items_per_task(self) -> int:
        """Files that each task may make within the limits; raises ValueError where it is none."""
        items = self.site.limits.case_files // self.total_tasks
        if items < 1:
            raise ValueError(
                f"limits.case_files is {self.site.limits.case_files}: expected one file at least "
                f"for each of {self.total_tasks} task(s)"
            )
        return items

    def plan(self) -> CasePlan:
        """Create until the stonewall or the last item, then stat, read and remove what was made."""
        tree = replace(
            self.tree(),
            items=self.items_per_task,
            files_only=True,
            stride=1,
            stonewall_status_file=f"mdtest.{REP}.stonewall",
        )
        wall = max(1, int(self.site.limits.phase_seconds))
        data = self.items_per_task * self.total_tasks * self.file_bytes

        def phase(name: str, options: mdtest.MdtestOptions, metric: Metric, access: Access) -> PhasePlan:
            ranks = f"mdtest-{name}.{REP}.ranks.csv"
            options = replace(options, rank_details_csv=ranks)
            return PhasePlan(
                name=name,
                command=["mdtest", *options.arguments()],
                launch="tasks",
                parse=_parse,
                rates={metric.name: (name, "rate")},
                access=access,
                ranks=ranks,
            )

        metadata = Access(direction="metadata")
        shifted = self.nodes >= 2
        phases = [
            phase(
                "create",
                replace(tree, create=True, sync_phase=True, stonewall_s=wall),
                CREATE,
                metadata,
            ),
            phase("stat", replace(tree, stat=True), STAT if shifted else STAT_WARM, metadata),
        ]
        if self.file_bytes:
            access = Access(
                direction="read", task_offset=1 if shifted else None, evict=not shifted
            )
            phases.append(phase("read", replace(tree, read=True, verify_read=True), READ, access))
        phases.append(phase("remove", replace(tree, remove=True), REMOVE, metadata))
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
