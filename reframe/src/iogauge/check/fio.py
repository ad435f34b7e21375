"""Base class of the scenarios that run fio on one node: one process for each task, on files of its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge import features
from iogauge.check.base import StorageCheck
from iogauge.measurement import Metric, ToolOutput
from iogauge.plan import REP, Access, CasePlan, PhasePlan, Printed
from iogauge.tools import fio
from iogauge.units import parse_bytes

#: fio's own syntax for an environment variable in a job file.
_DIRECTORY = "${IOG_DIR}"


def _parse(printed: Printed) -> ToolOutput:
    return fio.parse_json(printed.result + printed.stdout + printed.stderr)


class FioCheck(StorageCheck):
    """fio on the node of the job; a subclass says with which jobs."""

    needs = features.FIO
    #: fio's client/server mode is another scenario: here it runs on one node.
    nodes = 1

    def declared(self) -> dict[str, Any]:
        """As for every check, but on one node."""
        return {**super().declared(), "nodes": 1}

    @builtins.run_after("setup")
    def _one_node(self) -> None:
        # fio's processes are its own: the job is one task on one node.
        self.num_tasks = 1
        self.num_tasks_per_node = 1
        self.num_cpus_per_task = self.tasks_per_node

    def jobs(self) -> Sequence[fio.FioJob]:
        """Jobs, one a phase."""
        raise TypeError(f"{type(self).__name__} must define jobs()")

    def fio_phase(
        self, job: fio.FioJob, rates: Mapping[str, str], access: Access, repeated: bool = True
    ) -> PhasePlan:
        """One execution of fio with one job. ``rates`` maps a metric to fio's quantity; a layout has none."""
        output = f"fio-{job.name}.{REP if repeated else '0'}.json"
        options = fio.FioOptions(job_file=f"{job.name}.fio", output=output)
        phase = {"randread": "read", "randwrite": "write"}.get(job.pattern, job.pattern)
        return PhasePlan(
            name=job.name,
            command=["fio", *options.arguments()],
            launch="once",
            parse=_parse,
            rates={
                metric: (fio.METADATA_PHASES.get(job.engine, phase), rate)
                for metric, rate in rates.items()
            },
            access=access,
            output=output,
            data_bytes=None if job.runtime_s or job.metadata else job.bytes_total,
        )

    def fio_case(
        self,
        jobs: Sequence[fio.FioJob],
        repeat: Sequence[PhasePlan],
        prepare: Sequence[PhasePlan] = (),
        warm_up: bool = True,
        held_bytes: int = 0,
        files: int = 0,
    ) -> CasePlan:
        """A case of fio phases; refuses several nodes, which need fio's client/server mode."""
        if self.nodes != 1:
            raise ValueError(
                f"nodes is {self.nodes}: this scenario runs fio on one node; set nodes=1"
            )
        return CasePlan(
            tool="fio",
            repetitions=self.repetitions,
            tasks=self.tasks_per_node,
            nodes=1,
            prepare=prepare,
            repeat=repeat,
            warm_up=warm_up,
            held_bytes=held_bytes,
            files=files,
            inputs={f"{job.name}.fio": job.job_file() for job in jobs},
        )


class FioRandomReadCheck(FioCheck):
    """Random reads with O_DIRECT of files that were laid out before.

    A subclass sets ``block``, the size of a read as text with a unit.
    """

    def promise(self) -> tuple[Metric, ...]:
        """Operations per second."""
        return (Metric("read_iops", "ops/s"), Metric("read_bw", "MiB/s"))

    def plan(self) -> CasePlan:
        """Lay the files out once, then read for the time that the limits give."""
        block, limits = parse_bytes(self.block), self.site.limits
        step = max(block, 1 << 20)
        # A quarter of the case's bytes: random reads need room for the heads, not volume.
        file_bytes = limits.case_bytes // 4 // self.tasks_per_node // step * step
        if file_bytes < step:
            raise ValueError(
                f"limits.case_bytes is {limits.case_bytes}: a quarter of it leaves less than {step} "
                f"bytes for each of {self.tasks_per_node} task(s)"
            )
        layout = fio.layout_job(
            directory=_DIRECTORY, file_bytes=file_bytes, numjobs=self.tasks_per_node
        )
        read = fio.random_read_job(
            directory=_DIRECTORY,
            block_bytes=block,
            file_bytes=file_bytes,
            numjobs=self.tasks_per_node,
            runtime_s=max(1, int(limits.phase_seconds)),
            ramp_s=1 if self.tier == "quick" else 2,
        )
        written = Access(direction="write", o_direct=True, fsync=True)
        return self.fio_case(
            jobs=[layout, read],
            prepare=[self.fio_phase(layout, {}, written, repeated=False)],
            repeat=[
                self.fio_phase(
                    read,
                    {"read_iops": "iops", "read_bw": "bw"},
                    Access(direction="read", o_direct=True),
                )
            ],
            warm_up=False,  # fio's ramp time is one
            held_bytes=layout.bytes_total,
            files=self.tasks_per_node,
        )


class FioMetadataCheck(FioCheck):
    """Create, stat and remove empty files, by the client that created them."""

    def promise(self) -> tuple[Metric, ...]:
        """Rates; stat is warm: fio looks at every file before it starts the clock."""
        return (
            Metric("create_rate", "ops/s"),
            Metric("stat_warm_rate", "ops/s"),
            Metric("remove_rate", "ops/s"),
        )

    def plan(self) -> CasePlan:
        """As many files as the limits allow, shared out over the tasks."""
        files = self.site.limits.case_files // self.tasks_per_node
        if files < 1:
            raise ValueError(
                f"limits.case_files is {self.site.limits.case_files}: less than one a task"
            )
        # A stat is several times as fast as the others: five rounds make it last.
        engines: tuple[tuple[Literal["filecreate", "filestat", "filedelete"], int], ...] = (
            ("filecreate", 1),
            ("filestat", 5),
            ("filedelete", 1),
        )
        jobs = [
            fio.metadata_job(
                engine,
                directory=_DIRECTORY,
                files=files,
                numjobs=self.tasks_per_node,
                loops=loops,
            )
            for engine, loops in engines
        ]
        metadata = Access(direction="metadata")
        return self.fio_case(
            jobs=jobs,
            repeat=[
                self.fio_phase(job, {metric.name: "rate"}, metadata)
                for job, metric in zip(jobs, self.promise(), strict=True)
            ],
            files=files * self.tasks_per_node,
        )
