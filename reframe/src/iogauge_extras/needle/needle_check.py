"""Base classes of the needle scenarios: find a slow storage target, metadata target or node by
probing each alone.

Of storage targets and nodes, all files are written in full once, as a warm-up that also reveals their targets. Then all probes
are overwritten in turn, each for a second or more. There are as many rounds as repetitions, each in
an order of its own. The probes that seem slow are then measured again. After that all are read in
the same way. On a metadata target each turn creates files with new names. The repetitions are inside the case, which is one sample.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from iogauge.cases.fio import LAID_OUT, FioCheck
from iogauge.core.measurement import Metric, Reference, ToolOutput
from iogauge.core.paths import JOB_FILES
from iogauge.core.words import FIO_METADATA
from iogauge.node.lustre.request import Layout, Pins
from iogauge.node.lustre.targets import of_metadata_targets, ost_name
from iogauge.plan.case import Access, CasePlan, PhasePlan, Printed
from iogauge.plan.stage import ROUNDS, SERVERS
from iogauge.tools.fio.options import DIRECTORY, FioJob, layout_job, metadata_job
from iogauge_extras.needle.slow_probes import Rounds, medians, parse_rounds
from iogauge_extras.needle.turns import ROUND, most_turns

_ROUNDS: Final = JOB_FILES / "rounds.sh"
_BLOCK: Final = 1 << 20

#: Requests in flight, as a Lustre client sends to one target at a time (osc.*.max_rpcs_in_flight).
_DEPTH: Final = 8

#: Largest size of a file: it is written in full once, and a slow target takes its time.
_MOST_BYTES: Final = 1 << 30

#: Fewest files of a turn: fio rounds its time to milliseconds.
_LEAST_FILES: Final = 100


class NeedleCheck(FioCheck):
    """Metrics, sizes, and the passes of all scenarios: a pass for each of ``ways``, in ``unit``."""

    ways: tuple[str, ...] = ("write", "read")
    unit = "MiB/s"

    def promise(self) -> tuple[Metric, ...]:
        """Return the slowest probe over the median of all, and that median, of each pass."""
        return (
            *(Metric(f"{way}_slowest", "1") for way in self.ways),
            *(Metric(f"{way}_median", self.unit) for way in self.ways),
        )

    def standing_references(self) -> dict[str, Reference]:
        """Return references: ``limits.max_deviation`` bounds how slow a probe may be."""
        return self.all_alike(*(f"{way}_slowest" for way in self.ways))

    def _told(self, metric: Metric, name: str) -> Any:
        """Return what the pass told beside the median of all; None of another metric."""
        way, _, kind = metric.name.rpartition("_")
        outputs = self.outputs_of(way) if kind == "median" else ()
        return next((output.parameters[name] for output in outputs), None)

    def probes(self, metric: Metric) -> dict[str, float]:
        """Return the rate of every probe, beside the median of all."""
        return medians(self._told(metric, "rates") or {})

    def rounds(self, metric: Metric) -> Sequence[dict[str, float]]:
        """Return the rate of every probe in each round, beside the median of all."""
        found: Sequence[dict[str, float]] = self._told(metric, "rounds") or ()
        return found

    def _turn_seconds(self, probes: int) -> int:
        """Return the seconds of a turn; raises ValueError if the limits leave less than one."""
        limits, turns = self.site.limits, probes * self.repetitions
        seconds = int(limits.phase_seconds // turns)
        if seconds < 1:
            raise ValueError(
                f"limits.phase_seconds is {limits.phase_seconds:g} s: {probes} probes, "
                f"{self.repetitions} times each, take a second or more each; set "
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
        **case: Any,
    ) -> CasePlan:
        """Return the case: all rounds of each way, with job files. ``servers`` is the file that lists the probed nodes."""
        deviation = self.site.limits.max_deviation

        def one_pass(way: Any) -> PhasePlan:
            rounds = Rounds(
                direction=way,
                rounds=self.repetitions,
                max_deviation=deviation,
                **probes,
            )
            of_files = Access(direction=way, o_direct=True, fsync=way == "write")

            def parse(printed: Printed) -> ToolOutput:
                return parse_rounds(
                    printed.result + printed.stderr, rounds, printed.servers
                )

            return PhasePlan(
                name=way,
                command=[
                    "sh",
                    str(_ROUNDS),
                    f"{way}.fio",
                    str(rounds.rounds),
                    *servers,
                ],
                launch="servers" if servers else "once",
                parse=parse,
                rates={
                    f"{way}_slowest": (way, "slowest"),
                    f"{way}_median": (way, "median"),
                },
                access=Access(direction="metadata") if way == "create" else of_files,
                pauses=True,
                asks=True,
            )

        # The job must know whom to suspect.
        inputs = {**texts, ROUNDS: json.dumps({"max_deviation": deviation})}
        passes = [one_pass(way) for way in self.ways]
        plan = self.case("fio", passes, warm_up=False, inputs=inputs, **case)
        return replace(plan, repetitions=1)


class OneProcessNeedleCheck(NeedleCheck):
    """Every target of one kind, from one node and by one process."""

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check, but one task on each node."""
        return {**super().declared(), "tasks_per_node": 1}

    def _names(
        self, key: str, names: Callable[[int], tuple[str, ...]]
    ) -> tuple[str, ...]:
        """Return the names of as many targets as the topology's ``key`` declares.

        Raises ValueError if it declares none, and for several processes.
        """
        if self.total_tasks != 1:
            raise ValueError(
                f"nodes is {self.nodes} and tasks_per_node {self.tasks_per_node}: one process probes the "
                "targets; leave both alone"
            )
        declared = getattr(self.site.topology, key, None)
        if declared is None or self.site.target.striped_by != "lustre":
            raise ValueError(
                f"topology.{key} is not declared, or target.striping is not lustre: there is nothing "
                "to go through"
            )
        return names(declared)


class TargetNeedleCheck(OneProcessNeedleCheck):
    """Every storage target of a Lustre file system, from one node and by one process.

    The job file has a job for each target, in a directory that is pinned to the target; one fio
    runs one of them. A target has its Lustre name, with the index in hexadecimal: ``ost000a``.
    """

    def plan(self) -> CasePlan:
        """Lay a file out on each target, then write to all in turn, then read."""
        names = self._names("targets", lambda count: tuple(map(ost_name, range(count))))
        jobs = self._probe_jobs(len(names), 1)

        def job_file(job: FioJob, end: str = "") -> str:
            parts = (replace(job, name=n, directory=f"{DIRECTORY}/{n}") for n in names)
            return "\n".join(part.job_file() + end for part in parts)

        layout = self.fio_phase(jobs[0], {}, LAID_OUT, repeated=False)
        held = jobs[0].bytes_total * len(names)
        texts = {f"{job.name}.fio": job_file(job) for job in jobs}
        return self._needle(
            texts | {"layout.fio": job_file(jobs[0], "stonewall\n")},
            {"targets": names},
            prepare=[replace(layout, data_bytes=held)],
            held_bytes=held,
            files=len(names),
            pins=Pins(names=names, kind="directory", targets=tuple(range(len(names)))),
            servers=1,  # at a time
        )


class MdtNeedleCheck(OneProcessNeedleCheck):
    """Every metadata target of a Lustre file system, from one node and by one process.

    The job file has a job for each target, in a directory that lies on the target; one fio runs one
    of them. A name has the round in it, so that each turn creates files that are not there.
    """

    needs = FIO_METADATA
    ways = ("create",)
    unit = "ops/s"

    def plan(self) -> CasePlan:
        """Create empty files on each metadata target in turn."""
        names = self._names("metadata_targets", of_metadata_targets)
        limits, seconds = self.site.limits, self._turn_seconds(len(names))
        turns = most_turns(len(names), self.repetitions)
        files = (limits.case_files - len(names)) // turns
        if files < _LEAST_FILES:
            raise ValueError(
                f"limits.case_files is {limits.case_files}: expected {turns * _LEAST_FILES + len(names)} or "
                f"more, {_LEAST_FILES} for each of {turns} turns; set cases.{type(self).__name__}.case_files"
            )
        job = replace(
            metadata_job("filecreate", files=files, runtime_s=seconds),
            filename_format=f"{ROUND}.$clientuid.$jobnum.$filenum",
        )
        jobs = (
            replace(job, name=name, directory=f"{DIRECTORY}/{name}") for name in names
        )
        return self._needle(
            {"create.fio": "\n".join(job.job_file() for job in jobs)},
            {"targets": names},
            held_bytes=0,
            files=turns * files + len(names),
            mdts=len(names),
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
        return self._needle(
            {f"{job.name}.fio": job.job_file() for job in jobs},
            {"nodes": self.nodes},
            SERVERS,
            prepare=[self.fio_phase(jobs[0], {}, LAID_OUT, repeated=False)],
            held_bytes=jobs[0].bytes_total * self.nodes,
            files=self.total_tasks,
            layout=layout,
        )
