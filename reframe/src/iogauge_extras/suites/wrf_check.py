"""The scenario that runs WRF-IO: what an application waits for when it writes its output."""

import math
from dataclasses import replace
from typing import Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric
from iogauge.evidence.model import SECONDS
from iogauge.node.lustre.request import Layout
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan
from iogauge_extras.suites import wrf

#: Bytes of all variables at a point of the grid, at most; staggered variables have a row and a column more.
_POINT_BYTES: Final = 3440
#: The tool's quantity of each metric.
_METRICS: Final = {
    Metric("write_time", "s", "less"): SECONDS,
    Metric("define_time", "s", "less"): "define",
    Metric("write_bw", "MiB/s"): "bw",
}


class WrfOutputCheck(StorageCheck):
    """A weather model's output file, which all tasks write together, from open to close and sync.

    A subclass sets ``stripe_count``, 0 for the target's own layout.
    """

    needs = vocabulary.WRF_IO
    stripe_count: int

    def promise(self) -> tuple[Metric, ...]:
        """Return the seconds and the bandwidth."""
        return tuple(_METRICS)

    def layout(self) -> Layout | None:
        """Return the layout that is asked for, or None for the target's own."""
        if not self.stripe_count:
            return None
        return Layout(stripe_count=self.stripe_count)

    @property
    def _points(self) -> int:
        """Return the points of the grid in each direction; raises ValueError if there are less than two for each task."""
        points = math.isqrt(self.site.limits.case_bytes // _POINT_BYTES) - 1
        if points < 2 * self.total_tasks:
            least = _POINT_BYTES * (2 * self.total_tasks + 2) ** 2
            raise ValueError(
                f"limits.case_bytes is {self.site.limits.case_bytes}: expected {least} or more, for two points of the grid "
                f"in each direction for each of {self.total_tasks} task(s)"
            )
        return points

    def plan(self) -> CasePlan:
        """Write one output in each repetition."""
        header = str(self.current_environ.extras[vocabulary.WRF_IO])
        grid = ("-n", "1", "-y", str(self._points), "-x", str(self._points))
        stored = _POINT_BYTES * (self._points + 1) ** 2
        write = PhasePlan(
            name="write",
            command=["wrf_io", "-i", header, *grid, "-w", f"{DIR}/wrfout.{REP}.nc"],
            launch="tasks",
            parse=lambda printed: wrf.parse(printed.result, header),
            rates={metric.name: ("write", told) for metric, told in _METRICS.items()},
            access=Access(direction="write", fsync=True),
            stored_bytes=stored,
            syncs=True,
        )
        return replace(
            self.case("wrf_io", [write], held_bytes=stored, files=1),
            passing_files=self.total_tasks,
            layout=self.layout(),
            shared_file=True,
        )
