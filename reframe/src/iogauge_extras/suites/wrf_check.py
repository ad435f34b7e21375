"""The scenario that runs WRF-IO: what an application waits for when it writes its output."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from iogauge.cases.storage import StorageCheck
from iogauge.core import vocabulary
from iogauge.core.measurement import Metric
from iogauge.evidence.model import SECONDS
from iogauge.node.lustre.request import Layout
from iogauge.plan.case import DIR, REP, Access, CasePlan, PhasePlan
from iogauge.tools import darshan
from iogauge_extras.suites import wrf
from iogauge_extras.suites.shared_check import WRITERS, count_writers

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

    A subclass sets ``stripe_count``, 0 for the target's own layout. With Darshan in the environment the ranks that write
    are counted in one more execution.
    """

    needs = vocabulary.WRF_IO
    stripe_count: int

    @property
    def _watched(self) -> str:
        """Return Darshan's library, empty if the environment has none."""
        return str(self.current_environ.extras.get("darshan", ""))

    def promise(self) -> tuple[Metric, ...]:
        """Return the seconds, the bandwidth, and the writers, which the plan has if Darshan can count them."""
        return (*_METRICS, WRITERS)

    def layout(self) -> Layout | None:
        """Return the layout that is asked for, or None for the target's own."""
        return Layout(stripe_count=self.stripe_count) if self.stripe_count else None

    def _write(self, file: str, before: Sequence[str] = ()) -> PhasePlan:
        """Return a write of a file, without metrics; ``before`` are the words before the tool's."""
        header = str(self.current_environ.extras[vocabulary.WRF_IO])
        grid = ("-n", "1", "-y", str(self._points), "-x", str(self._points))
        return PhasePlan(
            name="write",
            command=[*before, "wrf_io", "-i", header, *grid, "-w", f"{DIR}/{file}"],
            launch="tasks",
            parse=lambda printed: wrf.parse(printed.result, header),
            rates={},
            access=Access(direction="write", fsync=True),
            stored_bytes=_POINT_BYTES * (self._points + 1) ** 2,
        )

    @property
    def _files(self) -> list[str]:
        """Return the names of the files that are there at a time."""
        files = [f"wrfout.{REP}.nc"]
        if self._watched:
            files.append("watched.nc")
        return files

    @property
    def _points(self) -> int:
        """Return the points of the grid in each direction; raises ValueError if there are less than two for each task."""
        files = len(self._files)
        points = math.isqrt(self.site.limits.case_bytes // files // _POINT_BYTES) - 1
        if points < 2 * self.total_tasks:
            least = files * _POINT_BYTES * (2 * self.total_tasks + 2) ** 2
            raise ValueError(
                f"limits.case_bytes is {self.site.limits.case_bytes}: expected {least} or more, for two points of the grid "
                f"in each direction for each of {self.total_tasks} task(s)"
            )
        return points

    def plan(self) -> CasePlan:
        """Write one output in each repetition, and count the writers of another one."""
        rates = {metric.name: ("write", told) for metric, told in _METRICS.items()}
        phases = [replace(self._write(self._files[0]), rates=rates, syncs=True)]
        if self._watched:
            log, file = f"darshan.{REP}.log", self._files[1]
            watched = self._write(file, darshan.run_words(self._watched, log))
            phases += [replace(watched, name="watched"), count_writers(log, file)]
        files = len(self._files)
        held_bytes = files * phases[0].stored_bytes
        return replace(
            self.case("wrf_io", phases, held_bytes, files),
            passing_files=self.total_tasks,
            layout=self.layout(),
            shared_file=True,
        )
