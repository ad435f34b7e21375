"""The scenario that runs md-workbench."""

from __future__ import annotations

from typing import Final

from iogauge.cases.storage import StorageCheck
from iogauge.core.measurement import Metric
from iogauge.core.words import MD_WORKBENCH
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan
from iogauge_extras.suites import md_workbench

#: Directories of each task, as in IO500.
_SETS: Final = 10
#: Bytes of an object, and those of its block.
_BYTES: Final = 3901
_BLOCK: Final = 4096
_OBJECTS: Final = f"{DIR}/objects.{REP}"
_BENCHMARK: Final = "benchmark"

OBJECTS = Metric("object_warm_rate", "ops/s")


#: The tool's quantity of each latency. What is made or removed is "warm": no sync follows.
LATENCIES = {
    Metric(
        f"{operation}{'_warm' if operation in ('create', 'delete') else ''}_{quantile}",
        "us",
        better="less",
    ): f"{operation}_{quantile}"
    for operation in md_workbench.OPERATIONS
    for quantile in ("p50", "p99")
}


class MdWorkbenchCheck(StorageCheck):
    """md-workbench over objects of one size: latencies of metadata while all tasks work at once.

    Each task takes the objects of a task on the next node. On one node the client would answer from
    what it keeps, so two nodes are the least. A server may answer before a change has reached its disk.
    """

    needs = MD_WORKBENCH

    def promise(self) -> tuple[Metric, ...]:
        """Return the rate of objects, and two quantiles of each operation."""
        return (OBJECTS, *LATENCIES)

    def plan(self) -> CasePlan:
        """One execution: make the objects, work on those of others for a time, remove them."""
        self.need_nodes("on one node the client answers from what it keeps")
        limits = self.site.limits
        files = min(limits.case_files, limits.case_bytes // _BLOCK)
        objects = files // self.total_tasks // _SETS
        if objects < 1:
            raise ValueError(
                f"limits.case_files is {limits.case_files} and limits.case_bytes {limits.case_bytes}: expected "
                f"{_SETS} files at least for each of {self.total_tasks} tasks"
            )
        made = objects * _SETS * self.total_tasks
        words = [
            *(f"-D={_SETS}", f"-I={objects}", f"-P={objects}", f"-S={_BYTES}"),
            # The ranks from a task to the one whose objects it takes; one timed phase, and its seconds.
            *(
                f"-O={self.tasks_per_node}",
                "-R=1",
                f"-w={max(1, round(limits.phase_seconds))}",
            ),
            *("-W", f"-o={_OBJECTS}"),
        ]
        phase = PhasePlan(
            name=_BENCHMARK,
            command=["md-workbench", *words],
            launch="tasks",
            parse=lambda printed: md_workbench.parse(printed.result),
            rates={
                OBJECTS.name: (_BENCHMARK, "rate"),
                **{
                    metric.name: (_BENCHMARK, told)
                    for metric, told in LATENCIES.items()
                },
            },
            access=Access(direction="metadata", task_offset=1),
            stored_bytes=made * _BYTES,
            untimed_files=made,
        )
        return self.case(
            "md-workbench",
            [phase],
            held_bytes=_BLOCK * made,
            files=made + (_SETS + 2) * self.total_tasks + 1,
        )
