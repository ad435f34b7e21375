"""Base classes of the scenarios that load storage with fio: latency over requests in flight, and
bandwidth over hours.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from iogauge.check.fio import DIRECTORY, LAID_OUT, FioCheck, FioRandomReadCheck
from iogauge.core.measurement import Metric
from iogauge.core.units import format_bytes, format_seconds
from iogauge.evidence.series import SERIES, Series
from iogauge.plan.case import Access, CasePlan
from iogauge.tools.fio.options import FioJob, layout_job


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


class EnduranceCheck(FioCheck):
    """A long sequential write with O_DIRECT, over and over in the same files, and its series in time.

    It lasts for ``limits.phase_seconds``: a site declares hours for the check. A subclass sets
    ``transfer``, the bytes of a request.
    """

    transfer: int

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's mean, and what the counters of the first node make of it."""
        return {
            Metric("write_bw", "MiB/s"): "bw",
            Metric("write_best_minute", "MiB/s"): "best_minute",
            Metric("write_worst_minute", "MiB/s"): "worst_minute",
            Metric("write_longest_dip", "s", "less", tail=True): "dip",
        }

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that have a quantity."""
        return tuple(self.quantities())

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, on all nodes of the scale."""
        return {**super().declared(), "nodes": self.site.scale.nodes}

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the mean of each minute of each repetition, by the seconds at which it begins."""
        if metric.name != "write_bw" or self._evidence is None:
            return ()
        found: list[dict[str, float]] = []
        for output in self._evidence.outputs.get("write", ()):
            series = output.parameters.get(SERIES)
            if isinstance(series, Series):
                mean = output.phases[0].rates["bw"].value / series.mean
                size = round(series.window_s / series.step_s)
                starts = range(0, len(series.windows), size)
                found.append({f"{n * series.step_s:g}": mean * series.windows[n] for n in starts})
        return found

    def plan(self) -> CasePlan:
        """Lay the files out, so that no write allocates, and write for the time of the limits."""
        case_bytes = self.site.limits.case_bytes
        file_bytes = case_bytes // self.total_tasks // self.transfer * self.transfer
        if file_bytes < self.transfer:
            enough = format_bytes(self.transfer * self.total_tasks)
            raise ValueError(
                f"limits.case_bytes is {case_bytes}: less than a transfer of {self.transfer} bytes for each "
                f"of {self.total_tasks} task(s); expected {enough} or more"
            )
        wanted_s = self.repetitions * self.site.limits.phase_seconds
        if wanted_s > self._time_limit_s:
            raise ValueError(
                f"{self.repetitions} repetition(s) of limits.phase_seconds take "
                f"{format_seconds(wanted_s)}, but the partition's time_limit is "
                f"{format_seconds(self._time_limit_s)}: raise it, or shorten the case"
            )
        layout = layout_job(directory=DIRECTORY, file_bytes=file_bytes, numjobs=self.tasks_per_node)
        job = replace(
            layout,
            name="write",
            block_bytes=self.transfer,
            runtime_s=max(1, int(self.site.limits.phase_seconds)),
        )
        rates = {metric.name: quantity for metric, quantity in self.quantities().items()}
        access = Access(direction="write", o_direct=True, fsync=True)
        return self.fio_case(
            jobs=[layout, job],
            prepare=[self.fio_phase(layout, {}, LAID_OUT, repeated=False)],
            repeat=[replace(self.fio_phase(job, rates, access), series=True)],
            # Its start is a small part of it.
            warm_up=False,
            held_bytes=layout.bytes_total * self.nodes,
            files=self.total_tasks,
        )
