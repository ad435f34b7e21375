"""Base classes of the scenarios that run fio: a process for each task, with its own files.

On one node fio runs by itself. On several nodes its servers run on all of them, and the first node
is their client (:class:`RandomReadCheck`).
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal

import reframe.core.builtins as builtins

from iogauge.cases.storage import StorageCheck
from iogauge.core import words
from iogauge.core.measurement import Metric, Quantity, ToolOutput
from iogauge.core.units import parse_bytes
from iogauge.node.lustre.request import Pins
from iogauge.plan.case import (
    DIR,
    REP,
    Access,
    CasePlan,
    Computed,
    PhasePlan,
    Printed,
    Verification,
)
from iogauge.tools.fio.options import (
    METADATA_PHASES,
    MISMATCH,
    READ_BACK,
    READ_BACK_BY_TURNS,
    FioJob,
    arguments,
    layout_job,
    metadata_job,
    reader_of,
    verification,
)
from iogauge.tools.fio.output import parse_json

#: Bytes between two checksums in files.
CHECKED_BYTES = 4096

READ_IOPS = Metric("read_iops", "ops/s")
READ_BW = Metric("read_bw", "MiB/s")
WRITE_BW = Metric("write_bw", "MiB/s")
#: How files are laid out that a timed job then works on.
LAID_OUT = Access(direction="write", o_direct=True, fsync=True)


def parse_fio(printed: Printed) -> ToolOutput:
    """Return what fio printed; raises :class:`ToolOutputError`."""
    return parse_json(printed.result + printed.stdout + printed.stderr)


def checksum_interval(block_bytes: int) -> int:
    """Return the interval of checksums in the files: every read covers whole intervals."""
    return math.gcd(block_bytes, CHECKED_BYTES)


def checks_of(layout: FioJob) -> Verification | None:
    """Return how the warm-up checks what it reads, or None if the layout wrote no checksums."""
    if not layout.checksum_bytes:
        return None
    return Verification(verification(layout.checksum_bytes), MISMATCH)


#: How a preparing layout checks what it wrote, and random writes in their warm-up.
LAYOUT_CHECKED = Verification(verification(CHECKED_BYTES, READ_BACK), MISMATCH)
_WRITES_CHECKED = Verification(verification(CHECKED_BYTES, READ_BACK_BY_TURNS), MISMATCH)


class FioCheck(StorageCheck):
    """fio on the nodes of the job; a subclass sets the jobs."""

    needs = words.FIO
    own_processes = 1
    on_all_nodes: bool = False

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; on one node, unless it runs on all."""
        declared = super().declared()
        return declared if self.on_all_nodes else {**declared, "nodes": 1}

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
        job: FioJob,
        rates: Mapping[str, str],
        access: Access,
        repeated: bool = True,
        verifies: Verification | None = None,
        on_all: bool = True,
    ) -> PhasePlan:
        """Return one execution of fio with a job; ``rates`` maps a metric to fio's quantity.

        A layout has no rates. Without ``on_all`` the first node alone runs the job.
        """
        output = f"fio-{job.name}.{REP if repeated else '0'}.json"
        file = f"{job.name}.fio"
        # Of both ways these are the rates of the reads.
        phase = "write" if job.pattern.endswith("write") else "read"
        nodes = self.nodes if on_all else 1
        served = nodes > 1
        command = [file, output] if served else ["fio", *arguments(file, output)]
        return PhasePlan(
            name=job.name,
            command=command,
            launch="clients" if served else "once",
            parse=parse_fio,
            rates={
                metric: (METADATA_PHASES.get(job.engine, phase), rate)
                for metric, rate in rates.items()
            },
            access=access,
            output=output,
            data_bytes=None if job.runtime_s or job.metadata else job.bytes_total * nodes,
            verifies=verifies,
        )

    def fio_case(self, jobs: Sequence[FioJob], **case: Any) -> CasePlan:
        """Return a case of fio phases; ``case`` gives the other fields of :class:`CasePlan`."""
        inputs = {f"{job.name}.fio": job.job_file() for job in jobs}
        return self.case("fio", inputs=inputs, **case)

    def laid_out_case(
        self, layout: FioJob, timed: Sequence[FioJob], repeat: Sequence[PhasePlan], **case: Any
    ) -> CasePlan:
        """Return a case in which every process lays its files out once, and timed jobs then work on them."""
        return self.fio_case(
            jobs=[layout, *timed],
            prepare=[self.fio_phase(layout, {}, LAID_OUT, repeated=False)],
            repeat=repeat,
            held_bytes=layout.bytes_total * self.nodes,
            files=self.total_tasks,
            **case,
        )


class OneNodeFioCheck(FioCheck):
    """fio on one node, without servers."""

    def fio_case(self, jobs: Sequence[FioJob], **case: Any) -> CasePlan:
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

    def quantities(self) -> Mapping[Metric, str]:
        """Return fio's quantity of each metric: operations per second, and the reads' bandwidth."""
        return {READ_IOPS: "iops", READ_BW: "bw"}

    def promise(self) -> tuple[Metric, ...]:
        """Return the metrics that have a quantity."""
        return tuple(self.quantities())

    def timed_job(self, layout: FioJob) -> FioJob:
        """Return the job that is measured: it runs for the time that the limits give."""
        return reader_of(
            layout,
            block_bytes=parse_bytes(self.block),
            runtime_s=self.site.limits.phase_seconds,
        )

    def plan(self) -> CasePlan:
        """Lay the files out once, then run the timed job."""
        block = parse_bytes(self.block)
        layout = layout_job(
            # A quarter of the case's bytes: random requests need room for the heads, not volume.
            file_bytes=self.share_of_file(block, 4 * self.tasks_per_node),
            numjobs=self.tasks_per_node,
            checksum_bytes=checksum_interval(block),
        )
        job = self.timed_job(layout)
        direction: Literal["read", "write"] = "read"
        if job.pattern.endswith("write"):
            direction, layout = "write", replace(layout, checksum_bytes=0)
        rates = {metric.name: quantity for metric, quantity in self.quantities().items()}
        access = Access(direction=direction, o_direct=True)
        checked = checks_of(layout) or _WRITES_CHECKED
        return self.laid_out_case(
            layout, [job], [self.fio_phase(job, rates, access, verifies=checked)]
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
            metadata_job(engine, files=files, numjobs=self.tasks_per_node, loops=loops)
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


UNCHECKED_IOPS = Metric("read_iops_unchecked", "ops/s")
CHECKSUM_RATIO = Metric("checksum_ratio", "1")

#: Seconds of the document's runs.
_PUBLISHED_SECONDS = 10


def span_of_boxes(number: int) -> str:
    """Return the span of so many boxes of servers."""
    return "one-box" if number == 1 else f"{number}-boxes"


class RandomReadCheck(FioCheck):
    """Random reads with O_DIRECT by processes of one node or all; the readers lay out the files.

    A subclass sets ``block`` (text with a unit), ``span`` and ``tasks``, the processes on each
    client. On Lustre each process has a directory of its own, pinned to one target, round robin.
    """

    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT}"]
    variants = ("sound", "published")
    flaw = "runs of 10 s: too short to compare systems by"
    block: str
    #: Clients that read and servers that hold the files: ``one-client``, ``one-server``,
    #: ``one-box``, ``2-boxes`` (:func:`span_of_boxes`), ``all``.
    span: str
    tasks: int

    def promise(self) -> tuple[Metric, ...]:
        """Return operations per second, and the bandwidth of the reads."""
        return (READ_IOPS, READ_BW)

    def declared(self) -> dict[str, Any]:
        """Return the defaults of every check; the nodes follow from the span."""
        nodes = 1 if self.span == "one-client" else self.site.scale.nodes
        return {**super().declared(), "nodes": nodes, "tasks_per_node": self.tasks}

    def servers_used(self) -> int | None:
        """Return the number of object storage servers that hold the files, or None for all."""
        if self.span in ("one-client", "all"):
            return None
        if self.span == "one-server":
            return 1
        # The partitions of a span of boxes have them.
        assert self.site.topology and self.site.topology.servers
        servers = self.site.topology.servers
        some = (number for number in range(servers.boxes) if span_of_boxes(number) == self.span)
        return next(some) * (servers.per_box or 1)

    def _jobs(self) -> tuple[FioJob, FioJob]:
        """Return the job that lays out the files, and the job that reads them."""
        block, limits = parse_bytes(self.block), self.site.limits
        # Each process reads as many bytes whatever the span.
        most = max(self.nodes, self.site.scale.nodes) * self.tasks_per_node
        published = self.variant == "published"
        layout = layout_job(
            file_bytes=self.share_of_file(block, most),
            numjobs=self.tasks_per_node,
            checksum_bytes=0 if published else checksum_interval(block),
        )
        if self._pins():
            layout = replace(layout, filename_format="$jobnum/$clientuid.$filenum")
        seconds = _PUBLISHED_SECONDS if published else limits.phase_seconds
        return layout, reader_of(layout, block_bytes=block, runtime_s=seconds)

    def _pins(self) -> Pins | None:
        if self.site.target.striped_by != "lustre":
            return None
        names = tuple(str(number) for number in range(self.tasks_per_node))
        return Pins(names=names, kind="directory", stripe_bytes=None, servers=self.servers_used())

    def plan(self) -> CasePlan:
        """Lay the files out once, then read."""
        layout, read = self._jobs()
        # The network limits large blocks, operations limit small ones.
        full: Literal["bandwidth"] | None = (
            "bandwidth" if parse_bytes(self.block) >= 128 << 10 else None
        )
        access = Access(direction="read", o_direct=True, saturates=full)
        rates = {READ_IOPS.name: "iops", READ_BW.name: "bw"}
        return self.laid_out_case(
            layout,
            [read],
            [self.fio_phase(read, rates, access, verifies=checks_of(layout))],
            pins=self._pins(),
            sweeps_tasks=True,
            servers=self.servers_used(),
        )


class ChecksumCheck(RandomReadCheck):
    """Random reads of a client with Lustre's checksums on, then off, by turns.

    Every repetition measures both, one after the other, so that drift touches both alike. The job
    restores the original setting, whatever ends it. If the job was killed, the next job of this
    suite on that node restores it.
    """

    valid_systems = [f"+{words.TARGET} +{words.O_DIRECT} +{words.CHECKSUMS}"]
    span = "one-client"

    @builtins.run_after("setup")
    def _needs_root(self) -> None:
        if os.getuid() != 0 and not self.is_dry_run():
            self.skip(
                "lctl set_param needs root: run as root, or take the right lustre-checksums away"
            )

    def promise(self) -> tuple[Metric, ...]:
        """Return operations per second with and without checksums, and the ratio of the two."""
        return (READ_IOPS, UNCHECKED_IOPS, CHECKSUM_RATIO)

    def plan(self) -> CasePlan:
        """Read as in every random read, with checksums as found, and again without."""
        layout, read = self._jobs()
        unchecked = replace(read, name="unchecked")
        access, checked = Access(direction="read", o_direct=True), checks_of(layout)
        sources = (READ_IOPS.name, UNCHECKED_IOPS.name)
        return self.laid_out_case(
            layout,
            [read, unchecked],
            [
                self.set_checksums("on"),
                self.fio_phase(read, {READ_IOPS.name: "iops"}, access, verifies=checked),
                self.set_checksums("off"),
                self.fio_phase(unchecked, {UNCHECKED_IOPS.name: "iops"}, access, verifies=checked),
            ],
            computed={CHECKSUM_RATIO.name: Computed(sources=sources, compute=_ratio)},
            pins=self._pins(),
            sweeps_tasks=True,
            restores=True,
        )

    def set_checksums(self, state: Literal["on", "off"]) -> PhasePlan:
        """Return a phase that switches the checksums of this client's connections to the target."""
        words = ["checksums", state, DIR]
        return PhasePlan(name=f"checksums-{state}", command=words, launch="agent")


def _ratio(over: Quantity, under: Quantity) -> Quantity:
    return Quantity(over.value / under.value, "1")
