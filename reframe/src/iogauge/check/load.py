"""Base classes of the scenarios that load storage with fio: latency over requests in flight."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

from iogauge.check.fio import FioRandomReadCheck
from iogauge.core.measurement import Metric
from iogauge.tools.fio.options import FioJob


class QueueDepthCheck(FioRandomReadCheck):
    """Small random reads or writes with so many requests of each process in flight.

    A subclass sets ``access`` (``read``, ``write``) and ``depth``.
    """

    block = "4KiB"
    access: Literal["read", "write"]
    depth: int

    def quantities(self) -> Mapping[Metric, str]:
        """Return operations per second, and how long the median and the slowest requests took."""
        latencies = {
            Metric(f"{self.access}_{name}", "us", "less", tail=name != "p50"): f"latency_{name}"
            for name in ("p50", "p99", "p999")
        }
        return {Metric(f"{self.access}_iops", "ops/s"): "iops", **latencies}

    def timed_job(self, file_bytes: int) -> FioJob:
        """Return the random read of every check with more in flight, or a write in its place."""
        return replace(
            super().timed_job(file_bytes),
            name=f"rand{self.access}",
            pattern="randread" if self.access == "read" else "randwrite",
            engine="libaio",
            iodepth=self.depth,
            sync=False,
            fsync_at_end=self.access == "write",
            percentiles=True,
        )
