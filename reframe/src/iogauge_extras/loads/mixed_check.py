"""Reads and writes of the same files at once, with fio, against the reads alone."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

from iogauge.cases.fio_check import (
    READ_BW,
    READ_IOPS,
    WRITE_BW,
    FioCheck,
    checks_of,
    checksum_interval,
)
from iogauge.cases.storage import share_of_bytes
from iogauge.core.measurement import Metric, Quantity
from iogauge.core.units import parse_bytes
from iogauge.plan.case import Access, CasePlan, Computed
from iogauge.tools.fio.fio_options import Pattern, layout_job

WRITE_IOPS = Metric("write_iops", "ops/s")

#: Patterns of the reads alone, and of both.
_PATTERNS: Mapping[str, tuple[Pattern, Pattern]] = {
    "random": ("randread", "randrw"),
    "sequential": ("read", "rw"),
}


class MixedCheck(FioCheck):
    """Reads alone, then reads and writes by the same processes, on one node or all.

    A subclass sets ``block`` (text with a unit), ``order`` (``random``, ``sequential``), ``reads`` (their share of the
    requests, in percent) and ``span`` (``one-client``, ``all``). Direct requests go on for the time of the limits.
    """

    block: str
    order: Literal["random", "sequential"]
    reads: int
    span: str

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; the nodes follow from the span."""
        nodes = 1
        if self.span == "all":
            nodes = self.site.scale.nodes
        return {**super().declared(), "nodes": nodes}

    @property
    def _compared(self) -> dict[Metric, str]:
        """Return fio's quantity of what the reads beside writes are compared by."""
        tails = ["p50", "p99"]
        if self.order == "random":
            tails.append("p999")
        found = {READ_IOPS: "iops"}
        for name in tails:
            metric = Metric(f"read_{name}", "us", "less", tail=name != "p50")
            found[metric] = f"latency_{name}"
        return found

    def promise(self) -> tuple[Metric, ...]:
        """Return both bandwidths and operations, the reads' latencies, and each of the reads' over that alone."""
        ratios = (
            replace(metric, name=f"{metric.name}_ratio", unit="1")
            for metric in self._compared
        )
        return (READ_BW, WRITE_BW, WRITE_IOPS, *self._compared, *ratios)

    def plan(self) -> CasePlan:
        """Lay the files out once; then read alone, and read and write."""
        block, (reading, both) = parse_bytes(self.block), _PATTERNS[self.order]
        layout = layout_job(
            file_bytes=share_of_bytes(self, "1MiB"),
            numjobs=self.tasks_per_node,
            checksum_bytes=checksum_interval(block),
        )
        alone = replace(
            layout,
            name="alone",
            pattern=reading,
            block_bytes=block,
            fsync_at_end=False,
            checksum_bytes=0,
            runtime_s=self.site.limits.phase_seconds,
            no_random_map=self.order == "random",
            percentiles=True,
        )
        mixed = replace(
            alone, name="mixed", pattern=both, reads=self.reads, fsync_at_end=True
        )
        writes = Access(direction="write", o_direct=True, fsync=True)
        reads = Access(direction="read", o_direct=True)
        compared, rates, ratios = {}, {}, {}
        for metric, quantity in self._compared.items():
            # fio merges no percentiles of nodes.
            if self.nodes == 1 or quantity == "iops":
                name = metric.name
                compared[name], rates[f"{name}_alone"] = quantity, quantity
                sources = (name, f"{name}_alone")
                ratio = Computed(sources=sources, compute=Quantity.over)
                ratios[f"{name}_ratio"] = ratio
        before = self.fio_phase(alone, rates, reads, verifies=checks_of(layout))
        read = self.fio_phase(mixed, {READ_BW.name: "bw", **compared}, reads)
        written = {WRITE_BW.name: ("write", "bw"), WRITE_IOPS.name: ("write", "iops")}
        repeat = [before, read, read.also("beside", written, writes)]
        case = self.laid_out_case(layout, [alone, mixed], repeat)
        return replace(case, computed=ratios)
