"""Reads and writes of the same files at once, with fio, against the reads alone."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from iogauge.cases.fio import LAID_OUT, FioCheck, checks_of, checksum_interval
from iogauge.cases.storage import share_of_bytes
from iogauge.core.measurement import Metric, Quantity
from iogauge.core.units import parse_bytes
from iogauge.plan.case import Access, CasePlan, Computed, PhasePlan
from iogauge.tools.fio.options import FioJob, Pattern, layout_job

#: Patterns of the reads alone, and of both.
_PATTERNS: Mapping[str, tuple[Pattern, Pattern]] = {
    "random": ("randread", "randrw"),
    "sequential": ("read", "rw"),
}


class MixedCheck(FioCheck):
    """Reads alone, then reads and writes by the same processes, on one node or all.

    A subclass sets ``block`` (text with a unit), ``order`` (``random``, ``sequential``), ``reads`` (their share of the
    requests, in percent), ``span`` (``one-client``, ``all``) and ``o_direct``. Direct requests go on for the time of the
    limits. Through the page cache each block is touched once at most, after the cache was emptied: what the reads find
    there would be no storage.
    """

    block: str
    order: Literal["random", "sequential"]
    reads: int
    span: str
    o_direct: bool

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; the nodes follow from the span."""
        nodes = 1 if self.span == "one-client" else self.site.scale.nodes
        return {**super().declared(), "nodes": nodes}

    @property
    def _compared(self) -> dict[Metric, str]:
        """Return fio's quantity of what the reads beside writes are compared by; it merges no percentiles of nodes."""
        tails = ("p50", "p99", "p999") if self.order == "random" else ("p50", "p99")
        return {Metric("read_iops", "ops/s"): "iops"} | {
            Metric(f"read_{name}", "us", "less", tail=name != "p50"): f"latency_{name}"
            for name in (tails if self.nodes == 1 else ())
        }

    def promise(self) -> tuple[Metric, ...]:
        """Return both bandwidths and operations, the reads' latencies, and each of the reads' over that alone."""
        rates = (Metric(f"{way}_bw", "MiB/s") for way in ("read", "write"))
        ratios = (
            replace(metric, name=f"{metric.name}_ratio", unit="1") for metric in self._compared
        )
        return (*rates, Metric("write_iops", "ops/s"), *self._compared, *ratios)

    def _access(self, direction: Literal["read", "write"]) -> Access:
        reads = direction == "read"
        return Access(
            direction=direction,
            o_direct=self.o_direct,
            fsync=not reads,
            evict=reads and not self.o_direct,
        )

    def _jobs(self) -> tuple[FioJob, FioJob, FioJob]:
        """Return the jobs that lay the files out, read them, and do both."""
        block, (reading, both) = parse_bytes(self.block), _PATTERNS[self.order]
        layout = replace(
            layout_job(
                file_bytes=share_of_bytes(self, "1MiB"),
                numjobs=self.tasks_per_node,
                checksum_bytes=checksum_interval(block),
            ),
            direct=self.o_direct,
        )
        alone = replace(
            layout,
            name="alone",
            pattern=reading,
            block_bytes=block,
            fsync_at_end=False,
            checksum_bytes=0,
            runtime_s=self.site.limits.phase_seconds,
            once=not self.o_direct,
            no_random_map=self.o_direct and self.order == "random",
            percentiles=True,
        )
        mixed = replace(alone, name="mixed", pattern=both, reads=self.reads, fsync_at_end=True)
        return layout, alone, mixed

    def _alone(self, job: FioJob, layout: FioJob) -> PhasePlan:
        rates = {f"{metric.name}_alone": rate for metric, rate in self._compared.items()}
        phase = self.fio_phase(job, rates, self._access("read"), verifies=checks_of(layout))
        return replace(phase, data_bytes=None)

    def _mixed(self, job: FioJob) -> list[PhasePlan]:
        """Return the reads and the writes of one execution."""
        rates = {"read_bw": "bw"} | {metric.name: rate for metric, rate in self._compared.items()}
        read = replace(self.fio_phase(job, rates, self._access("read")), data_bytes=None)
        write = replace(
            read,
            name="beside",
            command=(),
            rates={"write_bw": ("write", "bw"), "write_iops": ("write", "iops")},
            access=self._access("write"),
            within=read.name,
        )
        return [read, write]

    def plan(self) -> CasePlan:
        """Lay the files out once; then read alone, and read and write."""
        if not self.o_direct and self.order == "sequential" and self.reads <= 50:
            raise ValueError(
                f"reads is {self.reads} %: through the page cache sequential reads would find what the writes before "
                "them left there; expected more than 50, or O_DIRECT"
            )
        layout, alone, mixed = self._jobs()
        return self.fio_case(
            jobs=[layout, alone, mixed],
            prepare=[
                self.fio_phase(
                    layout, {}, replace(LAID_OUT, o_direct=self.o_direct), repeated=False
                )
            ],
            repeat=[self._alone(alone, layout), *self._mixed(mixed)],
            held_bytes=layout.bytes_total * self.nodes,
            files=self.total_tasks,
            computed={
                f"{metric.name}_ratio": Computed(
                    sources=(metric.name, f"{metric.name}_alone"), compute=Quantity.over
                )
                for metric in self._compared
            },
        )
