"""Base classes of the needle scenarios: find a slow storage target or node by probing each alone.

All files are written in full once, as a warm-up that also reveals their targets. Then all probes are overwritten in turn, each
for a second or more. There are as many rounds as repetitions, each in an order of its own. The probes that seem slow are then
measured again. After that all are read in the same way. The repetitions are inside the case, which is one sample.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, Literal

from iogauge.cases.fio_check import LAID_OUT, FioCheck
from iogauge.core.measurement import Metric, Reference, ToolOutput
from iogauge.core.paths import JOB_FILES
from iogauge.core.text import count
from iogauge.judge.verdict import MetricVerdict
from iogauge.node.lustre.request import Layout, Pins
from iogauge.node.lustre.targets import ost_name
from iogauge.plan.case import Access, CasePlan, PhasePlan, Printed
from iogauge.plan.stage import ROUNDS, SERVERS
from iogauge.records.record import MetricRecord
from iogauge.tools.fio.fio_options import DIRECTORY, FioJob, layout_job
from iogauge_extras.needle.slow_probes import Rounds, medians, parse_rounds

_ROUNDS: Final = JOB_FILES / "rounds.sh"
_BLOCK: Final = 1 << 20

#: Requests in flight, as a Lustre client sends to one target at a time (osc.*.max_rpcs_in_flight).
_DEPTH: Final = 8

#: Largest size of a file: it is written in full once, and a slow target takes its time.
_MOST_BYTES: Final = 1 << 30


class NeedleCheck(FioCheck):
    """Metrics, sizes, and the passes of all scenarios: all probes are written, then read."""

    def promise(self) -> tuple[Metric, ...]:
        """Return the slowest probe over the median of all, and that median, of each pass."""
        return (
            Metric("write_slowest", "1"),
            Metric("read_slowest", "1"),
            Metric("write_median", "MiB/s"),
            Metric("read_median", "MiB/s"),
        )

    def standing_references(self) -> dict[str, Reference]:
        """Return references: ``limits.max_deviation`` bounds how slow a probe may be."""
        return self.all_alike("write_slowest", "read_slowest")

    def _told(self, metric: Metric) -> Mapping[str, Any]:
        """Return what the pass told beside the median of all; nothing of another metric."""
        way, _, kind = metric.name.rpartition("_")
        for output in self.outputs_of(way):
            if kind == "median":
                return output.parameters
        return {}

    def rounds(self, metric: Metric) -> Sequence[Mapping[str, float]]:
        """Return the rate of every probe in each round, beside the median of all."""
        found: Sequence[Mapping[str, float]] = self._told(metric).get("rounds", ())
        return found

    def _metric_record(self, decided: MetricVerdict) -> MetricRecord:
        """Return the record of a metric; that of the median of all has the rate of every probe."""
        record = super()._metric_record(decided)
        rates = self._told(decided.metric).get("rates")
        if rates:
            return record.model_copy(update={"probes": medians(rates)})
        return record

    def _turn_seconds(self, probes: int) -> int:
        """Return the seconds of a turn; raises ValueError if the limits leave less than one."""
        limits, turns = self.site.limits, probes * self.repetitions
        seconds = int(limits.phase_seconds // turns)
        if seconds < 1:
            raise ValueError(
                f"limits.phase_seconds is {limits.phase_seconds:g} s: {count(turns, 'turn')} of {count(probes, 'probe')} in "
                f"{count(self.repetitions, 'round')} take a second or more each; set "
                f"cases.{type(self).__name__}.phase_seconds to {turns} s or more"
            )
        return seconds

    def _probe_jobs(self, probes: int, numjobs: int) -> tuple[FioJob, FioJob, FioJob]:
        """Return the jobs of a probe: lay out its files, overwrite them, read them.

        Raises ValueError if the limits leave less than a second or a few blocks for each probe.
        """
        limits, seconds = self.site.limits, self._turn_seconds(probes)
        share = limits.case_bytes // (probes * numjobs) // _BLOCK * _BLOCK
        least = _DEPTH * _BLOCK
        if share < least:
            raise ValueError(
                f"limits.case_bytes is {limits.case_bytes}: expected {least * probes * numjobs} or more, "
                f"{least} for each of {probes * numjobs} file(s); set "
                f"cases.{type(self).__name__}.case_bytes"
            )
        layout = replace(
            layout_job(file_bytes=min(share, _MOST_BYTES), numjobs=numjobs),
            engine="libaio",
            iodepth=_DEPTH,
            filename_format="probe$clientuid.$jobnum.$filenum",
        )
        write = replace(layout, name="write", runtime_s=seconds)
        return (
            layout,
            write,
            replace(write, name="read", pattern="read", fsync_at_end=False),
        )

    def _needle(
        self,
        texts: Mapping[str, str],
        probes: Mapping[str, Any],
        *servers: str,
        held_bytes: int,
        files: int,
    ) -> CasePlan:
        """Return the case: all rounds of each way, with job files. ``servers`` is the file that lists the probed nodes."""
        deviation = self.site.limits.max_deviation

        launch: Literal["once", "servers"] = "once"
        if servers:
            launch = "servers"

        def one_pass(way: Any) -> PhasePlan:
            rounds = Rounds(
                direction=way,
                rounds=self.repetitions,
                max_deviation=deviation,
                **probes,
            )
            of_files = Access(direction=way, o_direct=True, fsync=way == "write")

            def parse(printed: Printed) -> ToolOutput:
                return parse_rounds(printed.result + printed.stderr, rounds)

            return PhasePlan(
                name=way,
                command=[
                    "sh",
                    str(_ROUNDS),
                    f"{way}.fio",
                    str(rounds.rounds),
                    *servers,
                ],
                launch=launch,
                parse=parse,
                rates={
                    f"{way}_slowest": (way, "slowest"),
                    f"{way}_median": (way, "median"),
                },
                access=of_files,
                pauses=True,
                asks=True,
            )

        # The job must know whom to suspect.
        inputs = {**texts, ROUNDS: json.dumps({"max_deviation": deviation})}
        passes = [one_pass("write"), one_pass("read")]
        case = self.case("fio", passes, held_bytes, files)
        return replace(case, warm_up=False, inputs=inputs, repetitions=1)


class TargetNeedleCheck(NeedleCheck):
    """Every storage target of a Lustre file system, from one node and by one process.

    The job file has a job for each target, in a directory that is pinned to the target; one fio
    runs one of them. A target has its Lustre name, with the index in hexadecimal: ``ost000a``.
    """

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one task on each node."""
        return {**super().declared(), "tasks_per_node": 1}

    def plan(self) -> CasePlan:
        """Lay a file out on each target, then write to all in turn, then read."""
        if self.total_tasks != 1:
            raise ValueError(
                f"nodes is {self.nodes} and tasks_per_node {self.tasks_per_node}: one process probes the "
                "targets; leave both alone"
            )
        topology = self.site.topology
        if not topology or not topology.targets:
            raise ValueError(
                "topology.targets is not declared: there is nothing to go through"
            )
        names = tuple(map(ost_name, range(topology.targets)))
        jobs = self._probe_jobs(len(names), 1)

        def job_file(job: FioJob, end: str = "") -> str:
            parts = (replace(job, name=n, directory=f"{DIRECTORY}/{n}") for n in names)
            return "\n".join(part.job_file() + end for part in parts)

        layout = self.fio_phase(jobs[0], {}, LAID_OUT, repeated=False)
        held = jobs[0].bytes_total * len(names)
        texts = {f"{job.name}.fio": job_file(job) for job in jobs}
        case = self._needle(
            texts | {"layout.fio": job_file(jobs[0], "stonewall\n")},
            {"targets": names},
            held_bytes=held,
            files=len(names),
        )
        return replace(
            case,
            prepare=[replace(layout, data_bytes=held)],
            pins=Pins(names=names, kind="directory", targets=tuple(range(len(names)))),
            servers=1,  # at a time
        )


class NodeNeedleCheck(NeedleCheck):
    """Every node of the job, alone in turn, with the tasks of the scale; Lustre stripes over all
    targets.

    The nodes run fio's servers; the first node is their client.
    """

    on_all_nodes = True

    def plan(self) -> CasePlan:
        """Lay the files of all nodes out at once, then let each node write in turn, then read."""
        self.need_nodes("they are compared with each other")
        jobs = self._probe_jobs(self.nodes, self.tasks_per_node)
        layout = None
        if self.site.target.striped_by == "lustre":
            layout = Layout(stripe_count=-1)
        case = self._needle(
            {f"{job.name}.fio": job.job_file() for job in jobs},
            {"nodes": self.nodes},
            SERVERS,
            held_bytes=jobs[0].bytes_total * self.nodes,
            files=self.total_tasks,
        )
        lay_out = self.fio_phase(jobs[0], {}, LAID_OUT, repeated=False)
        return replace(case, prepare=[lay_out], layout=layout)
