"""Base class of the scenarios that run IOR: write, then read, each its own execution.

The two phases are separate executions so that the page cache can be emptied between them, and so that a
failure names its phase. Readers are shifted to the next node (``-C -Q 1``) where there are two or more:
each then reads what another node wrote.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge import features
from iogauge.check.base import StorageCheck
from iogauge.measurement import Metric, ToolOutput
from iogauge.plan import DIR, REP, Access, CasePlan, PhasePlan, Printed
from iogauge.tools import ior

WRITE = Metric("write_bw", "MiB/s")
READ = Metric("read_bw", "MiB/s")


def _parse(printed: Printed) -> ToolOutput:
    # IOR complains on standard output; what stands on standard error may be the MPI library's.
    output = ior.parse_json(printed.result, printed.stdout)
    return ior.with_rank_times(output, ior.rank_times_csv(printed.ranks, output.tasks))


class IorCheck(StorageCheck):
    """IOR with one combination of API, files, order and cache; a subclass sets them."""

    #: Transfer size, bytes; 0: 1 MiB, or 4 KiB in random order.
    #: :type: int
    transfer_bytes = builtins.variable(int, value=0)

    #: Bytes that all tasks together write, and read, in a repetition; 0: as many as the limits allow, a
    #: sixteenth of that in random order.
    #: :type: int
    total_bytes = builtins.variable(int, value=0)

    needs = features.IOR
    #: IOR's back end.
    api: str = "POSIX"
    #: A file for each task, or one that all share.
    file_per_process: bool = True
    #: Offsets in a shuffled order, or one after the other.
    random: bool = False
    #: O_DIRECT, or through the page cache. Ask for the feature ``o_direct`` of the partition with it.
    o_direct: bool = False

    def declared(self) -> dict[str, Any]:
        """As for every check, and the sizes that the order of offsets gives."""
        limit = self.site.limits.case_bytes
        return {
            **super().declared(),
            "transfer_bytes": 4096 if self.random else 1 << 20,
            "total_bytes": limit // 16 if self.random else limit,
        }

    def promise(self) -> tuple[Metric, ...]:
        """Bandwidth of writing and of reading."""
        return (WRITE, READ)

    def options(self) -> ior.IorOptions:
        """What both phases have in common; raises ValueError where the sizes do not fit."""
        declared = self.declared()
        transfer = self.transfer_bytes or int(declared["transfer_bytes"])
        total = self.total_bytes or int(declared["total_bytes"])
        block = total // self.total_tasks // transfer * transfer
        if block < 2 * transfer:
            raise ValueError(
                f"{total} bytes for {self.total_tasks} task(s) leave less than two transfers of "
                f"{transfer} bytes each: raise limits.case_bytes or lower the tasks"
            )
        return ior.IorOptions(
            api=self.api,
            test_file=f"{DIR}/data",
            transfer_bytes=transfer,
            block_bytes=block,
            file_per_process=self.file_per_process,
            random_offsets=self.random,
            o_direct=self.o_direct,
            barriers=True,
            keep=True,
        )

    def _phase(
        self, name: str, options: ior.IorOptions, metric: Metric, access: Access
    ) -> PhasePlan:
        output, ranks = f"ior-{name}.{REP}.json", f"ior-{name}.{REP}.ranks.csv"
        options = replace(options, summary_file=output, rank_details_csv=ranks)
        return PhasePlan(
            name=name,
            command=["ior", *options.arguments()],
            launch="tasks",
            parse=_parse,
            rates={metric.name: (name, "bw")},
            access=access,
            output=output,
            ranks=ranks,
            data_bytes=options.bytes_per_task * self.total_tasks,
        )

    def plan(self) -> CasePlan:
        """Write with fsync, empty the page cache where the readers would find it full, read."""
        options = self.options()
        # IOR refuses to reorder tasks over shuffled offsets in a shared file.
        shift = self.nodes >= 2 and (self.file_per_process or not self.random)
        full: Literal["bandwidth"] | None = None if self.random else "bandwidth"
        reader: dict[str, Any] = {"reorder_tasks": True, "task_offset": 1} if shift else {}
        write = self._phase(
            "write",
            replace(options, write=True, fsync=True),
            WRITE,
            Access(direction="write", o_direct=self.o_direct, fsync=True, saturates=full),
        )
        read = self._phase(
            "read",
            replace(options, read=True, **reader),
            READ,
            Access(
                direction="read",
                o_direct=self.o_direct,
                task_offset=1 if shift else None,
                evict=not shift and not self.o_direct,
                saturates=full,
            ),
        )
        return CasePlan(
            tool="ior",
            repetitions=self.repetitions,
            tasks=self.total_tasks,
            nodes=self.nodes,
            repeat=[write, read],
            held_bytes=options.bytes_per_task * self.total_tasks,
            files=self.total_tasks if self.file_per_process else 1,
        )
