"""Base classes of the scenarios that load storage with fio: a filled target, latency over queue depth, bandwidth over hours."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Literal

from iogauge.cases.fio import (
    LAYOUT_CHECKED,
    WRITE_BW,
    FioCheck,
    FioRandomReadCheck,
    FioSequentialCheck,
)
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.core.units import format_seconds
from iogauge.evidence.model import SERIES
from iogauge.plan.case import DIR, Access, CasePlan, PhasePlan, Printed
from iogauge.plan.stage import FILL
from iogauge.tools.fio.options import FioJob, layout_job
from iogauge.tools.parsing import answer
from iogauge_extras.loads.filling import FILE_BYTES, Filled
from iogauge_extras.loads.series import Series, with_series


class FillLevelCheck(FioSequentialCheck):
    """Write and read as in every sequential check, on a target that is filled up to a level before.

    A subclass sets ``fill``, the level in percent; 0 means the target as found. The files that fill it lie in the case's
    directory, and go with it.
    """

    fill: int
    o_direct = True
    #: Beside them lie the files that fill the target, at which no sample of the contents looks.
    below = "files"

    def plan(self) -> CasePlan:
        """Fill the target once, and write new files in each repetition."""
        case, most = super().plan(), self.site.limits.fill_bytes
        # The files of the repetition before go, not those that fill the target: new ones must find room again.
        again = 'rm -rf "$1" && mkdir "$1"'
        fresh = PhasePlan(
            name="fresh", command=["sh", "-c", again, "sh", case.directory]
        )
        case = replace(case, repeat=[fresh, *case.repeat])
        if not self.fill:
            return case
        if most is None:
            raise ValueError(
                f"sweeps.fill_levels has {self.fill}, and limits.fill_bytes is not set: filling needs the site's "
                "permission. Set it to the bytes that may be taken, or leave the level out"
            )
        words = [FILL, str(self.fill), str(most), str(case.held_bytes), f"{DIR}/{FILL}"]
        fill = PhasePlan(name=FILL, command=words, launch="agent", parse=parse_filled)
        files = case.files + 1 + -(-most // FILE_BYTES)
        return replace(case, prepare=[fill], fill_bytes=most, files=files)


def parse_filled(printed: Printed) -> ToolOutput:
    """Return what the agent says of the fill, as a parameter; raises :class:`ToolOutputError`."""
    filled: Filled = answer(Filled, printed.result, FILL)
    return ToolOutput("target", "", (), parameters={"filled": filled.to_json()})


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
            Metric(
                f"{self.access}_{name}", "us", "less", tail=name != "p50"
            ): f"latency_{name}"
            for name in ("p50", "p99", "p999")
        }
        return {Metric(f"{self.access}_iops", "ops/s"): "iops", **latencies}

    def timed_job(self, layout: FioJob) -> FioJob:
        """Return the random read of every check with more in flight, or a write in its place."""
        return replace(
            super().timed_job(layout),
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
    on_all_nodes = True

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's mean, and what the counters of the first node make of it."""
        return {
            WRITE_BW: "bw",
            Metric("write_best_minute", "MiB/s"): "best_minute",
            Metric("write_worst_minute", "MiB/s"): "worst_minute",
            Metric("write_longest_dip", "s", "less", tail=True): "dip",
        }

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the mean of each minute of each repetition, by the seconds at which it begins."""
        found: list[dict[str, float]] = []
        for output in self.outputs_of("write") if metric == WRITE_BW else ():
            series = output.parameters.get(SERIES)
            if isinstance(series, Series):
                mean = output.phases[0].rates["bw"].value / series.mean
                size = round(series.window_s / series.step_s)
                starts = range(0, len(series.windows), size)
                found.append(
                    {f"{n * series.step_s:g}": mean * series.windows[n] for n in starts}
                )
        return found

    def plan(self) -> CasePlan:
        """Lay the files out, so that no write allocates, and write for the time of the limits."""
        file_bytes = self.share_of_file(self.transfer, self.total_tasks)
        wanted_s = self.repetitions * self.site.limits.phase_seconds
        if wanted_s > self._time_limit_s:
            raise ValueError(
                f"{self.repetitions} repetition(s) of limits.phase_seconds take "
                f"{format_seconds(wanted_s)}, but the partition's time_limit is "
                f"{format_seconds(self._time_limit_s)}: raise it, or shorten the case"
            )
        layout = layout_job(file_bytes=file_bytes, numjobs=self.tasks_per_node)
        seconds = self.site.limits.phase_seconds
        job = replace(
            layout, name="write", block_bytes=self.transfer, runtime_s=seconds
        )
        access = Access(direction="write", o_direct=True, fsync=True)
        phase = replace(self.timed_phase(job, access), series=with_series)
        # Its start is a small part of it: no warm-up.
        return self.laid_out_case(layout, [job], [phase], LAYOUT_CHECKED, warm_up=False)
