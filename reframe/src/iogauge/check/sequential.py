"""The base class of sequential writes and reads with fio: bandwidth without IOR and MPI.

fio runs on one node. Each process writes its own file, or its own part of a file that all share,
and reads it again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from iogauge.check.fio import FioCheck
from iogauge.core.measurement import Metric
from iogauge.core.units import format_bytes, parse_bytes
from iogauge.plan.case import Access, CasePlan, PhasePlan, Verification
from iogauge.tools.fio.options import (
    MISMATCH,
    WRITTEN_ALONE,
    FioJob,
    sequential_job,
    verification,
)

#: Bytes between two checksums that the warm-up writes and checks.
_CHECKED_BYTES = 4096


class FioSequentialCheck(FioCheck):
    """Write with fsync, empty the page cache if it would answer, and read.

    A subclass sets ``block``, the size of a request as text with a unit, ``file_per_process`` and
    ``o_direct``. O_DIRECT needs the partition's feature ``o_direct``.
    """

    block: str
    file_per_process: bool = True
    o_direct: bool = False

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (Metric("write_bw", "MiB/s"), Metric("read_bw", "MiB/s"))

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

    def _phase(self, job: FioJob, words: tuple[str, ...]) -> PhasePlan:
        way: Literal["read", "write"] = "read" if job.pattern == "read" else "write"
        rates: Mapping[str, str] = {f"{way}_bw": "bw"}
        # The warm-up alone writes and checks checksums: they would cost time in the others.
        checked = Verification(words, MISMATCH)
        return self.fio_phase(job, rates, self._access(way), verifies=checked)

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit.

        ``limits.case_bytes`` is for all nodes of the site's scale.
        """
        if self.nodes != 1:
            raise ValueError(
                f"nodes is {self.nodes}: this scenario runs fio on one node; set nodes=1"
            )
        block, limits = parse_bytes(self.block), self.site.limits
        shares = max(1, self.site.scale.nodes) * self.tasks_per_node
        each = limits.case_bytes // shares // block * block
        if each < 2 * block:
            raise ValueError(
                f"limits.case_bytes is {format_bytes(limits.case_bytes)}: less than two requests of "
                f"{self.block} for each of {shares} task(s). Raise it to {format_bytes(2 * block * shares)} "
                "or lower the tasks"
            )
        write = sequential_job(
            "write",
            block_bytes=block,
            file_bytes=each,
            numjobs=self.tasks_per_node,
            direct=self.o_direct,
            shared=not self.file_per_process,
        )
        read = replace(write, name="read", pattern="read", fsync_at_end=False)
        checks = verification(_CHECKED_BYTES)
        return self.fio_case(
            jobs=[write, read],
            repeat=[
                self._phase(write, (*checks, *(f"--{line}" for line in WRITTEN_ALONE))),
                self._phase(read, checks),
            ],
            held_bytes=write.bytes_total,
            files=self.tasks_per_node if self.file_per_process else 1,
            shared_file=not self.file_per_process,
        )
