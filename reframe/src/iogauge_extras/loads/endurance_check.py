"""The scenario that writes for hours, with fio: bandwidth over time."""

from collections.abc import Mapping, Sequence
from dataclasses import replace

from iogauge.cases.fio_check import LAYOUT_CHECKED, WRITE_BW, FioCheck
from iogauge.core.measurement import Metric
from iogauge.core.units import format_seconds
from iogauge.evidence.model import SERIES
from iogauge.plan.case import Access, CasePlan
from iogauge.tools.fio.fio_options import layout_job
from iogauge_extras.loads.bandwidth_series import Series, with_series


class EnduranceCheck(FioCheck):
    """A long sequential write with O_DIRECT, over and over in the same files, and its series in time.

    It lasts for ``limits.phase_seconds``: a site declares hours for the check. A subclass sets
    ``transfer``, the bytes of a request.
    """

    transfer: int
    on_all_nodes = True

    #: fio's mean, and what the counters of the first node make of it.
    quantities: Mapping[Metric, str] = {
        WRITE_BW: "bw",
        Metric("write_best_minute", "MiB/s"): "best_minute",
        Metric("write_worst_minute", "MiB/s"): "worst_minute",
        Metric("write_longest_dip", "s", "less", tail=True): "dip",
    }

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the mean of each minute of each repetition, by the seconds at which it begins."""
        found: list[dict[str, float]] = []
        if metric != WRITE_BW:
            return found
        for output in self.outputs_of("write"):
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
        case = self.laid_out_case(layout, [job], [phase], LAYOUT_CHECKED)
        return replace(case, warm_up=False)
