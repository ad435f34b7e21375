"""Base classes of the scenarios that run fio: a process for each task, with its own files.

On one node fio runs by itself. On several nodes its servers run on all of them, and the first node
is their client (:class:`RandomReadCheck`).
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

from iogauge.cases.storage import StorageCheck, share_of_bytes
from iogauge.core import vocabulary
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
from iogauge.tools.fio import fio_options
from iogauge.tools.fio.fio_output import check_alone, parse_json

#: Bytes between two checksums in files.
CHECKED_BYTES = 4096

READ_IOPS = Metric("read_iops", "ops/s")
READ_BW = Metric("read_bw", "MiB/s")
#: fio's quantities of random reads.
OF_RANDOM_READS: Mapping[Metric, str] = {READ_IOPS: "iops", READ_BW: "bw"}
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


def checks_of(layout: fio_options.FioJob) -> Verification | None:
    """Return how the warm-up checks what it reads, or None if the layout wrote no checksums."""
    if not layout.checksum_bytes:
        return None
    return Verification(
        fio_options.verification(layout.checksum_bytes), fio_options.MISMATCH
    )


#: How a preparing layout checks what it wrote.
LAYOUT_CHECKED = Verification(
    fio_options.verification(CHECKED_BYTES, fio_options.READ_BACK), fio_options.MISMATCH
)


class FioCheck(StorageCheck):
    """fio on the nodes of the job; a subclass sets the jobs, and ``quantities`` if it has a timed phase."""

    needs = vocabulary.FIO
    own_processes = 1
    #: It runs on all nodes of the site's scale, or on one.
    on_all_nodes: bool = False
    #: fio's quantity of each metric of the timed phase.
    quantities: Mapping[Metric, str]

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; on one node, unless it runs on all."""
        declared = super().declared()
        if not self.on_all_nodes:
            declared["nodes"] = 1
        return declared

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that have a quantity."""
        return tuple(self.quantities)

    def timed_phase(
        self,
        job: fio_options.FioJob,
        access: Access,
        verifies: Verification | None = None,
    ) -> PhasePlan:
        """Return the phase of the job that gives all metrics their values."""
        rates = {metric.name: quantity for metric, quantity in self.quantities.items()}
        return self.fio_phase(job, rates, access, verifies=verifies)

    def share_of_file(self, block: int, shares: int) -> int:
        """Return a share of the case's bytes, whole blocks and MiB; raises ValueError if it is less than one."""
        step, most = max(block, 1 << 20), self.site.limits.case_bytes
        file_bytes = most // shares // step * step
        if file_bytes < step:
            raise ValueError(
                f"limits.case_bytes is {most}: less than {step} bytes for each of {shares} shares"
            )
        return file_bytes

    def fio_phase(
        self,
        job: fio_options.FioJob,
        rates: Mapping[str, str],
        access: Access,
        repeated: bool = True,
        verifies: Verification | None = None,
    ) -> PhasePlan:
        """Return one execution of fio with a job; ``rates`` maps a metric to fio's quantity.

        A layout has no rates.
        """
        file = f"{job.name}.fio"
        output = f"fio-{job.name}.0.json"
        if repeated:
            output = f"fio-{job.name}.{REP}.json"
        launch: Literal["clients", "once"] = "once"
        command = ["fio", *fio_options.arguments(file, output)]
        if self.nodes > 1:
            launch = "clients"
            command = [file, output]
        # Of both ways these are the rates of the reads.
        phase = "read"
        if job.pattern.endswith("write"):
            phase = "write"
        data_bytes = None
        if not job.runtime_s:
            data_bytes = job.bytes_total * self.nodes
        return PhasePlan(
            name=job.name,
            command=command,
            launch=launch,
            parse=parse_fio,
            rates={metric: (phase, rate) for metric, rate in rates.items()},
            access=access,
            output=output,
            data_bytes=data_bytes,
            verifies=verifies,
        )

    def fio_case(
        self,
        jobs: Sequence[fio_options.FioJob],
        repeat: Sequence[PhasePlan],
        held_bytes: int,
        files: int,
    ) -> CasePlan:
        """Return a case of fio phases."""
        inputs = {f"{job.name}.fio": job.job_file() for job in jobs}
        return replace(
            self.case("fio", repeat, held_bytes=held_bytes, files=files), inputs=inputs
        )

    def laid_out_case(
        self,
        layout: fio_options.FioJob,
        timed: Sequence[fio_options.FioJob],
        repeat: Sequence[PhasePlan],
        verifies: Verification | None = None,
    ) -> CasePlan:
        """Return a case in which every process lays its files out once, and timed jobs then work on them."""
        access = replace(LAID_OUT, o_direct=layout.direct)
        lay_out = self.fio_phase(layout, {}, access, repeated=False, verifies=verifies)
        case = self.fio_case(
            jobs=[layout, *timed],
            repeat=repeat,
            held_bytes=layout.bytes_total * self.nodes,
            files=layout.numjobs * self.nodes,
        )
        return replace(case, prepare=[lay_out])


class OneNodeFioCheck(FioCheck):
    """fio on one node, without servers."""

    def fio_case(
        self,
        jobs: Sequence[fio_options.FioJob],
        repeat: Sequence[PhasePlan],
        held_bytes: int,
        files: int,
    ) -> CasePlan:
        """Return the case, as of every fio check; raises ValueError for several nodes."""
        if self.nodes != 1:
            raise ValueError(
                f"nodes is {self.nodes}: this scenario runs fio on one node; set nodes=1"
            )
        return super().fio_case(jobs, repeat, held_bytes, files)


class FioRandomReadCheck(OneNodeFioCheck):
    """Random reads with O_DIRECT of files that were laid out before.

    A subclass sets ``block``, the size of a request as text with a unit.
    """

    block: str
    quantities = OF_RANDOM_READS

    def plan(self) -> CasePlan:
        """Lay the files out once, then run the timed job."""
        block = parse_bytes(self.block)
        layout = fio_options.layout_job(
            # A quarter of the case's bytes: random requests need room for the heads, not volume.
            file_bytes=self.share_of_file(block, 4 * self.tasks_per_node),
            numjobs=self.tasks_per_node,
            checksum_bytes=checksum_interval(block),
        )
        job = fio_options.reader_of(
            layout, block_bytes=block, runtime_s=self.site.limits.phase_seconds
        )
        access = Access(direction="read", o_direct=True)
        phase = self.timed_phase(job, access, verifies=checks_of(layout))
        return self.laid_out_case(layout, [job], [phase])


class FioSequentialCheck(OneNodeFioCheck):
    """Write with fsync, empty the page cache if it would answer, and read.

    A subclass sets ``block``, the size of a request as text with a unit, ``file_per_process`` and
    ``o_direct``. O_DIRECT needs the partition's feature ``o_direct``.
    """

    block: str
    file_per_process: bool = True
    o_direct: bool = False

    def promise(self) -> tuple[Metric, ...]:
        """Return the bandwidths of write and read."""
        return (WRITE_BW, READ_BW)

    def _phase(
        self, job: fio_options.FioJob, access: Access, checks: tuple[str, ...]
    ) -> PhasePlan:
        # A node is the whole of what the site measures only if the site has no other.
        if self.site.scale.nodes == 1:
            access = replace(access, saturates="bandwidth")
        access = replace(access, o_direct=self.o_direct)
        # The warm-up alone writes and checks checksums: they would cost time in the others.
        checked = Verification(checks, fio_options.MISMATCH)
        return self.fio_phase(job, {f"{job.name}_bw": "bw"}, access, verifies=checked)

    def plan(self) -> CasePlan:
        """Give each process its share of the case's bytes; raises ValueError if they do not fit."""
        write = fio_options.FioJob(
            name="write",
            pattern="write",
            block_bytes=parse_bytes(self.block),
            file_bytes=share_of_bytes(self, self.block),
            numjobs=self.tasks_per_node,
            direct=self.o_direct,
            shared=not self.file_per_process,
            fsync_at_end=True,
        )
        read = replace(write, name="read", pattern="read", fsync_at_end=False)
        writes = Access(direction="write", fsync=True)
        written = fio_options.verification(CHECKED_BYTES, fio_options.WRITTEN_ALONE)
        reads = Access(direction="read", evict=not self.o_direct)
        files = 1
        if self.file_per_process:
            files = self.tasks_per_node
        case = self.fio_case(
            jobs=[write, read],
            repeat=[
                self._phase(write, writes, written),
                self._phase(read, reads, fio_options.verification(CHECKED_BYTES)),
            ],
            held_bytes=write.bytes_total,
            files=files,
        )
        return replace(case, shared_file=not self.file_per_process)
