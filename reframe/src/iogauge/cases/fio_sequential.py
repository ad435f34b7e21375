"""Sequential writes and reads with fio on one node, without MPI."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from iogauge.cases.fio import (
    CHECKED_BYTES,
    READ_BW,
    WRITE_BW,
    OneNodeFioCheck,
)
from iogauge.cases.storage import share_of_bytes
from iogauge.core.measurement import Metric
from iogauge.core.units import parse_bytes
from iogauge.plan.case import Access, CasePlan, PhasePlan, Verification
from iogauge.tools.fio import options


class FioSequentialCheck(OneNodeFioCheck):
    """Write with fsync, empty the page cache if it would answer, and read.

    A subclass sets ``block``, the size of a request as text with a unit, ``file_per_process`` and
    ``o_direct``. O_DIRECT needs the partition's feature ``o_direct``.
    """

    block: str
    file_per_process: bool = True
    o_direct: bool = False
    #: Directory of the files on the target, below that of the case.
    below: str = ""

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def _access(self, direction: Literal["read", "write"]) -> Access:
        # A node is the whole of what the site measures only if the site has no other.
        whole = self.site.scale.nodes == 1
        return Access(
            direction=direction,
            o_direct=self.o_direct,
            fsync=direction == "write",
            evict=direction == "read" and not self.o_direct,
            saturates="bandwidth" if whole else None,
        )

    def _phase(self, job: options.FioJob, checks: tuple[str, ...]) -> PhasePlan:
        way: Literal["read", "write"] = "read" if job.pattern == "read" else "write"
        rates: Mapping[str, str] = {f"{way}_bw": "bw"}
        # The warm-up alone writes and checks checksums: they would cost time in the others.
        checked = Verification(checks, options.MISMATCH)
        return self.fio_phase(job, rates, self._access(way), verifies=checked)

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        block, each = parse_bytes(self.block), share_of_bytes(self, self.block)
        write = options.FioJob(
            name="write",
            pattern="write",
            block_bytes=block,
            file_bytes=each,
            numjobs=self.tasks_per_node,
            direct=self.o_direct,
            shared=not self.file_per_process,
            fsync_at_end=True,
        )
        if self.below:
            write = replace(write, directory=f"{write.directory}/{self.below}")
        read = replace(write, name="read", pattern="read", fsync_at_end=False)
        return self.fio_case(
            jobs=[write, read],
            repeat=[
                self._phase(write, options.verification(CHECKED_BYTES, options.WRITTEN_ALONE)),
                self._phase(read, options.verification(CHECKED_BYTES)),
            ],
            held_bytes=write.bytes_total,
            files=self.tasks_per_node if self.file_per_process else 1,
            shared_file=not self.file_per_process,
            below=self.below,
        )
