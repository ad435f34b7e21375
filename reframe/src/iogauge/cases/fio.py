"""Base classes of the scenarios that run fio: a process for each task, with its own files.

On one node fio runs by itself. On several nodes its servers run on all of them, and the first node
is their client (:class:`RandomReadCheck`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from iogauge.cases.storage import StorageCheck, share_of_bytes
from iogauge.core import words
from iogauge.core.measurement import Metric, ToolOutput
from iogauge.core.units import parse_bytes
from iogauge.plan.case import (
    REP,
    Access,
    CasePlan,
    PhasePlan,
    Printed,
    Verification,
)
from iogauge.tools.fio import options
from iogauge.tools.fio.output import check_alone, parse_json

#: Bytes between two checksums in files.
CHECKED_BYTES = 4096

READ_IOPS = Metric("read_iops", "ops/s")
READ_BW = Metric("read_bw", "MiB/s")
WRITE_BW = Metric("write_bw", "MiB/s")
#: How files are laid out that a timed job then works on.
LAID_OUT = Access(direction="write", o_direct=True, fsync=True)


def parse_fio(printed: Printed) -> ToolOutput:
    """Return what fio printed; raises :class:`ToolOutputError`."""
    check_alone(printed.result)
    return parse_json(printed.result + printed.stdout + printed.stderr)


def checksum_interval(block_bytes: int) -> int:
    """Return the interval of checksums in the files: every read covers whole intervals."""
    return math.gcd(block_bytes, CHECKED_BYTES)


def checks_of(layout: options.FioJob) -> Verification | None:
    """Return how the warm-up checks what it reads, or None if the layout wrote no checksums."""
    if not layout.checksum_bytes:
        return None
    return Verification(options.verification(layout.checksum_bytes), options.MISMATCH)


#: How a preparing layout checks what it wrote, and random writes in their warm-up.
LAYOUT_CHECKED = Verification(
    options.verification(CHECKED_BYTES, options.READ_BACK), options.MISMATCH
)
_WRITES_CHECKED = Verification(
    options.verification(CHECKED_BYTES, options.READ_BACK_BY_TURNS), options.MISMATCH
)


class FioCheck(StorageCheck):
    """fio on the nodes of the job; a subclass sets the jobs."""

    needs = words.FIO
    own_processes = 1
    on_all_nodes: bool = False

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; on one node, unless it runs on all."""
        declared = super().declared()
        return declared if self.on_all_nodes else {**declared, "nodes": 1}

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's quantity of each metric: operations per second, and the reads' bandwidth."""
        return {READ_IOPS: "iops", READ_BW: "bw"}

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that have a quantity."""
        return tuple(self.quantities())

    def timed_phase(
        self, job: options.FioJob, access: Access, **more: Any
    ) -> PhasePlan:
        """Return the phase of the job that gives all metrics their values; for ``more`` see :meth:`fio_phase`."""
        rates = {
            metric.name: quantity for metric, quantity in self.quantities().items()
        }
        return self.fio_phase(job, rates, access, **more)

    def share_of_file(self, block: int, shares: int) -> int:
        """Return a share of the case's bytes, whole blocks and MiB; raises ValueError if it is less than one."""
        step, most = max(block, 1 << 20), self.site.limits.case_bytes
        file_bytes = most // shares // step * step
        if file_bytes < step:
            raise ValueError(
                f"limits.case_bytes is {most}: less than {step} bytes for each of {shares} shares"
            )
        return file_bytes

    def share_of_files(self, shares: int) -> int:
        """Return a share of the case's files; raises ValueError if it is less than one."""
        files = self.site.limits.case_files // shares
        if files < 1:
            raise ValueError(
                f"limits.case_files is {self.site.limits.case_files}: less than one for each of {shares} task(s)"
            )
        return files

    def fio_phase(
        self,
        job: options.FioJob,
        rates: Mapping[str, str],
        access: Access,
        repeated: bool = True,
        verifies: Verification | None = None,
    ) -> PhasePlan:
        """Return one execution of fio with a job; ``rates`` maps a metric to fio's quantity.

        A layout has no rates.
        """
        output = f"fio-{job.name}.{REP if repeated else '0'}.json"
        file = f"{job.name}.fio"
        # Of both ways these are the rates of the reads.
        phase = "write" if job.pattern.endswith("write") else "read"
        served = self.nodes > 1
        command = (
            [file, output] if served else ["fio", *options.arguments(file, output)]
        )
        return PhasePlan(
            name=job.name,
            command=command,
            launch="clients" if served else "once",
            parse=parse_fio,
            rates={
                metric: (options.METADATA_PHASES.get(job.engine, phase), rate)
                for metric, rate in rates.items()
            },
            access=access,
            output=output,
            data_bytes=None
            if job.runtime_s or job.metadata
            else job.bytes_total * self.nodes,
            verifies=verifies,
        )

    def fio_case(self, jobs: Sequence[options.FioJob], **case: Any) -> CasePlan:
        """Return a case of fio phases; ``case`` gives the other fields of :class:`CasePlan`."""
        inputs = {f"{job.name}.fio": job.job_file() for job in jobs}
        return self.case("fio", inputs=inputs, **case)

    def laid_out_case(
        self,
        layout: options.FioJob,
        timed: Sequence[options.FioJob],
        repeat: Sequence[PhasePlan],
        verifies: Verification | None = None,
        **case: Any,
    ) -> CasePlan:
        """Return a case in which every process lays its files out once, and timed jobs then work on them."""
        access = replace(LAID_OUT, o_direct=layout.direct)
        return self.fio_case(
            jobs=[layout, *timed],
            prepare=[
                self.fio_phase(layout, {}, access, repeated=False, verifies=verifies)
            ],
            repeat=repeat,
            held_bytes=layout.bytes_total * self.nodes,
            files=layout.numjobs * self.nodes,
            **case,
        )


class OneNodeFioCheck(FioCheck):
    """fio on one node, without servers."""

    def fio_case(self, jobs: Sequence[options.FioJob], **case: Any) -> CasePlan:
        """Return the case, as of every fio check; raises ValueError for several nodes."""
        if self.nodes != 1:
            raise ValueError(
                f"nodes is {self.nodes}: this scenario runs fio on one node; set nodes=1"
            )
        return super().fio_case(jobs, **case)


class FioRandomReadCheck(OneNodeFioCheck):
    """Random reads with O_DIRECT of files that were laid out before.

    A subclass sets ``block``, the size of a request as text with a unit.
    """

    block: str

    def timed_job(self, layout: options.FioJob) -> options.FioJob:
        """Return the job that is measured: it runs for the time that the limits give."""
        return options.reader_of(
            layout,
            block_bytes=parse_bytes(self.block),
            runtime_s=self.site.limits.phase_seconds,
        )

    def plan(self) -> CasePlan:
        """Lay the files out once, then run the timed job."""
        block = parse_bytes(self.block)
        layout = options.layout_job(
            # A quarter of the case's bytes: random requests need room for the heads, not volume.
            file_bytes=self.share_of_file(block, 4 * self.tasks_per_node),
            numjobs=self.tasks_per_node,
            checksum_bytes=checksum_interval(block),
        )
        job = self.timed_job(layout)
        direction: Literal["read", "write"] = "read"
        if job.pattern.endswith("write"):
            direction, layout = "write", replace(layout, checksum_bytes=0)
        access = Access(direction=direction, o_direct=True)
        checked = checks_of(layout) or _WRITES_CHECKED
        return self.laid_out_case(
            layout, [job], [self.timed_phase(job, access, verifies=checked)]
        )


class FioSequentialCheck(OneNodeFioCheck):
    """Write with fsync, empty the page cache if it would answer, and read.

    A subclass sets ``block``, the size of a request as text with a unit, ``file_per_process`` and
    ``o_direct``. O_DIRECT needs the partition's feature ``o_direct``.
    """

    block: str
    file_per_process: bool = True
    o_direct: bool = False
    #: Directory of the files on the target, below that of the case.
    below: str = ""

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def _access(self, direction: Literal["read", "write"]) -> Access:
        # A node is the whole of what the site measures only if the site has no other.
        whole = self.site.scale.nodes == 1
        return Access(
            direction=direction,
            o_direct=self.o_direct,
            fsync=direction == "write",
            evict=direction == "read" and not self.o_direct,
            saturates="bandwidth" if whole else None,
        )

    def _phase(self, job: options.FioJob, checks: tuple[str, ...]) -> PhasePlan:
        way: Literal["read", "write"] = "read" if job.pattern == "read" else "write"
        rates: Mapping[str, str] = {f"{way}_bw": "bw"}
        # The warm-up alone writes and checks checksums: they would cost time in the others.
        checked = Verification(checks, options.MISMATCH)
        return self.fio_phase(job, rates, self._access(way), verifies=checked)

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        block, each = parse_bytes(self.block), share_of_bytes(self, self.block)
        write = options.FioJob(
            name="write",
            pattern="write",
            block_bytes=block,
            file_bytes=each,
            numjobs=self.tasks_per_node,
            direct=self.o_direct,
            shared=not self.file_per_process,
            fsync_at_end=True,
        )
        if self.below:
            write = replace(write, directory=f"{write.directory}/{self.below}")
        read = replace(write, name="read", pattern="read", fsync_at_end=False)
        return self.fio_case(
            jobs=[write, read],
            repeat=[
                self._phase(
                    write, options.verification(CHECKED_BYTES, options.WRITTEN_ALONE)
                ),
                self._phase(read, options.verification(CHECKED_BYTES)),
            ],
            held_bytes=write.bytes_total,
            files=self.tasks_per_node if self.file_per_process else 1,
            shared_file=not self.file_per_process,
            below=self.below,
        )


class FioMetadataCheck(OneNodeFioCheck):
    """Create, stat and remove empty files, by the client that created them.

    fio leaves what it creates and removes in memory: syncfs(2) after it belongs to its time.
    """

    needs = words.FIO_METADATA

    def promise(self) -> tuple[Metric, ...]:
        """Return rates; stat is warm, because fio stats every file before it starts the clock."""
        return (
            Metric("create_rate", "ops/s"),
            Metric("stat_warm_rate", "ops/s"),
            Metric("remove_rate", "ops/s"),
        )

    def plan(self) -> CasePlan:
        """Divide the files that the limits allow among the tasks."""
        files = self.share_of_files(self.tasks_per_node)
        # A stat is several times as fast as the others: five rounds make it last.
        engines: tuple[
            tuple[Literal["filecreate", "filestat", "filedelete"], int], ...
        ] = (
            ("filecreate", 1),
            ("filestat", 5),
            ("filedelete", 1),
        )
        jobs = [
            options.metadata_job(
                engine, files=files, numjobs=self.tasks_per_node, loops=loops
            )
            for engine, loops in engines
        ]
        metadata = Access(direction="metadata")
        return self.fio_case(
            jobs=jobs,
            repeat=[
                replace(
                    self.fio_phase(job, {metric.name: "rate"}, metadata),
                    syncs=job.engine != "filestat",
                )
                for job, metric in zip(jobs, self.promise(), strict=True)
            ],
            held_bytes=0,
            files=files * self.tasks_per_node,
        )


def span_of_boxes(number: int) -> str:
    """Return the span of so many boxes of servers."""
    return "one-box" if number == 1 else f"{number}-boxes"
